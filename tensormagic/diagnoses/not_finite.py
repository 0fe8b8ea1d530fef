"""TM401, TM402, TM407: where NaN and Inf began, and gradients that half precision cannot hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.diagnoses.forward_faults import fault_finding, forward_fault, is_half_overflow
from tensormagic.diagnoses.lines import text_of
from tensormagic.diagnoses.paths import frame_of, neighbours
from tensormagic.diagnoses.rule import clipping, optimizers_of, scientific
from tensormagic.diagnoses.singular import (
    ANY,
    HALF_OVERFLOW,
    HOOKED,
    LOSSES,
    NOT_FINITE_FORWARD,
    OVERFLOW,
    OWN_BACKWARD,
    PRODUCTS,
    SCALED,
    SINGULARITIES,
    Singularity,
    first_bad,
    first_nonfinite,
    in_names_of_the_line,
    nan_in_where,
    nonfinite_kind,
    when,
)
from tensormagic.reports import (
    MEASURES,
    UNTOUCHED,
    Finding,
    FirstNonfinite,
    Frame,
    Graph,
    Location,
    Node,
    Severity,
    TensorReport,
    TraceReport,
)
from tensormagic.words import count, is_or_are, listed, part_of, plural


def bad_at_the_end(report: TraceReport) -> Iterator[Finding]:
    """TM402: the ``.grad`` left at the end hold NaN, and no traced pass did; a note where they hold infinities alone.

    The step in which it began was not traced. Infinities are what a gradient scaler leaves in a step that it skips.
    """
    if report.sampling is None or not all(one.finite for one in report.passes):
        return
    pairs = zip(report.parameters, report.sampling.last_norms, strict=False)
    there = [(series, norm) for series, norm in pairs if norm != UNTOUCHED]
    bad = [(series, norm) for series, norm in there if not math.isfinite(norm)]
    if not bad:
        return
    nan = any(math.isnan(norm) for _, norm in bad)
    last = report.passes[-1] if report.passes else None
    after = last.step if last is not None else 0
    if report.sampling.ranges:
        after = report.sampling.ranges[-1][1]
    names = listed([series.name for series, _ in bad])
    yield Finding(
        code="TM402",
        severity="warning" if nan else "note",
        message=f"At the end of the run, {part_of(len(bad), len(there), 'gradient')} {is_or_are(len(bad))} "
        f"{'NaN' if nan else 'infinite'} ({names}), although no traced pass had one: it began after step "
        f"{count(after)}, the last traced step.",
        location=report.location(last.location) if last is not None else None,
        evidence={"parameters": len(bad), "last traced step": after, "steps": report.steps_seen},
        remedy=f"Trace the steps after it: `--steps {after + 1}:` (in a script `steps=({after + 1}, None)`).",
        subject=bad[0][0].name,
    )


MOST_OBVIOUS = 2  # of two slices, one bad one is no surprise
HUGE_NORM = 1e15  # a finite gradient above this has been growing: what overflows after it is no fault of the op


def bad_values(report: TensorReport) -> Iterator[Finding]:
    """TM401: the tensor holds NaN (a warning) or infinities (a note: masks are made of them)."""
    numbers = report.statistics
    if numbers is None:
        return
    inf = numbers.positive_infinity + numbers.negative_infinity
    if not numbers.nan and not inf:
        return
    infinite = (numbers.first_positive_infinity, numbers.first_negative_infinity)
    first = numbers.first_nan or min((index for index in infinite if index is not None), default=numbers.first_nan)
    at = "" if not first else f"; the first is {report.name}[{', '.join(map(str, first))}]"
    kind, bad = nonfinite_kind(numbers.nan, inf)
    seen = part_of(bad, numbers.count) + (" looked at" if numbers.count < numbers.of else "")
    if numbers.of_what.startswith("the "):  # not its own elements: a sparse tensor's stored values, say
        seen = f"{count(bad)} of {numbers.of_what.removeprefix('the magnitudes of ')}"
    also = f", and {count(inf)} infinite" if numbers.nan and inf else ""
    yield Finding(
        code="TM401",
        severity="warning" if numbers.nan else "note",
        message=f"In {report.name} {seen} {is_or_are(bad)} {kind}{also}{at}{_all_in(report)}.",
        evidence={"nan": numbers.nan, "+inf": numbers.positive_infinity, "-inf": numbers.negative_infinity},
        remedy="Find where it came from: run the cell that made it under %%tracegrad." if numbers.nan else "",
        subject=report.name,
    )


def _all_in(report: TensorReport) -> str:
    """Return the one slice that holds all of several bad elements: one of the smallest share of the tensor."""
    holding = [each for each in report.slices if each.bad_count == 1 and each.bad_exact and each.size > MOST_OBVIOUS]
    if not holding or sum(holding[0].cell_bad) < 2:
        return ""
    each = max(holding, key=lambda each: each.size)
    letter = report.layout.dim_names[each.dim] if report.layout else f"dim {each.dim}"
    return f"; all of them lie in {letter}={each.bad[0].index}, one of {count(each.size)}"


def first_bad_gradient(report: TraceReport) -> Iterator[Finding]:
    """TM402: where the first NaN or infinite gradient was born, and what made it.

    An error; a warning where the last pass is finite again; a note where, besides, it was a float16 that overflowed:
    that is how a gradient scaler finds its scale.
    """
    found = _described(report)
    if found is not None and found.code == "TM402":
        yield found


def half_overflow(report: TraceReport) -> Finding | None:
    """TM407: the first infinite gradient is one that float16 could not hold; a note where the run gets over it."""
    found = _described(report)
    return found if found is not None and found.code == "TM407" else None


def _described(report: TraceReport) -> Finding | None:
    """Return what there is to say of the first bad gradient, if TM401 or TM406 does not say it already."""
    fault = forward_fault(report)
    if fault is not None:
        return fault_finding(report, fault) if is_half_overflow(report, fault) else None
    born, shown = first_nonfinite(report), first_bad(report)
    if born is not None:
        return None if nan_in_where(report) is not None else _Born(report, born).finding()
    return _from_the_start(report, *shown) if shown is not None else next(bad_at_the_end(report), None)


@dataclass(frozen=True, slots=True)
class _Born:
    """Where a graph's first NaN or infinite gradient appeared, put into words."""

    report: TraceReport
    number: int

    @property
    def graph(self) -> Graph:
        return self.report.graphs[self.number]

    @property
    def nonfinite(self) -> FirstNonfinite:
        return self.graph.first_nonfinite[0]

    @property
    def node(self) -> Node:
        return self.graph.nodes[self.nonfinite.node]

    @property
    def receiver(self) -> Node:
        return self.graph.nodes[self.nonfinite.receiver]

    def finding(self) -> Finding:
        nonfinite, location = self.nonfinite, self.report.location(self.node.location)
        reason, remedy = self._reason()
        recovers = _recovers(self.report, self.nonfinite.pass_number)
        afterwards = "; the last pass is finite again" if recovers else ""
        milder: Severity = "note" if self._is_half_overflow() else "warning"
        return Finding(
            code="TM407" if remedy is HALF_OVERFLOW else "TM402",
            severity=milder if recovers else "error",
            message=f"{self._opening(location)}: {reason}{self._sent()}{self._spread()}{afterwards}.",
            location=location,
            evidence={
                "nan": nonfinite.nan, "inf": nonfinite.inf, "elements": nonfinite.count,
                "incoming norm": nonfinite.incoming_norm, "input": nonfinite.input_number,
                "zeros saved": nonfinite.saved_zero, "pass": nonfinite.pass_number,
            },
            remedy=in_names_of_the_line(remedy, self.node.op, text_of(location)),
            subject=self.node.op,
            node=(self.number, self.node.index),
        )  # fmt: skip

    def _opening(self, location: Location | None) -> str:
        kind, _ = nonfinite_kind(self.nonfinite.nan, self.nonfinite.inf)
        near = "" if self.node.exact_location else "at or before "
        where = f", {near}{location.label}" if location else ""
        seen = " that was traced" if self.report.passes_traced < self.report.passes_seen else ""
        at = when(self.report, self.nonfinite.pass_number)
        born = f"appears in {self.node.op}{where}{at}"
        if self._may_be_the_hook():
            born = f"is made on the way from {self.node.op}{where} to {self._to}{at}"
        return f"The first {kind} gradient{seen} {born}"

    @property
    def _to(self) -> str:
        return self.receiver.variable or self.receiver.op

    def _may_be_the_hook(self) -> bool:
        """Whether a hook of the user's comes in between, and nothing that the op saved explains it."""
        nonfinite = self.nonfinite
        explained = nonfinite.saved_zero or nonfinite.saved_negative or nonfinite.saved_bad or self._is_half_overflow()
        return nonfinite.hooked and not explained and 0 <= nonfinite.incoming_norm < HUGE_NORM

    def _sent(self) -> str:
        nonfinite = self.nonfinite
        kind, bad = nonfinite_kind(nonfinite.nan, nonfinite.inf)
        which = f"{self._to} receives" if self._may_be_the_hook() else f"it sends to {self._to}"
        return f"{part_of(bad, max(nonfinite.count, bad))} {which} {is_or_are(bad)} {kind}"

    def _spread(self) -> str:
        frame = frame_of(self.graph, self.nonfinite.pass_number)
        return f"; it spreads to {count(len(frame.bad))} of {plural(len(self.graph.nodes), 'node')}" if frame else ""

    def _is_half_overflow(self) -> bool:
        """Whether it was float16, not the op, that could not hold the number."""
        explained = self.nonfinite.saved_zero or self.nonfinite.saved_bad
        return "float16" in {self.node.dtype, self.receiver.dtype} and not explained

    def _reason(self) -> tuple[str, str]:
        """Return the clause that gives the reason, and the remedy."""
        if self._may_be_the_hook():
            received = f"{self.node.op} receives a finite gradient (norm {scientific(self.nonfinite.incoming_norm)})"
            put = self.report.location(self.graph.hooked.get(str(self.receiver.index)))
            hook = f"a hook ({put.label})" if put else "a hook"
            return f"{received}, {hook} runs on what it sends, and ", HOOKED
        certainty = "" if self.nonfinite.certain else "it is one of several that feed the same gradient; "
        known = SINGULARITIES.get(self.node.op)
        for clause, remedy in self._saved(known) if known else ():
            if clause:
                return f"{certainty}{clause}, so ", remedy
        clause, remedy = self._unsaved()
        return certainty + clause, remedy

    def _saved(self, known: Singularity) -> Iterator[tuple[str, str]]:
        """Yield what the saved tensor explains, the most telling first."""
        nonfinite = self.nonfinite
        zero, negative = nonfinite.saved_zero, nonfinite.saved_negative
        if self.node.op == "pow":  # where zeros make infinity and negative numbers NaN
            zero, negative = (0 if nonfinite.nan and negative else zero), (negative if nonfinite.nan else 0)
        counts = (
            (zero, known.zero, plural(zero, "zero")),
            (negative, known.negative, plural(negative, "negative number")),
        )
        held = [(clause, text) for count, clause, text in counts if count and clause]
        if held and not nonfinite.saved_bad:
            yield held[0][0].format(n=listed([text for _, text in held])), known.remedy
        elif held:
            kinds = "negative, NaN or infinite" if known.bad_remedy else "NaN or infinite"  # of a root: its result
            bad = plural(nonfinite.saved_bad, f"{kinds} element")
            yield held[0][0].format(n=listed([*(text for _, text in held), bad])), known.bad_remedy or known.remedy
        if nonfinite.saved_bad:
            place = f" at {plural(nonfinite.saved_bad, 'element')}" if nonfinite.count > 1 else ""
            own = not known.bad.endswith("already not finite")
            yield known.bad + place, known.bad_remedy or (known.remedy if own else NOT_FINITE_FORWARD)
        if nonfinite.saved_name in {"", "self"} and nonfinite.incoming_norm < HUGE_NORM:
            yield known.always, known.remedy

    def _unsaved(self) -> tuple[str, str]:
        nonfinite, op = self.nonfinite, self.node.op
        norm = f"(norm {scientific(nonfinite.incoming_norm)})"
        if nonfinite.incoming_norm < 0:
            return "the gradient it receives could not be read; ", ANY
        if self._is_half_overflow() and nonfinite.incoming_norm < HUGE_NORM:
            return f"the gradient it receives {norm} does not fit float16, so ", HALF_OVERFLOW
        if nonfinite.incoming_norm > HUGE_NORM:
            steps = optimizers_of(self.report)
            remedy = OVERFLOW.format(clip=clipping(self.report)) if steps else SCALED
            return f"the gradient it receives is finite but huge {norm}, and ", remedy
        if op in PRODUCTS and nonfinite.nan:
            return "it multiplies a finite gradient by a value that is already not finite, so ", NOT_FINITE_FORWARD
        if op in LOSSES:
            return "its forward result was already not finite, so ", NOT_FINITE_FORWARD
        own = self.node.kind == "custom"
        return f"it receives a finite gradient {norm}, but ", OWN_BACKWARD.format(name=op) if own else ANY


def _recovers(report: TraceReport, pass_number: int) -> bool:
    """Whether the last pass, later than that one, was finite again: the bad gradient reached no parameter."""
    return bool(report.passes) and report.passes[-1].number > pass_number and report.passes[-1].finite


_GIVEN = "Look at the gradient argument of backward(), or at a loss scale that overflowed."
_GIVEN_BY_A_STAGE = f"{_GIVEN} In a pipeline, look at the input of the first stage, and at the report of the next one."


def _from_the_start(report: TraceReport, pass_number: int, number: int) -> Finding:
    """Word a pass in which no node made what is not finite: it came with the gradient that backward was given."""
    graph = report.graphs[number]
    frame = frame_of(graph, pass_number)
    assert frame is not None
    called = next((done.location for done in report.passes if done.number == pass_number), None)
    order = [index for index in (*graph.order, *range(len(graph.nodes))) if str(index) in frame.bad]
    roots = [index for index in graph.roots if str(index) in frame.bad]
    node, given = graph.nodes[(roots or order)[0]], bool(roots)
    nan, inf = frame.bad[str(node.index)]
    kind, bad = nonfinite_kind(nan, inf)
    location = report.location(called if given else node.location)
    opening = "A gradient that is not finite was seen"
    if given:
        opening = "Backward was started with a gradient that is not finite"
    of = plural(bad, "element")
    return Finding(
        code="TM402",
        severity="warning" if _recovers(report, pass_number) else "error",
        message=f"{opening}{when(report, pass_number)}: {of} of what {node.op} receives {is_or_are(bad)} {kind}.",
        location=location,
        evidence={"nan": nan, "inf": inf, "pass": pass_number},
        remedy=(_GIVEN_BY_A_STAGE if report.parallel else _GIVEN) if given else ANY,
        subject=node.op,
        node=(number, node.index),
    )


# TM407: gradients that are too small for float16 or float8, or at the end of their range.
#
# What overflows becomes infinite and is seen where it is born: `half_overflow`. What underflows becomes
# zero, or loses its digits, and nothing else shows it. Zeros alone prove nothing (a ReLU zeroes half of a gradient),
# so the rule looks at what a cast takes away from the norm, and where nothing is cast, by how far all that is not zero
# lies below the smallest normal number. bfloat16 has the range of float32 and is never meant.

FEWEST_PASSES = 2
# A cast that keeps the digits changes a norm by a thousandth; one that changes it by a tenth has lost them.
LOST_NORM = 0.1
# 16 steps of the smallest number of float16: nine tenths of the gradient below the smallest normal number, and on
# average less than four bits left of it.
FAINT = 16 * 2.0**-24
SUBNORMAL_SHARE = 0.9
SATURATED_SHARE = 0.01

_ABS_MAX, _ZERO, _SUBNORMAL, _SATURATED = (
    MEASURES.index(name) for name in ("abs_max", "zero_share", "subnormal_share", "saturated_share")
)
_REMEDY = (
    "Scale the loss so that its gradients fit: `scaler = torch.amp.GradScaler()`, `scaler.scale(loss).backward()`, "
    "`scaler.step(optimizer)`, `scaler.update()`; or use torch.bfloat16, whose range is that of float32."
)


@dataclass(frozen=True, slots=True)
class _Loss:
    """What half precision does to a gradient, at one node, in all kept passes."""

    node: Node
    text: str
    evidence: dict[str, float]


def narrow_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM407: a float16 gradient that overflows, or underflows in pass after pass; a float8 gradient that saturates."""
    overflow = half_overflow(report)
    if overflow is not None:
        yield overflow
        return
    for at, graph in enumerate(report.graphs):
        narrow = [node for node in graph.nodes if is_narrow(node.dtype) and node.kind != "accumulate"]
        frames = [frame for frame in graph.frames if not frame.bad]
        if not narrow or len(frames) < FEWEST_PASSES:
            continue
        found = _cast_away(graph, narrow, frames) or _faint(narrow, frames) or _at_the_end(narrow, frames)
        if found is not None:
            yield _finding(report, (at, found.node.index), found)
            return


def is_narrow(dtype: str) -> bool:
    """Return whether a dtype has a smaller range than float32's."""
    return dtype == "float16" or dtype.startswith("float8")


def _cast_away(graph: Graph, narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first cast on the way back that takes a good part of the norm, in every pass."""
    feeders, _ = neighbours(graph)
    for node in reversed(narrow):
        above = feeders.get(node.index, [])
        source = graph.nodes[above[0]] if len(above) == 1 else None
        if source is None or source.op != "to_copy" or is_narrow(source.dtype):
            continue
        rows = [(frame.norms[source.index], frame.norms[node.index]) for frame in frames]
        if all(before > 0 and 0 <= after < math.inf and abs(after / before - 1) > LOST_NORM for before, after in rows):
            before, after = rows[-1]
            text = (
                f"the gradient that comes back to {node.op} has a norm of {scientific(before)} in {source.dtype} and "
                f"of {scientific(after)} in {node.dtype}"
            )
            return _Loss(node, text, {"norm before the cast": before, "norm after it": after})
    return None


def _faint(narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first node on the way back whose gradient is below the normal numbers, in every pass."""
    for node in reversed(narrow):
        norms = [frame.norms[node.index] for frame in frames if frame.norms[node.index] > 0]
        rows = [frame.measured(node.index) for frame in frames]
        row = next((row for row in reversed(rows) if row is not None), None)
        if row is None or len(norms) < FEWEST_PASSES or node.dtype != "float16" or not node.shapes:
            continue
        there = 1 - row[_ZERO]
        count = math.prod(node.shapes[0]) * there
        if count >= 1 and max(norms) / math.sqrt(count) < FAINT and row[_SUBNORMAL] >= SUBNORMAL_SHARE * there:
            below = round(100 * row[_SUBNORMAL] / there)
            text = (
                f"of the gradient that comes back to {node.op}, {below} % of nonzero elements are below 6.1e\u22125, "
                f"where float16 loses its digits, and the largest element is {scientific(row[_ABS_MAX])}"
            )
            return _Loss(node, text, {"subnormal share": row[_SUBNORMAL], "zero share": row[_ZERO], "norm": max(norms)})
    return None


def _at_the_end(narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first node whose gradient sticks at the largest number of its type, in every measured pass."""
    for node in reversed(narrow):
        rows = [row for frame in frames if (row := frame.measured(node.index)) is not None]
        if len(rows) >= FEWEST_PASSES and all(row[_SATURATED] >= SATURATED_SHARE for row in rows):
            share = round(100 * rows[-1][_SATURATED])
            text = f"{share} % of the gradient that comes back to {node.op} is at the largest number of {node.dtype}"
            return _Loss(node, text, {"saturated share": rows[-1][_SATURATED]})
    return None


def _finding(report: TraceReport, where: tuple[int, int], found: _Loss) -> Finding:
    node, location = found.node, report.location(found.node.location)
    saturates = "saturated share" in found.evidence
    passes = sum(not frame.bad for frame in report.graphs[where[0]].frames)
    does = "saturates" if saturates else "underflows"
    place = f" at {location.label}" if location else ""
    return Finding(
        code="TM407",
        severity="warning",
        message=f"The gradient {does} {node.dtype}{place} in all "
        f"{plural(passes, 'backward pass', 'backward passes')}: {found.text}.",
        location=location,
        evidence=dict(found.evidence),
        remedy="Scale the loss less." if saturates else _REMEDY,
        subject=node.op,
        node=where,
    )
