"""Names for each leaf and module, without keeping any of them alive; and which module's forward runs in a frame."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tensormagic.collectors.objects.children import attributes_of, inside, is_kind, items_of
from tensormagic.collectors.objects.referents import DeepNames, sharded_in
from tensormagic.collectors.quiet import TensorRef, number
from tensormagic.collectors.where.caller import place_in_stage
from tensormagic.collectors.where.source import names_of, own_frames
from tensormagic.reports.base import gc_paused
from tensormagic.words import RECEIVED, listed

# A module is known by the path under which its outermost caller holds it: ``net.conv1``. Outermost modules are found in
# the user's namespace, and by being called: one that lives inside a function is called by its class. A leaf is known by
# the parameter path that leads to it, else by its name in the namespace, else by the way to it (`DeepNames`), else by
# its shape. Only weak references are held, and an ``id`` counts only while its reference lives: addresses are reused.

MOST_MODULES = MOST_PARAMETERS = 1_000_000  # that are remembered
MODULE_SCAN_LIMIT = 32  # rescans of the namespace for an unknown parameter: enough for models made on the way


@dataclass(slots=True)
class Leaf:
    """A tensor that collects a gradient, as far as it is known."""

    name: str  # path or name; ``"leaf (3, 4)"`` where there is none
    shape: tuple[int, ...]  # its shape
    dtype: str  # without the ``torch.`` prefix
    numel: int  # elements
    is_parameter: bool  # whether it is an ``nn.Parameter``
    owner: str  # name of the outermost module it belongs to
    requires_grad: bool  # its flag when last looked at
    reference: weakref.ref[torch.Tensor]  # weak, to the tensor last seen under this name

    @property
    def is_unnamed(self) -> bool:
        """Whether nothing leads to it: it is called by its shape."""
        return self.name.startswith("leaf (")


def _describe(tensor: torch.Tensor, name: str, owner: str) -> Leaf:
    return Leaf(
        name, tuple(map(number, tensor.shape)), str(tensor.dtype).removeprefix("torch."), number(tensor.numel()),
        is_parameter=type(tensor) is nn.Parameter or isinstance(tensor, nn.Parameter), owner=owner,
        requires_grad=tensor.requires_grad, reference=TensorRef(tensor),
    )  # fmt: skip


def holds(known: Mapping[int, Callable[[], Any]], x: object) -> bool:
    """Return whether an object is among those whose weak references are ``known`` by their identity."""
    reference = known.get(id(x))
    return reference is not None and reference() is x


class KeyedRef(TensorRef):
    """A weak reference that knows under which key it stands, and what is to be known of its object."""

    __slots__ = ("key", "note")
    key: int
    note: Any


class Marks(dict[int, Any]):
    """The objects that are followed, each with a `KeyedRef`: until gone, or more than ``most`` came after them.

    A dictionary, so that it costs a call nothing to see that nothing is followed.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, followed: Any, note: Any, key: int = 0) -> None:
        """Follow an object from now on, under its ``id`` unless under another key."""
        mark = KeyedRef(followed, self._forget)
        mark.key, mark.note = key or id(followed), note
        self.add(mark)

    def add(self, mark: Any) -> None:
        """Take in what stands for an object as a `KeyedRef` does."""
        self[mark.key] = mark
        if len(self) > self._most:
            self.pop(next(iter(self)), None)

    def of(self, x: object) -> Any:
        """Return what is known of an object; None where it is not followed."""
        mark = self.get(id(x))
        return mark.note if mark is not None and mark() is x else None

    def _forget(self, mark: KeyedRef) -> None:
        """Drop what is gone; a new object may already stand under its key."""
        if self.get(mark.key) is mark:
            del self[mark.key]


class ModuleNames:
    """Paths of the modules met so far, and the outermost modules among them."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._paths = Marks(MOST_MODULES)
        self._roots: dict[str, weakref.ref[nn.Module]] = {}
        # Called with every outermost module as it is met: its parameters may outlive it.
        self.on_root: Callable[[str, nn.Module], None] = lambda _name, _module: None

    def path(self, module: nn.Module) -> str:
        """Return the path of ``module``, or ``""`` where it is not (or no longer) known."""
        known: str | None = self._paths.of(module)
        return known or ""

    def add_root(self, module: nn.Module) -> str:
        """Learn an outermost module and everything inside it; returns its name."""
        # While ``%run`` runs a script, its names are the user's only afterwards.
        script = getattr(sys.modules.get("__main__"), "__dict__", {})
        if not (name := place_of(module, self._namespace) or place_of(module, script)):
            kind = type(module).__name__
            names = chain([kind], (f"{kind}#{number}" for number in count(2)))
            name = next(name for name in names if name not in self._roots or self._roots[name]() in {None, module})
        self._roots[name] = weakref.ref(module)
        for path, child in module.named_modules():
            self._paths.put(child, f"{name}.{path}" if path else name)
        self.on_root(name, module)
        return name

    def roots(self) -> list[tuple[str, nn.Module]]:
        """Return the outermost modules that are still alive, by name."""
        alive = ((name, reference()) for name, reference in list(self._roots.items()))
        return [(name, module) for name, module in alive if module is not None]

    def owners(self) -> Marks:
        """Return the parameters of the modules that the namespace holds by name, each with its module, held weakly."""
        found = Marks(MOST_PARAMETERS)
        for value in list(self._namespace.values()):
            if is_kind(value, nn.Module) and not self.path(value):
                for parameter in value.parameters():
                    if found.of(parameter) is None:
                        found.put(parameter, TensorRef(value))
        return found


def place_of(module: nn.Module, namespace: Mapping[str, Any]) -> str:
    """Return how the user reaches ``module``: ``net``, ``net.head``, ``agent.critic``, ``layers[0]``; else ``""``."""
    named = [(name, value) for name, value in list(namespace.items()) if not name.startswith("_")]
    for name, value in named:  # the first that is it, or has it as a part: a loop over layers gives none a new name
        if value is module:
            return name
        if is_kind(value, nn.Module) and (place := _place_inside(module, name, value)):
            return place
    return next((place for name, value in named if (place := _place_inside(module, name, value))), "")


def _place_inside(module: nn.Module, name: str, value: Any) -> str:
    if is_kind(value, nn.Module):
        return next((f"{name}.{path}" for path, child in value.named_modules() if child is module and path), "")
    if is_kind(value, list, tuple, dict):
        return next((f"{name}[{key!r}]" for key, item in items_of(value) if item is module), "")
    if type(value).__module__ in sys.stdlib_module_names or is_kind(value, type, ModuleType):
        return ""
    return next((f"{name}.{key}" for key, item in list(attributes_of(value).items()) if item is module), "")


def name_of(optimizer: object, names: Iterable[tuple[str, Any]], frame: FrameType | None = None) -> str:
    """Return what the user calls an optimizer, also in the functions that run in ``frame``; else its class."""
    local = chain.from_iterable(names_of(own).items() for own in own_frames(frame))
    found = (name for name, value in chain(names, local) if value is optimizer and name != "self" and name[0] != "_")
    return next(found, type(optimizer).__name__)


class Leaves:
    """The leaves met so far, each with a small number."""

    def __init__(self, namespace: Mapping[str, Any], modules: ModuleNames) -> None:
        self._namespace = namespace
        self.modules = modules  # the modules met so far
        self._numbers: dict[int, int] = {}
        self._by_name: dict[str, int] = {}
        self._anonymous_from: dict[str, int] = {}
        self._names: dict[int, str] | None = None
        self._looking = False
        self._deep = DeepNames(namespace, modules.roots)
        self._owners_there: Marks | None = None
        self._scans = 0
        self.known: list[Leaf] = []
        self._others: dict[int, weakref.ref[torch.Tensor]] = {}  # that stand for a known one, by ``id``
        self._orphaned = False  # whether a Parameter that a graph led to belongs to no model
        self.replaced: set[int] = set()  # parameters in whose place their module got another one
        self._owners: dict[str, weakref.ref[nn.Module]] = {}
        itself = weakref.ref(self)  # not a cycle: `namespace` may hold all variables of functions that failed

        def learn(root: str, module: nn.Module) -> None:
            if (leaves := itself()) is not None:
                leaves._learn_module(root, module)

        modules.on_root = learn

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of ``tensor``, learning it where it is new.

        A tensor made anew in every step under the same name keeps one number: it is one series over time.
        """
        number = self.find(tensor)
        return self._learn(tensor) if number is None else number

    def model_names(self, reached: Collection[int]) -> str:
        """Return the names of the models that leaves of these numbers belong to, three at most, or of the first.

        Where only parts were called, and several of one model, it is the model's: ``net`` for ``net.0`` and ``net.2``.
        """
        owners = [(number, leaf.owner) for number, leaf in enumerate(list(self.known)) if leaf.owner]
        there = [owner for number, owner in owners if number in reached] or [owner for _, owner in owners[:1]]
        roots: dict[str, list[str]] = {}
        for owner in dict.fromkeys(there):
            roots.setdefault(owner.partition(".")[0], []).append(owner)
        return listed([root if len(parts) > 1 else parts[0] for root, parts in roots.items()], most=3)

    def find(self, tensor: torch.Tensor) -> int | None:
        """Return the number of ``tensor`` where it is known, else None."""
        number = self._numbers.get(id(tensor))
        if number is None or self.known[number].reference() is tensor:
            return number
        return number if holds(self._others, tensor) else None

    def called(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor that is not, and need not be, known as a leaf; empty where it has none."""
        named = (name for name, value in list(self._namespace.items()) if value is tensor and not name.startswith("_"))
        return next(named, "") or self._deep.of(tensor)[0]

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look through the namespace and the modules only once meanwhile: a graph may have many thousand leaves."""
        self._looking = True
        try:
            yield
        finally:
            self._looking, self._names = False, None

    def seen_from(self, frame: FrameType | None) -> AbstractContextManager[None]:
        """Know meanwhile from which frame a backward was called: the variables of functions are names, too."""
        return self._deep.seen_from(frame)

    def learn_parameters(self) -> None:
        """Learn every parameter of the outermost modules, whether or not a gradient ever comes."""
        for root, module in self.modules.roots():
            self._learn_module(root, module)

    def _learn_module(self, root: str, module: nn.Module) -> None:
        before, self._owners[root] = self._owners.get(root), weakref.ref(module)
        named = list(module.named_parameters())
        with torch._C.DisableTorchFunction():  # a mode of the user's is not to see what is asked here
            sharded = sharded_in(module)
            of = {id(each): one for one in sharded for each in (one.parameter, *one.others)}
            for path, parameter in named:
                one = of.get(id(parameter))
                there = parameter if one is None else one.parameter
                # Lent by `functional_call`, while it runs.
                lent = one is None and parameter.is_leaf and not isinstance(parameter, torch.nn.Parameter)
                if lent or is_lazy(parameter) or self.find(there) is not None:
                    continue
                known, leaf = len(self.known), _describe(there, f"{root}.{path}", root)
                if one is not None and one.path:
                    leaf = replace(leaf, name=f"{root}.{one.path}", shape=one.shape, numel=math.prod(one.shape))
                number = self._put(there, leaf)
                if number < known and before is not None and before() is module:
                    self.replaced.add(number)
            for each in sharded:
                if (known_as := self.find(each.parameter)) is not None:
                    for other in each.others:
                        self._numbers[id(other)], self._others[id(other)] = known_as, TensorRef(other)

    def _learn(self, tensor: torch.Tensor) -> int:
        if self._names is None or not self._looking:
            self._look()
        if isinstance(tensor, nn.Parameter) and self.find(tensor) is None:
            self._learn_owner(tensor)
        if self.find(tensor) is not None:
            return self._numbers[id(tensor)]
        name = self._names.get(id(tensor), "") if self._names is not None else ""
        if not name or (name.isidentifier() and self._namespace.get(name) is not tensor):
            name, is_local = self._deep.of(tensor)
            name = self._free(name) if is_local else name  # numbered while another leaf goes by the variable's name
        is_given = not name or ".args_recv_info[" in name  # to a pipeline's stage
        if is_given and (place := place_in_stage(tensor)) is not None:  # each microbatch has another: one input of it
            name = f"{RECEIVED}{_numbered('', place + 1)}"
            if self._is_taken(name):  # this tensor stands for that leaf, too
                self._numbers[id(tensor)], self._others[id(tensor)] = self._by_name[name], TensorRef(tensor)
                return self._by_name[name]
        with torch._C.DisableTorchFunction():  # a mode of the user's is not to see what is asked here
            # Two without a name that live at the same time get two names.
            leaf = _describe(tensor, name or self._free(f"leaf {tuple(map(number, tensor.shape))}"), "")
        return self._put(tensor, leaf)

    def _learn_owner(self, parameter: nn.Parameter) -> None:
        """Learn the module of the user's that holds a parameter; others that are there play no part in the run."""
        if self._owners_there is None:  # once a walk the namespace is looked through, and not in every walk for ever
            self._scans += 1
            self._owners_there = self.modules.owners() if self._scans <= MODULE_SCAN_LIMIT else Marks(0)
        owner = self._owners_there.of(parameter)
        if owner is not None and (module := owner()) is not None:
            self.modules.add_root(module)
        self._orphaned |= self.find(parameter) is None

    def find_trained(self, parameter: torch.Tensor) -> int | None:
        """Return the number of what an optimizer updates in the run, and learn its model where the report will name it.

        That is where a graph led to a Parameter that belongs to no model: it may have been made of one that this
        optimizer holds.
        """
        number = self.find(parameter)
        if number is None and self._orphaned and isinstance(parameter, nn.Parameter):
            self._owners_there = self.modules.owners() if self._owners_there is None else self._owners_there
            self._learn_owner(parameter)
            number = self.find(parameter)
        return number

    def _look(self) -> None:
        named = [(name, value) for name, value in list(self._namespace.items()) if not name.startswith("_")]
        self._names = {id(value): name for name, value in reversed(named)}  # the first of several; ids may be old
        self._names.update(_left_by_loops(named, self._names))
        self._deep.forget()
        self._owners_there = None
        self._anonymous_from.clear()
        self.learn_parameters()

    def _put(self, tensor: torch.Tensor, leaf: Leaf) -> int:
        number = self._by_name.setdefault(leaf.name, len(self.known))
        self.known[number : number + 1] = [leaf]
        self._numbers[id(tensor)] = number
        return number

    def _free(self, base: str) -> str:
        """Return a name, numbered while leaves that are alive go by it."""
        number = self._anonymous_from.get(base, 1)  # those below are taken
        while self._is_taken(_numbered(base, number)):
            number += 1
        self._anonymous_from[base] = number
        return _numbered(base, number)

    def _is_taken(self, name: str) -> bool:
        number = self._by_name.get(name)
        return number is not None and self.known[number].reference() is not None


def _left_by_loops(named: Iterable[tuple[str, Any]], names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Yield the last items of lists under whose name only a loop left them, ``p`` after ``for p in parameters``.

    It is one where the item before has no name of its own. Each is given with its ``id``: ``parameters[18]``.
    """
    for name, value in named:
        last = value[-2:] if type(value) is list else []
        of_loop = [id(item) in names for item in last] == [False, True]
        if of_loop and all(is_kind(item, torch.Tensor) for item in last):
            yield id(last[1]), f"{name}[{len(value) - 1}]"


def _numbered(base: str, number: int) -> str:
    return base if number == 1 else f"{base} #{number}"


_MODULE_CALL = nn.Module._call_impl.__code__


def outermost_call(frame: FrameType | None) -> tuple[Any, ...] | None:
    """Return what the outermost module whose forward runs in ``frame`` or above it was given; None without one."""
    calls = list(module_calls(frame))
    return (*calls[-1].f_locals["args"], calls[-1].f_locals["kwargs"]) if calls else None


def module_calls(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the calls of modules that run in ``frame`` or above it, the innermost first."""
    while frame is not None:
        if frame.f_code is _MODULE_CALL:
            yield frame
        frame = frame.f_back


class RunningModules:
    """Looks up the stack for the innermost module."""

    def __init__(self, modules: ModuleNames) -> None:
        self._modules = modules
        self.evaluates = False  # whether the one that was found last is in eval mode
        self._nameless = Marks(MOST_MODULES)  # labels of those that run inside one that does not know them

    def path_in(self, frame: FrameType | None) -> str:
        """Return the path of the innermost module whose forward is running in ``frame`` or above it."""
        while frame is not None:
            if frame.f_code is _MODULE_CALL:
                module = frame.f_locals["self"]
                self.evaluates = module.__dict__.get("training") is False
                return self._modules.path(module) or self._learn(module, frame)
            frame = frame.f_back
        self.evaluates = False
        return ""

    def _learn(self, module: nn.Module, frame: FrameType) -> str:
        """Learn the outermost module that is running, and with it, as a rule, the path of ``module``."""
        label: str | None = self._nameless.of(module)
        if label is not None:
            return label
        above = [each.f_locals["self"] for each in module_calls(frame.f_back)]
        outermost = above[-1] if above else module
        if not self._modules.path(outermost) or any(inner is module for _, inner in inside("", outermost)):
            with gc_paused():
                self._modules.add_root(outermost)
            if path := self._modules.path(module):
                return path
        label = f"({type(module).__name__})"
        self._nameless.put(module, label)
        return label
