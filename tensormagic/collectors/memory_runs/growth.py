"""What of a run's memory grew with its iterations: the question at its end.

Who holds what is asked once, and only where as many storages stayed from one line as it takes to tell a leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from tensormagic.collectors.live_memory.blocks import running
from tensormagic.collectors.live_memory.out_of_memory import failing_variables
from tensormagic.collectors.memory_runs.blocks import Block, Iterations
from tensormagic.collectors.memory_runs.leaks import (
    FEWEST,
    FEWEST_GRAPHS,
    MEANT,
    MOST_NODES,
    Holders,
    Rhythm,
    Stay,
    find_ended,
    find_holders,
    find_leaks,
)
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.session.assignments import CellNumber, no_cell
from tensormagic.reports import Gap, Leak, Location
from tensormagic.reports.memory import Category

SMALLEST = 2**20  # bytes; what collects less than that is no news, unless it is graphs

CategoryOf = Callable[[Block], Category]
First = Mapping[int, int]


class Growth:
    """Asks, at the end of a run, what grew.

    Args:
        namespace: The person's names.
        frame: Of the function that runs, whose variables and those of its callers are names, too.
        cell_number: Gives the number of a cell.
        error: What ended the run: the functions that failed still have their variables.

    Attributes:
        gaps: What was not looked at.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        frame: FrameType | None = None,
        cell_number: CellNumber | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._namespace, self._frame, self._error = namespace, frame, error
        self._cell_number = no_cell if cell_number is None else cell_number
        self.gaps: tuple[Gap, ...] = ()

    def leaks(
        self,
        alive: Iterable[Block],
        iterations: Iterations,
        locations: Sequence[Location],
        *,
        category: CategoryOf,
        first: First,
    ) -> tuple[Leak, ...]:
        """Return what grows with every iteration, the largest first. Never raises.

        Args:
            alive: The storages that are alive; those from before the run are left out.
            iterations: What tells the rhythm.
            locations: The lines, by number.
            category: What a storage is for.
            first: Number of the first operation at which each line allocated something.
        """
        try:
            return self._leaks([(block, category(block)) for block in alive], iterations, locations, first)
        except Exception as error:  # an odd object that a name leads to: the run is the person's
            self.gaps = (Gap("leaks", f"the search for what grows failed: {type(error).__name__}: {error}"),)
            return ()

    def _leaks(
        self, alive: list[tuple[Block, Category]], iterations: Iterations, locations: Sequence[Location], first: First
    ) -> tuple[Leak, ...]:
        made = (pair for pair in alive if not pair[0].before and pair[0].site is not None)
        stayed = {block: category for block, category in made if category not in MEANT}
        if not _may_grow(stayed, iterations):
            return ()
        holders = self._holders(stayed, locations)
        stays = [_stay(block, category, holders) for block, category in stayed.items()]
        found = find_leaks(stays, Rhythm(locations, iterations.backwards, iterations.joins, first, holders.complete))
        return tuple(leak for leak in found if leak.graph or leak.kept >= SMALLEST)

    def ended(
        self,
        at_peak: Iterable[tuple[Block, int]],
        iterations: Iterations,
        locations: Sequence[Location],
        *,
        first: First,
    ) -> tuple[Leak, ...]:
        """Return what grew up to the peak and was freed later, all at once.

        Args:
            at_peak: What was alive then, with its bytes.
            iterations: What tells the rhythm.
            locations: The lines, by number.
            first: Number of the first operation at which each line allocated something.
        """
        every = list(at_peak)
        gone = [(block, nbytes) for block, nbytes in every if block.died is not None and not block.before]
        peak = max((block.born for block, _ in every), default=0)
        stays = [_stay(block, block.category or "other", Holders(), nbytes) for block, nbytes in gone]
        found = find_ended(stays, Rhythm(locations, iterations.backwards, first=first), peak)
        return tuple(leak for leak in found if leak.kept >= SMALLEST)

    def _holders(self, stayed: Collection[Block], locations: Sequence[Location]) -> Holders:
        lines = Counter(block.site for block in stayed)
        files = (locations[site].filename for site, _ in lines.most_common() if site is not None)
        found = find_holders(
            {block.key for block in stayed}, self._namespace, files, self._variables(), cell_number=self._cell_number
        )
        if not found.complete and not found.cut:
            self.gaps = (Gap("graphs", f"the search for what grows covered the first {MOST_NODES} stored nodes"),)
        if found.cut:
            self.gaps = (Gap("names", f"the search for what grows covered only some of the names: {found.cut}"),)
        return found

    def _variables(self) -> Iterator[tuple[Place, Any]]:
        """Yield the variables of the functions that run, and of those that have just failed."""
        yield from running(self._frame, set(self._namespace))
        for place, value in failing_variables(self._error, self._cell_number) if self._error is not None else ():
            yield replace(place, kind="name"), value


def _may_grow(stayed: Collection[Block], iterations: Iterations) -> bool:
    """Return whether enough stayed from one line, or one tensor was joined often enough."""
    lines = Counter(block.site for block in stayed)
    often = any(count >= FEWEST_GRAPHS for count in lines.values())
    return often or any(len(iterations.joins.get(site, ())) > FEWEST for site in lines if site is not None)


def _stay(block: Block, category: Category, holders: Holders, nbytes: int | None = None) -> Stay:
    site, size = -1 if block.site is None else block.site, block.nbytes if nbytes is None else nbytes
    return Stay(site, size, block.born, str(block.device), category, holders.holds.get(block.key), block.died)


__all__ = ["Growth"]
