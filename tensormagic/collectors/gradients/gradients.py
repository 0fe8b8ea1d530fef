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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import sqrt
from time import perf_counter
from typing import Any

import torch

from tensormagic.collectors import devices, quiet
from tensormagic.collectors.gradients import measures
from tensormagic.collectors.gradients.gradient_statistics import PassValues, statistics_of, statistics_of_row
from tensormagic.collectors.gradients.nonfinite import SavedFacts, first_nonfinite_of, saved_facts
from tensormagic.collectors.gradients.on_device import ROOM, DeviceNumbers
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.live_nodes import Hooks
from tensormagic.collectors.graphs.saved_tensors import REGULAR, saved_tensor, singular_slot
from tensormagic.collectors.graphs.structure import Walk, is_accumulate
from tensormagic.collectors.hooks.replacing import without_dynamo
from tensormagic.reports import UNREADABLE, UNTOUCHED, GradientStatistics
from tensormagic.words import error_text

Gradients = Sequence["torch.Tensor | None"]

_current_node: Callable[[], Any] = torch._C._current_autograd_node

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
    """Hooks the nodes of one walk, takes the hooks away again, and fills the values of the pass, by report index.

    Where ``wrapped``, what is inside the wrappers is measured that transforms (``torch.func``) put around gradients.
    ``hooked`` are sequence numbers of the nodes on whose results tensor hooks of the user's were seen being put, each
    with the line that did; from `close` on the report indices of nodes whose gradient such a hook may have changed on
    its way there. ``seconds`` were spent in hooks, ``statistics_seconds`` of these in measuring gradients in full.
    """

    def __init__(
        self, found: Walk | None, graph: TracedGraph, values: PassValues, *, hooked: Mapping[int, int | None],
        wrapped: bool,
    ) -> None:  # fmt: skip
        self.values, self._structure, self._found, self.hooked = values, graph.structure, found, hooked
        self._hooked_before = graph.hooked
        self._first, self._history = graph.first, graph.on_device  # all passes of the graph fill what is missing there
        self._far = DeviceNumbers(values.pass_number)
        self.seconds = self.statistics_seconds = 0.0
        # Where gradients lay that were looked at last. Three lists, and no tuple for each node: what Python has to look
        # through for garbage, it looks through often.
        self._addresses, self._reads, self._versions = ([0] * graph.structure.size for _ in range(3))
        self._may_ask: bool | None = None  # on a device; known with the first gradient there
        self._asks_all = True
        self._facts: dict[int, SavedFacts] = {}
        self._hooks = Hooks()
        self._padding: set[int] = set()
        self._isolated = wrapped or torch._C._len_torch_dispatch_stack() > 0
        self._plain = not devices.there.simulated and not self._isolated

    def open(self, around: Callable[..., Any] | None = None, *, between_compiled: bool = False) -> None:
        """Put the hooks on; if that fails halfway, those already on are taken off again.

        ``around(hook, *arguments)`` calls each hook, where a mode of the tracer's own has to step off. Between compiled
        regions Dynamo would compile hooks: these it does not.
        """
        assert self._found is not None
        nodes, structure, hooks = self._found.nodes, self._structure, self._hooks
        before, after, slowly = self.received, self._after, self._slowly
        if around is not None:
            before, after, slowly = partial(around, before), partial(around, after), partial(around, slowly)
        try:
            look = self._usual_look(nodes, slowly) if self._plain else None
            if between_compiled:
                before, after = partial(without_dynamo, before), partial(without_dynamo, after)
                look = partial(without_dynamo, look) if look is not None else None
            with hooks.together():
                for index, node in zip(structure.index, nodes, strict=True):
                    slot = None if type(node) in REGULAR else singular_slot(node)
                    usual = look is not None and slot is None
                    hook = look if usual else partial(before, index, node if slot else None, slot)
                    hooks.keep(node.register_prehook(hook))
                for place, contested in [*structure.contested.items()]:  # a pass on another thread may add to it
                    if nodes[place].name() in _PADDING:
                        self._padding.add(structure.index[place])
                    hooks.keep(nodes[place].register_hook(partial(after, structure.index[place], contested)))
            if self.values.small is not None:
                self.values.small.open(self._found, structure, hooks, around)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Take every hook off, drop the nodes, and let what is on a device come, without waiting for it."""
        self._hooks.remove()
        found, self._found = self._found, None
        try:
            if self._far.asked:
                with self._quiet():
                    self._far.send()
        except Exception as error:
            self._far.give_up()
            self.values.gap = _reason(error)
        if found is not None and (self.values.bad or self._far.asked or 0.0 in self.values.norms):
            with torch._C.DisableTorchFunction():  # a leaf's class may refuse to be asked
                self.hooked = {  # hooks on leaves stand with the leaf; of others nothing can be asked
                    self._structure.index[place]: self.hooked.get(found.numbers[place])
                    for place, node in enumerate(found.nodes)
                    if (node.variable._backward_hooks if is_accumulate(node) else found.numbers[place] in self.hooked)
                }
            self._hooked_before.update(self.hooked)
        self._conclude()

    def address(self, index: int) -> int:
        """Return where the gradient lay that a node received; 0 where that was not looked at."""
        return self._addresses[index]

    @property
    def arrival(self) -> DeviceNumbers | None:
        """What is to come from devices; None where everything is here."""
        return self._far if self._far.asked else None

    def read(self) -> None:
        """Take what has come from devices; waits until it has."""
        if self._far.asked:
            self._far.read()
            if self._far.uncounted:
                self.values.gap = _UNCOUNTED
            self._history.learn(self.values.norms)
            self._conclude()

    def _conclude(self) -> None:
        values, edges = self.values, self._structure.edges
        if values.bad and not self._far.asked:
            values.first_nonfinite = first_nonfinite_of(values, self._facts, self._first, edges, self.hooked)

    def observe_value(self, root: torch.Tensor) -> None:
        """Record the loss: read at once on a CPU, with everything else elsewhere."""
        root = quiet.local_shard(root) if quiet.is_replicated(root) else root
        if quiet.dispatches_to_python(root):
            is_part, reason = quiet.local_shard(root) is not root, quiet.unread_reason(root)
            self.values.loss_gap = _SPREAD if is_part else f"the loss could not be read: {reason}"
            return
        with self._quiet():
            value = root.detach().reshape(())
            if value.is_floating_point() and value.device.type != "meta":
                if devices.there.holds(value):
                    self._far.number(value, partial(setattr, self.values, "value"))
                else:
                    self.values.value = value.item()

    # -- hooks: called by the engine; they return None, which leaves every gradient as it is ----------------------

    def received(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        """Look at what a node received, or what ``autograd.grad`` handed back instead: gradients of its outputs."""
        self.values.order.append(index)
        self._slowly(index, node, slot, gradients)

    def _slowly(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        began = perf_counter()
        try:
            if odd := any(map(quiet.dispatches_to_python, gradients)):
                gradients = [*map(quiet.local_shard, gradients)]
            if odd and any(map(quiet.dispatches_to_python, gradients)):
                self.values.norms[index] = UNREADABLE
                self.values.gap = quiet.unread_reason(next(filter(quiet.dispatches_to_python, gradients)))
            elif self._isolated or torch.is_grad_enabled():
                with self._quiet():
                    self._look(index, node, slot, [*map(quiet.unwrap, gradients)])
            else:
                self._look(index, node, slot, gradients)
        except Exception as error:
            self.values.norms[index], self.values.gap = UNREADABLE, _reason(error)
            if isinstance(error, torch.OutOfMemoryError):
                self._may_ask = False
                self._far.give_up()
                self._history.short()
        self.seconds += perf_counter() - began

    def _after(self, index: int, contested: list[int], gradients: Sequence[torch.Tensor | None], _: Any) -> None:
        began = perf_counter()
        try:
            with self._quiet() if self._isolated or torch.is_grad_enabled() else nullcontext():
                for input_number in contested:
                    gradient = quiet.unwrap(quiet.local_shard(gradients[input_number]))
                    if gradient is not None and not quiet.dispatches_to_python(gradient):
                        self._look_at_part((index, input_number), gradient)
        except Exception as error:
            self.values.gap = error_text(error)
        self.seconds += perf_counter() - began

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Keep the user's own dispatch modes and transforms from seeing the tracer's reductions, and autograd too."""
        with quiet.graded(enabled=False), quiet.outside_functorch() if self._isolated else nullcontext():
            yield

    # -- measuring ------------------------------------------------------------------------------------------------

    def _look(self, index: int, node: Any, slot: str | None, gradients: Gradients) -> None:
        saved = saved_tensor(node, slot) if slot is not None else None
        if slot is not None and saved is not None and saved.numel() and saved.is_floating_point():
            if not devices.there.holds(saved):
                self._facts[index] = saved_facts(slot, saved)
            elif self._has_room(saved.device):
                self._far.counts(saved, lambda *counts: self._facts.__setitem__(index, (slot, *counts)))
        first = gradients[0]
        if len(gradients) > 1 or first is None:
            present = [gradient for gradient in gradients if gradient is not None]
            if not present:
                self._store(index, (0.0, 0, 0))
            for gradient in present:
                self._measure(index, gradient, partial(self._store, index))
        elif first.is_meta:
            self.values.norms[index], self.values.gap = UNREADABLE, measures.NO_NUMBERS
        else:
            self._look_at_one(index, first)

    def _look_at_one(self, index: int, gradient: torch.Tensor) -> None:
        """Measure a gradient, unless it is, unchanged, the very memory that the node before it received."""
        far, values = devices.there.holds(gradient), self.values
        if gradient.layout is torch.strided and not (far and gradient.is_nested):
            self._addresses[index], self._reads[index] = gradient.data_ptr(), measures.elements_read(gradient)
            self._versions[index] = gradient._version
            sender = self._structure.sender[index]
            if sender >= 0 and self._received(sender, gradient):
                self._far.after(partial(self._hand_on, sender, index)) if far else self._hand_on(sender, index)
                return
        if not far:
            if values.table is not None or self._first[index] is None:
                began = perf_counter()
                self._keep_in_full(index, statistics_of(gradient, values.pass_number), began)
            else:
                self._store(index, measures.measure(gradient))
        elif self._has_room(gradient.device):
            full = self._asks_all and (values.table is not None or self._first[index] is None)
            careful = index in self._history.careful
            self._far.ask(gradient, partial(self._came, index), full=full, careful=careful)
        else:
            values.norms[index] = UNREADABLE

    def _came(self, index: int, numbers: measures.Measured | None, found: GradientStatistics | None) -> None:
        """Keep what came from a device of a gradient; next time it is asked with care where its range was left."""
        if numbers is None:
            self.values.norms[index] = UNREADABLE
            return
        within, careful = measures.NORM_RELIABLE[0] < numbers[0] < measures.NORM_RELIABLE[1], self._history.careful
        (careful.discard if within else careful.add)(index)
        if found is not None:
            self._keep_statistics(index, found)
        self._store(index, numbers)

    def _has_room(self, device: torch.device) -> bool:
        """Return whether a device may be asked; where little room is left there, not for everything."""
        if self._may_ask is None:
            self._history.used = True
            self._may_ask = not self._history.rests()
            wants_all = self.values.table is not None or not all(self._first)
            room = devices.there.room(device) if wants_all else None
            self._asks_all = room is None or room >= ROOM
            if not self._may_ask:
                self.values.gap = _NO_ROOM
            elif not self._asks_all:
                self.values.table, self.values.gap = None, _LITTLE_ROOM
        return self._may_ask

    def _look_at_part(self, edge: tuple[int, int], gradient: torch.Tensor) -> None:
        """Measure what a node sends to a slot that others send to as well; an addition hands on what it received."""
        index, values = edge[0], self.values
        far = devices.there.holds(gradient)
        padded = index in self._padding and (far or values.norms[index] >= 0)
        if padded or (gradient.layout is torch.strided and self._received(index, gradient)):
            self._far.after(partial(self._part_as_received, edge)) if far else self._part_as_received(edge)
        else:
            self._measure(index, gradient, partial(values.parts.__setitem__, edge))

    def _part_as_received(self, edge: tuple[int, int]) -> None:
        if (norm := self.values.norms[edge[0]]) >= 0 or math.isnan(norm):
            self.values.parts[edge] = (norm, *self.values.bad.get(edge[0], (0, 0)))

    def _measure(self, index: int, gradient: torch.Tensor, store: Callable[[measures.Measured], None]) -> None:
        if not devices.there.holds(gradient):
            store(measures.measure(gradient))
        elif self._has_room(gradient.device):

            def keep(numbers: measures.Measured | None, _: object) -> None:
                if numbers is not None:
                    store(numbers)

            self._far.ask(gradient, keep, full=False, careful=index in self._history.careful)

    # -- keeping --------------------------------------------------------------------------------------------------

    def _received(self, index: int, gradient: torch.Tensor) -> bool:
        """Return whether a gradient is, unchanged, what the node received."""
        return (
            gradient.data_ptr() == self._addresses[index] != 0
            and gradient._version == self._versions[index]
            and measures.elements_read(gradient) == self._reads[index]
        )

    def _keep_statistics(self, index: int, found: GradientStatistics) -> None:
        if self.values.table is not None:
            self.values.table[index] = found
        if self._first[index] is None:
            self._first[index] = found

    def _hand_on(self, source: int, index: int) -> None:
        """Give a node the numbers of the one before it, whose gradient it received unchanged."""
        values = self.values
        values.norms[index] = values.norms[source]
        if source in values.bad:
            values.bad[index] = values.bad[source]
        if (found := (self._first if values.table is None else values.table)[source]) is not None:
            self._keep_statistics(index, found)

    def _store(self, index: int, numbers: measures.Measured) -> None:
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

    def _keep_in_full(self, index: int, found: GradientStatistics | None, began: float) -> None:
        if found is not None:
            self._keep_statistics(index, found)
            self._store(index, (found.norm, found.nan, found.inf))
        self.statistics_seconds += perf_counter() - began

    def _usual_look(  # noqa: C901  (in one function: it runs for every node)
        self, nodes: Sequence[Any], slowly: Callable[[int, None, None, Gradients], None]
    ) -> Callable[[Gradients], None]:
        """Return the hook of nearly every node in nearly every pass, given what torch gives a prehook.

        It takes the norm of one gradient, in a microsecond or a few. What it finds anything unusual in, it leaves to
        ``slowly``, which looks at everything and counts its own time. It is the same function for all nodes: the engine
        says which one it is at. It calls no operation of torch's, so no mode has to be kept from seeing it.
        """
        index_of = dict(zip(map(id, nodes), self._structure.index, strict=True)).get  # its ids live as long as they
        values, hand_on, keep, squared = self.values, self._hand_on, self._keep_in_full, measures.squared
        norms, bad, reached, single = values.norms, values.bad, values.order.append, torch.float32
        addresses, reads, versions, alone = self._addresses, self._reads, self._versions, measures.MOST_ALONE
        sender, first, full = self._structure.sender, self._first, values.table is not None
        tensor, (least, largest), at_once = torch.Tensor, measures.NORM_RELIABLE, measures.DOT_AT_ONCE
        view, bytes_at, vdot, float32 = measures.view, measures.bytes_at, measures.vdot, measures.float32

        def look(gradients: Gradients) -> None:
            began = perf_counter()
            if (index := index_of(id(_current_node()))) is None:
                return
            reached(index)
            try:
                x: Any = gradients[0]
                if (
                    type(x) is tensor and x.dtype is single and x.is_cpu and (full or first[index] is not None)
                    and norms[index] == UNTOUCHED and len(gradients) == 1 and not (full and x.is_neg())
                    # by rows, or by columns as the gradients of weights are: as `small_as_it_lies`, without a call
                    and (x.is_contiguous() or (len(s := x.stride()) == 2 and s[0] == 1 and s[1] == x.size(0)))
                ):  # fmt: skip
                    addresses[index] = address = x.data_ptr()
                    reads[index] = count = x.numel()  # `elements_read` of such a one, without a call
                    versions[index] = version = x._version
                    source = sender[index]
                    if source >= 0 and address == addresses[source] != 0 and (
                        (count, version) == (reads[source], versions[source])
                    ):  # fmt: skip
                        if full or source in bad:
                            hand_on(source, index)
                        else:
                            norms[index] = norms[source]
                        self.seconds += perf_counter() - began
                        return
                    if 0 < count <= alone and address:
                        numbers = view(bytes_at(address), float32, count)
                        if full:
                            keep(index, statistics_of_row(numbers, values.pass_number), began)
                        elif least < (norm := sqrt(
                            vdot(numbers, numbers) if count <= at_once else squared(numbers, count)
                        )) < largest:  # fmt: skip
                            norms[index] = norm
                        if norms[index] != UNTOUCHED:
                            self.seconds += perf_counter() - began
                            return
            except Exception:  # noqa: S110  (no memory of its own, as a sparse one: the other look says what it is)
                pass
            slowly(index, None, None, gradients)

        return look


def _reason(error: Exception) -> str:
    return _NO_ROOM if isinstance(error, torch.OutOfMemoryError) else error_text(error)
