"""What is said of the moment at which memory ran out: what was asked for, what there was, what could be had back."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import OutOfMemory
from tensormagic.words import number_of_bytes


def out_of_memory_words(failed: OutOfMemory) -> str:
    """Return the moment in a few sentences, code between backticks."""
    return " ".join(_sentences(failed))


def _sentences(failed: OutOfMemory) -> Iterator[str]:
    asked = number_of_bytes(failed.asked) if failed.asked is not None else "memory"
    who = f"`{failed.op}`" if failed.op else "an operation"
    yield f"{failed.device} ran out of memory: {who} asked for {asked}{_free(failed)}."
    yield from _allocator(failed)
    if failed.only_error:
        held = number_of_bytes(failed.only_error)
        yield (
            f"The functions that failed hold {held} that nothing else does: free once the error is let go of, "
            "`%gpumem --free --yes`."
        )


def _free(failed: OutOfMemory) -> str:
    if failed.free is None:
        return ""
    total = f" of {number_of_bytes(failed.total)}" if failed.total is not None else ""
    return f", {number_of_bytes(failed.free)}{total} was free"


def _allocator(failed: OutOfMemory) -> Iterator[str]:
    """Yield what torch's allocator had; where its unused reserve would have been enough, why it was not."""
    if failed.allocated is None:
        return
    reserved = f", and {number_of_bytes(failed.reserved)} reserved beyond that" if failed.reserved is not None else ""
    yield f"Torch had {number_of_bytes(failed.allocated)} in use there{reserved}."
    if failed.reserved is not None and failed.asked is not None and failed.reserved >= failed.asked:
        yield (
            "The reserve is large enough, but not in one piece: segments can grow with "
            "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, set before Python starts."
        )
