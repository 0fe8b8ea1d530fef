"""What parameters and modules of one run are called in another: models by likeness, layers by their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

from tensormagic.reports import TraceReport

_Key = TypeVar("_Key")
Numbered = list[tuple[int, Hashable]]  # the layers of a container: their numbers, and by what they are alike
Rename = Callable[[str], str]  # gives a name of the right run as the left one would say it
_MOST = 400  # layers of one container
_ADDED = "+"  # stands behind the number of a layer that only the right run has


def renames_between(left: TraceReport, right: TraceReport) -> Rename:
    """Pair models that only one run knows by name, and layers whose number in a container shifted.

    A layer that is inserted into an ``nn.Sequential`` shifts the numbers of all behind it.
    """
    model = _models(left, right)
    moved = _moved_layers(left, right, model)
    return lambda name: _replaced(model(name), moved)


def best_pairs(alike: Iterable[tuple[float, _Key, _Key]], *, least: float) -> dict[_Key, _Key]:
    """Pair what is most alike first, each once."""
    found: dict[_Key, _Key] = {}
    for likeness, one, other in sorted(alike, key=lambda entry: -entry[0]):
        if likeness >= least and one not in found and other not in found.values():
            found[one] = other
    return found


def _models(left: TraceReport, right: TraceReport) -> Rename:
    """Pair the models that only one run knows by name, those first whose parameters are most alike."""
    here, there = _owned(left), _owned(right)
    mine = {owner: names for owner, names in here.items() if owner not in there}
    theirs = {owner: names for owner, names in there.items() if owner not in here}
    alike = [(len(names & others), new, old) for old, names in mine.items() for new, others in theirs.items()]
    found = best_pairs(alike, least=1)

    def renamed(name: str) -> str:
        owner = next((one for one in found if name == one or name.startswith((f"{one}.", f"{one}["))), None)
        return name if owner is None else found[owner] + name[len(owner) :]

    return renamed


def _owned(report: TraceReport) -> dict[str, set[str]]:
    """Return for every owner what its parameters are called inside it."""
    owned: dict[str, set[str]] = {}
    for one in report.parameters:
        if one.owner:
            owned.setdefault(one.owner, set()).add(one.name.removeprefix(one.owner))
    return owned


class _Layers:
    """What is known of the modules of a run: their numbered children, parameters and operations."""

    def __init__(self, report: TraceReport, rename: Rename) -> None:
        self.children: dict[str, set[int]] = defaultdict(set)
        self._parameters: dict[str, list[tuple[str, tuple[int, ...]]]] = defaultdict(list)
        self._operations: dict[str, set[str]] = defaultdict(set)
        for one in report.parameters:
            name = rename(one.name)
            for path in self._above(name):
                self._parameters[path].append((name.removeprefix(path), one.shape))
        for node in (node for graph in report.graphs for node in graph.nodes if node.module):
            for path in self._above(f"{rename(node.module)}."):
                self._operations[path].add(node.name)

    def _above(self, name: str) -> list[str]:
        """Return the paths of the modules that hold what is called that; takes down which are numbered."""
        parts = name.split(".")
        for at, part in enumerate(parts[:-1]):
            if at and part.isdecimal():
                self.children[".".join(parts[:at])].add(int(part))
        return [".".join(parts[:at]) for at in range(1, len(parts))]

    def alike(self, path: str, *, shapes: bool) -> Hashable:
        """Return what a layer has in common with its counterpart: its parameters, or without any its operations."""
        inside = self._parameters.get(path)
        if inside is None:
            return frozenset(self._operations.get(path, ()))
        return tuple(sorted((name, shape if shapes else len(shape)) for name, shape in inside))


def _moved_layers(left: TraceReport, right: TraceReport, model: Rename) -> dict[str, str]:
    """Return the new last part of the path of each layer that is another one in the left run, or none."""
    here, there = _Layers(left, str), _Layers(right, model)
    moved: dict[str, str] = {}
    for path in sorted(there.children, key=lambda path: path.count(".")):
        counterpart = _replaced(path, moved)
        old, new = sorted(here.children.get(counterpart, ())), sorted(there.children[path])
        if not old or len(old) > _MOST or len(new) > _MOST:
            continue
        exact, rough = (
            ([(at, here.alike(f"{counterpart}.{at}", shapes=shapes)) for at in old],
             [(at, there.alike(f"{path}.{at}", shapes=shapes)) for at in new])
            for shapes in (True, False)
        )  # fmt: skip
        if rough[0] == rough[1]:
            continue
        pairs = max(_common(*exact), _common(*rough), key=len)
        moved |= {f"{path}.{at}": str(pairs.get(at, f"{at}{_ADDED}")) for at in new}
    return moved


def _replaced(name: str, moved: Mapping[str, str]) -> str:
    """Return a name with the numbers of moved layers replaced."""
    if not moved:
        return name
    parts = name.split(".")
    return ".".join(moved.get(".".join(parts[: at + 1]), part) for at, part in enumerate(parts))


def _common(mine: Numbered, theirs: Numbered) -> dict[int, int]:
    """Return a longest common subsequence by number; of several that which leaves most numbers as they are.

    As many layers that are not alike between two pairs are paired in order: one was replaced, or changed inside.
    """
    best = [[0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]

    def paired(at: int, to: int) -> int:
        (here, one), (there, other) = mine[at], theirs[to]
        return best[at + 1][to + 1] + 2 * _MOST + (here == there) if one == other else -1

    for at in reversed(range(len(mine))):
        for to in reversed(range(len(theirs))):
            best[at][to] = max(best[at + 1][to], best[at][to + 1], paired(at, to))
    pairs, at, to = [(-1, -1)], 0, 0
    while at < len(mine) and to < len(theirs):
        if best[at][to] == paired(at, to):
            pairs.append((at, to))
            at, to = at + 1, to + 1
        elif best[at][to] == best[at + 1][to]:
            at += 1
        else:
            to += 1
    ends = [*pairs, (len(mine), len(theirs))]
    between = [(range(at + 1, end), range(to + 1, last)) for (at, to), (end, last) in pairwise(ends)]
    together = (
        places for here, there in between if len(here) == len(there) for places in zip(here, there, strict=True)
    )
    return {theirs[to][0]: mine[at][0] for at, to in (*pairs[1:], *together)}
