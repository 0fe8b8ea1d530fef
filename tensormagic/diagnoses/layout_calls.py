"""TM102: what calls of the forward do with the layout of memory, beside what was asked of them."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.observed import called, every_call, how_often, of_kind, times
from tensormagic.diagnoses.words import shape, size
from tensormagic.reports import Finding, Observation, TraceReport

# A copy of a few KiB is what a view costs anyway. One of a MiB takes some tenths of a millisecond, and is worth a note
# where a run makes many: merging the heads of attention is such a copy, and cannot be had without.
HIDDEN_COPY = 1 << 20
HIDDEN_COPIES = 16 << 20
MOST_LINES = 3

# -- TM102 ----------------------------------------------------------------------------------------------------------


def hidden_copy(report: TraceReport) -> Iterator[Finding]:
    """TM102: ``reshape``, ``flatten`` or ``ravel`` could not give a view, and copied much: the largest few lines."""
    large = [
        one for one in of_kind(report, "copy")
        if one.nbytes >= HIDDEN_COPY and one.nbytes * times(one) >= HIDDEN_COPIES
    ]  # fmt: skip
    for one in sorted(large, key=lambda one: -one.nbytes * times(one))[:MOST_LINES]:
        yield _copy_finding(report, one)


def _copy_finding(report: TraceReport, one: Observation) -> Finding:
    source, result = one.operands[0], one.result
    name = called(source, "its input")
    in_all = f", {size(one.nbytes * times(one))} in all" if one.calls > 1 and every_call(one) else ""
    wanted = "" if result is None else f" as {shape(result.shape)}"
    return Finding(
        code="TM102",
        severity="note",
        message=f"{one.op} copies {size(one.nbytes)} {how_often(one)}{in_all}: {name}, of shape {shape(source.shape)} "
        f"and strides {shape(source.stride)}, cannot be viewed{wanted}.",
        location=report.location(one.location),
        evidence={"bytes": one.nbytes, "calls": one.calls, "copied": one.seen, "looked at": one.looked},
        remedy="Reshape before `transpose` or `permute`, or copy once outside the loop; where the copy is needed, "
        "`.contiguous()` says so to the reader.",
        subject=source.name,
    )
