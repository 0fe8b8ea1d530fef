"""Where an operation was called from: line, module and phase, found in one walk up the stack and interned.

Equal places share one `Place`, and what is counted there is found by the operation's ``id`` in it: no object is made
for a call. The number of places is bounded; beyond it calls are counted at no place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tensormagic.collectors.ops.op_facts import WHOLE, Row
from tensormagic.collectors.ops.stack_walk import StackWalk
from tensormagic.collectors.where.source import Sites
from tensormagic.reports.ops import Phase

MOST_PLACES = 20_000  # lines × modules × phases: a large model has some hundreds

Origin = tuple["int | None", str]  # site, module path


class Rows:
    """What was called at one place, in one phase.

    Attributes:
        by_op: ``id`` of the operation → what is known of it.
    """

    __slots__ = ("by_op", "module", "phase", "site")

    def __init__(self, site: int | None, module: str, phase: Phase) -> None:
        self.site, self.module, self.phase = site, module, phase
        self.by_op: dict[int, Row] = {}

    def add(self, op: Any, name: str = "") -> Row:
        """Return a new row for an operation that was not called here before."""
        return self.by_op.setdefault(id(op), Row(op, name))

    def add_whole(self, name: str, seconds: float) -> Row:
        """Count a call of which only the outside was seen."""
        name = sys.intern(name + WHOLE)
        row = self.by_op.get(id(name)) or self.add(name, name)
        row.calls += 1
        row.seconds += seconds
        return row


class Place:
    """A line in a module, with what was called there.

    Attributes:
        origin: The line's site and the module's path.
        rows: Counts the calls that autograd did not record.
        grown: Counts those that it did: the same as ``rows``, where these are of the forward too.
    """

    __slots__ = ("grown", "origin", "rows")

    def __init__(self, origin: Origin, rows: Rows, grown: Rows) -> None:
        self.origin, self.rows, self.grown = origin, rows, grown


class Places(StackWalk):
    """The places met so far.

    Args:
        sites: Interns the person's lines.
        module_path: Gives the path of the module that is called in a frame.
    """

    def __init__(self, sites: Sites, module_path: Callable[[FrameType | None], str]) -> None:
        super().__init__(sites, module_path)
        self._rows: dict[tuple[int | None, str, Phase], Rows] = {}
        self._places: dict[tuple[int | None, str, bool], Place] = {}
        self.overflowed = False

    def all_rows(self) -> Iterator[tuple[Rows, Row]]:
        """Yield everything that was counted; safe while the run goes on."""
        for rows in list(self._rows.values()):
            for row in list(rows.by_op.values()):
                yield rows, row

    def rows(self, site: int | None, module: str, phase: Phase) -> Rows:
        """Return where calls of that line, module and phase are counted."""
        key = (site, module, phase)
        found = self._rows.get(key)
        if found is None:
            if len(self._rows) >= MOST_PLACES:
                self.overflowed, key = True, (None, "", phase)
            found = self._rows.setdefault(key, Rows(*key))
        return found

    def of(self, frame: FrameType | None) -> Place:
        """Return the place of a call that ``frame`` makes."""
        site, module, optimizes = self.walk(frame)
        place = self._places.get((site, module, optimizes))
        if place is None:
            place = self._make(site, module, optimizes=optimizes)
        return place

    def _make(self, site: int | None, module: str, *, optimizes: bool) -> Place:
        phase: Phase = "optimizer" if optimizes else "forward" if module else "other"
        grown: Phase = "optimizer" if optimizes else "forward"
        place = Place((site, module), self.rows(site, module, phase), self.rows(site, module, grown))
        if len(self._places) < MOST_PLACES:
            self._places[site, module, optimizes] = place
        return place
