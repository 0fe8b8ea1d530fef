"""``%gpumem``: where the memory is; ``%%gpumem``: which line of a cell takes it, what is alive at the peak and left."""

from __future__ import annotations

import functools
import re
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.magics.arguments import MODES, Magic, expressions, flag, several, unquoted, value
from tensormagic.magics.frames import Explained, Followed, answer_of, bundle, relays_updates, reported, value_of
from tensormagic.magics.shared_assets import Placement, cell_number
from tensormagic.reports import Cell, Report
from tensormagic.views.page.sampler import Sampler
from tensormagic.words import binding

_DEVICE = re.compile(r"(?:cpu|cuda|mps|xpu|meta)(?::\d+)?|\d+")
INTERVAL = 1.0  # seconds between two pictures, at least


class Repainter(Sampler):
    """Calls ``paint``, which shows what there is now, while it is entered: where the host shows no widget."""

    def __init__(self, paint: Callable[[], None]) -> None:
        super().__init__(INTERVAL / 4)
        self._paint = paint

    def look(self, *, final: bool) -> None:
        """Paint; not at the end, when the report follows, and not again where it failed."""
        if not final and not self.gaps and self.due(INTERVAL):
            self.document(self._paint)

    def retire(self) -> None:
        """Nothing to leave behind: what was painted last is what stays."""


def _report(shell: Any, options: Namespace) -> Report:
    """Return where the memory is that is alive, or that which the names on the line lead to."""
    __tracebackhide__ = True
    if options.yes and not options.free:
        raise UsageError("--yes releases what --free lists: %gpumem --free --yes")
    if options.free:  # what only outputs and the last error keep
        if options.expression or options.device or options.snapshot:
            raise UsageError("--free only releases outputs and the last error; use del for your own names")
        return api.free_history(shell.user_ns, drop=options.yes)
    _refuse_devices(shell, [piece for piece in options.expression if ":" in piece])  # cuda:1 is not an expression
    asked, numbered = expressions(options.expression), functools.partial(cell_number, shell)
    if options.snapshot is not None:
        if options.device:
            raise UsageError("--snapshot shows all devices of the file: leave out --device")
        if asked:
            raise UsageError(f"--snapshot shows a file without names: leave out {', '.join(asked)}")
        return api.read_snapshot(unquoted(options.snapshot) or "", cell_number=numbered)
    _refuse_devices(shell, asked)
    only = {binding(expression): value_of(shell, expression) for expression in asked}
    return api.memory(shell.user_ns, only=only or None, devices=options.device, cell_number=numbered)


def _refuse_devices(shell: Any, asked: Iterable[str]) -> None:
    """Raise a UsageError where something on the line is a device: ``cuda:1``, ``0``, or a name for one."""
    for given in asked:
        found = shell.user_ns.get(given, unquoted(given))
        text = str(found) if isinstance(found, str) or type(found).__name__ == "device" else ""
        if _DEVICE.fullmatch(text):
            name = f"cuda:{text}" if text.isdecimal() else text
            raise UsageError(f"{given} names a device and holds no tensors: %gpumem --device {name}")


def _followed(shell: Any, live: str, options: Namespace, cell: Cell) -> Followed:
    number, title = functools.partial(cell_number, shell), options.title.strip("\"'")
    asked = {"cell_number": number, "title": title, "functions": options.func}
    followed = answer_of(api.MemoryRun, shell.user_ns, cell, **asked)
    is_live = relays_updates(shell) and not options.text and options.figure is None
    mode = options.live or live if is_live else "off"
    panel = functools.partial(_open_panel, followed, options, mode) if mode != "off" else None
    return followed, reported(shell, followed, options, panel), Explained(shell, memory=False)


def _open_panel(followed: api.MemoryRun, options: Namespace, mode: str) -> tuple[Sampler, Callable[[Report], None]]:
    """Show the run as it goes on, as ``mode`` says; returns the panel, and what shows a report in its place."""
    place, panel, widget = Placement(), None, {}
    if mode == "widget":
        from tensormagic.views.page.live import MemoryPanel, view_of  # with the widgets that it needs

        with suppress(Exception):  # a broken widget installation must not stop the run: the output is painted instead
            panel = MemoryPanel(followed.frame, lambda: followed.report)
            widget = view_of(panel.widget)
    handle = display({**widget, **bundle(followed.report, place=place)}, raw=True, display_id=True)
    live = panel or Repainter(lambda: handle.update(bundle(followed.report, place=place), raw=True))
    live.start()
    return live, lambda report: handle.update(bundle(report, slide=options.slide, place=place), raw=True)


_CELL = Magic(
    name="%%gpumem",
    does="Run the cell and show its memory: over time, by line and by category, with what was alive at the peak and "
    "what is left.",
    makes="MemoryRunReport",
    takes={
        "--title": value("TEXT", "a name for the run", default=""),
        "--func": value(
            "FUNCTION",
            "show this function line by line: train  model.forward  package.module.f; can be repeated",
            action="append",
            default=[],
        ),
        "--live": {**MODES, "help": "how to show it while it runs, in a notebook"},
    },
    follow=_followed,
)

MAGICS = {
    "gpumem": Magic(
        name="%gpumem",
        does="Show what is using memory, on every device: each live storage once, with purpose, name and owner.",
        makes="MemoryReport",
        takes={
            "expression": several("show only memory reachable from these: net  optimizer  losses"),
            "--device": value("NAME", "show only this device: cpu, cuda, cuda:1; can be repeated", action="append"),
            "--snapshot": value("FILE", "show a CUDA memory snapshot that torch.cuda.memory._dump_snapshot wrote"),
            "--free": flag("list memory kept only by outputs (Out, _) and the last error; your own names stay"),
            "--yes": flag("with --free: release it, and show what was freed"),
        },
        also=(_CELL,),
        report=_report,
    ),
    "gpumem_cell": _CELL,
}
