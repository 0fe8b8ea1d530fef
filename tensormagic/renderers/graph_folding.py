"""What a person does not think of as a step of its own is folded into the step it belongs to.

Leaves become badges of the op that uses them, through the transpose or cast in between; chains of views become one
group. Nothing is dropped: every node of the graph is in exactly one group, every leaf in a group or on one as badge.
How a graph that is still too large is made smaller stands in `graph_coarsening`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensormagic.renderers.graph_words import op_label, shape_label
from tensormagic.renderers.layout_ranks import Edge, adjacency, topological_order

if TYPE_CHECKING:
    from tensormagic.reports import Graph, Node

VIEW_OPS = frozenset({
    "alias", "as_strided", "broadcast_to", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow",
    "permute", "reshape", "reshape_alias", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t",
    "transpose", "unbind", "unflatten", "unfold", "unsafe_split", "unsafe_view", "unsqueeze", "view", "view_as",
})  # fmt: skip
_CAST_OPS = frozenset({"to_copy", "clone", "to"})


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are drawn as one box.

    Attributes:
        nodes: The graph's nodes, the one that speaks for all first.
        leaves: Leaves that are badges here.
        kind: As in `graph_drawing.Box`.
        label: What it is called.
        detail: What it makes.
        module: Path of the module all of it belongs to.
    """

    nodes: tuple[int, ...]
    leaves: tuple[int, ...] = ()
    kind: str = "op"
    label: str = ""
    detail: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class Folding:
    """A graph of groups.

    Attributes:
        groups: In forward order.
        edges: From group to group, the way the gradient flows, with the graph's edges each stands for.
        leaf_side: For every node of the graph, whether it is a leaf, or a view or cast of nothing but leaves.
        note: How it was made smaller than what a person would draw; empty where it was not.
    """

    groups: tuple[Group, ...]
    edges: dict[Edge, tuple[int, ...]] = field(default_factory=dict)
    leaf_side: list[bool] = field(default_factory=list)
    note: str = ""


def forward_links(graph: Graph) -> list[Edge]:
    """Return the graph's edges turned round, the way the forward ran: from what made an input to what used it."""
    return [(edge.target, edge.source) for edge in graph.edges]


def is_view(node: Node) -> bool:
    """Say whether a node only looks at the same elements in another way (or casts them)."""
    op = node.op.lstrip("_")
    return node.kind == "op" and (op in VIEW_OPS or op in _CAST_OPS)


def fold(graph: Graph) -> Folding:
    """Fold leaves into badges and chains of views into one group each."""
    links = forward_links(graph)
    users, inputs = adjacency(len(graph.nodes), links)
    order = topological_order(len(graph.nodes), links)
    side = _leaf_side(graph, order, inputs)
    groups = _ops_with_leaves(graph, order, (users, inputs), side)
    return assemble(graph, _views_joined(assemble(graph, groups, side)), side)


def assemble(graph: Graph, groups: list[Group], leaf_side: list[bool], note: str = "") -> Folding:
    """Put groups into forward order and connect them."""
    owner = {node: number for number, group in enumerate(groups) for node in group.nodes}
    pairs = [(owner.get(edge.target, -1), owner.get(edge.source, -1)) for edge in graph.edges]
    order = topological_order(len(groups), [pair for pair in pairs if -1 not in pair and pair[0] != pair[1]])
    place = {old: new for new, old in enumerate(order)}
    edges: dict[Edge, list[int]] = {}
    for number, (target, source) in enumerate(pairs):
        if -1 not in (target, source) and target != source and not _is_badge_edge(graph, number, leaf_side):
            edges.setdefault((place[source], place[target]), []).append(number)
    ordered = tuple(groups[old] for old in order)
    return Folding(ordered, {pair: tuple(numbers) for pair, numbers in edges.items()}, leaf_side, note)


def _is_badge_edge(graph: Graph, number: int, leaf_side: list[bool]) -> bool:
    """Say whether the edge leads from an op to (the transpose of) a leaf: a badge shows it."""
    edge = graph.edges[number]
    return leaf_side[edge.target] and not leaf_side[edge.source]


def _leaf_side(graph: Graph, order: list[int], inputs: list[list[int]]) -> list[bool]:
    """Say for every node whether it is a leaf, or a view or cast of nothing but leaves."""
    side = [False] * len(graph.nodes)
    for index in order:
        node = graph.nodes[index]
        of_leaves = bool(inputs[index]) and all(side[other] for other in inputs[index])
        side[index] = node.kind == "accumulate" or (is_view(node) and of_leaves)
    return side


def _ops_with_leaves(
    graph: Graph, order: list[int], neighbours: tuple[list[list[int]], list[list[int]]], side: list[bool]
) -> list[Group]:
    """Return a group for every op, in forward order, with the leaves (and their views) that it uses."""
    users, inputs = neighbours
    taken: set[int] = set()
    groups = []
    for index in order:
        if side[index] and any(not side[user] for user in _reachable(index, users, side)):
            continue
        groups.append(_group(graph, index, _reachable(index, inputs, side) if not side[index] else [], taken))
    return groups


def _reachable(start: int, neighbours: list[list[int]], side: list[bool]) -> list[int]:
    """Return what ``start`` leads to over leaf-side nodes, nearest first; ops met on the way are not passed."""
    found: dict[int, None] = {}
    stack = [start]
    while stack:
        at = stack.pop()
        for other in neighbours[at]:
            if other not in found and (side[other] or side[start]):
                found[other] = None
                if side[other]:
                    stack.append(other)
    return list(found)


def _group(graph: Graph, index: int, hanging: list[int], taken: set[int]) -> Group:
    node = graph.nodes[index]
    views = tuple(other for other in hanging if graph.nodes[other].kind != "accumulate" and other not in taken)
    taken.update(views)
    leaves = tuple(sorted(other for other in hanging if graph.nodes[other].kind == "accumulate"))
    label = op_label(node, [graph.nodes[other] for other in hanging])
    kind = "views" if is_view(node) else node.kind
    return Group((index, *views), leaves, kind, label, shape_label(node), node.module)


def _views_joined(folding: Folding) -> list[Group]:
    """Join every chain of views, each the only one to use the one before, into one group."""
    following, preceding = adjacency(len(folding.groups), [(target, source) for source, target in folding.edges])
    joined: dict[int, list[int]] = {}
    head: dict[int, int] = {}
    for number, group in enumerate(folding.groups):
        before = preceding[number][0] if len(preceding[number]) == 1 else -1
        chained = before >= 0 and group.kind == folding.groups[before].kind == "views" and len(following[before]) == 1
        head[number] = head[before] if chained else number
        joined.setdefault(head[number], []).append(number)
    return [_joined([folding.groups[number] for number in members]) for members in joined.values()]


def _joined(chain: list[Group]) -> Group:
    """Return one group for a chain of views; the last one, whose gradient comes first, speaks for it."""
    if len(chain) == 1:
        return chain[0]
    labels = {group.label for group in chain}
    name = labels.pop() if len(labels) == 1 else "views"
    nodes = tuple(node for group in reversed(chain) for node in group.nodes)
    leaves = tuple(dict.fromkeys(leaf for group in chain for leaf in group.leaves))
    return Group(nodes, leaves, "views", f"{name} ×{len(chain)}", chain[-1].detail, chain[-1].module)
