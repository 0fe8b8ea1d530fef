"""Runs on each of four ranks: a mesh of two by two, each program alone, and under every follower."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tensormagic as tm

STEPS = 4
MESHES = {}


def mesh(*names):
    """Return a mesh of two by two ranks, or a row of four; it is made once: each makes groups."""
    if names not in MESHES:
        MESHES[names] = init_device_mesh("cpu", (2, 2) if len(names) == 2 else (4,), mesh_dim_names=names)
    return MESHES[names]


def net():
    """Return a small model, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model, share, after=lambda model, step: None):
    """Train on the batches of a share of the data; return what that came to, to the bit."""
    opt = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for step in range(1, STEPS + 1):
        opt.zero_grad()
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * share + step))
        loss = model(x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05, foreach=False)
        opt.step()
        after(model, step)
        losses.append(float(loss.detach()))
    parameters = [getattr(each, "_local_tensor", each).detach().numpy().tobytes() for each in model.parameters()]
    return losses, parameters, torch.get_rng_state().numpy().tobytes()


def sharded_over_tensor_parallel():
    """FSDP2 over tensor parallelism: ranks of one row of the mesh are given the same."""
    both, model = mesh("dp", "tp"), net()
    parallelize_module(model, both["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=both["dp"])
    return train(model, both["dp"].get_local_rank())


def sharded_replicas():
    """Two replicas of two shards."""
    model = net()
    fully_shard(model, mesh=mesh("replicate", "shard"))
    return train(model, dist.get_rank())


def replica_that_drifts():
    """A shard is changed on one rank alone, and its replica is not."""

    def push(model, step):
        if step == 2 and dist.get_rank() == 3:
            with torch.no_grad():
                next(model.parameters()).to_local().add_(1e-3)

    model = net()
    fully_shard(model, mesh=mesh("replicate", "shard"))
    return train(model, dist.get_rank(), push)


def tensor_parallel():
    """Tensor parallelism over all four."""
    model = net()
    parallelize_module(model, mesh("all"), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, 0)


PROGRAMS = (sharded_over_tensor_parallel, sharded_replicas, replica_that_drifts, tensor_parallel)
FOLLOWERS = (
    lambda: tm.trace(forward=True),
    lambda: tm.trace(memory=True, writes=True, draws=True),
    lambda: tm.trace(budget=0.5),
    tm.track_memory,
    tm.watch_writes,
    tm.track_rng,
)


def begun():
    """Return how many collectives this rank has begun in each group."""
    return [group._get_sequence_number_for_group() for group in dist.distributed_c10d._world.pg_map]


def main(rank, world, folder):
    """Run everything, and leave what was found in a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    mesh("dp", "tp"), mesh("replicate", "shard"), mesh("all")
    found = {}
    for program in PROGRAMS:
        start = begun()
        alone = program()
        between = begun()
        with tm.trace(ranks=f"{folder}/{program.__name__}", level="ops") as trace:
            followed = program()
        counts = [start, between, begun()]
        others = []
        for follower in FOLLOWERS:
            with follower():
                others.append(program())
            counts.append(begun())
        each = [[after - before for before, after in zip(*pair, strict=True)] for pair in itertools.pairwise(counts)]
        codes = [finding.code for finding in trace.report.findings]
        found[program.__name__] = alone, [followed, *others], each, codes
    Path(f"{folder}/found{rank}").write_bytes(pickle.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)
