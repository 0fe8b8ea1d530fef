"""Which expression of a line failed, and which call of torch's it is, read from the source."""

from __future__ import annotations
import __future__

import ast
import difflib
import dis
import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch.nn.modules.module import _IncompatibleKeys
from torch.utils.data import DataLoader

from tensormagic.collectors.objects.children import has_history, is_kind
from tensormagic.collectors.objects.namespace import UNKNOWN, still_value
from tensormagic.collectors.where.source import (
    NOWHERE,
    Position,
    codes_in,
    is_gone,
    lines_of,
    names_of,
    outwards,
    part_at,
    position_of,
    syntax_of,
)
from tensormagic.collectors.where.statements import OPERATORS

# Python forgets the source of code that ``exec`` runs from a string, but the caller often still has the string. It is
# taken for the source only if it compiles to exactly the code that was running.
MOST_TEXTS = 64  # strings of the caller that are tried
LONGEST = 100_000  # characters
_FUTURE = __future__.annotations.compiler_flag  # which a string takes over from the code that executes it


def executed_source(frame: FrameType) -> str:
    """Return the source of a frame whose file is ``<string>``; empty where nobody has it any more."""
    code = frame.f_code
    caller = next((each for each in outwards(frame) if each.f_code.co_filename != code.co_filename), None)
    if not code.co_filename.startswith("<") or caller is None:
        return ""
    values = (*caller.f_code.co_consts, *names_of(caller).values(), *list(caller.f_globals.values()))
    texts = [value for value in values if type(value) is str and value.strip()][:MOST_TEXTS]
    for text, mode in product((each for each in texts if len(each) <= LONGEST), ("exec", "eval")):
        with suppress(SyntaxError, ValueError):
            made = compile(text, code.co_filename, mode, flags=code.co_flags & _FUTURE, dont_inherit=True)
            if code in codes_in(made):
                return text
    return ""


def lines_in(frame: FrameType) -> list[str]:
    """Return the lines of the source that a frame runs; none where nobody knows it."""
    name = frame.f_code.co_filename
    if is_gone(frame.f_code):
        return []
    known = lines_of(name, frame.f_globals)
    if known and name != "<string>":  # for which Python 3.13 knows only what ``python -c`` was given
        return known
    return executed_source(frame).splitlines(keepends=True) or known


# Since Python 3.11 the compiled code says from which columns each instruction comes, so that the expression alone that
# failed is parsed. Before, the package `executing` finds it; where it cannot, nothing is said but the line.
@dataclass(frozen=True, slots=True)
class Failing:
    """The expression or statement that failed."""

    node: ast.AST  # parsed: an expression, or an augmented assignment
    operation: str  # what Python was doing with it: ``"CALL"``, ``"BINARY_OP"``, ``"STORE_SUBSCR"``
    text: str  # as written in the source, on one line


def failing_at(entry: TracebackType, source: str = "") -> Failing | None:
    """Return what failed in the frame of a traceback's entry, given its source where Python cannot know it, or None."""
    code = entry.tb_frame.f_code
    known = sys.version_info >= (3, 11)
    position = position_of(code, entry.tb_lasti) if known else position_by_executing(entry)
    lines = source.splitlines() or lines_in(entry.tb_frame)
    if (operation := dis.opname[code.co_code[entry.tb_lasti]]) in UNPACKS:
        return _unpacking(position, lines, operation)
    if (found := part_at(position, lines)) is None:
        return None
    node, piece = found
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):  # in asking whether it is so
        node = node.test
        piece = ast.unparse(node)
    return Failing(node, operation, " ".join(piece.split()))


def _unpacking(position: Position, lines: Sequence[str], operation: str) -> Failing | None:
    """Return the statement or loop that unpacks a value into targets; Python's position is that of the targets."""
    for node in ast.walk(syntax_of("\n".join(line.rstrip("\n") for line in lines))):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
        if any((each.lineno, each.col_offset) == (position[0], position[2]) for each in targets):
            loop = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}" if isinstance(node, ast.For) else ""
            return Failing(node, operation, loop or ast.unparse(node))
    return None


def position_by_executing(entry: TracebackType) -> Position:
    """Return what `position_of` does, by the package `executing`: it compiles the source and compares."""
    with suppress(Exception):  # it is not there, has no node for that instruction, or cannot read the source
        from executing import Source

        node: Any = Source.executing(entry).node
        return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
    return NOWHERE


# A failing expression is read as a call: ``a @ b`` is ``Tensor.matmul(a, b)``, ``x[i] = y`` is ``Tensor.__setitem__``,
# ``if mask:`` asks a tensor for its truth. Operands that would have to be computed again are unknown. Where nothing in
# the expression is torch's, there is no call: a ``KeyError`` of the user's own is none of our business.
UNPACKS = ("UNPACK_SEQUENCE", "UNPACK_EX")
_TRUTH = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")
_ON_WHOLE = {
    "STORE_SUBSCR": "__setitem__", "DELETE_SUBSCR": "__delitem__", "GET_ITER": "__iter__", "FOR_ITER": "__iter__",
    "FORMAT_VALUE": "__format__", "FORMAT_SIMPLE": "__format__",
}  # fmt: skip
_WHOLE = frozenset({"__bool__", *_ON_WHOLE.values()})
_MISUSED = (DataLoader, _IncompatibleKeys)
_KNOWN = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, DataLoader)
_FUNCTIONS = (BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType)


@dataclass(slots=True)
class Written:
    """A call as an expression writes it."""

    method: str = ""  # Name of the method of a tensor that it is, where it is one.
    # The operands, the receiver of a method first; ``*args`` stands as it is written.
    positional: list[ast.expr] = field(default_factory=list)
    named: dict[str, ast.expr] = field(default_factory=dict)  # The operands given by name.
    rest: list[ast.expr] = field(default_factory=list)  # What is given as ``**kwargs``.


@dataclass(slots=True)
class Refused:
    """A call that torch refused."""

    func: Any = None  # The function, where it is known; else None.
    name: str = ""  # Its name, where that is known without it.
    given: tuple[Any, ...] = ()  # What it was given, in order.
    keywords: dict[str, Any] = field(default_factory=dict)  # What it was given by name.
    exact: bool = False  # Whether this is the call as it was made.
    caller: TracebackType | None = None  # The entry of the frame that made it.
    # The entries of torch's own functions within which the call was made, that which was called first.
    around: list[TracebackType] = field(default_factory=list)
    order: tuple[str, ...] = ()  # Names of its parameters, where they are known without the function.

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors that it was given."""
        return tensors_in(*self.given, *self.keywords.values())


def written_call(failing: Failing) -> Written | None:
    """Return the call that an expression writes, whosever function it calls; None where it calls nothing."""
    node = failing.node
    if isinstance(node, ast.Assign | ast.For):
        match value := node.value if isinstance(node, ast.Assign) else node.iter:
            case ast.Attribute(owner, "shape") | ast.Call(ast.Attribute(owner, "size"), [], []) | ast.Call(owner):
                return Written("", [owner])
        return Written("", [value])
    if failing.operation.startswith(_TRUTH) and isinstance(node, ast.expr):
        return Written("__bool__", [node])
    if failing.operation == "STORE_SUBSCR" and isinstance(node, ast.Subscript):
        return Written("__setitem__", [node.value, node.slice])
    if failing.operation in _ON_WHOLE and isinstance(node, ast.expr):
        return Written(_ON_WHOLE[failing.operation], [node])
    return _written(node)


def _written(node: ast.AST) -> Written | None:
    match node:
        case ast.Call():
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            named = {each.arg: each.value for each in node.keywords if each.arg}
            rest = [each.value for each in node.keywords if not each.arg]
            return Written(getattr(node.func, "attr", ""), [*receiver, *node.args], named, rest)
        case ast.BinOp():
            method, operands = OPERATORS.get(type(node.op), ""), [node.left, node.right]
        case ast.UnaryOp():
            method, operands = OPERATORS.get(type(node.op), ""), [node.operand]
        case ast.AugAssign():
            method, operands = f"{OPERATORS.get(type(node.op), '')}_", [node.target, node.value]
        case ast.Compare(ops=[operator], comparators=[other]):
            method, operands = OPERATORS.get(type(operator), ""), [node.left, other]
        case ast.Subscript():
            method, operands = "__getitem__", [node.value, node.slice]
        case ast.Attribute():
            method, operands = node.attr, [node.value]
        case _:
            return None
    return Written(method, operands)


def unpacked(written: Written, names: Mapping[str, Any]) -> tuple[list[ast.expr], dict[str, ast.expr]]:
    """Return the operands of a call one by one, those that a known ``*args`` or ``**kwargs`` gives as ``args[0]``."""
    positional: list[ast.expr] = []
    for operand in written.positional:
        if isinstance(operand, ast.Starred) and type(held := still_value(operand.value, names)) in {list, tuple}:
            positional += [item_of(operand.value, at) for at in range(len(held))]
        else:
            positional.append(operand)
    named = dict(written.named)
    for operand in written.rest:
        held = still_value(operand, names)
        named |= {key: item_of(operand, key) for key in held} if type(held) is dict else {}
    return positional, named


def item_of(holder: ast.expr, key: int | str) -> ast.expr:
    """Return the expression for an item of what an expression gives."""
    return ast.Subscript(holder, ast.Constant(key), ast.Load())


def call_in(failing: Failing, names: Mapping[str, Any], *, only_torch: bool = False) -> Refused | None:
    """Return the call of torch's that an expression makes; None where it is somebody else's.

    Where the error is of a kind that Python's own operators do not raise (``only_torch``), what is computed by
    functions of torch's is taken for a tensor.
    """
    written = written_call(failing)
    if written is None:
        return None
    positional, named = unpacked(written, names)
    given = [still_value(operand, names) for operand in positional]
    keywords = {name: still_value(value, names) for name, value in named.items()}
    has_tensor = bool(tensors_in(*given, *keywords.values()))
    if isinstance(failing.node, ast.Call) and written.method not in _WHOLE:
        called = _called(failing.node, names, has_tensor=has_tensor, only_torch=only_torch)
        if called is None:
            return None
        func, name, has_receiver = called
        given = given if has_receiver or not isinstance(failing.node.func, ast.Attribute) else given[1:]
        for at, node in enumerate(positional[len(positional) - len(given) :]):
            if given[at] is UNKNOWN and isinstance(node, ast.List | ast.Tuple):
                items = [still_value(item, names) for item in node.elts]
                given[at] = items if tensors_in(items) else UNKNOWN  # of a list one known tensor is enough
        return Refused(func, name, tuple(given), keywords)
    operands = (*positional, *named.values())
    if not has_tensor and not any(_hides_tensor(each, names, only_torch=only_torch) for each in operands):
        return None
    if not has_tensor and UNKNOWN not in given:  # an operator of Python's
        no_gradient = any(
            value is None and is_gradient(node, names) for node, value in zip(positional, given, strict=True)
        )
        return Refused(None, "", tuple(given), keywords) if no_gradient or any(map(_is_results, given)) else None
    func = getattr(torch.Tensor, written.method, None)
    return Refused(func, f"Tensor.{written.method}", tuple(given), keywords)


def attribute_in(failing: Failing, names: Mapping[str, Any], message: str) -> Refused | None:
    """Return what has no such attribute: a missing gradient, a number, several results, or an object of torch's."""
    node = failing.node.func if isinstance(failing.node, ast.Call) else failing.node
    if not isinstance(node, ast.Attribute):
        return None
    owner = still_value(node.value, names)
    results = _is_results(owner) or (type(owner) is tuple and bool(tensors_in(owner)))
    gone = owner is UNKNOWN and "'torch.return_types." in message
    no_gradient = "'NoneType'" in message and is_gradient(node.value, names)
    if no_gradient and isinstance(node.value, ast.Attribute):
        computed = still_value(node.value.value, names)
        return Refused(given=(None, computed) if has_history(computed) else (None,))
    no_loss = node.attr == "backward" and type(owner) in {float, int, list, tuple, type(None)}
    no_result = is_kind(owner, torch.nn.Module) and hasattr(torch.Tensor, node.attr)
    said = f"'{type(owner).__name__}' object has no attribute '{node.attr}'"
    itself = is_kind(owner, torch.Tensor) and ast.unparse(node.value).rpartition(".")[2] == node.attr  # loss.loss
    lacks = message == said and (itself or bool(near_names(owner, node.attr)))
    method = is_kind(owner, BuiltinFunctionType) and is_kind(owner.__self__, torch.Tensor)
    found = results or gone or no_loss or no_result or lacks or method
    return Refused(given=(owner,)) if found else None


MOST_NEAR, NEAR = 3, 0.8
_OF_ARRAYS = {"append": "cat", "astype": "to", "copy": "clone", "extend": "cat", "fillna": "nan_to_num"}  # and of lists


def near_names(owner: Any, name: str) -> tuple[str, ...]:
    """Return what an object of torch's has where it lacks a name: what it wraps, names like it, or its modules."""
    if not is_kind(owner, *_KNOWN):
        return ()
    if is_kind(owner, torch.Tensor) and name in _OF_ARRAYS:
        return (_OF_ARRAYS[name],)
    modules, own = vars(owner).get("_modules", {}), vars(owner)
    if is_kind(inner := modules.get("module"), torch.nn.Module) and hasattr(inner, name):
        return (f"module.{name}",)  # DataParallel
    held = [*modules, *own.get("_parameters", {}), *own.get("_buffers", {})]
    known = [one for one in (*held, *own, *dir(type(owner))) if not one.startswith("_")]
    return tuple(difflib.get_close_matches(name, known, MOST_NEAR, NEAR) or list(modules)[:MOST_NEAR])


def unpacked_in(failing: Failing, names: Mapping[str, Any]) -> Refused | None:
    """Return what has another number of parts than there are names for them: a tensor, its shape, a layer's results."""
    written = written_call(failing)
    value = still_value(written.positional[0], names) if written is not None else None
    return Refused(given=(value,)) if is_kind(value, torch.Tensor, torch.nn.RNNBase) else None


def is_gradient(node: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return whether an expression asks a tensor for its gradient."""
    return isinstance(node, ast.Attribute) and node.attr == "grad" and bool(tensors_in(still_value(node.value, names)))


def misused_in(failing: Failing, names: Mapping[str, Any], message: str) -> Refused | None:
    """Return what was taken for what it is not: a DataLoader for a list, the method ``x.size``, a class of modules."""
    if isinstance(failing.node, ast.Call) and isinstance(failing.node.func, ast.Name):
        kind = still_value(failing.node.func, names)
        is_module = is_kind(kind, type) and issubclass(kind, torch.nn.Module)
        if is_module and ".__init__() takes " in message:
            return Refused(given=(kind,))
    if isinstance(failing.node, ast.Subscript) and isinstance(method := failing.node.value, ast.Attribute):
        owner = still_value(method.value, names)
        if is_kind(owner, torch.Tensor) and "method' object is not subscriptable" in message:
            return Refused(given=(owner,))
    nodes = (node for node in ast.walk(failing.node) if isinstance(node, ast.Name | ast.Attribute))
    held = (value for value in (still_value(node, names) for node in nodes) if is_kind(value, *_MISUSED))
    named = (value for value in held if message.startswith(f"'{type(value).__name__}' object is not "))
    return next((Refused(given=(value,)) for value in named), None)


def _is_results(value: Any) -> bool:
    return type(value).__module__ == "torch.return_types" or type(value) is _IncompatibleKeys


def _called(
    node: ast.Call, names: Mapping[str, Any], *, has_tensor: bool, only_torch: bool
) -> tuple[Any, str, bool] | None:
    """Return the function of torch's that a call calls, its name, and whether it is a method of a tensor."""
    func = node.func
    if isinstance(func, ast.Attribute):
        owner = still_value(func.value, names)
        could = owner is UNKNOWN and hasattr(torch.Tensor, func.attr)
        if (could and _hides_tensor(func.value, names, only_torch=only_torch)) or tensors_in(owner):
            return getattr(torch.Tensor, func.attr, None), f"Tensor.{func.attr}", True
        method = inspect.getattr_static(type(owner), func.attr, None)
        if is_torchs(method):  # of an optimizer, a scheduler, a module
            return method, f"{type(owner).__name__}.{func.attr}", True
    found = still_value(func, names)
    if is_torchs(found):
        return found, "", False
    if not is_kind(found, BuiltinFunctionType, type) or found.__module__ != "builtins":
        return None
    # ``float`` asks the tensor that it is given, ``sum`` adds up tensors.
    asks = has_tensor or (only_torch and any(_hides_tensor(each, names, only_torch=True) for each in node.args))
    return (found, found.__name__, False) if asks else None


def is_torchs(func: Any) -> bool:
    """Return whether a function or a class is one of torch's own."""
    if not is_kind(func, *_FUNCTIONS, type, torch.jit.ScriptFunction):
        return False
    homes = (getattr(func, "__module__", None), getattr(getattr(func, "__objclass__", None), "__module__", None))
    return any(str(home).split(".")[0] == "torch" for home in homes) or getattr(torch, func.__name__, None) is func


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """Return the tensors among values, those in lists and tuples included."""
    found: list[torch.Tensor] = []
    for value in values:
        if is_kind(value, torch.Tensor):
            found.append(value)
        elif type(value) in {list, tuple}:
            found += tensors_in(*value)
    return found


# What these give is no tensor: what goes wrong with it is NumPy's error, or Python's.
_NO_TENSORS = frozenset({"numpy", "tolist", "item", "size", "dim", "numel", "shape", "dtype", "device", "ndim"})
_NO_TENSORS_OF = frozenset({"len", "int", "float", "bool", "str", "repr"})


def _hides_tensor(node: ast.AST, names: Mapping[str, Any], *, only_torch: bool) -> bool:
    """Return whether a name or an attribute inside an expression refers to a tensor, or to what makes one."""
    if _gives_no_tensor(node, names):
        return False
    if isinstance(node, ast.Name | ast.Attribute):
        value = still_value(node, names)
        if tensors_in(value) or _is_results(value) or (only_torch and is_torchs(value)):
            return True
    return any(_hides_tensor(inner, names, only_torch=only_torch) for inner in ast.iter_child_nodes(node))


def _gives_no_tensor(node: ast.AST, names: Mapping[str, Any]) -> bool:
    """Return whether a call or an attribute gives what is no tensor, whatever it is of: ``x.numpy()``, ``np.ones``."""
    if isinstance(node, ast.Attribute):
        return node.attr in _NO_TENSORS
    if not isinstance(node, ast.Call):
        return False
    of_builtins = isinstance(node.func, ast.Name) and node.func.id in _NO_TENSORS_OF
    home = str(getattr(still_value(node.func, names), "__module__", ""))
    return of_builtins or home.split(".", maxsplit=1)[0] == "numpy" or _gives_no_tensor(node.func, names)
