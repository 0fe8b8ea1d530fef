"""``torch.compile`` under a trace: what is compiled stays compiled, and its nodes have the line that called it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

import tensormagic as tm
from tensormagic.collectors.quiet import functorch_levels
from tests.support.functions import Same
from tests.support.kernel import ROOT

dynamo = pytest.importorskip("torch._dynamo")
pytest.importorskip("torch._dynamo.compiled_autograd")
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Forget what was compiled, before and after; counters too."""
    dynamo.reset()
    dynamo.utils.counters.clear()
    yield
    dynamo.reset()
    dynamo.utils.counters.clear()


def loss_of(x, weight):
    """A few calls, some of which have a Python side in torch."""
    return functional.softmax(functional.relu(x @ weight), -1).square().sum()


def test_a_compiled_function_is_compiled_once_with_and_without_a_trace():
    """The same graph serves before, in and after a trace: no graph break, nothing compiled again."""
    counter = CompileCounter()
    compiled = torch.compile(loss_of, backend=counter)
    x, weight = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    compiled(x, weight).backward()
    with tm.trace(namespace={}) as trace:
        for _ in range(3):
            compiled(x, weight).backward()
    compiled(x, weight).backward()
    assert counter.frame_count == 1
    assert not dynamo.utils.counters["graph_break"]
    assert trace.report.passes_seen == 3


def test_a_compiled_region_is_one_node_with_its_line():
    """What AOTAutograd makes of a region is one node; it belongs to the line that called the compiled function."""
    compiled = torch.compile(loss_of, backend="aot_eager")
    weight = torch.randn(4, 4, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        loss = compiled(torch.randn(3, 4), weight)
        (2 * loss).backward()
    nodes = {node.name: node for node in trace.report.graphs[0].nodes}
    assert {"CompiledFunctionBackward", "MulBackward0", "AccumulateGrad"} == set(nodes)
    region = trace.report.locations[nodes["CompiledFunctionBackward"].location]
    assert region.text.strip() == "loss = compiled(torch.randn(3, 4), weight)"


def test_a_compiled_module_keeps_its_fused_paths_and_results():
    """A transformer layer asks who overrides it: compiled under a trace, it is asked as if nobody did."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, counter = torch.randn(2, 5, 8), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter)
    expected = compiled(x)
    with tm.trace(namespace={}):
        seen = compiled(x)
    assert torch.equal(seen, expected)
    assert counter.frame_count == 1


@pytest.mark.parametrize("follow", [
    tm.trace, lambda: tm.trace(level="ops", memory=True), lambda: tm.trace(budget=0.5), tm.track_memory,
    tm.watch_writes, tm.track_rng,
])  # fmt: skip
def test_compiled_autograd_compiles_a_backward_once(follow):
    """It would compile the hooks of a trace, too: such a backward runs as it does untraced, and the report says so."""
    counter, weight = CompileCounter(), torch.ones(4, 4, requires_grad=True)

    def gradient(factor):
        weight.grad = None
        with dynamo.compiled_autograd._enable(torch.compile(backend=counter, fullgraph=True)):
            (factor * weight).tanh().sum().backward()
        return weight.grad.tolist()

    expected = gradient(2.0)
    with follow() as run:
        assert gradient(2.0) == gradient(2.0) == expected
        weight.sin().sum().backward()
    assert counter.frame_count == 1
    report = run.report
    parts = [report] if not hasattr(report, "parts") else list(report.parts)
    reasons = [gap.reason for part in parts for gap in part.gaps]
    assert any("a backward under compiled autograd ran untouched" in reason for reason in reasons)
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


def test_a_mode_of_the_persons_own_above_the_trace_does_not_break_the_graph():
    """Under ``with torch.device(...)``, whose mode lies on top, the tracer steps out from below it, and back there."""
    counter = CompileCounter()
    compiled = torch.compile(loss_of, backend=counter)
    x, weight = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    with torch.device("cpu"):
        compiled(x, weight)
    with tm.trace(namespace={}) as trace, torch.device("cpu"):
        compiled(x, weight).backward()
        weight.tanh().sum().backward()
    assert counter.frame_count == 1
    assert not dynamo.utils.counters["graph_break"]
    assert trace.report.passes_seen == 2


def test_what_runs_eagerly_after_a_region_is_recorded_again():
    """The recorder comes back when the compiled function returns, also where it raised."""

    def refuse(x):
        raise ValueError("no")

    compiled, refusing = torch.compile(loss_of, backend="eager"), torch.compile(refuse, backend="eager")
    weight = torch.randn(4, 4, requires_grad=True)
    with tm.trace(namespace={}) as trace:
        with pytest.raises(ValueError, match="no"):
            refusing(weight)
        loss = compiled(torch.randn(3, 4), weight)
        loss = loss.tanh()
        loss.backward()
    tanh = next(node for node in trace.report.graphs[0].nodes if node.name == "TanhBackward0")
    assert trace.report.locations[tanh.location].text.strip() == "loss = loss.tanh()"


FIRST_COMPILED_INSIDE = """
import sys, torch, tensormagic as tm
assert "torch._dynamo.eval_frame" not in sys.modules
original = torch.compile
with tm.trace(namespace={}) as trace:
    compiled = torch.compile(lambda x: x.relu().square().sum(), backend="eager")
    x = torch.randn(3, requires_grad=True)
    compiled(x).backward()
from torch._dynamo.utils import counters
print(torch.compile is original, dict(counters["graph_break"]), trace.report.passes_seen)
print(torch._dynamo.eval_frame._maybe_set_eval_frame.__module__)
"""


def test_the_first_compile_of_all_may_stand_in_the_traced_block():
    """Dynamo is imported by the first ``torch.compile``: also then nothing breaks, and nothing is left replaced."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_COMPILED_INSIDE], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines() == ["True {} 1", "torch._C._dynamo.eval_frame"]
    assert not done.stderr


def test_level_ops_leaves_compiled_what_is_compiled():
    """With the dispatch mode on, the same graph serves before, in and after; nothing is broken or compiled again."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss_of, backend=counter)
    x, weight = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    compiled(x, weight).backward()
    expected, weight.grad = weight.grad, None
    with tm.trace(namespace={"weight": weight}, level="ops") as trace:
        compiled(x, weight).backward()
    assert torch.equal(weight.grad, expected)
    assert counter.frame_count == 1
    assert not dynamo.utils.counters["graph_break"]
    ops = trace.report.ops
    assert ops.compiled_calls == 1
    assert any("torch.compile" in gap.reason for gap in trace.report.gaps)
    products = [use for use in ops.uses if use.op == "aten.mm.default"]
    assert sorted((use.phase, use.calls) for use in products) == [("backward", 1), ("forward", 1)]
    lines = {use.phase: trace.report.location(use.location).text for use in products}
    assert lines == {"forward": "def loss_of(x, weight):", "backward": "compiled(x, weight).backward()"}


def test_dynamo_does_not_compile_the_dispatch_mode_where_a_graph_breaks():
    """Between two compiled pieces operations run eagerly, with Dynamo on: the mode's own code is left alone."""

    @torch.compile(backend="aot_eager")
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.ones(3, requires_grad=True)
    broken(x)
    frames = dynamo.utils.counters["frames"]["total"]
    with tm.trace(namespace={}, level="ops") as trace:
        result = broken(x)
    assert torch.equal(result, x.sin().cos())
    assert dynamo.utils.counters["frames"]["total"] == frames
    assert sum(use.calls for use in trace.report.ops.uses if use.op == "aten.cos.default") == 1


def test_a_compiled_function_is_compiled_once_with_and_without_an_explanation():
    """Dynamo does not follow the mode that waits for an error: no graph break, nothing compiled again, no warning."""
    counter = CompileCounter()
    compiled = torch.compile(loss_of, backend=counter)
    x, weight = torch.randn(3, 4), torch.randn(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tm.explain() as told:
            compiled(x, weight)
        compiled(x, weight)
    assert (counter.frame_count, told.report) == (1, None)
    assert not dynamo.utils.counters["graph_break"]


def test_an_error_after_a_compiled_call_is_explained():
    """The mode is back on the stack, and its operands are those of the call itself."""
    compiled = torch.compile(loss_of, backend="eager")
    x, weight = torch.randn(3, 4), torch.randn(4, 4)

    def refused():
        compiled(x, weight)
        x @ (weight[:2] + 1)

    with pytest.raises(RuntimeError), tm.explain() as told:
        refused()
    assert told.report.exact
    assert [operand.shape for operand in told.report.operands] == [(3, 4), (2, 4)]


def doubled(parameter):
    """A hook that returns nothing, as it has to."""
    parameter.grad.mul_(2).add_(1)


def training_step(backend):
    """Return a compiled step that breaks its graph at ``backward``, and what it trains; hooks run in between."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.weight.register_post_accumulate_grad_hook(doubled)
    net.bias.register_hook(lambda gradient: (gradient * 3).sin())

    @torch.compile(backend=backend)
    def step(x):
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()

    return step, net


def noting(found, note=lambda graph: graph):
    """Return a backend that notes what it is given to compile, and runs it as it is."""

    def backend(graph, _):
        found.append(note(graph))
        return graph.forward

    return backend


def trained(context):
    """Train for three steps in a context; returns the parameters and the calls that Dynamo compiled."""
    torch._dynamo.reset()
    compiled = []
    step, net = training_step(noting(compiled, lambda graph: [str(node.target) for node in graph.graph.nodes]))
    with context:
        for _ in range(3):
            step(torch.ones(5, 4))
    return [parameter.tolist() for parameter in net.parameters()], compiled


@pytest.mark.parametrize("options", [{}, {"level": "ops"}, {"every": 2}, {"forward": True}], ids=str)
@pytest.mark.filterwarnings("error:Dynamo does not know how to trace")
def test_dynamo_compiles_nothing_of_ours_where_a_compiled_step_calls_backward(options):
    """The user's hooks are compiled as ever, the tracer's are not; no counter of torch's is left one too high."""
    untraced, trace = trained(nullcontext()), tm.trace(**options)
    assert any("sin" in graph for graph in untraced[1]), "hooks are compiled"
    assert trained(trace) == untraced
    report = trace.report
    assert report.passes_seen == 3
    assert report.passes[0].reached == len(report.nodes) == 6
    assert not [gap for gap in report.gaps if gap.section == "backward"]
    assert functorch_levels() == ()


def test_dynamo_compiles_nothing_of_ours_where_memory_is_followed():
    """The same, with the mode that follows memory."""
    untraced = trained(nullcontext())
    assert trained(tm.track_memory()) == untraced


def test_a_custom_function_between_compiled_pieces_has_its_line():
    """Where a graph breaks at a custom Function, what notes its line is not compiled either."""
    compiled = []

    @torch.compile(backend=noting(compiled))
    def loss(weight):
        torch._dynamo.graph_break()
        return Same.apply(weight * 2).sum()

    weight = torch.ones(3, requires_grad=True)
    loss(weight).backward()
    count = len(compiled)
    torch._dynamo.reset()
    with tm.trace() as trace:
        loss(weight).backward()
    assert len(compiled) == 2 * count
    assert [node.kind for node in trace.report.nodes].count("custom") == 1
