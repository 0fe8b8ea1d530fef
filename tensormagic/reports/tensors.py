"""Every tensor a person has, a line each: the report behind ``%tensors``, and behind ``%tensor`` for a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap
from tensormagic.reports.tensor import TensorReport


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor or NumPy array.

    Attributes:
        name: The shortest name that reaches it.
        kind: Its class: ``"Tensor"``, ``"Parameter"``, ``"ndarray"``; ``"buffer"`` where a module has registered it.
        dtype: Without the ``torch.`` prefix.
        shape: Its shape.
        device: As torch writes it.
        layout: ``"strided"``, ``"sparse_coo"`` …, without the prefix.
        nbytes: What its elements take; of sparse and nested tensors, what their parts take.
        group: Which memory it shares with others in this table, from 1; 0 where with none.
        gradient: ``""`` (not tracked), ``"leaf"``, ``"leaf, grad"`` (``.grad`` is there), or the
            ``grad_fn`` that made it.
        names: How many names reach it.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    layout: str
    nbytes: int
    group: int
    gradient: str
    names: int = 1


@dataclass(frozen=True, slots=True)
class MemoryTotal:
    """What lies on one device.

    Attributes:
        device: As torch writes it.
        tensors: How many tensors and arrays.
        storages: How many separate pieces of memory they lie in.
        nbytes: What these take, each counted once.
    """

    device: str
    tensors: int
    storages: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTable(Report):
    """All tensors and arrays that a namespace or a collection reaches.

    Attributes:
        title: The collection's name; empty for the whole namespace.
        rows: In the order in which they are reached, each object once.
        totals: By device, over everything.
        groups: How many pieces of memory are shared by several rows.
        looked: How many names, items and attributes were looked through.
        panels: The first few in full, where that was asked for.
        hint: What shows more of the collection, with its magic.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "tensors"

    title: str = ""
    rows: tuple[TensorRow, ...] = ()
    totals: tuple[MemoryTotal, ...] = ()
    groups: int = 0
    looked: int = 0
    panels: tuple[TensorReport, ...] = ()
    hint: str = ""
    gaps: tuple[Gap, ...] = ()
