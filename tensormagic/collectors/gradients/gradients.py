"""Measures gradients as backward passes them: the hooks on the autograd nodes of one pass, and nothing else.

A prehook on a node sees the gradient of the node's forward outputs, summed over everything that used them. Where
several edges feed one slot, only a post-hook on each feeding node can tell their parts apart; those nodes alone get
one. Both leave the graph as it is (a module's full backward hook would insert nodes). All hooks are removed when the
pass ends, however it ends.

On a CPU a reduction is read at once. On any other device nothing is read inside the pass, and nobody waits for it: see
`on_device`. The numbers of such a pass are there once `read` was called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors import devices
from tensormagic.collectors.gradients.gradient_statistics import (
    SmallGradients,
    StatisticsTable,
    measured,
    statistics_of,
)
from tensormagic.collectors.gradients.measures import NO_NUMBERS, Measured, measure
from tensormagic.collectors.gradients.nonfinite import (
    SavedFacts,
    first_nonfinite_of,
    hooked_nodes,
    saved_facts,
    suspicious,
)
from tensormagic.collectors.gradients.on_device import ROOM, DeviceHistory, DeviceNumbers, left_its_range
from tensormagic.collectors.gradients.pass_values import Gradients, Known, Memory, PassValues, fast_norm
from tensormagic.collectors.graphs.live_nodes import Hooks
from tensormagic.collectors.graphs.saved_tensors import REGULAR, singular_slot
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.hooks.replacing import without_dynamo
from tensormagic.collectors.quiet import (
    dispatches_to_python,
    graded,
    is_replicated,
    local_shard,
    outside_functorch,
    unread_reason,
    unwrap,
    without_modes,
)
from tensormagic.reports import UNREADABLE, UNTOUCHED, GradientStatistics
from tensormagic.words import error_text

_READ_AT_ONCE = frozenset({torch.float32, torch.float64})

_SPREAD = "the loss is a DTensor, and each process has only a part; a trace does not ask other processes"

_NO_ROOM = "a device had no room left for what the trace computes on it; the gradients of some passes were left alone"
_LITTLE_ROOM = f"a device had less than {ROOM >> 20} MiB left: of some passes only the norms were taken"
_UNCOUNTED = (
    "of large gradients on a device that are not finite it is counted in some passes alone how many elements are not: "
    "1 stands for at least 1"
)

# What these send back is what they received, and zeros around it, or next to it: the same norm, the same NaN and Inf.
_PADDING = frozenset({"SelectBackward0", "SliceBackward0", "DiagonalBackward0", "SplitBackward0",
                      "SplitWithSizesBackward0", "UnbindBackward0"})  # fmt: skip


class PassRecorder:
    """Hooks the nodes of one walk, and takes the hooks away again; ``hooked`` is for `hooked_nodes`.

    Args:
        found: The live nodes; dropped in `close`.
        structure: Their structure.
        values: Filled while the pass runs.
        first: Statistics of the first gradient of each node, shared by all passes of it; filled where missing
        history: What is known of gradients on devices, shared likewise.
    """

    def __init__(
        self,
        found: Walk,
        structure: GraphStructure,
        values: PassValues,
        first: StatisticsTable,
        history: DeviceHistory | None = None,
    ) -> None:
        self.values = values
        self.hooked: Collection[int] = ()
        self.seconds = 0.0
        self.statistics_seconds = 0.0
        self._found: Walk | None = found
        self._structure = structure
        self._first = first
        self._history = history or DeviceHistory()
        self._far = DeviceNumbers(values.pass_number)
        self._may_ask: bool | None = None  # on a device; known with the first gradient there
        self._asks_all = True
        self._facts: dict[int, SavedFacts] = {}
        self.memory = Memory(structure.size)
        self._hooks = Hooks()
        self._padding: set[int] = set()
        self._wrapped = False
        self._isolated = torch._C._len_torch_dispatch_stack() > 0
        self._plain = not devices.there.simulated and not self._isolated
        self._small = SmallGradients(values.pass_number, self._keep_rows, self._copy_statistics)

    def look_inside_wrappers(self) -> None:
        """Measure what is inside the wrappers that transforms (``torch.func``) put around gradients."""
        self._wrapped = self._isolated = True
        self._plain = False

    def open(self, around: Callable[..., Any] | None = None, *, between_compiled: bool = False) -> None:
        """Put the hooks on; if that fails halfway, those already on are taken off again.

        Args:
            around: Calls each hook, ``around(hook, *arguments)``, where a mode of the tracer's own has to step off.
            between_compiled: Whether Dynamo compiles hooks in this pass; these it does not.
        """
        before, after, slowly = self._before, self._after, self._slowly
        if around is not None:
            before, after, slowly = partial(around, before), partial(around, after), partial(around, slowly)
        try:
            look = self._usual_look(slowly) if self._plain else None
            if between_compiled:
                before, after = partial(without_dynamo, before), partial(without_dynamo, after)
                look = partial(without_dynamo, look) if look is not None else None
            with self._hooks.together() as handle:
                self._hook_nodes(before, look, handle)
                self._hook_contested(after, handle)
            if self.values.small is not None and self._found is not None:
                self.values.small.open(self._found, self._structure, self._hooks, around)
        except BaseException:
            self.close()
            raise

    def _usual_look(self, slowly: Callable[..., None]) -> Callable[[Gradients], None]:
        assert self._found is not None
        index_of = dict(zip(map(id, self._found.nodes), self._structure.index, strict=True))  # its ids live as long
        known = Known(index_of.get, self._structure.feeder, self._first.there)
        return fast_norm(self, known, slowly, None if self.values.table is None else self._small)

    def _hook_nodes(self, before: Callable[..., None], look: Callable[..., None] | None, handle: Any) -> None:
        assert self._found is not None
        for index, node in zip(self._structure.index, self._found.nodes, strict=True):
            slot = None if type(node) in REGULAR else singular_slot(node)
            hook = look if look is not None and slot is None else partial(before, index, node if slot else None, slot)
            if (other := node.register_prehook(hook)) is not handle:
                self._hooks.keep(other)

    def _hook_contested(self, after: Callable[..., None], handle: Any) -> None:
        assert self._found is not None
        index = self._structure.index
        for place, contested in self._structure.contested.items():
            node = self._found.nodes[place]
            if node.name() in _PADDING:
                self._padding.add(index[place])
            if (other := node.register_hook(partial(after, index[place], contested))) is not handle:
                self._hooks.keep(other)

    def close(self) -> None:
        """Take every hook off, drop the nodes, and let what is on a device come, without waiting for it."""
        self._hooks.remove()
        found, self._found = self._found, None
        try:
            self._small.finish()
            if self._far.asked:
                with graded(enabled=False), self._quiet():
                    self._far.send()
        except Exception as error:
            self._far.give_up()
            self.values.gap = self._reason(error)
        if found is not None and (self.values.bad or self._far.asked):
            self.hooked = hooked_nodes(found, self._structure, self.hooked)
        self._learn_first()
        if not self._far.asked:
            self._find_first_nonfinite()

    @property
    def arrival(self) -> devices.Arrival | None:
        """What is to come from devices; None where everything is here."""
        return self._far if self._far.asked else None

    def read(self) -> None:
        """Take what has come from devices; waits until it has."""
        if self._far.asked:
            self._far.read()
            if self._far.uncounted:
                self.values.gap = _UNCOUNTED
            self._history.learn(self.values.norms)
            self._learn_first()
            self._find_first_nonfinite()

    def _learn_first(self) -> None:
        if self.values.table is not None:
            self._first.learn(self.values.table)

    def _find_first_nonfinite(self) -> None:
        if self.values.bad:
            self.values.first_nonfinite = first_nonfinite_of(
                self.values, self._facts, self._first, self._structure.edges, self.hooked
            )

    def observe_value(self, root: torch.Tensor) -> None:
        """Record the loss: read at once on a CPU, with everything else elsewhere."""

        def keep(read: float) -> None:
            self.values.value = read

        if self._plain and type(root) is torch.Tensor and root.dtype in _READ_AT_ONCE and root.is_cpu:
            self.values.value = root.item()
            return
        if is_replicated(root):
            root = local_shard(root)
        if dispatches_to_python(root):
            self.values.loss_gap = (
                _SPREAD if local_shard(root) is not root else f"the loss could not be read: {unread_reason(root)}"
            )
            return
        with graded(enabled=False), self._quiet():
            value = root.detach().reshape(())
            if value.is_floating_point() and value.device.type != "meta":
                if devices.there.holds(value):
                    self._far.number(value, keep)
                else:
                    keep(value.item())

    def observe_result(self, index: int, gradients: Sequence[torch.Tensor]) -> None:
        """Record what ``autograd.grad`` handed back instead of passing it on: gradients of a node's outputs."""
        self._before(index, None, None, gradients)

    # -- hooks: called by the engine; they return None, which leaves every gradient as it is ----------------------

    def _before(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        self.values.order.append(index)
        self._slowly(index, node, slot, gradients)

    def _slowly(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        began = perf_counter()
        try:
            if odd := any(map(dispatches_to_python, gradients)):
                gradients = [*map(local_shard, gradients)]
            if odd and any(map(dispatches_to_python, gradients)):
                self.values.norms[index] = UNREADABLE
                self.values.gap = unread_reason(next(filter(dispatches_to_python, gradients)))
            elif self._isolated or torch.is_grad_enabled():
                with graded(enabled=False), self._quiet():
                    self._look(index, node, slot, [*map(unwrap, gradients)] if self._wrapped else gradients)
            else:
                self._look(index, node, slot, gradients)
        except Exception as error:
            self._give_up(index, error)
        self.seconds += perf_counter() - began

    def _after(
        self, index: int, contested: dict[int, tuple[int, int]], gradients: Sequence[torch.Tensor | None], _: Any
    ) -> None:
        began = perf_counter()
        try:
            with graded(enabled=False) if torch.is_grad_enabled() else nullcontext(), self._quiet():
                for input_number in contested:
                    gradient = local_shard(gradients[input_number])
                    gradient = unwrap(gradient) if self._wrapped else gradient
                    if gradient is not None and not dispatches_to_python(gradient):
                        self._look_at_part((index, input_number), gradient)
        except Exception as error:
            self.values.gap = error_text(error)
        self.seconds += perf_counter() - began

    def _quiet(self) -> Any:
        """Keep the user's own dispatch modes and transforms from seeing the tracer's reductions."""
        if self._wrapped:
            return outside_functorch()
        return without_modes() if self._isolated else nullcontext()

    # -- measuring ------------------------------------------------------------------------------------------------

    def _look(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        if slot is not None and (saved := suspicious(node, slot)) is not None:
            self._look_into(index, slot, saved)
        first = gradients[0]
        if len(gradients) > 1 or first is None:
            self._look_at_several(index, gradients)
        elif first.is_meta:
            self.values.norms[index], self.values.gap = UNREADABLE, NO_NUMBERS
        elif devices.there.holds(first):
            self._look_on_device(index, first)
        else:
            self._look_at_one(index, first)

    def _look_into(self, index: int, slot: str, saved: torch.Tensor) -> None:
        """Count the zeros and the like in a saved tensor that may explain a NaN."""
        if not devices.there.holds(saved):
            self._facts[index] = saved_facts(slot, saved)
        elif self._has_room(saved.device):

            def keep(zero: int, negative: int, bad: int) -> None:
                self._facts[index] = SavedFacts(slot, zero, negative, bad)

            self._far.counts(saved, keep)

    def _look_at_one(self, index: int, gradient: torch.Tensor) -> None:
        """Measure a gradient, unless it is, unchanged, the very memory that the node before it received."""
        if gradient.layout is torch.strided:
            self.memory.note(index, gradient)
            feeder = self._structure.feeder[index]
            if feeder >= 0 and self.memory.holds(feeder, gradient):
                return self.hand_on(feeder, index)
        if self.values.table is not None or index not in self._first:
            return self._measure_in_full(index, gradient)
        return self.store(index, measure(gradient))

    def _look_on_device(self, index: int, gradient: torch.Tensor) -> None:
        """Ask about a gradient, unless it is, unchanged, what the node before it received."""
        if gradient.layout is torch.strided and not gradient.is_nested:
            self.memory.note(index, gradient)
            feeder = self._structure.feeder[index]
            if feeder >= 0 and self.memory.holds(feeder, gradient):
                return self._far.after(partial(self.hand_on, feeder, index))
        return self._ask(index, gradient)

    def _ask(self, index: int, gradient: torch.Tensor) -> None:
        if not self._has_room(gradient.device):
            self.values.norms[index] = UNREADABLE
            return
        history = self._history
        full = self._asks_all and (self.values.table is not None or index not in history.asked_in_full)
        if full:
            history.asked_in_full.add(index)
        self._far.ask(gradient, partial(self._came, index), full=full, careful=index in history.careful)

    def _came(self, index: int, numbers: Measured | None, found: GradientStatistics | None) -> None:
        """Keep what came from a device of a gradient."""
        if numbers is None:
            self.values.norms[index] = UNREADABLE
            return
        (self._history.careful.add if left_its_range(numbers) else self._history.careful.discard)(index)
        if found is not None:
            self.keep_statistics(index, found)
        self.store(index, numbers)

    def _has_room(self, device: torch.device) -> bool:
        """Return whether a device may be asked; where little room is left there, not for everything."""
        if self._may_ask is None:
            self._history.used = True
            self._may_ask = not self._history.rests()
            wants_all = self.values.table is not None or not self._history.asked_in_full
            room = devices.there.room(device) if wants_all else None
            self._asks_all = room is None or room >= ROOM
            if not self._may_ask:
                self.values.gap = _NO_ROOM
            elif not self._asks_all:
                self._learn_first()
                self.values.table, self.values.gap = None, _LITTLE_ROOM
        return self._may_ask

    def _look_at_part(self, edge: tuple[int, int], gradient: torch.Tensor) -> None:
        """Measure what a node sends to a slot that others send to as well; an addition hands on what it received."""
        index, values = edge[0], self.values
        far = devices.there.holds(gradient)
        padded = index in self._padding and (far or values.norms[index] >= 0)
        if padded or (gradient.layout is torch.strided and self.memory.holds(index, gradient)):
            self._far.after(partial(self._part_as_received, edge)) if far else self._part_as_received(edge)
        else:
            self._measure(index, gradient, partial(values.parts.__setitem__, edge))

    def _part_as_received(self, edge: tuple[int, int]) -> None:
        if (norm := self.values.norms[edge[0]]) >= 0 or math.isnan(norm):
            self.values.parts[edge] = (norm, *self.values.bad.get(edge[0], (0, 0)))

    def _measure_in_full(self, index: int, gradient: torch.Tensor) -> None:
        began = perf_counter()
        numbers = self._small.take(index, gradient) if self.values.norms[index] == UNTOUCHED else None
        if numbers is None:
            found = statistics_of(gradient, self.values.pass_number)
            if self._small.waits(index):  # a node that is looked at twice keeps the later numbers
                self._small.settle()
            self.keep_statistics(index, found)
            numbers = measured(found)
        self.store(index, numbers)
        self.statistics_seconds += perf_counter() - began

    def _keep_rows(self, indices: list[int], rows: Any) -> None:
        table = StatisticsTable(self._structure.size) if self.values.table is None else self.values.table
        table.fill(indices, rows)
        if self.values.table is None:  # a device ran short since the pass began
            self._first.learn(table)

    def keep_statistics(self, index: int, found: GradientStatistics) -> None:
        """Keep what is known of a node's gradient; of a pass that is measured in full, `close` tells ``first``."""
        if self.values.table is not None:
            self.values.table[index] = found
        elif index not in self._first:
            self._first[index] = found

    def hand_on(self, source: int, index: int) -> None:
        """Give a node the numbers of the one before it, whose gradient it received unchanged."""
        values = self.values
        values.norms[index] = values.norms[source]
        if source in values.bad:
            values.bad[index] = values.bad[source]
        if not self._small.hands_on(source, index):
            self._copy_statistics(source, index)

    def _copy_statistics(self, source: int, index: int) -> None:
        if self.values.table is not None:
            self.values.table.copy(source, index)
        elif index not in self._first:
            self._first.copy(source, index)

    def _look_at_several(self, index: int, gradients: Sequence[torch.Tensor | None]) -> None:
        present = [gradient for gradient in gradients if gradient is not None]
        if not present:
            self.store(index, (0.0, 0, 0))
        for gradient in present:
            self._measure(index, gradient, partial(self.store, index))

    def _measure(self, index: int, gradient: torch.Tensor, store: Callable[[Measured], None]) -> None:
        if not devices.there.holds(gradient):
            store(measure(gradient))
        elif self._has_room(gradient.device):

            def keep(numbers: Measured | None, _: GradientStatistics | None) -> None:
                if numbers is not None:
                    store(numbers)

            self._far.ask(gradient, keep, full=False, careful=index in self._history.careful)

    def store(self, index: int, numbers: Measured) -> None:
        """Keep a node's numbers; a node with several outputs gets them combined over its slots."""
        norm, nan, inf = numbers
        values = self.values
        if values.norms[index] >= 0:
            norm = math.hypot(values.norms[index], norm)
        if nan or inf or index in values.bad:
            before = values.bad.get(index, (0, 0))
            values.bad[index] = (before[0] + nan, before[1] + inf)
            norm = math.nan if values.bad[index][0] else math.inf
        values.norms[index] = norm

    def _give_up(self, index: int, error: Exception) -> None:
        self.values.norms[index], self.values.gap = UNREADABLE, self._reason(error)
        if isinstance(error, torch.OutOfMemoryError):
            self._may_ask = False
            self._far.give_up()
            self._history.short()

    def _reason(self, error: Exception) -> str:
        return _NO_ROOM if isinstance(error, torch.OutOfMemoryError) else error_text(error)


# Looks into backwards that are Python code of the user's: their own Functions', and re-entrant checkpoints'.
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
