"""What is seen of a training loop: each step's gradients by pattern, and nothing of the run is changed or kept."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.calls import call_watch
from tensormagic.collectors.training import training


def loss_of(net):
    return net(torch.randn(6, 4)).pow(2).mean()


def kinds(trace):
    """Return {kind: count} of the first optimizer."""
    found: dict[str, int] = {}
    for pattern in trace.report.training.optimizers[0].patterns:
        found[pattern.kind] = found.get(pattern.kind, 0) + pattern.count
    return found


def traced(steps, make=lambda net: torch.optim.SGD(net.parameters(), lr=0.01), **options):
    """Trace ``steps(net, optimizer)``."""
    net = nn.Linear(4, 2)
    optimizer = make(net)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}, **options) as trace:
        steps(net, optimizer)
    return trace


@pytest.mark.parametrize("clear", [
    lambda net, optimizer: optimizer.zero_grad(),
    lambda net, optimizer: optimizer.zero_grad(set_to_none=False),
    lambda net, optimizer: net.zero_grad(),
    lambda net, optimizer: [setattr(p, "grad", None) for p in net.parameters()],
    lambda net, optimizer: [p.grad.zero_() for p in net.parameters()],
    lambda net, optimizer: [p.grad.data.zero_() for p in net.parameters()],
    lambda net, optimizer: [p.grad.detach_().fill_(0) for p in net.parameters()],
    lambda net, optimizer: [setattr(p, "grad", torch.zeros_like(p)) for p in net.parameters()],
], ids=["zero_grad", "to zeros", "module", "None", "zero_", "data.zero_", "detach_", "new zeros"])  # fmt: skip
def test_every_way_of_clearing_is_one(clear):
    """Whatever is done with a gradient after its step, the next backward does not add to what was used."""

    def steps(net, optimizer):
        for _ in range(40):
            loss_of(net).backward()
            optimizer.step()
            clear(net, optimizer)

    assert kinds(traced(steps)) == {"fresh": 40}


def test_a_leaf_with_the_identity_of_one_that_an_optimizer_held_is_another():
    """Python gives the address of an object that is gone to the next one: as a rule, so that it is tried again."""

    def held_and_gone():
        held = nn.Parameter(torch.ones(3))
        held.sum().backward()
        torch.optim.SGD([held], lr=0.1).step()
        return id(held)

    with tm.trace() as trace:
        for _ in range(20):
            identity = held_and_gone()
            if id(weight := nn.Parameter(torch.ones(3))) == identity:
                break
        assert id(weight) == identity
        for _ in range(3):
            weight.pow(2).sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad = None
        weight.sum().backward()
    assert trace.report.training.by_hand.steps == 3


def test_the_norm_of_a_gradient_that_is_never_cleared():
    """What the first and the last measured step used, and what the last backward brought of it: the true norms."""
    norms, brought = [], []

    def steps(net, optimizer):
        for _ in range(4):
            before = net.weight.grad.clone() if net.weight.grad is not None else 0
            loss_of(net).backward()
            norms.append(float(net.weight.grad.norm()))
            brought.append(float((net.weight.grad - before).norm()))
            optimizer.step()

    trace = traced(steps)
    found = trace.report.training.optimizers[0].accumulation
    assert kinds(trace) == {"fresh": 1, "accumulated": 3}
    assert (found.first_step, found.last_step) == (2, 4)
    assert [found.first_norm, found.last_norm] == pytest.approx([norms[1], norms[3]])
    assert found.last_pass_norm == pytest.approx(brought[3], rel=1e-4)
    assert trace.report.parameters[found.parameter].name == "net.weight"


def test_clipping_is_no_clearing():
    """In place, between backward and step: fresh where cleared, accumulated where not."""

    def steps(net, optimizer):
        for number in range(12):
            if number < 6:
                optimizer.zero_grad()
            loss_of(net).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()

    assert kinds(traced(steps)) == {"fresh": 6, "accumulated": 6}


def test_steps_inside_backward_and_closures_are_told_apart():
    """An optimizer that steps in a hook of each parameter, and one that calls backward itself."""

    def inside(net, optimizer):
        def at_once(_):
            optimizer.step()
            optimizer.zero_grad()

        handle = net.weight.register_post_accumulate_grad_hook(at_once)
        for _ in range(3):
            loss_of(net).backward()
        handle.remove()

    assert kinds(traced(inside)) == {"inside": 3}

    def closure(net, optimizer):
        for _ in range(3):
            optimizer.step(lambda: (optimizer.zero_grad(), loss_of(net).backward()) and torch.zeros(()))

    assert kinds(traced(closure)) == {"inside": 3}


@pytest.mark.parametrize(("clear", "kind"), [(True, "inside"), (False, "accumulated")])
def test_a_closure_adds_to_gradients_of_other_weights(clear, kind):
    """Small batches of one call add up, and the gradients of one call and the next do not."""

    def steps(net, optimizer):
        def closure():
            if clear:
                optimizer.zero_grad()
            losses = [loss_of(net), loss_of(net)]
            for loss in losses:
                loss.backward()
            return sum(losses)

        for _ in range(3):
            optimizer.step(closure)

    assert kinds(traced(steps, lambda net: torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3))) == {kind: 3}


class Waiting(torch.optim.SGD):
    """A class of the user's own, which steps when it is told to."""

    waits = False

    def step(self, closure=None):
        return None if self.waits else super().step(closure)


class WritesToData(torch.optim.Optimizer):
    """As it was done before 2019: what is written to ``.data`` shows in no version."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter.data.add_(parameter.grad.data, alpha=-0.1)


def test_a_step_within_a_step_and_one_that_waits():
    """Torch tells of a step of a subclass and of that of its base: they are one; a call that does nothing is none."""
    torch.optim.SGD([torch.ones(1, requires_grad=True)])  # from now on torch tells of steps of the base as well

    def steps(net, optimizer):
        for number in range(6):
            loss_of(net).backward()
            optimizer.waits = number % 2 == 0
            optimizer.step()
            if number % 2:
                optimizer.zero_grad()

    assert kinds(traced(steps, lambda net: Waiting(net.parameters(), lr=0.01))) == {"fresh": 3}


def test_steps_that_no_version_shows_are_counted():
    def steps(net, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()

    assert kinds(traced(steps, lambda net: WritesToData(net.parameters()))) == {"fresh": 3}


def test_a_step_that_fails_is_not_counted():
    """The pre-hook has run, the post-hook has not."""

    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise ValueError("no")

    def steps(net, optimizer):
        loss_of(net).backward()
        with pytest.raises(ValueError, match="no"):
            optimizer.step()

    assert kinds(traced(steps, lambda net: Failing(net.parameters()))) == {}


def test_steps_that_were_not_traced_are_not_judged():
    """A tracer that rests wakes up between a backward and its step: what that step found, nobody has seen."""

    def steps(net, optimizer):
        for _ in range(9):
            loss_of(net).backward()
            optimizer.step()
            optimizer.zero_grad()

    found = kinds(traced(steps, every=3))
    assert set(found) == {"fresh", "unseen"}
    assert 3 <= found["fresh"] < 9 - found["unseen"]


def test_a_pass_on_another_thread_leaves_the_steps_unjudged():
    """What it brought is not seen: nothing is said of gradients after it."""
    from threading import Thread

    def steps(net, optimizer):
        for _ in range(3):
            thread = Thread(target=lambda: loss_of(net).backward())
            thread.start()
            thread.join()
            optimizer.step()

    trace = traced(steps)
    assert kinds(trace) == {"unseen": 3}
    assert [found.code for found in trace.report.findings] == []


def test_memory_does_not_grow_with_the_steps():
    """Alike steps are one pattern, alternating lines are two, and what does not fit any more is counted."""

    def steps(net, optimizer):
        for number in range(300):
            loss_of(net).backward()
            if number % 2:
                optimizer.step()
            else:
                optimizer.step()
            optimizer.zero_grad()

    (use,) = traced(steps).report.training.optimizers
    assert [(one.kind, one.count, one.longest) for one in use.patterns] == [("fresh", 150, 1), ("fresh", 150, 1)]


def test_nothing_is_kept_alive():
    """Net and optimizer are gone with their names, while the report stands."""
    net = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={}) as trace:
        loss_of(net).backward()
        optimizer.step()
    gone = [weakref.ref(net), weakref.ref(optimizer), weakref.ref(net.weight), weakref.ref(net.weight.grad)]
    report = trace.report
    del net, optimizer
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert report.training.optimizers[0].name == "optimizer"
    assert trace.report.training == report.training


def test_an_optimizer_that_went_with_its_function_keeps_what_it_held():
    """Known by having cleared three times; one that cleared less often is not known any more."""

    def train(clears):
        net = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(net.parameters())
        for number in range(4):
            if number < clears:
                optimizer.zero_grad()
            loss_of(net).backward()

    found = {}
    for clears in (2, 3):
        with tm.trace(namespace={}) as trace:
            train(clears)
        gc.collect()
        found[clears] = [(idle.name, idle.holds) for idle in trace.report.training.idle]
    assert found == {2: [], 3: [("optimizer", (0, 1))]}


def test_a_mode_of_the_person_s_own_sees_nothing_of_it():
    """The looks at gradients happen outside whatever is switched on."""
    from torch.overrides import TorchFunctionMode

    class Listening(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def run(listening):
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with listening:
            for _ in range(3):
                loss_of(net).backward()
                optimizer.step()

    alone, traced_too = Listening(), Listening()
    run(alone)
    with tm.trace(namespace={}):
        run(traced_too)
    assert traced_too.calls == alone.calls


def test_what_an_optimizer_holds_and_who_else_trains():
    """Parameters of the run by their place in the report, the others by shape; an optimizer that rests counts."""
    net, old, side = nn.Linear(4, 2), nn.Linear(3, 2), nn.Linear(2, 1)
    optimizer = torch.optim.SGD([net.weight, *old.parameters()], lr=0.1)
    resting = torch.optim.SGD([net.bias], lr=0.1)
    with tm.trace(namespace={"net": net, "old": old, "side": side}) as trace:
        for _ in range(3):
            side(net(torch.randn(6, 4))).sum().backward()
            optimizer.step()
            with torch.no_grad():
                side.weight -= 0.1 * side.weight.grad
    report = trace.report
    names = [series.name for series in report.parameters]
    (use,) = report.training.optimizers
    assert [names[number] for number in use.holds] == ["net.weight"]
    assert (use.unknown_parameters, use.unknown_shapes, use.unknown_owner) == (2, ((2, 3), (2,)), "old")
    assert [names[number] for number in report.training.elsewhere] == ["net.bias", "side.weight"]
    assert resting.state == {}


def test_parameters_of_a_model_that_was_made_anew_are_not_trained_elsewhere():
    """Nobody has changed them: another model has them by the same names. What an optimizer held of the old is told."""
    names = {"net": nn.Linear(4, 2)}
    optimizer = torch.optim.SGD(names["net"].parameters(), lr=0.01)
    with tm.trace(namespace=names) as trace:
        for number in range(8):
            optimizer.zero_grad()
            loss_of(names["net"]).backward()
            optimizer.step()
            if number == 2:
                names["net"] = nn.Linear(4, 2)
    (use,) = trace.report.training.optimizers
    assert (use.holds, use.outlived, use.unknown_parameters, use.unknown_idle) == ((0, 1), (0, 1), 2, True)
    assert trace.report.training.elsewhere == ()


def test_what_an_optimizer_gave_up_is_not_made_anew():
    """A group that is removed on purpose: the model has the tensors still, and nobody clears their gradients."""

    def steps(net, optimizer):
        for number in range(8):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
            if number == 2:
                del optimizer.param_groups[0]["params"][0]

    trace = traced(steps)
    (use,) = trace.report.training.optimizers
    assert (use.holds, use.outlived) == ((0, 1), ())
    assert kinds(trace) == {"fresh": 8}


def test_what_is_held_elsewhere_is_looked_for_when_the_run_has_ended():
    """While it goes on, it is not known."""
    seen = []

    def steps(net, optimizer):
        loss_of(net).backward()
        optimizer.step()
        seen.append(trace_now.report.training.elsewhere)

    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD([net.weight], lr=0.1)
    with tm.trace(namespace={"net": net}) as trace_now:
        steps(net, optimizer)
    assert (seen, trace_now.report.training.elsewhere) == ([None], ())


def test_more_optimizers_than_are_followed_are_counted():
    """One a parameter, stepped in hooks: what is not followed is said, and nothing concluded from it."""
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20)))
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in net.parameters()]
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            net(torch.randn(4, 3)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    training = trace.report.training
    assert (len(training.optimizers), training.optimizers_seen) == (32, 40)
    assert trace.report.findings == ()


def grown(step, count=6):
    """Return what grew in a run of ``count`` steps, each given the optimizer."""
    w = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.0)
    with tm.trace(namespace={"w": w}) as trace:
        for number in range(count):
            step(w, optimizer, number)
    return trace.report


def test_a_graph_that_grows_is_measured():
    """How many nodes a step, how many of them old, and the two lines."""
    carried = [torch.zeros(())]

    def step(w, optimizer, number):
        carried[0] = carried[0] + (w * number).sum()
        carried[0].backward(retain_graph=True)
        optimizer.step()

    report = grown(step)
    (growth,) = report.training.growth
    assert (growth.passes, growth.first_size, growth.last_size, growth.increment, growth.older) == (5, 4, 16, 3, 12)
    assert "carried[0] = carried[0] +" in report.location(growth.joined).text
    assert "backward(retain_graph=True)" in report.location(growth.backward).text


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("between", ["no step", "create_graph", "detached", "irregular"])
def test_what_grows_for_another_reason_is_not_taken_for_it(between):
    """No step in between, a graph that is meant to be gone through again, no old nodes, or no equal increments."""
    carried = [torch.zeros(())]

    def step(w, optimizer, number):
        before = carried[0].detach() if between == "detached" else carried[0]
        for _ in range(1 + number if between == "detached" else 1 + number**2 if between == "irregular" else 1):
            before = before + (w * w * number).sum()
        carried[0] = before
        before.backward(retain_graph=True, create_graph=between == "create_graph")
        w.grad = None
        if between != "no step":
            optimizer.step()

    assert grown(step).training.growth == ()


def test_the_mode_of_a_model_at_each_step():
    """Counted with the dropouts and normalisations in it; a model in which neither is has no mode."""
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.2), nn.Dropout(0.0), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for number in range(5):
            net.train(number < 2)
            net(torch.randn(6, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    (mode,) = trace.report.training.modes
    assert (mode.model, mode.steps, mode.eval_steps, mode.longest, mode.first) == ("net", 5, 3, 3, 3)
    assert (mode.dropouts, mode.norms, mode.unused_norms) == (1, 1, 0)


def test_optimizers_are_listed_in_the_order_in_which_they_step(monkeypatch):
    """One that takes the address of one that is no more, as the next in a loop often does, comes after the others."""
    addresses = {}
    monkeypatch.setattr(training, "id", lambda x: addresses.get(id(x), id(x)), raising=False)
    net = nn.Linear(4, 2)
    with tm.trace() as trace:
        loss_of(net).backward()
        first, second = (torch.optim.SGD(net.parameters(), lr=rate) for rate in (1.0, 0.5))
        first.step()
        second.step()
        address = id(second)
        del second
        third = torch.optim.SGD(net.parameters(), lr=0.25)
        addresses[id(third)] = address
        third.step()
    assert [one.rate for one in trace.report.training.optimizers] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_a_loss_that_is_scaled_by_no_more_than_one_makes_no_gradient_too_large(factor):
    """A scaler divides its factor after each overflow, down to nothing; rounding is no factor."""
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    optimizer, scaler = torch.optim.SGD(net.parameters(), 1e-3), torch.amp.GradScaler("cpu", init_scale=factor)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as run:
        for _ in range(16):
            optimizer.zero_grad()
            scaler.scale(net(torch.randn(16, 8)).square().mean()).backward()
            optimizer.step()
    (use,) = run.report.training.optimizers
    assert (use.steps, use.scaled) == (16, 0)
    assert not [gap for gap in run.report.gaps if gap.section == "training"]


def test_a_scaled_loss_is_looked_for_in_a_graph_once(monkeypatch):
    """Nothing led to it: each of thousands of newer nodes was followed as far back as it goes, for seconds."""
    followed = []
    monkeypatch.setattr(call_watch, "reaches", lambda node, _: followed.append(node))
    net, scaler = torch.nn.Linear(4, 1), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as run:
        shown = scaler.scale(net(torch.randn(2, 4)).mean())
        net(torch.randn(2, 4)).mean().backward()
        optimizer.step()
    (use,) = run.report.training.optimizers
    assert (use.steps, use.scaled, followed) == (1, 0, [])
    assert shown.requires_grad


def test_what_a_scaled_loss_is_divided_by_is_not_read_by_code_of_its_class():
    """It would run the user's ``__torch_dispatch__`` for what nobody asked."""
    calls = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*(torch.tensor(2.0) if isinstance(x, Own) else x for x in args), **(kwargs or {}))

    net, scaler = nn.Linear(4, 1), torch.amp.GradScaler("cpu")
    divisor = torch.Tensor._make_wrapper_subclass(Own, ())
    with tm.trace(namespace={"net": net}) as run:
        (scaler.scale(net(torch.randn(2, 4)).mean()) / divisor).backward()
    assert len(run.report.passes) == 1
    assert "aten.div.Tensor" in calls
    assert "aten.ne.Scalar" not in calls


def test_a_used_up_iterator_is_found_in_a_coroutine_as_well():
    """The loops around a backward are those of the function that makes it, however that is defined."""
    net = nn.Linear(2, 1)

    async def train():
        batches = iter([torch.ones(3, 2)] * 2)
        for _ in range(3):
            for x in batches:
                net(x).sum().backward()

    with tm.trace() as trace:
        asyncio.run(train())
    (found,) = trace.report.training.used_up
    assert (found.name, found.rounds, found.own) == ("batches", 3, True)
