"""What decides why a gradient is what it is: a tensor's own facts, and the last traced run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensormagic.diagnoses.why_way import leaf_index
from tensormagic.reports import (
    Cut,
    GradientFacts,
    Graph,
    Location,
    ParameterSeries,
    TraceReport,
    WayStep,
    WhyReport,
)


@dataclass(frozen=True, slots=True)
class Question:
    """One tensor, and what is known of it.

    Attributes:
        facts: What the tensor itself tells.
        trace: The last traced run; None where there is none.
    """

    facts: GradientFacts
    trace: TraceReport | None = None

    @property
    def name(self) -> str:
        """What the tensor is called."""
        return self.facts.name

    @property
    def grad(self) -> str:
        """Its gradient, as code."""
        loose = not self.name.replace(".", "_").replace("[", "_").replace("]", "_").isidentifier()
        return f"({self.name}).grad" if loose and " " in self.name else f"{self.name}.grad"

    @property
    def series(self) -> ParameterSeries | None:
        """What the traced run brought it; None where the run did not know it."""
        known = self.trace.parameters if self.trace is not None and self.facts.seen is not False else ()
        return next((one for one in known if one.name == self.name and one.shape == self.facts.shape), None)

    @property
    def norms(self) -> list[float]:
        """Norms of the gradients that the kept passes brought it, NaN and infinity included."""
        series = self.series
        return [norm for norm in series.norms if not norm < 0] if series is not None else []

    @property
    def last(self) -> float | None:
        """Norm of what the last pass of the run brought it; None where that was not traced, or it brought nothing."""
        norms = self.norms
        whole = self.trace is not None and (self.trace.pacing is None or self.trace.pacing.last_traced)
        return norms[-1] if norms and whole else None

    @property
    def graph(self) -> tuple[Graph, int] | None:
        """The graph of the run that leads to it, and its node there."""
        for graph in self.trace.graphs if self.trace is not None and self.facts.seen is not False else ():
            if (index := leaf_index(graph, self.name)) is not None:
                return graph, index
        return None

    @property
    def cut(self) -> tuple[Graph | None, Cut] | None:
        """What cut it off from everything that backward went through, one that severed something first."""
        if self.trace is None or self.facts.seen is False:
            return None
        found: list[tuple[Graph | None, Cut]] = [(graph, cut) for graph in self.trace.graphs for cut in graph.cuts]
        found += [(None, cut) for cut in self.trace.cuts]
        mine = [pair for pair in found if any(one.name == self.name for one in pair[1].left_out)]
        return next(iter(sorted(mine, key=lambda pair: (pair[1].target is None, pair[1].selects))), None)

    @property
    def is_seen(self) -> bool:
        """Whether the run saw it."""
        if self.trace is None or self.facts.seen is not None:
            return self.trace is not None and self.facts.seen is True
        return self.series is not None or self.graph is not None or self.cut is not None

    @property
    def unseen(self) -> str:
        """That the run did not see it, as a sentence; empty where it did, or there is no run."""
        if self.trace is None or self.is_seen:
            return ""
        words = run_words(self.trace)
        return f"{words[:1].upper()}{words[1:]} did not see {self.name}."

    def close(self, left: float | None, right: float | None) -> bool:
        """Return whether two norms are the same, up to the rounding of float32."""
        return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-3)

    def told(  # noqa: PLR0913  (two parameters; the rest are parts of the answer, by name)
        self,
        reason: str,
        answer: str,
        *,
        evidence: tuple[str, ...] = (),
        remedy: tuple[str, ...] = (),
        way: tuple[WayStep, ...] = (),
        location: Location | None = None,
    ) -> WhyReport:
        """Return the answer."""
        return WhyReport(
            name=self.name, reason=reason, answer=answer, evidence=tuple(filter(None, evidence)), facts=self.facts,
            remedy=tuple(filter(None, remedy)), way=way, location=location,
            source=run_words(self.trace) if self.is_seen else "",
        )  # fmt: skip


def run_words(trace: TraceReport | None) -> str:
    """Return which run it was: ``the run of cell 5``; empty without one."""
    if trace is None:
        return ""
    return f"the traced run of cell {trace.cell.count}" if trace.cell.count is not None else "the last traced run"


def place_words(place: Location | None) -> str:
    """Return `` on cell 3, line 2``; nothing where the line is not known."""
    return f" ({place.label})" if place is not None else ""
