"""What a user does not think of as a step of its own is folded into the step it belongs to.

Leaves become badges of the op that uses them, through the transpose or cast in between; chains of views become one
group. Nothing is dropped: every node of the graph is in exactly one group, every leaf in a group or on one as badge.
How a graph that is still too large is made smaller stands in `coarsening`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tensormagic.reports.base import quickly
from tensormagic.views.graph.layers import Edge, adjacency, topological_order
from tensormagic.views.graph.words import op_label, shape_label, shows_values
from tensormagic.views.markup import once

if TYPE_CHECKING:
    from tensormagic.reports import Edge as GraphEdge
    from tensormagic.reports import Graph, Node


VIEW_OPS = frozenset({
    "alias", "as_strided", "broadcast_to", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow",
    "permute", "reshape", "reshape_alias", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t",
    "transpose", "unbind", "unflatten", "unfold", "unsafe_split", "unsafe_view", "unsqueeze", "view", "view_as",
})  # fmt: skip
_CAST_OPS = frozenset({"to_copy", "clone", "to"})


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are drawn as one box."""

    nodes: tuple[int, ...]  # The graph's nodes, the one that speaks for all first.
    leaves: tuple[int, ...] = ()  # Leaves that are badges here.
    kind: str = "op"  # As in `drawing.Box`.
    label: str = ""  # What it is called.
    detail: str = ""  # What it makes.
    module: str = ""  # Path of the module all of it belongs to.


new_group = quickly(Group)


@dataclass(frozen=True, slots=True)
class Folding:
    """A graph of groups."""

    groups: tuple[Group, ...]  # In forward order.
    # From group to group, the way the gradient flows, with the graph's edges each stands for.
    edges: dict[Edge, tuple[int, ...]] = field(default_factory=dict)
    # For every node of the graph, whether it is a leaf, or a view or cast of nothing but leaves.
    leaf_side: list[bool] = field(default_factory=list)
    note: str = ""  # How it was made smaller than what a user would draw; empty where it was not.


def forward_links(graph: Graph) -> list[Edge]:
    """Return the graph's edges turned round, the way the forward ran: from what made an input to what used it."""
    return [(edge.target, edge.source) for edge in graph.edges]


def is_view(node: Node) -> bool:
    """Say whether a node only looks at the same elements in another way (or casts them)."""
    op = node.op.lstrip("_")
    return node.kind == "op" and (op in VIEW_OPS or op in _CAST_OPS)


@once
def fold(graph: Graph) -> Folding:
    """Fold leaves into badges and chains of views into one group each."""
    links = forward_links(graph)
    users, inputs = adjacency(len(graph.nodes), links)
    order = topological_order(len(graph.nodes), links)
    each = shows_values(graph)
    side = [False] * len(graph.nodes) if each else _leaf_side(graph, order, inputs)
    groups = _ops_with_leaves(graph, order, (users, inputs), side)
    shown = [join for join in _joins(graph, groups) if _is_shown(graph.edges[join[0]], side)]
    if each:
        return assemble(graph, [_named(graph, group) for group in groups], side)
    return assemble(graph, _views_joined(groups, shown), side)


def _named(graph: Graph, group: Group) -> Group:
    """Return a group of one node with the name of what it made, where one holds it: ``x = mul``."""
    node = graph.nodes[group.nodes[0]]
    known = node.kind != "accumulate" and node.variable
    return replace(group, label=f"{node.variable} = {group.label}") if known else group


def assemble(graph: Graph, groups: list[Group], leaf_side: list[bool], note: str = "") -> Folding:
    """Put groups into forward order and connect them."""
    joins = _joins(graph, groups)
    order = topological_order(len(groups), [(target, source) for _, target, source in joins])
    place = [0] * len(groups)
    for new, old in enumerate(order):
        place[old] = new
    edges: dict[Edge, list[int]] = {}
    for number, target, source in joins:
        if _is_shown(graph.edges[number], leaf_side):
            edges.setdefault((place[source], place[target]), []).append(number)
    ordered = tuple(groups[old] for old in order)
    return Folding(ordered, {pair: tuple(numbers) for pair, numbers in edges.items()}, leaf_side, note)


def _joins(graph: Graph, groups: list[Group]) -> list[tuple[int, int, int]]:
    """Return the edges between two groups: the edge's number, the group that receives, the group that sends."""
    owner = [-1] * len(graph.nodes)
    for number, group in enumerate(groups):
        for node in group.nodes:
            owner[node] = number
    ends = [(owner[edge.target], owner[edge.source]) for edge in graph.edges]
    return [(number, target, source) for number, (target, source) in enumerate(ends) if -1 != target != source != -1]


def _is_shown(edge: GraphEdge, leaf_side: list[bool]) -> bool:
    """Say whether an edge is drawn; one that leads to (the transpose of) a leaf is shown by a badge."""
    return leaf_side[edge.source] or not leaf_side[edge.target]


def _leaf_side(graph: Graph, order: list[int], inputs: list[list[int]]) -> list[bool]:
    """Say for every node whether it is a leaf, or a view or cast of nothing but leaves."""
    side = [node.kind == "accumulate" for node in graph.nodes]
    for index in order:
        made_of = inputs[index]
        if made_of and all(map(side.__getitem__, made_of)) and is_view(graph.nodes[index]):
            side[index] = True
    return side


def _ops_with_leaves(
    graph: Graph, order: list[int], neighbours: tuple[list[list[int]], list[list[int]]], side: list[bool]
) -> list[Group]:
    """Return a group for every op, in forward order, with the leaves (and their views) that it uses."""
    users, inputs = neighbours
    taken: set[int] = set()
    groups = []
    for index in order:
        if side[index] and _is_used(index, users, side):
            continue
        groups.append(_group(graph, index, _reachable(index, inputs, side) if not side[index] else [], taken))
    return groups


def _is_used(index: int, users: list[list[int]], side: list[bool]) -> bool:
    """Say whether an op uses a leaf-side node, as a rule directly."""
    near = users[index]
    return any(not side[user] for user in near) or any(not side[user] for user in _reachable(index, users, side))


def _reachable(start: int, neighbours: list[list[int]], side: list[bool]) -> list[int]:
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


def _group(graph: Graph, index: int, hanging: list[int], taken: set[int]) -> Group:
    node = graph.nodes[index]
    kind = "views" if is_view(node) else node.kind
    if not hanging:
        return new_group((index,), (), kind, op_label(node), shape_label(node), node.module)
    others = [graph.nodes[other] for other in hanging]
    views = [other.index for other in others if other.kind != "accumulate" and other.index not in taken]
    taken.update(views)
    leaves = tuple(sorted([other.index for other in others if other.kind == "accumulate"]))
    return new_group((index, *views), leaves, kind, op_label(node, others), shape_label(node), node.module)


def _views_joined(groups: list[Group], joins: list[tuple[int, int, int]]) -> list[Group]:
    """Join every chain of views, each the only one to use the one before, into one group; ``joins``: those drawn."""
    if all(group.kind != "views" for group in groups):
        return groups
    before, after = _single_neighbours(len(groups), joins)
    joined: dict[int, list[int]] = {}
    head = list(range(len(groups)))
    for number, group in enumerate(groups):
        previous = before[number]
        if previous >= 0 and after[previous] == number and group.kind == groups[previous].kind == "views":
            head[number] = head[previous]
        joined.setdefault(head[number], []).append(number)
    return [_joined([groups[number] for number in members]) for members in joined.values()]


def _single_neighbours(count: int, joins: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Return for every group the only one before it and the only one after it; below 0 where there are others."""
    before, after = [-1] * count, [-1] * count
    for _, target, source in joins:
        before[source] = target if before[source] in {-1, target} else -2
        after[target] = source if after[target] in {-1, source} else -2
    return before, after


def _joined(chain: list[Group]) -> Group:
    """Return one group for a chain of views; the last one, whose gradient comes first, speaks for it."""
    if len(chain) == 1:
        return chain[0]
    labels = {group.label for group in chain}
    name = labels.pop() if len(labels) == 1 else "views"
    nodes = tuple(node for group in reversed(chain) for node in group.nodes)
    leaves = tuple(dict.fromkeys(leaf for group in chain for leaf in group.leaves))
    return Group(nodes, leaves, "views", f"{name} ×{len(chain)}", chain[-1].detail, chain[-1].module)
