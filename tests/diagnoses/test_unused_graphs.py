"""TM320 of hand-made reports: exact sentences, fixes, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Location, UnusedGraph
from tests.diagnoses import samples


def found_in(line, **given):
    """Return what is found where the graphs of a line are of no use."""
    run = samples.run()
    places = (*run.locations, Location("train.py", 9, line))
    graph = UnusedGraph(location=len(run.locations), **{"times": 4, **given})
    return diagnose(replace(run, locations=places, unused_graphs=(graph,)))


@pytest.mark.parametrize(
    ("line", "fixed"),
    [
        ("loss.backward(retain_graph=True)", "loss.backward()"),
        ("self.loss.backward(retain_graph=True, inputs=[x])", "self.loss.backward(inputs=[x])"),
        ("slope, = torch.autograd.grad(y, x, retain_graph=True)", "torch.autograd.grad(y, x)"),
    ],
)
def test_a_graph_that_is_kept_loses_the_keyword(line, fixed):
    """The sentence has the line as it should be, and so has the fix."""
    (found,) = found_in(line, kind="kept")
    assert (found.code, found.severity, found.location.text) == ("TM320", "note", line)
    assert found.message == (
        "4 backward passes keep their graph, and no other pass goes through it: what it saved stays in memory as long "
        "as its results do, usually into the next step."
    )
    assert found.remedy == f"Leave out `retain_graph=True`: `{fixed}`"
    assert fixed in found.fix
    assert "retain_graph" not in found.fix


def test_an_evaluation_that_records():
    """That eval() does not do it is said, since that is what is believed."""
    (found,) = found_in("scores = net(x)", kind="evaluation", model="net")
    assert (found.code, found.severity, found.subject, found.location.line) == ("TM320", "note", "net", 9)
    assert found.message == (
        "net in eval mode records a graph, in 4 evaluations, and no backward goes through it: its activations stay in "
        "memory as long as the result."
    )
    assert found.remedy.startswith("Evaluate under `torch.no_grad()`: `eval()` changes")


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("scores = net(x)", {"kind": "evaluation", "model": "net", "times": 1}),
        ("loss.backward(retain_graph=True)", {"kind": "kept", "times": 2}),
        ("loss.backward(retain_graph=not last)", {"kind": "kept"}),
        ("step(loss)", {"kind": "kept"}),
    ],
)
def test_what_may_be_meant_is_left_alone(line, given):
    """A single one may be used by what was not traced; a library, or a condition, keeps a graph with reason."""
    assert not found_in(line, **given)
