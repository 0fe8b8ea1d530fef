"""Going into functions line by line, whoever wrote them: ``--func model.forward``, as line profilers do.

What happens inside one of the named functions counts at its own line, also where that line calls further functions,
and also where it is a library's, whose lines are nobody's otherwise. It is found on the stack that is walked anyway:
nothing is traced.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from torch import nn

from tensormagic.collectors.objects.holdings import registered
from tensormagic.collectors.ops.stack_walk import StackWalk
from tensormagic.collectors.where.source import Sites, lines_of
from tensormagic.errors import UnknownNameError
from tensormagic.reports import Cell, FunctionMemory, LineMemory

_DEFINES = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")  # not parsed: a cell may hold magics


@dataclass(slots=True)
class Functions:
    """The functions that are gone through.

    Attributes:
        codes: What they run, comprehensions and lambdas inside included, and the name that each was asked for by.
        later: Names of functions that the cell itself is still to define.
        filename: Of that cell.
    """

    codes: dict[CodeType, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    filename: str = ""

    def __contains__(self, code: CodeType) -> bool:
        """Return whether a code is one of them; one that was defined meanwhile is taken in."""
        if code in self.codes:
            return True
        if code.co_filename != self.filename or code.co_name not in self.later:
            return False
        self.add(code, self.later[code.co_name])
        return True

    def add(self, code: CodeType, name: str) -> None:
        """Take a function in."""
        self.codes.update(dict.fromkeys(_with_inner(code), name))

    def told(self, lines: Sequence[LineMemory]) -> tuple[FunctionMemory, ...]:
        """Return the functions with their source, and which of ``lines`` are theirs."""
        every = {code: name for code, name in self.codes.items() if not code.co_name.startswith("<")}
        return tuple(_told(code, name, lines) for code, name in every.items())


def find_functions(wanted: Iterable[Any], namespace: Mapping[str, Any], cell: Cell) -> Functions:
    """Return the functions that were asked for.

    Args:
        wanted: Functions and methods, or what a person writes for them: ``"train"``, ``"model.forward"``, ``"model"``
            (its forward), ``"torch.nn.functional.multi_head_attention_forward"``.
        namespace: The person's names.
        cell: What is about to run: a function that it defines is found once it is there.

    Raises:
        UnknownNameError: for what is no function, or none that is written in Python.
    """
    found = Functions(filename=cell.filename)
    defined = {match[1] for match in map(_DEFINES.match, cell.lines) if match is not None}
    for each in wanted:
        name = each.strip("\"' ") if isinstance(each, str) else getattr(each, "__qualname__", type(each).__name__)
        if name.rpartition(".")[2] in defined:
            found.later[name.rpartition(".")[2]] = name
        try:
            value = _value(name, namespace) if isinstance(each, str) else each
        except UnknownNameError:
            if name not in found.later.values():
                raise
            continue
        found.add(_code_of(value, name), name)
    return found


def _value(name: str, namespace: Mapping[str, Any]) -> Any:
    """Return what an expression gives; a module need not have a name, if it was imported. A call is not made."""
    first = name.partition(".")[0]
    try:
        called = next((node for node in ast.walk(ast.parse(name, mode="eval")) if isinstance(node, ast.Call)), None)
    except (SyntaxError, ValueError):
        called = None  # said below
    if called is not None:
        raise UnknownNameError(f"cannot go into {name}: a function is given by its name, {ast.unparse(called.func)}")
    try:
        return eval(name, {**_modules(first, namespace), **namespace})  # noqa: S307  (the person's own expression)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise UnknownNameError(
            f"cannot go into {name} ({told}); a function is given by what it is called here: train, model.forward, "
            "package.module.function"
        ) from None


def _modules(first: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    return {} if first in namespace or first not in sys.modules else {first: sys.modules[first]}


def _code_of(value: Any, name: str) -> CodeType:
    """Return what a function runs, behind its decorators; of a module its forward."""
    inner = _unwrapped(value)
    if isinstance(inner, FunctionType):
        return inner.__code__
    raise UnknownNameError(
        f"cannot go into {name}, of type {type(inner).__name__}: it is no function that is written in Python"
    )


def _unwrapped(value: Any) -> Any:
    """Return the function inside methods, partials, decorators, compiled functions and modules."""
    for _ in range(32):  # a chain without an end is somebody's joke
        inner = _inside(value)
        if inner is None:
            return value
        value = inner
    return value


def _inside(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return registered(value, "_modules").get("_orig_mod") or value.forward
    if isinstance(value, type) and issubclass(value, nn.Module):
        return value.forward
    if isinstance(value, MethodType | staticmethod | classmethod):
        return value.__func__
    if isinstance(value, functools.partial):
        return value.func
    if isinstance(value, property):
        return value.fget
    known = getattr(value, "__dict__", {})
    return known.get("_torchdynamo_orig_callable") or known.get("__wrapped__")


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the comprehensions and lambdas inside."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType) and part.co_name.startswith("<"):
            yield from _with_inner(part)


def _told(code: CodeType, name: str, lines: Sequence[LineMemory]) -> FunctionMemory:
    source = _source(code)
    stop = code.co_firstlineno + len(source)
    mine = [
        (line.location.line, at)
        for at, line in enumerate(lines)
        if line.location.filename == code.co_filename and code.co_firstlineno <= line.location.line < stop
    ]
    cell = next((lines[at].location.cell for _, at in mine), None)
    return FunctionMemory(
        name, code.co_filename, code.co_firstlineno, source, tuple(at for _, at in sorted(mine)), cell
    )


def _source(code: CodeType) -> tuple[str, ...]:
    lines = lines_of(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        block = inspect.getblock(lines)
    except Exception:  # no Python any more: the file has changed
        block = lines[: max((line for _, _, line in code.co_lines() if line), default=0) - code.co_firstlineno + 1]
    return tuple(line.rstrip("\n") for line in block)


class FunctionWalk(StackWalk):
    """Finds the line of the innermost named function on the stack, and the person's line where none is there.

    Args:
        sites: Interns lines.
        module_path: Gives the path of the module that is called in a frame.
        functions: Those to go through.
    """

    def __init__(self, sites: Sites, module_path: Callable[[FrameType | None], str], functions: Functions) -> None:
        super().__init__(sites, module_path)
        self._functions = functions

    def walk(self, frame: FrameType | None) -> tuple[int | None, str, bool]:
        """Return the line, the innermost module, and whether an optimizer of torch's made the call."""
        site, module, optimizes = super().walk(frame)
        inside = self._inside(frame, None)
        return site if inside is None else inside, module, optimizes

    def own_site(self, frame: FrameType | None, stop: Any) -> int | None:
        """Return the site of the line below the frame that runs ``stop``; None where there is none."""
        inside = self._inside(frame, stop)
        return super().own_site(frame, stop) if inside is None else inside

    def site_of(self, frame: FrameType | None) -> int | None:
        """Return the site of the line that is running at a frame or above it."""
        inside = self._inside(frame, None)
        return self._sites.of_frame(frame) if inside is None else inside

    def _inside(self, frame: FrameType | None, stop: Any) -> int | None:
        functions = self._functions
        while frame is not None and (code := frame.f_code) is not stop:
            if code in functions:
                return self._sites.at_frame(frame)
            frame = frame.f_back
        return None


__all__ = ["FunctionWalk", "Functions", "find_functions"]
