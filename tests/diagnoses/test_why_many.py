"""Why the gradients of a model are what they are: what is looked up for all of its parameters is looked up once."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.tensors import gradient_facts
from tensormagic.diagnoses import why_question, why_run

LOOKED_UP = (
    (gradient_facts, "storage_of"), (gradient_facts, "has_history"), (gradient_facts, "is_stale"),
    (gradient_facts, "next_nodes"), (gradient_facts, "saved_states"), (why_run, "neighbours"), (why_run, "cuts_in"),
    (why_run, "reached"), (why_question, "neighbours"), (why_question, "PathStep"),
)  # fmt: skip


def counting(patch, module, name):
    calls, function = [], getattr(module, name)
    patch.setattr(module, name, lambda *given, **more: (calls.append(1), function(*given, **more))[1])
    return calls


@pytest.mark.parametrize("traced", [False, True], ids=["live", "traced"])
@pytest.mark.parametrize("state", ["no backward", "backward", "zeros", "nan"])
def test_of_a_model_everything_is_looked_up_once(traced, state, monkeypatch):
    """Four times as many layers make four times as many questions of names, storages, nodes and edges."""

    def counted(layers):
        net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
        if state == "nan":
            net[0].weight.data[0, 0] = float("nan")
        names, trace = {"net": net, "opt": torch.optim.SGD(net.parameters())}, tm.trace(namespace={"net": net})
        with trace if traced else nullcontext():
            names["loss"] = net(torch.ones(1, 2)).sum()
            if state != "no backward":
                names["loss"].backward()
        if state == "zeros":
            names["opt"].zero_grad(set_to_none=False)
        with monkeypatch.context() as patch:
            calls = [counting(patch, module, name) for module, name in LOOKED_UP]
            tm.why(net, "net", namespace=names, trace=trace.report if traced else tm.trace().report)
        return [len(each) for each in calls]

    few, many = counted(10), counted(40)
    assert any(few)
    assert all(more <= 4 * less + 4 for less, more in zip(few, many, strict=True))


def test_a_run_is_put_in_order_once_for_a_model(monkeypatch):
    """Not once for each parameter: the edges of its graph, and its cuts."""
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
    with tm.trace(namespace={"net": net}) as trace:
        (net(torch.ones(1, 2)) * 0).sum().backward()
    edges, steps = counting(monkeypatch, why_run, "neighbours"), counting(monkeypatch, why_question, "PathStep")
    assert tm.why(net, "net", namespace={"net": net}, trace=trace.report).reason == "zero"
    assert (len(edges), len(steps)) == (1, 0)
