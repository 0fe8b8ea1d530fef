"""A training script as launchers start it: no rank, no folder of a rank and no group is told to tensormagic.

``launched_ranks.py HOW FOLDER``: as a rank of torchrun's (``rank``) or of ``accelerate launch`` (``accelerated``), or
what starts two ranks itself. Each rank trains twice, alone and under a trace, and leaves what that came to.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tensormagic as tm

STEPS = 3


def train(prepare, backward):
    """Return losses, parameters, the generator's state and how many collectives it took."""
    group = dist.distributed_c10d._get_default_group()
    before = group._get_sequence_number_for_group()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    model, opt = prepare(net, torch.optim.AdamW(net.parameters(), 0.01))
    torch.manual_seed(1 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        opt.zero_grad()
        loss = model(torch.randn(6, 4)).square().mean()
        backward(loss)
        opt.step()
        losses.append(float(loss.detach()))
    parameters = [each.detach().numpy().tobytes() for each in net.parameters()]
    return losses, parameters, bytes(torch.get_rng_state()), group._get_sequence_number_for_group() - before


def both(folder, prepare=lambda net, opt: (DistributedDataParallel(net), opt), backward=torch.Tensor.backward):
    """Train alone and followed."""
    ended = [train(prepare, backward)]
    with tm.trace(ranks=f"{folder}/runs"):
        ended.append(train(prepare, backward))
    Path(folder, f"ended{dist.get_rank()}").write_bytes(pickle.dumps(ended))


def rank(folder):
    """What torchrun starts."""
    dist.init_process_group("gloo")
    both(folder)
    dist.destroy_process_group()


def accelerated(folder):
    """What accelerate's launchers start."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    both(folder, accelerator.prepare, accelerator.backward)
    accelerator.end_training()


def notebook(folder):
    """Start two ranks from a notebook, right after the extension was loaded: they are forked."""
    from accelerate import notebook_launcher
    from IPython.core.interactiveshell import InteractiveShell

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shell = InteractiveShell.instance()
    launch = partial(notebook_launcher, accelerated, (folder,), num_processes=2, use_port=str(port))
    shell.push({"launch": launch})
    shell.run_cell("%load_ext tensormagic").raise_error()
    shell.run_cell("launch()").raise_error()


def ray(folder):
    """Start two ranks as actors of Ray's."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

    def prepared():
        both(folder, lambda net, opt: (prepare_model(net), opt))

    with tempfile.TemporaryDirectory(prefix="ray") as place:  # sockets lie in it: their paths may not be long
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, _temp_dir=place)
        TorchTrainer(
            prepared, torch_config=TorchConfig("gloo"), scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=place),
        ).fit()  # fmt: skip
        ray.shutdown()


def started(index, method, folder):
    """What torch's own launcher starts; ranks are its arguments."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/{method}", rank=index, world_size=2)
    both(folder)
    dist.destroy_process_group()


def start(method, folder):
    """Start two ranks by torch's own launcher."""
    torch.multiprocessing.start_processes(started, (method, folder), nprocs=2, start_method=method)


WAYS = {
    "rank": rank, "accelerated": accelerated, "notebook": notebook, "ray": ray,
    "spawn": partial(start, "spawn"), "fork": partial(start, "fork"),
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    WAYS[sys.argv[1]](sys.argv[2])
    sys.stdout.flush()
    os._exit(0)  # threads of launchers and of gloo may wait for one another
