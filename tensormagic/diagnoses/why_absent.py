"""Why ``.grad`` is None: every reason as a function of what is known, in the order in which they are tried."""

from __future__ import annotations

from tensormagic.diagnoses.cut_remedies import call_words, instead
from tensormagic.diagnoses.parameter_names import passes_words
from tensormagic.diagnoses.why_question import Question, place_words
from tensormagic.diagnoses.why_way import cut_way, live_way, traced_way
from tensormagic.diagnoses.words import rebound, scientific
from tensormagic.reports import Cut, Location, WhyReport
from tensormagic.words import listed, plural

UNTRACED = "Run the cell under `%%tracegrad` and ask again: it sees which line ends the way."


def not_asked(question: Question) -> WhyReport | None:
    """It does not ask for a gradient."""
    facts, name, grad = question.facts, question.name, question.grad
    if facts.requires_grad:
        return None
    if facts.grad == "present":
        says = f"{grad} is there, but {name} no longer asks for a gradient: backward adds nothing to it."
        return question.told("frozen", says, remedy=(f"{name}.requires_grad_()",))
    if facts.inference:
        says = f"{grad} is None because {name} was made under `torch.inference_mode()`: autograd never follows it."
        return question.told("inference tensor", says, remedy=(rebound(name, "clone().requires_grad_()"),))
    if not facts.dtype.startswith(("float", "bfloat", "complex")):
        says = (
            f"{grad} is None because {name} is {facts.dtype}: only floating-point and complex tensors have gradients."
        )
        return question.told("integers", says, remedy=(rebound(name, "float().requires_grad_()"),))
    return _switched_off(question)


def _switched_off(question: Question) -> WhyReport:
    facts, name, grad = question.facts, question.name, question.grad
    if facts.relative:
        says = (
            f"{grad} is None because {name} shares the memory of {facts.relative}, but not its history: `.detach()`, "
        )
        says += "`.data` or `torch.no_grad()` cut it off."
        return question.told("cut off", says, remedy=(f"{facts.relative}.grad  # the one that is tracked",))
    if facts.is_parameter:
        place = _frozen_at(question)
        says = f"{grad} is None because the parameter is frozen{place_words(place)}: its `requires_grad` is False."
        return question.told("frozen", says, remedy=(f"{name}.requires_grad_()",), location=place)
    says = f"{grad} is None because {name} does not ask for a gradient: its `requires_grad` is False."
    rests = "Nothing that it was made from asks for one, or it was made under `torch.no_grad()`, or from numbers."
    return question.told(
        "does not require grad", says, evidence=(rests,), remedy=(f"{name}.requires_grad_()  # before it is used",)
    )


def _frozen_at(question: Question) -> Location | None:
    """Return the line of the run that froze it, where the run saw that."""
    if question.trace is None:
        return None
    cuts = (cut for graph in question.trace.graphs for cut in graph.cuts if cut.kind == "frozen")
    return next((question.trace.location(cut.location) for cut in cuts if cut.source_name == question.name), None)


def not_a_leaf(question: Question) -> WhyReport | None:
    """It is computed, and torch keeps the gradients of leaves only."""
    facts, name = question.facts, question.name
    if facts.is_leaf or facts.retains_grad:
        return None
    onwards = f" The gradient goes on to {listed(facts.leaves)}." if facts.leaves else ""
    says = (
        f"{question.grad} is None because {name} is no leaf: {facts.made_by} made it, and torch keeps the gradients of "
    )
    evidence: list[str] = [onwards.strip()]
    way = live_way(facts) if facts.way is not None else ()
    if question.trace is not None and question.graph is not None:
        graph, index = question.graph
        way = traced_way(question.trace, graph, index)
        norm = graph.frames[-1].norms[index] if graph.frames else -1.0
        evidence += [f"In the last pass the gradient that came to it had norm {scientific(norm)}."] if norm >= 0 else []
    remedy = (f"{name}.retain_grad()  # before backward()", f"torch.autograd.grad(loss, {name})  # returns it instead")
    return question.told("no leaf", f"{says}leaves only.", evidence=tuple(evidence), remedy=remedy, way=way)


def cut_off(question: Question) -> WhyReport | None:
    """A call that the run saw ended its way."""
    found, trace = question.cut, question.trace
    if found is None or trace is None or question.norms or (question.facts.loss and question.facts.way is not None):
        return None
    graph, cut = found
    place = trace.location(cut.location)
    says = f"{question.grad} is None because {call_words(cut, place)}{place_words(place)} {_what(question, cut)}: "
    says += "nothing that backward walked leads back to it."
    if question.facts.way is not None:
        rests = f"{question.facts.way.end} still leads back to {question.name}, but nothing called backward on it."
    else:
        rests = ""
    mend = instead(cut, place)
    return question.told(
        "cut off", says, evidence=(rests,), location=place, way=cut_way(trace, graph, cut, question.name),
        remedy=(f"{mend[:1].upper()}{mend[1:]}." if mend else "",),
    )  # fmt: skip


def _what(question: Question, cut: Cut) -> str:
    if cut.selects:
        return f"only chooses elements with what {question.name} makes"
    return "cut its way to the loss" if cut.target is not None else "ended its way"


def cleared(question: Question) -> WhyReport | None:
    """The run brought it a gradient, and it is gone."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not series.touched:
        return None
    norms = question.norms
    last = f", the last of norm {scientific(norms[-1])}" if norms else ""
    says = f"{question.grad} is None because it was cleared: {plural(series.touched, 'pass', 'passes')} brought it a "
    says += f"gradient{last}, and it was set to None since."
    place = _cleared_at(question)
    return question.told(
        "cleared", says, way=_way(question), location=place,
        evidence=("`optimizer.zero_grad()` and `model.zero_grad()` do that; `autograd.grad` does not fill it at all.",),
        remedy=("Look at it between `loss.backward()` and `optimizer.zero_grad()`.",),
    )  # fmt: skip


def _cleared_at(question: Question) -> Location | None:
    """Return the line that cleared the gradients last, where the run saw it."""
    trace, series = question.trace, question.series
    if trace is None or trace.training is None or series is None:
        return None
    number = trace.parameters.index(series)
    patterns = (one for use in trace.training.optimizers if number in use.holds for one in use.patterns)
    return next((trace.location(one.cleared) for one in patterns if one.cleared is not None), None)


def refused(question: Question) -> WhyReport | None:
    """The run's backward was refused, or the run failed before it."""
    trace = question.trace
    if trace is None or trace.passes_seen or not question.is_seen:
        return None
    refusals = [found for found in trace.findings if found.code == "TM306"]
    if refusals:
        says = f"{question.grad} is None because torch refused the backward: {refusals[0].message}"
        return question.told("refused", says, remedy=(refusals[0].remedy,), location=refusals[0].location)
    if trace.state == "failed":
        says = f"{question.grad} is None because the run failed before any backward: {trace.error}."
        return question.told("run failed", says, way=live_way(question.facts))
    return None


def asked_for_others(question: Question) -> WhyReport | None:
    """A graph of the run leads to it, and nothing came."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not series.used:
        return None
    failed = any(one.outcome == "failed" for one in trace.passes)
    why = "backward failed before it came here" if failed else (
        "it was asked for other gradients alone, by `autograd.grad(...)` or `backward(inputs=...)`"
    )  # fmt: skip
    says = f"{question.grad} is None although a graph leads to {question.name}: {why}."
    return question.told("not asked for", says, way=_way(question), remedy=("loss.backward()",))


def not_from_this_loss(question: Question) -> WhyReport | None:
    """The loss that was given does not depend on it."""
    facts = question.facts
    if not facts.loss or facts.way is not None:
        return None
    says = f"{question.grad} is None because nothing that {facts.loss} was computed from leads back to {question.name}."
    copies = f"{listed(facts.copies)} has its memory but not its history." if facts.copies else ""
    return question.told("not part of the loss", says, evidence=(copies,), remedy=(UNTRACED,), way=live_way(facts))


def gone_through(question: Question) -> WhyReport | None:
    """A graph that leads to it has been gone through already."""
    facts = question.facts
    if facts.way is None or not facts.way.freed:
        return None
    says = f"{question.grad} is None although a backward went through {facts.way.end}: it was cleared since."
    rests = "Or the gradients were returned, by `autograd.grad`, or asked for by `backward(inputs=...)`."
    remedy = ("Look at it between `loss.backward()` and `optimizer.zero_grad()`.",)
    return question.told("cleared", says, evidence=(rests,), remedy=remedy, way=live_way(facts))


def no_backward_yet(question: Question) -> WhyReport | None:
    """Something computed from it stands, and nobody called backward."""
    way, name = question.facts.way, question.name
    if way is None:
        return None
    says = f"{question.grad} is None because no backward has reached {name} since it was made or cleared: "
    says += f"{way.end} leads back to it"
    over = f", over {listed(way.ops)}." if way.ops else "."
    call = f"{way.end}.backward()" if way.is_scalar else f"{way.end}.sum().backward()"
    return question.told("no backward yet", says + over, remedy=(call,), way=live_way(question.facts))


def unused(question: Question) -> WhyReport | None:
    """The run knew it, and nothing leads to it."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not trace.passes_seen:
        return None
    says = (
        f"{question.grad} is None because no path leads from the loss to it: in {passes_words(trace)} it took part in "
    )
    says += "nothing that backward was called on."
    remedy = (
        f"Use {question.name} in `forward`, or say that it is not to learn: `{question.name}.requires_grad_(False)`",
    )
    return question.told("unused", says, remedy=remedy, way=live_way(question.facts))


def nothing_known(question: Question) -> WhyReport:
    """Nothing that has a name was computed from it."""
    facts, name = question.facts, question.name
    says = f"{question.grad} is None because no backward has reached {name} since it was made, or since it was cleared."
    rests = f"Nothing that has a name here and a history was computed from it ({facts.searched} looked through)."
    copies = f"{listed(facts.copies)} has its memory but not its history." if facts.copies else ""
    return question.told(
        "nothing known", says, evidence=(rests, copies, question.unseen), remedy=(UNTRACED,), way=live_way(facts)
    )


def _way(question: Question) -> tuple:  # type: ignore[type-arg]
    if question.trace is None or question.graph is None:
        return ()
    return traced_way(question.trace, *question.graph)
