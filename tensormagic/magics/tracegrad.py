"""``%%tracegrad``: a backward graph that lights up while the cell runs, and what went wrong."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.api.running import Steps, schedule_of
from tensormagic.magics import engines
from tensormagic.magics.arguments import MODES, Magic, flag, pieces, unquoted, value
from tensormagic.magics.frames import Answer, Followed, answer_of, check, deliver, is_notebook, relays_updates, run_cell
from tensormagic.magics.live_output import last_report, shown
from tensormagic.magics.shared_assets import cell_number
from tensormagic.reports import Cell, Schedule


def run(shell: Any, line: str, cell: str | None, *, live: str) -> Any:
    """Trace the cell, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Raises:
        UsageError: for an unknown option, a file that cannot be saved to, or no cell; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    if cell is None and (words := pieces(line)) and not words[0].startswith("-"):
        raise UsageError("%%tracegrad must be alone in the first line of a cell, with the code below it")
    options = MAGICS["tracegrad"].given(line)
    if options is None:
        return None
    if options.stop and _schedule(options) is not None:
        raise UsageError("--stop nan looks at every step: leave out --budget, --every and --steps")
    if options.ranks == "" and (options.memory or options.writes or options.draws):
        raise UsageError("--ranks alone compares the traces of all engines: leave out --memory, --writes and --draws")
    if cell is not None and options.ranks != "":
        return run_cell(shell, line, cell, MAGICS["tracegrad"], live=live)
    check(options)
    if cell is not None:
        engines.run(shell, _for_engines(options), cell, options, live=(options.live or live) != "off")
    elif (report := last_report(shell)) is not None:  # its output may be gone, with a page that was closed meanwhile
        deliver(shell, report, options)
    else:
        raise UsageError("%%tracegrad runs a cell: write it with two percent signs in the cell's first line")
    return None


def _followed(shell: Any, live: str, options: Namespace, cell: Cell) -> Followed:
    mode, progress = options.live or live, False
    if not is_notebook(shell):
        mode, progress = "off", mode != "off"
    elif options.text or options.figure is not None or not relays_updates(shell):
        mode = "off"
    trace = answer_of(
        api.Trace, shell.user_ns, cell, cell_number=functools.partial(cell_number, shell),
        title=options.title.strip("\"'"), level=options.level, forward=options.forward, values=options.values,
        stop=options.stop, progress=progress, schedule=_schedule(options), ranks=unquoted(options.ranks),
        memory=options.memory, writes=options.writes, draws=options.draws,
    )  # fmt: skip
    return trace, shown(shell, trace, options, mode), nullcontext()  # the report says which error ended it


def _for_engines(options: Namespace) -> str:
    """Return the options that an engine is given, too: those of how it is traced, not of what becomes of it here."""
    switches = [f"--{name}" for name in ("forward", "values") if getattr(options, name)]
    valued = {name: getattr(options, name) for name in ("stop", "budget", "every", "steps")}
    typed = [f"--{name} {value}" for name, value in valued.items() if value is not None]
    return " ".join([f"--level {options.level}", *switches, *typed])


def _schedule(options: Namespace) -> Schedule | None:
    """Return which steps the options ask for; None: every step.

    Raises:
        UsageError: says what was given, what was expected, and what to do.
    """
    budget = _read(options.budget, _share, "--budget takes a share of the run's time, 5% or 0.05")
    every = _read(options.every, int, "--every takes a whole number")
    steps = _read(options.steps, _slice, "--steps takes two numbers (10:21 for the steps 10 to 20), as in a slice")
    return answer_of(schedule_of, budget, every, steps)


def _read(text: str | None, read: Callable[[str], Answer], takes: str) -> Answer | None:
    try:
        return None if text is None else read(text)
    except ValueError:
        raise UsageError(f"{takes}, but was given {text!r}") from None


def _share(text: str) -> float:
    number = text.strip()
    return float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)


def _slice(text: str) -> Steps:
    start, stop = (int(end) if end.strip() else None for end in text.split(":"))
    return start, stop


MAGICS = {
    "tracegrad": Magic(
        name="%%tracegrad",
        does="Run the cell and show its backward graph while it runs: where gradients vanish, explode or turn into "
        "NaN.",
        makes="TraceReport",
        takes={
            "--title": value("TEXT", "a name for the run; by default the model's", default=""),
            "--level": {
                "choices": ("grad", "ops"),
                "default": "grad",
                "help": "ops: also record every operation, forward and backward, with time, memory and writes",
            },
            "--forward": flag("also measure the output of every operation"),
            "--values": flag(
                "show values and gradients themselves of at most 4 elements; small graphs show them anyway"
            ),
            "--stop": {
                "choices": ("nan",),
                "help": "end the run at the first NaN or Inf, at your line: %%debug then shows the tensors there",
            },
            "--ranks": value(
                "FOLDER",
                "write this rank's records into that folder, for %%ranks; without a folder: run the cell on all "
                "engines of the ipyparallel client, and show their ranks",
                nargs="?",
                const="",
            ),
            "--memory": flag("also show the memory of this run, as %%%%gpumem does"),
            "--writes": flag("also show its in-place writes, as %%%%aliases does"),
            "--draws": flag("also show its random numbers, as %%%%rng does"),
            "--budget": value("SHARE", "trace as many steps as fit into this share of the run's time: 5%%"),
            "--every": value("N", "trace one step in N, starting with the first"),
            "--steps": value("A:B", "trace the steps A to B, excluding B, as in a slice; steps count from 1"),
            "--live": {**MODES, "help": "how to show it while it runs"},
        },
        follow=_followed,
    )
}
