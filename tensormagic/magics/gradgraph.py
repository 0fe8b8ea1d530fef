"""``%gradgraph EXPR``: the graph that a backward from here would run through, before it does."""

from __future__ import annotations

import argparse
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import Parser, make_parser
from tensormagic.magics.names import value_of
from tensormagic.magics.one_report import show_one
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
    return made


def run(shell: Any, line: str) -> None:
    """Draw the graph of what ``line`` names.

    Raises:
        UsageError: for an unknown option, an unknown name, several expressions, or something without a graph.
    """
    __tracebackhide__ = True
    show_one(shell, line, parser(), only="draws one graph, but here are {} expressions", make=_graph)


def _graph(shell: Any, _options: argparse.Namespace, expression: str) -> Report:
    __tracebackhide__ = True
    value = value_of(shell, expression)
    if hasattr(value, "named_parameters"):
        raise UsageError(
            f"{expression} is a model and has no graph: draw what it computes, {NAME} {expression}(x).sum()"
        )
    return api.gradgraph(value, expression, namespace=shell.user_ns)
