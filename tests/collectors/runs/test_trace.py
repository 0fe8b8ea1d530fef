"""The tracer on real runs: every number against torch's own, every name and line against the source."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tensormagic.collectors.calls.call_watch import CallWatch
from tensormagic.collectors.gradients.traced_graph import MOST_PASSES
from tensormagic.reports import UNREADABLE, UNTOUCHED, PassContext


def nodes_of(root):
    """Walk a graph the way torchviz does: every node once, by next_functions."""
    seen, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.append(node)
            waiting += [target for target, _ in node.next_functions if target is not None]
    return seen


def traced(run, **names):
    with tm.trace(namespace=names) as trace:
        run()
    return trace.report


def node(report, op, number=0):
    return [found for found in report.nodes if found.op == op][number]


def last_norm(report, found):
    return report.graphs[0].frames[-1].norms[found.index]


def test_a_run_that_is_printed_says_where_its_report_is():
    """At the end of a cell, where one may expect the report itself."""
    assert repr(tm.trace()) == "<Trace: what it saw is its .report>"


def test_nodes_and_edges_are_those_of_the_grad_fn_chain():
    """Node for node and edge for edge the graph is autograd's own."""
    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(4, 4, requires_grad=True)
    with tm.trace() as trace:
        h = (x @ w).relu()
        loss = (h + h.sigmoid() * x).square().mean()
        real = nodes_of(loss.grad_fn)
        names = sorted(found.name().rsplit("::", 1)[-1] for found in real)
        edges = sum(target is not None for found in real for target, _ in found.next_functions)
        del real
        loss.backward()
    graph = trace.report.graphs[0]
    assert sorted(found.name for found in graph.nodes) == names
    assert len(graph.edges) == edges
    assert [graph.nodes[root].name for root in graph.roots] == ["MeanBackward0"]


def test_norms_are_those_of_autograd_grad():
    """Every node's norm is the norm of the gradient that autograd computes for what the node made."""
    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(4, 5, requires_grad=True)

    def forward():
        a = x @ w
        b = a.sigmoid()
        c = b * a
        return a, b, c, c.square().sum()

    a, b, c, loss = forward()
    expected = [g.norm().item() for g in torch.autograd.grad(loss, (a, b, c, x, w))]
    report = traced(lambda: forward()[-1].backward(), x=x, w=w)  # noqa: PLW0108  (forward must run inside)
    names = [node(report, op) for op in ("mm", "sigmoid", "mul")]
    leaves = [found for name in "xw" for found in report.nodes if found.variable == name]
    measured = [last_norm(report, found) for found in names + leaves]
    assert measured == pytest.approx(expected, rel=1e-5)


def test_first_pass_statistics():
    """Mean, standard deviation, zeros and largest magnitude are NumPy's over the same gradient."""
    gradient = torch.randn(50, 20)
    gradient[gradient < 0] = 0
    x = torch.zeros(50, 20, requires_grad=True)
    report = traced(lambda: (x * 1.0).backward(gradient), x=x)
    found = node(report, "mul").statistics
    values = gradient.double().numpy()
    assert (found.count, found.zero, found.nan, found.inf) == (1000, int((values == 0).sum()), 0, 0)
    assert (found.norm, found.abs_max, found.mean, found.std) == pytest.approx(
        ((values**2).sum() ** 0.5, values.max(), values.mean(), values.std()), rel=1e-5
    )


def test_lines_and_modules():
    """Each node has the user's own line, and the path of the module whose forward made it."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    with tm.trace(namespace={"net": net}) as trace:
        out = net(torch.randn(2, 3))
        loss = out.square().mean()
        loss.backward()
    report = trace.report
    text = {found.op: report.locations[found.location].text for found in report.nodes if found.location is not None}
    assert text["addmm"] == "out = net(torch.randn(2, 3))"
    assert text["pow"] == text["mean"] == "loss = out.square().mean()"
    assert [found.module for found in report.nodes if found.op == "addmm"] == ["net.0", "net.2.0"]
    assert node(report, "relu").module == "net.1"
    assert node(report, "mean").module == ""
    assert report.locations[report.passes[0].location].text == "loss.backward()"


def test_lines_inside_functions():
    """A node made in a function has the line inside it, not the line that called it."""

    def model(x):
        h = x.exp()
        return h.sum()

    x = torch.zeros(2, requires_grad=True)
    report = traced(lambda: model(x).backward())
    where = report.locations[node(report, "exp").location]
    assert (where.text, where.function) == ("h = x.exp()", "model")


def test_a_custom_function_has_its_name_and_its_line():
    """A custom Function is not seen by a function mode, and has its own line all the same."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(3, requires_grad=True)
    with tm.trace(namespace={}) as trace:
        y = (x + 1).contiguous()
        z = Double.apply(y)
        z.sum().backward()
    found = node(trace.report, "Double")
    assert (found.kind, found.exact_location) == ("custom", True)
    assert trace.report.location(found.location).text == "z = Double.apply(y)"
    assert [(saved.name, saved.shape, saved.state) for saved in found.saved] == [("saved_tensors[0]", (3,), "ok")]


def test_names_of_parameters_leaves_and_results():
    """Parameters have their path, plain leaves their name, and what a node made the name that holds it."""
    net, x = nn.Linear(2, 1), torch.ones(2, requires_grad=True)
    namespace = {"net": net, "x": x}
    with tm.trace(namespace=namespace) as trace:
        namespace["loss"] = net(x).sum()
        namespace["loss"].backward()
    report = trace.report
    assert {found.variable for found in report.nodes if found.kind == "accumulate"} == {"net.weight", "net.bias", "x"}
    assert node(report, "sum").variable == "loss"
    assert [(series.name, series.owner, series.is_parameter) for series in report.parameters] == [
        ("net.weight", "net", True), ("net.bias", "net", True), ("x", "", False),
    ]  # fmt: skip


def test_a_model_inside_a_function_is_named_by_its_class():
    """A model that no name in the namespace holds is found by being called."""

    def train():
        nn.Sequential(nn.Linear(2, 1))(torch.ones(1, 2)).sum().backward()

    assert {series.name for series in traced(train).parameters} == {"Sequential.0.weight", "Sequential.0.bias"}


def test_a_loop_is_one_graph_with_a_time_axis():
    """Ten steps share one skeleton; every parameter has one number a step."""
    net = nn.Linear(3, 1)

    def loop():
        for step in range(10):
            net.zero_grad()
            (net(torch.ones(4, 3)).sum() * step).backward()

    report = traced(loop, net=net)
    assert (len(report.graphs), report.graphs[0].passes_seen, report.passes_seen, report.steps_seen) == (1, 10, 10, 10)
    bias = next(series for series in report.parameters if series.name == "net.bias")
    assert list(bias.norms) == [4.0 * step for step in range(10)]
    assert bias.touched == 10


def test_different_batch_sizes_share_a_skeleton():
    """The last, smaller batch of an epoch is the same graph."""
    net = nn.Linear(3, 1)
    report = traced(lambda: [net(torch.ones(size, 3)).sum().backward() for size in (4, 4, 2)])
    assert [graph.passes_seen for graph in report.graphs] == [3]


def test_two_different_graphs_are_kept_apart():
    """A generator and a discriminator are two skeletons, most used first."""
    a, b = nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def loop():
        for _ in range(3):
            a(torch.ones(1, 2)).sum().backward()
        b(torch.ones(1, 2)).sum().backward()

    report = traced(loop, a=a, b=b)
    assert [graph.passes_seen for graph in report.graphs] == [3, 1]
    assert [done.graph for done in report.passes] == [1, 1, 1, 2]


def test_retained_graph_accumulates_in_one_step():
    """Two backwards through one graph are two passes of one step."""
    x = torch.ones(2, requires_grad=True)

    def run():
        loss = (x * 3).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    report = traced(run, x=x)
    assert [(done.number, done.step) for done in report.passes] == [(1, 1), (2, 1)]
    assert x.grad.tolist() == [6, 6]


def test_a_graph_made_before_the_trace():
    """Only the backward runs inside: the graph is there, its lines are not known, and that is said by None."""
    x = torch.ones(2, requires_grad=True)
    loss = (x * 3).sum()
    report = traced(loss.backward, x=x)
    assert [(found.op, found.location) for found in report.nodes] == [
        ("accumulate", None),
        ("mul", None),
        ("sum", None),
    ]
    assert last_norm(report, node(report, "mul")) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("call", ["torch.autograd.backward(loss)", "torch.autograd.backward([loss])",
                                  "torch.autograd.grad(loss, x)", "torch.autograd.grad([loss], [x])",
                                  "torch.autograd.grad(outputs=loss, inputs=x)"])  # fmt: skip
def test_every_way_to_call_backward(call):
    """backward() on a tensor, autograd.backward and autograd.grad are one pass each, the leaf's gradient included."""
    x = torch.ones(4, requires_grad=True)
    names = {"torch": torch, "x": x}
    with tm.trace(namespace=names) as trace:
        names["loss"] = (x * 3).sum()
        eval(call, names)
    report = trace.report
    assert [done.outcome for done in report.passes] == ["finished"]
    assert [list(series.norms) for series in report.parameters if series.name == "x"] == [[6.0]]


def test_double_backward():
    """create_graph: the second backward's graph holds the nodes that the first made, on the first one's line."""
    x = torch.tensor([2.0], requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = (x**3).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        first.sum().backward()
    report = trace.report
    assert [done.outcome for done in report.passes] == ["finished", "finished"]
    assert x.grad.item() == pytest.approx(12)
    second = report.graphs[0]  # that of the loss comes first: it is drawn
    assert second.number == 2
    texts = {report.locations[found.location].text for found in second.nodes if found.location is not None}
    assert "(first,) = torch.autograd.grad(y, x, create_graph=True)" in texts


def test_the_tracer_s_reductions_stay_out_of_a_created_graph():
    """With create_graph the gradient has the graph it would have without us: nothing of ours hangs on it."""

    def gradient_nodes(trace):
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        with trace:
            (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        return sorted(found.name() for found in nodes_of(first.grad_fn))

    import contextlib

    assert gradient_nodes(tm.trace()) == gradient_nodes(contextlib.nullcontext())


def test_nan_is_born_in_the_log_of_zero():
    """The first NaN names the node, the receiving node, the counts, and the zeros in its saved input."""
    x = torch.tensor([0.0, 1.0, 0.0, 2.0], requires_grad=True)

    def run():
        h = x * torch.tensor([1.0, 1.0, 1.0, 1.0])
        (h.log() * torch.tensor([0.0, 1.0, 0.0, 1.0])).sum().backward()

    report = traced(run, x=x)
    (nonfinite,) = report.graphs[0].first_nonfinite
    assert (report.nodes[nonfinite.node].op, report.nodes[nonfinite.receiver].op) == ("log", "mul")
    assert (nonfinite.nan, nonfinite.inf, nonfinite.count) == (2, 0, 4)
    assert (nonfinite.saved_name, nonfinite.saved_zero) == ("self", 2)
    assert nonfinite.certain
    assert report.graphs[0].frames[0].bad["0"] == (2, 0)
    assert math.isnan(report.parameters[0].norms[0])


def test_the_nan_among_several_feeders_is_at_the_one_that_made_it():
    """Where two edges feed one gradient, only the node that sent the NaN is blamed."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)

    def run():
        h = x * 1.0
        (h.sqrt() * torch.tensor([0.0, 1.0]) + h.exp()).sum().backward()

    report = traced(run, x=x)
    assert [(report.nodes[nonfinite.node].op, nonfinite.certain) for nonfinite in report.graphs[0].first_nonfinite] == [
        ("sqrt", True)
    ]


def test_infinite_gradients_are_not_nan():
    """An Inf is counted as Inf: anomaly mode lets it pass silently."""
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    report = traced(lambda: (x * 1.0).sqrt().sum().backward(), x=x)
    (nonfinite,) = report.graphs[0].first_nonfinite
    assert (nonfinite.nan, nonfinite.inf) == (0, 1)
    assert math.isinf(last_norm(report, report.nodes[nonfinite.receiver]))


def test_what_backward_does_not_reach_is_untouched():
    """autograd.grad for one of two leaves leaves the other branch untouched, and says so by its sentinel."""
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    report = traced(lambda: torch.autograd.grad((x * 2).sum() + (y * 3).exp().sum(), x), x=x, y=y)
    by_name = {series.name: series.norms[0] for series in report.parameters}
    assert by_name == {"x": pytest.approx(math.sqrt(8)), "y": UNTOUCHED}
    assert last_norm(report, node(report, "exp")) == UNTOUCHED


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_dtypes(dtype):
    """Norms are right in every gradient dtype."""
    x = torch.ones(8, dtype=dtype, requires_grad=True)
    report = traced(lambda: (x * 3).abs().sum().backward(), x=x)
    assert report.parameters[0].norms[0] == pytest.approx(math.sqrt(72), rel=1e-2)
    assert report.gaps == ()


def test_norms_outside_the_range_of_their_type():
    """float16 sums and float32 squares overflow or vanish; the norm does not."""
    for dtype, scale in ((torch.float16, 3e4), (torch.float32, 1e25), (torch.float32, 1e-30)):
        x = torch.ones(16, dtype=dtype, requires_grad=True)
        report = traced(lambda x=x, dtype=dtype, scale=scale: (x * 1).backward(torch.full((16,), scale, dtype=dtype)))
        assert report.parameters[0].norms[0] == pytest.approx(4 * scale, rel=1e-3)
        assert report.passes[0].finite


def test_sparse_gradients():
    """An embedding's sparse gradient is measured by its summed values."""
    table = nn.Embedding(10, 3, sparse=True)
    report = traced(lambda: table(torch.tensor([1, 1, 2])).sum().backward(), table=table)
    assert report.parameters[0].norms[0] == pytest.approx(table.weight.grad.to_dense().norm().item())


def test_what_passes_through_unchanged_is_right_even_with_a_hook_in_between():
    """A transpose hands its gradient on unread; a hook that changes it there is not overlooked."""
    w = torch.ones(2, 3, requires_grad=True)
    report = traced(lambda: (w.t() * 2).sum().backward(), w=w)
    assert report.parameters[0].norms[0] == pytest.approx(math.sqrt(24))
    w.register_hook(lambda gradient: gradient * 10)
    report = traced(lambda: (w.t() * 2).sum().backward(), w=w)
    assert report.parameters[0].norms[0] == pytest.approx(10 * math.sqrt(24))


def test_a_failing_backward_is_a_failed_pass():
    """The error goes on; the pass says that it failed and how far it came."""

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("broken")

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="broken"), tm.trace(namespace={"x": x}) as trace:
        (Broken.apply(x * 2) * 3).sum().backward()
    report = trace.report
    assert (report.state, report.error) == ("failed", "ValueError: broken")
    assert [done.outcome for done in report.passes] == ["failed"]
    assert last_norm(report, node(report, "mul")) == UNTOUCHED


def test_hooks_exist_only_during_a_backward():
    """After a pass no node of the graph has a hook, and a later backward outside the trace is not recorded."""
    x = torch.ones(2, requires_grad=True)
    with tm.trace() as trace:
        loss = (x * 2).sum()
        loss.backward(retain_graph=True)
    loss.backward()
    assert trace.report.passes_seen == 1


def test_a_long_run_is_thinned_and_says_so():
    """A thousand passes keep the first and the last, evenly thinned, and the count of all."""
    x = torch.ones(2, requires_grad=True)
    report = traced(lambda: [(x * step).sum().backward() for step in range(1000)], x=x)
    graph = report.graphs[0]
    kept = [frame.pass_number for frame in graph.frames]
    assert (graph.passes_seen, report.passes_seen, kept[0], kept[-1]) == (1000, 1000, 1, 1000)
    assert len(kept) <= MOST_PASSES + 2
    assert len({b - a for a, b in itertools.pairwise(kept[:-1])}) == 1
    assert len(report.parameters[0].norms) == len(report.passes) <= MOST_PASSES + 2


def test_the_first_bad_pass_is_never_thinned_out():
    """Among many passes the one in which the NaN was born is kept."""
    x = torch.ones(1, requires_grad=True)

    def loop():
        for step in range(400):
            (x * (math.nan if step == 137 else 1.0)).sum().backward()

    report = traced(loop, x=x)
    assert 138 in [frame.pass_number for frame in report.graphs[0].frames]
    assert 138 in [done.number for done in report.passes]


def test_nothing_is_kept_alive():
    """Neither the report nor the trace keeps a tensor, a module or a node."""
    net = nn.Linear(2, 2)
    x = torch.ones(2, 2, requires_grad=True)
    with tm.trace(namespace={}) as trace:
        out = net(x)
        out.sum().backward()
    watched = [weakref.ref(thing) for thing in (net, x, out, net.weight)]
    report = trace.report
    del net, x, out
    gc.collect()
    assert [reference() for reference in watched] == [None] * 4
    assert report.nodes


def test_saved_tensors_changed_in_place_are_named():
    """A saved tensor that was written to is listed as changed, before backward raises."""
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"), tm.trace(namespace={"x": x}) as trace:  # noqa: PT012
        y = x.exp()
        y.add_(1)
        y.sum().backward()
    assert [saved.state for saved in node(trace.report, "exp").saved] == ["changed in place"]


def test_packed_tensors_are_not_unpacked():
    """Saved-tensor hooks of the user's own run as often as without us."""
    unpacked = []
    x = torch.ones(3, requires_grad=True)
    with (
        tm.trace(namespace={"x": x}) as trace,
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(1) or t),
    ):
        x.exp().log().sum().backward()
    assert len(unpacked) == 2
    assert node(trace.report, "log").saved[0].state == "packed by a hook"


def test_the_person_s_dispatch_mode_does_not_see_us():
    """A dispatch mode of the user's own counts the same ops as without the trace."""
    import contextlib

    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.ops = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.ops.append(str(func))
            return func(*args, **(kwargs or {}))

    def ops(trace):
        x = torch.ones(3, requires_grad=True)
        with trace, Counter() as counter:
            (x.log() * 2).sum().backward()
        return counter.ops

    assert ops(tm.trace()) == ops(contextlib.nullcontext())


def test_a_snapshot_while_running():
    """The report can be asked for inside the block: running, with the passes so far."""
    x = torch.ones(2, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        (x * 2).sum().backward()
        assert (trace.report.state, trace.report.passes_seen) == ("running", 1)
        frame = trace.frame()
        assert (frame.finished_pass, frame.running, list(frame.parameter_norms)) == (1, False, [pytest.approx(8**0.5)])


def test_inputs_of_a_segment_that_was_checkpointed_have_their_gradient():
    """A re-entrant checkpoint gives them one in a pass of its own: they are not said to have got none."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    with tm.trace(namespace={"net": net}) as trace:
        h = checkpoint(net[0], torch.ones(2, 3, requires_grad=True) * 1, use_reentrant=True)
        net[2](h).sum().backward()
    (unnamed,) = [series for series in trace.report.parameters if series.name == "leaf (2, 3)"]
    assert unnamed.norms[0] > 0
    assert trace.report.title == "net", "not that of the part which was called first"


class Unreachable:
    """A proxy whose other side is gone: whatever it is asked, it raises."""

    @property
    def __class__(self):
        """Ask the other side."""
        raise ConnectionError

    @property
    def __dict__(self):
        """Ask the other side."""
        raise ConnectionError


class Uncounted(dict):
    """A dictionary whose code is not to run."""

    def items(self):
        """Refuse."""
        raise AssertionError


def test_what_lies_in_the_namespace_is_not_asked_what_it_is():
    """Proxies raise for their class; the run goes on, and is traced as it would be without them."""
    holder = SimpleNamespace(proxy=Unreachable(), net=torch.nn.Linear(2, 2))
    names = {"a": Unreachable(), "b": [Unreachable()], "c": Uncounted(d=Unreachable()), "holder": holder}
    with tm.trace(namespace=names) as trace:
        torch.nn.Linear(2, 1)(holder.net(torch.ones(1, 2))).sum().backward()
    assert trace.report.passes_seen == 1
    assert "Linear.weight" in {series.name for series in trace.report.parameters}
    assert trace.report.gaps == ()


class Shut(torch.nn.Linear):
    """A module that does not let anybody list what is in it."""

    def named_modules(self, *_args, **_kwargs):
        """Refuse."""
        raise ConnectionError


def test_a_module_that_cannot_be_listed_does_not_end_the_run():
    """Its calls have their lines, and no path."""
    with tm.trace(namespace={}) as trace:
        Shut(2, 1)(torch.ones(1, 2)).sum().backward()
    assert trace.report.passes_seen == 1


def test_forward_that_nobody_saw_begins_a_step_all_the_same():
    """A scripted function makes its nodes out of sight; a graph that is run through again begins none."""
    x = torch.ones(3, requires_grad=True)

    @torch.jit.script
    def loss(x: torch.Tensor):
        return (x * x).sum()

    with tm.trace(namespace={}) as trace:
        for _ in range(3):
            loss(x).backward()
        kept = loss(x)
        kept.backward(retain_graph=True)
        kept.backward()
    assert [done.step for done in trace.report.passes] == [1, 2, 3, 4, 4]


def test_misuse_is_refused():
    """Each trace once, also while it is on."""
    with tm.trace() as trace, pytest.raises(tm.TraceError, match="before"):
        trace.__enter__()
    with pytest.raises(tm.TraceError, match="before"):
        trace.__enter__()


def test_a_deep_graph_is_walked_without_recursion():
    """Five thousand nodes in a chain."""
    x = torch.ones(1, requires_grad=True)

    def run():
        y = x
        for _ in range(5000):
            y = y + 1
        y.backward()

    report = traced(run, x=x)
    assert len(report.nodes) == 5001
    assert set(report.graphs[0].frames[0].norms) == {1.0}


def test_functorch_transforms_are_followed():
    """A gradient inside torch.func.grad is a pass of its own, which says what it ran in; the result is the same."""
    with tm.trace(namespace={}) as trace:
        value = torch.func.grad(lambda x: (x**2).sum())(torch.tensor([3.0]))
    assert value.tolist() == [6.0]
    report = trace.report
    assert report.gaps == ()
    assert [done.pass_context for done in report.passes] == [PassContext(levels=("grad",))]
    assert last_norm(report, report.nodes[0]) == 6.0


def test_gradients_that_cannot_be_measured_are_a_gap_not_an_error():
    """On the meta device there are no numbers: the nodes are there, marked unreadable."""
    x = torch.ones(2, requires_grad=True, device="meta")
    report = traced(lambda: (x * 2).sum().backward(), x=x)
    assert set(report.graphs[0].frames[0].norms) <= {UNREADABLE, UNTOUCHED}
    assert [gap.section for gap in report.gaps] == ["gradients"]


def test_recurrent_weights_used_many_times():
    """A weight used in every time step is one leaf, with the summed gradient."""
    w = torch.eye(2).requires_grad_()

    def run():
        h = torch.ones(2)
        for _ in range(5):
            h = w @ h
        h.sum().backward()

    report = traced(run, w=w)
    assert [series.name for series in report.parameters] == ["w"]
    assert report.parameters[0].norms[0] == pytest.approx(w.grad.norm().item(), rel=1e-5)


def test_cross_entropy_on_a_network_reads_well():
    """The ops of an ordinary classifier have readable names in order of creation."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    report = traced(lambda: F.cross_entropy(net(torch.ones(2, 1, 8, 8)), torch.tensor([0, 1])).backward(), net=net)
    ops = [found.op for found in report.nodes if found.kind == "op"]
    assert ops == ["convolution", "relu", "view", "t", "addmm", "log_softmax", "nll_loss"]


def test_no_time_has_passed_before_a_trace_begins():
    """A live panel is shown before the cell starts: until then the run has taken no time, not that since the boot."""
    trace = tm.trace()
    assert trace.report.seconds == trace.frame().seconds == 0.0


def test_the_loss_is_read_once_a_pass():
    """What backward was called on is the pass's value, where it is one number."""
    x = torch.tensor([2.0, 3.0], requires_grad=True)

    def run():
        x.square().sum().backward()
        (x * 2).backward(torch.ones(2))
        torch.autograd.backward([x.sum(), x.prod()])

    assert [done.value for done in traced(run, x=x).passes] == [13.0, None, None]


def test_a_saved_tensor_that_cannot_be_read_does_not_spoil_the_gradient():
    """The input of log was changed in place: backward raises, but the gradient that arrived at log is measured."""
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"), tm.trace(namespace={"x": x}) as trace:  # noqa: PT012
        h = x * 1
        out = h.log()
        h.add_(1)
        out.sum().backward()
    assert last_norm(trace.report, node(trace.report, "log")) == pytest.approx(math.sqrt(3))
    assert trace.report.gaps == ()


def test_what_an_addition_hands_on_is_told_without_being_read_again():
    """Both inputs of a residual sum get what it received; a hook that changed one of them is not overlooked."""
    x = torch.tensor([3.0, 4.0], requires_grad=True)

    def residual(hook=None):
        h = x * 1.0
        branch = h * 2
        if hook is not None:
            branch.register_hook(hook)
        (h + branch).sum().backward()

    def sent_to_h(report):
        (graph,) = report.graphs
        named = [
            (graph.nodes[graph.edges[at].source].op, part)
            for at, part in zip(graph.shared_edges, graph.frames[0].parts, strict=True)
        ]
        return {op: round(part, 5) for op, part in named}

    assert sent_to_h(traced(residual, x=x)) == {"add": round(math.sqrt(2), 5), "mul": round(math.sqrt(8), 5)}
    tenfold = traced(lambda: residual(lambda gradient: gradient * 10), x=x)
    assert sent_to_h(tenfold) == {"add": round(math.sqrt(2), 5), "mul": round(math.sqrt(800), 5)}


def test_a_gradient_that_was_computed_is_read_wherever_it_lies():
    """An allocator gives the address of a gradient that is done with to the next one."""
    memory = np.ones(4, dtype=np.float32)

    class Thrice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            memory[:] = 3 * gradient.numpy()
            return torch.from_numpy(memory)

    x = torch.ones(4, requires_grad=True)
    report = traced(lambda: Thrice.apply(Thrice.apply(x.exp())).sum().backward(), x=x)
    assert last_norm(report, node(report, "exp")) == pytest.approx(18)


def test_what_begins_at_the_same_address_is_not_taken_for_the_same():
    """The real part of a gradient, or one element repeated, begins where the whole does and has as many elements."""

    def real_plus_complex(x):
        return ((x * 1.0) + torch.tensor([3 + 4j, 1 + 2j])).abs()

    def with_a_hook(x):
        y = x * 1.0
        y.register_hook(lambda gradient: gradient[:1].expand(2))
        return y * torch.tensor([3.0, 4.0])

    for forward, expected in ((real_plus_complex, [0.6, 1 / math.sqrt(5)]), (with_a_hook, [3.0, 3.0])):
        x = torch.zeros(2, requires_grad=True)
        report = traced(lambda: [forward(x).sum().backward() for _ in range(3)], x=x)  # noqa: B023
        first = min(found.index for found in report.nodes if found.op == "mul")
        for frame in report.graphs[0].frames:
            assert frame.norms[first] == pytest.approx(math.hypot(*expected))
            assert (frame.measured(first) or [max(expected)])[0] == pytest.approx(max(expected))


@pytest.mark.parametrize(
    ("parts_of", "expected"),
    [
        (lambda x: (x[0], x[1:]), (math.sqrt(12), 8.0, math.sqrt(72))),
        (lambda x: x.split([1, 2]), (math.sqrt(12), math.sqrt(64 + 72))),
        (lambda x: x.unbind(0)[:2], (math.sqrt(12), 10.0)),
    ],
    ids=["select and slice", "split", "unbind"],
)
def test_what_is_padded_with_zeros_is_told_with_the_norm_of_what_is_in_it(parts_of, expected):
    """Several slices of one tensor each send it a gradient of zeros but for their own part: 4 in four elements, 3."""
    w = torch.ones(3, 4, requires_grad=True)
    with tm.trace(namespace={"w": w}) as trace:
        x = w * 2
        first, second = parts_of(x)
        (first.square().sum() + 3 * second.sum() + x.sum()).backward()
    assert sorted(trace.report.graphs[0].frames[0].parts) == pytest.approx(sorted(expected))


def test_a_report_asked_for_meanwhile_has_the_line_of_all_it_tells(monkeypatch):
    """What the run notes while the report is put together comes with its line, or not at all."""
    told = CallWatch.observations

    def meanwhile(watch):
        trace._tracer._sites.number(__file__, 10_000 + len(asked))
        asked.append(told(watch))
        return asked[-1]

    asked = []
    monkeypatch.setattr(CallWatch, "observations", meanwhile)
    with tm.trace(namespace={}) as trace:
        torch.ones(2, requires_grad=True).sum().backward()
        assert trace.report.locations[-1].line == 10_000


def test_the_title_names_every_network_that_trained():
    """A generator and a discriminator are one run of both; a frozen teacher that is only read is none of them."""
    generator, discriminator, teacher = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 2).requires_grad_(False)
    with tm.trace(namespace={"G": generator, "D": discriminator, "teacher": teacher}) as trace:
        fake = generator(torch.randn(3, 2))
        discriminator(fake.detach()).sum().backward()
        (discriminator(fake).sum() + (fake - teacher(fake.detach())).square().sum()).backward()
    assert trace.report.title == "G and D"
