"""The numbers themselves, where a graph is small enough to be checked by hand: what was made, received and sent.

The forward's results are noted as calls return them, those of a few elements alone; a pass through a small graph has
hooks of its own. On a device other than a CPU nothing is read: it would have to be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from tensormagic.collectors.devices import accelerator
from tensormagic.collectors.graphs.live_nodes import Hooks
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.quiet import without_modes
from tensormagic.reports import SmallValues
from tensormagic.reports.graph import FEW_ELEMENTS

_MOST_RESULTS = 512  # of a forward whose backward never comes
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

Numbers = tuple[float, ...]


class SmallResults:
    """What calls of the forward made lately, by the sequence number of the node, where it has few elements."""

    def __init__(self) -> None:
        self.made: dict[int, Numbers] = {}

    def note(self, result: Any) -> None:
        """Note what a call returned. Never raises."""
        if type(result) is not torch.Tensor:
            return
        try:
            with torch._C.DisableTorchFunction():
                numbers = _numbers(result) if 0 < result.numel() <= FEW_ELEMENTS else ()
                if numbers and torch._C._current_autograd_node() is None and (node := result.grad_fn) is not None:
                    if len(self.made) >= _MOST_RESULTS:
                        del self.made[next(iter(self.made))]
                    self.made[node._sequence_nr()] = numbers
        except Exception:
            return


class SmallPass:
    """What one pass brought to each node of a small graph, and what each sent on.

    Args:
        found: The live nodes.
        structure: Their structure.
        made: What the forward made, by sequence number.
    """

    def __init__(self, found: Walk, structure: GraphStructure, made: dict[int, Numbers]) -> None:
        self._edges = {(edge.source, edge.input_number): at for at, edge in enumerate(structure.edges)}
        self._received: list[Numbers] = [()] * structure.size
        self._sent: list[Numbers] = [()] * len(structure.edges)
        self._made: list[Numbers] = [()] * structure.size
        for index, node in zip(structure.index, found.nodes, strict=True):
            leaf = index in structure.leaf_of
            self._made[index] = _numbers(node.variable) if leaf else made.get(node._sequence_nr(), ())

    def open(self, found: Walk, structure: GraphStructure, hooks: Hooks, around: Callable[..., Any] | None) -> None:
        """Put a hook before and one after each node; ``hooks`` takes them off."""
        came, went = self._came, self._went
        if around is not None:
            came, went = partial(around, came), partial(around, went)
        for index, node in zip(structure.index, found.nodes, strict=True):
            hooks.keep(node.register_prehook(partial(came, index, None)))
            hooks.keep(node.register_hook(partial(went, index, None)))

    def _came(self, index: int, _what: None, gradients: Sequence[torch.Tensor | None]) -> None:
        self._received[index] = _numbers(gradients[0]) if len(gradients) == 1 else ()

    def _went(self, index: int, _what: None, sent: Sequence[torch.Tensor | None], _received: Any) -> None:
        for number, gradient in enumerate(sent):
            if (edge := self._edges.get((index, number))) is not None:
                self._sent[edge] = _numbers(gradient)

    def report(self) -> SmallValues:
        """Return the numbers as plain data."""
        return SmallValues(tuple(self._made), tuple(self._received), tuple(self._sent))


def _numbers(x: Any) -> Numbers:
    """Return the elements of a tensor; none where these are many, or are not simply there to be read. Never raises."""
    try:
        with torch._C.DisableTorchFunction(), without_modes():
            if type(x) not in _PLAIN or not 0 < x.numel() <= FEW_ELEMENTS or x.is_meta or accelerator.there.holds(x):
                return ()
            if x.layout is not torch.strided or not x.is_floating_point():
                return ()
            return tuple(map(float, x.detach().reshape(-1).tolist()))
    except Exception:
        return ()
