"""TM303, TM306: the gradient's way ends before something that should learn, or before backward has begun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tensormagic.diagnoses.lines import (
    SIGNS,
    UPDATE_IN_PLACE,
    assigned,
    call_on,
    spliced,
    statement_of,
    text_of,
    under_no_grad,
    update_by_hand,
    with_create_graph,
)
from tensormagic.diagnoses.paths import cuts_in, neighbours
from tensormagic.diagnoses.rule import (
    FEWEST_STEPS,
    held_by,
    is_idle,
    kept_by,
    optimizers_of,
    passes_words,
    related_lines,
    shortest,
    to_freeze,
    whole_training,
)
from tensormagic.reports import (
    Cut,
    Finding,
    LeftOut,
    Location,
    OptimizerUse,
    TraceReport,
)
from tensormagic.reports.graph import EXPLICIT_CUTS
from tensormagic.words import count, listed, part_of, plural

# What ends a gradient's way, in words, and what to write instead: by kind of cut, as one readable table.

_BLOCKS = {"no_grad": "torch.no_grad()", "inference_mode": "torch.inference_mode()"}
_CHECKPOINT = "checkpoint(…, use_reentrant=True)"
_FREE = frozenset({"float", "int", "index", "complex", "tensor", "as_tensor", "asarray", "torch.autograd.grad"})

_BY_KIND = {
    "detach": "use the value itself",
    "data": "use the tensor itself: `.data` has no history",
    "no_grad": "move this out of the `torch.no_grad()` block, or remove the decorator",
    "inference_mode": "move this out of the `torch.inference_mode()` block, or remove the decorator",
    "item": "keep the tensor and calculate with it: a Python number has no history",
    "numpy": "stay in torch: NumPy arrays have no history, and most NumPy functions have one of the same name in torch",
    "copy": "use the value itself, or `torch.stack([...])` for a list of tensors: `{op}(...)` copies values "
    "without their history",
    "cast": "keep it floating-point: integers and booleans have no gradient",
    "non-differentiable": "replace it with something differentiable",
    "grad": "pass `create_graph=True`: without it what comes out has no history",
}
_BY_OP = {
    "checkpoint": "pass `use_reentrant=False`: the re-entrant one records nothing if no input asks for a gradient",
    "state_dict": "take the parameters themselves, from `named_parameters()`: `state_dict()` detaches them",
    "argmax": "argmax is not differentiable: use `F.softmax(x, dim)`, or `F.gumbel_softmax(x, hard=True)` for a hard "
    "choice",
    "argmin": "argmin is not differentiable: use `F.softmin(x, dim)`",
    "multinomial": "sampling is not differentiable: use `dist.log_prob(sample)` in the loss, or `F.gumbel_softmax`",
    "argsort": "an order is not differentiable: `torch.sigmoid(k * (x.unsqueeze(-1) - x.unsqueeze(-2))).sum(-1)` is a "
    "soft rank",
    **dict.fromkeys(("eq", "ne"), "whether two are equal is not differentiable: use a distance, `(x - y).abs()`"),
    **dict.fromkeys(
        ("gt", "lt", "ge", "le"),
        "a comparison is not differentiable: use `torch.sigmoid(k * (x - threshold))`, or `x + (hard - x).detach()`",
    ),
}


_CONTINUOUS = re.compile(r"\b(?:Normal|MultivariateNormal|LogNormal|Uniform|Laplace|Beta|Gamma|Dirichlet|Cauchy)\(")
_DISCRETE = re.compile(r"\b(?:Categorical|OneHotCategorical|Bernoulli|Binomial|Multinomial|Poisson|Geometric)\(")
_ACCURACY = {
    **dict.fromkeys(("argmax", "max"), "`F.cross_entropy(scores, classes)`"),
    **dict.fromkeys(("gt", "lt", "ge", "le"), "`F.binary_cross_entropy_with_logits(scores, targets)`"),
    **dict.fromkeys(("eq", "ne"), "`F.cross_entropy(scores, classes)`"),
}  # by what was called, for a loss that counts hits or mistakes
_SWITCH = re.compile(r"(?:torch\.)?set_grad_enabled\((?:[^()]|\([^()]*\))*\)")
_DRAWN = re.compile(r"\.sample(?:_n)?\(")


def is_drawn(cut: Cut, place: Location | None) -> bool:
    """Return whether a distribution drew what has no history: torch draws under ``no_grad``, and nobody wrote that."""
    line = text_of(place)
    return cut.kind == "no_grad" and _DRAWN.search(line) is not None and not line.startswith(("with ", "@"))


def _switch(cut: Cut, place: Location | None) -> str:
    """Return the call that switched gradients off, as it is written; empty where it was another."""
    found = _SWITCH.search(text_of(place)) if cut.kind == "no_grad" else None
    return f"torch.{found[0].removeprefix('torch.')}" if found is not None else ""


def call_words(cut: Cut, place: Location | None = None) -> str:
    """Return what ended the way at a place as a user would write it: ``.detach()``, ``torch.no_grad()``, ``argmax``."""
    if is_drawn(cut, place):
        return "`.sample()`"
    if cut.kind in _BLOCKS:
        return f"`{_CHECKPOINT if cut.op == 'checkpoint' else _switch(cut, place) or _BLOCKS[cut.kind]}`"
    return f"`{_call(cut)}`"


def _call(cut: Cut) -> str:
    if cut.kind == "data":
        return ".data"
    if sign := SIGNS.get(cut.op.strip("_").removeprefix("r")):  # ``__rfloordiv__`` has that of ``floor_divide``
        return sign
    if cut.op in _FREE:
        return f"{'torch.' if cut.kind == 'copy' else ''}{cut.op}(...)"
    return cut.op if cut.kind == "frozen" else f".{cut.op}()"


def instead_of_cut(report: TraceReport, cut: Cut, *, starts: bool = False) -> str:
    """Return what to write instead of a cut, beginning with a small letter; the mended line where that is plain.

    Where backward ``starts`` from what came out, it is the loss itself that counts or chooses.
    """
    place, made = report.location(cut.location), report.location(cut.source_location)
    text = text_of(place)
    op = cut.op.strip("_")  # ``==`` is ``__eq__``
    if starts and op in _ACCURACY:
        return f"compute a loss from the scores themselves, {_ACCURACY[op]}: an accuracy has no gradient"
    if is_drawn(cut, place):
        return _instead_of_a_sample(text)
    if switch := _switch(cut, place):
        switched_on = "switch gradients on again before it: `torch.set_grad_enabled(True)`"
        return f"move this out of the `{switch}` block" if text.startswith("with ") else switched_on
    mended = _mended(cut, text, made)
    if statement_of(mended) is not None:
        target, _, value = mended.partition("=")
        joined = ", and join what is appended with `torch.stack`" if ".append(" in mended else ""
        copies = ", which copies values without their history" if cut.kind == "copy" else ""
        left_out = f"leave out {call_words(cut, place)}{copies}: `{mended}`{joined}"
        return "remove this line" if target.strip() == value.strip() else left_out
    if cut.kind == "grad" and (mended := with_create_graph(text)):
        return f"pass `create_graph=True`: `{mended}`"
    found = _BY_OP.get(op) or _BY_KIND.get(cut.kind, "")
    return found.replace("{op}", f"torch.{cut.op}")


def _instead_of_a_sample(line: str) -> str:
    through = "use `.rsample()`: no gradient flows through `.sample()`"
    chosen = "use `dist.log_prob(sample)` in the loss"
    if _DISCRETE.search(line):
        return f"{chosen}: no gradient flows through `.sample()`, and what is discrete has no `.rsample()`"
    return through if _CONTINUOUS.search(line) else f"{through}; for a discrete distribution {chosen}"


def _mended(cut: Cut, text: str, made: Location | None) -> str:
    """Return a line without what ends the way; empty where that is not a call that can be left out.

    Under a name, `torch.tensor` may have been given a tensor, or a list: the line where it was ``made`` tells.
    """
    if cut.kind in {"item", "copy"}:
        call = call_on(text, "tensor")
        if call is not None and len(call.args) == 1 and ast.unparse(call.func) == "torch.tensor":
            value, stacks = ast.unparse(call.args[0]), isinstance(call.args[0], ast.List | ast.ListComp)
            if isinstance(call.args[0], ast.Name) and value != cut.source_name and value not in assigned(made):
                if f"{value}.append(" not in text_of(made):
                    return ""
                stacks = True
            text = spliced(text, call, f"torch.stack({value})" if stacks else value)
            if cut.kind == "copy":
                return text
    mended = text
    if cut.kind == "data":
        mended = re.sub(r"\.data\b(?!\()", "", text)
    elif cut.kind == cut.op and cut.kind in {"detach", "item"}:
        mended = text.replace(f".{cut.kind}()", "")
    return mended if mended != text else ""


# Most cuts are meant: a target network, an advantage, a straight-through estimator, a hidden state that is carried
# over. What decides is whether something that asks for a gradient gets none in the whole run because of the cut, and
# whether it belongs to what is trained here: an optimizer that made a step holds it, or, where none made one, others
# of its model got a gradient. What something else writes to (a moving average) is kept up in another way.

UNRECORDED = frozenset({"no_grad", "inference_mode"})
_PLAIN = UNRECORDED | {"data", "detach"}


@dataclass(slots=True)
class _Place:
    """One place of the source that cuts, all its cuts taken together."""

    cut: Cut  # The first of them.
    used: Location | None = None  # Line that used what came out; None where not known.
    at: tuple[int, int] | None = None  # Graph and node that used it.
    is_root: bool = False  # Whether backward started from what came out: then all behind it was meant to learn.
    selects: bool = True  # Whether what came out only chose elements.
    left_out: dict[str, LeftOut] = field(default_factory=dict)  # What it left out, by name.
    graphs: set[int] = field(default_factory=set)  # The numbers of the graphs that it is in.


def cut_on_the_way(report: TraceReport) -> Iterator[Finding]:
    """TM303: a cut because of which something that should learn gets no gradient in the whole run."""
    if hides_parameters(report):
        return
    over = report.state != "running"  # the other half of a step, or the optimizer, may still come
    trained = {series.owner for series in report.parameters if over and series.touched and series.owner}
    wrong = (use for use in optimizers_of(report) if holds_a_target(report, use))
    described = {series.name for series in held_by(report, *wrong)}  # as TM604
    for cut, found in _left_behind(report):
        described.update(one.name for one in cut.left_out)
        yield found
    for place in sorted(_places(report), key=lambda place: not _is_stepped(report, place)):
        wanted = (one for one in place.left_out.values() if _is_wanted(one, place, trained))
        missing = _in_order(report, (one for one in wanted if one.name not in described))
        copied = place.cut.kind in UNRECORDED and not is_drawn(place.cut, report.location(place.cut.location))
        if missing and not (copied and _is_twin(report, missing)):
            described.update(one.name for one in missing)
            yield _finding(report, place, missing)
    yield from _ways_lost(report)


def _left_behind(report: TraceReport) -> Iterator[tuple[Cut, Finding]]:
    """Yield where a name is given to a new tensor, and an optimizer keeps stepping the old one.

    It had gradients until then, and has none any more.
    """
    for use in optimizers_of(report):
        last = next((one for one in use.patterns if one.last == use.steps), None)
        names = {series.name for series in held_by(report, use) if not series.is_parameter}
        if last is None or last.kind != "idle" or last.longest < FEWEST_STEPS:
            continue
        for _, cut in cuts_in(report):
            called = report.location(cut.call_location)
            made = called or report.location(cut.location)
            update = update_by_hand(text_of(made), of_leaf=True)
            theirs = cut.source_name in names or any(one.held and not one.is_parameter for one in cut.left_out)
            if update is None or cut.target is None or not theirs:
                continue
            yield (
                cut,
                Finding(
                    code="TM303",
                    severity="warning",
                    message=f"{update.name} is a new tensor from here on: {use.name} keeps stepping the old one, "
                    f"which had no gradient in the last {count(last.longest)} of its {plural(use.steps, 'step')}.",
                    location=made,
                    evidence={"steps": use.steps, "without a gradient": last.longest},
                    remedy=UPDATE_IN_PLACE.format(update.in_place if called else under_no_grad(update.in_place)),
                    subject=update.name,
                    related=related_lines(("steps the old one", report.location(last.location))),
                ),
            )


def _is_stepped(report: TraceReport, place: _Place) -> bool:
    """Return whether an optimizer of what a place left out steps after a backward through it."""
    lines = {done.location for done in report.passes if done.graph in place.graphs}
    return any(
        not lines.isdisjoint(pattern.backward for pattern in use.patterns)
        and not place.left_out.keys().isdisjoint(report.parameters[number].name for number in use.holds)
        for use in optimizers_of(report)
    )


def _ways_lost(report: TraceReport) -> Iterator[Finding]:
    """Yield where all that a model makes ends in a cut, and nothing is known of what comes out: NumPy has it, say.

    Where a cut value goes on outside torch nobody sees which node uses it. What is certain is that an optimizer made
    steps with the model, that nothing of the model ever got a gradient, and that the way of its values ended here.
    """
    if not _is_whole(report):
        return
    described = {name for place in _places(report) for name in place.left_out}
    learn = {series.owner for series in report.parameters if series.touched} | {""}
    for _, cut in cuts_in(report):
        every = (one for one in cut.left_out if one.held and not one.written)
        held = (one for one in every if cut.outside or one.owner not in learn)
        lost = _in_order(report, (one for one in held if one.name not in described))
        if cut.target is None and cut.kind in EXPLICIT_CUTS and lost:
            described.update(one.name for one in lost)
            yield _lost(report, cut, lost)


def holds_a_target(report: TraceReport, use: OptimizerUse) -> bool:
    """Return whether an optimizer holds a model whose values are compared with, as a teacher's, and another one learns.

    That one gets a gradient in every pass, no optimizer holds it, and no step of any changes anything.
    """
    training, held = whole_training(report), [series for series in kept_by(report, use) if series.requires_grad]
    if training is None or use.unknown_parameters or use.steps < FEWEST_STEPS or training.by_hand:
        return False
    names, owners = {series.name for series in held}, {series.owner for series in held}
    trained = {series.name for series in kept_by(report, *training.optimizers)}
    every = report.passes_traced
    return (
        any(one.owner and one.touched == every and one.name not in trained for one in report.parameters)
        and "" not in owners
        and not any(series.touched for series in held)
        and all(map(is_idle, training.optimizers))
        and all(_compares(report, place) for place in _places(report) if names & place.left_out.keys())
    )


def _compares(report: TraceReport, place: _Place) -> bool:
    """Return whether what came out meets what another network made, and is not its input."""
    if place.at is None:
        return False
    graph = report.graphs[place.at[0]]
    met = [graph.nodes[at] for at in neighbours(graph)[1].get(place.at[1], ())]
    return bool(met) and not any(node.kind == "accumulate" or node.op == "t" for node in met)


def _in_order(report: TraceReport, left_out: Iterable[LeftOut]) -> list[LeftOut]:
    """Return what was left out in the order of the run's parameters."""
    order = {series.name: at for at, series in enumerate(report.parameters)}
    return sorted(left_out, key=lambda one: order.get(one.name, len(order)))


def _lost(report: TraceReport, cut: Cut, lost: Sequence[LeftOut]) -> Finding:
    found = _finding(report, _Place(cut), lost)
    who = shortest([one.name for one in lost], [series.name for series in report.parameters])
    verb, it, makes = ("gets", "it", "it makes") if len(who) == 1 else ("get", "them", "they make")
    place = report.location(cut.location)
    cut = replace(cut, kind="numpy", op="numpy") if ".numpy()" in text_of(place) else cut
    where = f"the gradient of what {makes} is cut at {call_words(cut, place)}"
    if cut.outside:
        where = f"in forward, its values leave torch at {call_words(cut, place)}, and no gradient comes back from there"
        where = where if len(who) == 1 else where.replace("its values", "their values")
    return replace(
        found,
        message=f"{listed(who)} {verb} no gradient in {passes_words(report)}, although an optimizer holds {it}: "
        f"{where}.",
        remedy=_remedy(report, _Place(cut), lost, who),
    )


def hides_parameters(report: TraceReport) -> bool:
    """Return whether parameters may have got a gradient that nobody saw.

    Re-entrant checkpointing hides its parameters from the graph of the loss: where no pass inside another was followed,
    nothing can be said.
    """
    if report.inner_passes_seen:
        return False
    return any(node.name.startswith("CheckpointFunction") for graph in report.graphs for node in graph.nodes)


def names_left_out(report: TraceReport) -> set[str]:
    """Return what lies behind a cut without which it could have got a gradient, whether or not that is meant."""
    outside = (cut for _, cut in cuts_in(report) if cut.outside and _is_whole(report))
    lost = {one.name for cut in outside for one in cut.left_out if one.held and not one.written}
    return {name for place in _places(report) for name in place.left_out} | lost


def _is_whole(report: TraceReport) -> bool:
    return report.state != "running" and report.passes_traced == report.passes_seen


def read_only_cut(report: TraceReport, names: Iterable[str]) -> Cut | None:
    """Return a cut that ended the way of what one of the parameters made, though nothing used what came out."""
    wanted = set(names)
    cuts = (cut for _, cut in cuts_in(report) if cut.target is None)
    return next((cut for cut in cuts if wanted & {one.name for one in cut.left_out}), None)


def _places(report: TraceReport) -> list[_Place]:
    """Return the places that cut ways a gradient would have taken, as far as something behind them got none."""
    found: dict[tuple[str, str, int | None], _Place] = {}
    stalled = _stalled(report)
    for cut, used, at, is_root in _cuts_with_users(report):
        place = found.setdefault((cut.kind, cut.op, cut.location), _Place(cut, used, at))
        place.is_root |= is_root
        place.selects &= cut.selects
        place.left_out.update((one.name, one) for one in cut.left_out)
        if cut.kind in _PLAIN and cut.source_name in stalled:
            place.left_out[cut.source_name] = stalled[cut.source_name]
        place.graphs.update(() if at is None else (report.graphs[at[0]].number,))
    return [place for place in found.values() if place.left_out]


def _stalled(report: TraceReport) -> dict[str, LeftOut]:
    """Return what optimizers step that had no gradient at any step, by name.

    A graph may lead there all the same: what `autograd.grad` returns is no ``.grad``.
    """
    idle = (use for use in optimizers_of(report) if use.steps >= FEWEST_STEPS and not use.outlived)
    uses = [use for use in idle if all(pattern.kind == "idle" for pattern in use.patterns)]
    return {
        one.name: LeftOut(
            name=one.name, owner=one.owner, shape=one.shape, is_parameter=one.is_parameter, held=True,
            written=one.replaced,
        )
        for one in held_by(report, *uses) if one.requires_grad
    }  # fmt: skip


def _cuts_with_users(report: TraceReport) -> Iterator[tuple[Cut, Location | None, tuple[int, int] | None, bool]]:
    """Yield each cut that feeds a node, the line and the place of the node, and whether backward started there."""
    for place, graph in enumerate(report.graphs):
        for cut in graph.cuts:
            if cut.target is not None:
                node = graph.nodes[cut.target]
                is_root = node.kind == "accumulate" and node.index in graph.roots
                yield cut, report.location(node.location), (place, cut.target), is_root
    refused = {one.cut for one in report.losses_without_graph}
    yield from ((cut, None, None, True) for at, cut in enumerate(report.cuts) if at not in refused)


def _is_wanted(one: LeftOut, place: _Place, trained: set[str]) -> bool:
    """Return whether something is meant to learn here, as far as the run shows."""
    if one.written:
        return False
    if one.held is not None:
        return one.held
    return place.is_root or not one.is_parameter or one.owner in trained


def _is_twin(report: TraceReport, missing: Sequence[LeftOut]) -> bool:
    """Return whether a module with parameters of the same names and shapes is trained beside: then it is a target."""
    shapes = {series.name: series.shape for series in report.parameters if series.touched}
    first = missing[0].name
    inside = (first[at + 1 :] for at, letter in enumerate(first) if letter == ".")
    for suffix in inside:
        prefix = first.removesuffix(suffix)
        tails = [(one.name.removeprefix(prefix), one.shape) for one in missing if one.name.startswith(prefix)]
        others = (name.removesuffix(suffix) for name in shapes if name.endswith(f".{suffix}"))
        if len(tails) == len(missing) and any(
            all(shapes.get(other + tail) == shape for tail, shape in tails) for other in others
        ):
            return True
    return False


def _finding(report: TraceReport, place: _Place, missing: Sequence[LeftOut]) -> Finding:
    where, made = report.location(place.cut.location), report.location(place.cut.source_location)
    names = [one.name for one in missing]
    who = shortest(names, [series.name for series in report.parameters])
    asked = missing[0].held is not None and not place.cut.by_library  # a library keeps its own teacher from learning
    meant = place.cut.kind in UNRECORDED and not asked and not place.is_root
    return Finding(
        code="TM303",
        severity="note" if meant else "warning",
        message=_message(report, place, missing, who),
        location=where,
        evidence={one.name: prod(one.shape) for one in missing[:8]},
        remedy=_remedy(report, place, missing, who),
        subject=names[0],
        node=place.at,
        related=related_lines(
            ("made here", made), ("used here", place.used if place.used != made else None), besides=where
        ),
    )


def _message(report: TraceReport, place: _Place, missing: Sequence[LeftOut], who: Sequence[str]) -> str:
    verb, it = ("gets", "it") if len(who) == 1 else ("get", "them")
    what = f"cuts {it} off from the loss"
    if place.is_root:
        what = "made the tensor that backward starts from, without a graph"
    elif place.selects:
        what = "only chooses elements with it, and a choice is not differentiable"
    elif place.cut.kind in UNRECORDED:
        what = f"keeps what {'it computes' if len(who) == 1 else 'they compute'} from being recorded"
    passes, share = passes_words(report), _share(report, missing)
    call = call_words(place.cut, report.location(place.cut.location))
    return f"{listed(who)} {verb} no gradient in {passes}: {call} {what}{share}."


def _share(report: TraceReport, missing: Sequence[LeftOut]) -> str:
    owners = {one.owner for one in missing}
    owner = next(iter(owners))
    of = sum(series.owner == owner for series in report.parameters) if owner and len(owners) == 1 else 0
    return f" ({part_of(len(missing), of, 'parameter')} of {owner})" if of > 1 else ""


def _remedy(report: TraceReport, place: _Place, missing: Sequence[LeftOut], who: Sequence[str]) -> str:
    cut, where = place.cut, report.location(place.cut.location)
    mend = instead_of_cut(report, cut, starts=place.is_root)
    name, is_bound, _ = text_of(where).partition("=")
    same = (cut.kind, cut.op, cut.location)
    losses = sum(any((one.kind, one.op, one.location) == same for one in graph.cuts) for graph in report.graphs)
    if cut.kind == "detach" and mend and is_bound and losses > 1:
        # one network's loss is to pass, the other's is not
        mend = f"leave out `.detach()` here, and detach for the other loss alone: `{name.strip()}.detach()`"
    described = f"If {'it' if len(who) == 1 else 'they'} should learn, {mend}." if mend else ""
    if not missing[0].is_parameter:
        return described
    return f"{described} {to_freeze(who)}".strip()
