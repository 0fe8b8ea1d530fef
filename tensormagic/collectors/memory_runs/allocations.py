"""What a memory run notes of every operation: each storage that is new, and where it was allocated."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.geometry.parts import storages
from tensormagic.collectors.hooks.mode_suspension import OperationListener
from tensormagic.collectors.memory_runs.allocation_log import Block, Event, Freed, Resized, new_block
from tensormagic.collectors.ops import NOTHING, ONE, SEVERAL, Place, Places, newly_made, tensors_in
from tensormagic.collectors.where.caller import Engine, sequence_number
from tensormagic.collectors.where.source import frame_of
from tensormagic.words import error_text

VIEW, RESIZES = 3, 4  # besides what `newly_made` says

_GIVES_BACK = {"aten::lift", "aten::lift_fresh"}  # what was made without an operation, as from a list or an array
_LAZY = "aten._lazy_clone.default"  # to ask its result for an address would copy the memory
_MAY_HAND_BACK = {"aten::_unsafe_view", "aten::native_dropout"}  # an argument's memory, whatever the schema says


class OpKind:
    """One operation."""

    __slots__ = ("allocates", "inside", "makes", "name", "new", "op")

    def __init__(self, op: Any) -> None:
        self.op, self.name = op, str(op)  # kept, so that its ``id`` stays its own
        # What its result may be: nothing new, one tensor with memory of its own, several, a view, or what may change
        # the bytes of a storage.
        self.new = SEVERAL
        self.inside = False  # whether Python code runs inside it, whose own operations are not seen
        self.makes = False  # whether what is new after it is of its own making, rather than met for the first time
        if isinstance(op, torch._ops.OpOverload):
            name = op._schema.name
            self.new = _new(op)
            self.inside = op.namespace not in {"aten", "prims", "prim", "profiler"}
            is_made = op.namespace == "aten" and self.new in {ONE, SEVERAL} and name not in _MAY_HAND_BACK
            self.makes = name in _GIVES_BACK or is_made
        # Whether it may allocate: its place is looked for whether autograd records it or not.
        self.allocates = self.new not in {NOTHING, VIEW}

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """Yield the tensors that a call writes to, those that it grows or replaces included."""
        for position, argument in enumerate(self.op._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[position] if position < len(args) else kwargs.get(argument.name)
                yield from tensors_in([given])


def _new(op: Any) -> int:
    schema = op._schema
    written = [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    resizes = not schema.name.startswith("aten::") or any(x in schema.name for x in ("resize", "set_", "swap", "_out"))
    if written and (resizes or any(each.kwarg_only for each in written)):
        return RESIZES
    is_view = not written and any("Tensor" in str(each.type) for each in schema.returns)
    return newly_made(op) or (VIEW if is_view else NOTHING)


# Autograd numbers the nodes of a thread one after the other, and draws the number before the operation runs. So the
# first operation after a number was drawn comes from the place where the node was made.

MOST = 1 << 17  # changes of place that are remembered: beyond, the older half is forgotten (2 MB)


class NodeLines:
    """The places of nodes."""

    __slots__ = ("_ends", "_first", "_places", "last")

    def __init__(self, first: int) -> None:
        self._first = self.last = first  # number of the node that will be made next, as far as is known
        self._ends, self._places = array("q"), list[Place]()

    def add(self, end: int, place: Place) -> None:
        """Note that the nodes up to the number ``end`` (not included) were made at ``place``."""
        self.last = end
        if self._places and self._places[-1] is place:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._places.append(place)
        if len(self._ends) > MOST:
            half = MOST // 2
            self._first = self._ends[half - 1]
            del self._ends[:half], self._places[:half]

    def of(self, number: int) -> Place | None:
        """Return where a node was made; None for one that is not of this run, or forgotten."""
        if number < self._first:
            return None
        at = bisect_right(self._ends, number) if number < self.last else len(self._ends)
        return self._places[at] if at < len(self._places) else None


# It runs for each operation: one walk up the stack for the line, where the operation may allocate or autograd recorded
# it, and, for what is new, a weak reference that notes when it is freed. All sums are made later, a few hundred events
# at a time: more would wait long enough for Python to look through them for garbage again and again.

FEWEST_EVENTS = 1 << 9  # that wait to be added up
MOST_LOOKED, LOOKED_AN_OPERATION = 20_000, 4  # storages, for those below an array: 0.2 µs each
MOST_MET = 20_000  # calls whose place was looked for

_ENGINE = Engine.code
_current_node: Callable[[], Any] = torch._C._current_autograd_node
_graph_task: Callable[[], int] = torch._C._current_graph_task_id
_getframe, _new_tuple = sys._getframe, tuple.__new__


class Allocations(OperationListener):
    """Remembers every storage that an operation allocates."""

    looks = True

    def __init__(self, places: Places, fold: Callable[[], None], clock: Callable[[], float]) -> None:
        self._places, self._site_of, self._fold, self._clock = places, places.site_of, fold, clock
        self._kinds: list[OpKind] = []
        self._nodes = NodeLines(0)
        self._node: tuple[int, Place] = (-1, Place(None, "", "backward"))
        self._backward: tuple[tuple[int, int], int | None] = (-1, 0), None  # the last that freed something; its line
        self._death = self.note_death  # one bound method for all
        self.events: list[Event] = []  # what was allocated, freed, grown or shrunk since it was last added up
        self.patience = FEWEST_EVENTS  # how many of these may wait
        self.known: dict[int, Block] = {}  # the storages that are alive and were met, by address
        self._same: dict[Block, SameMemory] = {}
        self._ranges: dict[torch.device, list[SameMemory]] = {}  # by address; no two of them overlap
        self._counted = 0  # storages, since the dead were taken out of these
        self._looked = 0  # at storages, for those below memory of somebody else
        self.operations = 0  # how many ran
        self.here = Place(None, "", "other")  # where the last one was called from whose place was looked for
        self._met: set[tuple[int, int]] = set()  # calls whose place was looked for: ``id`` of their code, instruction
        self.whole: set[str] = set()  # names of what was looked at from outside only
        self.inside: set[str] = set()  # names of operations in which Python code runs that is not seen
        self.resized: set[int] = set()  # addresses of storages grown or shrunk, some of which may be others' by now
        self.over = False  # whether the run has ended: what is freed is of no interest any more
        self.gap = ""  # why something could not be looked at; empty where all could

    def begin(self) -> None:
        """Know the nodes that are made from now on for the run's."""
        self._nodes = NodeLines(sequence_number())

    # -- every operation --------------------------------------------------------------------------------------------

    def around(self, call: Any, known: OpKind, frame: FrameType | None, op: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917
        """Make a call, and note what it allocates."""
        self.operations += 1
        kind, place = known, None  # where the engine calls for a node, that is asked only if something is new
        if frame is None or (code := frame.f_code) is _ENGINE or code is Engine.stand_in:
            frame = None
            if (number := sequence_number()) > self._nodes.last:
                self._nodes.add(number, self._place_of_node())
        elif kind.allocates or sequence_number() > self._nodes.last or (id(code), frame.f_lasti) not in self._met:
            place = self._place_of(frame)
        result = call(op, args, kwargs)
        new = kind.new
        if new == ONE and type(result) is torch.Tensor:
            try:
                storage = result.untyped_storage()
                if storage._cdata not in self.known:
                    self._allocated(storage, result, kind, place)
            except Exception:  # it has none: sparse, or nested
                self._look([result], kind, place)
        elif new == VIEW and frame is not None:
            self._look_at_view(kind, place, frame, result)
        elif kind.allocates:
            self._look_further(kind, place, (args, kwargs or {}), result)
        if len(self.events) > self.patience:
            self._fold()
        return result

    def wants(self, op: Any) -> OpKind:
        """Return what an operation does to memory."""
        kind = OpKind(op)
        self._kinds.append(kind)
        if kind.inside:
            self.inside.add(kind.name)
        return kind

    def pass_over(self, number: int) -> None:
        """Know that the nodes below this number are not the run's."""
        self._nodes.add(number, self.here)

    # -- where ------------------------------------------------------------------------------------------------------

    def _place_of(self, above: FrameType) -> Place:
        """Return the place of a call that Python code makes, and note it for the nodes made meanwhile."""
        if _graph_task() != -1:
            return self._place_inside(above)
        if len(self._met) >= MOST_MET:
            self._met.clear()
        self._met.add((id(above.f_code), above.f_lasti))
        place = self._places.of(above)
        if (number := sequence_number()) > self._nodes.last:
            place = place.grown
            self._nodes.add(number, place)
        self.here = place
        return place

    def _place_of_node(self) -> Place:
        """Return where the node was made for which the engine calls.

        Where that is unknown, the place of the backward's call; on a thread of the engine's, of the last operation.
        """
        node = _current_node()
        number = -1 if node is None else node._sequence_nr()
        if number != self._node[0]:
            if (place := self._nodes.of(number)) is None:
                frame = frame_of(_ENGINE, _getframe())
                place = self.here if frame is None else self._places.of(frame)
            self._node = number, self._places.at(place.site, place.module, "backward")
        return self._node[1]

    def _place_inside(self, above: FrameType | None) -> Place:
        """Return the place of a call that Python code makes while the engine runs: a hook, a checkpoint."""
        site = self._places.own_site(above, _ENGINE)
        place = self._place_of_node()
        if site is None or site == place.site:
            return place
        if (number := sequence_number()) > self._nodes.last:
            self._nodes.add(number, self._places.at(site, place.module, "forward"))
        return self._places.at(site, place.module, "backward")

    # -- what -------------------------------------------------------------------------------------------------------

    # In all of these a place of None stands for the engine's own call, made for a node.

    def _allocated(
        self, storage: torch.UntypedStorage, tensor: torch.Tensor, kind: OpKind, place: Place | None
    ) -> None:
        block = new_block(storage, tensor, self._death)
        block.by_engine = place is None
        block.place, block.op, block.allocated_at = place or self._place_of_node(), kind.name, self.operations
        block.seconds, block.task = self._clock(), _graph_task()
        if not storage.resizable():  # its memory is another one's: an array's, a file's, a tensor's by way of DLPack
            self.count_once(storage, block)
        self.known[block.key] = block
        self.events.append(block)

    def _look_further(self, kind: OpKind, place: Place | None, given: tuple[Any, dict[str, Any]], result: Any) -> None:
        """Note what is new where that is not one plain tensor. Never raises."""
        try:
            changed = list(kind.written(*given)) if kind.new == RESIZES else [result]
            self._look(changed, kind, place)
            if kind.new == RESIZES:
                site = (place or self._place_of_node()).site
                for storage in (storage for tensor in changed for storage in storages(tensor)):
                    block = self.known.get(storage._cdata)
                    if block is not None and not block.shared and (size := storage.nbytes()) != block.size:
                        self.note_size(block, size, site, kind.name)
        except Exception as error:
            self.gap = f"{kind.name}: {error_text(error)}"

    def _look_at_view(self, kind: OpKind, place: Place | None, above: FrameType, result: Any) -> None:
        """Note what a call from Python gave a view of, where that is new. Never raises."""
        try:
            is_plain = type(result) is torch.Tensor and result.layout is torch.strided
            if not is_plain or result.untyped_storage()._cdata not in self.known:
                self._look([result], kind, place or self._place_of(above))
        except Exception as error:
            self.gap = f"{kind.name}: {error_text(error)}"

    def _look(self, values: Any, kind: OpKind, place: Place | None) -> None:
        for tensor in tensors_in(values):
            for storage in storages(tensor):
                if storage._cdata not in self.known and storage.device.type != "meta":
                    self._allocated(storage, tensor, kind, place)

    def note_whole(self, name: str, result: Any, frame: FrameType | None) -> None:
        """Note what was made while the mode had stepped off, by what has a name. Never raises."""
        self.whole.add(name)
        try:
            self.operations += 1
            self._look([result], OpKind(name), None if frame is None else self._place_of(frame))
        except Exception as error:
            self.gap = f"{name}: {error_text(error)}"

    def note_size(self, block: Block, size: int, site: int | None, op: str) -> None:
        """Note that a storage has another size now."""
        self.events.append(Resized(block, self.operations, self._clock(), site, size - block.size, op))
        block.size = size
        self.resized.add(block.key)

    def allocated(self) -> Iterator[tuple[torch.UntypedStorage, Place]]:
        """Yield the storages that are alive and that an operation is known to have allocated, as they are, and where.

        What was met first in a view was allocated elsewhere, and so was what cannot be resized: an array, a file.
        """
        makers = {kind.name for kind in self._kinds if kind.makes}
        for block in list(self.known.values()):
            if block.op in makers and block.place is not None and not block.shared and block.key not in self.resized:
                storage = block()
                if storage is not None and storage.resizable():
                    yield storage, block.place

    def end(self) -> None:
        """Note no more of what is freed."""
        self.over = True

    def note_resized(self, storage: torch.UntypedStorage, frame: FrameType) -> None:
        """Note that a storage was resized by no operation."""
        block = self.known.get(storage._cdata)
        if block is not None and not self.over and (size := storage.nbytes()) != block.size:
            self.note_size(block, size, self._site_of(frame), "resize_")

    def note_death(self, block: Block) -> None:
        """Note that a storage was freed. Called by Python whenever that happens; never raises."""
        if self.over:
            return
        if self.known.get(block.key) is block:
            del self.known[block.key]
        task = _graph_task()
        try:
            frame: FrameType | None = _getframe(1)
        except ValueError:  # a thread of the engine's: no Python above
            frame = None
        if frame is None or frame.f_code is not _ENGINE:
            site = None if frame is None else self._site_of(frame)
        else:  # the line that runs the backward, looked for once: the frames above its engine's wait for it
            called = task, id(frame)
            if called != self._backward[0] or task == -1:  # once it has ended, another frame may lie there
                self._backward = called, self._site_of(frame)
            site = self._backward[1]
        for gone in self._gone_with(block) if block in self._same else (block,):
            freed = (gone, self.operations, self._clock(), site, task, gone.size)
            self.events.append(_new_tuple(Freed, freed))  # without the call in Python that its own constructor makes

    # -- several storages over the same memory ------------------------------------------------------------------------

    def count_once(self, storage: torch.UntypedStorage, block: Block) -> None:
        """Count of a storage only what lies beyond the memory of those that are known."""
        start, stop = storage.data_ptr(), storage.data_ptr() + block.size
        if not start or start == stop:
            return
        lowest, highest = self._find_below(start, stop, block)
        ranges = self._ranges.setdefault(block.device, [])
        first = last = bisect_right(ranges, lowest, key=attrgetter("stop"))  # side by side is not the same memory
        while last < len(ranges) and ranges[last].start < highest:
            last += 1
        below, covered = [each for each in ranges[first:last] if each.alive], start
        for each in below:  # they overlap where the first of them was not looked for
            block.size -= max(min(stop, each.stop) - max(covered, each.start), 0)
            covered = max(covered, each.stop)
        block.nbytes, block.shared = block.size, bool(below)
        same = max(below, key=lambda each: len(each.alive), default=SameMemory(start, stop))
        for other in below:
            if other is not same:
                self._same.update(dict.fromkeys(other.alive, same))
                same.start, same.stop = min(same.start, other.start), max(same.stop, other.stop)
                same.alive |= other.alive
                same.ended += other.ended
        same.start, same.stop = min(same.start, start), max(same.stop, stop)
        same.alive.add(block)
        self._same[block] = same
        ranges[first:last] = [same]  # only here are the dead taken out: storages die at any moment
        self._counted += 1
        if self._counted > len(ranges) // 2 + FEWEST_EVENTS:
            ranges[:], self._counted = [each for each in ranges if each.alive], 0

    def _find_below(self, start: int, stop: int, block: Block) -> tuple[int, int]:
        """Look for storages of torch's own below memory that somebody else seems to own, as of ``x.numpy()``.

        They are many, and torch tells nobody: it is done as long as it costs little beside the operations so far.
        Return from where to where that memory and theirs reach: what was counted before over theirs lies there too.
        """
        lowest, highest = start, stop
        affordable = self._looked <= MOST_LOOKED + LOOKED_AN_OPERATION * self.operations
        self._looked += len(self.known) * affordable
        for known in list(self.known.values()) if affordable else ():
            other = known() if known.device == block.device and known.op != _LAZY and known not in self._same else None
            if other is not None and (at := other.data_ptr()) and at < stop and start < at + other.nbytes():
                found = self._same[known] = SameMemory(at, at + other.nbytes())
                found.alive.add(known)
                insort(self._ranges.setdefault(known.device, []), found, key=attrgetter("start"))
                lowest, highest = min(lowest, found.start), max(highest, found.stop)
        return lowest, highest

    def _gone_with(self, block: Block) -> Sequence[Block]:
        """Return the blocks whose bytes go with a storage: memory that several lie over goes with the last of them."""
        same = self._same.pop(block)
        same.alive.discard(block)
        if not same.alive:
            return *same.ended, block
        still_there = [block] if block.size else []
        same.ended += still_there
        for each in same.ended:
            each.key = next(iter(same.alive)).key  # by which it has a name
        return () if still_there else (block,)


class SameMemory:
    """Storages that lie over the same memory, as each ``torch.from_numpy`` of one array makes one."""

    __slots__ = ("alive", "ended", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop  # the address of its first byte, and that after its last
        self.alive = set[Block]()
        self.ended = list[Block]()  # those that are not, with the bytes that count with them and are still there
