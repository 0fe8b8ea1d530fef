"""``%why EXPR``: why a gradient is None, zero, NaN, or what it is."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Parser, check_expression, expressions, make_parser, output_of, unquoted
from tensormagic.magics.display import deliver
from tensormagic.magics.live_output import last_report
from tensormagic.magics.names import value_of

NAME = "%why"


def parser() -> Parser:
    """Return the parser of ``%why``; its help is the magic's help."""
    made = make_parser(NAME, "Say why a gradient is None, zero, NaN, or what it is: the way to the loss, and its end.")
    made.add_argument("expression", nargs="*", help="a tensor, x.grad, or a model: x  net.fc1.weight  net")
    made.add_argument(
        "--loss", metavar="EXPR", help="what backward was called on; by default what was computed from it"
    )
    return made


def run(shell: Any, line: str) -> None:
    """Answer about what ``line`` names.

    Raises:
        UsageError: for an unknown option, an unknown name, several expressions, or what has no gradient.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help or not options.expression:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return
    output, asked = output_of(options), expressions(options.expression)
    if len(asked) > 1:
        raise UsageError(f"{NAME} answers about one thing, but here are {len(asked)}: {', '.join(asked)}")
    refused = ""
    name = asked[0].removesuffix(".grad")
    value, loss = value_of(shell, name), _loss(shell, unquoted(options.loss))
    try:
        report = api.why(value, name, loss=loss, trace=last_report(shell), namespace=shell.user_ns)
    except TensorMagicError as error:
        refused = str(error)
    del value, loss
    if refused:  # raised here, not above: the first error's frames would keep the tensor
        raise UsageError(refused)
    deliver(shell, report, output)


def _loss(shell: Any, expression: str | None) -> Any:
    __tracebackhide__ = True
    if expression is None:
        return None
    check_expression(expression)
    return value_of(shell, expression)
