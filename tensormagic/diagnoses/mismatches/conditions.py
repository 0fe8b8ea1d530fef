"""Conditions that Python reads otherwise than they are meant: ``0 < x < 1``, ``x > 0 & x < 1``, ``x > 0 and x < 1``."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import NamedTuple

from tensormagic.diagnoses.lines import expression_of, expressions, text_of
from tensormagic.diagnoses.mismatches.call import Call
from tensormagic.diagnoses.mismatches.table import Messages

says = Messages(globals())

_SIGNS = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_COMPARES: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
# In these a mask has no place: they ask for one truth value themselves.
_CHOICES = ast.IfExp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_CONDITION = re.compile(r"\s*(?:if|elif|while|assert)\b")

says.table(r"""
Boolean value of Tensor with more than one value is ambiguous
    with mask: masks_of(call); if: mask
    shape: {mask.read}, which asks a mask for one truth value: join masks with & or |, each in parentheses.
    parts: anything; maybe: {mask.code}

"bitwise_\w+" not implemented for '
    with mask: masks_of(call); if: mask
    dtype: The signs & and | bind more tightly than a comparison, and {call.report.call} comes first: put each
        comparison in parentheses.
    parts: one for one in call.tensors[:1]; maybe: {mask.code}
""")


class Masks(NamedTuple):
    """What a condition of several comparisons was meant to be."""

    read: str  # how Python reads it, as the beginning of a sentence
    code: str


def masks_of(call: Call) -> Masks | None:
    """Return what the comparisons around the failing expression were meant to be; None where there are not several."""
    failing, line = expression_of(call.report.call), text_of(call.report.location)
    if failing is None:
        return None
    written = [*expressions(line.strip())] or [failing]
    if any(isinstance(each, _CHOICES) for each in written):
        return None
    for each in written:
        if any(ast.unparse(inner) == ast.unparse(failing) for inner in ast.walk(each)) and (code := _joined(each)):
            if isinstance(each, ast.BoolOp):
                read = f"Python's `{'and' if isinstance(each.op, ast.And) else 'or'}` chooses one of its sides"
            else:
                read = "Python puts an `and` between comparisons in a row"
            return Masks(read, f"({code}).all()" if _CONDITION.match(line) else code)
    return None


def _joined(node: ast.expr) -> str:
    """Return several comparisons, joined as masks; empty for what are not several comparisons."""
    if isinstance(node, ast.BoolOp) and all(isinstance(each, ast.Compare) for each in node.values):
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return sign.join(f"({_joined(each) or ast.unparse(each)})" for each in node.values)
    if not isinstance(node, ast.Compare):
        return ""
    written = _split(node.left)
    for operator, operand in zip(node.ops, node.comparators, strict=True):
        written += [operator, *_split(operand)]
    pieces, signs = [list[ast.AST]()], [""]
    for each in written:
        if isinstance(each, str):
            signs.append(f" {each} ")
            pieces.append([])
        else:
            pieces[-1].append(each)
    parts = [_pairs(piece) for piece in pieces]
    several = len(pieces) > 1 or len(node.ops) > 1
    return "".join(map(str.__add__, signs, parts)) if several and all(parts) else ""


def _split(operand: ast.expr) -> list[ast.AST | str]:
    """Return what stands between the signs of an operand that is not in parentheses, as far as one can tell."""
    if isinstance(operand, ast.BinOp) and type(operand.op) in _SIGNS:
        return [*_split(operand.left), _SIGNS[type(operand.op)], *_split(operand.right)]
    return [operand]


def _pairs(piece: list[ast.AST]) -> str:
    """Return operands with the operators between them as comparisons of two; empty where nothing is compared."""
    operands, operators = [ast.unparse(each) for each in piece[::2]], piece[1::2]  # the one between the others
    if not operators:
        return f"({operands[0]})" if isinstance(piece[0], ast.Compare) else ""
    signs = [_COMPARES[type(each)] for each in operators]
    return " & ".join(f"({left} {sign} {right})" for (left, right), sign in zip(pairwise(operands), signs, strict=True))
