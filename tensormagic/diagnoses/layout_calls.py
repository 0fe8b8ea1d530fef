"""TM102 to TM105: what single calls do with layout, memory and shapes beside what was asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensormagic.diagnoses.observed import called, every_call, expression, how_often, of_kind, times
from tensormagic.diagnoses.words import binding
from tensormagic.reports import Finding, Observation, Operand, RelatedLine, TraceReport
from tensormagic.words import count, number_of_bytes, tuple_text

# A copy of a few KiB is what a view costs anyway. One of a MiB takes some tenths of a millisecond, and is worth a note
# where a run makes many: merging the heads of attention is such a copy, and cannot be had without.
HIDDEN_COPY = 1 << 20
HIDDEN_COPIES = 16 << 20
# Below a MiB nobody will measure the conversion; and twice may be a first try, or an evaluation.
MIXED_BYTES = 1 << 20
MIXED_CALLS = 3
MOST_LINES = 3

# -- TM102 ----------------------------------------------------------------------------------------------------------


def hidden_copy(report: TraceReport) -> Iterator[Finding]:
    """TM102: ``reshape``, ``flatten`` or ``ravel`` could not give a view, and copied much: the largest few lines."""
    large = [
        one for one in of_kind(report, "copy")
        if one.nbytes >= HIDDEN_COPY and one.nbytes * times(one) >= HIDDEN_COPIES
    ]  # fmt: skip
    for one in sorted(large, key=lambda one: -one.nbytes * times(one))[:MOST_LINES]:
        yield _copy_finding(report, one)


def _copy_finding(report: TraceReport, one: Observation) -> Finding:
    source, result = one.operands[0], one.result
    name = called(source, "its input")
    in_all = f", {number_of_bytes(one.nbytes * times(one))} in all" if one.calls > 1 and every_call(one) else ""
    wanted = "" if result is None else f" as {tuple_text(result.shape)}"
    return Finding(
        code="TM102",
        severity="note",
        message=f"{one.op} copies {number_of_bytes(one.nbytes)} {how_often(one)}{in_all}: {name}, of shape "
        f"{tuple_text(source.shape)} and strides {tuple_text(source.stride)}, cannot be viewed{wanted}.",
        location=report.location(one.location),
        evidence={"bytes": one.nbytes, "calls": one.calls, "copied": one.seen, "looked at": one.looked},
        remedy="Reshape before `transpose` or `permute`, or copy once outside the loop; where the copy is needed, "
        "`.contiguous()` says so to the reader.",
        subject=source.name,
    )


# -- TM103 ----------------------------------------------------------------------------------------------------------


def mixed_formats(report: TraceReport) -> Iterator[Finding]:
    """TM103: a channels-last and a contiguous operand met in every call of a line: the largest few lines."""
    costly = [
        one for one in of_kind(report, "mixed formats")
        if one.nbytes >= MIXED_BYTES and one.calls >= MIXED_CALLS and every_call(one) and len(one.operands) == 2
    ]  # fmt: skip
    for one in sorted(costly, key=lambda one: -one.nbytes * one.calls)[:MOST_LINES]:
        yield _mixed_finding(report, one)


def _mixed_finding(report: TraceReport, one: Observation) -> Finding:
    result = one.result
    odd, other = one.operands if result is None or _lies(one.operands[0]) != _lies(result) else one.operands[::-1]
    odd_name, other_name = (called(x, "the weight" if x is one.operands[1] else "its input") for x in (odd, other))
    work = "brings" if one.detail == "converted" else "reads"
    way = f"into the {_lies(other)} order of {other_name}" if one.detail == "converted" else (
        f"across its order: it is {_lies(odd)}, {other_name} {_lies(other)}")  # fmt: skip
    wanted = "torch.channels_last" if "channels_last" in {_lies(odd), _lies(other)} else "torch.contiguous_format"
    fix = f"`{odd.name} = {odd.name}.to(memory_format={wanted})`" if odd.name.isidentifier() else (
        f"`.to(memory_format={wanted})`")  # fmt: skip
    return Finding(
        code="TM103",
        severity="warning",
        message=f"{one.op} {work} {odd_name}, {number_of_bytes(one.nbytes)}, {way}, {how_often(one)}.",
        location=report.location(one.location),
        evidence={"bytes": one.nbytes, "calls": one.calls},
        remedy=f"Give both the same memory format, once and where they are made: {fix}.",
        subject=odd.name,
    )


def _lies(operand: Operand) -> str:
    """Return in which order the elements of an image lie, told by the stride of its channels."""
    return "channels_last" if len(operand.stride) > 1 and operand.stride[1] == 1 else "contiguous"


# -- TM104 ----------------------------------------------------------------------------------------------------------


def uninitialised(report: TraceReport) -> Iterator[Finding]:
    """TM104: memory was read that nobody had written: what ``torch.empty`` gives is what happened to lie there."""
    told: set[int | None] = set()
    for one in of_kind(report, "uninitialised"):
        if one.made not in told:  # many reads of what one line made are one fault
            told.add(one.made)
            yield _uninitialised_finding(report, one)


def _uninitialised_finding(report: TraceReport, one: Observation) -> Finding:
    operand = one.operands[0]
    made = report.location(one.made)
    name = called(operand, "memory")
    return Finding(
        code="TM104",
        severity="error",
        message=f"{one.op} reads {name}, of shape {tuple_text(operand.shape)}, before anything was written to it: "
        "its values are whatever lay in that memory.",
        location=report.location(one.location),
        evidence={"bytes": one.nbytes, "shape": tuple_text(operand.shape)},
        remedy="Make it with values, `torch.zeros(…)` or `torch.randn(…)` in place of `torch.empty(…)`, or fill it "
        "first: `nn.init.normal_(…)`, `.zero_()`, `.copy_(…)`.",
        subject=operand.name,
        related=() if made is None else (RelatedLine("made without values", made),),
    )


# -- TM105 ----------------------------------------------------------------------------------------------------------


def both_broadcast(report: TraceReport) -> Iterator[Finding]:
    """TM105: a column met a row of the same length, and one number was made of the table that came out."""
    for one in of_kind(report, "both broadcast"):
        if len(one.operands) == 2 and one.result is not None:
            yield _broadcast_finding(report, one, one.result)


def _broadcast_finding(report: TraceReport, one: Observation, result: Operand) -> Finding:
    left, right = one.operands
    column = max(one.operands, key=lambda operand: len(operand.shape))
    made, meant = prod(result.shape), max(prod(left.shape), prod(right.shape))
    name = binding(column.name) if column.name else "column"
    return Finding(
        code="TM105",
        severity="warning",
        message=f"{expression(one)} makes {tuple_text(result.shape)} of {tuple_text(left.shape)} and "
        f"{tuple_text(right.shape)}: every value of one meets every value of the other, and one number is "
        f"made of {count(made)} where {count(meant)} were meant.",
        location=report.location(one.location),
        evidence={"left": tuple_text(left.shape), "right": tuple_text(right.shape), "result": tuple_text(result.shape)},
        remedy=f"Give both the same shape: `{name}.squeeze(-1)`; where all pairs are meant, say so in the line with "
        "`unsqueeze` or `[:, None]`.",
        subject=column.name,
    )
