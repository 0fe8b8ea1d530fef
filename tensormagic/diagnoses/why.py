"""``%why``: the first reason that holds for a gradient being what it is; of a module, its parameters by reason.

Not a rule: nothing is found to be wrong here, somebody asked. What is decided, and in which order, is two tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tensormagic.diagnoses import why_none
from tensormagic.diagnoses.gradient_health import EXPLODING_NORM, VANISHING_NORM
from tensormagic.diagnoses.rule import grouped, scientific, shortest
from tensormagic.diagnoses.singular import HOOKED
from tensormagic.diagnoses.why_question import Question, place_words
from tensormagic.diagnoses.why_run import KnownRun
from tensormagic.reports import Finding, GradientFacts, Graph, Hook, TraceReport, WhyGroup, WhyReport
from tensormagic.words import capitalised, count, is_or_are, listed, part_of, plural

# Why ``.grad`` is what it is: NaN, zero, several passes together, scaled; or simply what the last pass brought.

SINCE = "This holds if no other backward has run since that cell."
SET = "it was set to zero: `zero_grad(set_to_none=False)` and `grad.zero_()` do that"
TENSOR_HOOK = "tensor hook"  # of `Hook.kind`: it is called before the gradient is stored
MOSTLY = 0.5  # a share of zeros from which on they are named
_ZEROS = {
    **dict.fromkeys(("relu", "threshold", "clamp", "clamp_min", "hardtanh", "leaky_relu"),
                    "all of its input lies where its slope is zero"),
    **dict.fromkeys(("sigmoid", "tanh", "softmax", "log_softmax"), "it is saturated: its slope is zero"),
    **dict.fromkeys(("mul", "div", "mm", "addmm", "bmm"), "what it is multiplied with there is zero"),
    **dict.fromkeys(("where", "masked_fill", "index", "masked_select", "slice", "select", "gather"),
                    "none of its elements was selected"),
    **dict.fromkeys(("max", "amax", "maximum", "min", "amin", "minimum", "max_pool2d_with_indices"),
                    "others were the largest, or the smallest"),
    **dict.fromkeys(("round", "floor", "ceil", "sign", "trunc"), "its slope is zero everywhere"),
    **dict.fromkeys(("nll_loss", "nll_loss2_d"), "all targets are ignored"),
}  # fmt: skip


def not_finite(question: Question) -> WhyReport | None:
    """It holds NaN or infinities."""
    facts = question.facts
    bad = facts.nan + facts.inf
    if not bad:
        return None
    what = "NaN" if facts.nan else "infinity"
    head = f"{question.grad} holds {what} ({part_of(bad, facts.numel)})"
    reason = "NaN" if facts.nan else "infinite"
    found, trace = _nonfinite(question), question.trace
    if found is None or trace is None:
        codes = {"TM401", "TM402", "TM406"}
        finding = next((one for one in question.findings if one.code in codes and _above(question, one)), None)
        says, remedy = f"{head}.", "Run the cell under `%%tracegrad`: it finds the line that made the first."
        if finding is not None:
            says, remedy = f"{head}: {finding.message}", finding.remedy
        return question.described(reason, says, evidence=(question.unseen,), remedy=(remedy,), path=question.way)
    graph, node, number = found
    at, place = trace.graphs.index(graph), trace.location(graph.nodes[node].location)
    source = f"{graph.nodes[node].op}{place_words(place)}"
    finding = next(
        (one for one in question.findings if one.code in {"TM402", "TM406"} and one.node == (at, node)), None
    )
    says = f"{head} because {source} produced the first in pass {number}."
    evidence = finding.message if finding is not None else ""
    errors = (one for one in question.findings if one.code == "TM401" and one.severity == "error")
    fault = next((one for one in errors if one.node is not None and one.node[0] == at), None)
    if finding is None and fault is not None:  # backward was given what was not finite already
        finding, place = fault, fault.location
        says = f"{head}: {fault.message}"
        evidence = f"The first {what} of the backward: {source}, in pass {number}."
    return question.described(
        reason, says, evidence=(evidence,), location=place, path=partial(question.way, (node,)),
        remedy=(finding.remedy,) if finding is not None else (),
    )  # fmt: skip


def _above(question: Question, finding: Finding) -> bool:
    """Whether what was found to be not finite was on the way to the gradient, and the last pass brought it that."""
    if question.graph is None or question.trace is None or (question.last is not None and math.isfinite(question.last)):
        return False
    graph, leaf = question.graph
    if finding.node is None:
        return finding.code == "TM401"
    return question.trace.graphs[finding.node[0]] is graph and question.known.leads_to(graph, finding.node[1], leaf)


def _nonfinite(question: Question) -> tuple[Graph, int, int] | None:
    """Return the graph, the node and the pass of the first NaN or infinity that could have come here."""
    if question.graph is None or (question.last is not None and math.isfinite(question.last)):  # it came later
        return None
    graph, leaf = question.graph
    above = [born for born in graph.first_nonfinite if question.known.leads_to(graph, born.node, leaf)]
    found = [(born.pass_number, born.node) for born in above]
    return (graph, *min(found)[::-1]) if found else None


def zero(question: Question) -> WhyReport | None:
    """All of it is exactly zero."""
    facts, last = question.facts, question.last
    if not facts.numel or facts.zero < facts.numel:
        return None
    head = f"Every element of {question.grad} is exactly zero"
    if last is not None and last > 0:
        says = f"{head} because it was set to zero: the last pass gave it a gradient of norm {scientific(last)}."
        late = [hook for hook in facts.hooks if hook.kind != TENSOR_HOOK]
        rests = "`zero_grad(set_to_none=False)` and `grad.zero_()` do that."
        if late:
            rests = f"A hook may have done that: {_listed(late)}. {rests[:-1]}, too."
        remedy = (question.in_between,)
        return question.described("cleared", says, evidence=(rests,), path=question.way, remedy=remedy)
    if last is not None:
        return _came_as_zero(question, head)
    rests, first = f"Either backward brought zeros (a dead ReLU, a mask, a factor of zero, a hook), or {SET}.", ""
    if facts.hooks:
        head += f": a hook on {question.name} may have made zeros of it, {_listed(facts.hooks)}"
        rests = f"Otherwise backward brought zeros (a dead ReLU, a mask, a factor of zero), or {SET}."
        first = HOOKED
    again = "Run the cell under `%%tracegrad` and ask again: it sees where the gradient becomes zero."
    return question.described("zero", f"{head}.", evidence=(rests, question.unseen), remedy=(first, again))


def _came_as_zero(question: Question, head: str) -> WhyReport:
    found, trace = question.graph, question.trace
    zeros = question.known.silencer(*found) if found is not None else None
    if found is None or zeros is None or trace is None:
        says = f"{head} because what backward started with was zero already."
        return question.described("zero", says, path=question.way, remedy=("Look at the loss: it is constant.",))
    graph, (node, first) = found[0], zeros
    op = graph.nodes[node].op
    place = trace.location(graph.nodes[node].location)
    norm = scientific(graph.frames[-1].norms[node])
    described = question.found("TM405")
    evidence, remedy = (tuple(getattr(one, part) for one in described[:1]) for part in ("message", "remedy"))
    why = f": {_ZEROS[op]}" if op in _ZEROS else ""
    says = (
        f"{head} because {op}{place_words(place)} got a gradient of norm {norm} and passed on nothing but zeros{why}."
    )
    if hook := _hook_before(question, graph, first, found[1]):
        says = f"{head}: {hook} may have made zeros of what {op}{place_words(place)} passed on."
        rests = (
            f"{capitalised(op)} got a gradient of norm {norm}; otherwise it passed on nothing but zeros itself{why}."
        )
        place = trace.location(graph.hooked.get(str(first))) or place
        evidence, remedy = (*evidence, rests), remedy or (HOOKED,)
    return question.described(
        "zero", says, location=place, path=partial(question.way, (node,)), evidence=evidence, remedy=remedy
    )


def _hook_before(question: Question, graph: Graph, first: int, leaf: int) -> str:
    """Return the hook that saw a gradient before the node to which zeros came first; empty where there was none."""
    early = [hook for hook in question.facts.hooks if hook.kind == TENSOR_HOOK] if first == leaf else []
    if early:
        return f"a hook on {question.name}, {_listed(early)},"
    if str(first) not in graph.hooked or question.trace is None:
        return ""
    return f"a hook{place_words(question.trace.location(graph.hooked[str(first)]))}"


def _listed(hooks: Sequence[Hook]) -> str:
    """Return hooks as they are listed where their tensor is shown."""
    return listed(f"`{one.function.replace('`', '')}` {one.kind}" + (f" ({one.place})" if one.place else "")
                  for one in hooks)  # fmt: skip


def scaled(question: Question) -> WhyReport | None:
    """A ``GradScaler``'s factor is still in it."""
    facts, found = question.facts, question.graph
    if facts.scale == 1 or found is None or not question.close(facts.norm, question.last):
        return None
    if not any(found[0].nodes[root].op == "mul" for root in found[0].roots):
        return None
    says = f"{question.grad} is {facts.scale:g} times the gradient of the loss: the GradScaler's scale is still in it."
    remedy = (f"scaler.unscale_({question.optimizer})  # before you look at gradients or clip them",)
    return question.described("scaled", says, evidence=(_norm_words(question),), remedy=remedy, path=question.way)


def accumulated(question: Question) -> WhyReport | None:
    """It is more than what the last pass brought."""
    facts, norms, series, last = question.facts, question.norms, question.series, question.last
    if facts.norm is None or series is None or not last or not facts.norm > last * 1.01:
        return None
    times = facts.norm / last
    equal = len(norms) > 1 and question.close(max(norms), min(norms))
    if equal and abs(times - round(times)) < 1e-3 * times:
        says = (
            f"{question.grad} is {round(times)} times what one pass gives: backward ran {round(times)} times, and "
            "nothing cleared it in between."
        )
    else:
        says = (
            f"{question.grad} holds the sum of several passes (norm {scientific(facts.norm)}; the last one alone gave "
            f"{scientific(last)}): it was not zeroed in between."
        )
    remedy = (f"{question.clearing}  # before each backward, unless gradients are to be added up",)
    return question.described(
        "accumulated", says, evidence=(_passes(question), SINCE), remedy=remedy, path=question.way
    )


def scaled_down(question: Question) -> WhyReport | None:
    """It is less than what the last pass brought."""
    facts, last = question.facts, question.last
    if facts.norm is None or last is None or not facts.norm < last * 0.99:
        return None
    share = f"{scientific(facts.norm / last)} of what the last pass gave"
    if question.close(facts.norm * facts.scale, last) and facts.scale != 1:
        says = (
            f"{question.grad} is the gradient of the loss: the GradScaler's scale of {facts.scale:g} was removed again."
        )
        return question.described("fine", says, evidence=(_norm_words(question),), path=question.way)
    says = f"{question.grad} is {share}: something scaled it down afterwards, such as `clip_grad_norm_`."
    return question.described(
        "scaled down", says, evidence=(_norm_words(question), _passes(question), SINCE), path=question.way
    )


def extreme(question: Question) -> WhyReport | None:
    """The run found gradients that vanish or explode, and this is one of them."""
    norm = question.facts.norm
    if norm is None:
        return None
    for finding in question.findings:
        vanishes = finding.code == "TM403" and (finding.subject == question.name or norm < VANISHING_NORM)
        explodes = finding.code == "TM404" and (finding.subject == question.name or norm > EXPLODING_NORM)
        if vanishes or explodes:
            says = f"{question.grad} is very {'small' if vanishes else 'large'} (norm {scientific(norm)}). "
            return question.described(
                "vanishing" if vanishes else "exploding", says + finding.message, evidence=(_passes(question),),
                location=finding.location, remedy=(finding.remedy,), path=question.way,
            )  # fmt: skip
    return None


def fine(question: Question) -> WhyReport:
    """Nothing is wrong with it, as far as its values can be read."""
    facts, last = question.facts, question.last
    if facts.norm is None:
        says = f"{question.grad} is there, but its values could not be read."
        return question.described("unread", says, evidence=(_passes(question),), path=question.way)
    same = last is not None and question.close(facts.norm, last)
    brought = f"its norm is {scientific(last or 0.0)}, from the last pass" if same else _norm_words(question).strip(".")
    zeros = f"{plural(facts.zero, 'element')} of {facts.numel} are exactly zero." if facts.zero else ""
    few = facts.numel and facts.zero / facts.numel < MOSTLY
    hooks = list(dict.fromkeys(facts.hooks))
    often = f", put there {count(len(facts.hooks))} times or more" if len(hooks) == 1 < len(facts.hooks) else ""
    seen = f"Hooks of {question.name} saw it first: {_listed(hooks)}{often}." if hooks else ""
    evidence = (_passes(question), seen, zeros if not few else "")
    return question.described("fine", f"{question.grad} is fine: {brought}.", evidence=evidence, path=question.way)


def _norm_words(question: Question) -> str:
    return f"its norm is {scientific(question.facts.norm or 0.0)}."


def _passes(question: Question) -> str:
    """Return what the passes brought, the last few."""
    norms, series = question.norms, question.series
    if series is None or len(norms) < 2:
        return ""
    shown = ", ".join(map(scientific, norms[-5:]))
    return f"{plural(series.touched, 'pass', 'passes')} gave it a gradient; norms of the last: {shown}."


# Which reasons are tried, in which order.

MEANT = frozenset({"fine", "frozen", "scaled down", "unread"})

Check = Callable[[Question], "WhyReport | None"]

ABSENT: tuple[Check, ...] = (
    why_none.not_asked, why_none.not_a_leaf, why_none.cut_off, why_none.cleared, why_none.refused,
    why_none.asked_for_others, why_none.not_from_this_loss, why_none.gone_through, why_none.no_backward_yet,
    why_none.unused, why_none.nothing_known,
)  # fmt: skip
PRESENT: tuple[Check, ...] = (
    not_finite, zero, scaled, accumulated, scaled_down, extreme, fine,
)  # fmt: skip


def explain(facts: GradientFacts, trace: TraceReport | None = None) -> WhyReport:
    """Return why the gradient of a tensor is what it is: the first reason that holds."""
    return _answer(Question(facts, KnownRun(trace)))


def _answer(question: Question) -> WhyReport:
    facts = question.facts
    checks = PRESENT if facts.grad == "present" and facts.requires_grad else ABSENT
    return next(answer for check in checks if (answer := check(question)) is not None)


def explain_module(name: str, every: Iterable[GradientFacts], trace: TraceReport | None = None) -> WhyReport:
    """Return the parameters of a module by the reason for which their gradients are what they are."""
    known = KnownRun(trace)
    answers = [_answer(Question(facts, known, drawn=False)) for facts in every]
    groups = grouped(answers, lambda answer: (answer.reason, answer.location))
    names = [answer.name for answer in answers]
    described = tuple(
        WhyGroup(reason=reason, names=tuple(shortest([answer.name for answer in found], names)),
                 count=len(found), answer=found[0].answer, fine=reason in MEANT)
        for (reason, _), found in groups.items()
    )  # fmt: skip
    amiss = {group.reason for group in described if not group.fine}
    remedy = next((one.remedy for one in answers if one.reason in amiss), ()) if len(amiss) == 1 else ()
    # What else was found in the run: gradients may be in order where training is not.
    found = trace.findings if trace is not None and any(answer.source for answer in answers) else ()
    answered = " ".join(answer.answer for answer in answers)
    return WhyReport(
        name=name, reason=described[0].reason if len(described) == 1 else "several",
        answer=_says(name, answers, described),
        groups=tuple(sorted(described, key=lambda group: group.fine)), source=max(answer.source for answer in answers)
        if answers else "", remedy=remedy,
        evidence=tuple(
            f"{one.code}: {one.message}" for one in found if one.severity != "note" and one.message not in answered),
    )  # fmt: skip


def _says(name: str, answers: list[WhyReport], groups: tuple[WhyGroup, ...]) -> str:
    """Return the sentence over the groups."""
    if not answers:
        return f"{name} has no parameters: there is no gradient to ask about."
    amiss = sum(group.count for group in groups if not group.fine)
    if not amiss:
        return _all_in_order(name, groups)
    has = "has" if amiss == 1 else "have"
    which = f"{capitalised(part_of(amiss, len(answers), 'parameter'))} of {name}"
    reasons = {group.reason for group in groups if not group.fine}
    if reasons in ({"vanishing"}, {"exploding"}):
        return f"{which} {has} a gradient that {'vanishes' if reasons == {'vanishing'} else 'explodes'}."
    if len(groups) == 1:
        return f"The same holds for {part_of(len(answers), len(answers), 'parameter')} of {name}: {answers[0].answer}"
    if reasons == {"accumulated"}:
        return f"{which} {'holds' if amiss == 1 else 'hold'} the gradients of several passes."
    return f"{which} {has} no gradient, or a faulty one."


def _all_in_order(name: str, groups: tuple[WhyGroup, ...]) -> str:
    """Return that nothing is amiss with the gradients that are there, and what has none on purpose."""
    frozen = [group for group in groups if group.reason == "frozen"]
    if not frozen:
        return f"Nothing is wrong with the gradients of {name}."
    count = sum(group.count for group in frozen)
    which = listed([each for group in frozen for each in group.names])
    if len(frozen) == len(groups):
        return f"{name} is frozen: none of its {plural(count, 'parameter')} requires a gradient."
    kept = f"{plural(count, 'parameter')} {is_or_are(count)} frozen: {which}."
    return f"Nothing is wrong with the gradients of {name} that are there; {kept}"
