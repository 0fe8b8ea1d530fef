"""What a pass needs while it runs goes when it ends, without a search for cycles: a loop has a pass a step."""

from __future__ import annotations

import gc

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.gradients.gradients import PassRecorder


@pytest.mark.parametrize("device", [None, "simulated"])
def test_nothing_of_a_pass_waits_for_the_search_for_cycles(device, request):
    """The recorder of each pass, with what it knows of every node, is freed at once; on a device when it was read."""
    if device:
        request.getfixturevalue(device)
    w = torch.ones(3, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        with tm.trace():
            for _ in range(4):
                (w * 2).sum().backward()
            left = [thing for thing in gc.get_objects() if type(thing) is PassRecorder]
    finally:
        gc.enable()
    assert len(left) <= (2 if device else 1)  # the last one may still be looked at
