"""What holds an object from outside the names, and what containers let go."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tensormagic.collectors.aliasing.storage_aliases import array_base, memory_of
from tensormagic.collectors.memory.flow import Flow, Sum
from tensormagic.collectors.memory.references import References
from tensormagic.collectors.objects.children import (
    ATOMS,
    BUFFERS,
    attributes_of,
    is_kind,
    is_long,
    is_users,
    key_text,
    mro_of,
    registered,
)
from tensormagic.collectors.objects.namespace import LAST_OUTPUTS, OUTPUT, UNKNOWN, in_class, is_shells
from tensormagic.collectors.quiet import told
from tensormagic.collectors.where.source import AskedOnce
from tensormagic.reports import FreeableMemory
from tensormagic.reports.memory import FreeableKind

# A root is one thing that a user can let go of, with every place in which the session refers to it: of one output that
# are ``Out[5]``, ``_5``, for a while ``_``, and copies that IPython keeps in places of its own. All are dictionaries:
# the same list serves to count the references and to drop them.

Place = tuple[dict[Any, Any], Any]
DROP_ALL = "%gpumem --free --yes"
_ERROR_NAMES = ("last_exc", "last_value", "last_traceback", "last_type")
_ATTRIBUTES = frozenset({"result", "error_in_exec", "error_before_exec", "tb"})


@dataclass(slots=True)
class Root:
    """One thing that can be let go of."""

    label: str  # what to call it
    kind: FreeableKind | None  # what sort of root it is; None for what nobody is to let go of
    places: list[Place] = field(default_factory=list)  # where the session refers to it
    code: str = ""  # what lets go of it

    def values(self) -> Iterator[Any]:
        """Yield what lies in its places, as often as it does."""
        for mapping, key in self.places:
            if key in mapping:
                yield mapping[key]

    def drop(self) -> None:
        """Let go of it, as IPython itself does when it clears its outputs."""
        for mapping, key in self.places:
            if key in LAST_OUTPUTS or key in _ATTRIBUTES:
                mapping[key] = "" if key in LAST_OUTPUTS else None
            else:
                mapping.pop(key, None)


def session_roots(namespace: Mapping[str, Any]) -> list[Root]:
    """Return everything that a session's references begin at: names first, then outputs, then the last error."""
    shell = shell_of(namespace)
    outputs = _outputs(namespace, shell)
    taken = {id(value) for root in outputs for value in root.values()}
    roots = []
    for name in list(namespace):
        if not (OUTPUT.fullmatch(name) and id(namespace[name]) in taken):
            places: list[Place] = [(namespace, name)] if isinstance(namespace, dict) else []
            own = name == "Out" or is_shells(name)
            roots.append(Root(name, None if own else "name", places, "" if own else f"del {name}"))
    result, shown = (attributes_of(getattr(shell, name, None)) for name in ("last_execution_result", "InteractiveTB"))
    every: list[Place] = [(attributes_of(sys), name) for name in _ERROR_NAMES]
    every += [(result, "error_in_exec"), (result, "error_before_exec"), (shown, "tb")]
    if errors := [(mapping, name) for mapping, name in every if mapping.get(name) is not None]:
        found = (mapping[name] for mapping, name in errors)
        error = next((f" ({type(value).__name__})" for value in found if isinstance(value, BaseException)), "")
        outputs.append(Root(f"the last error{error}", "traceback", errors, DROP_ALL))
    return [*roots, *outputs]


def shell_of(namespace: Mapping[str, Any]) -> Any:
    """Return the IPython shell whose namespace this is, or None."""
    return getattr(namespace.get("get_ipython"), "__self__", None)


def _outputs(namespace: Mapping[str, Any], shell: Any) -> list[Root]:
    history: Any = namespace.get("_oh")
    hook = attributes_of(getattr(shell, "displayhook", None))
    found: dict[int, Root] = {}
    for number, value in list(history.items()) if type(history) is dict else []:
        root = found.setdefault(id(value), Root("", "history"))
        root.label += f"{', ' if root.label else ''}Out[{number}]"
        by_name = namespace.get(f"_{number}") is value
        root.code = root.code or (f"%xdel _{number}" if by_name else f"Out.pop({number!r})")
        root.places.append((history, number))
    for name in LAST_OUTPUTS:
        if name in hook and hook[name] is not history:
            found.setdefault(id(hook[name]), Root(name, "history", code=DROP_ALL)).places.append((hook, name))
    for mapping in (namespace, getattr(shell, "user_ns_hidden", None)):
        taken = mapping if type(mapping) is dict else {}
        for name, value in list(taken.items()):
            if id(value) in found and OUTPUT.fullmatch(name):
                found[id(value)].places.append((taken, name))
    result = attributes_of(getattr(shell, "last_execution_result", None))
    if "result" in result and id(result["result"]) in found:
        found[id(result["result"])].places.append((result, "result"))
    return list(found.values())


# ``torch.from_numpy`` makes a storage over the memory of an array, and keeps the array; ``torch.frombuffer`` likewise
# over that of a buffer. Neither knows the other: they are matched by address, among the arrays and buffers that a walk
# has met. The bytes are the array's, then: they are free when it is. A piece of a storage (``storage[2:]``) is one of
# its own over the memory of the other, likewise.


def join_foreign(found: References, storages: Sequence[int]) -> dict[int, int]:
    """Add what storages over foreign memory refer to: a storage, an array, a buffer, or a stand-in.

    Returns, by the storage's number, the number of what frees its memory.
    """
    objects, edges, owners = found.objects, found.edges, dict[int, int]()
    foreign = [at for at in storages if is_foreign(objects[at])]
    if not foreign:  # asking for an address copies what ``torch._lazy_clone`` made: only where there is need
        return owners
    on_cpu = (at for at in storages if objects[at].device.type == "cpu")
    asked = ((at, told(objects[at].data_ptr, None)) for at in on_cpu)
    addresses = {at: address for at, address in asked if address is not None}  # a DTensor's does not say
    lenders = _Lenders(objects)
    # Those of torch's own that ``x.numpy()`` lent to an array cannot be resized, either.
    bases = {base for at in lenders.numbers for base in edges[at]} - lenders.numbers
    lent = {at for base in bases for at in edges[base] if at in addresses and lenders.owner(addresses[at]) is None}
    borrowed = [at for at in foreign if at in addresses and at not in lent]
    own = addresses.keys() - borrowed
    pieces = _Spans((addresses[at], objects[at].nbytes(), at) for at in own)
    stand_ins = AskedOnce[int, int](lambda _: found.stand_in())
    for at, address in ((at, addresses[at]) for at in borrowed):
        owner, piece = lenders.owner(address), pieces.at(address)
        # A storage keeps the array or buffer at its address to which something unknown refers.
        there = [*lenders.beginning.get(address, []), *([] if owner is None else [owner])]
        kept = next(filter(found.has_unmet, there), None)
        if kept is not None:
            found.python_counts[kept] += 1
        held = owner if kept is None else kept
        if held is None and piece is not None:  # a piece of another storage
            found.take_native(piece)
            held = piece
        held = stand_ins[address] if held is None else held
        edges[at].append(held)
        owners[at] = piece if piece is not None else held if owner is None else owner
        while inner := [base for base in edges[owners[at]] if {base, owners[at]} <= lenders.numbers]:
            owners[at] = inner[0]  # the last of the bases that are arrays
    return owners


class _Lenders:
    """Arrays and buffers among objects: which there are, which begin at an address, which one owns what lies there."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self.numbers: set[int] = set()
        self.beginning = defaultdict[int, list[int]](list)
        owning = []
        for at, item in enumerate(objects):
            if is_array := is_kind(item, np.ndarray):
                begin, nbytes = int(np.ndarray.ctypes.__get__(item).data), int(np.ndarray.nbytes.__get__(item))
            elif is_kind(item, *BUFFERS) and (memory := memory_of(item)) is not None:
                begin, nbytes = memory.address, memory.nbytes
            else:
                continue
            self.numbers.add(at)
            self.beginning[begin].append(at)
            if array_base(item) is None if is_array else not is_kind(item, memoryview):  # a view of an exporter's
                owning.append((begin, nbytes, at))
        self._owning = _Spans(owning)

    def owner(self, address: int) -> int | None:
        """Return the number of the array or buffer whose own memory is at an address, or None."""
        return self._owning.at(address)


class _Spans:
    """Pieces of memory that do not overlap, as begin, bytes and number: which one is at an address."""

    def __init__(self, spans: Iterable[tuple[int, int, int]]) -> None:
        self._spans = sorted(spans)
        self._begins = [begin for begin, _, _ in self._spans]

    def at(self, address: int) -> int | None:
        """Return the number of the piece that an address lies in, or None."""
        begin, nbytes, number = self._spans[bisect_right(self._begins, address) - 1] if self._spans else (0, 0, 0)
        return number if begin <= address < begin + nbytes else None


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage lies over memory that torch did not allocate: an array's, a piece of another."""
    return storage.device.type == "cpu" and storage.nbytes() > 0 and not storage.resizable() and not storage.is_shared()


# The containers that a user's names lead to, as they would write them, and what can be taken out of each: only what is
# certain to work. No code of theirs runs.

MOST = 2_000  # containers
MOST_OPENED = 50_000  # objects that are looked into for them
MOST_KEY = 60  # characters

_CLEARED = frozenset({list, dict, set, deque})  # whose ``clear`` lets go of all that they refer to
_MAPPINGS = frozenset({dict, OrderedDict, defaultdict})
_SEQUENCES = frozenset({list, deque, tuple})
_LEFT_ALONE = frozenset({torch.Tensor, torch.optim.Optimizer, type, BaseException})


class Container(NamedTuple):
    """Something that others can be taken out of. Holds it, until it is dropped."""

    path: str  # how a user writes it
    item: Any  # the object
    holder: Any  # the object that refers to what lies in it: itself, or the dictionary of its attributes
    entries: list[tuple[str, Any]]  # what can be taken out: the path of each, and the value; none that hold nothing


def containers(names: Mapping[str, Any]) -> Iterator[tuple[str, Container]]:
    """Yield what names lead to, with the name, the nearest first; each under the name that leads there first.

    What lies in a container of very many items comes last.
    """
    pending = deque((name, name, value) for name, value in names.items() if name.isidentifier())
    long, seen, found = deque[tuple[str, str, Any]](), set[int](), 0
    while (pending or long) and found < MOST and len(seen) < MOST_OPENED:
        name, path, item = (pending or long).popleft()
        if pending and is_long(item):
            long.append((name, path, item))
        elif id(item) not in seen and type(item) not in ATOMS:
            seen.add(id(item))
            container, inner = _opened(path, item)
            if container is not None:
                found += 1
                yield name, container
            pending.extend((name, path, value) for path, value in inner)


def _opened(path: str, item: Any) -> tuple[Container | None, list[tuple[str, Any]]]:
    """Return an object as a container, and where to look on."""
    kind = type(item)
    if kind in _SEQUENCES:
        entries = _held((f"{path}[{at}]", value) for at, value in enumerate(item))
        return (None if kind is tuple else Container(path, item, item, entries)), entries
    if kind in _MAPPINGS or kind is set:  # what lies in a set has no path
        keyed = ((key_text(key), value) for key, value in (() if kind is set else dict.items(item)))
        entries = _held((f"{path}[{key}]", value) for key, value in keyed if 0 < len(key) <= MOST_KEY)
        return Container(path, item, item, entries), entries
    return _of_instance(path, item) if _LEFT_ALONE.isdisjoint(mro_of(kind)) else (None, [])


def _of_instance(path: str, item: Any) -> tuple[Container | None, list[tuple[str, Any]]]:
    """Return an object by its attributes; of a module those that are registered are only looked on from."""
    kind = type(item)
    attributes = attributes_of(item)
    if not attributes or in_class(kind, "__getattribute__") is not object.__getattribute__:
        return None, []
    public = [name for name in attributes if type(name) is str and name.isidentifier() and not name.startswith("_")]
    # No class may come between where a name is read or deleted.
    stored = (name for name in public if in_class(type(in_class(kind, name)), "__set__") is UNKNOWN)
    entries = _held((f"{path}.{name}", attributes[name]) for name in stored)
    inner, line = list(entries), mro_of(kind)
    for name, child in registered(item, "_modules").items() if nn.Module in line else ():
        if child is not None and name.isidentifier():
            inner.append((f"{path}.{name}", child))
        elif child is not None and name.isdecimal() and not {nn.Sequential, nn.ModuleList}.isdisjoint(line):
            inner.append((f"{path}[{name}]", child))  # only these reach their children by number
    # Whose attributes a user may take away.
    is_theirs = is_users(kind) or kind is SimpleNamespace or nn.Module in line
    lets_go = is_theirs and in_class(kind, "__delattr__") in {object.__delattr__, nn.Module.__delattr__}
    return (Container(path, item, attributes, entries) if lets_go and entries else None), inner


def _held(every: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(path, value) for path, value in every if type(value) not in ATOMS]


MOST_PARTS = 4  # of one name
SHARE = 8  # one item is listed where it frees at least this part of what all of its container free
STANDS_OUT = 1.5  # and one of a sequence, which has no name, where it frees so many times what its items do on average
CUT = "the items of some containers were not measured; what each item would free is shown for the others"
Parts = dict[int, tuple[FreeableMemory, ...]]  # by the number of a root, what taking something out of it frees


def items_of(found: References, roots: Sequence[Root], flow: Flow, wanted: Collection[str]) -> tuple[Parts, str]:
    """Return what taking something out of the containers frees that names lead to; and why not all were weighed.

    Items whose paths are ``wanted`` are reported although they do not stand out.
    """
    names = {root.label: at for at, root in enumerate(roots) if root.kind == "name"}
    values = {name: value for name, at in names.items() for value in roots[at].values()}
    described: dict[int, dict[tuple[int, int], FreeableMemory]] = {}
    cut = ""

    def preference(one: FreeableMemory) -> tuple[bool, bool]:
        """Of those that free the same: what was asked for, then what is emptied."""
        return one.name in wanted, one.code.endswith(".clear()")

    for name, container in containers(values):
        if flow.steps < 0:
            cut = CUT
            break
        mine = described.setdefault(names[name], {})
        for key, one in _of_container(found, container, flow, wanted):
            if key not in mine or preference(one) >= preference(mine[key]):  # of two alike the one further inside
                mine[key] = one
    orders = {
        at: sorted(by_what.values(), key=lambda one: (one.name not in wanted, -one.nbytes))[:MOST_PARTS]
        for at, by_what in described.items()
    }
    return {at: tuple(sorted(order, key=lambda one: -one.nbytes)) for at, order in orders.items() if order}, cut


def _of_container(
    found: References, container: Container, flow: Flow, wanted: Collection[str]
) -> Iterator[tuple[tuple[int, int], FreeableMemory]]:
    """Yield what one container frees, all of it and item by item, each with a key for that set of storages."""
    number = found.number_of(container.holder)
    number = found.number_of(container.item) if number is None else number
    if number is None or flow.sets[number] not in flow.sums:  # nothing that only its roots lead to
        return
    below = flow.below(number)
    whole = flow.weighed(below)
    if not whole.nbytes or flow.steps < 0:
        return
    if type(container.item) in _CLEARED:  # in one go
        yield _key(below, flow), _freeable(container.path, whole, f"{container.path}.clear()")
    places = Counter(found.edges[number])
    freed: list[tuple[str, Collection[int], Sum]] = []  # what the items free by themselves that are referred to once
    parts = dict(zip(found.edges[number], flow.parts(number, below), strict=True))
    for path, value in container.entries:
        at = found.number_of(value)
        if at is not None and places[at] == 1 and (one := flow.weighed(parts[at])).nbytes:
            freed.append((path, parts[at], one))
    least = whole.nbytes / SHARE
    if len(freed) > 1 and isinstance(container.item, list | deque):  # one of a sequence has to stand out
        least = max(least, STANDS_OUT * sum(one.nbytes for _, _, one in freed) / len(freed))
    for path, nodes, one in freed:
        if one.nbytes >= least or path in wanted:
            yield _key(nodes, flow), _freeable(path, one, f"del {path}")


def _key(nodes: Collection[int], flow: Flow) -> tuple[int, int]:
    weighty = flow.weights.keys() & nodes
    return min(weighty), len(weighty)


def _freeable(path: str, freed: Sum, code: str) -> FreeableMemory:
    return FreeableMemory(
        name=path, kind="item", nbytes=freed.nbytes, storages=freed.storages, reaches=freed.nbytes,
        device_bytes=dict(freed.devices), code=code,
    )  # fmt: skip
