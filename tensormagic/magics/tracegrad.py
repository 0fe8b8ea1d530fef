"""``%%tracegrad``: a backward graph that lights up while the cell runs, and what went wrong."""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics import engines, pacing
from tensormagic.magics.arguments import Output, Parser, make_parser, output_of, pieces, unquoted
from tensormagic.magics.cell import CellSource, cell_number
from tensormagic.magics.display import check, deliver, is_notebook, relays_updates
from tensormagic.magics.live_output import last_report, shown
from tensormagic.reports import TraceReport

NAME = "%%tracegrad"


def parser() -> Parser:
    """Return the parser of ``%%tracegrad``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Run the cell and show its backward graph while it runs: where gradients vanish, explode or turn into NaN.",
        TraceReport,
    )
    made.add_argument("--title", default="", metavar="TEXT", help="a name for the run; by default the model's")
    made.add_argument(
        "--level", choices=("grad", "ops"), default="grad",
        help="ops: also record every operation, forward and backward, with time, memory and writes",
    )  # fmt: skip
    made.add_argument("--forward", action="store_true", help="also measure the output of every operation")
    made.add_argument(
        "--values", action="store_true",
        help="show values and gradients themselves where a tensor has at most 4 elements; of a small graph that is so "
        "without being asked",
    )  # fmt: skip
    made.add_argument(
        "--stop", choices=("nan",),
        help="end the run at the first NaN or Inf, at your line: %%debug then shows the tensors there",
    )  # fmt: skip
    made.add_argument(
        "--ranks", nargs="?", const="", metavar="FOLDER",
        help="append what this rank of a run does to a file in that folder, for %%ranks; alone: run the cell on all "
        "engines of the ipyparallel client here, and show their ranks",
    )  # fmt: skip
    made.add_argument("--memory", action="store_true", help="also show the memory of this run, as %%%%gpumem does")
    made.add_argument("--writes", action="store_true", help="also show its in-place writes, as %%%%aliases does")
    made.add_argument("--draws", action="store_true", help="also show its random numbers, as %%%%rng does")
    pacing.add_options(made)
    made.add_argument("--live", choices=("widget", "html", "off"), help="how to show it while it runs")
    return made


def run(shell: Any, line: str, cell: str | None, *, live: str) -> Any:
    """Trace the cell, show the report, and return the value of the cell's last expression.

    Whatever the cell raises goes on, unchanged, after the report of what happened is shown.

    Raises:
        UsageError: for an unknown option, a file that cannot be saved to, or no cell; nothing has run then.
    """
    __tracebackhide__ = "__ipython_bottom__"
    if cell is None and (given := pieces(line)) and not given[0].startswith("-"):
        raise UsageError(f"{NAME} must be alone in the first line of a cell, with the code below it")
    options = parser().parse_line(line)
    if options.help:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return None
    output, pace = output_of(options), pacing.pace(options)
    if options.stop and pace is not None:
        raise UsageError("--stop nan looks at every step: leave out --budget, --every and --steps")
    if options.ranks == "" and (options.memory or options.writes or options.draws):
        raise UsageError("--ranks alone compares the traces of all engines: leave out --memory, --writes and --draws")
    check(output)
    if cell is None:
        return _show_last(shell, output)
    if options.ranks == "":
        mode = options.live or live
        engines.run(shell, _for_engines(options), cell, output, live=mode != "off")
        return None
    source = CellSource(shell, cell, f"{NAME} {line}".rstrip())
    trace = api.Trace(
        shell.user_ns, source.cell, cell_number=functools.partial(cell_number, shell), title=_plain(options.title),
        level=options.level, forward=options.forward, values=options.values, stop=options.stop,
        pace=pace, ranks=unquoted(options.ranks),
    )  # fmt: skip
    trace.asked(memory=options.memory, writes=options.writes, draws=options.draws)
    mode = options.live or live
    if is_notebook(shell) and (output.text or output.figure is not None or not relays_updates(shell)):
        mode = "off"
    elif not is_notebook(shell) and mode != "off":
        mode = "terminal"
    with shown(shell, trace, output, mode), trace:
        return source.run(passed=trace.passed)


def _show_last(shell: Any, output: Output) -> None:
    """Show the last run once more: its output may be gone, with a page that was closed meanwhile."""
    report = last_report(shell)
    if report is None:
        raise UsageError(f"{NAME} runs a cell: write it with two percent signs in the cell's first line")
    deliver(shell, report, output)


def _for_engines(options: Any) -> str:
    """Return the options that an engine is given, too: those of how it is traced, not of what becomes of it here."""
    given = [f"--level {options.level}", *(f"--{name}" for name in ("forward", "values") if getattr(options, name))]
    return " ".join([*given, *(["--stop nan"] if options.stop else []), *pacing.given(options)])


def _plain(title: str) -> str:
    return title.strip("\"'")
