"""Many small gradients measured together are measured as each of them alone is."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tensormagic.collectors import devices
from tensormagic.collectors.gradients.gradient_statistics import (
    MOST_ELEMENTS,
    PassValues,
    SmallGradients,
    statistics_of,
)
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.on_device import DeviceHistory

_GENERATOR = torch.Generator().manual_seed(0)


def _random(*shape):
    return torch.randn(*shape, generator=_GENERATOR)


SMALL = {
    "one number": torch.tensor(3.0),
    "matrix": _random(4, 8),
    "transposed": _random(4, 8).t(),
    "the gradient of a sum": torch.ones(()).expand(3, 5),
    "every other": _random(20)[::2],
    "zeros": torch.zeros(7),
    "half of them zero": _random(30).relu(),
    "constant": torch.full((9,), 1 / 3),
    "far from zero": _random(100) + 1e4,
    "squares that vanish in float32": _random(12) * 1e-30,
    "subnormal": torch.tensor([1e-42, 0.0]),
    "large": _random(50) * 1e17,
    "the largest that is small": _random(MOST_ELEMENTS),
    "squares that overflow": _random(5) * 1e25,
    "NaN": torch.tensor([1.0, math.nan, 0.0]),
    "infinite": torch.tensor([1.0, math.inf, -math.inf, 4.0]),
    "both": torch.tensor([1.0, math.inf, math.nan]),
    "nothing finite": torch.tensor([math.inf, math.nan]),
    "finite again": _random(6),
}
OTHERS = {
    "more than small": _random(MOST_ELEMENTS + 1),
    "double": _random(5).double(),
    "half": _random(5).half(),
    "complex": torch.complex(_random(3), _random(3)),
    "empty": torch.empty(0),
    "sparse": _random(5).to_sparse(),
    "a parameter": torch.nn.Parameter(_random(3)),
    "on no device": torch.empty(3, device="meta"),
}


def table_of(gradients):
    """Return the table that these gradients, each of the node of its place, fill."""
    table = [None] * len(gradients)
    small = SmallGradients(5, table.__setitem__)
    measures = [small.take(index, gradient) for index, gradient in enumerate(gradients)]
    return table, small, measures


def test_each_has_the_numbers_that_it_has_alone():
    """Counts exactly, the rest to some digits; what is known at once is what is in the table."""
    table, small, measures = table_of(list(SMALL.values()))
    assert not any(table)
    small.settle()
    for index, gradient in enumerate(SMALL.values()):
        found, alone = table[index], statistics_of(gradient, 5)
        assert counts_of(found) == (5, alone.count, alone.zero, alone.nan, alone.inf)
        assert (found.norm, found.abs_max) == pytest.approx((alone.norm, alone.abs_max), rel=1e-6, nan_ok=True)
        assert measures[index] == (pytest.approx(found.norm, rel=1e-6, nan_ok=True), found.nan, found.inf)
        near = 0 if math.isnan(alone.mean) else 1e-6 * max(abs(alone.mean), alone.std)
        assert found.mean == pytest.approx(alone.mean, rel=1e-5, abs=near, nan_ok=True)
        assert found.std == pytest.approx(alone.std, rel=1e-4, abs=near, nan_ok=True)


def counts_of(found):
    """Return what is counted rather than measured."""
    return found.pass_number, found.count, found.zero, found.nan, found.inf


@pytest.mark.parametrize("name", OTHERS)
def test_what_needs_a_longer_look_is_left(name):
    """Nothing is copied, and None says so."""
    _, small, measures = table_of([OTHERS[name]])
    assert measures == [None]
    assert not small._indices


def test_the_engine_may_write_into_a_gradient_afterwards():
    """It was copied: what is told is what it was."""
    gradient = torch.ones(4)
    table, small, _ = table_of([gradient])
    gradient.mul_(100)
    small.settle()
    assert table[0].norm == 2.0


def test_more_than_there_is_room_for_is_settled_on_the_way():
    """Ten times the room, all right in the end, and a settled recorder begins anew."""
    gradients = [torch.full((MOST_ELEMENTS,), float(number)) for number in range(1, 641)]
    table, small, _ = table_of(gradients)
    assert 500 < sum(one is not None for one in table) < 640
    small.settle()
    assert np.allclose([table[index].mean for index in range(640)], np.arange(1, 641))
    small.settle()
    assert None not in table


def test_the_first_gradient_stays_the_first_where_a_device_runs_short(monkeypatch):
    """A pass that is no longer measured in full tells of nodes alone that none before it told of."""
    monkeypatch.setattr(type(devices.there), "room", lambda *_: 0)
    first = [statistics_of(torch.ones(3), 1), None]
    graph = SimpleNamespace(structure=SimpleNamespace(size=2, edges=()), first=first, on_device=DeviceHistory())
    recorder = PassRecorder(None, graph, PassValues.of(5, 2, full=True), hooked=(), wrapped=False)
    for index in (0, 1):
        recorder._measure_in_full(index, torch.full((3,), 2.0))
    assert recorder._has_room(torch.device("cpu"))
    assert recorder.values.table is None
    recorder.close()
    assert [(one.pass_number, one.abs_max) for one in first] == [(1, 1.0), (5, 2.0)]
