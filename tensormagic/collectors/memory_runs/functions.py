"""Going into functions line by line, whoever wrote them: ``--func model.forward``, as line profilers do."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from torch import nn

from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.objects.children import registered
from tensormagic.collectors.ops import Places
from tensormagic.collectors.where.source import SourceLines, in_file, lines_of
from tensormagic.errors import UnknownNameError
from tensormagic.reports import Cell, FunctionMemory, Gap, LineMemory
from tensormagic.words import error_text

# How often each line of a function is reached: `sys.monitoring` (Python 3.12) shows the lines of single functions and
# leaves all others as quick as they are; ``sys.settrace`` would slow down everything, and take a debugger's place.

_TOOLS = (4, 3)  # numbers that no kind of tool has by convention: 0 is a debugger's, 1 a coverage's, 2 a profiler's
NAME = "tensormagic"


class Executions:
    """Counts lines while it is entered."""

    def __init__(self, codes: Iterable[CodeType], monitoring: Any = getattr(sys, "monitoring", None)) -> None:  # noqa: B008  (None before 3.12)
        self._codes, self._monitoring = tuple(codes), monitoring
        self._undoing = UndoStack()
        self.counts: Counter[tuple[str, int]] = Counter()  # how often each file and line was reached
        # Why nothing is counted; empty where it is.
        self.gap = "" if monitoring is not None else "counting how often a line ran needs Python 3.12"

    def __enter__(self) -> Executions:
        monitoring = self._monitoring
        if monitoring is not None and self._codes:
            tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
            if tool is None:
                self.gap = "how often a line ran is not counted: other tools use all of Python's monitoring slots"
                return self
            self._undoing.callback(self._free, tool)
            monitoring.use_tool_id(tool, NAME)
            monitoring.register_callback(tool, monitoring.events.LINE, self._reached)
            for code in self._codes:
                self._undoing.callback(monitoring.set_local_events, tool, code, 0)
                monitoring.set_local_events(tool, code, monitoring.events.LINE)
        return self

    def _free(self, tool: int) -> None:
        if self._monitoring.get_tool(tool) == NAME:
            self._monitoring.register_callback(tool, self._monitoring.events.LINE, None)
            self._monitoring.free_tool_id(tool)

    def __exit__(self, *_: object) -> None:
        self._undoing.close()

    def _reached(self, code: CodeType, line: int) -> None:
        self.counts[code.co_filename, line] += 1


# What happens inside one of the named functions counts at its own line, also where that line calls further functions,
# and also where it is a library's. It is found on the stack that is walked anyway: nothing is traced.

_DEFINES = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")  # not parsed: a cell may hold magics


class Functions:
    """The functions that a run goes through, line by line.

    ``wanted`` are functions and methods, or what a user writes for them: ``"train"``, ``"model.forward"``, ``"model"``
    (its forward), ``"torch.nn.functional.multi_head_attention_forward"``. One that the cell defines which is about to
    run is found once it is there.

    Raises:
        UnknownNameError: for what is not a function, or none that is written in Python.
    """

    def __init__(self, wanted: Iterable[Any], namespace: Mapping[str, Any], cell: Cell) -> None:
        # What they run, comprehensions and lambdas inside included, and the name that each was asked for by.
        self.codes: dict[CodeType, str] = {}
        self._later: dict[str, str] = {}  # names of functions that the cell itself is still to define
        self._filename = cell.filename
        defined = {match[1] for match in map(_DEFINES.match, cell.lines) if match is not None}
        for each in (wanted,) if isinstance(wanted, str) or callable(wanted) else wanted:
            name = each.strip("\"' ") if isinstance(each, str) else getattr(each, "__qualname__", type(each).__name__)
            if name.rpartition(".")[2] in defined:
                self._later[name.rpartition(".")[2]] = name
            try:
                value = _value(name, namespace) if isinstance(each, str) else each
            except UnknownNameError:
                if name not in self._later.values():
                    raise
                continue
            inner = _unwrapped(value)
            if not isinstance(inner, FunctionType):
                reason = f"of type {type(inner).__name__}: it is not a Python function"
                raise UnknownNameError(f"cannot follow {name}, {reason}")
            self._add(inner.__code__, name)
        self._asked = bool(self.codes or self._later)
        self.executions = Executions(self.codes)  # entered for the run: counts how often lines are reached

    def __contains__(self, code: CodeType) -> bool:
        """Return whether a code is one of them; one that was defined meanwhile is taken in."""
        if code not in self.codes and code.co_filename == self._filename and code.co_name in self._later:
            self._add(code, self._later[code.co_name])
        return code in self.codes

    def _add(self, code: CodeType, name: str) -> None:
        self.codes.update(dict.fromkeys(_with_inner(code), name))

    def places(self, sites: SourceLines, module_path: Callable[[FrameType | None], str]) -> Places:
        """Return what finds the line of an operation, and of what is freed."""
        return FunctionPlaces(sites, module_path, self) if self._asked else Places(sites, module_path)

    def described(self, lines: Sequence[LineMemory]) -> tuple[FunctionMemory, ...]:
        """Return the functions with their source, and which of the lines are theirs."""
        found = []
        for code, name in self.codes.items():
            if not code.co_name.startswith("<"):
                source, first = _source(code), in_file(code)[0].co_firstlineno
                places = [(line.location, at) for at, line in enumerate(lines)]
                inside = [pair for pair in places if pair[0].filename == code.co_filename]
                mine = sorted((at.line, number) for at, number in inside if first <= at.line < first + len(source))
                cell = lines[mine[0][1]].location.cell if mine else None
                found.append(FunctionMemory(name, code.co_filename, first, source, tuple(at for _, at in mine), cell))
        return tuple(found)

    def lines(self, lines: Sequence[LineMemory], sites: SourceLines) -> tuple[LineMemory, ...]:
        """Return the lines with how often each was reached; those that did nothing to memory come last."""
        counts = dict(self.executions.counts)
        places = ((line, (line.location.filename, line.location.line)) for line in lines)
        described = [replace(line, executions=counts.pop(place, 0)) for line, place in places]
        names = {(code.co_filename, line): code.co_name for code in self.codes for _, _, line in code.co_lines()}
        more = ((sites.at(*place, names.get(place, "")), count) for place, count in sorted(counts.items()))
        return (*described, *(LineMemory(location, executions=count) for location, count in more))

    def gaps(self) -> tuple[Gap, ...]:
        """Return what is not counted."""
        gap = self.executions.gap
        return (Gap("functions", gap),) if self._asked and gap else ()


def _value(name: str, namespace: Mapping[str, Any]) -> Any:
    """Return what an expression gives; a module need not have a name, if it was imported. A call is not made."""
    first = name.partition(".")[0]
    try:
        called = next((node for node in ast.walk(ast.parse(name, mode="eval")) if isinstance(node, ast.Call)), None)
    except (SyntaxError, ValueError):
        called = None  # said below
    if called is not None:
        raise UnknownNameError(f"cannot follow {name}: give the function by its name, {ast.unparse(called.func)}")
    imported = {first: sys.modules[first]} if first in sys.modules else {}
    try:
        return eval(name, {**imported, **namespace})  # noqa: S307  (the user's own expression)
    except Exception as error:
        here = "give a function by its name here: train, model.forward, package.module.function"
        raise UnknownNameError(f"cannot follow {name} ({error_text(error)}); {here}") from None


def _unwrapped(value: Any) -> Any:
    """Return the function inside methods, partials, decorators, compiled functions, and of modules their forward."""
    for _ in range(32):  # a chain without an end is somebody's joke
        if isinstance(value, nn.Module):
            inner = registered(value, "_modules").get("_orig_mod") or value.forward
        elif isinstance(value, type) and issubclass(value, nn.Module):
            inner = value.forward
        elif isinstance(value, MethodType | staticmethod | classmethod):
            inner = value.__func__
        elif isinstance(value, functools.partial | property):
            inner = value.fget if isinstance(value, property) else value.func
        else:
            known = getattr(value, "__dict__", {})
            inner = known.get("_torchdynamo_orig_callable") or known.get("__wrapped__")
        if inner is None:
            break
        value = inner
    return value


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType) and part.co_name.startswith("<"):
            yield from _with_inner(part)


def _source(code: CodeType) -> tuple[str, ...]:
    code = in_file(code)[0]
    lines = lines_of(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        block = inspect.getblock(lines)
    except Exception:  # no Python any more: the file has changed
        block = lines[: max((line for _, _, line in code.co_lines() if line), default=0) - code.co_firstlineno + 1]
    return tuple(line.rstrip("\n") for line in block)


class FunctionPlaces(Places):
    """Finds the line of the innermost named function on the stack, and the user's line where none is there."""

    def __init__(
        self, sites: SourceLines, module_path: Callable[[FrameType | None], str], functions: Functions
    ) -> None:
        super().__init__(sites, module_path)
        self._functions, self.site_of = functions, self._site_of

    def walk(self, frame: FrameType | None) -> tuple[int | None, str, bool]:
        """Return the line, the innermost module, and whether an optimizer of torch's made the call."""
        site, module, optimizes = super().walk(frame)
        inside = self._inside(frame)
        return site if inside is None else inside, module, optimizes

    def own_site(self, frame: FrameType | None, stop: Any) -> int | None:
        """Return the site of the line below the frame that runs ``stop``; None where there is none."""
        inside = self._inside(frame, stop)
        return super().own_site(frame, stop) if inside is None else inside

    def _site_of(self, frame: FrameType | None) -> int | None:
        inside = self._inside(frame)
        return self._sites.of_frame(frame) if inside is None else inside

    def _inside(self, frame: FrameType | None, stop: Any = None) -> int | None:
        while frame is not None and frame.f_code is not stop:
            if frame.f_code in self._functions:
                return self._sites.at_frame(frame)
            frame = frame.f_back
        return None
