"""Holding one traced run against another."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tensormagic.api.running import Trace
from tensormagic.comparisons import compare_traces
from tensormagic.errors import TensorMagicError
from tensormagic.reports import ComparisonReport, TraceReport

Run = TraceReport | Trace | str | os.PathLike[str]


def compare(left: Run, right: Run, *, names: Sequence[str] | None = None) -> ComparisonReport:
    """Return what is different between two traced runs: graph, gradients, losses, findings.

    Nodes are matched by what they are and what stands around them, so that moved lines, another name of the model, or
    a layer more do not hide what is the same.

    Args:
        left: The run that the other is held against: a report, a trace, or a saved ``.json`` file.
        right: The other run.
        names: What to call the two; by default their titles, or ``a`` and ``b`` where these are equal.

    Raises:
        ReportFormatError: for a file that is no saved trace.
        TensorMagicError: for anything else that is no traced run, or other than two names.
    """
    if names is not None and len(names) != 2:
        raise TensorMagicError(f"compare() takes two names, one a run, but was given {len(names)}")
    return compare_traces(_report(left), _report(right), names=names)


def _report(run: Run) -> TraceReport:
    if isinstance(run, str | os.PathLike):
        return TraceReport.load(run)
    report = getattr(run, "report", run)
    if not isinstance(report, TraceReport):
        given = type(run).__name__
        raise TensorMagicError(f"compare() takes traced runs: reports, traces, or saved .json files, not a {given}")
    return report
