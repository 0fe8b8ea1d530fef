"""Runs inside one another: each says what it says alone, and the program is what it is without any of them."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm
from tensormagic.collectors.aliasing import writes
from tensormagic.collectors.gradients import pass_log
from tensormagic.collectors.runs.trace import Tracer
from tests.programs import calls, functions, hooks, regions, transforms
from tests.programs.cases import PROGRAMS
from tests.support.leftovers import leftovers, snapshot
from tests.support.same_report import told_apart

DECLARED = (calls, functions, hooks, regions, transforms)  # imported for the programs in them
RUNS = {
    "trace": lambda: tm.trace(namespace={}),
    "ops": lambda: tm.trace(namespace={}, level="ops"),
    "forward": lambda: tm.trace(namespace={}, forward=True),
    "every": lambda: tm.trace(namespace={}, every=2),
    "memory": lambda: tm.track_memory(namespace={}),
    "writes": lambda: tm.watch_writes(namespace={}),
    "draws": lambda: tm.track_rng(namespace={}),
}


def asked(**besides):
    """Return what makes a trace that asks more, as those in `RUNS` are made."""
    return lambda: tm.trace(namespace={}, **besides)


PAIRS = [(outer, inner) for outer in RUNS for inner in RUNS]


class Halving(torch.autograd.Function):
    """An autograd function of the user's own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / 2 + x * 0


def training():
    """Everything that one of them counts: layers, draws, writes, an optimizer, a checkpoint, a function of its own."""
    torch.manual_seed(0)
    random.seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    weight, losses = torch.ones(4), []
    for _ in range(4):
        optimizer.zero_grad()
        x = torch.randn(5, 8)
        y = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
        y = Halving.apply(y)
        view = y.detach().view(-1)
        view[0] = 1.0
        loss = nn.functional.cross_entropy(y, torch.randint(0, 4, (5,)), weight=weight, label_smoothing=0.1)
        (loss + y.prod() * 1e-3).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net[0].weight.tolist(), torch.rand(1).item()


def followed(kinds, program=training):
    """Run a program inside of runs, the outermost first, by name or as made; returns what it returns, and reports."""
    runs = [RUNS[kind]() if isinstance(kind, str) else kind() for kind in kinds]
    gc.collect()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (the global generator is what is followed)
    for run in runs:
        run.__enter__()
    seen = program()
    for run in reversed(runs):
        run.__exit__(None, None, None)
    return seen, [run.report for run in runs]


@pytest.fixture(scope="module", autouse=True)
def patient():
    """Names are looked up, gradients measured in full, and steps measured however long that takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracer, "_share", 1e9)
        patch.setattr(pass_log, "FREE_SECONDS", 1e9)
        patch.setattr(writes, "FREE_SEARCHES", 1e9)
        patch.setattr(writes, "FIRST_SEARCHES", 1e9)
        yield


@pytest.fixture(scope="module")
def alone():
    """What each says alone, once torch has made what it makes once in a process."""
    plain = training()
    for kind in RUNS:
        followed([kind])
    found = {kind: followed([kind]) for kind in RUNS}
    assert [kind for kind, (seen, _) in found.items() if seen != plain] == []
    return plain, {kind: reports[0] for kind, (_, reports) in found.items()}


@pytest.mark.parametrize("kinds", [*PAIRS, ("memory", "writes", "draws", "ops"), ("ops", "draws", "writes", "memory"),
                                   ("trace", "memory", "trace")], ids="-in-".join)  # fmt: skip
def test_each_says_what_it_says_alone(kinds, alone):
    """Whatever the order: no number differs, and nothing stays on torch."""
    standing = snapshot()
    seen, reports = followed(kinds)
    assert leftovers(standing, snapshot()) == []
    assert seen == alone[0]
    apart = {kind: told_apart(alone[1][kind], report) for kind, report in zip(kinds, reports, strict=True)}
    assert {kind: found[:4] for kind, found in apart.items() if found} == {}


@pytest.mark.parametrize(
    "kinds",
    [
        ("memory", "trace"),
        ("trace", "memory"),
        ("trace", "trace"),
        ("memory", "ops"),
        ("ops", "writes", "memory"),
        ("every", "draws", "ops", "trace"),
    ],
    ids="-in-".join,
)
def test_a_run_inside_another_adds_no_mode(kinds):
    """Its listeners join the mode that is there: one follows calls, one operations, and none is left."""
    seen, _ = followed(kinds, lambda: (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()))
    traces, operations = {"trace", "ops", "every"} & set(kinds), {"memory", "writes", "draws", "ops"} & set(kinds)
    assert seen == (bool(traces), bool(operations))
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


class Calls(TorchFunctionMode):
    """Counts calls."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kinds", [("trace", "memory"), ("memory", "trace"), ("trace", "trace"), ("memory", "ops")])
def test_a_mode_of_the_person_s_sees_what_it_sees_without(kinds):
    """What one run does for itself is neither a call nor an operation for anybody."""
    counted = []
    for around in ((), kinds):
        with Calls() as calls_seen, Operations() as operations:
            followed(around)
        counted.append((calls_seen.count, operations.count))
    assert counted[0] == counted[1]


@pytest.mark.parametrize(("kinds", "modes"), [(("trace", "trace"), (3, 1)), (("memory", "ops"), (2, 3))])
def test_a_mode_of_the_person_s_between_two_runs_stays_between(kinds, modes):
    """The inner run sees what it hands on, and the outer one what it makes of that: so each has a mode of its own."""
    x = torch.ones(2, requires_grad=True)
    with RUNS[kinds[0]](), Calls(), Operations(), RUNS[kinds[1]]() as inner:
        (x * 2).sum().backward()
        assert (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()) == modes
    assert (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()) == (0, 0)
    assert len(inner.report.passes) == 1


@pytest.mark.parametrize("ended", ["inner", "outer"])
def test_they_may_end_in_any_order(ended):
    """Also the outer one first; the other goes on."""
    standing, x = snapshot(), torch.ones(3, requires_grad=True)
    outer, inner = tm.track_memory(namespace={}), tm.trace(namespace={})
    outer.__enter__()
    inner.__enter__()
    first, second = (inner, outer) if ended == "inner" else (outer, inner)
    (x * 2).sum().backward()
    first.__exit__(None, None, None)
    (x * 2).sum().backward()
    second.__exit__(None, None, None)
    assert leftovers(standing, snapshot()) == []
    assert len(inner.report.passes) == (1 if ended == "inner" else 2)
    assert x.grad.tolist() == [4.0] * 3


def test_an_error_is_everybody_s_and_its_traceback_nobody_s():
    """Each run has failed, and says of what; the traceback holds the user's frames alone."""
    runs = tm.track_memory(), tm.trace(), tm.watch_writes()
    with pytest.raises(RuntimeError) as raised, runs[0], runs[1], runs[2]:
        torch.ones(3, requires_grad=True).add(1).backward()
    assert [run.report.state for run in runs] == ["failed"] * 3
    frames = [entry.frame.code.path.name for entry in raised.traceback]
    assert [name for name in frames if "tensormagic" in str(name)] == []


STEADY = [case for case in PROGRAMS if case.name != "a_pool_of_threads"]  # whose passes come in any order


@pytest.mark.corpus
@pytest.mark.parametrize("case", STEADY, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore")
def test_every_program_has_the_trace_that_it_has_alone(case):
    """Inside of all the others."""

    def program():
        torch.manual_seed(7)
        random.seed(7)
        try:
            case.run()
        except (Exception, KeyboardInterrupt):
            return

    _, (once,) = followed(["trace"], program)
    _, (plain,) = followed(["trace"], program)
    _, (*_, report) = followed(["memory", "writes", "draws", "trace"], program)
    unsteady = {path for path, *_ in told_apart(once, plain)}
    assert [each for each in told_apart(plain, report) if each[0] not in unsteady][:4] == []
