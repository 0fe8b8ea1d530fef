"""``%ranks runs/a``: the ranks of a run, held against each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, check_expression, make_parser, unquoted
from tensormagic.magics.display import check
from tensormagic.magics.names import value_of
from tensormagic.reports import RankReport

NAME = "%ranks"


def parser() -> Parser:
    """Return the parser of ``%ranks``; its help is the magic's help."""
    made = make_parser(NAME, "Compare the ranks of a run: what differs, on which rank and from when.", RankReport)
    made.add_argument(
        "run",
        nargs="*",
        metavar="RUN",
        help="the folder that every rank was given as tensormagic.trace(ranks=...), or a list of their trace reports",
    )
    made.needs = "run"
    return made


def report(shell: Any, options: argparse.Namespace, output: Output) -> RankReport:
    """Return the ranks of the run that the line names."""
    __tracebackhide__ = True
    check(output)
    if len(options.run) != 1:
        raise UsageError(f"{NAME} takes one run, but was given {len(options.run)}: {', '.join(options.run)}")
    return api.ranks(_run_of(shell, options.run[0]))


def _run_of(shell: Any, given: str) -> Any:
    """Return the folder, or what the expression gives in the person's namespace."""
    text = unquoted(given) or ""
    path = Path(text).expanduser()
    names = given.split(".")
    is_name = all(name.isidentifier() for name in names)
    if text != given or path.is_dir() or not (is_name or set(given) & set("[(")):
        return path
    if is_name and names[0] not in shell.user_ns:
        raise UsageError(f"there is no folder or name {given!r}; tensormagic.trace(ranks=...) writes such a folder")
    check_expression(given)
    return value_of(shell, given)
