"""What taking something out of a container would free: ``losses.clear()``, ``del losses[17]``, ``del net.cache``."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tensormagic.collectors.releases.containers import Container, containers
from tensormagic.collectors.releases.dominance import Dominance
from tensormagic.collectors.releases.flow import Sum
from tensormagic.collectors.releases.references import References
from tensormagic.collectors.releases.roots import Root
from tensormagic.reports import Release

MOST_PARTS = 4  # of one name
SHARE = 8  # one item is told where it frees at least this part of what all of its container free
STANDS_OUT = 1.5  # and one of a sequence, which has no name, where it frees so many times what its items do on average
CUT = "the items of some containers were not weighed: what each would free is told of the others"


@dataclass(slots=True)
class Items:
    """What lies in containers.

    Attributes:
        parts: By the number of a root, what taking something out of it frees, the most first.
        cut: Why not all were weighed; empty where all were.
    """

    parts: dict[int, tuple[Release, ...]] = field(default_factory=dict)
    cut: str = ""


def items_of(found: References, roots: Sequence[Root], dominance: Dominance, wanted: Collection[str] = ()) -> Items:
    """Return what taking something out of the containers frees that names lead to.

    Args:
        found: A walk that has ended.
        roots: What it began at.
        dominance: Asks its graph.
        wanted: Paths of items that are told of although they do not stand out.
    """
    names = {root.label: at for at, root in enumerate(roots) if root.kind == "name"}
    values = {name: value for name, at in names.items() for value in roots[at].values()}
    told: dict[int, dict[tuple[int, int], Release]] = {}
    items = Items()
    for name, container in containers(values):
        if dominance.steps < 0:
            items.cut = CUT
            break
        mine = told.setdefault(names[name], {})
        for key, one in _of_container(found, container, dominance, wanted):
            if key not in mine or _is_better(one, mine[key], wanted):
                mine[key] = one
    for at, by_what in told.items():
        order = sorted(by_what.values(), key=lambda one: (one.name not in wanted, -one.nbytes))
        if order:
            items.parts[at] = tuple(sorted(order[:MOST_PARTS], key=lambda one: -one.nbytes))
    return items


def _is_better(one: Release, other: Release, wanted: Collection[str]) -> bool:
    """Return whether the later of two that free the same is told: what was asked for, then the innermost to be emptied.

    Args:
        one: The later, further inside.
        other: The earlier.
        wanted: What was asked for.
    """
    if (one.name in wanted) != (other.name in wanted):
        return one.name in wanted
    return one.code.endswith(".clear()") or not other.code.endswith(".clear()")


def _of_container(
    found: References, container: Container, dominance: Dominance, wanted: Collection[str]
) -> Iterator[tuple[tuple[int, int], Release]]:
    """Yield what one container frees, all of it and item by item, each with what tells that set of storages."""
    number = found.number_of(container.holder)
    number = found.number_of(container.item) if number is None else number
    if number is None or not dominance.is_worth_asking(number):
        return
    below = dominance.below(number)
    whole = dominance.weighed(below)
    if not whole.nbytes or dominance.steps < 0:
        return
    if container.clears:
        yield _key(below, dominance), _release(container.path, whole, f"{container.path}.clear()")
    freed = list(_freed_by_items(found, container, number, dominance.parts(number, below), dominance))
    least = max(whole.nbytes / SHARE, _least(container, [one.nbytes for _, _, one in freed]))
    for path, nodes, one in freed:
        if one.nbytes >= least or path in wanted:
            yield _key(nodes, dominance), _release(path, one, f"del {path}")


def _freed_by_items(
    found: References, container: Container, number: int, parts: Sequence[Collection[int]], dominance: Dominance
) -> Iterator[tuple[str, Collection[int], Sum]]:
    """Yield the items that free something by themselves: the path, the nodes, their bytes."""
    places = _places(found.edges[number])
    for path, value in container.entries:
        at = places.get(found.number_of(value))
        one = Sum() if at is None else dominance.weighed(parts[at])
        if at is not None and one.nbytes:
            yield path, parts[at], one


def _least(container: Container, sizes: Sequence[int]) -> float:
    """Return what an item has to free to stand out among the others of a sequence."""
    several = len(sizes) > 1 and isinstance(container.item, list | deque)
    return STANDS_OUT * sum(sizes) / len(sizes) if several else 0.0


def _places(edges: Sequence[int]) -> Mapping[int | None, int]:
    """Return the place of each node that is referred to once."""
    places: dict[int | None, int] = {}
    for at, node in enumerate(edges):
        places[node] = -1 if node in places else at
    return {node: at for node, at in places.items() if at >= 0}


def _key(nodes: Collection[int], dominance: Dominance) -> tuple[int, int]:
    weighty = [node for node in nodes if dominance.weighs(node)]
    return min(weighty), len(weighty)


def _release(path: str, freed: Sum, code: str) -> Release:
    return Release(
        name=path, kind="item", nbytes=freed.nbytes, storages=freed.storages, reaches=freed.nbytes,
        device_bytes=dict(freed.devices), code=code,
    )  # fmt: skip
