"""Where a derivative is NaN or Inf, and NaN that a ``torch.where`` does not keep out."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tensormagic.diagnoses.lines import atom, call_on, expressions, spliced, statement_of, text_of, within
from tensormagic.diagnoses.paths import RESHAPING, frame_of, neighbours
from tensormagic.diagnoses.rule import related_lines
from tensormagic.reports import MEASURES, Finding, FirstNonfinite, Graph, Node, TraceReport
from tensormagic.words import count, is_or_are, part_of, plural

# Which NaN or infinite gradient a run's finding is about: the first, in the outermost pass that has it.


def first_nonfinite(report: TraceReport) -> int | None:
    """Return the place of the graph in which the run's first NaN or infinite gradient appeared; None where none did."""
    inner = {done.graph for done in report.inner_passes}  # what was born in these was born in a node of the others too
    born = [
        (graph.first_nonfinite[0].pass_number, graph.number not in inner, at)
        for at, graph in enumerate(report.graphs)
        if graph.first_nonfinite
    ]
    shown = first_bad(report)
    return min(born)[2] if born and (shown is None or min(born)[0] <= shown[0]) else None


def first_bad(report: TraceReport) -> tuple[int, int] | None:
    """Return (pass, place of the graph) of the first kept pass with a gradient that is not finite, if any."""
    shown = [(frame.pass_number, at) for at, graph in enumerate(report.graphs) for frame in graph.frames if frame.bad]
    return min(shown, default=None)


def nonfinite_kind(nan: int, inf: int) -> tuple[str, int]:
    """Return what to call values of which some are NaN or infinite, and how many of them that is: NaN counts first."""
    return ("NaN", nan) if nan else ("infinite", inf)


def loss_of(report: TraceReport, pass_number: int) -> float | None:
    """Return what a kept pass began with, where that is one number: the loss."""
    return next((done.value for done in report.passes if done.number == pass_number), None)


def when(report: TraceReport, pass_number: int) -> str:
    """Return ", in backward pass 3 of 10"; empty where there was only one."""
    return f", in backward pass {pass_number} of {count(report.passes_seen)}" if report.passes_seen > 1 else ""


# What backward formulas do where they are singular, and what to write instead: by op, as one readable table.
#
# From the formulas in torch's ``derivatives.yaml``: which saved tensor a formula divides by or takes the logarithm
# of.


@dataclass(frozen=True, slots=True)
class Singularity:
    """Where the slope of an op has no finite value."""

    remedy: str  # What to write instead.
    # What a zero in the saved tensor means, with ``{n}`` for how many; empty where zeros are harmless.
    zero: str = "its input holds {n}"
    negative: str = ""  # The same for a number below zero.
    bad: str = "its input is already not finite"  # The same for a NaN or infinity.
    always: str = ""  # The reason where the saved tensor need not be looked at; empty where it must.
    bad_remedy: str = ""  # What to write instead where it holds a NaN or infinity, if that is another.


DOMAIN = (
    "Make the input positive where it is made, with `F.softplus` or `.exp()`; `.clamp_min(1e-8)` keeps NaN out as "
    "well, but what it clamps gets no gradient."
)
_LOG = Singularity(
    "Keep its argument away from zero, or use a fused form that never makes the zero: "
    "`F.log_softmax` instead of `softmax` and `log`, `F.binary_cross_entropy_with_logits` instead of `sigmoid` and "
    "`log`; else `x.clamp_min(1e-8).log()`",
    negative="its input holds {n}",
)
_POWER = Singularity(
    "A fractional power of a negative number is NaN, and at zero its slope is infinite, as that of a negative power: "
    "clamp the base first, `x.clamp_min(1e-8)`",
    negative="its input holds {n}",
)
_NORM = Singularity(
    "The norm has no slope at the zero vector: add a small number inside, `(x.square().sum() + 1e-12).sqrt()`"
)
_AT_ONE = Singularity(
    "The slope is infinite at ±1: clamp to `(-1 + 1e-6, 1 - 1e-6)` first", zero="",
    always="its input is not strictly between -1 and 1 everywhere",
)  # fmt: skip

SINGULARITIES: dict[str, Singularity] = {
    "log": _LOG,
    "log2": _LOG,
    "log10": _LOG,
    "xlogy": _LOG,
    "log1p": Singularity(
        "Keep its argument above -1: `x.clamp_min(-1 + 1e-6).log1p()`", zero="",
        always="its input is not above -1 everywhere",
    ),
    "sqrt": Singularity(
        "The slope of `sqrt` is infinite at zero: `torch.sqrt(x + 1e-8)`",
        bad="its input is already negative or not finite",
        bad_remedy=DOMAIN,
    ),
    "rsqrt": Singularity("Add a small number inside: `torch.rsqrt(x + 1e-8)`", bad="it divides by zero"),
    "reciprocal": Singularity("Keep the argument away from zero before taking `1/x`", bad="it divides by zero"),
    "div": Singularity(
        "Keep the divisor away from zero: `x / (y + 1e-8)`, or mask the divisor before the division "
        "(`torch.where` after it does not help: the branch not taken still gives 0 · inf = NaN)",
        zero="its divisor holds {n}", bad="its divisor is already not finite",
    ),
    "pow": _POWER,
    "norm": _NORM,
    "linalg_vector_norm": _NORM,
    "std": Singularity(
        "The standard deviation has no slope where all elements are equal: `(x.var() + 1e-8).sqrt()`; for one element "
        "it does not exist: `correction=0`",
        zero="its result holds {n}", bad="its result is not finite (of a single element it does not exist)",
    ),
    "var": Singularity(
        "The variance of one element does not exist: `correction=0`, or more than one element",
        zero="", always="the variance of a single element does not exist, or its input is already not finite",
    ),
    "acos": _AT_ONE,
    "asin": _AT_ONE,
    "atanh": _AT_ONE,
    "acosh": Singularity(
        "The slope is infinite at 1: clamp to at least 1 + 1e-6 first", zero="",
        always="its input is not above 1 everywhere",
    ),
    "exp": Singularity(
        "`exp` overflows float32 above 88 (float16 above 11): subtract the maximum first, or use `logsumexp` or "
        "`softmax`",
        zero="", bad="its result is not finite", always="its result is not finite",
    ),
}  # fmt: skip

# Where nothing was saved that explains it: what remains, by what the op does.
PRODUCTS = frozenset({"mul", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "convolution"})
LOSSES = frozenset({"mse_loss", "log_softmax", "nll_loss", "nll_loss2_d", "binary_cross_entropy",
                    "binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "kl_div", "softmax",
                    "logsumexp", "native_layer_norm", "native_batch_norm"})  # fmt: skip
NOT_FINITE_FORWARD = (
    "The forward was already not finite: look at what goes into this line with `%tensor`, which counts NaN and Inf."
)
OVERFLOW = (
    "The gradient overflowed its dtype: lower the learning rate, clip before the step with `{clip}`, or check the "
    "initialisation. Inputs that are far from zero do this too: standardise them."
)
SCALED = "The gradient overflowed its dtype: scale the loss less, or compute in a wider dtype."
OWN_BACKWARD = "Its backward is your own: check it in float64 with `torch.autograd.gradcheck({name}.apply, inputs)`."
HALF_OVERFLOW = (
    "float16 holds at most 65504: scale the loss less (`torch.amp.GradScaler` finds the scale by skipping such steps), "
    "or use `bfloat16`."
)
HOOKED = "Look at what the hook returns or writes into the gradient; one that only looks returns None."
ANY = "Look at the inputs of this line with `%tensor`; clamp or mask it before, not after."


# TM406: a NaN gradient from elements that a ``where``, a mask or an index had left out of the result.
#
# Autograd sends a gradient of exactly 0 to what was left out. Where the slope is infinite, or the value is none, 0
# times that is NaN: the user masked the bad value, and gets it back. It is reported only where that is sure: the pass
# made NaN and no infinity (an infinite slope times anything but 0 is infinite), the loss was finite, and every way
# from the loss to the op leads through something that leaves elements out, with nothing in between that could have
# made the zeros itself.

SELECTING = frozenset({"where", "masked_fill", "masked_scatter", "masked_select", "index", "index_put", "nan_to_num"})
# Behind these a logarithm is mended by fusing the two, whatever is left out: TM402 says so.
_FUSED = frozenset({"softmax", "sigmoid"})
# What hands a gradient on element for element, so that where it is zero says who made it so.
_PASSING = RESHAPING | {"add", "sub", "rsub", "neg", "sum", "mean", "stack", "cat", "alias"}
# What does so but can make zeros of its own: then the zeros are counted.
_SCALING = frozenset({"mul", "div", "pow", "exp", "log", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "square"})
_ZERO_SHARE = MEASURES.index("zero_share")


# A value at which the slope of an op is finite, and how to write the op, where that is not `torch.log(x)` or the like.
HARMLESS = {
    **dict.fromkeys(("log", "log2", "log10", "xlogy", "sqrt", "rsqrt", "reciprocal", "div", "pow"), "1"),
    **dict.fromkeys(("log1p", "exp", "acos", "asin", "atanh", "softmax", "log_softmax"), "0"),
    "acosh": "2",
}
_WRITTEN = {
    "xlogy": "torch.xlogy(x, {safe})", "reciprocal": "1 / {safe}", "div": "x / {safe}", "pow": "{safe} ** p",
    "softmax": "{safe}.softmax(-1)", "log_softmax": "{safe}.log_softmax(-1)",
}  # fmt: skip
_HELD = {"div": "divisor"}
_BAD_VALUE = frozenset({"exp", "softmax", "log_softmax"})  # not their slope, their value is infinite or NaN


@dataclass(frozen=True, slots=True)
class NanInWhere:
    """A NaN whose elements something above leaves out."""

    at: int  # Place of the graph.
    nonfinite: FirstNonfinite  # Of the NaN.
    selecting: Node  # What leaves those elements out.


def nan_in_where(report: TraceReport) -> NanInWhere | None:
    """Return the run's first NaN where it is certain that its elements were left out of the result."""
    at = first_nonfinite(report)
    if at is None:
        return None
    graph = report.graphs[at]
    nonfinite = graph.first_nonfinite[0]
    node = graph.nodes[nonfinite.node]
    if node.op not in HARMLESS or not nonfinite.nan or nonfinite.inf or not _is_zero_times(report, nonfinite, node):
        return None
    if node.op.startswith("log") and graph.nodes[nonfinite.receiver].op in _FUSED:
        return None
    selecting = _selecting_above(graph, nonfinite)
    return None if selecting is None else NanInWhere(at, nonfinite, selecting)


def _is_zero_times(report: TraceReport, nonfinite: FirstNonfinite, node: Node) -> bool:
    """Whether the NaN can only have come from a gradient of 0, or from a value that the loss does not hold."""
    if node.op == "div" and not nonfinite.saved_zero:  # a divisor that is not finite is nothing that was masked
        return False
    value = loss_of(report, nonfinite.pass_number)
    if value is not None:
        return math.isfinite(value)
    if nonfinite.saved_bad or node.op in _BAD_VALUE:
        return False
    return nonfinite.saved_zero > 0 and nonfinite.input_number == 0


def _selecting_above(graph: Graph, nonfinite: FirstNonfinite) -> Node | None:
    """Return the nearest op that leaves elements out on every way from the loss, None where one leads past them."""
    feeders, _ = neighbours(graph)
    found: list[Node] = []
    waiting, seen = [nonfinite.node], {nonfinite.node}
    while waiting:
        below = waiting.pop(0)
        above = feeders.get(below, [])
        if not above:
            return None
        for number in above:
            node = graph.nodes[number]
            if node.op in SELECTING:
                if not _made_the_zeros(graph, nonfinite, below):
                    return None
                found.append(node)
            elif node.op not in _PASSING and node.op not in _SCALING:
                return None
            elif number not in seen:
                seen.add(number)
                waiting.append(number)
    return found[0] if found else None


def _made_the_zeros(graph: Graph, nonfinite: FirstNonfinite, below: int) -> bool:
    """Whether what arrives below the selecting op is zero as often as what arrives where the NaN is born."""
    if below == nonfinite.node:
        return True
    frame = frame_of(graph, nonfinite.pass_number)
    measured = [None if frame is None else frame.measured(index) for index in (below, nonfinite.node)]
    shares = [None if row is None else row[_ZERO_SHARE] for row in measured]
    if None in shares:
        return not _scales(graph, nonfinite, below)
    return shares[0] == shares[1] or (not _scales(graph, nonfinite, below) and bool(shares[0]))


def _scales(graph: Graph, nonfinite: FirstNonfinite, below: int) -> bool:
    """Whether between the two anything but plain passing on, or a product with one number, happens."""
    between = (node for node in graph.nodes[nonfinite.node + 1 : below + 1] if node.op in _SCALING)
    return any(node.op != "mul" or any(saved.shape for saved in node.saved) for node in between)


def nan_from_what_was_not_taken(report: TraceReport) -> Iterator[Finding]:
    """TM406: a NaN gradient born at elements that a ``where`` or a mask leaves out."""
    found = nan_in_where(report)
    if found is None:
        return
    graph, nonfinite = report.graphs[found.at], found.nonfinite
    node, receiver = graph.nodes[nonfinite.node], graph.nodes[nonfinite.receiver]
    location, line = report.location(node.location), report.location(found.selecting.location)
    where = f", {location.label}" if location else ""
    by = f" ({line.label})" if line and line != location else ""
    share = part_of(nonfinite.nan, max(nonfinite.count, nonfinite.nan))
    yield Finding(
        code="TM406",
        severity="error",
        message=f"The first NaN gradient appears in {node.op}{where}{when(report, nonfinite.pass_number)}, at elements "
        f"that {found.selecting.op} hides{by}: {_reason(node, nonfinite)}, so {share} it sends to "
        f"{receiver.variable or receiver.op} {is_or_are(nonfinite.nan)} NaN.",
        location=location,
        evidence={"nan": nonfinite.nan, "elements": nonfinite.count, "zeros saved": nonfinite.saved_zero,
                  "pass": nonfinite.pass_number},
        remedy=_remedy(node, found.selecting, (text_of(location), text_of(line))),
        subject=node.op,
        node=(found.at, node.index),
        related=related_lines((f"left out by {found.selecting.op}", line), besides=location),
    )  # fmt: skip


def _reason(node: Node, nonfinite: FirstNonfinite) -> str:
    if node.op in _BAD_VALUE or (nonfinite.saved_bad and not nonfinite.saved_zero):
        return "its result is not finite there, and backward multiplies it by a gradient of 0, which is NaN"
    if not nonfinite.saved_zero or (nonfinite.saved_name not in {"self", "other"} and node.op != "sqrt"):
        return "its slope is infinite there, and backward computes 0 · ∞ = NaN"
    held = f"its {_HELD.get(node.op, 'input')} holds {plural(nonfinite.saved_zero, 'zero')}"
    return f"{held}, and backward computes 0 · ∞ = NaN there"


def _remedy(node: Node, selecting: Node, lines: tuple[str, str]) -> str:
    if node.op in {"softmax", "log_softmax"}:
        return (
            "Fill masked scores with a large negative number instead of -inf, `scores.masked_fill(mask, -1e9)`, or "
            "leave one element of every row unmasked."
        )
    line, selected = lines
    if mended := masked_on_its_line(node.op, line) if line == selected else _masked(node.op, line, selected):
        return f"Mask the input, not the output: `{mended}`"
    operand = "y" if node.op in {"div", "xlogy"} else "x"
    safe = f"torch.where(mask, {operand}, {HARMLESS[node.op]})"
    written = _WRITTEN.get(node.op, f"torch.{node.op}({{safe}})").format(safe=safe)
    return f"Mask the input, not the output: `{written}`, with the mask of the elements that {selecting.op} takes."


def singular_place(line: str, op: str) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the one place of an op on a line, and what goes into it: ``x.log()``, ``torch.log(x)``, ``1 / x``."""
    if op in {"div", "reciprocal"}:
        divisions = [node for node in expressions(line) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
        return (divisions[0], divisions[0].right) if len(divisions) == 1 else (None, None)
    calls = [
        node for node in expressions(line)
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


def in_names_of_the_line(remedy: str, op: str, line: str) -> str:
    """Return a remedy with what the line gives an op in place of the ``x``, and of the divisor ``y``, of its code."""
    place, operand = singular_place(line, op)
    if place is None or operand is None:
        return remedy
    names = {"x": atom(operand)}
    if op == "div" and isinstance(place, ast.BinOp):
        names = {"x": atom(place.left), "y": atom(operand)}
    named = partial(re.sub, r"\b[xy]\b", lambda name: names.get(name[0], name[0]))
    return re.sub("`[^`]*`", lambda code: named(code[0]), remedy)


def masked_on_its_line(op: str, line: str) -> str:
    """Return a line with the input of an op masked as its one ``where`` masks what the op makes; empty if not plain."""
    wheres = [
        node for node in expressions(line) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.where"
    ]
    place, operand = singular_place(line, op)
    harmless = HARMLESS.get(op)
    if len(wheres) != 1 or len(wheres[0].args) != 3 or place is None or operand is None or harmless is None:
        return ""
    mask, taken, other = wheres[0].args
    condition, old = ast.unparse(mask), ast.unparse(operand)
    if within(place, taken):
        return spliced(line, operand, f"torch.where({condition}, {old}, {harmless})")
    if within(place, other):
        return spliced(line, operand, f"torch.where({condition}, {harmless}, {old})")
    return ""


def _masked(op: str, line: str, selecting: str) -> str:
    """Return the line with its input masked as another line masks what it makes; empty where that is not plain."""
    statement = statement_of(line)
    place, operand = singular_place(line, op)
    if not isinstance(statement, ast.Assign) or place is None or operand is None:
        return ""
    name, other = ast.unparse(statement.targets[0]), HARMLESS[op]
    where = call_on(selecting, "where")
    if where is not None and len(where.args) == 3 and ast.unparse(where.func) == "torch.where":
        condition, taken, left = where.args
        is_name = [ast.unparse(side) == name for side in (taken, left)]
        reads = is_name if any(is_name) else [
            any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(side)) for side in (taken, left)
        ]  # fmt: skip
        if reads[0] == reads[1]:
            return ""
        parts = (ast.unparse(operand), other) if reads[0] else (other, ast.unparse(operand))
        return spliced(line, operand, f"torch.where({ast.unparse(condition)}, {', '.join(parts)})")
    taken_by = [node for node in expressions(selecting) if isinstance(node, ast.Subscript)
                and ast.unparse(node.value) == name and isinstance(node.slice, ast.Name | ast.UnaryOp)]  # fmt: skip
    if len(taken_by) != 1:
        return ""
    return spliced(line, operand, f"torch.where({ast.unparse(taken_by[0].slice)}, {ast.unparse(operand)}, {other})")
