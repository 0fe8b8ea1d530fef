"""Follows the forward: modules, calls of interest, values; ends the run at a NaN where that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from tensormagic.collectors.autograd_errors.untracked_writes import GETS_GRAD, SETS_DATA, AutogradWatch
from tensormagic.collectors.calls.call_notes import Call
from tensormagic.collectors.calls.call_watch import WATCHED, CallWatch
from tensormagic.collectors.detachment.detached_values import DetachedValues
from tensormagic.collectors.gradients.gradient_statistics import SmallResults
from tensormagic.collectors.graphs.live_nodes import flat
from tensormagic.collectors.hooks.mode_suspension import STANDING_IN
from tensormagic.collectors.hooks.modes import CallFollower
from tensormagic.collectors.hooks.replacing import Replacements, noted_applies, skip_in_dynamo
from tensormagic.collectors.objects.identity import ModuleNames, RunningModules
from tensormagic.collectors.quiet import dispatches_to_python, local_shard, without_modes
from tensormagic.collectors.where.caller import Origins, sequence_number, uncounted
from tensormagic.collectors.where.source import SourceLines
from tensormagic.errors import NonFiniteError
from tensormagic.reports import Gap
from tensormagic.reports.graph import Graph
from tensormagic.words import count

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.gradient_statistics import PassValues


# Ends a run where a NaN or Inf is made, for the user who asks for it: ``--stop nan``. A call that was given a NaN or
# Inf, or an infinite number such as the ``-inf`` of a mask, makes none.

_UNWRITTEN = ("empty", "new_empty", "resize")  # what these return was not made by anybody
_WRITES = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")


def look_at_call(func: Any, given: tuple[tuple[Any, ...], Mapping[str, Any]], result: Any) -> None:
    """Raise a `NonFiniteError`, which names the call, where it made a NaN or Inf of what was finite."""
    name = getattr(func, "__name__", "")
    if name.startswith(_UNWRITTEN) or torch._C._current_autograd_node() is not None:
        return
    arguments = (*given[0], *given[1].values())
    found = _first_bad(flat(arguments[:1] if result is None else (result,)))
    if found is None or not any(isinstance(value, torch.Tensor) for value in flat(arguments)):
        return
    writes = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
    before = list(flat(arguments[1:] if writes else arguments))
    if all(math.isfinite(value) for value in before if isinstance(value, float)) and _first_bad(before) is None:
        nan, inf, elements = found
        raise NonFiniteError(f"{name.strip('_')} made {_words(nan, inf)} of {count(elements)} elements here; {_LOOK}")


def look_at_pass(graph: Graph, values: PassValues, lines: Mapping[int, str]) -> None:
    """Raise a `NonFiniteError`, which names node and line, where a backward made a NaN or Inf, once it has ended."""
    if values.first_nonfinite:
        first = values.first_nonfinite[0]
        node, nan, inf = graph.nodes[first.node], first.nan, first.inf
    else:
        node, (nan, inf) = graph.nodes[values.order[0]], values.bad[next(iter(values.bad))]
    line = lines.get(node.location) if node.location is not None else None
    place = f" ({line})" if line else ""
    raise NonFiniteError(f"this backward made {_words(nan, inf)} in {node.op}{place}; {_LOOK}")


_LOOK = "%debug in the next cell shows the tensors at this line"


def _words(nan: int, inf: int) -> str:
    return " and ".join(f"{count(number)} {name}" for number, name in ((nan, "NaN"), (inf, "Inf")) if number) or "Inf"


def _first_bad(values: Iterable[Any]) -> tuple[int, int, int] | None:
    """Return NaN, infinities and elements of the first tensor that is not finite."""
    with torch._C.DisableTorchFunction(), without_modes():
        for value in values:
            if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
                continue
            local = local_shard(value)
            if local.is_meta or dispatches_to_python(local) or not local.numel():
                continue
            plain = local.detach()
            if not bool(plain.isfinite().all()):
                return int(plain.isnan().sum()), int(plain.isinf().sum()), plain.numel()
    return None


# Records which line and which module made each autograd node, without looking at a single node.
#
# Autograd numbers the nodes that a thread makes, one after the other (``Node._sequence_nr()``). So it is enough to
# read that counter before and after each torch call of the user's: every node with a number in between was made by
# that call, whatever it is made of inside. The mode costs about 0.3 µs a call and a frame walk more where a node was
# made; it sees the calls the user wrote, not the engine's.

_is_grad_enabled = torch.is_grad_enabled
_watched = WATCHED.get


class ForwardRecorder(CallFollower):
    """Follows the forward of a traced run."""

    def __init__(self, sites: SourceLines, modules: ModuleNames) -> None:
        self._sites = sites
        self._running = RunningModules(modules)
        self.module_path = self._running.path_in  # of the innermost module that runs in a frame
        self.ops: Any = None  # at level ops: makes each call (``within``), knows whence the last one comes (``place``)
        self.origins = Origins()
        self.detached = DetachedValues(sites, self.module_path)
        self.calls = CallWatch(sites, self.module_path, self.origins.site_of)
        self._grown, self._unwritten = self.calls.wide, self.calls.fresh
        self.autograd = AutogradWatch(sites)
        self._arrays = self.autograd.arrays.marks
        # Called with each call that makes a node, the first where forward values were asked for.
        self.meter: Callable[[tuple[int, int], tuple[tuple[Any, ...], Any], Any], None] | None = None
        self.first_node: Callable[[FrameType], None] | None = None
        self.evaluated: Callable[[int, int, FrameType], None] | None = None  # told of nodes of modules in eval mode
        self.small = SmallResults()
        self.stops = False  # whether the run ends where a call makes a NaN or Inf
        self.seconds = 0.0
        self._aside_since = 0
        self._before_step = -1
        self._ranges = Replacements()
        self._applies = noted_applies(self.note_apply)

    def __enter__(self) -> None:
        self._applies.__enter__()
        self._ranges.put(torch.autograd.profiler.record_function, "__exit__", self._range_ending)
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.silence()  # also where it has not joined yet

    def silence(self) -> None:
        """Be told of nothing any more; what was replaced for every thread is put back from any of them."""
        super().silence()
        self._ranges.remove_all()
        self._applies.__exit__()

    def around(  # noqa: C901, PLR0912, PLR0913, PLR0917  (one branch a listener: a method each would cost every call)
        self, call: Any, line: Any, frame: FrameType, above: FrameType, func: Any, args: Any, kwargs: Any
    ) -> Any:
        """Make the call and note which nodes it made."""
        role = before = None
        try:
            watched = _watched(func)
            if watched is None and STANDING_IN:
                watched = _watched(STANDING_IN.get(func))
        except Exception:  # an object of a library's own, called by torch's protocol: it need not have a hash
            watched = None
        if self._unwritten:
            self.calls.before(func, args)
        if watched is not None:
            if (role := watched.role) is not None:
                before = self.detached.before(func, role, args, above)
            if watched.noted == SETS_DATA:
                self.autograd.before_setting(args)
        start = sequence_number()
        ops = self.ops
        result = call(func, args, kwargs) if ops is None else ops.within(call, line, frame, func, args, kwargs)
        stop = sequence_number()
        if stop != start:
            self._note(start, stop, above, None if ops is None else ops.place)
            if self._arrays:
                self.autograd.arrays.used((start, stop), args)
            self.small.note(result)
            if self.meter is not None:
                self.meter((start, stop), (args, kwargs), result)
            if self.detached.live:
                self.detached.used((start, stop), (args, kwargs), result)
            if role == "non-differentiable":  # argsort sorts, and drops the values with their node
                self.detached.passed((func, role, before), (args, kwargs), result, above)
        elif role is not None or self.detached.live or not _is_grad_enabled():
            self.detached.passed((func, role, before), (args, kwargs), result, above)
        if watched is not None and not self.autograd.stepping:
            if watched.looks and (place := self.calls.place(line, frame)) is not None:
                looks = watched.looks if place.sparing else watched.anywhere
                if looks:
                    self.calls.look(looks, Call(func, args, kwargs, result, frame), place)
            if watched.noted and (result is None or watched.noted != GETS_GRAD):  # a gradient that is there is no news
                self.autograd.see(watched.noted, (func, args, kwargs), result, start, frame)
        if kwargs and (watched is None or not watched.noted) and kwargs.get("out") is not None:
            self.autograd.see_out((func, args, kwargs), start, frame)
        if self._grown or self._unwritten:
            self.calls.follow(Call(func, args, kwargs, result, frame))
        if self.stops:
            look_at_call(func, (args, kwargs), result)
        return result

    @property
    def own_seconds(self) -> float:
        """How long this mode, and what it calls, took in all."""
        return self.seconds + self.detached.seconds + self.calls.seconds + self.autograd.own_seconds

    def gaps(self) -> tuple[Gap, ...]:
        """Return what this mode and its listeners could not see, or have forgotten."""
        reason = f"{self.origins.lost} nodes were made so long before their backward that their lines were discarded"
        lost = (Gap("source", reason),) if self.origins.lost else ()
        return (*lost, *self.calls.gaps(), *self.autograd.gaps())

    def note_apply(self, caller: FrameType, number: int) -> None:
        """Note that ``caller`` calls a custom Function, whose node has that number.

        Inside a call that this mode sees itself, the mode is not on the stack: then the whole call is noted.
        """
        if self.is_on():
            self._note(number, number + 1, caller)

    def step_aside(self) -> bool:
        """Leave the stack until `step_back`, where this mode is on it; the run is then as if untraced."""
        since = sequence_number()
        left = super().step_aside()
        if left:
            self._ranges.step_aside()  # TorchScript would compile it
            self._aside_since = since
        return left

    def step_back(self, caller: FrameType | None) -> None:
        """Come back, and note what was made meanwhile: by a call of ``caller``'s."""
        super().step_back(caller)
        self._ranges.step_back()
        self.note_backward(self._aside_since, caller)

    def leave_step(self) -> None:
        """Leave while a step of an optimizer runs, of whose calls nothing is noted."""
        if self.ops is None and not (self.stops or self._grown or self._unwritten):
            self._before_step = self.leave()

    def return_from_step(self) -> None:
        """Come back, where this has left."""
        if (place := self._before_step) >= 0:
            self._before_step = -1
            self.come_back(place)

    def _range_ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what ends a range of the profiler's, as each step is one: also a step that failed ends here."""
        home = get_ident()

        @uncounted
        def range_ends(*args: Any) -> Any:
            if get_ident() == home:
                self.return_from_step()
            return original(*args)

        skip_in_dynamo(range_ends)
        return range_ends

    def put_on_top(self) -> Callable[[], object]:
        """Go on top of this thread's stack for a while, as the engine runs without; returns what undoes it."""
        if self.is_on():
            return lambda: None
        self.come_back(torch._C._len_torch_function_stack())
        return self.leave

    def out_of_engine(self) -> Callable[[], None] | None:
        """Leave this thread's stack while the engine runs; returns what undoes it, None where it was not there."""
        place = self.leave()

        return None if place < 0 else lambda: self.come_back(place)

    def note_backward(self, start: int, caller: FrameType | None) -> None:
        """Note what a call of ``caller``'s made unseen, as a backward with ``create_graph=True`` makes nodes."""
        if (stop := sequence_number()) != start and caller is not None:
            self._note(start, stop, caller)

    def _note(self, start: int, stop: int, frame: FrameType, place: Any = None) -> None:
        began = perf_counter()
        try:
            path = self.module_path(frame)
        except Exception:  # a module may answer by code of its own what lies in it
            path = ""
        origin = (self._sites.of_frame(frame), path) if place is None else (place.site, place.module)
        if self._running.evaluates and self.evaluated is not None:
            self.evaluated(start, stop, frame)
        if self.first_node is not None:
            self.first_node(frame)
        self.origins.add(start, stop, origin)
        self.seconds += perf_counter() - began
