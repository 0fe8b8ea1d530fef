"""How far an optimizer's step moves each parameter, beside the pass before it."""

from __future__ import annotations

import math
import threading
import time

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

import tensormagic as tm
from tensormagic.collectors.gradients import pass_log
from tensormagic.collectors.training.updates import SAMPLE
from tensormagic.reports import UNTOUCHED


@pytest.fixture
def every_step(monkeypatch):
    """Measure every step, whatever it costs."""
    monkeypatch.setattr(pass_log, "UPDATES_SHARE", math.inf)


def trained(net, optimizer, steps=1, width=4):
    """Trace a loop and return its series by name."""
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.ones(2, width)).square().sum().backward()
            optimizer.step()
    return {one.name: one for one in trace.report.parameters}


def test_a_step_of_gradient_descent_moves_by_rate_times_gradient():
    """The ratio is the norm of the change over the norm before, for every parameter and step of a short run."""
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    before = net.weight.detach().clone()
    series = trained(net, torch.optim.SGD(net.parameters(), lr=0.01))
    change = (net.weight.detach() - before).norm() / before.norm()
    assert list(series["net.weight"].updates) == pytest.approx([change.item()], rel=1e-5)
    assert series["net.weight"].updates[0] == pytest.approx(0.01 * series["net.weight"].norms[0] / before.norm().item())


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_weights_end_where_they_would_without_a_trace(kind):
    """Measuring a step changes no bit of it."""

    def run(traced):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = kind(net.parameters(), lr=0.01)
        with tm.trace(namespace={"net": net}) if traced else torch.enable_grad():
            for _ in range(4):
                optimizer.zero_grad()
                net(torch.ones(2, 4)).square().sum().backward()
                optimizer.step()
        return [parameter.detach() for parameter in net.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(run(traced=False), run(traced=True), strict=True))


def test_of_a_large_parameter_an_even_sample_is_compared():
    """A quarter of a million weights: the sample's ratio is that of all of them where all move alike."""
    torch.manual_seed(0)
    net = nn.Linear(512, 512, bias=False)
    assert net.weight.numel() > SAMPLE
    before = net.weight.detach().clone()
    series = trained(net, torch.optim.SGD(net.parameters(), lr=0.1), width=512)
    change = (net.weight.detach() - before).norm() / before.norm()
    assert series["net.weight"].updates[0] == pytest.approx(change.item(), rel=0.05)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.ones(3), torch.full((3,), 1e25)),  # squares beyond float32
        (torch.full((3,), 1e-30), torch.full((3,), 1e-24)),
        (torch.full((9000,), 1000.0, dtype=torch.float16), torch.full((9000,), 1100.0, dtype=torch.float16)),
        (torch.full((3,), 3 + 4j), torch.full((3,), 3 + 4.5j)),
    ],
    ids=["overflow", "underflow", "half", "complex"],
)
def test_the_ratio_is_right_at_the_ends_of_the_types(before, after):
    """Weights that explode have a finite ratio while they are finite, and tiny ones have one, too."""
    w = before.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=1.0)
    with tm.trace(namespace={"w": w}) as trace:
        (w * w).abs().sum().backward()
        w.grad = before - after
        optimizer.step()
    wide = torch.complex128 if w.is_complex() else torch.float64
    moved = (w.detach().to(wide) - before.to(wide)).norm() / before.to(wide).norm()
    assert list(trace.report.parameters[0].updates) == pytest.approx([moved.item()], rel=1e-3)


def test_a_parameter_without_gradient_was_not_moved():
    """It has no ratio, rather than a ratio of zero; one that was all zero before has an infinite one."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
    nn.init.zeros_(net[0].bias)
    net[1].requires_grad_(False)
    series = trained(net, torch.optim.SGD(net[0].parameters(), lr=0.1))
    assert series["net.0.bias"].updates[0] == math.inf
    assert series["net.1.weight"].updates[0] == UNTOUCHED


def test_a_long_run_measures_some_of_its_steps():
    """The first always; later ones as a small share of the time allows; never one beside a pass that is not kept."""
    net = nn.Linear(4, 3)
    series = trained(net, torch.optim.SGD(net.parameters(), lr=1e-4), steps=400)["net.weight"]
    measured = [ratio for ratio in series.updates if ratio != UNTOUCHED]
    assert series.updates[0] > 0
    assert 1 <= len(measured) <= len(series.norms) < 400


def test_a_slow_first_measure_does_not_use_up_the_share_of_the_others(monkeypatch):
    """What torch sets up the first time it measures, and a busy machine, leave the later steps as they are."""
    norm, first = torch._foreach_norm, []

    def slowly(tensors):
        if not first:
            first.append(time.sleep(0.2))
        return norm(tensors)

    monkeypatch.setattr(torch, "_foreach_norm", slowly)
    net = nn.Linear(4, 3)
    series = trained(net, torch.optim.SGD(net.parameters(), lr=1e-4), steps=3)["net.weight"]
    assert first
    assert min(series.updates) > 0


class Around(torch.optim.SGD):
    """An optimizer that steps another one inside its own step, and may fail."""

    def __init__(self, parameters, inner, error=None):
        super().__init__(parameters, lr=0.5)
        self.inner, self.error = inner, error

    def step(self, closure=None):
        """Step the inner one first."""
        self.inner.step()
        if self.error is not None:
            raise self.error
        return super().step(closure)


def test_a_step_within_a_step_is_measured_each_for_itself():
    """The outer step's change, which comes last, includes the inner one's."""
    net = nn.Linear(4, 3, bias=False)
    before = net.weight.detach().clone()
    optimizer = Around(net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1))
    series = trained(net, optimizer)
    change = (net.weight.detach() - before).norm() / before.norm()
    assert series["net.weight"].updates[0] == pytest.approx(change.item(), rel=1e-5)


def test_a_step_that_fails_fails_alone(every_step):
    """Its exception goes through unchanged, its half is forgotten, and the next step is measured."""
    net = nn.Linear(4, 3, bias=False)
    failing = Around(net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1), KeyError("x"))
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(2, 4)).sum().backward()
        with pytest.raises(KeyError):
            failing.step()
        net(torch.ones(2, 4)).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
    (series,) = trace.report.parameters
    assert all(ratio > 0 for ratio in series.updates)
    assert not trace.report.gaps


def test_nothing_is_left_on_the_optimizers():
    """No hook stays, however the run ends; nor does the copy of any weight."""
    before, after = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    net = nn.Linear(4, 3)
    failing = Around(net.parameters(), torch.optim.SGD(net.parameters(), lr=0.1), KeyError("x"))
    net(torch.ones(2, 4)).sum().backward()
    with pytest.raises(KeyError), tm.trace(namespace={"net": net}):
        failing.step()
    assert not before
    assert not after
    assert torch_optimizer._global_optimizer_pre_hooks is before
    assert torch_optimizer._global_optimizer_post_hooks is after


def test_steps_on_other_threads_are_not_ours():
    """An optimizer that another thread steps is left alone."""
    net, other = nn.Linear(4, 3), nn.Linear(2, 2)
    other(torch.ones(1, 2)).sum().backward()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "other": other}) as trace:
        net(torch.ones(2, 4)).sum().backward()
        thread = threading.Thread(target=optimizer.step)
        thread.start()
        thread.join()
    assert {ratio for series in trace.report.parameters for ratio in series.updates} == {UNTOUCHED}


def test_a_closure_that_runs_backward_inside_the_step():
    """LBFGS calls backward several times in one step: the step counts for the last of them."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    with tm.trace(namespace={"net": net}) as trace:
        closure()
        optimizer.step(closure)
    updates = list(trace.report.parameters[0].updates)
    assert updates[-1] > 0
    assert set(updates[:-1]) == {UNTOUCHED}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_step_stays_compiled():
    """Dynamo would follow the hooks into it: they step aside, and the step has no ratio."""
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    from torch._dynamo.testing import CompileCounter

    def run(traced):
        counter = CompileCounter()
        net = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend=counter)
        with tm.trace(namespace={"net": net}) if traced else torch.enable_grad():
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                step()
        return counter.frame_count

    expected = run(traced=False)
    dynamo.reset()
    assert run(traced=True) == expected
    dynamo.reset()


def test_a_trace_that_begins_while_another_thread_steps():
    """Steps under way on other threads, traced or not, end as they would: no table that they go through changes."""

    class BeginsAndEnds(torch.optim.SGD):
        """Another thread begins a trace, and ends it, while this step goes through the hooks."""

    net = nn.Linear(4, 3)
    optimizer = BeginsAndEnds(net.parameters(), lr=0.1)
    net(torch.ones(2, 4)).sum().backward()

    def trace_elsewhere(*_):
        def elsewhere():
            with tm.trace():
                torch.ones(1)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    handles = [torch_optimizer.register_optimizer_step_pre_hook(trace_elsewhere) for _ in range(2)]
    handles += [torch_optimizer.register_optimizer_step_post_hook(trace_elsewhere) for _ in range(2)]
    try:
        optimizer.step()
        with tm.trace(namespace={"net": net}):
            optimizer.step()
    finally:
        for handle in handles:
            handle.remove()


def test_hooks_of_the_persons_own_come_and_go_while_traced():
    """One registered inside a trace is called inside and after it, and goes when it is told to."""
    net, called = nn.Linear(4, 3), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 4)).sum().backward()
    with tm.trace(namespace={"net": net}):
        early = torch_optimizer.register_optimizer_step_pre_hook(lambda *_: called.append("early"))
        late = torch_optimizer.register_optimizer_step_post_hook(lambda *_: called.append("late"))
        optimizer.step()
        early.remove()
        optimizer.step()
    optimizer.step()
    late.remove()
    optimizer.step()
    assert called == ["early", "late", "late", "late"]
    assert not torch_optimizer._global_optimizer_pre_hooks
    assert not torch_optimizer._global_optimizer_post_hooks


def test_calls_are_followed_again_after_a_step_that_failed():
    """The function mode is off the stack while a step of torch's runs, and back where its error was caught."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        depth = torch._C._len_torch_function_stack()
        for broken in (False, True):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).square().sum().backward()
            if broken:
                optimizer.state[net.bias]["exp_avg"] = torch.zeros(5)
                with pytest.raises(RuntimeError):
                    optimizer.step()
            else:
                optimizer.step()
            assert torch._C._len_torch_function_stack() == depth == 1
        net(torch.ones(2, 4)).exp().sum().backward()
    assert trace.report.training.optimizers[0].steps == 1
    assert {node.op for node in trace.report.graphs[-1].nodes} >= {"exp"}
    assert all(node.location is not None for graph in trace.report.graphs for node in graph.nodes if node.op == "exp")


def test_calls_of_the_users_own_within_a_step_are_followed():
    """A hook of the user's runs in it, or a class of the user's, or a closure: then the mode stays on."""
    depths = []

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            depths.append(torch._C._len_torch_function_stack())
            return super().step(closure)

    net = nn.Linear(4, 3)
    hooked = torch.optim.SGD(net.parameters())
    hooked.register_step_post_hook(lambda *_: depths.append(torch._C._len_torch_function_stack()))
    with tm.trace(namespace={"net": net}):
        net(torch.ones(2, 4)).square().sum().backward()
        Own(net.parameters()).step()
        hooked.step()
        torch.optim.SGD(net.parameters()).step(lambda: depths.append(torch._C._len_torch_function_stack()))
    assert depths == [1, 1, 1]


def test_torchscript_compiles_a_range_of_the_profilers():
    """What ends a range is as it was while TorchScript compiles it."""
    with tm.trace(namespace={}):
        net = torch.jit.script(_Ranged())
        assert net(torch.ones(2)).tolist() == [2, 2]


class _Ranged(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Double."""
        with torch.autograd.profiler.record_function("twice"):
            return x + x
