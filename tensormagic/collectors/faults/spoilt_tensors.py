"""Finds the saved tensor at which a backward raised because something had changed it in place, and who that was."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tensormagic.collectors.graphs.in_place import WriteBook, WriteRecord
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.graphs.saved_memory import Saved, memory_of, saved_by
from tensormagic.reports.backward_faults import SavedWrite, SpoiltTensor, WriteKind
from tensormagic.reports.finding import Location

MOST_TOLD = 4  # writes
ARRAYS = frozenset({"numpy", "asarray", "as_tensor"})  # calls after which a NumPy array shares a tensor's memory

_COMPLAINT = re.compile(r"modified by an inplace operation.*is at version (\d+); expected version (\d+)", re.DOTALL)
Origin = tuple["Location | None", str]  # a line, and the path of the module that ran there


class Candidate(NamedTuple):
    """A saved tensor that was changed: of which node, by its place in the walk."""

    place: int
    node: Any
    saved: Saved


def is_about_a_write(error: BaseException) -> bool:
    """Return whether autograd complains of a saved tensor that was changed in place."""
    return isinstance(error, RuntimeError) and _COMPLAINT.search(str(error)) is not None


def find_spoilt(nodes: Sequence[Any], error: BaseException, reached: int | None) -> Candidate | None:
    """Return the saved tensor that ``error`` is about.

    Args:
        nodes: The live nodes of the backward that raised.
        error: What it raised.
        reached: Place of the node that the engine reached last; None where that is not known.
    """
    told = _COMPLAINT.search(str(error))
    wanted = (int(told[2]), int(told[1])) if told else None
    if reached is not None and (found := next(_candidates(nodes, [reached], wanted), None)) is not None:
        return found
    return next(_candidates(nodes, range(len(nodes)), wanted), None)


def _candidates(nodes: Sequence[Any], places: Sequence[int], wanted: tuple[int, int] | None) -> Iterator[Candidate]:
    for place in places:
        for saved in saved_by(nodes[place]):
            if saved.versions is not None and saved.versions == wanted:
                yield Candidate(place, nodes[place], saved)


class Blame:
    """Says who wrote to a saved tensor.

    Args:
        writes: What was seen being written; None where nobody looked.
        origin: Gives the line and the module of the node with a sequence number.
        location: Gives a line by its site.
        name: Gives the person's name of a tensor; empty where it has none.
    """

    def __init__(
        self,
        writes: WriteBook | None,
        origin: Callable[[int], Origin],
        location: Callable[[int | None], Location | None],
        name: Callable[[torch.Tensor], str],
    ) -> None:
        self._writes, self._origin, self._location, self._name = writes, origin, location, name

    def spoilt(self, found: Candidate, nodes: Sequence[Any]) -> SpoiltTensor:
        """Return what is known of a saved tensor that was changed."""
        place, node, saved = found
        before, now = saved.versions or (0, 0)
        memory, number = memory_of(saved.tensor), node._sequence_nr()
        records = self._records(memory, number, before)
        location, module = self._origin(number)
        return SpoiltTensor(
            op=op_name(node.name()), slot=saved.slot, name=self._name(saved.tensor),
            shape=tuple(saved.tensor.shape), module=module, location=location, node=place,
            saved_version=before, version=now, writes=self.told(records), writes_seen=len(records),
            others=_others(nodes, place, memory, records[0].stop if records else -1),
        )  # fmt: skip

    def _records(self, memory: tuple[int, int] | None, number: int, before: int) -> list[WriteRecord]:
        if memory is None or self._writes is None:
            return []
        return [one for one in self._writes.since(number, *memory) if not one.blind and one.version > before]

    def told(self, records: Sequence[WriteRecord]) -> tuple[SavedWrite, ...]:
        """Return the first writes, those of one line and call once."""
        told: dict[tuple[str, Location | None], SavedWrite] = {}
        for one in records:
            location, module = (self._location(one.site), "")
            if one.stop != one.start:
                location, module = self._origin(one.start)
            told.setdefault((one.call, location), SavedWrite(
                call=one.call, kind=_kind(one), location=location, module=module, version=one.version,
            ))  # fmt: skip
        return tuple(told.values())[:MOST_TOLD]


def _kind(record: WriteRecord) -> WriteKind:
    if record.call in ARRAYS:
        return "array"
    if record.blind:
        return "set data" if record.call == "data" else "data"
    if record.call.endswith(".step"):
        return "step"
    return "call" if record.call.endswith("_") else "out"


def _others(nodes: Sequence[Any], place: int, memory: tuple[int, int] | None, until: int) -> int:
    """Return how many other nodes had saved something in the same memory before sequence number ``until``."""
    if memory is None:
        return 0
    count = 0
    for at, node in enumerate(nodes):
        if at != place and not hasattr(node, "variable") and (until < 0 or node._sequence_nr() < until):
            count += any(saved.versions is not None and memory_of(saved.tensor) == memory for saved in saved_by(node))
    return count
