"""Puts probes into an expression: its syntax tree is compiled with ``probe @ part`` in place of each part.

A probe is handed the part's value and gives it on. It stands in the compiled code as a constant, so that no name has to
be added to anybody's namespace; ``@`` calls it without the warning that calling a constant would bring.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

_MARK = "\0tensormagic probe"
_WATCHED = (
    ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.NamedExpr, ast.IfExp,
)  # fmt: skip
CLOSED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)
_HANDS_ON = (ast.NamedExpr, ast.IfExp, ast.Starred, ast.keyword)  # their value is that of one of their parts
Part = ast.expr
Note = Callable[[Part, Any], None]


def probed_code(source: str, parts: Sequence[Part], note: Note) -> CodeType:
    """Return an expression compiled so that ``note(part, value)`` is called with what each of its parts gives.

    Args:
        source: The expression.
        parts: Its `open_parts`.
        note: Must not raise.
    """
    tree = ast.parse(source, mode="eval")
    tree.body = _Insert([_key(at) for at, _ in enumerate(parts)]).visit(tree.body)
    code = compile(ast.fix_missing_locations(tree), "<string>", "eval")
    probes = {_key(at): _Probe(part, note) for at, part in enumerate(parts)}
    return code.replace(co_consts=tuple(_looked_up(constant, probes) for constant in code.co_consts))


class _Probe:
    """Looks at the value of one part of the expression and hands it on."""

    __slots__ = ("_note", "_part")

    def __init__(self, part: Part, note: Note) -> None:
        self._part = part
        self._note = note

    def __matmul__(self, value: Any) -> Any:
        self._note(self._part, value)
        return value


def open_parts(part: ast.AST) -> list[Any]:
    """Return the parts to put a probe round, in the order in which the tree is walked."""
    if isinstance(part, CLOSED):
        return []
    found: list[Any] = []
    for child in _children(part):
        found += open_parts(child)
    if isinstance(part, _WATCHED) and not _is_written(part):
        found.append(part)
    return found


def _children(part: ast.AST) -> list[ast.AST]:
    """Return a part's parts; of a method call the object whose method it is, of a walrus what it binds."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        return [part.func.value, *part.args, *part.keywords]
    if isinstance(part, ast.NamedExpr):
        return [part.value]
    return list(ast.iter_child_nodes(part))


def _is_written(part: ast.AST) -> bool:
    return isinstance(getattr(part, "ctx", ast.Load()), ast.Store | ast.Del)


def inner_parts(part: ast.AST) -> list[Any]:
    """Return the nearest parts inside a part that have a probe of their own and are no mere hand-on."""
    found: list[Any] = []
    for child in _children(part):
        if isinstance(child, CLOSED) or (isinstance(child, _WATCHED) and not isinstance(child, _HANDS_ON)):
            found.append(child)
        else:
            found += inner_parts(child)
    return found


class _Insert(ast.NodeTransformer):
    """Puts ``key @`` in front of every part that `open_parts` names, in the same order."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys = keys
        self._at = 0

    def visit(self, node: ast.AST) -> Any:
        """Replace the parts of a node, then the node."""
        if isinstance(node, CLOSED):
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [self.visit(each) for each in node.keywords]
        elif isinstance(node, ast.NamedExpr):
            node.value = self.visit(node.value)
        else:
            self.generic_visit(node)
        if not isinstance(node, _WATCHED) or _is_written(node):
            return node
        key = ast.copy_location(ast.Constant(self._keys[self._at]), node)
        self._at += 1
        return ast.copy_location(ast.BinOp(key, ast.MatMult(), node), node)


def names_in(tree: ast.AST) -> list[str]:
    """Return the names that a piece of source reads and does not bind itself."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if _is_stored(name)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return list(dict.fromkeys(name.id for name in names if name.id not in bound))


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _key(at: int) -> tuple[str, int]:
    return (_MARK, at)


def _looked_up(constant: Any, probes: Mapping[Any, Any]) -> Any:
    is_key = type(constant) is tuple and len(constant) == 2 and constant[0] == _MARK
    return probes[constant] if is_key else constant
