"""Which views torch gives: every verdict compared with trying it."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tensormagic.reports import Barrier
from tensormagic.reports.storage import resolved, view_stride, views, why_not


def divisors(number: int) -> list[int]:
    """Every divisor of a positive number."""
    return [at for at in range(1, number + 1) if number % at == 0]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Draw a strided tensor: any strides at all, or those of a permuted, sliced, expanded contiguous tensor."""
    shape = draw(st.lists(st.integers(0, 4), max_size=5))
    if draw(st.booleans()):
        stride = [draw(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 24])) for _ in shape]
        return torch.empty(1).expand(0).new_empty(0).set_(torch.empty(600).untyped_storage(), 0, shape, stride)
    x = torch.empty(shape).permute(draw(st.permutations(range(len(shape)))))
    for dim, size in enumerate(x.shape):
        x = x.narrow(dim, 0, draw(st.integers(0, size))) if draw(st.integers(0, 3)) == 0 else x
    return x[tuple(slice(None, None, draw(st.sampled_from([1, 1, 1, 2]))) for _ in x.shape)]


@st.composite
def wanted_shapes(draw: st.DrawFn, numel: int) -> tuple[int, ...]:
    """Draw a shape, mostly with that many elements."""
    sizes: list[int] = []
    rest = numel
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.sampled_from(divisors(rest))) if rest else draw(st.integers(0, 3))
        sizes.append(size)
        rest = rest // size if size else 0
    return (*sizes, rest) if draw(st.integers(0, 9)) else tuple(sizes)


@settings(max_examples=1500, deadline=None)
@given(st.data())
def test_the_verdict_is_torchs_own(data: st.DataObject) -> None:
    """Whether a view works, and with which stride, is what torch does; and where it does not, a reason is named."""
    x = data.draw(tensors())
    wanted = data.draw(wanted_shapes(x.numel()))
    try:
        made = x.view(wanted).stride()
    except RuntimeError:
        made = None
    told = view_stride(x.shape, x.stride(), wanted)
    assert (told is None) == (made is None)
    if made is not None:
        moving = [at for at, size in enumerate(wanted) if size != 1]
        assert [told[at] for at in moving] == [made[at] for at in moving]
    failure = why_not(x.shape, x.stride(), wanted)
    assert (failure is None) == (made is not None)
    if failure is not None and failure.dim is not None:
        assert wanted[failure.dim] > 1
        assert failure.barrier in views(x.shape, x.stride()).barriers


@settings(max_examples=500, deadline=None)
@given(tensors())
def test_the_groups_are_the_coarsest_view(x: torch.Tensor) -> None:
    """The merged shape is a view, with the merged strides; merging across any barrier is none."""
    report = views(x.shape, x.stride())
    merged = x.view(report.sizes)
    assert report.flat == _works(x, (x.numel(),))
    assert x.numel() == 0 or merged.stride() == report.strides
    assert len(report.barriers) == max(len(report.groups) - 1, 0)
    for at, _ in enumerate(report.barriers):
        sizes = [*report.sizes[:at], report.sizes[at] * report.sizes[at + 1], *report.sizes[at + 2 :]]
        assert not _works(x, sizes)
    assert [pair for pair in pairwise(dim for group in report.groups for dim in group) if pair[0] >= pair[1]] == []


def _works(x: torch.Tensor, shape: object) -> bool:
    try:
        x.view(shape)
    except RuntimeError:
        return False
    return True


def test_a_barrier_has_its_numbers() -> None:
    """A transposed matrix of 4 by 6: stride[0] is 1, and 24 would be needed."""
    x = torch.empty(4, 6).t()
    assert views(x.shape, x.stride()).barriers == (Barrier(0, 1, 1, 24, 4, 6),)


@pytest.mark.parametrize(
    ("shape", "stride", "groups"),
    [
        ((2, 3, 4), (12, 4, 1), ((0, 1, 2),)),
        ((2, 3, 4), (12, 1, 3), ((0,), (1,), (2,))),
        ((2, 3, 4), (24, 8, 2), ((0, 1, 2),)),
        ((8, 3, 5, 5), (75, 1, 15, 3), ((0,), (1,), (2, 3))),
        ((5, 4), (0, 0), ((0, 1),)),
        ((5, 1, 4), (4, 77, 1), ((0, 2),)),
        ((1, 1), (3, 9), ()),
        ((), (), ()),
        ((0, 3), (3, 1), ((0, 1),)),
    ],
)
def test_groups(shape: tuple[int, ...], stride: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> None:
    """Steps and stride 0 merge where they fit; sizes of 1 stand in no group; channels_last keeps h and w together."""
    assert views(shape, stride).groups == groups


def test_minus_one_is_resolved() -> None:
    """A single -1 takes what is left."""
    assert resolved((4, 6), (-1, 3)) == (8, 3)
    assert prod(resolved((4, 6), (2, -1, 3))) == 24


def test_the_dimension_that_reaches_over_is_named() -> None:
    """(4, 6) transposed and flattened to (3, 8): the innermost wanted dimension holds 8, the inner group 4."""
    x = torch.empty(4, 6).t()
    failure = why_not(x.shape, x.stride(), (3, 8))
    assert failure is not None
    assert (failure.dim, failure.barrier.outer, failure.barrier.inner) == (1, 0, 1)
    wrong = why_not(x.shape, x.stride(), (5, 5))
    assert (wrong.dim, wrong.elements, wrong.wanted) == (None, 24, 25)
