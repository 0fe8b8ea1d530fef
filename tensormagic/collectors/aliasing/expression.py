"""Evaluates an expression once, as Python would, and notes on the way which of its parts share memory."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from tensormagic.collectors.aliasing.aliases import Footprint, footprint_of
from tensormagic.collectors.aliasing.copies import Call, compared, copy_or_view, outcome_and_reason, why_view_fails
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import CopyVerdict, Step
from tensormagic.words import shortened

# Puts probes into an expression: its syntax tree is compiled with ``probe @ part`` in place of each part.
#
# It stands in the compiled code as a constant, so that no name has to be added to anybody's namespace; ``@`` calls it
# without the warning that calling a constant would bring.

_MARK = "\0tensormagic probe"
MOST_PROBES = 200  # a longer expression is evaluated without being watched
MOST_STEPS = 12
_CALLING = {"func", "checkpoint", "autograd", "_functorch", "_higher_order_ops", "jit", "_dynamo", "overrides"}
_WATCHED = (
    ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.NamedExpr, ast.IfExp,
)  # fmt: skip
CLOSED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)
_HANDS_ON = (ast.NamedExpr, ast.IfExp, ast.Starred, ast.keyword)  # their value is that of one of their parts
Part = ast.expr


@dataclass(slots=True, eq=False)
class _Probe:
    part: Part
    note: Callable[[Part, Any], None]

    def __matmul__(self, value: Any) -> Any:
        self.note(self.part, value)
        return value


def open_parts(part: ast.AST) -> list[Any]:
    """Return the parts to put a probe round, in the order in which the tree is walked."""
    if isinstance(part, CLOSED):
        return []
    found: list[Any] = []
    for child in _children(part):  # no comprehension: it would be a frame more for each term of a long sum
        found += open_parts(child)
    watched = isinstance(part, _WATCHED) and not isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)
    return [*found, part] if watched else found


def _children(part: ast.AST) -> list[ast.AST]:
    """Return a part's parts; of a method call the object whose method it is, of a walrus what it binds."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        return [part.func.value, *part.args, *part.keywords]
    return [part.value] if isinstance(part, ast.NamedExpr) else list(ast.iter_child_nodes(part))


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
    """Puts ``key @`` in front of every part that has a key."""

    def __init__(self, keys: Mapping[ast.AST, Any]) -> None:
        self._keys = keys

    def visit(self, node: ast.AST) -> Any:
        """Replace the parts of a node, then the node."""
        self.generic_visit(node)
        if node not in self._keys:
            return node
        key = ast.copy_location(ast.Constant(self._keys[node]), node)
        return ast.copy_location(ast.BinOp(key, ast.MatMult(), cast("ast.expr", node)), node)


def names_in(tree: ast.AST) -> list[str]:
    """Return the names that a piece of source reads and does not bind itself."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return list(dict.fromkeys(name.id for name in names if name.id not in bound))


# Probes look at the value of each part of the expression as it passes and hand it on. Nothing else
# differs from a plain ``eval``: no torch mode is on (which would change what fused modules compute), no name is
# added, calls and their order are the same, an exception comes through with the frames that it has anyway. NumPy's
# calls and the user's own functions are seen as well as torch's. Values are held weakly; what is inside a lambda or
# a comprehension runs unobserved.
class _Seen(NamedTuple):
    """What passed a probe: of a tensor or an array its footprint, of a function or module its name."""

    footprint: Footprint | None
    name: str
    is_plain: bool  # of torch's or NumPy's own class, so that its methods are theirs


@dataclass(slots=True)
class Evaluation:
    """The value of an expression, and what is known of how it came about. Holds the value: drop it soon."""

    value: Any  # What the expression gave.
    # Whether it shares memory with its operands; None where the expression is a plain name, a constant, or gave no
    # tensor.
    verdict: CopyVerdict | None


def evaluate(expression: str, global_names: dict[str, Any], local_names: dict[str, Any] | None = None) -> Evaluation:
    """Evaluate an expression once and return its value and the verdict on it. Raises what the expression raises."""
    __tracebackhide__ = True
    watch = _Watch(expression, ChainMap(local_names or {}, global_names))
    try:
        value = eval(watch.code(), global_names, local_names)  # noqa: S307  (evaluating it is what was asked for)
    except RuntimeError as error:
        watch.explain(error)
        raise
    return Evaluation(value, watch.verdict(value))


class _Watch:
    """One expression while it is evaluated."""

    def __init__(self, source: str, names: Mapping[str, Any]) -> None:
        self.source, self.names = source.strip(), names
        self.tree = ast.parse(self.source, mode="eval")
        self.parts: list[Part] = open_parts(self.tree.body)
        self.unwatched = isinstance(self.tree.body, ast.Name | ast.Constant) or len(self.parts) > MOST_PROBES
        self.seen: dict[ast.AST, _Seen] = {}
        self.steps: list[Step] = []

    def code(self) -> Any:
        if self.unwatched:
            return compile(self.source, "<string>", "eval")
        tree = ast.parse(self.source, mode="eval")
        probes: dict[Any, Any] = {(_MARK, at): _Probe(part, self.note) for at, part in enumerate(self.parts)}
        tree.body = _Insert(dict(zip(open_parts(tree.body), probes, strict=True))).visit(tree.body)
        code = compile(ast.fix_missing_locations(tree), "<string>", "eval")
        return code.replace(co_consts=tuple(probes.get(constant, constant) for constant in code.co_consts))

    def note(self, part: Part, value: Any) -> None:
        """Take down what a part gave; never raises."""
        try:
            with quiet():
                found = footprint_of(value)
                self.seen[part] = _Seen(found, _name_of(value), _is_library(type(value).__module__))
                if found is not None and not isinstance(part, ast.Name | ast.NamedExpr | ast.IfExp):
                    self._add_step(part, found)
        except Exception:  # an object that cannot even be looked at is left out, and the expression goes on
            self.seen.pop(part, None)

    def _add_step(self, part: Part, result: Footprint) -> None:
        inputs = self._inputs(part)
        first = inputs[0][1] if inputs else None
        if _is_access(part) and (first is None or first.several):
            return  # a tensor that some object holds, which is an operand; or one of several that a call returned
        name, library = self._callee(part)
        args, keywords = (part.args, part.keywords) if isinstance(part, ast.Call) else ([], [])
        of_sizes = bool(args) and all(isinstance(each, ast.Constant) and type(each.value) is int for each in args)
        of_format = any(each.arg == "memory_format" for each in keywords)
        call = Call(name, library, first, result, of_sizes, of_format)
        relations = [(compared(result, footprint, "").relation, source) for source, footprint in inputs]
        same = [each for each in relations if each[0] == "same object"]
        (relation, source), *_ = [*same, *(each for each in relations if each[0] != "separate"), ("separate", "")]
        outcome, reason = outcome_and_reason(call, relation)
        fresh = result.nbytes if outcome in {"copy", "new"} else 0
        # A part's own code: of a chain, what comes after the step before.
        holder = part.func if isinstance(part, ast.Call) else part
        receiver: Any = getattr(holder, "value", None)
        code = self._text(part)
        if receiver in self.seen and self.seen[receiver].footprint is not None and not isinstance(receiver, ast.Name):
            code = code.removeprefix(self._text(receiver)).lstrip()
        self.steps.append(Step(_short(code), outcome, source if relation != "unknown" else "", fresh, reason))

    def _callee(self, part: Part) -> tuple[str, bool]:
        if isinstance(part, ast.Subscript):
            return "[]", True
        if isinstance(part, ast.Attribute):
            return f".{part.attr}", True
        if not isinstance(part, ast.Call):
            return "operator", True
        seen = self.seen.get(part.func.value if isinstance(part.func, ast.Attribute) else part.func)
        if isinstance(part.func, ast.Attribute):
            return part.func.attr, seen is not None and (seen.is_plain or _is_library(seen.name))
        return (seen.name.rsplit(".", 1)[-1], _is_library(seen.name)) if seen is not None else ("", False)

    def _inputs(self, part: Part) -> list[tuple[str, Footprint]]:
        """Return the tensors and arrays that a part was made of, each as written in the expression."""
        found = [(child, found) for child in inner_parts(part) if (found := self._footprint(child)) is not None]
        if _is_access(part):  # not of a list or tuple that the user holds, rather than one that a call returned
            held = ast.Name | ast.Attribute | ast.Subscript
            found = [(child, each) for child, each in found if not (each.several and isinstance(child, held))]
        return [(_short(self._text(child)), footprint) for child, footprint in found]

    def _footprint(self, part: ast.AST) -> Footprint | None:
        """Return what is known of a part; of a comprehension or lambda the first operand that it names."""
        if isinstance(part, CLOSED):
            named = (footprint_of(self.names[name]) for name in names_in(part) if name in self.names)
            return next((footprint for footprint in named if footprint is not None), None)
        seen = self.seen.get(part)
        return seen.footprint if seen is not None else None

    def _text(self, part: Part) -> str:
        return ast.get_source_segment(self.source, part) or ""

    def explain(self, error: RuntimeError) -> None:
        """Add to the error of a ``.view`` that its strides do not allow which of them, as a note (Python 3.11 on)."""
        failed = next((part for part in self.parts if isinstance(part, ast.Call) and part not in self.seen), None)
        if failed is None or not isinstance(failed.func, ast.Attribute) or failed.func.attr != "view":
            return
        source, sizes = self._footprint(failed.func.value), list[Any]()
        one = failed.args[0] if len(failed.args) == 1 else None
        with suppress(ValueError):  # sizes that are not written out
            given = one.elts if isinstance(one, ast.Tuple | ast.List) else failed.args
            sizes = [ast.literal_eval(each) for each in given]
        written = bool(sizes) and all(type(size) is int for size in sizes)
        reason = why_view_fails(source, tuple(sizes)) if source is not None and written else ""
        if reason and hasattr(error, "add_note"):
            error.add_note(f"tensormagic: {reason}")

    def verdict(self, value: Any) -> CopyVerdict | None:
        """Return the verdict on the expression's value, compared with every operand that is still there."""
        if self.unwatched or not is_kind(value, torch.Tensor, np.ndarray):
            return None
        with quiet():
            found = copy_or_view(value, self._operands(), name=_short(self.source))
        if not self.steps and [one.name for one in found.operands] == [found.name]:
            return None  # a tensor by the way that leads to it, `net.weight` or `batch[0]`: nothing was done to it
        return replace(found, steps=tuple(self.steps[-MOST_STEPS:]), more_steps=max(len(self.steps) - MOST_STEPS, 0))

    def _operands(self) -> dict[str, Any]:
        accessed = {id(part.value) for part in self.parts if isinstance(part, ast.Attribute | ast.Subscript)}
        of_lists = {part.id for part in self.parts if isinstance(part, ast.Name) and id(part) in accessed}
        found: dict[str, Any] = {}
        for name in names_in(self.tree):
            footprint = footprint_of(self.names[name]) if name in self.names else None
            if footprint is not None and not (footprint.several and name in of_lists):
                found[name] = self.names[name]
        for part in self.parts:
            footprint = self._footprint(part) if _is_access(part) and not self._inputs(part) else None
            items = [each() for each in footprint.references] if footprint is not None else []
            if len(items) == 1 and items[0] is not None:
                found[_short(self._text(part))] = items[0]
        return found


def _is_access(part: ast.AST) -> bool:
    return isinstance(part, ast.Attribute | ast.Subscript)


def _short(code: str) -> str:
    return shortened(code, 48, tail=24)


def _name_of(value: Any) -> str:
    """Return the full name of a module, a function or a class; nothing for anything else."""
    if type(value) is ModuleType:
        return str(value.__name__)
    if isinstance(value, BuiltinFunctionType | FunctionType | type):
        home = getattr(value, "__module__", None) or ""
        if not home and getattr(torch, value.__name__, None) is value:  # a builtin of torch's does not say so
            home = "torch"
        return f"{home}.{value.__name__}"
    return ""


def _is_library(name: str) -> bool:
    """Return whether a name is one of torch's or NumPy's own, of those that run none of the user's functions."""
    first, *rest = name.split(".")
    return first == "numpy" or (first == "torch" and not _CALLING.intersection(rest))
