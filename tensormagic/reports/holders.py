"""Who keeps a tensor alive: what has to let go before its memory is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.finding import Location

HolderKind = Literal[
    "name", "item", "attribute", "history", "module", "optimizer",
    "graph", "traceback", "function", "generator", "array", "view",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """One reference that keeps a tensor, or only its storage, alive.

    Attributes:
        path: How it is reached: ``"x"``, ``"batch[0]"``, ``"Out[12]"``, ``"opt.state[w]['exp_avg']"``,
            ``"step, closure over x"``, ``"graph of loss: MmBackward0, saved as self"``.
        kind: What sort of place that is.
        holds: ``"tensor"`` where it holds the tensor itself, ``"storage"`` where another tensor or array over the same
            memory is held: deleting the tensor then frees nothing.
        nbytes: Bytes that the other tensor reads; 0 where it is the tensor itself.
        location: The line at which a traceback or a generator stands.
    """

    path: str
    kind: HolderKind
    holds: Literal["tensor", "storage"]
    nbytes: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class HoldersReport:
    """Everything found that keeps a tensor or its storage alive.

    Attributes:
        holders: Those that hold the tensor itself first; the nearest way to each.
        found: How many there are in truth; more than are listed where there are very many.
        looked: How many objects were looked through.
        cut: Why the search ended before everything was looked at; empty where it did not.
        unreached: How many more tensors torch counts on the storage than were found; None where it cannot be counted.
    """

    holders: tuple[Holder, ...]
    found: int
    looked: int
    cut: str = ""
    unreached: int | None = None

    @property
    def of_tensor(self) -> tuple[Holder, ...]:
        """Those that hold the tensor itself."""
        return tuple(holder for holder in self.holders if holder.holds == "tensor")

    @property
    def of_storage(self) -> tuple[Holder, ...]:
        """Those that hold only its storage."""
        return tuple(holder for holder in self.holders if holder.holds == "storage")
