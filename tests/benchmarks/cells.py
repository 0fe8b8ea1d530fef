"""Runs the same traced cell again and again, inside a real kernel: ``run_cells("...; cells.main(2000)")``.

The cell's output is captured and dropped, as a browser that nobody looks at does; IPython's own history of inputs is
not written, since it is what grows with every cell, traced or not.
"""

from __future__ import annotations

import gc
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

CELL = """%%tracegrad --live off
for _ in range(2):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
"""
EMPTY = "%%gpumem --live off\npass"
# What a session of a night is asked, and one cell of it.
ASKED = {
    "%gpumem": "%gpumem",
    "%%gpumem": "%%gpumem --live off\nkept = []\nfor _ in range(12):\n    kept.append(net(x).square().mean())",
    "%%rng": "%%rng\npass",
    "%%tracegrad": CELL,
}
OF_A_NIGHT = """
a{0} = torch.randn(6, 8)
out{0} = net(a{0})
losses.append(out{0}.mean().item())
history["loss {0}"] = out{0}.detach()
last = a{0} * 2
out{0}
"""
LOOKS = 10


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def _cell(shell: Any, cell: str = CELL) -> float:
    """Run one traced cell; returns its CPU seconds."""
    from IPython.utils.capture import capture_output

    began = time.process_time()
    with capture_output() as shown:
        result = shell.run_cell(cell, store_history=False)
    result.raise_error()
    assert any("text/html" in output.data for output in shown.outputs)
    return time.process_time() - began


def empty(objects: int) -> None:
    """Print the CPU seconds of each of a few ``%%gpumem`` cells that do nothing, beside so many Python objects."""
    from IPython import get_ipython

    torch.set_num_threads(1)
    shell = get_ipython()
    heap = iter([[] for _ in range(objects - len(gc.get_objects()))])  # an iterator: no name leads to what it holds
    _cell(shell, EMPTY)  # what is imported once
    print(json.dumps({"looks": heap.__length_hint__(), "seconds": [_cell(shell, EMPTY) for _ in range(9)]}))


def main(count: int) -> None:
    """Run so many traced cells, and print objects and resident bytes at ten moments, and the seconds of each cell."""
    from IPython import get_ipython

    torch.set_num_threads(1)
    shell = get_ipython()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    shell.user_ns.update(net=net, x=torch.randn(4, 8), optimizer=optimizer)
    for _ in range(20):  # caches, and what is imported once
        _cell(shell)
    looks, seconds = [], []
    for number in range(1, count + 1):
        seconds.append(_cell(shell))
        if number % max(count // LOOKS, 1) == 0:
            gc.collect()
            looks.append((number, len(gc.get_objects()), _resident()))
    hooks = sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in net.parameters())
    left = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack() + hooks
    print(json.dumps({"looks": looks, "seconds": seconds, "left": left}))


def night(count: int) -> None:
    """Print the CPU seconds of magics before and after so many cells, each of which binds names and shows a tensor."""
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    torch.set_num_threads(1)
    shell, net = get_ipython(), nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    shell.user_ns.update(torch=torch, net=net, x=torch.randn(4, 8), optimizer=optimizer, losses=[], history={})
    seconds = []
    for cells in (0, count):
        with capture_output():
            for at in range(cells):
                shell.run_cell(OF_A_NIGHT.format(at), store_history=True).raise_error()
        for cell in ASKED.values():
            _cell(shell, cell)  # what is imported or read once
        seconds.append({name: min(_cell(shell, cell) for _ in range(3)) for name, cell in ASKED.items()})
    print(json.dumps({"looks": count, "seconds": seconds}))
