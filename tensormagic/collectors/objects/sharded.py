"""Which objects are one parameter, where torch shards it over processes.

FSDP keeps two of each: the shard, which the optimizer holds, and the whole, which is put together for a forward, stands
in the module meanwhile, and is what a graph leads to. FSDP1 does so for many parameters at once, in one flat row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

_MOST_NAMED = 3  # of the parameters that lie in a flat one


class Sharded(NamedTuple):
    """A parameter that is several objects.

    Attributes:
        parameter: The one by which it is known: FSDP2's shard, FSDP1's flat parameter.
        others: What stands for it elsewhere, as far as that is there yet.
        path: What to call it; empty where the module's own path of it does.
        shape: Its whole shape.
    """

    parameter: torch.Tensor
    others: tuple[torch.Tensor, ...]
    path: str
    shape: tuple[int, ...]


def sharded_in(module: nn.Module) -> list[Sharded]:
    """Return the parameters in a module that FSDP made several objects of; what it does not let know is left out."""
    newer, older = (sys.modules.get(f"torch.distributed.fsdp.{name}") for name in _MODULES)
    if newer is None and older is None:
        return []
    found: list[Sharded] = []
    with suppress(AttributeError):  # private: another torch may have other names
        for path, child in module.named_modules():
            if newer is not None and isinstance(child, newer.FSDPModule):
                found += _of_fsdp2(child)
            elif older is not None and isinstance(child, older.FullyShardedDataParallel):
                found += _of_fsdp1(child, path)
    return found


_MODULES = ("_fully_shard", "fully_sharded_data_parallel")


def _of_fsdp2(module: Any) -> Iterator[Sharded]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    for group in [state._fsdp_param_group] if groups is None else groups:
        for each in group.fsdp_params if group is not None else ():
            whole = vars(each).get("_unsharded_param")  # there from the first forward on
            shard = each.sharded_param
            yield Sharded(shard, () if whole is None else (whole,), "", tuple(shard.shape))


def _of_fsdp1(module: Any, path: str) -> Iterator[Sharded]:
    if (handle := module._handle) is not None:
        flat = handle.flat_param
        name = f"{path}{'.' if path else ''}_flat_param[{_listed(flat._fqns)}]"
        yield Sharded(flat, tuple(flat._params or ()), name, tuple(flat._unpadded_unsharded_size))


def _listed(names: tuple[str, ...]) -> str:
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]}, {len(names)} parameters"
