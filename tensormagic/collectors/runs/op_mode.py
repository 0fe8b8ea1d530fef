"""The dispatch mode of level ``ops``: sees every ATen operation, times it, and counts it where it was called from.

It runs for each operation, so it counts its own nanoseconds: about a microsecond beyond what any dispatch mode costs.
The three ways into it are told apart by the code that the frame above runs: a call of the person's, which the function
mode has just announced; the autograd engine, which names the node it works for; and everything else, where the stack
is walked. Warnings say what they say without a trace: torch collects them, and gives them out when the call of the
person's returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import torch

from tensormagic.collectors.hooks.stepping import SteppingMode
from tensormagic.collectors.ops.op_asking import ASKING_CALLS
from tensormagic.collectors.ops.op_costs import ForwardLog, NodeCost
from tensormagic.collectors.ops.op_facts import NEW, ONE_NEW, Row, new_bytes
from tensormagic.collectors.ops.op_places import Place, Places, Rows

_ENGINE = torch.autograd.graph._engine_run_backward.__code__
_Tensor = torch.Tensor
_Overload = torch._ops.OpOverload
_current_node: Callable[[], Any] = torch._C._current_autograd_node
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_use_count: Callable[[int], int] = torch._C._storage_Use_Count
_no_python_dispatch: Callable[[], Any] = torch._C._DisableTorchDispatch
_getframe = sys._getframe

_Call = Any  # a function: call(func, args, kwargs)


def _no_node(_id: int, default: NodeCost) -> NodeCost:
    return default


class OpMode(SteppingMode):  # type: ignore[no-untyped-call]
    """Counts every operation; changes none. ``torch.compile`` stays on, and sees nothing of this mode.

    Args:
        places: Where calls are counted.

    Attributes:
        log: What the operations that made autograd nodes took, until their backward comes.
        no_node: What is called on behalf of no node that is known.
        node_of: Returns what the node with an ``id`` costs in the pass under way.
        gap: Why something could not be counted; empty where all could.
        devices: Types of the devices that operations ran on.
    """

    def __init__(self, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = places
        self._frame: FrameType | None = None  # of the call of the person's that is under way
        self._code: CodeType | None = None
        self.place: Place | None = None  # of that call, once it was looked up
        self.log = ForwardLog()
        self.no_node = NodeCost(places.rows(None, "", "backward"))
        self.node_of: Callable[[int, NodeCost], NodeCost] = _no_node
        self.gap = ""
        self.devices: set[str] = set()

    # -- the calls of the person's, announced by the function mode --------------------------------------------------

    def within(self, call: _Call, frame: FrameType, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of the person's, from ``frame``; what it dispatches is counted there."""
        if func in ASKING_CALLS and ASKING_CALLS[func](args, kwargs):
            return self._whole(call, frame, func, args, kwargs)
        self.place = None
        if _graph_task() != -1:  # forward code that a backward runs, such as a checkpoint's
            return call(func, args, kwargs)
        self._frame, self._code = frame, call.__code__
        self.log.last = _sequence_number()
        try:
            return call(func, args, kwargs)
        finally:
            if self._frame is not frame:
                self.place = None  # another call came in between: that is its place
            self._frame = self._code = None

    def _whole(self, call: _Call, frame: FrameType, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of the person's with this mode off, and count it as one."""
        self.place = place = self._places.of(frame)
        before, at = _sequence_number(), self.leave()
        began = perf_counter()
        try:
            result = call(func, args, kwargs)
        finally:
            seconds = perf_counter() - began
            self.come_back(at)
        row = place.grown.add_whole(func.__name__, seconds)
        nbytes = new_bytes(result, (*args, *kwargs.values()))
        row.nbytes += nbytes
        if (after := _sequence_number()) > before:
            self.log.add(after - 1, seconds, nbytes)
        return result

    # -- every operation --------------------------------------------------------------------------------------------

    def __torch_dispatch__(  # noqa: C901, PLR0912  (all in one: each call inside would cost 60 ns an operation)
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call, and count it."""
        try:
            above = _getframe(1)
            code = above.f_code
        except ValueError:  # a thread of the engine's: no Python above
            above, code = None, _ENGINE
        rows: Rows | NodeCost
        node, grown, log = None, 0, self.log
        if code is self._code:
            place = self.place or self._find_place()
            if (grown := _sequence_number()) > log.last:
                log.last, rows = grown, place.grown
            else:
                grown, rows = 0, place.rows
        elif code is _ENGINE:
            node = rows = self.node_of(id(_current_node()), self.no_node)
        else:
            rows, grown, node = self._elsewhere(above)  # type: ignore[arg-type]  # what has a code is a frame
        op = func._op if type(func) is _Overload else func
        began = perf_counter()
        try:
            result = op(*args, **kwargs) if kwargs else op(*args)
        except BaseException:
            self._failed(rows, func)
            raise
        seconds = perf_counter() - began
        row = rows.by_op.get(id(func)) or self._new_row(rows, func, result)
        row.calls += 1
        row.seconds += seconds
        nbytes = 0
        if row.kind:
            try:
                storage = result.untyped_storage() if row.kind == ONE_NEW and type(result) is _Tensor else None
                if storage is not None and _use_count(storage._cdata) == NEW:
                    nbytes = storage.nbytes()
                    row.nbytes += nbytes
                else:
                    nbytes = self._bytes(row, result, args, kwargs)
            except Exception:  # no storage of its own: sparse, nested, no tensor at all
                nbytes = self._bytes(row, result, args, kwargs)
        if grown:
            log.add(grown - 1, seconds, nbytes)
        elif node is not None:
            node.seconds += seconds
            node.nbytes += nbytes
        return result

    def _bytes(self, row: Row, result: Any, args: Any, kwargs: Any) -> int:
        """Return the bytes that a call allocated, looked for everywhere, and add them to its row. Never raises."""
        try:
            return row.add_several(result, args, kwargs or {})
        except Exception as error:
            self.gap = f"{row.name}: {type(error).__name__}: {error}"
            return 0

    def _failed(self, rows: Rows | NodeCost, func: Any) -> None:
        row = rows.by_op.get(id(func)) or rows.add(func)
        row.calls += 1
        row.failed += 1

    def _new_row(self, rows: Rows | NodeCost, func: Any, result: Any) -> Row:
        first = result[0] if isinstance(result, list | tuple) and result else result
        if isinstance(first, torch.Tensor):
            self.devices.add(first.device.type)
        return rows.add(func)

    def _find_place(self) -> Place:
        self.place = place = self._places.of(self._frame)
        return place

    def _elsewhere(self, above: FrameType) -> tuple[Rows | NodeCost, int, NodeCost | None]:
        """Return where to count a call that Python code made and nobody announced."""
        if _graph_task() != -1:
            node = self.node_of(id(_current_node()), self.no_node)
            site = self._places.own_site(above, _ENGINE)
            return node if site is None else self._places.rows(site, node.rows.module, "backward"), 0, node
        place = (self.place or self._find_place()) if self._frame is not None else self._places.of(above)
        if (grown := _sequence_number()) > self.log.last:
            self.log.last = grown
            return place.grown, grown, None
        return place.rows, 0, None

    # -- stepping off -----------------------------------------------------------------------------------------------

    def off(self, hook: Callable[..., Any], index: int, what: Any, *given: Any) -> Any:
        """Call one of the tracer's hooks so that what it does with torch is not recorded.

        Switching dispatch to Python off takes a third of the time that leaving the stack and coming back takes. But a
        subclass of tensors needs it: it is done where there is one plain gradient, and nothing else is looked at.
        """
        gradients = given[-1]
        if what is None and len(gradients) == 1 and type(gradients[0]) is torch.Tensor:
            guard = _no_python_dispatch()
            try:
                return hook(index, what, *given)
            finally:
                del guard
        place = self.leave()
        try:
            return hook(index, what, *given)
        finally:
            self.come_back(place)
