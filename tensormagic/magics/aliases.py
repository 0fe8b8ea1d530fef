"""``%aliases [NAMES]``: who shares memory with whom."""

from __future__ import annotations

from typing import Any

from tensormagic import api
from tensormagic.magics import writes
from tensormagic.magics.arguments import Parser, expressions, make_parser, output_of, print_help
from tensormagic.magics.display import deliver
from tensormagic.magics.names import own_namespace, value_of
from tensormagic.reports import AliasReport

NAME = "%aliases"


def parser() -> Parser:
    """Return the parser of ``%aliases``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Show who shares memory with whom: every name, container, attribute and array, with exact overlaps.",
        AliasReport,
    )
    made.add_argument("expression", nargs="*", help="show only the memory of these: x  net.fc.weight  batch")
    return made


def run(shell: Any, line: str) -> None:
    """Show the memory that several names reach, or that of the tensors that ``line`` names.

    Raises:
        UsageError: for an unknown option or an unknown name.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help:
        print_help(parser(), writes.parser())  # a cell magic without a cell is refused by IPython, with --help too
        return
    output, asked = output_of(options), expressions(options.expression)
    only = {expression: value_of(shell, expression) for expression in asked}
    deliver(shell, api.aliases(own_namespace(shell), only=only or None), output)
