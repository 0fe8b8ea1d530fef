"""TM205: memory that is kept for the sake of a small part of it."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import Finding, HoldersReport, MemoryReport, TensorReport, WatchReport
from tensormagic.words import number_of_bytes

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
        "it is the only thing left that uses this storage.",
        evidence={"bytes read": read, "storage bytes": storage.nbytes, "holders": len(_held_by(report))},
        remedy=f"Keep a copy of what it reads, and the storage is free: {_copy(report)}",
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
                "alive: it is the only thing left that uses this storage.",
                evidence={"bytes read": view.read, "bytes": view.nbytes},
                remedy=f"Keep a copy of what it reads, and the storage is free: `{view.name} = {view.name}.clone()`",
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
