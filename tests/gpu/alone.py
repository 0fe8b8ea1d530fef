"""The parts of the check that may break a process: each has one of its own."""

from __future__ import annotations

import contextlib
import gc
import os

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.gpu.rows import check, codes, gaps, sync
from tests.gpu.workloads import DEVICE


def _captured(traced):
    torch.manual_seed(0)
    net, side = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(DEVICE), torch.cuda.Stream()
    x = torch.randn(64, 256, device=DEVICE)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net.zero_grad(set_to_none=True)
            net(x).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with tm.trace() if traced else contextlib.nullcontext() as trace:
        if traced:  # what of it is still to come must not be asked for while the stream is recorded
            nn.Linear(4, 4, device=DEVICE)(torch.ones(2, 4, device=DEVICE)).sum().backward()
        with torch.cuda.graph(graph):
            net(x).square().mean().backward()
        graph.replay()
    sync()
    return [each.grad.clone() for each in net.parameters()], trace.report if traced else None


def graphs():
    base, _ = _captured(False)
    told, report = _captured(True)
    check("graphs", "forward and backward recorded under a trace", all(map(torch.equal, base, told)))
    check("graphs", "the report says that it stepped aside", "CUDA graph" in gaps(report), "", gaps(report))
    given = torch.randn(8, 64, device=DEVICE, requires_grad=True)
    callable_ = torch.cuda.make_graphed_callables(nn.Linear(64, 64, device=DEVICE), (given,))
    with tm.trace() as trace:
        callable_(torch.randn(8, 64, device=DEVICE, requires_grad=True)).sum().backward()
    check("graphs", "make_graphed_callables, replayed", trace.report.state == "finished", "", gaps(trace.report))


def _fits(x, traced):
    try:
        with tm.trace() if traced else contextlib.nullcontext() as trace:
            (x * 2).sum().backward()
    except torch.OutOfMemoryError as error:
        return False, str(error)[:100]
    finally:
        x.grad = None
    return True, gaps(trace.report) if traced else ""


def oom():
    torch.cuda.set_per_process_memory_fraction(0.05)
    kept = []
    with contextlib.suppress(torch.OutOfMemoryError), tm.track_memory() as run:
        while True:
            kept.append(torch.empty(1 << 28, device=DEVICE))
    check("oom", "out of memory under track_memory is told", run.report.state == "failed" and run.report.out_of_memory)
    kept.clear()
    gc.collect()
    torch.cuda.empty_cache()
    x = torch.randn(1 << 27, device=DEVICE, requires_grad=True)  # 0.5 GiB; its backward needs 1 GiB
    limit = int(0.05 * torch.cuda.get_device_properties(0).total_memory)
    for left in (4096, 1280, 1100, 1060, 1030):
        torch.cuda.empty_cache()
        room = limit - torch.cuda.memory_allocated() - (left << 20)
        filler = torch.empty(max(room, 0), dtype=torch.uint8, device=DEVICE)
        untraced, _ = _fits(x, False)
        traced, note = _fits(x, True)
        check(
            "oom", f"{left} MiB left: a traced backward where the untraced one fits", traced >= untraced, traced, note
        )
        del filler


def _parallel(kind, level):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE)
    if kind == "ddp":
        net = nn.parallel.DistributedDataParallel(net, device_ids=[0])
    else:
        for module in (net[0], net[2], net):
            fully_shard(module)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(32, 256, device=DEVICE), torch.randint(0, 10, (32,), device=DEVICE)
    with tm.trace(level=level) if level else contextlib.nullcontext() as trace:
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    sync()
    local = [each.detach().to_local() if hasattr(each, "to_local") else each.detach() for each in net.parameters()]
    return [each.clone() for each in local], trace.report if level else None


def nccl():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK="0", WORLD_SIZE="1")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", 0))
    for kind in ("ddp", "fsdp2"):
        base, _ = _parallel(kind, "")
        for level in ("grad", "ops"):
            told, report = _parallel(kind, level)
            check("nccl", f"{kind}, level {level}: no bit is changed", all(map(torch.equal, base, told)))
            check("nccl", f"{kind}, level {level}: no finding", not report.findings, codes(report), gaps(report))
    torch.distributed.destroy_process_group()
