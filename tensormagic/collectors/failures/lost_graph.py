"""Why a value that backward was refused on has no graph, read from the source that made it.

The run was not traced, so the source is read backwards from the line that called backward: which statement bound the
value, of what, and what ended the gradient's way there. The values that names still stand for tell what had a history.
Nothing is run again, and where one step is not certain nothing is said.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Literal

import torch
from torch import nn

from tensormagic.collectors.detachment.detachment_facts import CUTTING, ROLES, VALUELESS
from tensormagic.collectors.detachment.detachment_log import look_at
from tensormagic.collectors.failures.failing_source import Failing, is_torchs, lines_in, written_call
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.structure import start_nodes
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.namespace import UNKNOWN, still_value
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import DECORATING
from tensormagic.collectors.where.source import CellNumber, in_file, location_of, name_in, names_of
from tensormagic.collectors.where.statements import OPERATORS, Scope, bound_by, statements
from tensormagic.reports import Cut, Location
from tensormagic.reports.graph import CutKind

MOST_STEPS = 32  # statements and names that are followed
MOST_NODES = 50_000  # of a graph, in which a tensor is looked for
_COMPARES = ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE
_MODES: dict[Any, CutKind] = {
    torch.no_grad: "no_grad", torch.set_grad_enabled: "no_grad", torch.inference_mode: "inference_mode",
}  # fmt: skip
# Whose results are values and indices.
_WITH_INDICES = frozenset({"max", "min", "topk", "sort", "median", "kthvalue", "mode"})
_KEEPS = frozenset({"T", "mT", "H", "mH", "real", "imag", "values"})  # attributes with the history of their tensor
_MAKES = ast.Assign | ast.AnnAssign | ast.AugAssign

# What is known of a value: it has a history, it never had one, it cannot be said; or what ended its history.
State = Literal["history", "none", "unknown"]


# Where it ended, as a report has it, and the lines that it points to after that which asked.
_End = tuple[Cut, tuple[Location, ...]]
Origin = State | _End


def _end(kind: CutKind, op: str, location: Location, call: Location | None = None, source: str = "") -> _End:
    """Return where a history ended; ``call`` is the statement below a ``with torch.no_grad():``."""
    lines = (location,) if call is None else (location, call)
    at = None if call is None else 2
    return Cut(kind=kind, op=op, location=1, line=location.line, source_name=source, call_location=at), lines


@dataclass(frozen=True, slots=True)
class Asking:
    """Where backward was called, or asked about: the user's frame, the line that it came to, and the call there."""

    frame: FrameType
    line: int
    failing: Failing | None = None
    cell_number: CellNumber | None = None  # gives a cell's execution count from its file name

    @property
    def scope(self) -> Scope | None:
        """The statements that the frame runs; None where their source is not known."""
        return Scope.of("".join(lines_in(self.frame)), self.frame, self.cell_number)

    def origin_of(self, scope: Scope, root: torch.Tensor, asks: Callable[[torch.Tensor], bool]) -> Origin:
        """Return what is known of what backward was called on, as it is written: by its name, else the expression."""
        written = written_call(self.failing) if self.failing is not None else None
        if name := name_in(self.frame, root):
            expression: ast.expr = ast.Name(name, ast.Load())
        elif written is not None and written.method in {"backward", "grad"}:
            expression = written.positional[written.method == "grad"]  # after `torch.autograd`
        else:
            return "unknown"
        names = {**self.frame.f_globals, **names_of(self.frame)}
        return _Reading(scope, names, self.cell_number, asks).of_root(expression, self.line)


def lost_graph(asking: Asking, scope: Scope, root: torch.Tensor) -> dict[str, Any]:
    """Return the fields of a report that say why a value has no graph; none where that is not certain."""
    found, here = asking.origin_of(scope, root, _asks), scope.location(asking.line)
    loss = look_at(root, asking.frame, 0)
    if isinstance(found, tuple):
        return {"losses_without_graph": (replace(loss, cut=0),), "cuts": found[:1], "locations": (here, *found[1])}
    is_told = found == "none" or not torch.is_grad_enabled()
    return {"losses_without_graph": (loss,), "cuts": (), "locations": (here,)} if is_told else {}


def lost_way(asking: Asking, loss: torch.Tensor, x: torch.Tensor) -> tuple[Cut | None, tuple[Location, ...]]:
    """Return what ended the way from a tensor to a loss that was not computed from it, and the lines it points to."""
    scope = asking.scope
    found = asking.origin_of(scope, loss, partial(_leads_to, x)) if scope is not None else "unknown"
    if scope is None or not isinstance(found, tuple):
        return None, ()
    return found[0], (scope.location(asking.line), *found[1])


@dataclass(slots=True)
class _Reading:
    """Follows a value back through the statements of a scope."""

    scope: Scope
    names: Mapping[str, Any]
    cell_number: CellNumber | None
    asks: Callable[[torch.Tensor], bool]  # whether a tensor has the history that is looked for
    steps: int = 0

    def of_root(self, expression: ast.expr, line: int) -> Origin:
        """Return what is known of what backward was called on; nothing where no statement here made it."""
        if not isinstance(expression, ast.Name):
            is_part = isinstance(expression, ast.Attribute | ast.Subscript)
            return "unknown" if is_part else self._recorded(self.of(expression, line), line)
        bound = self.scope.binding(expression.id, line)
        if bound is None and (cell := self._cell_of(expression.id)) is not None:
            return cell.of_root(expression, len(cell.scope.lines) + 1)
        return self.of(expression, line) if isinstance(bound, _MAKES) else "unknown"

    def of(self, expression: ast.expr, line: int) -> Origin:  # noqa: C901, PLR0911  (one branch a kind of expression)
        """Return what is known of the value of an expression on a line."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            return "unknown"
        match expression:
            case ast.Constant():
                return "none"
            case ast.Name():
                return self._of_name(expression.id, line)
            case ast.Attribute():
                return self._of_attribute(expression, line)
            case ast.Subscript(value=of):
                has_indices = isinstance(of, ast.Call) and getattr(of.func, "attr", "") in _WITH_INDICES
                return "unknown" if has_indices else self.of(of, line)
            case ast.Call():
                return self._of_call(expression, line)
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if isinstance(operator, _COMPARES):
                return self._ended("non-differentiable", OPERATORS[type(operator)], [left, right], line)
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return self._ended("non-differentiable", "floor_divide", [left, right], line)
            case ast.BinOp(left=left, right=right):
                return self._of_all([left, right], line)
            case ast.UnaryOp(ast.USub() | ast.UAdd()):
                return self.of(expression.operand, line)
            case ast.Tuple() | ast.List():
                return self._of_all(expression.elts, line)
        return "unknown"

    def _of_all(self, expressions: Iterable[ast.expr], line: int) -> Origin:
        """Return what is known of a value that is computed from all of these."""
        found = [self.of(each, line) for each in expressions]
        if "history" in found:
            return "history"
        return next((each for each in found if isinstance(each, tuple)), "unknown" if "unknown" in found else "none")

    def _ended(self, kind: CutKind, op: str, operands: list[ast.expr], line: int) -> Origin:
        """Return what is known of a value whose history ends here, if its operands have one."""
        found = self._of_all(operands, line)
        if found != "history":
            return found
        return _end(kind, op, self.scope.location(line), source=ast.unparse(operands[0]))

    def _of_name(self, name: str, line: int) -> Origin:
        value, bound = self.names.get(name, UNKNOWN), self.scope.binding(name, line)
        if is_kind(value, torch.Tensor) and self.asks(value):
            return "history"
        if bound is None or isinstance(bound, ast.For):  # a parameter, a global, an item of what is gone through
            cell = self._cell_of(name) if bound is None else None
            made = cell.of(ast.Name(name, ast.Load()), len(cell.scope.lines) + 1) if cell is not None else None
            return made if isinstance(made, tuple) else self._of_value(value)
        if bound == "unknown":  # one of several that may have bound it: told where it alone ended the history
            every = [each for each in statements(self.scope.body) if name in bound_by(each)]
            ended = [made for each in every if (made := self._of_statement(each, name)) != "history"]
            is_sure = is_kind(value, torch.Tensor) and len(ended) == 1 < len(every) and isinstance(ended[0], tuple)
            return ended[0] if is_sure else "unknown"
        made = self._of_statement(bound, name)
        written = [(given, at) for *_, at, given in self.scope.writes(name) if given is not None]
        if made == "none" and written:
            return self.of(*written[0]) if len(written) == 1 else "unknown"
        return "unknown" if made == "history" and is_kind(value, torch.Tensor) else made  # what ended it is not seen

    def _of_value(self, value: Any) -> Origin:
        """Return what is known of a value that no statement here made."""
        if is_kind(value, torch.Tensor):
            return "history" if self.asks(value) else "none"
        plain = value is None or type(value) in {bool, int, float, complex, str, torch.dtype, torch.device, torch.Size}
        return "none" if plain else "unknown"

    def _cell_of(self, name: str) -> _Reading | None:
        """Return the reading of the last of the earlier cells that binds a name; None where there is none."""
        cells = (cell for cell in self.scope.earlier_cells() if cell.binding(name, len(cell.lines) + 1) is not None)
        return next((_Reading(cell, self.names, self.cell_number, self.asks, self.steps) for cell in cells), None)

    def _of_statement(self, statement: ast.stmt, name: str) -> Origin:
        line = statement.lineno
        made: Origin = "unknown"
        match statement:
            case ast.Assign(value=ast.Tuple(elts=values), targets=[ast.Tuple(elts=targets)]):
                pairs = zip(targets, values, strict=False)
                made = self._of_all([each for target, each in pairs if ast.unparse(target) == name], line)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                made = self.of(value, line)
            case ast.AugAssign(value=value):
                made = self._of_all([ast.Name(name, ast.Load()), value], line)
        return self._recorded(made, line)

    def _recorded(self, made: Origin, line: int) -> Origin:
        """Return what is known of a value that a line made, given what is known of what it was made from.

        That is a block around it or a decorator, where that kept autograd from recording the line.
        """
        if not (made != "none" if self.asks is _asks else made == "history"):
            return made
        blocks = (each for each in self.scope.around(line) if isinstance(each, ast.With))
        items = [item.context_expr for each in blocks for item in each.items]
        for call in reversed([*self.scope.decorators, *items]):
            switch = still_value(call.func if isinstance(call, ast.Call) else call, self.names)
            if switch is torch.enable_grad:
                return made
            if switch is torch.set_grad_enabled and (mode := self._mode(call)) is not False:
                return made if mode is True else "unknown"
            if is_kind(switch, type) and switch in _MODES:
                place, kind = self.scope.location(line), _MODES[switch]
                updates = ".grad" in place.text and call.lineno != line
                return _end(kind, kind, self.scope.location(call.lineno), place if updates else None)
        return made

    def _mode(self, call: ast.expr) -> Any:
        """Return what ``set_grad_enabled`` was given: a value, or the comparison of two words."""
        match call:
            case ast.Call(args=[ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])]):
                words = still_value(left, self.names), still_value(right, self.names)
                return words[0] == words[1] if {type(each) for each in words} == {str} else UNKNOWN
            case ast.Call(args=[given]):
                return still_value(given, self.names)
        return UNKNOWN

    def _of_attribute(self, expression: ast.Attribute, line: int) -> Origin:
        if expression.attr == "data":
            return self._ended("data", "data", [expression.value], line)
        if expression.attr in _KEEPS:
            return self.of(expression.value, line)
        value = still_value(expression, self.names)
        if is_kind(value, torch.Tensor) and not isinstance(value, nn.Parameter) and not self.asks(value):
            return "unknown"  # somewhere it was stored
        return self._of_value(value)

    def _of_call(self, call: ast.Call, line: int) -> Origin:
        func, given = call.func, [*call.args, *(each.value for each in call.keywords)]
        called: Any = (
            still_value(func, self.names) if not any(isinstance(each, ast.Starred) for each in call.args) else None
        )
        made: Any = still_value(func.func, self.names) if isinstance(func, ast.Call) else None  # nn.MSELoss()(x, y)
        if is_kind(called, nn.Module) or (is_kind(made, type) and issubclass(made, nn.modules.loss._Loss)):
            learns = is_kind(called, nn.Module) and any(self.asks(each) for each in called.parameters())
            return "history" if learns else self._of_all(given, line)
        if getattr(getattr(called, "__code__", None), "co_filename", None) == DECORATING:
            end = _of_decorated(called, self.cell_number)
            return end if self.asks is _asks or self._of_all(given, line) == "history" else "unknown"
        if is_torchs(called) and not isinstance(called, type):
            return self._of_function(called, call.keywords, given, line)
        if any(called is each for each in (float, int, sum, abs, max, min)):
            is_number = called is float or called is int
            return self._ended("item", called.__name__, given, line) if is_number else self._of_all(given, line)
        if isinstance(func, ast.Attribute) and called is UNKNOWN and hasattr(torch.Tensor, func.attr):
            owner = still_value(func.value, self.names)
            if owner is UNKNOWN or is_kind(owner, torch.Tensor):
                return self._of_method(func, given, line)
        return "unknown"

    def _of_function(self, called: Any, keywords: list[ast.keyword], given: list[ast.expr], line: int) -> Origin:
        """Return what is known of the result of one of torch's functions."""
        role, name = ROLES.get(called), getattr(called, "__name__", "")
        if any(each.arg == "requires_grad" and still_value(each.value, {}) is True for each in keywords):
            return "history" if self.asks is _asks else "unknown"
        if role == VALUELESS:
            return "none"
        if called is torch.autograd.grad and all(each.arg != "create_graph" for each in keywords):
            return self._ended("grad", "grad", given[:1], line)
        if name in {"as_tensor", "asarray"} or called is torch.autograd.grad:
            return "unknown"
        if name in CUTTING:
            return self._ended(CUTTING[name], name, given, line)
        return self._of_all(given, line)

    def _of_method(self, func: ast.Attribute, given: list[ast.expr], line: int) -> Origin:
        """Return what is known of the result of a method of a tensor."""
        name = func.attr
        if name == "requires_grad_":
            return "history" if self.asks is _asks else self.of(func.value, line)
        if name in {"to", "type", "type_as"}:
            kinds = [value for each in given if isinstance(value := still_value(each, self.names), torch.dtype)]
            if all(kind.is_floating_point or kind.is_complex for kind in kinds):
                return self.of(func.value, line)
        if name in CUTTING and name != "new_tensor":
            return self._ended(CUTTING[name], name, [func.value], line)
        return self._of_all([func.value, *given], line)


def _of_decorated(called: Any, cell_number: CellNumber | None) -> Origin:
    """Return what ends the history of what a function decorated with ``@torch.no_grad()`` returns."""
    factory = inspect.getclosurevars(called).nonlocals.get("ctx_factory")
    mode, code = type(getattr(factory, "__self__", None)), getattr(called.__wrapped__, "__code__", None)
    if mode not in _MODES or mode is torch.set_grad_enabled or code is None:
        return "unknown"
    place = location_of(code.co_filename, in_file(code)[0].co_firstlineno, "", cell_number=cell_number)
    return _end(_MODES[mode], _MODES[mode], place)


def _asks(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.requires_grad


def _leads_to(x: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return whether a tensor was computed from ``x``, as its graph stands, or is it."""
    with quiet(), torch._C.DisableTorchFunction():
        nodes = walk_nodes(start_nodes([tensor]), MOST_NODES) if tensor.requires_grad else ()
        return tensor is x or any(getattr(node, "variable", None) is x for node in nodes)
