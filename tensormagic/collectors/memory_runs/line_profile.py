"""What a run did in the functions that were asked for, line by line: their lines, their source, how often each ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from tensormagic.collectors.memory_runs.executions import Executions
from tensormagic.collectors.memory_runs.functions import FunctionWalk, find_functions
from tensormagic.collectors.ops.stack_walk import StackWalk
from tensormagic.collectors.where.source import Sites
from tensormagic.reports import Cell, FunctionMemory, Gap, LineMemory

ModulePath = Callable[[FrameType | None], str]
SiteOf = Callable[[FrameType | None], "int | None"]


class LineProfile:
    """The functions of one run.

    Args:
        wanted: Functions, or what a person writes for them.
        namespace: The person's names.
        cell: What is about to run.

    Raises:
        UnknownNameError: for what is no function that is written in Python.
    """

    def __init__(self, wanted: Iterable[Any], namespace: Mapping[str, Any], cell: Cell) -> None:
        self._functions = find_functions(wanted, namespace, cell)
        self._asked = bool(self._functions.codes or self._functions.later)
        self._executions = Executions(self._functions.codes)

    def walk(self, sites: Sites, module_path: ModulePath) -> tuple[StackWalk, SiteOf]:
        """Return what finds the line of an operation, and of what is freed."""
        if not self._asked:
            return StackWalk(sites, module_path), sites.of_frame
        walk = FunctionWalk(sites, module_path, self._functions)
        return walk, walk.site_of

    def start(self, stack: ExitStack) -> None:
        """Begin to count how often lines are reached, until the stack is closed."""
        stack.enter_context(self._executions)

    def lines(self, lines: Sequence[LineMemory], sites: Sites) -> tuple[LineMemory, ...]:
        """Return the lines with how often each was reached; those that did nothing to memory come last."""
        counts = dict(self._executions.counts)
        told = [
            replace(line, executions=counts.pop((line.location.filename, line.location.line), 0))
            for line in lines
        ]  # fmt: skip
        names = {(code.co_filename, line): code.co_name for code in self._functions.codes for line in _lines_of(code)}
        more = (
            LineMemory(sites.at(filename, line, names.get((filename, line), "")), executions=count)
            for (filename, line), count in sorted(counts.items())
        )
        return (*told, *more)

    def told(self, lines: Sequence[LineMemory]) -> tuple[FunctionMemory, ...]:
        """Return the functions, and which of the lines are theirs."""
        return self._functions.told(lines) if self._asked else ()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is not counted."""
        gap = self._executions.gap
        return (Gap("functions", gap),) if self._asked and gap else ()


def _lines_of(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line}


__all__ = ["LineProfile"]
