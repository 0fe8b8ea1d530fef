"""Forward values of a trace: measures what the forward makes, for the user who asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors import devices, quiet
from tensormagic.collectors.gradients.gradient_statistics import PassForward, Row, statistics_of
from tensormagic.collectors.gradients.measures import elements_read, measure
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.graphs.live_nodes import flat, grad_fn_of
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.objects.children import has_history, is_stale
from tensormagic.reports import Gap
from tensormagic.words import error_text

# Each output of each call that makes a node is measured. The function mode sees the outputs as they are returned. On a
# CPU they are measured there and then; on any other device their numbers are computed there, and come with those of the
# pass. Nothing is kept but numbers. A row is known by the sequence number of its node until a backward walks the graph.

GENERATIONS = 4  # forwards whose rows are still known: the pass through a graph may come after that through another
MOST_ROWS = 1 << 17  # rows of one forward


class ForwardMeter(TracePart):
    """The rows of the last forwards."""

    def __init__(self, trace: TraceContext) -> None:
        trace.recorder.meter = self.observe
        self._far = DeviceNumbers(0)
        # Those of the outputs of each node; what is still to come from a device is put there when it has come.
        self._rows: deque[dict[int, list[Row]]] = deque([{}], maxlen=GENERATIONS)
        self._given: dict[int, bool | None] = {}
        self._last: tuple[Any, Any, Any] = (None, None, None)
        self._gap = ""  # why something could not be measured; empty where all could

    def observe(self, made: tuple[int, int], given: tuple[tuple[Any, ...], Any], result: Any) -> None:
        """Measure the outputs of a call that made the nodes ``made`` (from, to). Never raises."""
        if torch._C._current_autograd_node() is not None or devices.there.capturing():
            return
        with self._measuring():
            values = (*given[0], *(given[1] or {}).values())
            for x in flat((values[0] if result is None and values else result,)):
                self._look(x, made, values)

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Leave out the user's modes and transforms; what is measured is detached: no graph grows. Never raises."""
        began = perf_counter()
        transformed = torch._C._functorch.peek_interpreter_stack() is not None
        try:
            with torch._C.DisableTorchFunction(), quiet.outside_functorch() if transformed else quiet.without_modes():
                yield
        except Exception as error:
            self._missed(error)
        self.seconds += perf_counter() - began

    def _look(self, x: Any, made: tuple[int, int], values: tuple[Any, ...]) -> None:
        if not has_history(x) or is_stale(x) or x.device.type == "meta":
            return
        number, local = grad_fn_of(x)._sequence_nr(), quiet.local_shard(x)
        if quiet.dispatches_to_python(local):
            self._gap = quiet.unread_reason(x)
            return
        if made[0] <= number < made[1]:
            if len(self._rows[-1]) >= MOST_ROWS:
                self._rows.append({})
            rows = self._rows[-1].setdefault(number, [])
            self._measure(quiet.unwrap(local).detach(), rows)
            if number not in self._given and any(row.nan or row.inf for row in rows):
                self._given[number] = any(_is_bad(value) for value in flat(values) if value is not x)

    def _measure(self, x: torch.Tensor, rows: list[Row]) -> None:
        """Measure a value, unless it is, unchanged, the very memory that was measured last: a view."""
        if devices.there.holds(x):
            self._far.ask(x, lambda _, row: rows.extend([row] if row is not None else ()), full=True)
        elif x.layout is not torch.strided or x.is_nested:
            rows.append(statistics_of(x, 0))
        else:
            storage = x.untyped_storage()
            key = (storage._cdata, x.data_ptr(), elements_read(x), x._version, x.dtype)
            if key != self._last[0]:
                # while the reference lives, no other storage gets this one's `_cdata`, wherever its memory lies
                self._last = key, StorageWeakRef(storage), statistics_of(x, 0)  # type: ignore[no-untyped-call]
            rows.append(self._last[2])

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Hand over the rows of the nodes that a pass is about to go through. Never raises."""
        structure, values = followed.graph.structure, followed.recorder.values
        with self._measuring():
            values.forward = forward = PassForward(structure, values.pass_number, self._missed)
            for index, node in zip(structure.index, found.nodes, strict=True):
                if index in structure.leaf_of:  # seldom changes much: measured where gradients are measured in full
                    leaf = quiet.unwrap(quiet.local_shard(node.variable))
                    if values.table is None or quiet.dispatches_to_python(leaf):
                        continue
                    if leaf.layout is torch.strided and leaf.numel() and not leaf.untyped_storage().nbytes():
                        continue  # FSDP lets go of the memory of a whole parameter between uses of it
                    self._measure(leaf.detach(), forward.rows.setdefault(index, []))
                    continue
                number = node._sequence_nr()
                if rows := next((each for each in reversed(self._rows) if number in each), None):
                    forward.rows[index] = rows[number]
                    if number in self._given:
                        forward.given[index] = self._given[number]
            if self._far.asked:
                self._far.send()
                forward.far, self._far = self._far, DeviceNumbers(0)
            self._given.clear()
            if self._rows[-1]:
                self._rows.append({})

    def _missed(self, error: Exception) -> None:
        self._gap = error_text(error)

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be measured."""
        reason = f"some forward values could not be measured: {self._gap}"
        return (Gap("forward", reason),) if self._gap else ()


def _is_bad(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return False
    value = quiet.unwrap(quiet.local_shard(value))
    if quiet.dispatches_to_python(value) or not value.is_cpu or not value.numel():
        return False
    return any(measure(value.detach())[1:])
