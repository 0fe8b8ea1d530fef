"""``%why EXPR``: why a gradient is None, zero, NaN, or what it is."""

from __future__ import annotations

import argparse
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, check_expression, make_parser, unquoted
from tensormagic.magics.frames import one_expression
from tensormagic.magics.live_output import last_report
from tensormagic.magics.names import value_of
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
    made.needs = "expression"
    return made


def report(shell: Any, options: argparse.Namespace, _output: Output) -> Report:
    """Return the answer about what the line names."""
    __tracebackhide__ = True
    name = one_expression(options, f"{NAME} answers about one thing, but here are {{}}").removesuffix(".grad")
    value, loss = value_of(shell, name), _loss(shell, unquoted(options.loss))
    return api.why(value, name, loss=loss, trace=last_report(shell), namespace=shell.user_ns)


def _loss(shell: Any, expression: str | None) -> Any:
    __tracebackhide__ = True
    if expression is None:
        return None
    check_expression(expression)
    return value_of(shell, expression)
