"""Findings about memory that several names share: writes, and calls that clash."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.rule import rebound
from tensormagic.reports import (
    Alias,
    Clashing,
    FailureReport,
    Finding,
    HoldersReport,
    MemoryReport,
    Mismatch,
    Operand,
    RelatedLine,
    TensorReport,
    WatchReport,
)
from tensormagic.reports.base import Scalar
from tensormagic.reports.failure import MismatchKind
from tensormagic.words import listed, number_of_bytes, part_of, plural

# TM2xx: memory that has more than one name, or is kept for the sake of a small part of it.

# TM2xx: memory that has more than one name.


_VIEWS = frozenset({"base", "view of it", "view of the same base"})


def shared_memory(report: TensorReport) -> Iterator[Finding]:
    """TM201: a write through this tensor changes what another name holds (a note: sharing is often meant).

    Of a view, the panel's first line says so: it is a note where such a write has happened. That of a Parameter was
    its initialization, or the optimizer.
    """
    others = [alias for alias in report.aliases if alias.overlap == "yes" and _is_name(alias)]
    tracked = report.autograd is not None and report.autograd.requires_grad
    written = (report.version or 0) if not tracked else 0
    others = [alias for alias in others if alias.relation not in _VIEWS or (written and alias.shares_version)]
    if not others or not report.layout:
        return
    first = others[0]
    shared = first.overlap_elements
    amount = "" if shared is None else f"{part_of(shared, first.of_elements)} of "
    so_far = (
        f" This memory was written to {plural(written, 'time')} so far." if written and first.shares_version else ""
    )
    yield Finding(
        code="TM201",
        severity="note",
        message=f"{report.name} shares memory with {listed([alias.name for alias in others])}: "
        f"writing to {report.name} in place changes {amount}{first.name}.{so_far}",
        evidence={alias.name: alias.overlap_elements for alias in others[:8]},
        remedy=f"If that is not intended, write to a copy: {_copy_of(report)}",
        subject=report.name,
    )


def _is_name(alias: Alias) -> bool:
    return alias.relation != "same object" and not alias.name.endswith("._base")


def _copy_of(report: TensorReport) -> str:
    name, copy = report.name, "copy()" if any(kind.key == "numpy" for kind in report.kinds) else "clone()"
    return rebound(name, copy)


def internal_overlap(report: TensorReport) -> Iterator[Finding]:
    """TM202: two indices of one tensor are the same element, so an in-place write has no defined meaning."""
    layout = report.layout
    if layout is None or layout.internal_overlap != "yes" or layout.distinct is None:
        return
    dims = zip(layout.dim_names, layout.shape, layout.stride, strict=True)
    repeated = [name for name, length, step in dims if step == 0 and length > 1]
    why = f"the stride along {listed(repeated)} is 0" if repeated else "its strides map several indices to one element"
    yield Finding(
        code="TM202",
        severity="warning",
        message=f"{report.name} repeats memory: its {plural(report.numel, 'element')} are "
        f"{plural(layout.distinct, 'stored element')}, because {why}; writing to it in place fails or gives wrong "
        "values.",
        evidence={"elements": report.numel, "stored elements": layout.distinct},
        remedy=f"Write to what it was made from, or to a full copy ({number_of_bytes(report.nbytes)}): "
        f"{_copy_of(report)}",
        subject=report.name,
    )


# TM205: memory that is kept for the sake of a small part of it.

SMALLEST_STORAGE = 16 * 2**20  # bytes; below that nobody misses them
SMALLEST_SHARE = 16  # the storage is at least so many times what is read of it


def small_view_of_large_storage(report: TensorReport) -> Iterator[Finding]:
    """TM205: a small view is the only thing that keeps a large storage alive.

    Certain only where everything that could hold the storage was looked at, and torch counts nobody else on it.
    """
    storage, layout = report.storage, report.layout
    if storage is None or layout is None or layout.distinct is None or not storage.resizable or storage.shared:
        return
    read = layout.distinct * report.element_size
    small = 0 < read * SMALLEST_SHARE <= storage.nbytes and storage.nbytes >= SMALLEST_STORAGE
    if not small or not (report.is_view or layout.storage_offset) or not _alone(report.holders):
        return
    yield Finding(
        code="TM205",
        severity="warning",
        message=f"{report.name} reads {number_of_bytes(read)} and keeps {number_of_bytes(storage.nbytes)} alive: "
        "nothing else uses this storage.",
        evidence={"bytes read": read, "storage bytes": storage.nbytes, "holders": len(_held_by(report))},
        remedy=f"Keep a copy of what it reads instead, and the storage is freed: {_copy(report)}",
        subject=report.name,
    )


def lone_views(report: WatchReport | MemoryReport) -> Iterator[Finding]:
    """TM205: the same, of everything that a session holds."""
    for view in report.views:
        if view.nbytes >= SMALLEST_STORAGE and view.read * SMALLEST_SHARE <= view.nbytes:
            yield Finding(
                code="TM205",
                severity="warning",
                message=f"{view.name} reads {number_of_bytes(view.read)} and keeps {number_of_bytes(view.nbytes)} "
                "alive: nothing else uses this storage.",
                evidence={"bytes read": view.read, "bytes": view.nbytes},
                remedy=f"Keep a copy of what it reads instead, and the storage is freed: `{view.name} = "
                f"{view.name}.clone()`",
                subject=view.name,
            )


def _alone(holders: HoldersReport | None) -> bool:
    """Return whether somebody holds the tensor, nobody its storage otherwise, and that is all there is."""
    if holders is None or holders.cut or holders.unreached != 0 or holders.found > len(holders.holders):
        return False
    return bool(holders.of_tensor) and not holders.of_storage


def _held_by(report: TensorReport) -> list[str]:
    return [holder.path for holder in report.holders.of_tensor] if report.holders is not None else []


def _copy(report: TensorReport) -> str:
    held = _held_by(report)
    name = report.name if report.name in held or report.name.isidentifier() else held[0]
    return f"`{name} = {name}.clone()`"


# TM101, TM702, TM801, TM802, TM804: calls that torch refused because what they were given does not go together.
#
# `mismatches` works out what clashes; each rule here reports one kind of it. An index or an argument that is wrong
# has no code: the explanation of the error says the rule all the same.


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
    """Yield the finding of a mismatch of one kind; what a backward ran into is not the user's call."""
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
