"""Where NaN and Inf were born: the edges on which something bad left a node that had received nothing bad.

Worked out once a pass that met one, from the numbers that its hooks left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from tensormagic.collectors.gradients.evidence import SavedFacts
from tensormagic.collectors.gradients.survey import StatisticsTable
from tensormagic.collectors.graphs.skeleton import Skeleton, Walk, is_accumulate
from tensormagic.reports import UNTOUCHED, Birth, Edge

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.pass_values import PassValues

MAX_BIRTHS = 8


def births_of(
    values: PassValues, facts: Mapping[int, SavedFacts], first: StatisticsTable, edges: Sequence[Edge],
    hooked: Collection[int] = (),
) -> tuple[Birth, ...]:  # fmt: skip
    """Return the first `MAX_BIRTHS` births of a pass, in the order in which backward reached them.

    Args:
        values: The pass.
        facts: What was counted in saved tensors, by node.
        first: Statistics of the first gradient of each node.
        edges: Of the graph.
        hooked: Nodes that receive what hooks of the person's have seen before; see `hooked_nodes`.
    """
    found = islice(_births(values, facts, first, edges), MAX_BIRTHS)
    return tuple(replace(birth, hooked=True) if birth.receiver in hooked else birth for birth in found)


def hooked_nodes(found: Walk, skeleton: Skeleton, numbers: Collection[int]) -> frozenset[int]:
    """Return the report indices of nodes whose gradient tensor hooks of the person's may change on its way there.

    Those on leaves stand with the leaf. Of others, nothing can be asked: they are the ones that were seen being put
    on the results of nodes with these sequence ``numbers``.
    """
    return frozenset(
        skeleton.index[place]
        for place, node in enumerate(found.nodes)
        if (node.variable._backward_hooks if is_accumulate(node) else found.numbers[place] in numbers)
    )


def _births(
    values: PassValues, facts: Mapping[int, SavedFacts], first: StatisticsTable, edges: Sequence[Edge]
) -> Iterator[Birth]:
    feeders: dict[int, list[Edge]] = {}
    for edge in edges:
        if edge.target in values.bad:
            feeders.setdefault(edge.target, []).append(edge)
    for receiver in values.order:
        for edge in feeders.get(receiver, ()):
            counts = _bad_on(edge, values)
            if counts is not None:
                known, about = first.get(receiver), facts.get(edge.source, SavedFacts(""))
                certain = len(feeders[receiver]) == 1 or (edge.source, edge.input_number) in values.parts
                yield Birth(
                    values.pass_number, edge.source, receiver, edge.input_number, *counts,
                    sum(counts) if known is None else known.count, values.norms[edge.source],
                    about.name, about.zero, about.negative, about.bad, certain=certain,
                )  # fmt: skip


def _bad_on(edge: Edge, values: PassValues) -> tuple[int, int] | None:
    """Return the NaN and Inf that came over one edge; None where it is fine or its source was bad already."""
    if edge.source in values.bad or values.norms[edge.source] == UNTOUCHED:
        return None
    part = values.parts.get((edge.source, edge.input_number))
    nan, inf = values.bad[edge.target] if part is None else part[1:]
    return (nan, inf) if nan or inf else None
