"""TM101, TM702, TM801, TM802, TM804: calls that torch refused because what they were given does not go together.

`mismatches` works out what clashes; each rule here tells of one kind of it. An index or an argument that is wrong has
no code: the explanation of the error says the rule all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import Clashing, FailureReport, Finding, Mismatch, Operand, RelatedLine
from tensormagic.reports.failure import MismatchKind
from tensormagic.reports.finding import Scalar


def impossible_view(report: FailureReport) -> Iterator[Finding]:
    """TM101: the new shape merges dimensions that lie apart in memory."""
    yield from _described(report, "TM101", "view")


def generator_elsewhere(report: FailureReport) -> Iterator[Finding]:
    """TM702: a generator cannot draw numbers on another device than its own."""
    if _is_about_a_generator(report):
        yield from _described(report, "TM702", "device")


def operands_elsewhere(report: FailureReport) -> Iterator[Finding]:
    """TM801: the operands are on different devices."""
    if not _is_about_a_generator(report):
        yield from _described(report, "TM801", "device")


def dtypes_apart(report: FailureReport) -> Iterator[Finding]:
    """TM802: the operands have dtypes that do not go together, or one has a dtype that the call does not take."""
    yield from _described(report, "TM802", "dtype")


def shapes_apart(report: FailureReport) -> Iterator[Finding]:
    """TM804: the shapes do not go together."""
    yield from _described(report, "TM804", "shape")


def _is_about_a_generator(report: FailureReport) -> bool:
    return "generator" in report.error.lower()


def _described(report: FailureReport, code: str, kind: MismatchKind) -> Iterator[Finding]:
    """Yield the finding of a mismatch of one kind; what a backward ran into is not the person's call."""
    clash = report.mismatch
    if clash is None or clash.kind != kind or report.phase == "backward" or not clash.parts:
        return
    operands = [report.operands[part.operand] for part in clash.parts]
    yield Finding(
        code=code,
        severity="error",
        message=clash.rule,
        location=report.location,
        evidence=_evidence(report, clash),
        remedy=_remedy(clash),
        subject=next((operand.name for operand in operands if operand.name), ""),
        related=tuple(_origins(report, operands)),
    )


def _evidence(report: FailureReport, clash: Mismatch) -> dict[str, Scalar]:
    evidence: dict[str, Scalar] = {"call": report.function} if report.function else {}
    for part in clash.parts[:8]:
        evidence[_part_name(report.operands[part.operand], part)] = part.got or None
    return evidence


def _part_name(operand: Operand, part: Clashing) -> str:
    name = operand.name or operand.role or f"operand {part.operand + 1}"
    return name if part.dimension is None else f"{name}, dimension {part.dimension}"


def _remedy(clash: Mismatch) -> str:
    """Return what would have worked, as code: the first two ways; else what may help and could not be tried."""
    ways = " or ".join(f"`{way}`" for way in clash.works[:2] or clash.maybe[:2])
    return ways if clash.works or not ways else f"try {ways}"


def _origins(report: FailureReport, operands: list[Operand]) -> Iterator[RelatedLine]:
    """Yield the lines on which the clashing operands were made, where they are others than the failing one."""
    described = {(report.location.filename, report.location.line)} if report.location is not None else set()
    for operand in operands:
        place = operand.location
        if place is not None and (place.filename, place.line) not in described:
            described.add((place.filename, place.line))
            yield RelatedLine(f"made {operand.name or operand.role or 'an operand'}", place)
