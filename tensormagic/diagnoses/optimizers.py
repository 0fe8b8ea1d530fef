"""TM601, TM602, TM604, TM623, TM911: what gets gradients, what the optimizers hold, and what stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tensormagic.diagnoses.graph_cuts import holds_a_target, names_left_out
from tensormagic.diagnoses.lines import as_code, of_model
from tensormagic.diagnoses.paths import neighbours, reached
from tensormagic.diagnoses.rule import (
    COPIED,
    FEWEST_STEPS,
    grouped,
    is_idle,
    kept_by,
    optimizer_code,
    shortest,
    step_line,
    to_freeze,
    twin_of,
    whole_training,
)
from tensormagic.reports import (
    UNTOUCHED,
    Finding,
    OptimizerUse,
    ParameterSeries,
    Severity,
    TraceReport,
    Training,
    UnchangedParameters,
    WatchReport,
)
from tensormagic.words import count, listed, part_of, plural

# TM602, TM604: what gets gradients and what the optimizers hold are not the same parameters.
#
# Where an optimizer was made and the model changed afterwards, both are true at once: the optimizer holds what is
# gone, and what came instead is in no optimizer. That is reported once: as TM604 where nothing that the optimizer holds
# is used any more, else as TM602.

MOST_SHARE = 0.6  # of a model's elements; who leaves out more trains a small part on purpose

_Parameters = list[ParameterSeries]


def _left_out(report: TraceReport, training: Training, *, of_models: bool = True) -> _Parameters:
    """Return the parameters of models, or those with a name of their own, that get gradients and nothing trains."""
    trained = {series.name for series in kept_by(report, *training.optimizers)}
    return [
        series
        for number, series in enumerate(report.parameters)
        if series.requires_grad
        and series.touched > 0
        and series.name not in trained
        and (
            number not in (training.elsewhere or ())
            # Or an optimizer holds what it was before it was replaced.
            or (
                series.replaced
                and any(u.unknown_idle and series.shape in u.unknown_shapes for u in training.optimizers)
            )
        )
        and (series.owner if of_models else not series.owner and series.name.isidentifier())
        and (series.is_parameter or (not of_models and _weighs_losses(report, series)))
    ]


def _weighs_losses(report: TraceReport, series: ParameterSeries) -> bool:
    """Return whether a plain leaf with a name goes into the loss and into no model: what is data goes into one."""
    owners = tuple({one.owner for one in report.parameters} - {""})
    for graph in report.graphs:
        feeders = neighbours(graph)[0]
        leaves = [node.index for node in graph.nodes if node.variable == series.name and node.kind == "accumulate"]
        if any(graph.nodes[at].module.startswith(owners) for at in reached(feeders, leaves)):
            return False
    return bool(owners)


def in_no_optimizer(report: TraceReport) -> Iterator[Finding]:
    """TM602: a part of a model gets gradients, another part is stepped, and nothing trains the first.

    A warning where it is the smaller part, or something that came after the optimizer was made; a note where the last
    layers are trained and those before them are not, or a small part in the midst of many: that is often meant, and
    costs only the time of their gradients.
    """
    training = whole_training(report)
    if training is None:
        return
    for owner, missing in _by_owner(_left_out(report, training)):
        users = [use for use in training.optimizers if _stepped(report, use, owner)]
        # Or all that they hold of it is frozen, so that their steps change nothing.
        users = users or [
            use
            for use in training.optimizers
            if use.steps >= FEWEST_STEPS
            and is_idle(use)
            and {series.requires_grad for series in kept_by(report, use) if series.owner == owner} == {False}
        ]
        if users:
            yield _in_no_optimizer(report, owner, users, missing)
        elif _is_trained_along(report, training, missing) and not _twin(report, training, owner, missing):
            yield _root_in_no_optimizer(report, training, owner, missing)  # a twin is TM623's to report
    for series in _left_out(report, training, of_models=False):
        if _is_trained_along(report, training, [series]):
            yield _root_in_no_optimizer(report, training, series.name, [series])


def _by_owner(parameters: _Parameters) -> Iterable[tuple[str, _Parameters]]:
    return grouped(parameters, lambda series: series.owner).items()


def _twin(report: TraceReport, training: Training, owner: str, missing: _Parameters) -> str:
    """Return which network a model is to be a copy of, by its name and the shapes of both; empty for any other."""
    stepped = {series.owner for series in kept_by(report, *training.optimizers)}
    if owner in stepped or not COPIED.search(owner.rpartition(".")[2]):
        return ""
    return twin_of(report, owner, missing, stepped)


def targets_with_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM623: a copy of the network that is trained gets gradients along with it: its values are to be targets."""
    training = whole_training(report)
    if training is None:
        return
    for owner, missing in _by_owner(_left_out(report, training)):
        twin = _twin(report, training, owner, missing)
        if twin and _is_trained_along(report, training, missing):
            yield Finding(
                code="TM623",
                severity="note",
                message=f"{owner}, a copy of {twin}, gets gradients in every step, and no optimizer uses them: the "
                f"loss of {twin} goes back through it as well.",
                location=step_line(report, training.optimizers[0]),
                evidence={"parameters": len(missing)},
                remedy="Compute what it makes without a graph: `with torch.no_grad():`, or freeze it once: "
                f"`{of_model(owner)}.requires_grad_(False)`.",
                subject=owner,
            )


def _is_trained_along(report: TraceReport, training: Training, missing: _Parameters) -> bool:
    """Return whether a whole model gets a gradient in every pass that brings all of an optimizer's a gradient.

    One that gets gradients in other passes too, or in fewer, is trained elsewhere, or passed through on purpose.
    """
    mine = {series.touched for series in missing}
    times = [{series.touched for series in kept_by(report, use)} - {0} for use in training.optimizers]
    steps = max((use.steps for use in training.optimizers), default=0)
    along = mine in times or bool(_meant_for_these(report, training, missing))
    return along and steps >= FEWEST_STEPS and not training.by_hand


def _meant_for_these(report: TraceReport, training: Training, missing: _Parameters) -> list[OptimizerUse]:
    """Return the optimizers that hold just what one before them holds, and step as often as others get gradients."""
    every, mine = training.optimizers, {series.touched for series in missing}
    return [
        use
        for at, use in enumerate(every)
        if use.holds in {one.holds for one in every[:at]}
        and {use.steps} == mine != {series.touched for series in kept_by(report, use)}
    ]


def _root_in_no_optimizer(report: TraceReport, training: Training, owner: str, missing: _Parameters) -> Finding:
    """Return the finding about a whole model, or a Parameter with a name of its own.

    A warning where an optimizer holds as many parameters of the same shapes that nothing uses: it was made before; or
    what another one holds, too.
    """
    bare = not missing[0].owner
    code = as_code(owner) if bare else of_model(owner)
    shapes = Counter(series.shape for series in missing)
    idle = [each for each in training.optimizers if each.unknown_idle and Counter(each.unknown_shapes) == shapes]
    again = _meant_for_these(report, training, missing)
    use = (idle or again or training.optimizers)[0]
    none = "it is in no optimizer" if bare else f"none of its {plural(len(missing), 'parameter')} is in an optimizer"
    names = [each.name for each in training.optimizers]
    trains = f"{listed(names)} {'trains' if len(names) == 1 else 'train'} only other parameters"
    group = f'{{"params": {f"[{code}]" if bare else f"{code}.parameters()"}}}'
    remedy = (
        f"To train it: `{optimizer_code(use)}.add_param_group({group})`. To keep it fixed, "
        f"`{code}.requires_grad_(False)` saves computing its gradients."
    )
    if idle:
        trains = f"{use.name} holds {plural(len(missing), 'parameter')} of the same shapes that no model uses any more"
        remedy = f"Make the optimizer once {owner} is final: `{optimizer_code(use)} = torch.optim.{use.type_name}(…)`"
    elif again and not bare:
        first = next(each.name for each in training.optimizers if each.holds == use.holds)
        trains = f"{use.name} holds the same parameters as {first}"
        made = f"{optimizer_code(use)} = torch.optim.{use.type_name}({code}.parameters(), …)"
        remedy = f"Make one of the two from {owner}: `{made}`"
    return Finding(
        code="TM602",
        severity="warning" if idle or again else "note",
        message=f"{owner} gets gradients in every step, but {none}: {trains}.",
        location=step_line(report, use),
        evidence={"without an optimizer": len(missing), "steps": use.steps},
        remedy=remedy,
        subject=missing[0].name,
    )


def _stepped(report: TraceReport, use: OptimizerUse, owner: str) -> _Parameters:
    return [series for series in kept_by(report, use) if series.owner == owner and series.touched]


def _in_no_optimizer(report: TraceReport, owner: str, users: list[OptimizerUse], missing: _Parameters) -> Finding:
    of = [series.name for series in report.parameters if series.owner == owner]
    names = shortest([series.name for series in missing], of)
    unknown_parameters = sum(use.unknown_parameters for use in users if use.unknown_idle)
    stepped = [series for use in users for series in _stepped(report, use, owner)]
    meant = bool(stepped) and not unknown_parameters and _is_meant(report, missing, stepped)
    gets, are = ("gets", "is") if len(names) == 1 else ("get", "are")
    step, hold = ("steps", "holds") if len(users) == 1 else ("step", "hold")
    does = f"{step} {part_of(len(stepped), len(of), 'parameter')}" if stepped else f"{hold} only frozen parameters"
    gone = plural(unknown_parameters, "parameter")
    gone_anew = unknown_parameters and missing[0].replaced
    still = f", and still holds {gone} that no model uses any more" if unknown_parameters else ""
    return Finding(
        code="TM602",
        severity="note" if meant else "warning",
        message=f"{listed(names)} {gets} gradients but {are} in no optimizer: "
        f"{listed([use.name for use in users])} {does} of {owner}{still}.",
        location=step_line(report, users[0]),
        evidence={"without an optimizer": len(missing), "stepped": len(stepped), "held but unused": unknown_parameters},
        remedy=_remedy(names, of, users[0], meant=meant, replaced=unknown_parameters > 0)
        + ("; create in `__init__` what `forward` creates again in each call" if gone_anew else ""),
        subject=missing[0].name,
    )


def _remedy(names: list[str], of: list[str], use: OptimizerUse, *, meant: bool, replaced: bool) -> str:
    code = optimizer_code(use)
    if replaced and not meant:
        owner = of[0].partition(".")[0]
        made = f"{code} = torch.optim.{use.type_name}({of_model(owner)}.parameters(), …)"
        return f"Make the optimizer when the model is final: `{made}`"
    return _frozen(names) if meant else _added(names[0], of, "the optimizer", code)


def _frozen(names: Sequence[str]) -> str:
    frozen = ", ".join(f"`{of_model(name)}.requires_grad_(False)`" for name in names[:3])
    return f"To train only a part, freeze the rest, which saves computing its gradients: {frozen}"


def _added(first: str, of: Sequence[str], optimizer: str, code: str) -> str:
    return (
        f"Make {optimizer} after the model is complete, with all its parameters; or add them: "
        f'`{code}.add_param_group({{"params": {_parameters_of(first, of)}}})`'
    )


def _parameters_of(place: str, names: Iterable[str]) -> str:
    return f"[{of_model(place)}]" if place in names else f"{of_model(place)}.parameters()"


def _is_meant(report: TraceReport, missing: _Parameters, stepped: _Parameters) -> bool:
    """Return whether a part is trained alone on purpose; what was unfrozen after the optimizer was made is not."""
    before, after = ([series.norms for series in some] for some in (stepped, missing))
    if all(each and each[0] == UNTOUCHED != each[-1] for each in after) and all(
        each[0] != UNTOUCHED for each in before if each
    ):
        return False
    places = {node.variable: node.index for node in report.nodes if node.kind == "accumulate"}
    untrained, trained = ([places[one.name] for one in some if one.name in places] for some in (missing, stepped))
    numels = [sum(series.numel for series in some) for some in (missing, stepped)]
    return _is_usual(untrained, trained, numels, are_layers=True)


def _is_usual(rests: Sequence[int], learns: Sequence[int], numels: Sequence[int], *, are_layers: bool) -> bool:
    """Return whether the last layers alone are trained, or a small part that is not the first layers.

    By the places of both in the order of the forward, as far as they are known, and how many elements they have.
    """
    if rests and learns:
        if are_layers and max(rests) < min(learns):
            return True
        if max(learns) < min(rests) and len(learns) > 1:
            return False
    return numels[0] > MOST_SHARE * sum(numels)


def of_unused_parameters(report: TraceReport) -> Iterator[Finding]:
    """TM604: nothing that an optimizer holds learns in the run, while a model that does is in no optimizer.

    What it holds runs without a graph, as a teacher does, or takes no part: then it must be of a known model that did
    not run, or have the shapes of what gets gradients. A tensor of another kind may have lost its way to the loss: that
    is another illness.
    """
    return (found for found in _of_unused_in(report) if found.code == "TM604")


def made_before_sharding(report: TraceReport) -> Iterator[Finding]:
    """TM911: an optimizer holds the parameters that sharding has replaced: see `of_unused_parameters`."""
    return (found for found in _of_unused_in(report) if found.code == "TM911")


def _of_unused_in(report: TraceReport) -> Iterator[Finding]:
    training = whole_training(report)
    left_out = _left_out(report, training) if training is not None else []
    if training is None or not left_out:
        return
    cut_off = names_left_out(report)
    for use in training.optimizers:
        if any(series.name in cut_off for series in _held(report, use)):  # it is used: TM303, if that was not meant
            if holds_a_target(report, use):
                yield _of_unused(report, use, left_out, ran=True)
            continue
        # Models of one make and other sizes: as many parameters of as many dimensions as get gradients.
        mine = sorted(len(shape) for shape in use.unknown_shapes)
        alike = len(mine) > 1 and mine == sorted(len(series.shape) for series in left_out)
        if len(mine) > 1 and use.steps >= FEWEST_STEPS:
            alike |= all(map(is_idle, training.optimizers))  # where no step changes anything, it need not be alike
        known = use.unknown_owner or not use.unknown_parameters or alike
        if _is_lost(report, use) and (_alike(report, use, left_out) or known):
            yield _of_unused(report, use, left_out, ran=False)


def _is_lost(report: TraceReport, use: OptimizerUse) -> bool:
    active = {series.owner for series in report.parameters if series.touched}
    held = _held(report, use)
    unused = all(series.owner and not series.touched and not series.used for series in held) and not any(
        series.owner in active for series in kept_by(report, use)
    )
    return bool(use.unknown_parameters or held) and unused and use.unknown_idle and is_idle(use)


def _held(report: TraceReport, use: OptimizerUse) -> _Parameters:
    return [series for series in kept_by(report, use) if series.requires_grad]


def _alike(report: TraceReport, use: OptimizerUse, left_out: _Parameters) -> bool:
    """Return whether what gets gradients has the shapes of all that the optimizer holds."""
    shapes = {series.shape for series in left_out}
    return {*use.unknown_shapes, *(series.shape for series in _held(report, use))} <= shapes


def _meant_for(
    report: TraceReport, use: OptimizerUse, left_out: _Parameters, owners: list[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the models whose parameters this optimizer was made for: all of them, where shapes do not tell.

    Several optimizers are each for their own model, and their shapes say which.
    """
    held = Counter((*use.unknown_shapes, *(series.shape for series in _held(report, use))))
    shapes = {owner: Counter(series.shape for series in parameters) for owner, parameters in _by_owner(left_out)}
    exact = [pair for pair in owners if shapes[pair[0]] == held]
    return exact if len(exact) == 1 else owners


_SHARDS = {
    "FSDP1": "FullyShardedDataParallel", "FSDP2": "fully_shard()",
    "DTensor": "parallelize_module() or distribute_tensor()",
}  # fmt: skip


def _of_unused(report: TraceReport, use: OptimizerUse, left_out: _Parameters, *, ran: bool) -> Finding:
    owners = Counter(series.owner for series in left_out).most_common()
    alike = _alike(report, use, left_out)
    reported = _meant_for(report, use, left_out, owners) if alike or not use.unknown_owner else owners[:1]
    missing, names = sum(each for _, each in reported), [name for name, _ in reported]
    count = use.unknown_parameters + len(_held(report, use))
    held = {series.owner for series in _held(report, use)} if ran else {use.unknown_owner} - {""}
    whose = f" of {listed(sorted(held))}" if held else ""
    kinds = report.parallel.kinds if report.parallel is not None and not ran else ()
    # what has sharded the parameters of the run, so that they are other objects
    how = next((_SHARDS[kind] for kind in kinds if kind in _SHARDS), "") if alike else ""
    had, end, first = "never had a gradient", "", "Make the optimizer from the model that is trained"
    if how:
        end = f": {how} replaced them after the optimizer was made"
        first = "Shard the model first, then make the optimizer"
    elif not ran:
        had = "no model has any more" if use.outlived else f"{had} and that no model which ran uses"
        end = ", although their shapes are the same: the model was made again or copied afterwards" if alike else ""
        first += ", once it exists"
    every = []
    for name in names:
        of = [series.name for series in report.parameters if series.owner == name]
        places = shortest([series.name for series in left_out if series.owner == name], of)
        every.append(_parameters_of(places[0] if len(places) == 1 and len(places[0]) > len(name) else name, of))
    given = every[0] if len(every) == 1 else f"[{', '.join(f'*{one}' for one in every)}]"
    return Finding(
        code="TM911" if how else "TM604",
        severity="error" if alike else "warning",
        message=f"{use.name} steps {plural(count, 'parameter')}{whose} that {had}; "
        f"{plural(missing, 'parameter')} of {listed(names)} {'gets' if missing == 1 else 'get'} gradients and "
        f"{'is' if missing == 1 else 'are'} in no optimizer{end}.",
        location=step_line(report, use),
        evidence={"held": count, "steps": use.steps, "without an optimizer": missing},
        remedy=f"{first}: `torch.optim.{use.type_name}({given}, …)`",
        subject=use.name,
    )


# TM601, TM602 as a look at a session finds them: parameters that stood still while their model was trained.

LEAST_STEPS = 10  # fewer may be chance: a branch that was not taken, a layer that was dropped


def without_gradient(report: WatchReport) -> Iterator[Finding]:
    """TM601: an optimizer steps others of a model, and these had no gradient at any of its steps.

    A note where that was not watched: they may have joined the optimizer, or been unfrozen, a moment ago. A note as
    well of experts and other modules of which the data choose: others of the same make are trained.
    """
    for still in report.unchanged:
        steps = still.watched if still.watched >= LEAST_STEPS else still.steps
        if still.held and steps >= LEAST_STEPS:
            sure = tuple(number for number in still.unchanged if number not in still.alike)
            if sure:
                yield _without_gradient(still, sure, steps, "warning" if still.watched >= LEAST_STEPS else "note")
            if still.alike:
                yield _without_gradient(still, still.alike, steps, "note")


def _without_gradient(still: UnchangedParameters, numbers: Sequence[int], steps: int, severity: Severity) -> Finding:
    names = [still.names[number] for number in numbers]
    places = shortest(names, still.names)
    it = "it" if len(places) == 1 else "them"
    share = f"{count(len(names))} of the {count(len(still.names))} parameters of {still.owner}"
    during = f"in {plural(steps, 'step')}"
    if not still.steps:
        during = f"while it changed others of {still.owner} {plural(steps, 'time')}"
    return Finding(
        code="TM601",
        severity=severity,
        message=f"{still.optimizer} holds {listed(places)} and had no gradient for {it} {during}: no path leads there "
        f"from the loss ({share}).",
        location=still.location,
        evidence={"steps": steps, "parameters": len(names), "elements": sum(still.numels[one] for one in numbers)},
        remedy=f"Use {it} in forward, and the result in the loss. {to_freeze(places)}",
        subject=names[0],
    )


def stands_in_no_optimizer(report: WatchReport) -> Iterator[Finding]:
    """TM602: parameters get gradients, others of their model are stepped, and nothing changes these.

    A note where the last layers are trained and those before them are not, or a small part in the midst of many.
    """
    for still in report.unchanged:
        if not still.held and still.watched >= LEAST_STEPS:
            yield _stands_in_no_optimizer(still)


def _stands_in_no_optimizer(still: UnchangedParameters) -> Finding:
    names = shortest([still.names[number] for number in still.unchanged], still.names)
    gets, are, them = ("gets", "is", "it") if len(names) == 1 else ("get", "are", "them")
    are_layers = all(still.names[number].count(".") > still.owner.count(".") + 1 for number in still.unchanged)
    numels = [sum(still.numels[one] for one in some) for some in (still.unchanged, still.trained)]
    meant = _is_usual(still.unchanged, still.trained, numels, are_layers=are_layers)
    trained = part_of(len(still.trained), len(still.names), "parameter")
    return Finding(
        code="TM602",
        severity="note" if meant else "warning",
        message=f"{listed(names)} {gets} gradients but {are} in no optimizer: {still.optimizer} steps {trained} of "
        f"{still.owner}, and nothing changes {them}.",
        location=still.location,
        evidence={"without an optimizer": len(still.unchanged), "stepped": len(still.trained), "steps": still.watched},
        remedy=_frozen(names[:1]) if meant else _added(names[0], still.names, still.optimizer, still.optimizer),
        subject=still.names[still.unchanged[0]],
    )
