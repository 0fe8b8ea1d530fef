"""The bottom rows of a terminal, kept for a few lines that change, while everything else scrolls above them.

A terminal can scroll a part of its rows alone (DECSTBM, in every terminal since the VT100; apt draws its progress so).
That is gentler than the usual way, which puts something of its own in the place of ``sys.stdout``: here nothing of the
run is replaced, and what it prints, logs, or lets another program print stays whole, whichever way it goes out.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from typing import TextIO

_FEWEST_ABOVE = 6  # rows that must be left to the person
_SAVE, _RESTORE, _DOWN, _CLEAR, _PLAIN = "\x1b7", "\x1b8", "\x1bD", "\x1b[2K", "\x1b[0m"

Size = Callable[[], os.terminal_size]


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether ``stream`` is a terminal that understands where to write."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
    except (ValueError, OSError):  # closed
        return False


class BottomRows:
    """Rows at the bottom of a terminal.

    Args:
        stream: The terminal.
        rows: How many.
        size: Says how large the terminal is.
    """

    def __init__(self, stream: TextIO, rows: int, size: Size | None = None) -> None:
        self._stream, self._rows = stream, rows
        self._size = size or (lambda: os.get_terminal_size(stream.fileno()))
        self._height = 0  # of the terminal when the rows were taken; 0: they are not
        self._process = 0  # that took them: a fork of it must not give them back

    @property
    def width(self) -> int:
        """Columns that a line may take; the last is left free, where some terminals wrap."""
        return max(self._size().columns - 1, 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Write the lines; a line more than there are rows is left out. Nothing where the terminal is too low."""
        height = self._size().lines
        if height != self._height:
            self.close()
            if height < self._rows + _FEWEST_ABOVE:
                return
            self._take(height)
        first = height - self._rows + 1
        drawn = (f"\x1b[{first + at};1H{_PLAIN}{_CLEAR}{line}" for at, line in enumerate(lines[: self._rows]))
        self._write(f"{_SAVE}{''.join(drawn)}{_RESTORE}")

    def close(self) -> None:
        """Clear the rows and give them back; calling it again does nothing."""
        if not self._height or self._process != os.getpid():
            return
        atexit.unregister(self.close)
        first = min(self._height, self._size().lines) - self._rows + 1
        cleared = "".join(f"\x1b[{first + at};1H{_PLAIN}{_CLEAR}" for at in range(self._rows))
        self._height = 0
        self._write(f"{_SAVE}{cleared}\x1b[r{_RESTORE}")

    def _take(self, height: int) -> None:
        """Make room without moving the cursor's column, then let only the rows above scroll."""
        atexit.register(self.close)
        self._height, self._process = height, os.getpid()
        room = f"{_DOWN * self._rows}\x1b[{self._rows}A"
        self._write(f"{room}{_SAVE}\x1b[1;{height - self._rows}r{_RESTORE}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
