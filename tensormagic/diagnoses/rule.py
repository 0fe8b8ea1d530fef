"""What a rule is, and what rules share: findings that are said together, phrases, the user's line as code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, NamedTuple

from tensormagic.reports import (
    SEVERITIES,
    Finding,
    Graph,
    LeftOut,
    Location,
    Observation,
    ObservationKind,
    Operand,
    OptimizerUse,
    ParameterSeries,
    RelatedLine,
    Report,
    TraceReport,
)
from tensormagic.words import binding, count, plural, tidy_exponent

# What a diagnosis is: a function from a report to findings, with the code it may give and what it is about.


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table of diagnoses."""

    code: str  # The code its findings carry.
    title: str  # The symptom, in a few words.
    reads: type[Report]  # The type of report it reads.
    check: Callable[[Any], Iterable[Finding]]  # Yields findings; pure: the same report gives the same findings.
    needs: str = ""  # What a report must have, or it is not asked: a field, or one of a field, as ``training.clips``.
    says: str = ""  # What torch's message must say, or it is not asked, of a call that was refused.


# What a user wants silenced: codes in a comment on the line, or switched off for the session.
#
# ``# tm: ignore[TM201]`` at the end of a line silences that code where the line is the one that the finding is about,
# or one that it names; several codes are separated by commas, the first digits stand for a family (``TM2``), and ``#
# tm: ignore`` alone silences them all.

_COMMENT = re.compile(r"#\s*tm:\s*ignore(?:\[([^\]]*)\])?")
_CODE = re.compile(r"TM\d{0,3}")


def codes_of(text: str) -> tuple[str, ...]:
    """Return the codes, or first parts of codes, that a setting names: separated by commas or blanks.

    Raises:
        ValueError: for anything that is no code.
    """
    codes = tuple(part.upper() for part in re.split(r"[,\s]+", text.strip()) if part)
    for code in codes:
        if not _CODE.fullmatch(code):
            raise ValueError(f"codes look like TM201, or TM2 for a family, separated by commas; not {code!r}")
    return codes


def is_silenced(finding: Finding, ignored: Iterable[str]) -> bool:
    """Return whether the user silenced this finding: in a comment on one of its lines, or by ``ignored`` codes."""
    lines = [line.location for line in finding.related]
    texts = [line.text for line in (finding.location, *lines) if line is not None]
    return _names(ignored, finding.code) or any(_says_ignore(text, finding.code) for text in texts)


def _names(codes: Iterable[str], code: str) -> bool:
    return any(code.startswith(given) for given in codes)


def _says_ignore(text: str, code: str) -> bool:
    for listed in _COMMENT.findall(text):
        try:
            codes = codes_of(listed) or ("TM",)
        except ValueError:
            continue
        if _names(codes, code):
            return True
    return False


# What several reports of one run found, as one list: what is said twice is said once, one line's findings together.

_Line = tuple[str, int]


def joined(reports: Iterable[Report]) -> tuple[Finding, ...]:
    """Return the findings of all, the most severe first; those about one line follow one another."""
    found: list[Finding] = []
    for report in reports:
        known = {(finding.code, line_of(finding)) for finding in found}
        found += [one for one in report.findings if line_of(one) is None or (one.code, line_of(one)) not in known]
    found.sort(key=likelihood)
    firsts: dict[_Line | int, int] = {}
    for at, finding in enumerate(found):
        firsts.setdefault(line_of(finding) or at, at)
    places = {id(finding): firsts[line_of(finding) or at] for at, finding in enumerate(found)}
    return tuple(sorted(found, key=lambda finding: places[id(finding)]))


def line_of(finding: Finding) -> _Line | None:
    """Return the line that a finding is about."""
    return None if finding.location is None else (finding.location.filename, finding.location.line)


_MEASURED = frozenset({"TM312", "TM403", "TM404", "TM405", "TM601", "TM617"})
"""What gradients and weights did: another finding of the same run may say why, and comes first."""


def likelihood(finding: Finding) -> tuple[int, bool, str]:
    """Return the place of a finding among others: what is proven first, a cause before what was measured of it."""
    return SEVERITIES.index(finding.severity), finding.code in _MEASURED, finding.code


# Small phrases that several diagnoses use: numbers, parameters, how often a thing was seen.

# Norms and code as several diagnoses write them; all other numbers are written by `tensormagic.words`.


def scientific(value: float) -> str:
    """Return a norm the way it is compared, with three significant digits: ``0.847``, ``1.58e−26``, ``3.36e28``."""
    if 1000 <= value < 1e6:
        return count(round(value))
    return tidy_exponent(f"{value:.3g}")


def rebound(expression: str, method: str) -> str:
    """Return code that calls a method: ``x = x.clone()`` of a name, ``net.weight[0].clone()`` of anything else."""
    called = f"{binding(expression)}.{method}"
    return f"{expression} = {called}" if expression.isidentifier() else called


# How sentences name parameters (with the fewest names) and count passes.

_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def passes_words(report: TraceReport) -> str:
    """Return how many passes there were, and how many of them were traced."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    if report.passes_traced < report.passes_seen:
        return f"the {count(report.passes_traced)} traced of {passes}"
    return passes


def shortest(missing: Sequence[str], of: Sequence[str]) -> list[str]:
    """Return the missing names, those of a module that misses all it has (two or more) as the module alone."""
    inside, missed = (Counter(module for name in names for module in _above(name)) for names in (of, missing))
    places: dict[str, None] = {}
    for name in missing:
        whole = (module for module in _above(name) if 1 < inside[module] == missed[module])
        places[next(whole, name)] = None
    return list(places)


def as_code(name: str) -> str:
    """Return a module's or parameter's name as Python takes it: ``net.layers[2].weight``; code as it is."""
    return name if is_code(name) else _NUMBER.sub(r"[\1]", name)


def fixed(names: Sequence[str], owner: str = "") -> str:
    """Return what to do where no gradient is wanted, with code where what they belong to is a name, and no class."""
    it, they = ("it", "it") if len(names) == 1 else ("them", "they")
    code = ", ".join(f"`{as_code(name)}.requires_grad_(False)`" for name in names[:3]) + (", …" if names[3:] else "")
    if owner[:1].isupper():
        code = "`requires_grad_(False)`"
    return f"If {they} should stay fixed, freeze {it}: {code}."


def _above(name: str) -> Iterator[str]:
    """Yield the paths of the modules that a parameter lies in, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


# What the rules about single calls share: how often a thing was seen, and who is who, in words.


def of_kind(report: TraceReport, kind: ObservationKind) -> Iterator[Observation]:
    """Yield what was seen of one kind, where the user's line is known: a finding without a line helps nobody."""
    return (one for one in report.observations if one.kind == kind and one.location is not None)


def every_call(one: Observation) -> bool:
    """Whether it was so in every call that was looked at."""
    return one.seen == one.looked


def times(one: Observation) -> int:
    """Return in how many calls of the line it was so; of those only counted, the same share as of the rest."""
    return one.calls if every_call(one) else round(one.calls * one.seen / one.looked)


def how_often(one: Observation) -> str:
    """Return ``"in its one call"``, ``"in each of its 6 calls"`` or ``"in 3 of the 7 calls looked at"``."""
    if not every_call(one):
        return f"in {count(one.seen)} of the {plural(one.looked, 'call')} looked at"
    if one.calls == 1:
        return "in its one call"
    return f"in both of its {one.calls} calls" if one.calls == 2 else f"in each of its {count(one.calls)} calls"


def called(operand: Operand, otherwise: str) -> str:
    """Return what the user calls an operand, or ``otherwise`` where that is not known."""
    return operand.name or otherwise


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "pow": "**"}


def expression(one: Observation) -> str:
    """Return a call of two operands as a user would write it, with the names that are known."""
    left, right = (operand.name or "…" for operand in one.operands[:2])
    sign = _OPERATORS.get(one.op)
    if left == right == "…":
        return one.op
    return f"{one.op}({left}, {right})" if sign is None else f"{_wrapped(left)} {sign} {_wrapped(right)}"


def _wrapped(name: str) -> str:
    return f"({name})" if " " in name and not name.endswith((")", "]")) else name


def optimizer_code(use: OptimizerUse, step: Location | None = None) -> str:
    """Return an optimizer as code names it: the user's name, else what the line calls that steps, or ``optimizer``."""
    call = call_on(step.text, "step") if step is not None else None
    given = ast.unparse(call.func.value) if call and not call.args and isinstance(call.func, ast.Attribute) else ""
    return use.name if use.name.isidentifier() and use.name != use.type_name else given or "optimizer"


def clipping(report: TraceReport, owner: str = "") -> str:
    """Return the call that clips, with the name of the model that is trained."""
    owners = dict.fromkeys(series.owner for series in report.parameters if series.touched and series.owner)
    owner = owner or (next(iter(owners)) if len(owners) == 1 else "")
    whose = f"{as_code(owner)}.parameters()" if owner and not owner[0].isupper() else "parameters"
    return f"torch.nn.utils.clip_grad_norm_({whose}, 1.0)"


def optimizers_of(report: TraceReport) -> tuple[OptimizerUse, ...]:
    """Return the optimizers that made steps in a run."""
    return report.training.optimizers if report.training is not None else ()


def step_line(report: TraceReport, *uses: OptimizerUse) -> Location | None:
    """Return the first line that is known to make a step of one of these optimizers."""
    return report.location(next((pattern.location for use in uses for pattern in use.patterns), None))


COPIED = re.compile(
    r"(?:^|_)(?:target|tgt|teacher|ema|frozen|reference|best)(?:_|$)|(?:target|ema|best)$", re.IGNORECASE
)
"""The name of what is meant to be a copy of a network."""


def twin_of(report: TraceReport, owner: str, parts: Sequence[ParameterSeries | LeftOut], among: Iterable[str]) -> str:
    """Return which of some models has parameters of the names and shapes of these; empty where none has."""
    mine = {part.name.removeprefix(owner): part.shape for part in parts}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for series in report.parameters:
        shapes.setdefault(series.owner, {})[series.name.removeprefix(series.owner)] = series.shape
    return next((name for name in among if name and mine.items() <= shapes.get(name, {}).items()), "")


# Ways through a graph.


def neighbours(graph: Graph) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return for each node those that send it a gradient, and those that it sends one to."""
    feeders: dict[int, list[int]] = {}
    targets: dict[int, list[int]] = {}
    for edge in graph.edges:
        feeders.setdefault(edge.target, []).append(edge.source)
        targets.setdefault(edge.source, []).append(edge.target)
    return feeders, targets


def reached(
    next_to: Mapping[int, Iterable[int]], starts: Iterable[int], allows: Callable[[int], bool] = lambda _: True
) -> set[int]:
    """Return the nodes that ways from some nodes lead to, these too, over nodes alone that are allowed."""
    found, pending = set[int](), list(starts)
    while pending:
        at = pending.pop()
        if at not in found and allows(at):
            found.add(at)
            pending += next_to.get(at, ())
    return found


_SPAN = re.compile(r"`([^`]+)`")

# A line of the user's as code, and the same line with one expression in it replaced.


def tree_of(code: str) -> ast.Module | None:
    """Return code as its syntax tree; None for what is no statement by itself, or is left open for the user."""
    if not code or "…" in code or "..." in code:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None


def statement_of(code: str) -> ast.stmt | None:
    """Return code as its one statement; None where it is none, or several."""
    tree = tree_of(code)
    return tree.body[0] if tree is not None and len(tree.body) == 1 else None


def expressions(line: str) -> Iterator[ast.expr]:
    """Yield every expression of a line, the outer ones first."""
    tree = tree_of(line)
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.expr)) if tree is not None else ()


def spliced(line: str, node: ast.expr, code: str) -> str:
    """Return the line with other code in the place of an expression; all else stays as it is written."""
    if node.lineno != 1 or node.end_lineno != 1 or node.end_col_offset is None:
        return ""
    raw = line.encode()
    return (raw[: node.col_offset] + code.encode() + raw[node.end_col_offset :]).decode()


def only_place(line: str, code: str) -> ast.expr | None:
    """Return the one place of a line at which an expression stands; None where there is none, or several."""
    wanted = _normal(code)
    found = [node for node in expressions(line) if wanted and ast.unparse(node) == wanted]
    return found[0] if len(found) == 1 else None


def _normal(code: str) -> str:
    try:
        return ast.unparse(ast.parse(code, mode="eval"))
    except (SyntaxError, ValueError):
        return ""


def atom(node: ast.expr) -> str:
    """Return an expression so that an attribute of it can be written."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"


def related_lines(*described: tuple[str, Location | None], besides: Location | None = None) -> tuple[RelatedLine, ...]:
    """Return the lines that are known, with what is said of each; without the one that stands ``besides`` them."""
    return tuple(RelatedLine(what, place) for what, place in described if place is not None and place != besides)


def call_on(line: str, *names: str) -> ast.Call | None:
    """Return the one call of a line of a function or method of these names."""
    calls = [node for node in expressions(line) if isinstance(node, ast.Call) and called_function(node) in names]
    return calls[0] if len(calls) == 1 else None


def called_function(call: ast.Call) -> str:
    """Return the name of what is called, without what it is an attribute of."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def operand_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return what a function of torch's, or a method of a tensor's, of this name is called on."""
    if called_function(call) != name or not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    if ast.unparse(owner) in {"torch", "F", "nn.functional", "torch.nn.functional"}:
        return call.args[0] if call.args else None
    return owner


def is_code(lines: str) -> bool:
    """Return whether these are whole statements, or end in the head of one."""
    return tree_of(f"{lines} pass" if lines.endswith(":") else lines) is not None


def within(inner: ast.expr, outer: ast.expr) -> bool:
    """Return whether one expression of a line lies in another."""
    return outer.col_offset <= inner.col_offset and (inner.end_col_offset or 0) <= (outer.end_col_offset or 0)


def spans(finding: Finding) -> list[str]:
    """Return the pieces of code in the remedy."""
    return _SPAN.findall(finding.remedy)


def targets(code: str) -> tuple[str, ...]:
    """Return what a line assigns to."""
    statement = statement_of(code)
    if isinstance(statement, ast.Assign):
        return tuple(ast.unparse(target) for target in statement.targets)
    return (ast.unparse(statement.target),) if isinstance(statement, ast.AugAssign) else ()


def with_create_graph(line: str) -> str:
    """Return a line whose one call of ``autograd.grad`` keeps a graph; empty where there is no such call."""
    call = call_on(line, "grad")
    if call is None or any(each.arg is None for each in call.keywords):
        return ""
    if place := next((each.value for each in call.keywords if each.arg == "create_graph"), None):
        return spliced(line, place, "True")
    end = line.encode()[: call.end_col_offset].decode()
    return f"{end[:-1]}, create_graph=True){line[len(end) :]}"


# An update by hand: ``w = w - lr * w.grad`` makes a new tensor.

UPDATE_IN_PLACE = "Change the leaf in place, so that it stays one: `{}`."


class ByHand(NamedTuple):
    """An update that makes new tensors, and the same in place: ``w -= lr * w.grad``, with the loop around it."""

    name: str  #: What gets the new tensors.
    in_place: str
    several: bool = False  #: Whether that is a list or a dictionary of them.


def update_by_hand(line: str, *, of_leaf: bool = False) -> ByHand | None:
    """Return what a line updates by making new tensors; None of any other line.

    A ``.detach()`` or ``.data`` of what was there is left out: in place and under ``no_grad`` it is not needed. Where
    it is not known to change a leaf (``of_leaf``) it has to name the gradient of what it changes.
    """
    return _by_hand(statement_of(line), of_leaf=of_leaf)


def under_no_grad(code: str) -> str:
    """Return a statement that autograd does not record: on one line, unless it has a loop of its own."""
    return _under("with torch.no_grad():", code)


def _under(head: str, code: str) -> str:
    return f"{head}\n{indent(code, '    ')}" if code.startswith(("for ", "with ")) else f"{head} {code}"


def _by_hand(statement: ast.stmt | None, *, of_leaf: bool) -> ByHand | None:
    if isinstance(statement, ast.For | ast.With) and len(statement.body) == 1:
        inner = _by_hand(statement.body[0], of_leaf=of_leaf)
        head = ast.unparse(statement).split("\n")[0]
        return inner and inner._replace(in_place=_under(head, inner.in_place))
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return None
    target, value = statement.targets[0], statement.value
    if isinstance(value, ast.ListComp | ast.DictComp) and len(value.generators) == 1:
        each = value.elt if isinstance(value, ast.ListComp) else value.value
        loop = ast.unparse(value.generators[0]).strip().removeprefix("for ")
        changed = _in_place(each, None, of_leaf=of_leaf) if not value.generators[0].ifs else ""
        return ByHand(ast.unparse(target), f"for {loop}: {changed}", several=True) if changed else None
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
    found = [_in_place(after, before, of_leaf=of_leaf) for before, after in pairs]
    return ByHand(ast.unparse(pairs[0][0]), "; ".join(found)) if all(found) else None


def _in_place(value: ast.expr, target: ast.expr | None, *, of_leaf: bool) -> str:
    """Return ``w -= x`` of the value ``w - x`` that ``target`` gets, or of ``torch.sub(w, x)``; empty of any other."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "detach":
        value = value.func.value
    if isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        operator = {"torch.sub": ast.Sub, "torch.add": ast.Add}.get(ast.unparse(value.func))
        value = ast.BinOp(value.args[0], operator(), value.args[1]) if operator else value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub | ast.Add):
        return ""
    name, right = ast.unparse(value.left).removesuffix(".detach()").removesuffix(".data"), ast.unparse(value.right)
    if (target is not None and name != ast.unparse(target)) or not (of_leaf or f"{name}.grad" in right):
        return ""
    return f"{name} {'-' if isinstance(value.op, ast.Sub) else '+'}= {right}"
