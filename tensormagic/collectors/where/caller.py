"""Frames of ours and torch's: in whose name a call is made, where a tensor was made, and where in a pipeline."""

from __future__ import annotations

import ast
import inspect
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from threading import Lock
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

import numpy as np
import torch

from tensormagic.collectors.where.source import (
    MARK,
    foreign_frames,
    function_of_code,
    is_ours,
    is_own_code,
    lines_of,
    names_of,
    outwards,
    part_at,
    position_of,
    running_line,
    statements_around,
    tree_of,
)
from tensormagic.errors import NonFiniteError
from tensormagic.reports import State

__all__ = ["MARK", "Gathered", "own_frame"]


# Python and torch attribute a warning to the frame that made the call, and show it once for each such place. While a
# function mode is on, that frame would be the mode's. So the call is made from a frame that bears the file name, the
# line and the globals of the one that called: a warning then reads, and is repeated or not, as if nobody had looked.

HANDS_OVER = "handle_torch_function"  # torch's own frame between a Python function of its and the mode
DECORATING = torch.no_grad()(lambda: None).__code__.co_filename  # of what runs around a function under ``@no_grad()``
_Call = Callable[[Any, Any, Any], Any]


# All on its first line, which a copy moves.
_CODE = (lambda func, args, kwargs: func(*args, **kwargs) if kwargs else func(*args)).__code__


_UNCOUNTED = "<tensormagic importlib._bootstrap>"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncounted(function: _Function) -> _Function:
    """Let the frames of a function not count where a warning says how far up the line is that it is about.

    Python leaves out its own frames of importing there, which it knows by the words in their file name: those of this
    function get them too. Tracebacks and the search for the user's line leave them out by their name.
    """
    function.__code__ = function.__code__.replace(co_filename=_UNCOUNTED, co_name=MARK)
    return function


# Below a dispatch mode each operation returns a tensor that Python knows, as a plain one. Torch's constructor makes its
# tensor by one and cannot give it another class then: ``MyTensor(x)`` fails under any mode ("already associated to a
# python object of type Tensor", torch 2.10 to 2.15). So the class has to be known while that operation runs.


def constructed_by(frame: FrameType | None) -> type[torch.Tensor] | None:
    """Return the class of which a frame constructs a tensor, by torch's own constructor; None where it does not."""
    if frame is None or frame.f_code.co_name == MARK:  # a function was called
        return None
    place = frame.f_code, frame.f_lasti
    if place not in _CLASSES:
        if len(_CLASSES) >= _MOST_CLASSES:
            _CLASSES.clear()
        _CLASSES[place] = _classes_named(frame)
    names = ChainMap(dict(names_of(frame)), frame.f_globals) if _CLASSES[place] else {}
    referred = (_referred(node, names) for node in _CLASSES[place])
    kinds = {kind for kind in referred if isinstance(kind, type) and issubclass(kind, torch.Tensor)}
    return kinds.pop() if len(kinds) == 1 and torch.Tensor not in kinds else None


_CLASSES: dict[tuple[CodeType, int], tuple[ast.expr, ...]] = {}  # what may name the class, by the call
_MOST_CLASSES = 1024


def _classes_named(frame: FrameType) -> tuple[ast.expr, ...]:
    """Return what the source has for the class, where a frame makes a call that may construct a tensor.

    Until Python 3.11, code does not say where in a line it is: all calls of the line count.
    """
    lines, number = lines_of(frame.f_code.co_filename, frame.f_globals), running_line(frame)
    if sys.version_info >= (3, 11):
        found = part_at(position_of(frame.f_code, frame.f_lasti), lines)
        calls = [] if found is None else [found[0]]
    else:
        around = (node for each in statements_around(tree_of(frame), number)[-1:] for node in ast.walk(each))
        calls = [node for node in around if getattr(node, "lineno", 0) == number]
    named = []
    for call in calls:
        match call:
            case ast.Call(ast.Attribute(attr="__new__"), [kind, *_]) | ast.Call(kind):
                named.append(kind)
    return tuple(named)


def _referred(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a name, ``type(x)`` or an attribute refers to, without running anything."""
    match node:
        case ast.Name():
            return names.get(node.id)
        case ast.Attribute(value, "__class__") | ast.Call(ast.Name("type"), [value], []):
            return type(_referred(value, names))
        case ast.Attribute(value, attribute):
            return inspect.getattr_static(_referred(value, names), attribute, None)
        case ast.Subscript(value, ast.Constant(key)) if type(held := _referred(value, names)) is dict:
            return held.get(key)
    return None


def calling_frame(frame: FrameType) -> FrameType:
    """Return the frame that called torch, given the one above the mode: past torch's own hand-over, and other modes."""
    frame = foreign_caller(frame)
    while frame.f_code.co_name == HANDS_OVER and frame.f_back is not None and frame.f_back.f_back is not None:
        frame = foreign_caller(frame.f_back.f_back)
    return frame


def foreign_caller(frame: FrameType) -> FrameType:
    """Return the innermost frame at or above ``frame`` that is none of this package's: several runs may be on."""
    while frame.f_back is not None and is_ours(frame.f_code):
        frame = frame.f_back
    return frame


def _is_debugged() -> bool:
    """Return whether a debugger follows lines: it would stop at a breakpoint once more for each call of that line."""
    tracing, monitoring = sys.gettrace(), getattr(sys, "monitoring", None)  # the latter since Python 3.12
    if tracing is not None:
        return not type(tracing).__module__.startswith("coverage")
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


class Callers:
    """The stand-ins made so far, by the ``id`` of a code and an instruction: a line takes ten times as long to know."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, int], _Call] = {}
        self._codes: dict[int, CodeType] = {}  # kept: their ids are in the keys

    def standing_in_for(self, frame: FrameType) -> _Call:
        """Return a function that makes a call as if ``frame`` made it, at its current line."""
        key = (id(frame.f_code), frame.f_lasti)
        known = self.made.get(key)
        if known is None:
            self._codes[key[0]] = frame.f_code
            line = frame.f_code.co_firstlineno if _is_debugged() else frame.f_lineno
            code = _CODE.replace(co_name=MARK, co_filename=frame.f_code.co_filename, co_firstlineno=line)
            known = self.made[key] = FunctionType(code, frame.f_globals)
        return known


class Engine:
    """How the engine of autograd is known by the frame above a mode: its own, or another mode's stand-in for it."""

    code = torch.autograd.graph._engine_run_backward.__code__
    stand_in: CodeType | None = None  # what the frame runs that calls in its name; one for all modes
    made: Callable[..., Any] | None = None  # what makes a call so, once there was one

    @classmethod
    def call(cls, frame: FrameType) -> Callable[..., Any]:
        """Return what makes a call as the engine's frame makes it."""
        if cls.made is None:
            call = Callers().standing_in_for(frame)
            cls.stand_in, cls.made = call.__code__, staticmethod(call)
        return cls.made


# A traceback is to read as if nobody had looked. While a function mode is on, torch calls a function twice: once to
# hand it to the mode, once, from the mode, for real. The frames of the first call, of torch's hand-over and of this
# package are unlinked; those of the user's code and of torch's real call stay, with their line numbers.

MAX_CHAIN = 16  # exceptions followed through __cause__ and __context__


def state_after(error: BaseException | None) -> State:
    """Return how a run ended, given the exception that ended it."""
    return "finished" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def entries_of(error: BaseException) -> list[TracebackType]:
    """Return the entries of an exception's traceback, the outermost first."""
    entries, entry = list[TracebackType](), error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    return entries


def strip_own_frames(error: BaseException) -> None:
    """Unlink the tracer's frames from the traceback of ``error``, and of what caused it, in place."""
    for current in with_causes(error):
        entries = entries_of(current)
        foreign = set(foreign_frames([entry.tb_frame for entry in entries[1:]]))
        # The first entry always stays: it is the frame in which the trace was started.
        kept = [*entries[:1], *(entry for entry in entries[1:] if entry.tb_frame in foreign)]
        if isinstance(current, NonFiniteError):  # where torch's own Python made the call, the user's line is above it
            own = [at for at, each in enumerate(kept) if is_own_code(each.tb_frame.f_code.co_filename)]
            kept = kept[: own[-1] + 1] if own else kept
        for before, after in zip(kept, [*kept[1:], None], strict=False):
            before.tb_next = after


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it came of, each once."""
    waiting = [error]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_CHAIN:
        current = waiting.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting += [current.__cause__, current.__context__]


# The stacks that torch gathers by itself, as its allocators keep them. A frame is a dictionary with ``filename``,
# ``line`` and ``name``; the innermost comes first. The stacks of what runs while operations are followed hold the
# stand-ins that make the user's calls: their file and line, but no function of theirs.

Gathered = tuple[str, int, str]  # file, line, and function: empty on the level of a module


def own_frame(frames: Iterable[Mapping[str, Any]] | None) -> Gathered | None:
    """Return the innermost frame of the user's, given the innermost first; None where there is none."""
    for frame in frames or ():
        filename, name = str(frame.get("filename", "")), str(frame.get("name", ""))
        if name != MARK and is_own_code(filename):
            return filename, int(frame.get("line", 0)), function_of_code(name)
    return None


# One thread adds origins, at the end; a backward on another thread asks meanwhile, and may forget what is old. Whoever
# asks, or takes something away, holds the lock; who only adds does not wait: what is there in part is not yet there.

SETTLED_CALLS = 1 << 11  # node-making calls remembered (40 KB) beyond those of the last pass and the one before it

sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]

Origin = tuple["int | None", str]  # site, module path


class Origins:
    """Where nodes come from: ranges of sequence numbers, each with a site and a module path."""

    def __init__(self) -> None:
        self._starts = array("Q")
        self._stops = array("Q")
        self._numbers = array("i")  # comes last: what has a number is there
        self._lock = Lock()
        self._known: dict[Origin, int] = {}
        self.origins: list[Origin] = []
        self._marks = (0, 0)  # how many calls there were when the last pass ended, and the one before
        self._forgotten_below = 0
        self._end = 0
        self.nodes = 0
        self.lost = 0  # nodes of graphs that were kept, and used again after many steps

    def begin(self) -> None:
        """Say that what has a smaller number was made before the trace, and belongs to no call in it."""
        now = sequence_number()
        self.add(now, now, (None, ""))

    def add(self, start: int, stop: int, origin: Origin) -> None:
        """Say that the nodes ``start`` to ``stop`` (exclusive) were made at ``origin``, but for those noted before."""
        if start < self._end:
            self._fill(start, stop, origin)
            return
        self._end = stop
        number = self._known.setdefault(origin, len(self.origins))
        if number == len(self.origins):
            self.origins.append(origin)
        self._starts.append(start)
        self._stops.append(stop)
        self._numbers.append(number)
        self.nodes += stop - start

    def _fill(self, start: int, stop: int, origin: Origin) -> None:
        """Add what lies between the ranges that were noted since ``start``."""
        with self._lock:
            at = bisect_left(self._starts, start)
            inner = list(zip(self._starts[at:], self._stops[at:], self._numbers[at:], strict=True))
            for column in (self._numbers, self._stops, self._starts):
                del column[at:]
            self._end = start
        for begin, end, number in (*inner, (stop, stop, -1)):
            if self._end < begin:
                self.add(self._end, begin, origin)
            if begin < end:
                self.add(begin, end, self.origins[number])
                self.nodes -= end - begin

    def settle(self) -> None:
        """Say that a pass has ended; calls before the pass before it may be forgotten, as their graphs are."""
        with self._lock:
            previous, last = self._marks
            drop = min(previous, len(self._numbers) - SETTLED_CALLS)
            if drop > SETTLED_CALLS // 4:  # seldom, and then many at once
                self._forgotten_below = self._stops[drop - 1]
                for column in (self._starts, self._stops, self._numbers):
                    del column[:drop]
                last -= drop
            self._marks = (last, len(self._numbers))

    def of(self, sequence_number: int) -> tuple[int, bool]:
        """Return the number of a node's origin (-1: none), and whether it is exact."""
        with self._lock:
            self.lost += sequence_number < self._forgotten_below
            there = len(self._numbers)
            at = bisect_right(self._starts, sequence_number, 0, there) - 1
            if at >= 0 and sequence_number < self._stops[at]:
                return self._numbers[at], True
            # Made by what the mode did not see, a custom Function's apply: it has the origin of the call that follows.
            return (self._numbers[at + 1], False) if 0 <= at < there - 1 else (-1, False)

    def origin_of(self, sequence_number: int) -> Origin:
        """Return where a node comes from, exactly or not; neither line nor module where that is not known."""
        number = self.of(sequence_number)[0] if sequence_number >= 0 else -1
        return self.origins[number] if number >= 0 else (None, "")

    def of_all(self, sequence_numbers: Any) -> Any:
        """Return the origins' numbers of many nodes at once, as `of` does of one; NumPy arrays."""
        with self._lock:  # of copies: while NumPy sees an array, nothing can be added to it
            origins = np.frombuffer(self._numbers.tobytes(), np.int32)
            starts, stops = (
                np.frombuffer(column.tobytes(), np.uint64)[: len(origins)] for column in (self._starts, self._stops)
            )
        if not len(origins):
            return -1
        self.lost += int(np.count_nonzero(sequence_numbers < np.uint64(self._forgotten_below)))
        at = np.searchsorted(starts, sequence_numbers, "right") - 1
        exact = (at >= 0) & (sequence_numbers < stops[at])
        at = np.where(exact | (at < 0), at, at + 1)
        known = (at >= 0) & (at < len(starts))
        return np.where(known, origins[np.minimum(at, len(starts) - 1)], -1)

    def site_of(self, sequence_number: int) -> int | None:
        """Return the site that made a node; None where that is not known exactly."""
        number, exact = self.of(sequence_number)
        return self.origins[number][0] if exact and number >= 0 else None


# Where in a pipeline schedule of torch's the calling code is. In one ``schedule.step()`` each microbatch goes through
# each stage once, forward and back, in any order. Before the first it finds out shapes with a forward and a backward of
# memory that nobody has filled.

_PIPELINING = "torch.distributed.pipelining"
_MOST_FRAMES = 64
_OF_ONE_CHUNK = frozenset({"backward_one_chunk", "backward_weight_one_chunk"})


def _stage_frames() -> Iterator[FrameType]:
    """Yield the frames of pipeline stages above the caller; none is looked for where no pipeline was imported."""
    caller = sys._getframe(2) if _PIPELINING in sys.modules else None
    for frame in islice(outwards(caller), _MOST_FRAMES):
        if frame.f_globals.get("__name__") == f"{_PIPELINING}.stage":
            yield frame


def infers_shapes() -> bool:
    """Return whether the calling code runs because a pipeline finds out shapes."""
    return any("metadata_inference" in frame.f_code.co_name for frame in _stage_frames())


def place_in_stage(tensor: torch.Tensor) -> int | None:
    """Return at which place a stage whose backward runs was given a tensor by the stage before; None of others."""
    for frame in _stage_frames():
        given = frame.f_locals.get("input_values", ()) if frame.f_code.co_name in _OF_ONE_CHUNK else ()
        found = next((place for place, each in enumerate(given) if each is tensor), None)
        if found is not None:
            return found
    return None


class Microbatches:
    """Tells where a step of a pipeline begins: where a microbatch comes again."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str, int]] = set()  # stage, way, microbatch

    def begin_step(self) -> bool | None:
        """Return whether the backward that begins is the first of a step; None where it is in no pipeline."""
        for frame in _stage_frames():
            if (what := frame.f_code.co_name) in _OF_ONE_CHUNK and "bwd_chunk_id" in frame.f_code.co_varnames:
                now = id(frame.f_locals.get("self")), what, frame.f_locals["bwd_chunk_id"]
                first = not self._seen or now in self._seen
                if first:
                    self._seen.clear()
                self._seen.add(now)
                return first
        self._seen.clear()
        return None
