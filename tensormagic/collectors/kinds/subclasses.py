"""Subclasses of ``torch.Tensor``, and DTensor among them."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.geometry.storage import Memory
from tensormagic.collectors.kinds.kind import (
    MOST_NAMED,
    Description,
    Kind,
    Part,
    Values,
    bytes_of,
    has_class,
    overrides,
)
from tensormagic.reports import Fact, Placed
from tensormagic.words import number_of_bytes, percent, plural, tuple_text

# Other people's tensor classes: with memory of their own, or wrapped around other tensors.
#
# Their code is not run where that can be avoided: inner tensors are read from the instance's dictionary; only where
# it has none is ``__tensor_flatten__`` asked, which is made for that and is not allowed to change anything.


def dispatches(x: Any) -> bool:
    """Return whether operations on this tensor run Python code of its class."""
    for cls in type(x).__mro__:
        if "__torch_dispatch__" in cls.__dict__:
            return cls is not torch.Tensor and cls.__dict__["__torch_dispatch__"] is not _disabled()
    return False


def _disabled() -> object:
    return torch._C._disabled_torch_dispatch_impl


def has_memory(x: Any) -> bool:
    """Return whether there is memory behind a tensor's storage, so that it can be read as a plain tensor."""
    try:
        return Memory.of(x).address != 0
    except (RuntimeError, NotImplementedError):
        return False


def plain_view(x: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor over the same memory, without running any code of the tensor's class."""
    with torch._C._DisableTorchDispatch():
        return x.detach()


def _is_wrapper(x: Any) -> bool:
    return dispatches(x) and not has_memory(x)


def _describe_wrapper(x: Any) -> Description:
    inner = inner_tensors(x)
    one = inner[0][1] if len(inner) == 1 and inner[0][1].layout == torch.strided else None
    held = f" around {plural(len(inner), 'inner tensor')}" if inner else "; no inner tensor was found in it"
    return Description(
        label="wrapper subclass",
        summary=f"{type(x).__name__} has no memory of its own: its __torch_dispatch__ implements it{held}.",
        facts=(
            *_class_facts(x),
            Fact(
                "looks like",
                tuple_text(x.shape),
                f"{str(x.dtype).removeprefix('torch.')} on {x.device}, as it says itself",
            ),
            Fact("inner tensors", ", ".join(name for name, _ in inner[:MOST_NAMED]) or "none found"),
        ),
        parts=tuple(Part(f".{name}", "an inner tensor", item) for name, item in inner[:MOST_NAMED]),
        values=Values(one, f"the {plural(one.numel(), 'value')} of its inner tensor {inner[0][0]}")
        if one is not None
        else None,
        no_values=""
        if one is not None
        else "only its class knows its elements, and that code is not run to inspect them",
    )


def inner_tensors(x: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that an instance holds, by attribute."""
    found = [(name, item) for name, item in _dictionary(x).items() if torch.Tensor in type(item).__mro__]
    return found or _flattened(x)


def _dictionary(x: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(x, "__dict__"))
    except AttributeError:
        return {}


def _flattened(x: Any) -> list[tuple[str, torch.Tensor]]:
    if not overrides(x, "__tensor_flatten__"):
        return []
    try:
        names, _ = x.__tensor_flatten__()
        found = [(str(name), getattr(x, name)) for name in names]
    except Exception:  # its class's own code: whatever it raises, there is nothing to show then
        return []
    return [(name, item) for name, item in found if torch.Tensor in type(item).__mro__]


def _class_facts(x: Any) -> tuple[Fact, ...]:
    own = [
        name
        for name in ("__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__repr__")
        if overrides(x, name)
    ]
    cls = type(x)
    return (
        Fact("class", f"{cls.__module__}.{cls.__qualname__}"),
        Fact("overrides", ", ".join(own) or "nothing", "not called to show this panel" if own else ""),
    )


def _is_subclass(x: Any) -> bool:
    return overrides(x, "__torch_function__") or dispatches(x)


def _describe_subclass(x: Any) -> Description:
    hook = "__torch_dispatch__" if dispatches(x) else "__torch_function__"
    return Description(
        label="tensor subclass",
        summary=f"{type(x).__name__} is a tensor with memory of its own whose operations go through its {hook}.",
        facts=_class_facts(x),
    )


SUBCLASSES = (
    Kind("wrapper_subclass", _is_wrapper, _describe_wrapper, printable=False),
    Kind("subclass", _is_subclass, _describe_subclass, strided=True),
)


# DTensor: one tensor spread over a mesh of processes. What lies here is its local shard, and only that is read.


def _is_dtensor(x: Any) -> bool:
    return has_class(x, "torch.distributed.tensor", "DTensor")


def _describe(x: Any) -> Description:
    spec, local = x._spec, x._local_tensor
    mesh, shape = spec.mesh, tuple(int(size) for size in spec.shape)
    partial = any(placement.is_partial() for placement in spec.placements)
    return Description(
        label="DTensor",
        summary=_summary(spec, local, shape, partial=partial),
        facts=(
            Fact(
                "global shape",
                tuple_text(shape),
                f"{number_of_bytes(_global_bytes(x, shape))} over all processes' shards",
            ),
            Fact("local shard", tuple_text(local.shape), _share(local, shape)),
            *_where(spec, shape),
            Fact("mesh", _mesh(mesh), f"{plural(mesh.size(), 'process', 'processes')} of {mesh.device_type}"),
            Fact("this process", f"rank {mesh.get_rank()}", f"at {mesh.get_coordinate()} in the mesh"),
            *(_placement(mesh, dim, placement) for dim, placement in enumerate(spec.placements)),
        ),
        parts=(Part(".to_local()", "this process's shard: the only values read here", local),),
        values=Values(local, f"the {plural(local.numel(), 'value')} of the local shard, not of the whole tensor"),
        shape=shape,
        stored_bytes=bytes_of(local),
        placed=_placed(spec, shape),
    )


def _summary(spec: Any, local: Any, shape: tuple[int, ...], *, partial: bool) -> str:
    here = f"{plural(local.numel(), 'element')} of the {tuple_text(shape)} tensor"
    if partial:
        return f"Each process holds a partial result; the tensor is their reduction. Here: {here}, not yet reduced."
    if all(placement.is_replicate() for placement in spec.placements):
        return f"Every process holds a full copy: here {here}."
    return f"Spread over {plural(spec.mesh.size(), 'process', 'processes')}; this process holds {here}."


def _global_bytes(x: Any, shape: tuple[int, ...]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return elements * int(x.element_size())


def _share(local: Any, shape: tuple[int, ...]) -> str:
    elements = 1
    for size in shape:
        elements *= size
    held, share = number_of_bytes(bytes_of(local)), percent(local.numel(), elements)
    return f"{held}, {share} of the elements; statistics are of these"


def _where(spec: Any, shape: tuple[int, ...]) -> tuple[Fact, ...]:
    """Return which part of the global tensor the shard is, where torch can tell without asking other processes."""
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        local, start = compute_local_shape_and_global_offset(shape, spec.mesh, spec.placements)
    except Exception:  # a private function whose signature may change: the fact is left out
        return ()
    ranges = ", ".join(f"{first}:{first + size}" for first, size in zip(start, local, strict=True))
    return (Fact("it is", f"[{ranges}]", "of the global tensor"),)


def _mesh(mesh: Any) -> str:
    names = mesh.mesh_dim_names or tuple(f"dim {dim}" for dim in range(mesh.ndim))
    return ", ".join(f"{name} = {mesh.size(dim)}" for dim, name in enumerate(names))


def _placement(mesh: Any, dim: int, placement: Any) -> Fact:
    name = mesh.mesh_dim_names[dim] if mesh.mesh_dim_names else f"mesh dim {dim}"
    if placement.is_shard():
        return Fact(
            f"over {name}", f"Shard({placement.dim})", f"dimension {placement.dim} is cut into {mesh.size(dim)} parts"
        )
    if type(placement).__name__ == "_StridedShard":  # FSDP over tensor parallelism
        return Fact(
            f"over {name}", f"_StridedShard({placement.dim})",
            f"dimension {placement.dim} is cut into {mesh.size(dim)} parts, after it was cut over the others",
        )  # fmt: skip
    if placement.is_replicate():
        return Fact(f"over {name}", "Replicate()", "a full copy in each")
    return Fact(
        f"over {name}", f"Partial({placement.reduce_op})", "each holds a partial result that is not yet reduced"
    )


def placement_text(placement: Any) -> str:
    """Return a placement in a few letters: ``S(0)``, ``_S(0)`` where it is cut after the others, ``R``, ``P(sum)``."""
    if placement.is_replicate():
        return "R"
    if placement.is_partial():
        return f"P({getattr(placement, 'reduce_op', 'sum')})"
    strided = type(placement).__name__ == "_StridedShard"
    return f"{'_' * strided}S({getattr(placement, 'dim', '?')})"


def _placed(spec: Any, shape: tuple[int, ...]) -> Placed:
    mesh = spec.mesh
    return Placed(
        name="", shape=shape, placements=tuple(map(placement_text, spec.placements)),
        mesh_names=tuple(mesh.mesh_dim_names or ()), mesh_sizes=tuple(map(int, mesh.mesh.shape)),
        mesh_ranks=tuple(mesh.mesh.flatten().tolist()),
    )  # fmt: skip


DISTRIBUTED = (Kind("dtensor", _is_dtensor, _describe, printable=False),)
