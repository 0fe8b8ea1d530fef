"""The person's functions that are running, and the names that are bound in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from tensormagic.collectors.where.source import is_own_code

_OPTIMIZED = 1  # CO_OPTIMIZED: code whose local names live in slots, not in a dictionary of the person's


_FRAMES = 24  # of the person's functions that are running, at most so many are asked for their names


_HOLDERS = 3  # of a frame's dictionary of locals when nobody but the frame, us and the call below holds it


def running_spaces(frame: FrameType | None, outermost: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the names of the person's functions that are running, innermost first, up to their module or cell."""
    return (names for _, names in running_functions(frame, outermost))


def running_functions(frame: FrameType | None, outermost: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the person's functions that are running, by name, with their names, as `running_spaces` does."""
    for _ in range(_FRAMES):
        while frame is not None and not is_own_code(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        if not frame.f_code.co_flags & _OPTIMIZED:
            if frame.f_locals is not outermost:
                yield frame.f_code.co_name, frame.f_locals
            return
        yield frame.f_code.co_name, names_of(frame)
        frame = frame.f_back


def names_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the names bound in a frame, those of a function as a copy that nothing else keeps.

    Until Python 3.12 a frame keeps the dictionary it was asked for, and with it every tensor in there, for as long as
    the function runs. So it is emptied again, unless the person holds it too (``locals()``).
    """
    if not frame.f_code.co_flags & _OPTIMIZED:
        return frame.f_locals
    held = frame.f_locals
    names = dict(held)
    if sys.version_info < (3, 13) and sys.getrefcount(held) <= _HOLDERS:
        held.clear()
    return names
