"""Where the memory is, now: nothing is run, changed or kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from tensormagic.api.findings import diagnosed
from tensormagic.collectors.requirements import require_torch
from tensormagic.errors import TensorMagicError
from tensormagic.reports import MemoryReport, Release
from tensormagic.reports.cells import with_cells

MOST_LISTED = 2_000


def memory(
    namespace: Mapping[str, Any] | None = None,
    *,
    only: Mapping[str, Any] | None = None,
    devices: str | Collection[str] | None = None,
    most: int = MOST_LISTED,
    cell_number: Callable[[str], int | None] | None = None,
) -> MemoryReport:
    """Return where the memory is: every live storage once, what it is for, what it is called, and who holds it.

    Storages that no name leads to are there, too, without a name; so are those that only an autograd graph keeps.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals. The variables of the caller's
            function, and of those that called it, are names as well.
        only: Show only the memory that these lead to: ``{"net": net}``.
        devices: Show only these: ``"cuda:0"``, ``"cuda"`` for all of a kind, or several.
        most: How many storages to list, the largest first; the others are summed up in ``left_out``.
        cell_number: Gives the number of a notebook's cell from its file name: lines are told by it.

    Raises:
        TensorMagicError: where ``namespace`` or ``only`` is no mapping, or torch knows no device of that name.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> x = torch.zeros(1000)
    >>> report = tensormagic.memory({"x": x, "view": x[:10]}, only={"x": x})
    >>> [(one.name, one.nbytes, one.tensors) for one in report.storages]
    [('x', 4000, 2)]
    """
    require_torch()
    from tensormagic.collectors.live_memory.live_memory import collect_memory, require_devices, uncollected
    from tensormagic.collectors.releases.freed import collect_releases

    for given in (namespace, only):
        _check_names(given)
    caller = sys._getframe(1)  # noqa: SLF001  (documented default)
    seen = caller.f_globals if namespace is None else namespace
    asked = (devices,) if isinstance(devices, str) else devices
    require_devices(asked or ())
    with uncollected():
        besides = () if only is None else (only,)
        freed = collect_releases(seen, besides=besides, items=tuple(only or ()))  # first: a walk holds what it meets
        report = collect_memory(seen, frame=caller, only=only, devices=asked, most=most)
    every = [one for one in freed.releases if _is_asked_for(one, only, asked)]
    others = (one for one in freed.releases if one not in every)  # what they hold may have been asked for by itself
    every += [part for one in others for part in one.parts if only and _is_asked_for(part, only, asked)]
    releases = tuple(_on(one, asked) for one in every)
    report = replace(report, releases=releases, gaps=(*report.gaps, *freed.gaps))
    return diagnosed(report if cell_number is None else with_cells(report, cell_number))


def _is_asked_for(release: Release, only: Mapping[str, Any] | None, devices: Collection[str] | None) -> bool:
    """Return whether a release is of a name that was asked for, and of memory on a device that was."""
    named = only is None or not set(only).isdisjoint(release.name.split(", "))
    return named and _is_placed(release, devices)


def _is_placed(release: Release, devices: Collection[str] | None) -> bool:
    every = release.device_bytes or {}
    return devices is None or any({device, device.split(":")[0]} & {*devices} for device in every)


def _on(release: Release, devices: Collection[str] | None) -> Release:
    """Return a release with the parts that free something on the devices that were asked for."""
    return replace(release, parts=tuple(part for part in release.parts if _is_placed(part, devices)))


def _check_names(given: Any) -> None:
    if given is not None and not isinstance(given, Mapping):
        kind = type(given).__name__
        raise TensorMagicError(f'memory() takes names and their values, but was given a {kind}: {{"net": net}}')
