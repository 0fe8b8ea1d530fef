"""Several questions asked of one run, and its numbers for an experiment tracker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from tensormagic.errors import SettingError
from tensormagic.reports.base import Gap, Report
from tensormagic.reports.memory_run import MemoryRunReport
from tensormagic.reports.rng import RngRunReport
from tensormagic.reports.trace import Cell, Pass, State, TraceReport
from tensormagic.reports.writes import WritesReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(Report):
    """A run of which several things were asked; its findings are those of all parts."""

    kind_name: ClassVar[str] = "run"

    cell: Cell  #: The source that ran.
    title: str = ""  #: A name for the run.
    state: State = "running"  #: How it ended, or that it is running.
    error: str = ""  #: Type and message of what it raised.
    seconds: float = 0.0  #: Wall time.
    trace: TraceReport  #: Graphs and gradients.
    memory: MemoryRunReport | None = None  #: Bytes over time, and by line; None where that was not asked.
    writes: WritesReport | None = None  #: In-place writes; likewise.
    draws: RngRunReport | None = None  #: Random numbers; likewise.
    gaps: tuple[Gap, ...] = ()  #: What could not be shown while it ran; each part has its own besides.

    @property
    def parts(self) -> Iterator[Report]:
        """The reports that it holds, in the order in which they are shown."""
        return (part for part in (self.trace, self.memory, self.writes, self.draws) if part is not None)

    def check(self) -> None:
        """Raise ReportFormatError where a part points at what is not there."""
        for part in self.parts:
            part.check()


Send = Callable[[dict[str, float], int], None]


def scalars(report: TraceReport, *, after: int = 0) -> Iterator[tuple[Pass, int, dict[str, float]]]:
    """Yield what each finished pass brought, oldest first: the pass, its place on the x axis, and numbers by name.

    Args:
        report: A traced run.
        after: Leave out the passes up to this number.

    The names: ``loss`` (what backward was called on), ``gradient_norm`` (of all parameters together),
    ``gradients/net.0.weight`` (the norm that this pass brought; NaN or infinite where the gradient was) and
    ``updates/net.0.weight`` (how far the optimizer moved it, relative to its size). The x axis is the step, from 1;
    where steps have several passes, as in gradient accumulation, it is the pass.
    """
    by_step = len({each.step for each in report.passes}) == len(report.passes)
    for at, each in enumerate(report.passes):
        if each.number <= after or each.outcome != "finished":
            continue
        numbers = {} if each.value is None else {"loss": each.value}
        norms = {series.name: series.norms[at] for series in report.parameters if not series.norms[at] < 0}
        if norms:
            numbers["gradient_norm"] = math.hypot(*norms.values())
        numbers |= {f"gradients/{name}": norm for name, norm in norms.items()}
        moved = {series.name: series.updates[at] for series in report.parameters if series.updates}
        numbers |= {f"updates/{name}": share for name, share in moved.items() if not share < 0}
        yield each, each.step if by_step else each.number, numbers


def sender(writer: Any) -> Send:
    """Return a function that gives numbers to a tracker, by what the tracker has.

    Known are, in this order: ``log_metrics(numbers, step=)`` (MLflow's module and client runs, Lightning's loggers),
    ``add_scalar(name, number, step)`` (``SummaryWriter`` of TensorBoard and tensorboardX), ``log(numbers, step=)`` (a
    run of Weights & Biases, or its module) and any function of ``(numbers, step)``.

    Raises:
        SettingError: where it has none of these.
    """
    if callable(getattr(writer, "log_metrics", None)):
        return lambda numbers, step: writer.log_metrics(numbers, step=step)
    if callable(getattr(writer, "add_scalar", None)):

        def add(numbers: dict[str, float], step: int) -> None:
            for name, number in numbers.items():
                writer.add_scalar(name, number, step)

        return add
    if callable(getattr(writer, "log", None)):
        return lambda numbers, step: writer.log(numbers, step=step)
    if callable(writer):
        return cast("Send", writer)
    raise SettingError(
        f"log_to was given {type(writer).__name__!r}: expected something with log_metrics(numbers, step=), "
        "add_scalar(name, number, step) or log(numbers, step=), such as TensorBoard's SummaryWriter, a run of Weights "
        "& Biases or the module mlflow; or a function of (numbers, step)"
    )
