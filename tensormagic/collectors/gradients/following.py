"""What is known of one backward call while it is followed, backwards that are Python code included."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.devices.accelerator import Stopwatch
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.in_place import Suspect
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.backward_calls import BackwardCall
from tensormagic.collectors.hooks.modes import active_levels, bare
from tensormagic.collectors.hooks.replacing import without_dynamo
from tensormagic.reports import UNTOUCHED, Circumstances, Pass

# Looks into backwards that are Python code of the person's: their own Functions', and re-entrant checkpoints'.
#
# While the engine runs, the tracer's mode is off the stack. Where a node's backward runs forward code of its own, as
# a checkpoint does that computes its segment again, nodes are made there, and a backward may run through them. So for
# these nodes the mode is on the stack: from a hook that runs last before their backward until one that runs first
# after.


class PythonBackwards:
    """Puts the mode onto the stack while the backwards of some nodes run.

    Args:
        nodes: The nodes.
        put_on_top: Puts the mode on the stack, and returns what undoes it.
        home: The thread that it is for: on others its notes would be wrong.
    """

    def __init__(self, nodes: Sequence[Any], put_on_top: Callable[[], Callable[[], None]], home: int) -> None:
        self._put_on_top = put_on_top
        self._home = home
        self._handles: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        for node in nodes:
            self._handles.append(node.register_hook(partial(without_dynamo, self._leave)))

    def open(self, nodes: Sequence[Any]) -> None:
        """Begin; called after every other hook was put on, so that the mode is there for the backward alone."""
        for node in nodes:
            self._handles.append(node.register_prehook(partial(without_dynamo, self._enter)))

    def close(self) -> None:
        """Take the hooks off; where a backward raised, the mode too."""
        while self._handles:
            self._handles.pop().remove()
        while self._undo:
            self._undo.pop()()

    def _enter(self, _: Any) -> None:
        if get_ident() == self._home:
            self._undo.append(self._put_on_top())

    def _leave(self, _: Any, __: Any) -> None:
        if self._undo and get_ident() == self._home:
            self._undo.pop()()


# What is known of one backward call while it is followed: where it runs, where it starts, what it hands back.

sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


@dataclass(slots=True)
class Following:
    """A backward call that is being followed.

    Attributes:
        thread: The thread that made the call.
        site: The line that did.
        circumstances: Where it runs; None for one called on the traced thread, outside any other.
        begun: The pass, from when its graph is known.
        graph: The graph it goes through.
        recorder: Its hooks.
        nodes: Its live nodes, in traversal order; dropped when it ends.
        python_backwards: Its hooks on backwards that are Python code.
        caller: The frame that made the call.
        come_back: Puts the tracer's mode back, which leaves while the engine runs; None where it was not there.
        found: The walk over its graph; dropped when it ends.
        suspects: What its nodes saved and was written to behind autograd's back; dropped too.
        sequence: The number of the next node that this thread makes, when the call was made.
        between_compiled: See `BackwardCall`.
        is_seen: Whether a dispatch mode of the tool's is on, which is to see nothing of what the hooks do.
        collectives: What `ParallelWatcher.before_pass` returned.
        clock: The device that its roots are on began with it; None where that is unknown, or it is a CPU.
    """

    thread: int
    site: int | None
    circumstances: Circumstances | None
    begun: Pass | None = None
    graph: TracedGraph | None = None
    recorder: PassRecorder | None = None
    nodes: Sequence[Any] = ()
    python_backwards: PythonBackwards | None = None
    caller: FrameType | None = None
    come_back: Callable[[], None] | None = None
    found: Walk | None = None
    suspects: tuple[Suspect, ...] = ()
    sequence: int = field(default_factory=sequence_number)
    between_compiled: bool = False
    is_seen: bool = False
    collectives: dict[int, int] = field(default_factory=dict)
    clock: Stopwatch | None = None

    @property
    def levels(self) -> tuple[str, ...]:
        """What wraps its tensors."""
        return self.circumstances.levels if self.circumstances is not None else ()

    @property
    def is_inner(self) -> bool:
        """Whether it runs inside another pass."""
        return self.circumstances is not None and self.circumstances.inside > 0


def circumstances(running: Sequence[Following], home: int) -> Circumstances | None:
    """Return where a backward runs that is called just now, given those that run already; ``home`` is the thread."""
    levels, here = active_levels(), threading.get_ident()
    outer = _outer(running, here) if running else None
    name = "" if here == home or outer is not None else threading.current_thread().name
    if not levels and outer is None and not name:
        return None
    begun = outer.begun if outer is not None else None
    graph = begun.graph if begun else 0
    return Circumstances(begun.number if begun else 0, graph, _on_behalf_of(outer), name, levels)


def _outer(running: Sequence[Following], here: int) -> Following | None:
    """Return the pass that this one runs inside, if any: on a device's own thread it is the one that came last."""
    if torch._C._current_graph_task_id() == -1:
        return None
    begun = [other for other in running if other.begun is not None]
    return next((other for other in reversed(begun) if other.thread == here), begun[-1] if begun else None)


def _on_behalf_of(outer: Following | None) -> int | None:
    """Return the report index of the node whose backward is running, in the graph of the outer pass."""
    if outer is None or outer.graph is None:
        return None
    current = torch._C._current_autograd_node()
    place = next((at for at, node in enumerate(outer.nodes) if node is current), None)
    return None if place is None else outer.graph.structure.index[place]


def is_being_compiled() -> bool:
    """Return whether a backward is only being written down, by Dynamo, AOTAutograd or ``make_fx``, and not run."""
    proxies = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    return proxies is not None or torch._guards.TracingContext.try_get() is not None


def start_nodes(roots: Sequence[Any]) -> list[Any]:
    """Return the nodes that a backward starts from: those of tensors, of gradient edges, and of leaves."""
    return [node for node in map(_node_of, roots) if node is not None]


def _node_of(root: Any) -> Any:
    if not isinstance(root, torch.Tensor):
        return getattr(root, "node", None)
    if root.grad_fn is not None or not root.requires_grad:
        return root.grad_fn
    with torch._C.DisableTorchFunction():
        return torch.autograd.graph.get_gradient_edge(root).node


def returned_gradients(
    followed: Following, call: BackwardCall, result: Any, leaf_number: Callable[[torch.Tensor], int]
) -> dict[int, list[torch.Tensor]]:
    """Return, by report index, what a call returned for nodes that no hook saw a gradient arrive at.

    What ``autograd.grad`` is asked for is taken out before it reaches the node that made it, or the leaf.
    """
    found: dict[int, list[torch.Tensor]] = {}
    if call.accumulates or followed.graph is None or followed.recorder is None:
        return found
    structure, norms = followed.graph.structure, followed.recorder.values.norms
    leaves = {leaf: index for index, leaf in structure.leaf_of.items()}
    places = {id(node): structure.index[place] for place, node in enumerate(followed.nodes)}
    for asked, gradient in zip(call.inputs, result, strict=False):
        is_leaf = isinstance(asked, torch.Tensor) and asked.grad_fn is None
        node = getattr(asked, "grad_fn" if isinstance(asked, torch.Tensor) else "node", None)
        index = leaves.get(leaf_number(bare(asked))) if is_leaf else places.get(id(node))
        if index is not None and isinstance(gradient, torch.Tensor) and norms[index] == UNTOUCHED:
            found.setdefault(index, []).append(gradient)
    return found
