"""What looking at a huge tensor costs, against torch's own two cheapest reductions on it. Run by ``make bench``."""

from __future__ import annotations

import time

import pytest
import torch

from tensormagic.collectors.tensors.statistics import values
from tensormagic.collectors.tensors.tensor import collect_tensor

pytestmark = [pytest.mark.benchmark, pytest.mark.usefixtures("one_thread")]

ELEMENTS = 10**8
ROUNDS = 5


def _best(action):
    """Return the shortest of several runs, in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _huge(dtype):
    return torch.rand(ELEMENTS) if dtype.is_floating_point else torch.randint(-100, 100, (ELEMENTS,), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [(ELEMENTS,), (100, 1000, 1000)], ids=str)
def test_values(dtype, shape):
    """Statistics of every element and slices of a sample: at most 1.5 times ``torch.aminmax`` and ``sum`` on it."""
    x = _huge(dtype).view(shape)
    least = _best(lambda: (torch.aminmax(x), x.sum()))
    ours = _best(lambda: values(x))
    print(
        f"\n    {dtype} {shape}: {1000 * ours:.0f} ms, aminmax and sum {1000 * least:.0f} ms, ratio {ours / least:.2f}"
    )
    assert ours < 1.5 * least + 0.020  # what the samples cost does not grow with the tensor


def test_without_values():
    """The panel of a tensor of a thousand million elements that has no values: under 50 ms."""
    x = torch.empty(10**9, device="meta")
    seconds = _best(lambda: collect_tensor(x, name="x"))
    print(f"\n    10**9 elements without values: {1000 * seconds:.1f} ms")
    assert seconds < 0.050
