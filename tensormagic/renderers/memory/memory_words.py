"""What the panel, the text and the pictures of memory say: one wording for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.treemap import LEFT_OUT, Tile
from tensormagic.reports import DeviceMemory, Holder, LiveStorage, MemoryReport, Release
from tensormagic.words import DOT, count, listed, number_of_bytes, percent, plural, shortened, tuple_text

NO_NAME = "no name"
NOTABLE_FRAGMENTATION = 0.3
MOST_HOLDERS = 3
_ROOT = re.compile(r"[^.\[(:,]+")


def title(report: MemoryReport) -> str:
    """Return what was looked at."""
    return f"memory of {' '.join(report.title.split())}" if report.title else "memory"


def summary(report: MemoryReport) -> str:
    """Return how much is alive, on which devices."""
    told = [device_summary(device) for device in report.devices if device.live or device.storages]
    return f" {DOT} ".join(told) or ("no tensor lies there" if report.title else "no tensor is alive")


def device_summary(device: DeviceMemory) -> str:
    """Return what lives on one device: ``2.4 GiB in 318 storages (402 tensors) on cuda:0``."""
    tensors = f" ({plural(device.tensors, 'tensor')})" if device.tensors > device.storages else ""
    return f"{number_of_bytes(device.live)} in {plural(device.storages, 'storage')}{tensors} on {device.device}"


def device_notes(device: DeviceMemory) -> list[str]:
    """Return what numbers alone do not say: fragmentation, the peak of the allocator, other processes."""
    notes = []
    share = device.fragmentation
    if share is not None and device.reserved is not None and device.allocated is not None:
        unused = number_of_bytes(device.reserved - device.allocated)
        largest = number_of_bytes(device.largest_free or 0)
        notes.append(f"reserved and unused {unused}, its largest block {largest}: fragmentation {percent(share)}")
    if device.peak is not None:
        notes.append(f"peak {number_of_bytes(device.peak)} since the counters were reset")
    if device.others:
        told = (f"{other.name or 'process'} ({other.pid}) {_bytes_or_unknown(other.nbytes)}" for other in device.others)
        notes.append(f"other processes: {listed(told, most=3)}")
    return notes


def _bytes_or_unknown(nbytes: int | None) -> str:
    return "of unknown size" if nbytes is None else number_of_bytes(nbytes)


def by_category(storages: Iterable[LiveStorage]) -> list[tuple[str, int]]:
    """Return the bytes of each category that has any, the largest first."""
    totals: dict[str, int] = {}
    for one in storages:
        totals[one.category] = totals.get(one.category, 0) + one.nbytes
    return sorted(((key, value) for key, value in totals.items() if value), key=lambda pair: -pair[1])


def root(name: str) -> str:
    """Return how a person would call what a path begins with: ``net``, ``Out``, ``graph of loss``."""
    found = _ROOT.match(name)
    return found.group().strip() if found else name


def inner(name: str) -> str:
    """Return the rest of a path behind its `root`: ``fc.weight``, ``[17]``; the root itself where there is no more."""
    rest = name[len(root(name)) :].lstrip(".:, ").removeprefix("<locals>.")
    return rest or name


def tiles(report: MemoryReport, device: str) -> list[Tile]:
    """Return what a treemap of one device draws; of storages that are not listed, the sums."""
    listed_ = [tile(one) for one in report.storages if one.device == device]
    return listed_ + [left_out_tile(one) for one in report.left_out if one.device == device]


def tile(one: LiveStorage) -> Tile:
    """Return a storage as what a treemap draws."""
    name = called(one)
    group, label = (NO_NAME, one.category) if name == NO_NAME else (root(name), inner(name))
    return Tile(group, label, one.category, one.nbytes, "\n".join(storage_lines(one)))


def left_out_tile(one: LiveStorage) -> Tile:
    """Return the sum of storages that are not listed, as what a treemap draws."""
    words = f"{count(one.tensors)} smaller"
    return Tile(LEFT_OUT, words, one.category, one.nbytes, f"{words}, {PLURALS[one.category]}", one.tensors)


def called(one: LiveStorage) -> str:
    """Return what a storage is called: its name, else the way of its first holder."""
    return one.name or (one.holders[0].path if one.holders else "") or NO_NAME


def storage_lines(one: LiveStorage) -> list[str]:
    """Return all that is told of a storage on pointing at it, a line each."""
    held = held_by(one)
    return [
        called(one),
        f"{number_of_bytes(one.nbytes)}, {one.category}, {kind(one)}".rstrip(", "),
        *([f"held by {held}"] if held else []),
        *([origin(one)] if one.location is not None else []),
    ]


def origin(one: LiveStorage) -> str:
    """Return which line allocated a storage, with its text; nothing where nobody saw it."""
    text = f": {shortened(one.location.text, 60)}" if one.location is not None and one.location.text else ""
    return f"allocated by {line_label(one)}{text}" if one.location is not None else ""


def line_label(one: LiveStorage) -> str:
    """Return which line allocated a storage: ``cell 5, line 12``, ``backward of cell 5, line 12``; empty if unseen."""
    if one.location is None:
        return ""
    return f"backward of {one.location.label}" if one.backward else one.location.label


def kind(one: LiveStorage) -> str:
    """Return what the tensor on a storage is: ``float32 (32, 32), 3 tensors, shared``."""
    what = f"{one.dtype} {tuple_text(one.shape)}" if one.dtype else ""
    more = plural(one.tensors, "tensor") if one.tensors > 1 else ""
    return ", ".join(filter(None, (what, more, "memory not torch's alone" if one.shared else "")))


def held_by(one: LiveStorage, *, most: int = MOST_HOLDERS) -> str:
    """Return who holds a storage besides what it is called after."""
    paths = [_holder(holder) for holder in one.holders if holder.path != called(one)]
    return listed(paths, most=most, found=len(paths) + max(one.found - len(one.holders), 0))


def _holder(holder: Holder) -> str:
    """Return where a holder is; of a variable of a function that failed, the line at which it failed, too."""
    function, mark, name = holder.path.partition(".<locals>.")
    if not mark or holder.kind != "traceback" or holder.location is None:
        return shortened(holder.path, 48)
    return f"{shortened(name, 32)} in {shortened(function, 32)}, line {holder.location.line}"


def what(release: Release) -> str:
    """Return what to let go of, as a person would write it."""
    return release.code or release.name


def freeing(releases: Iterable[Release]) -> list[Release]:
    """Return what frees something, the most first.

    What lies in a name that by itself frees nothing (another one leads to it, too) stands for itself: it can go.
    """
    found = [one for one in releases if one.nbytes > 0]
    found += [_alone(part, one) for one in releases if one.nbytes == 0 for part in one.parts]
    return sorted(found, key=lambda one: -one.nbytes)


def _alone(part: Release, owner: Release) -> Release:
    return replace(part, name=f"{part.name}; {owner.code or owner.name} alone frees nothing")


def parts_words(release: Release) -> list[tuple[str, str]]:
    """Return what can be taken out of a name instead, with what that frees: ``("del losses[17]", "16 MiB")``."""
    return [(what(part), number_of_bytes(part.nbytes)) for part in release.parts]


def release_notes(release: Release) -> str:
    """Return why letting go of a name frees less than it leads to."""
    if release.kind == "item":
        return release.name.partition("; ")[2]
    if release.reaches <= release.nbytes:
        return ""
    shared = f", shared with {listed(release.shared_with, most=3)}" if release.shared_with else ""
    return f"of {number_of_bytes(release.reaches)} that it leads to{shared}"


def frees_by_history(releases: Sequence[Release]) -> bool:
    """Say whether outputs or errors hold something that nothing else does."""
    return any(release.nbytes and release.kind in {"history", "traceback"} for release in releases)
