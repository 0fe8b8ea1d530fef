"""``%ranks runs/a``: the ranks of a run, held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Parser, check_expression, make_parser, output_of, unquoted
from tensormagic.magics.display import check, deliver
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
    return made


def run(shell: Any, line: str) -> None:
    """Show the ranks of the run that ``line`` names.

    Raises:
        UsageError: for an unknown option, other than one run, or what no rank wrote.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help or not options.run:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return
    output = output_of(options)
    check(output)
    if len(options.run) != 1:
        raise UsageError(f"{NAME} takes one run, but was given {len(options.run)}: {', '.join(options.run)}")
    try:
        report = api.ranks(_run_of(shell, options.run[0]))
    except TensorMagicError as error:
        raise UsageError(str(error)) from None
    deliver(shell, report, output)


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
