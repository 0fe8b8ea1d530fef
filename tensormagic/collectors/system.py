"""What torch can use on this machine, and a small program to try the tool on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def torch_facts() -> dict[str, str]:
    """Return what torch says of itself and of the devices here; no device is started."""
    facts = {"threads": str(torch.get_num_threads()), "CUDA": _cuda()}
    facts["MPS"] = "there" if torch.backends.mps.is_available() else "none"
    xpu = getattr(torch, "xpu", None)
    facts["XPU"] = "there" if xpu is not None and xpu.is_available() else "none"
    return facts


def _cuda() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without it"
    if not torch.cuda.is_available():
        return "none: no device, or no driver for it"
    names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return ", ".join(names)


def small_step() -> Callable[[], torch.Tensor]:
    """Return a function that makes one step of a small network, and returns the loss."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.rand(16, 4, generator=generator)

    def step() -> torch.Tensor:
        loss: torch.Tensor = net(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return step
