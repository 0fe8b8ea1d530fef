"""A panel without values: its price does not grow with the tensor. Run by ``make bench``."""

from __future__ import annotations

import time

import pytest
import torch

import tensormagic as tm
from tensormagic import views

pytestmark = pytest.mark.benchmark

BILLION = torch.empty(10**9, dtype=torch.int8, device="meta")
TENSORS = {
    "contiguous": BILLION,
    "permuted": BILLION.view(1000, 1000, 1000).permute(2, 0, 1)[:, ::2, 3:],
    "expanded": torch.zeros(1000, 1).expand(1000, 10**6),
    "windows": BILLION.unfold(0, 100, 7),
    "overlapping": BILLION.as_strided((30_000, 20_000), (30_011, 17)),
}


def fastest(action) -> float:
    """The shortest of five times, in milliseconds."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        action()
        times.append(1000 * (time.perf_counter() - began))
    return min(times)


@pytest.mark.parametrize("kind", TENSORS)
def test_a_billion_elements(kind):
    """Report and panel of 10⁹ elements in under 50 ms, the panel under 100 KB."""
    x = TENSORS[kind]
    report = tm.inspect(x, "x", namespace={})
    look = fastest(lambda: tm.inspect(x, "x", namespace={}))
    draw = fastest(lambda: views.render(report, "html"))
    size = len(views.render(report, "html").encode())
    print(f"\n    {kind}: {look:.1f} ms to inspect, {draw:.1f} ms to draw, {size / 1000:.0f} KB")
    assert look + draw < 50
    assert size < 100_000


def test_several_on_one_strip():
    """Five views of 10⁹ elements on one strip in under 50 ms."""
    slices = {"all": BILLION, "even": BILLION[::2], "odd": BILLION[1::2], "words": BILLION.view(torch.float32),
              "columns": BILLION.view(10**5, 10**4)[:, :100]}  # fmt: skip
    took = fastest(lambda: views.render(tm.overlay(slices), "html"))
    print(f"\n    overlay of five: {took:.1f} ms")
    assert took < 50
