"""``%tensors [NAMES]``: every tensor a person has, as a table."""

from __future__ import annotations

from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Parser, expressions, make_parser, output_of
from tensormagic.magics.display import deliver
from tensormagic.magics.names import own_namespace, path_of, value_of
from tensormagic.reports import TensorTable

NAME = "%tensors"


def parser() -> Parser:
    """Return the parser of ``%tensors``; its help is the magic's help."""
    made = make_parser(
        NAME, "List all your tensors and NumPy arrays: shape, dtype, bytes, shared memory, gradient.", TensorTable
    )
    made.add_argument("expression", nargs="*", help="list only the tensors in these: net  batch  optimizer")
    return made


def run(shell: Any, line: str) -> None:
    """List the tensors that the person's names reach, or those that ``line`` names.

    Raises:
        UsageError: for an unknown option or an unknown name.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return
    output, asked = output_of(options), expressions(options.expression)
    named = {path_of(expression): value_of(shell, expression) for expression in asked}
    deliver(shell, api.tensors(named or own_namespace(shell), title=", ".join(asked)), output)
