"""What a user does not think of as a step of its own is folded into the step it belongs to.

Leaves become badges of the op that uses them, through the transpose or cast in between; chains of views become one
group. Nothing is dropped: every node of the graph is in exactly one group, every leaf in a group or on one as badge.

A graph that has too many boxes even so is made smaller; nothing is left out: more of it shares a box.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, takewhile
from operator import eq
from typing import TYPE_CHECKING, NamedTuple

from tensormagic.views.graph.layers import Edge, adjacency, topological_order
from tensormagic.views.graph.words import is_view, op_label, shape_label, shows_values
from tensormagic.views.markup import once
from tensormagic.words import plural, shortened

if TYPE_CHECKING:
    from tensormagic.reports import Graph


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are drawn as one box."""

    nodes: tuple[int, ...]  # The graph's nodes, the one that speaks for all first.
    leaves: tuple[int, ...] = ()  # Leaves that are badges here.
    kind: str = "op"  # As in `drawing.Box`.
    label: str = ""  # What it is called.
    detail: str = ""  # What it makes.
    module: str = ""  # Path of the module all of it belongs to.


@dataclass(frozen=True, slots=True)
class Folding:
    """A graph of groups."""

    groups: tuple[Group, ...]  # In forward order.
    # From group to group, the way the gradient flows, with the graph's edges each stands for.
    edges: dict[Edge, tuple[int, ...]] = field(default_factory=dict)
    note: str = ""  # How it was made smaller than what a user would draw; empty where it was not.


@once
def surroundings(graph: Graph) -> tuple[list[int], list[list[int]], list[list[int]], list[bool]]:
    """Return all nodes in forward order, what uses each and what each uses, and which are the leaf side of a graph.

    Those are leaves, and views and casts of nothing but leaves; none where every node has a box of its own.
    """
    links = [(edge.target, edge.source) for edge in graph.edges]  # the way the forward ran
    users, inputs = adjacency(len(graph.nodes), links)
    order, each = topological_order(len(graph.nodes), links), shows_values(graph)
    side = [node.kind == "accumulate" and not each for node in graph.nodes]
    for index in order:
        if inputs[index] and all(map(side.__getitem__, inputs[index])) and is_view(graph.nodes[index]):
            side[index] = True
    return order, users, inputs, side


@once
def fold(graph: Graph) -> Folding:
    """Fold leaves into badges and chains of views into one group each."""
    order, users, inputs, side = surroundings(graph)
    taken: set[int] = set()
    groups = []  # one for every op, with the leaves (and their views) that it uses
    for index in order:
        if not side[index]:
            groups.append(group_of(graph, index, reachable(index, inputs, side), taken))
        elif all(side[user] for user in (*users[index], *reachable(index, users, side))):  # no op uses it
            groups.append(group_of(graph, index, [], taken))
    if not shows_values(graph):
        return assemble(graph, _views_joined(groups, graph))
    for at, group in enumerate(groups):  # with the name of what a node made, where one holds it: ``x = mul``
        node = graph.nodes[group.nodes[0]]
        if node.kind != "accumulate" and node.variable:
            groups[at] = replace(group, label=f"{node.variable} = {group.label}")
    return assemble(graph, groups)


def assemble(graph: Graph, groups: list[Group], note: str = "") -> Folding:
    """Put groups into forward order and connect them."""
    joins, shown = _joins(graph, groups), shown_edges(graph)
    order = topological_order(len(groups), [(target, source) for _, target, source in joins])
    place = [0] * len(groups)
    for new, old in enumerate(order):
        place[old] = new
    edges: dict[Edge, list[int]] = {}
    for number, target, source in joins:
        if shown[number]:
            edges.setdefault((place[source], place[target]), []).append(number)
    ordered = tuple(groups[old] for old in order)
    return Folding(ordered, {pair: tuple(numbers) for pair, numbers in edges.items()}, note)


def _joins(graph: Graph, groups: list[Group]) -> list[tuple[int, int, int]]:
    """Return the edges between two groups: the edge's number, the group that receives, the group that sends."""
    owner = [-1] * len(graph.nodes)
    for number, group in enumerate(groups):
        for node in group.nodes:
            owner[node] = number
    ends = [(owner[edge.target], owner[edge.source]) for edge in graph.edges]
    return [(number, target, source) for number, (target, source) in enumerate(ends) if -1 != target != source != -1]


@once
def shown_edges(graph: Graph) -> list[bool]:
    """Say for every edge whether it is drawn; one that leads to (the transpose of) a leaf is shown by a badge."""
    side = surroundings(graph)[-1]
    return [side[edge.source] or not side[edge.target] for edge in graph.edges]


def reachable(start: int, neighbours: list[list[int]], side: list[bool]) -> list[int]:
    """Return what ``start`` leads to over leaf-side nodes, nearest first; ops met on the way are not passed."""
    found: dict[int, None] = {}
    stack, anything = [start], side[start]
    while stack:
        at = stack.pop()
        for other in neighbours[at]:
            if (side[other] or anything) and other not in found:
                found[other] = None
                if side[other]:
                    stack.append(other)
    return list(found)


def group_of(graph: Graph, index: int, hanging: list[int], taken: set[int]) -> Group:
    """Return the group of an op with what hangs on it; a view of leaves that is in ``taken`` is in another group."""
    node, others = graph.nodes[index], [graph.nodes[other] for other in hanging]
    views = [other.index for other in others if other.kind != "accumulate" and other.index not in taken]
    taken.update(views)
    leaves = tuple(sorted([other.index for other in others if other.kind == "accumulate"]))
    kind = "views" if is_view(node) else node.kind
    return Group((index, *views), leaves, kind, op_label(node, others), shape_label(node), node.module)


def _views_joined(groups: list[Group], graph: Graph) -> list[Group]:
    """Join every chain of views, each the only one to use the one before, into one group.

    The last one, whose gradient comes first, speaks for a chain.
    """
    if all(group.kind != "views" for group in groups):
        return groups
    before, after = [-1] * len(groups), [-1] * len(groups)  # the only one before and after; -2 where there are others
    shown = shown_edges(graph)
    for number, target, source in _joins(graph, groups):
        if shown[number]:
            before[source] = target if before[source] in {-1, target} else -2
            after[target] = source if after[target] in {-1, source} else -2
    joined: dict[int, list[Group]] = {}
    head = list(range(len(groups)))
    for number, group in enumerate(groups):
        previous = before[number]
        if previous >= 0 and after[previous] == number and group.kind == groups[previous].kind == "views":
            head[number] = head[previous]
        joined.setdefault(head[number], []).append(group)
    merged = []
    for run in joined.values():
        name = "views" if len({group.label for group in run}) > 1 else run[0].label
        label, module = f"{name} ×{len(run)}", run[-1].module
        merged.append(_merged(run, kind="views", label=label, module=module) if len(run) > 1 else run[0])
    return merged


# A graph with too many boxes. Groups are merged only where they stand next to each other in forward order: a graph
# whose nodes are merged along one topological order has no circles afterwards, whatever is merged. That is why a module
# that was called twice, with other things in between, becomes two boxes.
#
# Tried in turn: one box a module, from the innermost modules outwards; one box a repetition, where the same ops repeat
# (a recurrent network, layers in a plain loop), several repetitions sharing a box where there are many; and, where
# nothing repeats, neighbours by the dozen.

_FEW = 8  # a fold into fewer boxes than this shows too little, if another one fits as well
_MOST_REPETITIONS = 28  # boxes along the time axis of something that repeats
_LONGEST_PERIOD = 96
_LABEL = 22


def coarsen(graph: Graph, folding: Folding, max_boxes: int) -> Folding:
    """Return ``folding``, which has more groups, with at most ``max_boxes``."""
    fitting = []
    for groups, how in _candidates(folding.groups, max_boxes):
        fitting += [(groups, how)] if len(groups) <= max_boxes else []
        if _FEW <= len(groups) <= max_boxes:
            break
    fitting = fitting or [(_in_portions(folding.groups, max_boxes), "neighbouring ops share a box")]
    groups, how = max(fitting, key=lambda one: len(one[0]))
    return assemble(graph, groups, how)


def _candidates(groups: Sequence[Group], max_boxes: int) -> Iterator[tuple[list[Group], str]]:
    """Yield ways to merge, the ones that show most first."""
    deepest = max(map(_depth, groups))
    by_module = []
    for depth in range(deepest, 0, -1):
        merged = _merge_modules(groups, depth)
        yield merged, "one box a module"
        if len(merged) > max_boxes:
            yield _merge_numbered(merged, max_boxes), "several layers share a box"
        by_module.append(merged)
    for merged in (list(groups), *by_module):
        yield _merge_repetitions(merged, max_boxes), "repetitions share a box"


def _depth(group: Group) -> int:
    """Return how many names the path of a group's module has."""
    return group.module.count(".") + 1 if group.module else 0


def _common_path(groups: Sequence[Group]) -> list[str]:
    """Return the path of the innermost module that all groups lie in."""
    modules = {group.module for group in groups}  # few, of many groups
    levels = zip(*(module.split(".") if module else [] for module in modules), strict=False)
    return [names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)]


def _merge_modules(groups: Sequence[Group], depth: int) -> list[Group]:
    """Merge neighbours that belong to the same module, ``depth`` names deep."""
    merged: list[Group] = []
    for prefix, run in groupby(groups, key=lambda group: group.module.split(".", depth)[:depth]):
        members = list(run)
        if len(prefix) < depth or not members[0].module or len(members) == 1:
            merged.extend(members)
        else:
            merged.append(_merged(members, kind="module", label=_module_label(prefix), module=".".join(prefix)))
    return merged


def _merged(members: Sequence[Group], *, kind: str, label: str, module: str, detail: str | None = None) -> Group:
    """Return one group for neighbours; the last one, whose gradient comes first, speaks for it."""
    nodes = tuple(chain.from_iterable([group.nodes for group in reversed(members)]))
    leaves = tuple(dict.fromkeys(chain.from_iterable([group.leaves for group in members])))
    detail = members[-1].detail if detail is None else detail
    return Group(nodes, leaves, kind, shortened(label, _LABEL), detail, module)


def _module_label(path: Sequence[str]) -> str:
    """Return the last name of a module's path, with the one before where it is a number: ``layers.3``."""
    numbered = len(path) > 1 and path[-1].isdigit()
    return ".".join(path[-2:] if numbered else path[-1:])


def _merge_numbered(groups: Sequence[Group], max_boxes: int) -> list[Group]:
    """Merge neighbours such as ``layers.3`` and ``layers.4``, the fewest in each box with which all of it fits."""
    runs = [list(run) for _, run in groupby(groups, key=_series)]
    numbered = [len(run) for run in runs if _series(run[0])]
    others = len(groups) - sum(numbered)
    most = max(numbered, default=1)
    each = next((e for e in range(2, most + 1) if others + sum(-(-n // e) for n in numbered) <= max_boxes), most)
    merged: list[Group] = []
    for run in runs:
        if not (series := _series(run[0])):
            merged += run
            continue
        for part in (run[at : at + each] for at in range(0, len(run), each)):
            first, last = part[0].module.split("."), part[-1].module.rpartition(".")[2]
            label = f"{_module_label(first)}–{last}"
            merged.append(_merged(part, kind="repeat", label=label, module=series) if len(part) > 1 else part[0])
    return merged


def _series(group: Group) -> str:
    """Return the path of the modules that a numbered module is one of, ``net.layers``; empty for anything else."""
    parent, _, name = group.module.rpartition(".")
    return parent if group.kind == "module" and name.isdigit() else ""


class _Repeat(NamedTuple):
    """The same ``period`` groups, ``times`` times in a row from ``start``."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.times


def _merge_repetitions(groups: Sequence[Group], max_boxes: int) -> list[Group]:
    """Merge every repetition into one box, and several repetitions where there would be too many boxes."""
    modules = {group.module: re.sub(r"\d+", "#", group.module) for group in groups}
    repeats = _find_repeats([(group.label, modules[group.module], len(group.leaves)) for group in groups])
    single = len(groups) - sum(repeat.end - repeat.start for repeat in repeats)
    room = min(max((max_boxes - single) // max(len(repeats), 1), 1), _MOST_REPETITIONS)
    merged: list[Group] = []
    at = 0
    for repeat in repeats:
        merged.extend(groups[at : repeat.start])
        each = -(-repeat.times // room)  # repetitions in a box, the same number in each
        for first in range(0, repeat.times, each):
            last = min(first + each, repeat.times)
            members = groups[repeat.start + first * repeat.period : repeat.start + last * repeat.period]
            merged.append(_portion(members, first, last, repeat) if len(members) > 1 else members[0])
        at = repeat.end
    return [*merged, *groups[at:]]


def _find_repeats(signatures: Sequence[tuple[str, str, int]]) -> list[_Repeat]:
    """Return stretches in which the same groups repeat, from left to right, those that cover most first chosen."""
    numbers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures))}
    tokens = [numbers[signature] for signature in signatures]
    periods = range(1, min(_LONGEST_PERIOD, len(tokens) // 3) + 1)
    stretches = [stretch for period in periods for stretch in _stretches(tokens, period)]
    found, at = list[_Repeat](), 0
    while stretches := [one for one in stretches if one[1] - max(one[0], at) >= 2 * one[2]]:
        first = max(min(start for start, _, _ in stretches), at)
        repeats = (_Repeat(first, period, (end - first) // period + 1)
                   for start, end, period in stretches if start <= first)  # fmt: skip
        found.append(max(repeats, key=lambda one: (one.period * one.times, -one.period)))  # then the shorter period
        at = found[-1].end
    return found


def _stretches(tokens: Sequence[int], period: int) -> Iterator[tuple[int, int, int]]:
    """Yield the longest stretches in which what a period holds comes three times or more: first token, end, period.

    From the first token to the end each equals the one a period later.
    """
    equal, wanted = bytes(map(eq, tokens, tokens[period:])), b"\x01" * (2 * period)
    start = equal.find(wanted)
    while start >= 0:
        end = equal.find(b"\x00", start)
        end = len(equal) if end < 0 else end
        yield start, end, period
        start = equal.find(wanted, end)


def _portion(members: Sequence[Group], first: int, last: int, repeat: _Repeat) -> Group:
    """Return one group for the repetitions from ``first`` up to ``last``."""
    layers = _common_path(members[: repeat.period]), _common_path(members[-repeat.period :])
    common, times = _common_path(members), last - first
    merged = partial(_merged, members, kind="repeat", module=".".join(common))
    if all(path and path[-1].isdigit() for path in layers):
        return merged(label=_module_label(layers[0]) + (f"–{layers[1][-1]}" if layers[0] != layers[1] else ""))
    ops = list(dict.fromkeys(group.label for group in members[: repeat.period]))
    many = f" ×{times}" if times > 1 else ""
    if common and len(ops) > 1:  # its module, where it is more than one op
        label = _module_label(common) + many
    else:
        label = shortened(ops[0] if len(ops) == 1 else f"{ops[0]} … {ops[-1]}", _LABEL - len(many)) + many
    which = f"{first + 1}–{last}" if times > 1 else f"{first + 1}"
    return merged(label=label, detail=f"{which} of {repeat.times}")


def _in_portions(groups: Sequence[Group], max_boxes: int) -> list[Group]:
    """Merge neighbours into ``max_boxes`` portions, as even as can be."""
    merged = []
    for number in range(max_boxes):
        members = groups[len(groups) * number // max_boxes : len(groups) * (number + 1) // max_boxes]
        common = ".".join(_common_path(members))
        names = [name for name, _ in Counter(group.label for group in members).most_common(2)]
        label = plural(len(members), "op")
        merged.append(_merged(members, kind="repeat", label=label, module=common, detail=", ".join(names)))
    return [members if members.label != "1 op" else replace(members, label=members.detail) for members in merged]


def divide(groups: Sequence[Group], most: int) -> list[Group]:
    """Return the next level inside a box made of ``groups``: all of them, or 2 to ``most`` unions of neighbours."""
    if len(groups) <= most:
        return list(groups)
    depths = range(len(_common_path(groups)) + 1, max(map(_depth, groups)) + 1)
    for depth in depths:
        merged = _merge_modules(groups, depth)
        for level in (merged, _merge_repetitions(merged, most)) if len(merged) > most else (merged,):
            if 2 <= len(level) <= most:
                return level
    repeated = _merge_repetitions(groups, most)
    return repeated if 2 <= len(repeated) <= most else _in_portions(groups, most)
