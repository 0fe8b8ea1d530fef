"""What a GPU's allocator recorded beside the operations, in words and rows: for the panel and the terminal."""

from __future__ import annotations

from tensormagic.reports import AllocatorLine, AllocatorRun
from tensormagic.words import count, number_of_bytes, plural

MOST_LINES = 12
HEAD = ("line", "workspace", "served", "times")
_NO_LINE = "no line of yours: backward, libraries"


def allocator_words(run: AllocatorRun) -> str:
    """Return what the allocator saw beyond the timeline: its own peak, its reserve, blocks without a tensor."""
    parts = [f"{plural(run.events, 'event')} of the allocator of {run.device}"]
    if run.peak is not None:
        tensors = f"tensors by themselves at most {number_of_bytes(run.seen_peak)}"
        parts.append(f"at most {number_of_bytes(run.peak)} in use, {tensors}")
    if run.reserved is not None:
        parts.append(f"at most {number_of_bytes(run.reserved)} reserved")
    if run.unnamed:
        number, nbytes = sum(each[1] for each in run.unnamed), sum(each[2] for each in run.unnamed)
        parts.append(f"{plural(number, 'block')} without a tensor at the end, {number_of_bytes(nbytes)}")
    if not run.complete:
        parts.append("its history does not go back to the beginning of the run")
    return "; ".join(parts)


def allocator_rows(run: AllocatorRun) -> list[tuple[str, ...]]:
    """Return the lines that used memory inside of operations, the most first: line, workspace, served, times."""
    used = sorted((line for line in run.lines if line.workspace), key=lambda line: -line.workspace)
    return [_row(line) for line in used[:MOST_LINES]]


def _row(line: AllocatorLine) -> tuple[str, ...]:
    where = f"{line.location.label}: {line.location.text}" if line.location is not None else _NO_LINE
    return where, number_of_bytes(line.workspace), number_of_bytes(line.served), count(line.calls)
