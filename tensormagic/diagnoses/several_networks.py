"""TM316, TM408, TM620 to TM624: networks that train each other, units that are alike, loads and loops that do nothing.

What is certain from the run is a warning; what may be meant is a note that names what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.optimizers import targets_with_gradients
from tensormagic.diagnoses.rule import (
    COPIED,
    as_code,
    atom,
    call_on,
    optimizer_code,
    optimizers_of,
    related_lines,
    scientific,
    spliced,
    step_line,
    twin_of,
)
from tensormagic.diagnoses.zero_gradients import Paths
from tensormagic.reports import (
    Finding,
    FrozenUpdate,
    Graph,
    Location,
    ParameterSeries,
    TraceReport,
)
from tensormagic.words import count, listed, plural

FEWEST_STEPS = 3  # fewer are no training

# What is known of the order of two groups of parameters: the larger a node's number, the nearer it is to the loss.


def _is_behind(report: TraceReport, near: set[str], far: set[str]) -> bool | None:
    """Return whether the gradient gets to ``far`` through ``near``; None where no graph leads to both."""
    both = [(_places(graph, near), _places(graph, far)) for graph in report.graphs]
    orders = [max(behind) < min(before) for before, behind in both if before and behind]
    return any(orders) if orders else None


def _places(graph: Graph, names: set[str]) -> list[int]:
    return [node.index for node in graph.nodes if node.kind == "accumulate" and node.variable in names]


def _names(report: TraceReport, holds: Sequence[int]) -> set[str]:
    return {report.parameters[number].name for number in holds}


def foreign_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM316: a step uses gradients that another network's loss left on its way through this one.

    It is one of an adversarial pair, or a critic: the other network lies behind it, as seen from the loss. Two heads of
    one body, whose losses add up in the body, are left alone.
    """
    for use in optimizers_of(report):
        own = _names(report, use.holds)
        others = [
            other for other in optimizers_of(report) if other is not use and not set(other.holds) & set(use.holds)
        ]
        passed = [other for other in others if _is_behind(report, own, _names(report, other.holds))]
        if use.foreign >= FEWEST_STEPS and 2 * use.foreign > use.steps and passed:
            left = report.location(use.foreign_at)
            yield Finding(
                code="TM316",
                severity="warning",
                message=f"{use.name} steps on gradients of two losses, in {count(use.foreign)} of its "
                f"{plural(use.steps, 'step')}: the backward before {passed[0].name}.step() left gradients in its "
                "parameters, and that of its own loss added to them.",
                location=step_line(report, use),
                evidence={"steps": use.steps, "of these": use.foreign},
                remedy=f"Clear them just before the backward of its own loss: `{optimizer_code(use)}.zero_grad()`",
                subject=use.name,
                related=related_lines(("leaves gradients there", left)),
            )


def alike_units(report: TraceReport) -> Iterator[Finding]:
    """TM408: weights whose units were made the same, and that are the same after steps: they learn one thing."""
    training = report.training
    if training is None or not training.alike:
        return
    users = [*training.optimizers, *([training.by_hand] if training.by_hand is not None else [])]
    steps = {number: use.steps for use in users for number in use.holds if use.rate != 0}
    many = [report.parameters[number] for number in training.alike if steps.get(number, 0) >= FEWEST_STEPS]
    paths = [Paths(graph) for graph in report.graphs]
    found = [
        series for series in many
        if series.touched >= FEWEST_STEPS and any(path.users(series.name) for path in paths)
    ]  # fmt: skip
    if not found:
        return
    still = all(not any(norm > 0 for norm in series.norms) for series in found)
    first, names = found[0], [series.name for series in found]
    more = f" and {count(len(names) - 2)} more" if len(names) > 2 else ""
    what = (
        "their gradients are exactly zero, because the weights around them are zero as well"
        if still
        else "weights that begin with the same value get the same gradients, so all units learn the same"
    )
    taken = max(steps.values())
    every = "Both" if _units(first) == 2 else f"All {count(_units(first))}"
    initialised = (
        f"nn.init.kaiming_uniform_({as_code(first.name)})"
        if first.is_parameter
        else f"{first.name} = torch.randn{first.shape} / {scientific(first.shape[0] ** 0.5)}"
    )
    yield Finding(
        code="TM408",
        severity="warning",
        message=f"{every} units of {listed(names[:2])}{more} are the same after {plural(taken, 'step')}: {what}.",
        location=step_line(report, *users),
        evidence={series.name: _units(series) for series in found[:8]},
        remedy=f"Begin with random weights: `{initialised}`; only biases begin with zeros.",
        subject=first.name,
    )


def _units(series: ParameterSeries) -> int:
    return series.shape[0] if series.is_parameter else series.shape[1]


def used_up_iterators(report: TraceReport) -> Iterator[Finding]:
    """TM620: a loop over an iterator in a loop that does not make it anew: from the second round on it is empty."""
    for one in report.training.used_up if report.training is not None else ():
        after = f"the first of {count(one.rounds)} rounds" if one.rounds > 1 else "the first round"
        gone_through_again = (
            "Loop over the DataLoader itself, not over `iter(…)` of it: it makes an iterator for each round."
            if "DataLoader" in one.type_name
            else f"Make a list of it before the outer loop: `{one.name} = list({one.name})`; or make it in each round."
        )
        yield Finding(
            code="TM620",
            severity="warning" if one.rounds > 1 else "note",
            message=f"{one.name} is an iterator ({one.type_name}) that is made once, before the loop around this one: "
            f"it is used up after {after}, and the others do nothing.",
            location=report.location(one.location),
            evidence={"type": one.type_name, "rounds": one.rounds},
            remedy=gone_through_again,
            subject=one.name,
        )


def loads_without_effect(report: TraceReport) -> Iterator[Finding]:
    """TM621: ``load_state_dict(strict=False)`` with keys that the module does not have; or its own tensors."""
    for load in report.training.loads if report.training is not None else ():
        if load.own:
            yield Finding(
                code="TM621",
                severity="warning",
                message=f"load_state_dict changes nothing in {load.module}: it was given {load.module}'s own tensors, "
                "and `state_dict()` makes no copy of them.",
                location=report.location(load.location),
                evidence={"given": load.given},
                remedy="To go back to earlier weights, keep a copy: "
                f"`copy.deepcopy({as_code(load.module)}.state_dict())`; to copy another network, load the "
                "`state_dict()` of that one.",
                subject=load.module,
            )
        elif 2 * load.unexpected >= load.given:
            loaded, here = load.given - load.unexpected, report.location(load.location)
            what = "nothing" if not loaded else f"{count(loaded)} of {plural(load.given, 'tensor')}"
            remedy = (
                f"Take `{load.strip}` from the keys: `{{key.removeprefix({load.strip!r}): value for key, value in "
                "state.items()}`"
                if load.strip
                else f"Load what stands under that key: `{_under(here.text, load.example)}`"
                if here is not None and load.given < load.missing and _under(here.text, load.example)
                else f"Compare the keys: `{as_code(load.module)}.load_state_dict(…, strict=False)` returns those that "
                "are missing, and those that it did not expect"
            )
            yield Finding(
                code="TM621",
                severity="warning" if not loaded else "note",
                message=f"load_state_dict(strict=False) loaded {what} into {load.module}: it was given "
                f"`{load.example}`, and the module has `{load.wanted}` ({plural(load.missing, 'key')} missing).",
                location=report.location(load.location),
                evidence={"given": load.given, "unexpected": load.unexpected, "missing": load.missing},
                remedy=f"{remedy}.",
                subject=load.module,
            )


_HOLDING = ("model", "state_dict", "model_state_dict", "net", "weights", "params")


def _under(line: str, key: str) -> str:
    """Return the line with the entry of a checkpoint in place of all of it; empty where it is none by its name."""
    call = call_on(line, "load_state_dict")
    if call is None or not call.args or key not in _HOLDING:
        return ""
    return spliced(line, call.args[0], f"{atom(call.args[0])}[{key!r}]")


def never_stepped(report: TraceReport) -> Iterator[Finding]:
    """TM622: an optimizer whose parameters get gradients makes no step, while others do, or is not called.

    A critic that gradients pass through on their way to the network that is stepped is left alone. Where nothing steps,
    gradients may be looked at and no more: then it was to step where an optimizer cleared them.
    """
    training, uses = report.training, optimizers_of(report)
    steps = max((use.steps for use in uses), default=0)
    for idle in training.idle if training is not None else ():
        held = [report.parameters[number] for number in idle.holds]
        if (line := _named_alone(report, f"{idle.name}.step")) is not None and any(series.touched for series in held):
            yield Finding(
                code="TM622",
                severity="warning",
                message=f"{idle.name} makes no step: `{idle.name}.step` names the method without calling it.",
                location=line,
                evidence={"passes": max(series.touched for series in held)},
                remedy=f"`{idle.name}.step()`",
                subject=idle.name,
            )
            continue
        alone = training is not None and not uses and not training.by_hand
        cleared = report.location(idle.cleared) if alone else None
        many = [series for series in held if series.touched >= FEWEST_STEPS]
        touched = many if steps >= FEWEST_STEPS or cleared is not None else []
        stepped = {name for use in uses for name in _names(report, use.holds)}
        if touched and _is_behind(report, {series.name for series in held}, stepped) is not True:
            owners = list(dict.fromkeys(series.owner for series in touched))
            name = idle.name if idle.name.isidentifier() else "optimizer"
            yield Finding(
                code="TM622",
                severity="note",
                message=f"{idle.name} makes no step, although the {plural(len(touched), 'parameter')} of "
                f"{listed(owners)} that it holds got gradients in {count(touched[0].touched)} backward passes"
                + (
                    f"; {listed([use.name for use in uses])} {'steps' if len(uses) == 1 else 'step'}."
                    if uses
                    else " and are cleared here."
                ),
                location=step_line(report, *uses) if uses else cleared,
                evidence={"parameters": len(touched), "passes": touched[0].touched},
                remedy=f"If {listed(owners)} should learn here: `{name}.step()` after the backward of its loss.",
                subject=idle.name,
            )


def _named_alone(report: TraceReport, code: str) -> Location | None:
    """Return the line on which code stands as a statement of its own."""
    for number, line in enumerate(report.cell.lines, 1):
        if any(statement.strip() == code for statement in line.partition("#")[0].split(";")):
            return Location(report.cell.filename, number, line.strip(), report.cell.count)
    return None


FEWEST_UNTIL_COPIED = 100  # steps; target networks are often copied after so many
_COMPARED = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "sub", "rsub"})


def targets_left_behind(report: TraceReport) -> Iterator[Finding]:
    """TM623: what is called a target or a teacher is the network itself, gets gradients, or never changes."""
    training = report.training
    stepped = {report.parameters[number].owner for use in optimizers_of(report) for number in use.holds}
    for names in training.names if training is not None else ():
        copies = [name for name in names if COPIED.search(name.rpartition(".")[2])]
        others = [name for name in names if name not in copies]
        if copies and others and stepped & set(names):
            yield Finding(
                code="TM623",
                severity="warning",
                message=f"{copies[0]} and {others[0]} are one module: with each step on {others[0]}, {copies[0]} "
                "changes as well.",
                location=step_line(report, *optimizers_of(report)),
                evidence={"names": len(names)},
                remedy=f"Make a copy: `{copies[0]} = copy.deepcopy({others[0]})`",
                subject=copies[0],
            )
    yield from targets_with_gradients(report)
    held = {number for use in optimizers_of(report) for number in use.holds}
    trained = {report.parameters[number].owner for number in held if report.parameters[number].touched}
    steps = max((use.steps for use in optimizers_of(report)), default=0)
    if steps >= FEWEST_UNTIL_COPIED:
        reported: set[str] = set()
        for graph in report.graphs:
            for cut in graph.cuts:
                owners = {one.owner for one in cut.left_out}
                owner = next(iter(owners), "")
                is_target = cut.target is not None and graph.nodes[cut.target].op in _COMPARED
                still = cut.left_out and not any(one.written or one.held for one in cut.left_out)
                if len(owners) != 1 or not still or not is_target or owner in reported or owner in trained:
                    continue
                twin = twin_of(report, owner, cut.left_out, trained)
                if twin:
                    reported.add(owner)
                    yield Finding(
                        code="TM623",
                        severity="note",
                        message=f"{owner} has the shapes of {twin} and makes what its loss compares with, but nothing "
                        f"changed it in {plural(steps, 'step')}.",
                        location=report.location(cut.location) or step_line(report, *optimizers_of(report)),
                        evidence={"steps": steps, "parameters": len(cut.left_out)},
                        remedy=f"If it should follow {twin}, copy the weights now and then: "
                        f"`{as_code(owner)}.load_state_dict({as_code(twin)}.state_dict())`.",
                        subject=owner,
                    )


# TM624: frozen, and moved all the same.

FEWEST_MOVES = 2  # the first step after the freezing may use what the last backward brought


def frozen_moves(report: TraceReport) -> Iterator[Finding]:
    """TM624: parameters that ask for no gradient any more, and that steps move by what is left in their ``.grad``."""
    alike: dict[tuple[object, ...], list[FrozenUpdate]] = {}
    for one in report.training.frozen if report.training is not None else ():
        if one.steps >= FEWEST_MOVES:
            alike.setdefault((one.optimizer, one.zero, one.location), []).append(one)
    for one, *others in alike.values():
        same = [one, *others]
        cleared, step = report.location(one.cleared), report.location(one.location)
        to_zeros = one.zero and cleared is not None and "set_to_none=False" in cleared.text
        ways = ["momentum"] * one.momentum + ["weight decay"] * bool(one.weight_decay)
        left = (
            f"zeros, so {' and '.join(ways) or one.optimizer} {'go' if len(ways) > 1 else 'goes'} on"
            if one.zero
            else "what an earlier backward left"
        )
        frozen = report.location(one.frozen)
        code = as_code(one.parameter) if " " not in one.parameter else "parameter"
        here = cleared if to_zeros else step
        verb, them = ("is", "it") if len(same) == 1 else ("are", "them")
        yield Finding(
            code="TM624",
            severity="warning",
            message=f"{listed([each.parameter for each in same])} {verb} frozen, and {one.optimizer} moves {them} in "
            f"every step that was looked at: .grad is {left}.",
            location=here,
            evidence={each.parameter: each.steps for each in same},
            remedy="Clear gradients to None, which an optimizer leaves out: leave out `set_to_none=False`."
            if to_zeros
            else f"Clear its gradient where you freeze it, as an optimizer leaves out what has none: `{code}.grad = "
            "None`.",
            subject=one.parameter,
            related=related_lines(("frozen here", frozen), ("moved here", step), besides=here),
        )
