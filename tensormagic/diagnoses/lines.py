"""A line of the user's as code: what it calls, binds and writes to, and the same line with a part of it mended."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from textwrap import indent
from typing import NamedTuple

from tensormagic.reports import Finding, Location
from tensormagic.reports.failure import SavedWrite
from tensormagic.words import binding, syntax

LONGEST = 72  # characters of a line that are quoted

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "floor_divide": "//", "floordiv": "//",
    "matmul": "@", "pow": "**", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&",
    "or": "|", "xor": "^",
}  # fmt: skip
"""How code writes a function of two operands, by its name; of one sign, the last is the method of an operator."""

# Reading code.


def text_of(place: Location | None) -> str:
    """Return the text of a line; empty where the line is not known."""
    return place.text if place is not None else ""


def parsed(code: str) -> ast.Module | None:
    """Return code as its syntax tree; None for what is no Python."""
    try:
        tree: ast.Module = syntax(code)
    except (SyntaxError, ValueError):
        return None
    return tree


def tree_of(code: str) -> ast.Module | None:
    """Return code as its syntax tree; None for what is not a statement on its own, or is left open for the user."""
    return None if not code or "…" in code or "..." in code else parsed(code)


def only_statement(tree: ast.Module | None) -> ast.stmt | None:
    """Return the one statement of a tree; None where it is none, or several."""
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def statement_of(code: str) -> ast.stmt | None:
    """Return code as its one statement; None where it is none, or several, or is left open for the user."""
    return only_statement(tree_of(code))


def expression_of(code: str) -> ast.expr | None:
    """Return code as the expression that it is; None where it is none."""
    try:
        found: ast.expr = syntax(code, "eval").body
    except (SyntaxError, ValueError):
        return None
    return found


def is_code(lines: str) -> bool:
    """Return whether these are whole statements, or end in the head of one."""
    return tree_of(f"{lines} pass" if lines.endswith(":") else lines) is not None


def expressions(line: str) -> Iterator[ast.expr]:
    """Yield every expression of a line, the outer ones first."""
    tree = tree_of(line)
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.expr)) if tree is not None else ()


def names_in(line: str) -> set[str]:
    """Return the names that the expressions of a line read or bind."""
    return {node.id for node in expressions(line) if isinstance(node, ast.Name)}


def call_on(line: str, *names: str) -> ast.Call | None:
    """Return the one call of a line of a function or method of these names."""
    calls = [node for node in expressions(line) if isinstance(node, ast.Call) and called_function(node) in names]
    return calls[0] if len(calls) == 1 else None


def called_function(call: ast.Call) -> str:
    """Return the name of what is called, without what it is an attribute of."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return what a call is given for a keyword; None where it is not given."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def set_keyword(call: ast.Call, name: str, value: ast.expr | None) -> None:
    """Give a call a value for a keyword, in place of the one it has; None takes the keyword out."""
    places = [one for one in call.keywords if one.arg == name]
    if value is None:
        call.keywords = [one for one in call.keywords if one.arg != name]
    elif places:
        places[0].value = value
    else:
        call.keywords.append(ast.keyword(name, value))


def operand_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return what a function of torch's, or a method of a tensor's, of this name is called on."""
    if called_function(call) != name or not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    if ast.unparse(owner) in {"torch", "F", "nn.functional", "torch.nn.functional"}:
        return call.args[0] if call.args else None
    return owner


def targets(code: str) -> tuple[str, ...]:
    """Return what a line assigns to."""
    statement = statement_of(code)
    if isinstance(statement, ast.Assign):
        return tuple(ast.unparse(target) for target in statement.targets)
    return (ast.unparse(statement.target),) if isinstance(statement, ast.AugAssign) else ()


def remedy_code(finding: Finding) -> list[str]:
    """Return the pieces of code in the remedy."""
    return re.findall(r"`([^`]+)`", finding.remedy)


# Writing code.


def as_code(name: str) -> str:
    """Return a module's or parameter's name as Python takes it: ``net.layers[2].weight``; code as it is."""
    return name if is_code(name) else re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)


def of_model(name: str) -> str:
    """Return a model or its parameter as code; ``model`` stands for one in a function, known by its class alone."""
    return as_code(re.sub(r"^[A-Z][A-Za-z0-9]{2,}(#\d+)?(?=\.|$)", "model", name))


def rebound(expression: str, method: str) -> str:
    """Return code that calls a method: ``x = x.clone()`` of a name, ``net.weight[0].clone()`` of anything else."""
    called = f"{binding(expression)}.{method}"
    return f"{expression} = {called}" if expression.isidentifier() else called


def atom(node: ast.expr) -> str:
    """Return an expression so that an attribute of it can be written."""
    return binding(ast.unparse(node))


def shortened_code(node: ast.AST) -> str:
    """Return a piece of source as code, shortened."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def only_place(line: str, code: str) -> ast.expr | None:
    """Return the one place of a line at which an expression stands; None where there is none, or several."""
    wanted = expression_of(code)
    found = [node for node in expressions(line) if wanted is not None and ast.unparse(node) == ast.unparse(wanted)]
    return found[0] if len(found) == 1 else None


def within(inner: ast.expr, outer: ast.expr) -> bool:
    """Return whether one expression of a line lies in another."""
    return outer.col_offset <= inner.col_offset and (inner.end_col_offset or 0) <= (outer.end_col_offset or 0)


def spliced(line: str, node: ast.expr, code: str) -> str:
    """Return the line with other code in the place of an expression; all else stays as it is written."""
    if node.lineno != 1 or node.end_lineno != 1 or node.end_col_offset is None:
        return ""
    raw = line.encode()
    return (raw[: node.col_offset] + code.encode() + raw[node.end_col_offset :]).decode()


def with_create_graph(line: str) -> str:
    """Return a line whose one call of ``autograd.grad`` keeps a graph; empty where there is no such call."""
    call = call_on(line, "grad")
    if call is None or any(each.arg is None for each in call.keywords):
        return ""
    if place := keyword_of(call, "create_graph"):
        return spliced(line, place, "True")
    end = line.encode()[: call.end_col_offset].decode()
    return f"{end[:-1]}, create_graph=True){line[len(end) :]}"


def without_out(line: str) -> str:
    """Return ``x = torch.mul(a, b)`` of ``torch.mul(a, b, out=x)``; empty for any other line."""
    statement = statement_of(line)
    call = statement.value if isinstance(statement, ast.Expr) else None
    out = keyword_of(call, "out") if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(out, ast.Name):
        return ""
    set_keyword(call, "out", None)
    return f"{out.id} = {ast.unparse(call)}"


# An update by hand: ``w = w - lr * w.grad`` makes a new tensor.

NO_GRAD = "with torch.no_grad(): "
UPDATE_IN_PLACE = "Change the leaf in place, so that it stays one: `{}`."


class ByHand(NamedTuple):
    """An update that makes new tensors, and the same in place: ``w -= lr * w.grad``, with the loop around it."""

    name: str  #: What gets the new tensors.
    in_place: str
    several: bool = False  #: Whether that is a list or a dictionary of them.


def update_by_hand(line: str, *, of_leaf: bool = False) -> ByHand | None:
    """Return what a line updates by making new tensors; None of any other line.

    A ``.detach()`` or ``.data`` of what was there is left out: in place and under ``no_grad`` it is not needed. Where
    it is not known to change a leaf (``of_leaf``) it has to name the gradient of what it changes.
    """
    return _by_hand(statement_of(line), of_leaf=of_leaf)


def under_no_grad(code: str) -> str:
    """Return a statement that autograd does not record: on one line, unless it has a loop of its own."""
    return _under("with torch.no_grad():", code)


def _under(head: str, code: str) -> str:
    return f"{head}\n{indent(code, '    ')}" if code.startswith(("for ", "with ")) else f"{head} {code}"


def _by_hand(statement: ast.stmt | None, *, of_leaf: bool) -> ByHand | None:
    if isinstance(statement, ast.For | ast.With) and len(statement.body) == 1:
        inner = _by_hand(statement.body[0], of_leaf=of_leaf)
        head = ast.unparse(statement).split("\n")[0]
        return inner and inner._replace(in_place=_under(head, inner.in_place))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and of_leaf:
        operand = operand_of(statement.value, called_function(statement.value))
        in_place = _in_place(statement.value, None, of_leaf=True)
        return ByHand(ast.unparse(operand), in_place) if operand is not None and in_place else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return None
    target, value = statement.targets[0], statement.value
    if isinstance(value, ast.ListComp | ast.DictComp) and len(value.generators) == 1:
        each = value.elt if isinstance(value, ast.ListComp) else value.value
        loop = ast.unparse(value.generators[0]).strip().removeprefix("for ")
        changed = _in_place(each, None, of_leaf=of_leaf) if not value.generators[0].ifs else ""
        return ByHand(ast.unparse(target), f"for {loop}: {changed}", several=True) if changed else None
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
    found = [_in_place(after, before, of_leaf=of_leaf) for before, after in pairs]
    return ByHand(ast.unparse(pairs[0][0]), "; ".join(found)) if all(found) else None


_KEEPING = re.compile(r"\.(?:data|detach\(\)|clone\(\))$")  # not needed in place
_SIGNED = {"torch.sub": ast.Sub, "torch.add": ast.Add, "torch.mul": ast.Mult, "torch.div": ast.Div}
_METHODS = frozenset({"clamp", "clip", "clamp_min", "clamp_max", "add", "sub", "mul", "div", "round", "abs", "renorm",
                      "nan_to_num"})  # fmt: skip


def _in_place(value: ast.expr, target: ast.expr | None, *, of_leaf: bool) -> str:
    """Return ``w -= x`` of the value ``w - x`` that ``target`` gets, or of ``torch.sub(w, x)``; empty of any other.

    Of a leaf it may be another change as well: ``w.clamp_(0, 1)`` of ``w.detach().clamp(0, 1).requires_grad_()``.
    """
    while isinstance(value, ast.Call) and (kept := called_function(value)) in {"detach", "clone", "requires_grad_"}:
        value = operand_of(value, kept) or ast.Constant(None)
    method = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
    if isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        operator = _SIGNED.get(ast.unparse(value.func))
        value = ast.BinOp(value.args[0], operator(), value.args[1]) if operator else value
    changed = value.left if isinstance(value, ast.BinOp) else None
    if isinstance(value, ast.Call):
        changed = operand_of(value, method)
    name = _KEEPING.sub("", ast.unparse(changed)) if changed is not None else ""
    if changed is None or (target is not None and name != ast.unparse(target)):
        return ""
    if isinstance(value, ast.BinOp):
        sign = {ast.Sub: "-", ast.Add: "+", **({ast.Mult: "*", ast.Div: "/"} if of_leaf else {})}.get(type(value.op))
        right = ast.unparse(value.right)
        return f"{name} {sign}= {right}" if sign and (of_leaf or f"{name}.grad" in right) else ""
    if not isinstance(value, ast.Call) or not of_leaf or method not in _METHODS:
        return ""
    given = ", ".join(ast.unparse(one) for one in (*value.args, *value.keywords) if one is not changed)
    return f"{name}.{method}_({given})"


# Which part of a line writes to memory, how to say it, and what to write instead.

# What torch is called with for an operator: ``y += 1`` reaches it as ``add_``.
_OPERATOR_CALLS = {
    "add_": ast.Add, "sub_": ast.Sub, "mul_": ast.Mult, "div_": ast.Div, "pow_": ast.Pow, "floor_divide_": ast.FloorDiv,
    "remainder_": ast.Mod,
}  # fmt: skip


# Methods of which there is no other that makes a new tensor: ``x.zero()`` is none.
ONLY_IN_PLACE = frozenset({
    "apply_", "cauchy_", "copy_", "exponential_", "fill_", "fill_diagonal_", "geometric_", "log_normal_", "map2_",
    "map_", "normal_", "random_", "resize_as_sparse_", "set_", "share_memory_", "sparse_resize_",
    "sparse_resize_and_clear_", "uniform_", "zero_",
})  # fmt: skip


def statements_of(place: Location | None) -> list[ast.stmt]:
    """Return the statements of a line; none where it is not whole: of a longer one, the head is read."""
    text = text_of(place)
    trees = map(parsed, (text, f"{text} pass", f"{text})"))
    return next((_flat(tree.body) for tree in trees if tree is not None), [])


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements, those in a ``for`` or ``if`` on the same line besides."""
    found = []
    for statement in body:
        inner = getattr(statement, "body", [])
        found += [statement, *_flat(inner if isinstance(inner, list) else [])]
    return found


def writing(write: SavedWrite) -> ast.AST | None:
    """Return what in the line makes the write; None where a function or module that it calls does."""
    nodes = (node for statement in statements_of(write.location) for node in ast.walk(statement))
    return next((node for node in nodes if _makes(node, write)), None)


def _makes(node: ast.AST, write: SavedWrite) -> bool:
    if isinstance(node, ast.AugAssign):
        operator = _OPERATOR_CALLS.get(write.call)
        is_operator = operator is not None and isinstance(node.op, operator)
        return is_operator or write.call.startswith("__i") or write.call.endswith("__")
    if isinstance(node, ast.Assign):
        if write.kind == "set data":
            return any(isinstance(target, ast.Attribute) and target.attr == "data" for target in node.targets)
        return write.call == "__setitem__" and any(isinstance(target, ast.Subscript) for target in node.targets)
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if write.kind == "step":
        return name == "step"
    return name == write.call or (write.kind == "out" and keyword_of(node, "out") is not None)


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


def described_write(write: SavedWrite) -> str:
    """Return what wrote, in words: ```y += 1```, ``relu_ in net.1``, ```optimizer.step()```."""
    if (node := writing(write)) is not None:
        return f"`{shortened_code(node)}`"
    if write.kind == "step":
        return f"{write.call.removesuffix('.step')}'s step"
    call = "an assignment to a part of it" if write.call == "__setitem__" else f"`{write.call}`"
    return f"{call} in {write.module}" if write.module else call


def instead_of_write(write: SavedWrite) -> str:
    """Return what to do instead of a write in place, as code where the line says enough."""
    node = writing(write)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        target, value = ast.unparse(node.target), ast.unparse(node.value)
        sign = ast.unparse(node).removeprefix(target).partition("=")[0].strip()
        value = f"({value})" if _binds_weaker(node.value, node.op) else value
        return f"Make a new tensor: `{target} = {target} {sign} {value}`."
    if write.call == "__setitem__" or isinstance(node, ast.AugAssign):
        return _into_a_copy(target_of(node), node)
    if write.kind == "out":
        return "Leave out `out=`: the call then makes a new tensor."
    return _instead_of_method(write, node) if write.call.endswith("_") else ""


def _instead_of_method(write: SavedWrite, node: ast.AST | None) -> str:
    """The same of ``relu_`` and its like."""
    if node is None and write.module:
        return f"Make {write.module} work on a new tensor: `{as_code(write.module)}.inplace = False`."
    if write.call not in ONLY_IN_PLACE:
        return f"Use `{write.call.rstrip('_')}` instead of `{write.call}`: it makes a new tensor."
    if write.call == "zero_" and (name := target_of(node)):
        return f"Make a new tensor: `{name} = torch.zeros_like({name})`."
    return _into_a_copy(target_of(node), node)


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
    """Return the name that a line binds; of several, or of several statements, those it also reads and hands on."""
    statements = [statement for statement in statements_of(location) if isinstance(statement, ast.Assign)]
    found: list[str] = []
    for statement in statements:
        names = [ast.unparse(item) for target in statement.targets for item in _items(target)]
        value = ast.unparse(statement.value)
        read = [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", value)]
        found += names if len(names) == len(statements) == 1 else read
    return found


def _items(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [item for element in target.elts for item in _items(element)]
    return [target] if isinstance(target, ast.Name | ast.Attribute) else []
