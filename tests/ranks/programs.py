"""Runs on each of two ranks: small programs of every kind of parallelism, each under a trace, one after another.

Every program returns what the ranks may be asked for. What a rank found goes to a file that the tests read: one launch
does for all of them.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tensormagic as tm
from tensormagic.collectors.gradients import pass_log

STEPS = 3


def net():
    """Return a small model, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(step):
    """Return a batch that is another on each rank."""
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * dist.get_rank() + step))


def stood(model, losses):
    """Return what a run came to, to the bit: the losses, and what lies here of the parameters."""
    parameters = [getattr(each, "_local_tensor", each).detach() for each in model.parameters()]
    return losses, [each.numpy().tobytes() for each in parameters], torch.get_rng_state().numpy().tobytes()


def train(model, steps=STEPS):
    """Train with SGD; the target is made of what the model says, which is a cut that is in no parameter's way."""
    opt = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(steps):
        opt.zero_grad()
        out = model(batch(step))
        loss = (out - 0.5 * out.detach()).pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    return stood(model, losses)


def ddp():
    return train(DistributedDataParallel(net()))


def ddp_no_sync():
    model = DistributedDataParallel(net())
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        with model.no_sync():
            model(batch(step)).pow(2).mean().backward()
        model(batch(10 + step)).pow(2).mean().backward()
        opt.step()
    return stood(model, [])


def ddp_static():
    return train(DistributedDataParallel(net(), static_graph=True))


def ddp_hook():
    model = DistributedDataParallel(net())
    model.register_comm_hook(None, fp16_compress_hook)
    return train(model)


def fsdp2():
    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return train(model)


def fsdp2_kept():
    model = net()
    fully_shard(model, reshard_after_forward=False)
    return train(model)


def fsdp1():
    return train(FullyShardedDataParallel(net(), device_id=torch.device("cpu")))


def fsdp1_original():
    return train(FullyShardedDataParallel(net(), use_orig_params=True, device_id=torch.device("cpu")))


def tensor_parallel():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    return train(parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}))


def dtensor():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    w = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
    x = distribute_tensor(torch.ones(4, 4), mesh, [Replicate()])
    opt = torch.optim.SGD([w], 0.1)
    for _ in range(STEPS):
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
    return stood(nn.ParameterList([w]), [float(w.grad._local_tensor.norm())])


def pipeline(schedule):
    rank, layers = dist.get_rank(), net()
    part = nn.Sequential(*([layers[0], layers[1]] if rank == 0 else [layers[2]]))
    stage = PipelineStage(part, rank, dist.get_world_size(), torch.device("cpu"))
    schedule = schedule(stage, 4, loss_fn=lambda out, target: (out - target).pow(2).mean())
    opt = torch.optim.SGD(part.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        losses = []
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=torch.ones(8, 4), losses=losses)
        opt.step()
    return stood(part, [])


def clipped(model):
    opt = torch.optim.SGD(model.parameters(), 0.1)
    model(batch(0)).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    opt.step()
    return stood(model, [])


def ddp_clipped():
    return clipped(DistributedDataParallel(net()))


def fsdp2_kept_back():
    model = net()
    fully_shard(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        model.set_requires_gradient_sync(step % 2 == 1)
        model(batch(step)).pow(2).mean().backward()
        if step % 2:
            opt.step()
            opt.zero_grad()
    return stood(model, [])


def gpipe():
    return pipeline(ScheduleGPipe)


def one_f_one_b():
    return pipeline(Schedule1F1B)


PROGRAMS = (
    ddp, ddp_no_sync, ddp_static, ddp_hook, fsdp2, fsdp2_kept, fsdp1, fsdp1_original, tensor_parallel, dtensor, gpipe,
    one_f_one_b, ddp_clipped, fsdp2_kept_back,
)  # fmt: skip


def collectives():
    """Return how many collectives of all ranks' group this rank has begun."""
    return dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()


def followed(program, **options):
    """Return what a program comes to under a trace, its report, and how many collectives it took."""
    before = collectives()
    with tm.trace(**options) as trace:
        ended = program()
    return ended, trace.report, collectives() - before


def alone(program):
    """Return what a program comes to without a trace, and how many collectives it took."""
    before = collectives()
    return program(), collectives() - before


FOLLOWERS = (
    lambda: tm.trace(budget=0.5), lambda: tm.trace(forward=True, values=True), tm.track_memory, tm.watch_writes,
    tm.track_rng,
)  # fmt: skip


def beside(program, follower):
    """Return what a program comes to under any follower, and how many collectives it took."""
    with follower():
        return alone(program)


def looks():
    """Return what is said of models after a step; of the first rank alone: whoever asked others would wait for ever."""
    model, flat = net(), FullyShardedDataParallel(net(), use_orig_params=True, device_id=torch.device("cpu"))
    fully_shard(model)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for each in (model, flat):
        each(batch(0)).pow(2).mean().backward()
    opt.step()
    with tm.track_memory() as run:
        flat(batch(1)).pow(2).mean().backward()
    named = {"model": model, "opt": opt, "flat": flat, "array": torch.from_numpy(np.ones(100)), "run": 0}
    if dist.get_rank():
        return {"run": run.report}
    return {
        "memory": tm.memory(namespace=named), "tensors": tm.tensors({"model": model}), "run": run.report,
        "why": tm.why(model[0].weight), "inspect": tm.inspect(model[0].weight),
    }  # fmt: skip


def main(rank, world, folder):
    """Run everything, and leave what was found in a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pass_log.FREE_SECONDS = 600.0  # every step is measured, however busy the machine is
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found = {}
    for program in PROGRAMS:
        found[program.__name__] = {
            "alone": alone(program), "grad": followed(program), "ops": followed(program, level="ops", forward=True),
            "written": followed(program, ranks=f"{folder}/{program.__name__}"),
            "all": followed(program, memory=True, writes=True, draws=True),
            "others": [beside(program, follower) for follower in FOLLOWERS],
        }  # fmt: skip
    found["looks"] = looks()
    Path(f"{folder}/rank{rank}").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
