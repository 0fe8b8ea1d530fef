"""``%%gpumem``: run a cell and say which line took memory, what was alive at the peak, and what is left."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.errors import UnknownNameError
from tensormagic.magics.arguments import Output, Parser, make_parser
from tensormagic.magics.cell import cell_number
from tensormagic.magics.display import bundle, deliver_after_run, relays_updates
from tensormagic.magics.frames import Explained, Followed, reported
from tensormagic.magics.live_output import Repainter
from tensormagic.magics.shared_assets import Placement
from tensormagic.reports import Cell, MemoryRunReport

if TYPE_CHECKING:
    from tensormagic.renderers.live_memory import MemoryPanel

NAME = "%%gpumem"


def parser() -> Parser:
    """Return the parser of ``%%gpumem``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Run the cell and show its memory: over time, by line and by category, with what was alive at the peak and "
        "what is left.",
        MemoryRunReport,
    )
    made.add_argument("--title", default="", metavar="TEXT", help="a name for the run")
    made.add_argument(
        "--func", action="append", default=[], metavar="FUNCTION",
        help="show this function line by line: train  model.forward  package.module.f; can be repeated",
    )  # fmt: skip
    made.add_argument("--live", choices=("widget", "html", "off"), help="how to show it while it runs, in a notebook")
    return made


def follow(shell: Any, live: str, options: argparse.Namespace, output: Output, cell: Cell) -> Followed:
    """Follow the memory of a cell."""
    number, title = functools.partial(cell_number, shell), options.title.strip("\"'")
    try:
        followed = api.MemoryRun(shell.user_ns, cell, cell_number=number, title=title, functions=options.func)
    except UnknownNameError as error:
        raise UsageError(str(error)) from None
    is_live = relays_updates(shell) and not output.text and output.figure is None
    mode = options.live or live if is_live else "off"
    return followed, shown(shell, followed, output, mode=mode), Explained(shell, memory=False)


@contextmanager
def shown(shell: Any, followed: api.MemoryRun, output: Output, *, mode: str) -> Iterator[None]:
    """Show the run while it goes on, as ``mode`` says, and its report when it has ended, however it ended."""
    __tracebackhide__ = "__ipython_bottom__"
    if mode not in {"widget", "html"}:
        with reported(shell, followed, output):
            yield
        return
    panel = _panel(followed) if mode == "widget" else None
    widget = panel.view() if panel is not None else {}
    place = Placement()
    handle = display({**widget, **bundle(followed.report, place=place)}, raw=True, display_id=True)
    repaint = functools.partial(_repaint, handle, followed, place)
    live = Repainter(repaint) if panel is None else panel
    try:
        with live:
            yield
    finally:
        report = followed.report
        report = dataclasses.replace(report, gaps=(*report.gaps, *live.gaps))
        handle.update(bundle(report, slide=output.slide, place=place), raw=True)
        live.retire()
        deliver_after_run(shell, report, output, shown=True)


def _repaint(handle: Any, followed: api.MemoryRun, place: Placement) -> None:
    handle.update(bundle(followed.report, place=place), raw=True)


def _panel(followed: api.MemoryRun) -> MemoryPanel | None:
    """Return a live panel; None where the host's widgets are broken, and the output is painted again instead."""
    from tensormagic.renderers.live_memory import MemoryPanel  # with the widgets that it needs

    try:
        return MemoryPanel(followed.frame, lambda: followed.report)
    except Exception:  # noqa: BLE001  (a broken widget installation must not stop the run)
        return None
