"""Whether the graph that backward goes through grows from step to step, because it reaches into the steps before.

Its size alone proves nothing: sequences get longer, layers are added. What proves it are nodes in it that are older
than the last pass, and an optimizer's step in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.collectors.graphs.history import next_nodes
from tensormagic.collectors.where.origins import Origins
from tensormagic.reports import GraphGrowth

SAME_INCREMENTS = 3  # in a row, before anything is asked: four passes, each so much larger than the one before
MOST_LINES = 64

_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Line:
    """What is known of the passes that one line starts.

    Attributes:
        size: Nodes of the last one.
        increment: By how many it was larger than the one before.
        streak: How often in a row it was so.
        first: The size from which it grew.
        mark: The number of the next node when the last one had ended.
        steps: How many steps there were when it began.
    """

    size: int
    increment: int = 0
    streak: int = 0
    first: int = 0
    mark: int = 0
    steps: int = 0


class Growth:
    """Follows the sizes of graphs, by the line of the backward.

    Args:
        origins: Says where nodes were made.
    """

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._lines: dict[int | None, _Line] = {}
        self._found: dict[int | None, GraphGrowth] = {}
        self._begun = 0

    def before_pass(self, site: int | None, nodes: Sequence[Any], steps: int) -> None:
        """Look at the nodes that a backward is about to go through; ``steps`` were made so far."""
        self._begun = _sequence_number()
        line = self._lines.get(site)
        if line is None:
            if len(self._lines) < MOST_LINES:
                self._lines[site] = _Line(len(nodes), steps=steps)
            return
        increment = len(nodes) - line.size
        again = increment == line.increment and steps > line.steps
        line.streak = line.streak + 1 if again and increment > 0 else 1
        line.first = line.first if again else line.size
        line.size, line.increment, line.steps = len(nodes), increment, steps
        if line.streak >= SAME_INCREMENTS and increment > 0 and self._is_due(line.streak):
            self._ask(site, line, nodes)

    def after_pass(self, site: int | None) -> None:
        """Note that the backward has ended; what made nodes (``create_graph``) is meant to be gone through again."""
        line, now = self._lines.get(site), _sequence_number()
        if line is not None:
            line.mark = now
            line.streak = 0 if now != self._begun else line.streak

    def report(self) -> tuple[GraphGrowth, ...]:
        """Return what grew."""
        return tuple(self._found.values())

    def _is_due(self, streak: int) -> bool:
        return streak == SAME_INCREMENTS or streak & (streak - 1) == 0

    def _ask(self, site: int | None, line: _Line, nodes: Sequence[Any]) -> None:
        made = [node for node in nodes if not hasattr(node, "variable")]
        old = [node for node in made if node._sequence_nr() < line.mark]
        bridges = list(_bridges(made, line.mark)) if old else []
        if bridges:
            newer, older = max(bridges)
            self._found[site] = GraphGrowth(
                backward=site, passes=line.streak + 1, first_size=line.first, last_size=line.size,
                increment=line.increment, older=len(old), joined=self._site(newer), reaches=self._site(older),
            )  # fmt: skip

    def _site(self, number: int) -> int | None:
        origin, _ = self._origins.of(number)
        return self._origins.origins[origin][0] if origin >= 0 else None


def _bridges(nodes: list[Any], mark: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the two ends of each edge from a node made since ``mark`` to one made before."""
    for node in nodes:
        number = node._sequence_nr()
        for target in next_nodes(node) if number >= mark else ():
            if not hasattr(target, "variable") and target._sequence_nr() < mark:
                yield number, target._sequence_nr()
