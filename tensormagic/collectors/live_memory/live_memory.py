"""Where the memory is, now: the walk, the devices' own counters and what stands out, as one report.

Everything that was met is let go of when this returns: looking keeps nothing alive.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.aliasing.holders import Budget
from tensormagic.collectors.devices.devices import READERS, Reader, read_devices
from tensormagic.collectors.live_memory.blocks import Block
from tensormagic.collectors.live_memory.lines import Lines
from tensormagic.collectors.live_memory.running import running
from tensormagic.collectors.live_memory.strangers import note_strangers
from tensormagic.collectors.live_memory.survey import Survey
from tensormagic.collectors.live_memory.telling import live_storage, summed
from tensormagic.collectors.objects.reach import Place
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.stroll import THOROUGH, Stroll
from tensormagic.collectors.session.watching import standing_out
from tensormagic.errors import TensorMagicError
from tensormagic.reports import DeviceMemory, Gap, MemoryReport

MOST_LISTED = 2_000


def collect_memory(  # noqa: PLR0913  (a namespace; the rest are options, by name)
    namespace: Mapping[str, Any],
    *,
    frame: FrameType | None = None,
    more: Iterable[tuple[Place, Any]] = (),
    only: Mapping[str, Any] | None = None,
    devices: Collection[str] | None = None,
    most: int = MOST_LISTED,
    budget: Budget = THOROUGH,
    readers: tuple[tuple[str, Reader], ...] = READERS,
) -> MemoryReport:
    """Return where the memory is. Changes nothing, keeps nothing.

    Args:
        namespace: The person's names.
        frame: Of the function that asks: its variables are names, too.
        more: Other places to begin at: the variables of functions that have failed.
        only: Show only the memory that these lead to.
        devices: Show only these: ``"cuda:0"``, ``"cuda"`` for all of a kind.
        most: How many storages to list; the others are summed up.
        budget: How long to walk.
        readers: What reads the devices' counters.
    """
    with quiet(), uncollected():
        stroll = Stroll(budget).through(namespace, [*running(frame, set(namespace)), *more])
        # Asked before anything else is met: whoever holds a tensor then keeps it.
        kept, views, graphs = standing_out(stroll, namespace) if only is None else ((), (), ())
        survey = Survey(stroll, everything=True)
        wanted = _reached(only, budget) if only is not None else None
        blocks = [block for block in survey.blocks if wanted is None or _identities(block) & wanted]
        blocks = [block for block in blocks if _is_asked_for(block.memory.device, devices)]
        blocks.sort(key=lambda block: -block.nbytes)
        note_strangers(blocks, survey.ours)
        if not blocks:  # nothing that was asked for: what stands out lies elsewhere
            kept, views, graphs = (), (), ()
        counters, missing = read_devices(readers)
        present = {one.device for one in counters} | {block.memory.device for block in blocks}
        line_of = Lines().of
        return MemoryReport(
            devices=_devices([one for one in counters if _is_asked_for(one.device, devices)], blocks),
            storages=tuple(live_storage(block, line_of) for block in blocks[:most]),
            left_out=summed(blocks[most:]),
            kept=kept,
            views=views,
            graphs=graphs,
            looked=survey.looked,
            title=_title(only, devices),
            gaps=(*survey.gaps, *missing, *_absent(devices or (), present)),
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for cycles later: with ten thousand tensors that would take longer than all the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _absent(devices: Collection[str], present: Collection[str]) -> Iterator[Gap]:
    """Yield a gap for each device that was asked for and is not there; nothing is ever stored on ``meta``."""
    for name in devices:
        if name != "meta" and not any(_is_asked_for(one, (name,)) for one in present):
            yield Gap("device", f"torch sees no {name} here")


def _title(only: Mapping[str, Any] | None, devices: Collection[str] | None) -> str:
    """Return what was asked for: ``net``, ``net on cuda:0``, ``cuda``."""
    asked = ", ".join(only or ()), ", ".join(devices or ())
    return " on ".join(filter(None, asked))


def _reached(only: Mapping[str, Any], budget: Budget) -> set[int]:
    """Return the storages that some values lead to, by their names or their graphs."""
    return Survey(Stroll(budget).below(only), everything=False).identities


def _identities(block: Block) -> set[int]:
    return block.identities | {block.memory.identity}


def require_devices(devices: Collection[str]) -> None:
    """Check the names of devices.

    Raises:
        TensorMagicError: where torch knows none of that name.
    """
    for name in devices:
        if not _is_known(name):
            raise TensorMagicError(f"torch knows no device {name!r}: cpu, cuda, cuda:1, mps, xpu, meta")


def _is_known(name: str) -> bool:
    try:
        return bool(torch.device(name).type)
    except (RuntimeError, TypeError):
        return False


def _is_asked_for(device: str, asked: Collection[str] | None) -> bool:
    return asked is None or device in asked or device.partition(":")[0] in asked


def _devices(counters: list[DeviceMemory], blocks: list[Block]) -> tuple[DeviceMemory, ...]:
    """Return the devices with what lies on them; those that hold nothing come where they were asked."""
    known = {device.device: device for device in counters}
    held: dict[str, list[Block]] = {}
    for block in blocks:
        held.setdefault(block.memory.device, []).append(block)
    names = [*known, *(name for name in held if name not in known)]
    return tuple(_with_live(known.get(name, DeviceMemory(name)), held.get(name, [])) for name in names)


def _with_live(device: DeviceMemory, blocks: list[Block]) -> DeviceMemory:
    live, tensors = sum(block.nbytes for block in blocks), sum(len(block.tensors) for block in blocks)
    return replace(device, live=live, storages=len(blocks), tensors=tensors)
