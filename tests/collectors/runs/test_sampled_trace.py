"""Tracing some steps of real runs: the run is the user's, what is traced is exact, and nothing costs in between."""

from __future__ import annotations

import gc
import time
import traceback
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tensormagic.collectors.hooks.modes import active_modes
from tensormagic.collectors.runs.step_sampling import FOLLOW_UP
from tensormagic.errors import TraceError
from tensormagic.reports import UNTOUCHED

ASKED = [{"budget": 0.05}, {"every": 3}, {"steps": (4, 9)}, {"steps": (2, None), "every": 4}]


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))


def train(net, steps, seen=None):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(5, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if seen is not None:
            seen.append(len(active_modes()))
    return losses


def steps_of(report):
    return [step for first, last in report.sampling.ranges for step in range(first, last + 1)]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_results_are_bit_identical(asked):
    """Losses, parameters, gradients, buffers and random numbers are those of the untraced run."""
    plain, traced = model(), model()
    torch.manual_seed(2)
    expected = train(plain, 30), torch.get_rng_state()
    torch.manual_seed(2)
    with tm.trace(namespace={"net": traced}, **asked) as trace:
        found = train(traced, 30), torch.get_rng_state()
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])
    for name, value in plain.state_dict().items():
        assert torch.equal(value, traced.state_dict()[name])
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), traced.parameters(), strict=True))
    assert 0 < trace.report.sampling.steps < 30


@pytest.mark.parametrize("asked", ASKED[1:], ids=str)
def test_what_is_traced_is_what_a_full_trace_says_of_these_steps(asked):
    """Numbers of passes and steps, norms, lines and losses are those of the same steps when all are traced."""
    reports = []
    for options in ({}, asked):
        net = model()
        torch.manual_seed(2)
        with tm.trace(namespace={"net": net}, **options) as trace:
            train(net, 13)
        reports.append(trace.report)
    whole, some = reports
    assert (some.passes_seen, some.steps_seen) == (whole.passes_seen, whole.steps_seen) == (13, 13)
    assert len(some.graphs) == len(whole.graphs) == 1
    lines = [[one.location(node.location) for node in one.nodes] for one in reports]
    assert lines[0] == lines[1]
    chosen = [step - 1 for step in steps_of(some)]
    assert [(one.number, one.step, one.value) for one in some.passes] == [
        (whole.passes[at].number, whole.passes[at].step, whole.passes[at].value) for at in chosen
    ]
    for mine, full in zip(some.parameters, whole.parameters, strict=True):
        assert mine.name == full.name
        assert list(mine.norms) == pytest.approx([full.norms[at] for at in chosen], rel=1e-5)
        assert mine.touched == len(chosen)


def test_nothing_is_on_between_traced_steps():
    """No function mode, none of the answers that go with it, no optimizer hook: torch stands as it was."""
    import torch.optim.optimizer as optimizers

    net, seen = model(), []
    asks, table = torch.nn.functional.has_torch_function_unary, optimizers._global_optimizer_pre_hooks
    modes, patched, hooks = [], [], []

    def look():
        modes.append(len(active_modes()))
        patched.append(torch.nn.functional.has_torch_function_unary is not asks)
        hooks.append(optimizers._global_optimizer_pre_hooks is not table)

    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}, every=4) as trace:
        for _ in range(14):
            optimizer.zero_grad()
            loss = net(torch.randn(5, 6)).square().mean()
            look()
            loss.backward()
            optimizer.step()
    del seen
    assert steps_of(trace.report) == [1, 5, 9, 13]
    on = [at + 1 for at, there in enumerate(modes) if there]
    assert on == [1, 2, 5, 9, 13]  # 2: only then it is known that a step is one pass
    assert [at + 1 for at, there in enumerate(patched) if there] == on
    assert [at + 1 for at, there in enumerate(hooks) if there] == [1, 2, 3, 5, 6, 9, 10, 13, 14]  # for the step after


def test_the_optimizer_step_of_a_traced_step_is_measured():
    """Each traced pass has the update ratio of the step that follows it, although the tracer has left by then."""
    net = model()
    with tm.trace(namespace={"net": net}, every=5) as trace:
        train(net, 12)
    weight = next(one for one in trace.report.parameters if one.name == "net.0.weight")
    assert weight.updates[0] > 0
    assert len(weight.updates) == 3


def test_a_budget_traces_the_first_step_and_says_what_it_cost():
    """Under a budget the first step is always there, and the numbers of the report agree with each other."""
    net = model()
    with tm.trace(namespace={"net": net}, budget=0.5) as trace:
        train(net, 60)
    report = trace.report
    sampling = report.sampling
    assert steps_of(report)[0] == 1
    assert sampling.steps == len(steps_of(report)) == len({one.step for one in report.passes})
    assert sampling.steps < 60
    assert (
        sampling.steps > 1 or sampling.cost > 0.25
    )  # where another as dear as the first is over the budget, it is alone
    assert sampling.cost > 0
    assert report.steps_seen == 60


# -- shapes of loops --------------------------------------------------------------------------------------------------


def test_several_backward_calls_of_one_step_are_traced_together():
    """A step with two losses and retain_graph: both passes of each chosen step, and no graph but the two."""
    x = torch.ones(3, requires_grad=True)
    with tm.trace(namespace={"x": x}, every=3) as trace:
        for _ in range(9):
            y = x * 2
            a, b = y.sum(), y.square().sum()
            a.backward(retain_graph=True)
            b.backward()
    report = trace.report
    assert (report.steps_seen, report.passes_seen, report.sampling.passes) == (9, 18, 6)
    assert [(one.step, one.number) for one in report.passes] == [(1, 1), (1, 2), (4, 7), (4, 8), (7, 13), (7, 14)]
    assert [graph.passes_seen for graph in report.graphs] == [3, 3]


def test_a_backward_from_nothing():
    """It runs as it does untraced, traced or passed by."""
    with tm.trace(every=3) as trace:
        for _ in range(4):
            w = torch.ones(2, requires_grad=True)
            (w * w).sum().backward()
            torch.autograd.backward(())
    assert trace.report.state == "finished"


def test_gradient_accumulation():
    """Four backward calls before each optimizer step: the chosen ones are whole, the graph is one."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}, every=6) as trace:
        for _ in range(5):
            for _ in range(4):
                net(torch.randn(5, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert steps_of(trace.report) == [1, 7, 13, 19]
    assert len(trace.report.graphs) == 1


def test_both_losses_of_adversarial_training_are_traced():
    """The generator's graph is begun before the discriminator's backward: it is traced whole all the same."""
    generator, discriminator = nn.Linear(2, 3), nn.Linear(3, 1)
    with tm.trace(namespace={"g": generator, "d": discriminator}, every=5) as trace:
        for _ in range(20):
            fake = generator(torch.randn(4, 2))
            discriminator(fake.detach()).mean().backward()
            discriminator(fake).mean().neg().backward()
    report = trace.report
    assert report.sampling.partial == 1  # the first of the generator's: from then on the tracer comes earlier
    assert [graph.passes_seen for graph in report.graphs] == [4, 3]
    assert sorted(len(graph.nodes) for graph in report.graphs) == [5, 10]
    for graph in report.graphs:
        assert all(node.location is not None for node in graph.nodes if node.kind == "op")


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_closure_whose_backward_is_not_looked_at_is_no_step_without_one(asked):
    """The optimizer calls forward and backward inside its step, as Lightning has it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.randn(5, 6)).square().mean()
        loss.backward()
        return loss

    with tm.trace(namespace={"net": net, "optimizer": optimizer}, **asked) as trace:
        for _ in range(20):
            optimizer.step(closure)
    (use,) = trace.report.training.optimizers
    assert {pattern.kind for pattern in use.patterns} <= {"inside", "unseen"}
    assert [finding.code for finding in trace.report.findings if finding.code == "TM607"] == []


def test_loops_of_autograd_grad():
    """``autograd.grad`` counts as a pass, also under a name that was imported before, and in a double backward."""
    from torch.autograd import grad

    x = torch.ones(3, requires_grad=True)
    with tm.trace(namespace={"x": x}, every=4) as trace:
        for _ in range(6):
            (inner,) = grad((x**3).sum(), x, create_graph=True)
            (outer,) = grad(inner.sum(), x)
    report = trace.report
    assert torch.equal(outer, torch.full((3,), 6.0))
    assert report.passes_seen == report.steps_seen == 12
    assert [one.step for one in report.passes] == [1, 5, 9]
    assert all(series.norms[0] == pytest.approx(27**0.5) for series in report.parameters)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    """Backward inside backward is no step, traced or not; gradients are the same."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.randn(4, 3, requires_grad=True)

    def step():
        first.weight.grad = None
        second(checkpoint(first, x, use_reentrant=reentrant)).sum().backward()
        return first.weight.grad.clone()

    expected = step()
    with tm.trace(namespace={"first": first}, every=4) as trace:
        found = [step() for _ in range(9)]
    assert all(torch.equal(one, expected) for one in found)
    assert trace.report.steps_seen == 9
    assert steps_of(trace.report) == [1, 5, 9]


def test_a_compiled_function_in_the_loop_is_compiled_once():
    """Inside and outside traced steps the same compiled code runs, and its region is one node."""
    dynamo = pytest.importorskip("torch._dynamo")
    from torch._dynamo.testing import CompileCounterWithBackend

    dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    weight = torch.randn(4, 4, requires_grad=True)
    compiled = torch.compile(lambda x: (x @ weight).relu().sum(), backend=counter)
    with tm.trace(namespace={"weight": weight}, every=3) as trace:
        for _ in range(8):
            compiled(torch.randn(3, 4)).backward()
    dynamo.reset()
    assert counter.frame_count == 1
    assert steps_of(trace.report) == [1, 4, 7]
    assert {node.name for node in trace.report.nodes} == {"CompiledFunctionBackward", "AccumulateGrad"}


# -- the user's own modes -------------------------------------------------------------------------------------------


class Counting(TorchFunctionMode):
    """Counts the calls it sees."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def work(mode, steps=7):
    """A loop that goes into a mode of the user's and out of it in every place there is."""
    x = torch.ones(3, requires_grad=True)
    for number in range(steps):
        if number == 1:
            mode.__enter__()
        with torch.device("cpu"):
            y = x * torch.ones(3)
            if number % 2:
                y.sum().backward()
        if number % 2 == 0:
            y.sum().backward()
        if number == 4:
            mode.__exit__(None, None, None)


@pytest.mark.parametrize("every", [2, 3, 4])
def test_modes_that_the_loop_enters_and_leaves(every):
    """Entered while traced, left while not, and the other way round: the stack is the user's, each call seen once."""
    plain, traced = Counting(), Counting()
    work(plain)
    with tm.trace(namespace={}, every=every) as trace:
        work(traced)
    assert not active_modes()
    assert traced.calls == plain.calls
    assert steps_of(trace.report) == list(range(1, 8, every))


@pytest.mark.parametrize("outer", [Counting, lambda: torch.device("cpu")], ids=["mode", "device"])
def test_modes_around_the_trace(outer):
    """Under a mode or a default device of the user's own the tracer leaves and comes back too."""
    seen = []
    with outer() as mode:
        before = active_modes()
        net = model()
        with tm.trace(namespace={"net": net}, every=5) as trace:
            train(net, 17, seen)
        assert active_modes() == before
    del mode
    assert not active_modes()
    assert steps_of(trace.report) == [1, 6, 11, 16]
    assert seen == [2, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1]  # after each step; 1 is the user's own


def test_a_default_device_that_is_set_in_the_middle():
    """``torch.set_default_device`` within the loop works as ever, and so does unsetting it."""
    x = torch.ones(3, requires_grad=True)
    try:
        with tm.trace(namespace={"x": x}, every=3) as trace:
            for number in range(9):
                if number == 2:
                    torch.set_default_device("meta")
                if number == 6:
                    torch.set_default_device(None)
                assert torch.ones(2).is_meta == (2 <= number < 6)
                (x * 2).sum().backward()
    finally:
        torch.set_default_device(None)
    assert steps_of(trace.report) == [1, 4, 7]


# -- ends of every kind -----------------------------------------------------------------------------------------------


class Broken(torch.autograd.Function):
    """Raises in the backward of one step."""

    at = 0
    error: BaseException = RuntimeError("broken")

    @staticmethod
    def forward(ctx, x):
        Broken.at -= 1
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Broken.at == 0:
            raise Broken.error
        return gradient


def fail_in(step, error):
    x = torch.ones(2, requires_grad=True)
    Broken.at, Broken.error = step, error
    for _ in range(9):
        Broken.apply(x * 2).sum().backward()


def frames(error):
    found = traceback.extract_tb(error.__traceback__)
    own = next(at for at, frame in enumerate(found) if frame.name == "fail_in")
    return [(frame.filename, frame.lineno, frame.name) for frame in found[own:]]


@pytest.mark.parametrize("step", [4, 5])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_a_backward(step, kind):
    """Raised in a traced step (4) or in one that goes by (5): the same error and traceback, and nothing is left."""
    with pytest.raises(kind) as plain:
        fail_in(step, kind("broken"))
    trace = tm.trace(namespace={}, every=3)
    with pytest.raises(kind) as found, trace:
        fail_in(step, kind("broken"))
    assert frames(found.value) == frames(plain.value)
    assert not active_modes()
    report = trace.report
    assert report.state == ("interrupted" if kind is KeyboardInterrupt else "failed")
    assert report.steps_seen == step
    assert steps_of(report) == ([1, 4])


def test_an_error_that_the_loop_catches():
    """A step whose backward fails is one step; the ones after it are traced as they were to be."""
    Broken.at, Broken.error = 4, RuntimeError("broken")
    x = torch.ones(2, requires_grad=True)
    with tm.trace(namespace={}, every=3) as trace:
        for number in range(1, 9):
            loss = Broken.apply(x * 2).sum()
            with pytest.raises(RuntimeError) if number == 4 else nullcontext():
                loss.backward()
    assert steps_of(trace.report) == [1, 4, 7]
    assert [one.outcome for one in trace.report.passes] == ["finished", "failed", "finished"]


def test_no_tensor_and_no_frame_is_kept():
    """A rest of many steps holds nothing of any of them."""
    references = []

    def run():
        with tm.trace(namespace={}, steps=(1, 2)) as trace:
            for _ in range(4):
                x = torch.ones(3, requires_grad=True)
                (x * 2).sum().backward()
                references.append(weakref.ref(x))
        return trace

    trace = run()
    gc.collect()
    assert not any(reference() is not None for reference in references)
    assert trace.report.sampling.steps == 1


def test_the_last_step_that_was_not_traced_is_told_by_what_it_left():
    """The norm of each ``.grad`` as it is at the end; none for a parameter that has none."""
    net = model()
    with tm.trace(namespace={"net": net}, steps=(1, 3)) as trace:
        train(net, 6)
        net[4].bias.grad = None
    report = trace.report
    assert not report.sampling.last_traced
    gradients = {f"net.{name}": parameter.grad for name, parameter in net.named_parameters()}
    for series, norm in zip(report.parameters, report.sampling.last_norms, strict=True):
        gradient = gradients[series.name]
        assert norm == (UNTOUCHED if gradient is None else pytest.approx(gradient.norm().item(), rel=1e-5))
    assert "the last step, 6, was not traced" in str(report)


def test_a_last_step_that_was_traced_needs_no_more():
    """Then nothing is read at the end."""
    net = model()
    with tm.trace(namespace={"net": net}, steps=(6, 7)) as trace:
        train(net, 6)
    assert trace.report.sampling.last_traced
    assert not trace.report.sampling.last_norms


def test_a_nan_that_began_in_a_step_that_was_not_traced_is_a_finding():
    """What the gradients left at the end say is told with the step from which on to look."""
    w = torch.ones(3, requires_grad=True)
    with tm.trace(namespace={"w": w}, steps=(1, 3)) as trace:
        for number in range(6):
            w.grad = None
            (w * (float("nan") if number == 5 else 1.0)).sum().backward()
    finding = trace.report.findings[0]
    assert finding.code == "TM402"
    assert finding.message == (
        "At the end of the run, the one gradient is NaN (w), although no traced pass had one: it began after step 2, "
        "the last traced step."
    )
    assert "--steps 3:" in finding.remedy


def test_a_finding_makes_the_next_steps_traced():
    """Under a budget a pass with a NaN releases the reserve, and only once as long as it goes on."""
    w = torch.ones(200, requires_grad=True)
    with tm.trace(namespace={"w": w}, budget=1.0) as trace:
        for number in range(60):
            time.sleep(0.004)
            (w * (float("nan") if number >= 30 else 1.0)).exp().sum().backward()
    assert 1 <= trace.report.sampling.after_finding <= FOLLOW_UP


# -- two traces, and misuse -------------------------------------------------------------------------------------------


def test_a_second_trace_while_the_first_one_rests():
    """Also when no mode of the first is on the stack; each sees its own, and the first goes on."""
    x = torch.ones(2, requires_grad=True)
    with tm.trace(namespace={}, steps=(1, 2)) as trace:
        for _ in range(4):
            (x * 2).sum().backward()
        assert not active_modes()
        with tm.trace(namespace={}) as second:
            (x * 3).sum().backward()
        assert not active_modes()
        (x * 2).sum().backward()
    assert trace.report.steps_seen == 6
    assert len(second.report.passes) == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"budget": 5}, "above 0 and at most 1"),
        ({"budget": 0}, "above 0"),
        ({"budget": "5%"}, "expected a share"),
        ({"budget": float("nan")}, "expected a share"),
        ({"every": 0}, "whole number from 1"),
        ({"every": 2.5}, "whole number from 1"),
        ({"steps": 5}, r"expected \(start, stop\)"),
        ({"steps": (0, 5)}, "numbers from 1"),
        ({"steps": (5, 5)}, "it contains no step"),
        ({"steps": (None, 1)}, "it contains no step"),
        ({"budget": 0.1, "every": 2}, "leave one of them out"),
        ({"budget": 0.1, "steps": (1, 2)}, "leave one of them out"),
    ],
    ids=str,
)
def test_misuse_is_refused_with_what_was_given_and_what_to_do(asked, words):
    """Nothing runs then."""
    with pytest.raises(TraceError, match=words):
        tm.trace(**asked)


def test_every_step_is_what_is_traced_anyway():
    """``every=1`` and an open slice ask for nothing special: the report has no sampling."""
    x = torch.ones(2, requires_grad=True)
    with tm.trace(namespace={}, every=1, steps=(None, None)) as trace:
        (x * 2).sum().backward()
    assert trace.report.sampling is None
