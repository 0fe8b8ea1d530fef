"""What the operands of a call are, and what the person calls them in the line that made it.

Names come from the source, not from the frame's variables: reading those would make a copy that keeps tensors alive.
Where Python knows which part of a line is running (from 3.11 on), that part is parsed, and its operands are what stands
there: ``pred``, ``self.w``, ``x[:, None]``.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.where.source import is_own_code
from tensormagic.reports import Operand

LONGEST = 40  # characters of an operand's text; a longer one is not repeated
MOST_LINES = 20

_MODULE_CALL = nn.Module._call_impl.__code__


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and what is in lists of them."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from value
        else:
            yield value


def operand_of(x: torch.Tensor, name: str = "") -> Operand:
    """Describe a tensor; what cannot be read of it is left empty."""
    strided = x.layout is torch.strided and not x.is_nested
    return Operand(
        name=name,
        shape=tuple(x.shape) if not x.is_nested else (),
        dtype=str(x.dtype).removeprefix("torch."),
        device=str(x.device),
        stride=tuple(x.stride()) if strided else (),
        layout=str(x.layout).removeprefix("torch."),
        requires_grad=x.requires_grad,
        is_leaf=x.is_leaf,
    )


def operand_names(frame: FrameType, operands: Sequence[torch.Tensor], of: int, path: str) -> list[str]:
    """Return what each operand is called: by the person's line, or as a part of the module that is running.

    Args:
        frame: That which makes the call.
        operands: Of the call, in order.
        of: How many operands the call has in all, these first.
        path: Of the module that runs in ``frame``.
    """
    if is_own_code(frame.f_code.co_filename):
        names = operand_texts(frame, of)[: len(operands)]
        return [name or _as_attribute(frame, x, path) for name, x in zip(names, operands, strict=True)]
    names = [_as_attribute(frame, x, path) for x in operands]
    others = iter(operand_texts(frame, of - sum(map(bool, names))))
    return [name or next(others, "") for name in names]


def _as_attribute(frame: FrameType | None, x: torch.Tensor, path: str) -> str:
    """Return ``net.fc1.weight`` where ``x`` is a parameter or buffer of the module that is running."""
    while frame is not None and frame.f_code is not _MODULE_CALL:
        frame = frame.f_back
    if frame is None:
        return ""
    module = frame.f_locals["self"]
    own = {**module._parameters, **module._buffers}
    return next((f"{path}.{name}" for name, value in own.items() if value is x), "")


def operand_texts(frame: FrameType, count: int) -> list[str]:
    """Return what stands in the source for each of the ``count`` operands of the call that ``frame`` is making.

    Empty texts where it cannot be told: no source, another number of operands, a call from library code. Of a library's
    call, the operands of the person's own are those that it was given, where it is a module with as many arguments.
    """
    modules = 0
    while frame.f_back is not None and not is_own_code(frame.f_code.co_filename):
        modules += frame.f_code is _MODULE_CALL
        frame = frame.f_back
    found = [ast.unparse(node) for node in _operands(running_part(frame))] if modules <= 1 else []
    if len(found) < count or (count > 1 and len(found) > count):
        return [""] * count
    return [text if len(text) <= LONGEST else "" for text in found[:count]]


def running_part(frame: FrameType) -> ast.AST | None:
    """Return the expression or statement that ``frame`` is in the middle of; None where that cannot be told."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None or frame.f_lasti < 0:
        return None
    line, end_line, start, end = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    if line is None or end_line is None or start is None or end is None or end_line - line > MOST_LINES:
        return None
    numbers = range(line, end_line + 1)
    lines = [linecache.getline(frame.f_code.co_filename, at, frame.f_globals).encode() for at in numbers]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return _parsed(b"".join(lines).decode(errors="replace"))


def _parsed(text: str) -> ast.AST | None:
    try:
        (statement,) = ast.parse(f"({text})" if "\n" in text else text).body
    except (SyntaxError, ValueError):
        return None
    return statement.value if isinstance(statement, ast.Expr) else statement


def operand_parts(frame: FrameType) -> list[ast.expr] | None:
    """Return the operands of what the person's own ``frame`` is in the middle of; None where not known."""
    part = running_part(frame) if is_own_code(frame.f_code.co_filename) else None
    return _operands(part) or None


def _operands(part: ast.AST | None) -> list[ast.expr]:
    """Return the operands of an expression: both sides, or what a call is given, its tensor first."""
    nodes: list[ast.expr] = []
    if isinstance(part, ast.BinOp):
        nodes = [part.left, part.right]
    elif isinstance(part, ast.AugAssign):
        nodes = [part.target, part.value]
    elif isinstance(part, ast.Compare):
        nodes = [part.left, *part.comparators]
    elif isinstance(part, ast.Subscript):
        nodes = [part.value]
    elif isinstance(part, ast.Call):
        nodes = _given(part)
    return nodes


def _given(call: ast.Call) -> list[ast.expr]:
    """Return what a call is given; ``x.reshape(…)`` is given ``x``, but ``F.relu(x)`` is not given ``F``."""
    method = isinstance(call.func, ast.Attribute) and not _is_namespace(call.func.value)
    own = [call.func.value] if method and isinstance(call.func, ast.Attribute) else []
    return [*own, *call.args, *(keyword.value for keyword in call.keywords)]


def _is_namespace(node: ast.expr) -> bool:
    """Return whether an expression is, by what everybody calls it, a module of torch's or the object itself."""
    text = ast.unparse(node)
    return text in {"F", "torch", "nn", "self"} or text.startswith(("torch.", "nn.", "F."))
