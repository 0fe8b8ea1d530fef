"""Level ``ops`` of a trace: what counts every ATen operation, and what it reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from threading import get_ident
from time import perf_counter
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from tensormagic.collectors import ops
from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.gradients.pass_log import Following, TraceContext, TracePart
from tensormagic.collectors.graphs.structure import Walk
from tensormagic.collectors.hooks.mode_suspension import ASKING_CALLS, OperationFollower, OperationListener
from tensormagic.collectors.hooks.replacing import BackwardCall, without_dynamo
from tensormagic.collectors.hooks.undo_stack import UndoStack
from tensormagic.collectors.ops import NEW, ONE, WHOLE, GraphCosts, NodeCost, Place, Places, Row
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Callers, Engine, sequence_number
from tensormagic.collectors.where.source import SourceLines
from tensormagic.reports import Gap, Graph
from tensormagic.reports.ops import OpsReport, OpUse
from tensormagic.words import error_text

# Times every ATen operation, and counts it where it was called from: about a microsecond beyond what any dispatch mode
# costs. The three ways into it are distinguished by the code that the frame above runs: a call of the user's, which the
# function mode has just announced; the autograd engine, which names the node it works for; and everything else, where
# the stack is walked.

_ENGINE, _Tensor = Engine.code, torch.Tensor
_current_node: Callable[[], Any] = torch._C._current_autograd_node
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_use_count: Callable[[int], int] = torch._C._storage_Use_Count

MOST_WAITING = 1 << 18  # node-making calls remembered, until their backward comes or comes again

_Call = Any  # a function: call(func, args, kwargs)


def _no_node(_id: int, default: NodeCost) -> NodeCost:
    return default


class OpCounts(OperationListener):
    """Counts every operation; changes none."""

    def __init__(self, places: Places) -> None:
        self.follower = OperationFollower([self], beneath=True)
        self._places = places
        self._frame: FrameType | None = None  # of the call of the user's that is under way
        self._code: CodeType | None = None
        self.place: Place | None = None  # of that call, once it was looked up
        # Seconds and bytes of the operations that made nodes, by sequence number, and the next number, when last seen.
        self.made: dict[int, tuple[float, int]] = {}
        self._last = 0
        self.no_node = NodeCost(places.at(None, "", "backward"))  # on behalf of no node that is known
        self.node_of: Callable[[int, NodeCost], NodeCost] = _no_node  # by ``id``, in the pass under way
        self.gap = ""  # why something could not be counted
        self.devices: set[str] = set()  # types of those that operations ran on

    def within(self, call: _Call, line: Any, frame: FrameType, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917
        """Make a call of the user's, from ``frame``, where ``line`` calls; what it dispatches is counted there."""
        try:
            asks = func in ASKING_CALLS and ASKING_CALLS[func](args, kwargs)
        except Exception:  # what a library calls by torch's protocol need not have a hash
            asks = False
        if asks:
            return self._whole(call, frame, func, args, kwargs)
        self.place = None
        if _graph_task() != -1:  # forward code that a backward runs, such as a checkpoint's
            return call(func, args, kwargs)
        self._frame, self._code = frame, line.__code__
        self._last = sequence_number()
        try:
            return call(func, args, kwargs)
        finally:
            if self._frame is not frame:
                self.place = None  # another call came in between: that is its place
            self._frame = self._code = None

    def _whole(self, call: _Call, frame: FrameType, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of the user's with this mode off, and count it as one."""
        self.place = place = self._places.of(frame)
        before, at = sequence_number(), self.follower.leave()
        began = perf_counter()
        try:
            result = call(func, args, kwargs)
        finally:
            seconds = perf_counter() - began
            self.follower.come_back(at)
        row = place.grown.add_whole(func.__name__, seconds)
        nbytes = self._bytes(row, result, args, kwargs)
        if (after := sequence_number()) > before:
            self._keep(after - 1, seconds, nbytes)
        return result

    def wants(self, op: Any) -> Any:
        """Return an operation, whichever it is."""
        return op

    def around(  # noqa: PLR0913, PLR0917  (all in one: each call inside would cost 60 ns an operation)
        self, call: _Call, func: Any, above: FrameType | None, op: Any, args: Any, kwargs: Any
    ) -> Any:
        """Make the call, and count it."""
        code = _ENGINE if above is None else above.f_code  # of a thread of the engine's, where no Python is above
        node, grown = None, 0
        if code is self._code:
            place = self.place or self._find_place()
            if (grown := sequence_number()) > self._last:
                self._last, place = grown, place.grown
            else:
                grown = 0
        elif code is _ENGINE or code is Engine.stand_in:
            node = self.node_of(id(_current_node()), self.no_node)
            place = node.place
        else:
            place, grown, node = self._elsewhere(above)  # type: ignore[arg-type]  # what has a code is a frame
        began = perf_counter()
        try:
            # Where another run's is nearer to the operation, it is in the call.
            result = op(*args) if type(call) is FunctionType and not kwargs else call(op, args, kwargs)
        except BaseException:
            row = place.by_op.get(id(func)) or place.add(func)
            row.calls += 1
            row.failed += 1
            raise
        seconds = perf_counter() - began
        row = place.by_op.get(id(func)) or self._new_row(place, func, result)
        row.calls += 1
        row.seconds += seconds
        nbytes = 0
        if row.kind:
            try:
                storage = result.untyped_storage() if row.kind == ONE and type(result) is _Tensor else None
                if storage is not None and _use_count(storage._cdata) == NEW:
                    nbytes = storage.nbytes()
                    row.nbytes += nbytes
                else:
                    nbytes = self._bytes(row, result, args, kwargs)
            except Exception:  # no storage of its own: sparse, nested, no tensor at all
                nbytes = self._bytes(row, result, args, kwargs)
        if grown:
            self._keep(grown - 1, seconds, nbytes)
        elif node is not None:
            node.seconds += seconds
            node.nbytes += nbytes
        return result

    def pass_over(self, number: int) -> None:
        """Know that the nodes below this number are not the run's."""
        self._last = number

    def _keep(self, number: int, seconds: float, nbytes: int) -> None:
        self.made[number] = seconds, nbytes
        if len(self.made) > MOST_WAITING:
            for old in list(self.made)[: MOST_WAITING // 2]:
                del self.made[old]

    def _bytes(self, row: Row, result: Any, args: Any, kwargs: Any) -> int:
        """Return the bytes that a call allocated, looked for everywhere, and add them to its row. Never raises."""
        try:
            return row.add_several(result, args, kwargs or {})
        except Exception as error:
            self.gap = f"{row.name}: {error_text(error)}"
            return 0

    def _new_row(self, place: Place, func: Any, result: Any) -> Row:
        first = result[0] if isinstance(result, list | tuple) and result else result
        if isinstance(first, torch.Tensor):
            self.devices.add(first.device.type)
        return place.add(func)

    def _find_place(self) -> Place:
        self.place = self._places.of(self._frame)
        return self.place

    def _elsewhere(self, above: FrameType) -> tuple[Place, int, NodeCost | None]:
        """Return where to count a call that Python code made and nobody announced."""
        if _graph_task() != -1:
            node = self.node_of(id(_current_node()), self.no_node)
            site = self._places.own_site(above, _ENGINE)
            return node.place if site is None else self._places.at(site, node.place.module, "backward"), 0, node
        place = (self.place or self._find_place()) if self._frame is not None else self._places.of(above)
        if (grown := sequence_number()) > self._last:
            self._last = grown
            return place.grown, grown, None
        return place, 0, None


# How long the dispatch mode takes for one operation: measured once, since timing it each time would cost as much.

_CALLS, _ROUNDS = 50, 8


@cache
def seconds_an_operation() -> float:
    """Return what an operation takes longer when it is counted: the least of a few rounds (1 to 2 ms, once)."""
    with quiet():
        frame, op, x = sys._getframe(), torch.ops.aten.neg.default._op, torch.zeros(1)
    line = Callers().standing_in_for(frame)

    def timed(make: Callable[..., Any]) -> float:
        began = perf_counter()
        for _ in range(_CALLS):
            make(line, line, frame, op, (x,), {})
        return (perf_counter() - began) / _CALLS

    with quiet():
        counts = OpCounts(Places(SourceLines(), lambda _: ""))
        with counts.follower:
            under = min(timed(counts.within) for _ in range(_ROUNDS))
        without = min(timed(lambda call, _, __, *given: call(*given)) for _ in range(_ROUNDS))
    return max(under - without, 0.0)


# Level ``ops`` of a trace: follows each pass with it, and reports what was counted. Where torch computes otherwise
# while a dispatch mode is on, the mode is off, and the call or node is counted as a whole.

_COMPILED = (
    "{} calls went into functions compiled by torch.compile: the operations that these call are counted, their "
    "generated kernels are not"
)
_WHOLE = "torch uses another code path while operations are recorded, so each of these was counted as a whole: {}"


class OpRecorder(TracePart):
    """Everything that level ``ops`` adds to a trace; the function mode announces the user's calls."""

    def __init__(self, trace: TraceContext) -> None:
        self._recorder: ForwardRecorder = trace.recorder
        self._places = Places(trace.sites, self._recorder.module_path)
        self._costs: dict[int, GraphCosts] = {}
        self._passes: list[tuple[dict[int, NodeCost], Any, list[Any]]] = []  # under way: costs, live nodes, hooks
        self._left: tuple[int, float] | None = None  # the mode's place and the time, while an asking node runs
        self._home = 0
        self._counts = self._recorder.ops = OpCounts(self._places)
        self.follower = self._counts.follower
        self._captures = trace.captures
        self._seconds_an_operation = seconds_an_operation()

    def enter(self, undoing: UndoStack) -> None:
        """Begin to count."""
        undoing.callback(self._end)
        undoing.enter_context(self.follower)
        self._home = get_ident()

    def begin_pass(self, found: Walk, followed: Following) -> None:
        """Follow a pass through a graph that is about to begin; another thread's is not."""
        if get_ident() != self._home:
            return
        graph = followed.graph
        if (costs := self._costs.get(graph.structure.number)) is None:
            costs = self._costs[graph.structure.number] = GraphCosts(graph.nodes, graph.structure, self._places)
        known = costs.begin(followed.site, self._counts.made, found)
        handles: list[Any] = []
        self._passes.append((known, found.nodes, handles))  # an id counts only while its node lives
        self._counts.node_of = known.get
        for place, name in costs.asking:
            node = found.nodes[place]
            handles.append(node.register_prehook(partial(without_dynamo, self._before_asking)))
            handles.append(node.register_hook(partial(without_dynamo, self._after_asking, costs.by_place[place], name)))

    def end_pass(self, found: Walk, _followed: Following, _call: BackwardCall, _error: BaseException | None) -> None:
        """Say that the pass is over, however it ended."""
        if get_ident() == self._home and self._passes and self._passes[-1][1] is found.nodes:
            self._end_pass()

    def _end_pass(self) -> None:
        if self._left is not None:
            self._return()
        handles = self._passes.pop()[2]
        for handle in handles:
            handle.remove()
        self._counts.node_of = self._passes[-1][0].get if self._passes else _no_node

    def _end(self) -> None:
        while self._passes and get_ident() == self._home:
            self._end_pass()

    def _before_asking(self, _gradients: Any) -> None:
        self._left = self.follower.leave(), perf_counter()

    def _after_asking(self, cost: NodeCost, name: str, _inputs: Any, _gradients: Any) -> None:
        if self._left is not None:
            seconds = self._return()
            cost.seconds += seconds
            cost.place.add_whole(name, seconds)

    def _return(self) -> float:
        assert self._left is not None
        (place, began), self._left = self._left, None
        self.follower.come_back(place)
        return perf_counter() - began

    def fields(self, _graphs: Sequence[Graph]) -> dict[str, Any]:
        """Return everything that was counted so far."""
        uses = [OpUse(
            op=row.name, phase=place.phase, location=place.site, module=place.module, calls=row.calls,
            seconds=row.seconds, nbytes=row.nbytes, mutated=tuple(name for _, name in row.written.slots),
            mutations=row.writes, failed=row.failed,
        ) for place, row in self._places.all_rows() if row.calls]  # fmt: skip
        uses.sort(key=lambda use: (-use.seconds, use.op))
        nodes = tuple(costs.report() for costs in list(self._costs.values()))
        found = OpsReport(tuple(uses), nodes, tuple(sorted(self._counts.devices)), self._captures.calls)
        return {"ops": found}

    @property
    def seconds(self) -> float:  # type: ignore[override]
        """About how long counting took so far."""
        return self._seconds_an_operation * sum(row.calls for _, row in self._places.all_rows())

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be seen, and why."""
        names = {row.name.removesuffix(WHOLE) for _, row in self._places.all_rows() if row.name.endswith(WHOLE)}
        reasons = (
            (self._counts.gap, f"the memory of an operation could not be counted: {self._counts.gap}"),
            (self._places.overflowed, f"more than {ops.MOST_PLACES} lines, modules and phases: the rest have no line"),
            (self._captures.calls, _COMPILED.format(self._captures.calls)),
            (names, _WHOLE.format(", ".join(sorted(names)))),
        )
        return tuple(Gap("operations", reason) for found, reason in reasons if found)
