"""TM406: exact sentence, and everything that must hold for it, by hand-made graphs."""

from __future__ import annotations

import dataclasses
from array import array

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.singular import HARMLESS
from tensormagic.reports import MEASURES, UNTOUCHED, Edge, FirstNonfinite, Graph, Location
from tests.diagnoses.samples import LINES, frame, leaf, op, run


def masked(name="log", *, between=(), selecting="where", value=1.5, scalar=None, **facts):
    """Return a run ``x → op → … → where → sum`` in which ``op`` made a NaN gradient."""
    nonfinite = FirstNonfinite(**{
        "pass_number": 1, "node": 1, "receiver": 0, "input_number": 0, "nan": 3, "inf": 0, "count": 10,
        "incoming_norm": 1.5, "saved_name": "self", "saved_zero": 3, **facts,
    })  # fmt: skip
    nodes = [leaf(0, "x"), op(1, name, location=2)]
    nodes += [op(at, each) for at, each in enumerate(between, 2)]
    nodes += [op(len(nodes), selecting, location=5), op(len(nodes) + 1, "sum")]
    edges = tuple(Edge(at, at - 1, 0, 0) for at in range(1, len(nodes)))
    norms = (float("nan"), *(1.0 for _ in nodes[1:]))
    graph = Graph(1, tuple(nodes), edges, (len(nodes) - 1,), (), 1, (frame(1, norms, {"0": (3, 0)}),), (nonfinite,))
    report = run(graph, bad=(1,))
    return dataclasses.replace(report, passes=(dataclasses.replace(report.passes[0], value=value),))


def code(report):
    (found,) = diagnose(report)
    return found.code


def test_a_nan_from_what_where_did_not_take():
    """Code, severity, sentence, both lines, numbers, remedy, subject and node."""
    (found,) = diagnose(masked())
    assert (found.code, found.severity) == ("TM406", "error")
    assert found.message == (
        "The first NaN gradient appears in log, model.py, line 3, at elements that where hides (model.py, "
        "line 6): its input holds 3 zeros, and backward computes 0 · ∞ = NaN there, "
        "so 3 of the 10 elements it sends to x are NaN."
    )
    assert found.location == LINES[2]
    assert [(line.what, line.location) for line in found.related] == [("left out by where", LINES[5])]
    assert found.evidence == {"nan": 3, "elements": 10, "zeros saved": 3, "pass": 1}
    assert "`torch.log(torch.where(mask, x, 1))`" in found.remedy
    assert (found.subject, found.node) == ("log", (0, 1))


def test_a_where_on_the_same_line_is_mended_with_the_names_of_the_user():
    """The remedy is the line that *Copy fix* copies, and that line is named once."""
    report = masked()
    (graph,) = report.graphs
    nodes = tuple(dataclasses.replace(node, location=2) if node.op == "where" else node for node in graph.nodes)
    place = Location("model.py", 3, "y = torch.where(x > 0, x.log(), 0.0)")
    locations = (*report.locations[:2], place, *report.locations[3:])
    (found,) = diagnose(
        dataclasses.replace(report, graphs=(dataclasses.replace(graph, nodes=nodes),), locations=locations)
    )
    mended = "y = torch.where(x > 0, torch.where(x > 0, x, 1).log(), 0.0)"
    assert (found.remedy, found.fix) == (f"Mask the input, not the output: `{mended}`", mended)
    assert found.related == ()


@pytest.mark.parametrize("selecting", ["masked_fill", "index", "nan_to_num"])
def test_other_ways_to_leave_elements_out(selecting):
    """They are named in the sentence and in the remedy."""
    (found,) = diagnose(masked(selecting=selecting))
    assert found.code == "TM406"
    assert f"at elements that {selecting} hides (model.py, line 6)" in found.message


@pytest.mark.parametrize("name", HARMLESS)
def test_each_op_has_its_remedy(name):
    """Written out, with nothing unformatted; softmax has words of its own."""
    (found,) = diagnose(masked(name))
    assert found.code == "TM406"
    assert "{" not in found.remedy
    assert ("-1e9" in found.remedy) == (name in {"softmax", "log_softmax"})


@pytest.mark.parametrize(
    "change",
    [
        {"selecting": "clamp_min"},  # leaves nothing out
        {"selecting": "relu"},
        {"nan": 0, "inf": 3},  # what came back was not zero
        {"inf": 1},
        {"value": float("nan")},  # the bad elements are in the loss
        {"value": float("inf")},
        {"value": None, "saved_bad": 1},  # the loss is not known, and the value may have been bad
        {"value": None, "input_number": 1},
        {"between": ("relu",)},  # may have made the zeros itself
        {"between": ("exp",)},
        {"between": ("mm",)},
        {"name": "div", "saved_name": "other", "saved_zero": 0, "saved_bad": 1},  # a divisor that overflowed
        {"name": "mul", "saved_zero": 0},
    ],
)
def test_what_is_not_certain_stays_tm402(change):
    """Each condition alone is enough to say no more than where the NaN was born."""
    assert code(masked(**change)) == "TM402"


@pytest.mark.parametrize("between", [("neg",), ("view", "add"), ("mul",)])
def test_what_hands_zeros_on_may_lie_between(between):
    """Sums, views, and a product with one number make no zeros."""
    assert code(masked(between=between)) == "TM406"


def measured(report, shares):
    """Give each node of the one frame a share of zeros."""
    (graph,) = report.graphs
    row = array("f", [UNTOUCHED] * len(MEASURES) * len(graph.nodes))
    for index, share in shares.items():
        row[index * len(MEASURES) : (index + 1) * len(MEASURES)] = array("f", [1.0, 0.0, 1.0, share, 0.0, 0.0])
    (only,) = graph.frames
    frames = (dataclasses.replace(only, measures=row),)
    return dataclasses.replace(report, graphs=(dataclasses.replace(graph, frames=frames),))


@pytest.mark.parametrize(("arrives", "expected"), [(0.3, "TM406"), (0.5, "TM402")])
def test_where_zeros_were_counted_they_decide(arrives, expected):
    """As many zeros above a product as below it: the product made none."""
    assert code(measured(masked(between=("exp",)), {2: 0.3, 1: arrives})) == expected


def test_a_logarithm_of_a_softmax_is_better_fused():
    """TM402 has the remedy for it, whatever is left out above."""
    report = masked()
    (graph,) = report.graphs
    nodes = (op(0, "softmax"), *graph.nodes[1:])
    assert code(dataclasses.replace(report, graphs=(dataclasses.replace(graph, nodes=nodes),))) == "TM402"


def test_a_way_past_the_mask_is_none():
    """A second use of the op's result without a mask: its elements are in the loss."""
    report = masked()
    (graph,) = report.graphs
    nodes, edges = (*graph.nodes, op(4, "mean")), (*graph.edges, Edge(4, 1, 0, 0))
    frames = tuple(dataclasses.replace(each, norms=(*each.norms, 1.0)) for each in graph.frames)
    changed = dataclasses.replace(graph, nodes=nodes, edges=edges, frames=frames)
    assert code(dataclasses.replace(report, graphs=(changed,))) == "TM402"
