"""Reports that were saved, read again; runs held against one another, and the ranks of one run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tensormagic import reports
from tensormagic.api.generators import DrawWatch
from tensormagic.api.running import Trace
from tensormagic.api.watching import diagnosed
from tensormagic.comparisons import compare_draws, compare_traces
from tensormagic.comparisons.ranks import ranks_of, read_ranks
from tensormagic.errors import ReportFormatError, TensorMagicError
from tensormagic.reports import (
    ComparisonReport,
    RankReport,
    Report,
    RngComparison,
    RngRunReport,
    RunReport,
    TraceReport,
)


def load(path: str | os.PathLike[str]) -> Report:
    """Return the report that ``report.save("x.json")`` wrote, whatever kind it is.

    Args:
        path: The file.

    Raises:
        ReportFormatError: where the file cannot be read, or holds no report; the message names the file.
    """
    kinds = {
        kind.kind_name: kind for kind in vars(reports).values() if isinstance(kind, type) and issubclass(kind, Report)
    }
    report = kinds.get(_kind_name(path), Report).load(path)
    try:
        str(report)
    except TensorMagicError:
        raise
    except Exception as error:
        reason = f"its parts do not fit together ({type(error).__name__}: {error!s:.200})"
        raise ReportFormatError(f"cannot load {os.fspath(path)!r}: {reason}") from error
    return report


def _kind_name(path: str | os.PathLike[str]) -> str:
    """Return what kind of report a file says that it holds; nothing where it cannot be read: `load` says why."""
    try:
        data = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(data.get("tensormagic", "")) if isinstance(data, dict) else ""


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
        raise TensorMagicError(f"compare() takes two names, one per run, but was given {len(names)}")
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
    report = _of_trace(getattr(run, "report", run))
    if not isinstance(report, TraceReport | RngRunReport):
        given = type(run).__name__
        raise TensorMagicError(f"compare() takes traced runs: reports, traces, or saved .json files, not a {given}")
    return report


def _of_trace(report: Any) -> Any:
    """Return the trace of a run of which several things were asked, and anything else as it is."""
    return report.trace if isinstance(report, RunReport) else report


def _loaded(path: str | os.PathLike[str]) -> TraceReport | RngRunReport:
    report = _of_trace(load(path))
    return report if isinstance(report, TraceReport | RngRunReport) else TraceReport.load(path)  # which says what it is


def ranks(of: str | os.PathLike[str] | Iterable[TraceReport]) -> RankReport:
    """Return what the ranks of a run came to, held against each other: what parts them, and where it began.

    Args:
        of: The folder that every rank was given as ``tensormagic.trace(ranks=folder)``, also while they run; or the
            trace report of each rank, as ``rc[:].pull("r").get()`` gives them.

    Raises:
        ReportFormatError: where there is no such folder, or what is in it was written by no rank.
        TraceError: where a report is of no rank, or two are of the same.
    """
    if isinstance(of, str | os.PathLike):
        return diagnosed(read_ranks(Path(of).expanduser()))
    return diagnosed(ranks_of(of))
