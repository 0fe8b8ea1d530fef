"""A view that torch refuses to say of what made it: one of several, whose memory was written to since."""

from __future__ import annotations

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.objects.children import has_history, is_leaf


def refused():
    """Return a leaf, and one of two views of what was computed from it, changed in place."""
    x = torch.ones(4, requires_grad=True)
    part = (x * 2).chunk(2)[0]
    with torch.no_grad():
        part.mul_(2)
    with pytest.raises(RuntimeError):
        _ = part.grad_fn
    return x, part


@pytest.mark.parametrize(
    "look", [tm.aliases, tm.memory, tm.tensors, tm.check], ids=["aliases", "memory", "tensors", "check"]
)
def test_looking_at_a_session_goes_on(look):
    """It is one name among others."""
    x, part = refused()
    if look is tm.check:
        assert look(namespace={"x": x, "part": part}).gaps == ()
    else:
        assert look({"x": x, "part": part}).gaps == ()


@pytest.mark.parametrize("options", [{}, {"memory": True}, {"writes": True}, {"draws": True}])
def test_a_backward_is_followed(options):
    """It stands among the locals of the function that calls backward."""
    x, part = refused()
    names = {"x": x, "part": part}
    with tm.trace(namespace=names, **options) as trace:
        (x * x).sum().backward()
    run = trace.report.trace if options else trace.report
    assert len(run.passes) == 1
    assert run.gaps == ()
    assert run.parameters[0].name == "x"


def test_what_asks_for_its_graph_says_why_there_is_none():
    """In a sentence of the tool's, not in torch's."""
    _, part = refused()
    for ask in (tm.gradgraph, tm.why):
        with pytest.raises(tm.TensorMagicError, match="torch refuses to say what made it"):
            ask(part)


def test_a_leaf_that_is_a_view():
    """A parameter that lies in a larger buffer, and was stepped, is a leaf all the same."""
    flat = torch.ones(8)
    w = flat[:4].requires_grad_()
    with torch.no_grad():
        w.sub_(0.1)
    assert w._version > 0
    assert w.is_leaf
    assert is_leaf(w)
    assert not has_history(w)
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).sum().backward()
    assert [series.name for series in trace.report.parameters] == ["w"]
