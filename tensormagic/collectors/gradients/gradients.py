"""Measures gradients as backward passes them: the hooks on the autograd nodes of one pass, and nothing else.

A prehook on a node sees the gradient of the node's forward outputs, summed over everything that used them. Where
several edges feed one slot, only a post-hook on each feeding node can tell their parts apart; those nodes alone get
one. Both leave the graph as it is (a module's full backward hook would insert nodes). All hooks are removed when the
pass ends, however it ends.

On a CPU a reduction is read at once. On any other device nothing is read inside the pass: the results, three scalars
a node, stay on the device and are fetched together when the pass is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors.gradients.fast_norm import Gradients, Known, Memory, PassValues, fast_norm
from tensormagic.collectors.gradients.gradient_statistics import (
    SmallGradients,
    StatisticsTable,
    gradient_statistics_of,
    gradient_statistics_on_device,
    measured,
    survey,
)
from tensormagic.collectors.gradients.measures import NO_NUMBERS, Measured, measure, measure_on_device, named
from tensormagic.collectors.gradients.nonfinite import (
    REGULAR,
    SavedFacts,
    first_nonfinite_of,
    hooked_nodes,
    saved_counts,
    saved_facts,
    singular_slot,
    suspicious,
)
from tensormagic.collectors.graphs.structure import GraphStructure, Walk
from tensormagic.collectors.hooks.functorch_levels import bare, outside_levels
from tensormagic.collectors.hooks.live_nodes import Hooks
from tensormagic.collectors.hooks.replacing import without_dynamo
from tensormagic.collectors.quiet import answers_itself, graded, here, is_whole, unasked, without_modes
from tensormagic.reports import UNREADABLE, UNTOUCHED, GradientStatistics

_READ_AT_ONCE = frozenset({torch.float32, torch.float64})

_SPREAD = "the loss is a DTensor, and each process has only a part; a trace does not ask other processes"

# What these send back is what they received, and zeros around it, or next to it: the same norm, the same NaN and Inf.
_PADDING = frozenset({"SelectBackward0", "SliceBackward0", "DiagonalBackward0", "SplitBackward0",
                      "SplitWithSizesBackward0", "UnbindBackward0"})  # fmt: skip


class PassRecorder:
    """Hooks the nodes of one walk, and takes the hooks away again; ``hooked`` is for `hooked_nodes`.

    Args:
        found: The live nodes; dropped in `close`.
        structure: Their structure.
        values: Filled while the pass runs.
        first: Statistics of the first gradient of each node, shared by all passes of the skeleton; filled where missing
        deferred: Whether to leave results on the device until the end; by default, wherever that is not a CPU.
    """

    def __init__(
        self,
        found: Walk,
        structure: GraphStructure,
        values: PassValues,
        first: StatisticsTable,
        *,
        deferred: bool | None = None,
    ) -> None:
        self.values = values
        self.hooked: Collection[int] = ()
        self.seconds = 0.0
        self.survey_seconds = 0.0
        self._found: Walk | None = found
        self._structure = structure
        self._first = first
        self._deferred = deferred
        self._waiting: list[tuple[Callable[[list[float]], None], torch.Tensor]] = []
        self._facts: dict[int, SavedFacts] = {}
        self.memory = Memory(structure.size)
        self._hooks = Hooks()
        self._padding: set[int] = set()
        self._wrapped = False
        self._isolated = torch._C._len_torch_dispatch_stack() > 0
        self._plain = deferred is None and not self._isolated
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
        """Take every hook off, drop the nodes, and read what still waits on a device."""
        self._hooks.remove()
        found, self._found = self._found, None
        try:
            self._small.finish()
            self._fetch()
        except Exception as error:
            self.values.gap = f"{type(error).__name__}: {error}"
        if self.values.bad:
            hooked = hooked_nodes(found, self._structure, self.hooked) if found is not None else frozenset()
            self.values.births = first_nonfinite_of(
                self.values, self._facts, self._first, self._structure.edges, hooked
            )

    def observe_value(self, root: torch.Tensor) -> None:
        """Record the loss: read at once on a CPU, with everything else elsewhere."""

        def keep(read: list[float]) -> None:
            self.values.value = read[0]

        if self._plain and type(root) is torch.Tensor and root.dtype in _READ_AT_ONCE and root.is_cpu:
            self.values.value = root.item()
            return
        if is_whole(root):
            root = here(root)
        if answers_itself(root):
            self.values.loss_gap = _SPREAD if here(root) is not root else f"the loss could not be read: {unasked(root)}"
            return
        with graded(enabled=False), self._quiet():
            value = root.detach().reshape(1)
            if value.is_floating_point() and value.device.type != "meta":
                if self._defers(value):
                    self._waiting.append((keep, value))
                else:
                    keep(value.tolist())

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
            if any(map(answers_itself, gradients)):
                gradients = [*map(here, gradients)]
            if any(map(answers_itself, gradients)):
                self._leave(index, next(filter(answers_itself, gradients)))
            elif self._isolated or torch.is_grad_enabled():
                with graded(enabled=False), self._quiet():
                    self._look(index, node, slot, [*map(bare, gradients)] if self._wrapped else gradients)
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
                    gradient = here(gradients[input_number])
                    gradient = bare(gradient) if self._wrapped else gradient
                    if gradient is not None and not answers_itself(gradient):
                        self._look_at_part((index, input_number), gradient)
        except Exception as error:
            self.values.gap = f"{type(error).__name__}: {error}"
        self.seconds += perf_counter() - began

    def _quiet(self) -> Any:
        """Keep the person's own dispatch modes and transforms from seeing the tracer's reductions."""
        if self._wrapped:
            return outside_levels()
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
        elif self._defers(first):
            self._defer_all(index, first)
        else:
            self._look_at_one(index, first)

    def _look_into(self, index: int, slot: str, saved: torch.Tensor) -> None:
        """Count the zeros and the like in a saved tensor that may explain a NaN."""
        if not self._defers(saved):
            self._facts[index] = saved_facts(slot, saved)
            return

        def keep(read: list[float]) -> None:
            self._facts[index] = SavedFacts(slot, *map(int, read))

        self._waiting.append((keep, saved_counts(saved)))

    def _look_at_one(self, index: int, gradient: torch.Tensor) -> None:
        """Measure a gradient, unless it is, unchanged, the very memory that the node before it received."""
        if gradient.layout is torch.strided:
            self.memory.note(index, gradient)
            feeder = self._structure.feeder[index]
            if feeder >= 0 and self.memory.holds(feeder, gradient):
                return self.hand_on(feeder, index)
        if self._wants_survey(index):
            return self._survey(index, gradient)
        return self.store(index, measure(gradient))

    def _look_at_part(self, edge: tuple[int, int], gradient: torch.Tensor) -> None:
        """Measure what a node sends to a slot that others send to as well; an addition hands on what it received."""
        index, values = edge[0], self.values
        if index in self._padding and values.norms[index] >= 0:
            values.parts[edge] = (values.norms[index], *values.bad.get(index, (0, 0)))
            return
        if gradient.layout is torch.strided and not self._defers(gradient) and self.memory.holds(index, gradient):
            values.parts[edge] = (values.norms[index], *values.bad.get(index, (0, 0)))
            return
        self._measure(gradient, partial(values.parts.__setitem__, edge))

    def _wants_survey(self, index: int) -> bool:
        return self.values.table is not None or index not in self._first

    def _survey(self, index: int, gradient: torch.Tensor) -> None:
        began = perf_counter()
        numbers = self._small.take(index, gradient) if self.values.norms[index] == UNTOUCHED else None
        if numbers is None:
            found = survey(gradient, self.values.pass_number)
            self._small.settle()  # a node that is looked at twice keeps the later numbers
            self._keep_statistics(index, found)
            numbers = measured(found)
        self.store(index, numbers)
        self.survey_seconds += perf_counter() - began

    def _keep_rows(self, indices: list[int], rows: Any) -> None:
        if self.values.table is not None:
            self.values.table.fill(indices, rows)
        self._first.fill_where_missing(indices, rows)

    def _keep_statistics(self, index: int, found: GradientStatistics) -> None:
        if self.values.table is not None:
            self.values.table[index] = found
        if index not in self._first:
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
        values = self.values
        if values.table is not None:
            values.table.copy(source, index)
        if index not in self._first:
            self._first.copy(source, index)

    def _look_at_several(self, index: int, gradients: Sequence[torch.Tensor | None]) -> None:
        present = [gradient for gradient in gradients if gradient is not None]
        if not present:
            self.store(index, (0.0, 0, 0))
        for gradient in present:
            self._measure(gradient, partial(self.store, index))

    def _defer_all(self, index: int, gradient: torch.Tensor) -> None:
        self._measure(gradient, partial(self.store, index))
        if self._wants_survey(index):
            count, number = gradient.numel(), self.values.pass_number

            def keep(read: list[float]) -> None:
                self._keep_statistics(index, gradient_statistics_of(read, pass_number=number, count=count))

            self._waiting.append((keep, gradient_statistics_on_device(gradient)))

    def _measure(self, gradient: torch.Tensor, store: Callable[[Measured], None]) -> None:
        if self._defers(gradient):
            self._waiting.append((lambda read: store(named(read)), measure_on_device(gradient)))
        else:
            store(measure(gradient))

    def _defers(self, gradient: torch.Tensor) -> bool:
        return not gradient.is_cpu if self._deferred is None else self._deferred

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
        self.values.norms[index] = UNREADABLE
        self.values.gap = f"{type(error).__name__}: {error}"

    def _leave(self, index: int, gradient: Any) -> None:
        """Note a gradient that nothing is asked of."""
        self.values.norms[index] = UNREADABLE
        self.values.gap = unasked(gradient)

    def _fetch(self) -> None:
        """Read everything that waits on a device: one transfer for each device and width."""
        groups: dict[tuple[torch.device, int], list[int]] = {}
        for at, (_, numbers) in enumerate(self._waiting):
            groups.setdefault((numbers.device, len(numbers)), []).append(at)
        for places in (places for (device, _), places in groups.items() if device.type != "meta"):
            rows = torch.stack([self._waiting[at][1] for at in places]).tolist()
            for at, row in zip(places, rows, strict=True):
                self._waiting[at][0](row)
        self._waiting.clear()
