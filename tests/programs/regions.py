"""Checkpoints, precision, anomaly mode, compiled regions, threads, processes, interrupts."""

from __future__ import annotations

import contextlib
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from pytest import approx  # noqa: PT013  (numbers in checks)
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from torch.utils.data import DataLoader, Dataset

from tensormagic.reports import PassContext
from tests.programs.cases import leaf, lines, nodes, norms, pass_context, program


def small_net(width=4):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.5), nn.Linear(width, width))


def _gradients(net):
    return [parameter.grad for parameter in net.parameters()]


def _the_segment_is_a_pass_inside(report):
    (outer,), (inner,) = report.passes, report.inner_passes
    assert (outer.pass_context, inner.pass_context.inside, inner.step) == (None, 1, outer.step)
    assert report.graphs[0].number == outer.graph
    (segment,) = (graph for graph in report.graphs if graph.number == inner.graph)
    assert [node.op for node in segment.nodes if node.kind == "op"] == ["t", "addmm", "tanh", "mul", "t", "addmm"]
    assert {node.module for node in segment.nodes if node.kind == "op"} == {f"Sequential.{at}" for at in range(4)}
    assert {series.touched for series in report.parameters if series.name.startswith("Sequential.")} == {1}
    bias = next(series for series in report.parameters if series.name == "Sequential.3.bias")
    assert list(bias.norms) == [approx(8.0)]  # four rows of ones, by four: 4 * sqrt(4)


@program(2, check=_the_segment_is_a_pass_inside)
def a_reentrant_checkpoint():
    net, x = small_net(), torch.ones(4, 4, requires_grad=True)
    (checkpoint(net, x * 1, use_reentrant=True)).sum().backward()
    return x.grad, _gradients(net)


def _passes_in_passes(report):
    (outer,), (last, middle) = report.passes, report.inner_passes
    assert [one.pass_context.graph for one in (middle, last)] == [outer.graph, middle.graph]
    assert {(one.number, one.step) for one in (outer, middle, last)} == {(1, 1)}


@program(3, check=_passes_in_passes)
def checkpoints_in_checkpoints():
    x = leaf(0.1, 0.2)

    def inner(z):
        return z.sin().cos()

    def outer(z):
        return checkpoint(inner, z.exp(), use_reentrant=True).tanh()

    checkpoint(outer, x * 1, use_reentrant=True).sum().backward()
    return x.grad


@program(4, measured=False)
def sequential_checkpoints_in_steps():
    net, x = small_net(), torch.ones(2, 4, requires_grad=True)
    for _ in range(2):
        checkpoint_sequential(net, 2, x * 1, use_reentrant=True).square().sum().backward()
    return x.grad, _gradients(net)


@program(1, raises=RuntimeError, measured=False)
def a_reentrant_checkpoint_without_accumulation():
    x = leaf(1, 2)
    torch.autograd.grad(checkpoint(torch.sin, x * 1, use_reentrant=True).sum(), x)


@program(2)
def checkpoints():
    net, x = small_net(), torch.ones(4, 4, requires_grad=True)
    for _ in range(2):
        checkpoint(net, x * 1, use_reentrant=False).sum().backward()
    return x.grad, _gradients(net)


@program(1, measured=False)
def selective_checkpoints():
    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    x, w = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), 0.3, requires_grad=True)
    checkpoint(lambda z: (z @ w).sin().cos(), x, use_reentrant=False, context_fn=contexts).sum().backward()
    return x.grad, w.grad


@program(1, raises=ValueError, measured=False)
def a_checkpoint_that_raises_when_it_runs_again():
    calls = []

    def segment(z):
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("second run")
        return z.sin()

    checkpoint(segment, leaf(1, 2) * 1, use_reentrant=True).sum().backward()


@program(2)
def half_precision():
    net = nn.Linear(4, 2)
    nn.init.constant_(net.weight, 0.3)
    nn.init.constant_(net.bias, 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for factor in (1.0, torch.inf):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.ones(3, 4)).square().mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return net.weight, scaler.get_scale()


@program(1)
def anomaly_mode():
    with torch.autograd.detect_anomaly():
        x = leaf(1, 2)
        x.exp().sin().sum().backward()
    return x.grad


@program(1, raises=RuntimeError, measured=False)
def anomaly_mode_that_finds_something():
    with torch.autograd.detect_anomaly():
        x = leaf(0, 1)
        y = (x * 0).sqrt()
        z = nn.functional.relu(y) * 0
        z.sum().backward()


@program(1, measured=False)
def a_compiled_function_of_a_checkpoint():
    @torch.compile(backend="aot_eager")
    def compiled(z):
        return checkpoint(lambda a: a.sin().cos(), z, use_reentrant=False) * 2

    x = leaf(1, 2)
    compiled(x).sum().backward()
    return x.grad


def _another_thread_has_no_line(report):
    assert [told.thread for told in pass_context(report)] == ["worker"]
    assert set(lines(report, "exp")) == {""}
    assert norms(report, "exp") == [approx(2**0.5)]
    assert report.parameters[0].touched == 1


def _in_a_thread(target):
    thread = threading.Thread(target=target, name="worker")
    thread.start()
    thread.join()


FOREIGN = ("on another thread",)


@program(1, check=_another_thread_has_no_line, measured=False, gaps=FOREIGN)
def everything_on_another_thread():
    x = leaf(1, 2)
    for _ in range(50):  # many nodes here: the other thread's numbers are among theirs
        x.sin()
    _in_a_thread(lambda: x.exp().sum().backward())
    return x.grad


def _the_line_is_this_threads(report):
    assert lines(report, "exp") == ["y = x.exp()"]
    assert [told.thread for told in pass_context(report)] == ["worker"]


@program(1, check=_the_line_is_this_threads)
def backward_on_another_thread():
    x = leaf(1, 2)
    y = x.exp()
    loss = y.sum()
    _in_a_thread(loss.backward)
    return x.grad


def _only_the_others_nodes_have_no_line(report):
    assert set(lines(report, "exp")) == {""}
    assert set(lines(report, "sum")) == {"made[0].sum().backward()"}
    assert pass_context(report) == [None] * 5


@program(5, check=_only_the_others_nodes_have_no_line, measured=False, gaps=FOREIGN)
def forward_on_another_thread():
    x = leaf(1, 2)
    for step in range(5):
        made = []
        for _ in range(20 * step):
            x.sin()
        _in_a_thread(lambda made=made: made.append(x.exp()))
        made[0].sum().backward()
    return x.grad


@program(8, measured=False, gaps=FOREIGN)
def a_pool_of_threads():
    x = leaf(1, 2)
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(lambda n=n: torch.autograd.grad((x * n).exp().sum(), x)[0]) for n in range(8)]
        return [result.result() for result in results]


@program(0, raises=ZeroDivisionError, measured=False)
def an_exception_of_another_thread():
    def work():
        return 1 / 0

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


class Refusing(Dataset):
    """Computes while it loads, and refuses one item."""

    def __len__(self):
        return 4

    def __getitem__(self, at):
        x = nn.functional.softmax(torch.tensor([float(at), 1.0]), 0)
        if at == 3:
            nn.functional.relu(x).reshape(3)
        return x


@program(2, measured=False)
def workers_of_a_data_loader():
    x, seen = leaf(1.0), []
    with contextlib.suppress(RuntimeError):
        for batch in DataLoader(Refusing(), batch_size=1, num_workers=1, multiprocessing_context="fork"):
            seen.append(batch)
            if len(seen) < 3:
                (x * batch).sum().backward()
    return seen, x.grad


@program(0, raises=RuntimeError, measured=False)
def a_worker_that_fails():
    list(DataLoader(Refusing(), batch_size=4, num_workers=1, multiprocessing_context="fork"))


@program(1, raises=KeyboardInterrupt)
def interrupted_in_forward():
    x = leaf(1, 2)
    x.exp().sum().backward()
    x.sin()
    raise KeyboardInterrupt


@program(1, raises=ZeroDivisionError)
def fails_after_a_step():
    x = leaf(1, 2)
    x.exp().sum().backward()
    return x.sin() / (1 // 0)


@program(1)
def under_modes_of_the_person_s():
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    with torch.device("cpu"), Counting() as counting:
        x = torch.ones(2, requires_grad=True)
        x.exp().sum().backward()
    return counting.calls, x.grad


def _many_nodes(report):
    assert len(nodes(report, "add")) == 3000


@program(1, check=_many_nodes)
def a_long_chain():
    x = leaf(1)
    y = x
    for _ in range(3000):
        y = y + 1
    y.sum().backward()
    return x.grad


assert PassContext  # what the checks above compare with
