"""Memory that grows with every iteration, found in what a run left alive, or was alive at its peak: from births alone.

A leak has a rhythm: iteration for iteration about as much is made and stays, until the end. Where a backward runs
between, that is the rhythm of a training loop, and nothing but its births is needed to see it. Elsewhere nothing tells
an iteration from the next layer of a network, and only what the holder shows counts: items that a line of the person's
own puts in one by one, results that each have a graph of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from tensormagic.reports import Leak, Location
from tensormagic.reports.memory import Category
from tensormagic.reports.memory_run import LeakForm

FEWEST = 5  # iterations
FEWEST_GRAPHS = 4  # each of its own
_ALIKE = 3 / 4  # of the iterations add between half and twice the usual
_BEGINS = 1 / 4  # of the backwards since its line first ran have passed when the first one stays
_LASTS = 3 / 4  # of the backwards have passed when the last one adds something
MEANT: frozenset[Category] = frozenset({"parameter", "gradient", "optimizer state", "buffer"})
_BRIEF: frozenset[Category] = MEANT | {"saved for backward"}

Births = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Hold:
    """Who keeps a storage.

    Attributes:
        name: ``"losses"``: the container, the sum, or the tensor itself.
        form: As in `Leak`.
        item: Which item of the container it is.
        location: The line that puts more into it, where one is found.
        graph: Whether an autograd graph of what has this name keeps the storage.
        count: How many results with graphs of their own it stores; 0 for what is no graph.
        scalars: Whether these are single numbers.
        ends: Whether it cannot grow for ever: one tensor, a queue with an end, something that the source empties.
    """

    name: str
    form: LeakForm = "items"
    item: str = ""
    location: Location | None = None
    graph: bool = False
    count: int = 0
    scalars: bool = False
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """A storage that a run made and left alive.

    Attributes:
        line: Index of the line that allocated it; -1 where it is not known.
        nbytes: Its bytes.
        born: Number of the operation that allocated it.
        device: Where.
        category: What it is for.
        hold: Who keeps it; None where nothing that has a name does.
        died: Number of the operation behind which it was freed; None while it is alive.
    """

    line: int
    nbytes: int
    born: int
    device: str = "cpu"
    category: Category = "other"
    hold: Hold | None = None
    died: int | None = None


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What else is known of a run.

    Attributes:
        lines: The lines, by index.
        backwards: Numbers of the operations at which a backward began, ascending.
        joins: Operation and bytes of every tensor that a line joined of others (``torch.cat``), by line.
        first: Number of the first operation at which each line allocated something.
        complete: Whether everything that has a name was looked at; else what has no holder tells nothing.
    """

    lines: Sequence[Location]
    backwards: Sequence[int] = ()
    joins: Mapping[int, Births] | None = None
    first: Mapping[int, int] | None = None
    complete: bool = True


def find_leaks(stays: Iterable[Stay], rhythm: Rhythm) -> tuple[Leak, ...]:
    """Return what grows with every iteration, the largest first."""
    groups: dict[tuple[str, str | int], list[Stay]] = defaultdict(list)
    for stay in stays:
        if stay.category not in MEANT and stay.line >= 0 and stay.nbytes:
            groups[stay.device, stay.hold.name if stay.hold is not None else stay.line].append(stay)
    found = (_leak(group, rhythm) for group in groups.values())
    return tuple(sorted((leak for leak in found if leak is not None), key=lambda leak: -leak.kept))


def find_ended(stays: Iterable[Stay], rhythm: Rhythm, peak: int) -> tuple[Leak, ...]:
    """Return what grew up to the peak of a run and was freed later, all at once, the largest first.

    Args:
        stays: What was alive at the peak and is not any more.
        rhythm: What else is known of the run.
        peak: Number of the operation at which the most was alive.
    """
    until = replace(rhythm, backwards=rhythm.backwards[: bisect_right(rhythm.backwards, peak)])
    groups: dict[tuple[str, int], list[Stay]] = defaultdict(list)
    for stay in stays:
        if stay.category not in _BRIEF and stay.line >= 0 and stay.nbytes:
            groups[stay.device, stay.line].append(stay)
    at_once = (group for group in groups.values() if len({_round_of_death(stay, rhythm) for stay in group}) == 1)
    found = (_unheld(group, until) for group in at_once)
    return tuple(replace(leak, ended=True) for leak in found if leak is not None)


def _round_of_death(stay: Stay, rhythm: Rhythm) -> int:
    return bisect_right(rhythm.backwards, stay.born if stay.died is None else stay.died)


def _leak(group: list[Stay], rhythm: Rhythm) -> Leak | None:
    """Return what a group of storages with one holder, or of one line without any, tells."""
    holds = [stay.hold for stay in group if stay.hold is not None]
    if any(hold.ends for hold in holds):
        return None
    if not holds:
        return _unheld(group, rhythm) if rhythm.complete else None
    hold = max(holds, key=lambda hold: hold.graph)
    if hold.graph:
        return _graphs(group, hold, rhythm)
    return _joined(group, hold, rhythm) if hold.form == "joined" else _items(group, hold, rhythm)


def _graphs(group: list[Stay], hold: Hold, rhythm: Rhythm) -> Leak | None:
    """Return a leak of graphs, counted by the results that begin them, or by the backwards that one goes back over."""
    if hold.count:
        return _told(group, rhythm, hold.count, hold) if hold.count >= FEWEST_GRAPHS else None
    rounds = _rounds(group, rhythm)
    return _told(group, rhythm, len(rounds), hold) if _is_training(group, rhythm) else None


def _items(group: list[Stay], hold: Hold, rhythm: Rhythm) -> Leak | None:
    """Return a leak of items: one a backward, or one a time that a known line puts one in."""
    rounds = _rounds(group, rhythm)
    if _is_training(group, rhythm):
        added = list(rounds.values())
    elif rhythm.backwards or hold.location is None:
        return None  # collected before the training, or from time to time
    else:
        added = _by_item(group)
    return _told(group, rhythm, len(added), hold) if _is_steady(added) else None


def _unheld(group: list[Stay], rhythm: Rhythm) -> Leak | None:
    """Return a leak of what nothing that has a name holds: only a training loop shows that it is one."""
    rounds = _rounds(group, rhythm)
    if not (_is_training(group, rhythm) and _is_steady(list(rounds.values()))):
        return None
    return _told(group, rhythm, len(rounds), Hold(""))


def _joined(group: list[Stay], hold: Hold, rhythm: Rhythm) -> Leak | None:
    """Return the growth of one tensor that is joined from itself and more, again and again."""
    (stay, *others) = group
    births = list((rhythm.joins or {}).get(stay.line, ()))
    steps = [after - before for (_, before), (_, after) in pairwise(births)]
    if others or len(steps) < FEWEST or min(steps) <= 0 or births[-1] != (stay.born, stay.nbytes):
        return None
    rounds = {bisect_right(rhythm.backwards, born) for born, _ in births}
    kept, training = sum(steps), len(rounds) > len(births) // 2
    return Leak(
        rhythm.lines[stay.line], stay.device, kept // len(steps), len(steps), kept, hold.name, hold.location,
        form="joined", training=training,
    )  # fmt: skip


def _rounds(group: list[Stay], rhythm: Rhythm) -> dict[int, int]:
    """Return the bytes that were added before the first backward, between it and the second, and so on."""
    rounds: dict[int, int] = defaultdict(int)
    for stay in group:
        rounds[bisect_right(rhythm.backwards, stay.born)] += stay.nbytes
    return rounds


def _is_training(group: list[Stay], rhythm: Rhythm) -> bool:
    """Return whether something stayed from backward to backward, from the first time on and to the end.

    Several backwards may make a step: a generator's and its critic's, some that are accumulated. What stays of the last
    few times only, of many, is what a cache or a ring has not overwritten yet.
    """
    rounds = _rounds(group, rhythm)
    first, last = min(rounds), max(rounds)
    dense = 4 * len(rounds) >= last - first + 1
    began = bisect_right(rhythm.backwards, min((rhythm.first or {}).get(stay.line, stay.born) for stay in group))
    early = first - began <= max(1, _BEGINS * (last - began))
    return len(rounds) >= FEWEST and dense and early and last >= _LASTS * len(rhythm.backwards)


def _by_item(group: list[Stay]) -> list[int]:
    """Return the bytes of each numbered item; what has a key of its own is not one of many."""
    items: dict[str, int] = defaultdict(int)
    for stay in group:
        if stay.hold is not None and stay.hold.item[1:-1].isdigit():
            items[stay.hold.item] += stay.nbytes
    return list(items.values())


def _is_steady(added: Sequence[int]) -> bool:
    """Return whether about the same was added time after time."""
    usual = median(added) if added else 0
    return len(added) >= FEWEST and sum(usual <= 2 * each <= 4 * usual for each in added) >= _ALIKE * len(added)


def _told(group: list[Stay], rhythm: Rhythm, iterations: int, hold: Hold) -> Leak:
    by_line: dict[int, int] = defaultdict(int)
    for stay in group:
        by_line[stay.line] += stay.nbytes
    kept = sum(by_line.values())
    training = _is_training(group, rhythm)
    return Leak(
        rhythm.lines[max(by_line, key=lambda line: by_line[line])], group[0].device, kept // iterations, iterations,
        kept, hold.name, hold.location, graph=hold.graph, form=hold.form, training=training, scalars=hold.scalars,
    )  # fmt: skip
