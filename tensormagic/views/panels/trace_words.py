"""The words for a traced run: what it was, which of its steps were traced, what a rank's norms are of.

The same sentences stand in every form of the panel, in the viewer, in live output and in comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensormagic import reports, words
from tensormagic.reports import UNTOUCHED, ParameterSeries, Pass, TraceReport
from tensormagic.words import count, listed, number_of_bytes, percent, plural, seconds_text, short_number

NOT_MEASURABLE = "not measurable"

_LONG = 1.0  # seconds of a run from which on the share of the tracer is shown: of a shorter run it is noise
UNTITLED = "traced run"  # what a run without a title is called


def touched(norm: float) -> bool:
    """Say whether a gradient came at all; NaN and infinity are gradients, and so is what could not be measured."""
    return norm != UNTOUCHED


def measured(norm: float) -> bool:
    """Say whether it is a norm: NaN and infinity are, the two numbers below zero that stand for none are not."""
    return not norm < 0


def norm_text(norm: float) -> str:
    """Return a norm in two digits, ``0.016``, ``24``, ``640``, ``3.1e−5``, ``NaN``; ``none``, ``not measurable``."""
    if not measured(norm):
        return NOT_MEASURABLE if touched(norm) else "none"
    if not math.isfinite(norm):
        return "NaN" if math.isnan(norm) else "Inf"
    above = math.nextafter(norm, math.inf) if norm else 0.0  # a tie is rounded up, as JavaScript does
    if norm == 0 or 1e-3 <= norm < 9999.5:
        return f"{above:.2g}" if norm < 99.5 else f"{above:.0f}"
    return words.tidy_exponent(f"{above:.1e}").replace(".0e", "e")


def bad_text(nan: int, inf: int) -> str:
    """Return ``3 NaN``, ``2 Inf`` or ``3 NaN, 2 Inf``."""
    parts = [f"{count(number)} {name}" for number, name in ((nan, "NaN"), (inf, "Inf")) if number]
    return ", ".join(parts) or "not finite"


def run_text(report: TraceReport) -> str:
    """Return what the run was: steps, passes, time, and the tracer's share of it."""
    if report.state == "drawn":
        leaves = sum(node.kind == "accumulate" for node in report.nodes)
        size = f"{plural(len(report.nodes), 'node')}, {plural(leaves, 'leaf', 'leaves')}"
        if (kept := report.saved) is None or not kept.slots:
            return size
        of_leaves = f", {number_of_bytes(kept.leaf_bytes)} of it the leaves themselves" if kept.leaf_bytes else ""
        storages = plural(kept.storages, "storage")
        return f"{size}, keeps {number_of_bytes(kept.nbytes)} in {storages} for backward{of_leaves}"
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    inner = plural(report.inner_passes_seen, "pass inside them", "passes inside them")
    passes += f" and {inner}" if report.inner_passes_seen else ""
    steps = plural(report.steps_seen, "step") if report.steps_seen else ""
    cost = sampling_text(report) or overhead_text(report)
    parts = (steps, f"{passes} in {seconds_text(report.seconds)}", cost, loss_text(report))
    return ", ".join(filter(None, parts))


def loss_text(report: TraceReport) -> str:
    """Return what backward was called on, first and last; empty where that is not one number of one line."""
    if not report.passes or len({one.location for one in report.passes}) > 1:
        return ""
    first, last = report.passes[0].value, report.passes[-1].value
    if first is None or last is None:
        return ""
    numbers = short_number(first), short_number(last)
    return f"loss {' → '.join(numbers if len(report.passes) > 1 else numbers[:1])}"


def overhead_text(report: TraceReport) -> str:
    """Return the tracer's share of the run, ``tracing +3 %``; empty where it is not known, and of a short run."""
    rest = report.seconds - report.own_seconds
    if report.own_seconds <= 0 or rest <= 0 or report.seconds < _LONG:
        return ""
    return f"tracing +{percent(report.own_seconds, rest)}"


def all_clear(report: TraceReport) -> str:
    """Return the sentence for a run without findings; it claims no more than was looked at."""
    if report.state == "drawn" and report.saved is not None:
        return _existing(report.saved)
    if report.failure is not None:
        return f"the run ended with the call above, which torch refused{_until(report)}"
    if not report.passes_seen:
        return _no_backward(report)
    passes = _looked_at(report)
    if not report.passes_traced:
        return f"none of {plural(report.passes_seen, 'backward pass', 'backward passes')} was traced"
    if report.state == "failed":
        return f"no problems found in the gradients of {passes}; the error comes from your code"
    return f"no problems found in {passes}{' so far' if report.state == 'running' else ''}"


def _existing(kept: reports.SavedTotals) -> str:
    """Return whether backward can run through an existing graph, as far as what it saved says."""
    if kept.freed:
        return "backward already ran through this graph and freed its saved tensors: it cannot run again"
    if kept.changed:
        what = plural(kept.changed, "saved tensor was", "saved tensors were")
        return f"backward would fail: {what} changed in place afterwards"
    hidden = f"; {plural(kept.unread, 'saved tensor')} could not be read" if kept.unread else ""
    return f"backward can run through this graph: no saved tensor was freed or changed{hidden}"


def _no_backward(report: TraceReport) -> str:
    """Return that no backward was seen, and what to do; where processes were forked, that nobody looked there."""
    if any(finding.code == "TM306" for finding in report.findings):
        return "no backward ran: what it was called on has no graph"
    if report.forked:
        were = f"{plural(report.forked, 'process was', 'processes were')} forked in this run, and"
        where = "trace inside the function that runs there, with tensormagic.trace()"
        return f"{were} {words.is_or_are(report.forked)} not followed from here: {where}"
    if report.state == "running":
        return "no backward was seen yet"
    return "no backward was seen; call .backward() on a scalar loss inside the traced code"


def _until(report: TraceReport) -> str:
    """Return what came before the call that ended the run; where that was a backward, it is the last of the passes."""
    failed = bool(report.passes) and report.passes[-1].outcome == "failed"
    if failed and report.failure is not None and report.failure.phase == "backward":
        first = report.passes_seen == 1
        return " in the first backward" if first else f", in the last of {count(report.passes_seen)} backward passes"
    return f"; {_looked_at(report)} before it" if report.passes_seen else " before any backward ran"


def _looked_at(report: TraceReport) -> str:
    """Return how many passes were looked at: ``800 backward passes``, ``the 41 traced of 800 backward passes``."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    traced = report.passes_traced
    return passes if traced >= report.passes_seen else f"the {count(traced)} traced of {passes}"


def verdict(report: TraceReport) -> tuple[str, str, str, str] | None:
    """Return the first sentence about a run that has ended; None where a finding says it, or the call above.

    Returns:
        ``"healthy"``, ``"failed"`` or ``"nothing"``; the sentence; the error of the cell; what else is to be known.
    """
    if report.state == "running" or (report.failure is not None and not report.passes_seen):
        return None
    said, severities = all_clear(report), {finding.severity for finding in report.findings}
    if report.state == "drawn" or (report.state != "finished" and report.failure is not None):
        can_run = report.saved is not None and not report.saved.freed and not report.saved.changed
        return "healthy" if report.state == "drawn" and can_run else "failed", said, "", ""
    if report.state != "finished":
        ended = "failed" if report.state == "failed" else "was interrupted"
        rest = f"after {_looked_at(report)}" if severities else said
        rest = rest if report.passes_seen else "before any backward"
        return "failed", f"the cell {ended}", report.error.rstrip(": "), rest
    if not report.passes_traced:
        made = "" if report.passes_seen else f"the forward made {plural(report.forward_nodes, 'autograd node')}"
        return "nothing", said, "", made
    if severities - {"note"}:
        return None
    notes = f"{plural(len(report.findings), 'note')}, no errors or warnings in {_looked_at(report)}"
    return ("nothing", notes, "", checked_text(report)) if severities else ("healthy", said, "", checked_text(report))


def checked_text(report: TraceReport) -> str:
    """Return what was looked at: ``23 nodes checked, 2 cuts, parameter norms from 7.2e−5 to 0.11``."""
    cuts = sum(cut.detachment for graph in report.graphs for cut in graph.cuts)
    parts = [f"{plural(sum(len(graph.nodes) for graph in report.graphs), 'node')} checked"]
    parts += [plural(cuts, "cut")] if cuts else []
    norms = [norm for series in report.parameters for norm in series.norms if 0 < norm < math.inf]
    if norms:
        least, most = norm_text(min(norms)), norm_text(max(norms))
        parts.append(f"parameter norm {least}" if least == most else f"parameter norms from {least} to {most}")
    zero = sum(bool(series.norms) and series.norms[-1] == 0 for series in report.parameters)
    parts += [f"{count(zero)} of {plural(len(report.parameters), 'parameter')} got a gradient of zero"] if zero else []
    return ", ".join(parts)


def last_move(series: ParameterSeries) -> float:
    """Return how far the last step of an optimizer that was measured moved a parameter; `UNTOUCHED` without one."""
    return next((ratio for ratio in reversed(series.updates) if touched(ratio)), UNTOUCHED)


def move_text(ratio: float) -> str:
    """Return how far a step moved a parameter, as a share of its norm; empty where that was not measured."""
    if not touched(ratio):
        return ""
    return "from all zeros" if ratio == math.inf else f"{norm_text(ratio)} of its norm"


def pass_text(one: Pass) -> str:
    """Return ``pass 3, step 2, failed, loss 0.5``."""
    failed = ", failed" if one.outcome == "failed" else ""
    loss = "" if one.value is None else f", loss {short_number(one.value)}"
    return f"pass {one.number}, step {one.step}{failed}{loss}"


def first_nonfinite_text(first: reports.FirstNonfinite) -> str:
    """Return what happened at the node whose backward made the first NaN or Inf of a pass."""
    kinds = (
        (first.saved_zero, "zero"), (first.saved_negative, "negative value"), (first.saved_bad, "non-finite value"),
    )  # fmt: skip
    kept = ", ".join(plural(number, word) for number, word in kinds if number)
    why = f" Its saved tensor {first.saved_name} holds {kept}." if first.saved_name and kept else ""
    unsure = "" if first.certain else " Several nodes feed the receiver, and only their sum was recorded."
    return (
        f"Here the gradient became non-finite: this node received norm {norm_text(first.incoming_norm)} and sent "
        f"{bad_text(first.nan, first.inf)} of {count(first.count)} to input {first.input_number}.{why}{unsure}"
    )


# -- which steps were traced ------------------------------------------------------------------------------------------

MOST_STRETCHES = 12


def sampling_text(report: TraceReport) -> str:
    """Return ``traced 41 of 800 steps (budget 5 %: cost 4.6 %)``; empty where all were to be traced."""
    sampling = report.sampling
    if sampling is None:
        return ""
    mark = "," if sampling.asked.budget is None else ":"
    cost = "" if not sampling.cost else f"{mark} cost {percent(sampling.cost)}"
    return f"traced {count(sampling.steps)} of {plural(report.steps_seen, 'step')} ({asked_text(sampling.asked)}{cost})"


def sampling_lines(report: TraceReport) -> Iterator[str]:
    """Yield sentences: which steps, what cost more than was asked for, what was left out, and what the end was."""
    sampling = report.sampling
    if sampling is None or not report.steps_seen:
        return
    if sampling.steps:
        ranges = [count(first) if first == last else f"{count(first)}–{count(last)}" for first, last in sampling.ranges]
        half = MOST_STRETCHES // 2
        kept = ranges if len(ranges) <= MOST_STRETCHES else [*ranges[:half], *ranges[-half:]]
        if hidden := sampling.left_out + len(ranges) - len(kept):
            kept.insert(len(kept) // 2, f"… {count(hidden)} more …")
        after = f"; {count(sampling.after_finding)} of them because the step before had a finding"
        stretches = f"{'step' if sampling.steps == 1 else 'steps'} {', '.join(kept)}"
        yield f"traced: {stretches}{after if sampling.after_finding else ''}"
    if sampling.unsampled:
        yield sampling.unsampled
    budget, cost = sampling.asked.budget, sampling.cost
    if budget is not None and cost is not None and cost > 1.05 * budget:
        first = f": the first step, in which every graph is new, already cost {percent(sampling.first_cost)}"
        yield f"the budget was not kept{first if sampling.first_cost > budget / 2 else ''}"
    if sampling.partial:
        yield (
            f"{plural(sampling.partial, 'step')} requested could not be traced completely: their graphs began before "
            "the first backward pass"
        )
    if report.state == "running":
        ahead = f", next traced about {count(sampling.next_step)}" if sampling.next_step else ""
        yield from [f"paused: step {count(report.steps_seen)}{ahead}"] if sampling.paused else []
    elif not sampling.steps:
        yield f"no step was traced: the run had {plural(report.steps_seen, 'step')}"
    elif not sampling.last_traced:
        yield f"the last step, {count(report.steps_seen)}, was not traced{_left(sampling.last_norms)}"


def asked_text(asked: reports.Schedule) -> str:
    """Return what was asked for: ``budget 5 %``, ``every 10``, ``steps 10 to 20``, ``steps from 10, every 5``."""
    if asked.budget is not None:
        return f"budget {percent(asked.budget)}"
    parts = [f"steps from {asked.start}"] if asked.start > 1 else []
    if asked.stop is not None:
        parts = [f"steps {asked.start} to {asked.stop - 1}"]
    return ", ".join([*parts, f"every {asked.every}"] if asked.every > 1 else parts)


def _left(norms: Sequence[float]) -> str:
    """Return what the gradients that the last step left are like."""
    there = [norm for norm in norms if touched(norm)]
    bad = sum(not math.isfinite(norm) for norm in there)
    if not there:
        return ", and left no .grad"
    if bad:
        return f"; of the .grad left at the end {count(bad)} of {count(len(there))} hold NaN or Inf"
    total = math.hypot(*filter(measured, there))
    return f"; the {count(len(there))} .grad left at the end have a total norm of {total:.3g}"


# -- other processes --------------------------------------------------------------------------------------------------

_MOST_LISTED = 3
_OF = {
    "DDP": "norms of this rank's gradients, before they are reduced",
    "FSDP1": "norms of this rank's full gradients, before they are reduced and sharded",
    "FSDP2": "norms of this rank's full gradients, before they are reduced and sharded",
    "DTensor": "the norm of a DTensor covers only this process's shard",
}


def run_lines(report: TraceReport) -> Iterator[str]:
    """Yield the lines below the headline of a run: which steps were traced, and which part of it a rank is."""
    yield from sampling_lines(report)
    parallel = report.parallel
    if parallel is None:
        return
    what = f", {' and '.join(parallel.kinds)}: {'; '.join(dict.fromkeys(map(_OF.__getitem__, parallel.kinds)))}"
    yield f"rank {parallel.rank} of {parallel.world_size}{what if parallel.kinds else ''}"
    known = [one for one in report.passes if one.reduced is not None]  # whether it reduced gradients over the ranks
    kept_back = [one.number for one in known if not one.reduced]
    if known:
        kept = f"; {'pass' if len(kept_back) == 1 else 'passes'} {listed(map(count, kept_back), most=6)} kept them back"
        reduced = f"{count(len(known) - len(kept_back))} of {plural(len(known), 'pass', 'passes')}"
        yield f"{reduced} reduced gradients over the ranks{kept if kept_back else ''}"
    described = ((one.name, *last_used(one)) for one in report.parameters)  # the step's own beside the backward's
    norms = [f"{name} {norm_text(used)} ({norm_text(brought)})" for name, brought, used in described if measured(used)]
    if norms:
        here = " of this process's shards" if set(parallel.kinds) - {"DDP"} else ""
        every = listed(norms, most=_MOST_LISTED)
        yield f"norms used at the optimizer's last step{here}, in brackets those before: {every}"


def last_used(series: ParameterSeries) -> tuple[float, float]:
    """Return the norm that a backward brought and that which the step after it used, last; `UNTOUCHED` without one."""
    pairs = zip(reversed(series.norms), reversed(series.stepped), strict=False)
    return next(((brought, used) for brought, used in pairs if measured(used)), (UNTOUCHED, UNTOUCHED))


def pass_context_text(report: TraceReport, one: Pass) -> str:
    """Return ``inside CheckpointFunction``, ``on thread worker-1``, ``in vmap > grad``; empty for most."""
    described = one.pass_context
    if described is None:
        return ""
    maker = next((graph.nodes[described.node : described.node + 1] for graph in report.graphs
                  if graph.number == described.graph and described.node is not None), ())  # fmt: skip
    inside = f"inside {maker[0].op if maker else 'another'}" if described.inside else ""  # the node that made the call
    thread = f"on thread {described.thread}" if described.thread else ""
    levels = f"in {' > '.join(described.levels)}" if described.levels else ""
    return ", ".join(filter(None, (inside, thread, levels)))
