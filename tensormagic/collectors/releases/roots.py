"""What holds an object from outside the names: roots, and objects that Python cannot look into."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.objects.holdings import attributes_of
from tensormagic.collectors.objects.namespace import is_shells
from tensormagic.collectors.releases.references import References
from tensormagic.reports.memory import ReleaseKind

# Where a session's references begin: the person's names, IPython's history of outputs, the last error.
#
# A root is one thing that a person can let go of, with every place in which the session refers to it: of one output
# that are ``Out[5]``, ``_5``, for a while ``_``, and copies that IPython keeps in places of its own. All are
# dictionaries, so that a place is a dictionary and a key: the same list serves to count the references and to drop
# them.

Place = tuple[dict[Any, Any], Any]
DROP_ALL = "%gpumem --free --yes"
_UNDERSCORES = ("_", "__", "___")
_NUMBERED = re.compile(r"_\d+")
_ERROR_NAMES = ("last_exc", "last_value", "last_traceback", "last_type")

_ATTRIBUTES = frozenset({"result", "error_in_exec", "error_before_exec", "tb"})


@dataclass(slots=True)
class Root:
    """One thing that can be let go of.

    Attributes:
        label: What to call it.
        kind: What sort of root it is; None for what nobody is to let go of.
        places: Where the session refers to it.
        code: What lets go of it.
    """

    label: str
    kind: ReleaseKind | None
    places: list[Place] = field(default_factory=list)
    code: str = ""

    def values(self) -> Iterator[Any]:
        """Yield what lies in its places, as often as it does."""
        for mapping, key in self.places:
            if key in mapping:
                yield mapping[key]

    def drop(self) -> None:
        """Let go of it, as IPython itself does when it clears its outputs."""
        for mapping, key in self.places:
            if key in _UNDERSCORES:
                mapping[key] = ""
            elif key in _ATTRIBUTES:
                mapping[key] = None
            else:
                mapping.pop(key, None)


def session_roots(namespace: Mapping[str, Any]) -> list[Root]:
    """Return everything that a session's references begin at: names first, then outputs, then the last error."""
    shell = shell_of(namespace)
    outputs = _outputs(namespace, shell)
    taken = {id(value) for root in outputs for value in root.values()}
    roots = [_of_name(namespace, name) for name in list(namespace) if not _is_output(namespace, name, taken)]
    error = _last_error(shell)
    return [*roots, *outputs, *([error] if error.places else [])]


def shell_of(namespace: Mapping[str, Any]) -> Any:
    """Return the IPython shell whose namespace this is, or None."""
    return getattr(namespace.get("get_ipython"), "__self__", None)


def _of_name(namespace: Mapping[str, Any], name: str) -> Root:
    own = name == "Out" or is_shells(name)
    places: list[Place] = [(namespace, name)] if isinstance(namespace, dict) else []
    return Root(name, None if own else "name", places, "" if own else f"del {name}")


def _is_output(namespace: Mapping[str, Any], name: str, taken: set[int]) -> bool:
    """Return whether a name is one that IPython gave to an output: the person may use ``_`` for something else."""
    return (name in _UNDERSCORES or _NUMBERED.fullmatch(name) is not None) and id(namespace[name]) in taken


def _outputs(namespace: Mapping[str, Any], shell: Any) -> list[Root]:
    """Return the outputs that the history keeps, each once, by their numbers."""
    history: Any = namespace.get("_oh")
    hook = attributes_of(getattr(shell, "displayhook", None))
    found: dict[int, Root] = {}
    for number, value in list(history.items()) if type(history) is dict else []:
        root = found.setdefault(id(value), Root("", "history"))
        root.label += f"{', ' if root.label else ''}Out[{number}]"
        root.code = root.code or _dropping(namespace, number, value)
        root.places.append((history, number))
    for name in _UNDERSCORES:
        if name in hook and hook[name] is not history:
            found.setdefault(id(hook[name]), Root(name, "history", code=DROP_ALL)).places.append((hook, name))
    for mapping in (namespace, getattr(shell, "user_ns_hidden", None)):
        if type(mapping) is dict:
            _add_aliases(mapping, found)
    result = attributes_of(getattr(shell, "last_execution_result", None))
    if id(result.get("result")) in found:
        found[id(result["result"])].places.append((result, "result"))
    return list(found.values())


def _dropping(namespace: Mapping[str, Any], number: Any, value: Any) -> str:
    return f"%xdel _{number}" if namespace.get(f"_{number}") is value else f"Out.pop({number!r})"


def _add_aliases(mapping: dict[str, Any], found: dict[int, Root]) -> None:
    for name, value in list(mapping.items()):
        if id(value) in found and (name in _UNDERSCORES or _NUMBERED.fullmatch(name)):
            found[id(value)].places.append((mapping, name))


def _last_error(shell: Any) -> Root:
    system = attributes_of(sys)
    result = attributes_of(getattr(shell, "last_execution_result", None))
    shown = attributes_of(getattr(shell, "InteractiveTB", None))
    places: list[Place] = [(system, name) for name in _ERROR_NAMES if system.get(name) is not None]
    places += [(result, name) for name in ("error_in_exec", "error_before_exec") if result.get(name) is not None]
    places += [(shown, "tb")] if shown.get("tb") is not None else []
    error = next((value for mapping, name in places if isinstance(value := mapping[name], BaseException)), None)
    kind = f" ({type(error).__name__})" if error is not None else ""
    return Root(f"the last error{kind}", "traceback", places, DROP_ALL)


# Memory under a storage that is not torch's own: which NumPy array's it is, and that it counts once.
#
# ``torch.from_numpy`` makes a storage over the memory of an array, and keeps the array. Neither tells the other: they
# are matched by address, among the arrays that a walk has met. The bytes are the array's, then: they are free when it
# is. A piece of a storage (``storage[2:]``) is a storage of its own over the memory of the other, likewise.


def join_foreign(found: References, storages: Sequence[int]) -> dict[int, int]:
    """Add what storages over foreign memory refer to; returns, by the storage's number, the number that frees it.

    Args:
        found: A walk that has ended.
        storages: The numbers of those that were met.
    """
    foreign = [at for at in storages if is_foreign(found.objects[at]) and lies_somewhere(found.objects[at])]
    if not foreign:
        return {}
    arrays = _Arrays(found)
    lent = arrays.lent(foreign)
    there = (at for at in storages if found.objects[at].device.type == "cpu" and lies_somewhere(found.objects[at]))
    own = [at for at in there if at not in set(foreign) - lent]
    pieces = _Spans([(*_span(found.objects[at]), at) for at in own])
    stand_ins: dict[int, int] = {}
    return {at: _join(found, at, (arrays, pieces, stand_ins)) for at in foreign if at not in lent}


def _join(found: References, number: int, memory: tuple[_Arrays, _Spans, dict[int, int]]) -> int:
    """Add what a storage refers to; returns the number of what owns its memory: a storage, an array, a stand-in."""
    arrays, pieces, stand_ins = memory
    address = found.objects[number].data_ptr()
    array, own = arrays.kept_at(address), pieces.at(address)
    if array is None and own is not None:  # a piece of another storage
        found.take_native(own)
    held = own if array is None else array
    if held is None:
        held = stand_ins[address] if address in stand_ins else found.stand_in()
        stand_ins[address] = held
    found.edges[number].append(held)
    return own if own is not None else arrays.owner(held)


class _Spans:
    """Pieces of memory that do not overlap: which one is at an address.

    Args:
        spans: Where each begins and ends, and its number.
    """

    def __init__(self, spans: Iterable[tuple[int, int, int]]) -> None:
        self._spans = sorted(spans)
        self._begins = [begin for begin, _, _ in self._spans]

    def at(self, address: int) -> int | None:
        """Return the number of the piece that an address lies in, or None."""
        place = bisect_right(self._begins, address) - 1
        return self._spans[place][2] if place >= 0 and address < self._spans[place][1] else None


class _Arrays:
    """The NumPy arrays that a walk has met.

    Args:
        found: A walk that has ended.
    """

    def __init__(self, found: References) -> None:
        self._found = found
        self._arrays = {at for at, item in enumerate(found.objects) if np.ndarray in type(item).__mro__}
        self._beginning: dict[int, list[int]] = {}
        owners = []
        for at in self._arrays:
            begin, end = _array_span(found.objects[at])
            self._beginning.setdefault(begin, []).append(at)
            owners += [(begin, end, at)] if np.ndarray.base.__get__(found.objects[at]) is None else []
        self._owners = _Spans(owners)

    def lent(self, storages: Iterable[int]) -> set[int]:
        """Return the storages of torch's own that ``x.numpy()`` lent to an array: nor can these be resized."""
        bases = {base for at in self._arrays for base in self._found.edges[at] if base not in self._arrays}
        held = {storage for base in bases for storage in self._found.edges[base]}
        return {at for at in storages if at in held and self._owners.at(self._found.objects[at].data_ptr()) is None}

    def kept_at(self, address: int) -> int | None:
        """Return the array that a storage keeps: one at its address to which something unknown refers."""
        exact, owner = self._beginning.get(address, []), self._owners.at(address)
        owners = [] if owner is None else [owner]
        for at in (*exact, *owners):
            if self._found.has_unmet(at):
                self._found.python_counts[at] += 1
                return at
        return owner

    def owner(self, array: int) -> int:
        """Return the array whose memory it is: the last of the bases that are arrays."""
        while bases := [at for at in self._found.edges[array] if at in self._arrays]:
            array = bases[0]
        return array


def _span(storage: torch.UntypedStorage) -> tuple[int, int]:
    begin = storage.data_ptr()
    return begin, begin + storage.nbytes()


def _array_span(array: Any) -> tuple[int, int]:
    begin = int(np.ndarray.ctypes.__get__(array).data)
    return begin, begin + int(np.ndarray.nbytes.__get__(array))


def lies_somewhere(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage says where; that of a tensor that wraps others, as a DTensor, does not."""
    try:
        return storage.data_ptr() is not None
    except RuntimeError:
        return False


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Return whether a storage lies over memory that torch did not allocate: an array's, a piece of another."""
    return storage.device.type == "cpu" and storage.nbytes() > 0 and not storage.resizable() and not storage.is_shared()
