"""A value without a history that backward is called on: what is noted of it, which models, and that nothing is kept."""

from __future__ import annotations

import gc
import linecache
import weakref
from contextlib import suppress

import pytest
import torch
from torch import nn

import tensormagic as tm


def refused(program):
    """Return what is noted of a run that torch refuses."""
    with suppress(RuntimeError), tm.trace(namespace={}) as trace:
        program()
    return trace.report


def test_what_stands_around_it():
    """Its name in the function that called, shape, dtype, and the models that the function can name."""

    def step():
        net, teacher = nn.Linear(3, 2).requires_grad_(False), nn.Linear(3, 2)
        teacher.weight.requires_grad_(False)
        score = net(torch.ones(1, 3)).sum()
        score.backward()
        return teacher

    report = refused(step)
    (one,) = report.losses_without_graph
    assert (one.name, one.shape, one.dtype, one.grad_enabled, one.count) == ("score", (), "float32", True, 1)
    assert report.location(one.location).text == "score.backward()"
    assert {(model.name, model.parameters, model.frozen) for model in one.models} == {("net", 2, 2), ("teacher", 2, 1)}


def test_the_cut_that_ended_its_way():
    """The report's cut, and its line."""

    def step():
        w = torch.ones(3, requires_grad=True)
        loss = (w * 2).sum().detach()
        loss.backward()

    report = refused(step)
    cut = report.cuts[report.losses_without_graph[0].cut]
    assert (cut.kind, report.location(cut.location).text) == ("detach", "loss = (w * 2).sum().detach()")


@pytest.mark.parametrize(("off", "inference"), [(True, False), (False, True)])
def test_how_gradients_stood(off, inference):
    """Whether gradients were recorded when backward was called, and whether it is an inference tensor."""

    def step():
        with torch.inference_mode(inference):
            loss = torch.ones(3).sum()
        with torch.set_grad_enabled(not off):
            loss.backward()

    (one,) = refused(step).losses_without_graph
    assert (one.grad_enabled, one.inference) == (not off, inference)


def test_the_same_line_is_counted():
    """A loop that catches what torch raises."""

    def loop():
        for _ in range(3):
            with suppress(RuntimeError):
                torch.ones(2).sum().backward()

    (one,) = refused(loop).losses_without_graph
    assert one.count == 3


def test_whether_it_was_expected():
    """By what is around the line, as of other errors of a backward."""

    def tried():
        try:
            torch.ones(2).sum().backward()
        except RuntimeError as error:
            return str(error)

    def wanted():
        with pytest.raises(RuntimeError):
            torch.ones(2).sum().backward()

    assert [refused(program).losses_without_graph[0].expected for program in (tried, wanted)] == [False, True]


def test_nothing_of_the_function_is_kept():
    """What it deletes afterwards is gone, although it is still running."""

    def step():
        loss = torch.ones(3).sum()
        watched = weakref.ref(loss)
        with suppress(RuntimeError):
            loss.backward()
        del loss
        gc.collect()
        return watched()

    with tm.trace(namespace={}):
        assert step() is None


def said_of(source):
    """Run a cell with two models of earlier cells, one of them frozen; return the message of TM306."""
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space = {"torch": torch, "old": nn.Linear(2, 1), "net": nn.Linear(2, 1).requires_grad_(False), "x": torch.ones(2)}
    with tm.trace(namespace=space) as trace, pytest.raises(RuntimeError):
        exec(compile(source, filename, "exec"), space)
    (finding,) = (one for one in trace.report.findings if one.code == "TM306")
    return finding.message.partition(": ")[2]


FROZEN = "nothing it was made from requires a gradient; all 2 parameters of net are frozen."


def test_the_model_that_the_cell_mentions():
    """The frozen model is to blame; one of an earlier cell that needs gradients is not offered in its place."""
    assert said_of("loss = net(x).sum()\nloss.backward()\n") == FROZEN


def test_the_model_that_a_function_mentions():
    """A function uses a model of the notebook: its own names count as the cell's do."""
    assert said_of("def train():\n    net(x).sum().backward()\n\ntrain()\n") == FROZEN


def test_no_model():
    """Where the code mentions none, none is named."""
    assert said_of("x.sum().backward()\n") == "nothing it was made from requires a gradient."


def test_a_gradient_that_is_constant():
    """Its input asks for a gradient already: not that is said, but that a linear function has a constant one."""
    before = "x = torch.ones(2, requires_grad=True)\n(g,) = torch.autograd.grad((2 * x).sum(), x, create_graph=True)\n"
    linear = "The gradient of a linear function, or of a Function with `@once_differentiable`, has no graph."
    assert said_of(f"{before}(g**2).sum().backward()\n") == f"nothing it was made from requires a gradient. {linear}"
