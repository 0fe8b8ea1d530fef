"""Everything about one gradient: against plain arithmetic in float64, for layouts and types, on both ways."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.collectors import devices
from tensormagic.collectors.gradients import on_device, traced_graph
from tensormagic.collectors.gradients.gradient_statistics import (
    PassValues,
    measures_of,
    statistics_of,
    statistics_of_row,
)
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.measures import measure
from tensormagic.collectors.gradients.on_device import DeviceHistory
from tensormagic.reports import MEASURES, UNTOUCHED

_GENERATOR = torch.Generator().manual_seed(0)


def _random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=_GENERATOR, dtype=torch.float64).to(dtype)


CASES = {
    "matrix": _random(8, 64),
    "larger than one piece": _random(300, 500),
    "transposed": _random(300, 500).t(),
    "every other column": _random(300, 300)[:, ::2],
    "the gradient of a sum": torch.ones(1).expand(1000, 100),
    "repeated in the middle": _random(5, 1, 7).expand(5, 3, 7),
    "squares below the smallest float64": _random(100, 200, dtype=torch.float64) * 1e-200,
    "squares beyond the largest float32": _random(100, 300) * 1e25,
    "sums beyond the largest float32": _random(100, 300).abs() * 1e37,
    "squares at the edge of float32": _random(300, 300) * 5e16,
    "half": _random(100, 300, dtype=torch.float16).clamp_min(0.01),
    "bfloat16": _random(100, 300, dtype=torch.bfloat16),
    "zeros": torch.zeros(1000, 20),
    "half of them zero": _random(400, 400).relu(),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 3),
    "constant": torch.full((200, 200), 1 / 3),
    "far from zero": _random(1000) + 1e4,
    "one row infinite": _random(200, 200).index_fill(0, torch.tensor([3]), -math.inf),
    "NaN and infinite": torch.tensor([1.0, math.nan, 2.0, math.inf, 0.0]),
    "nothing finite": torch.full((3,), math.nan),
    "complex": _random(30, 2, dtype=torch.complex64),
    "complex, infinite and NaN at once": torch.tensor([complex(math.inf, math.nan), complex(math.inf, 1), 1j]),
    "complex half": torch.view_as_complex(_random(40, 2, dtype=torch.float16) * 1e4),
    "few, transposed": _random(4, 8).t(),
    "few, every other": _random(20)[::2],
    "few, the gradient of a sum": torch.ones(()).expand(3, 5),
    "few, half of them zero": _random(30).relu(),
    "few, constant": torch.full((9,), 1 / 3),
    "few, far from zero": _random(100) + 1e4,
    "few, squares that vanish in float32": _random(12) * 1e-30,
    "few, subnormal": torch.tensor([1e-42, 0.0]),
    "few, squares that overflow": _random(5) * 1e25,
    "few, infinite": torch.tensor([1.0, math.inf, -math.inf, 4.0]),
    "a parameter": torch.nn.Parameter(_random(3)),
    "sparse": _random(5).to_sparse(),
}


def _by_definition(gradient):
    values = gradient.detach().to_dense().reshape(-1)
    if gradient.is_complex():  # NaN where a part is
        parts = torch.view_as_real(values.to(torch.complex128))
        values = torch.where(parts.isnan().any(1), math.nan, torch.hypot(*parts.unbind(1)))
    values = values.double()
    finite = values[values.isfinite()]
    nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
    worst = math.nan if nan else math.inf if inf else None
    some = len(finite) > 0
    most = (float(finite.abs().max()) if some else 0.0) or 1.0  # scaled, because float64 squares of 1e-200 vanish too
    return {
        "count": values.numel(),
        "norm": most * float((values / most).norm()) if worst is None else worst,
        "abs_max": (float(values.abs().max()) if len(values) else 0.0) if worst is None else worst,
        "mean": float(finite.mean()) if some else (math.nan if nan or inf else 0.0),
        "std": most * float((finite / most).std(correction=0)) if some else (math.nan if nan or inf else 0.0),
        "zero": int((values == 0).sum()),
        "nan": nan,
        "inf": inf,
    }


@pytest.mark.parametrize("name", CASES)
def test_statistics_are_those_of_the_definition(name):
    """Counts are exact; the rest agrees with float64 arithmetic to float32's precision."""
    gradient = CASES[name]
    expected, found = _by_definition(gradient), statistics_of(gradient, 7)
    assert (found.pass_number, found.subnormal, found.saturated) == (7, 0, 0)
    scale = abs(expected["abs_max"]) if math.isfinite(expected["abs_max"]) else 1.0
    for field, value in expected.items():
        exact = field in {"count", "zero", "nan", "inf"}
        wanted = value if exact else pytest.approx(value, rel=2e-5, abs=1e-6 * scale, nan_ok=True)
        assert getattr(found, field) == wanted, field
    assert measure(gradient)[0] == pytest.approx(expected["norm"], rel=1e-5, nan_ok=True)
    assert measure(gradient)[1:] == (expected["nan"], expected["inf"])


def _reckoned(gradient, **asked):
    """Return what is reckoned of a gradient as on a device: what is measured of each, and its statistics."""
    numbers, found = on_device.DeviceNumbers(1), []
    numbers.ask(gradient, lambda *told: found.extend(told), **asked)
    numbers.send()
    numbers.read()
    return found


@pytest.mark.parametrize("in_pieces", [False, True], ids=["together with others", "in pieces"])
@pytest.mark.parametrize("name", CASES)
def test_statistics_reckoned_on_a_device_are_the_same(name, in_pieces, monkeypatch):
    """What is read in one batch after a pass, as on a GPU, equals what is read at once; small gradients and large."""
    if in_pieces:
        monkeypatch.setattr(on_device, "SMALL", 2)
        monkeypatch.setattr(on_device, "_PIECE", 1 << 12)
    gradient = CASES[name]
    now, (_, later) = statistics_of(gradient, 1), _reckoned(gradient, full=True)
    expected = _by_definition(gradient)["norm"]
    assert _reckoned(gradient, full=False, careful=True)[0] == (
        pytest.approx(expected, rel=2e-5, nan_ok=True), now.nan, now.inf
    )  # fmt: skip
    assert (later.count, later.zero, later.nan, later.inf) == (now.count, now.zero, now.nan, now.inf)
    for field in ("norm", "abs_max", "mean", "std"):
        scale = abs(now.abs_max) if math.isfinite(now.abs_max) else 1.0
        assert getattr(later, field) == pytest.approx(getattr(now, field), rel=2e-5, abs=1e-6 * scale, nan_ok=True)


def test_the_first_gradient_stays_the_first_where_a_device_runs_short(monkeypatch):
    """A pass that is no longer measured in full tells of nodes alone that none before it told of."""
    monkeypatch.setattr(type(devices.there), "room", lambda *_: 0)
    first = [statistics_of(torch.ones(3), 1), None]
    structure = SimpleNamespace(size=2, edges=())
    graph = SimpleNamespace(structure=structure, first=first, on_device=DeviceHistory(), hooked={})
    recorder = PassRecorder(None, graph, PassValues.of(5, 2, full=True), hooked={}, wrapped=False)
    assert recorder._has_room(torch.device("cpu"))
    assert recorder.values.table is None
    for index in (0, 1):
        recorder._keep_in_full(index, statistics_of(torch.full((3,), 2.0), 5), 0.0)
    recorder.close()
    assert [(one.pass_number, one.abs_max) for one in first] == [(1, 1.0), (5, 2.0)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e16, 1e17, 1e19, 1e30, 3e38])
def test_huge_gradients_cause_no_warning(scale):
    """What overflows in the tracer's sums is taken again in float64, and nobody is told of it."""
    found = statistics_of(torch.full((300, 300), scale), 1)
    assert found.norm == pytest.approx(300 * scale, rel=1e-5)
    assert found.mean == pytest.approx(scale, rel=1e-5)
    assert found.std == 0
    assert measure(torch.full((300, 300), scale))[0] == pytest.approx(300 * scale, rel=1e-5)


def test_huge_and_infinite_gradients_cause_no_warning():
    """Beside an infinity the finite ones may be too large to be added up: their mean is right all the same."""
    found = statistics_of(torch.tensor([1.5e308, 1.7e308, math.inf], dtype=torch.float64), 1)
    assert (found.inf, found.nan, found.count, found.mean) == (1, 0, 3, pytest.approx(1.6e308))


def test_the_largest_magnitude_of_zeros_is_zero():
    """Not minus zero."""
    assert math.copysign(1, statistics_of(torch.zeros(5), 1).abs_max) == 1


def test_half_precision_says_what_lies_at_the_ends_of_its_range():
    """Of float16: below 2**-14 but not zero, and at 65504 or beyond; zeros are neither."""
    gradient = torch.tensor([0.0, 1.0, 3e-5, 6e-8, -5e-6, 65504.0, -65504.0, math.inf], dtype=torch.float16)
    now = statistics_of(gradient, 1)
    _, later = _reckoned(gradient, full=True)
    assert (now.subnormal, now.saturated, now.zero, now.inf) == (3, 3, 1, 1)
    assert (later.subnormal, later.saturated) == (3, 3)
    assert statistics_of(gradient[:-1].expand(5, 7), 1).subnormal == 15


@pytest.mark.parametrize("name", ["nan", "inf", "tiny", "huge", "far from zero", "zeros", "plain"])
def test_a_row_is_measured_as_any_gradient_or_not_at_all(name):
    """Where float32 sums are not enough it says so; else the numbers are those by definition."""
    row = torch.randn(1000)
    row = {"nan": row / row.isnan(), "inf": row / 0, "tiny": row * 1e-30, "huge": row * 1e30,
           "far from zero": row * 1e-3 + 1e3, "zeros": row * 0}.get(name, row)  # fmt: skip
    found = statistics_of_row(row.numpy(), 7)
    assert (found is None) == (name not in {"zeros", "plain"})
    assert found in {None, statistics_of(row, 7)}


def test_the_measures_of_a_graph_are_packed():
    """Shares are of the elements; a node without numbers has none."""
    found = statistics_of(torch.tensor([0.0, -3.0, 1.0, 2.0]), 5)
    columns = list(measures_of([found, None, found]))
    assert dict(zip(MEASURES, columns[:6], strict=True)) == pytest.approx(
        {"abs_max": 3.0, "mean": 0.0, "std": math.sqrt(14 / 4), "zero_share": 0.25, "subnormal_share": 0.0,
         "saturated_share": 0.0}
    )  # fmt: skip
    assert columns[6:12] == [UNTOUCHED] * 6
    assert columns[12:] == columns[:6]


@pytest.mark.parametrize("count", [3, 600, 20_000])
@pytest.mark.parametrize("kind", ["tiny", "tiny doubles", "huge", "another NaN"])
def test_errors_that_the_user_asked_numpy_for_are_not_of_the_trace(kind, count, monkeypatch):
    """Under ``np.seterr(all="raise")`` everything is measured that is measured without."""
    monkeypatch.setattr(traced_graph, "FREE_SECONDS", 60.0)  # else it depends on time which passes are measured in full
    gradient = {
        "tiny": torch.linspace(-1, 1, count) * 1e-43,
        "tiny doubles": torch.linspace(-1, 1, count, dtype=torch.float64) * 1e-60,
        "huge": torch.linspace(-1, 1, count) * 1e38,
        "another NaN": torch.full((count,), 0x7F800001, dtype=torch.int32).view(torch.float32),
    }[kind]

    def told():
        x = torch.zeros(count, dtype=gradient.dtype, requires_grad=True)
        with tm.trace(namespace={}) as trace:
            for _ in range(3):
                (x * 1).backward(gradient)
        (graph,) = trace.report.graphs
        frames = [(frame.norms.tobytes(), frame.measures.tobytes(), frame.bad) for frame in graph.frames]
        return trace.report.gaps, [repr(node.statistics) for node in graph.nodes], frames

    with np.errstate(all="warn"), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        usual = told()
    with np.errstate(all="raise"):
        assert told() == usual
    assert not heard
