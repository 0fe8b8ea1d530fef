"""TM201, TM202, TM205: memory that has more than one name, or is kept for the sake of a small part of it."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.lines import rebound
from tensormagic.diagnoses.retained_memory import LARGE
from tensormagic.reports import Finding, MemoryReport, TensorReport, WatchReport
from tensormagic.reports.base import Scalar
from tensormagic.words import listed, number_of_bytes, part_of, plural

_VIEWS = frozenset({"base", "view of it", "view of the same base"})


def shared_memory(report: TensorReport) -> Iterator[Finding]:
    """TM201: a write through this tensor changes what another name holds (a note: sharing is often meant).

    Of a view, the panel's first line says so: it is a note where such a write has happened. That of a Parameter was
    its initialization, or the optimizer.
    """
    others = [
        alias
        for alias in report.aliases
        if alias.overlap == "yes" and alias.relation != "same object" and not alias.name.endswith("._base")
    ]
    tracked = report.autograd is not None and report.autograd.requires_grad
    written = (report.version or 0) if not tracked else 0
    others = [alias for alias in others if alias.relation not in _VIEWS or (written and alias.shares_version)]
    if not others or not report.layout:
        return
    first = others[0]
    shared = first.overlap_elements
    amount = "" if shared is None else f"{part_of(shared, first.of_elements)} of "
    counted = written and first.shares_version
    so_far = f" This memory has been written to {plural(written, 'time')} so far." if counted else ""
    yield Finding(
        code="TM201",
        severity="note",
        message=f"{report.name} shares memory with {listed([alias.name for alias in others])}: "
        f"writing to {report.name} in place changes {amount}{first.name}.{so_far}",
        evidence={alias.name: alias.overlap_elements for alias in others[:8]},
        remedy=f"If that is not intended, write to a copy: {_copy_of(report)}",
        subject=report.name,
    )


def _copy_of(report: TensorReport) -> str:
    return rebound(report.name, "copy()" if any(kind.key == "numpy" for kind in report.kinds) else "clone()")


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


SMALLEST_SHARE = 16  # the storage is at least so many times what is read of it


def small_view_of_large_storage(report: TensorReport) -> Iterator[Finding]:
    """TM205: a small view is the only thing that keeps a large storage alive.

    Certain only where everything that could hold the storage was looked at, and torch counts nobody else on it.
    """
    storage, layout = report.storage, report.layout
    if storage is None or layout is None or layout.distinct is None or not storage.resizable or storage.shared:
        return
    read = layout.distinct * report.element_size
    small = 0 < read * SMALLEST_SHARE <= storage.nbytes and storage.nbytes >= LARGE
    holders = report.holders
    if not small or not (report.is_view or layout.storage_offset) or holders is None:
        return
    if holders.cut or holders.unreached != 0 or holders.found > len(holders.holders):
        return  # those who are listed may not be all
    if holders.of_storage or not holders.of_tensor:
        return
    held = [holder.path for holder in holders.of_tensor]
    name = report.name if report.name in held or report.name.isidentifier() else held[0]
    evidence: dict[str, Scalar] = {"bytes read": read, "storage bytes": storage.nbytes, "holders": len(held)}
    yield _keeping(report.name, name, read, storage.nbytes, evidence)


def _keeping(view: str, code: str, read: int, nbytes: int, evidence: dict[str, Scalar]) -> Finding:
    return Finding(
        code="TM205",
        severity="warning",
        message=f"{view} reads {number_of_bytes(read)} and keeps {number_of_bytes(nbytes)} alive: nothing else uses "
        "this storage.",
        evidence=evidence,
        remedy=f"Keep a copy of what it reads instead, and the storage is freed: `{code} = {code}.clone()`",
        subject=view,
    )


def storage_keeping_views(report: WatchReport | MemoryReport) -> Iterator[Finding]:
    """TM205: the same, of everything that a session holds."""
    for view in report.views:
        if view.nbytes >= LARGE and view.read * SMALLEST_SHARE <= view.nbytes:
            evidence: dict[str, Scalar] = {"bytes read": view.read, "bytes": view.nbytes}
            yield _keeping(view.name, view.name, view.read, view.nbytes, evidence)
