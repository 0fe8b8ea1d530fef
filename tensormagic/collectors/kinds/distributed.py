"""DTensor: one tensor spread over a mesh of processes. What lies here is its local shard, and only that is read."""

from __future__ import annotations

from typing import Any

from tensormagic.collectors.kinds.kind import Description, Kind, Part, Values, bytes_of, has_class
from tensormagic.reports import Fact, Placed
from tensormagic.words import number_of_bytes, percent, plural, tuple_text


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


KINDS = (Kind("dtensor", _is_dtensor, _describe, printable=False),)
