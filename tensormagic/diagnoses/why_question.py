"""What decides why a gradient is what it is, and the way from the tensor towards the loss."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tensormagic.diagnoses.graph_cuts import call_words
from tensormagic.diagnoses.paths import neighbours
from tensormagic.diagnoses.rule import optimizer_code
from tensormagic.diagnoses.why_run import KnownRun
from tensormagic.reports import (
    Cut,
    Finding,
    GradientFacts,
    Graph,
    Location,
    OptimizerUse,
    ParameterSeries,
    PathStep,
    TraceReport,
    WhyReport,
)
from tensormagic.words import capitalised, listed

# The way from a tensor towards the loss, stop by stop: from a traced run, or from the graph as it is.

MOST_STOPS = 12  # drawn; of a longer way the middle is folded
_ENDS = 4  # stops that are drawn at each end then


def traced_way(trace: TraceReport, graph: Graph, start: int, bad: Sequence[int] = ()) -> tuple[PathStep, ...]:
    """Return the shortest way from a node to where backward started, with what came to each in the last pass."""
    norms = graph.frames[-1].norms if graph.frames else ()
    steps = []
    for at in _upwards(graph, start, set(bad)):
        node = graph.nodes[at]
        norm = norms[at] if at < len(norms) and not norms[at] < 0 else None
        steps.append(PathStep(
            label=node.variable or node.op, kind="tensor" if node.kind == "accumulate" else "op",
            detail="×".join(map(str, node.shapes[0])) if node.shapes else "", location=trace.location(node.location),
            norm=norm, bad=at in bad,
        ))  # fmt: skip
    return folded((*steps, PathStep(label="backward", kind="loss")))


def _upwards(graph: Graph, start: int, through: set[int]) -> list[int]:
    """Return nodes from ``start`` to a root; over a node of ``through`` where a way leads there."""
    feeders, _ = neighbours(graph)
    first = _shortest(feeders, start, through or set(graph.roots))
    if through and first:
        return first[:-1] + _shortest(feeders, first[-1], set(graph.roots))
    return first or [start]


def _shortest(feeders: dict[int, list[int]], start: int, aims: set[int]) -> list[int]:
    came_from: dict[int, int | None] = {start: None}
    waiting = [start]
    for at in waiting:  # grows while it is walked
        if at in aims:
            found = [at]
            while (below := came_from[found[-1]]) is not None:
                found.append(below)
            return found[::-1]
        for feeder in feeders.get(at, ()):
            if feeder not in came_from:
                came_from[feeder] = at
                waiting.append(feeder)
    return []


def cut_way(trace: TraceReport, graph: Graph | None, cut: Cut, name: str) -> tuple[PathStep, ...]:
    """Return the way over a cut: from the tensor to what went in, the cut, and from what used it to the loss."""
    steps = [PathStep(label=name, kind="tensor")]
    if cut.source_name and cut.source_name != name:
        steps.append(PathStep(label=cut.source_name, location=trace.location(cut.source_location)))
    place = trace.location(cut.location)
    label = call_words(cut, place).strip("`")
    steps.append(PathStep(label=label, kind="cut", location=place, bad=True))
    if graph is None or cut.target is None:
        return (*steps, PathStep(label="nothing used it", kind="nothing"))
    return folded((*steps, *traced_way(trace, graph, cut.target)))


def live_way(facts: GradientFacts) -> tuple[PathStep, ...]:
    """Return the way to something computed from the tensor, as its graph stands."""
    if facts.path is None:
        return (PathStep(label=facts.name, kind="tensor"), PathStep(label="nothing known", kind="nothing"))
    ops = (PathStep(label=op) for op in facts.path.ops)
    end = PathStep(label=facts.path.end, kind="loss", detail="freed" if facts.path.freed else "")
    return folded((PathStep(label=facts.name, kind="tensor", detail="×".join(map(str, facts.shape))), *ops, end))


def folded(steps: tuple[PathStep, ...]) -> tuple[PathStep, ...]:
    """Return a long way with its middle folded; what is bad stays visible."""
    if len(steps) <= MOST_STOPS:
        return steps
    kept = {*range(_ENDS), *range(len(steps) - _ENDS, len(steps))}
    kept |= {near for at, step in enumerate(steps) if step.bad for near in (at - 1, at, at + 1) if near < len(steps)}
    found: list[PathStep] = []
    for at, step in enumerate(steps):
        if at in kept:
            found.append(step)
        elif found and found[-1].kind == "more":
            found[-1] = replace(found[-1], label=f"{int(found[-1].label.split()[0]) + 1} more")
        else:
            found.append(PathStep(label="1 more", kind="more"))
    return tuple(found)


# What decides why a gradient is what it is: a tensor's own facts, and the last traced run.


@dataclass(frozen=True, slots=True)
class Question:
    """One tensor, and what is known of it."""

    facts: GradientFacts  # What the tensor itself tells.
    known: KnownRun  # The last traced run, or none.
    drawn: bool = True  # Whether ways are wanted: of a module's parameters none is shown.

    @property
    def trace(self) -> TraceReport | None:
        """The last traced run; None where there is none."""
        return self.known.trace

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
    def run(self) -> TraceReport | None:
        """The last traced run, unless it is known that it did not meet the tensor."""
        return None if self.facts.seen is False else self.trace

    @property
    def series(self) -> ParameterSeries | None:
        """What the traced run brought it; None where the run did not know it."""
        return self.known.series(self.name, self.facts.shape) if self.run is not None else None

    @property
    def optimizer(self) -> str:
        """The name of the optimizer that holds it, as it is now or was in the run; else ``optimizer``."""
        return self.facts.optimizer or next((optimizer_code(use) for use in self.users), "optimizer")

    @property
    def in_between(self) -> str:
        """What to do where it was cleared."""
        return f"Look at it between `loss.backward()` and `{self.optimizer}.zero_grad()`."

    @property
    def copies(self) -> str:
        """What shares its memory, as a sentence."""
        copies = listed(self.facts.copies)
        return f"{copies} shares its memory but not its history." if copies else ""

    @property
    def users(self) -> list[OptimizerUse]:
        """The optimizers that held it in the run."""
        return self.known.users(self.series) if self.series is not None else []

    @property
    def clearing(self) -> str:
        """Code that clears its gradient: an optimizer clears those that it holds, a model its own."""
        owner = self.series.owner if self.series is not None else ""
        if self.optimizer == "optimizer" and (not owner.isidentifier() or owner[0].isupper()):
            return f"{self.grad} = None"
        return f"{owner if self.optimizer == 'optimizer' else self.optimizer}.zero_grad()"

    @property
    def norms(self) -> list[float]:
        """Norms of the gradients that the kept passes brought it, NaN and infinity included."""
        series = self.series
        return [norm for norm in series.norms if not norm < 0] if series is not None else []

    @property
    def last(self) -> float | None:
        """Norm of what the last pass of the run brought it; None where that was not traced, or it brought nothing."""
        norms = self.norms
        whole = self.trace is not None and (self.trace.sampling is None or self.trace.sampling.last_traced)
        return norms[-1] if norms and whole else None

    @property
    def graph(self) -> tuple[Graph, int] | None:
        """The graph of the run that leads to it, and its node there."""
        return self.known.node(self.name) if self.run is not None else None

    @property
    def cut(self) -> tuple[Graph | None, Cut] | None:
        """What cut it off from everything that backward went through, one that detached something first."""
        if self.run is None:
            return None
        mine = self.known.cuts(self.name)
        return min(mine, key=lambda pair: (pair[1].target is None, pair[1].selects), default=None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found in the run that saw it."""
        return self.trace.findings if self.trace is not None and self.is_seen else ()

    def found(self, code: str) -> list[Finding]:
        """Return the findings of a code that begin with its name, alone or among others."""
        every = (one for one in self.findings if one.code == code)
        return [one for one in every if self.name in re.split(", | and ", one.message.partition(" get")[0])]

    def way(self, bad: Sequence[int] = ()) -> tuple[PathStep, ...]:
        """Return the way from it to where backward started, in the run; empty where the run did not lead to it."""
        return () if self.trace is None or self.graph is None else traced_way(self.trace, *self.graph, bad)

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
        return f"{capitalised(run_words(self.trace))} did not see {self.name}."

    def close(self, left: float | None, right: float | None) -> bool:
        """Return whether two norms are the same, up to the rounding of float32."""
        return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-3)

    def described(  # noqa: PLR0913  (two parameters; the rest are parts of the answer, by name)
        self,
        reason: str,
        answer: str,
        *,
        evidence: tuple[str, ...] = (),
        remedy: tuple[str, ...] = (),
        path: Callable[[], tuple[PathStep, ...]] = tuple,
        location: Location | None = None,
    ) -> WhyReport:
        """Return the answer; ``path`` makes the way, where one is drawn."""
        return WhyReport(
            name=self.name, reason=reason, answer=answer, evidence=tuple(filter(None, evidence)), facts=self.facts,
            remedy=tuple(filter(None, remedy)), path=path() if self.drawn else (), location=location,
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
