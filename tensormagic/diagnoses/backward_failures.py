"""TM301, TM304, TM305, TM308, TM311, TM318: what a backward raises, and a custom one that is quietly wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod

from tensormagic.diagnoses.lines import (
    LONGEST,
    assigned,
    atom,
    call_on,
    described_write,
    instead_of_write,
    set_keyword,
    shortened_code,
    target_of,
    text_of,
    with_create_graph,
    writing,
)
from tensormagic.diagnoses.rule import related_lines, scientific
from tensormagic.reports import FailureReport, Finding, Location, Severity, StartReport, TraceReport
from tensormagic.reports.failure import FreedGraph, ModifiedSavedTensor, SavedWrite, SwallowedError, WrongReturn
from tensormagic.words import capitalised, listed, plural

_RESULTS = frozenset({"result", "output", "out"})
_UNSEEN_WRITER = (
    "The change was not seen: it happened outside the trace, on another thread, or in code that torch does not "
    "report. Trace all of it, or let the node save a copy: `.clone()`."
)
_UNTRACED = (
    "Under `%%tracegrad` or `with tensormagic.trace():` the finding names both lines: the one that saved it and the "
    "one that changed it."
)


def changed_after_saving(report: FailureReport) -> Iterator[Finding]:
    """TM301: a tensor that a node had saved was changed in place before backward came to it."""
    modified = report.backward.modified if report.backward is not None else None
    if modified is None:
        return
    first = modified.writes[0] if modified.writes else None
    name = tensor_name(modified, first)
    was = f"it was at version {modified.saved_version} then and is at version {modified.version} now"
    by = f"was changed in place by {described_write(first)}" if first is not None else "was changed in place"
    yield Finding(
        code="TM301",
        severity="error",
        message=f"{name} {by} after {saver(modified)} had saved it for backward: {was}.",
        location=(first.location if first is not None else None) or modified.location or report.location,
        evidence={
            "saved version": modified.saved_version, "version": modified.version, "writes seen": modified.writes_seen,
            "other nodes that saved it": modified.others,
        },
        remedy=_kept_graph(modified, report.location, first)
        or _remedy(first, modified.name, traced=modified.graph is not None),
        subject=modified.op if " " in name else name,
        node=node_of(modified),
        related=related_lines((f"saved by {modified.op}", modified.location if first is not None else None),
                      ("backward", modified.backward)),
    )  # fmt: skip


def _kept_graph(modified: ModifiedSavedTensor, location: Location | None, first: SavedWrite | None) -> str:
    """Return what to do where an earlier step's graph was kept, and a step changed what it saved."""
    backward = text_of(modified.backward or location)
    # of several on one line it is the others that kept their graph
    if first is None or first.kind != "step" or "retain_graph=True" not in backward or backward.count("backward(") > 1:
        return ""
    carried = [name for name in assigned(modified.location) if name.isidentifier()]
    again = rf"\b{re.escape(carried[0])}\b.*=.*\b{re.escape(carried[0])}\b" if len(carried) == 1 else "$^"
    is_carried = bool(re.search(again, text_of(modified.location)))
    keeps = "Leave out `retain_graph=True`, which keeps the graphs of earlier steps"
    if not is_carried and carried:
        again = f"compute {listed(carried)} again in each step, inside the loop"
        return f"{keeps}, and {again}; if a state is carried from step to step, `.detach()` it."
    detach = _cut_off(carried, _lstm_state(carried, modified.op, modified.location)) if carried else "h = h.detach()"
    return f"{keeps}, and detach what is carried from step to step: `{detach}` before it is used again."


def _remedy(first: SavedWrite | None, name: str, *, traced: bool) -> str:
    if first is None:
        return _UNSEEN_WRITER if traced else _UNTRACED
    if first.kind == "step":
        return (
            "Call every backward that uses this graph before the step, or compute the loss again after it: a step "
            "changes the parameters in place."
        )
    if first.call == "embedding_renorm_":
        return f"A lookup with `max_norm` rescales the rows it reads: before it, use a copy, `{name}.clone()`."
    if "." in name and first.call.endswith("_") and first.location is not None:  # a module's own parameter
        return f"Do it after the backward, which needs the values that the forward used: `{first.location.text}`"
    return instead_of_write(first)


def tensor_name(modified: ModifiedSavedTensor, write: SavedWrite | None) -> str:
    """Return the name of a modified saved tensor: the user's, in the line that wrote, else by what saved it."""
    if modified.name:
        return modified.name
    written = target_of(writing(write)) if write is not None else ""
    if written and "." not in written:
        return written
    return f"The result of {modified.op}" if modified.slot in _RESULTS else f"An input of {modified.op}"


def saver(modified: ModifiedSavedTensor) -> str:
    """Return what saved it: ``sigmoid``, ``addmm in net.2``."""
    return f"{modified.op} in {modified.module}" if modified.module not in {"", modified.op} else modified.op


def node_of(found: ModifiedSavedTensor | FreedGraph | WrongReturn) -> tuple[int, int] | None:
    """Return graph and node of a fault, where there is a trace that they are of."""
    return None if found.graph is None or found.node is None else (found.graph, found.node)


def freed_graph(report: FailureReport) -> Iterator[Finding]:
    """TM304: backward came to a part of the graph that an earlier one had freed."""
    freed = report.backward.freed if report.backward is not None else None
    if freed is None:
        return
    yield Finding(
        code="TM304",
        severity="error",
        message=_freed_message(freed, report),
        location=freed.backward or report.location,
        evidence={
            **({"nodes in both graphs": freed.shared} if freed.shared else {}),
            "first node without its tensors": freed.op,
        },
        remedy=_freed_remedy(freed),
        subject=freed.root or _root_of(report) or freed.op,
        node=node_of(freed),
        related=related_lines(("freed by the earlier backward", freed.first),
                      ("made here, and used again", None if freed.whole else freed.joint_location)),
    )  # fmt: skip


def _root_of(report: FailureReport) -> str:
    """Return what backward was called on, where the user has a name for it."""
    names = [one.name for one in report.operands if one.is_tensor and one.requires_grad]
    return names[0] if names and " " not in names[0] else ""


def _freed_message(freed: FreedGraph, report: FailureReport) -> str:
    root = freed.root or _root_of(report)
    graph = f"the graph of {root}" if root else "the graph"
    if not freed.known:
        return f"T{graph[1:]} was used by an earlier backward: what {freed.op} had saved is freed."
    if freed.whole:
        return f"backward goes through {graph} a second time: the first one freed what it had saved."
    names = _joint(freed)
    belongs = "belong" if len(names) > 1 else "belongs"
    nodes = f": {plural(freed.shared, 'node of it was', 'nodes of it were')} visited before" if freed.shared else ""
    return (
        f"{listed(names) or f'The result of {freed.joint}'} {belongs} to a graph that an earlier backward has freed, "
        f"and {graph if root else 'this backward'} leads back into it{nodes}."
    )


def _joint(freed: FreedGraph) -> list[str]:
    """Return what the user calls what both graphs share: one name, several that one line made, or none."""
    return [freed.joint_name] if freed.joint_name else assigned(freed.joint_location)


def _carried_remedy(freed: FreedGraph, names: list[str]) -> str:
    place = freed.joint_location
    kept = call_on(place.text, "append", "extend") if place is not None and not names else None
    if kept is not None and isinstance(kept.func, ast.Attribute):
        whose = ast.unparse(kept.func.value)
        return f"{whose} still holds what earlier steps put into it: begin each with an empty one, `{whose} = []`."
    state = [] if freed.joint_name else _lstm_state(names, freed.joint, place)
    detach = f": `{_cut_off(names, [*freed.joint_tuples, *state])}`" if names else ""
    return f"Detach what is carried from step to step{detach} before it is used again."


def _freed_remedy(freed: FreedGraph) -> str:
    names = _joint(freed)
    if not freed.known:
        return (
            "Compute the loss again before each backward, with all that both share: a GAN's discriminator is given "
            "`fake.detach()`. If the graph is needed twice, pass `retain_graph=True` to the first backward. If a state "
            "is carried from step to step, `.detach()` it."
        )
    if freed.whole:
        return f"Leave this one out, or keep the graph in the first: `{_keeping(freed.first)}`."
    if freed.joint_again:
        return _carried_remedy(freed, names)
    if made_to_learn := _scaled_weight(freed) or _with_its_own_graph(freed):
        return made_to_learn
    if freed.first == freed.backward:
        leaf = f", `{names[0]} = {names[0]}.detach().requires_grad_()`" if names else ""
        return (
            f"Compute {listed(names) or 'it'} again in each step, inside the loop. If it is a weight, make it a leaf "
            f"before the loop{leaf}. If it is a constant, `.detach()` it once. For several losses in one step, call "
            "backward once, on their sum."
        )
    used = f"`{names[0]}.detach()`" if names else "a detached copy of it"
    return (
        f"Use {used} for the first backward if it should not train what made it. Otherwise add both losses and call "
        f"backward once, or keep the graph in the first: `{_keeping(freed.first)}`."
    )


def _keeping(first: Location | None) -> str:
    """Return the call of the earlier backward, as it is written, so that it keeps its graph."""
    call = call_on(text_of(first), "backward", "grad")
    if call is None or len(ast.unparse(call)) > LONGEST:
        return "backward(retain_graph=True)"
    set_keyword(call, "retain_graph", ast.Constant(value=True))
    return ast.unparse(call)


def _with_its_own_graph(freed: FreedGraph) -> str:
    """Return what to do where ``autograd.grad`` freed the graph: a loss may be made of what it returned."""
    graphed = with_create_graph(text_of(freed.first)) if freed.first != freed.backward else ""
    return graphed and (
        f"Where the loss is made of this gradient, give it a graph of its own, which keeps the other as well: "
        f"`{graphed}`. Where it is only a number, keep the graph alone: `{_keeping(freed.first)}`."
    )


def _scaled_weight(freed: FreedGraph) -> str:
    """Return what to do with a weight that is not a leaf: it was computed once, outside the loop, and is used again."""
    text = text_of(freed.joint_location)
    made = re.fullmatch(r"(?P<name>[\w.]+) = (?P<value>.+)", text)
    if made is None or "requires_grad=True" not in text:
        return ""
    value = re.sub(r",\s*requires_grad=True|requires_grad=True,\s*", "", made["value"])
    leaf = f"nn.Parameter({value})" if "." in made["name"] else f"({value}).requires_grad_()"
    return f"Make it a leaf: compute its values first, set `requires_grad` last: `{made['name']} = {leaf}`."


def _lstm_state(names: list[str], op: str, location: Location | None) -> list[str]:
    """Return the one name of an LSTM's state: it is a tuple."""
    is_lstm = op == "mkldnn_rnn_layer" or "lstm" in text_of(location).lower()
    return names if is_lstm and len(names) == 1 else []


def _cut_off(names: list[str], tuples: list[str]) -> str:
    """Return the statement that cuts states off their past."""
    cut = (f"tuple(part.detach() for part in {one})" if one in tuples else f"{one}.detach()" for one in names)
    return f"{', '.join(names)} = {', '.join(cut)}"


NOT_A_SCALAR = "grad can be implicitly created only for scalar outputs"


def not_a_scalar(report: FailureReport) -> Iterator[Finding]:
    """TM305: backward was called on something that is not one number."""
    tensors = (one for one in report.operands if one.is_tensor and one.requires_grad)
    root = next((one for one in tensors if prod(one.shape) != 1), None)
    if root is None:
        return
    bare = root.name.removesuffix("[0]")
    is_single = root.name not in report.call and bare in report.call  # torch puts a single root into a list
    name = (bare if is_single else root.name) or "what backward is called on"
    asks = report.function.endswith("grad")
    needs = "autograd.grad without grad_outputs needs" if asks else "backward() without arguments needs"
    yield Finding(
        code="TM305",
        severity="error",
        message=f"{capitalised(name) if ' ' in name else name} has "
        f"{plural(prod(root.shape), 'element')}, shape {root.shape}: {needs} a single number.",
        location=report.location,
        evidence={"elements": prod(root.shape)},
        remedy=_to_a_scalar(name, report),
        subject=name,
        related=related_lines(("made here", root.location)),
    )


def _to_a_scalar(name: str, report: FailureReport) -> str:
    """Return what to do instead, as the line has it."""
    asks = report.function.endswith("grad")
    call = call_on(text_of(report.location), "grad" if asks else "backward")
    root, code = None, name if name.isidentifier() else "y"
    if call is not None and asks:
        root = call.args[0] if call.args else None
    elif call is not None and isinstance(call.func, ast.Attribute):
        root = call.func.value
    code = atom(root) if root is not None else code
    if asks:
        if call is not None and root is not None:
            call.args[0] = ast.parse(f"{code}.sum()", mode="eval").body
        number = ast.unparse(call) if call is not None else f"torch.autograd.grad({code}.sum(), …)"
        return (
            f"Differentiate one number: `{number}`, if each element depends only on its own input; or weight the "
            f"elements: `grad_outputs=torch.ones_like({code})`."
        )
    return (
        f"Reduce it to one number, `{code}.mean().backward()` (or `.sum()`); or pass the gradient to start from: "
        f"`gradient=torch.ones_like({code})`."
    )


ON_A_LEAF = "leaf Variable that requires grad is being used in an in-place operation"


def write_to_a_leaf(report: FailureReport) -> Iterator[Finding]:
    """TM308: a leaf that collects a gradient, or a view of one, was to be changed in place."""
    leaf = next((one for one in report.operands if one.is_tensor and one.requires_grad), None)
    call = report.function.rpartition(".")[2]
    write = SavedWrite(call=call, location=report.location)
    node = writing(write)
    name = (leaf.name if leaf is not None else "") or target_of(node)
    what = name or "A leaf"
    is_view = report.error.startswith("a view of") and not (leaf is not None and leaf.is_leaf)  # else of an index of it
    view = f"is a {'view of a ' if is_view else ''}leaf that requires a gradient"
    yield Finding(
        code="TM308",
        severity="error",
        message=f"{what} {view}: {described_write(write)} would change it in place, and autograd forbids that while it "
        "records.",
        location=report.location,
        evidence={"shape": str(leaf.shape)} if leaf is not None else {},
        remedy="If it is an update or an initialisation, keep it out of the graph: `with torch.no_grad(): "
        f"{shortened_code(node) if node is not None else '…'}`. If it should be part of the graph, write into a copy, "
        f"`{name if name and ' ' not in name else 'w'}.clone()`.",
        subject=name,
        related=related_lines(("made here", leaf.location if leaf is not None else None)),
    )


def custom_function_return(report: FailureReport) -> Iterator[Finding]:
    """TM311: a custom Function's backward returned what autograd cannot use."""
    wrong = report.backward.returned if report.backward is not None else None
    if wrong is None:
        return
    first = wrong.returns[0] if wrong.returns else None
    others = tuple(("or here", location) for location in wrong.returns[1:4])
    what, remedy = _returned(wrong)
    yield Finding(
        code="TM311",
        severity="error",
        message=f"{wrong.function}.backward returns {what}",
        location=first or wrong.location or report.location,
        evidence={"got": wrong.got, "expected": wrong.expected},
        remedy=remedy,
        subject=wrong.function,
        node=node_of(wrong),
        related=related_lines(*others, ("applied here", wrong.location), ("backward", wrong.backward)),
    )


def _returned(wrong: WrongReturn) -> tuple[str, str]:
    """Return what a custom backward returned that autograd cannot use, and what to do instead."""
    which, name = f"for {wrong.argument or 'one of its inputs'}", wrong.argument
    match wrong.problem:
        case "count":
            takes, names, due = plural(int(wrong.expected), "argument"), "", ""
            if len(wrong.arguments) == int(wrong.expected or 0):
                names = f" ({listed(wrong.arguments, most=6)})"
                due = ", ".join(f"grad_{each}" for each in wrong.arguments)
            what = f"{plural(int(wrong.got), 'gradient')}, but its forward takes {takes}{names}: it must return one "
            one_each = "Return one gradient for each argument of forward, `None` for those that need none."
            remedy = f"`return {due}`, with `None` for those that need no gradient." if due else one_each
            return f"{what}gradient for each.", remedy
        case "shape":
            summed = f"Return it in the shape of {name or 'the input'}: sum over the dimensions that the forward"
            what = f"a gradient of shape {wrong.got} {which}, whose shape is {wrong.expected}."
            return what, f"{summed} broadcast, or `.reshape({name or 'x'}.shape)`."
        case "not None":
            what = f"a gradient {which}, which is not a tensor: it must be None."
            return what, f"Return `None` for {name or 'that argument'}."
        case "not a tensor":
            number = re.fullmatch(r"return ([\w.+-]+)", wrong.returns[0].text if wrong.returns else "")
            plain = number is not None and wrong.got in {"float", "int"}
            code = f"return {number[1]} * grad_output" if number and plain else "torch.full_like(grad_output, value)"
            times = f"Return a tensor, the gradient times the slope: `{code}`; or `None` if there is no gradient."
            return f"a {wrong.got} instead of a tensor or None.", times
        case "dtype":
            return "a complex gradient for a real input.", "Return its real part: `grad.real`."
    converted = f"Make it on the input's device: `.to({name or 'x'}.device)`."
    if wrong.problem == "layout":
        converted = "Return it in the layout of the input: `.to_dense()`."
    return f"a gradient with {wrong.problem} {wrong.got} {which}; it must be {wrong.expected}.", converted


# TM301, TM304, TM311 of a backward that torch refused and whose error the code around it caught: the run went on.
#
# An error shown on purpose, or handled by a retry, is a note. Where a line was refused each time, nothing that it was
# to train has learned: a warning. Where the code says that it expects the error, there is no finding.

AGAIN = 2  # refusals of one line

_Check = Callable[[FailureReport], Iterator[Finding]]


def _caught(check: _Check, report: TraceReport) -> Iterator[Finding]:
    for one in report.swallowed_errors:
        if not one.expected:
            for found in check(_as_failure(report, one)):
                often, errors = (f" {plural(one.count, 'time')}", "errors") if one.count > 1 else ("", "error")
                refused = f"torch refused this backward{often}, and the code around it caught the {errors}"
                yield replace(
                    found,
                    severity=severity_of_caught(report, one.location, one.count),
                    message=f"{found.message.removesuffix('.')}; {refused}.",
                    evidence={**found.evidence, "times refused": one.count},
                )


def _as_failure(report: TraceReport, one: SwallowedError) -> FailureReport:
    return FailureReport(
        error_type=one.error_type, error=one.error, phase="backward", exact=False, backward=one.fault,
        location=report.location(one.location),
    )  # fmt: skip


def severity_of_caught(report: TraceReport, location: int | None, count: int) -> Severity:
    """Return how bad it is that backward was refused on a line, so often, and the error caught."""
    went_through = any(done.location == location and done.outcome == "finished" for done in report.passes)
    return "warning" if count >= AGAIN and not went_through else "note"


caught_change = partial(_caught, changed_after_saving)
caught_freed_graph = partial(_caught, freed_graph)
caught_return = partial(_caught, custom_function_return)


LINEAR = 1e-6  # how far a gradient that is doubled may lie from twice what it was

# TM318: a backward that does not fit its forward: one that never reads what it is given, or whose numbers are others.


def ignored_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM318: the code of a custom backward never reads the gradient that arrives, and passes one on.

    A note as long as only gradients arrived that may have been ones: then what it passes on may be right.
    """
    for one in report.silent_errors.ignored if report.silent_errors is not None else ():
        arrived = f"; one with a norm of {scientific(one.norm)} arrived" if one.norm else ""
        right = "" if one.norm else ", which is right only if that gradient is 1"
        yield Finding(
            code="TM318",
            severity="warning" if one.norm else "note",
            message=f"{one.function}.backward never reads {one.argument}, the gradient that it is given: what it "
            f"passes on does not depend on it{right}{arrived}.",
            location=one.location,
            evidence={"norm that arrived": one.norm} if one.norm else {},
            remedy=f"Multiply by it: `return {one.argument} * …`, and check one call: `tm.check({one.function}, …)`.",
            subject=one.function,
            node=(one.graph, one.node) if one.graph is not None and one.node is not None else None,
            related=related_lines(("applied here", one.applied)),
        )


def wrong_backward(report: StartReport) -> Iterator[Finding]:
    """TM318: one call of a custom Function whose backward differs from differences of its forward."""
    found = report.function
    wrong = [one for one in found.arguments if not one.agrees] if found is not None else []
    if found is None or not (wrong or (found.doubled is not None and abs(found.doubled - 2) > LINEAR)):
        return
    ignored = found.doubled is not None and abs(found.doubled - 1) < LINEAR
    if ignored:
        why = "does not use the gradient that it is given: twice that gradient changed nothing"
    elif not wrong:
        grown = scientific(found.doubled or 0)
        why = f"is not proportional to the gradient that it is given: twice that gives {grown} times as much"
    else:
        one = wrong[0]
        own = "no gradient" if one.by_backward is None else scientific(one.by_backward)
        why = (
            f"does not fit its forward: for {listed([each.name for each in wrong])}, differences give "
            f"{scientific(one.by_differences)} in one direction, and backward {own}"
        )
    yield Finding(
        code="TM318",
        severity="error" if ignored else "warning",
        message=f"{report.model}.backward {why}.",
        location=found.location,
        evidence={one.name: one.by_differences for one in wrong[:8]},
        remedy="Multiply what is returned by that gradient (chain rule)."
        if ignored
        else "Derive it from the forward again. Straight-through estimators and reversed gradients differ on purpose.",
        subject=report.model,
    )
