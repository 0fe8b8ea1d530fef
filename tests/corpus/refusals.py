"""Runs a program that torch ends by an error, under a trace, and returns what the trace says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensormagic as tm
from tensormagic.reports import TraceReport


def refused(program: Callable[[], Any], **namespace: Any) -> TraceReport:
    """Return the report of a program that raises; ``namespace`` is where names are looked up."""
    try:
        with tm.trace(namespace=namespace) as trace:
            program()
    except (RuntimeError, TypeError, ValueError, IndexError):
        return trace.report
    raise AssertionError("the program was to raise")
