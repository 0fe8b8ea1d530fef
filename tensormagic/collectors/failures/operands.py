"""What a call that failed was given, as plain data, and what the user calls it."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import get_testing_overrides, resolve_name

from tensormagic.collectors.failures.failing_call import Steps, given_to_module, modules_in, name_at_home, samples_in
from tensormagic.collectors.failures.failing_source import Refused, item_of, tensors_in, unpacked, written_call
from tensormagic.collectors.objects.children import has_history, is_kind
from tensormagic.collectors.objects.identity import ModuleNames
from tensormagic.collectors.objects.namespace import UNKNOWN, Walk, is_plain_tensor, still_value
from tensormagic.collectors.quiet import dispatches_to_python, numbers, quiet
from tensormagic.collectors.where.source import is_own_frame, names_of
from tensormagic.reports import Location, Operand
from tensormagic.words import article

MOST_OPERANDS = 24
MOST_TEXT = 60
MOST_READ = 1 << 20  # numbers of which the least and the greatest are looked for
RETURN_TYPES = "torch.return_types"  # the module of the named tuples that torch's functions return
_WRITTEN = frozenset({bool, int, float, complex, str, bytes, type(None), slice, type(...), torch.dtype, torch.device,
                      torch.memory_format, torch.layout})  # fmt: skip
_PLAIN = _WRITTEN | {list, tuple, torch.Size}  # numbers and the like, whose text says what they are


class Argument(NamedTuple):
    """One argument of a call, or one item of a list among them."""

    role: str  # the parameter's name; empty where it is not known
    place: str  # ``"tensors[1]"`` for an item of a list; else empty
    value: Any  # what was given, or `UNKNOWN`
    at: int | str  # its place among the positional arguments, or the keyword by which it was given
    item: int | None = None  # its place in the list; None where it is no item


def arguments_of(func: Any, given: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Argument]:
    """Return the arguments of a call with their roles; a list of tensors is one argument a tensor."""
    roles = _roles_of_move(func, given) or roles_of(func, len(given))
    found = []
    for at, value in enumerate(given):
        # All arguments that follow are for sizes, or for the last parameter where there are more.
        takes_rest = at == len(roles) - 1 or roles[at : at + 1] == ("size",)
        if takes_rest and at < len(given) - 1 and not tensors_in(*given[at:]):
            found.append(Argument(roles[at], "", given[at:], at))  # x.view(3, 4)
            break
        found += _arguments(roles[at] if at < len(roles) else "", value, at)
    return found + [each for name, value in keywords.items() for each in _arguments(name, value, name)]


def _arguments(role: str, value: Any, index: int | str) -> list[Argument]:
    if not tensors_in(value) or is_kind(value, torch.Tensor):
        return [Argument(role, "", value, index)]
    return [Argument(role, f"{role}[{at}]", item, index, at) for at, item in enumerate(value)]


def _roles_of_move(func: Any, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names of what moves a tensor to a device, for which torch has one form; () of another function."""
    if func is torch.Tensor.cuda:
        return "self", "device", "non_blocking", "memory_format"
    if func is not torch.Tensor.to:
        return ()
    first = given[1] if len(given) > 1 else None
    kind = "dtype" if is_kind(first, torch.dtype) else "other" if is_kind(first, torch.Tensor) else "device"
    return "self", kind, *(("dtype",) if kind == "device" else ()), "non_blocking", "copy"


def roles_of(func: Any, count: int = 0) -> tuple[str, ...]:
    """Return the names of a function's positional parameters, in its form for ``count``; () if unknown."""
    try:
        described = get_testing_overrides().get(func)
        parameters = inspect.signature(described or func).parameters.values()
    except (TypeError, ValueError):  # no function, or one of C's that nobody describes
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{getattr(func, '__name__', '')}")
        every = [[each.name for each in one.arguments if not (each.is_out or each.kwarg_only)] for one in schemas]
        return tuple(next((roles for roles in every if len(roles) >= count), every[0] if every else ()))
    roles = [each.name for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    return tuple(role for role in roles if role != "out")


def function_name(func: Any) -> str:
    """Return what a user calls a function of torch's: ``"torch.mm"``, ``"Tensor.view"``; empty for no function."""
    name, wording = getattr(func, "__name__", ""), ""
    with suppress(Exception):  # what cannot be looked up has no other name
        wording = str(resolve_name(func) or "")
    homes = {"torch": torch, "torch.nn.functional": nn.functional, "torch.Tensor": torch.Tensor}
    if wording:
        home = wording.rpartition(".")[0]
        # By the name that it has there, where it calls itself otherwise: ``torch.spmm`` is ``torch.mm``.
        wording = f"{home}.{name}" if getattr(homes.get(home), name, None) is func else wording
        wording = re.sub(r"(\.__(get|set|delete)__)+$", "", wording.replace("torch.functional.", "torch."))
    elif not name or getattr(func, "__module__", "") == "builtins":
        return str(name)
    elif not is_kind(func, FunctionType):
        wording = next((f"{home}.{name}" for home, has in homes.items() if callable(getattr(has, name, None))), "")
    wording = wording or name_at_home(func)
    return wording.removeprefix("torch.") if wording.startswith("torch.Tensor.") else wording


def as_given(argument: Argument, steps: Steps) -> Argument:
    """Return a mask as the user gave it: torch hands on one of floating-point numbers."""
    value, (_, kwargs) = argument.value, given_to_module(steps.entries[steps.own + 1 : steps.own + 2])
    mask = given_for(kwargs, argument.role) if argument.role.endswith("mask") else None
    if isinstance(mask, torch.Tensor) and is_kind(value, torch.Tensor) and mask.shape == value.shape:
        return argument._replace(value=mask)
    return argument


def operand_of(argument: Argument, name: str, made_at: Callable[[Any], Location | None] | None) -> Operand:
    """Return an argument as plain data, with its name and where it was made, as far as it can be read. Never raises."""
    value = argument.value
    plain = Operand(name=name, role=argument.role, place=argument.place, is_tensor=False)
    try:
        with quiet():
            if is_kind(value, torch.Tensor):
                nested = value.is_nested
                strided = value.layout == torch.strided and not nested
                least, most = _range(value) if strided else (None, None)
                return replace(
                    plain, is_tensor=True, shape=() if nested else numbers(value.shape), dtype=_bare(value.dtype),
                    device=str(value.device), stride=numbers(value.stride()) if strided else (),
                    layout="nested" if nested else _bare(value.layout), requires_grad=bool(value.requires_grad),
                    is_leaf=not has_history(value), least=least, most=most,
                    location=made_at(value) if made_at else None,
                )  # fmt: skip
            if is_kind(value, torch.Generator):
                return replace(plain, text="torch.Generator", device=str(value.device))
            if "numpy.ndarray" in {f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__}:
                return replace(plain, text="numpy array", shape=numbers(value.shape), dtype=str(value.dtype))
            return replace(plain, text="" if value is UNKNOWN else short_text(value))
    except Exception as error:
        return replace(plain, text=f"unreadable: {type(error).__name__}")


def _range(value: torch.Tensor) -> tuple[float, float] | tuple[None, None]:
    """Return the least and the greatest of numbers that can be read at once: an index, classes, probabilities."""
    if value.is_complex() or not value.is_cpu or not 0 < value.numel() <= MOST_READ or dispatches_to_python(value):
        return None, None
    with suppress(RuntimeError, NotImplementedError):  # of a kind without an order
        least, most = map(float, torch.aminmax(value))
        if math.isfinite(least) and math.isfinite(most):
            return least, most
    return None, None


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def short_text(value: Any, depth: int = 2) -> str:
    """Return something as one would write it, shortened, without running any of the user's code."""
    kind = type(value)
    if kind in _WRITTEN:
        text = repr(value)
    elif kind.__module__ == RETURN_TYPES:
        text = f"{RETURN_TYPES}.{kind.__name__}({', '.join(kind.__match_args__)})"
    elif is_kind(value, torch.Size) or kind in {list, tuple}:
        opening, closing = ("[", "]") if kind is list else ("(", ")")
        items = [short_text(item, depth - 1) for item in value[:MOST_OPERANDS]] if depth else ["…"]
        text = f"{opening}{', '.join(items)}{',' if len(items) == 1 and kind is not list else ''}{closing}"
    elif is_kind(value, torch.Tensor):
        text = f"tensor {tuple(value.shape)}"
    elif is_kind(value, type, FunctionType, BuiltinFunctionType):
        text = value.__name__
    else:
        text = f"the module {kind.__name__}" if is_kind(value, torch.nn.Module) else article(kind.__name__)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


# What the user calls an operand the expression that failed says where it is the user's own: ``x``, ``self.scale``, or
# the result of ``x.mean(1)``. Inside torch's modules, and for what is handed through them, tensors are looked for by
# identity among the names of the functions that are running, the innermost first.

_MOST_NAMES = 4_000  # looked at in one frame
_MOST_FRAMES = 12
_REACHED = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp)


class OperandNames:
    """Names the operands of one refused call."""

    def __init__(self, steps: Steps, refused: Refused, modules: ModuleNames) -> None:
        self._steps, self._refused, self._modules = steps, refused, modules
        frame = refused.caller.tb_frame if refused.caller is not None else None
        own = frame is not None and is_own_frame(frame)
        self._names = {**frame.f_globals, **names_of(frame)} if frame is not None and own else {}
        self._failing = steps.failing_at(refused.caller)
        self._written = written_call(self._failing) if own and self._failing is not None else None
        self._positional, self._named = unpacked(self._written, self._names) if self._written else ([], {})

    def of(self, argument: Argument) -> str:
        """Return what the user calls an argument; empty where nobody knows."""
        value = argument.value
        is_tensor = is_kind(value, torch.Tensor)
        if is_kind(value, nn.Parameter) and (path := self._parameter(value)):
            return path
        if (written := self._expression(argument)) is not None:
            # Of what is no tensor None, results and objects are better shown by their name, numbers and sizes are not.
            named = value is None or type(value) not in _PLAIN or bool(tensors_in(value))
            found = named and not isinstance(written, ast.Constant) and _reaches(written)
            if is_tensor or value is UNKNOWN or found:
                return _described(written)
        if is_tensor:
            return self._among_names(value) or self._parameter(value) or self._handed_in(value, argument.role)
        return ""

    def _expression(self, argument: Argument) -> ast.expr | None:
        """Return the expression by which the failing line gives an argument, where it may be that: it is the user's."""
        index, value = argument.at, argument.value
        node = self._named.get(index) if isinstance(index, str) else None
        if node is None:
            order = self._refused.order
            place = order.index(index) if isinstance(index, str) and index in order else index
            node = self._at(place) if isinstance(place, int) else None
        if node is not None and argument.item is not None:
            alone = value is not UNKNOWN and still_value(node, self._names) is value  # torch put it into a list itself
            node = node if alone else _item(node, argument.item)
        if not isinstance(node, ast.Name) or value is UNKNOWN:
            return node
        found = still_value(node, self._names)
        another = is_plain_tensor(found) or (is_kind(value, torch.Tensor) and type(found) in {list, dict})
        return node if found is UNKNOWN or found is value or not another else None

    def _at(self, index: int) -> ast.expr | None:
        operands, written, func = self._positional, self._written, self._refused.func
        call = self._failing.node if self._failing is not None else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = getattr(func, "__name__", "")
            is_tensors = func is not None and getattr(torch.Tensor, name, None) is func
            if not is_tensors or written is None or written.method != name:  # the first stands before the dot
                operands = operands[1:]
        if getattr(func, "__name__", "").startswith("__r") and isinstance(call, ast.BinOp):
            operands = operands[::-1]
        if any(isinstance(operand, ast.Starred) for operand in operands[: index + 1]):
            return None
        return operands[index] if index < len(operands) else None

    def _parameter(self, tensor: torch.Tensor) -> str:
        """Return the path of a parameter or buffer of the modules that were running."""
        for root, module in self._modules.roots():
            for path, held in (*module.named_parameters(), *module.named_buffers()):
                if held is tensor:
                    return f"{root}.{path}"
        return ""

    def _among_names(self, tensor: torch.Tensor) -> str:
        """Return the name that a running function of the user's has for a tensor."""
        spaces = list(_spaces(self._steps))
        every = (item for space in spaces for item in space.items())
        plain = (name for name, item in every if item is tensor and not name.startswith("_"))
        inside = (item for space in spaces for item in Walk(space, _MOST_NAMES).named(torch.Tensor))
        return next(plain, "") or next((path for path, item in inside if item is tensor), "")

    def _handed_in(self, tensor: torch.Tensor, role: str) -> str:
        """Return what is said of a tensor that a module handed on: whose result it is, or what it was given to."""
        running, own = modules_in(self._steps), self._steps.own
        if not running:
            return ""
        failing = self._steps.failing_at(self._steps.own_entry)
        call = failing.node if failing is not None else None
        if isinstance(call, ast.Call) and not any(isinstance(node, ast.Starred) for node in call.args):
            args, kwargs = given_to_module(self._steps.entries[own + 1 : own + 2])
            named = {each.arg: each.value for each in call.keywords}
            given = [*zip(call.args, args, strict=False), *((named.get(name), value) for name, value in kwargs.items())]
            # A mask goes by its keyword: the module hands on what it made of it, which has its shape.
            mask: Any = given_for(kwargs, role)
            same = (tensor, mask) if is_kind(mask, torch.Tensor) and mask.shape == tensor.shape else (tensor,)
            for node, value in given:
                if node is not None and any(value is one for one in same):
                    return _described(node)
                if node is not None and _is_turned(tensor, value):
                    return f"the result of `{ast.unparse(node)}.transpose(0, 1)`"
        args, kwargs = given_to_module(self._steps.entries)
        every = (*args, *kwargs.values())
        several = (numbered for each in every if type(each) is tuple for numbered in enumerate(each))
        item = next((f"[{at}]" for at, each in several if each is tensor), "")
        path = self._modules.path(running[-1]) if item or any(each is tensor for each in every) else ""
        if path and type(outer := running[-2] if len(running) > 1 else None) is nn.Sequential:
            children = list(outer)
            at = next((at for at, child in enumerate(children) if child is running[-1]), 0)
            if before := self._modules.path(children[at - 1]) if at else "":
                return f"the result of {before}{item}"
        return f"the input of {path}" if path and not item else ""


def given_for(keywords: Mapping[str, Any], role: str) -> Any:
    """Return what a module was given for an argument of its attention: ``src_key_padding_mask`` is its mask."""
    return next((value for name, value in keywords.items() if role and name.removeprefix("src_") == role), None)


def _is_turned(tensor: torch.Tensor, value: Any) -> bool:
    """Return whether a tensor is another one whose batch an attention has put behind the sequence."""
    if not is_kind(value, torch.Tensor) or not tensor.ndim == value.ndim == 3 or tensor.numel() != value.numel():
        return False
    turned = value.transpose(0, 1)
    return tensor.data_ptr() == turned.data_ptr() and (tensor.shape, tensor.stride()) == (turned.shape, turned.stride())


def _spaces(steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield the names of the user's running functions, the innermost first, their modules' or cells' last."""
    if (samples := samples_in(steps.entries)) is not None:
        yield {"batch": samples}  # which the ``collate_fn`` of a DataLoader calls them
    frames = [entry.tb_frame for entry in reversed(steps.entries) if is_own_frame(entry.tb_frame)][:_MOST_FRAMES]
    yield from (dict(names_of(frame)) for frame in frames)
    yield from {id(frame.f_globals): frame.f_globals for frame in frames}.values()


def _item(node: ast.expr, at: int) -> ast.expr | None:
    """Return an item of a list as the line gives it: written out there, or by its place in the list."""
    if isinstance(node, ast.List | ast.Tuple):
        whole = not any(isinstance(item, ast.Starred) for item in node.elts)
        return node.elts[at] if whole and at < len(node.elts) else None
    return item_of(node, at) if isinstance(node, _REACHED) else None


def _described(node: ast.expr) -> str:
    """Return an expression as a name: as it is where it reaches something, else what it is the result of."""
    return ast.unparse(node) if _reaches(node) else f"the result of `{ast.unparse(node)}`"


def _reaches(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)


def namespace_of(steps: Steps, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return all names that the user's running functions can use; those of the innermost hide others."""
    merged = dict(namespace)
    for space in reversed(list(_spaces(steps))):
        merged.update(space)
    return merged
