"""Which roots lead where: compared with taking a root away and looking what is left."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tensormagic.collectors.memory.flow import Flow, bits, ends_in_cycles, set_of

GRAPHS = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.lists(st.lists(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size),
        st.lists(st.lists(st.integers(0, size - 1), max_size=3), min_size=1, max_size=5),
    )
)


def reached(edges: list[list[int]], starts: list[int]) -> set[int]:
    """Return what is reached from some nodes."""
    seen, pending = set(starts), list(starts)
    while pending:
        new = [after for after in edges[pending.pop()] if after not in seen]
        seen.update(new)
        pending += new
    return seen


@given(GRAPHS)
@settings(deadline=None, max_examples=300)
def test_a_root_has_what_is_lost_without_it(graph: tuple[list[list[int]], list[list[int]]]) -> None:
    """The nodes that one root alone leads to are those that cannot be reached once the root is taken away."""
    edges, roots = graph
    sets = Flow(edges, roots, {}).sets
    every = reached(edges, [node for starts in roots for node in starts])
    for root in range(len(roots)):
        others = [node for at, starts in enumerate(roots) if at != root for node in starts]
        lost = every - reached(edges, others)
        assert {node for node, led in enumerate(sets) if led == 1 << root} == lost
    assert {node for node, led in enumerate(sets) if not led} == set(range(len(edges))) - every


@given(GRAPHS)
@settings(deadline=None, max_examples=300)
def test_nodes_know_their_roots(graph: tuple[list[list[int]], list[list[int]]]) -> None:
    """The set of a node is that of all roots that reach it."""
    edges, roots = graph
    led = [reached(edges, starts) for starts in roots]
    expected = [set_of(root for root, nodes in enumerate(led) if node in nodes) for node in range(len(edges))]
    assert Flow(edges, roots, {}).sets == expected


def test_bytes_are_summed_by_who_frees_them() -> None:
    """What one root alone leads to is its own; what two lead to takes both, in a cycle as well; each once."""
    edges = [[1], [0, 3], [3], [], []]
    flow = Flow(edges, [[0], [2], []], {1: (10, "cpu"), 2: (5, "cpu"), 3: (100, "cuda:0"), 4: (7, "cpu")})
    assert [flow.alone(root) for root in range(3)] == [10, 5, 0]
    assert flow.sums[0b11].devices == {"cuda:0": 100}
    assert flow.sums.keys() == {0b01, 0b10, 0b11}
    assert flow.freed(0b11).nbytes == 115
    assert flow.freed(0b11).storages == 3
    assert flow.freed(0b01).nbytes == 10


def test_a_set_of_roots_is_read_back() -> None:
    """The numbers of roots go into a set and come out again."""
    assert list(bits(set_of([0, 3, 200]))) == [0, 3, 200]


class CountedReads(list[list[int]]):
    """The edges of a graph, and how often those of a node were asked for."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        """Count."""
        self.reads += 1
        return super().__getitem__(at)


def test_a_long_chain_takes_no_recursion_and_no_look_per_root() -> None:
    """A chain of 50,000 nodes that several roots begin is walked, as often for two as for forty."""
    size = 50_000
    reads = []
    for several in (2, 40):
        edges = CountedReads([at + 1] if at + 1 < size else [] for at in range(size))
        sets = Flow(edges, [[root] for root in range(several)], {}).sets
        assert sets[0] == 0b01
        assert sets[size - 1] == set_of(range(several))
        reads.append(edges.reads)
    assert reads[0] == reads[1]


@settings(max_examples=200, deadline=None)
@given(GRAPHS)
def test_edges_in_circles_are_those_whose_end_leads_back(
    graph: tuple[list[list[int]], list[list[int]]],
) -> None:
    """Against a walk from the end of each edge."""
    edges, _ = graph
    every = [(node, after) for node, some in enumerate(edges) for after in some]
    assert ends_in_cycles(edges, every) == [after for node, after in every if node in reached(edges, [after])]
    assert ends_in_cycles(edges, []) == []


def test_a_long_circle_is_found_without_recursion() -> None:
    """Graphs of autograd are deep."""
    edges = [[(node + 1) % 50_000] for node in range(50_000)]
    assert ends_in_cycles(edges, [(49_999, 0)]) == [0]


def test_a_root_is_compared_with_the_sets_that_it_is_in_alone():
    """Of a thousand pairs, each is asked about once; else a session with many arrays is slow."""
    pairs = [(2 * at, 2 * at + 1) for at in range(1000)]
    flow = Flow([[]] * 1000, [[at] for at in range(1000) for _ in range(2)], dict.fromkeys(range(1000), (8, "cpu")))
    assert [len(flow._near(1 << first)) for first, _ in pairs] == [1] * 1000


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("few", [0, 1, 2, 8])
def test_sets_looked_up_by_a_root_are_those_that_have_it(monkeypatch, seed, few):
    """What a set of roots frees and shares is the same as by comparing it with every other."""
    monkeypatch.setattr("tensormagic.collectors.memory.flow.FEW", few)
    chance = random.Random(seed)
    edges = [chance.sample(range(40), chance.randrange(3)) for _ in range(40)]
    flow = Flow(edges, [chance.sample(range(40), 2) for _ in range(12)], {at: (1 << at, "cpu") for at in range(40)})
    for members in [*(1 << root for root in range(12)), *(chance.randrange(1, 1 << 12) for _ in range(20))]:
        every = [(needed, what.nbytes) for needed, what in flow.sums.items()]
        freed = sum(nbytes for needed, nbytes in every if needed & ~members == 0)
        shared = [(nbytes, needed) for needed, nbytes in every if needed & members and needed & ~members]
        assert flow.freed(members).nbytes == freed
        assert flow.shared(members) == (sum(nbytes for nbytes, _ in shared), max(shared, default=(0, 0))[1])
