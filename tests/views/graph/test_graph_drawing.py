"""Folding: what shares a box, what is said of it, and that nothing is ever left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tensormagic.views.graph import folding as graph_folding
from tensormagic.views.graph.drawing import BADGE_HEIGHT, DETAIL_SIZE, HEAD_HEIGHT, LABEL_SIZE, Inside, badge_rows, draw
from tensormagic.views.graph.folding import _leaf_side as leaf_side
from tensormagic.views.graph.folding import fold
from tensormagic.views.markup import fitted, made_once, text_width, wrapped
from tensormagic.views.page.document import SAVED_LIMITS
from tests.views import samples_trace as samples

SAMPLES = {
    "chain": samples.chain(),
    "mlp": samples.mlp(),
    "resnet": samples.resnet(6),
    "transformer": samples.transformer(3),
    "lstm": samples.lstm(20),
    "digits": samples.digits_cnn(),
}


@pytest.fixture(params=SAMPLES)
def graph(request):
    return SAMPLES[request.param]


def labels(drawing):
    return [box.label for box in drawing.boxes]


def test_a_linear_layer_is_one_box_with_two_badges():
    """AddmmBackward0, TBackward0 and two AccumulateGrad are what a user calls linear."""
    build = samples.Builder()
    build.op("mean", build.linear("net.fc", None), shape=())
    linear = draw(build.graph()).boxes[0]
    assert (linear.label, linear.detail, linear.kind) == ("linear", "8×64", "op")
    assert sorted(badge.label for badge in linear.badges) == ["fc.bias", "fc.weight"]
    assert linear.height == HEAD_HEIGHT + 2 * BADGE_HEIGHT + 3


def test_a_plain_matrix_product_is_not_called_linear():
    """Without a transposed leaf it is what torch says: mm."""
    build = samples.Builder()
    build.op("mm", build.leaf("a", (2, 3)), build.leaf("b", (3, 2)), shape=(2, 2))
    assert labels(draw(build.graph())) == ["mm"]


def test_a_cast_between_weight_and_op_is_folded_with_the_weight():
    """Autocast puts a cast between the parameter and the op: the badge still belongs to the op."""
    build = samples.Builder()
    cast = build.op("to_copy", build.leaf("w", (30,)), shape=(3,))
    build.op("mul", None, cast, shape=(30,))
    (box,) = draw(build.graph()).boxes
    assert box.nodes == (2, 1)
    assert [badge.label for badge in box.badges] == ["w"]


def test_views_in_a_row_are_one_box():
    """Three views after each other become one box that says so, with the last shape."""
    build = samples.Builder()
    at = build.op("sin")
    for op, shape in (("view", (4, 2, 64)), ("transpose", (2, 4, 64)), ("select", (4, 64))):
        at = build.op(op, at, shape=shape)
    build.op("exp", at)
    box = draw(build.graph()).boxes[1]
    assert (box.label, box.detail, box.kind, box.nodes) == ("views ×3", "4×64", "views", (3, 2, 1))


def test_views_of_one_kind_keep_their_name():
    """Two selects are ``select ×2``."""
    build = samples.Builder()
    build.op("exp", build.op("select", build.op("select", build.op("sin"))))
    assert labels(draw(build.graph())) == ["sin", "select ×2", "exp"]


def test_a_view_that_two_ops_use_does_not_swallow_them_apart():
    """A chain of views ends where it branches: both branches start at the shared view."""
    build = samples.Builder()
    shared = build.op("view", build.op("sin"))
    build.op("add", build.op("select", shared), build.op("select", shared))
    assert labels(draw(build.graph())) == ["sin", "view", "select", "select", "+"]


def test_every_node_has_exactly_one_place(graph):
    """Each op is in one box, each leaf a badge or in a box; folding loses nothing, at any cap."""
    for cap in (3, 10, 1000):
        drawing = draw(graph, max_boxes=cap)
        in_boxes = Counter(node for box in drawing.boxes for node in box.nodes)
        badges = {badge.node for box in drawing.boxes for badge in box.badges}
        assert set(in_boxes.values()) == {1}
        assert set(in_boxes) | badges == set(range(len(graph.nodes)))
        assert not set(in_boxes) & badges


def test_every_edge_is_drawn_or_folded(graph):
    """An edge is in one wire, or inside a box, or leads to a leaf that is a badge."""
    drawing = draw(graph)
    owner = {node: box.id for box in drawing.boxes for node in box.nodes}
    badges = {badge.node for box in drawing.boxes for badge in box.badges}
    drawn = Counter(edge for wire in drawing.wires for edge in wire.edges)
    assert set(drawn.values()) <= {1}
    for number, edge in enumerate(graph.edges):
        inside = edge.target in badges or owner.get(edge.source) == owner.get(edge.target)
        assert inside != (number in drawn) or graph.nodes[edge.target].op == "t"


def test_wires_join_the_boxes_of_their_edges(graph):
    """A wire's source box holds the node that sends the gradient, its target box the one that receives it."""
    drawing = draw(graph)
    for wire in drawing.wires:
        for number in wire.edges:
            assert graph.edges[number].source in drawing.boxes[wire.source].nodes
            assert graph.edges[number].target in drawing.boxes[wire.target].nodes


def test_wires_run_from_source_to_target_and_no_fold_makes_a_circle(graph):
    """The gradient runs to the left: the first point is on the source's left side, and targets come before sources."""
    for cap in (5, 1000):
        drawing = draw(graph, max_boxes=cap)
        for wire in drawing.wires:
            assert wire.target < wire.source
            source, target = drawing.boxes[wire.source], drawing.boxes[wire.target]
            assert wire.points[0][0] == pytest.approx(source.x, abs=0.11)
            assert wire.points[-1][0] == pytest.approx(target.x + target.width, abs=0.11)


def test_the_cap_holds(graph):
    """However few boxes are asked for, there are at most as many."""
    for cap in (1, 2, 7, 40):
        assert 0 < len(draw(graph, max_boxes=cap).boxes) <= cap


def test_counts_and_note_are_true(graph):
    """``folded`` counts the nodes without a box of their own; the note names the numbers once modules are folded."""
    drawing = draw(graph, max_boxes=8)
    assert drawing.node_count == len(graph.nodes)
    assert drawing.folded == len(graph.nodes) - len(drawing.boxes)
    everything = draw(graph, max_boxes=10_000)
    assert everything.note == ""
    if len(everything.boxes) > 8:
        assert f"drawn as {len(drawing.boxes)} box" in drawing.note


def test_layers_become_boxes_with_their_path():
    """A transformer that is too large is one box a layer."""
    drawing = draw(samples.transformer(8), max_boxes=20)
    assert labels(drawing) == [*(f"layers.{number}" for number in range(8)), "mean"]
    assert {box.kind for box in drawing.boxes[:8]} == {"module"}
    assert drawing.note == "322 nodes drawn as 9 boxes: one box a module"


def test_folding_goes_from_the_inside_out():
    """With more room only the attention is folded, the layers stay open."""
    drawing = draw(samples.transformer(8), max_boxes=100)
    assert labels(drawing).count("self_attn") == 8
    assert labels(drawing).count("relu") == 8


def test_many_layers_share_boxes_with_their_range():
    """Forty blocks in twelve boxes: each says which blocks, the ranges join up."""
    drawing = draw(samples.resnet(40), max_boxes=12)
    blocks = [box.label for box in drawing.boxes if box.label.startswith("blocks.")]
    ends = [tuple(map(int, label.removeprefix("blocks.").split("–"))) for label in blocks]
    assert [number for first, last in ends for number in range(first, last + 1)] == list(range(40))


def test_a_deep_stack_of_layers_is_one_screen():
    """Forty-eight layers and their ends: two layers a box, by their numbers, also the first."""
    drawing = draw(samples.transformer(48), max_boxes=SAVED_LIMITS.boxes)
    assert labels(drawing) == [*(f"layers.{at}–{at + 1}" for at in range(0, 48, 2)), "mean"]
    assert {box.kind for box in drawing.boxes[:-1]} == {"repeat"}
    assert drawing.note == "1922 nodes drawn as 25 boxes: several layers share a box"
    assert drawing.width < 1000
    assert drawing.height < 500


def test_numbered_modules_of_two_lists_stay_apart():
    """A range of layers never reaches from one list of modules into the next, nor over what is between."""
    build = samples.Builder()
    at = None
    for stage in ("down", "up"):
        for number in range(6):
            build.module = f"net.{stage}.{number}"
            at = build.op("exp", build.op("sin", at))
        build.module = ""
        at = build.op("tanh", at)
    assert labels(draw(build.graph(), max_boxes=8)) == [
        "down.0–1", "down.2–3", "down.4–5", "tanh", "up.0–1", "up.2–3", "up.4–5", "tanh",
    ]  # fmt: skip


def test_a_loop_over_time_keeps_its_time_axis():
    """An unrolled recurrent network has no modules to fold: its equal steps share boxes, and say which."""
    drawing = draw(samples.lstm(300))
    steps = [box.detail for box in drawing.boxes if box.kind == "repeat"]
    assert (len(drawing.boxes), len(steps)) == (29, 28)
    assert (steps[0], steps[-1]) == ("1–11 of 300", "298–300 of 300")
    assert {box.label for box in drawing.boxes[:-2]} == {"cell ×11"}
    assert drawing.note == "4505 nodes drawn as 29 boxes: repetitions share a box"


def test_a_very_deep_chain_is_drawn():
    """Of 5,000 equal ops in a row the first has the leaf, and the others share 28 boxes."""
    drawing = draw(samples.chain(5000))
    assert len(drawing.boxes) == 29
    assert sum(len(box.nodes) for box in drawing.boxes) == 5000


def test_ops_without_modules_or_repetition_share_boxes_as_neighbours():
    """The last resort hides nothing: neighbours share a box that counts them, and the note says so."""
    build = samples.Builder()
    at = None
    for number in range(60):
        at = build.op(f"op{'abcdefghijklmnop'[number * number % 16]}{number}", at)
    drawing = draw(build.graph(), max_boxes=10)
    assert [box.label for box in drawing.boxes] == ["6 ops"] * 10
    assert drawing.note == "60 nodes drawn as 10 boxes: neighbouring ops share a box"


def test_a_module_called_twice_is_two_boxes():
    """With something between its calls a shared module cannot be one box: the gradient would run in a circle."""
    build = samples.Builder()
    at = None
    for _ in range(2):
        build.module = "net.block"
        for _ in range(4):
            at = build.op("tanh", build.op("sin", at))
        build.module = ""
        for op in ("exp", "log", "sqrt"):
            at = build.op(op, at)
    drawing = draw(build.graph(), max_boxes=9)
    assert labels(drawing) == ["block", "exp", "log", "sqrt"] * 2


def test_a_leaf_of_two_ops_is_a_badge_of_both():
    """A tied weight is shown at both its uses, and each says that there are two."""
    build = samples.Builder()
    weight = build.leaf("emb.weight", (3,))
    build.op("mul", build.op("sin", weight), weight)
    first, second = draw(build.graph()).boxes
    assert [badge.label for badge in (*first.badges, *second.badges)] == ["emb.weight (in 2 boxes)"] * 2


def test_a_leaf_of_very_many_boxes_is_a_badge_of_the_first():
    """Four weights at thirty boxes would bury the picture: the first box has them, and says of how many."""
    drawing = draw(samples.lstm(300))
    assert [len(box.badges) for box in drawing.boxes[:3]] == [4, 0, 0]
    assert drawing.boxes[0].badges[0].label.endswith("(in 28 boxes)")


def test_a_leaf_alone_has_a_box():
    """``x.backward()`` on a leaf: the graph is that leaf, and it is drawn."""
    build = samples.Builder()
    build.leaf("x", ())
    (box,) = draw(build.graph()).boxes
    assert (box.label, box.detail, box.kind) == ("x", "scalar", "accumulate")


def test_views_of_a_leaf_alone_have_boxes():
    """``w.t().backward(g)``: there is no op to hang on, so the view is a box, and the leaf is one."""
    build = samples.Builder()
    build.op("t", build.leaf("w", (2, 3)), shape=(3, 2))
    drawing = draw(build.graph())
    assert labels(drawing) == ["w", "t"]
    assert [(wire.source, wire.target) for wire in drawing.wires] == [(1, 0)]


def test_an_empty_graph_is_an_empty_drawing():
    """No node, no box, no note."""
    drawing = draw(samples.Builder().graph())
    assert (drawing.boxes, drawing.wires, drawing.width, drawing.note) == ((), (), 0.0, "")


def test_custom_functions_keep_their_name():
    """An autograd.Function is named as its author named it."""
    build = samples.Builder()
    build.op("MyLoss", kind="custom")
    assert [(box.label, box.kind) for box in draw(build.graph()).boxes] == [("MyLoss", "custom")]


def test_texts_fit_their_boxes(graph):
    """No label and no detail is wider than its box."""
    for box in draw(graph).boxes:
        assert text_width(box.label, LABEL_SIZE, bold=True) <= box.width
        assert text_width(box.detail, DETAIL_SIZE) <= box.width


def test_many_badges_are_counted_not_listed():
    """Of seven leaves three are written out and four counted; a module with many leaves only counts them."""
    build = samples.Builder()
    build.op("cat", *(build.leaf(f"w{number}", (2,)) for number in range(7)))
    (box,) = draw(build.graph()).boxes
    shown, more = badge_rows(box)
    assert ([badge.label for badge in shown], more) == (["w0", "w1", "w2"], 4)
    module = draw(samples.transformer(8), max_boxes=20).boxes[0]
    assert badge_rows(module) == ((), len(module.badges))


def test_long_texts_keep_both_ends():
    """``fitted`` cuts in the middle, ``wrapped`` between words, and both say so with an ellipsis."""
    cut = fitted("encoder.layers.3.self_attn.weight", 90, 10)
    assert cut.startswith("encod")
    assert cut.endswith("eight")
    assert text_width(cut, 10) <= 90
    assert wrapped("one two three four five", 55, 10, 2) == ["one two", "three …"]
    assert fitted("short", 90, 10) == "short"


def test_repetitions_of_an_irregular_graph_are_found_in_linear_time():
    """Twenty thousand ops without order, with one loop in their midst: the loop is found, and nothing else is."""
    build = samples.Builder()
    at = None
    for number in range(20_000):
        loop = 9_000 <= number < 9_090
        name = "abc"[number % 3] if loop else f"op{(number * number * 7919) % 10_007}"
        at = build.op(name, at)
    groups = fold(build.graph()).groups
    repeats = graph_folding._find_repeats([(group.label, "", 0) for group in groups])
    assert [(repeat.start, repeat.period, repeat.times) for repeat in repeats] == [(9000, 3, 30)]


def test_a_second_drawing_starts_from_the_first_ones_folding(graph, monkeypatch):
    """Where a graph is drawn again, it is folded once, and the smaller drawing is that of the graph itself."""
    alone = replace(draw(graph, max_boxes=10), inside=Inside())
    folded = []
    monkeypatch.setattr(graph_folding, "_leaf_side", lambda *given: folded.append(1) or leaf_side(*given))
    with made_once():
        draw(graph)
        again = draw(graph, max_boxes=10, inside=False)
    assert replace(again, inside=Inside()) == alone
    assert len(folded) == 1
