"""The call that makes a layer of torch's: as the user's code writes it, else with every argument that the layer has."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from tensormagic.collectors.failures.failing_call import Steps
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.objects.namespace import UNKNOWN, still_value
from tensormagic.collectors.where.source import is_own_code, is_own_frame, lines_of, syntax_of

# The arguments of a recurrent layer are those of their base, after the mode.
_RECURRENT = tuple(inspect.signature(nn.RNNBase).parameters)[1:]
_PLAIN = frozenset({bool, int, float, str, tuple})
_AROUND = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)  # who makes one of these makes its attention


def layer_call(steps: Steps, running: Sequence[nn.Module], path: str, names: Mapping[str, Any]) -> str:
    """Return the call that makes the innermost module that was running; empty where it is none of torch's."""
    around = [each for each in running[-2:-1] if is_kind(each, *_AROUND)]
    layer, name = (around or running[-1:])[0], "" if around else path.rpartition(".")[2]
    kind = type(layer)
    if getattr(nn, kind.__name__, None) is not kind:
        return ""
    sources = dict.fromkeys(source for source in _sources(steps, running) if f"{kind.__name__}(" in source)
    written = {ast.unparse(call) for source in sources for call in _calls(source, layer, name, names)}
    if len(written) == 1:
        return written.pop()
    shown = repr(layer)
    return f"nn.{kind.__name__}(...)" if "\n" in shown else f"nn.{shown}"


def _sources(steps: Steps, running: Sequence[nn.Module]) -> Iterator[str]:
    """Yield the source of the files and cells whose functions were running, or that define a module that was."""
    codes = [entry.tb_frame.f_code for entry in steps.entries if is_own_frame(entry.tb_frame)]
    inits = (getattr(type(module).__init__, "__code__", None) for module in running)
    for code in (*(each for each in inits if each is not None), *codes):
        if is_own_code(code.co_filename):
            yield "".join(lines_of(code.co_filename))


def _calls(source: str, layer: nn.Module, name: str, names: Mapping[str, Any]) -> Iterator[ast.Call]:
    """Yield the calls that made a layer: of its class, and with its arguments, or assigned to its name."""
    nodes = list(ast.walk(syntax_of(source)))
    targets = {id(node.value): node.targets[0] for node in nodes if isinstance(node, ast.Assign)}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        target = targets.get(id(call))
        called, assigned = (getattr(each, "attr", getattr(each, "id", "")) for each in (call.func, target))
        if called == type(layer).__name__ and _fits(call, layer, names, wholly=not name or assigned != name):
            yield call


def _fits(call: ast.Call, layer: nn.Module, names: Mapping[str, Any], *, wholly: bool) -> bool:
    """Return whether all arguments of a call, as far as they are known, are those that a layer has."""
    order = _RECURRENT if is_kind(layer, nn.RNNBase) else tuple(inspect.signature(type(layer)).parameters)
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return False
    given = {**dict(zip(order, call.args, strict=False)), **{each.arg or "": each.value for each in call.keywords}}
    values = {name: still_value(node, names) for name, node in given.items()}
    unknown = any(value is UNKNOWN for value in values.values())
    return not (wholly and unknown) and all(_is_value(vars(layer), name, value) for name, value in values.items())


def _is_value(held: Mapping[str, Any], name: str, value: Any) -> bool:
    """Return whether a layer has a value for an argument; one that is not known, or kept, may be it."""
    if value is UNKNOWN:
        return True
    if name in held["_parameters"]:
        return (held["_parameters"][name] is not None) == bool(value)
    has = held.get(name)
    return type(has) not in _PLAIN or has == value or (type(has) is tuple and type(value) is int and {*has} == {value})
