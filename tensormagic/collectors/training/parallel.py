"""A run of several processes, as one rank knows it: what is spread and reduced, its groups, its inputs."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import sys
import weakref
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors import devices
from tensormagic.collectors.calls.call_watch import CallWatch
from tensormagic.collectors.devices import DeferredWork
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.live_nodes import next_nodes, runs_python
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.kinds.subclasses import placement_text
from tensormagic.collectors.objects.children import attributes_of, is_kind
from tensormagic.collectors.objects.identity import outermost_call
from tensormagic.collectors.quiet import dispatches_to_python, is_replicated, local_shard
from tensormagic.reports import Graph, Parallel, PartialSum, Spread, UnshardedParameters

# What a rank can say of a run of several by itself: it asks no other process, and begins no collective. It reads flags,
# and how many collectives this process has begun.


@dataclass(slots=True)
class _Wrapped:
    """A module that reduces gradients over processes."""

    root: str  # the name of the outermost module that it is, or is in
    kind: Spread
    module: weakref.ref[Any]
    mixed: bool = False  # whether other parts of it begin collectives in a backward, too


class ParallelWatcher(TracePart):
    """Looks at the modules that were met, before and after each pass."""

    def __init__(self, trace: TraceContext) -> None:
        self._leaves, self._modules = trace.leaves, trace.leaves.modules
        self._calls: CallWatch = trace.recorder.calls
        self._wrapped: list[_Wrapped] = []
        self._met: tuple[int, ...] = ()
        self.kinds: dict[Spread, None] = {}
        self.several = world_size() > 1  # as far as was seen
        self._rank = self._world = 0
        self._parts: list[PartialSum] = []

    def begin_pass(self, _found: Walk, followed: Following) -> None:
        """Note how many collectives were begun so far, by each `DistributedDataParallel`."""
        self.several = self.several or world_size() > 1
        if not self.several:
            return
        self._rank, self._world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        roots = self._modules.roots()
        met = tuple(id(module) for _, module in roots)
        if met != self._met:
            self._met = met
            self._wrapped = _wrapped_of(roots)
        followed.collectives = {id(module): _begun(module) for module in self.wrappers()}

    def keep_pass(self, followed: Following) -> None:
        """Find out whether a pass reduced the gradients that it brought; None where nothing does, or it is unknown."""
        if not self.several:
            return
        leaves = [self._leaves.known[number] for number in followed.graph.structure.leaf_of.values()]
        owners = {leaf.owner for leaf in leaves}
        wrapped = [one for one in self._wrapped if one.root in owners]
        described = {reduced for one in wrapped for reduced in _reduces(one, followed.collectives)}
        kinds = {one.root: one.kind for one in wrapped}
        self.kinds.update(dict.fromkeys(kinds.values()))
        for leaf in leaves:
            x: Any = leaf.reference()
            if local_shard(x) is not x:
                cuts = sum(not each.is_replicate() for each in x._spec.placements)  # FSDP2 cuts along one dimension
                if cuts > 1 or kinds.get(leaf.owner) != "FSDP2":
                    self.kinds["DTensor"] = None
        followed.reduced = next(iter(described)) if len(described) == 1 else None

    def replicas(self) -> tuple[int, ...]:
        """Return the ranks that hold the same parameters, or the same shards, as DDP and FSDP2 say; else none."""
        groups: set[Any] = set()
        with suppress(AttributeError, RuntimeError, ValueError):
            if set(self.kinds) == {"FSDP2"}:
                meshes = [mesh for one in self._wrapped if one.kind == "FSDP2" for mesh in _meshes(one.module())]
                groups = {getattr(mesh, "replicate_process_group", None) for mesh in meshes}
            elif set(self.kinds) == {"DDP"}:
                hooks = [hook for each in self.wrappers() for hook, _ in getattr(each, "_comm_hooks", ())]
                # Local SGD: ranks hold other parameters on purpose, and average them now and then.
                if all(getattr(hook, "__name__", "") != "post_localSGD_hook" for hook in hooks):
                    groups = {each.process_group for each in self.wrappers()}
            if len(groups) == 1 and None not in groups:
                return tuple(torch.distributed.get_process_group_ranks(groups.pop()))
        return ()

    def wrappers(self) -> list[Any]:
        """Return each `DistributedDataParallel` that is still alive."""
        return [module for one in self._wrapped if one.kind == "DDP" and (module := one.module()) is not None]

    def shares(self) -> tuple[int, ...]:
        """Return the ranks of which each is to be given data of its own; none where that is not certain.

        Where there are other groups beside the one that reduces gradients, as for tensor or context parallelism, ranks
        may be given the same on purpose; a dimension of FSDP2's mesh that is called otherwise than for data is one.
        """
        with suppress(AttributeError, RuntimeError, ValueError):
            groups = {shares for one in self._wrapped if (shares := _shares(one.kind, one.module()))}
            if len(groups) == len(self.kinds) == 1:
                return groups.pop()
        return ()

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return what is known so far; nothing in a run of one process, or before a pass."""
        if not self._world:
            return {}
        return {"parallel": Parallel(self._rank, self._world, tuple(self.kinds), self._whole(), tuple(self._parts))}

    def graph_begins(self, found: Walk, graph: TracedGraph) -> None:
        """Look in a new graph for results that are parts of a sum, and were taken by ``to_local()`` as they are.

        Between the root and such a node nothing may add the parts up: no collective, also none in place (such nodes
        are among the calls that were seen, where torch tells of them), and no code of the user's.
        """
        if not any(map(_is_taken, found.nodes)) or not hasattr(torch.distributed.distributed_c10d, _TELLS):
            return
        waiting, seen = [found.nodes[place] for place in found.roots], set[Any]()
        indices = dict(zip(found.nodes, graph.structure.index, strict=True))
        while waiting:
            node = waiting.pop()
            taken, made_by = _is_taken(node), getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
            adds_up = made_by.startswith("torch.distributed") and not taken
            adds_up = adds_up or runs_python(node) or any(word in node.name() for word in _COLLECTIVE)
            if node in seen or adds_up or node._sequence_nr() in self._calls.reduced:
                continue
            seen.add(node)
            waiting += next_nodes(node)
            if taken and node in indices and len(self._parts) < _MOST_PARTS:
                spec = node.dtensor_spec
                names = spec.mesh.mesh_dim_names or [f"dim {dim}" for dim in range(spec.mesh.ndim)]
                dims = [name for name, how in zip(names, spec.placements, strict=True) if how.is_partial()]
                how = tuple(map(placement_text, spec.placements))
                self._parts.append(PartialSum(", ".join(dims), how, graph.nodes[indices[node]].location))

    def _whole(self) -> UnshardedParameters | None:
        """Return which parameters lie whole here although they are DTensors, beside others that are cut."""
        known = [(leaf, x) for leaf in self._leaves.known if leaf.is_parameter and (x := leaf.reference()) is not None]
        # On a mesh of several ranks.
        cut = [(leaf, x) for leaf, x in known if local_shard(x) is not x and x._spec.mesh.size() > 1]  # type: ignore[attr-defined]
        here = [leaf for leaf, x in cut if is_replicated(x)]
        if not here or len(here) == len(cut):
            return None
        whole, largest = sum(leaf.numel for leaf in here), max(here, key=lambda leaf: leaf.numel)
        return UnshardedParameters(largest.name, len(here), len(cut), whole, sum(leaf.numel for leaf, _ in cut))


def _is_taken(node: Any) -> bool:
    """Return whether a node is of ``to_local()`` of a DTensor that is partial over a mesh of several ranks."""
    spec = getattr(node, "dtensor_spec", None) if type(node).__name__ == "_ToTorchTensorBackward" else None
    if spec is None:
        return False
    return any(how.is_partial() and size > 1 for how, size in zip(spec.placements, spec.mesh.shape, strict=True))


_COLLECTIVE = ("Reduce", "reduce", "c10d")
_TELLS = "handle_torch_function"  # with it, modes see `torch.distributed.all_reduce`
_MOST_PARTS = 8


def _meshes(module: Any) -> list[Any]:
    return [group.mesh_info for group in _groups(module)] if module is not None else []


def _groups(module: Any) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    return [group for group in ([state._fsdp_param_group] if groups is None else groups) if group is not None]


def _shares(kind: Spread, module: Any) -> tuple[int, ...]:
    """Return the ranks over which a module reduces its gradients, where no other groups are there."""
    if module is None:
        return ()
    if kind == "FSDP2":
        infos = _meshes(module)
        meshes = [info.mesh for info in infos if getattr(info, "spmd_mesh", None) is None]
        names = {part for mesh in meshes for name in mesh.mesh_dim_names or () for part in name.split("_")}
        if not meshes or len(meshes) < len(infos) or not names.isdisjoint(_OTHERS):
            return ()
        return tuple(sorted(meshes[0].mesh.flatten().tolist()))
    ranks = tuple(sorted(torch.distributed.get_process_group_ranks(module.process_group)))
    others = {tuple(sorted(each)) for each in torch.distributed.distributed_c10d._world.pg_group_ranks.values()}
    return ranks if all(len(each) < 2 or each == ranks for each in others) else ()


_OTHERS = ("cp", "sp", "tp", "pp", "ep", "context", "sequence", "tensor", "pipeline", "expert")


def world_size() -> int:
    """Return how many processes take part: 1 where nobody has begun to speak to others."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _wrapped_of(roots: list[tuple[str, nn.Module]]) -> list[_Wrapped]:
    """Return what reduces gradients in these modules, or else around one: in ``ddp.module(x)`` it does nothing."""
    newer: Any = sys.modules.get("torch.distributed.fsdp._fully_shard")
    older: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    wrapper, found = nn.parallel.DistributedDataParallel, list[_Wrapped]()
    sorts: dict[Spread, Any] = {
        "DDP": wrapper, "FSDP2": newer and newer.FSDPModule, "FSDP1": older and older.FullyShardedDataParallel,
    }  # fmt: skip
    for root, child in ((root, child) for root, module in roots for child in module.modules()):
        kind = next((kind for kind, sort in sorts.items() if sort is not None and isinstance(child, sort)), None)
        if kind is not None:
            mixed = kind == "DDP" and any(isinstance(inner, nn.SyncBatchNorm) for inner in child.modules())
            found.append(_Wrapped(root, kind, weakref.ref(child), mixed))
    known, kinds = {one.root for one in found}, {wrapper, *wrapper.__subclasses__()}
    bare = {id(module): name for name, module in roots if name not in known}
    for around in gc.get_objects() if bare else ():
        if type(around) in kinds:
            inside = (bare[id(module)] for module in around.modules() if id(module) in bare)
            found += [_Wrapped(name, "DDP", weakref.ref(around)) for name in inside]
    return found


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
            then, now = before.get(id(module), -1), _begun(module)
            unknown = then < 0 or now < 0 or (one.mixed and now != then)
            yield None if unknown else now != then
        elif one.kind == "FSDP1":
            yield bool(module._sync_gradients)
        else:
            yield from (bool(group.reduce_grads) for group in _groups(module))
    except AttributeError:
        yield None


_MOST_READ = 65_536  # elements of an input that are read for its hash
_MOST_TENSORS = 64
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PIECE = 1 << 22  # elements that are added up at once: 32 MiB as whole numbers of 64 bits
_ODD, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def hash_each(tensors: Iterable[torch.Tensor], late: DeferredWork, keep: Callable[[int, int], object]) -> None:
    """Hand over the place of each tensor and 64 bits of it: at once, or when they have come from its device.

    Of equal elements they are the same, whatever the order these are read in: the sum of what is stored, taken as whole
    numbers, and torch's own hash, in which equal elements cancel out. Zero where a tensor cannot be read, or is empty.
    """
    far: dict[torch.device, tuple[list[int], list[torch.Tensor]]] = {}
    for at, x in enumerate(tensors):
        whole = _WHOLE.get(x.element_size())
        if x.layout is not torch.strided or whole is None or x.is_complex() or not x.numel():
            keep(at, 0)
            continue
        sums = _sums_of(in_memory_order(x), whole)
        if devices.there.holds(x):
            places, rows = far.setdefault(x.device, ([], []))
            places.append(at)
            rows.append(sums)
        else:
            _keep_hashes([at], keep, sums.tolist())
    for places, rows in far.values():
        late.sent(torch.cat(rows), partial(_keep_hashes, places, keep))


def _keep_hashes(places: list[int], keep: Callable[[int, int], object], read: list[float]) -> None:
    for at, total, other in zip(places, read[::2], read[1::2], strict=True):  # whole numbers, as they were sent
        keep(at, (int(total) * _ODD ^ int(other)) & _MASK or 1)  # also of what is all zero


def in_memory_order(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements in the order in which they lie there; copied only where there are gaps in between."""
    whole = x.detach()
    if not x.is_contiguous():
        whole = whole.permute(sorted(range(x.dim()), key=x.stride, reverse=True))
    return whole.reshape(-1)


def _sums_of(flat: torch.Tensor, whole: torch.dtype) -> torch.Tensor:
    """Return the sum and torch's hash: in pieces, since torch makes wide copies of what it adds up."""
    pieces = torch.split(flat.contiguous(), _PIECE)
    total = torch.stack([piece.view(whole).sum(dtype=torch.int64) for piece in pieces]).sum()
    hashes = [torch.hash_tensor(piece).view(torch.int64) for piece in pieces]
    hashed = hashes[0] if len(hashes) == 1 else torch.hash_tensor(torch.stack(hashes)).view(torch.int64)
    return torch.stack([total, hashed])


class Forwards:
    """What the outermost module was given since the last pass: the first call of it that made a node."""

    def __init__(self, late: DeferredWork) -> None:
        self._late = late
        # Of each tensor the number of dimensions and a hash, which a device may still owe; None where unreadable.
        self._given: tuple[list[int], list[int]] | None = None
        self._sizes: tuple[int, ...] = ()  # the first of each tensor
        self._state: int | None = None  # of the generators, as that call began
        self._drew_before = False  # since the pass before: the loader draws there too, once an epoch
        self._ended: int | None = None

    def note(self, frame: FrameType) -> bool:
        """Look at the outermost module that runs in a frame; returns whether there is one."""
        call = outermost_call(frame)
        if call is None:
            return False
        self._given, self._sizes, self._state = None, (), None
        local = [local_shard(x) for x in islice(_tensors_in(call, 4), _MOST_TENSORS)]
        if local and not any(dispatches_to_python(x) or x.is_meta for x in local):
            hashes, some = [0] * len(local), [in_memory_order(x)[:: max(x.numel() // _MOST_READ, 1)] for x in local]
            hash_each(some, self._late, hashes.__setitem__)
            self._given, self._sizes = ([x.dim() for x in local], hashes), tuple(len(x) for x in local if x.dim())
            self._state = generators()
            self._drew_before = self._ended not in {None, self._state}
        return True

    def taken(self, *, drops: bool) -> dict[str, Any] | None:
        """Return what is written of it, and forget it; ``drops``: whether a dropout was seen in this run.

        What was given is in it when all that `DeferredWork` was told before is done.
        """
        if (given := self._given) is None:
            return None
        self._ended = generators()
        drew = self._state is not None and (self._state != self._ended or (drops and self._drew_before))
        found = {"given": "", "sizes": self._sizes[:1], "state": f"{self._state:016x}", "drew": drew}

        def join() -> None:  # one number for several tensors in their order
            total = 0
            for many, each in zip(*given, strict=True):
                total = (total * _ODD + each + many) & _MASK
            found["given"] = f"{total:016x}"

        self._late.then(None, join)
        self._given = self._state = None
        return found


def generators() -> int:
    """Return a number for the state of torch's generators of the CPU and of the current device; nothing is drawn."""
    found = hashlib.blake2b(torch.default_generator.get_state().numpy().tobytes(), digest_size=8)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        at = torch.cuda.default_generators[torch.cuda.current_device()]
        found.update(at.get_state().numpy().tobytes())
    return int.from_bytes(found.digest(), "little")


def _tensors_in(value: Any, depth: int) -> Iterator[torch.Tensor]:
    inner: list[Any] = []
    if is_kind(value, torch.Tensor):
        yield value
    elif is_kind(value, list, tuple):
        inner = list(value)
    elif is_kind(value, dict):
        inner = list(dict.values(value))
    elif is_kind(value, UserDict) or dataclasses.is_dataclass(value):
        inner = [dict(attributes_of(value))]
    for each in inner if depth else ():
        yield from _tensors_in(each, depth - 1)


def buffers_of(wrapped: Iterable[Any]) -> dict[str, torch.Tensor]:
    """Return the buffers of what `DistributedDataParallel` does not send around, by their paths."""
    apart = [module for module in wrapped if not getattr(module, "broadcast_buffers", True)]
    every = (each for module in apart for each in module.named_buffers())
    sorts = {torch.Tensor, torch.nn.Buffer}
    return {name: buffer for name, buffer in every if type(buffer) in sorts and buffer.is_floating_point()}


def placed(parameters: Iterable[tuple[int, Any]]) -> dict[str, Any]:
    """Return on which mesh and how the DTensors among parameters are spread; by the numbers they are given with."""
    meshes: dict[tuple[Any, ...], list[int]] = {}  # each with where this rank is on it
    of = []
    for number, spec in ((number, each._spec) for number, each in parameters if local_shard(each) is not each):
        mesh = spec.mesh
        key = (tuple(mesh.mesh_dim_names or ()), tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist()))
        meshes.setdefault(key, list(mesh.get_coordinate() or ()))
        how = [placement_text(one) for one in spec.placements]
        of.append([number, list(meshes).index(key), how, list(map(int, spec.shape))])
    return {"meshes": list(meshes), "coordinates": list(meshes.values()), "of": of}
