"""The line to put in place of the one that a finding is about, where that line is certain: one function a code.

A fix is code with the user's own names that can be pasted: the whole line of `Finding.location` again, mended, or
with another line before or after it. Where what is right depends on what is meant, there is none: the remedy says what
to do. The corpus pastes every fix into its program, and the finding has to be gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from tensormagic.diagnoses import fixes_of_values as values
from tensormagic.diagnoses.lines import (
    NO_GRAD,
    ONLY_IN_PLACE,
    atom,
    call_on,
    called_function,
    expression_of,
    keyword_of,
    names_in,
    only_place,
    remedy_code,
    set_keyword,
    spliced,
    statement_of,
    targets,
    under_no_grad,
    update_by_hand,
    with_create_graph,
    without_out,
)
from tensormagic.diagnoses.mismatches import tried_way
from tensormagic.diagnoses.rule import held_by
from tensormagic.reports import Finding, Report, TraceReport

MOST_BY_HAND = 3  # leaves that are followed where no optimizer holds them; there may be more than that

Fix = Callable[[Finding, Report, str], str]


def _the_line(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives the line as it should be: it assigns to the same, and adds nothing but what is needed."""
    known = {"nn", "torch"} | names_in(line)
    return next((span for span in values.lines_for(finding, line) if names_in(span) <= known), "")


def _before(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives a statement that comes before the line: it binds a name that the line uses anew."""
    for span in remedy_code(finding):
        bound = targets(span)
        if len(bound) == 1 and bound[0] in names_in(line):
            return f"{span}\n{line}"
    return ""


def _without_cut(finding: Finding, _report: Report, line: str) -> str:
    """What should learn is detached on the line, read as a number, or copied: the remedy gives the line without that.

    A line that appends is half of the cure: what is appended is put together in another line.
    """
    mended = re.search(r"eave out `[^`]+`(?:, which [\w ]+)?: `([^`]+)`", finding.remedy)
    certain = finding.severity != "note" and mended is not None and ".append(" not in line
    return mended[1] if certain and mended is not None else ""


def _counted(finding: Finding, report: Report, line: str) -> str:
    """What is added up for a log has no history; it stays a tensor, for what comes after."""
    mended = _the_line(finding, report, line) if "Add only the number" in finding.remedy else ""
    return mended.replace(".item()", ".detach()")


def _with_a_way_back(finding: Finding, report: Report, line: str) -> str:
    """What should learn is detached on the line, not recorded, or drawn without a way back where there is one."""
    if "`use_reentrant=False`" in finding.remedy and line.count("use_reentrant=True") == 1:
        return line.replace("use_reentrant=True", "use_reentrant=False")
    drawn = finding.severity != "note" and "`.rsample()`" in finding.remedy and line.count(".sample(") == 1
    if drawn and "discrete" not in finding.remedy:
        return line.replace(".sample(", ".rsample(")
    return _without_cut(finding, report, line)


def _leaf_in_place(finding: Finding, report: Report, line: str) -> str:
    """A leaf that an update made anew is updated in place; the line of another cut is given by the remedy."""
    update = update_by_hand(line, of_leaf=True)
    if update is None:
        return _without_cut(finding, report, line) if finding.code == "TM306" else ""
    given = any(update.in_place.endswith(span) for span in remedy_code(finding))  # a loop around it stays
    unrecorded = under_no_grad(update.in_place) if finding.code == "TM617" and NO_GRAD in finding.remedy else ""
    return update.in_place if given else _updated_in_place(finding, report, line) or unrecorded


def _updated_in_place(_finding: Finding, _report: Report, line: str) -> str:
    update = update_by_hand(line)
    return f"with torch.no_grad():\n    {update.in_place}" if update else ""


def _out_of_place(finding: Finding, report: Report, line: str) -> str:
    """A new tensor is bound to the name that was written to."""
    statement = statement_of(line)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if keyword_of(call, "out") is not None:
            return without_out(ast.unparse(call))
        if not isinstance(call.func, ast.Attribute) or not call.func.attr.endswith("_"):
            return ""
        if call.func.attr in ONLY_IN_PLACE:
            made = next(iter(remedy_code(finding)), "")
            return made if "zeros_like" in made else _before(finding, report, line)
        owner = call.func.value
        free = isinstance(owner, ast.Name) and owner.id in {"torch", "F"}
        target = call.args[0] if free and call.args else owner
        call.func.attr = call.func.attr.removesuffix("_")
        return f"{target.id} = {ast.unparse(call)}" if isinstance(target, ast.Name) else ""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        written = ast.unparse(statement.targets[0].value)
        reads = any(ast.unparse(node) == written for node in ast.walk(statement.value) if isinstance(node, ast.expr))
        return "" if reads else _before(finding, report, line)
    return _the_line(finding, report, line) if isinstance(statement, ast.AugAssign) else ""


def _unrecorded(finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    writes = isinstance(statement, ast.AugAssign | ast.Assign | ast.Expr)
    return f"with torch.no_grad():\n    {line}" if writes and "torch.no_grad()" in finding.remedy else ""


def _cleared(finding: Finding, report: Report, line: str) -> str:
    """Cleared when the step has used them, the gradients of the next backward stand alone.

    Not where another backward brings more before that one, as of a generator's loss that goes through its critic.
    """
    span = next(iter(remedy_code(finding)), "")
    step = call_on(line, "step")
    if not isinstance(report, TraceReport) or report.training is None:
        return ""
    if step is not None and isinstance(step.func, ast.Attribute) and not step.args:
        holds = next((use.holds for use in report.training.optimizers if use.name == finding.subject), ())
        held = {report.parameters[number].name for number in holds}
        reached = {graph.number for graph in report.graphs if held & {node.variable for node in graph.nodes}}
        alone = len({done.location for done in report.passes if done.graph in reached}) == 1
        return f"{line}\n{ast.unparse(step.func.value)}.zero_grad()" if alone and span.endswith(".zero_grad()") else ""
    if call_on(line, "backward") is None:
        return ""
    by_hand = report.training.by_hand
    names = [series.name for series in held_by(report, by_hand)] if by_hand is not None else []
    names = names if len(names) < MOST_BY_HAND else []
    return "\n".join([*(f"{name}.grad = None" for name in names), line]) if span[:-12] in names else ""


def _detached_after(finding: Finding, _report: Report, line: str) -> str:
    """What the next step begins with is detached once this one's backward has run; made in the same function."""
    span = next(iter(remedy_code(finding)), "")
    carried = finding.remedy.startswith("Detach what is carried") and call_on(line, "backward") is not None
    (name,) = targets(span) if len(targets(span)) == 1 else ("",)
    here = finding.location.function if finding.location is not None else ""
    made = (one.location for one in finding.related[1:])
    bound = any(one.function == here and re.search(rf"\b{re.escape(name)}\b.*=", one.text) for one in made)
    return f"{line}\n{span}" if carried and name.isidentifier() and bound else ""


def _copied(finding: Finding, _report: Report, line: str) -> str:
    """A tensor that shares the memory of an array gets memory of its own: the array is written to again."""
    call = call_on(line, "as_tensor", "from_numpy")
    if call is None or not finding.remedy.startswith("Change the array") or ast.unparse(call.func)[:6] != "torch.":
        return ""
    return spliced(line, call.func, "torch.tensor")


def _averaged(finding: Finding, _report: Report, line: str) -> str:
    """A loss that is not reduced, and is called so, becomes its mean."""
    span = next(iter(remedy_code(finding)), "")
    named = re.fullmatch(r"\w*loss\w*|.*\.pow\(2\)|.*\.square\(\)", span.removesuffix(".mean().backward()"))
    return span if named and span.endswith(".mean().backward()") and call_on(line, "backward") is not None else ""


def _real_part(finding: Finding, _report: Report, line: str) -> str:
    """The one gradient that a backward returns is complex, and its input is real."""
    statement = statement_of(line)
    if not isinstance(statement, ast.Return) or not finding.remedy.startswith("Return its real part"):
        return ""
    value = statement.value
    several = value.elts if isinstance(value, ast.Tuple) else [value]
    given = [one for one in several if one is not None and not (isinstance(one, ast.Constant) and one.value is None)]
    return spliced(line, given[0], f"{atom(given[0])}.real") if len(given) == 1 else ""


def _without_graph(finding: Finding, _report: Report, line: str) -> str:
    """What is stored or added up for later is detached."""
    statement, call = statement_of(line), call_on(line, "append")
    if finding.remedy.startswith("Detach what is carried"):
        return ""
    if isinstance(statement, ast.AugAssign):
        return spliced(line, statement.value, f"{atom(statement.value)}.detach()")
    if call is None or len(call.args) != 1 or not isinstance(statement, ast.Expr):
        return ""
    (given,) = call.args
    several = isinstance(given, ast.Tuple | ast.List | ast.Dict | ast.Starred)
    return "" if several else spliced(line, given, f"{atom(given)}.detach()")


def _frozen(_finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    owner = ast.get_source_segment(line, target.value) if isinstance(target, ast.Attribute) else ""
    return f"{owner}.requires_grad_(False)" if owner else ""


def _unscaled(finding: Finding, report: Report, line: str) -> str:
    """The gradients lose the scaler's factor before they are clipped; the scaler is that of which the cell steps.

    Of several statements on the line the backward may be one: nothing above that line has a gradient to unscale.
    """
    if statement_of(line) is None:
        return ""
    span = next((span for span in remedy_code(finding) if span.startswith("scaler.unscale_(")), "")
    scaler = _scaler(finding, report)
    return f"{span.replace('scaler', scaler, 1)}\n{line}" if span and scaler else ""


def _stepped_by_the_scaler(finding: Finding, report: Report, line: str) -> str:
    """The scaler makes the step of the optimizer, whose line has nothing else."""
    scaler, optimizer = _scaler(finding, report), line.removesuffix(".step()")
    return f"{scaler}.step({optimizer})\n{scaler}.update()" if scaler and optimizer.isidentifier() else ""


def _scaler(finding: Finding, report: Report) -> str:
    """Return the name of the one ``GradScaler`` that a cell, or a line of the finding, scales with; else nothing."""
    beside = [one.location.text for one in finding.related]
    lines = [*beside, *(report.cell.lines if isinstance(report, TraceReport) else ())]
    names = {name for each in lines for name in re.findall(r"\b(\w+)\.scale\(", each)[:1]}
    return names.pop() if len(names) == 1 else ""


def _on_the_device(_finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    value = statement.value if isinstance(statement, ast.AugAssign) else None
    read = isinstance(value, ast.Call) and called_function(value) == "item" and not value.args
    return f"{line.removesuffix('.item()')}.detach()" if read and line.endswith(".item()") else ""


def _epoch_set(finding: Finding, _report: Report, line: str) -> str:
    span = next(iter(remedy_code(finding)), "")
    return f"{span}\n{line}" if ".set_epoch(" in span and line.startswith("for ") else ""


def _listed(finding: Finding, report: Report, line: str) -> str:
    """What is used up becomes a list, in the first round before the loop; its name is bound in the same function."""
    span = next(iter(remedy_code(finding)), "")
    training = report.training if isinstance(report, TraceReport) else None
    own = training is not None and any(one.own for one in training.used_up if one.name == finding.subject)
    return f"{span}\n{line}" if own and finding.remedy.startswith("Make a list") else ""


def _without_keeping(finding: Finding, _report: Report, line: str) -> str:
    """The backward keeps no graph, neither its own nor one of the gradients."""
    call, keyword = call_on(line, "backward", "grad"), {"TM315": "create_graph", "TM320": "retain_graph"}[finding.code]
    if call is None or keyword_of(call, keyword) is None:
        return ""
    place = only_place(line, ast.unparse(call))
    set_keyword(call, keyword, None)
    return spliced(line, place, ast.unparse(call)) if place is not None else ""


def _cleared_to_none(_finding: Finding, _report: Report, line: str) -> str:
    """What is cleared to zeros is cleared to None."""
    cleared = "zero_grad(set_to_none=False)"
    return line.replace(cleared, "zero_grad()") if line.count(cleared) == 1 else ""


def _detached(finding: Finding, _report: Report, line: str) -> str:
    """What trains another network is taken as a number."""
    place = only_place(line, finding.subject) if finding.subject else None
    return spliced(line, place, f"{atom(place)}.detach()") if place is not None else ""


def _with_mode(finding: Finding, _report: Report, line: str) -> str:
    """The functional dropout is given the mode of its module."""
    call = call_on(line, *(f"dropout{more}" for more in ("", "1d", "2d", "3d")))
    if call is None or "training=self.training" not in finding.remedy or "self" not in line:
        return ""
    place = only_place(line, ast.unparse(call))
    set_keyword(call, "training", expression_of("self.training"))
    return spliced(line, place, ast.unparse(call)) if place is not None else ""


def _with_keys_that_fit(finding: Finding, _report: Report, line: str) -> str:
    """The keys of what is loaded lose what they begin with; of a checkpoint, its entry is loaded."""
    if finding.remedy.startswith("Load what stands under that key"):
        return remedy_code(finding)[0]
    call = call_on(line, "load_state_dict")
    keys = next((span for span in remedy_code(finding) if span.endswith(" in state.items()}")), "")
    if call is None or not call.args or not keys:
        return ""
    return spliced(line, call.args[0], keys.replace("state.items()", f"{atom(call.args[0])}.items()"))


FIXES: dict[str, Fix] = {
    "TM101": values.reshaped,
    "TM103": _before,
    "TM105": values.squeezed,
    "TM106": values.permuted,
    "TM107": values.added_together,
    "TM202": _before,
    "TM203": lambda *given: _the_line(*given) or without_out(given[2]),
    "TM301": _out_of_place,
    "TM302": _copied,
    "TM303": _with_a_way_back,
    "TM304": _detached_after,
    "TM305": _averaged,
    "TM306": _leaf_in_place,
    "TM307": _updated_in_place,
    "TM308": _unrecorded,
    "TM309": _cleared,
    "TM311": _real_part,
    "TM312": _counted,
    "TM314": _detached,
    "TM315": _without_keeping,
    "TM317": lambda _, __, line: with_create_graph(line),
    "TM320": _without_keeping,
    "TM402": values.kept_away,
    "TM405": values.let_through,
    "TM406": values.masked_before,
    "TM503": _without_graph,
    "TM603": _the_line,
    "TM605": lambda *given: _the_line(*given) if given[0].severity != "note" else "",
    "TM608": values.expected_input,
    "TM610": _with_mode,
    "TM611": values.logarithms,
    "TM612": values.over_what_is_summed,
    "TM614": lambda finding, _, line: next(values.lines_for(finding, line), ""),
    "TM615": _frozen,
    "TM617": _leaf_in_place,
    "TM618": _unscaled,
    "TM620": _listed,
    "TM621": _with_keys_that_fit,
    "TM624": _cleared_to_none,
    "TM625": _stepped_by_the_scaler,
    "TM626": values.fit_target,
    "TM627": lambda finding, _, line: line.replace(finding.subject, f"{finding.subject}()", 1),
    "TM802": tried_way,
    "TM803": _on_the_device,
    "TM804": tried_way,
    "TM805": _before,
    "TM806": values.widened,
    "TM905": _epoch_set,
}
