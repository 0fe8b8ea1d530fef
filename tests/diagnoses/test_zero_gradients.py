"""TM405: exact sentence, and everything that must hold for it, by hand-made runs."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.zero_gradients import FLAT
from tensormagic.reports import Edge, Graph
from tests.diagnoses.samples import LINES, frame, leaf, op, parameter, run


def dead(
    name="relu", *, norms=(0.0,) * 4, arrives=2.0, after="mse_loss", values=None, kept=None, shape=(4, 4), more=()
):
    """Return a run ``net.0.weight → addmm → op → after`` whose weight gets ``norms``."""
    nodes = (
        leaf(0, "net.0.weight"), op(1, "addmm"), op(2, name, location=4, module="net.1", shapes=(shape,)),
        op(3, after), op(4, "mean"),
    )  # fmt: skip
    edges = tuple(Edge(at, at - 1, 0, 0) for at in range(1, 5))
    frames = tuple(frame(at, (norm, norm, arrives, 1.0, 1.0)) for at, norm in enumerate(norms, 1))
    graph = Graph(1, nodes, edges, (4,), (), len(norms), frames)
    report = run(graph, parameters=(parameter("net.0.weight", norms), *more), count=len(norms))
    values = values or [1.0] * len(norms)
    done = tuple(dataclasses.replace(one, value=value) for one, value in zip(report.passes, values, strict=True))
    return dataclasses.replace(report, passes=done, passes_seen=kept or len(norms))


def codes(report):
    return [found.code for found in diagnose(report)]


def test_a_dead_relu():
    """Code, severity, sentence, line, numbers, remedy, subject and node."""
    (found,) = diagnose(dead())
    assert (found.code, found.severity) == ("TM405", "warning")
    assert found.message == (
        "net.0.weight gets a gradient of exactly zero in all 4 backward passes: relu in net.1 (model.py, line 5) lets "
        "nothing through, because its input is nowhere above zero."
    )
    assert found.location == LINES[4]
    assert found.evidence == {"leaves": 1, "passes": 4, "first": 1, "arrives": 2.0}
    assert "leave it out there" in found.remedy  # only the loss uses what it makes
    assert (found.subject, found.node) == ("net.0.weight", (0, 2))


@pytest.mark.parametrize("name", FLAT)
def test_each_flat_op_has_its_reason(name):
    """It stands in the sentence, and the remedy is its own."""
    (found,) = diagnose(dead(name))
    assert found.message.endswith(f"lets nothing through, because {FLAT[name].why}.")
    if name not in {"relu", "threshold", "sigmoid", "tanh"}:  # before the loss these have a remedy of their own
        assert found.remedy == FLAT[name].remedy


@pytest.mark.parametrize(
    "change",
    [
        {"norms": (0.0, 0.0)},  # two passes are too few
        {"norms": (0.0, 0.0, 0.0, 1e-9)},  # it learns in the end
        {"norms": (1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)},  # dead for less than half of the run
        {"norms": (1.0, 0.0, 0.0, 0.0)},  # dead for three passes only
        {"values": [0.0, 0.0, 0.0, 0.0]},  # the loss is zero: nothing is left to learn
        {"values": [1.0, 1.0, 0.0, 0.0]},
        {"after": "sum"},  # a hinge, which is a part of the loss
        {"after": "mul", "name": "clamp_min"},
        {"after": "pow"},  # a squared one
        {"name": "mm"},  # a product with zeros: what starts at zero
        {"name": "mul"},
        {"arrives": 1e-30},  # it has vanished on the way
        {"arrives": 0.0},
        {"name": "log_softmax"},  # the loss of a model that is certain
        {"name": "softmax", "shape": (4, 3, 1)},  # attention over one token
    ],
)
def test_zeros_that_may_be_meant(change):
    """Each of these alone is enough to say nothing."""
    assert codes(dead(**change)) == []


def test_a_layer_that_died():
    """Dead for half of the run at least: since when, and of how many."""
    (found,) = diagnose(dead(norms=(1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)))
    assert "in the last 4 backward passes of 7: relu" in found.message
    assert found.evidence["first"] == 4


def test_passes_that_were_thinned_out_are_not_claimed():
    """What is known is known of the kept passes."""
    assert "in all 4 kept backward passes: relu" in diagnose(dead(kept=1000))[0].message


@pytest.mark.parametrize("name", ["round", "sign"])
def test_a_staircase_needs_one_pass(name):
    """Its slope is zero whatever comes in."""
    (found,) = diagnose(dead(name, norms=(0.0,)))
    assert "gets a gradient of exactly zero in 1 backward pass: " in found.message


def test_a_softmax_over_one_score_needs_no_loss():
    """The cross entropy of one score is zero from the start, and that is the fault; one bag of one item is none."""
    assert codes(dead("log_softmax", norms=(0.0,), values=[0.0], shape=(16, 1))) == []
    (found,) = diagnose(dead("log_softmax", norms=(0.0,) * 3, values=[0.0] * 3, shape=(16, 1)))
    assert (
        "log_softmax in net.1 (model.py, line 5) lets nothing through, because over a dimension of size 1"
        in found.message
    )


@pytest.mark.parametrize(("line", "said"), [
    ("w = torch.softmax(self.score(h), dim=0)", []), ("w = self.score(h).softmax(0)", []),
    ("w = torch.softmax(self.score(h), dim=-1)", ["TM405"]), ("w = self.pool(h)", ["TM405"]),
])  # fmt: skip
def test_the_line_says_over_which_dimension(line, said):
    """Weights of the items of one bag are a column as well, and none of them is alone."""
    report = dead("softmax", shape=(7, 1))
    report = dataclasses.replace(
        report, locations=tuple(dataclasses.replace(one, text=line) for one in report.locations)
    )
    assert codes(report) == said


def test_a_bias_that_rests_beside_a_weight_that_learns():
    """Half a layer is none: points beyond a margin leave a weight decay behind, and a bias without a gradient."""
    assert codes(dead(more=(parameter("net.0.bias", [1.0] * 4, shape=(4,)),))) == []
    assert codes(dead(more=(parameter("net.2.bias", [1.0] * 4, shape=(4,)),))) == ["TM405"]


def test_an_op_that_feeds_another_leaf_is_not_dead():
    """It lets something through, only not there."""
    report = dead("sigmoid")
    (graph,) = report.graphs
    nodes = (*graph.nodes, leaf(5, "other"))
    frames = tuple(frame(at, (0.0, 0.0, 2.0, 1.0, 1.0, 3.0)) for at in range(1, 5))
    graph = dataclasses.replace(graph, nodes=nodes, edges=(*graph.edges, Edge(2, 5, 1, 0)), frames=frames)
    assert codes(dataclasses.replace(report, graphs=(graph,))) == []
