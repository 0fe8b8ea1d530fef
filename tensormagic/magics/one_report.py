"""What the magics have in common that make one report of one expression: ``%why`` and ``%gradgraph``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError

from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Parser, expressions, output_of
from tensormagic.magics.display import deliver
from tensormagic.reports import Report

Make = Callable[[Any, argparse.Namespace, str], Report]


def show_one(shell: Any, line: str, parser: Parser, *, only: str, make: Make) -> None:
    """Show the report of the one expression on a line, or the help.

    Args:
        shell: The shell.
        line: What stands behind the magic.
        parser: The magic's parser, whose argument is called ``expression``.
        only: What is said where there are several, with a place for their number: ``"draws one, but here are {}"``.
        make: Makes the report, of the shell, the options and the expression.

    Raises:
        UsageError: for an unknown option, several expressions, or something of which there is no such report.
    """
    __tracebackhide__ = True
    options = parser.parse_line(line)
    if options.help or not options.expression:
        print(parser.format_help().rstrip())  # noqa: T201  (asked for)
        return
    output, asked = output_of(options), expressions(options.expression)
    if len(asked) > 1:
        raise UsageError(f"{parser.prog} {only.format(len(asked))}: {', '.join(asked)}")
    refused = ""
    try:
        report = make(shell, options, asked[0])
    except TensorMagicError as error:
        refused = str(error)
    if refused:  # raised here, not above: the first error's frames would keep the tensor
        raise UsageError(refused)
    deliver(shell, report, output)
