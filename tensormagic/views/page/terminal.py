"""A report in a terminal: its width, its colours, and a screen of it at a time."""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from tensormagic import views
from tensormagic.reports import UNTOUCHED, LiveFrame, Report, TraceReport
from tensormagic.views.markup import plain_report
from tensormagic.views.page.sampler import Sender
from tensormagic.views.panels.trace_words import measured, norm_text, overhead_text, touched
from tensormagic.views.text_canvas import bars, curve, is_terminal, printable, writable
from tensormagic.views.theme import least_of, norm_scale
from tensormagic.words import DOT, plural, seconds_text, short_number, shortened

if TYPE_CHECKING:
    from rich.console import Console


# The bottom rows of a terminal, kept for a few lines that change, while everything else scrolls above them.
#
# A terminal can scroll a part of its rows alone (DECSTBM, in every terminal since the VT100; apt draws its progress
# so). That is gentler than the usual way, which puts something of its own in the place of ``sys.stdout``: here
# nothing of the run is replaced, and what it prints, logs, or lets another program print stays whole, whichever way
# it goes out.

_FEWEST_ABOVE = 6  # rows that must be left to the user
_SAVE, _RESTORE, _DOWN, _CLEARED = "\x1b7", "\x1b8", "\x1bD", "\x1b[0m\x1b[2K"


class BottomRows:
    """Rows at the bottom of a terminal, which is ``stream``; ``size`` says how large it is."""

    def __init__(self, stream: TextIO, rows: int, size: Callable[[], os.terminal_size] | None = None) -> None:
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
        room = ""
        if height != self._height:
            self.close()
            if height < self._rows + _FEWEST_ABOVE:
                return
            atexit.register(self.close)
            self._height, self._process = height, os.getpid()
            # Room is made without moving the cursor's column; then only the rows above scroll.
            room = f"{_DOWN * self._rows}\x1b[{self._rows}A{_SAVE}\x1b[1;{height - self._rows}r{_RESTORE}"
        self._write(room, lines[: self._rows], height)

    def close(self) -> None:
        """Clear the rows and give them back; calling it again does nothing."""
        if self._height and self._process == os.getpid():
            atexit.unregister(self.close)
            height, self._height = min(self._height, self._size().lines), 0
            self._write("", [""] * self._rows, height, "\x1b[r")

    def _write(self, before: str, lines: Sequence[str], height: int, after: str = "") -> None:
        first = height - self._rows + 1
        drawn = "".join(f"\x1b[{first + at};1H{_CLEARED}{line}" for at, line in enumerate(lines))
        self._stream.write(f"{before}{_SAVE}{drawn}{after}{_RESTORE}")
        self._stream.flush()


# A page of the documentation in a terminal: headings, tables and code set by Rich; elsewhere its Markdown as it is.

WIDEST_PAGE = 100  # columns: longer lines are hard to read


def print_markdown(text: str, stream: TextIO | None = None) -> None:
    """Print a page of Markdown: set and coloured in a terminal, and plain into anything else."""
    out = stream or sys.stdout
    console = _console(out)
    if console is None:
        print(text, file=out)
        return
    from rich.markdown import Markdown

    page = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    console.print(page, width=min(console.width, WIDEST_PAGE))


# What a running trace says in a terminal: six lines, each always about the same, so that no eye need search.

ROWS = 6
_LABEL = 10  # columns of the word before each line
_WIDEST = 48  # columns of a row of bars


def block(report: TraceReport, frame: LiveFrame, width: int) -> list[str]:
    """Return the lines: where it is, how the loss goes, the gradient flow, who gets most and least, findings.

    ``report`` is the last whole report, for names, losses and findings; ``frame`` has the newest numbers.
    """
    title = f" {shortened(report.title or 'tracegrad', width // 2)} "
    place = (f"{frame.step}", plural(frame.finished_pass, "backward pass", "backward passes"),
             seconds_text(frame.seconds), overhead_text(report))  # fmt: skip
    found = "none so far"
    if report.findings:
        first, others = report.findings[0], f"  (+{len(report.findings) - 1})" if report.findings[1:] else ""
        found = f"{first.code} {first.severity}{others}: {first.message.replace('`', '')}"
    said = {
        "step": f" {DOT} ".join(filter(None, place)),
        "loss": _losses(report, width - _LABEL),
        "flow": _flow(report, frame, width - _LABEL),
        "gradients": _ends(report, frame),
        "findings": found,
    }
    lines = [f"──{title}".ljust(width, "─"), *(f"{label:<{_LABEL}}{text}" for label, text in said.items())]
    return [printable(line if len(line) <= width else line[: width - 1] + "…") for line in lines]


def _losses(report: TraceReport, width: int) -> str:
    """Return the loss of the first pass and of the newest, and between them a bar for every stretch of passes."""
    losses = [one.value for one in report.passes if one.value is not None]
    if not losses:
        return "none yet"
    first, last = short_number(losses[0]), short_number(losses[-1])
    room = min(width - len(first) - len(last) - 2, _WIDEST)
    return f"{first} {curve(losses, room)} {last}" if len(losses) > 1 and room > 0 else last


def _flow(report: TraceReport, frame: LiveFrame, width: int) -> str:
    """Return a bar for every stretch of nodes, from the loss on, in the order in which backward reached them."""
    graph = next((graph for graph in report.graphs if graph.number == frame.graph), None)
    if graph is None:
        return "no backward yet"
    inner = [at for at in graph.order if at < len(frame.norms) and graph.nodes[at].kind != "accumulate"]
    norms = [frame.norms[at] for at in inner]
    if not any(map(touched, norms)):
        return "backward begins"
    known = [norm for norm in norms if 0 < norm < math.inf]
    ends = norm_scale([least_of(known), max(known)] if known else ())
    scale = "  loss → input, norms {} to {}".format(*(norm_text(10.0**exponent) for exponent in ends))
    return bars(norms, max(min(width - len(scale), _WIDEST), 8), ends) + scale


def _ends(report: TraceReport, frame: LiveFrame) -> str:
    """Return the parameter with a NaN where there is one, else those with the largest and the smallest gradient."""
    pairs = [(norm, one.name) for norm, one in zip(frame.parameter_norms, report.parameters, strict=False)
             if norm != UNTOUCHED]  # fmt: skip
    if bad := [name for norm, name in pairs if not math.isfinite(norm)]:
        return f"NaN or Inf in {bad[0]}" + (f" and {plural(len(bad) - 1, 'other')}" if bad[1:] else "")
    known = sorted(pair for pair in pairs if measured(pair[0]))
    ends = zip(("largest", "smallest"), (known[-1:] + known[:1])[: len(known)], strict=False)
    return f" {DOT} ".join(f"{word} {name} {norm_text(norm)}" for word, (norm, name) in ends) or "none yet"


# Reports in a terminal: text as wide as the window and coloured where that is wanted, and a running trace below.
#
# Rich decides what a terminal can do (its width, its colours, ``NO_COLOR``); it is imported by the first report that
# a terminal shows. Into a pipe or a file goes plain text, and where Rich is not installed, plain text goes
# everywhere.

NARROWEST, WIDEST = 40, 160
INTERVAL = 0.1  # seconds between two looks: a terminal shows lines, not motion
REFRESH = 0.5  # and between two whole reports: losses and findings come with them

STYLES = (
    (r"^(?:compare|──) .*$", "bold"),
    (r"^error  .*$", "bold red"),
    (r"✖\S*", "bold red"),
    (r"^─+$", "dim"),
    (r"[▁▂▃▄▅▆▇█]+", "cyan"),
    (r"(?<=[▁▂▃▄▅▆▇█·0?!])!+|!+(?=[▁▂▃▄▅▆▇█·0?!])", "bold red"),  # among bars: NaN or Inf
    (r"(?<=^flow      )!+(?= )", "bold red"),
    (r"(?m)^(?:not shown|not compared)\b.*$", "dim"),
    (r"(?m)^ ?(?:no problems found|all gradients equal)\b.*$", "green"),
    (r"\S note +TM\d{3}\b", "bold blue"),
    (r"\S warning +TM\d{3}\b", "bold yellow"),
    (r"\S error +TM\d{3}\b", "bold red"),
    (r"\b(?:NaN|[+−]?Inf)\b(?! +0\b)", "bold red"),  # not where none was counted
)


def print_report(report: Report, stream: TextIO | None = None, *, brief: bool = False) -> None:
    """Print a report: as wide as the terminal and in colours, or, into anything else, as plain text.

    With ``brief``, what is folded in a page is only named.
    """
    out = stream or sys.stdout
    options: dict[str, Any] = {"brief": True} if brief else {}
    console, columns = _console(out), 0
    with suppress(OSError, ValueError):  # no descriptor, or none of a terminal
        # of a terminal that takes no more than text (``TERM=dumb``); 0 of a pipe or a file
        columns = console.width if console else os.get_terminal_size(out.fileno()).columns if out.isatty() else 0
    if columns or console is not None:
        options["width"] = min(max(columns, NARROWEST), WIDEST)
    text = writable(views.render(report, "txt", **options), getattr(out, "encoding", None))
    if console is None:
        print(text, file=out)
    else:
        console.print(_coloured(text.rstrip("\n")), soft_wrap=True)


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


class TerminalSender(Sender):
    """Shows a running trace in the bottom rows of a terminal; it is gone when the run has ended."""

    refresh = REFRESH

    def __init__(self, console: Console) -> None:
        """Show in the terminal of ``console``; nothing is written before the first state."""
        self._console = console
        self._rows = BottomRows(console.file, ROWS)  # type: ignore[arg-type]
        self._report: TraceReport | None = None

    def document(self, report: TraceReport) -> None:
        """Keep what the next state is compared with."""
        self._report = plain_report(report)

    def delta(self, frame: LiveFrame) -> None:
        """Show the newest state."""
        drawn = []
        for line in block(self._report, frame, self._rows.width) if self._report is not None else ():
            with self._console.capture() as captured:
                self._console.print(_coloured(writable(line, self._console.encoding)), soft_wrap=True, end="")
            drawn.append(captured.get())
        if drawn:
            self._rows.draw(drawn)

    def close(self) -> None:
        """Take the lines away."""
        self._rows.close()
