"""The variables of functions that are running: they hold memory as names do, and no namespace tells them."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any

from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.where.running import names_of
from tensormagic.collectors.where.source import is_own_code, location_in


def running(frame: FrameType | None, taken: set[str]) -> list[tuple[Place, Any]]:
    """Return the variables of a frame and of those that called it, as far as they run functions of the person's own.

    Args:
        frame: The innermost.
        taken: Names that mean something to the person already; a variable that is so called, too, is told with its
            function.
    """
    found: list[tuple[Place, Any]] = []
    while frame is not None:
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and is_own_code(code.co_filename):
            names = dict(names_of(frame))
            location = location_in(frame, frame.f_lineno)
            found += [(Place(_path(name, frame, taken), "name", 0, location), held) for name, held in names.items()]
            taken |= set(names)
        frame = frame.f_back
    return found


def _path(name: str, frame: FrameType, taken: set[str]) -> str:
    return f"{frame.f_code.co_name}.<locals>.{name}" if name in taken else name
