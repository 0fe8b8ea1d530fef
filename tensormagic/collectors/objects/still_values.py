"""Reads what an expression in a line refers to, without running any of the person's code.

A call has failed, and its line is read once more: ``self.fc.weight``, ``batch["x"]``, ``parts[0]``, ``b.T``. Names are
looked up, attributes only where they are plainly stored, items only in builtin containers; of tensors what is a view or
a number. Everything else is `UNKNOWN`: it would have to be computed again.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from types import MemberDescriptorType, ModuleType
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.objects.holdings import REGISTRIES, attributes_of, is_kind, mro_of, registered
from tensormagic.collectors.quiet import quiet

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN", "__slots__": ()})()

_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)
_TENSOR_ATTRIBUTES = frozenset({"T", "mT", "data", "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf"})
_TENSOR_METHODS = frozenset({
    "size", "dim", "numel", "stride", "t", "transpose", "permute", "unsqueeze", "squeeze", "view", "expand", "detach",
})  # fmt: skip
_BUILTINS = vars(builtins)


def still_value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what an expression refers to, or `UNKNOWN`. Never raises.

    Args:
        node: The expression.
        names: What names are bound to where it stands.
    """
    reader = _READERS.get(type(node))
    if reader is None:
        return UNKNOWN
    try:
        return reader(node, names)
    except Exception:  # what cannot be read is not known
        return UNKNOWN


def _name(node: ast.Name, names: Mapping[str, Any]) -> Any:
    return names[node.id] if node.id in names else _BUILTINS.get(node.id, UNKNOWN)


def _constant(node: ast.Constant, _names: Mapping[str, Any]) -> Any:
    return node.value


def _several(node: ast.Tuple | ast.List, names: Mapping[str, Any]) -> Any:
    values = [still_value(item, names) for item in node.elts]
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    return tuple(values) if isinstance(node, ast.Tuple) else values


def _attribute(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    owner = still_value(node.value, names)
    if is_plain_tensor(owner):
        return _of_tensor(owner, node.attr)
    return stored(owner, node.attr)


def _of_tensor(tensor: torch.Tensor, name: str) -> Any:
    if name == "grad":
        return tensor.grad if tensor.is_leaf else UNKNOWN
    if name not in _TENSOR_ATTRIBUTES:
        return UNKNOWN
    with quiet():
        return getattr(tensor, name)


def is_plain_tensor(value: Any) -> bool:
    """Return whether something is a tensor of torch's own class, whose methods are torch's."""
    return type(value) in _PLAIN_TENSORS


def stored(owner: Any, name: str) -> Any:
    """Return an attribute that is plainly stored, on an object, its class or in a module's registries, or `UNKNOWN`."""
    if owner is UNKNOWN:
        return UNKNOWN
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, UNKNOWN)
    if is_kind(owner, type):
        return _of_class(owner, name)
    held = attributes_of(owner)
    if name in held:
        return held[name]
    registries = [registered(owner, each) for each in REGISTRIES] if is_kind(owner, nn.Module) else []
    found = next((registry[name] for registry in registries if name in registry), UNKNOWN)
    return _slot(owner, name) if found is UNKNOWN else found


def _slot(owner: Any, name: str) -> Any:
    """Return what an object of a class with ``__slots__`` holds."""
    slot = next((vars(kind)[name] for kind in mro_of(type(owner)) if name in vars(kind)), None)
    return slot.__get__(owner) if isinstance(slot, MemberDescriptorType) else UNKNOWN


def _of_class(owner: type, name: str) -> Any:
    """Return what a class holds under a name: functions and constants, without asking any descriptor."""
    found = next((vars(kind)[name] for kind in mro_of(owner) if name in vars(kind)), UNKNOWN)
    return found.__func__ if isinstance(found, staticmethod) else found


def _subscript(node: ast.Subscript, names: Mapping[str, Any]) -> Any:
    owner, key = still_value(node.value, names), still_value(node.slice, names)
    if owner is UNKNOWN or key is UNKNOWN:
        return UNKNOWN
    if is_plain_tensor(owner):
        return _view_of(owner, key)
    if is_kind(owner, dict):
        return dict.get(owner, key, UNKNOWN) if isinstance(key, str | int) else UNKNOWN
    for kind in (list, tuple):
        if is_kind(owner, kind):
            return kind.__getitem__(owner, key)
    return UNKNOWN


def _view_of(tensor: torch.Tensor, key: Any) -> Any:
    keys = key if isinstance(key, tuple) else (key,)
    if not all(each is None or each is ... or type(each) in {int, slice} for each in keys):
        return UNKNOWN  # a mask or a list of indices copies
    with quiet():
        return tensor[key]


def _slice(node: ast.Slice, names: Mapping[str, Any]) -> Any:
    ends = [None if end is None else still_value(end, names) for end in (node.lower, node.upper, node.step)]
    return UNKNOWN if any(end is UNKNOWN for end in ends) else slice(*ends)


def _unary(node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
    value = still_value(node.operand, names)
    return -value if isinstance(node.op, ast.USub) and type(value) in {int, float} else UNKNOWN


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Div: lambda left, right: left / right,
}


def _binary(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = still_value(node.left, names), still_value(node.right, names)
    numbers = type(left) in {int, float} and type(right) in {int, float}
    return _ARITHMETIC[type(node.op)](left, right) if numbers and type(node.op) in _ARITHMETIC else UNKNOWN


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    """Return a tensor's size, or a view of it."""
    if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        (given,) = (still_value(argument, names) for argument in node.args)
        return len(given) if type(given) in {list, tuple, dict, str} or is_plain_tensor(given) else UNKNOWN
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _TENSOR_METHODS or node.keywords:
        return UNKNOWN
    owner = still_value(node.func.value, names)
    given = [still_value(argument, names) for argument in node.args]
    if not is_plain_tensor(owner) or any(value is UNKNOWN for value in given):
        return UNKNOWN
    with quiet():
        return getattr(owner, node.func.attr)(*given)


_READERS: dict[type[ast.AST], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Tuple: _several,
    ast.List: _several,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Call: _call,
}
