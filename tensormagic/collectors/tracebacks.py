"""Takes the tracer's own frames out of a traceback, so that it reads as if nobody had looked.

While a function mode is on, torch calls a function twice: once to hand it to the mode, once, from the mode, for real.
The frames of the first call, of torch's hand-over and of this package are unlinked; the frames of the person's code
and of torch's real call stay, with their line numbers.
"""

from __future__ import annotations

from types import TracebackType

from tensormagic.collectors.caller import MARK
from tensormagic.collectors.source import PACKAGE_DIRECTORY

MAX_CHAIN = 16  # exceptions followed through __cause__ and __context__


def error_text(error: BaseException) -> str:
    """Return an exception as Python's last line shows it; one whose own text cannot be had is its class alone."""
    try:
        words = str(error)
    except Exception:  # the person's ``__str__`` raised: that must not take the place of the exception itself
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


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
    kept, removed = [entries[0]], False
    for entry in entries[1:]:
        code = entry.tb_frame.f_code
        if code.co_filename.startswith(PACKAGE_DIRECTORY) or code.co_name == MARK:
            removed = True
            continue
        if removed:
            _drop_first_call(kept, entry)
        kept.append(entry)
        removed = False
    return kept


def _drop_first_call(kept: list[TracebackType], real: TracebackType) -> None:
    while len(kept) > 1 and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
        kept.pop()
    if len(kept) > 1 and kept[-1].tb_frame.f_code is real.tb_frame.f_code:
        kept.pop()
