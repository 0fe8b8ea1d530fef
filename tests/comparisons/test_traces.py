"""Two runs compared with one another: what is the same, what is different, and nothing that is only guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.comparisons import compare_traces
from tests.comparisons import samples


def test_a_run_against_itself_has_no_difference():
    """The same graph, every node equal, every parameter equal."""
    found = compare_traces(samples.small(), samples.small())
    graph = found.graphs[0]
    assert (graph.same, graph.matched, graph.equal, graph.nodes, graph.only_left) == (True, 7, 7, (), ())
    assert all(one.norms.same for one in found.parameters)
    assert found.steps_compared == 6


def test_the_most_different_comes_first():
    """A weight's gradient is a hundred times larger from step 3 on: it leads the parameters and the nodes."""
    found = compare_traces(samples.small(), samples.small(factor=100.0, since=3))
    first = found.parameters[0]
    assert (first.name, first.norms.from_step, first.norms.apart_steps) == ("net.2.weight", 3, 4)
    assert first.norms.last.ratio == pytest.approx(2.0)
    assert found.graphs[0].nodes[0].left.variable == "net.2.weight"
    assert found.graphs[0].equal == 6


def test_losses_stand_side_by_side():
    """A row for each common step."""
    found = compare_traces(samples.small(), samples.small(factor=100.0))
    assert [(pair.step, pair.left, pair.right) for pair in found.losses[-2:]] == [(5, 0.7, 1.95), (6, 0.41, 1.9)]
    assert (found.left.loss_first, found.right.loss_last) == (2.3, 1.9)


def test_another_name_of_the_model_and_a_layer_more():
    """``net`` and ``model``: parameters of the same place are compared, the new one stands alone."""
    found = compare_traces(samples.small(), samples.deeper())
    assert sorted((one.name, one.name_right) for one in found.parameters) == [
        ("net.0.weight", "model.0.weight"),
        ("net.2.weight", "model.2.weight"),
    ]
    assert found.parameters_only_right == ("model.1.weight",)
    assert [node.module or node.variable for node in found.graphs[0].only_right] == [
        "model.1.weight",
        "model.1",
        "model.1",
    ]


def test_a_renamed_plain_leaf_is_compared():
    """A tensor called ``w`` here and ``v`` there, with the same gradients: one parameter, its two names told."""
    rows = [("exp", "", "", (0,)), ("sum", "", "", (1,))]
    left = samples.run(samples.graph([("leaf", "", "w", ()), *rows]), {"w": [1.0, 1.0]})
    right = samples.run(samples.graph([("leaf", "", "v", ()), *rows]), {"v": [1.0, 1.0]})
    plain = [replace(run, parameters=tuple(replace(one, owner="") for one in run.parameters)) for run in (left, right)]
    found = compare_traces(*plain)
    assert [(one.name, one.name_right, one.norms.same) for one in found.parameters] == [("w", "v", True)]
    assert found.parameters_only_left == found.parameters_only_right == ()


def test_findings_of_one_run_alone():
    """Told apart by code and subject; the line may be another."""
    broken = samples.with_nan()
    found = compare_traces(samples.small(), broken)
    assert [finding.code for finding in found.findings_only_right] == ["TM402"]
    moved = replace(broken, findings=(replace(broken.findings[0], location=None),))
    found = compare_traces(broken, moved)
    assert (found.findings_only_left, found.findings_only_right) == ((), ())
    assert [finding.code for finding in found.findings_both] == ["TM402"]


def test_steps_that_only_one_run_kept_are_left_out_and_said():
    """One run was thinned to every second step: three of six are compared, each with its own."""
    left = samples.small()
    right = samples.small(factor=100.0)
    thinned = replace(
        right,
        passes=right.passes[::2],
        parameters=tuple(replace(one, norms=one.norms[::2]) for one in right.parameters),
        graphs=(replace(right.graphs[0], frames=right.graphs[0].frames[::2]),),
    )
    found = compare_traces(left, thinned)
    assert [pair.step for pair in found.losses] == [1, 3, 5]
    assert found.parameters[0].norms.compared == 3
    assert [gap.reason for gap in found.gaps] == ["3 of 6 steps are compared: the others were not kept by both runs"]


def test_two_passes_a_step_are_not_mixed_up():
    """A step with two passes here and one there cannot be compared: which is which is not known."""
    left = samples.small()
    double = replace(
        left, passes=tuple(replace(one, step=(at + 2) // 2) for at, one in enumerate(left.passes)), steps_seen=3
    )
    assert compare_traces(left, double).steps_compared == 0
    assert compare_traces(double, double).steps_compared == 6


def test_runs_without_a_graph():
    """Nothing to compare is no error."""
    empty = replace(samples.small(), graphs=(), passes=(), parameters=(), passes_seen=0, steps_seen=0)
    found = compare_traces(empty, samples.small())
    assert (found.graphs, found.graphs_only_right, found.steps_compared, found.losses) == ((), 1, 0, ())


def train(net, rate):
    """Return the trace of a few steps of a small network."""
    torch.manual_seed(0)
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace


def test_two_real_runs(tmp_path):
    """Traces, reports and saved files can be compared; equal seeds and another rate: equal first, different then."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    start = {name: value.clone() for name, value in net.state_dict().items()}
    calm = train(net, 0.01)
    net.load_state_dict(start)
    wild = train(net, 5.0)
    path = tmp_path / "wild.json"
    wild.report.save(path)
    found = tm.compare(calm, path, names=("calm", "wild"))
    assert (found.left.name, found.right.name) == ("calm", "wild")
    assert found.graphs[0].same
    assert [one.norms.first.ratio for one in found.parameters] == [0.0] * 4
    assert found.parameters[0].norms.last.ratio != 0.0
    assert found == tm.compare(calm.report, wild.report, names=("calm", "wild"))


@pytest.mark.parametrize("odd", [3, None, [1]])
def test_what_is_no_run_is_refused(odd):
    """The message says what would work."""
    with pytest.raises(tm.TensorMagicError, match=r"takes traced runs: reports, traces, or saved \.json files, not "):
        tm.compare(samples.small(), odd)


def test_two_names_are_needed():
    """One name for two runs is a mistake."""
    with pytest.raises(tm.TensorMagicError, match="takes two names, one per run, but was given 1"):
        tm.compare(samples.small(), samples.small(), names=("a",))
