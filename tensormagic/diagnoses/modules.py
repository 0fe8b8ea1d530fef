"""TM601, TM603, TM605, TM609, TM614, TM615: modules, and what they do not know of themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.graph_cuts import call_words, hides_parameters, names_left_out, read_only_cut
from tensormagic.diagnoses.lines import (
    as_code,
    called_function,
    expression_of,
    expressions,
    only_statement,
    parsed,
    set_keyword,
    spliced,
    text_of,
)
from tensormagic.diagnoses.paths import changes_no_derivative, cuts_in
from tensormagic.diagnoses.rule import (
    FEWEST_STEPS,
    grouped,
    held_by,
    optimizers_of,
    passes_words,
    shortest,
    to_freeze,
    training_of,
)
from tensormagic.reports import (
    UNTOUCHED,
    Finding,
    Location,
    ModulesReport,
    ParameterSeries,
    RelatedLine,
    RepeatedModule,
    TraceReport,
    UnregisteredModules,
    UnregisteredTensor,
    WatchReport,
)
from tensormagic.reports.base import Scalar
from tensormagic.words import count, listed, plural

# What the names of methods that make a module begin with.
_MAKES = ("init", "reset", "build", "setup", "make", "create")


def _modules(report: TraceReport | WatchReport) -> ModulesReport:
    return report.modules or ModulesReport()


def loose_tensors(report: TraceReport | WatchReport) -> Iterator[Finding]:
    """TM603: a plain tensor attribute that was to be a Parameter, or a buffer.

    A warning where an optimizer trains the rest of the module, or where a Parameter is lost behind what was computed of
    it; a note before there is an optimizer, for the optimizer may be given the tensor by hand, and for what could be a
    buffer.
    """
    loose = (one for one in _modules(report).unregistered_tensors if not one.optimized and not one.kept_elsewhere)
    # Made with the module, or set from outside: what `forward` leaves there is a memory.
    found = [one for one in loose if not one.method or one.method.lstrip("_").startswith(_MAKES)]
    yield from (_parameter(one) for one in found if one.requires_grad and not one.grad_fn)
    yield from (_computed(one) for one in found if one.grad_fn and one.method == "__init__")
    buffers = [one for one in found if not one.requires_grad and one.shape and one.method and one.registered > 0]
    yield from (_buffers(module, those) for module, those in grouped(buffers, lambda one: one.module).items())


def _parameter(found: UnregisteredTensor) -> Finding:
    missing = f"{found.name} requires a gradient, but is a plain tensor and not in {found.owner}.parameters()"
    updated = "an optimizer made from these will not update it"
    if found.siblings:
        updated = f"the optimizer updates {plural(found.siblings, 'parameter')} of {found.owner} and never this tensor"
    return Finding(
        code="TM603",
        severity="warning" if found.siblings else "note",
        message=f"{missing}, so {updated}, and state_dict() leaves it out.",
        location=found.location,
        evidence={"shape": str(found.shape), "parameters optimized": found.siblings},
        remedy=f"Make it a Parameter: `{_as_parameter(found)}`",
        subject=found.name,
    )


def _computed(found: UnregisteredTensor) -> Finding:
    return Finding(
        code="TM603",
        severity="warning",
        message=f"{found.name} is not a Parameter: {found.grad_fn} computed it from one when {found.module} was built. "
        f"{found.owner}.parameters() holds neither, so no optimizer made from it updates them.",
        location=found.location,
        evidence={"shape": str(found.shape), "made by": found.grad_fn},
        remedy=f"Compute first, make it a Parameter last: `{_parameter_last(found)}`; move the whole module: "
        f"`{as_code(found.owner)}.to(device)`",
        subject=found.name,
    )


def _buffers(module: str, found: list[UnregisteredTensor]) -> Finding:
    names, first = [one.name for one in found], found[0]
    elsewhere = first.module_device not in {"", first.device}
    now = f": it is on {first.device}, the module on {first.module_device}" if elsewhere else ""
    verb, them = ("is a plain tensor", "it") if len(found) == 1 else ("are plain tensors", "them")
    does_not = f"{first.owner}.to(device) does not move {them}{now}, and state_dict() leaves {them} out"
    attribute, made = first.name.rpartition(".")[2], _made(first)
    owner, value = (made[0].rpartition(".")[0], ast.unparse(made[1])) if made is not None else ("self", "…")
    as_buffer = f'{owner}.register_buffer("{attribute}", {value})'
    return Finding(
        code="TM603",
        severity="note",
        message=f"{listed(names)} {verb}: {does_not}.",
        location=first.location,
        evidence={one.name: str(one.shape) for one in found[:8]},
        remedy=f"If {module} needs {them} to work, make {them} a buffer: `{as_buffer}`",
        subject=first.name,
    )


def _as_parameter(found: UnregisteredTensor) -> str:
    """Return the line that makes it, with a Parameter round what it makes; plain advice where it is no simple line."""
    attribute = found.name.rpartition(".")[2]
    made = _made(found)
    if made is None and found.location is None and found.owner:  # set from outside
        return f"{found.name} = nn.Parameter({found.name}.detach())"
    if made is None:
        return f"self.{attribute} = nn.Parameter(…)"
    target, value = made
    if isinstance(value, ast.Call):
        set_keyword(value, "requires_grad", None)
        if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_":
            value = value.func.value
    return f"{target} = nn.Parameter({ast.unparse(value)})"


def _parameter_last(found: UnregisteredTensor) -> str:
    """Return the line that makes it, with the Parameter round all that is computed; else an example."""
    made = _made(found)
    if made is None:
        return "nn.Parameter(torch.randn(3) * 0.01)"
    target, value = made
    return f"{target} = nn.Parameter({ast.unparse(_Bare().visit(value))})"


class _Bare(ast.NodeTransformer):
    """Takes ``nn.Parameter(...)`` and ``requires_grad=True`` out of an expression."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func).rpartition(".")[2] == "Parameter" and node.args:
            return node.args[0]
        set_keyword(node, "requires_grad", None)
        return node


def _made(found: UnregisteredTensor) -> tuple[str, ast.expr] | None:
    """Return what the line that makes the attribute assigns to, and what it assigns; None where that is not simple."""
    statement = only_statement(parsed(text_of(found.location)))
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return (ast.unparse(target), statement.value) if isinstance(target, ast.Attribute) else None


_LONGEST = 100  # characters of what is put into a container that is written anew


def hidden_modules(report: TraceReport | WatchReport) -> Iterator[Finding]:
    """TM605: modules or parameters in a plain list, tuple or dictionary of a module, which does not know them.

    A note where an optimizer has all of them all the same, where the rest of the module was trained and none of them
    ever got a gradient (an average of the weights, say), and where it is a single module: that is how one is kept out
    of ``parameters()`` on purpose.
    """
    yield from (_hiding(hidden) for hidden in _modules(report).unregistered_modules)


def _hiding(hidden: UnregisteredModules) -> Finding:
    untouched = hidden.trained and not hidden.with_gradient
    meant = hidden.optimized >= hidden.parameters or hidden.modules == 1 or untouched
    missing = f"{plural(hidden.parameters, 'parameter')} ({plural(hidden.numel, 'element')})"
    code, keys = registering(hidden)
    let = "If they are to be trained with it, let" if meant else "Let"
    return Finding(
        code="TM605",
        severity="note" if meant else "warning",
        message=f"{hidden.name} is {contents(hidden)}: {hidden.owner} does not know them, so their "
        f"{missing} are missing from {hidden.owner}.parameters(), which has {count(hidden.registered)}.",
        location=hidden.location,
        evidence={"parameters missing": hidden.parameters, "elements": hidden.numel, "optimized": hidden.optimized},
        remedy=f"{let} the module register them: `{code}`{keys}",
        subject=hidden.name,
    )


def contents(hidden: UnregisteredModules) -> str:
    """Return what a container is and holds, in words: ``"a plain list of 3 modules"``."""
    what = plural(hidden.modules, "module") if hidden.modules else plural(hidden.parameters, "parameter")
    return f"a plain {hidden.container} of {what}"


def registering(hidden: UnregisteredModules) -> tuple[str, str]:
    """Return the code that lets the module register what a container holds, and what is to be said of its keys."""
    kind = ("Module" if hidden.modules else "Parameter") + ("Dict" if hidden.container == "dict" else "List")
    attribute, inside = hidden.name.rpartition(".")[2], _inside(hidden)
    inside = _each_anew(inside) or inside  # `[layer] * 3` would register one layer three times
    keys, value = "", "value"
    if hidden.container == "dict" and not _are_named(inside):
        if kind == "ParameterDict" and all(isinstance(each, ast.Dict | ast.DictComp) for each in _values(inside)):
            kind, value = "ModuleDict", "nn.ParameterDict(value)"
        inside = f"{{str(key): {value} for key, value in {inside}.items()}}" if len(inside) < _LONGEST else "…"
        keys = f", whose keys are text: `self.{attribute}[str(key)]`"
    if kind == "ParameterList" and re.match(r"[\[(]\s*[\[(]", inside):  # a ParameterList registers no pairs
        kind, inside = "ModuleList", f"[nn.ParameterList(pair) for pair in {inside}]"
    return f"self.{attribute} = nn.{kind}({inside})", keys


def _are_named(inside: str) -> bool:
    """Return whether a module can register what is written there: a flat dictionary whose keys may be text."""
    if any(isinstance(value, ast.Dict | ast.DictComp | ast.List) for value in _values(inside)):
        return False
    tree = expression_of(inside)
    if isinstance(tree, ast.DictComp):
        return "range(" not in inside
    keys = [getattr(key, "value", "") for key in tree.keys] if isinstance(tree, ast.Dict) else []
    return not any(isinstance(key, int | float | tuple) for key in keys)


def _values(inside: str) -> list[ast.expr]:
    """Return the values of a dictionary that is written there, or of a comprehension of one."""
    tree = expression_of(inside)
    if isinstance(tree, ast.DictComp):
        return [tree.value]
    return tree.values if isinstance(tree, ast.Dict) else []


def _inside(hidden: UnregisteredModules) -> str:
    """Return what the line puts into the container, where it is one short expression."""
    statement = only_statement(parsed(text_of(hidden.location)))
    value = statement.value if isinstance(statement, ast.Assign) else None
    if value is None:
        return "…"
    empty = isinstance(value, ast.List | ast.Dict) and "Call" not in ast.dump(value)
    return "" if empty else ast.unparse(value)


def untied_weights(report: TraceReport | WatchReport) -> Iterator[Finding]:
    """TM609: two parameters that were one, that share memory, or that begin as copies of each other.

    Equal values alone are a note: an output layer may be meant to begin at the embedding.
    """
    for pair in _modules(report).untied:
        evidence: dict[str, Scalar] = {"evidence": pair.evidence, "elements": pair.numel}
        evidence |= {"elements compared": pair.compared} if pair.compared else {}
        prefix = f"{pair.owner}."
        first, second = (as_code(prefix + name.removeprefix(prefix)) for name in (pair.first, pair.second))
        yield Finding(
            code="TM609",
            severity="note" if pair.evidence == "equal values" else "warning",
            message=f"{pair.first} and {pair.second}" + _WHY[pair.evidence],
            location=pair.location,
            evidence=evidence,
            remedy=f"Tie them again, after loading and copying and before the optimizer is made: `{second} = {first}`",
            subject=pair.second,
        )


_WHY = {
    "was one": " were one Parameter and are now two: each gets its own gradient and update.",
    "one memory": " are two Parameters that share one memory: each has its own gradient, an optimizer updates the "
    "same numbers twice, and moving or copying the module separates them.",
    "equal values": " hold the same values, but are two Parameters: training makes them differ, while tied weights "
    "stay equal.",
}


def repeated_modules(report: TraceReport | WatchReport) -> Iterator[Finding]:
    """TM614: one module stands several times in a row in a container: a note, as weights may be shared on purpose."""
    repeated = _modules(report).repeated
    alike = grouped(repeated, lambda one: (one.kind, one.module, one.times, one.parameters, one.location))
    for same in alike.values():
        kind, attribute = re.escape(same[0].kind), re.escape(same[0].container.rpartition(".")[2])
        times = _line(report, rf"^(?=.*\b(?:{kind}|{attribute})\b).*\]\s*\*")
        yield _repeated(same, same[0].location or times or _last_backward(report))


def _line(report: TraceReport | WatchReport, pattern: str) -> Location | None:
    """Return the one line of the traced source that a pattern fits; None where there is none, or are several."""
    cell = report.cell if isinstance(report, TraceReport) else None
    lines = [(at, text) for at, text in enumerate(cell.lines if cell else (), 1) if re.search(pattern, text)]
    return Location(cell.filename, lines[0][0], lines[0][1].strip(), cell.count) if cell and len(lines) == 1 else None


def _last_backward(report: TraceReport | WatchReport) -> Location | None:
    passes = report.passes if isinstance(report, TraceReport) else ()
    return report.location(passes[-1].location) if passes and isinstance(report, TraceReport) else None


def _repeated(same: list[RepeatedModule], place: Location | None) -> Finding:
    one, others = same[0], len(same) - 1
    as_well = f" (and so {'does' if others == 1 else 'do'} {plural(others, 'other container')})" if others else ""
    line = _each_anew(place.text, one.module) if place is not None else ""
    make = f"nn.{one.kind}({'*' if one.kind == 'Sequential' else ''}[make() for _ in range({one.times})])"
    return Finding(
        code="TM614",
        severity="note",
        message=f"{one.container} holds one and the same {one.module} {count(one.times)} times in a row: they share "
        f"{plural(one.parameters, 'parameter')}, and no layer learns anything of its own{as_well}.",
        location=place,
        evidence={"times": one.times, "parameters": one.parameters, "containers": len(same)},
        remedy=f"If each layer is to have its own weights, create each one: `{line or make}`"
        f"{'' if line else ', or copy it: `copy.deepcopy(layer)`'}",
        subject=one.container,
    )


def _each_anew(line: str, module: str = "") -> str:
    """Return ``[make() for _ in range(n)]`` for ``[make()] * n`` in a line; a copy of what has a name.

    Empty where another class than ``module`` is made there: what is repeated was put into the container elsewhere.
    """
    times = [node for node in expressions(line) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
             and isinstance(node.left, ast.List) and len(node.left.elts) == 1]  # fmt: skip
    if len(times) != 1 or not isinstance(times[0].left, ast.List):
        return ""
    item = times[0].left.elts[0]
    if module and isinstance(item, ast.Call) and called_function(item).rpartition(".")[2] != module:
        return ""
    made = ast.unparse(item) if isinstance(item, ast.Call) else f"copy.deepcopy({ast.unparse(item)})"
    return spliced(line, times[0], f"[{made} for _ in range({ast.unparse(times[0].right)})]")


def flags_without_effect(report: TraceReport | WatchReport) -> Iterator[Finding]:
    """TM615: `module.requires_grad = False`, or a misspelt name: an attribute that nothing reads; nothing is frozen."""
    for flag in _modules(report).flags:
        place = _line(report, rf"\.{flag.attribute}\s*=\s*False") or _last_backward(report)
        what, whose, updated = "a parameter has no such switch", flag.of, "it"
        if flag.is_module:
            what, updated = "a module has no such switch", f"{count(flag.optimized)} of them"
            whose = f"{plural(flag.asking, 'parameter')} of {flag.of}"
        gets = "asks for a gradient" if flag.asking == 1 else "ask for gradients"
        stepped = f", and an optimizer updates {updated}" if flag.optimized else ""
        yield Finding(
            code="TM615",
            severity="warning" if flag.optimized else "note",
            message=f"{flag.name} = False freezes nothing: {what}, and {whose} still {gets}{stepped}.",
            location=place,
            evidence={"still asking": flag.asking, "optimized": flag.optimized},
            remedy=f"Freeze with the method: `{as_code(flag.of)}.requires_grad_(False)`",
            subject=flag.name,
        )


def parameter_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM601: a parameter that asks for a gradient got none in any pass, although others of its model did.

    A model that no backward reached at all is not reported: in adversarial training that is meant; a note where the
    optimizer that holds it steps another one. Nor is a parameter that a graph leads to: ``autograd.grad`` may have been
    asked for others only; nor one that its module got anew, as a moving average; nor one that a cut leaves out, which
    is TM303's to tell; nor one that no optimizer holds, where optimizers hold others of its model: a teacher inside of
    its student's wrapper.
    """
    if hides_parameters(report):
        return
    left_out = names_left_out(report) | _not_to_be_trained(report)
    reached = {series.owner for series in report.parameters if series.touched and series.owner}
    held = [{one.owner for one in held_by(report, use)} for use in optimizers_of(report) if use.steps >= FEWEST_STEPS]
    along = reached.union(*(owners for owners in held if owners & reached)) - {""}
    for owner in dict.fromkeys(series.owner for series in report.parameters if series.owner in along):
        of = [series for series in report.parameters if series.owner == owner]
        missing = [series for series in of if _is_missing(series) and series.name not in left_out]
        last = max((at for one in of for at, norm in enumerate(one.norms) if norm != UNTOUCHED), default=-1)
        called = report.passes[last].location if report.passes else None
        constants = [series for series in missing if changes_no_derivative(report, series)]
        if constants:
            yield _without_effect(constants, max(series.touched for series in of), report.location(called))
        missing = [series for series in missing if series not in constants]
        if missing:
            places = shortest([series.name for series in missing], [series.name for series in of])
            places = places if len(missing) < len(of) else [owner]
            verb = "gets" if len(places) == 1 else "get"
            share = f"{count(len(missing))} of the {count(len(of))} parameters of {of[0].owner}"
            share = share if len(missing) < len(of) else "all of its parameters"
            remedy, related = _remedy(report, missing)
            yield Finding(
                code="TM601",
                severity="warning" if owner in reached and not _may_be_chosen(report, missing) else "note",
                message=f"{listed(places)} {verb} no gradient in {passes_words(report)}: no path leads there from the "
                f"loss ({share}).",
                location=report.location(called),
                evidence={series.name: series.numel for series in missing[:8]},
                remedy=f"{remedy} {to_freeze(places, of[0].owner)}",
                subject=missing[0].name,
                related=related,
            )
    yield from _models_without_gradient(report)


def _without_effect(constants: Sequence[ParameterSeries], times: int, here: Location | None) -> Finding:
    names = [series.name for series in constants]
    verb, has = ("gets", "it has") if len(names) == 1 else ("get", "they have")
    return Finding(
        code="TM601",
        severity="note",
        message=f"{listed(names)} {verb} no gradient in {plural(times, 'backward pass', 'backward passes')}: only "
        f"derivatives of the output enter the loss, so {has} no effect.",
        location=here,
        evidence={series.name: series.numel for series in constants[:8]},
        remedy=f"Make the layer without it: `bias=False`. {to_freeze(names, constants[0].owner)}",
        subject=names[0],
    )


def _not_to_be_trained(report: TraceReport) -> set[str]:
    """Return the parameters without an optimizer, of the models of which optimizers hold others."""
    uses = optimizers_of(report)
    if any(use.unknown_parameters or use.left_out for use in uses):
        return set()
    held = {number for use in uses for number in use.holds}
    owners = {report.parameters[number].owner for number in held}
    return {each.name for at, each in enumerate(report.parameters) if at not in held and each.owner in owners}


def _is_missing(series: ParameterSeries) -> bool:
    asks = series.is_parameter and series.requires_grad and not series.replaced
    return asks and not series.touched and not series.used


_NUMBERED = re.compile(r"\.\d+(?=\.)")


def _may_be_chosen(report: TraceReport, missing: Sequence[ParameterSeries]) -> bool:
    """Return whether all have others of the same name but a number that get a gradient now and then, as experts do."""
    alike = {_NUMBERED.sub(".*", one.name) for one in report.parameters if 0 < one.touched < report.passes_traced}
    return all(_NUMBERED.sub(".*", one.name) in alike for one in missing)


def _remedy(report: TraceReport, missing: Sequence[ParameterSeries]) -> tuple[str, tuple[RelatedLine, ...]]:
    """Return what to do, with the line at which what the parameters made was last seen, where one is known."""
    cut = read_only_cut(report, [series.name for series in missing])
    place = report.location(cut.location) if cut is not None else None
    if cut is None or place is None:
        use = "A router may never have chosen it; otherwise use" if _may_be_chosen(report, missing) else "Use"
        return f"{use} it in forward, and its result in the loss.", ()
    call = call_words(cut, place)
    described = f"Its result is cut off at {call} ({place.label}): if the loss should depend on it, remove the cut."
    return described, (RelatedLine("cut off here", place),)


def _models_without_gradient(report: TraceReport) -> Iterator[Finding]:
    """Yield the optimizers that make steps although nothing that they hold had a gradient at any of them.

    Where a call was seen to cut the gradient, TM303 reports it; where the model was made anew, TM604.
    """
    training = training_of(report)
    if report.state == "running":
        return
    optimized = {number for use in training.optimizers for number in use.holds}
    cuts = (*report.cuts, *(cut for _, cut in cuts_in(report)))
    if any(cut.left_out for cut in cuts) or any(
        series.owner and series.touched and at not in optimized for at, series in enumerate(report.parameters)
    ):
        return
    cut_off = names_left_out(report)
    known = report.passes_traced == report.passes_seen and training.optimizers_seen == len(training.optimizers)
    for use in training.optimizers if known and report.passes_seen >= FEWEST_STEPS else ():
        idle = use.steps >= FEWEST_STEPS and all(pattern.kind == "idle" for pattern in use.patterns)
        held = held_by(report, use)
        passes = {
            series.name: list(zip(report.passes, series.norms, strict=False)) for series in held if series.touched
        }
        returned = {
            name
            for name, every in passes.items()
            if name not in cut_off
            and len(every) == report.passes_seen
            and all(done.returned or norm == UNTOUCHED for done, norm in every)
        }
        missing = [series for series in held if series.owner and (_is_missing(series) or series.name in returned)]
        if idle and missing and len(missing) == len(held) and not (use.unknown_parameters or use.left_out):
            who = shortest([series.name for series in missing], [series.name for series in report.parameters])
            owners = list(dict.fromkeys(series.owner for series in missing))
            theirs = f"the {plural(len(missing), 'parameter')} that it holds"
            came = f"{passes_words(report)} reached none of {theirs}"
            if returned:
                came = f"what reached {theirs} was returned by `autograd.grad`, which fills no `.grad`"
            yield Finding(
                code="TM601",
                severity="warning",
                message=f"{use.name} makes {plural(use.steps, 'step')}, but no parameter of {listed(owners)} has a "
                f"gradient at any of them: {came}.",
                location=report.location(next((pattern.location for pattern in use.patterns), None)),
                evidence={"steps": use.steps, "parameters": len(missing)},
                remedy="Leave out what makes new values without a graph between the model and the loss: "
                "`.detach()`, `.item()`, `torch.tensor(x)`, `nn.Parameter(x)`, or a way through NumPy. An accuracy has "
                "no gradient: take a loss of the scores.",
                subject=who[0],
            )
