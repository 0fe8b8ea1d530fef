"""``%tensors [NAMES]``: every tensor a person has, as a table."""

from __future__ import annotations

import argparse
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, expressions, make_parser
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


def report(shell: Any, options: argparse.Namespace, _output: Output) -> TensorTable:
    """Return the table of the tensors that the person's names reach, or those that the line names."""
    __tracebackhide__ = True
    asked = expressions(options.expression)
    named = {path_of(expression): value_of(shell, expression) for expression in asked}
    return api.tensors(named or own_namespace(shell), title=", ".join(asked))
