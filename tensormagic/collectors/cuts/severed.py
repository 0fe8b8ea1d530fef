"""What is remembered of one call that ended the gradient's way, and of the values that came out of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tensormagic.collectors.cuts.behind import Behind
from tensormagic.collectors.cuts.cut_values import Receiver
from tensormagic.reports.cuts import CutKind


@dataclass(slots=True, eq=False)
class Severed:
    """One call that ended the way, and what became of the value.

    Attributes:
        kind: As in `Cut`.
        op: As in `Cut`.
        site: Of the call, or of the region around it.
        number: Sequence number of the node that made what went in; -1 for a leaf, or where it must not be asked for.
        leaf: What went in, where it is a leaf.
        source_name: What went in: the name of its node, or the path of the module that it belongs to.
        listed: Whether to tell of it also where nothing used the value.
        shape: Of what came out.
        dtype: Of what came out.
        receivers: What used it.
        age: How many passes it has waited for.
        place: ``(graph, node, pass)`` of what went in, once that is known.
        quiet: Whether the value was only written into what was used: told where something is left out because of it.
        behind: The leaves behind all that this place of the source cut off.
    """

    kind: CutKind
    op: str
    site: int | None
    number: int
    leaf: weakref.ref[torch.Tensor] | None
    source_name: str
    listed: bool
    shape: tuple[int, ...]
    dtype: str
    receivers: list[Receiver] = field(default_factory=list)
    age: int = 0
    place: tuple[int, int, int] | None = None
    behind: Behind | None = None
    quiet: bool = False

    def with_sources(self, sources: Iterable[torch.Tensor]) -> Severed:
        """Note values that went in here besides, and what lies behind them; returns itself."""
        if self.behind is not None:
            for source in sources:
                self.behind.add(source)
        return self


class Mark(weakref.ref[Any]):
    """A weak reference that knows under which key it stands."""

    __slots__ = ("key", "severed")

    key: int
    severed: Severed


class Held:
    """Stands in for a weak reference to a Python number, which can have none."""

    __slots__ = ("severed", "value")

    def __init__(self, value: Any, severed: Severed) -> None:
        self.value, self.severed = value, severed

    def __call__(self) -> Any:
        """Return the number."""
        return self.value
