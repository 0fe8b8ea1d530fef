"""Level ``ops`` of a trace: puts the dispatch mode on, follows each pass with it, and reports what was counted.

Torch asks, in a few places of its own code, whether a dispatch mode is on, and computes otherwise then: the same up to
rounding, or with another check. There the mode is off, and the call or node is counted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.graphs.skeleton import Skeleton, Walk
from tensormagic.collectors.hooks.dynamo import skip_in_dynamo, without_dynamo
from tensormagic.collectors.ops.op_asking import asking_places
from tensormagic.collectors.ops.op_costs import GraphCosts, NodeCost
from tensormagic.collectors.ops.op_facts import WHOLE, Row
from tensormagic.collectors.ops.op_places import MOST_PLACES, Places, Rows
from tensormagic.collectors.runs.op_calibration import seconds_an_operation
from tensormagic.collectors.runs.op_mode import OpMode
from tensormagic.collectors.where.source import Sites
from tensormagic.reports import Gap, Node
from tensormagic.reports.ops import OpsReport, OpUse

_COMPILED = (
    "{} calls went into functions that torch.compile made: the operations that these call are counted, the kernels "
    "that were generated for them are not"
)
_WHOLE = "torch computes otherwise while operations are recorded, so each of these was counted as a whole: {}"


class OpRecorder:
    """Everything that level ``ops`` adds to a trace.

    Args:
        sites: Interns the person's lines.
        recorder: The function mode of the trace: announces the person's calls.

    Attributes:
        mode: The dispatch mode.
        compiled_calls: How many calls went into functions that ``torch.compile`` made.
    """

    def __init__(self, sites: Sites, recorder: ForwardRecorder) -> None:
        self._recorder = recorder
        self._places = Places(sites, recorder.module_path)
        self._costs: dict[int, GraphCosts] = {}
        self._passes: list[tuple[dict[int, NodeCost], Any, list[Any]]] = []  # under way: costs, live nodes, hooks
        self._left: tuple[int, float] | None = None  # the mode's place and the time, while an asking node runs
        self._home = 0
        self.mode = recorder.ops = OpMode(self._places)
        self._no_node = self.mode.node_of
        self.compiled_calls = 0
        self._seconds_an_operation = seconds_an_operation()

    # -- life -----------------------------------------------------------------------------------------------------

    def enter(self, stack: ExitStack) -> None:
        """Put the mode on; ``stack`` takes it off again."""
        stack.callback(self._end)
        stack.enter_context(self.mode)
        self._home = get_ident()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep the tracer's own operations from being counted."""
        place = self.mode.leave()
        try:
            yield
        finally:
            self.mode.come_back(place)

    # -- compiled functions: the function mode steps aside at their door, see `kept_compiled`; this one stays -------

    def step_aside(self) -> bool:
        """Let the function mode step aside, and keep Dynamo from compiling the dispatch mode."""
        if not self.compiled_calls:
            skip_in_dynamo(OpMode.__torch_dispatch__, inside=True)
        self.compiled_calls += 1
        return self._recorder.step_aside()

    def step_back(self, caller: FrameType | None) -> None:
        """Let it come back."""
        self._recorder.step_back(caller)

    # -- passes -----------------------------------------------------------------------------------------------------

    def begin_pass(self, found: Walk, skeleton: Skeleton, nodes: tuple[Node, ...], site: int | None) -> None:
        """Follow a pass through a graph that is about to begin, from the line ``site``; another thread's is not."""
        if get_ident() != self._home:
            return
        costs = self._costs.get(skeleton.number)
        if costs is None:
            costs = self._costs[skeleton.number] = GraphCosts(nodes, skeleton, self._places)
        known = costs.begin(site, self.mode.log, found)
        handles: list[Any] = []
        self._passes.append((known, found.nodes, handles))  # an id counts only while its node lives
        self.mode.node_of = known.get
        for place in asking_places(costs, skeleton):
            node, name = found.nodes[place], nodes[skeleton.index[place]].name
            handles.append(node.register_prehook(partial(without_dynamo, self._before_asking)))
            handles.append(node.register_hook(partial(without_dynamo, self._after_asking, costs.by_place[place], name)))

    def end_pass(self, nodes: Any) -> None:
        """Say that the pass through the live ``nodes`` is over, however it ended."""
        if get_ident() != self._home or not self._passes or self._passes[-1][1] is not nodes:
            return
        if self._left is not None:
            self._return()
        handles = self._passes.pop()[2]
        while handles:
            handles.pop().remove()
        self.mode.node_of = self._passes[-1][0].get if self._passes else self._no_node
        self.mode.log.settle()

    def _end(self) -> None:
        while self._passes:
            self.end_pass(self._passes[-1][1])

    def _before_asking(self, _gradients: Any) -> None:
        self._left = self.mode.leave(), perf_counter()

    def _after_asking(self, cost: NodeCost, name: str, _inputs: Any, _gradients: Any) -> None:
        if self._left is not None:
            seconds = self._return()
            cost.seconds += seconds
            cost.rows.add_whole(name, seconds)

    def _return(self) -> float:
        assert self._left is not None
        (place, began), self._left = self._left, None
        self.mode.come_back(place)
        return perf_counter() - began

    # -- what is known so far -----------------------------------------------------------------------------------------

    def report(self) -> OpsReport:
        """Return everything that was counted so far; callable from any thread."""
        uses = [_use(rows, row) for rows, row in self._places.all_rows() if row.calls]
        return OpsReport(
            uses=tuple(sorted(uses, key=lambda use: (-use.seconds, use.op))),
            nodes=tuple(costs.report() for costs in list(self._costs.values())),
            devices=tuple(sorted(self.mode.devices)),
            compiled_calls=self.compiled_calls,
        )

    @property
    def seconds(self) -> float:
        """About how long counting took so far."""
        return self._seconds_an_operation * sum(row.calls for _, row in self._places.all_rows())

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be seen, and why."""
        reasons = (
            (self.mode.gap, f"the memory of an operation could not be counted: {self.mode.gap}"),
            (self._places.overflowed, f"more than {MOST_PLACES} lines, modules and phases: the rest has no line"),
            (self.compiled_calls, _COMPILED.format(self.compiled_calls)),
            (self._whole_calls(), _WHOLE.format(", ".join(self._whole_calls()))),
        )
        return tuple(Gap("operations", reason) for found, reason in reasons if found)

    def _whole_calls(self) -> list[str]:
        names = {row.name.removesuffix(WHOLE) for _, row in self._places.all_rows() if row.name.endswith(WHOLE)}
        return sorted(names)


def _use(rows: Rows, row: Row) -> OpUse:
    return OpUse(
        op=row.name, phase=rows.phase, location=rows.site, module=rows.module, calls=row.calls, seconds=row.seconds,
        nbytes=row.nbytes, mutated=tuple(name for _, name in row.written.slots), mutations=row.writes,
        failed=row.failed,
    )  # fmt: skip
