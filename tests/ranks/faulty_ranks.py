"""Runs on each of two ranks: programs in which something parts the ranks, and healthy ones that look like them.

Each writes into a folder of its own. In the last one a rank is killed in the middle.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tensormagic as tm

STEPS = 5


def wrapped():
    """Return a small model, the same on every rank."""
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))


def batch(step):
    """Return a batch that is another on each rank."""
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * dist.get_rank() + step))


def train(net, before=lambda net, step: None, after=lambda net, opt, step: None, steps=STEPS):
    """Train; ``before`` is called between backward and step, ``after`` behind it."""
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(1, steps + 1):
        opt.zero_grad()
        net(batch(step)).pow(2).mean().backward()
        before(net, step)
        opt.step()
        after(net, opt, step)


def last(net):
    return list(net.parameters())[-1]


def healthy():
    train(wrapped())


def healthy_clipped():
    train(wrapped(), before=lambda net, _: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


def healthy_accumulation():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        with net.no_sync():
            net(batch(step)).pow(2).mean().backward()
        net(batch(10 + step)).pow(2).mean().backward()
        opt.step()


def healthy_sharded():
    net = wrapped().module
    fully_shard(net)
    train(net)


def healthy_rates():
    def fall(net, opt, step):
        opt.param_groups[0]["lr"] *= 0.9

    train(wrapped(), after=fall)


def never_reduced():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        with net.no_sync():
            net(batch(step)).pow(2).mean().backward()
        opt.step()


def past_the_wrapper():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net.module(batch(step)).pow(2).mean().backward()
        opt.step()


def added_after():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(batch(step)).pow(2).mean().backward()
        with net.no_sync():
            net(batch(10 + step)).pow(2).mean().backward()
        opt.step()


def changed_by_hand():
    def scale(net, step):
        if step == 3:
            last(net).grad.mul_(1 + dist.get_rank())

    train(wrapped(), before=scale)


def started_apart():
    net = wrapped()
    if dist.get_rank():
        with torch.no_grad():
            last(net).add_(1e-3)
    train(net)


def drifted():
    def push(net, opt, step):
        if step == 2 and dist.get_rank():
            with torch.no_grad():
                last(net).add_(1e-3)

    train(wrapped(), after=push)


def other_rates():
    def fall(net, opt, step):
        if step == 2:
            opt.param_groups[0]["lr"] = 0.05 * (1 + dist.get_rank())

    train(wrapped(), after=fall)


def nan_on_one():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(1, STEPS + 1):
        opt.zero_grad()
        x = batch(step)
        if step == 3 and dist.get_rank():
            x[0, 0] = float("nan")
        net(x).pow(2).mean().backward()
        opt.step()


def one_more_pass():
    net = wrapped()
    train(net)
    if not dist.get_rank():
        with net.no_sync():
            net(batch(0)).pow(2).mean().backward()


def killed():
    train(wrapped(), steps=3)
    if dist.get_rank():
        os.kill(os.getpid(), signal.SIGKILL)


PROGRAMS = (
    healthy, healthy_clipped, healthy_accumulation, healthy_sharded, healthy_rates, never_reduced, past_the_wrapper,
    added_after, changed_by_hand, started_apart, drifted, other_rates, nan_on_one, one_more_pass, killed,
)  # fmt: skip


def main(rank, world, folder):
    """Run everything, each under a trace that writes; the reports go to a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    reports = {}
    for program in PROGRAMS:
        if program is killed:
            Path(f"{folder}/reports{rank}").write_bytes(pickle.dumps(reports))
        with tm.trace(ranks=f"{folder}/{program.__name__}") as trace:
            program()
        reports[program.__name__] = trace.report


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)
