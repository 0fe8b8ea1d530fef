"""What decides why a gradient is what it is, the way from the tensor towards the loss, and why ``.grad`` is None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensormagic.diagnoses.graph_cuts import call_words, instead_of_cut
from tensormagic.diagnoses.lines import as_code, rebound
from tensormagic.diagnoses.paths import cuts_in, neighbours, reached
from tensormagic.diagnoses.rule import is_differentiable, optimizer_code, optimizers_of, passes_words, scientific
from tensormagic.reports import (
    Cell,
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
from tensormagic.words import binding, capitalised, listed, plural

# The way from a tensor towards the loss, stop by stop: from a traced run, or from the graph as it is.

MOST_STOPS = 12  # drawn; of a longer way the middle is folded
_ENDS = 4  # stops that are drawn at each end then


def leaf_index(graph: Graph, name: str) -> int | None:
    """Return the node that collects the gradient of the leaf of that name, or made the tensor of that name."""
    kinds = ("accumulate", "op", "custom")
    found = sorted((kinds.index(node.kind), node.index) for node in graph.nodes if node.variable == name)
    return found[0][1] if found else None


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


def upstream(graph: Graph, start: int) -> set[int]:
    """Return the nodes whose gradients go into that of a node, and the node itself."""
    return reached(neighbours(graph)[0], [start])


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
    trace: TraceReport | None = None  # The last traced run; None where there is none.

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
        known = self.run.parameters if self.run is not None else ()
        return next((one for one in known if one.name == self.name and one.shape == self.facts.shape), None)

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
        trace, series = self.trace, self.series
        if trace is None or series is None:
            return []
        return [use for use in optimizers_of(trace) if trace.parameters.index(series) in use.holds]

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
        for graph in self.run.graphs if self.run is not None else ():
            if (index := leaf_index(graph, self.name)) is not None:
                return graph, index
        return None

    @property
    def cut(self) -> tuple[Graph | None, Cut] | None:
        """What cut it off from everything that backward went through, one that detached something first."""
        if self.run is None:
            return None
        found: list[tuple[Graph | None, Cut]] = [*cuts_in(self.run), *((None, cut) for cut in self.run.cuts)]
        mine = [pair for pair in found if any(one.name == self.name for one in pair[1].left_out)]
        return min(mine, key=lambda pair: (pair[1].target is None, pair[1].selects), default=None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found in the run that saw it."""
        return self.trace.findings if self.trace is not None and self.is_seen else ()

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
        path: tuple[PathStep, ...] = (),
        location: Location | None = None,
    ) -> WhyReport:
        """Return the answer."""
        return WhyReport(
            name=self.name, reason=reason, answer=answer, evidence=tuple(filter(None, evidence)), facts=self.facts,
            remedy=tuple(filter(None, remedy)), path=path, location=location,
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


# Why ``.grad`` is None: every reason as a function of what is known, in the order in which they are tried.

UNTRACED = "Run the cell under `%%tracegrad` and ask again: it sees which line ends the way."


def not_asked(question: Question) -> WhyReport | None:
    """It does not ask for a gradient."""
    facts, name, grad, code = question.facts, question.name, question.grad, as_code(question.name)
    if facts.requires_grad:
        return None
    if facts.grad == "present":
        says = f"{grad} is there, but {name} no longer requires a gradient: backward adds nothing to it."
        return question.described("frozen", says, remedy=(f"{binding(code)}.requires_grad_()",))
    if facts.inference:
        says = f"{grad} is None because {name} was made under `torch.inference_mode()`: autograd never records it."
        return question.described("inference tensor", says, remedy=(rebound(code, "clone().requires_grad_()"),))
    if not is_differentiable(facts.dtype):
        says = (
            f"{grad} is None because {name} is {facts.dtype}: only floating-point and complex tensors have gradients."
        )
        return question.described("integers", says, remedy=(rebound(code, "float().requires_grad_()"),))
    return _switched_off(question)


def _switched_off(question: Question) -> WhyReport:
    facts, name, grad, code = question.facts, question.name, question.grad, as_code(question.name)
    if facts.relative:
        says = (
            f"{grad} is None because {name} shares the memory of {facts.relative}, but not its history: `.detach()`, "
            "`.data` or `torch.no_grad()` cut it off."
        )
        tracked = f"{as_code(facts.relative)}.grad  # the one that is tracked"
        return question.described("cut off", says, remedy=(tracked,))
    if facts.is_parameter:
        place, trace = None, question.trace  # the line of the run that froze it
        if trace is not None:
            frozen = (cut for _, cut in cuts_in(trace) if cut.kind == "frozen" and cut.source_name == name)
            place = trace.location(next((cut.location for cut in frozen), None))
        says = f"{grad} is None because the parameter is frozen{place_words(place)}: its `requires_grad` is False."
        return question.described("frozen", says, remedy=(f"{binding(code)}.requires_grad_()",), location=place)
    says = f"{grad} is None because {name} does not require a gradient (`requires_grad=False`)."
    rests = "Nothing it was made from requires one, or `torch.no_grad()` or `.detach()` cut it off."
    remedy = (f"{binding(code)}.requires_grad_()  # before it is used",)
    return question.described("does not require grad", says, evidence=(rests,), remedy=remedy)


def not_a_leaf(question: Question) -> WhyReport | None:
    """It is computed, and torch keeps the gradients of leaves only."""
    facts, name = question.facts, question.name
    if facts.is_leaf or facts.retains_grad:
        return None
    says = (
        f"{question.grad} is None because {name} is not a leaf: {facts.made_by} made it, and torch keeps .grad only "
        "for leaves."
    )
    evidence = [f"The gradient goes on to {listed(facts.leaves)}."] if facts.leaves else []
    way = live_way(facts) if facts.path is not None else ()
    if question.trace is not None and question.graph is not None:
        graph, index = question.graph
        way = traced_way(question.trace, graph, index)
        norm = graph.frames[-1].norms[index] if graph.frames else -1.0
        evidence += [f"In the last pass its gradient had norm {scientific(norm)}."] if norm >= 0 else []
    code = as_code(name)
    remedy = (
        f"{binding(code)}.retain_grad()  # before backward()",
        f"torch.autograd.grad(loss, {code})  # returns it instead",
    )
    return question.described("not a leaf", says, evidence=tuple(evidence), remedy=remedy, path=way)


def cut_off(question: Question) -> WhyReport | None:
    """A call that the run saw ended its way."""
    found, trace = question.cut, question.trace
    if found is None or trace is None or question.norms or (question.facts.loss and question.facts.path is not None):
        return None
    graph, cut = found
    what = "cut its path to the loss" if cut.target is not None else "cut its path"
    if cut.selects:
        what = f"only chooses elements with what {question.name} makes"
    rests = ""
    if question.facts.path is not None:
        rests = f"{question.facts.path.end} still leads back to {question.name}, but nothing called backward on it."
    return _ended(question, trace, cut, what, path=cut_way(trace, graph, cut, question.name), evidence=(rests,))


def _ended(  # noqa: PLR0913  (of whom, by what, and the way)
    question: Question, trace: TraceReport, cut: Cut, what: str, *, path: tuple[PathStep, ...],
    evidence: tuple[str, ...] = (),
) -> WhyReport:  # fmt: skip
    place = trace.location(cut.location)
    says = (
        f"{question.grad} is None because {call_words(cut, place)}{place_words(place)} {what}, so backward never "
        "reached it."
    )
    mend = instead_of_cut(trace, cut)
    remedy = (f"{capitalised(mend)}." if mend else "",)
    return question.described("cut off", says, evidence=evidence, location=place, path=path, remedy=remedy)


def cleared(question: Question) -> WhyReport | None:
    """The run brought it a gradient, and it is gone."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not series.touched:
        return None
    for found in question.findings:
        if found.code == "TM318" and question.name in found.message and "returns None" in found.message:
            says = f"{question.grad} is None because {found.message.partition(': ')[2].replace('them', 'it')}"
            return question.described("cut off", says, location=found.location, path=question.way(),
                                      remedy=(found.remedy,))  # fmt: skip
    norms = question.norms
    last = f", the last of norm {scientific(norms[-1])}" if norms else ""
    says = (
        f"{question.grad} is None because it was cleared: {plural(series.touched, 'pass', 'passes')} brought it a "
        f"gradient{last}, and it was set to None since."
    )
    cleared_at = (one.cleared for use in question.users for one in use.patterns)
    place = trace.location(next((at for at in cleared_at if at is not None), None))
    return question.described(
        "cleared", says, path=question.way(), location=place,
        evidence=(f"`{question.optimizer}.zero_grad()` does that; `autograd.grad` does not fill it at all.",),
        remedy=(question.in_between,),
    )  # fmt: skip


def refused(question: Question) -> WhyReport | None:
    """The run's backward was refused, or the run failed before it."""
    trace = question.trace
    if trace is None or trace.passes_seen or not question.is_seen:
        return None
    refusals = [found for found in trace.findings if found.code == "TM306"]
    if refusals:
        says = f"{question.grad} is None because torch refused the backward: {refusals[0].message}"
        return question.described("refused", says, remedy=(refusals[0].remedy,), location=refusals[0].location)
    if trace.state == "failed":
        says = f"{question.grad} is None because the run failed before any backward: {trace.error}."
        return question.described("run failed", says, path=live_way(question.facts))
    return None


def asked_for_others(question: Question) -> WhyReport | None:
    """A graph of the run leads to it, and nothing came."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not series.used:
        return None
    failed = any(one.outcome == "failed" for one in trace.passes)
    why = "backward failed before it got here" if failed else (
        "it was restricted to other tensors, by `autograd.grad(...)` or `backward(inputs=...)`"
    )  # fmt: skip
    says = f"{question.grad} is None although a graph leads to {question.name}: {why}."
    return question.described("not asked for", says, path=question.way(), remedy=("loss.backward()",))


def not_from_this_loss(question: Question) -> WhyReport | None:
    """The loss that was given does not depend on it."""
    facts = question.facts
    if not facts.loss or facts.path is not None:
        return None
    if facts.cut is not None:  # read from the source: nobody traced it
        read = TraceReport(
            title="", state="finished", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0, cuts=(facts.cut,),
            locations=facts.locations,
        )  # fmt: skip
        path = (*cut_way(read, None, facts.cut, question.name)[:-1], PathStep(label=facts.loss, kind="loss"))
        return _ended(question, read, facts.cut, f"cut its path to {facts.loss}", path=path)
    says = f"{question.grad} is None because {facts.loss} was not computed from {question.name}."
    return question.described(
        "not part of the loss", says, evidence=(question.copies,), remedy=(UNTRACED,), path=live_way(facts)
    )


def gone_through(question: Question) -> WhyReport | None:
    """A graph that leads to it has been gone through already."""
    facts = question.facts
    if facts.path is None or not facts.path.freed:
        return None
    passed = f"{question.grad} is None although a backward went through {facts.path.end}"
    if facts.path.custom:
        says = f"{passed}: {listed(facts.path.custom)}.backward returned None for it, or it was cleared afterwards."
        remedy = (f"Check one call, which shows what it returns: `tm.check({facts.path.custom[0]}, …)`.",)
        return question.described("cleared", says, remedy=(*remedy, question.in_between), path=live_way(facts))
    says = f"{passed}: it was cleared afterwards."
    rests = "Or the gradients were returned, by `autograd.grad`, or asked for by `backward(inputs=...)`."
    return question.described("cleared", says, evidence=(rests,), remedy=(question.in_between,), path=live_way(facts))


def no_backward_yet(question: Question) -> WhyReport | None:
    """Something computed from it stands, and nobody called backward."""
    way, name = question.facts.path, question.name
    if way is None:
        return None
    over = f", through {listed(way.ops)}" if way.ops else ""
    says = (
        f"{question.grad} is None because no backward has reached {name} since it was made or cleared: {way.end} leads "
        f"back to it{over}."
    )
    call = f"{as_code(way.end)}.backward()" if way.is_scalar else f"{as_code(way.end)}.sum().backward()"
    return question.described("no backward yet", says, remedy=(call,), path=live_way(question.facts))


def unused(question: Question) -> WhyReport | None:
    """The run knew it, and nothing leads to it."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not trace.passes_seen:
        return None
    says = (
        f"{question.grad} is None because no path leads from the loss to it: in {passes_words(trace)} it took part in "
        "nothing that backward was called on."
    )
    remedy = (f"Use {question.name} in `forward`, or freeze it: `{as_code(question.name)}.requires_grad_(False)`",)
    return question.described("unused", says, remedy=remedy, path=live_way(question.facts))


def nothing_known(question: Question) -> WhyReport:
    """Nothing that has a name was computed from it."""
    facts, name = question.facts, question.name
    says = f"{question.grad} is None because no backward has reached {name} since it was made, or since it was cleared."
    rests = f"No variable with a graph was computed from it ({facts.searched} searched)."
    evidence = (rests, question.copies, question.unseen)
    return question.described("nothing known", says, evidence=evidence, remedy=(UNTRACED,), path=live_way(facts))
