"""A backward that torch refused and whose exception did not end the run: the code around it caught it."""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports.backward_faults import BackwardFault


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtBackward:
    """Backwards of one line that torch refused for one reason, and that the run has survived.

    Attributes:
        error_type: ``"RuntimeError"``.
        error: What torch said the first time.
        fault: Why.
        location: Index into `TraceReport.locations` of the line that called backward; None where not known.
        expected: Whether the code says that it expects the error, with ``pytest.raises``, ``assertRaises`` or
            ``contextlib.suppress``, or catches it elsewhere than in an ``except`` of the person's.
        count: How often.
    """

    error_type: str
    error: str
    fault: BackwardFault
    location: int | None = None
    expected: bool = False
    count: int = 1
