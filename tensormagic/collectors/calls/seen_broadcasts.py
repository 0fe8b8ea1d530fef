"""Operands that both grew where they met: a column of N against a row of N gives N x N values, from which one is made.

Whether that was meant shows in what becomes of it. Pairwise distances are looked at by row; a loss or an accuracy is
one number. So the result is followed, weakly, through calls that work element by element, and noted only where it is
reduced to a single number.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes, Found, flat, operand_parts

NAMES = ("add", "sub", "mul", "div", "eq", "__eq__", "ne", "rsub", "__radd__", "__rsub__", "__rmul__", "__rtruediv__")
JOINED = ("broadcast_tensors",)
MOST_FOLLOWED = 64

_PASSING = frozenset({
    *NAMES, "pow", "__pow__", "square", "abs", "__abs__", "neg", "__neg__", "float", "double", "long", "int", "to",
    "type", "exp", "log", "log1p", "sqrt", "clamp", "where", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
})  # fmt: skip
_REDUCING = frozenset({"mean", "sum", "nanmean", "nansum", "norm", "mse_loss", "l1_loss", "smooth_l1_loss",
                       "huber_loss"})  # fmt: skip
_FUNCTIONAL = "torch/nn/functional.py"
_TURNING = frozenset({"unsqueeze", "view", "reshape", "expand", "T", "mT", "t", "transpose"})


class Mark(weakref.ref[torch.Tensor]):
    """A tensor that is followed, and what is to be noted of it."""

    __slots__ = ("found", "key")

    found: Found
    key: int


class Wide:
    """Results that are larger than both operands, until they are gone or reduced."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}

    def mark(self, x: torch.Tensor, found: Found) -> None:
        """Follow a tensor from now on."""
        mark = Mark(x, self._forget)
        mark.found, mark.key = found, id(x)
        self.marks[mark.key] = mark
        if len(self.marks) > MOST_FOLLOWED:
            del self.marks[next(iter(self.marks))]

    def _forget(self, mark: Mark) -> None:
        if self.marks.get(mark.key) is mark:
            del self.marks[mark.key]

    def follow(self, watch: CallNotes, call: Call) -> None:
        """Pass the mark on, or note what came of it."""
        result, name = call.result, str(getattr(call.function, "__name__", ""))
        if (mark := self._of(flat(call.args))) is None:
            return
        if name in JOINED:
            for x in result:
                self.mark(x, mark.found)
        elif not isinstance(result, torch.Tensor):
            return
        elif name in _REDUCING and result.dim() == 0:
            watch.keep(mark.found)
            for key in [key for key, other in self.marks.items() if other.found is mark.found]:
                del self.marks[key]
        elif name in _PASSING and result.dim() and result is not mark():
            self.mark(result, mark.found)

    def _of(self, values: Iterable[Any]) -> Mark | None:
        for value in values:
            mark = self.marks.get(id(value))
            if mark is not None and mark() is value:
                return mark
        return None


class NotesOfBroadcasts(CallNotes):
    """Notes beside which results are followed that grew."""

    wide: Wide


def both_grew(watch: NotesOfBroadcasts, call: Call) -> None:
    """Follow what came of a column and a row of the same length, where nothing says that a table was meant."""
    result = call.result
    if not isinstance(result, torch.Tensor) or len(call.args) < 2:
        return
    left, right = call.args[:2]
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)) or result.dim() < 2:
        return
    column, row = (left, right) if left.dim() > right.dim() else (right, left)
    if column.shape != (*row.shape, 1) or result.numel() <= max(column.numel(), row.numel()):
        return
    if not _meant(column, row) and not _turned(call, 0 if column is left else 1):
        watch.wide.mark(result, watch.found("both broadcast", call, operands=(left, right), result=result))


def _meant(column: torch.Tensor, row: torch.Tensor) -> bool:
    """Return whether the operands themselves say that pairs are wanted: of one tensor, or made into a column just now.

    A parameter against data is a feature map; two predictions against each other are a ranking.
    """
    if any(x.is_leaf and x.requires_grad for x in (column, row)) or (column.requires_grad and row.requires_grad):
        return True
    made = column.grad_fn.name() if column.grad_fn is not None else ""
    return made == "UnsqueezeBackward0" or column.untyped_storage()._cdata == row.untyped_storage()._cdata


def _turned(call: Call, at: int) -> bool:
    """Return whether the line itself makes the column, so that whoever reads it sees a table."""
    parts = operand_parts(call.frame)
    if parts is None:
        return True  # what the line says is not known
    inner = ast.walk(parts[at]) if len(parts) == 2 else (node for part in parts for node in ast.walk(part))
    return any(_says_so(node) for node in inner)


def _says_so(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _TURNING
    return (isinstance(node, ast.Constant) and node.value is None) or (
        isinstance(node, ast.keyword) and node.arg == "keepdim"
    )


def grew_in_a_loss(watch: NotesOfBroadcasts, call: Call) -> None:
    """Follow what a loss makes of operands that both grow: it warns, but of two sizes only."""
    given = call.args[0] if call.args and isinstance(call.args[0], tuple | list) else call.args
    if len(given) != 2 or given[0].shape == given[1].shape:
        return
    above = call.frame.f_back
    if above is None or not above.f_code.co_filename.replace("\\", "/").endswith(_FUNCTIONAL):
        return
    left, right = given
    for x in call.result:
        if x.numel() > max(left.numel(), right.numel()):
            op = above.f_code.co_name
            watch.wide.mark(x, watch.found("both broadcast", call, operands=(left, right), result=x, op=op))


def grew_in_a_whole_loss(watch: CallNotes, call: Call) -> None:
    """Note a loss that was seen as a whole, and made one number of operands that both grew."""
    if len(call.args) < 2 or not isinstance(call.result, torch.Tensor) or call.result.dim():
        return
    left, right = call.args[:2]
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape != right.shape:
        grown = torch.broadcast_shapes(left.shape, right.shape)  # type: ignore[no-untyped-call]
        if grown.numel() > max(left.numel(), right.numel()):
            table = torch.empty(grown, device="meta")
            watch.note("both broadcast", call, operands=(left, right), result=table)
