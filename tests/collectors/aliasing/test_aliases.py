"""Who shares memory with whom: claims from tutorials judged by the table, overlaps counted against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from tensormagic.collectors.aliasing.aliases import MOST, find_aliases
from tensormagic.collectors.geometry import overlap as overlap_module, strides
from tensormagic.collectors.geometry.overlap import Region, overlap, overlap_elements
from tensormagic.collectors.geometry.strides import shares_version
from tensormagic.collectors.objects.namespace import Walk, walk_arrays
from tensormagic.reports import Alias


def table(x: torch.Tensor, /, **names: Any) -> dict[str, Alias]:
    """The alias table of x, by name."""
    return {alias.name: alias for alias in find_aliases(x, walk_arrays(Walk(names)), name="x").aliases}


def base() -> torch.Tensor:
    """A fresh contiguous (4, 6) tensor that owns its storage."""
    return torch.zeros(4, 6)


SHARES: dict[str, Callable[[torch.Tensor], Any]] = {
    "expand": lambda a: a[:, :1].expand(4, 9),
    "expand_as": lambda a: a[:1].expand_as(torch.empty(7, 6)),
    "broadcast_to": lambda a: a.broadcast_to(3, 4, 6),
    "transpose": lambda a: a.t(),
    "permute": lambda a: a.permute(1, 0),
    "slice": lambda a: a[1:3, ::2],
    "integer index": lambda a: a[2],
    "view": lambda a: a.view(2, 12),
    "view of a slice whose merged dimensions fit": lambda a: a[:, 2:4].view(4, 2, 1),
    "reshape where strides allow": lambda a: a.reshape(24),
    "reshape of a non-contiguous tensor where strides allow": lambda a: a.t().reshape(3, 2, 4),
    "flatten of a contiguous tensor": lambda a: a.flatten(),
    "contiguous of a contiguous tensor": lambda a: a.contiguous(),
    "narrow": lambda a: a.narrow(1, 2, 3),
    "chunk": lambda a: a.chunk(2)[1],
    "split": lambda a: a.split(1)[3],
    "unbind": lambda a: a.unbind(1)[2],
    "diagonal": lambda a: a.diagonal(),
    "unfold": lambda a: a.unfold(1, 3, 1),
    "as_strided": lambda a: a.as_strided((2, 2), (1, 3), 5),
    "squeeze": lambda a: a[:1].squeeze(0),
    "unsqueeze": lambda a: a.unsqueeze(1),
    "detach": lambda a: a.detach(),
    "data": lambda a: a.data,
    "numpy": lambda a: a.numpy(),
    "numpy view backwards": lambda a: a.numpy()[::-1, ::-2],
    "from_numpy of numpy": lambda a: torch.from_numpy(a.numpy()),
    "as_tensor of an array": lambda a: torch.as_tensor(a.numpy()),
    "torch.Tensor of a float32 array": lambda a: torch.Tensor(a.numpy()),
    "Parameter": nn.Parameter,
    "to the dtype it has": lambda a: a.to(torch.float32),
    "view as another dtype": lambda a: a.view(torch.int16),
}
COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "repeat": lambda a: a.repeat(2, 1),
    "repeat by one": lambda a: a.repeat(1, 1),
    "advanced indexing with a list": lambda a: a[[0, 1]],
    "advanced indexing with a tensor": lambda a: a[torch.tensor([0])],
    "boolean mask": lambda a: a[a == 0],
    "index_select": lambda a: a.index_select(0, torch.tensor([0, 1])),
    "clone": lambda a: a.clone(),
    "reshape where strides forbid": lambda a: a.t().reshape(24),
    "contiguous of a transpose": lambda a: a.t().contiguous(),
    "flatten of a transpose": lambda a: a.t().flatten(),
    "flip": lambda a: a.flip(0),
    "roll": lambda a: a.roll(1),
    "cat": lambda a: torch.cat([a]),
    "stack": lambda a: torch.stack([a, a]),
    "pad": lambda a: nn.functional.pad(a, (1, 1)),
    "torch.tensor of an array": lambda a: torch.tensor(a.numpy()),
    "torch.Tensor of a float64 array": lambda a: torch.Tensor(a.numpy().astype(np.float64)),
    "to another dtype": lambda a: a.to(torch.float64),
}


@pytest.mark.parametrize("claim", SHARES)
def test_operations_that_share(claim: str) -> None:
    """Each of these results can write into the tensor it came from, and the table says so, seen from both sides."""
    a = base()
    result = SHARES[claim](a)
    assert table(a, other=result)["other"].overlap == "yes"
    if isinstance(result, torch.Tensor):
        assert table(result, a=a)["a"].overlap == "yes"


@pytest.mark.parametrize("claim", COPIES)
def test_operations_that_copy(claim: str) -> None:
    """Each of these results has memory of its own, whatever tutorials say about some of them."""
    a = base()
    result = COPIES[claim](a)
    assert "other" not in table(a, other=result)


def test_the_mock_up_in_numbers() -> None:
    """A sliced transpose: its base, a sister view, NumPy, and rows that it shares nothing with."""
    a = torch.arange(24.0).view(4, 6)
    x, odd = a.t()[1:5, ::2], a[1::2]
    found = table(x, a=a, n=a.numpy(), odd=odd, x=x)
    assert list(found) == ["x._base", "a", "odd", "n"]
    assert [alias.relation for alias in found.values()] == [
        "base", "view of the same base", "view of the same base", "NumPy array",
    ]  # fmt: skip
    assert [(alias.overlap_elements, alias.of_elements) for alias in found.values()] == [
        (8, 24), (8, 24), (0, 12), (8, 24),
    ]  # fmt: skip
    assert found["odd"].overlap == "no"
    assert (found["n"].version, found["n"].shares_version, found["n"].kind) == (None, False, "ndarray")


def test_interleaved_columns_share_a_range_but_no_element() -> None:
    """Even and odd columns lie between each other and still do not overlap."""
    a = base()
    even, odd = a[:, ::2], a[:, 1::2]
    assert table(even, odd=odd)["odd"].overlap == "no"
    assert table(even, odd=odd)["odd"].overlap_elements == 0


def test_overlap_is_counted_in_elements_of_the_other():
    """Of the same four bytes, a float32 is one element and its bytes are four."""
    numbers = torch.zeros(3)
    raw = numbers.view(torch.uint8)
    seen = table(numbers[:2], raw=raw)["raw"]
    assert (seen.overlap_elements, seen.of_elements) == (8, 12)
    back = table(raw[2:6], numbers=numbers)["numbers"]
    assert (back.overlap_elements, back.of_elements) == (2, 3)


def test_relations_and_their_order() -> None:
    """The same object, its base, its views, its sisters, and what merely has the same storage, in that order."""
    a = base()
    x = a[1:]
    found = table(x, detached=x.detach(), sister=a[:2], view=x[0], a=a, again=x)
    relations = {alias.name: alias.relation for alias in found.values()}
    assert list(relations.items()) == [
        ("again", "same object"),
        ("a", "base"),
        ("sister", "view of the same base"),
        ("view", "view of the same base"),
        ("detached", "same storage"),
    ]
    assert table(a, x=x)["x"].relation == "view of it"


def test_inspected_name_is_no_alias_of_itself() -> None:
    """The name it is looked at under is left out, another name of the same object is not."""
    a = base()
    walk = Walk({"a": a, "b": a, "other": 3})
    aliases = find_aliases(a, walk_arrays(walk), name="a").aliases
    assert [(alias.name, alias.relation) for alias in aliases] == [("b", "same object")]
    assert walk.looked == 3


def test_detach_counts_on_the_same_version_and_data_does_not() -> None:
    """The difference between an error and a silently wrong gradient, told without writing."""
    a = base()
    found = table(a, detached=a.detach(), data=a.data, view=a[0], parameter=nn.Parameter(a))
    assert {name: alias.shares_version for name, alias in found.items()} == {
        "detached": True, "data": False, "view": True, "parameter": True,
    }  # fmt: skip
    assert a._version == 0
    for name, writer in (("detached", a.detach()), ("data", a.data)):
        before = a._version
        writer.add_(1)
        assert (a._version > before) == found[name].shares_version


def test_version_of_an_unknown_build_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the counter's place cannot be found, equal versions mean "cannot tell", different ones still "no"."""
    monkeypatch.setattr(strides, "counter_place", lambda: None)
    a, b = base(), base()
    assert shares_version(a, a.detach()) is None
    b.add_(1)
    assert shares_version(a, b) is False
    assert shares_version(a, a) is True


def test_inference_tensors_count_nothing() -> None:
    """Inference tensors have no version counter to share."""
    with torch.inference_mode():
        a = base()
        view = a[0]
    alias = table(a, view=view)["view"]
    assert (alias.version, alias.shares_version) == (None, False)


def test_parameters_buffers_containers_and_gradients_are_found() -> None:
    """Whatever name reaches the storage is listed: modules' registries, lists, dictionaries, state_dicts, gradients."""
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    net[0].weight.grad = torch.zeros(3, 2)
    weight = net[0].weight
    assert set(table(weight, net=net, state=net.state_dict(), batch=[1, {"w": weight.data}])) == {
        "net.0.weight", "state['0.weight']", "batch[1]['w']",
    }  # fmt: skip
    assert set(table(weight.grad, net=net)) == {"net.0.weight.grad"}
    assert set(table(net[1].running_mean[1:], net=net)) == {"net.1.running_mean"}


def test_two_storages_over_one_array_are_seen() -> None:
    """Every from_numpy makes a storage object of its own; the memory is the same."""
    array = np.zeros((4, 6), dtype=np.float32)
    a, tail = torch.from_numpy(array), torch.from_numpy(array[2:])
    found = table(a, tail=tail, array=array, bytes=array.view(np.uint8)[:, :6])
    assert {name: (alias.relation, alias.overlap_elements) for name, alias in found.items()} == {
        "tail": ("same storage", 12), "array": ("NumPy array", 24), "bytes": ("NumPy array", 24),
    }  # fmt: skip
    assert found["tail"].shares_version is False


def test_arrays_that_own_the_memory_are_told_from_arrays_that_borrow_it() -> None:
    """from_numpy lends NumPy's memory to torch, .numpy() the other way round."""
    array = np.zeros(3)
    lent, own = torch.from_numpy(array), torch.zeros(3)
    assert find_aliases(lent, [("array", array)], name="x").owner == "array"
    assert find_aliases(own, [("array", own.numpy())], name="x").owner == ""


def test_meta_tensors_share_storage_without_memory() -> None:
    """A view of a meta tensor is found by its storage, although there is no address."""
    a = torch.empty(1000, 1000, device="meta")
    alias = table(a[:10], a=a)["a"]
    assert (alias.relation, alias.overlap, alias.overlap_elements) == ("base", "yes", 10_000)


def test_odd_tensors_in_the_namespace_are_no_obstacle() -> None:
    """Sparse, nested and lazy tensors have no storage to compare; the others are still found."""
    a = base()
    odd = {"sparse": torch.eye(2).to_sparse(), "lazy": nn.LazyLinear(3), "quantised": None, "arrays": np.empty((0, 3))}
    assert set(table(a, **odd, view=a[1:])) == {"view"}


def test_many_aliases_are_cut_and_counted() -> None:
    """A thousand rows of one tensor: the nearest are listed, all are counted."""
    a = base()
    search = find_aliases(a, [(f"r{at}", a[0]) for at in range(1000)], name="a")
    assert (len(search.aliases), search.found) == (MOST, 1000)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Small strided regions, stride 0, overlaps and negative strides included."""
    ndim = draw(st.integers(0, 3))
    shape = draw(st.lists(st.integers(0, 4), min_size=ndim, max_size=ndim))
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    steps = draw(st.lists(st.integers(-9, 9), min_size=ndim, max_size=ndim))
    return Region.of(draw(st.integers(60, 120)) * itemsize, shape, [step * itemsize for step in steps], itemsize)


def elements(region: Region) -> set[frozenset[int]]:
    """The bytes of each different element, the slow way."""
    starts = {
        region.start + sum(step * at for step, at in zip(region.stride, index, strict=True))
        for index in itertools.product(*(range(size) for size in region.shape))
    }
    return {frozenset(range(start, start + region.itemsize)) for start in starts}


@settings(max_examples=500, deadline=None)
@given(regions(), regions())
def test_overlap_equals_counting_bytes(x: Region, y: Region) -> None:
    """Whether and how much two regions overlap is what comparing them byte by byte gives, for any element sizes."""
    touched = set().union(*elements(y))
    expected = sum(bool(element & touched) for element in elements(x))
    assert overlap_elements(x, y) == expected
    assert overlap(x, y) == ("yes" if expected else "no")


def test_overlap_of_huge_views_is_arithmetic() -> None:
    """Regions of 10**12 elements are counted without listing them, where one of them is solid."""
    x = Region.of(0, (10**6, 10**6), (8 * 10**6, 8), 4)
    y = Region.of(8 * 10**9, (10**6,), (4,), 4)
    assert overlap(x, y) == "yes"
    assert overlap_elements(x, y) == 500_000


def test_overlap_that_is_too_hard_is_maybe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds nothing is claimed: "maybe", and no count."""
    monkeypatch.setattr(overlap_module, "MAX_WORK", 1)
    monkeypatch.setattr(overlap_module, "PICTURE_LIMIT", 10)
    x = Region.of(0, (50, 50, 50), (7919, 613, 97), 1)
    y = Region.of(4, (50, 50, 50), (7907, 601, 89), 1)
    assert overlap(x, y) == "maybe"
    assert overlap_elements(x, y) is None
