"""Forward values on demand: every number against torch's own, on the node that made it; nothing where not asked for."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.reports import MEASURES, UNTOUCHED


def traced(run, **names):
    torch.manual_seed(0)
    with tm.trace(forward=True, namespace=names) as trace:
        run()
    return trace.report


def row(graph, index, at=-1):
    """Return the norm of a node's value and what `MEASURES` names, in one of the kept passes."""
    forward = graph.frames[at].forward
    return forward.norms[index], *forward.measures[index * len(MEASURES) : (index + 1) * len(MEASURES)]


def node(graph, op):
    return next(found.index for found in graph.nodes if op in (found.op, found.variable))


def expected(x):
    x = x.detach().double()
    share = (x == 0).double().mean()
    return [float(each) for each in (x.norm(), x.abs().max(), x.mean(), x.std(correction=0), share)]


def test_numbers_are_those_of_the_outputs():
    """Norm, largest magnitude, mean, deviation and zeros of what each op made, and of the leaves as they stood."""
    w, x = torch.randn(4, 5, requires_grad=True), torch.randn(3, 4)
    made = {}

    def run():
        made["mm"] = x @ w
        made["relu"] = made["mm"].relu()
        made["sum"] = made["relu"].sum()
        made["sum"].backward()

    graph = traced(run, w=w).graphs[0]
    for op, value in {**made, "w": w}.items():
        assert row(graph, node(graph, op))[:5] == pytest.approx(expected(value), rel=1e-5), op


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.where(x.abs() > 1, x, x.flip(0)),  # takes the memory that the magnitudes had
        lambda x: (x * 2).as_strided((3, 3), (0, 0)),
        lambda x: [(y := x * 2)[0], y[:, 0]][1],
        lambda x: [(y := x * 2)[:, 0], y[0]][1],
    ],
    ids=["where", "as_strided", "a column after a row", "a row after a column"],
)
def test_a_value_at_the_address_of_the_one_before_is_measured_itself(run):
    """Memory that was freed is used again, and a row and a column begin with the same element."""
    torch.manual_seed(0)
    x = torch.randn(3, 3, requires_grad=True)
    made = []
    report = traced(lambda: (made.append(run(x)), made[0].sum().backward()), x=x)
    (graph,) = report.graphs
    measured = row(graph, graph.roots[0] - 1)[:5]
    assert measured == pytest.approx(expected(made[0]), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("device", [None, "simulated"])
def test_several_outputs_of_one_node_are_told_together(device, request):
    """``unbind`` makes three tensors: their numbers are those of what they are pieces of, on a device too."""
    if device:
        request.getfixturevalue(device)
    x = torch.randn(3, 4, requires_grad=True)
    whole = (x * 2).detach()

    def run():
        a, b, c = (x * 2).unbind()
        (a * b + c).sum().backward()

    graph = traced(run).graphs[0]
    assert row(graph, node(graph, "unbind"))[:5] == pytest.approx(expected(whole), rel=1e-5)


def test_every_pass_has_its_own_values():
    """The values of a step are those of its own forward, also where a graph is gone through twice."""
    w = torch.ones(2, requires_grad=True)

    def run():
        for step in (1.0, 2.0):
            y = (w * step).sum()
            y.backward(retain_graph=True)
            y.backward()

    graph = traced(run).graphs[0]
    mul = node(graph, "mul")
    assert [row(graph, mul, at)[1] for at in range(4)] == [1.0, 1.0, 2.0, 2.0]


def test_values_behind_another_graph_are_still_known():
    """The pass through the critic comes first; the generator's own values are those of the forward before it."""
    generator, critic, z = nn.Linear(2, 2), nn.Linear(2, 1), torch.randn(3, 2)
    kept = {}

    def run():
        fake = kept["fake"] = generator(z).tanh()
        critic(fake.detach()).mean().backward()
        critic(fake).mean().backward()

    through = next(graph for graph in traced(run).graphs if any(found.op == "tanh" for found in graph.nodes))
    assert row(through, node(through, "tanh"))[0] == pytest.approx(float(kept["fake"].detach().norm()), rel=1e-5)


def test_the_first_infinity_of_the_forward_has_its_line():
    """``log`` of a zero: the node, its line, how many elements, and that its inputs were finite."""
    w = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)

    def run():
        y = w * 1
        z = y.log()
        (z * 2).sum().backward()

    report = traced(run)
    graph = report.graphs[0]
    nonfinite = graph.forward_nonfinite
    assert (graph.nodes[nonfinite.node].op, nonfinite.pass_number) == ("log", 1)
    assert (nonfinite.nan, nonfinite.inf, nonfinite.count) == (0, 1, 3)
    assert nonfinite.given is False
    assert report.location(graph.nodes[nonfinite.node].location).text == "z = y.log()"
    assert graph.frames[0].forward.bad[str(nonfinite.node)] == (0, 1)
    assert math.isinf(row(graph, nonfinite.node)[0])


def test_a_nan_in_the_data_is_told_as_given():
    """The first op that meets the batch makes the NaN, but had it from there."""
    net = nn.Linear(2, 1)
    nonfinite = traced(lambda: net(torch.tensor([[1.0, math.nan]])).sum().backward()).graphs[0].forward_nonfinite
    assert nonfinite.given is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_numbers_reckoned_on_a_device_are_the_same(dtype, request):
    """They come with those of the pass, and are what is read at once on a CPU."""
    rows = []
    for device in (None, "simulated"):
        if device:
            request.getfixturevalue(device)
        x = torch.linspace(-2, 2, 12).to(dtype).requires_grad_()
        with tm.trace(forward=True) as trace:
            (x * 2).abs().sum().backward()
        assert trace.report.gaps == ()
        forward = trace.report.graphs[0].frames[0].forward
        rows.append([*forward.norms, *forward.measures])
    assert rows[0] == pytest.approx(rows[1], rel=1e-3, abs=1e-7)


def test_nothing_is_measured_where_it_was_not_asked_for():
    """Off by default: no frame has forward values."""
    w = torch.ones(2, requires_grad=True)
    with tm.trace() as trace:
        (w * 2).sum().backward()
    assert [frame.forward for frame in trace.report.graphs[0].frames] == [None]


def test_results_and_random_numbers_are_the_same_with_it():
    """Dropout, an in-place write, autocast and a custom class: bit for bit what they are without."""

    def run():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.randn(3, 4)).float().square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad for p in net.parameters()), torch.rand(1)]

    plain = run()
    with tm.trace(forward=True) as trace:
        looked = run()
    assert all(map(torch.equal, plain, looked))
    assert not trace.report.gaps


def test_nothing_is_kept_alive():
    """What was measured is gone as soon as the user lets it go."""
    w = torch.ones(2, requires_grad=True)
    with tm.trace(forward=True):
        y = (w * 2).exp()
        gone = weakref.ref(y)
        y.sum().backward()
        del y
        gc.collect()
        assert gone() is None


def test_what_a_call_made_inside_has_no_value():
    """``cross_entropy`` returns one tensor: the ``log_softmax`` in it is not seen, and says so."""
    net = nn.Linear(2, 3)
    graph = traced(lambda: F.cross_entropy(net(torch.ones(1, 2)), torch.tensor([1])).backward()).graphs[0]
    assert row(graph, node(graph, "log_softmax"))[0] == UNTOUCHED
    assert row(graph, node(graph, "nll_loss"))[0] > 0


def test_values_inside_transforms():
    """Inside ``grad`` and ``hessian`` a value is what the wrapper holds; under ``vmap`` the numbers are over all."""
    x = torch.randn(4, 3)

    def run():
        torch.func.vmap(torch.func.grad(lambda v: (v.sin() * 2).sum()))(x)
        torch.func.hessian(lambda v: (v**3).sum())(x[0])

    report = traced(run)
    first, second = report.graphs
    assert not [gap for gap in report.gaps if gap.section == "forward"]
    assert row(first, node(first, "sin"))[:5] == pytest.approx(expected(x.sin()), rel=1e-5)
    assert row(second, node(second, "pow"))[0] == pytest.approx(float((x[0] ** 3).norm()), rel=1e-5)
