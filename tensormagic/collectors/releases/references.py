"""One walk from all that a session names, which takes down every reference as an edge, and counts them.

An object that has more references than were met is held from elsewhere too: by a function that runs, by a library, by
memory of torch's that shows nothing. Python and torch count them, so that this is known without looking through the
whole process. Hence a walk that is cut short, or leaves something closed, errs on the safe side: what it has not met
is held from elsewhere, and nothing that such an object leads to is promised to be freed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from tensormagic.collectors.graphs.history import is_node_class
from tensormagic.collectors.objects.reach import Budget
from tensormagic.collectors.quiet import graded
from tensormagic.collectors.releases.flow import ends_in_cycles
from tensormagic.collectors.releases.referents import Readers, is_custom

_uses: Callable[[Any], int] | None = getattr(torch._C.TensorBase, "_use_count", None)  # a torch that does not tell?
_grad_fn: Callable[[Any], Any] = torch._C.TensorBase.__dict__["grad_fn"].__get__


@dataclass(slots=True)
class References:
    """Objects by number, and what refers to what.

    Holds what it has met until it is dropped: an address must not be used twice meanwhile. Nothing but ``objects``
    may refer to them, or it would be counted.

    Attributes:
        home: The name of the module whose classes are the person's own.
        closed: Addresses of dictionaries that stay whatever is deleted: of modules, and the namespace itself.
        budget: How long to look.
        objects: Everything met.
        edges: For each, the numbers of the objects that it refers to.
        python_counts: For each, how many references to it were met that Python counts.
        native_counts: For each, how many were met that torch counts.
        unseen: Of the references that Python's garbage collector is not shown, from which object to which.
        cut: Why not everything was looked through; empty where it was.
    """

    home: str
    closed: frozenset[int]
    budget: Budget
    objects: list[Any] = field(default_factory=list)
    edges: list[list[int]] = field(default_factory=list)
    python_counts: list[int] = field(default_factory=list)
    native_counts: list[int] = field(default_factory=list)
    unseen: list[tuple[int, int]] = field(default_factory=list)
    cut: str = ""
    _numbers: dict[int, int] = field(default_factory=dict)
    _readers: Readers = field(init=False)
    _read: int = 0
    _edges: list[int] = field(default_factory=list)  # of the object that is being read

    def __post_init__(self) -> None:
        self._readers = Readers(self.home)

    def root(self, item: Any, references: int = 1) -> int:
        """Take down a root's references to an object, that Python counts; returns its number, or -1 for a leaf."""
        if self._readers[type(item)] is None:
            return -1
        number = self._meet(item)
        self.python_counts[number] += references
        return number

    def python(self, value: Any) -> None:
        """Take down a reference that Python counts."""
        if self._readers[type(value)] is not None:
            number = self._meet(value)
            self.python_counts[number] += 1
            self._edges.append(number)

    def native(self, value: Any) -> None:
        """Take down a reference that torch counts: to a tensor or a storage."""
        number = self._meet(value)
        self.native_counts[number] += 1
        self._edges.append(number)
        self.unseen.append((self._read - 1, number))

    def python_unseen(self, value: Any) -> None:
        """Take down a reference that Python counts, and whose owner does not show it to the garbage collector."""
        self.python(value)
        self.unseen.append((self._read - 1, self._meet(value)))

    def python_of(self, owner: Any, value: Any) -> None:
        """Take down a reference of another object's, that Python counts."""
        number = self._meet(value)
        self.python_counts[number] += 1
        self.edges[self._meet(owner)].append(number)

    def uncounted(self, value: Any) -> None:
        """Take down a reference that nobody shows the count of: to a node of a graph.

        The node of a Function of the person's own is shown to the garbage collector by the tensor that it made.
        """
        number = self._meet(value)
        self.native_counts[number] += 1
        self._edges.append(number)
        if not is_custom(type(value)):
            self.unseen.append((self._read - 1, number))

    def _meet(self, item: Any) -> int:
        number = self._numbers.get(id(item))
        if number is None:
            number = self._numbers[id(item)] = len(self.objects)
            self.objects.append(item)
            self.edges.append([])
            self.python_counts.append(0)
            self.native_counts.append(0)
        return number

    def walk(self, deadline: float) -> None:
        """Read everything that was met and not read yet, and what that leads to."""
        while self._read < len(self.objects) and not self.cut:
            at = self._read
            self._read += 1
            self._edges = self.edges[at]
            self._read_one(self.objects[at])
            self.cut = self.budget.cut(at, deadline)

    def _read_one(self, item: Any) -> None:
        reader = self._readers[type(item)]
        if reader is None or id(item) in self.closed:
            return
        try:
            reader(item, self)
        except Exception:  # an odd object: what it holds and was not met counts as held from elsewhere
            return

    def take_unnamed_referrers(self) -> list[int]:
        """Meet the tensors and nodes that no root leads to and that have a graph: nobody shows who holds a node."""
        kinds = {kind for kind in self._readers if is_node_class(kind)}
        if not kinds:
            return []
        tensors = _classes_of_tensors()
        strangers = [
            item
            for item in gc.get_objects()
            if ((kind := type(item)) in tensors or kind in kinds) and id(item) not in self._numbers
        ]
        return [self._meet(item) for item in strangers if type(item) in kinds or _has_graph(item)]

    def caught(self) -> list[int]:
        """Return the numbers of what lies in a circle that nobody can free: part of it only torch knows.

        A gradient made with ``create_graph=True`` leads back to its own parameter: Python's garbage collector is not
        shown that the parameter refers to its gradient, and takes it for held by something that lives.
        """
        return ends_in_cycles(self.edges, [pair for pair in self.unseen if self.edges[pair[1]]])

    def number_of(self, item: Any) -> int | None:
        """Return the number of an object; None where it was not met, or holds nothing."""
        return self._numbers.get(id(item))

    def storages(self) -> list[int]:
        """Return the numbers of the storages that were met."""
        return [at for at, item in enumerate(self.objects) if torch.UntypedStorage in type(item).__mro__]

    def stand_in(self) -> int:
        """Add an object that stands for one that cannot be seen; returns its number."""
        return self._meet(object())

    def has_unmet(self, number: int) -> bool:
        """Return whether Python counts more references to an object than were met."""
        return sys.getrefcount(self.objects[number]) - _ours() > self.python_counts[number]

    def take_native(self, number: int) -> None:
        """Take down one more reference to a storage that torch counts, where it counts more than were met."""
        used = int(torch._C._storage_Use_Count(self.objects[number]._cdata)) - 1
        self.native_counts[number] += used > self.native_counts[number]

    def held_elsewhere(self) -> list[int]:
        """Return the numbers of the objects that have more references than were met."""
        self.objects.append(object())  # nothing but this list refers to it
        counts = list(map(sys.getrefcount, self.objects))
        self.objects.pop()
        ours = counts.pop()
        return [
            at
            for at, item in enumerate(self.objects)
            if _is_held(item, counts[at] - ours - self.python_counts[at], self.native_counts[at])
        ]


@cache
def _ours() -> int:
    """Return the references that asking for an object's count takes, one from a list included."""
    nobodys = [object()]
    return sys.getrefcount(nobodys[0])


def _is_held(item: Any, python: int, met: int) -> bool:
    """Return whether anything that was not met refers to an object.

    Args:
        item: The object.
        python: References that Python counts beyond those that were met.
        met: References that were met and that torch counts.
    """
    line = type(item).__mro__
    if torch.Tensor in line:
        used = met if _uses is None else _uses(item) - 1  # once by its own Python object
    elif torch.UntypedStorage in line:
        used = int(torch._C._storage_Use_Count(item._cdata)) - 1
    elif met:
        return python > (1 if is_custom(type(item)) else _torch_keeps_nodes())
    else:
        return python > 0
    return used > met or python > (_torch_keeps_tensors() if used else 0)


@cache
def _torch_keeps_tensors() -> int:
    """Return how often torch refers to the Python object of a tensor or storage that it uses: since 2.10 once."""
    x = torch.zeros(2)
    before = sys.getrefcount(x)
    view = x[0]
    return sys.getrefcount(x) - before if view is not None else 0


@cache
def _torch_keeps_nodes() -> int:
    """Return how often torch refers to the Python object of a node that it uses itself: of late once."""
    with graded(enabled=True):
        x = torch.zeros(2, requires_grad=True).exp()
    node = x.grad_fn
    used = sys.getrefcount(node)
    del x
    return used - sys.getrefcount(node)


def _classes_of_tensors() -> set[type]:
    """Return the classes of tensors that there are."""
    found: set[type] = set()
    pending: list[type] = [torch.Tensor]
    while pending:
        kind = pending.pop()
        if kind not in found:
            found.add(kind)
            pending += type.__subclasses__(kind)
    return found


def _has_graph(x: Any) -> bool:
    try:
        return _grad_fn(x) is not None
    except RuntimeError:  # a view that was changed in a way that autograd forbids
        return True
