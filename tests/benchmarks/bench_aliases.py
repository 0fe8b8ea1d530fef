"""Ten thousand tensors: listed and drawn, and who of them shares memory with whom. Run by ``make bench``."""

from __future__ import annotations

import gc
import time

import pytest
import torch

import tensormagic as tm
from tensormagic import views

pytestmark = pytest.mark.benchmark

MANY = 10_000
ROUNDS = 5


def _separate(number):
    return {"tensors": [torch.zeros(3) for _ in range(number)]}


def _rows(number):
    return {"rows": list(torch.zeros(number, 3).unbind(0))}


def _columns(number):
    return {"columns": list(torch.zeros(3, number).unbind(1))}


def _views(number):
    base = torch.zeros(4)
    return {"base": base, "views": [base.view(2, 2) for _ in range(number)]}


def _pairs(number):
    return {f"t{at}": (x := torch.zeros(4), x[1:]) for at in range(number // 2)}


CASES = {"separate": _separate, "rows": _rows, "columns": _columns, "views": _views, "pairs": _pairs}


def _seconds(action):
    found = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return min(found)


def test_table():
    """``%tensors`` of 10,000 tensors: collected and rendered in under 300 ms."""
    namespace = _separate(MANY)
    collected = _seconds(lambda: tm.tensors(namespace))
    table = tm.tensors(namespace)
    rendered = _seconds(lambda: views.render(table, "html"))
    size = len(views.render(table, "html"))
    print(f"\n    {MANY} tensors: collected in {1000 * collected:.0f} ms, rendered in {1000 * rendered:.0f} ms, "
          f"{size / 1000:.0f} KB")  # fmt: skip
    assert collected + rendered < 0.300


@pytest.mark.parametrize("case", CASES)
def test_aliases(case):
    """``%aliases`` of 10,000 tensors, however they share: under a second, and near-linear in their number."""
    few, many = CASES[case](MANY // 4), CASES[case](MANY)
    short, long = _seconds(lambda: tm.aliases(few)), _seconds(lambda: tm.aliases(many))
    print(f"\n    {case}: {1000 * long:.0f} ms, {long / short:.1f} times those of a quarter")
    assert long < 1
    assert long / short < 8
