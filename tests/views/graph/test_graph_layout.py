"""The layered layout: nothing overlaps, lines go where they should, and networks are drawn without a crossing."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from tensormagic.views.graph.drawing import HEAD_HEIGHT, draw
from tensormagic.views.graph.layers import inversions, isotonic, rank, topological_order
from tensormagic.views.graph.layout import Spacing, lay_out
from tests.views import samples_trace as samples

CHAIN = ([(80, 40)] * 30, [(at, at + 1) for at in range(29)])


def random_graph(seed, count=60):
    chance = random.Random(seed)
    edges = [(max(0, at - chance.randint(1, 6)), at) for at in range(1, count) for _ in range(chance.randint(1, 2))]
    return [(chance.randint(30, 150), chance.choice([40, 58, 73, 103])) for _ in range(count)], edges


def sample_graph(graph, max_boxes=10**9):
    """Return sizes and left-to-right edges of a sample's drawing."""
    drawing = draw(graph, max_boxes=max_boxes)
    sizes = [(box.width, box.height) for box in drawing.boxes]
    return sizes, [(wire.target, wire.source) for wire in drawing.wires]


GRAPHS = {
    "mlp": sample_graph(samples.mlp()),
    "resnet": sample_graph(samples.resnet(30)),
    "transformer": sample_graph(samples.transformer(8)),
    "chain": CHAIN,
    **{f"random {seed}": random_graph(seed) for seed in range(4)},
}
SPACINGS = {
    "one row": Spacing(),
    "rows": Spacing(wrap_width=800.0),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return GRAPHS[request.param]


@pytest.fixture(params=SPACINGS)
def spacing(request):
    return SPACINGS[request.param]


def test_a_layout_is_sound(graph, spacing):
    """However dense the graph, and however it is broken into rows: boxes stand clear of each other and of lines.

    The stated width and height hold everything, a line joins the sides of its boxes, edges lead to later columns, and
    nothing rests on chance or on the order of a set.
    """
    layout = lay_out(*graph, spacing)
    assert layout == lay_out(*graph, spacing)
    boxes = zip(graph[0], layout.positions, strict=True)
    places = [(x, y, x + width, y + height) for (width, height), (x, y) in boxes]
    ordered = sorted(places)
    for number, (_, top, right, bottom) in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other[0] >= right:
                break
            assert other[1] >= bottom or other[3] <= top
    corners = [corner for x, y, x_end, y_end in places for corner in ((x, y), (x_end, y_end))]
    for x, y in [*corners, *(point for route in layout.routes for point in route)]:
        assert -0.1 <= x <= layout.width + 0.1
        assert -0.1 <= y <= layout.height + 0.1
    for (tail, head), route in zip(graph[1], layout.routes, strict=True):
        assert route[0][0] == pytest.approx(places[tail][2], abs=0.11)
        assert route[-1][0] == pytest.approx(places[head][0], abs=0.11)
        assert places[tail][1] < route[0][1] < places[tail][3]
        assert places[head][1] < route[-1][1] < places[head][3]
        for (x1, y1), (x2, y2) in pairwise(route):
            left, right, top, bottom = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
            for box, (x, y, x_end, y_end) in enumerate(places):
                apart = right <= x + 0.2 or left >= x_end - 0.2 or bottom <= y + 0.2 or top >= y_end - 0.2
                assert apart, (tail, head, box)
    ranks = rank(len(graph[0]), graph[1])
    assert all(ranks[tail] < ranks[head] for tail, head in graph[1])


BOX = (60, 40)


def test_rows_are_at_most_as_wide_as_asked():
    """A chain of 30 boxes needs five rows of 800; eight boxes where seven fit become four and four.

    The width is a wish: a box that is wider gets a row of its own.
    """
    layout = lay_out(*CHAIN, Spacing(wrap_width=800.0))
    assert len(layout.row_ends) == 5
    assert layout.width <= 800 + 60
    even = lay_out([(80, 40)] * 8, [(at, at + 1) for at in range(7)], Spacing(wrap_width=7 * 112.0))
    assert sorted(y for _, y in even.positions) == [0.0] * 4 + [even.positions[4][1]] * 4
    wide = lay_out([(50, 40), (500, 40), (50, 40)], [(0, 1), (1, 2)], Spacing(wrap_width=200.0))
    assert len(wide.row_ends) == 3


def test_a_chain_is_level_and_a_skip_goes_round_it():
    """Each wire of a chain has two points, and leads to the head of a box that has badges below; a skip bends."""
    layout = lay_out(*CHAIN)
    assert len({y for _, y in layout.positions}) == 1
    assert {len(route) for route in layout.routes} == {2}
    assert lay_out([(60, 100), BOX], [(0, 1)], heads=[40, 40]).routes[0] == ((60.0, 20.0), (92.0, 20.0))
    skipped = lay_out([BOX] * 5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
    heights = [y for _, y in skipped.positions]
    assert max(heights[1:4]) - min(heights[1:4]) < 1
    assert len(skipped.routes[4]) > 2


def test_odd_graphs_are_drawn():
    """Nothing; a circle, turned round for the columns, not in the picture; a loop, without a line; two equal edges."""
    nothing = lay_out([], [])
    assert (nothing.width, nothing.height, nothing.positions, nothing.row_ends) == (0.0, 0.0, (), ())
    circle = lay_out([BOX] * 3, [(0, 1), (1, 2), (2, 0)])
    assert [x for x, _ in circle.positions] == sorted(x for x, _ in circle.positions)
    start, end = circle.routes[2][0], circle.routes[2][-1]
    assert (start[0], end[0]) == (circle.positions[2][0], circle.positions[0][0] + 60)
    assert lay_out([BOX], [(0, 0)]).routes == ((),)
    twice = lay_out([BOX] * 2, [(0, 1), (0, 1)])
    assert len(twice.routes) == 2
    assert all(len(route) >= 2 for route in twice.routes)


def test_components_do_not_mix():
    """Two chains that do not touch are drawn above each other, without a crossing."""
    edges = [(0, 2), (2, 4), (1, 3), (3, 5)]
    layout = lay_out([BOX] * 6, edges)
    assert crossings([(*edge, route) for edge, route in zip(edges, layout.routes, strict=True)]) == 0
    assert len({layout.positions[at][1] for at in (0, 2, 4)}) == 1


def test_columns_and_order():
    """A weight that is used late stands beside its use; the order is that of creation wherever that is possible."""
    assert rank(6, [(0, 1), (1, 2), (2, 3), (4, 5), (5, 3)]) == [0, 1, 2, 3, 1, 2]
    assert topological_order(4, [(3, 0), (0, 1)]) == [2, 3, 0, 1]
    assert topological_order(3, [(0, 1), (1, 0), (1, 2)]) == [0, 1, 2]


def test_lines_from_one_box_and_to_one_box_run_together():
    """Twelve steps that one ``unbind`` feeds, and that one ``stack`` takes: their lines leave as one, and part late."""
    steps = range(1, 13)
    layout = lay_out([BOX] * 13, [(0, step) for step in steps] + [(step, step + 1) for step in steps[:-1]])
    assert len({route[2] for route in layout.routes[3:12]}) == 1
    assert layout.height < 120
    steps = range(12)
    edges = [(step, 12) for step in steps] + [(step, step + 1) for step in steps[:-1]]
    assert lay_out([BOX] * 13, edges).height < 120


def test_very_deep_graphs_are_laid_out():
    """5,000 nodes in a row need no recursion."""
    layout = lay_out([BOX] * 5000, [(at, at + 1) for at in range(4999)])
    assert layout.positions[-1] == (pytest.approx(4999 * 92.0), 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_inversions_are_counted_as_by_hand(seed):
    """Sorting them in counts what comparing all pairs counts."""
    chance = random.Random(seed)
    values = [chance.randrange(12) for _ in range(40)]
    assert inversions(values) == sum(first > second for first, second in combinations(values, 2))


def test_isotonic_regression_pools_what_falls():
    """Weighted means of falling neighbours, everything else untouched."""
    assert isotonic([1, 3, 2, 5], [1, 1, 1, 1]) == [1, 2.5, 2.5, 5]
    assert isotonic([4, 1], [3, 1]) == [3.25, 3.25]
    assert isotonic([], []) == []


def crossings(lines):
    """Count the pairs of polylines, without a common end node, that cross; ``lines``: [(tail, head, points)]."""
    pieces = sorted(
        (min(a[0], b[0]), max(a[0], b[0]), a, b, number)
        for number, (_, _, points) in enumerate(lines)
        for a, b in pairwise(points)
    )
    crossed = set()
    for number, (_, right, a, b, line) in enumerate(pieces):
        for left, _, c, d, other in pieces[number + 1 :]:
            if left > right:
                break
            if not {lines[line][0], lines[line][1]} & {lines[other][0], lines[other][1]} and intersect(a, b, c, d):
                crossed.add((min(line, other), max(line, other)))
    return len(crossed)


def intersect(a, b, c, d):
    return turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0


def turn(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def test_crossings_are_counted_as_drawn():
    """The counter of this test file: an X counts once, a common end not at all."""
    assert crossings([(0, 1, [(0, 0), (9, 9)]), (2, 3, [(0, 9), (9, 0)])]) == 1
    assert crossings([(0, 1, [(0, 0), (9, 9)]), (0, 3, [(0, 9), (9, 0)])]) == 0


def raw_graph(graph):
    """Return every node as a box of its own: nothing folded."""
    return [(80, HEAD_HEIGHT)] * len(graph.nodes), [(edge.target, edge.source) for edge in graph.edges]


COMPARED = {
    "mlp": GRAPHS["mlp"],
    "resnet-30": GRAPHS["resnet"],
    "transformer-8": GRAPHS["transformer"],
    "mlp, nothing folded": raw_graph(samples.mlp()),
    "resnet-30, nothing folded": raw_graph(samples.resnet(30)),
    "transformer-8, nothing folded": raw_graph(samples.transformer(8)),
}


@pytest.mark.parametrize("name", COMPARED)
def test_networks_are_drawn_without_a_crossing(name):
    """As Graphviz's ``dot`` draws them."""
    sizes, edges = COMPARED[name]
    assert crossings([(*edge, route) for edge, route in zip(edges, lay_out(sizes, edges).routes, strict=True)]) == 0
