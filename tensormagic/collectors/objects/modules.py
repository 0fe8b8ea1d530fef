"""Modules inside modules, and what they have registered, read without running code of their classes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import registered


def is_torch_own(kind: type) -> bool:
    """Return whether a class is one of torch's: what these keep beside their registries is their own business."""
    return kind.__module__.startswith("torch.")


def inside(name: str, root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and every one inside it in order, each once, by path; no code of a class runs."""
    seen, pending = {id(root)}, [(name, root)]
    while pending:
        path, module = pending.pop()
        yield path, module
        if not (inner := registered(module, "_modules")):
            continue
        for key, child in reversed(list(inner.items())):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                pending.append((f"{path}.{key}", child))


def held_by(root: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters and buffers of a module."""
    for _, module in inside("", root):
        for name in ("_parameters", "_buffers"):
            yield from (held for held in list(registered(module, name).values()) if held is not None)
