"""What the person calls the operands of a call that failed: names, paths of parameters, expressions.

The expression that failed says it where it is the person's own: ``x``, ``self.scale``, or the result of ``x.mean(1)``.
Inside torch's modules, and for what is handed through them, tensors are looked for by identity among the names of the
functions that are running, the innermost first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.failures.failing_call import (
    Refused,
    Steps,
    given_to_module,
    handed_to_module,
    is_own,
    modules_in,
)
from tensormagic.collectors.failures.failing_expression import unpacked, written_call
from tensormagic.collectors.failures.failing_source import failing_at
from tensormagic.collectors.failures.operands import Argument, has_tensor, is_plain
from tensormagic.collectors.objects.holdings import is_kind
from tensormagic.collectors.objects.identity import ModuleNames
from tensormagic.collectors.objects.namespace import Walk
from tensormagic.collectors.objects.still_values import UNKNOWN, is_plain_tensor, still_value
from tensormagic.collectors.where.running import names_of

_MOST_NAMES = 4_000  # looked at in one frame
_MOST_FRAMES = 12
_REACHED = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp)


class OperandNames:
    """Names the operands of one refused call.

    Args:
        steps: The way to it.
        refused: The call.
        modules: Paths of modules.
    """

    def __init__(self, steps: Steps, refused: Refused, modules: ModuleNames) -> None:
        self._steps, self._refused, self._modules = steps, refused, modules
        self._own_call = refused.caller is not None and is_own(refused.caller.tb_frame)
        self._written = written_call(refused.failing) if refused.failing is not None else None
        self._positional, self._named = self._unpacked()
        self._spaces: list[dict[str, Any]] | None = None

    def of(self, argument: Argument) -> str:
        """Return what the person calls an argument; empty where nobody knows."""
        value = argument.value
        is_tensor = is_kind(value, torch.Tensor)
        if is_kind(value, nn.Parameter) and (path := self._parameter(value)):
            return path
        written = self._expression(argument) if self._own_call else None
        if written is not None and (is_tensor or value is UNKNOWN or (_has_a_name(value) and _is_place(written))):
            return _told(written)
        if is_tensor:
            return self._among_names(value) or self._parameter(value) or self._handed_in(value)
        return ""

    # -- by the expression that failed ------------------------------------------------------------------------------

    def _expression(self, argument: Argument) -> ast.expr | None:
        """Return the expression by which the failing line gives an argument."""
        index = argument.at
        if isinstance(index, str) and index in self._named:
            node: ast.expr | None = self._named[index]
        else:
            order = self._refused.order
            place = order.index(index) if isinstance(index, str) and index in order else index
            node = self._at(place) if isinstance(place, int) else None
        if node is not None and argument.item is not None:
            node = _item(node, argument.item)
        return node if node is not None and self._agrees(node, argument.value) else None

    def _unpacked(self) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        entry = self._refused.caller
        if self._written is None or entry is None:
            return [], {}
        return unpacked(self._written, {**entry.tb_frame.f_globals, **names_of(entry.tb_frame)})

    def _at(self, index: int) -> ast.expr | None:
        operands = self._positional
        call = self._refused.failing.node if self._refused.failing is not None else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not self._is_method():
            operands = operands[1:]
        if getattr(self._refused.func, "__name__", "").startswith("__r") and isinstance(call, ast.BinOp):
            operands = operands[::-1]
        if any(isinstance(operand, ast.Starred) for operand in operands[: index + 1]):
            return None
        return operands[index] if index < len(operands) else None

    def _is_method(self) -> bool:
        """Return whether the call is one of a tensor's methods, whose first argument stands before the dot."""
        written, func = self._written, self._refused.func
        name = getattr(func, "__name__", self._refused.name.rsplit(".", 1)[-1])
        is_tensors = func is not None and getattr(torch.Tensor, name, None) is func
        return is_tensors and written is not None and written.method == name

    def _agrees(self, node: ast.expr, value: Any) -> bool:
        """Return whether an expression may be what an argument was given by: it refers to nothing else."""
        entry = self._refused.caller
        if value is UNKNOWN or entry is None or not isinstance(node, ast.Name | ast.Attribute):
            return True
        found = still_value(node, {**entry.tb_frame.f_globals, **names_of(entry.tb_frame)})
        return found is UNKNOWN or found is value or not is_plain_tensor(found) or isinstance(node, ast.Attribute)

    # -- by identity ------------------------------------------------------------------------------------------------

    def _parameter(self, tensor: torch.Tensor) -> str:
        """Return the path of a parameter or buffer of the modules that were running."""
        for root, module in self._modules.roots():
            for path, held in (*module.named_parameters(), *module.named_buffers()):
                if held is tensor:
                    return f"{root}.{path}"
        return ""

    def _among_names(self, tensor: torch.Tensor) -> str:
        """Return the name that a running function of the person's has for a tensor."""
        if self._spaces is None:
            self._spaces = list(_spaces(self._steps))
        for space in self._spaces:
            for name, item in space.items():
                if item is tensor and not name.startswith("_"):
                    return name
        for space in self._spaces:
            walk = Walk(space, _MOST_NAMES)
            for path, item in walk.named(torch.Tensor):
                if item is tensor:
                    return path
        return ""

    def _handed_in(self, tensor: torch.Tensor) -> str:
        """Return what is said of a tensor that a module handed on: whose result it is, or what it was given to."""
        running = modules_in(self._steps)
        if not running:
            return ""
        if (node := self._given_to_module(tensor)) is not None:
            return _told(node)
        path = self._modules.path(running[-1]) if any(item is tensor for item in self._given_innermost()) else ""
        return (self._before(running) or f"the input of {path}") if path else ""

    def _given_innermost(self) -> list[Any]:
        """Return what the innermost running module was called with."""
        args, kwargs = given_to_module(self._steps)
        return [*args, *kwargs.values()]

    def _given_to_module(self, tensor: torch.Tensor) -> ast.expr | None:
        """Return the expression by which the person's line gave a tensor to the module that it called."""
        person = self._steps.person
        failing = failing_at(person) if person is not None else None
        args, kwargs = handed_to_module(self._steps)
        if failing is None or not isinstance(failing.node, ast.Call):
            return None
        if any(isinstance(node, ast.Starred) for node in failing.node.args):
            return None
        for node, given in zip(failing.node.args, args, strict=False):
            if given is tensor:
                return node
        named = {each.arg: each.value for each in failing.node.keywords}
        return next((named[name] for name, given in kwargs.items() if given is tensor and name in named), None)

    def _before(self, running: list[nn.Module]) -> str:
        """Return the module whose result a ``nn.Sequential`` handed to the innermost module."""
        if len(running) < 2 or type(running[-2]) is not nn.Sequential:
            return ""
        children = list(running[-2])
        at = next((at for at, child in enumerate(children) if child is running[-1]), 0)
        path = self._modules.path(children[at - 1]) if at else ""
        return f"the result of {path}" if path else ""


def _spaces(steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield the names of the person's running functions, the innermost first, their modules' or cells' last."""
    frames = [entry.tb_frame for entry in reversed(steps.entries) if is_own(entry.tb_frame)][:_MOST_FRAMES]
    yield from (dict(names_of(frame)) for frame in frames)
    seen: set[int] = set()
    for frame in frames:
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            yield frame.f_globals


def _has_a_name(value: Any) -> bool:
    """Return whether what is no tensor is better told by its name: None, results, an object; not a number or sizes."""
    return value is None or (type(value) in {list, tuple} and has_tensor((value,))) or not is_plain(value)


def _is_place(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant) and _reaches(node)


def _item(node: ast.expr, at: int) -> ast.expr | None:
    """Return an item of a list as the line gives it: written out there, or by its place in the list."""
    if isinstance(node, ast.List | ast.Tuple):
        whole = not any(isinstance(item, ast.Starred) for item in node.elts)
        return node.elts[at] if whole and at < len(node.elts) else None
    if isinstance(node, _REACHED):
        return ast.Subscript(node, ast.Constant(at), ast.Load())
    return None


def _told(node: ast.expr) -> str:
    """Return an expression as a name: as it is where it reaches something, else what it is the result of."""
    text = ast.unparse(node)
    return text if _reaches(node) else f"the result of `{text}`"


def _reaches(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)


def namespace_of(steps: Steps, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return all names that the person's running functions can use; those of the innermost hide others."""
    merged = dict(namespace)
    for space in reversed(list(_spaces(steps))):
        merged.update(space)
    return merged


def module_names(steps: Steps, namespace: Mapping[str, Any]) -> ModuleNames:
    """Return the paths of the modules that were running, as the person reaches them."""
    names = ModuleNames(namespace_of(steps, namespace))
    running = modules_in(steps)
    if running:
        names.add_root(running[0])
    return names
