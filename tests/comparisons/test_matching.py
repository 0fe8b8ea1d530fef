"""Nodes of two graphs are matched by what they are and what is around them, not by index, line or luck."""

from __future__ import annotations

from tensormagic.comparisons.traces import common_edges, match_nodes
from tests.comparisons.samples import graph, layers


def names(left, right, pairs):
    """Return the pairs as what the nodes are called."""
    told = [
        (f"{left.nodes[at].op} {left.nodes[at].module}{left.nodes[at].variable}",
         f"{right.nodes[to].op} {right.nodes[to].module}{right.nodes[to].variable}")
        for at, to in sorted(pairs.items())
    ]  # fmt: skip
    return [pair for pair in told if pair[0] != pair[1]]


def test_the_same_graph_is_matched_node_by_node():
    """Every node with itself, every edge with itself."""
    one = layers("net.0", "net.2")
    pairs = match_nodes(one, layers("net.0", "net.2"))
    assert pairs == {at: at for at in range(7)}
    assert common_edges(one, one, pairs) == len(one.edges)


def test_the_order_of_the_nodes_does_not_matter():
    """The same graph, its leaves listed last: all nodes are found, each with its counterpart."""
    one = graph([("leaf", "", "w", ()), ("leaf", "", "v", ()), ("mul", "", "", (0, 1)), ("sum", "", "", (2,))])
    other = graph([("leaf", "", "v", ()), ("leaf", "", "w", ()), ("mul", "", "", (1, 0)), ("sum", "", "", (2,))])
    assert match_nodes(one, other) == {0: 1, 1: 0, 2: 2, 3: 3}


def test_a_layer_more_leaves_the_others_matched():
    """The one that was put between is the one without a counterpart."""
    one, other = layers("net.0", "net.2"), layers("net.0", "net.1", "net.2")
    pairs = match_nodes(one, other)
    assert len(pairs) == len(one.nodes)
    assert names(one, other, pairs) == []
    alone = [node.module or node.variable for node in other.nodes if node.index not in pairs.values()]
    assert alone == ["net.1.weight", "net.1", "net.1"]


def test_a_longer_loop_without_names_is_matched_from_both_ends():
    """Three rounds against four through one weight: three are matched, and everything around them."""

    def rounds(count):
        rows = [("leaf", "", "w", ())]
        for at in range(count):
            rows += [("mul", "", "", (len(rows) - 1, 0) if at else (0,)), ("relu", "", "", (len(rows),))]
        return graph([*rows, ("sum", "", "", (len(rows) - 1,))])

    one, other = rounds(3), rounds(4)
    pairs = match_nodes(one, other)
    assert len(pairs) == len(one.nodes)
    assert [other.nodes[pairs[at]].op for at in range(8)] == [node.op for node in one.nodes]
    assert len(set(pairs.values())) == len(pairs)


def test_renamed_leaves_are_found_by_what_uses_them():
    """``w`` and ``v`` are called ``first`` and ``second`` there; which is which, the ops around them say."""
    one = graph([("leaf", "", "w", ()), ("exp", "", "", (0,)), ("leaf", "", "v", ()), ("mul", "", "", (1, 2))])
    other = graph(
        [("leaf", "", "first", ()), ("exp", "", "", (0,)), ("leaf", "", "second", ()), ("mul", "", "", (1, 2))]
    )
    assert match_nodes(one, other) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_another_op_in_the_same_place_is_no_counterpart():
    """A relu replaced by another op is only in one graph; what is around it is in both."""
    one = graph([("leaf", "", "w", ()), ("relu", "", "", (0,)), ("sum", "", "", (1,))])
    other = graph([("leaf", "", "w", ()), ("gelu", "", "", (0,)), ("sum", "", "", (1,))])
    pairs = match_nodes(one, other)
    assert pairs == {0: 0, 2: 2}
    assert common_edges(one, other, pairs) == 0


def test_a_rename_of_the_model_is_followed():
    """``net`` here and ``model`` there."""
    one, other = layers("net.0", "net.2"), layers("model.0", "model.2")
    pairs = match_nodes(one, other, lambda name: name.replace("model", "net"))
    assert pairs == {at: at for at in range(7)}


def test_swapped_inputs_are_a_difference_of_edges():
    """The same nodes, but the second op's inputs changed places: all matched, two edges not in common."""
    one = graph([("leaf", "", "a", ()), ("leaf", "", "b", ()), ("sub", "", "", (0, 1))])
    other = graph([("leaf", "", "a", ()), ("leaf", "", "b", ()), ("sub", "", "", (1, 0))])
    pairs = match_nodes(one, other)
    assert pairs == {0: 0, 1: 1, 2: 2}
    assert common_edges(one, other, pairs) == 0


def test_a_deep_graph_needs_no_recursion():
    """A chain of 20,000 nodes against one with a node more in the middle."""

    def chain(ops):
        return graph([("leaf", "", "w", ()), *((op, "", "", (at,)) for at, op in enumerate(ops))])

    one = chain(["exp"] * 20_000)
    other = chain(["exp"] * 10_000 + ["log"] + ["exp"] * 10_000)
    pairs = match_nodes(one, other)
    assert len(pairs) == 20_001
    assert 10_001 not in pairs.values()
