"""From an exception that torch raised to a report of the call that it refused; nothing is run again."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.failures.failing_call import (
    Refused,
    Steps,
    function_of,
    is_backward,
    is_explicable,
    is_own,
    message_of,
    modules_in,
    of_arguments,
    refused_in,
    steps_of,
    tensors_in,
)
from tensormagic.collectors.failures.failing_source import executed_source, failing_at
from tensormagic.collectors.failures.operands import (
    MOST_OPERANDS,
    Argument,
    OperandNames,
    arguments_of,
    function_name,
    has_tensor,
    module_names,
    namespace_of,
    operand_of,
)
from tensormagic.collectors.faults.backward_errors import untraced_fault
from tensormagic.collectors.gradients.forward_values import PassValues
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.nodes import describe_nodes
from tensormagic.collectors.graphs.structure import Walker, is_accumulate, make_structure, start_nodes
from tensormagic.collectors.hooks.capturing import Captures, Return, kept_compiled
from tensormagic.collectors.hooks.modes import TransparentMode
from tensormagic.collectors.hooks.stepping_off import Listener
from tensormagic.collectors.hooks.undoing import Undoing
from tensormagic.collectors.memory.live_memory import memory_at, out_of_memory_of
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.objects.namespace import UNKNOWN
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import Callers, Origins, calling_frame
from tensormagic.collectors.where.source import CellNumber, SourceLines, location_in, location_of, names_of
from tensormagic.reports import Cell, Edge, FailureReport, Gap, Graph, Location, Node, Operand, OutOfMemory, Pass
from tensormagic.reports.failure import BackwardFault, Phase

# The graph so far: what autograd had recorded of the operands of a call when torch refused it.
#
# No backward will run through it. The refused call itself is added as a last node: that is where the run ended.

MOST_NODES = 1_500  # a larger graph is not looked at: a picture of it would be all folds


def graph_before(
    operands: Sequence[torch.Tensor], function: str, namespace: Mapping[str, Any], origins: Origins | None = None
) -> Graph | None:
    """Return the graph that led to the operands of a refused call, that call its last node.

    Args:
        operands: Tensors that the call was given.
        function: What the call is named.
        namespace: Where the names of leaves and modules are looked up.
        origins: Knows in which modules nodes were made, where that was recorded.

    Returns:
        None where autograd had recorded nothing of them, or too much to be drawn.
    """
    with quiet():
        starts = start_nodes([operand for operand in operands if operand.requires_grad])
        if all(map(is_accumulate, starts)) or _is_large(starts):
            return None
        known = origins or Origins()
        leaves = Leaves(namespace, ModuleNames(namespace))
        found = Walker(known, leaves).walk(starts)
        structure = make_structure(1, found)
        nodes = [
            dataclasses.replace(node, location=None)
            for node in describe_nodes(found, structure, leaves, known, namespace)
        ]
    last = len(nodes)
    name = function.rsplit(".", 1)[-1].strip("_") or "call"
    into = (Edge(last, root, at, 0) for at, root in enumerate(structure.roots))
    refused = Node(index=last, name=name, op=name, kind="custom")
    return Graph(number=1, nodes=(*nodes, refused), edges=(*structure.edges, *into), roots=(last,))


def _is_large(starts: Sequence[Any]) -> bool:
    """Return whether there are more nodes than can be drawn, without looking at many more."""
    return len(list(walk_nodes(starts, MOST_NODES + 1))) > MOST_NODES


# What the report is made of is in the exception's traceback: `failing_call` finds the call in it, `operands` shows
# what it was given, `operand_names` what the user calls that. The exception is read, never changed, and nothing of
# it is kept: what is returned is plain data.

_MOST_WAY = 12
# Said by an operator of Python's of operands of which none is a tensor: no function of torch's was called.
_PYTHONS = re.compile(r"can only concatenate (?:tuple|list)|unsupported operand type\(s\) for \S+: (?!.*'Tensor')")


@dataclass(slots=True)
class Surroundings:
    """What is known besides the exception itself."""

    # Where names of models are looked up, besides the functions that were running.
    namespace: Mapping[str, Any] = field(default_factory=dict)
    cell_number: CellNumber | None = None  # Gives a cell's execution count from its file name; None outside a notebook.
    mode_calls: frozenset[CodeType] = frozenset()  # The code of ``__torch_function__`` of the modes that were on.
    source: str = ""  # The source of the user's innermost frame, where Python cannot know it.
    # Gives the line that made a tensor, where that was recorded.
    origin: Callable[[Any], Location | None] | None = None
    origins: Origins | None = None  # Knows in which modules nodes were made, where that was recorded.


def failure_of(error: BaseException, around: Surroundings) -> FailureReport | None:
    """Return what is known of a call that torch refused; None where the exception is not one of torch's. Never raises.

    Args:
        error: With its traceback; read before this package's frames are taken out of it.
        around: What is known besides.
    """
    if not is_explicable(error):
        return None
    try:
        steps = steps_of(error, around.mode_calls)
        refused = refused_in(steps, around.source)
        ran_out = out_of_memory_of(error)
        if ran_out is not None:
            return _without_memory(error, steps, (refused, ran_out), around)
        return None if refused is None else _report(error, steps, refused, around)
    except Exception as problem:
        gap = Gap("call", f"the failing call could not be read: {type(problem).__name__}: {problem}")
        return FailureReport(error_type=type(error).__name__, error=message_of(error), exact=False, gaps=(gap,))


def _report(error: BaseException, steps: Steps, refused: Refused, around: Surroundings) -> FailureReport:
    refused, inside = _as_called(steps, refused)
    modules = module_names(steps, around.namespace)
    way = _way(steps, around)
    running = modules_in(steps)
    own = failing_at(steps.own_entry, around.source) if steps.own_entry is not None else None
    operands, gaps = _operands(steps, refused, modules, around)
    phase: Phase = "backward" if is_backward(steps) else "forward"
    function = "" if _PYTHONS.search(steps.message) and not has_tensor(refused.given) else name_of(refused)
    return FailureReport(
        error_type=type(error).__name__,
        error=message_of(error),
        function=function,
        phase=phase,
        location=way[-1] if way else None,
        way=way,
        module=modules.path(running[-1]) or f"({type(running[-1]).__name__})" if running else "",
        operands=operands,
        exact=refused.exact,
        gaps=gaps,
        call=own.text if own is not None else "",
        inside=inside,
        graph=_graph(steps, refused, function, around) if phase == "forward" else None,
        backward=_backward_fault(error, steps, refused, around),
    )


def _without_memory(
    error: BaseException, steps: Steps, found: tuple[Refused | None, OutOfMemory], around: Surroundings
) -> FailureReport:
    """Return what is known of a call for which there was no memory: not what it was given, but what took the memory."""
    refused, described = found
    way = _way(steps, around)
    function = name_of(_as_called(steps, refused)[0]) if refused is not None else ""
    described = replace(described, op=function, location=way[-1] if way else None)
    described, memory = memory_at(error, described, around.namespace, around.cell_number)
    return FailureReport(
        error_type=type(error).__name__,
        error=message_of(error),
        function=function,
        phase="backward" if is_backward(steps) else "forward",
        location=described.location,
        way=way,
        out_of_memory=described,
        memory=memory,
    )


def _graph(steps: Steps, refused: Refused, function: str, around: Surroundings) -> Graph | None:
    """Return what had been recorded of the operands; None where that cannot be read."""
    given = tensors_in((*refused.given, *refused.keywords.values()))
    try:
        return graph_before(given, function, namespace_of(steps, around.namespace), around.origins)
    except Exception:  # a picture that cannot be made is left out
        return None


def _backward_fault(error: BaseException, steps: Steps, refused: Refused, around: Surroundings) -> BackwardFault | None:
    """Return why a backward raised, from its graph; None where it was none, or did for another reason."""
    if steps.own_entry is None or not is_backward(steps):
        return None
    frame, number = steps.own_entry.tb_frame, around.cell_number
    roots = tensors_in((*refused.given, *refused.keywords.values()))
    spaces = (names_of(frame), frame.f_globals, around.namespace)
    return untraced_fault(error, roots, spaces, partial(location_of, cell_number=number))


def _as_called(steps: Steps, refused: Refused) -> tuple[Refused, str]:
    """Return the call as the user made it, and, where torch made it inside another, the name of that.

    A call inside ``F.cross_entropy`` that was given what that was given is that call.
    """
    made = [id(tensor) for tensor in tensors_in((*refused.given, *refused.keywords.values()))]
    outermost = ""
    for entry in refused.around:
        outer = function_of(entry.tb_frame)
        if outer is None:  # one of torch's innards, which nobody calls by name
            continue
        called = of_arguments(steps, entry, outer)
        known = {id(tensor) for tensor in tensors_in((*called.given, *called.keywords.values()))}
        if known.issuperset(made) or _stem(name_of(refused)) == _stem(function_name(outer)):
            called.exact = refused.exact
            return called, outermost
        outermost = outermost or function_name(outer)
    return refused, outermost


def name_of(refused: Refused) -> str:
    """Return the name of a refused call's function."""
    return refused.name or function_name(refused.func)


def _stem(name: str) -> str:
    """Return a function's name without the number of its dimensions: ``max_pool1d`` is made by ``max_pool2d``."""
    return name.rsplit(".", 1)[-1].rstrip("0123456789d")


def _way(steps: Steps, around: Surroundings) -> tuple[Location, ...]:
    own = [entry for entry in steps.entries if is_own(entry.tb_frame)]
    kept = own if len(own) <= _MOST_WAY else [*own[:2], *own[-_MOST_WAY + 2 :]]
    way = [_line_of(entry, around.cell_number) for entry in kept]
    caller = _running(steps.entries[0].tb_frame.f_back) if around.source and way else None
    if caller is not None:  # an expression that a line hands over stands in that line
        line = location_in(caller, caller.f_lineno, around.cell_number)
        way[-1] = replace(line, text=" ".join(around.source.split()))
    return tuple(way)


def _line_of(entry: TracebackType, cell_number: CellNumber | None) -> Location:
    """Return the line at which a frame stands, also of code that was executed from a string."""
    place = location_in(entry.tb_frame, entry.tb_lineno, cell_number)
    if place.text or not place.filename.startswith("<"):
        return place
    lines = executed_source(entry.tb_frame).splitlines()
    return replace(place, text=lines[place.line - 1].strip()) if 0 < place.line <= len(lines) else place


def _running(frame: FrameType | None) -> FrameType | None:
    """Return the user's frame at or above another, that is still running."""
    while frame is not None and not is_own(frame):
        frame = frame.f_back
    return frame


def _operands(
    steps: Steps, refused: Refused, modules: ModuleNames, around: Surroundings
) -> tuple[tuple[Operand, ...], tuple[Gap, ...]]:
    arguments = arguments_of(refused.func, refused.given, refused.keywords)
    names = OperandNames(steps, refused, modules)
    made_at = around.origin or _nowhere
    found = tuple(operand_of(each, names.of(each), made_at) for each in arguments[:MOST_OPERANDS])
    return found, tuple(_gaps(arguments, found))


def _nowhere(_tensor: Any) -> Location | None:
    return None


def _gaps(arguments: list[Argument], operands: tuple[Operand, ...]) -> list[Gap]:
    unknown = [described.name for each, described in zip(arguments, operands, strict=False) if each.value is UNKNOWN]
    gaps = []
    if unknown:
        described = ", ".join(name or "one without a name" for name in unknown)
        gaps.append(Gap("operands", f"not kept by Python after the error: {described}"))
    if len(arguments) > len(operands):
        gaps.append(Gap("operands", f"{len(arguments) - len(operands)} more arguments"))
    return gaps


# The call that ended a traced run: what is in the exception, and what only the tracer knows of it.

Last = tuple[Pass, TracedGraph, PassValues]


class TracedFailure:
    """What is known of the call that torch refused, where one ended the run.

    Args:
        recorder: The mode that was on, which knows where nodes were made.
        sites: The lines met so far.
        namespace: Where names are looked up.
    """

    def __init__(self, recorder: ForwardRecorder, sites: SourceLines, namespace: Mapping[str, Any]) -> None:
        self._origins, self._sites = recorder.origins, sites
        self._around = Surroundings(
            namespace, sites.cell_number, frozenset({ForwardRecorder.__torch_function__.__code__}),
            origin=self._origin, origins=recorder.origins,
        )  # fmt: skip
        self._found: FailureReport | None = None
        self._node: tuple[int, int] | None = None

    def note(self, error: BaseException, last: Last | None) -> None:
        """Read the exception that ended the run.

        Args:
            error: As it came, with the tracer's frames.
            last: The last pass, its graph and its numbers.
        """
        self._found = failure_of(error, self._around)
        if self._found is not None and self._found.phase == "backward" and last is not None:
            done, graph, values = last
            if done.outcome == "failed" and values.order:
                self._node = (graph.structure.number, values.order[-1])

    def report(self, graphs: tuple[Graph, ...]) -> FailureReport | None:
        """Return what is known, or None.

        Args:
            graphs: Those of the trace, in its order: the node that was running is in one of them.
        """
        if self._found is None or self._node is None:
            return self._found
        number, node = self._node
        places = [at for at, graph in enumerate(graphs) if graph.number == number]
        return dataclasses.replace(self._found, node=(places[0], node)) if places else self._found

    def _origin(self, tensor: torch.Tensor) -> Location | None:
        """Return the line that made a tensor."""
        maker = tensor.grad_fn
        if maker is None:
            return None
        number, _ = self._origins.of(maker._sequence_nr())
        site = self._origins.origins[number][0] if number >= 0 else None
        return None if site is None else self._sites.locations[site]


# A function mode that only passes calls on, so that the one that fails can be read from the exception's traceback.
#
# It keeps nothing and looks at nothing: a call costs what an empty mode costs. Its frame in the traceback of an
# exception still holds the function and the arguments; `failing_call` reads them there.


class PassthroughMode(TransparentMode):
    """Makes every call as its own line would."""

    def __init__(self) -> None:
        super().__init__()
        self._callers = Callers()

    def __torch_function__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make the call."""
        return self._callers.standing_in_for(calling_frame(sys._getframe(1)))(func, args, kwargs)

    def leave_alone(self) -> Return | None:
        """Leave while torch writes down what runs: see `Captures`."""
        return self.step_back if self.step_aside() else None


MODE_CALLS: frozenset[CodeType] = frozenset(
    mode.__torch_function__.__code__ for mode in (PassthroughMode, ForwardRecorder)
)  # fmt: skip


class FailureListener(Listener):
    """Reads the exception that ends a run.

    Args:
        namespace: Where names are looked up, besides the functions that were running.

    Attributes:
        found: What is known of the call that torch refused; None where there was none.
    """

    used_before = "this was used before; make a new one with tensormagic.explain()"

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        super().__init__(namespace, Cell("", None, ()))
        self._around = Surroundings(namespace, None, MODE_CALLS)
        self.found: FailureReport | None = None

    def enter(self, undoing: Undoing) -> None:
        """Put the function mode into torch."""
        mode = PassthroughMode()
        undoing.enter_context(mode)
        undoing.enter_context(kept_compiled(mode))
        undoing.enter_context(Captures(mode.leave_alone))

    def explain(self, error: BaseException) -> None:
        """Find the call in the exception's traceback."""
        self.found = failure_of(error, self._around)

    def report(self) -> FailureReport | None:
        """Return what is known of the call that torch refused; None where there was none."""
        return self.found
