"""Runs on each of two ranks: programs in which something parts the ranks, and healthy ones that look like them.

Each writes into a folder of its own. In the last one a rank is killed in the middle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tensormagic as tm
from tensormagic.collectors.gradients import pass_log

STEPS = 5
LEFT = []  # groups in which a collective never ends


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


KEPT = []  # a model that is still there when the run ends: its last hash is of something


def healthy():
    KEPT.append(wrapped())
    train(KEPT[-1])


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


def converted():
    net = wrapped()
    net.double()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(batch(step).double()).pow(2).mean().backward()
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


def nan_that_passed():
    """The step after it is left out everywhere, as `GradScaler` does it."""
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(1, STEPS + 1):
        opt.zero_grad()
        x = batch(step) / (0.0 if step == 3 and dist.get_rank() else 1.0)
        net(x).pow(2).mean().backward()
        if step != 3:
            opt.step()


def stepped_on_one():
    KEPT.append(wrapped())
    opt = torch.optim.SGD(KEPT[-1].parameters(), 0.1)
    for step in range(STEPS):
        KEPT[-1].zero_grad()
        KEPT[-1](batch(step)).pow(2).mean().backward()
        if dist.get_rank() == 0:
            opt.step()


def skipped_step():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(batch(step)).pow(2).mean().backward()
        if not (dist.get_rank() and step == 2):
            opt.step()


class Unused(nn.Module):
    """Holds a layer that it does not use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.spare = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.used(x)


def left_unused():
    """Torch refuses the second forward."""
    train(DistributedDataParallel(Unused()))


def raised():
    """One rank fails in its third step, by an error of its own; the other waits for it, and fails."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    LEFT.append(DistributedDataParallel(wrapped().module, process_group=group))
    train(LEFT[-1], steps=2)
    if dist.get_rank():
        raise RuntimeError("sample 17 is empty")
    train(LEFT[-1])


def one_more_pass():
    net = wrapped()
    train(net)
    if not dist.get_rank():
        with net.no_sync():
            net(batch(0)).pow(2).mean().backward()


def healthy_dropout():
    net = dropping()
    torch.manual_seed(dist.get_rank())
    train(net)


def healthy_dropped_inputs():
    net = dropping_inputs()
    torch.manual_seed(dist.get_rank())
    train(net)


def healthy_loader():
    """A loader draws a seed each time it begins, the same on all ranks, and nothing else is drawn."""
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        for x in torch.utils.data.DataLoader(batch(step), batch_size=6):
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()


def healthy_buffers():
    train(normed(broadcast_buffers=True))


def healthy_sharded_clipped():
    train(sharded(), before=lambda net, _: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


def healthy_last_batch():
    """Sizes that always vary are no batches: those of graphs, of packed sequences."""
    uneven(lambda step: 2 + (7 * step + 3 * dist.get_rank()) % 5)


def healthy_tensor_parallel():
    """All ranks are given the same, as tensor parallelism wants it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    net = parallelize_module(wrapped().module, mesh, plan)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(torch.full((6, 8), 1.0 + step)).pow(2).mean().backward()
        opt.step()


def healthy_fixed_input():
    """The input is the same all the time, and what it is compared with is not."""
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        (net(torch.ones(6, 8)) - batch(step)[:, :4]).pow(2).mean().backward()
        opt.step()


def healthy_other_lines():
    """Both begin the same collective, on lines of their own."""
    if dist.get_rank():
        dist.all_reduce(torch.ones(3))
    else:
        dist.all_reduce(torch.zeros(3))
    train(wrapped())


def healthy_shared_optimizer():
    """Each rank steps a share of the parameters, in an optimizer within the one that is called."""
    net = wrapped()
    opt = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    for step in range(STEPS):
        opt.zero_grad()
        net(batch(step)).pow(2).mean().backward()
        opt.step()


def joined():
    """One rank has a batch less, and joins the others as torch has it: at the end all hold the same."""
    KEPT.append(wrapped())
    with KEPT[-1].join():
        train(KEPT[-1], steps=STEPS - dist.get_rank())


def dropping():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(), nn.Linear(16, 4))
    return DistributedDataParallel(net)


def dropping_inputs():
    """What is dropped first has no gradient: no node is made before it has drawn."""
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 16), nn.Linear(16, 4)))


def normed(**options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    return DistributedDataParallel(net, **options)


def sharded():
    net = wrapped().module
    fully_shard(net)
    return net


def uneven(size):
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        x = torch.randn(size(step), 8, generator=torch.Generator().manual_seed(step + dist.get_rank()))
        net(x).pow(2).mean().backward()
        opt.step()


def own_buffers():
    KEPT.append(normed(broadcast_buffers=False))
    train(KEPT[-1])


def same_data():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(torch.full((6, 8), 1.0 + step)).pow(2).mean().backward()
        opt.step()


def same_masks():
    net = dropping()
    torch.manual_seed(1)
    train(net)


def same_masks_of_inputs():
    net = dropping_inputs()
    torch.manual_seed(1)
    train(net)


def same_masks_before_the_model():
    net = wrapped()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(STEPS):
        opt.zero_grad()
        net(nn.functional.dropout(batch(step), 0.1)).pow(2).mean().backward()
        opt.step()


def smaller_last_batch():
    uneven(lambda step: 2 if step == STEPS - 1 and dist.get_rank() else 6)


def clipped_by_shards():
    def clip(net, step):
        local = [each.grad.to_local() for each in net.parameters()]
        norm = torch.linalg.vector_norm(torch.stack([each.norm() for each in local]))
        for each in local:
            each.mul_(min(0.01 / float(norm), 1.0))

    train(sharded(), before=clip)


def clipped_flat():
    net = FullyShardedDataParallel(wrapped().module, device_id=torch.device("cpu"), use_orig_params=True)
    train(net, before=lambda net, _: nn.utils.clip_grad_norm_(net.parameters(), 0.01))


def whole_by_mistake():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
    parallelize_module(net, mesh, {"0": ColwiseParallel(output_layouts=Replicate())})
    distribute_module(net[2], mesh, input_fn=lambda _, x, mesh: DTensor.from_local(x[0], mesh), output_fn=to_local)
    opt = torch.optim.SGD([*net.parameters()], 0.1, foreach=False)
    for step in range(STEPS):
        opt.zero_grad()
        net(torch.full((6, 8), 1.0 + step)).pow(2).mean().backward()
        opt.step()


def to_local(_module, x, _mesh):
    return x.to_local()


def slow():
    def wait(net, step):
        if dist.get_rank():
            time.sleep(0.06)

    train(wrapped(), after=lambda net, opt, step: wait(net, step), steps=22)


def another_collective():
    """In a group of their own the ranks begin different collectives, and wait for neither."""
    train(wrapped(), steps=2)
    LEFT.append(dist.new_group())
    x = torch.ones(3)
    if dist.get_rank():
        dist.broadcast(x, 0, group=LEFT[0], async_op=True)
    else:
        dist.all_reduce(x, group=LEFT[0], async_op=True)


def left_out():
    """One rank leaves a collective out; the other waits for it, and fails."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    train(wrapped(), steps=2)
    dist.all_reduce(torch.ones(3), group=group)
    if not dist.get_rank():
        dist.all_reduce(torch.ones(3), group=group)


def killed():
    train(wrapped(), steps=3)
    if dist.get_rank():
        os.kill(os.getpid(), signal.SIGKILL)


PROGRAMS = (
    healthy, healthy_clipped, healthy_accumulation, healthy_sharded, healthy_rates, healthy_dropout, healthy_buffers,
    healthy_sharded_clipped, healthy_last_batch, healthy_tensor_parallel, healthy_fixed_input, healthy_other_lines,
    healthy_dropped_inputs, healthy_loader, same_masks_of_inputs, same_masks_before_the_model, own_buffers,
    same_data, same_masks, smaller_last_batch, clipped_by_shards, clipped_flat, whole_by_mistake, slow,
    another_collective, left_out, never_reduced, past_the_wrapper, converted,
    added_after, changed_by_hand, started_apart, drifted, other_rates, nan_on_one, one_more_pass,
    healthy_shared_optimizer, joined, nan_that_passed, stepped_on_one, skipped_step, left_unused, raised, killed,
)  # fmt: skip


def main(rank, world, folder):
    """Run everything, each under a trace that writes; the reports go to a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pass_log.FREE_SECONDS = 60.0  # what each step used is measured, however busy the machine is
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    reports = {}
    for program in PROGRAMS:
        if program is killed:
            Path(f"{folder}/reports{rank}").write_bytes(pickle.dumps(reports))
        trace = tm.trace(ranks=f"{folder}/{program.__name__}")
        with contextlib.suppress(RuntimeError), trace:
            program()
        reports[program.__name__] = trace.report


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)
