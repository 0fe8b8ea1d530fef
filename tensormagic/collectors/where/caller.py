"""Frames of ours and torch's: calls in the name of the person's line, tracebacks, stacks that torch gathers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from tensormagic.collectors.where.source import MARK, PACKAGE_DIRECTORY, is_own_code
from tensormagic.errors import NonFiniteError
from tensormagic.reports import State

__all__ = ["MARK", "Gathered", "own_frame"]


# Calls torch in the name of the person's own line.
#
# Python and torch attribute a warning to the frame that made the call, and show it once for each such place. While a
# function mode is on, that frame would be the mode's. So the call is made from a frame that bears the file name, the
# line and the globals of the one that called: a warning then reads, and is repeated or not, as if nobody had looked.

HANDS_OVER = "handle_torch_function"  # torch's own frame between a Python function of its and the mode
_Call = Callable[[Any, Any, Any], Any]


# All on its first line, which a copy moves.
_CODE = (lambda func, args, kwargs: func(*args, **kwargs) if kwargs else func(*args)).__code__


_UNCOUNTED = "<tensormagic importlib._bootstrap>"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncounted(function: _Function) -> _Function:
    """Let the frames of a function not count where a warning says how far up the line is that it is about.

    Python leaves out its own frames of importing there, which it knows by the words in their file name: those of this
    function get them too. Tracebacks and the search for the person's line leave them out by their name.
    """
    code = function.__code__.replace(co_filename=_UNCOUNTED, co_name=MARK)
    function.__code__ = code
    return function


def calling_frame(frame: FrameType) -> FrameType:
    """Return the frame that called torch, given the one above the mode: past torch's own hand-over, and other modes."""
    frame = foreign_caller(frame)
    while frame.f_code.co_name == HANDS_OVER and frame.f_back is not None and frame.f_back.f_back is not None:
        frame = foreign_caller(frame.f_back.f_back)
    return frame


def foreign_caller(frame: FrameType) -> FrameType:
    """Return the innermost frame at or above ``frame`` that is none of this package's: several runs may be on."""
    while frame.f_back is not None and _is_ours(frame.f_code):
        frame = frame.f_back
    return frame


def _is_ours(code: CodeType) -> bool:
    return code.co_name == MARK or code.co_filename.startswith(PACKAGE_DIRECTORY)


class Callers:
    """The stand-ins made so far, one for each calling place.

    A frame knows at once at which instruction it is; its line it works out from a table, which takes ten times as long.

    Attributes:
        made: By the ``id`` of a frame's code and its instruction.
    """

    def __init__(self) -> None:
        self.made: dict[tuple[int, int], _Call] = {}
        self._codes: dict[int, CodeType] = {}  # kept: their ids are in the keys

    def standing_in_for(self, frame: FrameType) -> _Call:
        """Return a function that makes a call as if ``frame`` made it, at its current line."""
        key = (id(frame.f_code), frame.f_lasti)
        known = self.made.get(key)
        if known is None:
            self._codes[key[0]] = frame.f_code
            known = self.made[key] = _stand_in(frame)
        return known


def _stand_in(frame: FrameType) -> _Call:
    code = _CODE.replace(co_name=MARK, co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno)
    return FunctionType(code, frame.f_globals)


# Takes the tracer's own frames out of a traceback, so that it reads as if nobody had looked.
#
# While a function mode is on, torch calls a function twice: once to hand it to the mode, once, from the mode, for
# real. The frames of the first call, of torch's hand-over and of this package are unlinked; the frames of the
# person's code and of torch's real call stay, with their line numbers.

MAX_CHAIN = 16  # exceptions followed through __cause__ and __context__


def error_text(error: BaseException) -> str:
    """Return an exception as Python's last line shows it; one whose own text cannot be had is its class alone."""
    try:
        words = str(error)
    except Exception:  # the person's ``__str__`` raised: that must not take the place of the exception itself
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def state_after(error: BaseException | None) -> State:
    """Return how a run ended, given the exception that ended it."""
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def strip_own_frames(error: BaseException) -> None:
    """Unlink the tracer's frames from the traceback of ``error``, and of what caused it, in place."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_CHAIN:
        current = waiting.pop()
        seen.add(id(current))
        if current.__traceback__ is not None:
            _relink(current.__traceback__, ends_at_own=isinstance(current, NonFiniteError))
        causes = (current.__cause__, current.__context__)
        waiting += [cause for cause in causes if cause is not None and id(cause) not in seen]


def _relink(head: TracebackType, *, ends_at_own: bool) -> None:
    entries, entry = [head], head.tb_next
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = _without_own(entries)
    if ends_at_own:  # where torch's own Python made the call, the person's line is above it
        own = [at for at, each in enumerate(kept) if is_own_code(each.tb_frame.f_code.co_filename)]
        kept = kept[: own[-1] + 1] if own else kept
    for before, after in zip(kept, [*kept[1:], None], strict=True):
        before.tb_next = after


def _without_own(entries: list[TracebackType]) -> list[TracebackType]:
    """Return what stays; the first entry always does: it is the frame in which the trace was started."""
    kept = set(foreign_frames([entry.tb_frame for entry in entries[1:]]))
    return [entries[0], *(entry for entry in entries[1:] if entry.tb_frame in kept)]


def foreign_frames(frames: Sequence[FrameType]) -> list[FrameType]:
    """Return the frames, outermost first, that would be there without the tracer."""
    kept: list[FrameType] = []
    removed = False
    for frame in frames:
        if _is_ours(frame.f_code):
            removed = True
            continue
        if removed:
            _drop_first_call(kept, frame)
        kept.append(frame)
        removed = False
    return kept


def _drop_first_call(kept: list[FrameType], real: FrameType) -> None:
    while kept and kept[-1].f_code.co_name == "handle_torch_function":
        kept.pop()
    if kept and kept[-1].f_code is real.f_code:
        kept.pop()


# The stacks that torch gathers by itself, as its allocators keep them: which frame of one is the person's.
#
# A frame is a dictionary with ``filename``, ``line`` and ``name``; the innermost comes first. The stacks of what runs
# while operations are followed hold the stand-ins that make the person's calls: their file and line, but no function
# of theirs.

Gathered = tuple[str, int, str]  # file, line, and function: empty on the level of a module


def own_frame(
    frames: Iterable[Mapping[str, Any]] | None, is_own: Callable[[str], bool] = is_own_code
) -> Gathered | None:
    """Return the innermost frame of the person's; None where there is none.

    Args:
        frames: The innermost first; None where none were kept.
        is_own: Whether a file is the person's.
    """
    for frame in frames or ():
        filename, name = str(frame.get("filename", "")), str(frame.get("name", ""))
        if name != MARK and is_own(filename):
            return filename, int(frame.get("line", 0)), "" if name == "<module>" else name
    return None
