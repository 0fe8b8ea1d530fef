"""The ways out of a report: on the screen, or into a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensormagic.errors import TensorMagicError

if TYPE_CHECKING:
    from tensormagic.reports import Report

_display: Callable[..., None] | None = None


def install_display(display: Callable[..., None] | None) -> None:
    """Say how `show` shows where more than text is possible; None: as text. The notebook extension calls this."""
    global _display  # noqa: PLW0603  (the one seam by which a notebook shows reports)
    _display = display


def show(report: Report, *, slide: bool = False) -> None:
    """Show a report: rich in a notebook with the extension loaded, and in marimo, else as text on standard output.

    Args:
        report: What is shown.
        slide: For a projector: large type, one part at a time, with the arrow keys; of text there is no such form.

    Raises:
        TensorMagicError: for anything that is no report.
    """
    from tensormagic.reports import Report

    if not isinstance(report, Report):
        raise TensorMagicError(f"show() takes a report, but was given a {type(report).__name__}; try inspect(x) first")
    if _display is not None:
        _display(report, slide=slide)
    elif not _into_marimo(report, slide=slide):
        print_text(report)


def _into_marimo(report: Report, *, slide: bool) -> bool:
    """Append a report to the output of the marimo cell that is running; False where none is.

    marimo is asked only where somebody else has imported it: what it shows is what `Report` says of itself.
    """
    marimo = sys.modules.get("marimo")
    if marimo is None or not marimo.running_in_notebook():
        return False
    from tensormagic import renderers

    marimo.output.append(marimo.iframe(renderers.render(report, "html", slide=True)) if slide else report)
    return True


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form in which a report is written to ``path``.

    Raises:
        TensorMagicError: where its ending names none; what is given, what there is, and what to do instead.
    """
    from tensormagic.renderers import files

    return files.form_of(path)


def print_text(report: Report) -> None:
    """Print a report as text: in a terminal as wide as that is, and in colours where they are wanted."""
    from tensormagic.renderers.terminal.terminal import print_report

    print_report(report)


def print_anywhere() -> None:
    """Let this process print any character, whatever standard output can hold: for the command line."""
    from tensormagic.renderers.terminal.lookalikes import never_raise

    never_raise(sys.stdout)


def prints_best() -> bool:
    """Say whether `print_text` does better than any display: in a terminal, and where not every character can go."""
    from tensormagic.renderers.terminal.lookalikes import EVERY_BAR, holds
    from tensormagic.renderers.terminal.terminal_screen import is_terminal

    return is_terminal(sys.stdout) or not holds(getattr(sys.stdout, "encoding", None), EVERY_BAR)


def print_page(text: str) -> None:
    """Print a page of Markdown: set and coloured in a terminal, and as it is into anything else."""
    from tensormagic.renderers.terminal.terminal_page import print_markdown

    print_markdown(text)
