"""The walk over what a session holds, and which line assigned what."""

from __future__ import annotations

import ast
import linecache
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import chain
from types import CodeType, FunctionType
from typing import Any, TypeGuard

import torch
from torch import nn

from tensormagic.collectors.geometry.parts import components
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.graphs.live_nodes import next_nodes
from tensormagic.collectors.graphs.saved_tensors import live_saved
from tensormagic.collectors.graphs.structure import is_accumulate
from tensormagic.collectors.objects.children import graph_of
from tensormagic.collectors.objects.referents import SESSION_KINDS, Budget, Place, ReferenceWalk, roots
from tensormagic.collectors.where.source import (
    CellNumber,
    definition_of,
    in_file,
    is_own_code,
    known_line,
    known_lines,
    no_cell,
    syntax_of,
)
from tensormagic.reports import Gap, GraphForm, Location, StoredGraph
from tensormagic.words import listed

# One walk through everything a session holds, once each: its names first, then its history, then the last error. What
# is met only afterwards, nothing but the session keeps. It is bounded, so that it can be taken after every cell.

THOROUGH = Budget(limit=400_000, seconds=2.0)
QUICK = Budget(limit=40_000, seconds=0.05)


@dataclass(slots=True)
class Held:
    """A storage that was met."""

    tensor: torch.Tensor  # the first tensor over it
    nbytes: int  # its bytes
    places: list[Place] = field(default_factory=list)  # where tensors over it were found, at most a few

    @property
    def is_of_session(self) -> bool:
        """Whether only the history or the last error leads there."""
        return all(place.kind in SESSION_KINDS for place in self.places)


def memory_of(storage: torch.UntypedStorage) -> int:
    """Return the bytes of memory that a storage takes: none on the meta device, where those of fake tensors lie too."""
    return 0 if storage.device.type == "meta" else storage.nbytes()


@dataclass(slots=True)
class ObjectWalk(ReferenceWalk):
    """A walk, and what it has met."""

    with_bases: bool = False
    storages: dict[int, Held] = field(default_factory=dict)
    visits: list[tuple[Place, torch.Tensor]] = field(default_factory=list)  # a tensor, every time that it was met
    tensors: int = 0
    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    optimizers: list[tuple[str, torch.optim.Optimizer]] = field(default_factory=list)
    bounded: set[str] = field(default_factory=set)  # the paths of queues that have an end
    data: set[str] = field(default_factory=set)  # the paths of data sets and loaders
    names_complete: bool = False

    def through(self, namespace: Mapping[str, object], more: Iterable[tuple[Place, Any]] = ()) -> ObjectWalk:
        """Walk through all that a session holds, and ``more``: variables of running functions; returns itself."""
        every = [*roots(namespace), *more]
        self._walk([root for root in every if root[0].kind not in SESSION_KINDS])
        self.names_complete = not self.cut
        if self.names_complete:
            self._walk([root for root in every if root[0].kind in SESSION_KINDS])
        return self

    def below(self, values: Mapping[str, object]) -> ObjectWalk:
        """Walk through what some values hold, and nothing else; returns itself."""
        self._walk([(Place(name, "name"), value) for name, value in values.items()])
        return self

    def _walk(self, starts: Iterable[tuple[Place, Any]]) -> None:
        for place, item, is_new in self.meet(starts):
            kind = self.kinds[type(item)]
            if kind == "tensor":
                self._meet_tensor(place, item, is_new=is_new)
            elif is_new and kind in {"module", "optimizer"}:
                (self.modules if kind == "module" else self.optimizers).append((place.path, item))
            elif is_new and kind == "data":
                self.data.add(place.path)
            elif is_new and type(item) is deque and item.maxlen is not None:
                self.bounded.add(place.path)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What was not looked through, and why."""
        refused = f"{listed(list(dict.fromkeys(self.refused)))} cannot be read: their class raises an error"
        reasons = (self.cut, refused if self.refused else "")
        return tuple(Gap("names", reason) for reason in reasons if reason)

    def _meet_tensor(self, place: Place, x: torch.Tensor, *, is_new: bool) -> None:
        self.visits.append((place, x))
        self.names.setdefault(x._cdata, place.path)
        self.tensors += is_new
        try:
            for part in components(x) if x.layout is torch.jagged else (x,):
                key = part.untyped_storage()._cdata
                held = self.storages.setdefault(key, Held(part, Memory.behind(part).nbytes))
                if len(held.places) < 8:
                    held.places.append(place)
        except Exception:  # it has no storage, or none that can be asked for
            return


# Autograd graphs that live on because results are stored: losses in a list, outputs of a loop, a loss that is summed.
# Their nodes do, and where no backward went through, every activation too, counted by storages, each once.

FEWEST = 4  # graphs that have nothing but leaves in common
MOST_NODES = 5_000  # walked for one container
MOST = 16
ITEM = re.compile(r"\[[^\[\]]*\]$")
_PLACES = {"name", "item", "attribute", "module"}
_ADD = "AddBackward0"
_SCALED = ("DivBackward0", "MulBackward0")  # what a sum may be divided by in the end

WhereGrown = Callable[[str], Location | None]
_Found = tuple[StoredGraph, "frozenset[int]"]


@dataclass(slots=True)
class _Walked:
    """What a walk through several graphs has met; ``own`` are storages that live without them."""

    own: set[int]
    most: int = MOST_NODES
    seen: set[Any] = field(default_factory=set)
    graphs: int = 0
    saved: int = 0
    freed: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, root: Any) -> frozenset[Any]:
        """Walk one graph; returns its leaves. It counts where it has nothing but leaves in common with those before."""
        pending, apart = [root], True
        mine: set[Any] = set()
        leaves: set[Any] = set()
        while pending and len(self.seen) + len(mine) < self.most:
            node = pending.pop()
            if is_accumulate(node):
                leaves.add(node)
            elif node in self.seen:
                apart = False
            elif node not in mine:
                mine.add(node)
                self._read(node)
                pending += next_nodes(node)
        self.seen |= mine
        self.graphs += apart and bool(mine)
        return frozenset(leaves)

    def _read(self, node: Any) -> None:
        for state, tensor in live_saved(node):
            self.freed += state == "freed"
            self.saved += tensor is not None
            with suppress(RuntimeError):  # it has no storage
                if tensor is not None and (memory := Memory.behind(tensor)).identity not in self.own:
                    self.sizes[memory.identity] = memory.nbytes

    def described(self, name: str, form: GraphForm, items: list[torch.Tensor], where: Location | None) -> StoredGraph:
        """Return what was met as a report's part."""
        nbytes = sum(self.sizes.values())
        return StoredGraph(
            name=name, form=form, items=len(items), graphs=self.graphs, nodes=len(self.seen), saved=self.saved,
            nbytes=nbytes, scalars=all(item.numel() == 1 for item in items), freed=bool(self.freed) and not nbytes,
            complete=len(self.seen) < self.most, location=where,
        )  # fmt: skip


def graphs_and_storages(
    tensors: Sequence[tuple[Place, torch.Tensor]], own: Iterable[int], where: WhereGrown, most: int = MOST_NODES
) -> list[tuple[StoredGraph, frozenset[int]]]:
    """Return the containers and sums that keep several graphs alive, the largest first, each with its storages.

    ``own`` are storages that names lead to; ``where`` gives the line that makes something grow, by its name.
    """
    anew = partial(_Walked, set(own), most)
    tracked = [(place, x) for place, x in tensors if place.kind in _PLACES and graph_of(x) is not None]
    found = [*_in_containers(tracked, anew, where), *_in_sums(tracked, anew, where)]
    return sorted(found, key=lambda pair: -pair[0].nbytes)[:MOST]


def _in_containers(
    tracked: list[tuple[Place, torch.Tensor]], anew: Callable[[], _Walked], where: WhereGrown
) -> Iterator[_Found]:
    items_of = [(ITEM.sub("", place.path), x) for place, x in tracked if place.kind == "item"]
    inside = Counter(ITEM.sub("", name) for name in {name for name, _ in items_of})
    joined: dict[str, dict[int, torch.Tensor]] = {}
    for name, x in items_of:  # many containers in one, of each layer or each step, are told as that one
        outer = ITEM.sub("", name)
        joined.setdefault(outer if inside[outer] >= FEWEST else name, {})[id(x)] = x
    for name, items in ((name, list(group.values())) for name, group in joined.items() if len(group) >= FEWEST):
        walked = anew()
        for node in filter(None, map(graph_of, items)):
            walked.add(node)
        if walked.graphs >= FEWEST:
            yield walked.described(name, "items", items, where(name)), frozenset(walked.sizes)


def _in_sums(
    tracked: list[tuple[Place, torch.Tensor]], anew: Callable[[], _Walked], where: WhereGrown
) -> Iterator[_Found]:
    described: set[int] = set()
    added_up: dict[tuple[int, ...], list[Any]] = {}  # the nodes are kept: their ``id`` stays their own
    for place, x in tracked:
        listed = place.kind == "item" and not place.path.endswith("']")  # those in a list are looked at together
        if listed or id(x) in described:
            continue
        described.add(id(x))
        terms = _terms(graph_of(x)) if x.numel() == 1 else []
        if len(terms) < FEWEST or added_up.setdefault(tuple(map(id, terms)), terms) is not terms:
            continue  # too few, or the mean of a sum that was described: it keeps no more
        walked = anew()
        leaves = {walked.add(term) for term in terms}
        if walked.graphs == len(terms) and len(leaves) == 1 and all(leaves):
            yield walked.described(place.path, "sum", [x], where(place.path)), frozenset(walked.sizes)


def _terms(node: Any) -> list[Any]:
    """Return the nodes that a sum was added up from, the latest first: ``total = total + loss``, again and again."""
    while node is not None and node.name() in _SCALED:
        inputs = next_nodes(node)
        node = inputs[0] if len(inputs) == 1 else None
    terms: list[Any] = []
    while node is not None and node.name() == _ADD and len(terms) < MOST_NODES:
        first, *others = next_nodes(node) or [None]
        terms += others
        if not others and first is not None and first.name() != _ADD:
            terms.append(first)  # the first one, added to a number
        node = first
    return terms + ([node] if node is not None and terms and node.name() != _ADD and node not in terms else [])


# Which line gave a module its attribute, or makes a container grow: read in the source that Python itself remembers,
# nothing is run.

_ADDING = {"append", "extend", "appendleft", "add", "insert"}
_TAKING = {"pop", "popleft", "popitem", "clear", "remove"}
_ANY_KEY = "[...]"  # of an item whose key is a variable


def assigned(kind: type, attribute: str, cell_number: CellNumber = no_cell) -> list[Location]:
    """Return the lines of a class's own code that assign to an attribute: the first of a method, ``__init__`` first."""
    found = []
    for function in sorted(_functions(kind), key=lambda function: function.__name__ != "__init__"):
        code = in_file(function.__code__)[0]
        method = definition_of(code, syntax_of("".join(known_lines(code.co_filename)))) or ast.Module([], [])
        target = f"{next(iter(code.co_varnames), 'self')}.{attribute}"
        every = list(ast.walk(method))
        added = {id(node.target) for node in every if isinstance(node, ast.AugAssign)}
        stored = (node for node in every if isinstance(node, ast.Attribute) and type(node.ctx) is ast.Store)
        lines = [node.lineno for node in stored if id(node) not in added and ast.unparse(node) == target]
        found += [_location(code, min(lines), cell_number)] if lines else []
    return found


def tied(kind: type, first: str, second: str, cell_number: CellNumber = no_cell) -> Location | None:
    """Return the line of a class's own code that makes one attribute the other: paths inside the module."""
    either = rf"(?:{re.escape(first)}|{re.escape(second)})"
    made = rf"(?:[\w.]+\()?\w+\.{either}(?:\.\w+(?:\(\))?)*\)?"  # or a new one: `nn.Parameter(self.emb.weight.clone())`
    target = re.compile(rf"\.{either}(?:\.data)?\s*=\s*{made}\s*(?:#.*)?$")
    found = (_first(function.__code__, target, cell_number) for function in _functions(kind))
    return next(chain.from_iterable(found), None)


def _functions(kind: type) -> Iterator[FunctionType]:
    for each in type.mro(kind):
        for value in list(vars(each).values()):
            if type(value) is FunctionType and is_own_code(value.__code__.co_filename):
                yield value


def _first(code: CodeType, target: re.Pattern[str], cell_number: CellNumber) -> list[Location]:
    """Return the first line of a function that has the target, if any."""
    code = in_file(code)[0]
    lines = known_lines(code.co_filename)
    last = max((line for _, _, line in code.co_lines() if line), default=0)
    for line in range(code.co_firstlineno, min(last, len(lines)) + 1):
        if target.search(lines[line - 1].partition("#")[0]):
            return [_location(code, line, cell_number)]
    return []


def _location(code: CodeType, line: int, cell_number: CellNumber) -> Location:
    text = known_line(code.co_filename, line)
    return Location(code.co_filename, line, text, cell_number(code.co_filename), code.co_name)


class ChangingLines:
    """Which line gives a name its value, and which puts more into what it holds, or takes something out.

    A name is ``"losses"``, ``"history['loss']"``, ``"meter.losses"``; ``"self.losses"`` in a class counts for the last.
    The first file that has such a line counts. Each is read once, however many names are asked for.
    """

    def __init__(self, filenames: Iterable[str], cell_number: CellNumber = no_cell) -> None:
        self._filenames, self._cell_number = tuple(filenames), cell_number

    def grown(self, name: str) -> Location | None:
        """Return the line that puts more into what a name holds; None where several lines of one file do, or none."""
        held, _, key = name.rpartition("[")
        return self._only_line("adds", name, *([held + _ANY_KEY] if held and key else []))

    def bound(self, name: str) -> Location | None:
        """Return the line that gives a name its value; None where several lines of one file do, or none."""
        return self._only_line("binds", name)

    def is_emptied(self, name: str) -> bool:
        """Return whether a line takes something out of what a name holds: ``x.pop()``, ``x = x[-9:]``."""
        return bool(self._lines("takes", name))

    def _only_line(self, what: str, *names: str) -> Location | None:
        """Return the line of the first file that has one, where it is the only one there; the first name goes first."""
        every = [self._lines(what, name) for name in names]
        first = min(chain(*every), default=None)
        if first is None:
            return None
        filename, found = self._filenames[first], next(lines[first] for lines in every if first in lines)
        text = known_line(filename, min(found))
        return Location(filename, min(found), text, self._cell_number(filename)) if len(found) == 1 else None

    def _lines(self, what: str, name: str) -> dict[int, set[int]]:
        """Return the lines that do something to a name, by the number of the file; also as an object's own."""
        root, _, rest = name.partition(".")
        either = [name, f"self.{rest}"] if rest and root.isidentifier() else [name]
        found = defaultdict[int, set[int]](set)
        for at, lines in chain.from_iterable(self._every.get((what, one), ()) for one in either):
            found[at] |= lines
        return found

    @cached_property
    def _every(self) -> Mapping[tuple[str, str], list[tuple[int, set[int]]]]:
        found = defaultdict[tuple[str, str], list[tuple[int, set[int]]]](list)
        for at, filename in enumerate(self._filenames):
            for change, lines in _changes("".join(known_lines(filename))).items():
                found[change].append((at, lines))
        return found


@lru_cache(maxsize=4096)  # the cells of a long session
def _changes(source: str) -> Mapping[tuple[str, str], set[int]]:
    """Return what the lines of a source do to which target, and these lines; none of what is no Python."""
    found = defaultdict[tuple[str, str], set[int]](set)
    for node in ast.walk(syntax_of(source)):
        for what, target in _done(node):
            names = [ast.unparse(target)]
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name):
                names.append(ast.unparse(target.value) + _ANY_KEY)
            for name in names:
                found[what, name].add(node.lineno)  # type: ignore[attr-defined]
    return dict(found)


def _done(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a statement or call does: ``"binds"`` it to a value, ``"adds"`` to it, or ``"takes"`` out of it."""
    match node:
        case ast.Call(ast.Attribute(held, method)):
            yield "adds" if method in _ADDING else "takes" if method in _TAKING else "calls", held
        case ast.AugAssign(added, ast.Add()):
            yield "adds", added
        case ast.Delete(targets):
            yield from (("takes", target.value) for target in targets if isinstance(target, ast.Subscript))
        case ast.Assign(targets, value):
            for target in targets:
                yield "binds", target
                same = (part for part in ast.walk(value) if type(part) is type(target))
                own = ast.unparse(target)
                stands_in = any(ast.unparse(part) == own for part in same)
                if len(targets) == 1 and (stands_in or isinstance(target, ast.Subscript)):
                    yield "adds", target.value if isinstance(target, ast.Subscript) else target
                if _is_slice(target):
                    yield "takes", target.value
                if stands_in and _is_slice(value):
                    yield "takes", target


def _is_slice(node: ast.expr) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def sources(namespace: Any, filename: str = "") -> tuple[str, ...]:
    """Return the files in which to look for lines: the given one, then the cells of the session, the latest first."""
    cells = [name for name in reversed(list(linecache.cache)) if name.startswith("<ipython") or "ipykernel_" in name]
    own = namespace.get("__file__") if isinstance(namespace, dict) else None
    return tuple(dict.fromkeys(name for name in (filename, own, *cells) if isinstance(name, str) and name))
