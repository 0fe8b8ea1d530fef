"""The mended line where a forward computes something else than what is meant: one function a code, as in `fixes`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tensormagic.diagnoses.lines import (
    atom,
    call_on,
    expression_of,
    expressions,
    keyword_of,
    names_in,
    only_place,
    operand_of,
    remedy_code,
    spliced,
    statement_of,
    targets,
)
from tensormagic.diagnoses.singular import DOMAIN, masked_on_its_line, singular_place
from tensormagic.reports import Finding, Report, TraceReport

_SMALL = "1e-8"
_CLAMPED = frozenset({"log", "log2", "log10"})
_LIFTED = frozenset({"sqrt", "rsqrt"})


def lines_for(finding: Finding, line: str) -> Iterator[str]:
    """Yield the lines that the remedy gives in place of a line: they assign to the same."""
    return (span for span in remedy_code(finding) if targets(span) and targets(span) == targets(line))


def reshaped(finding: Finding, _report: Report, line: str) -> str:
    """A view of what lies apart becomes a reshape."""
    wanted = any(".reshape(" in span for span in remedy_code(finding)[:1])
    return line.replace(".view(", ".reshape(") if wanted and line.count(".view(") == 1 else ""


def squeezed(finding: Finding, _report: Report, line: str) -> str:
    """The column of the pair loses its last dimension."""
    for span in remedy_code(finding)[:1]:
        column = span.removesuffix(".squeeze(-1)")
        place = only_place(line, column) if column != span else None
        if place is not None:
            return spliced(line, place, f"{atom(place)}.squeeze(-1)")
    return ""


def let_through(finding: Finding, _report: Report, line: str) -> str:
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


def expected_input(finding: Finding, _report: Report, line: str) -> str:
    """A loss is given what it takes: logarithms, or it is that of probabilities; a second softmax is left out."""
    call = call_on(line, "nll_loss")
    if call is not None and finding.remedy.startswith("Use `cross_entropy`, which"):
        return line.replace("nll_loss(", "cross_entropy(")
    if call is not None and call.args and finding.remedy.startswith("Use `log_softmax` in place"):
        return spliced(line, call.args[0], f"{atom(call.args[0])}.log()")
    call = call_on(line, "ctc_loss", "CTCLoss()")
    if call is not None and call.args and finding.remedy.startswith("Normalise over the classes"):
        return spliced(line, call.args[0], f"{atom(call.args[0])}.log_softmax(-1)")
    call = call_on(line, "binary_cross_entropy_with_logits")
    if call is not None and "sigmoid" in finding.remedy and keyword_of(call, "pos_weight") is None:
        return line.replace("binary_cross_entropy_with_logits", "binary_cross_entropy")
    call = call_on(line, "log_softmax") if "already the result of log_softmax" in finding.message else None
    given = operand_of(call, "log_softmax") if call is not None else None
    return spliced(line, call, ast.unparse(given)) if call is not None and given is not None else ""


def over_what_is_summed(finding: Finding, _report: Report, line: str) -> str:
    """The softmax goes over the dimension that the next operation picks from, or sums over."""
    wanted = re.search(r"dim=(-?\d+)", finding.remedy)
    call = call_on(line, "softmax", "log_softmax")
    if finding.severity == "note" or wanted is None or call is None:
        return ""
    free = ast.unparse(call.func.value) in {"torch", "F"} if isinstance(call.func, ast.Attribute) else True
    at = [one.value for one in call.keywords if one.arg == "dim"] or call.args[1 if free else 0 :][:1]
    return spliced(line, at[0], wanted[1]) if at else ""


def kept_away(finding: Finding, _report: Report, line: str) -> str:
    """What goes into an op with an infinite slope at zero, or at one, is kept away from it."""
    place, operand = singular_place(line, finding.subject)
    if finding.subject in {"acos", "asin"} and operand is not None:
        return spliced(line, operand, f"{atom(operand)}.clamp(-1 + 1e-6, 1 - 1e-6)")
    if not finding.evidence.get("zeros saved") or finding.remedy == DOMAIN:
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


def masked_before(finding: Finding, report: Report, line: str) -> str:
    """``where`` takes what goes into the op as well, on its line or later: what it leaves out never gets there."""
    if finding.remedy.startswith("Fill masked scores") and (softmax := call_on(line, "softmax")) is not None:
        scores = operand_of(softmax, "softmax")
        return spliced(line, scores, f"{atom(scores)}.clamp_min(-1e9)") if scores is not None else ""
    mended = next(lines_for(finding, line), "")
    if mended and finding.related:
        return mended if _is_bound_before(report, finding, mended) else ""
    return masked_on_its_line(finding.subject, line)


def _is_bound_before(report: Report, finding: Finding, mended: str) -> bool:
    """Return whether no line from one to a later one binds a name that the mended line reads: else it came too late."""
    here, later = finding.location, finding.related[0].location
    if not isinstance(report, TraceReport) or here is None or {here.filename, later.filename} != {report.cell.filename}:
        return False
    between = [each.strip() for each in report.cell.lines[here.line : later.line - 1]]
    return here.line < later.line and names_in(mended).isdisjoint(name for each in between for name in targets(each))


def logarithms(finding: Finding, _report: Report, line: str) -> str:
    """The first argument of `kl_div` is made the logarithm of what it is."""
    call = call_on(line, "kl_div")
    if call is None or not call.args or not isinstance(call.args[0], ast.Name):
        return ""
    given = call.args[0].id
    ways = {f"{given}.log()", f"F.log_softmax({given}, dim=-1)"}
    return next((spliced(line, call.args[0], span) for span in remedy_code(finding) if span in ways), "")


def fit_target(finding: Finding, _report: Report, line: str) -> str:
    """The target becomes what the loss takes, in its call; what was given in the wrong order changes places."""
    (code, *_), calls = remedy_code(finding), [node for node in expressions(line) if isinstance(node, ast.Call)]
    if finding.remedy.startswith("Exchange them"):
        right = expression_of(code)
        wanted = [ast.unparse(one) for one in right.args] if isinstance(right, ast.Call) else []
        found = [call.args for call in calls if [ast.unparse(one) for one in call.args[1::-1]] == wanted]
        (first, second) = found[0][:2] if len(found) == 1 else (None, None)
        if first is None or second is None:
            return ""
        return spliced(spliced(line, second, ast.unparse(first)), first, ast.unparse(second))
    if not finding.remedy.startswith("Turn"):
        return ""
    given = [one for call in calls for one in (*call.args[1:], *(each.value for each in call.keywords))]
    places = [one for one in given if ast.unparse(one) == finding.subject]
    return spliced(line, places[0], code) if len(places) == 1 else ""


def permuted(finding: Finding, _report: Report, line: str) -> str:
    """Dimensions change places instead of sizes; what is merged afterwards has the sizes that the line gives."""
    call = call_on(line, "view", "reshape")
    for span in remedy_code(finding) if call is not None and isinstance(call.func, ast.Attribute) else ():
        assert call is not None
        assert isinstance(call.func, ast.Attribute)
        if span.startswith(f"{ast.unparse(call.func.value)}.") and ".view(" not in span:  # of one batch's sizes
            swap, merged, _ = span.partition(".reshape(")
            return spliced(line, call, f"{swap}.reshape({', '.join(map(ast.unparse, call.args))})" if merged else span)
    return ""


def widened(finding: Finding, _report: Report, line: str) -> str:
    """What wraps in uint8 is computed in float32."""
    for span in remedy_code(finding)[:1]:
        place = only_place(line, span.removesuffix(".float()")) if span.endswith(".float()") else None
        if place is not None:
            return spliced(line, place, span)
    return ""


def added_together(finding: Finding, _report: Report, line: str) -> str:
    """Additions to the same place are added together, where what is added has the place's size for each of them."""
    statement = statement_of(line)
    sums = (span for span in remedy_code(finding) if ".index_add_(" in span)
    is_sure = finding.severity == "warning" and isinstance(statement, ast.Assign | ast.AugAssign)
    return next(sums, "") if is_sure else ""
