"""``%compare A B``: two traced runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, check_expression, make_parser, unquoted
from tensormagic.magics.display import check
from tensormagic.magics.names import value_of
from tensormagic.reports import ComparisonReport, Report, TraceReport

NAME = "%compare"


def parser() -> Parser:
    """Return the parser of ``%compare``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Compare two traced runs: graph structure, first diverging step, gradient ratios and loss.",
        ComparisonReport,
    )
    made.add_argument(
        "run",
        nargs="*",
        metavar="RUN",
        help="two runs: names that %%%%tracegrad --into bound, or .json files from --save",
    )
    made.needs = "run"
    return made


def report(shell: Any, options: argparse.Namespace, output: Output) -> Report:
    """Return what is different between the two runs that the line names."""
    __tracebackhide__ = True
    check(output)
    if len(options.run) != 2:
        raise UsageError(f"{NAME} takes two runs, but was given {len(options.run)}: {', '.join(options.run)}")
    left, right = (_run_of(shell, given) for given in options.run)
    return api.compare(left, right, names=_names(options.run))


def _run_of(shell: Any, given: str) -> Any:
    """Return the saved run's path, or what the expression gives in the person's namespace."""
    if path := _path(given):
        return path
    check_expression(given)
    if given.isidentifier() and given not in shell.user_ns:
        runs = [name for name, value in shell.user_ns.items() if isinstance(value, TraceReport | api.Trace)]
        raise UsageError(
            f"there is no name {given!r} here; a run is a name that %%tracegrad --into NAME bound; here "
            f"{'are' if len(runs) > 1 else 'is'} {', '.join(runs) or 'none'}"
        )
    return value_of(shell, given)


def _path(given: str) -> Path | None:
    text = unquoted(given) or ""
    return Path(text).expanduser() if text.endswith(".json") else None


def _names(given: list[str]) -> tuple[str, str]:
    """Return what to call the runs: as they were typed; files by their names alone, where these differ."""
    short = [path.stem if (path := _path(one)) else one for one in given]
    first, second = short if short[0] != short[1] else given
    return first, second
