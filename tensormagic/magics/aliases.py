"""``%aliases [NAMES]``: who shares memory with whom."""

from __future__ import annotations

import argparse
from typing import Any

from tensormagic import api
from tensormagic.magics import writes
from tensormagic.magics.arguments import Output, Parser, expressions, make_parser
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
    made.also = (writes.parser(),)
    return made


def report(shell: Any, options: argparse.Namespace, _output: Output) -> AliasReport:
    """Return the memory that several names reach, or that of the tensors that the line names."""
    __tracebackhide__ = True
    only = {expression: value_of(shell, expression) for expression in expressions(options.expression)}
    return api.aliases(own_namespace(shell), only=only or None)
