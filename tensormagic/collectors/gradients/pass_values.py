"""The numbers that the hooks of one backward pass leave."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from tensormagic.collectors.gradients.forward_values import PassForward
from tensormagic.collectors.gradients.measures import Measured
from tensormagic.collectors.gradients.survey import StatisticsTable
from tensormagic.reports import UNTOUCHED, Birth


@dataclass(slots=True)
class PassValues:
    """The numbers of one pass: plain, written by the hooks, read by the sampler while it runs.

    Attributes:
        pass_number: From 1.
        norms: By report index; `UNTOUCHED` until backward reaches the node.
        bad: Report index → (NaN count, Inf count).
        order: Report indices in the order reached.
        births: Filled when the pass ends.
        gap: Why something could not be measured; empty where all could.
        loss_gap: Why the value is not told; empty where it is, or is no number.
        value: The number that backward was called on, where it is one and can be read.
        parts: (report index of a node, input number) → what it sent there, where several send to one slot.
        table: The statistics of every gradient; None in a pass of which only the norms are taken.
        forward: What the forward made, where that was asked for.
    """

    pass_number: int
    norms: array[float]
    bad: dict[int, tuple[int, int]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    births: tuple[Birth, ...] = ()
    gap: str = ""
    loss_gap: str = ""
    value: float | None = None
    parts: dict[tuple[int, int], Measured] = field(default_factory=dict)
    table: StatisticsTable | None = None
    forward: PassForward | None = None

    @classmethod
    def of(cls, pass_number: int, size: int, *, full: bool) -> PassValues:
        """Return the values of a pass that is about to begin, through a graph of so many nodes."""
        table = StatisticsTable(size) if full else None
        return cls(pass_number, array("f", [UNTOUCHED]) * size, table=table)
