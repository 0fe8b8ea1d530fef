"""What an object is and holds, asked without running any of its code."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType, NoneType, UnionType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

# Asks what a value of the person's is, and what it holds, without asking the value.
#
# ``isinstance`` reads ``__class__``, which a proxy answers by code of its own, and a dead one (``weakref.proxy`` of
# what is gone, a service that cannot be reached) by raising. In a namespace anything may lie.


def is_a(value: Any, kinds: type | UnionType | tuple[type, ...]) -> bool:
    """Return whether a value is really of a class, whatever it says of itself."""
    return issubclass(type(value), kinds)


_PLAIN = frozenset({torch.Tensor, nn.Parameter, nn.Buffer})
_ANSWERS = {
    "layout": torch.layout, "device": torch.device, "dtype": torch.dtype, "requires_grad": bool, "is_leaf": bool,
    "is_nested": bool, "_cdata": int,
}  # fmt: skip


def is_readable(x: Any) -> bool:
    """Return whether a tensor answers what is asked of every tensor; code of its class may do something else."""
    if type(x) in _PLAIN:
        return True
    try:
        with torch._C.DisableTorchFunction():
            if not all(is_a(getattr(x, name), kind) for name, kind in _ANSWERS.items()):
                return False
            with suppress(RuntimeError):  # of a view that was changed in a way that autograd forbids
                if x.grad_fn is not None and not hasattr(type(x.grad_fn), "_sequence_nr"):
                    return False
            return is_lazy(x) or (is_a(x.shape, torch.Size) and is_a(x._base, torch.Tensor | NoneType))
    except Exception:
        return False


def home_of(kind: type) -> str:
    """Return the module that a class says it is defined in; empty where it says none."""
    try:
        home = type.__getattribute__(kind, "__module__")
    except AttributeError:
        return ""  # a class made where there is no ``__name__``
    return home if type(home) is str else ""


def attributes_of(value: Any) -> dict[str, Any]:
    """Return what a value's ``__dict__`` holds; nothing where it has none that can be had."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # slots alone, or code of the person's stands there
        return {}
    return found if type(found) is dict else {}


def items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return keys and values of a list, tuple or dictionary as Python has them stored; nothing of anything else."""
    if is_a(value, dict):
        return list(dict.items(value))
    if is_a(value, list):
        return list(enumerate(list.__iter__(value)))
    return list(enumerate(tuple.__iter__(value))) if is_a(value, tuple) else ()


# What an object holds: items, attributes, closure cells, optimizer state, a gradient; with the name of each.
#
# Only exact knowledge is used, so that looking has no side effects: builtin containers through the builtin types' own
# methods, modules through their registries, other objects through the dictionary and slots that Python itself keeps
# for them. No property, no ``__getattr__``, no iterator that somebody else wrote ever runs.

Child = tuple[str, object, int]  # name, object, and how many containers deep one may still go from there
Label = Callable[[object], str]

NO_FURTHER = -1  # a child that is to be seen, but not looked into
_OPAQUE = (str, bytes, bool, int, float, complex, type(None), type, ModuleType)
_METHODS = (torch._C.ScriptMethod,)
_MODULE_OWN = frozenset(nn.Module().__dict__)
REGISTRIES = ("_parameters", "_buffers", "_modules")
# Machinery that is large, full of cycles, and never where a person keeps a tensor.
_MACHINERY = frozenset({
    "IPython", "_pytest", "_thread", "_weakref", "asyncio", "concurrent", "ipykernel", "logging", "matplotlib",
    "multiprocessing", "pluggy", "plotly", "pytest", "sympy", "tensormagic", "threading", "tornado", "traitlets",
    "unittest", "weakref", "zmq",
})  # fmt: skip
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_dict_of: Callable[[type], dict[str, Any]] = type.__dict__["__dict__"].__get__


def is_kind(item: object, *kinds: type) -> bool:
    """Return whether an object's class is one of these or derived from one.

    ``isinstance`` would ask the object for ``__class__``, which proxies answer by running code.
    """
    kind = type(item)
    if kind in kinds:
        return True
    family = mro_of(kind)
    return any(wanted in family for wanted in kinds)


def is_opaque(item: object) -> bool:
    """Return whether an object surely holds nothing: a number, a string, a class, a module."""
    kind = type(item)
    if kind in _OPAQUE or is_kind(item, type):  # a class, whatever its metaclass
        return True
    return kind is FunctionType and not _has_cells(item)


def can_hold(item: object, depth: int) -> bool:
    """Return whether it is worth looking into an object, that many containers from the end."""
    if is_opaque(item) or depth < 0:
        return False
    return depth > 0 or is_kind(item, nn.Module, torch.Tensor)


def children(path: str, item: Any, depth: int, label: Label) -> Iterator[Child]:
    """Yield what an object holds, with the name that reaches it and how deep containers may still go.

    Args:
        path: The name that reaches the object.
        item: The object.
        depth: How many containers deep one may still go from it.
        label: Gives the name of a tensor that is a key: of a parameter, in the state of its optimizer.
    """
    for kinds, held in _HOLDERS:
        if is_kind(item, *kinds):
            yield from held(path, item, depth, label)
            return
    yield from _object_children(path, item, depth)


def _module_children(path: str, module: nn.Module, depth: int, _label: Label) -> Iterator[Child]:
    """Yield parameters, buffers, submodules, as `named_parameters` spells them, and plain attributes."""
    attributes = attributes_of(module)
    for registry in REGISTRIES:
        held = registered(module, registry).items()
        yield from ((f"{path}.{name}", value, depth) for name, value in held if value is not None)
    # Those of torch keep second references, a scripted one in its methods, too.
    is_torchs = home_of(type(module)).partition(".")[0] == "torch"
    for name, value in list(dict.items(attributes)):
        if is_torchs and not is_kind(value, torch.Tensor) and (name.startswith("_") or is_kind(value, *_METHODS)):
            continue
        if name not in _MODULE_OWN:
            yield f"{path}.{name}", value, depth if is_kind(value, torch.Tensor, nn.Module) else depth - 1


def buffers_of(module: nn.Module) -> dict[int, bool]:
    """Return what a module has registered as its own buffers, by ``id``, and whether ``state_dict()`` has it."""
    attributes = attributes_of(module)
    passing = attributes.get("_non_persistent_buffers_set") or ()
    held = registered(module, "_buffers").items()
    return {id(buffer): name not in passing for name, buffer in held if buffer is not None}


def registered(module: nn.Module, registry: str) -> dict[str, Any]:
    """Return what a module has registered, by name: its ``"_parameters"``, ``"_buffers"`` or ``"_modules"``.

    Those of a scripted module are in C++; what stands in for the dictionary is torch's own.
    """
    held = attributes_of(module).get(registry) or {}
    if is_kind(held, dict):
        return dict(dict.items(held))
    return dict(held.items()) if home_of(type(held)).startswith("torch.") else {}


def _optimizer_children(path: str, optimizer: Any, depth: int, label: Label) -> Iterator[Child]:
    """Yield what an optimizer updates, and what it remembers of each."""
    attributes = attributes_of(optimizer)
    names: dict[int, str] = {}
    for at, group in enumerate(attributes.get("param_groups") or ()):
        for name, parameter in _parameters_of(f"{path}.param_groups[{at}]", group):
            names[id(parameter)] = name
            yield name, parameter, NO_FURTHER
    for parameter, state in list(dict.items(attributes.get("state") or {})):
        key = label(parameter) or names.get(id(parameter), repr(parameter) if is_opaque(parameter) else "?")
        yield f"{path}.state[{key}]", state, depth - 1


def _parameters_of(path: str, group: Any) -> Iterator[tuple[str, object]]:
    held: Any = dict.get(group, "params") if is_kind(group, dict) else None
    if is_kind(held, list):
        yield from ((f"{path}['params'][{at}]", parameter) for at, parameter in enumerate(list.__iter__(held)))


def gradient_there(x: torch.Tensor, *, retained: bool = True) -> torch.Tensor | None:
    """Return the ``.grad`` of a leaf, or of what retains it; None also where torch refuses to say whether it is one.

    One of several views of a tensor that was written to refuses: FSDP's flat parameters leave such.
    """
    try:
        return x.grad if x.is_leaf or (retained and x.retains_grad) else None
    except RuntimeError:
        return None


def gradient(path: str, x: torch.Tensor) -> list[Child]:
    """Return a leaf's gradient; that of other tensors is not read, for torch warns when it is."""
    with torch._C.DisableTorchFunction():
        grad = gradient_there(x, retained=False)
    return [] if grad is None else [(f"{path}.grad", grad, 0)]


def _dict_children(path: str, item: Any, depth: int, _label: Label) -> Iterator[Child]:
    pairs = ((key, value) for key, value in list(dict.items(item)) if type(key) in {str, int})
    return ((f"{path}[{key!r}]", value, depth - 1) for key, value in pairs)


def _sequence_children(path: str, item: Any, depth: int, _label: Label) -> Iterator[Child]:
    base = next(kind for kind in (list, tuple, deque) if is_kind(item, kind))
    return ((f"{path}[{at}]", value, depth - 1) for at, value in enumerate(base.__iter__(item)))


def _set_children(path: str, item: Any, depth: int, _label: Label) -> Iterator[Child]:
    base = set if is_kind(item, set) else frozenset
    return ((f"list({path})[{at}]", value, depth - 1) for at, value in enumerate(base.__iter__(item)))


def _function_children(path: str, function: Any, depth: int, _label: Label) -> Iterator[Child]:
    """Yield what a function closes over, its defaults and its attributes."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell may be empty still
            yield f"{path}.<closure>.{name}", cell.cell_contents, depth - 1
    defaults = {"__defaults__": function.__defaults__, "__kwdefaults__": function.__kwdefaults__}
    held = {name: value for name, value in {**defaults, **function.__dict__}.items() if value}
    yield from ((f"{path}.{name}", value, depth) for name, value in held.items())


def _has_cells(function: Any) -> bool:
    return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__)


def _method_children(path: str, method: Any, depth: int, _label: Label) -> Iterator[Child]:
    yield f"{path}.__self__", method.__self__, depth - 1


def _partial_children(path: str, item: Any, depth: int, _label: Label) -> Iterator[Child]:
    for name in ("func", "args", "keywords"):
        yield f"{path}.{name}", _dict_of(functools.partial)[name].__get__(item), depth


def _object_children(path: str, item: object, depth: int) -> Iterator[Child]:
    """Yield the attributes of an object of somebody's own class, a dataclass for one: its dictionary and its slots."""
    if home_of(type(item)).partition(".")[0] in _MACHINERY:
        return
    for name, value in [*_attributes(item), *_slots(item)]:
        yield f"{path}.{name}", value, depth - 1


def _attributes(item: object) -> list[tuple[str, object]]:
    for kind in mro_of(type(item)):
        found = _dict_of(kind).get("__dict__")
        if found is not None:
            kept = type(found) in {GetSetDescriptorType, MemberDescriptorType}  # by Python itself, not by a property
            held = found.__get__(item) if kept else {}
            pairs = list(dict.items(held)) if is_kind(held, dict) else []
            return [(name, value) for name, value in pairs if type(name) is str]
    return []


def _slots(item: object) -> Iterator[tuple[str, object]]:
    for kind in mro_of(type(item)):
        if "__slots__" not in _dict_of(kind):
            continue
        for name, member in list(_dict_of(kind).items()):
            if type(member) is MemberDescriptorType:
                with suppress(AttributeError):  # nothing may have been put there yet
                    yield name, member.__get__(item)


# What is asked for its content, in which way: the first line that fits counts. An object of any other class is asked
# for its attributes.
_HOLDERS: tuple[tuple[tuple[type, ...], Callable[[str, Any, int, Label], Iterator[Child]]], ...] = (
    ((nn.Module,), _module_children),
    ((torch.optim.Optimizer,), _optimizer_children),
    ((dict,), _dict_children),
    ((list, tuple, deque), _sequence_children),
    ((set, frozenset), _set_children),
    ((FunctionType,), _function_children),
    ((MethodType,), _method_children),
    ((functools.partial,), _partial_children),
)
