"""The line to put in place of the one that a finding is about, where that line is certain: one function a code.

A fix is code with the user's own names that can be pasted: the whole line of `Finding.location` again, mended, or
with another line before or after it. Where what is right depends on what is meant, there is none: the remedy says what
to do. The corpus pastes every fix into its program, and the finding has to be gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tensormagic.diagnoses.singular import OPS
from tensormagic.diagnoses.writes import update_by_hand
from tensormagic.reports import FailureReport, Finding, Report, TraceReport

_SPAN = re.compile(r"`([^`]+)`")
_SMALL = "1e-8"
_CLAMPED = frozenset({"log", "log2", "log10"})
_LIFTED = frozenset({"sqrt", "rsqrt"})

Fix = Callable[[Finding, Report, str], str]


def with_fix(finding: Finding, report: Report) -> Finding:
    """Return the finding with its fix, where there is one that is certain."""
    line = finding.location.text if finding.location is not None else ""
    fix = FIXES.get(finding.code)
    if fix is None or finding.fix or _tree(line) is None:
        return finding
    made = fix(finding, report, line)
    return replace(finding, fix=made) if made and made != line and _tree(made) is not None else finding


def _tree(code: str) -> ast.Module | None:
    """Return code as its syntax tree; None for what is no statement by itself, or is left open for the user."""
    if not code or "…" in code or "..." in code:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def _statement(code: str) -> ast.stmt | None:
    tree = _tree(code)
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def _spans(finding: Finding) -> list[str]:
    """Return the pieces of code in the remedy."""
    return _SPAN.findall(finding.remedy)


def _expressions(line: str) -> Iterator[ast.expr]:
    tree = _tree(line)
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.expr)) if tree is not None else ()


def _spliced(line: str, node: ast.expr, code: str) -> str:
    """Return the line with other code in the place of an expression; all else stays as it is written."""
    if node.lineno != 1 or node.end_lineno != 1 or node.end_col_offset is None:
        return ""
    raw = line.encode()
    return (raw[: node.col_offset] + code.encode() + raw[node.end_col_offset :]).decode()


def _only(line: str, code: str) -> ast.expr | None:
    """Return the one place of a line at which an expression stands; None where there is none, or several."""
    wanted = _normal(code)
    found = [node for node in _expressions(line) if wanted and ast.unparse(node) == wanted]
    return found[0] if len(found) == 1 else None


def _normal(code: str) -> str:
    try:
        return ast.unparse(ast.parse(code, mode="eval"))
    except (SyntaxError, ValueError):
        return ""


def _atom(node: ast.expr) -> str:
    """Return an expression so that an attribute of it can be written."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"


# -- by code -------------------------------------------------------------------------------------------------------


def _the_line(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives the line as it should be: it assigns to the same, and adds nothing but what is needed."""
    given = _targets(line)
    return next((span for span in _spans(finding) if given and _targets(span) == given and _only_here(span, line)), "")


def _targets(code: str) -> tuple[str, ...]:
    statement = _statement(code)
    if isinstance(statement, ast.Assign):
        return tuple(ast.unparse(target) for target in statement.targets)
    return (ast.unparse(statement.target),) if isinstance(statement, ast.AugAssign) else ()


def _only_here(span: str, line: str) -> bool:
    """Whether a span is more than the name of what the line binds, and knows no name but the line's and torch's."""
    return {node.id for node in _expressions(span) if isinstance(node, ast.Name)} <= {
        "nn", "torch", *(node.id for node in _expressions(line) if isinstance(node, ast.Name))
    }  # fmt: skip


def _before(finding: Finding, _report: Report, line: str) -> str:
    """The remedy gives a statement that comes before the line: it binds a name that the line uses anew."""
    used = {node.id for node in _expressions(line) if isinstance(node, ast.Name)}
    for span in _spans(finding):
        targets = _targets(span)
        if len(targets) == 1 and targets[0] in used:
            return f"{span}\n{line}"
    return ""


def _without_detach(finding: Finding, _report: Report, line: str) -> str:
    """What should learn is detached on the line."""
    mended = line.replace(".detach()", "")
    return mended if finding.severity != "note" and mended in _spans(finding) else ""


def _counted(finding: Finding, report: Report, line: str) -> str:
    """What is added up for a log has no history; it stays a tensor, for what comes after."""
    return _the_line(finding, report, line).replace(".item()", ".detach()")


_CONTINUOUS = re.compile(r"\b(?:Normal|MultivariateNormal|LogNormal|Uniform|Laplace|Beta|Gamma|Dirichlet|Cauchy)\(")


def _with_a_way_back(finding: Finding, report: Report, line: str) -> str:
    """What should learn is detached on the line, or drawn without a way back from a distribution that has one."""
    drawn = finding.severity != "note" and "`.rsample()`" in finding.remedy and line.count(".sample(") == 1
    if drawn and _CONTINUOUS.search(line):
        return line.replace(".sample(", ".rsample(")
    return _without_detach(finding, report, line)


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
    tree = _statement(way)
    if not isinstance(tree, ast.Expr):
        return ""
    if isinstance(tree.value, ast.Call) and isinstance(tree.value.func, ast.Attribute):
        place = _only(line, ast.unparse(tree.value.func.value))
        return _spliced(line, place, way) if place is not None else ""
    place = _only(line, failure.call)
    return _spliced(line, place, way) if place is not None and isinstance(tree.value, ast.BinOp) else ""


def _squeezed(finding: Finding, _report: Report, line: str) -> str:
    """The column of the pair loses its last dimension."""
    for span in _spans(finding)[:1]:
        column = span.removesuffix(".squeeze(-1)")
        place = _only(line, column) if column != span else None
        if place is not None:
            return _spliced(line, place, f"{_atom(place)}.squeeze(-1)")
    return ""


def _out_of_place(finding: Finding, report: Report, line: str) -> str:
    """A new tensor is bound to the name that was written to."""
    statement = _statement(line)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _called_out_of_place(statement.value)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        written = ast.unparse(statement.targets[0].value)
        reads = any(ast.unparse(node) == written for node in ast.walk(statement.value) if isinstance(node, ast.expr))
        return "" if reads else _before(finding, report, line)
    return _the_line(finding, report, line) if isinstance(statement, ast.AugAssign) else ""


def _called_out_of_place(call: ast.Call) -> str:
    out = next((each.value for each in call.keywords if each.arg == "out"), None)
    if isinstance(out, ast.Name):
        call.keywords = [each for each in call.keywords if each.arg != "out"]
        return f"{out.id} = {ast.unparse(call)}"
    if out is not None or not isinstance(call.func, ast.Attribute) or not call.func.attr.endswith("_"):
        return ""
    owner = call.func.value
    free = isinstance(owner, ast.Name) and owner.id in {"torch", "F"}
    target = call.args[0] if free and call.args else owner
    call.func.attr = call.func.attr.removesuffix("_")
    return f"{target.id} = {ast.unparse(call)}" if isinstance(target, ast.Name) else ""


def _unrecorded(finding: Finding, _report: Report, line: str) -> str:
    statement = _statement(line)
    writes = isinstance(statement, ast.AugAssign | ast.Assign | ast.Expr)
    return f"with torch.no_grad():\n    {line}" if writes and "torch.no_grad()" in finding.remedy else ""


def _cleared(finding: Finding, _report: Report, line: str) -> str:
    """Cleared when the step has used them, the gradients of the next backward stand alone."""
    span = next(iter(_spans(finding)), "")
    steps = isinstance(_statement(line), ast.Expr) and ".step(" in line
    return f"{line}\n{span}" if steps and span == f"{finding.subject}.zero_grad()" else ""


def _kept_away(finding: Finding, _report: Report, line: str) -> str:
    """What goes into an op with an infinite slope at zero is kept away from it."""
    if not finding.evidence.get("zeros saved"):
        return ""
    place, operand = _singular(line, finding.subject)
    if place is None or operand is None or finding.subject not in _LIFTED | _CLAMPED:
        return ""
    if finding.subject in _LIFTED:
        lifted = f"{ast.unparse(operand)} + {_SMALL}"
        is_method = isinstance(place, ast.Call) and not place.args
        return _spliced(line, operand, f"({lifted})" if is_method else lifted)
    return _spliced(line, operand, f"{_atom(operand)}.clamp_min({_SMALL})")


def _singular(line: str, op: str) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the one place of an op on a line, and what goes into it: ``x.log()``, ``torch.log(x)``, ``1 / x``."""
    if op in {"div", "reciprocal"}:
        divisions = [
            node for node in _expressions(line) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        ]
        return (divisions[0], divisions[0].right) if len(divisions) == 1 else (None, None)
    calls = [
        node for node in _expressions(line)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == op
        and not node.keywords and len(node.args) <= 1
    ]  # fmt: skip
    if len(calls) != 1:
        return None, None
    (call,) = calls
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    if call.args:
        return (call, call.args[0]) if isinstance(owner, ast.Name) and owner.id == "torch" else (None, None)
    return call, owner


def _masked_before(finding: Finding, _report: Report, line: str) -> str:
    """``where`` on the same line takes what goes into the op as well: what it leaves out never gets there."""
    wheres = [
        node for node in _expressions(line) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.where"
    ]
    place, operand = _singular(line, finding.subject)
    harmless = OPS[finding.subject].harmless if finding.subject in OPS else ""
    if len(wheres) != 1 or len(wheres[0].args) != 3 or place is None or operand is None or not harmless:
        return ""
    mask, taken, other = wheres[0].args
    condition, old = ast.unparse(mask), ast.unparse(operand)
    if _within(place, taken):
        return _spliced(line, operand, f"torch.where({condition}, {old}, {harmless})")
    if _within(place, other):
        return _spliced(line, operand, f"torch.where({condition}, {harmless}, {old})")
    return ""


def _within(inner: ast.expr, outer: ast.expr) -> bool:
    return outer.col_offset <= inner.col_offset and (inner.end_col_offset or 0) <= (outer.end_col_offset or 0)


def _call(line: str, *names: str) -> ast.Call | None:
    """Return the one call of a line of a function or method of these names."""
    calls = [node for node in _expressions(line) if isinstance(node, ast.Call) and _function(node) in names]
    return calls[0] if len(calls) == 1 else None


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _without_create_graph(_finding: Finding, _report: Report, line: str) -> str:
    call = _call(line, "backward")
    if call is None or not any(one.arg == "create_graph" for one in call.keywords):
        return ""
    old = ast.unparse(call)
    call.keywords = [one for one in call.keywords if one.arg != "create_graph"]
    place = _only(line, old)
    return _spliced(line, place, ast.unparse(call)) if place is not None else ""


def _detached(finding: Finding, _report: Report, line: str) -> str:
    """What trains another network is taken as a number."""
    place = _only(line, finding.subject) if finding.subject else None
    return _spliced(line, place, f"{_atom(place)}.detach()") if place is not None else ""


def _with_mode(finding: Finding, _report: Report, line: str) -> str:
    """The functional dropout is given the mode of its module."""
    call = _call(line, *(f"dropout{more}" for more in ("", "1d", "2d", "3d")))
    if call is None or "training=self.training" not in finding.remedy or "self" not in line:
        return ""
    place = _only(line, ast.unparse(call))
    call.keywords.append(ast.keyword("training", ast.parse("self.training", mode="eval").body))
    return _spliced(line, place, ast.unparse(call)) if place is not None else ""


def _logarithms(finding: Finding, _report: Report, line: str) -> str:
    """The first argument of `kl_div` is made the logarithm of what it is."""
    call = _call(line, "kl_div")
    if call is None or not call.args or not isinstance(call.args[0], ast.Name):
        return ""
    given = call.args[0].id
    ways = {f"{given}.log()", f"F.log_softmax({given}, dim=-1)"}
    return next((_spliced(line, call.args[0], span) for span in _spans(finding) if span in ways), "")


def _permuted(finding: Finding, _report: Report, line: str) -> str:
    """Dimensions change places instead of sizes; what is merged afterwards has the sizes that the line gives."""
    call = _call(line, "view", "reshape")
    for span in _spans(finding) if call is not None and isinstance(call.func, ast.Attribute) else ():
        assert call is not None
        assert isinstance(call.func, ast.Attribute)
        if span.startswith(f"{ast.unparse(call.func.value)}.") and ".view(" not in span:  # of one batch's sizes
            swap, merged, _ = span.partition(".reshape(")
            return _spliced(line, call, f"{swap}.reshape({', '.join(map(ast.unparse, call.args))})" if merged else span)
    return ""


def _widened(finding: Finding, _report: Report, line: str) -> str:
    """What wraps in uint8 is computed in float32."""
    for span in _spans(finding)[:1]:
        place = _only(line, span.removesuffix(".float()")) if span.endswith(".float()") else None
        if place is not None:
            return _spliced(line, place, span)
    return ""


def _with_keys_that_fit(finding: Finding, _report: Report, line: str) -> str:
    """The keys of what is loaded lose what they begin with."""
    call = _call(line, "load_state_dict")
    keys = next((span for span in _spans(finding) if span.endswith(" in state.items()}")), "")
    if call is None or not call.args or not keys:
        return ""
    return _spliced(line, call.args[0], keys.replace("state.items()", f"{_atom(call.args[0])}.items()"))


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
    "TM203": _the_line,
    "TM301": _out_of_place,
    "TM303": _with_a_way_back,
    "TM306": _without_detach,
    "TM307": _updated_in_place,
    "TM308": _unrecorded,
    "TM309": _cleared,
    "TM312": _counted,
    "TM402": _kept_away,
    "TM406": _masked_before,
    "TM603": _the_line,
    "TM605": _the_line,
    "TM802": _way,
    "TM804": _way,
    "TM805": _before,
}
