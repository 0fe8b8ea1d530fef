"""How a program is declared: a function that uses autograd, and what the tracer must show of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tensormagic.reports import TraceReport

Check = Callable[[TraceReport], None]


@dataclass(frozen=True)
class Program:
    """One piece of code that uses autograd.

    Attributes:
        run: Runs it and returns everything that may be compared: tensors, numbers, texts, nested as one likes.
        passes: How many backward passes there are.
        check: Looks at what was shown.
        measured: Whether tensor hooks of the test's own see the same norms in a run without the tracer.
        gaps: Words that the only gaps must contain, one each.
        raises: What it raises; None where it ends.
    """

    run: Callable[[], Any]
    passes: int
    check: Check
    measured: bool
    gaps: tuple[str, ...] = ()
    raises: type[BaseException] | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__


PROGRAMS: list[Program] = []


def _nothing(_: TraceReport) -> None:
    pass


def leaf(*values: float) -> torch.Tensor:
    """Return a leaf that needs a gradient."""
    return torch.tensor([float(value) for value in values], requires_grad=True)


def program(
    passes: int,
    *,
    check: Check = _nothing,
    measured: bool = True,
    gaps: tuple[str, ...] = (),
    raises: type[BaseException] | None = None,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Declare a program."""

    def declare(run: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS.append(Program(run, passes, check, measured, gaps, raises))
        return run

    return declare


def nodes(report: TraceReport, op: str) -> list[Any]:
    """Return the nodes of an op, of all graphs."""
    return [node for graph in report.graphs for node in graph.nodes if node.op == op]


def norms(report: TraceReport, op: str) -> list[float]:
    """Return the norms of the gradients that nodes of an op received, over all graphs and kept passes."""
    return [
        frame.norms[node.index]
        for graph in report.graphs for frame in graph.frames for node in graph.nodes if node.op == op
    ]  # fmt: skip


def lines(report: TraceReport, op: str) -> list[str]:
    """Return the text of the lines that nodes of an op were made on; empty for those without."""
    places = [report.location(node.location) for node in nodes(report, op)]
    return [place.text if place is not None else "" for place in places]


def pass_context(report: TraceReport) -> list[Any]:
    """Return what is told of each pass."""
    return [done.pass_context for done in report.passes]
