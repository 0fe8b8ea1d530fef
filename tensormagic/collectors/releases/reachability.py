"""Which root alone leads to a node, and which roots lead there together: plain graphs of numbers, no torch.

A root that dominates a node (every way to the node goes through it) is a root that alone reaches it. That is asked for
roots only, so that a dominator tree is not needed: every node takes the colour of the root that reaches it, or that of
"several", and is looked at twice at most.
"""

from __future__ import annotations

from collections.abc import Sequence

NOBODY, SEVERAL = -1, -2

Edges = Sequence[Sequence[int]]


def sole_roots(edges: Edges, roots: Sequence[Sequence[int]]) -> list[int]:
    """Return for each node the root that alone reaches it, `SEVERAL`, or `NOBODY`.

    Args:
        edges: For each node, the nodes that it refers to.
        roots: For each root, the nodes that it refers to.
    """
    colours = [NOBODY] * len(edges)
    for root, starts in enumerate(roots):
        pending = list(starts)
        while pending:
            node = pending.pop()
            colour = colours[node]
            if colour == NOBODY:
                colours[node] = root
                pending += edges[node]
            elif colour not in {root, SEVERAL}:
                colours[node] = SEVERAL
                pending += edges[node]
    return colours


def root_sets(edges: Edges, roots: Sequence[Sequence[int]], colours: Sequence[int]) -> dict[int, int]:
    """Return for each node that several roots reach which ones do: the bits of a number, the first root the lowest.

    Args:
        edges: For each node, the nodes that it refers to.
        roots: For each root, the nodes that it refers to.
        colours: What `sole_roots` made of them.
    """
    order = _order(edges, colours)
    sets = _first_sets(edges, roots, colours)
    place = {node: at for at, node in enumerate(order)}
    changed = True
    while changed:  # once, and once more for each time that a cycle leads back
        changed = False
        for at, node in enumerate(order):
            mine = sets[node]
            for after in edges[node]:
                if sets[after] | mine != sets[after]:
                    sets[after] |= mine
                    changed = changed or place[after] <= at
    return sets


def _first_sets(edges: Edges, roots: Sequence[Sequence[int]], colours: Sequence[int]) -> dict[int, int]:
    """Return for each shared node the roots that lead to it directly, or through nodes that only they reach."""
    sets = {node: 0 for node, colour in enumerate(colours) if colour == SEVERAL}
    for root, starts in enumerate(roots):
        for node in starts:
            if colours[node] == SEVERAL:
                sets[node] |= 1 << root
    for node, colour in enumerate(colours):
        if colour >= 0:
            for after in edges[node]:
                if colours[after] == SEVERAL:
                    sets[after] |= 1 << colour
    return sets


def _order(edges: Edges, colours: Sequence[int]) -> list[int]:
    """Return the shared nodes, each before what it leads to except where a cycle leads back."""
    seen: set[int] = set()
    left: list[int] = []
    for start, colour in enumerate(colours):
        if colour != SEVERAL or start in seen:
            continue
        seen.add(start)
        path = [(start, iter(edges[start]))]
        while path:
            after = next((each for each in path[-1][1] if each not in seen), None)
            if after is None:
                left.append(path.pop()[0])
            else:
                seen.add(after)
                path.append((after, iter(edges[after])))
    return left[::-1]
