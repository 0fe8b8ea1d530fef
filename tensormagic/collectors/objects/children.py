"""What an object is and holds, asked without running any of its code."""

from __future__ import annotations

import array
import functools
import gc
import itertools
import mmap
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tensormagic.collectors.geometry.parts import PLAIN
from tensormagic.collectors.where.source import (
    AskedOnce,
    failing_line,
    function_of_code,
    in_file,
    is_own_code,
    running_line,
)
from tensormagic.reports import Location

# Asks what a value of the user's is, and what it holds, without asking the value: ``isinstance`` reads ``__class__``,
# which a proxy answers by code of its own, and a dead one (``weakref.proxy`` of what is gone) by raising.

mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_dict_of: Callable[[type], dict[str, Any]] = type.__dict__["__dict__"].__get__
ATOMS: frozenset[type] = frozenset({  # what surely holds nothing
    int, float, complex, bool, str, bytes, range, slice, type(None), type(...), torch.dtype, torch.device,
})  # fmt: skip
BUFFERS = (bytes, bytearray, memoryview, array.array, mmap.mmap)  # whose memory tensors and arrays can lie over
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")  # of a tensor: dictionaries of functions
MODULE_OWN = frozenset(nn.Module().__dict__)
PARAMETERS_AND_BUFFERS = ("_parameters", "_buffers")
REGISTRIES = (*PARAMETERS_AND_BUFFERS, "_modules")
# Machinery that is large, full of cycles, and never where a user keeps a tensor.
MACHINERY = frozenset({
    "IPython", "_pytest", "_thread", "_weakref", "asyncio", "builtins", "concurrent", "ipykernel", "logging",
    "matplotlib", "multiprocessing", "pluggy", "plotly", "pytest", "sympy", "tensormagic", "tornado", "traitlets",
    "unittest", "weakref", "zmq",
})  # fmt: skip


def is_kind(item: object, *kinds: type) -> bool:
    """Return whether an object is really of one of these classes, whatever it says of itself."""
    return issubclass(type(item), kinds)


_ANSWERS = {
    "layout": torch.layout, "device": torch.device, "dtype": torch.dtype, "requires_grad": bool, "is_leaf": bool,
    "is_nested": bool, "_cdata": int,
}  # fmt: skip


def is_readable(x: Any) -> bool:
    """Return whether a tensor answers what is asked of every tensor; code of its class may do something else."""
    if type(x) in PLAIN:
        return True
    try:
        with torch._C.DisableTorchFunction(), _without_cached_sizes(x):
            node, answers = graph_of(x), all(is_kind(getattr(x, name), kind) for name, kind in _ANSWERS.items())
            if not answers or not (node is None or hasattr(type(node), "_sequence_nr")):
                return False
            return is_lazy(x) or (is_kind(x.shape, torch.Size) and is_kind(x._base, torch.Tensor, types.NoneType))
    except Exception:
        return False


@contextmanager
def _without_cached_sizes(x: torch.Tensor) -> Iterator[None]:
    """Take out what torch puts into the ``__dict__`` as a class tells its sizes: somebody may be going over it."""
    held = attributes_of(x)
    before = frozenset(held)
    try:
        yield
    finally:
        for name in [name for name in held if name.startswith("_sym_") and name not in before]:
            del held[name]


def graph_of(x: torch.Tensor) -> Any:
    """Return the node that made a tensor; None also for a view that was changed in a way that autograd forbids."""
    try:
        return x.grad_fn
    except RuntimeError:
        return None


def defining_module(kind: type) -> str:
    """Return the module that a class says it is defined in; empty where it says none."""
    try:
        home = type.__getattribute__(kind, "__module__")
    except AttributeError:
        return ""  # a class made where there is no ``__name__``
    return home if type(home) is str else ""


def attributes_of(value: Any) -> dict[str, Any]:
    """Return what Python itself keeps as a value's ``__dict__``; nothing where a property stands there."""
    held = _dictionary_of(type(value))(value)
    return held if type(held) is dict else dict(dict.items(held)) if is_kind(held, dict) else {}


def _dictionary_of(kind: type) -> Callable[[Any], Any]:
    """Return what reads the ``__dict__`` of a class's instances."""
    declared = (_dict_of(each).get("__dict__") for each in mro_of(kind))
    found: Any = next((one for one in declared if one is not None), None)
    if type(found) in {types.GetSetDescriptorType, types.MemberDescriptorType}:
        return found.__get__  # type: ignore[no-any-return]
    return lambda _: None


def items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return keys and values of a list, tuple or dictionary as Python has them stored; nothing of anything else."""
    if is_kind(value, dict):
        return list(dict.items(value))
    kind: Any = next((kind for kind in (list, tuple) if is_kind(value, kind)), None)
    return () if kind is None else list(enumerate(kind.__iter__(value)))


_LITERALS, _UNWRITABLE = {str, int, bool, bytes, float, type(None), torch.dtype}, {"nan", "inf", "-inf"}


def key_text(key: Any) -> str:
    """Return a dictionary's key as a user writes it; nothing where that takes more than a literal; no code runs."""
    if type(key) is tuple:
        parts = [key_text(each) for each in key]
        return repr(key) if all(parts) else ""
    text = repr(key) if type(key) in _LITERALS else ""
    return "" if text in _UNWRITABLE else text


def is_opaque(item: object) -> bool:
    """Return whether an object surely holds nothing: a number, a string, a class, a module."""
    if type(item) in ATOMS or is_kind(item, type, types.ModuleType):  # a class, whatever its metaclass
        return True
    function: Any = item
    return type(item) is types.FunctionType and not (
        function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__
    )


def is_long(item: Any) -> bool:
    """Return whether an object is a builtin container of so many items that others are to be looked at before."""
    return not _CONTAINERS.isdisjoint(mro_of(type(item))) and _container_of(type(item)).__len__(item) > _LONG


def begins_plainly(item: Any, is_plain: Callable[[Any], bool]) -> bool:
    """Return whether a builtin container is long and begins with nothing but numbers and strings: it holds no other."""
    kind = _container_of(type(item))
    values = dict.values(item) if kind is dict else kind.__iter__(item)
    return is_long(item) and all(map(is_plain, itertools.islice(values, _BEGINNING)))


def _container_of(kind: type) -> Any:
    """Return the builtin container that a class derives from: no method of the user's is to be run."""
    return kind if kind in _CONTAINERS else next(known for known in _CONTAINERS if known in mro_of(kind))


_CONTAINERS = frozenset({dict, list, tuple, deque, set, frozenset})
_LONG, _BEGINNING = 4096, 64


def buffers_of(module: nn.Module) -> dict[int, bool]:
    """Return what a module has registered as its own buffers, by ``id``, and whether ``state_dict()`` has it."""
    passing = attributes_of(module).get("_non_persistent_buffers_set") or ()
    held = registered(module, "_buffers").items()
    return {id(buffer): name not in passing for name, buffer in held if buffer is not None}


def registered(module: nn.Module, registry: str) -> dict[str, Any]:
    """Return what a module has registered, by name: its ``"_parameters"``, ``"_buffers"`` or ``"_modules"``.

    Those of a scripted module are in C++; what replaces the dictionary is torch's own.
    """
    held = attributes_of(module).get(registry) or {}
    if is_kind(held, dict):
        return dict(dict.items(held))
    return dict(held.items()) if defining_module(type(held)).startswith("torch.") else {}


def updated_by(optimizer: Any) -> list[Any]:
    """Return what an optimizer updates, or the one that it wraps, read without running code of its class."""
    known = attributes_of(optimizer)
    if "param_groups" not in known and is_kind(wrapped := known.get("optimizer"), torch.optim.Optimizer):
        return updated_by(wrapped)
    return [one for group in known.get("param_groups") or () for one in group["params"]]


def states_of(optimizer: Any) -> dict[Any, Any]:
    """Return what an optimizer remembers of each that it updates, likewise."""
    return attributes_of(optimizer).get("state") or {}


def has_history(value: Any) -> bool:
    """Say whether it is a tensor with a way back."""
    return isinstance(value, torch.Tensor) and value.requires_grad and (is_stale(value) or not value.is_leaf)


def is_leaf(value: Any) -> bool:
    """Say whether it is a tensor that collects a gradient of its own."""
    return isinstance(value, torch.Tensor) and value.requires_grad and not has_history(value)


def is_stale(x: torch.Tensor) -> bool:
    """Say whether torch makes a new node to answer what made ``x``, or refuses: a view whose elements were written to.

    A leaf may be a view as well, of memory that asks for no gradient: of it torch says what it is.
    """
    return x._is_view() and x._version > 0 and (x._base is None or x._base.requires_grad)


def gradient_there(x: torch.Tensor, *, retained: bool = True) -> torch.Tensor | None:
    """Return the ``.grad`` of a leaf, or of what retains it."""
    return x.grad if not has_history(x) or (retained and x.retains_grad) else None


# What an object holds: one table, a line a kind of object, of how it holds something, under which name, and what.
#
# Looking has no side effects: builtin containers are read through the builtin types' own methods, modules through their
# registries, other objects through the dictionary and slots that Python keeps for them, generators and frames through
# its garbage collector (reading a frame's ``f_locals`` would make a copy that keeps things alive).

Reference = tuple[str, Any, Any]  # how, the name of the place, the object there
_Reader = Callable[["ObjectReader", Any], Iterable[Reference]]
Found = TypeVar("Found")


class ObjectReader:
    """Says what objects hold."""

    def __init__(self) -> None:
        self._readers = AskedOnce[type, _Reader | None](
            lambda kind: found_in(_READERS, kind) or (ObjectReader.of_instance if is_opened(kind) else None)
        )
        self._readers.update(dict.fromkeys(ATOMS))
        self._dictionaries = AskedOnce(_dictionary_of)
        self._slots = AskedOnce(_slots_of)

    def of(self, item: Any) -> Iterable[Reference]:
        """Return what an object holds; nothing for what cannot hold a tensor."""
        reader = self._readers[type(item)]
        return reader(self, item) if reader is not None else ()

    def is_atom(self, item: Any) -> bool:
        """Return whether an object is known to hold nothing."""
        return self._readers.get(type(item), item) is None

    def of_instance(self, item: Any) -> Iterator[Reference]:
        """Yield the attributes of an object of somebody's own class, a dataclass for one: its dictionary and slots."""
        kind = type(item)
        held = self._dictionaries[kind](item)
        if held is not None:
            yield from _attributes(held if type(held) is dict else attributes_of(item))
        for name, slot in self._slots[kind]:
            with suppress(AttributeError):  # nothing may have been put there yet
                yield "attribute", name, slot.__get__(item)


def _slots_of(kind: type) -> list[tuple[str, types.MemberDescriptorType]]:
    every = [pair for each in mro_of(kind) for pair in list(_dict_of(each).items())]
    own = [(name, slot) for name, slot in every if type(slot) is types.MemberDescriptorType]
    return [(name, slot) for name, slot in own if name not in {"__dict__", "__weakref__"}]


def is_opened(kind: type, closed: frozenset[str] = MACHINERY) -> bool:
    """Return whether instances of a class may hold a user's tensors: their own, torch's, and other libraries'.

    ``closed`` are packages, and modules directly in a package, whose classes are not looked into.
    """
    first, _, rest = defining_module(kind).partition(".")
    return first not in closed and f"{first}.{rest.partition('.')[0]}" not in closed and type not in mro_of(kind)


def found_in(table: Iterable[tuple[type, Found]], kind: type) -> Found | None:
    """Return what is in a table for the first of its classes that a class is derived from, if any."""
    line = mro_of(kind)
    return next((found for one, found in table if one in line), None)


def _attributes(held: dict[str, Any]) -> Iterator[Reference]:
    return (("attribute", name, value) for name, value in list(dict.items(held)) if type(name) is str)


def _of_dict(_: ObjectReader, item: Any) -> Iterator[Reference]:
    for key, value in list(dict.items(item)):
        yield "item", key, value
        if torch.Tensor in mro_of(type(key)):
            yield "key", key, key


def _of_sequence(_: ObjectReader, item: Any) -> Iterator[Reference]:
    kind = _container_of(type(item))
    how = "element" if kind in {set, frozenset} else "item"
    return ((how, at, value) for at, value in enumerate(list(kind.__iter__(item))))


def _of_tensor(table: ObjectReader, x: torch.Tensor) -> Iterator[Reference]:
    grad = gradient_there(x)
    if grad is not None:
        yield "attribute", "grad", grad
    if x._base is not None:
        yield "base", "", x._base
    for name in HOOKS:
        if hooks := getattr(x, name, None):
            yield "attribute", name, hooks
    yield from table.of_instance(x)


def _of_array(_: ObjectReader, array: np.ndarray) -> Iterable[Reference]:
    base = np.ndarray.base.__get__(array)
    return () if base is None else (("array", "base", base),)


def _of_buffer(_: ObjectReader, buffer: Any) -> Iterable[Reference]:
    """Return what a view of memory is one of; the others hold nothing, but are met: a tensor may lie over them."""
    return (("array", "obj", buffer.obj),) if type(buffer) is memoryview else ()


def _of_module(_: ObjectReader, module: nn.Module) -> Iterator[Reference]:
    """Yield parameters, buffers and submodules as `named_parameters` spells them, then everything else."""
    for registry in REGISTRIES:
        held = registered(module, registry).items()
        yield from (("registered", name, value) for name, value in held if value is not None)
    for name, value in list(attributes_of(module).items()):
        if name not in REGISTRIES:
            yield "member", name, value


def _of_function(_: ObjectReader, function: Any) -> Iterator[Reference]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        yield from (("closure", name, value) for value in gc.get_referents(cell))  # none while it is empty
    yield from (("default", f"__defaults__[{at}]", value) for at, value in enumerate(function.__defaults__ or ()))
    named = (function.__kwdefaults__ or {}).items()
    yield from (("default", f"__kwdefaults__[{name!r}]", value) for name, value in named)
    yield from (("of function", name, value) for _, name, value in _attributes(function.__dict__))


def _of_method(_: ObjectReader, method: Any) -> Iterable[Reference]:
    return ("self", "__self__", method.__self__), ("same", "", method.__func__)


def _of_builtin(_: ObjectReader, method: Any) -> Iterable[Reference]:
    """Return whose method it is: ``x.add``; that of a function is its module."""
    return () if is_kind(method.__self__, type, types.ModuleType) else (("self", "__self__", method.__self__),)


def _of_future(_: ObjectReader, future: Any) -> Iterable[Reference]:
    return (("attribute", "result()", attributes_of(future).get("_result")),)


def _of_local(_: ObjectReader, local: Any) -> Iterable[Reference]:
    return _attributes(local_attributes(local))


def local_attributes(local: Any) -> dict[str, Any]:
    """Return what a ``threading.local`` holds for this thread; nothing of a class of the user's, which may run code."""
    return local.__dict__ if type(local) is threading.local else {}


def _of_partial(_: ObjectReader, partial: Any) -> Iterator[Reference]:
    for name in ("func", "args", "keywords"):
        yield "argument", name, _dict_of(functools.partial)[name].__get__(partial)


def _of_cache(_: ObjectReader, wrapper: Any) -> Iterator[Reference]:
    return (("cache", "", value) for value in gc.get_referents(wrapper) if not isinstance(value, type))


def _of_generator(_: ObjectReader, generator: Any) -> Iterator[Reference]:
    frames = (getattr(generator, name, None) for name in ("gi_frame", "cr_frame", "ag_frame"))
    frame = next(filter(None, frames), None)
    if frame is not None:  # else it has ended, and let go
        where = location_of(frame.f_code, running_line(frame))
        yield from (("suspended", (frame.f_code.co_name, where), value) for value in gc.get_referents(generator))


def _of_error(_: ObjectReader, error: BaseException) -> Iterator[Reference]:
    every = (error.__traceback__, error.__cause__, error.__context__)
    yield from (("chained", "", each) for each in every if each is not None)
    yield "of error", "args", error.args
    yield from (("of error", name, value) for _, name, value in _attributes(error.__dict__))


def _of_traceback(_: ObjectReader, trace: types.TracebackType) -> Iterator[Reference]:
    yield "frame", location_of(trace.tb_frame.f_code, failing_line(trace)), trace.tb_frame
    if trace.tb_next is not None:
        yield "chained", "", trace.tb_next


def _of_frame(_: ObjectReader, frame: types.FrameType) -> Iterator[Reference]:
    """Yield the locals of a frame that has ended. The frame that called it is not followed: it may be running.

    Where a debugger or IPython has read the frame's ``f_locals``, the frame holds that dictionary as well: it shows the
    names.
    """
    code, held = frame.f_code, [value for value in gc.get_referents(frame) if type(value) is not types.FrameType]
    names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    copies = [value for value in held if type(value) is dict and value and names.issuperset(value)]
    named = {id(value): f" {name}" for each in copies for name, value in each.items()}
    for value in held:
        if value is not frame.f_globals and not any(value is each for each in copies):
            yield "local", f"{named.get(id(value), '')} of {code.co_name}", value


def _of_python_module(_: ObjectReader, module: types.ModuleType) -> Iterator[Reference]:
    """Yield the globals of a module of the user's own; a library's are its own business."""
    filename = module.__dict__.get("__file__")
    if type(filename) is str and is_own_code(filename):
        yield from (("global", name, value) for _, name, value in _attributes(module.__dict__))


def is_users(kind: type) -> bool:
    """Return whether a class is one of the user's own: made in their code, or where no file says."""
    home = defining_module(kind)
    filename = getattr(sys.modules.get(home), "__file__", None)
    return home not in {"", "builtins"} and (type(filename) is not str or is_own_code(filename))


def _of_class(_: ObjectReader, kind: type) -> Iterator[Reference]:
    if is_users(kind):
        yield from (one for one in _attributes(dict(_dict_of(kind))) if not one[1].startswith("__"))


def location_of(code: Any, line: int | None) -> Location:
    """Return a line of a piece of code."""
    return Location(code.co_filename, line or in_file(code)[0].co_firstlineno, function=function_of_code(code.co_name))


# The first class that an object's class is derived from says how it is read.
_READERS: tuple[tuple[type, _Reader], ...] = (
    (torch.Tensor, _of_tensor), (np.ndarray, _of_array), (nn.Module, _of_module),
    *((kind, _of_buffer) for kind in BUFFERS if kind not in ATOMS),
    (torch.optim.Optimizer, ObjectReader.of_instance), (dict, _of_dict), (list, _of_sequence), (tuple, _of_sequence),
    (deque, _of_sequence), (set, _of_sequence), (frozenset, _of_sequence), (types.FunctionType, _of_function),
    (types.MethodType, _of_method), (types.BuiltinMethodType, _of_builtin), (Future, _of_future),
    (threading.local, _of_local), (functools.partial, _of_partial), (type(functools.cache(abs)), _of_cache),
    (types.GeneratorType, _of_generator), (types.CoroutineType, _of_generator),
    (types.AsyncGeneratorType, _of_generator), (BaseException, _of_error), (types.TracebackType, _of_traceback),
    (types.FrameType, _of_frame), (types.ModuleType, _of_python_module), (type, _of_class),
)  # fmt: skip


def is_module(value: object) -> bool:
    """Return whether a value is a module, whatever it says of itself."""
    return is_kind(value, nn.Module)


def is_torch_own(kind: type) -> bool:
    """Return whether a class is one of torch's: what these keep beside their registries is their own business."""
    return defining_module(kind).startswith("torch.")


def inside(name: str, root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and every one inside it in order, each once, by path; no code of a class runs."""
    seen, pending = set[int](), [(name, root)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        inner = reversed(list(registered(module, "_modules").items()))
        pending += [(f"{path}.{key}", child) for key, child in inner if child is not None]


def names_of_parts(namespace: Mapping[str, Any]) -> set[str]:
    """Return the names of modules that one named before holds: what a loop over its layers leaves behind.

    What is in them is called by the model's name. A model that was named before its wrapper keeps its own.
    """
    held: set[int] = set()
    found = set()
    for name, value in list(namespace.items()):
        if is_kind(value, nn.Module) and not name.startswith("_"):
            if id(value) in held:
                found.add(name)
            else:
                held.update(id(part) for _, part in inside("", value) if part is not value)
    return found


def held_by(root: nn.Module, registries: Iterable[str] = ("_parameters",)) -> Iterator[tuple[str, Any]]:
    """Yield what a module and all inside it have registered, by path; what has two names under both."""
    for path, module in inside("", root):
        for registry in registries:
            held = registered(module, registry).items()
            yield from ((f"{path}.{key}"[1:], one) for key, one in held if one is not None)
