"""Why ``.grad`` is None, or what it is: every reason as a function, in the order in which they are asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensormagic.diagnoses.graph_cuts import call_words, instead
from tensormagic.diagnoses.rule import passes_words, rebound, scientific
from tensormagic.diagnoses.why_question import Question, cut_way, live_way, place_words, traced_way, upstream
from tensormagic.reports import Cut, Finding, Graph, Location, WayStep, WhyReport
from tensormagic.words import listed, part_of, plural

# Why ``.grad`` is None: every reason as a function of what is known, in the order in which they are tried.

UNTRACED = "Run the cell under `%%tracegrad` and ask again: it sees which line ends the way."


def not_asked(question: Question) -> WhyReport | None:
    """It does not ask for a gradient."""
    facts, name, grad = question.facts, question.name, question.grad
    if facts.requires_grad:
        return None
    if facts.grad == "present":
        says = f"{grad} is there, but {name} no longer requires a gradient: backward adds nothing to it."
        return question.described("frozen", says, remedy=(f"{name}.requires_grad_()",))
    if facts.inference:
        says = f"{grad} is None because {name} was made under `torch.inference_mode()`: autograd never records it."
        return question.described("inference tensor", says, remedy=(rebound(name, "clone().requires_grad_()"),))
    if not facts.dtype.startswith(("float", "bfloat", "complex")):
        says = (
            f"{grad} is None because {name} is {facts.dtype}: only floating-point and complex tensors have gradients."
        )
        return question.described("integers", says, remedy=(rebound(name, "float().requires_grad_()"),))
    return _switched_off(question)


def _switched_off(question: Question) -> WhyReport:
    facts, name, grad = question.facts, question.name, question.grad
    if facts.relative:
        says = (
            f"{grad} is None because {name} shares the memory of {facts.relative}, but not its history: `.detach()`, "
        )
        says += "`.data` or `torch.no_grad()` cut it off."
        return question.described("cut off", says, remedy=(f"{facts.relative}.grad  # the one that is tracked",))
    if facts.is_parameter:
        place = _frozen_at(question)
        says = f"{grad} is None because the parameter is frozen{place_words(place)}: its `requires_grad` is False."
        return question.described("frozen", says, remedy=(f"{name}.requires_grad_()",), location=place)
    says = f"{grad} is None because {name} does not require a gradient (`requires_grad=False`)."
    rests = "Nothing it was made from requires one, or it was made under `torch.no_grad()`, or from numbers."
    return question.described(
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
    says = f"{question.grad} is None because {name} is not a leaf: {facts.made_by} made it, and torch keeps .grad only "
    evidence: list[str] = [onwards.strip()]
    way = live_way(facts) if facts.way is not None else ()
    if question.trace is not None and question.graph is not None:
        graph, index = question.graph
        way = traced_way(question.trace, graph, index)
        norm = graph.frames[-1].norms[index] if graph.frames else -1.0
        evidence += [f"In the last pass its gradient had norm {scientific(norm)}."] if norm >= 0 else []
    remedy = (f"{name}.retain_grad()  # before backward()", f"torch.autograd.grad(loss, {name})  # returns it instead")
    return question.described("no leaf", f"{says}for leaves.", evidence=tuple(evidence), remedy=remedy, way=way)


def cut_off(question: Question) -> WhyReport | None:
    """A call that the run saw ended its way."""
    found, trace = question.cut, question.trace
    if found is None or trace is None or question.norms or (question.facts.loss and question.facts.way is not None):
        return None
    graph, cut = found
    place = trace.location(cut.location)
    says = f"{question.grad} is None because {call_words(cut, place)}{place_words(place)} {_what(question, cut)}, "
    says += "so backward never reached it."
    if question.facts.way is not None:
        rests = f"{question.facts.way.end} still leads back to {question.name}, but nothing called backward on it."
    else:
        rests = ""
    mend = instead(cut, place)
    return question.described(
        "cut off", says, evidence=(rests,), location=place, way=cut_way(trace, graph, cut, question.name),
        remedy=(f"{mend[:1].upper()}{mend[1:]}." if mend else "",),
    )  # fmt: skip


def _what(question: Question, cut: Cut) -> str:
    if cut.selects:
        return f"only chooses elements with what {question.name} makes"
    return "cut its path to the loss" if cut.target is not None else "cut its path"


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
    return question.described(
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
        return question.described("refused", says, remedy=(refusals[0].remedy,), location=refusals[0].location)
    if trace.state == "failed":
        says = f"{question.grad} is None because the run failed before any backward: {trace.error}."
        return question.described("run failed", says, way=live_way(question.facts))
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
    return question.described("not asked for", says, way=_way(question), remedy=("loss.backward()",))


def not_from_this_loss(question: Question) -> WhyReport | None:
    """The loss that was given does not depend on it."""
    facts = question.facts
    if not facts.loss or facts.way is not None:
        return None
    says = f"{question.grad} is None because {facts.loss} was not computed from {question.name}."
    copies = f"{listed(facts.copies)} shares its memory but not its history." if facts.copies else ""
    return question.described("not part of the loss", says, evidence=(copies,), remedy=(UNTRACED,), way=live_way(facts))


def gone_through(question: Question) -> WhyReport | None:
    """A graph that leads to it has been gone through already."""
    facts = question.facts
    if facts.way is None or not facts.way.freed:
        return None
    says = f"{question.grad} is None although a backward went through {facts.way.end}: it was cleared afterwards."
    rests = "Or the gradients were returned, by `autograd.grad`, or asked for by `backward(inputs=...)`."
    remedy = ("Look at it between `loss.backward()` and `optimizer.zero_grad()`.",)
    return question.described("cleared", says, evidence=(rests,), remedy=remedy, way=live_way(facts))


def no_backward_yet(question: Question) -> WhyReport | None:
    """Something computed from it stands, and nobody called backward."""
    way, name = question.facts.way, question.name
    if way is None:
        return None
    says = f"{question.grad} is None because no backward has reached {name} since it was made or cleared: "
    says += f"{way.end} leads back to it"
    over = f", through {listed(way.ops)}." if way.ops else "."
    call = f"{way.end}.backward()" if way.is_scalar else f"{way.end}.sum().backward()"
    return question.described("no backward yet", says + over, remedy=(call,), way=live_way(question.facts))


def unused(question: Question) -> WhyReport | None:
    """The run knew it, and nothing leads to it."""
    series, trace = question.series, question.trace
    if series is None or trace is None or not trace.passes_seen:
        return None
    says = (
        f"{question.grad} is None because no path leads from the loss to it: in {passes_words(trace)} it took part in "
    )
    says += "nothing that backward was called on."
    remedy = (f"Use {question.name} in `forward`, or freeze it: `{question.name}.requires_grad_(False)`",)
    return question.described("unused", says, remedy=remedy, way=live_way(question.facts))


def nothing_known(question: Question) -> WhyReport:
    """Nothing that has a name was computed from it."""
    facts, name = question.facts, question.name
    says = f"{question.grad} is None because no backward has reached {name} since it was made, or since it was cleared."
    rests = f"No variable with a graph was computed from it ({facts.searched} searched)."
    copies = f"{listed(facts.copies)} shares its memory but not its history." if facts.copies else ""
    return question.described(
        "nothing known", says, evidence=(rests, copies, question.unseen), remedy=(UNTRACED,), way=live_way(facts)
    )


def _way(question: Question) -> tuple:  # type: ignore[type-arg]
    if question.trace is None or question.graph is None:
        return ()
    return traced_way(question.trace, *question.graph)


# Why ``.grad`` is what it is: NaN, zero, several passes together, scaled; or simply what the last pass brought.

SINCE = "This holds if no other backward has run since that cell."
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
    found = _birth(question)
    if found is None:
        described = [
            one for one in _findings(question) if one.code in {"TM401", "TM402", "TM406"} and _above(question, one)
        ]
        says = f"{head}: {described[0].message}" if described else f"{head}."
        remedy = (
            described[0].remedy
            if described
            else "Run the cell under `%%tracegrad`: it finds the line that made the first."
        )
        return question.described(
            "NaN" if facts.nan else "infinite",
            says,
            evidence=(question.unseen,),
            remedy=(remedy,),
            way=_way_back(question),
        )
    graph, node, number = found
    trace = question.trace
    place = trace.location(graph.nodes[node].location) if trace is not None else None
    made = f"{graph.nodes[node].op}{place_words(place)} produced the first in pass {number}."
    at = (trace.graphs.index(graph), node) if trace is not None else None
    described = [one for one in _findings(question) if one.code in {"TM402", "TM406"} and one.node == at]
    says, evidence, way = (
        f"{head} because {made}",
        tuple(one.message for one in described[:1]),
        _way_back(question, (node,)),
    )
    if not described and (fault := _forward_fault(question, at)):  # backward was given what was not finite already
        described, place = [fault], fault.location
        says, evidence = f"{head}: {fault.message}", (f"In backward, {made}",)
    return question.described(
        "NaN" if facts.nan else "infinite", says, evidence=evidence, location=place,
        remedy=tuple(one.remedy for one in described[:1]), way=way,
    )  # fmt: skip


def _above(question: Question, finding: Finding) -> bool:
    """Whether what was found to be not finite was on the way to the gradient, and the last pass brought it that."""
    if question.graph is None or question.trace is None or (question.last is not None and math.isfinite(question.last)):
        return False
    graph, leaf = question.graph
    if finding.node is None:
        return finding.code == "TM401"
    return question.trace.graphs[finding.node[0]] is graph and finding.node[1] in upstream(graph, leaf)


def _forward_fault(question: Question, at: tuple[int, int] | None) -> Finding | None:
    """Return what was wrong with the forward of the graph in which a node is, where something was."""
    faults = (one for one in _findings(question) if one.code == "TM401" and one.severity == "error" and one.node)
    return next((one for one in faults if at is not None and one.node is not None and one.node[0] == at[0]), None)


def _birth(question: Question) -> tuple[Graph, int, int] | None:
    """Return the graph, the node and the pass of the first NaN or infinity that could have come here."""
    if question.graph is None or (question.last is not None and math.isfinite(question.last)):  # it came later
        return None
    graph, leaf = question.graph
    above = upstream(graph, leaf)
    found = [(birth.pass_number, birth.node) for birth in graph.first_nonfinite if birth.node in above]
    return (graph, *min(found)[::-1]) if found else None


def zero(question: Question) -> WhyReport | None:
    """All of it is exactly zero."""
    facts, last = question.facts, question.last
    if not facts.numel or facts.zero < facts.numel:
        return None
    head = f"Every element of {question.grad} is exactly zero"
    if last is not None and last > 0:
        says = f"{head} because it was set to zero: the last pass gave it a gradient of norm {scientific(last)}."
        rests = "`zero_grad(set_to_none=False)` and `grad.zero_()` do that."
        return question.described("cleared", says, evidence=(rests,), way=_way_back(question),
                             remedy=("Look at it between `loss.backward()` and `zero_grad()`.",))  # fmt: skip
    if last is not None:
        return _came_as_zero(question, head)
    rests = (
        "Either backward brought zeros (a dead ReLU, a mask, a factor of zero), or `zero_grad(set_to_none=False)` ran."
    )
    return question.described("zero", f"{head}.", evidence=(rests, question.unseen), remedy=(
        "Run the cell under `%%tracegrad` and ask again: it sees where the gradient becomes zero.",))  # fmt: skip


def _came_as_zero(question: Question, head: str) -> WhyReport:
    found, trace = question.graph, question.trace
    node = _makes_zero(*found) if found is not None else None
    if found is None or node is None or trace is None:
        says = f"{head} because what backward started with was zero already."
        return question.described("zero", says, way=_way_back(question), remedy=("Look at the loss: it is constant.",))
    op = found[0].nodes[node].op
    place = trace.location(found[0].nodes[node].location)
    norm = scientific(found[0].frames[-1].norms[node])
    says = f"{head} because {op}{place_words(place)} got a gradient of norm {norm} and passed on nothing but zeros"
    why = _ZEROS.get(op, "")
    described = [one for one in _findings(question) if one.code == "TM405" and question.name in one.message]
    return question.described(
        "zero", f"{says}: {why}." if why else f"{says}.", location=place, way=_way_back(question, (node,)),
        evidence=tuple(one.message for one in described[:1]), remedy=tuple(one.remedy for one in described[:1]),
    )  # fmt: skip


def _makes_zero(graph: Graph, leaf: int) -> int | None:
    """Return the node on the way to a leaf that got a gradient and sent on zeros, the one nearest to the loss."""
    if not graph.frames:
        return None
    norms, feeders = graph.frames[-1].norms, dict[int, list[int]]()
    for edge in graph.edges:
        feeders.setdefault(edge.target, []).append(edge.source)
    waiting, seen, found = [leaf], {leaf}, list[int]()
    for at in waiting:  # grows while it is walked
        if norms[at] == 0:
            found += [feeder for feeder in feeders.get(at, ()) if norms[feeder] > 0]
            above = [feeder for feeder in feeders.get(at, ()) if feeder not in seen]
            seen.update(above)
            waiting += above
    return max(found, default=None)


def scaled(question: Question) -> WhyReport | None:
    """A ``GradScaler``'s factor is still in it."""
    facts, found = question.facts, question.graph
    if facts.scale == 1 or found is None or not question.close(facts.norm, question.last):
        return None
    if not any(found[0].nodes[root].op == "mul" for root in found[0].roots):
        return None
    says = f"{question.grad} is {facts.scale:g} times the gradient of the loss: the GradScaler's scale is still in it."
    remedy = ("scaler.unscale_(optimizer)  # before you look at gradients or clip them",)
    return question.described("scaled", says, evidence=(_norm_words(question),), remedy=remedy, way=_way_back(question))


def accumulated(question: Question) -> WhyReport | None:
    """It is more than what the last pass brought."""
    facts, norms, series = question.facts, question.norms, question.series
    last = question.last
    if facts.norm is None or series is None or not last or not facts.norm > last * 1.01:
        return None
    times = facts.norm / last
    equal = len(norms) > 1 and question.close(max(norms), min(norms))
    if equal and abs(times - round(times)) < 1e-3 * times:
        says = f"{question.grad} is {round(times)} times what one pass gives: backward ran {round(times)} times, and "
        says += "nothing cleared it in between."
    else:
        says = (
            f"{question.grad} holds the sum of several passes (norm {scientific(facts.norm)}; the last one alone gave "
        )
        says += f"{scientific(last)}): it was not zeroed in between."
    remedy = ("optimizer.zero_grad()  # before each backward, unless gradients are to be added up",)
    return question.described(
        "accumulated", says, evidence=(_passes(question), SINCE), remedy=remedy, way=_way_back(question)
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
        return question.described("fine", says, evidence=(_norm_words(question),), way=_way_back(question))
    says = f"{question.grad} is {share}: something scaled it down afterwards, such as `clip_grad_norm_`."
    return question.described(
        "scaled down", says, evidence=(_norm_words(question), _passes(question), SINCE), way=_way_back(question)
    )


def fine(question: Question) -> WhyReport:
    """Nothing is wrong with it."""
    facts, last = question.facts, question.last
    head = f"{question.grad} is fine"
    same = last is not None and question.close(facts.norm, last)
    brought = f"its norm is {scientific(last or 0.0)}, from the last pass" if same else _norm_words(question).strip(".")
    zeros = f"{plural(facts.zero, 'element')} of {facts.numel} are exactly zero." if facts.zero else ""
    few = facts.numel and facts.zero / facts.numel < MOSTLY
    evidence = (_passes(question), zeros if not few else "")
    return question.described("fine", f"{head}: {brought}.", evidence=evidence, way=_way_back(question))


def _norm_words(question: Question) -> str:
    norm = question.facts.norm
    return f"its norm is {scientific(norm)}." if norm is not None else "its norm could not be read."


def _passes(question: Question) -> str:
    """Return what the passes brought, the last few."""
    norms, series = question.norms, question.series
    if series is None or len(norms) < 2:
        return ""
    shown = ", ".join(map(scientific, norms[-5:]))
    return f"{plural(series.touched, 'pass', 'passes')} gave it a gradient; norms of the last: {shown}."


def _findings(question: Question) -> Sequence:  # type: ignore[type-arg]
    return question.trace.findings if question.trace is not None and question.is_seen else ()


def _way_back(question: Question, bad: Sequence[int] = ()) -> tuple[WayStep, ...]:
    if question.trace is None or question.graph is None:
        return ()
    return traced_way(question.trace, *question.graph, bad)
