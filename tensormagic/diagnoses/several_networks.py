"""TM316, TM408, TM620 to TM624, TM627: networks that train each other, alike units, loads and loops that do nothing.

What is certain from the run is a warning; what may be meant is a note that names what was seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tensormagic.diagnoses.lines import as_code, atom, call_on, parsed, spliced, text_of
from tensormagic.diagnoses.optimizers import targets_with_gradients
from tensormagic.diagnoses.paths import Paths, cuts_in
from tensormagic.diagnoses.rule import (
    COPIED,
    FEWEST_STEPS,
    grouped,
    held_by,
    optimizer_code,
    optimizers_of,
    related_lines,
    scientific,
    step_line,
    training_of,
    twin_of,
    updaters_of,
)
from tensormagic.diagnoses.zero_gradients import COMPARING
from tensormagic.reports import (
    Finding,
    Graph,
    Location,
    ParameterSeries,
    TraceReport,
)
from tensormagic.words import count, listed, plural

# What is known of the order of two groups of parameters: the larger a node's number, the nearer it is to the loss.


def _is_behind(report: TraceReport, near: set[str], far: set[str]) -> bool | None:
    """Return whether the gradient gets to ``far`` through ``near``; None where no graph leads to both."""
    both = [(_places(graph, near), _places(graph, far)) for graph in report.graphs]
    orders = [max(behind) < min(before) for before, behind in both if before and behind]
    return any(orders) if orders else None


def _places(graph: Graph, names: set[str]) -> list[int]:
    return [node.index for node in graph.nodes if node.kind == "accumulate" and node.variable in names]


def _names(parameters: Iterable[ParameterSeries]) -> set[str]:
    return {series.name for series in parameters}


def foreign_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM316: a step uses gradients that another network's loss left on its way through this one.

    It is one of an adversarial pair, or a critic: the other network lies behind it, as seen from the loss. Two heads of
    one body, whose losses add up in the body, are left alone.
    """
    for use in optimizers_of(report):
        own = _names(held_by(report, use))
        others = (
            other for other in optimizers_of(report) if other is not use and set(other.holds).isdisjoint(use.holds)
        )
        passed = [other for other in others if _is_behind(report, own, _names(held_by(report, other)))]
        if use.foreign >= FEWEST_STEPS and 2 * use.foreign > use.steps and passed:
            left = report.location(use.foreign_at)
            yield Finding(
                code="TM316",
                severity="warning",
                message=f"{use.name} steps on gradients of two losses, in at least {count(use.foreign)} of its "
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
    users = updaters_of(report)
    steps = {number: use.steps for use in users for number in use.holds if use.rate != 0}
    many = [report.parameters[number] for number in training_of(report).alike if steps.get(number, 0) >= FEWEST_STEPS]
    paths = [Paths(graph) for graph in report.graphs] if many else []
    found = [one for one in many if one.touched >= FEWEST_STEPS and any(path.users(one.name) for path in paths)]
    if not found:
        return
    first, names = found[0], [series.name for series in found]
    more = f" and {count(len(names) - 2)} more" if len(names) > 2 else ""
    what = "their gradients are exactly zero, because the weights around them are zero as well"
    if any(norm > 0 for series in found for norm in series.norms):
        what = "weights that begin with the same value get the same gradients, so all units learn the same"
    taken = max(steps.values())
    every = "Both" if _units(first) == 2 else f"All {count(_units(first))}"
    initialised = f"nn.init.kaiming_uniform_({as_code(first.name)})"
    if not first.is_parameter:
        initialised = f"{first.name} = torch.randn{first.shape} / {scientific(first.shape[0] ** 0.5)}"
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
    for one in training_of(report).used_up:
        after = f"the first of {count(one.rounds)} rounds" if one.rounds > 1 else "the first round"
        remedy = f"Make a list of it before the outer loop: `{one.name} = list({one.name})`; or make it in each round."
        if "DataLoader" in one.type_name:
            remedy = "Loop over the DataLoader itself, not over `iter(…)` of it: it makes an iterator for each round."
        yield Finding(
            code="TM620",
            severity="warning" if one.rounds > 1 else "note",
            message=f"{one.name} is an iterator ({one.type_name}) that is made once, before the loop around this one: "
            f"it is used up after {after}, and the others do nothing.",
            location=report.location(one.location),
            evidence={"type": one.type_name, "rounds": one.rounds},
            remedy=remedy,
            subject=one.name,
        )


def loads_without_effect(report: TraceReport) -> Iterator[Finding]:
    """TM621: ``load_state_dict(strict=False)`` with keys that the module does not have; or its own tensors."""
    for load in training_of(report).loads:
        if load.own:
            call = call_on(text_of(report.location(load.location)), "load_state_dict")
            module = ast.unparse(call.func.value) if call and isinstance(call.func, ast.Attribute) else load.module
            yield Finding(
                code="TM621",
                severity="warning",
                message=f"load_state_dict changes nothing in {load.module}: it was given {load.module}'s own tensors, "
                "and `state_dict()` makes no copy of them.",
                location=report.location(load.location),
                evidence={"given": load.given},
                remedy="To go back to earlier weights, keep a copy: "
                f"`copy.deepcopy({as_code(module)}.state_dict())`; to copy another network, load the "
                "`state_dict()` of that one.",
                subject=load.module,
            )
        elif 2 * load.unexpected >= load.given:
            loaded, here = load.given - load.unexpected, report.location(load.location)
            what = f"{count(loaded)} of {plural(load.given, 'tensor')}" if loaded else "nothing"
            entry = _under(text_of(here), load.example) if load.given < load.missing else ""
            remedy = (
                f"Compare the keys: `{as_code(load.module)}.load_state_dict(…, strict=False)` returns those that are "
                "missing, and those that it did not expect"
            )
            if load.strip:
                renamed = f"{{key.removeprefix({load.strip!r}): value for key, value in state.items()}}"
                remedy = f"Remove `{load.strip}` from the keys: `{renamed}`"
            elif entry:
                remedy = f"Load what stands under that key: `{entry}`"
            yield Finding(
                code="TM621",
                severity="warning" if not loaded else "note",
                message=f"load_state_dict(strict=False) loaded {what} into {load.module}: it was given "
                f"`{load.example}`, and the module has `{load.wanted}` ({plural(load.missing, 'key')} missing).",
                location=here,
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
    """TM622: an optimizer whose parameters get gradients makes no step, while others do.

    A critic that gradients pass through on their way to the network that is stepped is left alone, unless its own
    optimizer clears them each time. Where nothing steps,
    gradients may be looked at and no more: then it was to step where an optimizer cleared them.
    """
    uses = optimizers_of(report)
    steps = max((use.steps for use in uses), default=0)
    for idle in training_of(report).idle:
        held = held_by(report, idle)
        training = training_of(report)
        cleared = report.location(idle.cleared) if not training.by_hand else None
        many = [series for series in held if series.touched >= FEWEST_STEPS]
        touched = many if steps >= FEWEST_STEPS or (not uses and cleared is not None) else []
        passed = _is_behind(report, _names(held), _names(held_by(report, *uses))) is True
        if touched and (cleared is not None or not passed):
            owners = list(dict.fromkeys(series.owner for series in touched))
            name = optimizer_code(idle, report.location(idle.cleared))
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


FEWEST_UNTIL_COPIED = 100  # steps; target networks are often copied after so many


def targets_left_behind(report: TraceReport) -> Iterator[Finding]:
    """TM623: what is called a target or a teacher is the network itself, gets gradients, or never changes."""
    uses = optimizers_of(report)
    held = held_by(report, *uses)
    for names in training_of(report).names:
        copies = [name for name in names if COPIED.search(name.rpartition(".")[2])]
        others = [name for name in names if name not in copies]
        if copies and others and any(series.owner in names for series in held):
            yield Finding(
                code="TM623",
                severity="warning",
                message=f"{copies[0]} and {others[0]} are one module: with each step on {others[0]}, {copies[0]} "
                "changes as well.",
                location=step_line(report, *uses),
                evidence={"names": len(names)},
                remedy=f"Make a copy: `{copies[0]} = copy.deepcopy({others[0]})`",
                subject=copies[0],
            )
    yield from targets_with_gradients(report)
    if max((use.steps for use in uses), default=0) >= FEWEST_UNTIL_COPIED:
        yield from _never_changed(report, {series.owner for series in held if series.touched})


def _never_changed(report: TraceReport, trained: set[str]) -> Iterator[Finding]:
    uses, reported = optimizers_of(report), set[str]()
    steps = max(use.steps for use in uses)
    for graph, cut in cuts_in(report):
        owner = cut.left_out[0].owner if cut.left_out else ""
        is_target = cut.target is not None and graph.nodes[cut.target].op in COMPARING
        changes = any(one.written or one.held or one.owner != owner for one in cut.left_out)
        if not cut.left_out or changes or not is_target or owner in reported | trained:
            continue
        if twin := twin_of(report, owner, cut.left_out, trained):
            reported.add(owner)
            yield Finding(
                code="TM623",
                severity="note",
                message=f"{owner} has the shapes of {twin} and makes what its loss compares with, but nothing changed "
                f"it in {plural(steps, 'step')}.",
                location=report.location(cut.location) or step_line(report, *uses),
                evidence={"steps": steps, "parameters": len(cut.left_out)},
                remedy=f"If it should follow {twin}, copy the weights now and then: "
                f"`{as_code(owner)}.load_state_dict({as_code(twin)}.state_dict())`.",
                subject=owner,
            )


# TM624: frozen, and moved all the same.

FEWEST_MOVES = 2  # the first step after the freezing may use what the last backward brought


def frozen_moves(report: TraceReport) -> Iterator[Finding]:
    """TM624: parameters that ask for no gradient any more, and that steps move by what is left in their ``.grad``."""
    moved = (one for one in training_of(report).frozen if one.steps >= FEWEST_MOVES)
    for same in grouped(moved, lambda one: (one.optimizer, one.zero, one.location)).values():
        one = same[0]
        cleared, step = report.location(one.cleared), report.location(one.location)
        to_zeros = one.zero and cleared is not None and "set_to_none=False" in cleared.text
        left = "what an earlier backward left"
        if one.zero:
            ways = ["momentum"] * one.momentum + ["weight decay"] * bool(one.weight_decay)
            left = f"zeros, so {' and '.join(ways) or one.optimizer} {'go' if len(ways) > 1 else 'goes'} on"
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
            remedy="Clear gradients to None, which an optimizer skips: leave out `set_to_none=False`."
            if to_zeros
            else f"Clear its gradient where you freeze it, since an optimizer skips what has none: `{code}.grad = "
            "None`.",
            subject=one.parameter,
            related=related_lines(("frozen here", report.location(one.frozen)), ("moved here", step), besides=here),
        )


# TM627: a method that is not called.

_EFFECTS = {  # of a method that takes no argument: what does not happen where it is not called
    "backward": "no gradient is computed",
    "eval": "the mode does not change",
    "step": "nothing is updated",
    "train": "the mode does not change",
    "zero_grad": "no gradient is zeroed",
}
CAUSED = {"backward": "TM607", "eval": "TM606", "step": "TM622", "train": "TM606", "zero_grad": "TM309"}
"""What else is found where such a method is not called."""


_NAMED = re.compile(rf"\.\s*({'|'.join(_EFFECTS)})\b(?![ \t]*\()")


def not_called(report: TraceReport) -> Iterator[Finding]:
    """TM627: a statement that is the name of a method, in code that has run; the value of a cell is shown on purpose.

    Of a file, code that has run is known by a line of the same function that the report points to.
    """
    first, *others = report.cell.lines or ("",)
    if not any(map(_NAMED.search, report.cell.lines)):  # to parse a long file takes longer than all else
        return
    tree = parsed("\n".join(["" if first.startswith("%") else first, *others]))
    if tree is None:
        return
    in_file = {one.line for one in report.locations if one.filename == report.cell.filename}
    scopes = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Attribute(attr=name)) if name in _EFFECTS and node is not tree.body[-1]:
                inside = [each for each in scopes if each.lineno <= node.lineno <= (each.end_lineno or 0)]
                scope = max(inside, key=lambda each: each.lineno, default=None)
                if scope is None or any(scope.lineno < line <= (scope.end_lineno or 0) for line in in_file):
                    code, line = ast.unparse(node.value), report.cell.lines[node.lineno - 1].strip()
                    function = scope.name if scope is not None else ""
                    yield Finding(
                        code="TM627",
                        severity="warning",
                        message=f"`{code}` names the method without calling it, so {_EFFECTS[name]}.",
                        location=Location(report.cell.filename, node.lineno, line, report.cell.count, function),
                        remedy=f"`{code}()`",
                        subject=code,
                    )
