"""``%tensor EXPR [EXPR ...]``: what a tensor is."""

from __future__ import annotations

import ast
import builtins
import difflib
from typing import Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.collectors import explain
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Parser, expressions, make_parser, output_of
from tensormagic.magics.display import deliver
from tensormagic.magics.together import show_together

NAME = "%tensor"
MOST_NAMES = 6  # of the person's latest tensors, where nothing resembles the name that was typed


def parser() -> Parser:
    """Return the parser of ``%tensor``; its help is the magic's help."""
    made = make_parser(
        NAME, "Show what a tensor is: metadata, strides, storage, who shares its memory, values, autograd."
    )
    made.add_argument("expression", nargs="*", help="Python expressions that give tensors: x  x.t()  net.fc.weight")
    return made


def run(shell: Any, line: str) -> None:
    """Inspect and show every tensor that ``line`` names.

    Raises:
        UsageError: for an unknown option, an unknown name, or something that is no tensor.
    """
    __tracebackhide__ = True
    options = parser().parse_line(line)
    if options.help or not options.expression:
        print(parser().format_help().rstrip())  # noqa: T201  (asked for)
        return
    output, asked = output_of(options), expressions(options.expression)
    if len(asked) > 1 and (output.save or output.into):
        raise UsageError(f"--save and --into take one tensor, but here are {len(asked)}: {', '.join(asked)}")
    found = []
    for expression in asked:  # a loop, not a comprehension: that would be a frame in the person's traceback
        found.append(_evaluated(shell, expression))  # noqa: PERF401  (as above)
    show_together(shell, {expression: one.value for expression, one in zip(asked, found, strict=True)}, output)
    for expression, one in zip(asked, found, strict=True):
        deliver(shell, _inspect(shell, expression, one), output)


def _evaluated(shell: Any, expression: str) -> Any:
    __tracebackhide__ = True
    _check_names(shell, expression)
    return api.evaluate(expression, shell.user_global_ns, shell.user_ns)


def _inspect(shell: Any, expression: str, found: Any) -> Any:
    __tracebackhide__ = True
    try:
        return api.inspect(found.value, expression, namespace=shell.user_ns, verdict=found.verdict)
    except TensorMagicError as error:
        raise UsageError(str(error)) from None


def _check_names(shell: Any, expression: str) -> None:
    """Raise where a name is not there, naming near ones: a typing error is the commonest."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known = bound | {*shell.user_ns, *shell.user_global_ns, *dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in known:
            raise UsageError(f"there is no name {node.id!r} here{_near(shell, node.id)}")


def _near(shell: Any, name: str) -> str:
    own = [known for known in shell.user_ns if not known.startswith("_") and known not in shell.user_ns_hidden]
    near = difflib.get_close_matches(name, own, n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    tensors = [known for known in own if explain.is_tensor(shell.user_ns[known])][-MOST_NAMES:]
    return f"; tensors here: {', '.join(tensors)}" if tensors else "; there are no tensors yet"
