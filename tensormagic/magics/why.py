"""``%why EXPR``: why a gradient is None, zero, NaN, or what it is."""

from __future__ import annotations

import argparse
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Parser, check_expression, make_parser, unquoted
from tensormagic.magics.live_output import last_report
from tensormagic.magics.names import value_of
from tensormagic.magics.one_report import show_one
from tensormagic.reports import Report, WhyReport

NAME = "%why"


def parser() -> Parser:
    """Return the parser of ``%why``; its help is the magic's help."""
    made = make_parser(
        NAME, "Explain why a gradient is None, zero or NaN: the path to the loss, and where it breaks.", WhyReport
    )
    made.add_argument("expression", nargs="*", help="a tensor, x.grad, or a model: x  net.fc1.weight  net")
    made.add_argument(
        "--loss", metavar="EXPR", help="what backward was called on; by default a tensor that was computed from EXPR"
    )
    return made


def run(shell: Any, line: str) -> None:
    """Answer about what ``line`` names.

    Raises:
        UsageError: for an unknown option, an unknown name, several expressions, or what has no gradient.
    """
    __tracebackhide__ = True
    show_one(shell, line, parser(), only="answers about one thing, but here are {}", make=_answer)


def _answer(shell: Any, options: argparse.Namespace, expression: str) -> Report:
    __tracebackhide__ = True
    name = expression.removesuffix(".grad")
    value, loss = value_of(shell, name), _loss(shell, unquoted(options.loss))
    return api.why(value, name, loss=loss, trace=last_report(shell), namespace=shell.user_ns)


def _loss(shell: Any, expression: str | None) -> Any:
    __tracebackhide__ = True
    if expression is None:
        return None
    check_expression(expression)
    return value_of(shell, expression)
