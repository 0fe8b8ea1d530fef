"""What a rank can say of a run of several by itself: by what the run is spread, and which passes reduced gradients.

It asks no other process, and begins no collective: it reads flags, and how many collectives this process has begun.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.identity import Leaves
from tensormagic.collectors.quiet import here, is_whole
from tensormagic.reports import Parallel, Spread, Whole


@dataclass(slots=True)
class _Wrapped:
    """A module that reduces gradients over processes.

    Attributes:
        root: The name of the outermost module that it is, or is in.
        kind: What it is.
        module: Weak.
        mixed: Whether other parts of it begin collectives in a backward, too.
    """

    root: str
    kind: Spread
    module: weakref.ref[Any]
    mixed: bool = False


class ParallelWatcher:
    """Looks at the modules that were met, before and after each pass.

    Args:
        leaves: The leaves met so far.
    """

    def __init__(self, leaves: Leaves) -> None:
        self._leaves, self._modules = leaves, leaves.modules
        self._wrapped: list[_Wrapped] = []
        self._met: tuple[int, ...] = ()
        self.kinds: dict[Spread, None] = {}
        self.several = world_size() > 1
        self._rank = self._world = 0

    def is_there(self) -> bool:
        """Return whether several processes take part, as far as was seen."""
        return self.several

    def before_pass(self) -> dict[int, int]:
        """Return how many collectives were begun so far, by the `DistributedDataParallel`."""
        if not self.several:
            self.several = world_size() > 1
        if not self.several:
            return {}
        self._find()
        each = ((one, one.module()) for one in self._wrapped if one.kind == "DDP")
        return {id(module): _begun(module) for _, module in each if module is not None}

    def after_pass(self, before: dict[int, int], reached: Collection[int]) -> bool | None:
        """Return whether a pass reduced the gradients that it brought; None where nothing does, or it is not known.

        Args:
            before: What `before_pass` returned.
            reached: The leaves that it led to, by number.
        """
        if not self.several:
            return None
        leaves = [self._leaves.known[number] for number in reached]
        owners = {leaf.owner for leaf in leaves}
        described = {reduced for one in self._wrapped if one.root in owners for reduced in _reduces(one, before)}
        kinds = {one.root: one.kind for one in self._wrapped if one.root in owners}
        self.kinds.update(dict.fromkeys(kinds.values()))
        if any(_shards(leaf.reference()) > (kinds.get(leaf.owner) == "FSDP2") for leaf in leaves):
            self.kinds["DTensor"] = None
        return next(iter(described)) if len(described) == 1 else None

    def replicas(self) -> tuple[int, ...]:
        """Return the ranks that hold the same parameters, or the same shards, as DDP and FSDP2 say; else none."""
        if set(self.kinds) == {"FSDP2"}:
            return self._same_shards()
        alive = (one.module() for one in self._wrapped if one.kind == "DDP")
        groups = {id(module.process_group): module.process_group for module in alive if module is not None}
        if len(groups) != 1 or set(self.kinds) != {"DDP"}:
            return ()
        return tuple(torch.distributed.get_process_group_ranks(*groups.values()))

    def _same_shards(self) -> tuple[int, ...]:
        try:
            every = [mesh for one in self._wrapped if one.kind == "FSDP2" for mesh in _meshes(one.module())]
            groups = {getattr(mesh, "replicate_process_group", None) for mesh in every}
            group = groups.pop() if len(groups) == 1 else None
            return () if group is None else tuple(torch.distributed.get_process_group_ranks(group))
        except (AttributeError, RuntimeError, ValueError):
            return ()

    def wrappers(self) -> list[Any]:
        """Return each `DistributedDataParallel` that is still alive."""
        return [module for one in self._wrapped if one.kind == "DDP" and (module := one.module()) is not None]

    def shares(self) -> tuple[int, ...]:
        """Return the ranks of which each is to be given data of its own; none where that is not certain.

        Where there are other groups beside the one that reduces gradients, as for tensor or context parallelism, ranks
        may be given the same on purpose; a dimension of FSDP2's mesh that is called otherwise than for data is one.
        """
        if len(self.kinds) != 1:
            return ()
        try:
            groups = {shares for one in self._wrapped if (shares := _shares(one.kind, one.module()))}
        except (AttributeError, RuntimeError, ValueError):
            return ()
        return next(iter(groups)) if len(groups) == 1 else ()

    def report(self) -> Parallel | None:
        """Return what is known so far; None in a run of one process, or before a pass."""
        return Parallel(self._rank, self._world, tuple(self.kinds), self._whole()) if self._world else None

    def _whole(self) -> Whole | None:
        """Return which parameters lie whole here although they are DTensors, beside others that are cut."""
        sizes: dict[bool, int] = {True: 0, False: 0}
        names: list[tuple[int, str]] = []
        several = 0
        for leaf in self._leaves.known:
            x = leaf.reference()
            if not leaf.is_parameter or x is None or here(x) is x or x._spec.mesh.size() < 2:  # type: ignore[attr-defined]
                continue
            several, is_here = several + 1, is_whole(x)
            sizes[is_here] += leaf.numel
            names += [(leaf.numel, leaf.name)] if is_here else []
        if not names or not sizes[False]:
            return None
        return Whole(max(names)[1], len(names), several, sizes[True], sizes[True] + sizes[False])

    def _find(self) -> None:
        self._rank, self._world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        roots = self._modules.roots()
        met = tuple(id(module) for _, module in roots)
        if met != self._met:
            self._met = met
            self._wrapped = [one for name, module in roots for one in _wrapped_in(name, module)]
            bare = {id(module): name for name, module in roots if name not in {one.root for one in self._wrapped}}
            self._wrapped += _wrapped_around(bare) if bare else ()


def _meshes(module: Any) -> list[Any]:
    """Return over which mesh each group of parameters of an FSDP2 module is spread."""
    return [group.mesh_info for group in _groups(module) if group is not None] if module is not None else []


def _groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    return [state._fsdp_param_group] if groups is None else list(groups)


def _shares(kind: Spread, module: Any) -> tuple[int, ...]:
    """Return the ranks over which a module reduces its gradients, where no other groups are there."""
    if module is None:
        return ()
    if kind == "FSDP2":
        infos = _meshes(module)
        meshes = [info.mesh for info in infos if getattr(info, "spmd_mesh", None) is None]
        if (
            not meshes
            or len(meshes) < len(infos)
            or any(set(_OTHERS) & set("_".join(mesh.mesh_dim_names or ()).split("_")) for mesh in meshes)
        ):
            return ()
        return tuple(sorted(meshes[0].mesh.flatten().tolist()))
    ranks = tuple(sorted(torch.distributed.get_process_group_ranks(module.process_group)))
    others = {tuple(sorted(each)) for each in torch.distributed.distributed_c10d._world.pg_group_ranks.values()}
    return ranks if all(len(each) < 2 or each == ranks for each in others) else ()


_OTHERS = ("cp", "sp", "tp", "pp", "ep", "context", "sequence", "tensor", "pipeline", "expert")


def _shards(x: Any) -> int:
    """Return over how many dimensions of a mesh a DTensor is cut; 1 for one that is not, and 0 for any other tensor."""
    return 0 if here(x) is x else max(sum(not each.is_replicate() for each in x._spec.placements), 1)


def world_size() -> int:
    """Return how many processes take part: 1 where nobody has begun to speak to others."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _wrapped_in(root: str, module: nn.Module) -> Iterator[_Wrapped]:
    newer, older = (sys.modules.get(f"torch.distributed.fsdp.{name}") for name in _FSDP)
    for child in module.modules():
        if isinstance(child, nn.parallel.DistributedDataParallel):
            mixed = any(isinstance(inner, nn.SyncBatchNorm) for inner in child.modules())
            yield _Wrapped(root, "DDP", weakref.ref(child), mixed)
        elif newer is not None and isinstance(child, newer.FSDPModule):
            yield _Wrapped(root, "FSDP2", weakref.ref(child))
        elif older is not None and isinstance(child, older.FullyShardedDataParallel):
            yield _Wrapped(root, "FSDP1", weakref.ref(child))


def _wrapped_around(roots: dict[int, str]) -> Iterator[_Wrapped]:
    """Yield what wraps a module that was called itself, as in ``ddp.module(x)``: it reduces nothing then."""
    wrapper = nn.parallel.DistributedDataParallel
    kinds = {wrapper, *wrapper.__subclasses__()}
    for found in gc.get_objects():
        if type(found) in kinds:
            inner = (name for module in found.modules() if (name := roots.get(id(module))) is not None)
            yield from (_Wrapped(name, "DDP", weakref.ref(found)) for name in inner)


_FSDP = ("_fully_shard", "fully_sharded_data_parallel")


def _begun(module: Any) -> int:
    """Return how many collectives the group of a `DistributedDataParallel` has begun; -1 where it does not say."""
    try:
        return int(module.process_group._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        return -1


def _reduces(one: _Wrapped, before: dict[int, int]) -> Iterator[bool | None]:
    """Yield whether what a module holds was reduced in the pass that ends. The flags are private, and may change."""
    module = one.module()
    if module is None:
        return
    try:
        if one.kind == "DDP":
            yield from _reduced_by_ddp(one, module, before)
        elif one.kind == "FSDP1":
            yield bool(module._sync_gradients)
        else:
            yield from (bool(group.reduce_grads) for group in _groups(module) if group is not None)
    except AttributeError:
        yield None


def _reduced_by_ddp(one: _Wrapped, module: Any, before: dict[int, int]) -> Iterator[bool | None]:
    then, now = before.get(id(module), -1), _begun(module)
    if then < 0 or now < 0:
        yield None
    elif now == then:
        yield False
    else:
        yield None if one.mixed else True
