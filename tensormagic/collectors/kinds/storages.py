"""Where a storage's memory is and whose, and tensors that have none."""

from __future__ import annotations

from math import prod
from typing import Any

from tensormagic.collectors.geometry.storage import Memory
from tensormagic.collectors.geometry.strides import Pattern
from tensormagic.collectors.kinds.kind import Description, Kind, bytes_of, has_class
from tensormagic.collectors.quiet import number
from tensormagic.reports import Fact
from tensormagic.words import number_of_bytes, plural

# Where a storage's memory is and whose: page-locked, shared between processes, mapped from a file, or given back.


def bytes_needed(x: Any) -> int:
    """Return how many bytes a storage must have for a strided tensor's shape, stride and offset."""
    pattern = Pattern.of(tuple(x.shape), x.stride(), int(x.storage_offset()))
    return 0 if pattern is None else (pattern.highest + 1) * int(x.element_size())


def fits(x: Any) -> bool:
    """Return whether a strided tensor's elements all lie inside its storage. Reading one that does not is unsafe."""
    return bytes_needed(x) <= int(x.untyped_storage().nbytes())


def _is_freed(x: Any) -> bool:
    return not fits(x)


def _describe_freed(x: Any) -> Description:
    held, needed = int(x.untyped_storage().nbytes()), bytes_needed(x)
    left, asked = number_of_bytes(held), number_of_bytes(needed)
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


def _is_pinned(x: Any) -> bool:
    return _on_host(x) and bool(x.is_pinned())


def _describe_pinned(x: Any) -> Description:
    size = int(x.untyped_storage().nbytes())
    return Description(
        label="pinned",
        summary="Page-locked host memory: x.to('cuda', non_blocking=True) can copy it asynchronously.",
        facts=(Fact("pinned", number_of_bytes(size), "the operating system cannot move these pages out"),),
    )


def _file_of(x: Any) -> str:
    if not _on_host(x):
        return ""
    return str(x.untyped_storage().filename or "")


def _describe_mapped(x: Any) -> Description:
    shared = x.untyped_storage().is_shared()
    return Description(
        label="mapped from a file",
        summary="Its storage is a file's contents, read from disk on first access.",
        facts=(
            Fact("file", _file_of(x)),
            Fact("size", number_of_bytes(int(x.untyped_storage().nbytes()))),
            Fact("writes go to", "the file" if shared else "memory only", "shared=True" if shared else "shared=False"),
        ),
    )


def _is_shared(x: Any) -> bool:
    return _on_host(x) and bool(x.untyped_storage().is_shared()) and not _file_of(x)


def _describe_shared(x: Any) -> Description:
    size = int(x.untyped_storage().nbytes())
    return Description(
        label="shared memory",
        summary="Other processes that have it read and write the same memory, without copies.",
        facts=(Fact("shared", number_of_bytes(size), plural(size // max(x.element_size(), 1), "element")),),
    )


STORAGES = (
    Kind("freed", _is_freed, _describe_freed),
    Kind("pinned", _is_pinned, _describe_pinned),
    Kind("file", _file_of, _describe_mapped),  # type: ignore[arg-type]  # a name is as good as True
    Kind("shared", _is_shared, _describe_shared),
)


# Tensors without numbers: on the meta device, fake, or not initialised yet.

_NO_VALUES = "a fake tensor has shape, dtype and strides, but no memory and so no values"


def _is_uninitialized(x: Any) -> bool:
    return has_class(x, "torch.nn.parameter", "UninitializedTensorMixin")


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


def _is_strided_fake(x: Any) -> bool:
    return _is_fake(x) and str(x.layout) == "torch.strided"


def _describe_zero(_: Any) -> Description:
    return Description(
        label="zero tensor",
        summary="torch's own stand-in for a gradient that is zero everywhere: it has a shape, but no memory.",
        facts=(Fact("every element", "0"), Fact("to get memory", "x + 0")),
        no_values="every element is 0, and none is stored",
        stored_bytes=0,
    )


def _describe_fake(x: Any) -> Description:
    return Description(
        label="fake tensor",
        summary="Operations on it compute shapes, dtypes and devices only, as torch.compile and torch.export do.",
        facts=(_pretended(x), Fact("would take", number_of_bytes(bytes_of(x)))),
        no_values=_NO_VALUES,
    )


def _pretended(x: Any) -> Fact:
    attributes: dict[str, Any] = object.__getattribute__(x, "__dict__")
    return Fact("pretends to be on", str(attributes.get("fake_device", x.device)), "its memory is on the meta device")


def _describe_symbolic(x: Any) -> Description:
    """Describe a fake tensor whose sizes are symbols: their numbers are read as hints, which adds no guard."""
    shape = tuple(number(size) for size in x.shape)
    known = all(size >= 0 for size in shape)
    return Description(
        label="fake tensor, symbolic",
        summary="Its sizes are symbols that torch.compile and torch.export reason about, not fixed numbers.",
        facts=(
            _pretended(x),
            Fact("symbols", f"({', '.join(map(str, x.shape))})", f"traced with {shape}" if known else ""),
            Fact("strides", f"({', '.join(map(str, x.stride()))})"),
            Fact(
                "would take",
                number_of_bytes(prod(shape) * x.element_size()) if known else "not known",
                "with these sizes",
            ),
        ),
        shape=shape,
        no_values=_NO_VALUES,
    )


def _describe_meta(x: Any) -> Description:
    return Description(
        label="meta",
        summary="It has a shape, a dtype and strides, but no memory: operations on it work out shapes only.",
        facts=(
            Fact("would take", number_of_bytes(bytes_of(x)), "on a real device"),
            Fact("to get memory", "torch.empty_like(x, device='cpu')", "a module: module.to_empty(device='cpu')"),
        ),
        no_values="a meta tensor has shape, dtype and strides, but no memory and so no values",
    )


ABSENT = (
    Kind("uninitialized", _is_uninitialized, _describe_uninitialized),
    Kind("fake_symbolic", _is_symbolic, _describe_symbolic, printable=False),
    Kind("fake", _is_strided_fake, _describe_fake, strided=True, printable=False),
    Kind("fake_sparse", _is_fake, _describe_fake, printable=False),
    Kind("zero", lambda x: bool(x._is_zerotensor()), _describe_zero, printable=False),
    Kind("meta", lambda x: bool(x.is_meta) and not x.is_nested and str(x.layout) == "torch.strided", _describe_meta,
         strided=True, printable=False),
)  # fmt: skip
