"""Puts the nodes of a graph into columns, so that every edge points to the right.

First step of the layered layout (Sugiyama, Tagawa and Toda, 1981, doi:10.1109/TSMC.1981.4308636): longest-path ranks,
then whatever hangs on nothing but itself (a source, or a tree of sources) is pulled next to what it feeds. Everything
is iterative: an unrolled recurrent network is a chain of thousands.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

Edge = tuple[int, int]


def adjacency(count: int, edges: Iterable[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the successors and the predecessors of every node, in the order of ``edges``."""
    following: list[list[int]] = [[] for _ in range(count)]
    preceding: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        following[tail].append(head)
        preceding[head].append(tail)
    return following, preceding


def topological_order(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return all nodes, each after those that point to it; of several that could come next, the smallest index.

    Where the edges run in a circle, the smallest node of those left is taken as if nothing pointed to it.
    """
    if all(tail < head for tail, head in edges):  # as a rule: nodes come in the order in which they were made
        return list(range(count))
    following, preceding = adjacency(count, edges)
    missing = [len(tails) for tails in preceding]
    ready = [node for node in range(count) if not missing[node]]
    left, done = iter(range(count)), [False] * count
    order: list[int] = []
    while len(order) < count:
        node = heapq.heappop(ready) if ready else next(other for other in left if not done[other])
        if done[node]:
            continue
        done[node] = True
        order.append(node)
        for head in following[node]:
            missing[head] -= 1
            if not missing[head]:
                heapq.heappush(ready, head)
    return order


def forward_edges(order: Sequence[int], edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges, those that run against ``order`` turned round; loops of a node to itself left out."""
    place = {node: at for at, node in enumerate(order)}
    return [edge if place[edge[0]] < place[edge[1]] else edge[::-1] for edge in edges if edge[0] != edge[1]]


def rank(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the column of every node, from 0; ``edges`` may run in circles (they are then turned round)."""
    order = topological_order(count, edges)
    following, preceding = adjacency(count, forward_edges(order, edges))
    ranks = [0] * count
    for node in order:
        ranks[node] = max((ranks[tail] + 1 for tail in preceding[node]), default=0)
    free = _hanging_on_nothing(order, following, preceding)
    for node in reversed(order):
        if free[node] and following[node]:
            ranks[node] = min(ranks[head] for head in following[node]) - 1
    return _without_empty(ranks)


def _hanging_on_nothing(order: Sequence[int], following: list[list[int]], preceding: list[list[int]]) -> list[bool]:
    """Say which nodes may move right without stretching an edge to their left: sources, and trees of sources."""
    free = [False] * len(order)
    for node in order:
        free[node] = all(free[tail] and len(set(following[tail])) == 1 for tail in preceding[node])
    return free


def _without_empty(ranks: list[int]) -> list[int]:
    column = {old: new for new, old in enumerate(sorted(set(ranks)))}
    return [column[old] for old in ranks]
