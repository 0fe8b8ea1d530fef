"""Copy or view: the verdict against brute force."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch

import tensormagic as tm
from tests.support.operators import CannotRunError, mismatches, operators

SAMPLED = 24  # operators of some 670; `make sweep` goes through all


@pytest.fixture(scope="module")
def sampled():
    """Return a seeded sample of torch's own table of operators; whichever make views are always in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = operators()
    always = {
        "reshape",
        "flatten",
        "contiguous",
        "to",
        "expand",
        "diagonal",
        "unfold",
        "as_strided",
        "split",
        "__getitem__",
    }
    chosen = random.Random(0).sample(every, SAMPLED)
    return [*chosen, *(op for op in every if op.name in always and op not in chosen)]


def test_operators_of_torch_agree_with_brute_force(sampled):
    """Storages, identity and explicit sets of bytes say what the verdict says."""
    wrong, ran = [], 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for op in sampled:
            try:
                wrong += mismatches(op)
            except CannotRunError:
                continue
            ran += 1
    assert wrong == []
    assert ran > SAMPLED


def test_partial_overlap_is_counted_to_the_element():
    """Of two slices that cross, the elements in common; of two that interleave, none."""
    x = torch.arange(12.0)
    found = tm.copy_or_view(x[2:8], {"right": x[5:], "odd": x[1::2], "all": x})
    assert {each.name: (each.relation, each.elements, each.of_elements) for each in found.operands} == {
        "right": ("overlap", 3, 7), "odd": ("overlap", 3, 6), "all": ("overlap", 6, 12)}  # fmt: skip
    beside = tm.copy_or_view(x[::2], {"odd": x[1::2]})
    assert (beside.outcome, beside.operands[0].relation, beside.shares_with) == ("same storage", "same storage", ())


def test_arrays_are_compared_by_address():
    """Reversed views, a base and its slice, a tensor over an array: whichever side they are on."""
    a = np.arange(12, dtype=np.float32)
    assert tm.copy_or_view(a[::-2], {"a": a}).operands[0].elements == 6
    assert tm.copy_or_view(torch.from_numpy(a)[3:], {"tail": a[5:], "copy": a.copy()}).shares_with == ("tail",)


def test_those_that_share_come_first_and_the_rest_is_counted():
    """Of many operands eight are listed."""
    x = torch.zeros(4)
    operands = {f"other{at}": torch.zeros(2) for at in range(12)} | {"x": x}
    found = tm.copy_or_view(x[1:], operands)
    assert (found.operands[0].name, len(found.operands), found.more_operands) == ("x", 8, 5)


def test_what_is_no_tensor_is_refused_or_left_out():
    """As a result it is misuse; among the operands it has nothing to share."""
    with pytest.raises(tm.NotATensorError, match="a str"):
        tm.copy_or_view("text", {})
    assert tm.copy_or_view(torch.zeros(2), {"n": 3, "s": "text", "net": torch.nn.ReLU()}).operands == ()


def test_code_of_a_class_of_tensors_is_not_run():
    """It may count, print or fail: sizes and addresses are asked of torch itself."""

    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_):
            raise AssertionError

    x = torch.ones(3, 4)
    assert tm.copy_or_view(x.as_subclass(Asked), {"x": x}).operands[0].elements == 12


def test_wrappers_of_function_transforms_are_looked_into():
    """Inside vmap a view is a view of what the wrapper wraps."""
    seen = []

    def inside(row):
        seen.append(tm.copy_or_view(row[1:], {"row": row}).outcome)
        seen.append(tm.copy_or_view(row + 1, {"row": row}).outcome)
        return row.sum()

    torch.vmap(inside)(torch.ones(2, 3))
    assert seen == ["view", "separate"]
