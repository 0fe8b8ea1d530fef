"""Who drew in a run: by line, call and generator; and that the run is what it is without."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensormagic.collectors.rng import draws
from tensormagic.collectors.rng.draws import DrawListener
from tensormagic.collectors.runs.run import Run
from tensormagic.diagnoses.calls import unseeded_run
from tensormagic.errors import TraceError
from tensormagic.reports import Cell


def watched(run, **names):
    """Return the report of a run, and what it returned."""
    watcher = Run(draws=DrawListener(names, Cell("", None, ())))
    watcher.start()
    try:
        result = run()
    except Exception as error:
        watcher.stop(error)
        raise
    watcher.stop()
    return watcher.report(), result


def told(report):
    """Return each sum as generator, kind, call, text of its line, calls, values."""
    rows = []
    for draw in report.sums:
        place = report.location(draw.location)
        name = report.before[draw.generator].name
        rows.append((name, draw.kind, draw.op, place.text if place else "", draw.calls, draw.values))
    return rows


def test_a_state_that_is_put_back_is_no_seed():
    """Its generator still knows the seed: what was seeded once is not counted again each time."""

    def run():
        torch.manual_seed(4)
        for _ in range(3):
            with torch.random.fork_rng(devices=[]):
                torch.rand(2)
            torch.zeros(1).bernoulli_()

    with torch.random.fork_rng(devices=[]):
        report, _ = watched(run)
    seeds = [(sum_.op, sum_.calls) for sum_ in report.sums if sum_.kind == "set"]
    assert ("seed", 1) in seeds
    assert sum(calls for op, calls in seeds if op != "seed") == 3


def test_calls_by_line_and_generator():
    """Default and named generators, in the order of their first draws."""
    own = torch.Generator().manual_seed(1)

    def run():
        for _ in range(3):
            x = torch.randn(3, 4, generator=own)
            nn.functional.dropout(x)

    report, _ = watched(run, own=own)
    assert told(report) == [
        ("own", "drew", "aten.randn", "x = torch.randn(3, 4, generator=own)", 3, 36),
        ("torch, CPU", "drew", "aten.bernoulli_", "nn.functional.dropout(x)", 3, 36),
    ]
    assert [state.drawn for state in report.after if state.name == "own"] == [72]


def test_dropout_that_is_off_draws_nothing():
    """Torch tags the call as one that may draw; its generator says that it did not."""
    report, _ = watched(lambda: nn.Dropout(0.5).eval()(torch.ones(4)) + nn.functional.dropout(torch.ones(4), 0.0))
    assert report.sums == ()
    assert report.count == 0


def test_numpy_and_python_between_torch_calls():
    """A draw without torch is seen at the next call of torch's that may draw, or at the end."""

    def run():
        torch.rand(1)
        np.random.rand(2)
        random.random()
        torch.rand(1)
        np.random.rand(3)

    np.random.seed(0)
    random.seed(0)
    report, _ = watched(run)
    rows = [(name, op, values) for name, _, op, _, _, values in told(report)]
    assert rows == [
        ("torch, CPU", "aten.rand", 1),
        ("numpy.random", "", 4),
        ("random", "", 2),
        ("torch, CPU", "aten.rand", 1),
        ("numpy.random", "", 6),
    ]
    since = [report.location(draw.since).text for draw in report.sums[1:3]]
    assert since == ["torch.rand(1)", "torch.rand(1)"]


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_each_of_numpy_s_bit_generators_counts_its_numbers(kind):
    """Those of a generator that has a name; that of another seed is a state that was set, and no draw."""
    made = getattr(np.random, kind)
    generator = np.random.Generator(made(3))
    report, _ = watched(lambda: generator.random(5), generator=generator)
    assert [(name, how, values) for name, how, _, _, _, values in told(report)] == [("generator", "drew", 5)]

    def put_back():
        generator.bit_generator.state = made(77).state

    report, _ = watched(put_back, generator=generator)
    assert [(how, values) for _, how, _, _, _, values in told(report)] == [("set", None)]


def test_seeding_in_the_run_is_told():
    """A state that does not follow from the one before was set."""

    def run():
        torch.rand(4)
        torch.manual_seed(9)
        torch.rand(2)

    report, _ = watched(run)
    assert [(kind, op) for _, kind, op, *_ in told(report)] == [
        ("drew", "aten.rand"),
        ("set", "seed"),
        ("drew", "aten.rand"),
    ]
    assert [(state.seed, state.drawn) for state in report.after if state.name == "torch, CPU"] == [("9", 2)]


def test_a_seed_is_told_of_on_its_own_line():
    """Not on the line that draws next; a state that is put back is told of there, as nothing shows it before."""

    def run():
        state = torch.get_rng_state()
        for _ in range(2):
            torch.manual_seed(-3)
            torch.rand(2)
        torch.set_rng_state(state)
        torch.rand(1)

    report, _ = watched(run)
    assert [row[1:5] for row in told(report)] == [
        ("set", "seed", "torch.manual_seed(-3)", 2),
        ("drew", "aten.rand", "torch.rand(2)", 2),
        ("set", "", "torch.rand(1)", 1),
        ("drew", "aten.rand", "torch.rand(1)", 1),
    ]


def test_a_seed_that_torch_refuses_has_its_own_traceback():
    """Ours is not in it, and nothing is noted."""
    with pytest.raises((RuntimeError, ValueError), match="Overflow") as alone:
        torch.manual_seed(2**70)
    with pytest.raises((RuntimeError, ValueError), match="Overflow") as caught:
        watched(lambda: torch.manual_seed(2**70))
    files = [[entry.path.name for entry in each.traceback][-1:] for each in (alone, caught)]
    assert files[0] == files[1]


def test_a_generator_without_a_name():
    """It is followed from its first draw, and named so."""
    report, _ = watched(lambda: torch.randperm(10, generator=torch.Generator().manual_seed(9)))
    assert told(report)[0][:3] == ("an unnamed generator", "drew", "aten.randperm")


def test_a_data_loaders_own_generator_is_not_the_systems():
    """It is seeded by a draw from the default generator, whose seed gives it again: nobody knows better."""

    def run():
        torch.manual_seed(0)
        return list(DataLoader(TensorDataset(torch.arange(4.0)), shuffle=True))

    report, _ = watched(run)
    (own,) = (state for state in report.before if state.name != "torch, CPU" and state.library == "torch")
    assert (own.seeding, int(own.seed) > 2**32) == ("unknown", True)
    assert list(unseeded_run(report)) == []


def test_the_numbers_are_those_of_an_unwatched_run():
    """Values, gradients and all states afterwards, bit for bit."""

    def run():
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 1))
        loss = net(torch.randn(3, 4)).sum() * random.random() + float(np.random.rand())
        loss.backward()
        return [loss.detach(), net[0].weight.grad, torch.rand(3), torch.from_numpy(np.random.rand(2))]

    def seeded():
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)

    seeded()
    plain = run()
    seeded()
    _, seen = watched(run)
    assert all(one.equal(other) for one, other in zip(plain, seen, strict=True))


def test_an_error_comes_through_and_the_draws_before_it_are_told():
    """Type and message are torch's own; the state says how it ended."""
    watcher = Run(draws=DrawListener({}, Cell("", None, ())))
    watcher.start()
    torch.rand(2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        torch.rand(2, 3) @ torch.rand(2, 3)
    watcher.stop(caught.value)
    report = watcher.report()
    assert report.state == "failed"
    assert sum(draw.calls for draw in report.sums) == 3


def test_a_loop_of_many_draws_is_bounded():
    """Sums are exact; the single draws are kept up to a bound, and the count says so."""

    def run():
        x = torch.empty(1)
        for _ in range(10_500):
            x.uniform_()

    report, _ = watched(run)
    assert report.sums[0].calls == report.count == 10_500
    assert len(report.draws) == 10_000


def test_a_generator_that_cannot_be_read_is_a_gap(monkeypatch):
    """Before, in and after the run: its numbers come, and the report says what was not seen."""
    monkeypatch.setattr(draws, "read", lambda _: 1 // 0)
    watcher = Run(draws=DrawListener({}, Cell("", None, ())))
    watcher.start()
    x = torch.rand(2)
    watcher.listeners["draws"].passed("cell.py", 1, 1)
    watcher.stop()
    assert x.shape == (2,)
    assert any("ZeroDivisionError" in gap.reason for gap in watcher.report().gaps)


def test_twice_is_refused():
    """A watcher is used once."""
    watcher = Run(draws=DrawListener({}, Cell("", None, ())))
    watcher.start()
    watcher.stop()
    with pytest.raises(TraceError, match="track_rng"):
        watcher.start()
