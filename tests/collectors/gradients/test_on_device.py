"""What a gradient on a device costs: launches, temporaries and waits, counted on a CPU that is taken for one.

Before numbers were reckoned together, a pass of 50 × (Linear + ReLU) made 10,083 launches and 1,759 float64 copies, in
each of 30 passes everything was measured, 3 reads waited after each pass, and what was made on the way had 16 times the
bytes of a float32 gradient in sum (32 times those of a bfloat16 one), the largest of it 2 times (4 times).
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import tensormagic as tm
from tensormagic.collectors.gradients import on_device
from tensormagic.reports import UNREADABLE

MIB = 1 << 20


def _deep():
    net = nn.Sequential(*[layer for _ in range(50) for layer in (nn.Linear(64, 64), nn.ReLU())])
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # else no gradient reaches the first of them
    return net, torch.randn(8, 64), torch.optim.SGD(net.parameters(), lr=1e-3)


def _steps(net, x, optimizer, count=1):
    for _ in range(count):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def test_a_pass_launches_little_and_nothing_waits(simulated):
    """At most 300 launches a pass, all gradients included, in full passes too; in no step anything is waited for."""
    net, x, optimizer = _deep()
    launched = []
    with tm.trace() as trace:
        for _ in range(24):
            with simulated.counted() as counts:
                optimizer.zero_grad()
                net(x).square().mean().backward()
            launched.append(counts.launches)
            optimizer.step()
            assert (counts.waits, counts.readers, counts.wide) == (0, {}, 0)
    assert max(launched) <= 300
    assert min(launched) >= 200, "a gradient costs a launch at least: were they counted?"
    report = trace.report
    assert [bool(frame.measures) for frame in report.graphs[0].frames] == [
        at & (at - 1) == 0 for at in range(24)
    ]  # the first, and each 2^k-th after it
    assert report.gaps == ()
    assert not [finding.code for finding in report.findings]


OPTIONS = {
    "forward": {"forward": True, "values": True}, "ops": {"level": "ops"}, "memory": {"memory": True},
    "writes": {"writes": True}, "draws": {"draws": True}, "budget": {"budget": 0.5},
}  # fmt: skip


def _mixed(rate):
    """Return a model that draws and has buffers, and an optimizer whose learning rate may be a tensor."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.BatchNorm1d(16), nn.Linear(16, 1))
    return net, torch.randn(4, 8), torch.optim.AdamW(net.parameters(), rate, foreach=False)


@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_waits_whatever_is_asked_for(name, simulated):
    """Each option, with clipping and a learning rate that lies on the device."""
    net, x, optimizer = _mixed(torch.tensor(0.01))
    with tm.trace(namespace={"net": net, "optimizer": optimizer}, **OPTIONS[name]):
        for _ in range(10):
            with simulated.counted() as counts:
                optimizer.zero_grad()
                net(x).square().mean().backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
            assert (counts.waits, counts.readers) == (0, {})


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_steps_aside_while_a_stream_is_recorded(name, simulated):
    """Nothing is put on the stream or asked of it; the report says so."""
    net, x, optimizer = _mixed(0.01)
    with tm.trace(**OPTIONS[name]) as trace:
        _steps(net, x, optimizer)
        simulated.catch_up()
        simulated.is_capturing = True
        with simulated.counted() as counts:
            _steps(net, x, optimizer)
        simulated.is_capturing = False
        assert (counts.launches, counts.waits) == (0, 0)
        _steps(net, x, optimizer)
    report = getattr(trace.report, "trace", trace.report)  # of several questions, the part about gradients
    assert any("CUDA graph" in gap.reason for gap in report.gaps) or name == "budget"  # which let that pass be


@pytest.mark.parametrize("size", [1 << 10, 1 << 16])
def test_a_gradient_that_is_handed_on_unchanged_is_measured_once(size, simulated):
    """A sum of forty: each addition hands the same memory to both of its inputs."""
    parts = [torch.ones(size, requires_grad=True) for _ in range(40)]
    with tm.trace() as trace, simulated.counted() as counts:
        (sum(parts) * torch.ones(size)).sum().backward()
    assert counts.by_name["_to_copy"] + counts.by_name["linalg_vector_norm"] < 20
    assert list({series.norms[0] for series in trace.report.parameters}) == [pytest.approx(math.sqrt(size))]


def test_the_numbers_are_those_of_the_cpu(request):
    """Norms, statistics, losses and how far steps moved the parameters, whichever way they are taken."""
    found = []
    for device in (None, "simulated"):
        if device:
            request.getfixturevalue(device)
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 300), nn.GELU(), nn.Linear(300, 300), nn.LayerNorm(300), nn.Linear(300, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
            _steps(net, torch.randn(200, 6), optimizer, 5)
        found.append(trace.report)
    now, later = found
    assert [done.value for done in later.passes] == [done.value for done in now.passes]
    assert later.gaps == now.gaps == ()
    for one, other in zip(now.parameters, later.parameters, strict=True):
        assert one.name == other.name
        assert list(other.norms) == pytest.approx(list(one.norms), rel=1e-5)
        assert other.updates[0] == pytest.approx(one.updates[0], rel=1e-5)
    for one, other in zip(now.graphs[0].nodes, later.graphs[0].nodes, strict=True):
        assert (one.statistics.count, one.statistics.zero) == (other.statistics.count, other.statistics.zero)
        for field in ("norm", "abs_max", "mean", "std"):
            wanted = pytest.approx(getattr(one.statistics, field), rel=1e-4, abs=1e-6 * one.statistics.abs_max)
            assert getattr(other.statistics, field) == wanted
    for one, other in zip(now.graphs[0].frames, later.graphs[0].frames, strict=True):
        assert list(other.norms) == pytest.approx(list(one.norms), rel=1e-5)
    kinds = [pattern.kind for report in found for pattern in report.training.optimizers[0].patterns]
    assert kinds == ["fresh", "fresh"]


def test_the_seconds_of_a_pass_are_the_devices(simulated, monkeypatch):
    """From one event to another, and not how long it took to put everything on the stream."""
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        for at in range(4):
            loss = (x * 2).sum()
            x.register_hook(lambda gradient, at=at: simulated.pass_time(at + 1.0))
            loss.backward()
    assert [done.seconds for done in trace.report.passes] == [1.0, 3.0, 6.0, 10.0]


def test_the_first_nonfinite_is_found_late_too(simulated):
    """Where a NaN came into being is said by pass, node, counts, and by what the node saved."""
    x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    with tm.trace() as trace:
        for _ in range(3):
            ((x * 1.0).sqrt() * 2).sum().backward()
    (nonfinite,) = trace.report.graphs[0].first_nonfinite
    assert (nonfinite.inf, nonfinite.nan, nonfinite.count) == (1, 0, 3)
    assert (nonfinite.pass_number, nonfinite.saved_zero) == (1, 1)
    assert [done.finite for done in trace.report.passes] == [False] * 3
    assert trace.report.findings[0].code.startswith("TM40")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_temporary_is_as_large_as_a_large_gradient(dtype, simulated):
    """Of a gradient over 64 MiB, everything: in pieces; its norm alone: without any temporary."""
    x = torch.ones(40 * MIB, dtype=dtype, requires_grad=True)
    with tm.trace() as trace:
        for at in range(4):
            with simulated.counted() as counts:
                (x * 2).sum().backward()
            assert counts.largest < x.nbytes / 4
            assert counts.peak <= 64 * MIB
            assert counts.wide == 0
            assert at < 3 or counts.made < MIB
            x.grad = None
    assert list(trace.report.parameters[0].norms) == pytest.approx([2 * math.sqrt(x.numel())] * 4, rel=1e-3)
    assert x.numel() in {node.statistics.count for node in trace.report.graphs[0].nodes}


def test_large_gradients_that_are_not_finite_are_told(simulated, monkeypatch):
    """Where only the norms are taken it is known that there is a NaN, and said that they are not counted."""
    monkeypatch.setattr(on_device, "SMALL", 8)
    x = torch.ones(100, requires_grad=True)
    with tm.trace() as trace:
        for at in range(8):
            factor = torch.ones(100)
            factor[:3] = math.nan if at == 6 else 1.0
            (x * factor).sum().backward()
    assert [done.finite for done in trace.report.passes] == [True] * 6 + [False, True]
    assert any("1 stands for at least 1" in gap.reason for gap in trace.report.gaps)


def test_norms_beyond_float32_are_right_from_the_second_pass_on(simulated, monkeypatch):
    """A norm alone overflows or vanishes in float32; where it did, the gradient is looked at with care."""
    monkeypatch.setattr(on_device, "SMALL", 8)
    for scale in (1e25, 1e-30):
        x = torch.ones(100, requires_grad=True)
        with tm.trace() as trace:
            for _ in range(8):
                (x * 1).backward(torch.full((100,), scale))
        assert list(trace.report.parameters[0].norms) == pytest.approx([10 * scale] * 8, rel=1e-3)
        assert all(done.finite for done in trace.report.passes)


def test_a_jump_of_a_norm_asks_for_statistics(simulated):
    """A thousandfold gradient: the pass after the one that told of it is measured in full."""
    x = torch.ones(100, requires_grad=True)
    with tm.trace() as trace:
        for at in range(32):
            (x * (1.0 if at < 20 else 1e5)).sum().backward()
    full = [frame.pass_number - 1 for frame in trace.report.graphs[0].frames if frame.measures]
    assert [at for at in full if at & (at - 1)] == [22]  # pass 20 jumped, which pass 22 was the first to know


def test_gradients_that_are_written_to_inside_the_pass_are_told_as_they_came(simulated):
    """An optimizer in a hook, and clipping there: what arrived counts, as on a CPU."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def clip(parameter):
        parameter.grad.zero_()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(clip)
    with tm.trace(namespace={"net": net}) as trace:
        net(torch.ones(2, 4)).sum().backward()
    assert all(0 < series.norms[0] < math.inf for series in trace.report.parameters)
    assert not any(parameter.grad.any() for parameter in net.parameters())


def test_a_trace_steps_aside_while_a_stream_is_recorded(simulated):
    """Nothing is put on the stream, nothing is asked of it, and the report says so."""
    net, x, optimizer = _deep()
    with tm.trace(forward=True) as trace:
        _steps(net, x, optimizer)
        simulated.is_capturing = True
        with simulated.counted() as counts:
            net(x).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        simulated.is_capturing = False
        assert (counts.launches, counts.waits) == (0, 0)
        _steps(net, x, optimizer)
    assert trace.report.passes_seen == 2
    (gap,) = trace.report.gaps
    assert "CUDA graph" in gap.reason


def test_near_the_limit_numbers_are_given_up_and_the_run_goes_on(simulated, monkeypatch):
    """A device that runs out of memory in the tracer's own work: a gap, and more and more passes are left alone."""
    net, x, optimizer = _deep()
    put, full = on_device.DeviceNumbers._put, [False]

    def runs_out(self, values, asked, *, careful):
        if full[0] and len(self._asked) > 30:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        put(self, values, asked, careful=careful)

    monkeypatch.setattr(on_device.DeviceNumbers, "_put", runs_out)
    with tm.trace() as trace:
        _steps(net, x, optimizer, 2)
        full[0] = True
        _steps(net, x, optimizer, 4)
        full[0] = False
        _steps(net, x, optimizer, 10)
    report = trace.report
    assert (report.state, report.passes_seen) == ("finished", 16)
    assert any("no room left" in gap.reason for gap in report.gaps)
    frames = report.graphs[0].frames
    assert UNREADABLE in frames[2].norms
    assert UNREADABLE not in frames[-1].norms


def test_with_little_room_only_norms_are_taken(simulated):
    """What full statistics take on the way is not taken where less is left than that may need."""
    simulated.left = 100 * MIB
    x = torch.ones(10, requires_grad=True)
    with tm.trace() as trace:
        (x * 2).sum().backward()
    assert trace.report.parameters[0].norms[0] == pytest.approx(2 * math.sqrt(10))
    assert not trace.report.graphs[0].frames[0].measures
    assert any("only the norms" in gap.reason for gap in trace.report.gaps)


def test_no_gradient_is_held_until_the_pass_is_over(simulated):
    """Small ones are copied, of large ones the numbers are reckoned at once: nobody's memory lives longer."""
    alive, seen = [], []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            seen.append(sum(not storage.expired() for storage in alive))
            given = gradient * 2
            alive.append(StorageWeakRef(given.untyped_storage()))
            return given

    x = torch.ones(1 << 16, requires_grad=True)
    y = x
    for _ in range(6):
        y = Noted.apply(y)
    with tm.trace():
        y.sum().backward()
    assert max(seen) <= 1
