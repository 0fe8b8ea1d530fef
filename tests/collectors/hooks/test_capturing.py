"""What torch itself writes down is the same under every follower: ``torch.jit``, ``torch.export``, ``make_fx``."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.jit import script as script_by_its_own_name, trace as trace_by_its_own_name

import tensormagic as tm
from tests.support.kernel import ROOT

FOLLOWERS = {
    "trace": lambda: tm.trace(namespace={}),
    "ops": lambda: tm.trace(namespace={}, level="ops"),
    "forward": lambda: tm.trace(namespace={}, forward=True),
    "budget": lambda: tm.trace(namespace={}, budget=0.5),
    "memory": lambda: tm.track_memory(namespace={}),
    "writes": lambda: tm.watch_writes(namespace={}),
    "rng": lambda: tm.track_rng(namespace={}),
    "explain": tm.explain,
}


class Convolved(nn.Module):
    """A convolution and a relu: at level ops, its batch became a constant."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Scripted(nn.Module):
    """A branch, and functions of ``nn.functional`` that ask who overrides them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(4))

    def forward(self, x):
        if bool(x.sum() > 0):
            return nn.functional.softmax(self.layers(x), dim=-1)
        return x * 2


def number(a):
    """What takes a Python number, which a graph holds as a tensor."""
    return ((a.sin() + 1) * 2.5).sum()


def traced_layers():
    text = ""
    for net, x in (
        (nn.Linear(4, 2), torch.randn(3, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval(), torch.randn(2, 1, 5, 5)),
        (nn.LSTM(3, 4), torch.randn(2, 2, 3)),
    ):
        text += str(torch.jit.trace(net, x).inlined_graph)
    return text


def traced_with_a_number():
    traced = torch.jit.trace(number, torch.randn(3))
    x = torch.ones(3, requires_grad=True)
    values = []
    for _ in range(3):
        out = traced(x)
        out.backward()
        values.append(out.item())
    return f"{traced.graph} {traced.code} {x.grad.tolist()} {values}"


def traced_by_an_early_name():
    return str(trace_by_its_own_name(number, torch.randn(3), check_trace=False).graph)


def traced_module_methods():
    return torch.jit.trace_module(Convolved(), {"forward": torch.randn(1, 1, 5, 5)}).code


def scripted():
    torch.jit._state._clear_class_state()
    net = script_by_its_own_name(Scripted())
    torch.manual_seed(0)
    values = [net(torch.ones(2, 4)).sum() for _ in range(3)]
    values[-1].backward()
    return f"{net.code} {[value.item() for value in values]} {net.layers[0].weight.grad.tolist()}"


def aligned(scores: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor):
    """What calls a function of torch's that another one stands in for while operations are followed."""
    return torch.ctc_loss(scores, targets, lengths, lengths)


def scripted_stand_in():
    return torch.jit.script(aligned).code


def kept_and_frozen():
    net = torch.jit.freeze(torch.jit.trace(Convolved().eval(), torch.randn(1, 1, 5, 5)))
    file = io.BytesIO()
    torch.jit.save(net, file)
    file.seek(0)
    return str(torch.jit.load(file)(torch.ones(1, 1, 5, 5)).tolist())


def exported():
    torch.manual_seed(0)
    dimension = torch.export.Dim("b", min=2, max=64)
    program = torch.export.export(Convolved(), (torch.randn(8, 1, 8, 8),), dynamic_shapes={"x": {0: dimension}})
    return program.graph_module.code + str(program.range_constraints)


def made_fx():
    return make_fx(number, tracing_mode="symbolic")(torch.ones(3)).code


def fx_traced():
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).code


PROGRAMS = (
    traced_layers, traced_with_a_number, traced_by_an_early_name, traced_module_methods, scripted, scripted_stand_in,
    kept_and_frozen, exported, made_fx, fx_traced,
)  # fmt: skip


def captured(program, follower):
    """Return what a program says under a follower, the warnings it gave, and the run."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as heard, follower() as run:
        warnings.simplefilter("always")
        said = program()
    said = re.sub(r"___torch_mangle_\d+\.", "", said)  # torch numbers what has the same name
    return said, [(str(one.message), one.filename, one.lineno) for one in heard], run


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_torch_writes_down_is_the_same(program, follower):
    """Graphs, results, gradients and warnings are those of an unfollowed run, and afterwards everything is back."""
    captured(program, nullcontext)  # torch compiles once what it finds in its own files, and warns once
    alone = captured(program, nullcontext)[:2]
    assert captured(program, FOLLOWERS[follower])[:2] == alone


@pytest.mark.parametrize("follower", [name for name in FOLLOWERS if name != "explain"])
def test_it_is_said(follower):
    """Each report says that it did not look there, and goes on after it."""
    with FOLLOWERS[follower]() as run:
        torch.jit.trace(number, torch.randn(3))
        weight = torch.randn(3, requires_grad=True)
        (weight * torch.rand(3)).sum().backward()
        weight.data.add_(1)
    assert any("torch.jit.trace ran untouched" in gap.reason for gap in run.report.gaps)
    if follower == "trace":
        assert run.report.passes_seen == 1
    if follower == "writes":
        assert run.report.writes_seen


@pytest.mark.usefixtures("no_garbage")
def test_what_a_scripted_function_returns_first_is_counted():
    """The first call of a TorchScript function is not followed, but what it returns is memory like any other."""
    traced = torch.jit.trace(lambda a: a + 1, torch.zeros(2, 2), check_trace=False)
    x = torch.zeros(1000)
    with tm.track_memory(namespace={"x": x}) as run:
        kept = [traced(x), traced(x)]
    (device,) = run.report.timelines
    assert device.live[-1] - device.live[0] == 2 * kept[0].nbytes
    assert not [gap for gap in run.report.gaps if "no operation" in gap.reason]


HESSIAN = """
import torch, tensormagic as tm
assert "torch._decomp.decompositions_for_jvp" not in __import__("sys").modules
with tm.trace(namespace={}) as trace, tm.track_memory(namespace={}) as memory:
    torch.func.hessian(lambda x: (x ** 3).sum())(torch.ones(3))
    torch.ones(3, requires_grad=True).tanh().sum().backward()
assert trace.report.graphs[-1].nodes[-1].location is not None, "the recorder came back"
gaps = [gap.reason for report in (trace.report, memory.report) for gap in report.gaps]
assert not any("torch.jit" in reason for reason in gaps), gaps
"""


def test_what_torch_scripts_of_its_own_is_no_gap():
    """At the first derivative that is taken forwards it scripts its decompositions; the user has scripted nothing."""
    subprocess.run([sys.executable, "-c", HESSIAN], check=True, cwd=ROOT)
