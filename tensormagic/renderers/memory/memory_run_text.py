"""What a person sees from ``%%gpumem`` in a terminal: the timeline in characters, the source with bytes beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tensormagic.renderers.memory.allocator_words import HEAD, allocator_rows, allocator_words
from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.memory_run_words import (
    COLUMNS,
    leak_words,
    operation,
    origin,
    peak,
    state,
    summary,
    title,
)
from tensormagic.renderers.memory.memory_text import page, releases_text, storages_text
from tensormagic.renderers.memory.memory_words import called
from tensormagic.renderers.memory.out_of_memory_words import out_of_memory_words
from tensormagic.renderers.memory.source_rows import SourceRow, function_rows, run_rows
from tensormagic.renderers.memory.text_bars import barred, heights
from tensormagic.renderers.memory.timeline_stack import by_category, columns, main_timeline, thinned_words, ticks
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import AllocatedBlock, AllocatorRun, MemoryRunReport, Timeline
from tensormagic.words import count, number_of_bytes, plural, shortened

NARROWEST = 40
ROWS = 7
_NARROW_SOURCE = 32  # columns that the source has beside the numbers, with those of its lines; else it stands above
MOST_LAYERS, MOST_BLOCKS, MOST_LEAKS = 8, 10, 8


def render(report: MemoryRunReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    drawn = main_timeline(report)
    sections = [
        _head(report, width),
        _timeline(drawn, width) if drawn is not None else (),
        _lines("LINE BY LINE", run_rows(report), width),
        *(_lines(f"IN {shortened(each.name, 60)}", function_rows(report, each), width) for each in report.functions),
        _leaks(report, width),
        _blocks("ALIVE AT THE PEAK", report, report.peak_blocks, report.peak_left_out, width),
        _blocks("ALLOCATED HERE AND STILL ALIVE", report, report.kept, report.kept_left_out, width),
        storages_text("ALIVE WHEN IT FAILED" if report.error else "ALIVE AFTER THE RUN", report.at_end, width),
        releases_text(report.releases, width),
        *(_allocator(run, width) for run in report.allocator),
    ]
    return page(sections, width)


def _head(report: MemoryRunReport, width: int) -> Iterator[str]:
    words = " ".join(filter(None, (peak(report), summary(report))))
    yield from filled(f"{shortened(title(report), width // 2)}  ", f"{words}, {state(report)}", width)
    yield "─" * width
    failed = report.out_of_memory
    if failed is not None:
        yield from filled(" ✖ ", out_of_memory_words(failed).replace("`", ""), width)
        where = f"{failed.location.label}: {failed.location.text}" if failed.location is not None else ""
        for text in filter(None, (where, failed.message)):
            yield from filled("   ", text, width)
    for finding in report.findings:
        yield from finding_lines(finding, width)
    for gap in report.gaps:
        yield from filled("not shown: ", f"{gap.section}: {gap.reason}", width)


def _timeline(drawn: Timeline, width: int) -> Iterator[str]:
    yield from chart_text(drawn, width)
    rows_ = [(tile, nbytes, (number_of_bytes(nbytes), "at the peak")) for tile, nbytes in _layers(drawn)]
    yield from barred(rows_[:MOST_LAYERS], width)


def chart_text(drawn: Timeline, width: int, *, unit: str = "operation") -> Iterator[str]:
    """Return what was alive over a run, in characters; ``unit`` is what the axis counts."""
    top = drawn.live[drawn.peak]
    marks = ticks(top, most=3)
    label = max(len(number_of_bytes(nbytes)) for nbytes in (*marks, top)) + 1
    moments = columns(drawn, max(min(width - label - 3, 100), 8))
    rows = heights([drawn.live[at] for at in moments], top, ROWS)
    yield f"ALIVE ON {drawn.device}"
    for at, row in enumerate(rows):
        yield f"{_tick(at, marks, top):>{label}} │{row}"
    yield f"{'0':>{label}} └{'─' * len(moments)}"
    ends = f"{unit} {count(drawn.operation[0])}", count(drawn.operation[-1])
    yield " " * (label + 2) + ends[0] + ends[1].rjust(max(len(moments) - len(ends[0]), len(ends[1]) + 1))
    if words := thinned_words(drawn):
        yield f"{' ' * (label + 2)}{words}"


def _tick(row: int, marks: Sequence[int], top: int) -> str:
    """Return what stands beside a row of the chart: the peak at the first, round numbers where they fall."""
    if row == 0:
        return number_of_bytes(top)
    low, high = top * (ROWS - row - 1) / ROWS, top * (ROWS - row) / ROWS
    return next((number_of_bytes(nbytes) for nbytes in marks if nbytes and low < nbytes <= high), "")


def _layers(drawn: Timeline) -> list[tuple[str, int]]:
    return [(PLURALS[layer.key], layer.values[drawn.peak]) for layer in reversed(by_category(drawn))]


def _lines(name: str, rows: Sequence[SourceRow], width: int) -> Iterator[str]:
    if not any(row.memory is not None for row in rows):
        return
    amounts = [_amounts(row) for row in rows]
    wide = [max(map(len, column)) for column in zip(COLUMNS, *amounts, strict=True)]
    yield name
    if width - len(_aligned(COLUMNS, wide)) < _NARROW_SOURCE:
        for row, told in zip(rows, amounts, strict=True):
            yield from _stacked(row, told, width)
        return
    yield f"{_aligned(COLUMNS, wide)}  line  source"
    for row, told in zip(rows, amounts, strict=True):
        if row.number:
            yield from _beside(f"{_aligned(told, wide)}  {row.number:>4}  ", row.text, width)
        else:
            yield f"{_aligned(told, wide)}  {row.text or '   ⋯'}".rstrip()


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _beside(lead: str, text: str, width: int) -> Iterator[str]:
    """Yield a line of the source, whole: where there is no room, it goes on below, further in."""
    inner = min(len(lead) + len(text) - len(text.lstrip()), width - _NARROW_SOURCE // 2)
    first, *others = textwrap.wrap(text.strip(), width - inner) or [""]
    yield (lead.ljust(inner) + first).rstrip()
    yield from (" " * (inner + 4) + line for line in textwrap.wrap(" ".join(others), width - inner - 4))


def _stacked(row: SourceRow, told: tuple[str, ...], width: int) -> Iterator[str]:
    """Yield a line of the source, and its numbers below it."""
    if not row.number:
        yield f"  {row.text or '⋯'}"
        return
    yield from _beside(f"  {row.number:>4}  ", row.text, width)
    numbers = "  ".join(
        f"{name} {cell}".replace(" ", "\u00a0") for name, cell in zip(COLUMNS, told, strict=True) if cell
    )
    yield from textwrap.wrap(numbers, width, initial_indent=" " * 12, subsequent_indent=" " * 12)


def _amounts(row: SourceRow) -> tuple[str, ...]:
    one = row.memory
    if one is None:
        return ("",) * len(COLUMNS)
    return tuple(
        number_of_bytes(nbytes) if nbytes else "" for nbytes in (one.at_peak, one.allocated, one.freed, one.kept)
    )


def _leaks(report: MemoryRunReport, width: int) -> Iterator[str]:
    if report.leaks:
        yield "WHAT GROWS WITH EVERY ITERATION"
    for leak in report.leaks[:MOST_LEAKS]:
        stored = leak.holder_location or leak.location
        yield from filled("  ", f"{stored.label}: {stored.text or leak.location.text}", width)
        yield from filled("    ", leak_words(leak), width)
    if len(report.leaks) > MOST_LEAKS:
        yield f"  and {count(len(report.leaks) - MOST_LEAKS)} more"


def _allocator(run: AllocatorRun, width: int) -> Iterator[str]:
    yield f"WHAT THE ALLOCATOR OF {run.device} RECORDED"
    yield from filled("  ", allocator_words(run), width)
    rows = allocator_rows(run)
    if rows:
        yield from table([HEAD, *rows], indent=2, width=width)


def _blocks(
    name: str, report: MemoryRunReport, blocks: Sequence[AllocatedBlock], left_out: tuple[int, int], width: int
) -> Iterator[str]:
    if not blocks:
        return
    rest = blocks[MOST_BLOCKS:]
    yield f"{name}: {plural(len(blocks) + left_out[0], 'storage')}"
    yield from table([_block(report, block) for block in blocks[:MOST_BLOCKS]], indent=2, gap=2, width=width)
    if rest or left_out[0]:
        nbytes = sum(block.storage.nbytes for block in rest) + left_out[1]
        yield f"  and {count(len(rest) + left_out[0])} smaller, {number_of_bytes(nbytes)}"


def _block(report: MemoryRunReport, block: AllocatedBlock) -> tuple[str, ...]:
    one = block.storage
    where = origin(report, block, width=32)
    return shortened(called(one), 36), number_of_bytes(one.nbytes), one.category, operation(block.op), where
