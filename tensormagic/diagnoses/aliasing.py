"""TM2xx: memory that has more than one name."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.words import rebound
from tensormagic.reports import Alias, Finding, TensorReport
from tensormagic.words import listed, number_of_bytes, part_of, plural


def shared_memory(report: TensorReport) -> Iterator[Finding]:
    """TM201: a write through this tensor changes what another name holds (a note: sharing is often meant)."""
    others = [alias for alias in report.aliases if alias.overlap == "yes" and _is_name(alias)]
    if not others or not report.layout:
        return
    first = others[0]
    shared = first.overlap_elements
    amount = "" if shared is None else f"{part_of(shared, first.of_elements)} of "
    yield Finding(
        code="TM201",
        severity="note",
        message=f"{report.name} shares memory with {listed([alias.name for alias in others])}: "
        f"writing to {report.name} in place changes {amount}{first.name}.",
        evidence={alias.name: alias.overlap_elements for alias in others[:8]},
        remedy=f"Where that is not meant, write to a copy: {_copy_of(report)}",
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
    why = f"the stride along {listed(repeated)} is 0" if repeated else "its strides make indices meet"
    yield Finding(
        code="TM202",
        severity="warning",
        message=f"{report.name} repeats memory: its {plural(report.numel, 'element')} are "
        f"{plural(layout.distinct, 'stored element')}, because {why}; writing to it in place raises or gives garbage.",
        evidence={"elements": report.numel, "stored elements": layout.distinct},
        remedy=f"Write to what it was made from, or to a full copy ({number_of_bytes(report.nbytes)}): "
        f"{_copy_of(report)}",
        subject=report.name,
    )
