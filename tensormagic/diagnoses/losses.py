"""TM313, TM314, TM317, TM606: terms and targets of a loss, and models in the wrong mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tensormagic.diagnoses.graph_cuts import call_words, instead_of_cut, is_drawn
from tensormagic.diagnoses.lines import call_on, names_in, of_model, operand_of, statement_of, text_of
from tensormagic.diagnoses.paths import cuts_in, neighbours, reached, users_of
from tensormagic.diagnoses.rule import IN_A_ROW, held_by, in_steps, observed, optimizers_of, related_lines, training_of
from tensormagic.diagnoses.zero_gradients import COMPARING, FLAT
from tensormagic.reports import (
    Cut,
    Finding,
    Graph,
    Location,
    ModelMode,
    Observation,
    Severity,
    TraceReport,
    UntrainedNorm,
)
from tensormagic.reports.base import Scalar
from tensormagic.words import capitalised, count, plural

# TM606: a model is trained in the mode that is meant for evaluation, or evaluated in that meant for training.

FEWEST_BATCHES = 3  # in a row: samples that are drawn now and then, and pairs of views, are fewer


def wrong_mode(report: TraceReport) -> Iterator[Finding]:
    """TM606: trained in the mode for evaluation, or evaluated in the mode for training."""
    # A model that is in train mode itself, and of which parts are in eval mode, is left alone: that is how a backbone
    # or its normalisations are frozen. The whole model in eval mode from the first step on, with statistics that an
    # earlier training has left, or with a part of each layer frozen, may be meant so: a note.
    for mode in training_of(report).modes:
        if mode.longest >= IN_A_ROW:
            always = mode.eval_steps == mode.steps
            series = [one for one in report.parameters if one.owner == mode.model]
            frozen = {one.name.rpartition(".")[0] for one in series if not one.requires_grad}
            partly = bool(frozen) and frozen >= {one.name.rpartition(".")[0] for one in series if one.touched}
            kept = mode.norms > mode.unused_norms or partly
            when = in_steps(mode.eval_steps, mode.steps) + ("" if always else f", from step {count(mode.first)} on")
            own = (use for use in optimizers_of(report) if mode.model in {one.owner for one in held_by(report, use)})
            pattern = next((next(iter(use.patterns), None) for use in own), None)
            yield Finding(
                code="TM606",
                severity="note" if always and kept else "warning",
                message=f"{mode.model} is trained in eval mode, {when}: {_effect(mode)}.",
                location=report.location(pattern.location) if pattern is not None else None,
                evidence={
                    "steps": mode.steps, "in eval mode": mode.eval_steps, "dropouts": mode.dropouts,
                    "norms": mode.norms,
                },
                remedy="Go back to train mode before training, and after each evaluation: "
                f"`{of_model(mode.model)}.train()`",
                subject=mode.model,
            )  # fmt: skip
    yield from _evaluated_in_train_mode(report)


def _effect(mode: ModelMode) -> str:
    described = []
    if mode.dropouts:
        described.append(f"{plural(mode.dropouts, 'dropout does', 'dropouts do')} nothing")
    if mode.norms:
        norms = plural(mode.norms, "batch normalisation uses", "batch normalisations use")
        fresh = ", which have never seen a batch" if mode.unused_norms == mode.norms else ""
        described.append(f"{norms} running statistics instead of the batch{fresh}")
    return ", and ".join(described)


def _evaluated_in_train_mode(report: TraceReport) -> Iterator[Finding]:
    """Yield the trained models whose batch normalisations take statistics from batches that are only looked at.

    Left alone is what a training uses: targets, teachers, samples of a generator. Its values come back as a cut in the
    graph of a backward; an evaluation's do not.
    """
    training = training_of(report)
    trained = {series.owner for series in held_by(report, *training.optimizers)}
    used = {cut.location for _, cut in cuts_in(report) if cut.target is not None}
    found: dict[tuple[str, int | None], list[UntrainedNorm]] = {}
    for norm in training.norms:
        owner = next((name for name in trained if name and f"{norm.module}.".startswith(f"{name}.")), "")
        if owner and norm.longest >= FEWEST_BATCHES and norm.location not in used:
            found.setdefault((owner, norm.location), []).append(norm)
    for (owner, line), norms in found.items():
        code, batches = of_model(owner), max(norm.batches for norm in norms)
        yield Finding(
            code="TM606",
            severity="warning",
            message=f"{owner} is evaluated in train mode: with gradients off, "
            f"{plural(len(norms), 'batch normalisation')} took statistics from {plural(batches, 'batch', 'batches')} "
            "that nothing was learned from.",
            location=report.location(line),
            evidence={"norms": len(norms), "batches": batches, "in a row": max(norm.longest for norm in norms)},
            remedy=f"Switch the mode for the evaluation: `{code}.eval()` before it, `{code}.train()` after it.",
            subject=owner,
        )


# TM313: a term of a loss without a graph, beside others that have one.

_JOINING = frozenset({"add", "sub", "rsub"})


def terms_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM313: a number that came out of parameters is added to a loss without its history: a note, for it may be meant.

    What the cut leaves without any gradient is reported as TM303; here all parameters learn, though not from this term,
    or it came out of a network that no optimizer holds.
    """
    handled: set[tuple[int | None, int | None]] = set()
    for graph in report.graphs:
        # Sums and differences of numbers from which backward starts, or that lead there over numbers alone.
        numbers = _sums(graph, partial(_is_number, graph))
        for cut in graph.cuts:
            where = (cut.location, graph.nodes[cut.target].location if cut.target is not None else None)
            learned = any(one.held is not False for one in cut.left_out)
            if where in handled or cut.kind == "grad" or (cut.by_library and cut.kind == "non-differentiable"):
                continue
            if cut.kind == "item" and cut.target is None and not learned:
                cut = _with_its_sum(report, graph, cut, numbers)  # noqa: PLW2901  (the same, and where it goes)
            is_term = cut.target in numbers and not (learned or cut.earlier or cut.selects)
            if is_term and not _is_constant_part(graph, cut, numbers):
                handled.add(where)
                yield _term(report, graph, cut)
            elif _is_sampled_past(report, graph, cut):
                handled.add(where)
                assert cut.target is not None
                assert cut.source is not None
                source, here = graph.nodes[cut.source], report.location(cut.location)
                yield _sample(
                    source.variable or source.module or cut.source_name,
                    f"{call_words(cut, here)} cuts it off",
                    f"{instead_of_cut(report, cut)}.",
                    lines=(here, report.location(graph.nodes[cut.target].location)),
                    evidence={"kind": cut.kind, "times": cut.count},
                )
        yield from _drawn_without_slope(report, graph)


def _is_constant_part(graph: Graph, cut: Cut, numbers: set[int]) -> bool:
    """Return whether what was cut off meets parameters, too: an energy at a state has terms of the state alone."""
    where = cut.kind, cut.location, cut.source_location, cut.source_name
    same = (one for one in graph.cuts if (one.kind, one.location, one.source_location, one.source_name) == where)
    return any(one.target is not None and one.target not in numbers for one in same)


def _with_its_sum(report: TraceReport, graph: Graph, cut: Cut, numbers: set[int]) -> Cut:
    """Return a cut of a Python number with the sum that it is a term of, and what it was read from, by the source.

    Python calculates with it: ``10 * penalty.item()`` is another number. The node has one operand with a history, and
    the other side of the line's sum is made of nothing but numbers.
    """
    here = report.location(cut.location)
    read = call_on(text_of(here), "item", "float")
    statement = statement_of(text_of(here))
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    bound = target.id if isinstance(target, ast.Name) else ""
    made = {node.variable for node in graph.nodes} | {""}
    for at in sorted(numbers):
        line = report.location(graph.nodes[at].location)
        if read is None or line is None or sum(edge.source == at for edge in graph.edges) != 1:
            continue
        for side in _terms(line.text):
            names = {node.id for node in ast.walk(side) if isinstance(node, ast.Name)}
            term = ast.unparse(read) in ast.unparse(side) if line == here else bound in names
            plain = ast.unparse(side).replace(ast.unparse(read), "0")
            if term and not made & names_in(plain) and "(" not in plain:
                source = operand_of(read, "item") or next(iter(read.args), read)
                return replace(cut, target=at, source_name=ast.unparse(source))
    return cut


def _terms(line: str) -> list[ast.expr]:
    """Return the terms of the sum that a line computes; none of any other line."""
    statement = statement_of(line)
    value = getattr(statement, "value", None)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value  # ``(a + b).backward()``
    terms, pending = list[ast.expr](), [value]
    while pending:
        match pending.pop():
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                pending += left, right
            case ast.expr() as term:
                terms.append(term)
    return terms if len(terms) > 1 or isinstance(statement, ast.AugAssign) else []


def _is_sampled_past(report: TraceReport, graph: Graph, cut: Cut) -> bool:
    """Return whether what was drawn from a computed distribution goes on, and its parameters learn in other ways alone.

    A choice whose probability is in the loss does not lack a way: what uses it leads back to its parameters as well.
    """
    place = report.location(cut.location)
    if cut.target is None or cut.source is None or cut.left_out or not is_drawn(cut, place):
        return False
    used = report.location(graph.nodes[cut.target].location)
    if used is not None and re.search(r"\b(log_prob|entropy|kl_divergence)\(", used.text):
        return False
    return cut.source not in reached(neighbours(graph)[1], [cut.target])


def _drawn_without_slope(report: TraceReport, graph: Graph) -> Iterator[Finding]:
    """torch.normal passes zeros on. Where nothing else learns either, that is TM405."""
    drawn = FLAT["normal"]
    learning = {series.name for series in report.parameters if any(norm > 0 for norm in series.norms)}
    for node in graph.nodes:
        if node.op != "normal":
            continue
        users = [user.index for user in users_of(graph, node.index)]
        below = neighbours(graph)[1]
        leaves = _leaves(graph, reached(below, [node.index]))
        around = reached(below, users, {one.index for one in graph.nodes if one is not node}.__contains__)
        if not leaves & learning or leaves & _leaves(graph, around):
            continue  # what the sample meets depends on the distribution as well: its log-probability
        here = report.location(node.location)
        call = call_on(text_of(here), "normal")
        keywords = [one.value for one in call.keywords if one.arg in {"mean", "std"}] if call is not None else []
        given = [*call.args, *keywords] if call is not None else []
        name = next((ast.unparse(one) for one in given if not isinstance(one, ast.Constant)), "")
        used = report.location(graph.nodes[users[0]].location) if users else None
        remedy = f"{drawn.remedy[0].lower()}{drawn.remedy[1:]}"
        yield _sample(name, drawn.why, remedy, lines=(here, used), evidence={"op": node.op})


_Lines = tuple[Location | None, Location | None]  # where a sample is drawn, and where it is used


def _sample(name: str, why: str, remedy: str, *, lines: _Lines, evidence: dict[str, Scalar]) -> Finding:
    here, used = lines
    return Finding(
        code="TM313",
        severity="note",
        message=f"No gradient reaches `{name or 'the parameters'}` through this sample: {why}, so the distribution "
        "learns from other terms of the loss alone.",
        location=here or used,
        evidence=evidence,
        remedy=f"If it should learn from its samples, {remedy}",
        subject=name,
        related=related_lines(("used here", used), besides=here),
    )


def _leaves(graph: Graph, nodes: set[int]) -> set[str]:
    return {node.variable for node in graph.nodes if node.index in nodes and node.kind == "accumulate"}


def _is_number(graph: Graph, at: int) -> bool:
    node = graph.nodes[at]
    return node.kind == "op" and bool(node.shapes) and all(shape in {(), (1,)} for shape in node.shapes)


def _term(report: TraceReport, graph: Graph, cut: Cut) -> Finding:
    assert cut.target is not None
    here, joined = report.location(cut.location), report.location(graph.nodes[cut.target].location)
    what = cut.source_name or "a value"
    mend = instead_of_cut(report, cut)
    keep = "keep its history: leave out what ends it"
    if cut.left_out:
        keep = "compute it from the outputs of the network that is trained"
    elif "`.rsample()`" in mend or mend.startswith(("leave out `", "take the parameters")):
        keep = mend
    return Finding(
        code="TM313",
        severity="note",
        message=f"A term of the loss trains nothing: {call_words(cut, here)} cuts it off from `{what}`, so it changes "
        "the value of the loss and no gradient.",
        location=here or joined,
        evidence={"kind": cut.kind, "times": cut.count},
        remedy=f"To learn from it, {keep}. To see its value only, add it after the backward.",
        subject=cut.source_name,
        related=related_lines(("added here", joined), besides=here),
    )


# TM317: a penalty of gradients that keep no graph.

_AVERAGING = _JOINING | {"mul", "div", "neg", "mean", "sum", "squeeze", "view", "reshape", "unsqueeze", "clone"}


_MEASURING = frozenset({"pow", "square", "abs", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})  # a residual


def penalties_without_graph(report: TraceReport) -> Iterator[Finding]:
    """TM317: what ``autograd.grad`` returned without a graph is a term of a loss, or a part of a residual in it."""
    handled: set[int | None] = set()
    for graph in report.graphs:
        if not any(cut.kind == "grad" for cut in graph.cuts):
            continue
        averaging = {node.index for node in graph.nodes if node.op in _AVERAGING}
        measuring = averaging | {node.index for node in graph.nodes if node.op in _MEASURING}
        sums = _sums(graph, averaging.__contains__)
        residuals = _sums(graph, measuring.__contains__, COMPARING | _JOINING)
        for cut in graph.cuts:
            learned = any(one.held is not False for one in cut.left_out)
            if cut.kind != "grad" or cut.target is None or cut.location in handled or learned:
                continue
            if cut.target in sums or (cut.target in residuals and _is_residual(report, graph, cut, cut.target)):
                handled.add(cut.location)
                here, joined = report.location(cut.location), report.location(graph.nodes[cut.target].location)
                yield Finding(
                    code="TM317",
                    severity="warning",
                    message="A term of the loss is made of gradients that have no graph, so it trains nothing: "
                    f"{call_words(cut, here)} was called without `create_graph=True`.",
                    location=here or joined,
                    evidence={"times": cut.count},
                    remedy=f"{capitalised(instead_of_cut(report, cut))}.",
                    subject=cut.source_name,
                    related=related_lines(("added here", joined), besides=here),
                )


def _is_residual(report: TraceReport, graph: Graph, cut: Cut, at: int) -> bool:
    """Return whether the gradients that a loss measures are of what it trains, and what they meet is not.

    What they meet depends on nothing that is trained; or on the same parameters as they do, as in an equation that a
    network is to fulfil. Gradients of parameters are steps, or compared with others of their kind: they are left alone.
    """
    trained = {series.name: series.shape for series in held_by(report, *optimizers_of(report))}
    calls = {done.graph for done in report.passes if done.location == cut.location}
    behind = {node.variable for one in report.graphs if one.number in calls for node in one.nodes} & trained.keys()
    around = _leaves(graph, reached(neighbours(graph)[1], [at])) & trained.keys()
    return bool(behind) and cut.shape not in trained.values() and (not around or not behind.isdisjoint(around))


def _sums(graph: Graph, allows: Callable[[int], bool], ops: frozenset[str] = _JOINING) -> set[int]:
    """Return the sums, or other ops, to which backward comes from its root over nodes alone that are allowed."""
    return {at for at in reached(neighbours(graph)[1], graph.roots, allows) if graph.nodes[at].op in ops}


# TM314: an advantage or a target that trains what made it.


def undetached(report: TraceReport) -> Iterator[Finding]:
    """TM314: an advantage or a bootstrapped target with a gradient of its own."""
    for one in observed(report, "advantage"):
        says = "multiplies the log-probability of a policy's choice and has a gradient of its own"
        message = f"{one.operands[0].name or 'the difference'} {says}: the policy's loss trains what made it, too."
        yield _undetached(report, one, "note", message)
    for one in observed(report, "target"):
        says = f"the target of {one.op}, comes out of the network that is trained and has a gradient"
        message = f"{one.operands[0].name or 'it'}, {says}: the loss moves the target towards the prediction as well."
        yield _undetached(report, one, "warning" if one.detail == "best" else "note", message)


def _undetached(report: TraceReport, one: Observation, severity: Severity, says: str) -> Finding:
    here, made = report.location(one.location), report.location(one.made)
    name = one.operands[0].name
    return Finding(
        code="TM314",
        severity=severity,
        message=says,
        location=here,
        evidence={"calls": one.calls, "seen": one.seen},
        remedy=f"Take it as a number: `{name if name.isidentifier() else 'x'}.detach()`, or compute it in "
        "`torch.no_grad()`.",
        subject=name,
        related=related_lines(("made here", made), besides=here),
    )
