"""Many tensors, a line each: all that a user has or a collection holds, and a model as a tree of its modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Report
from tensormagic.reports.tensor import TensorReport


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor or NumPy array."""

    name: str  #: The shortest name that reaches it.
    kind: str  #: Its class: ``"Tensor"``, ``"Parameter"``, ``"ndarray"``; ``"buffer"`` where a module registered it.
    dtype: str  #: Without the ``torch.`` prefix.
    shape: tuple[int, ...]  #: Its shape.
    device: str  #: As torch writes it.
    layout: str  #: ``"strided"``, ``"sparse_coo"`` …, without the prefix.
    nbytes: int  #: What its elements take; of sparse and nested tensors, what their parts take.
    group: int  #: Which memory it shares with others in this table, from 1; 0 where with none.
    gradient: str  #: ``""`` (not tracked), ``"leaf"``, ``"leaf, grad"`` (``.grad`` is there), or its ``grad_fn``.
    names: int = 1  #: How many names reach it.


@dataclass(frozen=True, slots=True)
class MemoryTotal:
    """What lies on one device."""

    device: str  #: As torch writes it.
    tensors: int  #: How many tensors and arrays.
    storages: int  #: How many separate pieces of memory they lie in.
    nbytes: int  #: What these take, each counted once.


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTable(Report):
    """All tensors and arrays that a namespace or a collection reaches."""

    kind_name: ClassVar[str] = "tensors"

    title: str = ""  #: The collection's name; empty for the whole namespace.
    rows: tuple[TensorRow, ...] = ()  #: In the order in which they are reached, each object once.
    totals: tuple[MemoryTotal, ...] = ()  #: By device, over everything.
    groups: int = 0  #: How many pieces of memory are shared by several rows.
    looked: int = 0  #: How many names, items and attributes were looked through.
    panels: tuple[TensorReport, ...] = ()  #: The first few in full, where that was asked for.
    hint: str = ""  #: What shows more of the collection, with its magic.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.


ShapesFrom = Literal["", "forward", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One module, with all that is inside it."""

    path: str  #: With the model's name: ``"net.conv1"``.
    type_name: str  #: Its class.
    details: str = ""  #: What torch prints between its brackets; empty of classes that are not torch's.
    depth: int = 0  #: How many modules are around it.
    training: bool = True  #: Whether it is in train mode.
    shapes: tuple[tuple[int, ...], ...] = ()  #: Of the tensors that its forward returned; empty where not seen.
    calls: int = 0  #: How often its forward ran; 0 where that was not counted.
    parameters: int = 0  #: How many elements its parameters have, those inside it included, each Parameter once.
    trainable: int = 0  #: How many of these ask for a gradient.
    shared: int = 0  #: How many of them belong to a module outside, too: tied weights.
    shared_with: tuple[str, ...] = ()  #: The paths of these modules.
    unmade: int = 0  #: How many of its parameters and buffers do not exist yet, in lazy modules that have not run.
    optimized: int = 0  #: How many of the trainable ones an optimizer holds.
    optimizers: tuple[str, ...] = ()  #: The names of these optimizers.
    nbytes: int = 0  #: What its parameters and buffers take; nothing on the meta device.
    gradient: float | None = None  #: The norm of the gradients in ``.grad``, else of the last traced pass, if any.
    #: How far the optimizer's last traced step moved the parameter of its own that it moved most: the norm of the
    #: change over the norm before.
    update: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport(Report):
    """A model as a tree of its modules."""

    kind_name: ClassVar[str] = "model"

    model: str = ""  #: What the user calls it.
    rows: tuple[ModuleRow, ...] = ()  #: The model itself, then what is inside, in the order in which it was registered.
    modules: int = 0  #: How many modules there are.
    parameter_bytes: int = 0  #: What all parameters take.
    buffer_bytes: int = 0  #: What all buffers take.
    gradient_bytes: int = 0  #: What their gradients take.
    state_bytes: int = 0  #: What optimizers keep for them.
    meta_bytes: int = 0  #: What those parameters and buffers would take that are on the meta device, without memory.
    optimizers: tuple[str, ...] = ()  #: The names of all optimizers that hold one of its parameters.
    shapes_from: ShapesFrom = ""  #: Whether shapes are of a forward run for this report, or of the last traced run.
    gaps: tuple[Gap, ...] = ()  #: What could not be looked at, and why.
