"""TM106, TM107, TM206, TM302, TM307, TM311, TM610, TM613, TM806: what torch accepts, and means otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensormagic.diagnoses.backward_failures import caught_return, node_of, saver, tensor_name
from tensormagic.diagnoses.lines import (
    UPDATE_IN_PLACE,
    assigned,
    atom,
    call_on,
    described_write,
    is_code,
    shortened_code,
    spliced,
    statement_of,
    text_of,
    under_no_grad,
    update_by_hand,
)
from tensormagic.diagnoses.paths import RESHAPING, neighbours
from tensormagic.diagnoses.rule import about_calls, every_call, grouped, observed, related_lines
from tensormagic.reports import Finding, Node, Observation, Severity, TraceReport
from tensormagic.reports.base import Scalar
from tensormagic.reports.failure import GradientRead, ModifiedSavedTensor, OverwrittenGradient
from tensormagic.words import binding, count, listed, plural, tuple_text


def regrouped(report: TraceReport) -> Iterator[Finding]:
    """TM106: a view or reshape whose sizes are the old ones in another order.

    A note where two sizes changed places, which may be chance; a warning where three or more fit.
    """
    for one in observed(report, "regrouped"):
        if one.result is None or not one.operands or not every_call(one):
            continue
        old, new = one.operands[0].shape, one.result.shape
        name = one.operands[0].name or "the tensor"
        sure = one.detail == "split" or (one.detail == "permuted" and len(old) > 3)
        aim = "split off the heads" if one.detail == "split" else "swap dimensions"
        message = (
            f"{one.op} turns {name} of shape {tuple_text(old)} into {tuple_text(new)}: it keeps the elements in memory "
            "order and does not swap dimensions, so rows of the result mix elements of several."
        )
        remedy = f"To {aim}: {_swap(name, old, new, one.detail)}"
        yield about_calls(report, "TM106", one, "warning" if sure else "note", message, remedy)


def _swap(name: str, old: tuple[int, ...], new: tuple[int, ...], detail: str) -> str:
    it, dims = binding(name) if name != "the tensor" else "x", len(old)
    if detail == "split":
        heads, size = new[-3], new[-1]
        return f"`{it}.view({', '.join(map(str, old[:-1]))}, {heads}, {size}).transpose(-3, -2)`"
    if dims > 3 and new == (old[0], old[-1], *old[1:-1]):
        return f"`{it}.movedim(-1, 1)`"
    if dims > 3 and new[-1] == old[1]:
        return f"`{it}.movedim(1, -1).reshape({', '.join(map(str, new))})`"
    return _turned(it, old, new)


def _turned(it: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
    dims, sizes = len(old), ", ".join(map(str, new))
    if dims == 3 and len(new) == 3 and new[0] == old[0]:
        return f"`{it}.transpose(1, 2)`"
    if dims == 3 and new[0] == old[1]:
        turned = old[1], old[0], old[2]
        if new in {turned, (old[1], old[0] * old[2])}:
            return f"`{it}.transpose(0, 1)`" if new == turned else f"`{it}.transpose(0, 1).flatten(1)`"
        return f"`{it}.transpose(0, 1).reshape({sizes})`"
    for first in range(1, dims - 1):  # two dimensions change places, then neighbours are merged
        swapped = [*old[:first], old[first + 1], old[first], *old[first + 2 :]]
        if _is_merged(swapped, new) and not _is_merged(old, new):
            return f"`{it}.transpose({first}, {first + 1}).reshape({sizes})`"
    return f"`{it}.permute(…)` first, and `reshape` only to merge neighbouring dimensions."


def _is_merged(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether the new sizes are the old ones with two neighbours or more taken together."""
    rest = list(old)
    for size in new:
        product = 1
        while rest and product < size:
            product *= rest.pop(0)
        if product != size:
            return False
    return not rest and len(new) < len(old)


def lost_sums(report: TraceReport) -> Iterator[Finding]:
    """TM107: a sum that is written to places which its index names several times: of each, one addition is kept.

    A note where one may be enough: of ones, or where what is added is made of the place itself.
    """
    for one in observed(report, "index repeats"):
        lost, of, how, code = one.detail.split(" ", 3)
        found = statement_of(code)
        if not isinstance(found, ast.AugAssign) or not isinstance(found.target, ast.Subscript):
            continue
        x, parts = ast.unparse(found.target.value), _parts(found.target.slice)
        message = (
            f"{shortened_code(found)} adds once to each place that {', '.join(map(ast.unparse, parts))} names, however "
            f"often it names it: a call loses {count(int(lost))} of its {plural(int(of), 'addition')}."
        )
        severity: Severity = "warning" if how == "sure" else "note"
        aim = {"sure": "Add them all", "counts": "To count each of them"}.get(how, "If all of them should count")
        remedy = f"{aim}: `{_all_added(found, one)}`"
        yield replace(about_calls(report, "TM107", one, severity, message, remedy), subject=x)


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _all_added(found: ast.AugAssign, one: Observation) -> str:
    """Return the statement that adds what belongs to one place together."""
    assert isinstance(found.target, ast.Subscript)
    x, y, parts = atom(found.target.value), ast.unparse(found.value), _parts(found.target.slice)
    minus, (shape, *others) = isinstance(found.op, ast.Sub), (operand.shape for operand in one.operands)
    whole = [ast.unparse(part) == ":" for part in parts]
    flat = others[:1] and len(others[0]) == 1 and sum(whole) == len(whole) - 1
    if flat and len(shape) == 1 and isinstance(found.value, ast.Constant):
        return f"{x} {'-' if minus else '+'}= torch.bincount({ast.unparse(parts[0])}, minlength=len({x}))"
    at = whole.index(False) if flat else 0
    if flat and others[1:] == [(*shape[:at], *others[0], *shape[at + 1 :])]:
        dtype = "" if one.operands[2].dtype == one.operands[0].dtype else f".to({x}.dtype)"
        return f"{x}.index_add_({at}, {ast.unparse(parts[at])}, {y}{dtype}{', alpha=-1' if minus else ''})"
    given = ", ".join(map(ast.unparse, parts)) + ("," if len(parts) == 1 else "")
    if any(isinstance(part, ast.Slice | ast.Constant | ast.List) for part in parts):  # it takes tensors alone
        given = "…"
    if isinstance(found.value, ast.Constant):
        y = f"torch.tensor({'-' if minus else ''}{y}, dtype={x}.dtype)"
    elif minus:
        y = f"-{atom(found.value)}"
    return f"{x}.index_put_(({given}), {y}, accumulate=True)"


def stored_views(report: TraceReport) -> Iterator[Finding]:
    """TM206: tensors that were stored one by one are views of one buffer, which was written in between."""
    for one in observed(report, "same memory"):
        many, _, kind = one.detail.partition(" ")
        numpy = kind == "numpy"
        says = "from_numpy and as_tensor share the array's memory" if numpy else "it was written after they were stored"
        message = (
            f"{one.op} joins {many} tensors that share the same memory: {says}, so each of them holds the values "
            "written last."
        )
        remedy = f"Store copies: {_copied(report, one, numpy=numpy)}"
        yield about_calls(report, "TM206", one, "note" if numpy else "warning", message, remedy)


def _copied(report: TraceReport, one: Observation, *, numpy: bool) -> str:
    """Return the line that stores, with a copy; an example where there is none, or are several."""
    here = report.location(one.location)
    call = call_on(text_of(here), one.op)
    stored = ast.unparse(call.args[0]) if call is not None and call.args else ""
    lines = {line.strip() for line in report.cell.lines if line.strip().startswith(f"{stored}.append(")}
    line = lines.pop() if stored and len(lines) == 1 else ""
    append = call_on(line, "append")
    given = append.args[0] if append is not None and len(append.args) == 1 else None
    if given is None:
        return "`stored.append(torch.tensor(array))`" if numpy else "`stored.append(buffer.clone())`"
    return f"`{spliced(line, given, f'{atom(given)}.clone()')}`"


def unreachable_dropout(report: TraceReport) -> Iterator[Finding]:
    """TM610: a dropout that drops in eval mode too: a module made in forward, `F.dropout` without its mode.

    A warning where a module in eval mode was seen to drop; a note while it was only seen in training.
    """
    dropped = list(observed(report, "dropout in eval"))
    lines = {one.location for one in dropped}
    for one in (*dropped, *(one for one in observed(report, "dropout") if one.location not in lines)):
        how, _, module = one.detail.partition(" ")
        why = f"{one.op} ignores the mode of {module} unless `training` is passed"
        remedy = f"Pass the mode: `F.{one.op}(x, p, training=self.training)`"
        if how == "made":
            why = f"the dropout is not a submodule of {module}, so eval() does not reach it"
            line = text_of(report.location(one.location))
            call = call_on(line, "Dropout", "Dropout1d", "Dropout2d", "Dropout3d")
            as_made = ast.unparse(call) if call is not None else "nn.Dropout(p)"
            remedy = f"Make it in `__init__`: `self.{one.op} = {as_made}`"
        if one.kind == "dropout in eval":
            says = f"{plural(one.seen, 'call')} in eval mode still dropped elements: {why}."
            yield about_calls(report, "TM610", one, "warning", says, remedy)
        else:
            yield about_calls(report, "TM610", one, "note", f"{why}; nothing was evaluated in this run.", remedy)


def last_sample(report: TraceReport) -> Iterator[Finding]:
    """TM613: the last sample of a batch was taken from a recurrent layer's output, for the last time step.

    A note after attention that takes places first: the first or last sample may be looked at.
    """
    for one in observed(report, "last sample"):
        name, shape = one.operands[0].name or "the output", one.operands[0].shape
        if one.detail.startswith("attention"):
            at = one.detail.rpartition(" ")[2]
            message = (
                f"{name}[:, {at}] takes the {'first' if at == '0' else 'last'} of {count(shape[1])} samples, for all "
                f"{count(shape[0])} places: the attention before it was made without batch_first=True, so it attends "
                "along dimension 0."
            )
            remedy = (
                "If the input is (batch, places, features): `nn.TransformerEncoderLayer(…, batch_first=True)`, or "
                "`nn.MultiheadAttention(…, batch_first=True)`"
            )
            yield about_calls(report, "TM613", one, "note", message, remedy)
        else:
            message = (
                f"{name}[:, -1] takes the last of {count(shape[1])} samples, for all {count(shape[0])} time steps: the "
                "layer was made without batch_first=True, so its input and output are (time, batch, features)."
            )
            remedy = (
                f"For input of (batch, time, features): `{one.detail or 'nn.LSTM'}(…, batch_first=True)`; for (time, "
                f"batch, features), take `{binding(name) if name != 'the output' else 'output'}[-1]`"
            )
            yield about_calls(report, "TM613", one, "warning", message, remedy)


def wrapped(report: TraceReport) -> Iterator[Finding]:
    """TM806: uint8 arithmetic whose result left 0 to 255 and came back at the other end."""
    for one in observed(report, "wrapped"):
        share, _, span = one.detail.partition(" from ")
        lost, _, of = share.partition(" of ")
        low, _, high = span.replace("-", "\u2212").partition(" to ")
        names = [operand.name for operand in one.operands if operand.name]
        what = f"{one.op} of {' and '.join(names)}" if names else one.op
        message = (
            f"{what} wrapped around in {count(int(lost))} of {plural(int(of), 'element')}: the results go from {low} "
            f"to {high}, and uint8 holds 0 to 255."
        )
        remedy = f"Convert first: `{binding(names[0]) if names else 'x'}.float()`"
        yield about_calls(report, "TM806", one, "warning", message, remedy)


# TM302, TM307: what autograd lets pass although it is wrong: writes it cannot see, and gradients that nobody keeps.

# A line that only asks whether there is a gradient.
_ASKS = re.compile(
    r"\.grad\s+is\b|\b(hasattr|getattr)\(|\b(if|elif|while|and|or|not)\s+[\w.\[\]]+\.grad\s*(:|\)|and\b|or\b|else\b)"
)

_DATA = (
    "Change it after backward, or make a new tensor. Under `with torch.no_grad():` instead of `.data`, autograd would "
    "have noticed and raised an error."
)
_ARRAY = "Change the array after backward, or change a copy of it: `.copy()`."


def changed_unseen(report: TraceReport) -> Iterator[Finding]:
    """TM302: a saved tensor was changed in a way that autograd cannot see: what backward computed is wrong."""
    unseen = report.silent_errors.unseen if report.silent_errors is not None else ()
    yield from map(_unseen, grouped(unseen, lambda one: (one.writes[0].location, one.writes[0].call)).values())


def _unseen(same: list[ModifiedSavedTensor]) -> Finding:
    """Return the finding about what one line changed: the first that backward came to, and how many more."""
    modified, first = same[0], same[0].writes[0]
    array = assigned(first.location) if first.call == "as_tensor" else []
    made_of_array = array[0] if len(array) == 1 else ""  # then it has the name that its line binds
    names = [tensor_name(each, first) if each.name or not made_of_array else made_of_array for each in same]
    names = list(dict.fromkeys(names))
    more = f" (and {plural(len(names) - 1, 'other tensor')})" if len(names) > 1 else ""
    how, what_hides, remedy = f"by {described_write(first)}", "`.data`", _DATA
    seen: dict[str, Scalar] = {"writes seen": modified.writes_seen}
    if first.kind == "array":
        how, what_hides, remedy = f"through the NumPy array of {described_write(first)}", "NumPy", _ARRAY
        seen = {}
    return Finding(
        code="TM302",
        severity="error",
        message=f"{names[0]}{more} was changed {how} after {saver(modified)} had saved it for backward, and "
        f"{what_hides} hides that from autograd: the gradients that came through {modified.op} are wrong.",
        location=first.location or modified.location,
        evidence={"tensors": len(names), **seen, "shape": str(modified.shape)},
        remedy=remedy,
        subject=modified.op if " " in names[0] else names[0],
        node=node_of(modified),
        related=related_lines((f"saved by {modified.op}", modified.location), ("backward", modified.backward)),
    )


def gradient_of_non_leaf(report: TraceReport) -> Iterator[Finding]:
    """TM307: ``.grad`` was read of a tensor that is not a leaf, where it is always None.

    A note where there was no backward yet: then it is None of a leaf as well. Lines that ask whether there is a
    gradient are left alone.
    """
    for read in report.silent_errors.reads if report.silent_errors is not None else ():
        if read.location is None or not _ASKS.search(read.location.text):
            name = read.name or listed(assigned(read.made)[:1])
            made = f"{read.op} made it" if read.op else "an operation made it"
            times = f" ({plural(read.count, 'time')})" if read.count > 1 else ""
            code = name if name and name.isidentifier() else "x"
            yield Finding(
                code="TM307",
                severity="warning" if read.passes else "note",
                message=f"The .grad of {name or f'a tensor {read.shape}'} is read and is None{times}: it is not a "
                f"leaf, {made}, and torch keeps .grad only for leaves.",
                location=read.location,
                evidence={"backward passes before": read.passes, "times": read.count},
                remedy=_of_non_leaf(read, code),
                subject=name,
                related=related_lines(("made here", read.made)),
            )


def _of_non_leaf(read: GradientRead, code: str) -> str:
    """Return what to do to have the gradient: by what made the tensor, and what it is read for."""
    update = update_by_hand(text_of(read.made))  # ``w = w - lr * w.grad`` makes a new tensor
    if update is not None and (update.several or update.name == code):
        return UPDATE_IN_PLACE.format(under_no_grad(update.in_place))
    asked = f"Ask for it before backward: `{code}.retain_grad()`.{_about_the_leaf(read, code)}"
    return _leaf_first(read, code) or asked


def _leaf_first(read: GradientRead, code: str) -> str:
    """Return what to do where the line that reads it is an update: what is updated has to be a leaf."""
    made = re.fullmatch(rf"{re.escape(code)} = (.+)", text_of(read.made))
    if not read.single or made is None or not re.match(rf"{re.escape(code)}(\.data)? -= ", text_of(read.location)):
        return ""
    value = re.sub(r",\s*requires_grad=True", "", made[1])
    return f"Make it a leaf: compute its values first, set `requires_grad` last: `{code} = ({value}).requires_grad_()`."


def _about_the_leaf(read: GradientRead, code: str) -> str:
    """Return what to do about the leaf, where the tensor is little else: scaled, converted, copied."""
    if read.leaf:
        return f" If you meant the leaf that it was made from: `{read.leaf}.grad`."
    if read.single:
        return f" If {code} should be the leaf, set `requires_grad` last: `{code} = {code}.detach().requires_grad_()`."
    return ""


_SHARING = RESHAPING | {"add"}  # what hands one memory on


def wrong_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM311: the backward of a custom Function returned what torch refused, or writes into a gradient that others use.

    A note where the graph does not show who else is given that gradient.
    """
    yield from caught_return(report)
    for one in report.silent_errors.overwritten if report.silent_errors is not None else ():
        others = _given_the_same(report, one)
        name, copied = one.argument or "grad_output", f"{one.argument} = {one.argument}.clone()"
        line = text_of(one.location)
        shared = "something else holds the same tensor"
        if others:
            receivers = [f"{node.op} ({place.label})" if (place := report.location(node.location)) else node.op
                         for node in others]  # fmt: skip
            shared = f"{listed(receivers, most=2)} {'is' if len(others) == 1 else 'are'} given the same tensor"
        yield Finding(
            code="TM311",
            severity="warning" if others else "note",
            message=f"{one.function}.backward changes {name}, the gradient that it is given, in place: {shared}, and "
            "with it the change.",
            location=one.location,
            evidence={"backward passes": one.passes},
            remedy=f"Change a copy: `{copied if one.argument else 'grad_output = grad_output.clone()'}` before it.",
            subject=one.function,
            node=(one.graph, one.node) if one.graph is not None and one.node is not None else None,
            related=related_lines(("applied here", one.applied)),
            fix=f"{copied}\n{line}" if one.argument and is_code(line) else "",
        )


def _given_the_same(report: TraceReport, one: OverwrittenGradient) -> list[Node]:
    """Return the nodes that are given what a node is given: by the nearest on its way that hands it to several."""
    if one.graph is None or one.node is None:
        return []
    graph, at = report.graphs[one.graph], one.node
    feeders, targets = neighbours(graph)
    while len(senders := feeders.get(at, [])) == 1 and graph.nodes[senders[0]].op in _SHARING:
        others = [graph.nodes[index] for index in targets[senders[0]] if index != at]
        if others:
            return others
        at = senders[0]
    return []
