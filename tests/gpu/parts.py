"""The parts of the check that run in its own process; those that CUDA is needed for are skipped without it."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm
from tests.gpu.rows import check, clean, codes, elapsed, gaps, info, sync
from tests.gpu.workloads import CUDA, DEVICE, STEPS, workload

LIMIT = 400.0  # seconds after which no more is begun
MIB = 1 << 20
BOUNDS = {"gpt2": 1.10, "resnet50": 1.10}  # of tracegrad over eager
LAUNCHES = 300  # of the tracer's own, a pass of 50 × (Linear + ReLU)


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


MODES = {
    "eager": contextlib.nullcontext, "trace": tm.trace, "no-op dispatch mode": Nothing,
    "trace ops": lambda: tm.trace(level="ops"), "trace 5 %": lambda: tm.trace(budget=0.05),
    "track_memory": tm.track_memory,
}  # fmt: skip


def device():
    info("device", "torch, device", torch.__version__, torch.cuda.get_device_name() if CUDA else "no CUDA device")
    if CUDA:
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        info("device", "CUDA, capability, memory", f"{torch.version.cuda}, {torch.cuda.get_device_capability()}", total)
        info("device", "pynvml is there: other processes are told", find_spec("pynvml") is not None)


def _run(name, mode, steps=3):
    net, step = workload(name)
    with MODES[mode]() as follower:
        for _ in range(steps):
            step()
    sync()
    state = [each.detach().clone() for each in (*net.parameters(), *net.buffers())]
    state += [each.grad.clone() for each in net.parameters() if each.grad is not None]
    return net, state, None if mode == "eager" else follower.report


def _same(one, other):
    return all(map(torch.equal, one, other))


def correct():
    """Bit for bit the same parameters, gradients and buffers; norms that float64 confirms."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for name in STEPS:
            base, again = _run(name, "eager")[1], _run(name, "eager")[1]
            steady = _same(base, again)
            for mode in ("trace", "trace ops", "track_memory"):
                net, state, report = _run(name, mode)
                same = _same(base, state)
                note = "" if steady else "eager itself differs from run to run"
                check("correct", f"{name}: {mode} changes no bit", same or not steady, same, note)
                if mode == "trace":
                    _true_norms(name, net, report)
                del net, state, report
            clean()
    finally:
        torch.use_deterministic_algorithms(False)


def _true_norms(name, net, report):
    told = {series.name.split(".", 1)[-1]: series for series in report.parameters}
    worst, missing = 0.0, 0
    for key, parameter in net.named_parameters():
        if key not in told or not len(told[key].norms) or parameter.grad is None:
            missing += 1
            continue
        true = float(torch.linalg.vector_norm(parameter.grad.double()))
        worst = max(worst, abs(told[key].norms[-1] - true) / max(true, 1e-30))
    check(
        "correct", f"{name}: norms against float64", worst < 1e-3 and not missing, f"{worst:.1e}", f"{missing} missing"
    )
    expected = {"gpt2": {"TM617"}}.get(name, set())  # its weights are bfloat16, and its learning rate is small
    healthy = {*codes(report)} <= expected and not report.gaps
    what = " but " + ", ".join(expected) if expected else ""
    check("correct", f"{name}: no finding{what}, no gap", healthy, codes(report), gaps(report))


def nan():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)
    with tm.trace() as trace:
        (net(torch.rand(8, 64, device=DEVICE)) * 0).sqrt().sum().backward()
    check("nan", "a square root at 0 is found", {"TM401", "TM402"} & {*codes(trace.report)}, codes(trace.report))
    half = torch.full((4096,), 300.0, device=DEVICE, dtype=torch.float16, requires_grad=True)
    with tm.trace() as trace:
        (half * 300).float().sum().backward()
    check(
        "nan",
        "an overflow of float16 is found",
        not trace.report.passes[0].finite or trace.report.findings,
        codes(trace.report),
    )


def inspect():
    generator = torch.Generator(DEVICE).manual_seed(3)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        x = (torch.randn(513, 257, device=DEVICE, generator=generator) * 100).to(dtype)
        if dtype.is_floating_point:
            x[3, 5], x[7, 9] = math.nan, math.inf
        there, here = (tm.inspect(each, name="x").statistics for each in (x, x.cpu()))
        names = [name for name in ("minimum", "maximum", "mean", "std", "norm", "nan") if hasattr(here, name)]
        bad = [name for name in names if not _close(getattr(there, name), getattr(here, name))]
        check(
            "inspect", f"{dtype}: statistics are those of the CPU", names and not bad, bad or f"{len(names)} compared"
        )
    if CUDA:
        pinned = str(tm.inspect(torch.randn(1000).pin_memory(), name="pinned")).lower()
        check("inspect", "pinned memory is told", "pinned" in pinned)
        torch.cuda.manual_seed(12345)
        told = str(tm.rng()).replace("\xa0", "").replace(" ", "")
        check("inspect", "the seed of the CUDA generator is told", "12345" in told)


def _close(one, other):
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


def memory():
    """Numbers of torch, to the byte; nothing is kept; a recording is left as it was."""
    net, step = workload("encoder")
    step()
    sync()
    gc.collect()
    cuda = torch.cuda
    before = cuda.memory_allocated(), cuda.memory_reserved(), cuda.max_memory_allocated()
    (found,) = tm.memory({"net": net}, devices="cuda").devices
    check(
        "memory",
        "allocated, reserved, peak are torch's",
        (found.allocated, found.reserved, found.peak) == before,
        before,
    )
    check("memory", "looking allocates nothing", cuda.memory_allocated() == before[0])
    blocks = [block for segment in cuda.memory_snapshot() for block in segment["blocks"]]
    active = sum(block["requested_size"] for block in blocks if block["state"] == "active_allocated")
    check(
        "memory",
        "storages found against bytes asked for",
        abs(found.live - active) <= 0.02 * active,
        found.live,
        active,
    )
    recording = torch._C._cuda_isHistoryEnabled()
    with tm.track_memory():
        step()
    check("memory", "the allocator's recording is left as it was", torch._C._cuda_isHistoryEnabled() == recording)
    sync()
    gc.collect()
    base = cuda.memory_allocated()
    for _ in range(3):
        with tm.trace() as trace:
            step()
        kept = trace.report
    sync()
    gc.collect()
    check(
        "memory",
        "no byte is kept after traced steps",
        cuda.memory_allocated() == base,
        cuda.memory_allocated() - base,
        kept.state,
    )
    big = torch.randn(1 << 28, device=DEVICE)
    clean()
    base = cuda.memory_allocated()
    tm.inspect(big, name="big")
    most = cuda.max_memory_allocated() - base
    check("memory", "%tensor of 1 GiB: bytes for a moment", most < 256 * MIB, f"{most / MIB:.0f} MiB")


def _waits(step, count):
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(count):
                step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [each for each in seen if "synchroniz" in str(each.message)]
    return len(waits) / count, " ".join(sorted({f"{Path(each.filename).name}:{each.lineno}" for each in waits}))


def syncs():
    """How often a traced step waits in the steady state, and how many kernels it launches."""
    for name in ("mlp50", "encoder"):
        _, step = workload(name)
        found, kernels = {}, {}
        for mode in ("eager", "trace", "trace ops", "track_memory"):
            with MODES[mode]():
                for _ in range(6):
                    step()
                sync()
                found[mode], lines = _waits(step, 12)
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                    step()
                    sync()
            kernels[mode] = sum(each.device_type == torch.autograd.DeviceType.CUDA for each in profile.events())
            check(
                "syncs",
                f"{name}: waits a step, {mode}",
                found[mode] <= found["eager"],
                f"{found[mode]:.1f}",
                lines[:150],
            )
        more = kernels["trace"] - kernels["eager"]
        check("syncs", f"{name}: kernels that a traced step adds", name != "mlp50" or more <= LAUNCHES, more, kernels)
        clean()


def _on_two_streams(traced):
    torch.manual_seed(0)
    a, b = nn.Linear(1024, 1024, device=DEVICE), nn.Linear(1024, 1024, device=DEVICE)
    x, side = torch.randn(2048, 1024, device=DEVICE), torch.cuda.Stream()
    with tm.trace() if traced else contextlib.nullcontext() as trace:
        for _ in range(30):
            a.zero_grad()
            b.zero_grad()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                h = a(x).relu()
                torch.cuda._sleep(2_000_000)
            torch.cuda.current_stream().wait_stream(side)
            (b(x) + h).square().mean().backward()
    sync()
    norms = [float(each.grad.double().norm()) for each in (*a.parameters(), *b.parameters())]
    told = [series.norms[-1] for series in trace.report.parameters] if traced else []
    return norms, sum(not any(math.isclose(one, other, rel_tol=1e-3) for other in told) for one in norms)


def streams():
    (base, _), (told, wrong) = _on_two_streams(False), _on_two_streams(True)
    check("streams", "two streams: the same gradients", all(map(math.isclose, base, told)))
    check("streams", "two streams: the norms of the last pass", wrong == 0, f"{wrong} of 4 wrong")


def half():
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE)
    x, y = torch.randn(32, 256, device=DEVICE), torch.randint(0, 10, (32,), device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for dtype, scale in (
        (torch.bfloat16, None),
        *(((torch.float16, 2.0**16), (torch.float16, 2.0**30)) if CUDA else ()),
    ):
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=scale or 1.0, enabled=scale is not None)
        with tm.trace() as trace:
            for _ in range(6):
                optimizer.zero_grad()
                with torch.autocast(DEVICE.type, dtype):
                    loss = F.cross_entropy(net(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        errors = [finding.code for finding in trace.report.findings if finding.severity == "error"]
        what = f"autocast {dtype}, scale {scale}"
        if scale == 2.0**30:  # its first steps do overflow
            info("half", f"{what}: findings", codes(trace.report))
        else:
            check("half", f"{what}: no error on a healthy run", not errors, codes(trace.report))


def _compiled(traced, options):
    import torch._dynamo as dynamo

    torch.manual_seed(0)
    dynamo.reset()
    dynamo.utils.counters.clear()
    net = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)).to(DEVICE)
    fast, optimizer = torch.compile(net, **options), torch.optim.SGD(net.parameters(), lr=1e-2)
    x, y = torch.randn(32, 256, device=DEVICE), torch.randint(0, 10, (32,), device=DEVICE)

    def loop(count):
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(fast(x), y).backward()
            optimizer.step()

    loop(3)
    with tm.trace() if traced else contextlib.nullcontext() as trace:
        loop(4)
    sync()
    graphs = dynamo.utils.counters["stats"].get("unique_graphs", 0)
    return [each.detach().clone() for each in net.parameters()], graphs, trace.report if traced else None


def compiled():
    for options in ({}, {"mode": "reduce-overhead"}):
        base, graphs, _ = _compiled(False, options)
        told, traced_graphs, report = _compiled(True, options)
        check("compile", f"torch.compile({options}): no bit is changed", _same(base, told))
        check(
            "compile",
            f"torch.compile({options}): nothing is compiled anew",
            graphs == traced_graphs,
            traced_graphs,
            gaps(report),
        )


def _timed(step, count):
    sync()
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _ in range(count):
        step()
    sync()
    return (time.perf_counter() - began) / count, torch.cuda.max_memory_allocated() if CUDA else 0


def ratio():
    """Whole steps over eager ones, alternating; the peak of the first traced step, which is measured in full."""
    for name, steps in STEPS.items():
        count, rounds = (steps, 3) if CUDA else (2, 1)
        if elapsed() > LIMIT:
            info("ratio", name, "left out: time")
            continue
        _, step = workload(name)
        _timed(step, 4)
        seconds, peaks = {mode: [] for mode in MODES}, dict.fromkeys(MODES, 0)
        for mode in (mode for _ in range(rounds) for mode in MODES):
            with MODES[mode]():
                _timed(step, 4 if CUDA else 1)  # the first passes of a trace take full statistics
                took, most = _timed(step, count)
            seconds[mode].append(took)
            peaks[mode] = max(peaks[mode], most)
        base, peak = statistics.median(seconds["eager"]), peaks["eager"]
        for mode, found in seconds.items():
            times = statistics.median(found) / base
            told = f"×{times:.2f}", f"{1e3 * base * times:.2f} ms a step, peak {peaks[mode] / 2**30:.2f} GiB"
            if CUDA and mode == "trace" and name in BOUNDS:
                check("ratio", f"{name}: {mode}, at most {BOUNDS[name]:.2f}", times <= BOUNDS[name], *told)
            else:
                info("ratio", f"{name}: {mode}", *told)
        with tm.trace():
            took, most = _timed(step, 1)
        told = f"{(most - peak) / MIB:+.0f} MiB", f"×{took / base:.1f} of the time"
        if CUDA:
            check("ratio", f"{name}: the first traced step's peak", most - peak <= max(0.02 * peak, 64 * MIB), *told)
        del step
        clean()
