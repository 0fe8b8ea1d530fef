"""TM303, TM306: the gradient's way ends where something should learn, or before backward has begun.

Most cuts are meant: a target network, an advantage, a straight-through estimator, a hidden state that is carried over.
What decides is whether something that asks for a gradient gets none in the whole run because of the cut, and whether
it belongs to what is trained here: an optimizer that made a step holds it, or, where none made one, others of its model
got a gradient. What something else writes to (a moving average) is kept up in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tensormagic.diagnoses.cut_remedies import call_words, instead
from tensormagic.diagnoses.parameter_names import passes_words, shortest
from tensormagic.reports import Cut, Finding, LeftOut, Location, RelatedLine, TraceReport
from tensormagic.words import listed, part_of

UNRECORDED = frozenset({"no_grad", "inference_mode"})
_GOES_ON = frozenset({"detach", "data", "item", "numpy", "copy"})  # what comes out may be used where nobody sees it


@dataclass(slots=True)
class _Place:
    """One place of the source that cuts, all its cuts taken together.

    Attributes:
        cut: The first of them.
        used: Line that used what came out; None where not known.
        is_root: Whether backward started from what came out: then all behind it was meant to learn.
        selects: Whether what came out only chose elements.
        behind: What it left out, by name.
    """

    cut: Cut
    used: Location | None = None
    is_root: bool = False
    selects: bool = True
    behind: dict[str, LeftOut] = field(default_factory=dict)


def cut_on_the_way(report: TraceReport) -> Iterator[Finding]:
    """TM303: a cut because of which something that should learn gets no gradient in the whole run."""
    if hides_parameters(report):
        return
    over = report.state != "running"  # the other half of a step, or the optimizer, may still come
    trained = {series.owner for series in report.parameters if over and series.touched and series.owner}
    order = {series.name: at for at, series in enumerate(report.parameters)}
    told: set[str] = set()
    for place in _places(report):
        missing = [one for one in place.behind.values() if one.name not in told and _is_wanted(one, place, trained)]
        missing.sort(key=lambda one: order.get(one.name, len(order)))
        if missing and not (place.cut.kind in UNRECORDED and _is_twin(report, missing)):
            told.update(one.name for one in missing)
            yield _finding(report, place, missing)
    yield from _ways_lost(report)


def _ways_lost(report: TraceReport) -> Iterator[Finding]:
    """Yield where all that a model makes ends in a cut, and nothing is known of what comes out: NumPy has it, say.

    Where a cut value goes on outside torch nobody sees which node uses it. What is certain is that an optimizer made
    steps with the model, that nothing of the model ever got a gradient, and that the way of its values ended here.
    """
    if report.state == "running" or report.passes_traced < report.passes_seen:
        return
    order = {series.name: at for at, series in enumerate(report.parameters)}
    told = names_behind_cuts(report)
    for graph in report.graphs:
        for cut in graph.cuts:
            lost = [one for one in cut.left_out if _is_lost(report, one) and one.name not in told]
            if cut.target is None and cut.kind in _GOES_ON and lost:
                told.update(one.name for one in lost)
                yield _lost(report, cut, sorted(lost, key=lambda one: order.get(one.name, len(order))))


def _is_lost(report: TraceReport, one: LeftOut) -> bool:
    """Return whether an optimizer holds it, and nothing of its model ever got a gradient."""
    learns = any(series.touched and series.owner == one.owner for series in report.parameters)
    return bool(one.held and one.owner) and not one.written and not learns


def _lost(report: TraceReport, cut: Cut, lost: Sequence[LeftOut]) -> Finding:
    found = _finding(report, _Place(cut), lost)
    who = shortest([one.name for one in lost], [series.name for series in report.parameters])
    verb, it, makes = ("gets", "it", "it makes") if len(who) == 1 else ("get", "them", "they make")
    place = report.location(cut.location)
    cut = replace(cut, kind="numpy", op="numpy") if place is not None and ".numpy()" in place.text else cut
    return replace(
        found,
        message=f"{listed(who)} {verb} no gradient in {passes_words(report)}, though an optimizer holds {it}: "
        f"what {makes} ends at {call_words(cut, report.location(cut.location))}.",
        remedy=_remedy(cut, place, lost, who),
    )


def hides_parameters(report: TraceReport) -> bool:
    """Return whether parameters may have got a gradient that nobody saw.

    Re-entrant checkpointing hides its parameters from the graph of the loss: where no pass inside another was followed,
    nothing can be said.
    """
    if report.inner_passes_seen:
        return False
    return any(node.name.startswith("CheckpointFunction") for graph in report.graphs for node in graph.nodes)


def names_behind_cuts(report: TraceReport) -> set[str]:
    """Return what lies behind a cut without which it could have got a gradient, whether or not that is meant."""
    return {name for place in _places(report) for name in place.behind}


def read_only_cut(report: TraceReport, names: Iterable[str]) -> Cut | None:
    """Return a cut that ended the way of what one of the parameters made, though nothing used what came out."""
    wanted = set(names)
    cuts = (cut for graph in report.graphs for cut in graph.cuts if cut.target is None)
    return next((cut for cut in cuts if wanted & {one.name for one in cut.left_out}), None)


def _places(report: TraceReport) -> list[_Place]:
    """Return the places that cut ways a gradient would have taken, as far as something behind them got none."""
    found: dict[tuple[str, str, int | None], _Place] = {}
    for cut, used, is_root in _severed(report):
        place = found.setdefault((cut.kind, cut.op, cut.location), _Place(cut, used))
        place.is_root |= is_root
        place.selects &= cut.selects
        place.behind.update((one.name, one) for one in cut.left_out)
    return [place for place in found.values() if place.behind]


def _severed(report: TraceReport) -> Iterator[tuple[Cut, Location | None, bool]]:
    """Yield each cut that feeds a node, the line of the node, and whether backward started there."""
    for graph in report.graphs:
        for cut in graph.cuts:
            if cut.target is not None:
                node = graph.nodes[cut.target]
                yield cut, report.location(node.location), node.kind == "accumulate" and node.index in graph.roots
    refused = {one.cut for one in report.rootless}
    yield from ((cut, None, True) for at, cut in enumerate(report.cuts) if at not in refused)


def _is_wanted(one: LeftOut, place: _Place, trained: set[str]) -> bool:
    """Return whether something is meant to learn here, as far as the run tells."""
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
        if len(tails) == len(missing) and any(_has_all(shapes, other, tails) for other in others):
            return True
    return False


def _has_all(shapes: dict[str, tuple[int, ...]], prefix: str, tails: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    return all(shapes.get(prefix + tail) == shape for tail, shape in tails)


def _finding(report: TraceReport, place: _Place, missing: Sequence[LeftOut]) -> Finding:
    where = report.location(place.cut.location)
    names = [one.name for one in missing]
    who = shortest(names, [series.name for series in report.parameters])
    meant = place.cut.kind in UNRECORDED and missing[0].held is None and not place.is_root
    return Finding(
        code="TM303",
        severity="note" if meant else "warning",
        message=_message(report, place, missing, who),
        location=where,
        evidence={one.name: _numel(one) for one in missing[:8]},
        remedy=_remedy(place.cut, where, missing, who),
        subject=names[0],
        related=tuple(_related(report, place, where)),
    )


def _message(report: TraceReport, place: _Place, missing: Sequence[LeftOut], who: Sequence[str]) -> str:
    verb, it = ("gets", "it") if len(who) == 1 else ("get", "them")
    what = f"cuts {it} off from the loss"
    if place.is_root:
        what = "made what backward starts from, without a history"
    elif place.selects:
        what = "only chooses elements with it, and a choice has no slope"
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


def _numel(one: LeftOut) -> int:
    numel = 1
    for size in one.shape:
        numel *= size
    return numel


def _remedy(cut: Cut, where: Location | None, missing: Sequence[LeftOut], who: Sequence[str]) -> str:
    mend = instead(cut, where)
    told = f"Where it should learn, {mend}." if mend else ""
    if not missing[0].is_parameter:
        return told
    return f"{told} If it is meant to stay as it is, say so: `{who[0]}.requires_grad_(False)`.".strip()


def _related(report: TraceReport, place: _Place, where: Location | None) -> Iterator[RelatedLine]:
    made = report.location(place.cut.source_location)
    if made is not None and made != where:
        yield RelatedLine("made here", made)
    if place.used is not None and place.used not in {where, made}:
        yield RelatedLine("used here", place.used)
