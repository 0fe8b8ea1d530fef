"""The ways out of a report: on the screen, or into a file."""

from __future__ import annotations

from collections.abc import Callable

from tensormagic.errors import TensorMagicError
from tensormagic.renderers import files
from tensormagic.reports import Report, install_outlet

form_of = files.form_of
_display: Callable[[Report], None] | None = None


def install_display(display: Callable[[Report], None] | None) -> None:
    """Say how `show` shows where more than text is possible; None: as text. The notebook extension calls this."""
    global _display  # noqa: PLW0603  (the one seam by which a notebook shows reports)
    _display = display


def show(report: Report) -> None:
    """Show a report: rich in a notebook with the extension loaded, else as text on standard output.

    Raises:
        TensorMagicError: for anything that is no report.
    """
    if not isinstance(report, Report):
        raise TensorMagicError(f"show() takes a report, but was given a {type(report).__name__}; try inspect(x) first")
    if _display is not None:
        _display(report)
    else:
        print(report)  # noqa: T201  (showing is what was asked for)


install_outlet(files.Outlet())
