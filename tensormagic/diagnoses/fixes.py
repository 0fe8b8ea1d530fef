"""The line to put in place of the one that a finding is about, where that line is certain: one function a code.

A fix is code with the user's own names that can be pasted: the whole line of `Finding.location` again, mended, or
with another line before or after it. Where what is right depends on what is meant, there is none: the remedy says what
to do. The corpus pastes every fix into its program, and the finding has to be gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

from tensormagic.diagnoses.rule import (
    atom,
    call_on,
    called_function,
    expressions,
    is_code,
    only_place,
    operand_of,
    spliced,
    statement_of,
    within,
)
from tensormagic.diagnoses.singular import OPS, singular_place
from tensormagic.diagnoses.writes import update_by_hand, without_out
from tensormagic.reports import FailureReport, Finding, Report, TraceReport

_SPAN = re.compile(r"`([^`]+)`")
_SMALL = "1e-8"
MOST_BY_HAND = 3  # leaves that are followed where no optimizer holds them; there may be more than that
_CLAMPED = frozenset({"log", "log2", "log10"})
_LIFTED = frozenset({"sqrt", "rsqrt"})

Fix = Callable[[Finding, Report, str], str]


def with_fix(finding: Finding, report: Report) -> Finding:
    """Return the finding with its fix, where there is one that is certain."""
    line = finding.location.text if finding.location is not None else ""
    fix = FIXES.get(finding.code)
    if fix is None or finding.fix or not is_code(line):
        return finding
    made = fix(finding, report, line)
    return replace(finding, fix=made) if made and made != line and is_code(made) else finding


def _spans(finding: Finding) -> list[str]:
    """Return the pieces of code in the remedy."""
    return _SPAN.findall(finding.remedy)


# -- by code -------------------------------------------------------------------------------------------------------


def _the_line(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives the line as it should be: it assigns to the same, and adds nothing but what is needed."""
    given = _targets(line)
    return next((span for span in _spans(finding) if given and _targets(span) == given and _only_here(span, line)), "")


def _targets(code: str) -> tuple[str, ...]:
    statement = statement_of(code)
    if isinstance(statement, ast.Assign):
        return tuple(ast.unparse(target) for target in statement.targets)
    return (ast.unparse(statement.target),) if isinstance(statement, ast.AugAssign) else ()


def _only_here(span: str, line: str) -> bool:
    """Whether a span is more than the name of what the line binds, and knows no name but the line's and torch's."""
    return {node.id for node in expressions(span) if isinstance(node, ast.Name)} <= {
        "nn", "torch", *(node.id for node in expressions(line) if isinstance(node, ast.Name))
    }  # fmt: skip


def _before(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives a statement that comes before the line: it binds a name that the line uses anew."""
    used = {node.id for node in expressions(line) if isinstance(node, ast.Name)}
    for span in _spans(finding):
        targets = _targets(span)
        if len(targets) == 1 and targets[0] in used:
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


def _updated_in_place(_finding: Finding, _report: Report, line: str) -> str:
    update = update_by_hand(line)
    return f"with torch.no_grad():\n    {update}" if update else ""


def _reshaped(finding: Finding, _report: Report, line: str) -> str:
    wanted = any(".reshape(" in span for span in _spans(finding)[:1])
    return line.replace(".view(", ".reshape(") if wanted and line.count(".view(") == 1 else ""


def _way(finding: Finding, report: Report, line: str) -> str:
    """The one way that was tried stands in place of the call, or of an operand of it."""
    failure = report.failure if isinstance(report, TraceReport) else report
    ways = failure.mismatch.works if isinstance(failure, FailureReport) and failure.mismatch is not None else ()
    if len(ways) != 1 or finding.remedy != f"`{ways[0]}`" or ways[0].startswith("nn."):
        return ""
    assert isinstance(failure, FailureReport)
    way = ways[0]
    tree = statement_of(way)
    if not isinstance(tree, ast.Expr):
        return ""
    if isinstance(tree.value, ast.Call) and isinstance(tree.value.func, ast.Attribute):
        if called_function(tree.value) in {"view", "reshape", "flatten"} and call_on(line, "view", "reshape"):
            return ""  # it stands in place of the call, and its sizes are those of this batch
        place = only_place(line, ast.unparse(tree.value.func.value))
        return spliced(line, place, way) if place is not None else ""
    place = only_place(line, failure.call)
    return spliced(line, place, way) if place is not None and isinstance(tree.value, ast.BinOp) else ""


def _squeezed(finding: Finding, _report: Report, line: str) -> str:
    """The column of the pair loses its last dimension."""
    for span in _spans(finding)[:1]:
        column = span.removesuffix(".squeeze(-1)")
        place = only_place(line, column) if column != span else None
        if place is not None:
            return spliced(line, place, f"{atom(place)}.squeeze(-1)")
    return ""


def _out_of_place(finding: Finding, report: Report, line: str) -> str:
    """A new tensor is bound to the name that was written to."""
    statement = statement_of(line)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _called_out_of_place(statement.value)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        written = ast.unparse(statement.targets[0].value)
        reads = any(ast.unparse(node) == written for node in ast.walk(statement.value) if isinstance(node, ast.expr))
        return "" if reads else _before(finding, report, line)
    return _the_line(finding, report, line) if isinstance(statement, ast.AugAssign) else ""


def _called_out_of_place(call: ast.Call) -> str:
    if any(each.arg == "out" for each in call.keywords):
        return without_out(ast.unparse(call))
    if not isinstance(call.func, ast.Attribute) or not call.func.attr.endswith("_"):
        return ""
    owner = call.func.value
    free = isinstance(owner, ast.Name) and owner.id in {"torch", "F"}
    target = call.args[0] if free and call.args else owner
    call.func.attr = call.func.attr.removesuffix("_")
    return f"{target.id} = {ast.unparse(call)}" if isinstance(target, ast.Name) else ""


def _unrecorded(finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    writes = isinstance(statement, ast.AugAssign | ast.Assign | ast.Expr)
    return f"with torch.no_grad():\n    {line}" if writes and "torch.no_grad()" in finding.remedy else ""


def _cleared(finding: Finding, report: Report, line: str) -> str:
    """Cleared when the step has used them, the gradients of the next backward stand alone."""
    span = next(iter(_spans(finding)), "")
    step = call_on(line, "step")
    if step is not None and isinstance(step.func, ast.Attribute) and not step.args:
        return f"{line}\n{ast.unparse(step.func.value)}.zero_grad()" if span.endswith(".zero_grad()") else ""
    if not isinstance(report, TraceReport) or report.training is None or call_on(line, "backward") is None:
        return ""
    holds = report.training.by_hand.holds if report.training.by_hand is not None else ()
    names = [report.parameters[number].name for number in holds] if len(holds) < MOST_BY_HAND else []
    return "\n".join([*(f"{name}.grad = None" for name in names), line]) if span[:-12] in names else ""


def _detached_after(finding: Finding, _report: Report, line: str) -> str:
    """What the next step begins with is detached once this one's backward has run; made in the same function."""
    span = next(iter(_spans(finding)), "")
    carried = finding.remedy.startswith("Detach what is carried") and call_on(line, "backward") is not None
    (name,) = _targets(span) if len(_targets(span)) == 1 else ("",)
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
    span = next(iter(_spans(finding)), "")
    named = re.fullmatch(r"\w*loss\w*|.*\.pow\(2\)|.*\.square\(\)", span.removesuffix(".mean().backward()"))
    return span if named and span.endswith(".mean().backward()") and call_on(line, "backward") is not None else ""


def _real_part(finding: Finding, _report: Report, line: str) -> str:
    """The one gradient that a backward returns is complex, and its input is real."""
    statement = statement_of(line)
    if not isinstance(statement, ast.Return) or not finding.remedy.startswith("Return its real part"):
        return ""
    value = statement.value
    several = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
    given = [one for one in several if not (isinstance(one, ast.Constant) and one.value is None)]
    return spliced(line, given[0], f"{atom(given[0])}.real") if len(given) == 1 else ""


def _let_through(finding: Finding, _report: Report, line: str) -> str:
    """What lets no gradient through is left out, passed straight, or replaced by what has a slope."""
    statement = statement_of(line)
    value = statement.value if isinstance(statement, ast.Return | ast.Assign) else None
    if finding.remedy.startswith("It is the last operation") and isinstance(value, ast.Call):
        given = operand_of(value, "relu")
        return spliced(line, value, ast.unparse(given)) if given is not None else ""
    if finding.remedy.startswith("For one score per sample") and (softmax := call_on(line, "softmax")) is not None:
        given = operand_of(softmax, "softmax")
        return spliced(line, softmax, f"torch.sigmoid({ast.unparse(given)})") if given is not None else ""
    drawn = call_on(line, "normal") if finding.remedy.startswith("Draw with noise") else None
    if drawn is not None and len(drawn.args) == 2 and not drawn.keywords:
        return spliced(line, drawn, f"torch.distributions.Normal({', '.join(map(ast.unparse, drawn.args))}).rsample()")
    rounding = call_on(line, "round") if "pass straight" in finding.remedy else None
    given = operand_of(rounding, "round") if rounding is not None else None
    if rounding is None or given is None or any(isinstance(node, ast.Call) for node in ast.walk(given)):
        return ""
    x = atom(given)
    return spliced(line, rounding, f"({x} + ({ast.unparse(rounding)} - {x}).detach())")


def _without_graph(finding: Finding, _report: Report, line: str) -> str:
    """What is stored or added up for later is detached."""
    statement, call = statement_of(line), call_on(line, "append")
    if finding.remedy.startswith("Detach what is carried"):
        return ""
    if isinstance(statement, ast.AugAssign):
        return spliced(line, statement.value, f"{atom(statement.value)}.detach()")
    if (
        call is None
        or len(call.args) != 1
        or not isinstance(statement, ast.Expr)
        or isinstance(call.args[0], ast.Tuple | ast.List | ast.Dict | ast.Starred)
    ):
        return ""
    return spliced(line, call.args[0], f"{atom(call.args[0])}.detach()")


def _expected_input(finding: Finding, _report: Report, line: str) -> str:
    """A loss is given what it takes: logarithms, or it is that of probabilities; a second softmax is left out."""
    call = call_on(line, "nll_loss")
    if call is not None and call.args and finding.remedy.startswith("Use `log_softmax` in place"):
        return spliced(line, call.args[0], f"{atom(call.args[0])}.log()")
    call = call_on(line, "binary_cross_entropy_with_logits")
    if call is not None and "sigmoid" in finding.remedy and all(one.arg != "pos_weight" for one in call.keywords):
        return line.replace("binary_cross_entropy_with_logits", "binary_cross_entropy")
    call = call_on(line, "log_softmax") if "already the result of log_softmax" in finding.message else None
    given = operand_of(call, "log_softmax") if call is not None else None
    return spliced(line, call, ast.unparse(given)) if call is not None and given is not None else ""


def _over_what_is_summed(finding: Finding, _report: Report, line: str) -> str:
    """The softmax goes over the dimension that the next operation picks from, or sums over."""
    wanted = re.search(r"dim=(-?\d+)", finding.remedy)
    call = call_on(line, "softmax", "log_softmax")
    if finding.severity == "note" or wanted is None or call is None:
        return ""
    free = ast.unparse(call.func.value) in {"torch", "F"} if isinstance(call.func, ast.Attribute) else True
    at = [one.value for one in call.keywords if one.arg == "dim"] or call.args[1 if free else 0 :][:1]
    return spliced(line, at[0], wanted[1]) if at else ""


def _each_its_own(finding: Finding, _report: Report, line: str) -> str:
    """The remedy makes each of the layers anew, on the line that makes them."""
    return next((span for span in _spans(finding) if _targets(span) and _targets(span) == _targets(line)), "")


def _frozen(_finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    owner = ast.get_source_segment(line, target.value) if isinstance(target, ast.Attribute) else ""
    return f"{owner}.requires_grad_(False)" if owner else ""


def _unscaled(finding: Finding, report: Report, line: str) -> str:
    """The gradients lose the scaler's factor before they are clipped; the scaler is that of which the cell steps."""
    span = next((span for span in _spans(finding) if span.startswith("scaler.unscale_(")), "")
    lines = report.cell.lines if isinstance(report, TraceReport) else ()
    names = {found[1] for each in lines if (found := re.search(r"\b(\w+)\.scale\(", each))}
    return f"{span.replace('scaler', names.pop(), 1)}\n{line}" if span and len(names) == 1 else ""


def _on_the_device(_finding: Finding, _report: Report, line: str) -> str:
    statement = statement_of(line)
    value = statement.value if isinstance(statement, ast.AugAssign) else None
    read = isinstance(value, ast.Call) and called_function(value) == "item" and not value.args
    return f"{line.removesuffix('.item()')}.detach()" if read and line.endswith(".item()") else ""


def _told_the_epoch(finding: Finding, _report: Report, line: str) -> str:
    span = next(iter(_spans(finding)), "")
    return f"{span}\n{line}" if ".set_epoch(" in span and line.startswith("for ") else ""


def _listed(finding: Finding, report: Report, line: str) -> str:
    """What is used up becomes a list, in the first round before the loop; its name is bound in the same function."""
    span = next(iter(_spans(finding)), "")
    training = report.training if isinstance(report, TraceReport) else None
    own = training is not None and any(one.own for one in training.used_up if one.name == finding.subject)
    return f"{span}\n{line}" if own and finding.remedy.startswith("Make a list") else ""


def _kept_away(finding: Finding, _report: Report, line: str) -> str:
    """What goes into an op with an infinite slope at zero, or at one, is kept away from it."""
    place, operand = singular_place(line, finding.subject)
    if finding.subject in {"acos", "asin"} and operand is not None:
        return spliced(line, operand, f"{atom(operand)}.clamp(-1 + 1e-6, 1 - 1e-6)")
    if not finding.evidence.get("zeros saved"):
        return ""
    powers = [node for node in expressions(line) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)]
    if finding.subject == "pow" and len(powers) == 1 and "clamp the base" in finding.remedy:
        return spliced(line, powers[0].left, f"{atom(powers[0].left)}.clamp_min({_SMALL})")
    if place is None or operand is None or finding.subject not in _LIFTED | _CLAMPED:
        return ""
    if finding.subject in _LIFTED:
        lifted = f"{ast.unparse(operand)} + {_SMALL}"
        is_method = isinstance(place, ast.Call) and not place.args
        return spliced(line, operand, f"({lifted})" if is_method else lifted)
    return spliced(line, operand, f"{atom(operand)}.clamp_min({_SMALL})")


def _masked_before(finding: Finding, report: Report, line: str) -> str:
    """``where`` takes what goes into the op as well, on its line or later: what it leaves out never gets there."""
    if finding.remedy.startswith("Fill masked scores") and (softmax := call_on(line, "softmax")) is not None:
        scores = operand_of(softmax, "softmax")
        return spliced(line, scores, f"{atom(scores)}.clamp_min(-1e9)") if scores is not None else ""
    mended = next((span for span in _spans(finding) if _targets(span) and _targets(span) == _targets(line)), "")
    if mended:
        return mended if _is_bound_before(report, finding, mended) else ""
    wheres = [
        node for node in expressions(line) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.where"
    ]
    place, operand = singular_place(line, finding.subject)
    harmless = OPS[finding.subject].harmless if finding.subject in OPS else ""
    if len(wheres) != 1 or len(wheres[0].args) != 3 or place is None or operand is None or not harmless:
        return ""
    mask, taken, other = wheres[0].args
    condition, old = ast.unparse(mask), ast.unparse(operand)
    if within(place, taken):
        return spliced(line, operand, f"torch.where({condition}, {old}, {harmless})")
    if within(place, other):
        return spliced(line, operand, f"torch.where({condition}, {harmless}, {old})")
    return ""


def _is_bound_before(report: Report, finding: Finding, mended: str) -> bool:
    """Return whether no line from one to a later one binds a name that the mended line reads: else it came too late."""
    here, later = finding.location, finding.related[0].location
    if not isinstance(report, TraceReport) or here is None or {here.filename, later.filename} != {report.cell.filename}:
        return False
    read = {node.id for node in expressions(mended) if isinstance(node, ast.Name)}
    between = [each.strip() for each in report.cell.lines[here.line : later.line - 1]]
    return here.line < later.line and read.isdisjoint(name for each in between for name in _targets(each))


def _without_create_graph(_finding: Finding, _report: Report, line: str) -> str:
    call = call_on(line, "backward")
    if call is None or not any(one.arg == "create_graph" for one in call.keywords):
        return ""
    old = ast.unparse(call)
    call.keywords = [one for one in call.keywords if one.arg != "create_graph"]
    place = only_place(line, old)
    return spliced(line, place, ast.unparse(call)) if place is not None else ""


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
    call.keywords.append(ast.keyword("training", ast.parse("self.training", mode="eval").body))
    return spliced(line, place, ast.unparse(call)) if place is not None else ""


def _logarithms(finding: Finding, _report: Report, line: str) -> str:
    """The first argument of `kl_div` is made the logarithm of what it is."""
    call = call_on(line, "kl_div")
    if call is None or not call.args or not isinstance(call.args[0], ast.Name):
        return ""
    given = call.args[0].id
    ways = {f"{given}.log()", f"F.log_softmax({given}, dim=-1)"}
    return next((spliced(line, call.args[0], span) for span in _spans(finding) if span in ways), "")


def _permuted(finding: Finding, _report: Report, line: str) -> str:
    """Dimensions change places instead of sizes; what is merged afterwards has the sizes that the line gives."""
    call = call_on(line, "view", "reshape")
    for span in _spans(finding) if call is not None and isinstance(call.func, ast.Attribute) else ():
        assert call is not None
        assert isinstance(call.func, ast.Attribute)
        if span.startswith(f"{ast.unparse(call.func.value)}.") and ".view(" not in span:  # of one batch's sizes
            swap, merged, _ = span.partition(".reshape(")
            return spliced(line, call, f"{swap}.reshape({', '.join(map(ast.unparse, call.args))})" if merged else span)
    return ""


def _widened(finding: Finding, _report: Report, line: str) -> str:
    """What wraps in uint8 is computed in float32."""
    for span in _spans(finding)[:1]:
        place = only_place(line, span.removesuffix(".float()")) if span.endswith(".float()") else None
        if place is not None:
            return spliced(line, place, span)
    return ""


def _with_keys_that_fit(finding: Finding, _report: Report, line: str) -> str:
    """The keys of what is loaded lose what they begin with; of a checkpoint, its entry is loaded."""
    if finding.remedy.startswith("Load what stands under that key"):
        return _spans(finding)[0]
    call = call_on(line, "load_state_dict")
    keys = next((span for span in _spans(finding) if span.endswith(" in state.items()}")), "")
    if call is None or not call.args or not keys:
        return ""
    return spliced(line, call.args[0], keys.replace("state.items()", f"{atom(call.args[0])}.items()"))


FIXES: dict[str, Fix] = {
    "TM106": _permuted,
    "TM314": _detached,
    "TM315": _without_create_graph,
    "TM610": _with_mode,
    "TM611": _logarithms,
    "TM621": _with_keys_that_fit,
    "TM806": _widened,
    "TM101": _reshaped,
    "TM103": _before,
    "TM105": _squeezed,
    "TM202": _before,
    "TM203": lambda *given: _the_line(*given) or without_out(given[2]),
    "TM301": _out_of_place,
    "TM302": _copied,
    "TM303": _with_a_way_back,
    "TM304": _detached_after,
    "TM305": _averaged,
    "TM306": _without_cut,
    "TM307": _updated_in_place,
    "TM308": _unrecorded,
    "TM309": _cleared,
    "TM311": _real_part,
    "TM312": _counted,
    "TM402": _kept_away,
    "TM405": _let_through,
    "TM406": _masked_before,
    "TM503": _without_graph,
    "TM603": _the_line,
    "TM605": lambda *given: _the_line(*given) if given[0].severity != "note" else "",
    "TM608": _expected_input,
    "TM612": _over_what_is_summed,
    "TM614": _each_its_own,
    "TM615": _frozen,
    "TM618": _unscaled,
    "TM620": _listed,
    "TM802": _way,
    "TM803": _on_the_device,
    "TM804": _way,
    "TM805": _before,
    "TM905": _told_the_epoch,
}
