"""One of several ranks that are ended: ``ended_ranks.py RANK FOLDER [full | terminate]``, without a process group.

A launcher tells it its rank. It trains until a signal comes; with ``full`` it comes to an end, on a disk that takes
only the beginning of what it writes; with ``terminate`` C++ ends it, as where gloo throws on a thread of its own.
"""

import ctypes
import resource
import sys
from pathlib import Path

import torch
from torch import nn

import tensormagic as tm

SHORT = 100  # bytes that the disk still takes


def model():
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def train(net, steps):
    """Yield each step when it has been made."""
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for step in steps:
        opt.zero_grad()
        net(torch.ones(2, 4) + step).sum().backward()
        opt.step()
        yield step


def main(rank, folder, end=""):
    forever, full = iter(int, 1), end == "full"
    net, trace = model(), tm.trace(ranks=folder)
    with trace:
        for step in train(net, range(6) if end else forever):
            if end == "terminate" and step == 2:
                ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
            if full and step == 2:
                written = next(Path(folder).glob(f"rank{int(rank):05d}*")).stat().st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (written + SHORT, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(net.weight.tolist(), [gap.reason for gap in trace.report.gaps], trace.report.passes_seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
