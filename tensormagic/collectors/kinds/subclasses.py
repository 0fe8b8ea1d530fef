"""Subclasses of tensors, and where a tensor's bytes lie."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import dispatches, inner_tensors, is_wrapper, overrides
from tensormagic.collectors.geometry.strides import Memory, Pattern
from tensormagic.collectors.kinds.kind import (
    ITSELF,
    MOST_NAMED,
    Description,
    Kind,
    Part,
    Values,
    always,
    bytes_of,
    has_class,
)
from tensormagic.collectors.quiet import number
from tensormagic.reports import Fact, Placed
from tensormagic.words import number_of_bytes, percent, plural, tuple_text

_NO_VALUES = "tensor has shape, dtype and strides, but no memory and so no values"


# Other people's tensor classes: with memory of their own, or wrapped around other tensors.


def plain_view(x: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor over the same memory, without running any code of the tensor's class."""
    with torch._C._DisableTorchDispatch():
        return x.detach()


def _describe_wrapper(x: Any) -> Description:
    inner = inner_tensors(x)
    one = inner[0][1] if len(inner) == 1 and inner[0][1].layout == torch.strided else None
    held = f" around {plural(len(inner), 'inner tensor')}" if inner else "; no inner tensor was found in it"
    values = None
    if one is not None:
        values = Values(one, f"the {plural(one.numel(), 'value')} of its inner tensor {inner[0][0]}")
    dtype, unread = str(x.dtype).removeprefix("torch."), "that code is not run to inspect them"
    return Description(
        label="wrapper subclass",
        summary=f"{type(x).__name__} has no memory of its own: its __torch_dispatch__ implements it{held}.",
        facts=(
            *_class_facts(x),
            Fact("looks like", tuple_text(x.shape), f"{dtype} on {x.device}, as it says itself"),
            Fact("inner tensors", ", ".join(name for name, _ in inner[:MOST_NAMED]) or "none found"),
        ),
        parts=tuple(Part(f".{name}", "an inner tensor", item) for name, item in inner[:MOST_NAMED]),
        values=values,
        no_values="" if values else f"only its class knows its elements, and {unread}",
    )


def _class_facts(x: Any) -> tuple[Fact, ...]:
    methods = ("__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__repr__")
    own = ", ".join(name for name in methods if overrides(x, name))
    return (
        Fact("class", f"{type(x).__module__}.{type(x).__qualname__}"),
        Fact("overrides", own or "nothing", "not called to show this panel" if own else ""),
    )


def _describe_subclass(x: Any) -> Description:
    hook = "__torch_dispatch__" if dispatches(x) else "__torch_function__"
    summary = f"{type(x).__name__} is a tensor with memory of its own whose operations go through its {hook}."
    return Description("tensor subclass", summary, _class_facts(x))


# DTensor: one tensor spread over a mesh of processes. What lies here is its local shard, and only that is read.


def _describe_dtensor(x: Any) -> Description:
    spec, local = x._spec, x._local_tensor
    mesh, shape = spec.mesh, tuple(int(size) for size in spec.shape)
    processes = plural(mesh.size(), "process", "processes")
    here = f"{plural(local.numel(), 'element')} of the {tuple_text(shape)} tensor"
    summary = f"Spread over {processes}; this process holds {here}."
    if any(placement.is_partial() for placement in spec.placements):
        summary = f"Each process holds a partial result; the tensor is their reduction. Here: {here}, not yet reduced."
    elif all(placement.is_replicate() for placement in spec.placements):
        summary = f"Every process holds a full copy: here {here}."
    names = mesh.mesh_dim_names or tuple(f"dim {dim}" for dim in range(mesh.ndim))
    sizes = ", ".join(f"{name} = {mesh.size(dim)}" for dim, name in enumerate(names))
    whole, held = number_of_bytes(prod(shape) * x.element_size()), number_of_bytes(bytes_of(local))
    share = f"{held}, {percent(local.numel(), prod(shape))} of the elements; statistics are of these"
    return Description(
        label="DTensor",
        summary=summary,
        facts=(
            Fact("global shape", tuple_text(shape), f"{whole} over all processes' shards"),
            Fact("local shard", tuple_text(local.shape), share),
            *_where(spec, shape),
            Fact("mesh", sizes, f"{processes} of {mesh.device_type}"),
            Fact("this process", f"rank {mesh.get_rank()}", f"at {mesh.get_coordinate()} in the mesh"),
            *(_placement(mesh, dim, placement) for dim, placement in enumerate(spec.placements)),
        ),
        parts=(Part(".to_local()", "this process's shard: the only values read here", local),),
        values=Values(local, f"the {plural(local.numel(), 'value')} of the local shard, not of the whole tensor"),
        shape=shape,
        stored_bytes=bytes_of(local),
        placed=Placed(
            name="",
            shape=shape,
            placements=tuple(map(placement_text, spec.placements)),
            mesh_names=tuple(mesh.mesh_dim_names or ()),
            mesh_sizes=tuple(map(int, mesh.mesh.shape)),
            mesh_ranks=tuple(mesh.mesh.flatten().tolist()),
        ),
    )


def _where(spec: Any, shape: tuple[int, ...]) -> tuple[Fact, ...]:
    """Return which part of the global tensor the shard is, where torch can tell without asking other processes."""
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        local, start = compute_local_shape_and_global_offset(shape, spec.mesh, spec.placements)
    except Exception:  # a private function whose signature may change: the fact is left out
        return ()
    ranges = ", ".join(f"{first}:{first + size}" for first, size in zip(start, local, strict=True))
    return (Fact("it is", f"[{ranges}]", "of the global tensor"),)


def _placement(mesh: Any, dim: int, placement: Any) -> Fact:
    name = mesh.mesh_dim_names[dim] if mesh.mesh_dim_names else f"mesh dim {dim}"
    if placement.is_shard() or _is_strided(placement):
        cut = f"dimension {placement.dim} is cut into {mesh.size(dim)} parts"
        after = ", after it was cut over the others" if not placement.is_shard() else ""
        return Fact(f"over {name}", f"{'_Strided' * bool(after)}Shard({placement.dim})", f"{cut}{after}")
    if placement.is_replicate():
        return Fact(f"over {name}", "Replicate()", "a full copy in each")
    partial = "each holds a partial result that is not yet reduced"
    return Fact(f"over {name}", f"Partial({placement.reduce_op})", partial)


def _is_strided(placement: Any) -> bool:
    return type(placement).__name__ == "_StridedShard"  # FSDP over tensor parallelism


def placement_text(placement: Any) -> str:
    """Return a placement in a few letters: ``S(0)``, ``_S(0)`` where it is cut after the others, ``R``, ``P(sum)``."""
    if placement.is_replicate():
        return "R"
    if placement.is_partial():
        return f"P({getattr(placement, 'reduce_op', 'sum')})"
    return f"{'_' * _is_strided(placement)}S({getattr(placement, 'dim', '?')})"


# Where a storage's memory is and whose: page-locked, shared between processes, mapped from a file, or given back.


def fits(x: Any) -> bool:
    """Return whether a strided tensor's elements all lie inside its storage. Reading one that does not is unsafe."""
    return _bytes_needed(x) <= int(x.untyped_storage().nbytes())


def _bytes_needed(x: Any) -> int:
    pattern = Pattern.of(tuple(x.shape), x.stride(), int(x.storage_offset()))
    return 0 if pattern is None else (pattern.highest + 1) * int(x.element_size())


def _describe_freed(x: Any) -> Description:
    held = int(x.untyped_storage().nbytes())
    left, asked = number_of_bytes(held), number_of_bytes(_bytes_needed(x))
    what = "was freed" if held == 0 else "was made smaller"
    return Description(
        label="storage freed" if held == 0 else "storage too small",
        summary=f"Its storage {what}: {left} are left of the {asked} that its shape needs.",
        facts=(
            Fact("storage", left),
            Fact("needed", asked, "storage_offset + Σ (size − 1) · stride, and one element more"),
            Fact("reading it", "not safe", "torch does not check this: it would read memory outside the storage"),
        ),
        no_values=f"its storage has {left}, its shape needs {asked}: reading would go beyond it",
    )


def _on_host(x: Any) -> bool:
    memory = Memory.of(x)
    return memory.device == "cpu" and memory.address != 0


def _describe_pinned(x: Any) -> Description:
    summary = f"Page-locked host memory: {ITSELF}.to('cuda', non_blocking=True) can copy it asynchronously."
    size = number_of_bytes(int(x.untyped_storage().nbytes()))
    return Description("pinned", summary, (Fact("pinned", size, "the operating system cannot move these pages out"),))


def _file_of(x: Any) -> str:
    return str(x.untyped_storage().filename or "") if _on_host(x) else ""


def _describe_mapped(x: Any) -> Description:
    storage = x.untyped_storage()
    target, how = ("the file", "shared=True") if storage.is_shared() else ("memory only", "shared=False")
    facts = (
        Fact("file", _file_of(x)),
        Fact("size", number_of_bytes(int(storage.nbytes()))),
        Fact("writes go to", target, how),
    )
    return Description("mapped from a file", "Its storage is a file's contents, read from disk on first access.", facts)


def _describe_shared(x: Any) -> Description:
    size = int(x.untyped_storage().nbytes())
    summary = "Other processes that have it read and write the same memory, without copies."
    held = Fact("shared", number_of_bytes(size), plural(size // max(x.element_size(), 1), "element"))
    return Description("shared memory", summary, (held,))


# Tensors without numbers: on the meta device, fake, or not initialised yet.
def _describe_uninitialized(x: Any) -> Description:
    what = "buffer" if has_class(x, "torch.nn.parameter", "UninitializedBuffer") else "parameter"
    return Description(
        label=f"uninitialized {what}",
        summary=f"A {what} whose shape is not known yet: the first forward of its lazy module decides it.",
        facts=(
            Fact("shape", "not known yet", "materialize(shape) sets it; reading .shape raises until then"),
            Fact("dtype and device", f"{str(x.dtype).removeprefix('torch.')}, {x.device}", "what it will have"),
        ),
        shape=(),
        no_values="it is not initialised: there is no shape and so no values",
    )


def _is_fake(x: Any) -> bool:
    return has_class(x, "torch._subclasses.fake_tensor", "FakeTensor")


def _is_symbolic(x: Any) -> bool:
    return _is_fake(x) and any(type(size) is not int for size in (*x.shape, *x.stride()))


_describe_zero = always(
    "zero tensor", "torch's own stand-in for a gradient that is zero everywhere: it has a shape, but no memory.",
    Fact("every element", "0"), Fact("to get memory", f"{ITSELF} + 0"),
    no_values="every element is 0, and none is stored", stored_bytes=0,
)  # fmt: skip


def _describe_fake(x: Any) -> Description:
    facts = (_pretended(x), Fact("would take", number_of_bytes(bytes_of(x))))
    summary = "Operations on it compute shapes, dtypes and devices only, as torch.compile and torch.export do."
    return Description("fake tensor", summary, facts, no_values=f"a fake {_NO_VALUES}")


def _pretended(x: Any) -> Fact:
    attributes: dict[str, Any] = object.__getattribute__(x, "__dict__")
    return Fact("pretends to be on", str(attributes.get("fake_device", x.device)), "its memory is on the meta device")


def _describe_symbolic(x: Any) -> Description:
    """Describe a fake tensor whose sizes are symbols: their numbers are read as hints, which adds no guard."""
    shape = tuple(number(size) for size in x.shape)
    known = all(size >= 0 for size in shape)
    taken = number_of_bytes(prod(shape) * x.element_size()) if known else "not known"
    return Description(
        label="fake tensor, symbolic",
        summary="Its sizes are symbols that torch.compile and torch.export reason about, not fixed numbers.",
        facts=(
            _pretended(x),
            Fact("symbols", f"({', '.join(map(str, x.shape))})", f"traced with {shape}" if known else ""),
            Fact("strides", f"({', '.join(map(str, x.stride()))})"),
            Fact("would take", taken, "with these sizes"),
        ),
        shape=shape,
        no_values=f"a fake {_NO_VALUES}",
    )


def _describe_meta(x: Any) -> Description:
    summary = "It has a shape, a dtype and strides, but no memory: operations on it work out shapes only."
    facts = (
        Fact("would take", number_of_bytes(bytes_of(x)), "on a real device"),
        Fact("to get memory", f"torch.empty_like({ITSELF}, device='cpu')", "a module: module.to_empty(device='cpu')"),
    )
    return Description("meta", summary, facts, no_values=f"a meta {_NO_VALUES}")


HOLDERS = (
    Kind("uninitialized", lambda x: has_class(x, "torch.nn.parameter", "UninitializedTensorMixin"),
         _describe_uninitialized),
    Kind("fake_symbolic", _is_symbolic, _describe_symbolic, printable=False),
    Kind("fake", lambda x: _is_fake(x) and str(x.layout) == "torch.strided", _describe_fake,
         strided=True, printable=False),
    Kind("fake_sparse", _is_fake, _describe_fake, printable=False),
    Kind("zero", lambda x: bool(x._is_zerotensor()), _describe_zero, printable=False),
    Kind("meta", lambda x: bool(x.is_meta) and not x.is_nested and str(x.layout) == "torch.strided", _describe_meta,
         strided=True, printable=False),
    Kind("dtensor", lambda x: has_class(x, "torch.distributed.tensor", "DTensor"), _describe_dtensor, printable=False),
)  # fmt: skip
SUBCLASSES = (
    Kind("wrapper_subclass", is_wrapper, _describe_wrapper, printable=False),
    Kind("subclass", lambda x: overrides(x, "__torch_function__") or dispatches(x), _describe_subclass, strided=True),
)
STORAGES = (
    Kind("freed", lambda x: not fits(x), _describe_freed),
    Kind("pinned", lambda x: _on_host(x) and bool(x.is_pinned()), _describe_pinned),
    Kind("file", _file_of, _describe_mapped),  # type: ignore[arg-type]  # a name is as good as True
    Kind("shared", lambda x: _on_host(x) and bool(x.untyped_storage().is_shared()) and not _file_of(x),
         _describe_shared),
)  # fmt: skip
