"""Names and expressions on a magic's line: checked before they are evaluated, so that a typing error is named."""

from __future__ import annotations

import ast
import builtins
import difflib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.error import UsageError

from tensormagic.collectors import requirements
from tensormagic.magics.frames import Explained
from tensormagic.views.page.figures import KINDS

MOST_NAMES = 6  # of the user's latest tensors, where nothing resembles the name that was typed


def value_of(shell: Any, expression: str) -> Any:
    """Return what an expression gives in the user namespace; its own errors come through as they are.

    Raises:
        UsageError: where a name in it is not there, or a path leads to nothing; near ones are named.
    """
    __tracebackhide__ = True
    check_names(shell, expression)
    with paths_told(expression), Explained(shell, expression):
        return eval(expression, shell.user_global_ns, shell.user_ns)  # noqa: S307  (evaluating it is what was asked for)


@contextmanager
def paths_told(expression: str) -> Iterator[None]:
    """Report in one line an attribute or key that is not there, ``net.wieght`` or ``d["c"]``; other errors go on."""
    __tracebackhide__ = True
    try:
        yield
    except (AttributeError, LookupError) as error:
        if not (_is_path(expression) or _is_typed_attribute(expression, error)):
            raise
        raise UsageError(_nothing_there(expression, error)) from None


_PATH = (ast.Expression, ast.Attribute, ast.Subscript, ast.Name, ast.Constant, ast.Load, ast.Slice, ast.Tuple,
         ast.UnaryOp, ast.USub)  # fmt: skip


def _is_path(expression: str) -> bool:
    """Return whether an expression only looks something up: attributes, keys and indices of a name."""
    return all(isinstance(node, _PATH) for node in ast.walk(ast.parse(expression, mode="eval")))


def _is_typed_attribute(expression: str, error: AttributeError | LookupError) -> bool:
    """Return whether the expression itself asks for the attribute that is missing, not code that it calls."""
    nodes = ast.walk(ast.parse(expression, mode="eval"))
    if getattr(error, "name", None) not in {node.attr for node in nodes if isinstance(node, ast.Attribute)}:
        return False
    called = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "<module>" in called and set(called[called.index("<module>") + 1 :]) <= {"__getattr__"}


def _nothing_there(expression: str, error: AttributeError | LookupError) -> str:
    """Return what a path leads to that is not there."""
    if not isinstance(error, AttributeError):
        return f"{type(error).__name__}: {error}"
    nodes = ast.walk(ast.parse(expression, mode="eval"))
    owners = [ast.unparse(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == error.name]
    near = difflib.get_close_matches(str(error.name), [name for name in dir(error.obj) if name[0] != "_"], n=3)
    known = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{owners[0]} has no {error.name}{known}" if owners else str(error)


def own_namespace(shell: Any) -> dict[str, Any]:
    """Return the user's names, without those that IPython put there."""
    return {name: value for name, value in shell.user_ns.items() if name not in shell.user_ns_hidden}


def path_of(expression: str) -> str:
    """Return an expression so that an index or an attribute can be written behind it: ``(a, b)`` for ``a, b``."""
    return expression if requirements.binds_tightly(expression) else f"({expression})"


def check_names(shell: Any, expression: str) -> None:
    """Raise where a name is not there, naming near ones: a typing error is the commonest."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    known = bound | {*shell.user_ns, *shell.user_global_ns, *dir(builtins)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in known:
            raise UsageError(f"there is no name {node.id!r} here{_near(shell, node.id)}")


def _near(shell: Any, name: str) -> str:
    if name in KINDS:
        return f"; a kind of figure is joined to its option: --figure={name}"
    own = [known for known in shell.user_ns if not known.startswith("_") and known not in shell.user_ns_hidden]
    near = difflib.get_close_matches(name, own, n=3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    tensors = [known for known in own if requirements.is_tensor(shell.user_ns[known])][-MOST_NAMES:]
    return f"; tensors here: {', '.join(tensors)}" if tensors else "; there are no tensors yet"
