"""The operations of a run as rows of words: by operation, and by line of the person's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensormagic.words import DOT, count, number_of_bytes, percent, plural, seconds_text

if TYPE_CHECKING:
    from tensormagic.reports import OpsReport, OpUse, Total, TraceReport

NO_LINE = "line unknown"
COLUMNS = ("calls", "time", "share", "forward", "backward", "memory", "writes")


@dataclass(frozen=True, slots=True)
class OpsRow:
    """One row of a table of operations.

    Attributes:
        label: The operation, or the line with its text.
        share: Its part of the time of all operations, 0 to 1.
        cells: One text for each of `COLUMNS`.
    """

    label: str
    share: float
    cells: tuple[str, ...]


def rows_by_operation(ops: OpsReport) -> list[OpsRow]:
    """Return a row for each operation, whatever its overload, the longest first."""
    written: dict[str, str] = {}
    for use in ops.uses:
        if use.mutations:
            written.setdefault(short_name(use.op), use.mutated[0])
    whole = ops.total.seconds
    return [_row(name, total, whole, written.get(name, "")) for name, total in ops.by(lambda use: short_name(use.op))]


def rows_by_line(report: TraceReport, ops: OpsReport) -> list[OpsRow]:
    """Return a row for each of the person's lines, the longest first."""
    whole = ops.total.seconds
    return [_row(_line(report, location), total, whole) for location, total in ops.by(lambda use: use.location)]


def short_name(op: str) -> str:
    """Return an operation as people write it: ``aten.add_.Tensor`` is ``add_``; other namespaces keep their name."""
    namespace, _, rest = op.partition(".")
    if not rest:
        return op
    name = rest.partition(".")[0]
    return name if namespace == "aten" else f"{namespace}.{name}"


def summary(ops: OpsReport) -> str:
    """Return the totals in one line: ``801 calls in 2.2 ms · 13.4 KiB allocated · 72 writes``."""
    total = ops.total
    parts = [f"{plural(total.calls, 'call')} in {seconds_text(total.seconds)}", _allocated(total)]
    if total.mutations:
        parts.append(plural(total.mutations, "write"))
    return f" {DOT} ".join(parts)


def split(ops: OpsReport) -> str:
    """Return how the time is divided: ``forward 41 %, backward 37 %, optimizer 20 %, other 2 %``."""
    whole = ops.total.seconds
    return ", ".join(f"{phase} {percent(total.seconds, whole)}" for phase, total in ops.by(_phase))


def remarks(ops: OpsReport) -> list[str]:
    """Return what has to be known to read the numbers rightly."""
    sentence = []
    if ops.is_launch_time:
        sentence.append("time on the host; for an accelerator, the time to launch an operation, not to run it")
    missing, total = ops.unattributed, ops.total
    if missing.calls:
        share = percent(missing.seconds, total.seconds)
        sentence.append(f"the line is unknown for {plural(missing.calls, 'call')}, {share} of the time")
    else:
        sentence.append("every call has its line")
    return sentence


def _row(label: str, total: Total, whole: float, written: str = "") -> OpsRow:
    writes = f"{count(total.mutations)}{written and f' to {written}'}" if total.mutations else ""
    cells = (
        count(total.calls), seconds_text(total.seconds), percent(total.seconds, whole),
        _part(total.forward_seconds), _part(total.backward_seconds),
        number_of_bytes(total.nbytes) if total.nbytes else "", writes,
    )  # fmt: skip
    return OpsRow(label, total.seconds / (whole or 1.0), cells)


def _part(seconds: float) -> str:
    return seconds_text(seconds) if seconds else ""


def _phase(use: OpUse) -> str:
    return use.phase


def _allocated(total: Total) -> str:
    return f"{number_of_bytes(total.nbytes)} allocated"


def _line(report: TraceReport, location: int | None) -> str:
    place = report.location(location)
    return NO_LINE if place is None else f"{place.label}: {place.text}" if place.text else place.label
