"""What is alive, by name and category, for the storages of a run: the same walk that ``%gpumem`` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from tensormagic.collectors.live_memory.live_memory import uncollected
from tensormagic.collectors.live_memory.parts import parts
from tensormagic.collectors.live_memory.running import running
from tensormagic.collectors.live_memory.survey import Survey
from tensormagic.collectors.live_memory.telling import live_storage
from tensormagic.collectors.ops.op_facts import has_memory
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.stroll import THOROUGH, Stroll
from tensormagic.reports import Gap, LiveStorage

Described = dict[int, LiveStorage]  # by the storage's identity


def described(namespace: Mapping[str, Any], frame: FrameType | None) -> tuple[Described, tuple[Gap, ...]]:
    """Return what everything that is alive is called, and what it is for; and what was not looked at. Never raises.

    Args:
        namespace: The person's names.
        frame: Of the function whose variables are names, too.
    """
    try:
        return _described(namespace, frame)
    except Exception as error:  # an odd object that a name leads to: the run is the person's
        return {}, (Gap("names", f"what is alive could not be named: {type(error).__name__}: {error}"),)


def _described(namespace: Mapping[str, Any], frame: FrameType | None) -> tuple[Described, tuple[Gap, ...]]:
    found: Described = {}
    with quiet(), uncollected():
        survey = Survey(Stroll(THOROUGH).through(namespace, running(frame, set(namespace))), everything=True)
        for block in survey.blocks:
            found.update(dict.fromkeys(block.identities | {block.memory.identity}, live_storage(block)))
        return found, survey.gaps


def standing() -> Iterator[tuple[torch.UntypedStorage, torch.Tensor, bool]]:
    """Yield every storage that is alive, some of them more than once, with a tensor over it: what graphs keep, too.

    Last: whether its bytes count with another storage over the same memory: every ``torch.from_numpy(a)`` makes one.
    """
    with quiet(), uncollected():
        for block in Survey(Stroll(THOROUGH), everything=True).blocks:
            first = block.part.untyped_storage()._cdata
            for tensor in block.tensors.values():
                for part in parts(tensor):
                    storage = part.untyped_storage()
                    if not block.memory.address and not has_memory(storage):  # a fake tensor's, a wrapper's
                        continue
                    yield storage, part, bool(block.identities) and storage._cdata in block.identities - {first}
