"""Many tensors, a line each: all that a user has or a collection holds, and a model as a tree of its modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Gap, Report
from tensormagic.reports.tensor import TensorReport

# Every tensor a user has, a line each: the report behind ``%tensors``, and behind ``%tensor`` for a collection.


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


# A model as a tree of its modules: the report behind ``%model``.

ShapesFrom = Literal["", "forward", "trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """One module, with all that is inside it.

    Attributes:
        path: With the model's name: ``"net.conv1"``.
        type_name: Its class.
        details: What torch prints between its brackets; empty of classes that are not torch's.
        depth: How many modules are around it.
        training: Whether it is in train mode.
        shapes: Of the tensors that its forward returned; empty where that was not seen.
        calls: How often its forward ran; 0 where that was not counted.
        parameters: How many elements its parameters have, those inside it included, each Parameter once.
        trainable: How many of these ask for a gradient.
        unmade: How many of its parameters and buffers do not exist yet: those of lazy modules that have not run.
        optimized: How many of the trainable ones an optimizer holds.
        optimizers: The names of these optimizers.
        nbytes: What its parameters and buffers take; nothing on the meta device.
        gradient: The norm of the gradients that stand in ``.grad``, else of the last traced pass; None without any.
        update: How far the optimizer's last traced step moved the parameter of its own that it moved most: the norm of
            the change over the norm before.
    """

    path: str
    type_name: str
    details: str = ""
    depth: int = 0
    training: bool = True
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 0
    parameters: int = 0
    trainable: int = 0
    unmade: int = 0
    optimized: int = 0
    optimizers: tuple[str, ...] = ()
    nbytes: int = 0
    gradient: float | None = None
    update: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport(Report):
    """A model as a tree of its modules.

    Attributes:
        model: What the user calls it.
        rows: The model itself, then what is inside, in the order in which it was registered.
        modules: How many modules there are.
        parameter_bytes: What all parameters take.
        buffer_bytes: What all buffers take.
        gradient_bytes: What their gradients take.
        state_bytes: What optimizers keep for them.
        meta_bytes: What those parameters and buffers would take that are on the meta device, which has no memory.
        optimizers: The names of all optimizers that hold one of its parameters.
        shapes_from: Whether shapes are those of a forward that ran for this report, or of the last traced run.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "model"

    model: str = ""
    rows: tuple[ModuleRow, ...] = ()
    modules: int = 0
    parameter_bytes: int = 0
    buffer_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0
    meta_bytes: int = 0
    optimizers: tuple[str, ...] = ()
    shapes_from: ShapesFrom = ""
    gaps: tuple[Gap, ...] = ()
