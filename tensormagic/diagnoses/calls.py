"""TM102 to TM105, TM701 to TM704, TM803, TM805: what single calls do beside what was asked of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

from tensormagic.diagnoses.lines import text_of
from tensormagic.diagnoses.rule import (
    FEWEST_STEPS,
    every_call,
    expression,
    how_often,
    observed,
    related_lines,
    times,
)
from tensormagic.reports import Finding, Observation, Operand, RelatedLine, RngRunReport, TraceReport
from tensormagic.words import binding, count, listed, number_of_bytes, plural, tuple_text

# TM701: random numbers that no second run will give again.

MOST_LINES = 3
_SEEDS = {"torch": "`torch.manual_seed(0)`", "numpy": "give NumPy a seed", "python": "`random.seed(0)`"}


def unseeded_draws(report: TraceReport) -> Iterator[Finding]:
    """TM701: once a run: draws from a default generator whose seed torch chose itself."""
    draws = list(observed(report, "draw"))
    if not draws:
        return
    names, times, lines = _in_all(draws)
    yield Finding(
        code="TM701",
        severity="note",
        message=f"{names} drew {plural(times, 'time')}{lines} from a probably unseeded generator: then the next run "
        "gives different numbers.",
        location=report.location(draws[0].location),
        evidence={"draws": times, "lines": len({one.location for one in draws}), "seed": draws[0].detail},
        remedy="To make runs comparable: `torch.manual_seed(0)` before the model is made.",
        subject=draws[0].op,
        related=_others(report, draws),
    )


def _in_all(seen: list[Observation]) -> tuple[str, int, str]:
    """Return what was called on all these lines, how often, and on how many lines, where there are several."""
    names, lines = listed(list(dict.fromkeys(one.op for one in seen))), len({one.location for one in seen})
    return names, sum(one.calls for one in seen), "" if lines == 1 else f" on {plural(lines, 'line')}"


def _others(report: TraceReport, seen: list[Observation]) -> tuple[RelatedLine, ...]:
    """Return the lines of the first few besides the very first."""
    often = [f", {count(one.calls)} times" if one.calls > 1 else "" for one in seen]
    lines = [(f"{one.op}{times}", report.location(one.location)) for one, times in zip(seen, often, strict=True)]
    return related_lines(*lines[1 : 1 + MOST_LINES])


def unseeded_run(report: RngRunReport) -> Iterator[Finding]:
    """TM701: the same of a run whose draws were watched: any generator that the system seeded, NumPy's too."""
    for index, state in enumerate(report.before):
        draws = [one for one in report.sums if one.generator == index]
        if state.seeding != "entropy" or not draws or draws[0].kind == "set":
            continue
        calls = sum(one.calls for one in draws)
        yield Finding(
            code="TM701",
            severity="note",
            message=f"{state.name} was probably seeded by the system, and {plural(calls, 'draw')} came from it: then "
            "the next run gives different numbers.",
            location=report.location(draws[0].location),
            evidence={"draws": calls, "seed": state.seed},
            remedy=f"To make runs comparable: {_SEEDS[state.library]} before the model is made.",
            subject=state.name,
        )


# TM703, TM704: random numbers that come again.

FEWEST_SEEDS = 3  # two runs with one seed are a comparison


def seeded_again(report: RngRunReport) -> Iterator[Finding]:
    """TM703: one line puts a generator into the same state again and again, and draws follow each time."""
    for index, state in enumerate(report.before):
        own = [one for one in report.draws if one.generator == index]
        seeds = Counter((one.location, one.digest, bool(one.op)) for one in own if one.kind == "set")
        drawn = any(one.kind == "drew" for one in own)
        for (line, _, is_seen), often in seeds.items():
            says = "by this line: what is drawn after it" if is_seen else "before this line: what is drawn here"
            if often >= FEWEST_SEEDS and line is not None and drawn:
                yield Finding(
                    code="TM703",
                    severity="note",
                    message=f"{state.name} was put into the same state {count(often)} times {says} is the same each "
                    "time.",
                    location=report.location(line),
                    evidence={"times": often},
                    remedy="Seed once, before the loop.",
                    subject=state.name,
                )


def same_in_every_worker(report: TraceReport) -> Iterator[Finding]:
    """TM704: the workers of a loader begin with one generator's state, or go through the same stream."""
    for one in observed(report, "same draws"):
        workers, dataset, *own = one.detail.split()
        does = (
            f"goes through the whole of {dataset}, which ignores which worker it runs in: if all start alike, every "
            f"sample comes {workers} times"
        )
        remedy = "Give each worker its share: `torch.utils.data.get_worker_info()` in `__iter__`"
        if own:
            does = f"gets a copy of {dataset}.{own[0]} in the same state, so they draw the same numbers, in every epoch"
            remedy = "Seed it in the worker, by `torch.initial_seed()` in a `worker_init_fn`, or draw with torch"
        yield Finding(
            code="TM704",
            severity="warning" if own else "note",
            message=f"Each of {workers} workers {does}.",
            location=report.location(one.location),
            evidence={"workers": int(workers), "epochs": one.calls},
            remedy=f"{remedy}.",
            subject=dataset,
        )


# TM803, TM805: what crossing from one device or dtype to another does beside what was asked.


def waits_in_every_step(report: TraceReport) -> Iterator[Finding]:
    """TM803: once a run: lines that make the host wait for a device at least once a step."""
    steps = report.steps_seen if report.sampling is None else report.passes_traced
    waits = [one for one in observed(report, "synchronised") if one.calls >= steps and every_call(one)]
    if steps < FEWEST_STEPS or not waits:
        return
    waits.sort(key=lambda one: -one.calls)
    first, (names, times, lines) = waits[0], _in_all(waits)
    yield Finding(
        code="TM803",
        severity="note",
        message=f"The host waits for {first.detail} in every step: {names} read from it "
        f"{plural(times, 'time')} in {plural(steps, 'step')}{lines}.",
        location=report.location(first.location),
        evidence={"waits": times, "steps": steps, "device": first.detail},
        remedy="Keep the value on the device (`total += loss.detach()`), and read it less often.",
        subject=first.operands[0].name if first.operands else "",
        related=_others(report, waits),
    )


def promoted_to_double(report: TraceReport) -> Iterator[Finding]:
    """TM805: what is trained in float32 became float64 because it met data in float64: once, at the first line."""
    for one in observed(report, "promoted"):
        wide = next((operand for operand in one.operands if operand.dtype == "float64"), None)
        narrow = next((operand for operand in one.operands if operand.dtype != "float64"), None)
        if wide is None or narrow is None or not narrow.requires_grad or wide.requires_grad:
            continue
        name = wide.name or "one operand"
        origin = ", from NumPy," if one.detail == "numpy" else ""
        root = wide.name if re.fullmatch(r"(self\.)?\w+", wide.name) else wide.name.partition("[")[0]
        code = f"`{root} = {root}.float()`" if re.fullmatch(r"(self\.)?\w+", root) else "`.float()`"
        yield Finding(
            code="TM805",
            severity="warning",
            message=f"{expression(one)} computes in float64 {how_often(one)}: {name}{origin} of shape "
            f"{tuple_text(wide.shape)} is float64, so {narrow.name or 'the other'} ({narrow.dtype}) is promoted.",
            location=report.location(one.location),
            evidence={each.dtype: each.name or tuple_text(each.shape) for each in (wide, narrow)},
            remedy=f"Convert the data once: {code}; NumPy makes float64 by default.",
            subject=wide.name,
            related=related_lines(("made as float64", report.location(one.made))),
        )
        return  # what comes after is float64 for this reason


# TM102 to TM105: what single calls do with layout, memory and shapes beside what was asked of them.

# A copy of a few KiB is what a view costs anyway. One of a MiB takes some tenths of a millisecond, and is worth a note
# where a run makes many.
HIDDEN_COPY = 1 << 20
HIDDEN_COPIES = 16 << 20
# Below a MiB nobody will measure the conversion; and twice may be a first try, or an evaluation.
MIXED_BYTES = 1 << 20
MIXED_CALLS = 3


def hidden_copy(report: TraceReport) -> Iterator[Finding]:
    """TM102: ``reshape``, ``flatten`` or ``ravel`` could not give a view, and copied much: the largest few lines."""
    copies = (one for one in observed(report, "copy") if one.nbytes >= HIDDEN_COPY and not _merges_heads(one))
    large = [one for one in copies if one.nbytes * times(one) >= HIDDEN_COPIES]
    for one in sorted(large, key=lambda one: -one.nbytes * times(one))[:MOST_LINES]:
        source, result = one.operands[0], one.result
        in_all = f", {number_of_bytes(one.nbytes * times(one))} in total" if one.calls > 1 and every_call(one) else ""
        wanted = "" if result is None else f" as {tuple_text(result.shape)}"
        yield Finding(
            code="TM102",
            severity="note",
            message=f"{one.op} copies {number_of_bytes(one.nbytes)} {how_often(one)}{in_all}: "
            f"{source.name or 'its input'}, of shape {tuple_text(source.shape)} and strides "
            f"{tuple_text(source.stride)}, cannot be viewed{wanted}.",
            location=report.location(one.location),
            evidence={"bytes": one.nbytes, "calls": one.calls, "copied": one.seen, "looked at": one.looked},
            remedy="Select only the part that is needed, or copy once, outside the loop: "
            f"`{binding(source.name) if source.name else ''}.contiguous()`.",
            subject=source.name,
        )


def _merges_heads(one: Observation) -> bool:
    """Return whether a copy brings the heads of attention together, or makes a batch of them.

    They are computed apart from each other, also as ``(batch * heads, length, size)``: attention cannot do without.
    """
    source, result = one.operands[0], one.result
    if result is None or len(source.shape) != 4 or len(source.stride) != 4:
        return False
    first, second, third, size = source.shape
    turned = source.stride[3] == 1 and source.stride[1] < source.stride[2]
    return turned and tuple(result.shape) in {(first, second, third * size), (first * second, third, size)}


def mixed_formats(report: TraceReport) -> Iterator[Finding]:
    """TM103: a channels-last and a contiguous operand met in every call of a line: the largest few lines."""
    costly = [
        one for one in observed(report, "mixed formats")
        if one.nbytes >= MIXED_BYTES and one.calls >= MIXED_CALLS and every_call(one) and len(one.operands) == 2
    ]  # fmt: skip
    for one in sorted(costly, key=lambda one: -one.nbytes * one.calls)[:MOST_LINES]:
        odd, other = one.operands
        if one.result is not None and _lies(odd) == _lies(one.result):
            odd, other = other, odd
        roles = ("its input", "the weight") if odd is one.operands[0] else ("the weight", "its input")
        odd_name, other_name = odd.name or roles[0], other.name or roles[1]
        work, way = "reads", f"across its order: it is {_lies(odd)}, {other_name} {_lies(other)}"
        if one.detail == "converted":
            work, way = "brings", f"into the {_lies(other)} order of {other_name}"
        name = next((x.name for x in (odd, other) if _lies(x) == "contiguous"), "")
        fix = f"{f'{name} = {name}' if name.isidentifier() else ''}.to(memory_format=torch.channels_last)"
        yield Finding(
            code="TM103",
            severity="warning",
            message=f"{one.op} {work} {odd_name}, {number_of_bytes(one.nbytes)}, {way}, {how_often(one)}.",
            location=report.location(one.location),
            evidence={"bytes": one.nbytes, "calls": one.calls},
            remedy=f"Give both the same memory format once, where they are made: `{fix}`.",
            subject=odd.name,
        )


def _lies(operand: Operand) -> str:
    """Return in which order the elements of an image lie, by the stride of its channels."""
    return "channels_last" if len(operand.stride) > 1 and operand.stride[1] == 1 else "contiguous"


def uninitialised(report: TraceReport) -> Iterator[Finding]:
    """TM104: memory was read that nobody had written: what ``torch.empty`` gives is what happened to lie there."""
    described: set[int | None] = set()
    for one in observed(report, "uninitialised"):
        if one.made in described:  # many reads of what one line made are one fault
            continue
        described.add(one.made)
        operand, made = one.operands[0], report.location(one.made)
        shape = tuple_text(operand.shape)
        yield Finding(
            code="TM104",
            severity="error",
            message=f"{one.op} reads {operand.name or 'memory'}, of shape {shape}, before anything was written to it: "
            "its values are whatever was in that memory.",
            location=report.location(one.location),
            evidence={"bytes": one.nbytes, "shape": shape},
            remedy=_with_values(text_of(made)),
            subject=operand.name,
            related=related_lines(("made without values", made)),
        )


def _with_values(line: str) -> str:
    """Return what to do about memory without values: by what the line does that made it."""
    if "to_empty(" in line:
        return f"Load the weights after this, or make the model on its device at once: `{line}` only allocates memory."
    mended = re.sub(r"\b(new_|torch\.)empty\(", r"\1zeros(", line)
    target = line.partition(" = ")[0] if " = " in line else "x"
    if mended == line or "Parameter(" in line:
        return f"Fill it where it is made: `nn.init.normal_({target}, std=0.02)`; a scale: `nn.init.ones_({target})`."
    return f"Make it with values: `{mended}`, or fill it before it is read."


def both_broadcast(report: TraceReport) -> Iterator[Finding]:
    """TM105: a column met a row of the same length, and one number was made of the table; or a target was stretched."""
    for one in observed(report, "both broadcast"):
        if len(one.operands) != 2 or one.result is None:
            continue
        shapes = [operand.shape for operand in (*one.operands, one.result)]
        left, right, result = map(tuple_text, shapes)
        column = max(one.operands, key=lambda operand: len(operand.shape))
        meant, made = max(map(prod, shapes[:2])), prod(one.result.shape)
        name = binding(column.name) if column.name else "column"
        yield Finding(
            code="TM105",
            severity="warning",
            message=f"{expression(one)} makes {result} of {left} and {right}: every value of one is combined with "
            f"every value of the other, so the result is computed from {count(made)} values instead of {count(meant)}.",
            location=report.location(one.location),
            evidence={"left": left, "right": right, "result": result},
            remedy=f"Give both the same shape: `{name}.squeeze(-1)`; if all pairs are intended, make that explicit "
            "with `unsqueeze` or `[:, None]`.",
            subject=column.name,
        )
    for one in observed(report, "stretched"):
        prediction, target = one.operands[:2]
        name, given, wanted = target.name or "the target", tuple_text(target.shape), tuple_text(prediction.shape)
        of = prediction.name if prediction.name.isidentifier() else "prediction"
        yield Finding(
            code="TM105",
            severity="note",
            message=f"{one.op} compares {prediction.name or 'a prediction'} of shape {wanted} with {name} of shape "
            f"{given}: each value of {name} is compared with {count(prod(prediction.shape) // prod(target.shape))} "
            "values.",
            location=report.location(one.location),
            evidence={"prediction": wanted, "target": given},
            remedy="Give both the same shape; for classes, `cross_entropy` is the loss. If one target is meant for "
            f"several predictions, say so: `{binding(target.name) if target.name else 'target'}.expand_as({of})`",
            subject=target.name,
        )
