"""The numbers of one backward pass, and of the forward before it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tensormagic.collectors.gradients.gradient_statistics import SmallPass, StatisticsTable
from tensormagic.collectors.gradients.measures import Measured
from tensormagic.collectors.gradients.on_device import DeviceNumbers
from tensormagic.collectors.graphs.structure import GraphStructure
from tensormagic.reports import UNTOUCHED, FirstNonfinite, ForwardNonfinite, ForwardValues, GradientStatistics

Row = GradientStatistics


@dataclass(slots=True)
class Coming:
    """A row that is on its way from a device; None until it is here."""

    row: Row | None = None

    def came(self, _: Measured | None, row: Row | None) -> None:
        """Take it."""
        self.row = row


class PassForward:
    """What the forward of one pass made, by node index; ``missed`` is called with why something could not be read."""

    def __init__(self, structure: GraphStructure, pass_number: int, missed: Callable[[Exception], None]) -> None:
        self._structure, self._missed = structure, missed
        self._pass_number = pass_number
        self.rows: dict[int, Row | Coming] = {}  # measured, or to come from a device,
        self.far: DeviceNumbers | None = None  # which brings them; None where there is nothing to come
        self.given: dict[int, bool | None] = {}  # for nodes that made a NaN or Inf: whether one went in

    def fetch(self) -> None:
        """Take what has come from devices; waits until it has. Never raises."""
        try:
            if self.far is not None:
                self.far.read()
                self.far = None
            came = ((index, row.row if isinstance(row, Coming) else row) for index, row in self.rows.items())
            self.rows = {index: row for index, row in came if row is not None}
        except Exception as error:
            self._missed(error)

    def report(self) -> ForwardValues:
        """Return the numbers, packed."""
        table, norms = StatisticsTable(self._structure.size), array("f", [UNTOUCHED]) * self._structure.size
        bad: dict[str, tuple[int, int]] = {}
        for index, row in self._measured():
            table[index], norms[index] = row, row.norm
            if row.nan or row.inf:
                bad[str(index)] = (row.nan, row.inf)
        return ForwardValues(norms, table.columns(), bad)

    def first_nonfinite(self) -> ForwardNonfinite | None:
        """Return the first node in the order of the forward that made a NaN or Inf; None where none did."""
        is_bad = {index: row for index, row in self._measured() if row.nan or row.inf}
        index = min((index for index in is_bad if index not in self._structure.leaf_of), default=None)
        if index is None:
            return None
        row = is_bad[index]
        return ForwardNonfinite(self._pass_number, index, row.nan, row.inf, row.count, self.given.get(index))

    def _measured(self) -> Iterable[tuple[int, Row]]:
        return ((index, row) for index, row in sorted(self.rows.items()) if isinstance(row, Row))


@dataclass(slots=True)
class PassValues:
    """The numbers of one pass: plain, written by the hooks, read by the sampler while it runs."""

    pass_number: int  # From 1.
    norms: array[float]  # By report index; `UNTOUCHED` until backward reaches the node.
    bad: dict[int, tuple[int, int]] = field(default_factory=dict)  # Report index → (NaN count, Inf count).
    order: list[int] = field(default_factory=list)  # Report indices in the order reached.
    first_nonfinite: tuple[FirstNonfinite, ...] = ()  # Filled when the pass ends.
    gap: str = ""  # Why something could not be measured; empty where all could.
    loss_gap: str = ""  # Why the value is missing; empty where it is there, or is no number.
    value: float | None = None  # The number that backward was called on, where it is one and can be read.
    # (report index of a node, input number) → what it sent there, where several send to one slot.
    parts: dict[tuple[int, int], Measured] = field(default_factory=dict)
    # The statistics of every gradient; None in a pass of which only the norms are taken.
    table: StatisticsTable | None = None
    forward: PassForward | None = None  # What the forward made, where that was asked for.
    small: SmallPass | None = None  # The numbers themselves, of a small graph.

    @classmethod
    def of(cls, pass_number: int, size: int, *, full: bool) -> PassValues:
        """Return the values of a pass that is about to begin, through a graph of so many nodes."""
        table = StatisticsTable(size) if full else None
        return cls(pass_number, array("f", [UNTOUCHED]) * size, table=table)
