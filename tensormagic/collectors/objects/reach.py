"""What an object holds, and the walk from what is named to all that it holds; no code of the person's runs.

One table, a line a kind of object. Containers are read through the builtin types' own methods, instances through their
dictionary and slots, functions through their cells and defaults, generators and frames through Python's garbage
collector, which knows what they refer to (reading a frame's ``f_locals`` would make a copy that keeps things alive).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tensormagic.collectors.objects.holdings import (
    REGISTRIES,
    attributes_of,
    gradient_there,
    home_of,
    is_readable,
    mro_of,
    registered,
)
from tensormagic.collectors.objects.namespace import is_history, is_shells
from tensormagic.collectors.where.source import is_own_code
from tensormagic.reports import Location
from tensormagic.reports.aliases import HolderKind
from tensormagic.words import plural, seconds_text

_KEPT_KINDS = {"history", "optimizer", "traceback", "generator", "function"}
_OPENED_STDLIB = {"types", "collections", "functools", "threading", "queue", "dataclasses", "contextlib"}
_CLOSED_LIBRARIES = ("IPython", "ipykernel", "traitlets", "zmq", "tornado", "matplotlib", "_pytest", "pluggy")
_ATOMS = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    bytearray,
    range,
    slice,
    type(None),
    type(...),
    torch.dtype,
    torch.device,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object was found.

    Attributes:
        path: How a person reaches it.
        kind: What sort of place it is.
        depth: How many steps it is from a name.
        location: The line at which a traceback or generator stands.
    """

    path: str
    kind: HolderKind
    depth: int = 0
    location: Location | None = None

    def inner(self, ending: str, kind: HolderKind) -> Place:
        """Return a place inside this one; what an optimizer or a traceback holds stays theirs."""
        return Place(self.path + ending, self.kind if self.kind in _KEPT_KINDS else kind, self.depth + 1, self.location)


Held = tuple[Place, Any]
_Reader = Callable[[Any, Place], Iterable[Held]]


class Referents:
    """Says what objects hold.

    Args:
        names: What tensors are called, by ``tensor._cdata``: the keys of an optimizer's state are parameters.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._readers: dict[type, _Reader | None] = dict.fromkeys(_ATOMS)
        self._slots: dict[type, list[tuple[str, MemberDescriptorType]]] = {}

    def held(self, item: Any, place: Place) -> Iterable[Held]:
        """Return what an object holds and where; nothing for what cannot hold a tensor."""
        kind = type(item)
        if kind not in self._readers:
            self._readers[kind] = self._reader_of(kind)
        reader = self._readers[kind]
        return reader(item, place) if reader is not None else ()

    def is_atom(self, item: Any) -> bool:
        """Return whether an object is known to hold nothing."""
        return self._readers.get(type(item), item) is None

    def slots(self, kind: type) -> list[tuple[str, MemberDescriptorType]]:
        """Return the slots of a class's instances, as the class and those it derives from declare them."""
        if kind not in self._slots:
            every = [
                pair for each in kind.__mro__ for pair in vars(each).items() if type(pair[1]) is MemberDescriptorType
            ]
            self._slots[kind] = [(name, slot) for name, slot in every if name not in {"__dict__", "__weakref__"}]
        return self._slots[kind]

    def _reader_of(self, kind: type) -> _Reader | None:
        line = kind.__mro__
        for known, reader in _READERS:
            if known in line:
                return functools.partial(reader, self)
        return functools.partial(_of_instance, self) if _is_opened(kind) else None

    def key(self, key: Any) -> str:
        """Return a dictionary's key as a person would write it."""
        if type(key) in {str, int, bool, float, tuple}:
            text = repr(key)
            return text if len(text) <= 40 else text[:39] + "…"
        if torch.Tensor in type(key).__mro__:
            return self._names.get(key._cdata, "a tensor")
        return type(key).__name__


def _is_opened(kind: type) -> bool:
    """Return whether instances of a class may hold a person's tensors: their own, torch's, and other libraries'."""
    home = home_of(kind).split(".", 1)[0]
    if home in {"builtins", *_CLOSED_LIBRARIES} or kind is type or type in kind.__mro__:
        return False
    return home not in sys.stdlib_module_names or home in _OPENED_STDLIB or home == "__main__"


def _of_dict(reach: Referents, item: Any, place: Place) -> Iterator[Held]:
    for key, value in list(dict.items(item)):
        if not reach.is_atom(value):
            yield place.inner(f"[{reach.key(key)}]", "item"), value
        if torch.Tensor in type(key).__mro__:
            yield place.inner(f", key {reach.key(key)}", "item"), key


def _of_sequence(reach: Referents, item: Any, place: Place) -> Iterator[Held]:
    kind = next(known for known in (list, tuple, deque) if known in type(item).__mro__)
    for at, value in enumerate(kind.__iter__(item)):
        if not reach.is_atom(value):
            yield place.inner(f"[{at}]", "item"), value


def _of_set(reach: Referents, item: Any, place: Place) -> Iterator[Held]:
    kind = set if set in type(item).__mro__ else frozenset
    for value in list(kind.__iter__(item)):
        if not reach.is_atom(value):
            yield place.inner(", an element", "item"), value


def _of_tensor(reach: Referents, x: torch.Tensor, place: Place) -> Iterator[Held]:
    grad = gradient_there(x)
    if grad is not None:
        yield place.inner(".grad", "attribute"), grad
    if x._base is not None:
        yield place.inner("", "view"), x._base  # what has a name is the view
    yield from _of_instance(reach, x, place)


def _of_array(_reach: Referents, array: np.ndarray, place: Place) -> Iterator[Held]:
    base = np.ndarray.base.__get__(array)
    if base is not None:
        yield place.inner(".base", "array"), base


def _of_module(reach: Referents, module: nn.Module, place: Place) -> Iterator[Held]:
    """Yield parameters, buffers and submodules as `named_parameters` spells them, then everything else."""
    attributes = attributes_of(module)
    for registry in REGISTRIES:
        held = registered(module, registry).items()
        yield from ((place.inner(f".{name}", "module"), value) for name, value in held)
    for name, value in list(attributes.items()):
        if name not in REGISTRIES and not reach.is_atom(value):
            yield place.inner(f".{name}", "module"), value


def _of_optimizer(reach: Referents, optimizer: Any, place: Place) -> Iterator[Held]:
    yield from _of_instance(reach, optimizer, replace(place, kind="optimizer"))


def _of_function(reach: Referents, function: Any, place: Place) -> Iterator[Held]:
    inside = replace(place, kind="function")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        for value in gc.get_referents(cell):
            yield inside.inner(f", closure over {name}", "function"), value
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    yield from ((inside.inner(", default argument", "function"), value) for value in defaults)
    yield from _attributes(reach, function.__dict__, inside)


def _of_method(_reach: Referents, method: Any, place: Place) -> Iterator[Held]:
    yield place.inner(".__self__", "attribute"), method.__self__
    yield place, method.__func__


def _of_partial(_reach: Referents, partial: Any, place: Place) -> Iterator[Held]:
    inside = replace(place, kind="function")
    yield from ((inside.inner(f".{name}", "function"), getattr(partial, name)) for name in ("func", "args", "keywords"))


def _of_cache(_reach: Referents, wrapper: Any, place: Place) -> Iterator[Held]:
    inside = replace(place, kind="function")
    for value in gc.get_referents(wrapper):
        if not isinstance(value, type):
            yield inside.inner(", its cache", "function"), value


def _of_generator(_reach: Referents, generator: Any, place: Place) -> Iterator[Held]:
    frame = next(
        (found for name in ("gi_frame", "cr_frame", "ag_frame") if (found := getattr(generator, name, None))), None
    )
    if frame is None:
        return  # it has ended, and let go
    inside = replace(place, kind="generator", location=location_of(frame.f_code, frame.f_lineno))
    for value in gc.get_referents(generator):
        yield inside.inner(f", local of {frame.f_code.co_name}", "generator"), value


def _of_error(reach: Referents, error: BaseException, place: Place) -> Iterator[Held]:
    inside = replace(place, kind="traceback")
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        yield replace(inside, location=location_of(trace.tb_frame.f_code, trace.tb_lineno)), trace.tb_frame
        trace = trace.tb_next
    for chained in (error.__cause__, error.__context__):
        if chained is not None:
            yield inside, chained
    yield inside.inner(".args", "traceback"), error.args
    yield from _attributes(reach, error.__dict__, inside)


def _of_traceback(_reach: Referents, trace: TracebackType, place: Place) -> Iterator[Held]:
    inside = replace(place, kind="traceback")
    yield replace(inside, location=location_of(trace.tb_frame.f_code, trace.tb_lineno)), trace.tb_frame
    if trace.tb_next is not None:
        yield inside, trace.tb_next


def _of_frame(_reach: Referents, frame: FrameType, place: Place) -> Iterator[Held]:
    """Yield the locals of a frame that has ended. The frame that called it is not followed: it may be running.

    Where a debugger or IPython has read the frame's ``f_locals``, the frame holds that dictionary as well: it tells the
    names.
    """
    held = [value for value in gc.get_referents(frame) if value is not frame.f_globals and type(value) is not FrameType]
    named = {id(value): f" {name}" for each in held if _is_snapshot(each, frame) for name, value in each.items()}
    for value in held:
        if not _is_snapshot(value, frame):
            yield place.inner(f", local{named.get(id(value), '')} of {frame.f_code.co_name}", "traceback"), value


def _is_snapshot(value: Any, frame: FrameType) -> bool:
    """Return whether an object that a frame refers to is the copy of its locals that reading ``f_locals`` made."""
    code = frame.f_code
    names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return type(value) is dict and bool(value) and names.issuperset(value)


def _of_python_module(reach: Referents, module: ModuleType, place: Place) -> Iterator[Held]:
    """Yield the globals of a module of the person's own; a library's are its own business."""
    filename = module.__dict__.get("__file__")
    if place.depth == 0 and type(filename) is str and is_own_code(filename):
        yield from _attributes(reach, module.__dict__, place)


def _of_class(reach: Referents, kind: type, place: Place) -> Iterator[Held]:
    """Yield the attributes of a class of the person's own: a cache, a default, a shared buffer."""
    home = sys.modules.get(home_of(kind))
    filename = getattr(home, "__file__", None)
    if home is None or (type(filename) is str and not is_own_code(filename)):
        return
    for name, value in list(vars(kind).items()):
        if not name.startswith("__") and not reach.is_atom(value):
            yield place.inner(f".{name}", "attribute"), value


def _of_instance(reach: Referents, item: Any, place: Place) -> Iterator[Held]:
    yield from _attributes(reach, attributes_of(item), place)
    for name, slot in reach.slots(type(item)):
        with contextlib.suppress(AttributeError):  # it is empty
            yield place.inner(f".{name}", "attribute"), slot.__get__(item)


def _attributes(reach: Referents, attributes: Any, place: Place) -> Iterator[Held]:
    if not isinstance(attributes, dict):
        return
    for name, value in list(dict.items(attributes)):
        if not reach.is_atom(value):
            yield place.inner(f".{name}", "attribute"), value


def location_of(code: Any, line: int | None) -> Location:
    """Return a line of a piece of code."""
    function = "" if code.co_name == "<module>" else code.co_name
    return Location(code.co_filename, line or code.co_firstlineno, function=function)


# The first class that an object's class is derived from says how it is read.
_READERS: tuple[tuple[type, Callable[..., Iterable[Held]]], ...] = (
    (torch.Tensor, _of_tensor),
    (np.ndarray, _of_array),
    (nn.Module, _of_module),
    (torch.optim.Optimizer, _of_optimizer),
    (dict, _of_dict),
    (list, _of_sequence),
    (tuple, _of_sequence),
    (deque, _of_sequence),
    (set, _of_set),
    (frozenset, _of_set),
    (FunctionType, _of_function),
    (MethodType, _of_method),
    (functools.partial, _of_partial),
    (type(functools.cache(abs)), _of_cache),
    (GeneratorType, _of_generator),
    (CoroutineType, _of_generator),
    (AsyncGeneratorType, _of_generator),
    (BaseException, _of_error),
    (TracebackType, _of_traceback),
    (FrameType, _of_frame),
    (ModuleType, _of_python_module),
    (type, _of_class),
)


# The walk: the nearest first, each object looked into once, as far as a budget allows.

_CLOCK_EVERY = 64
_LONG, _BEGINNING = 4096, 64  # a long container that begins with so many numbers or strings holds nothing else
_SEQUENCES = frozenset({list, tuple, deque, set, frozenset})
_CONTAINERS = _SEQUENCES | {dict, OrderedDict}


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a search may take.

    Attributes:
        limit: Objects looked at.
        seconds: Time.
        clock: Gives the time in seconds.
    """

    limit: int = 20_000
    seconds: float = 0.05
    clock: Callable[[], float] = perf_counter

    def cut(self, looked: int, deadline: float) -> str:
        """Return why a search is to end now; empty where it may go on."""
        if looked > self.limit:
            return f"only {self.limit} objects were searched"
        if looked % _CLOCK_EVERY == 0 and self.clock() > deadline:
            return f"only {plural(looked, 'object')} were searched, in {seconds_text(self.seconds)}"
        return ""


def roots(namespace: Mapping[str, object]) -> Iterator[Held]:
    """Yield what the person has named, then IPython's history, then the last error."""
    named = [(name, value) for name, value in list(namespace.items()) if not is_shells(name)]
    for is_old in (False, True):
        for name, value in named:
            if is_history(name) == is_old:
                yield Place(name, "history" if is_old else "name"), value
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        yield Place(f"the last error ({type(error).__name__})", "traceback"), error


_KINDS: tuple[tuple[str, frozenset[type]], ...] = (
    ("tensor", frozenset({torch.Tensor})),
    ("module", frozenset({nn.Module})),
    ("optimizer", frozenset({torch.optim.Optimizer})),
    ("data", frozenset({Dataset, DataLoader})),
)


class _Kinds(dict[type, str]):
    """What sort of thing the objects of a class are; each class is judged once."""

    def __missing__(self, kind: type) -> str:
        known = (name for name, classes in _KINDS if not classes.isdisjoint(mro_of(kind)))
        own = home_of(kind).startswith("tensormagic.")
        plain = "sequence" if kind in _SEQUENCES else "dict" if kind is dict else ""
        self[kind] = next(known, "ours" if own else plain)
        return self[kind]


@dataclass(slots=True)
class ReferenceWalk:
    """A walk. Holds what it has met until it is dropped: an address must not be used twice meanwhile.

    Attributes:
        budget: How long it may take.
        names: What tensors are called, by ``tensor._cdata``: the keys of an optimizer's state are parameters.
        with_bases: Whether to go from a view to its base: nobody is to hold that on account of one who keeps the walk.
        seen: What is not to be looked into any more, by ``id``.
        looked: How many were met so far.
        cut: Why not everything was looked through; empty where it was.
        refused: Paths of tensors that answer nothing, since code of their class raises.
    """

    budget: Budget
    names: dict[int, str] = field(default_factory=dict)
    with_bases: bool = True
    seen: dict[int, Any] = field(default_factory=dict)
    looked: int = 0
    cut: str = ""
    refused: list[str] = field(default_factory=list)
    kinds: _Kinds = field(default_factory=_Kinds)
    _references: Referents = field(init=False)
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        """Let what is read be called by the names that are met; the time begins."""
        self._references = Referents(self.names)
        self._deadline = self.budget.clock() + self.budget.seconds

    def meet(self, starts: Iterable[Held]) -> Iterator[tuple[Place, Any, bool]]:
        """Yield everything that is met, as often as it is, and whether it is new.

        Optimizers come after everything else: what they hold is called by the names of the parameters.
        """
        pending, optimizers = deque(starts), deque[Held]()
        while (pending or optimizers) and not self.cut:
            place, item = pending.popleft() if pending else optimizers.popleft()
            kind = self.kinds[type(item)]
            if kind == "optimizer" and pending:
                optimizers.append((place, item))
                continue
            self.looked += 1
            is_new = id(item) not in self.seen
            if is_new and kind == "tensor" and not is_readable(item):
                self.refused.append(place.path)
                continue
            yield place, item, is_new
            if is_new:
                self.seen[id(item)] = item
                pending.extend(islice(self._inside(place, item, kind), self.budget.limit))
            self.cut = self.budget.cut(self.looked, self._deadline)

    def _inside(self, place: Place, item: Any, kind: str) -> Iterator[Held]:
        """Yield what an object holds; one that cannot be read holds nothing that could be told."""
        if kind == "ours" or (kind in {"sequence", "dict"} and self._holds_nothing(item)):
            return
        base = None if self.with_bases or kind != "tensor" else item._base
        try:
            for inner, value in self._references.held(item, place):
                if (base is None or value is not base) and (type(value) not in _CONTAINERS or value):
                    yield inner, value
        except Exception:  # an odd object, or one that another thread is changing
            return

    def _holds_nothing(self, item: Any) -> bool:
        """Return whether a long container begins with nothing but numbers and strings."""
        values = item.values() if type(item) is dict else item
        return len(item) > _LONG and all(map(self._references.is_atom, islice(values, _BEGINNING)))
