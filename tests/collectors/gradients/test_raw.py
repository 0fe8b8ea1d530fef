"""Reading a tensor's memory without torch hearing of it: what is read, and that nothing is changed by it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.gradients import measures
from tensormagic.collectors.gradients.measures import as_array

CLOSE = 1e-5  # relative: how float32 numbers are rounded as BLAS sums them depends on the processor
WHOLE = torch.arange(12.0)
CASES = {
    "a row": WHOLE,
    "every other element": WHOLE[::2],
    "one that is longer than a megabyte": torch.arange(300_000.0),
    "double": WHOLE.double(),
    "half": WHOLE.half(),
    "bfloat16": WHOLE.bfloat16(),
    "stored with the other sign": torch.complex(WHOLE, WHOLE).conj().imag,
    "zeros without memory": torch._efficientzerotensor((3,)),
    "empty": torch.empty(0),
}


@pytest.mark.parametrize("name", CASES)
def test_reads_what_the_tensor_says(name):
    """The same numbers as in its list."""
    assert as_array(CASES[name]).tolist() == CASES[name].clone().tolist()


def test_keeps_what_it_reads_alive():
    """The array may outlive the name of a copy that was made for it."""
    array = as_array(torch.full((1 << 19,), 7.0).clone())
    torch.full((1 << 19,), 8.0)
    assert np.all(array == 7.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [4, 600, 20_000])
def test_a_traced_tensor_can_be_resized_as_before(dtype, count):
    """Gradients, parameters and what the forward made: ``Tensor.numpy()`` would have made their storage fixed."""
    weight = torch.ones(count, dtype=dtype, requires_grad=True)
    with tm.trace(namespace={"weight": weight}, forward=True):
        squares = weight * weight
        squares.sum().backward()
    for tensor in (weight, weight.grad, squares):
        assert tensor.untyped_storage().resizable()


@pytest.mark.parametrize("count", [5, 20_000])
@pytest.mark.parametrize("setting", ["warn", "raise"])
def test_norms_that_overflow_neither_warn_nor_raise(setting, count):
    """NumPy would tell the user of squares that are none of theirs; the norm is right all the same."""
    weight = torch.ones(count, requires_grad=True)
    with np.errstate(all=setting), warnings.catch_warnings():
        warnings.simplefilter("error")
        with tm.trace(namespace={"weight": weight}) as trace:
            for _ in range(3):
                (weight * 1e30).sum().backward()
    (series,) = trace.report.parameters
    assert list(series.norms) == pytest.approx([count**0.5 * 1e30] * 3)


@pytest.mark.parametrize(
    ("name", "laid_out"),
    {
        "in rows": lambda x: x,
        "in columns": lambda x: x.t().contiguous().t(),
        "with gaps": lambda x: torch.stack([x, x], dim=2)[:, :, 0],
        "repeated": lambda x: x[:1].expand(*x.shape),
    }.items(),
)
@pytest.mark.parametrize("shape", [(8, 5), (128, 129), (512, 513)])
def test_the_quick_look_reads_every_layout_right(name, laid_out, shape):
    """From the second pass on a gradient is read straight from memory: the norm stays that of its elements."""
    gradient = laid_out(torch.randn(*shape, generator=torch.Generator().manual_seed(0)))
    weight = torch.ones(*shape, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(3):
            (weight * 1).backward(gradient)
    (series,) = trace.report.parameters
    assert list(series.norms) == pytest.approx([gradient.double().norm().item()] * 3, rel=CLOSE), name


@pytest.mark.parametrize("place", [0, 8191, 8192, 20_000])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_the_quick_look_leaves_what_is_unusual(place, value):
    """One bad or huge number in any piece of a larger gradient is found, counted, and never hidden in a sum."""
    gradient = torch.ones(20_001)
    gradient[place] = value
    weight = torch.ones(20_001, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        for _ in range(3):
            (weight * 1).backward(gradient)
    bad = [frame.bad for frame in trace.report.graphs[0].frames]
    if value == 1e30:
        assert list(trace.report.parameters[0].norms) == pytest.approx([1e30] * 3, rel=CLOSE)
        assert bad == [{}] * 3
    else:
        assert all(set(counts) == {(1, 0) if math.isnan(value) else (0, 1)} for counts in map(pairs, bad))


def pairs(counts):
    """Return the counts of NaN and Inf, whichever node they are of."""
    return [tuple(each) for each in counts.values()]


@pytest.mark.parametrize("count", [1, 8192, 8193, 16_384, 32_769, 100_000])
def test_squares_are_summed_as_in_float64(count, monkeypatch):
    """Whole pieces and what is left over, with NumPy's own function and without it."""
    numbers = torch.randn(count, generator=torch.Generator().manual_seed(0))
    expected = numbers.double().square().sum().item()
    assert measures.squared(numbers.numpy(), count) == pytest.approx(expected, rel=CLOSE)
    monkeypatch.setattr(measures, "_dots", lambda x, y: np.einsum("ij,ij->i", x, y))
    assert measures.squared(numbers.numpy(), count) == pytest.approx(expected, rel=CLOSE)
