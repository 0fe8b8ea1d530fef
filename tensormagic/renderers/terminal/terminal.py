"""Reports in a terminal: text as wide as the window and coloured where that is wanted, and a running trace below.

Rich decides what a terminal can do (its width, its colours, ``NO_COLOR``); it is imported by the first report that a
terminal shows. Into a pipe or a file goes plain text, and where Rich is not installed, plain text goes everywhere.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from tensormagic import renderers
from tensormagic.renderers.basics.plain_text import plain_report
from tensormagic.renderers.terminal.lookalikes import writable
from tensormagic.renderers.terminal.terminal_screen import BottomRows, is_terminal
from tensormagic.renderers.terminal.terminal_words import ROWS, block
from tensormagic.reports import LiveFrame, Report, TraceReport

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST, WIDEST = 40, 160
INTERVAL = 0.1  # seconds between two looks: a terminal shows lines, not motion
REFRESH = 0.5  # and between two whole reports: losses and findings come with them

STYLES = (
    (r"^(?:tracegrad|gradgraph|compare|──) .*$", "bold"),
    (r"^error  .*$", "bold red"),
    (r"✖\S*", "bold red"),
    (r"^─+$", "dim"),
    (r"[▁▂▃▄▅▆▇█]+", "cyan"),
    (r"(?<=[▁▂▃▄▅▆▇█·0?!])!+|!+(?=[▁▂▃▄▅▆▇█·0?!])", "bold red"),  # among bars: NaN or Inf
    (r"(?<=^flow      )!+(?= )", "bold red"),
    (r"(?m)^(?:not shown|not seen|not compared)\b.*$", "dim"),
    (r"(?m)^(?:no problems found|all gradients equal)\b.*$", "green"),
    (r"\bTM\d{3} note\b", "bold blue"),
    (r"\bTM\d{3} warning\b", "bold yellow"),
    (r"\bTM\d{3} error\b", "bold red"),
    (r"\S note +TM\d{3}\b", "bold blue"),
    (r"\S warning +TM\d{3}\b", "bold yellow"),
    (r"\S error +TM\d{3}\b", "bold red"),
    (r"\b(?:NaN|[+−]?Inf)\b(?! +0\b)", "bold red"),  # not where none was counted
)


def print_report(report: Report, stream: TextIO | None = None) -> None:
    """Print a report: as wide as the terminal and in colours, or, into anything else, as plain text."""
    out = stream or sys.stdout
    console = _console(out)
    if console is None:
        print(_writable(renderers.render(report, "txt", **_told_width(out)), out), file=out)
        return
    text = renderers.render(report, "txt", width=_bounded(console.width))
    console.print(_coloured(_writable(text.rstrip("\n"), out)), soft_wrap=True)


def _bounded(columns: int) -> int:
    return min(max(columns, NARROWEST), WIDEST)


def _told_width(stream: TextIO) -> dict[str, Any]:
    """Return the width of a terminal that takes no more than text (``TERM=dumb``); nothing of a pipe or a file."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # no descriptor, or none of a terminal
        columns = 0
    return {"width": _bounded(columns)} if columns else {}


def _writable(text: str, stream: TextIO) -> str:
    return writable(text, getattr(stream, "encoding", None))


def _console(stream: TextIO) -> Console | None:
    """Return what knows the terminal behind ``stream``; None where there is none, or where Rich is missing."""
    if not is_terminal(stream):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, force_jupyter=False, highlight=False, emoji=False, markup=False)


def _coloured(text: str) -> Any:
    from rich.text import Text

    coloured = Text(text)
    for pattern, style in STYLES:
        coloured.highlight_regex(pattern if pattern.startswith("(?m)") else f"(?m){pattern}", style)
    return coloured


def terminal_sender() -> TerminalSender | None:
    """Return what shows a running trace at the bottom of the terminal; None where there is no terminal."""
    stream = next((stream for stream in (sys.stderr, sys.stdout) if is_terminal(stream)), None)
    console = _console(stream) if stream is not None else None
    return None if console is None or console.legacy_windows else TerminalSender(console)


class TerminalSender:
    """Shows a running trace in the bottom rows of a terminal; it is gone when the run has ended."""

    refresh = REFRESH

    def __init__(self, console: Console) -> None:
        """Show in the terminal of ``console``; nothing is written before the first state."""
        self._console = console
        self._rows = BottomRows(console.file, ROWS)  # type: ignore[arg-type]
        self._report: TraceReport | None = None

    def document(self, report: TraceReport) -> None:
        """Keep what the next state is told with."""
        self._report = plain_report(report)

    def delta(self, frame: LiveFrame) -> None:
        """Show the newest state."""
        if self._report is not None:
            lines = block(self._report, frame, self._rows.width)
            self._rows.draw([self._ansi(_writable(line, self._console.file)) for line in lines])  # type: ignore[arg-type]

    def _ansi(self, line: str) -> str:
        with self._console.capture() as captured:
            self._console.print(_coloured(line), soft_wrap=True, end="")
        return captured.get()

    def close(self) -> None:
        """Take the lines away."""
        self._rows.close()
