"""What objects refer to, and the names of tensors deep inside them."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from time import thread_time
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tensormagic.collectors.objects.children import (
    ObjectReader,
    begins_plainly,
    defining_module,
    found_in,
    is_leaf,
    is_long,
    is_readable,
    key_text,
    mro_of,
    names_of_parts,
)
from tensormagic.collectors.objects.namespace import (
    CLOCK_EVERY,
    HOW,
    Walk,
    is_history,
    is_kind,
    is_shells,
    nearest,
    root_name,
    telling,
)
from tensormagic.collectors.quiet import TensorRef
from tensormagic.collectors.where.source import AskedOnce, running_functions
from tensormagic.reports import Location
from tensormagic.reports.aliases import HolderKind
from tensormagic.words import plural, seconds_text

_KEPT_KINDS = {"history", "optimizer", "traceback", "generator", "function"}
SESSION_KINDS = frozenset({"history", "traceback"})  # IPython's outputs and the last error
BASE_KINDS = frozenset({"view", "array"})  # the base of what has a name, which is what a user can delete


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object was found."""

    path: str  # how a user reaches it
    kind: HolderKind  # what sort of place it is
    depth: int = 0  # how many steps it is from a name
    location: Location | None = None  # the line at which a traceback or generator stands
    is_part: bool = False  # whether it names a part of a module that was named before

    def inner(self, ending: str, kind: HolderKind) -> Place:
        """Return a place inside this one; what an optimizer or a traceback holds stays theirs."""
        return Place(self.path + ending, self.kind if self.kind in _KEPT_KINDS else kind, self.depth + 1, self.location)


Held = tuple[Place, Any]


class Referents(ObjectReader):
    """Says what objects hold, and how a user reaches it: ``names`` are those of tensors, by ``tensor._cdata``."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self._names = names

    def held(self, item: Any, place: Place) -> Iterator[Held]:
        """Yield what an object holds and where; nothing for what cannot hold a tensor."""
        if torch.optim.Optimizer in mro_of(type(item)):
            place = replace(place, kind="optimizer")
        elif place.depth and ModuleType in mro_of(type(item)):
            return  # one that another module imports is no holder of its own
        for how, name, value in self.of(item):
            if not self.is_atom(value):
                yield self._inner(place, how, name), value

    def _inner(self, place: Place, how: str, name: Any) -> Place:
        if how == "item":
            return place.inner(f"[{name if type(name) is int else self._key(name)}]", "item")
        kind, ending, *_ = HOW[how]
        if how in {"suspended", "frame"}:  # where it stands
            name, where = name if how == "suspended" else ("", name)
            place = replace(place, location=where)
        if kind in {"function", "traceback", "generator"} and how != "local":
            place = replace(place, kind=kind)
        name = self._key(name) if how == "key" else name
        return place if ending is None else place.inner(ending.format(name), kind)

    def _key(self, key: Any) -> str:
        if text := key_text(key):
            return text if len(text) <= 40 else text[:39] + "…"
        return self._names.get(key._cdata, "a tensor") if is_kind(key, torch.Tensor) else type(key).__name__


_CONTAINERS = frozenset({list, tuple, deque, set, frozenset, dict, OrderedDict})


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a search may take."""

    limit: int = 20_000  # objects looked at
    seconds: float = 0.05  # time
    clock: Callable[[], float] = thread_time  # gives the time in seconds: other processes may be busy

    def begin(self) -> Callable[[int], str]:
        """Let the time begin; returns what says, of so many objects, why the search ends; empty where it goes on."""
        deadline = self.clock() + self.seconds

        def cut(looked: int) -> str:
            if looked > self.limit:
                return f"only {self.limit} objects were searched"
            if looked % CLOCK_EVERY == 0 and self.clock() > deadline:
                return f"only {plural(looked, 'object')} were searched, in {seconds_text(self.seconds)}"
            return ""

        return cut


def roots(namespace: Mapping[str, object]) -> Iterator[Held]:
    """Yield what the user has named, then IPython's history, then the last error."""
    parts = names_of_parts(namespace)
    named = [(name, value) for name, value in list(namespace.items()) if not is_shells(name)]
    for is_old in (False, True):
        for name, value in named:
            if is_history(name) == is_old:
                yield Place(name, "history" if is_old else "name", is_part=name in parts), value
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        yield Place(f"the last error ({type(error).__name__})", "traceback"), error


_KINDS: tuple[tuple[type, str], ...] = (
    (torch.Tensor, "tensor"), (nn.Module, "module"), (torch.optim.Optimizer, "optimizer"), (Dataset, "data"),
    (DataLoader, "data"),
)  # fmt: skip


def _sort_of(kind: type) -> str:
    other = "container" if kind in _CONTAINERS else ""
    return found_in(_KINDS, kind) or ("ours" if defining_module(kind).startswith("tensormagic.") else other)


@dataclass(slots=True)
class ReferenceWalk:
    """A walk, the nearest first, into each object once, as far as a budget allows.

    Holds what it has met until it is dropped: an address must not be used twice meanwhile.
    """

    budget: Budget  # how long it may take
    # What tensors are called, by ``tensor._cdata``: the keys of an optimizer's state are parameters.
    names: dict[int, str] = field(default_factory=dict)
    # Whether to go from a view to its base: nobody is to hold that on account of one who keeps the walk.
    with_bases: bool = True
    seen: dict[int, Any] = field(default_factory=dict)  # what is not to be looked into any more, by ``id``
    looked: int = 0  # how many were met so far
    cut: str = ""  # why not everything was looked through; empty where it was
    refused: list[str] = field(default_factory=list)  # paths of tensors that answer nothing: their class raises
    kinds: AskedOnce[type, str] = field(default_factory=lambda: AskedOnce(_sort_of))
    _references: Referents = field(init=False)
    _cut: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        """Let what is read be called by the names that are met; the time begins."""
        self._references = Referents(self.names)
        self._cut = self.budget.begin()

    def meet(self, starts: Iterable[Held]) -> Iterator[tuple[Place, Any, bool]]:
        """Yield everything that is met, as often as it is, and whether it is new.

        Optimizers come after everything else, for what they hold is called by the names of the parameters; and so does
        a part of a model that has a name of its own. After these come containers of very many items.
        """
        pending, later, long = deque(starts), deque[Held](), deque[Held]()
        parts = {id(item) for place, item in pending if place.is_part}
        while (pending or later or long) and not self.cut:
            place, item = (pending or later or long).popleft()
            kind = self.kinds[type(item)]
            waits = place.is_part or (place.kind in SESSION_KINDS and id(item) in parts)
            if (kind == "optimizer" or waits) and pending:
                later.append((place, item))
                continue
            if kind == "container" and (pending or later) and is_long(item):
                long.append((place, item))
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
            self.cut = self._cut(self.looked)

    def _inside(self, place: Place, item: Any, kind: str) -> Iterator[Held]:
        if kind == "ours" or (kind == "container" and begins_plainly(item, self._references.is_atom)):
            return
        base = None if self.with_bases or kind != "tensor" else item._base
        try:
            for inner, value in self._references.held(item, place):
                if (base is None or value is not base) and (type(value) not in _CONTAINERS or value):
                    yield inner, value
        except Exception:  # an odd object, or one that another thread is changing
            return


# Names of leaves that no plain name of the user's reaches: ``model.w``, ``layers[0]``, a variable of a function. What
# is looked through is bounded: the whole namespace a few times in a run, the names under which something was found
# before in every walk, for a leaf may be made anew in every step.

LOOKS = 5_000  # names, items and attributes of the user's
LOOKS_IN_FUNCTION = 500
ITEMS = 256  # of one container
WHOLE_LOOKS = 16  # through everything, in a run; one in vain counts as four
_COST_OF_A_MISS = 3

Roots = Callable[[], Iterable[tuple[str, nn.Module]]]
Found = dict[int, tuple[weakref.ref[Any], str, bool]]  # by `id`: the leaf, its name, whether that is a function's


class DeepNames:
    """Looks for the names of leaves, in modules, in the namespace, and in the functions that are running."""

    def __init__(self, namespace: Mapping[str, Any], roots: Roots) -> None:
        self._namespace, self._roots = namespace, roots
        self._frame: FrameType | None = None
        self._left = WHOLE_LOOKS
        self._fruitful: set[str] = set()
        self._function_of: dict[str, str] = {}
        self._found: Found | None = None
        self._looked_whole = False

    @contextmanager
    def seen_from(self, frame: FrameType | None) -> Iterator[None]:
        """Know meanwhile which functions are running; the frame is not kept."""
        self._frame, before = frame, self._frame
        try:
            yield
        finally:
            self._frame = before
            self.forget()

    def forget(self) -> None:
        """Look anew at the next question."""
        self._found, self._looked_whole = None, False

    def of(self, tensor: torch.Tensor) -> tuple[str, bool]:
        """Return the name of a leaf, or an empty one, and whether it is a function's."""
        hit = self._reached(tensor, whole=False)
        if hit is None and self._left > 0 and not self._looked_whole:
            hit = self._reached(tensor, whole=True)
            self._left -= _COST_OF_A_MISS if hit is None else 0
        if hit is None:
            return "", False
        self._fruitful.add(root_name(hit[0].rpartition(".<locals>.")[2]))
        return hit

    def _reached(self, tensor: torch.Tensor, *, whole: bool) -> tuple[str, bool] | None:
        """Return what `of` does, None where the leaf is not found; look where that was not done since `forget`."""
        if self._found is None or whole:
            self._looked_whole, self._left = whole, self._left - whole
            with torch._C.DisableTorchFunction():  # a mode of the user's is not to see what is asked here
                self._found = self._look(whole=whole)
        reference, name, is_local = self._found.get(id(tensor), (None, "", False))
        return (name, is_local) if reference is not None and reference() is tensor else None

    def _look(self, *, whole: bool) -> Found:
        """Return the names of the leaves that can be reached, by ``id``; what was found first counts."""
        names: Found = {}
        scopes = ("", dict(self._roots())), ("", self._namespace), *running_functions(self._frame, self._namespace)
        for function, space in scopes:
            reached: dict[int, tuple[weakref.ref[Any], list[str]]] = {}
            # All names are looked through, or those that led to something, and in a function what is a tensor.
            worth = {name: space[name] for name in self._fruitful if name in space}
            if whole or function:
                hidden, every = "__" if function else "_", list(space.items())
                worth = {name: value for name, value in every if not name.startswith(hidden) and (
                    whole or name in self._fruitful or is_kind(value, torch.Tensor))}  # fmt: skip
            walk = Walk(worth, LOOKS_IN_FUNCTION if function else LOOKS, ITEMS, gradients=False)
            for path, leaf in walk.named(torch.Tensor):
                if is_leaf(leaf) and id(leaf) not in names:
                    reached.setdefault(id(leaf), (TensorRef(leaf), []))[1].append(path)
            for key, (reference, paths) in reached.items():
                names[key] = reference, self._described(function, nearest(telling(paths))[0]), bool(function)
        return names

    def _described(self, function: str, path: str) -> str:
        """Return a name as it is, unless another function's variable, or one of the user's own, is called so."""
        own = bool(function) and is_kind(self._namespace.get(path), torch.Tensor)
        known = self._function_of.setdefault(path, "" if own else function)
        return path if known == function else f"{function}.<locals>.{path}"


# FSDP keeps two of each parameter: the shard, which the optimizer holds, and the whole, which is put together for a
# forward, stands in the module meanwhile, and is what a graph leads to. FSDP1 does so for many at once, in a flat row.

_MOST_NAMED = 3  # of the parameters that lie in a flat one
_FSDP = ("torch.distributed.fsdp._fully_shard", "torch.distributed.fsdp.fully_sharded_data_parallel")


class Sharded(NamedTuple):
    """A parameter that is several objects."""

    parameter: torch.Tensor  # the one by which it is known: FSDP2's shard, FSDP1's flat parameter
    others: tuple[torch.Tensor, ...]  # what represents it elsewhere, as far as that is there yet
    path: str  # what to call it; empty where the module's own path of it does
    shape: tuple[int, ...]  # its whole shape


def sharded_in(module: nn.Module) -> list[Sharded]:
    """Return the parameters in a module that FSDP made several objects of; what it does not let know is left out."""
    newer, older = map(sys.modules.get, _FSDP)
    found: list[Sharded] = []
    with suppress(AttributeError):  # private: another torch may have other names
        for path, child in module.named_modules() if newer is not None or older is not None else ():
            if newer is not None and isinstance(child, newer.FSDPModule):
                found += _of_fsdp2(child._get_fsdp_state())
            elif older is not None and isinstance(child, older.FullyShardedDataParallel) and child._handle is not None:
                flat: Any = child._handle.flat_param
                names, shape = flat._fqns, tuple(flat._unpadded_unsharded_size)
                few = len(names) <= _MOST_NAMED
                inside = ", ".join(names) if few else f"{names[0]} … {names[-1]}, {len(names)} parameters"
                name = f"{path}{'.' if path else ''}_flat_param[{inside}]"
                found.append(Sharded(flat, tuple(flat._params or ()), name, shape))
    return found


def _of_fsdp2(state: Any) -> Iterator[Sharded]:
    groups = getattr(state, "_fsdp_param_groups", None)
    for group in [state._fsdp_param_group] if groups is None else groups:
        for each in group.fsdp_params if group is not None else ():
            whole = vars(each).get("_unsharded_param")  # there from the first forward on
            shard = each.sharded_param
            yield Sharded(shard, () if whole is None else (whole,), "", tuple(shard.shape))
