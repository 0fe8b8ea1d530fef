"""What the panel, the text and the pictures of a run's memory say: one wording for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from tensormagic.renderers.memory.categories import BEFORE, PLURALS
from tensormagic.renderers.memory.memory_words import storage_lines
from tensormagic.renderers.memory.timeline_stack import OTHER_LINES, Layer, main_timeline
from tensormagic.renderers.memory.treemap import LEFT_OUT, Tile
from tensormagic.reports import AllocatedBlock, Leak, MemoryRunReport, Timeline
from tensormagic.words import DOT, count, number_of_bytes, plural, seconds_text, shortened

NO_LINE = "no line of yours"
COLUMNS = ("at peak", "allocated", "freed", "kept")


def title(report: MemoryRunReport) -> str:
    """Return what the run is called."""
    return f"gpumem {' '.join(report.title.split())}".rstrip()


def state(report: MemoryRunReport) -> str:
    """Return how the run ended."""
    return f"{report.state}: {' '.join(report.error.split())}" if report.error else report.state


def peak(report: MemoryRunReport) -> str:
    """Return the peak of the device that had the most alive; empty where nothing was seen."""
    drawn = main_timeline(report)
    return f"peak {number_of_bytes(drawn.live[drawn.peak])}" if drawn is not None else ""


def summary(report: MemoryRunReport) -> str:
    """Return where the peak was, what stayed, and how long it took."""
    drawn = main_timeline(report)
    took = f"{plural(report.operations, 'operation')} in {seconds_text(report.seconds)}"
    return took if drawn is None else f" {DOT} ".join((peak_place(drawn), ends_words(drawn), took))


def peak_place(timeline: Timeline, unit: str = "operation") -> str:
    """Return where the peak was: ``on cpu at operation 812``."""
    return f"on {timeline.device} at {unit} {count(timeline.operation[timeline.peak])}"


def ends_words(timeline: Timeline) -> str:
    """Return what was alive at both ends."""
    first, last = timeline.before[0], timeline.live[-1]
    return f"{number_of_bytes(first)} before, {number_of_bytes(last)} after"


def leak_words(leak: Leak) -> str:
    """Return what stays, after how many iterations, and what keeps it."""
    keeps = f", kept by {' '.join(leak.holder.split())}" if leak.holder else ""
    what = " in autograd graphs" if leak.graph else ""
    each = f"{number_of_bytes(leak.each)} more after each of {plural(leak.iterations, 'iteration')}"
    total = (
        f"{number_of_bytes(leak.kept)} at the peak, freed later"
        if leak.ended
        else f"{number_of_bytes(leak.kept)} in all"
    )
    return f"{each}, {total}{what}{keeps}"


def layer_words(report: MemoryRunReport, layer: Layer, *, width: int = 40) -> str:
    """Return what a layer of the timeline stands for."""
    if layer.key == OTHER_LINES:
        return OTHER_LINES
    return PLURALS[layer.key] if layer.key in PLURALS else line_words(report, int(layer.key), width=width)


def line_words(report: MemoryRunReport, index: int, *, width: int = 40) -> str:
    """Return a line of the person's: ``7  losses.append(loss)``; of another file, with its name."""
    if not 0 <= index < len(report.lines):
        return NO_LINE
    place = report.lines[index].location
    name = f"line {place.line}" if place.filename == report.cell.filename else place.label
    return f"{name}  {shortened(place.text, width)}".rstrip()


def peak_tiles(report: MemoryRunReport) -> list[Tile]:
    """Return what was alive at the peak, by line; what is not listed of it is told apart, so that it is the peak."""
    tiles = [block_tile(report, block) for block in report.peak_blocks]
    number, nbytes = report.peak_left_out
    if nbytes:
        tiles.append(Tile(LEFT_OUT, f"{count(number)} smaller", "other", nbytes, f"{count(number)} smaller", number))
    drawn = main_timeline(report)
    before = drawn.live[drawn.peak] - sum(tile.nbytes for tile in tiles) if drawn is not None else 0
    if before > 0:
        tiles.append(Tile(BEFORE, BEFORE, BEFORE, before, f"{BEFORE}\n{number_of_bytes(before)}, alive all the time"))
    return tiles


def was_before(block: AllocatedBlock) -> bool:
    """Say whether a block had been there before the run."""
    return not block.op and not block.born and block.line < 0


def block_tile(report: MemoryRunReport, block: AllocatedBlock) -> Tile:
    """Return a block as what a treemap draws: in the group of its line, by its name or what allocated it."""
    one = block.storage
    label = one.name or operation(block.op) or one.category
    lines = [label, *storage_lines(one)[1:], life(block)]
    return Tile(origin(report, block), label, one.category, one.nbytes, "\n".join(lines))


def origin(report: MemoryRunReport, block: AllocatedBlock, *, width: int = 40) -> str:
    """Return where a block came from: a line, or that it had been there before the run."""
    return BEFORE if was_before(block) else line_words(report, block.line, width=width)


def operation(op: str) -> str:
    """Return an operation as people call it: ``mm`` for ``aten.mm.default``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def life(block: AllocatedBlock) -> str:
    """Return from which operation to which a block lived, and which one allocated it."""
    end = "alive after the run" if block.died is None else f"freed at {count(block.died)}"
    return end if was_before(block) else f"operation {count(block.born)} ({block.phase}), {end}"


def blocks_bytes(blocks: Iterable[AllocatedBlock]) -> int:
    """Return the bytes of all of them."""
    return sum(block.storage.nbytes for block in blocks)
