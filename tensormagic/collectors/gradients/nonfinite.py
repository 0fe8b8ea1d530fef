"""Where NaN and Inf began: in a backward formula, in a saved tensor, or in the forward before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from tensormagic.collectors.gradients.gradient_statistics import PassValues, Statistics
from tensormagic.collectors.gradients.measures import as_array, elements_read, flat, measure
from tensormagic.collectors.graphs.live_nodes import VIEWS, nodes_named
from tensormagic.collectors.graphs.saved_tensors import is_custom, read_slots, saved_tensor
from tensormagic.collectors.graphs.structure import GraphStructure, Walk, is_accumulate
from tensormagic.collectors.quiet import dispatches_to_python, quiet
from tensormagic.reports import UNTOUCHED, Edge, FirstNonfinite, NonfiniteSource

# Looks into the saved tensors of the few ops whose backward can make NaN or Inf out of a finite gradient.


SavedFacts = tuple[str, int, int, int]
"""What a suspicious saved tensor holds: the slot, and counts of zeros, negatives, and NaN or Inf."""


def saved_facts(slot: str, saved: torch.Tensor) -> SavedFacts:
    """Count what makes a backward formula blow up, on a CPU: two reductions where there is nothing to count."""
    low, high = (bound.item() for bound in torch.aminmax(saved))
    if math.isfinite(low) and math.isfinite(high) and (low > 0 or high < 0):
        return slot, 0, saved.numel() if high < 0 else 0, 0
    numbers = as_array(saved.detach().reshape(-1))
    zero, negative, bad = (int(np.count_nonzero(each)) for each in (numbers == 0, numbers < 0, ~np.isfinite(numbers)))
    return slot, zero, negative, bad


# Where NaN and Inf were born: the edges on which something bad left a node that had received nothing bad.
# Worked out once a pass that met one, from the numbers that its hooks left.

MOST_FIRST_NONFINITE = 8


def first_nonfinite_of(
    values: PassValues, facts: Mapping[int, SavedFacts], first: Statistics, edges: Sequence[Edge],
    hooked: Collection[int] = (),
) -> tuple[FirstNonfinite, ...]:  # fmt: skip
    """Return the first `MOST_FIRST_NONFINITE` places of a pass, in the order in which backward reached them.

    ``facts`` were counted in saved tensors, by node; ``hooked`` nodes receive what the user's hooks saw before.
    """
    feeders: dict[int, list[Edge]] = {}
    for edge in edges:
        if edge.target in values.bad:
            feeders.setdefault(edge.target, []).append(edge)
    found: list[FirstNonfinite] = []
    for edge in (edge for receiver in values.order for edge in feeders.get(receiver, ())):
        source, receiver = edge.source, edge.target
        part = values.parts.get((source, edge.input_number))
        counts = values.bad[receiver] if part is None else part[1:]
        if not any(counts) or source in values.bad or values.norms[source] == UNTOUCHED:
            continue  # it is fine, or its source was bad already
        known, (name, zero, negative, saved_bad) = first[receiver], facts.get(source, ("", 0, 0, 0))
        found.append(FirstNonfinite(
            values.pass_number, source, receiver, edge.input_number, *counts,
            sum(counts) if known is None else known.count, values.norms[source],
            name, zero, negative, saved_bad,
            certain=len(feeders[receiver]) == 1 or part is not None, hooked=receiver in hooked,
        ))  # fmt: skip
        if len(found) == MOST_FIRST_NONFINITE:
            break
    return tuple(found)


# Looks back from a loss that is NaN or infinite, once for each structure, to where its forward first was.
# Nothing is recorded for it: the graph that backward is about to go through still holds the inputs and results that it
# saved. What a node made is known where it saved its result or a later one saved it as an input, and where the operand
# that it saved is outside its domain. What nobody saved (the results of sums, of additions) is not known: then it is
# said that the NaN may be older.

MOST_ELEMENTS = 1 << 27  # looked at in all: about a fifth of a second

# Ops that make no NaN and no Inf of finite numbers; of the first of them, all elements are those that went in.
_SAME = (*VIEWS, "Relu", "LeakyRelu", "Neg", "Abs", "Clamp", "ToCopy")
_CHOSEN = ("Expand", "Slice", "Select", "Index", "IndexSelect", "Cat", "Stack", "Split", "Unbind",
           "MaxPool2DWithIndices", "ClampMin")  # fmt: skip
_HANDS_ALL_ON, _HANDS_ON = nodes_named(*_SAME), nodes_named(*_SAME, *_CHOSEN)


class Counts(NamedTuple):
    """What one tensor holds."""

    nan: int
    inf: int
    elements: int

    @property
    def bad(self) -> int:
        """How many are not finite."""
        return self.nan + self.inf


def nonfinite_source(
    found: Walk, structure: GraphStructure, pass_number: int, names: Mapping[str, Any]
) -> NonfiniteSource | None:
    """Return where the forward behind a graph first held a NaN or Inf; None where nothing that was saved holds one.

    It is looked at before backward goes through it.
    """
    with quiet():
        look = _Look(found, structure, names)
        event = look.over_all()
    if event is None or event.source != "made":
        return event and replace(event, pass_number=pass_number)
    made = look.maker(event.node)
    certain = event.zero + event.negative > 0 or look.is_fed_well(made)
    return replace(event, pass_number=pass_number, node=made, certain=certain)


class _Look:
    """One look over the saved tensors of a live graph, and all that they show, by report index."""

    def __init__(self, found: Walk, structure: GraphStructure, names: Mapping[str, Any]) -> None:
        self._edges, self._names, self._in_order = structure.edges, names, not found.foreign
        self._nodes = dict(zip(structure.index, found.nodes, strict=True))
        self._indices = {id(node): index for index, node in self._nodes.items()}
        self._inputs: dict[int, list[int]] = {}
        for edge in structure.edges:
            self._inputs.setdefault(edge.source, []).append(edge.target)
        self._known: dict[tuple[int, int, torch.dtype], Counts | None] = {}
        self._left = MOST_ELEMENTS
        self._results: dict[int, Counts] = {}  # what nodes made, and what leaves hold
        self._events: list[NonfiniteSource] = []  # what was not finite

    def over_all(self) -> NonfiniteSource | None:
        """Look at leaves and at what is saved, in the order of the forward, as far as it bears on the first NaN.

        Returns:
            The first NaN, or an older infinity that it came from; without a NaN, the first infinity.
        """
        for at in sorted(self._nodes):
            self._look_at(at)
            if self._in_order and self._events and self._events[-1].nan:
                first = min(event.node for event in self._events if event.nan)
                # Only those that use what was made up to there may show older ones.
                for user in sorted({edge.source for edge in self._edges if edge.target <= first and edge.source > at}):
                    self._look_at(user)
                break
        events = sorted(self._events, key=lambda event: (event.node, event.source == "made"))
        born = next((event for event in events if event.nan), None)
        if born is None:
            return events[0] if events else None
        older = {event.node: event for event in events if event.node < born.node}
        way = self._way_up(born.node) if older else ()
        return next((older[at] for at in sorted(way) if at in older), born)

    def _look_at(self, at: int) -> None:
        node = self._nodes[at]
        if is_accumulate(node):
            if (counts := self._counts(node.variable)) is not None:
                self._results[at] = counts
                if counts.bad:
                    self._events.append(NonfiniteSource(0, at, "leaf", *counts, shape=tuple(node.variable.shape)))
            return
        for each in () if is_custom(node) else read_slots(node):
            if isinstance(each.value, torch.Tensor) and (counts := self._counts(each.value)) is not None:
                self._operand(at, each.name, each.value, counts)
        # What an op made of an operand outside its domain, where it did not save its result.
        slot, is_infinite, is_outside = _DOMAINS.get(node.name(), ("", _never, _never))
        operand = saved_tensor(node, slot) if slot and at not in self._results else None
        if operand is not None and operand.is_cpu and not operand.is_complex():
            values = as_array(flat(operand.detach())[0])
            zero, outside = int(np.count_nonzero(is_infinite(values))), int(np.count_nonzero(is_outside(values)))
            if zero or outside:
                self._results[at] = counts = Counts(outside, zero, values.size)
                self._events.append(NonfiniteSource(0, at, "made", *counts, zero=zero, negative=outside))

    def _operand(self, at: int, slot: str, saved: torch.Tensor, counts: Counts) -> None:
        """Keep what a saved tensor says of the node that made it; one that no node made is data."""
        maker = self._indices.get(id(saved.grad_fn)) if saved.grad_fn is not None else None
        if maker is not None:
            before = self._results.get(maker)
            self._results[maker] = counts if before is None or counts.bad > before.bad else before
            if counts.bad and not (before and before.bad):
                self._events.append(NonfiniteSource(0, maker, "made", *counts))
        elif counts.bad and saved.grad_fn is None and not saved.requires_grad and not slot.startswith("result"):
            name, shape = self._name_of(saved), tuple(saved.shape)
            self._events.append(NonfiniteSource(0, at, "data", *counts, name, shape))

    def _counts(self, x: torch.Tensor) -> Counts | None:
        """Count the NaN and Inf of a tensor; None where it cannot be looked at at once."""
        has_numbers = x.is_floating_point() or x.is_complex()
        if dispatches_to_python(x) or not has_numbers or not x.is_cpu or x.layout is not torch.strided:
            return None
        key = (x.data_ptr(), elements_read(x), x.dtype)
        if key not in self._known:
            self._left -= x.numel()
            counts = measure(x if type(x) is torch.Tensor else x.detach()) if self._left > 0 else None
            self._known[key] = Counts(*counts[1:], x.numel()) if counts is not None else None
        return self._known[key]

    def _name_of(self, x: torch.Tensor) -> str:
        """Return the name under which the user holds this tensor, or one of the same elements; empty if none."""
        where = (x.data_ptr(), elements_read(x))
        for name, value in list(self._names.items()):
            plain = type(value) is torch.Tensor and not name.startswith("_") and value.layout is torch.strided
            if plain and where == (value.data_ptr(), elements_read(value)):
                return name
        return ""

    def _way_up(self, start: int) -> set[int]:
        """Return the nodes a NaN at ``start`` may have come from: those above it whose result was not seen finite."""
        reached: set[int] = set()
        waiting = [start]
        while waiting:
            for target in self._inputs.get(waiting.pop(), ()):
                counts = self._results.get(target)
                if target not in reached and (counts is None or counts.bad):
                    reached.add(target)
                    waiting.append(target)
        return reached

    def maker(self, at: int) -> int:
        """Return the node that made what the node ``at`` handed on as it was, where nobody saved it before."""
        least = torch.finfo(torch.bfloat16).max
        while (node := self._nodes[at]).name() in _HANDS_ALL_ON:
            if torch.finfo(node._input_metadata[0].dtype).max < least:
                break  # a cast to a type of a smaller range can overflow itself
            inputs = self._inputs.get(at, [])
            if len(inputs) != 1 or inputs[0] in self._results:
                break
            at = inputs[0]
        return at

    def is_fed_well(self, at: int) -> bool:
        """Whether all that went into a node was seen finite, through ops that hand numbers on as they are."""
        waiting, known = [at], {at}
        for each in waiting:  # grows while it is gone through
            for index in self._inputs.get(each, ()):
                if index not in self._results and index not in known:
                    if self._nodes[index].name() not in _HANDS_ON:
                        return False
                    known.add(index)
                    waiting.append(index)
        return True


def _never(_: Any) -> Any:
    return np.zeros(1, bool)


# Ops that save their operand and not their result: the slot, where the result is infinite, and where it is none.
_LOG = ("self", lambda values: values == 0, lambda values: values < 0)
_UNIT = ("self", _never, lambda values: np.abs(values) > 1)
_DOMAINS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "LogBackward0": _LOG, "Log2Backward0": _LOG, "Log10Backward0": _LOG,
    "Log1PBackward0": ("self", lambda values: values == -1, lambda values: values < -1),
    "AcosBackward0": _UNIT, "AsinBackward0": _UNIT,
    "AcoshBackward0": ("self", _never, lambda values: values < 1),
    "DivBackward0": ("other", lambda values: values == 0, _never),
}  # fmt: skip
