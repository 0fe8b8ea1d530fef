"""A terminal to test with: a screen that obeys what our own terminal output uses, and a program run in a real one."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SEQUENCE = re.compile(r"\x1b(?:([78DM])|\[(\??[\d;]*)([A-Za-z]))")


class Screen:
    """Rows and columns of characters, a cursor, a part that scrolls, and what has scrolled out above."""

    def __init__(self, rows: int = 16, columns: int = 60) -> None:
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.gone: list[str] = []
        self.row = self.column = 0
        self.saved = (0, 0)
        self.region = (0, rows - 1)

    def feed(self, text: str) -> None:
        """Obey ``text``."""
        at = 0
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found:
                self._obey(*found.groups())
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def everything(self) -> list[str]:
        """What has scrolled out, and what is on the screen, without empty lines."""
        return [line for line in [*self.gone, *self.lines] if line]

    def _obey(self, single: str | None, numbers: str | None, letter: str | None) -> None:
        first, *more = [int(number or 0) for number in (numbers or "").lstrip("?").split(";")]
        if single == "7":
            self.saved = (self.row, self.column)
        elif single == "8":
            self.row, self.column = self.saved
        elif single == "D":
            self._down()
        elif letter == "H":
            self.row, self.column = max(first, 1) - 1, max((more or [1])[0], 1) - 1
        elif letter == "A":
            self.row = max(self.row - max(first, 1), 0)
        elif letter == "K":
            assert first == 2
            self.cells[self.row] = [" "] * self.columns
        elif letter == "r":
            self.region = (first - 1, more[0] - 1) if more else (0, self.rows - 1)
            self.row = self.column = 0
        else:
            assert letter in {"m", "l", "h"}, f"unexpected sequence: {single or letter}"

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self._down()
        else:
            assert letter.isprintable(), f"unexpected character {letter!r}"
            assert self.column < self.columns, "a line ran over the edge"
            self.cells[self.row][self.column] = letter
            self.column += 1

    def _down(self) -> None:
        top, bottom = self.region
        if self.row != bottom:
            self.row = min(self.row + 1, self.rows - 1)
            return
        line = self.cells.pop(top)
        if top == 0:
            self.gone.append("".join(line).rstrip())
        self.cells.insert(bottom, [" "] * self.columns)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal, and writes on a screen; a line feed begins a line, as a tty has it."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def isatty(self) -> bool:
        return True

    def size(self) -> os.terminal_size:
        """How large it is."""
        return os.terminal_size((self.screen.columns, self.screen.rows))

    def write(self, text: str) -> int:
        self.screen.feed(text.replace("\n", "\r\n"))
        return super().write(text)


def run_in_terminal(command: Sequence[str], folder: Path, *, typed: str = "", **environment: str) -> str:
    """Run a program in a pseudo-terminal of 30 × 90; return all that it wrote there."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    variables = {**kept, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=variables, start_new_session=True
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    pieces = list(iter(lambda: _read(ours), b""))
    process.wait(120)
    os.close(ours)
    return b"".join(pieces).decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the program has ended and closed its side
        return b""
