"""TM312, TM606: exact sentences, and what is left alone, by hand-made facts."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import (
    Cut,
    Graph,
    GraphGrowth,
    Location,
    ModelMode,
    OptimizerUse,
    RunningSum,
    StepPattern,
    Training,
    UntrainedNorm,
)
from tests.diagnoses.samples import CALL, LINES, op, parameter, run


def trained(*, state="finished", text="total += loss", **facts):
    """Return a run with these facts of its training; ``text`` stands at line 3."""
    report = run(Graph(1, (op(0, "mul", location=2),), ()), parameters=[parameter("net.weight", [1.0] * 6)], count=6)
    lines = list(report.locations)
    lines[3] = dataclasses.replace(lines[3], text=text)
    return dataclasses.replace(report, training=Training(elsewhere=(), **facts), locations=tuple(lines), state=state)


def growth(**more):
    facts = {"backward": 7, "passes": 5, "first_size": 6, "last_size": 26, "increment": 5, "older": 20, "joined": 1,
             "reaches": 1, **more}  # fmt: skip
    return GraphGrowth(**facts)


def test_a_graph_that_reaches_into_the_steps_before():
    """The line that joins new to old, that of the backward, and the numbers."""
    (found,) = diagnose(trained(growth=(growth(),)))
    assert (found.code, found.severity) == ("TM312", "warning")
    assert found.message == (
        "The graph grows by 5 nodes per step, from 6 to 26 in 5 steps: 20 nodes of it were made in earlier steps, and "
        "backward goes through them again."
    )
    assert found.location == LINES[1]
    assert [line.location for line in found.related] == [CALL]
    (apart,) = diagnose(trained(growth=(growth(reaches=2),)))
    assert [line.location for line in apart.related] == [LINES[2], CALL]


def test_three_passes_are_too_few():
    """It takes four that grow by the same number."""
    assert diagnose(trained(growth=(growth(passes=3),))) == ()


@pytest.mark.parametrize(
    ("text", "subject", "remedy"),
    [
        ("total += loss", "total", "Add only the number: `total += loss.item()`"),
        ("self.seen += loss * len(x)", "self.seen", "Add only the number: `self.seen += (loss * len(x)).item()`"),
        ("log['loss'] += f(x)", "log['loss']", "Add only the number: `log['loss'] += f(x).item()`"),
        ("mean = 0.9 * mean + loss", "mean", "Add only the number: `mean = 0.9 * mean + loss.item()`"),
        ("mean = a * mean + b * loss", "mean", "Add only the number: `loss.item()`, or `loss.detach()`."),
        ("for x in data: total += x", "A sum", "Add only the number: `loss.item()`, or `loss.detach()`."),
        ("total = total + (", "A sum", "Add only the number: `loss.item()`, or `loss.detach()`."),
    ],
)
def test_a_sum_that_keeps_its_history(text, subject, remedy):
    """The remedy is the line as it should be, where the line is a simple one."""
    (found,) = diagnose(trained(sums=(RunningSum(location=3, steps=6),), text=text))
    assert found.message == (
        f"{subject} carries the graph of every step with it: over at least 6 backward passes, values were added to it "
        "together with their graphs, and no backward uses the sum."
    )
    assert (found.subject, found.remedy) == (subject, remedy)
    assert found.location == Location("model.py", 4, text)


@pytest.mark.parametrize(
    "facts",
    [
        {"sums": (RunningSum(location=3, steps=3),)},
        {"sums": (RunningSum(location=2, steps=9),)},
        {"sums": (RunningSum(location=3, steps=9),), "state": "running"},
    ],
    ids=["few steps", "backward goes through it", "it may yet"],
)
def test_a_sum_that_is_used_or_short_is_left_alone(facts):
    """Losses may be summed over passes of other graphs, for one backward at the end."""
    assert diagnose(trained(**facts)) == ()


def mode(**more):
    facts = {
        "steps": 6,
        "eval_steps": 6,
        "longest": 6,
        "first": 1,
        "dropouts": 2,
        "norms": 0,
        "unused_norms": 0,
        **more,
    }
    pattern = StepPattern(kind="fresh", location=4, count=6, last=6, longest=6)
    use = OptimizerUse(name="optimizer", type_name="SGD", steps=6, patterns=(pattern,), holds=(0,))
    return trained(optimizers=(use,), optimizers_seen=1, modes=(ModelMode(model="net", **facts),))


def test_a_model_trained_in_eval_mode():
    """Sentence, line, numbers and remedy."""
    (found,) = diagnose(mode())
    assert (found.code, found.severity, found.subject) == ("TM606", "warning", "net")
    assert found.message == "net is trained in eval mode, in all of its 6 steps: 2 dropouts do nothing."
    assert found.location == LINES[4]
    assert "`net.train()`" in found.remedy


def test_a_model_that_stays_in_eval_mode():
    """From when on; a warning whatever its normalisations have seen."""
    (found,) = diagnose(mode(eval_steps=4, longest=4, first=3, dropouts=0, norms=1))
    assert found.severity == "warning"
    assert found.message == (
        "net is trained in eval mode, in 4 of its 6 steps, from step 3 on: 1 batch normalisation uses running "
        "statistics instead of the batch."
    )


def test_statistics_of_an_earlier_training_may_be_kept_on_purpose():
    """A note; where they were never made, it cannot be meant."""
    assert [found.severity for found in diagnose(mode(norms=2))] == ["note"]
    (found,) = diagnose(mode(norms=2, unused_norms=2))
    assert found.severity == "warning"
    assert found.message.endswith("instead of the batch, which have never seen a batch.")


def test_single_steps_in_eval_mode_are_left_alone():
    """Two in a row at least."""
    assert diagnose(mode(eval_steps=3, longest=1)) == ()
    assert diagnose(mode(eval_steps=0, longest=0, first=0)) == ()


def norm(module="net.1", **more):
    return UntrainedNorm(module=module, **{"location": 5, "batches": 8, "longest": 4, **more})


def evaluated(*norms, cuts=(), owner="net"):
    """Return a run that trained ``owner``, in which these normalisations took statistics with gradients off."""
    report = trained(optimizers=(OptimizerUse(name="optimizer", type_name="SGD", steps=6, holds=(0,)),), norms=norms)
    (graph,) = report.graphs
    rows = tuple(dataclasses.replace(series, owner=owner) for series in report.parameters)
    return dataclasses.replace(report, graphs=(dataclasses.replace(graph, cuts=cuts),), parameters=rows)


def test_a_model_evaluated_in_train_mode():
    """One finding a line, however many normalisations there are."""
    (found,) = diagnose(evaluated(norm(), norm("net.4", batches=6)))
    assert (found.code, found.severity, found.subject) == ("TM606", "warning", "net")
    assert found.message == (
        "net is evaluated in train mode: with gradients off, 2 batch normalisations took statistics from 8 batches "
        "that nothing was learned from."
    )
    assert found.location == LINES[5]


@pytest.mark.parametrize(
    "report",
    [
        evaluated(norm(longest=2)),
        evaluated(norm(), cuts=(Cut(kind="no_grad", op="no_grad", location=5, target=0),)),
        evaluated(norm("teacher.1")),
        evaluated(norm("network.1")),
        evaluated(norm(), owner=""),
    ],
    ids=["pairs", "used in what is learned", "another model", "of a similar name", "no model"],
)
def test_what_a_training_does_with_gradients_off_is_left_alone(report):
    """Targets, teachers, samples now and then."""
    assert [found.code for found in diagnose(report)] == []


def test_values_that_are_only_read_excuse_nothing():
    """A cut that no backward graph took up, or at another line."""
    read = Cut(kind="no_grad", op="no_grad", location=5)
    elsewhere = Cut(kind="no_grad", op="no_grad", location=6, target=0)
    assert [found.code for found in diagnose(evaluated(norm(), cuts=(read, elsewhere)))] == ["TM606"]
