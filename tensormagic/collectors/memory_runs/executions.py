"""How often each line of a function is reached, counted by Python itself, where it can.

`sys.monitoring` (Python 3.12) tells of the lines of single functions and leaves all others as quick as they are;
``sys.settrace``, which debuggers use, would slow down everything, and take their place. Before 3.12 nothing is counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from types import CodeType, TracebackType
from typing import Any

_TOOLS = (4, 3)  # numbers that no kind of tool has by convention: 0 is a debugger's, 1 a coverage's, 2 a profiler's
NAME = "tensormagic"


class Executions:
    """Counts lines while it is entered.

    Args:
        codes: What the functions run.
        monitoring: `sys.monitoring`, or None where there is none.

    Attributes:
        counts: How often each ``(file name, line)`` was reached.
        gap: Why nothing is counted; empty where it is.
    """

    def __init__(self, codes: Iterable[CodeType], monitoring: Any = getattr(sys, "monitoring", None)) -> None:  # noqa: B008  (None before 3.12)
        self._codes, self._monitoring = tuple(codes), monitoring
        self._stack = ExitStack()
        self.counts: Counter[tuple[str, int]] = Counter()
        self.gap = "" if monitoring is not None else "how often a line was reached is counted from Python 3.12 on"

    def __enter__(self) -> Executions:
        """Start to count, where a tool's number is free."""
        monitoring = self._monitoring
        if monitoring is None or not self._codes:
            return self
        tool = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
        if tool is None:
            self.gap = "how often a line was reached is not counted: other tools take all of Python's places for them"
            return self
        monitoring.use_tool_id(tool, NAME)
        self._stack.callback(monitoring.free_tool_id, tool)
        line = monitoring.events.LINE
        monitoring.register_callback(tool, line, self._reached)
        self._stack.callback(monitoring.register_callback, tool, line, None)
        for code in self._codes:
            monitoring.set_local_events(tool, code, line)
            self._stack.callback(monitoring.set_local_events, tool, code, 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and give the number back."""
        self._stack.close()

    def _reached(self, code: CodeType, line: int) -> None:
        self.counts[code.co_filename, line] += 1


__all__ = ["Executions"]
