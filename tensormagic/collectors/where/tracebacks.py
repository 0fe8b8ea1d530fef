"""Takes the tracer's own frames out of a traceback, so that it reads as if nobody had looked.

While a function mode is on, torch calls a function twice: once to hand it to the mode, once, from the mode, for real.
The frames of the first call, of torch's hand-over and of this package are unlinked; the frames of the person's code
and of torch's real call stay, with their line numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType, TracebackType

from tensormagic.collectors.where.caller import MARK
from tensormagic.collectors.where.source import PACKAGE_DIRECTORY
from tensormagic.reports import State

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
            _relink(current.__traceback__)
        causes = (current.__cause__, current.__context__)
        waiting += [cause for cause in causes if cause is not None and id(cause) not in seen]


def _relink(head: TracebackType) -> None:
    entries, entry = [head], head.tb_next
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = _without_own(entries)
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
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE_DIRECTORY) or code.co_name == MARK:
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
