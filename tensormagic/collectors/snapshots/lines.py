"""What each of the person's lines allocated, by a snapshot's history and by the blocks that it left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensormagic.collectors.snapshots.gathered import Gathered
from tensormagic.collectors.snapshots.walk import LineSums
from tensormagic.reports import LineMemory

MOST_LINES = 200
_NOWHERE = LineSums()


@dataclass(slots=True)
class Lines:
    """The lines of the report.

    Attributes:
        told: Each line, the most allocated first.
        numbers: Index of each by its number in the stacks.
        left_out: How many more there are, and what they allocated.
    """

    told: tuple[LineMemory, ...]
    numbers: dict[int, int]
    left_out: tuple[int, int]

    def index(self, number: int) -> int:
        """Return the index of a line in the report; -1 where it is not told."""
        return self.numbers.get(number, -1)


def lines_of(read: Gathered) -> Lines:
    """Return what each line allocated, freed and kept."""
    history, before, kept, peak = _history(read), _sums(_before(read)), _sums(_kept(read)), _sums(_at_peak(read))
    found = {}
    for number in sorted({*history, *before, *kept, *peak} - {-1}):
        sums, old, left = history.get(number, _NOWHERE), before.get(number, _NOWHERE), kept.get(number, _NOWHERE)
        found[number] = LineMemory(
            read.stacks.locations[number],
            allocated=sums.allocated + old.allocated,
            freed=sums.freed,
            kept=left.allocated,
            at_peak=peak.get(number, _NOWHERE).allocated,
            largest=max(sums.largest, old.largest, left.largest),
            calls=sums.calls + old.calls,
        )
    order = sorted(found, key=lambda number: (-found[number].allocated, number))
    rest = [found[number].allocated for number in order[MOST_LINES:]]
    numbers = {number: index for index, number in enumerate(order[:MOST_LINES])}
    return Lines(tuple(found[number] for number in numbers), numbers, (len(rest), sum(rest)))


def _history(read: Gathered) -> dict[int, LineSums]:
    """Return what the events of all devices say."""
    found: dict[int, LineSums] = defaultdict(LineSums)
    for number, sums in (pair for history in read.histories for pair in history.sums.items()):
        total = found[number]
        total.allocated, total.freed = total.allocated + sums.allocated, total.freed + sums.freed
        total.calls, total.largest = total.calls + sums.calls, max(total.largest, sums.largest)
    return found


def _before(read: Gathered) -> Iterator[tuple[int, int]]:
    """Yield line and bytes of the blocks in use that no event tells of."""
    told = {history.device for history in read.histories}
    yield from ((block.line, block.requested) for history in read.histories for block in history.from_before)
    yield from ((block.line, block.requested) for block in read.in_use() if block.device not in told)


def _kept(read: Gathered) -> Iterator[tuple[int, int]]:
    return ((block.line, block.requested) for block in read.in_use())


def _at_peak(read: Gathered) -> Iterator[tuple[int, int]]:
    history = read.highest
    if history is not None:
        yield from ((one.line, one.nbytes) for one in history.alive)
        yield from ((block.line, block.requested) for block in history.from_before)


def _sums(blocks: Iterable[tuple[int, int]]) -> dict[int, LineSums]:
    found: dict[int, LineSums] = defaultdict(LineSums)
    for line, nbytes in blocks:
        sums = found[line]
        sums.allocated, sums.calls, sums.largest = sums.allocated + nbytes, sums.calls + 1, max(sums.largest, nbytes)
    return found
