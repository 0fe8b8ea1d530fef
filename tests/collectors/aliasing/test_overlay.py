"""Several tensors on one strip: every number compared with sets of bytes made by hand."""

from __future__ import annotations

import gc
import weakref
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import tensormagic as tm
from tensormagic.collectors.aliasing import overlay as module
from tensormagic.collectors.aliasing.overlay import overlay
from tensormagic.errors import NotATensorError, TensorMagicError

BYTES = 48
DTYPES = (torch.int8, torch.float16, torch.float32, torch.float64)


@st.composite
def views(draw: st.DrawFn) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """Draw a dtype, shape, stride and offset that fit into a storage of `BYTES` bytes; overlapping ones included."""
    dtype = draw(st.sampled_from(DTYPES))
    elements = BYTES // dtype.itemsize
    offset = draw(st.integers(0, elements - 1))
    shape, stride, left = [], [], elements - 1 - offset
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 6))
        size = draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 4 if not step else min(left // step + 1, 5)))
        left -= max(size - 1, 0) * step
        shape.append(size)
        stride.append(step)
    return dtype, tuple(shape), tuple(stride), offset


def made(storage: torch.UntypedStorage, view: tuple) -> torch.Tensor:
    """Return the tensor of a drawn view."""
    dtype, shape, stride, offset = view
    return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


def elements_by_hand(view: tuple) -> dict[int, list[tuple[int, ...]]]:
    """First byte of each stored element → the indices that read it, in reading order."""
    dtype, shape, stride, offset = view
    found: dict[int, list[tuple[int, ...]]] = {}
    for index in product(*map(range, shape)):
        at = (offset + sum(i * step for i, step in zip(index, stride, strict=True))) * dtype.itemsize
        found.setdefault(at, []).append(index)
    return found


def bytes_of(starts: object, size: int) -> set[int]:
    """Every byte of elements that start there."""
    return {start + at for start in starts for at in range(size)}


@settings(max_examples=400, deadline=None)
@given(st.lists(views(), min_size=2, max_size=4))
def test_every_number_is_that_of_the_byte_sets(drawn: list[tuple]) -> None:
    """Elements, bytes a cell, readers, and what each two have in common."""
    storage = torch.empty(BYTES, dtype=torch.int8).untyped_storage()
    report = overlay({str(at): made(storage, view) for at, view in enumerate(drawn)})
    by_hand = [elements_by_hand(view) for view in drawn]
    sets = [bytes_of(found, view[0].itemsize) for found, view in zip(by_hand, drawn, strict=True)]
    assert [member.distinct_bytes for member in report.members] == [len(each) for each in sets]
    (memory,) = report.storages
    if not memory.rows:
        assert not any(sets)
        return
    cells = [range(at, at + memory.cell_bytes) for at in range(memory.start, memory.stop, memory.cell_bytes)]
    for row in memory.rows:
        assert row.bytes_read == tuple(len(sets[row.member].intersection(cell)) for cell in cells)
        told = {element.start: (element.index, element.reads) for element in row.elements}
        assert told == {start: (found[0], len(found)) for start, found in by_hand[row.member].items()}
    assert memory.readers == tuple(sum(bool(each.intersection(cell)) for each in sets) for cell in cells)
    for pair in memory.pairs:
        left, right = sets[pair.left], sets[pair.right]
        assert (pair.overlap, pair.common_bytes) == ("yes" if left & right else "no", len(left & right))
        for count, one, other in ((pair.left_elements, pair.left, right), (pair.right_elements, pair.right, left)):
            size = drawn[one][0].itemsize
            assert count == sum(bool(bytes_of([start], size) & other) for start in by_hand[one])


@settings(max_examples=150, deadline=None)
@given(st.lists(views(), min_size=2, max_size=3), st.integers(1, 5))
def test_runs_of_bytes_are_counted_exactly(drawn: list[tuple], units: int) -> None:
    """The same where the elements are too many to be drawn one by one, which a smaller limit stands for."""
    storage = torch.empty(BYTES, dtype=torch.int8).untyped_storage()
    kept = module.UNITS, module.CELLS
    module.UNITS, module.CELLS = 0, units
    try:
        report = overlay({str(at): made(storage, view) for at, view in enumerate(drawn)})
    finally:
        module.UNITS, module.CELLS = kept
    sets = [bytes_of(elements_by_hand(view), view[0].itemsize) for view in drawn]
    (memory,) = report.storages
    for row in memory.rows:
        starts = range(memory.start, memory.stop, memory.cell_bytes)
        told = zip(starts, row.bytes_read, strict=True)
        found = sets[row.member]
        assert all(read == len(found & set(range(at, min(at + memory.cell_bytes, memory.stop)))) for at, read in told)
        assert sum(row.bytes_read) == len(found)


def test_arrays_and_tensors_over_one_memory() -> None:
    """A NumPy array, walked backwards, and a tensor that begins behind its start: one ruler, the index its own."""
    array = np.arange(12, dtype=np.float32)
    tail = torch.from_numpy(array[4:])
    report = overlay({"tail": tail, "back": array[::-1]})
    (memory,) = report.storages
    assert (memory.nbytes, report.members[0].first_byte, report.members[1].first_byte) == (48, 16, 0)
    assert report.members[1].stride == (-1,)
    assert memory.rows[1].elements[0].index == (11,)
    assert memory.pairs[0].common_bytes == 32


def test_two_storages_that_a_third_connects() -> None:
    """Two tensors that do not touch lie in one memory once an array over both is asked about."""
    array = np.arange(12, dtype=np.float32)
    tensors = {"head": torch.from_numpy(array[:4]), "tail": torch.from_numpy(array[6:])}
    assert [storage.members for storage in overlay(tensors).storages] == [(0,), (1,)]
    report = overlay({**tensors, "all": array})
    assert [storage.members for storage in report.storages] == [(0, 1, 2)]
    assert [pair.common_bytes for pair in report.storages[0].pairs] == [0, 16, 24]


def test_a_window_is_drawn_where_little_is_read() -> None:
    """Two rows of a large matrix: their neighbourhood, not a megabyte of nothing."""
    x = torch.zeros(500, 500)
    (memory,) = overlay({"a": x[100, :20], "b": x[100, 10:30]}).storages
    assert (memory.start, memory.stop, memory.cell_bytes) == (50_000 * 4 - 32, 50_030 * 4 + 32, 4)
    assert memory.pairs[0].left_elements == 10


def test_a_billion_elements_are_counted_without_looking() -> None:
    """Expanded and meta tensors of 10⁹ elements: exact numbers, by arithmetic."""
    x = torch.empty(10**9, dtype=torch.int8, device="meta")
    report = overlay({"x": x, "even": x[::2], "odd": x[1::2], "words": x.view(torch.float32)})
    (memory,) = report.storages
    found = {(pair.left, pair.right): pair.common_bytes for pair in memory.pairs}
    assert found[0, 1] == found[0, 2] == found[1, 3] == 5 * 10**8
    assert found[1, 2] == 0
    assert found[0, 3] == 10**9
    assert sum(memory.rows[1].bytes_read) == 5 * 10**8


def test_gaps_on_both_sides_are_counted_run_by_run() -> None:
    """Every second column and the left half of a matrix too large to be marked: still exact."""
    x = torch.empty(2000, 10_000, device="meta")
    report = overlay({"even": x[:, ::2], "left": x[:, :5000], "third": x[::3, 1::2]})
    found = [(pair.overlap, pair.common_bytes, pair.left_elements) for pair in report.storages[0].pairs]
    assert found == [("yes", 2000 * 2500 * 4, 2000 * 2500), ("no", 0, 0), ("yes", 667 * 2500 * 4, 667 * 2500)]


def test_without_memory_there_is_a_gap() -> None:
    """Sparse, nested and freed tensors are named, the others are compared."""
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    x = torch.eye(3)
    report = overlay({"s": x.to_sparse(), "freed": freed, "x": x, "row": x[1]})
    assert [gap.section for gap in report.gaps] == ["s", "freed"]
    assert [member.name for member in report.members] == ["x", "row"]
    assert report.shared[0].pairs[0].common_bytes == 12


def test_empty_tensors_have_nothing_in_common() -> None:
    """No element, no byte, no picture."""
    x = torch.ones(4)
    report = overlay({"none": x[:0], "nil": x[2:2]})
    assert [member.distinct_bytes for member in report.members] == [0, 0]
    assert report.storages[0].rows == ()


def test_nothing_is_changed_or_kept() -> None:
    """The version counter stays, and no reference is left."""
    x = torch.ones(4)
    y = x[1:]
    report = overlay({"x": x, "y": y})
    assert x._version == 0
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None
    assert report.members[1].name == "y"


@pytest.mark.parametrize(
    ("tensors", "kind", "said"),
    [
        ({"x": torch.ones(1)}, TensorMagicError, "takes 2 to 8 tensors by name, but was given 1"),
        (
            {str(at): torch.ones(1) for at in range(9)},
            TensorMagicError,
            "takes 2 to 8 tensors by name, but was given 9",
        ),
        ({"x": torch.ones(1), "n": 3}, NotATensorError, r"n is an int, not a tensor; torch.tensor\(n\) makes one"),
    ],
)
def test_misuse(tensors: dict, kind: type, said: str) -> None:
    """What was given and what would do."""
    with pytest.raises(kind, match=said):
        tm.overlay(tensors)


def test_elements_without_a_size_share_nothing() -> None:
    """NumPy has dtypes of no field."""
    report = overlay({"nothing": np.zeros(3, dtype=[]), "x": torch.zeros(3)})
    assert report.shared == ()
