"""Why ``.grad`` is None: every reason as a function of what is known, in the order in which they are tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tensormagic.diagnoses.graph_cuts import call_words, instead_of_cut
from tensormagic.diagnoses.lines import as_code, rebound
from tensormagic.diagnoses.rule import is_differentiable, passes_words, scientific
from tensormagic.diagnoses.why_question import Question, cut_way, live_way, place_words, traced_way
from tensormagic.reports import Cell, Cut, PathStep, TraceReport, WhyReport
from tensormagic.words import binding, capitalised, listed, plural

BEFORE = "If it began to require a gradient only after the forward, run the forward again."
UNTRACED = (
    "Run the cell that computes the loss with `%%tracegrad` as its first line, and ask again: then it is known whether "
    "the loss used it, and which line cut it off, if one did."
)


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
            place = trace.location(question.known.frozen.get(name))
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
    way = partial(live_way, facts) if facts.path is not None else tuple
    if question.trace is not None and question.graph is not None:
        graph, index = question.graph
        way = partial(traced_way, question.trace, graph, index)
        norm = graph.frames[-1].norms[index] if graph.frames else -1.0
        evidence += [f"In the last pass its gradient had norm {scientific(norm)}."] if norm >= 0 else []
    code = as_code(name)
    if _is_where_backward_begins(question):
        begins = f"`{binding(code)}.backward()` begins with {name}"
        evidence.insert(0, f"{begins}: its gradient there is 1, whatever {name} is.")
        shown = facts.leaves[0] if facts.leaves and " " not in facts.leaves[0] else "x"
        remedy: tuple[str, ...] = (f"Ask about what {name} was computed from, such as `%why {shown}`.",)
        return question.described("not a leaf", says, evidence=tuple(evidence), remedy=remedy, path=way)
    remedy = (
        f"{binding(code)}.retain_grad()  # before backward()",
        f"torch.autograd.grad(loss, {code})  # returns it instead",
    )
    return question.described("not a leaf", says, evidence=tuple(evidence), remedy=remedy, path=way)


def _is_where_backward_begins(question: Question) -> bool:
    """Whether it is one number from which nothing else is known to be computed: a loss."""
    found = question.graph
    is_last = question.facts.path is None if found is None else found[1] in found[0].roots
    return math.prod(question.facts.shape) == 1 and is_last


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
    return _ended(
        question, trace, cut, what, path=partial(cut_way, trace, graph, cut, question.name), evidence=(rests,)
    )


def _ended(  # noqa: PLR0913  (of whom, by what, and the way)
    question: Question, trace: TraceReport, cut: Cut, what: str, *, path: Callable[[], tuple[PathStep, ...]],
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
    """The run brought it a gradient, and it is gone; or it was never to be put there."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not series.touched:
        return None
    none = f"{question.grad} is None because"
    for found in question.found("TM318"):
        says = f"{none} {found.message.partition(': ')[2].replace('for them.', 'for it.')}"
        return question.described("cut off", says, location=found.location, path=question.way, remedy=(found.remedy,))
    if series.replaced:
        says = (
            f"{none} {question.name} was replaced in the run, and the gradients went to the tensor before it; or it "
            "was cleared since."
        )
        remedy = f"Change the values of the one that is there: `with torch.no_grad(): {question.name}.copy_(…)`."
        return question.described("replaced", says, path=question.way, remedy=(remedy,))
    brought = [done for done, norm in zip(trace.passes, series.norms, strict=False) if not norm < 0]
    if len(brought) == series.touched and all(done.returned for done in brought):
        place = trace.location(brought[-1].location)
        says = f"{none} its gradient was returned: `autograd.grad`{place_words(place)} fills no `.grad`."
        remedy = "Take what it returns, or call `loss.backward()` instead."
        return question.described("returned", says, location=place, path=question.way, remedy=(remedy,))
    last = f", the last of norm {scientific(question.norms[-1])}" if question.norms else ""
    says = (
        f"{none} it was cleared: {plural(series.touched, 'pass', 'passes')} brought it a gradient{last}, and it was "
        "set to None since."
    )
    cleared_at = (one.cleared for use in question.users for one in use.patterns)
    return question.described(
        "cleared", says, path=question.way, remedy=(question.in_between,),
        location=trace.location(next((at for at in cleared_at if at is not None), None)),
        evidence=(f"`{question.optimizer}.zero_grad()` does that.",),
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
        return question.described("run failed", says, path=partial(live_way, question.facts))
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
    return question.described("not asked for", says, path=question.way, remedy=("loss.backward()",))


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
        steps = (*cut_way(read, None, facts.cut, question.name)[:-1], PathStep(label=facts.loss, kind="loss"))
        return _ended(question, read, facts.cut, f"cut its path to {facts.loss}", path=lambda: steps)
    says = f"{question.grad} is None because {facts.loss} was not computed from {question.name}."
    return question.described(
        "not part of the loss", says, evidence=(question.copies,), remedy=(UNTRACED,), path=partial(live_way, facts)
    )


def gone_through(question: Question) -> WhyReport | None:
    """A graph that leads to it has been gone through already."""
    facts = question.facts
    if facts.path is None or not facts.path.freed:
        return None
    functions = [f"{name}.backward returned None for it" for name in facts.path.custom]
    causes = [*functions, "it was cleared afterwards", "the gradients were returned by `autograd.grad`",
              "asked for by `backward(inputs=…)`"]  # fmt: skip
    says = f"{question.grad} is None although a backward went through {facts.path.end}: {', or '.join(causes)}."
    checks = [f"Check one call, which shows what it returns: `tm.check({name}, …)`." for name in facts.path.custom[:1]]
    return question.described("cleared", says, remedy=(*checks, question.in_between), path=partial(live_way, facts))


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
    return question.described("no backward yet", says, remedy=(call,), path=partial(live_way, question.facts))


def unused(question: Question) -> WhyReport | None:
    """The run knew it, and nothing leads to it."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not trace.passes_seen:
        return None
    says = (
        f"{question.grad} is None because no path leads from the loss to it: {passes_words(trace)} went by without it."
    )
    remedy = (f"Use {question.name} in `forward`, or freeze it: `{as_code(question.name)}.requires_grad_(False)`",)
    return question.described("unused", says, evidence=(BEFORE,), remedy=remedy, path=partial(live_way, question.facts))


def nothing_known(question: Question) -> WhyReport:
    """Nothing that has a name was computed from it."""
    facts, name = question.facts, question.name
    says = f"{question.grad} is None because no backward has reached {name} since it was made, or since it was cleared."
    rests = f"Nothing that has a name here was computed from it ({facts.searched} with a graph searched)."
    evidence = (rests, question.copies, BEFORE, question.unseen)
    by = "`forward`" if facts.is_parameter else "the loss"
    used = f"Most often {by} does not use it, or no `backward()` has run yet: check these two first."
    if question.unseen:
        used = f"Compute the loss from {name}: no backward of the last traced run led to it."
    return question.described("nothing known", says, evidence=evidence, remedy=(used, UNTRACED))
