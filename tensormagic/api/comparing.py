"""Holding one traced run against another."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tensormagic.api.generators import DrawWatch
from tensormagic.api.loading import load
from tensormagic.api.running import Trace
from tensormagic.comparisons import compare_draws, compare_traces
from tensormagic.errors import TensorMagicError
from tensormagic.reports import ComparisonReport, RngComparison, RngRunReport, TraceReport

Run = TraceReport | Trace | RngRunReport | DrawWatch | str | os.PathLike[str]


def compare(left: Run, right: Run, *, names: Sequence[str] | None = None) -> ComparisonReport | RngComparison:
    """Return what is different between two traced runs: graph, gradients, losses, findings.

    Of two runs whose draws were watched: the first random number that differs.

    Nodes are matched by what they are and what stands around them, so that moved lines, another name of the model, or
    a layer more do not hide what is the same.

    Args:
        left: The run that the other is held against: a report, a trace, or a saved ``.json`` file.
        right: The other run.
        names: What to call the two; by default their titles, or ``a`` and ``b`` where these are equal.

    Raises:
        ReportFormatError: for a file that is no saved run.
        TensorMagicError: for anything else that is no such run, for one of each sort, or other than two names.
    """
    if names is not None and len(names) != 2:
        raise TensorMagicError(f"compare() takes two names, one a run, but was given {len(names)}")
    one, other = _report(left), _report(right)
    if isinstance(one, RngRunReport) and isinstance(other, RngRunReport):
        first, second = names or ("a", "b")
        return compare_draws(one, other, names=(first, second))
    if isinstance(one, TraceReport) and isinstance(other, TraceReport):
        return compare_traces(one, other, names=names)
    raise TensorMagicError(f"compare() takes two runs of one sort, not a {one.kind_name} and a {other.kind_name}")


def _report(run: Run) -> TraceReport | RngRunReport:
    if isinstance(run, str | os.PathLike):
        return _loaded(run)
    report = getattr(run, "report", run)
    if not isinstance(report, TraceReport | RngRunReport):
        given = type(run).__name__
        raise TensorMagicError(f"compare() takes traced runs: reports, traces, or saved .json files, not a {given}")
    return report


def _loaded(path: str | os.PathLike[str]) -> TraceReport | RngRunReport:
    report = load(path)
    return report if isinstance(report, TraceReport | RngRunReport) else TraceReport.load(path)  # which says what it is
