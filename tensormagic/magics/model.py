"""``%model EXPR``: a model as a tree of its modules."""

from __future__ import annotations

import argparse
from typing import Any

from tensormagic import api
from tensormagic.magics.arguments import Output, Parser, make_parser
from tensormagic.magics.frames import one_expression
from tensormagic.magics.live_output import last_report
from tensormagic.magics.names import value_of
from tensormagic.reports import ModelReport, Report

NAME = "%model"


def parser() -> Parser:
    """Return the parser of ``%model``; its help is the magic's help."""
    made = make_parser(
        NAME, "Show a model as a tree: shapes, parameters, frozen or not, memory, optimizer, gradients.", ModelReport
    )
    made.add_argument("expression", nargs="*", help="a model, or a call of one, which runs: net  net(x)  net.encoder")
    made.needs = "expression"
    return made


def report(shell: Any, options: argparse.Namespace, _output: Output) -> Report:
    """Return the model that the line names, or calls."""
    __tracebackhide__ = True
    expression = one_expression(options, f"{NAME} shows one model, but here are {{}}")

    def evaluated() -> Any:
        __tracebackhide__ = True
        return value_of(shell, expression)

    return api.model(evaluated, expression, trace=last_report(shell), namespace=shell.user_ns)
