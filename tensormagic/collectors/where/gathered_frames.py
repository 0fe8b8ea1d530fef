"""The stacks that torch gathers by itself, as its allocators keep them: which frame of one is the person's.

A frame is a dictionary with ``filename``, ``line`` and ``name``; the innermost comes first. The stacks of what runs
while operations are followed hold the stand-ins that make the person's calls: their file and line, but no function
of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensormagic.collectors.where.caller import MARK
from tensormagic.collectors.where.source import is_own_code

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


__all__ = ["Gathered", "own_frame"]
