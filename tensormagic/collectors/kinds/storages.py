"""Where a storage's memory is and whose: page-locked, shared between processes, mapped from a file, or given back."""

from __future__ import annotations

from typing import Any

from tensormagic.collectors.geometry.storage import Memory
from tensormagic.collectors.geometry.strides import Pattern
from tensormagic.collectors.kinds.kind import Description, Kind
from tensormagic.reports import Fact
from tensormagic.words import number_of_bytes, plural


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


KINDS = (
    Kind("freed", _is_freed, _describe_freed),
    Kind("pinned", _is_pinned, _describe_pinned),
    Kind("file", _file_of, _describe_mapped),  # type: ignore[arg-type]  # a name is as good as True
    Kind("shared", _is_shared, _describe_shared),
)
