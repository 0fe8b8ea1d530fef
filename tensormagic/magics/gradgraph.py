"""``%gradgraph EXPR``: the graph that a backward from here would run through, before it does."""

from __future__ import annotations

import argparse
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser
from tensormagic.magics.frames import one_expression
from tensormagic.magics.names import value_of
from tensormagic.reports import Report, TraceReport

NAME = "%gradgraph"


def parser() -> Parser:
    """Return the parser of ``%gradgraph``; its help is the magic's help."""
    made = make_parser(
        NAME,
        "Draw the autograd graph of a tensor, and what it saves for backward.",
        TraceReport,
        figures=False,
    )
    made.add_argument("expression", nargs="*", help="a Python expression for a tensor with a graph: loss")
    made.needs = "expression"
    return made


def report(shell: Any, options: argparse.Namespace, _output: Output) -> Report:
    """Return the graph of what the line names."""
    __tracebackhide__ = True
    expression = one_expression(options, f"{NAME} draws one graph, but here are {{}} expressions")
    value = value_of(shell, expression)
    if hasattr(value, "named_parameters"):
        raise UsageError(
            f"{expression} is a model and has no graph: draw what it computes, {NAME} {expression}(x).sum()"
        )
    return api.gradgraph(value, expression, namespace=shell.user_ns)
