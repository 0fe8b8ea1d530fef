"""What stands in a session: what is kept alive by whom, and what its modules hold beside their registries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap, Location
from tensormagic.reports.modules import ModulesReport
from tensormagic.reports.still import StillParameters

KeptBy = Literal["history", "traceback", "both"]
GraphForm = Literal["items", "sum"]


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A storage that no name of the person's leads to, and that something of the session keeps alive.

    Attributes:
        holders: What leads to it: ``"Out[5]"`` and ``"_5"``, or ``"the last error (ValueError), local y of f"``.
        kind: ``"history"``, ``"traceback"`` or ``"both"``.
        shape: Of the tensor that was found.
        dtype: Without the ``torch.`` prefix.
        device: As torch writes it.
        nbytes: Of the whole storage.
        location: Where the frame stands that holds it.
    """

    holders: tuple[str, ...]
    kind: KeptBy
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class LoneView:
    """A tensor that reads a part of a storage, and is all that keeps the storage alive.

    Attributes:
        name: What it is called.
        read: Bytes of its elements.
        nbytes: Of the storage.
    """

    name: str
    read: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """Autograd graphs that are alive because results are stored: losses in a list, a sum of losses.

    Attributes:
        name: What holds them: ``"losses"``, ``"history['loss']"``, ``"val_loss"``.
        form: ``"items"`` of a container, or ``"sum"``: one tensor that was added up.
        items: How many tensors are stored.
        graphs: How many of them have a graph that shares nothing but leaves with the others'; of a sum, of its terms.
        nodes: Their nodes in all.
        saved: Tensors that these nodes still keep for a backward.
        nbytes: Bytes of the storages of these that nothing else in reach keeps alive, each counted once; those of
            leaves left out.
        scalars: Whether all stored tensors hold one number.
        freed: Whether a backward has used and freed what they saved.
        complete: Whether all nodes were looked at; if not, there are more of everything.
        location: The line that stores them, where one is found.
    """

    name: str
    form: GraphForm
    items: int
    graphs: int
    nodes: int
    saved: int
    nbytes: int
    scalars: bool
    freed: bool
    complete: bool = True
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class HeldSize:
    """What a container, or a tensor with a name, holds: the number and the bytes of its tensors."""

    name: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What holds more after each run of the same code.

    Attributes:
        name: What grows: ``"activations"``.
        tensors: How many tensors it held after each of the runs, the oldest first.
        nbytes: What they take, after each of them.
        location: The line that makes it grow, where one is found.
    """

    name: str
    tensors: tuple[int, ...]
    nbytes: tuple[int, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport(Report):
    """What a look at everything that a person has named, and at what the session keeps besides, has found.

    Attributes:
        looked: How many objects were looked through.
        tensors: How many tensors were met.
        storages: In how many storages they lie.
        nbytes: What these take, each counted once.
        modules: What modules hold beside their registries.
        kept: Large storages that only the session's history or the last error keeps alive, the largest first.
        views: Views that alone keep a larger storage alive, the largest storage first.
        graphs: Graphs that stored results keep alive, the largest first.
        sizes: What holds the most, the largest first: containers, and tensors with a name.
        growing: What grew by the same amount from look to look; only where earlier looks were given.
        still: Parameters that nothing changed while others of their model were trained.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "watch"

    looked: int = 0
    tensors: int = 0
    storages: int = 0
    nbytes: int = 0
    modules: ModulesReport = field(default_factory=ModulesReport)
    kept: tuple[KeptMemory, ...] = ()
    views: tuple[LoneView, ...] = ()
    graphs: tuple[StoredGraph, ...] = ()
    sizes: tuple[HeldSize, ...] = ()
    growing: tuple[Growth, ...] = ()
    still: tuple[StillParameters, ...] = ()
    gaps: tuple[Gap, ...] = ()
