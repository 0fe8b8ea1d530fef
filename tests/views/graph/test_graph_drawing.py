"""Folding: what shares a box, what is said of it, and that nothing is ever left out."""

from __future__ import annotations

from collections import Counter

import pytest

from tensormagic.views.graph.drawing import DETAIL_SIZE, LABEL_SIZE, badge_rows, draw
from tensormagic.views.markup import fitted, text_width, wrapped
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


def labels(drawing):
    return [box.label for box in drawing.boxes]


def built(*steps):
    """Return a graph of ``(op, *places of its inputs)``, ``{"leaf": name}`` and ``{"module": path}``."""
    build = samples.Builder()
    for step in steps:
        if isinstance(step, dict) and "leaf" in step:
            build.leaf(step["leaf"], (2, 3))
        elif isinstance(step, dict):
            build.module = step["module"]
        else:
            build.op(*step)
    return build.graph()


def chain_of(*ops):
    """Steps of ops one behind the other, the first on nothing; a path with a dot begins a module."""
    steps, at = [], None
    for op in ops:
        if op.startswith("in "):
            steps.append({"module": op.removeprefix("in ")})
        else:
            steps.append((op, at))
            at = 0 if at is None else at + 1
    return steps


STAGES = [op for stage in ("down", "up") for op in (
    *(word for at in range(6) for word in (f"in net.{stage}.{at}", "sin", "exp")), "in ", "tanh",
)]  # fmt: skip
TWICE = ["in net.block", *["sin", "tanh"] * 4, "in ", "exp", "log", "sqrt"] * 2
LABELS = {
    "a matrix product without a transposed leaf is no linear": (
        [{"leaf": "a"}, {"leaf": "b"}, ("mm", 0, 1)], 160, ["mm"],
    ),
    "views in a row are one box": (
        chain_of("sin", "view", "transpose", "select", "exp"), 160, ["sin", "views ×3", "exp"],
    ),
    "views of one kind keep their name": (chain_of("sin", "select", "select", "exp"), 160, ["sin", "select ×2", "exp"]),
    "a view that two ops use does not swallow them apart": (
        [("sin", None), ("view", 0), ("select", 1), ("select", 1), ("add", 2, 3)], 160,
        ["sin", "view", "select", "select", "+"],
    ),
    "views of a leaf alone have boxes": ([{"leaf": "w"}, ("t", 0)], 160, ["w", "t"]),
    "a range of layers never reaches into the next list": (
        chain_of(*STAGES), 8,
        ["down.0–1", "down.2–3", "down.4–5", "tanh", "up.0–1", "up.2–3", "up.4–5", "tanh"],
    ),
    "a module called twice is two boxes, or the gradient would run in a circle": (
        chain_of(*TWICE), 9, ["block", "exp", "log", "sqrt"] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS)
def test_what_shares_a_box(name):
    steps, most, words = LABELS[name]
    assert labels(draw(built(*steps), max_boxes=most)) == words


def test_weights_of_two_networks_have_two_names():
    """``0.weight`` could be of the generator or of the discriminator; a name that is no number says enough."""
    build = samples.Builder()
    made = build.linear("G.fc", build.linear("G.0", None))
    build.op("mean", build.linear("D.fc", build.linear("D.0", made)), shape=())
    drawing = draw(build.graph())
    wanted = [["G.0.bias", "G.0.weight"], ["fc.bias", "fc.weight"], ["D.0.bias", "D.0.weight"]]
    assert [sorted(badge.label for badge in box.badges) for box in drawing.boxes][:3] == wanted


def test_a_cast_between_weight_and_op_is_folded_with_the_weight():
    """Autocast puts a cast between the parameter and the op: the badge still belongs to the op."""
    (box,) = draw(built({"leaf": "w"}, ("to_copy", 0), ("mul", None, 1))).boxes
    assert box.nodes == (2, 1)
    assert [badge.label for badge in box.badges] == ["w"]


@pytest.mark.parametrize("graph", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("cap", [1, 3, 8, 40, 1000])
def test_a_drawing_is_sound(graph, cap):
    """Every node has one place, in a box or as a badge; there are at most as many boxes as asked for, texts fit.

    A wire joins the boxes of its edges, from the source's left side to the target's right, and no fold makes a circle.
    An edge is in one wire, or inside a box, or leads to a leaf that is a badge. The counts are true, and the note names
    the numbers once modules are folded.
    """
    drawing = draw(graph, max_boxes=cap)
    in_boxes = Counter(node for box in drawing.boxes for node in box.nodes)
    badges = {badge.node for box in drawing.boxes for badge in box.badges}
    assert set(in_boxes.values()) == {1}
    assert set(in_boxes) | badges == set(range(len(graph.nodes)))
    assert not set(in_boxes) & badges
    assert 0 < len(drawing.boxes) <= cap
    for wire in drawing.wires:
        assert wire.target < wire.source
        source, target = drawing.boxes[wire.source], drawing.boxes[wire.target]
        assert wire.points[0][0] == pytest.approx(source.x, abs=0.11)
        assert wire.points[-1][0] == pytest.approx(target.x + target.width, abs=0.11)
        assert {graph.edges[number].source for number in wire.edges} <= set(source.nodes)
        assert {graph.edges[number].target for number in wire.edges} <= set(target.nodes)
    owner = {node: box.id for box in drawing.boxes for node in box.nodes}
    drawn = Counter(edge for wire in drawing.wires for edge in wire.edges)
    assert set(drawn.values()) <= {1}
    for number, edge in enumerate(graph.edges):
        inside = edge.target in badges or owner.get(edge.source) == owner.get(edge.target)
        assert inside != (number in drawn) or graph.nodes[edge.target].op == "t"
    for box in drawing.boxes:
        assert text_width(box.label, LABEL_SIZE, bold=True) <= box.width
        assert text_width(box.detail, DETAIL_SIZE) <= box.width
    everything = len(draw(graph, max_boxes=10_000).boxes)
    assert (f"drawn as {len(drawing.boxes)} box" in drawing.note) if everything > cap else not drawing.note


NEIGHBOURS = [f"op{'abcdefghijklmnop'[number * number % 16]}{number}" for number in range(60)]
FOLDED = {
    "a transformer that is too large is one box a layer": (
        lambda: samples.transformer(8), 20, [*(f"layers.{at}" for at in range(8)), "mean"], "module",
        "322 nodes drawn as 9 boxes: one box a module",
    ),
    "of forty-eight layers two are a box, by their numbers, also the first": (
        lambda: samples.transformer(48), SAVED_LIMITS.boxes,
        [*(f"layers.{at}–{at + 1}" for at in range(0, 48, 2)), "mean"], "repeat",
        "1922 nodes drawn as 25 boxes: several layers share a box",
    ),
    "ops without modules or repetition share boxes as neighbours, which count them": (
        lambda: built(*chain_of(*NEIGHBOURS)), 10, ["6 ops"] * 10, "repeat",
        "60 nodes drawn as 10 boxes: neighbouring ops share a box",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDED)
def test_what_is_too_large_is_one_screen_that_says_how_it_is_folded(case):
    """Nothing is hidden: the boxes and the note say what they stand for."""
    make, most, words, kind, note = FOLDED[case]
    drawing = draw(make(), max_boxes=most)
    assert (labels(drawing), drawing.note) == (words, note)
    assert {box.kind for box in drawing.boxes[:-1]} == {kind}
    assert (drawing.width < 1000, drawing.height < 500) == (True, True)


def test_folding_goes_from_the_inside_out():
    """With more room only the attention is folded, the layers stay open."""
    shown = labels(draw(samples.transformer(8), max_boxes=100))
    assert (shown.count("self_attn"), shown.count("relu")) == (8, 8)


def test_a_loop_over_time_keeps_its_time_axis():
    """An unrolled recurrent network has no modules to fold: its equal steps share boxes, and say which."""
    drawing = draw(samples.lstm(300))
    steps = [box.detail for box in drawing.boxes if box.kind == "repeat"]
    assert (len(drawing.boxes), len(steps)) == (29, 28)
    assert (steps[0], steps[-1]) == ("1–11 of 300", "298–300 of 300")
    assert {box.label for box in drawing.boxes[:-2]} == {"cell ×11"}
    assert drawing.note == "4505 nodes drawn as 29 boxes: repetitions share a box"
    assert [len(box.badges) for box in drawing.boxes[:3]] == [4, 0, 0], (
        "weights at thirty boxes are badges of the first"
    )
    assert drawing.boxes[0].badges[0].label.endswith("(in 28 boxes)")
    assert len(draw(samples.chain(5000)).boxes) == 29


def test_leaves_and_functions_keep_their_names():
    """A leaf alone has a box, an autograd.Function the name of its author; a tied weight says that it is used twice.

    Of seven leaves three are written out and four counted; a module with many leaves only counts them.
    """
    alone = samples.Builder()
    alone.leaf("x", ())
    (box,) = draw(alone.graph()).boxes
    assert (box.label, box.detail, box.kind) == ("x", "scalar", "accumulate")
    custom = samples.Builder()
    custom.op("MyLoss", kind="custom")
    assert [(box.label, box.kind) for box in draw(custom.graph()).boxes] == [("MyLoss", "custom")]
    first, second = draw(built({"leaf": "emb.weight"}, ("sin", 0), ("mul", 1, 0))).boxes
    assert [badge.label for badge in (*first.badges, *second.badges)] == ["emb.weight (in 2 boxes)"] * 2
    (box,) = draw(built(*({"leaf": f"w{number}"} for number in range(7)), ("cat", *range(7)))).boxes
    shown, more = badge_rows(box.kind, box.badges)
    assert ([badge.label for badge in shown], more) == (["w0", "w1", "w2"], 4)
    module = draw(samples.transformer(8), max_boxes=20).boxes[0]
    assert badge_rows(module.kind, module.badges) == ((), len(module.badges))
    empty = draw(samples.Builder().graph())
    assert (empty.boxes, empty.wires, empty.width, empty.note) == ((), (), 0.0, "")


def test_long_texts_keep_both_ends():
    """``fitted`` cuts in the middle, ``wrapped`` between words, and both say so with an ellipsis."""
    cut = fitted("encoder.layers.3.self_attn.weight", 90, 10)
    assert (cut[:5], cut[-5:]) == ("encod", "eight")
    assert text_width(cut, 10) <= 90
    assert wrapped("one two three four five", 55, 10, 2) == ["one two", "three …"]
    assert fitted("short", 90, 10) == "short"
