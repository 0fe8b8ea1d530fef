"""What only outputs and the last error keep, and letting go of it: never of anything that a name leads to.

What a person's name leads to as well stays alive whatever the history does, and so stays in the history, too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.devices.devices import READERS, Reader, read_devices
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.releases.flow import set_of
from tensormagic.collectors.releases.foreign import is_foreign
from tensormagic.collectors.releases.freed import Look, lasting, look, release_of
from tensormagic.collectors.releases.references import References
from tensormagic.collectors.releases.roots import Root
from tensormagic.collectors.session.stroll import THOROUGH, memory_of
from tensormagic.reports import DeviceGain, DeviceMemory, FreeingReport, Gap


def free_session(
    namespace: Mapping[str, Any], *, drop: bool, readers: tuple[tuple[str, Reader], ...] = READERS
) -> FreeingReport:
    """Return what only outputs and the last error keep; let go of it where asked to, and measure what that brought.

    Args:
        namespace: The names of a session.
        drop: Whether to let go.
        readers: What reads the devices' counters.
    """
    gc.collect()  # what lies in circles that nobody leads to is free already, and keeps nothing of these
    looked = look(namespace)
    chosen = _keeping(looked)
    entries = [release_of(at, looked.roots, looked.flow) for at in chosen]
    entries.sort(key=lambda one: (-one.nbytes, -one.reaches))
    dropped = drop and bool(chosen)
    nothing: tuple[int, int, tuple[DeviceGain, ...]] = (0, 0, ())
    freed, storages, gains = _drop([looked.roots[at] for at in chosen], namespace, readers) if dropped else nothing
    return FreeingReport(
        entries=tuple(entries), nbytes=looked.flow.freed(set_of(chosen)).nbytes, dropped=dropped,
        freed=freed, storages=storages, gains=gains,
        gaps=(Gap("releases", looked.cut),) if looked.cut else (),
    )  # fmt: skip


def _keeping(looked: Look) -> list[int]:
    """Return the roots of the session that free something, or do so with others of them."""
    session = looked.of_session()
    all_of_it = set_of(session)
    shared = 0
    for needed in looked.flow.together:
        shared |= needed if needed & ~all_of_it == 0 else 0
    return [at for at in session if looked.flow.alone[at].nbytes or shared >> at & 1]


def _drop(
    roots: Sequence[Root], namespace: Mapping[str, Any], readers: tuple[tuple[str, Reader], ...]
) -> tuple[int, int, tuple[DeviceGain, ...]]:
    """Let go of roots; returns the bytes and the number of the storages that are gone, and what the devices say."""
    watched = _watched(roots, namespace)
    before = read_devices(readers)[0]
    for root in roots:
        root.drop()
    gc.collect()
    _empty_caches()
    gone = [nbytes for weak, nbytes in watched if weak.expired()]  # type: ignore[no-untyped-call]
    return sum(gone), len(gone), _gains(before, read_devices(readers)[0])


def _watched(roots: Sequence[Root], namespace: Mapping[str, Any]) -> list[tuple[StorageWeakRef, int]]:
    """Return weak references to the storages that roots lead to, with their bytes; not to those of NumPy's memory."""
    with quiet():
        found = References(str(namespace.get("__name__", "__main__")), lasting(namespace), THOROUGH)
        for root in roots:
            for value in root.values():
                found.root(value)
        found.walk(THOROUGH.clock() + THOROUGH.seconds)
        storages = [found.objects[at] for at in found.storages()]
        return [(_weak(one), memory_of(one)) for one in storages if not is_foreign(one)]


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _empty_caches() -> None:
    """Give what torch's allocators keep in reserve back to the devices; none is initialised for that."""
    caches: list[tuple[Callable[[], bool], Callable[[], None]]] = [(torch.cuda.is_initialized, torch.cuda.empty_cache)]
    if torch.backends.mps.is_available():
        caches.append((lambda: True, torch.mps.empty_cache))
    if hasattr(torch, "xpu"):
        caches.append((torch.xpu.is_initialized, torch.xpu.empty_cache))
    for is_used, empty in caches:
        if is_used():
            empty()


def _gains(before: Sequence[DeviceMemory], after: Sequence[DeviceMemory]) -> tuple[DeviceGain, ...]:
    now = {device.device: device for device in after}
    return tuple(_gain(was, now[was.device]) for was in before if was.device in now)


def _gain(was: DeviceMemory, now: DeviceMemory) -> DeviceGain:
    def less(old: int | None, new: int | None) -> int | None:
        return None if old is None or new is None else old - new

    return DeviceGain(
        was.device, less(was.allocated, now.allocated), less(was.reserved, now.reserved), less(was.process, now.process)
    )
