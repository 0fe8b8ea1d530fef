"""A training script as a launcher starts it: no rank, no folder of a rank and no group is told to tensormagic."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tensormagic as tm


def main(folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    with tm.trace(ranks=folder):
        for step in range(3):
            opt.zero_grad()
            model(torch.ones(2, 4) * (step + dist.get_rank())).sum().backward()
            opt.step()
    del model, opt  # before its group
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
