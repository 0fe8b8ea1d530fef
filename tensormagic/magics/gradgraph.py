"""``%gradgraph EXPR``: the graph that a backward from here would run through, before it does."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Parser, expressions, make_parser, output_of
from tensormagic.magics.display import deliver
from tensormagic.magics.names import value_of

NAME = "%gradgraph"


def parser() -> Parser:
    """Return the parser of ``%gradgraph``; its help is the magic's help."""
    made = make_parser(NAME, "Draw the autograd graph that leads to a tensor, and say what it keeps for backward.")
    made.add_argument("expression", nargs="*", help="a Python expression that gives something computed: loss")
    return made


def run(shell: Any, line: str) -> None:
    """Draw the graph of what ``line`` names.

    Raises:
        UsageError: for an unknown option, an unknown name, several expressions, or something without a graph.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help or not options.expression:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return
    output, asked = output_of(options), expressions(options.expression)
    if len(asked) > 1:
        raise UsageError(f"{NAME} draws one graph, but here are {len(asked)} expressions: {', '.join(asked)}")
    value = value_of(shell, asked[0])
    refused = ""
    try:
        report = api.gradgraph(value, asked[0], namespace=shell.user_ns)
    except TensorMagicError as error:
        refused = str(error)
    del value
    if refused:  # raised here, not above: the first error's frames would keep the tensor
        raise UsageError(refused)
    deliver(shell, report, output)
