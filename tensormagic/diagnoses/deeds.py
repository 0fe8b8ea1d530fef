"""Reads a line of the person's for what it does: which name it writes to, how to say it, and what to write instead."""

from __future__ import annotations

import ast
import re

from tensormagic.reports import Location
from tensormagic.reports.backward_faults import SavedWrite

LONGEST = 72  # characters of a line that are quoted

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
}  # fmt: skip
# What torch is called with for an operator: ``y += 1`` reaches it as ``add_``.
_OPERATOR_CALLS = {
    "add_": ast.Add, "sub_": ast.Sub, "mul_": ast.Mult, "div_": ast.Div, "pow_": ast.Pow, "floor_divide_": ast.FloorDiv,
    "remainder_": ast.Mod,
}  # fmt: skip


def parsed(location: Location | None) -> list[ast.stmt]:
    """Return the statements of a line; none where it is not whole: of a longer one, the head is read."""
    text = location.text if location is not None else ""
    trees = map(_parse, (text, f"{text} pass", f"{text})"))
    return next((_flat(tree.body) for tree in trees if tree is not None), [])


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements, those in a ``for`` or ``if`` on the same line besides."""
    found = []
    for statement in body:
        inner = getattr(statement, "body", [])
        found += [statement, *_flat(inner if isinstance(inner, list) else [])]
    return found


def writing(write: SavedWrite) -> ast.AST | None:
    """Return what in the line makes the write; None where a function or module that it calls does."""
    for node in (inner for statement in parsed(write.location) for inner in ast.walk(statement)):
        if isinstance(node, ast.AugAssign) and _is_operator(node, write.call):
            return node
        if isinstance(node, ast.Assign) and _is_assignment(node, write):
            return node
        if isinstance(node, ast.Call) and _is_call(node, write):
            return node
    return None


def _is_operator(node: ast.AugAssign, call: str) -> bool:
    plain = call.removeprefix("__i").removesuffix("__")
    known = _OPERATOR_CALLS.get(call)
    return (known is not None and isinstance(node.op, known)) or call.startswith("__i") or call == f"{plain}__"


def _is_assignment(node: ast.Assign, write: SavedWrite) -> bool:
    if write.kind == "set data":
        return any(isinstance(target, ast.Attribute) and target.attr == "data" for target in node.targets)
    return write.call == "__setitem__" and any(isinstance(target, ast.Subscript) for target in node.targets)


def _is_call(node: ast.Call, write: SavedWrite) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if write.kind == "step":
        return name == "step"
    return name == write.call or (write.kind == "out" and any(word.arg == "out" for word in node.keywords))


def code(node: ast.AST) -> str:
    """Return a piece of source as code, shortened."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def target_of(node: ast.AST | None) -> str:
    """Return the name that a statement or call writes to: ``"h"`` of ``h[0] = x`` and of ``h.relu_()``."""
    target: ast.expr | None = None
    if isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        target = node.func.value
    while isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
        target = target.value
    return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else ""


def deed(write: SavedWrite) -> str:
    """Return what wrote, in words: ```y += 1```, ``relu_ in net.1``, ```optimizer.step()```."""
    if (node := writing(write)) is not None:
        return f"`{code(node)}`"
    where = f" in {write.module}" if write.module else ""
    return f"{write.call.removesuffix('.step')}'s step" if write.kind == "step" else f"{called(write.call)}{where}"


def called(call: str) -> str:
    """Return a call's name as a person knows it."""
    return "an assignment to a part of it" if call == "__setitem__" else f"`{call}`"


def instead(write: SavedWrite) -> str:
    """Return what to do instead of a write in place, as code where the line says enough."""
    node = writing(write)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        target, value = ast.unparse(node.target), ast.unparse(node.value)
        value = f"({value})" if _binds_weaker(node.value, node.op) else value
        return f"Make a new tensor: `{target} = {target} {_OPERATORS[type(node.op)]} {value}`."
    if write.call == "__setitem__" or isinstance(node, ast.AugAssign):
        return _into_a_copy(target_of(node), node)
    if write.kind == "out":
        return "Leave `out=` away: the call then makes a new tensor."
    if write.call.endswith("_"):
        plain = write.call.rstrip("_")
        if node is None and write.module:
            return f"Make {write.module} work on a new tensor: `inplace=False`."
        return f"Use `{plain}` instead of `{write.call}`: it makes a new tensor."
    return ""


def update_by_hand(line: str) -> str:
    """Return an update that makes a new tensor as one in place: ``w -= lr * w.grad``; empty for any other line."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
        return ""
    name, value = ast.unparse(statement.targets[0]), statement.value
    if not isinstance(value.op, ast.Sub | ast.Add) or ast.unparse(value.left) != name or f"{name}.grad" not in line:
        return ""
    return f"{name} {_OPERATORS[type(value.op)]}= {ast.unparse(value.right)}"


def _binds_weaker(value: ast.expr, operator: ast.operator) -> bool:
    """Return whether a value needs parentheses on the right of an operator."""
    if isinstance(value, ast.BinOp):
        sums = isinstance(value.op, ast.Add | ast.Sub)
        return not isinstance(operator, ast.Add) and (sums or not isinstance(operator, ast.Sub))
    return isinstance(value, ast.IfExp | ast.BoolOp | ast.Compare)


def _into_a_copy(name: str, node: ast.AST | None) -> str:
    value = node.value if isinstance(node, ast.Assign | ast.AugAssign) else None
    if name and value is not None and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", ast.unparse(value)):
        return f"Collect the parts in a list and put them together at the end: `{name} = torch.stack(parts)`."
    name = name or "x"
    return (
        f"Write into a copy, `{name} = {name}.clone()` before it, or make a new tensor with `torch.where` or "
        "`torch.stack`."
    )


def assigned(location: Location | None) -> list[str]:
    """Return the names that a line binds; of several, those that it also reads (states that are handed on)."""
    for statement in parsed(location):
        if isinstance(statement, ast.Assign):
            names = [ast.unparse(item) for target in statement.targets for item in _items(target)]
            value = ast.unparse(statement.value)
            read = [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", value)]
            return names if len(names) == 1 else read
    return []


def _items(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [item for element in target.elts for item in _items(element)]
    return [target] if isinstance(target, ast.Name | ast.Attribute) else []
