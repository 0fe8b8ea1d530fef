"""Where a backward ran that was not simply called on the traced thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where a pass ran.

    Attributes:
        inside: Number of the pass that was running already, where this one ran inside it and shares its number: in a
            re-entrant checkpoint, a custom Function's backward, or a hook; 0 where it ran by itself.
        graph: Number of the graph from whose backward it was called; 0 where it ran by itself.
        node: Index, in that graph, of the node whose backward made the call; None where not known.
        thread: Name of the thread, where it was not the traced one.
        levels: What wrapped its tensors, the outermost first: ``("vmap", "grad")`` for per-sample gradients with
            ``torch.func``, ``("is_grads_batched",)`` for ``autograd.grad`` with that argument. Under ``vmap`` and
            ``is_grads_batched`` the numbers are of the gradients of the whole batch together.
    """

    inside: int = 0
    graph: int = 0
    node: int | None = None
    thread: str = ""
    levels: tuple[str, ...] = ()
