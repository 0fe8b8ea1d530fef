"""Groups by memory over a whole namespace: who is in, how each came to be, who counts its writes."""

from __future__ import annotations

import array
import gc
import mmap
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic import api
from tensormagic.collectors.aliasing.alias_groups import MOST_GROUPS, SMALL, collect_aliases
from tensormagic.errors import TensorMagicError


def members(**namespace):
    """Every member of every group, by its name."""
    return {each.name: each for group in collect_aliases(namespace).groups for each in group.members}


def relations(**namespace):
    """How each member came to be, by name: relation, base, recorded operations."""
    return {name: (each.relation, each.base, *each.operations) for name, each in members(**namespace).items()}


def base():
    """A fresh tensor that owns its storage."""
    return torch.arange(24.0).reshape(4, 6).clone()


def test_views_detach_data_and_numpy():
    """Each way to share is told from the others."""
    a = base()
    assert relations(a=a, v=a.t()[1:], d=a.detach(), q=a.data, n=a.numpy(), s=a.untyped_storage()) == {
        "a": ("owner", ""), "v": ("view", "a"), "d": ("detached", "a"), "q": ("data", "a"), "n": ("array", "a"),
        "s": ("storage", ""),
    }  # fmt: skip


def test_the_operations_that_made_a_view():
    """Where autograd records, the chain from the base is told, first operation first."""
    w = torch.zeros(6, requires_grad=True)
    u = w * 2
    found = relations(w=w, v=w.view(2, 3).t()[1:], u=u, r=u.reshape(3, 2))
    assert found["v"] == ("view", "w", "view", "t", "slice")
    assert found["r"] == ("view", "u", "view")


def test_views_of_a_base_without_a_name():
    """The base is no member: it has no name to be confused about."""
    x = torch.arange(24).view(4, 6)
    assert relations(x=x, y=x[0]) == {"x": ("view", ""), "y": ("view", "")}
    assert collect_aliases({"x": x}).groups == ()


def test_numpy_owns_the_memory():
    """from_numpy twice makes two storages over one array; a view of the array is a member too."""
    n = np.zeros(6)
    found = relations(n=n, t=torch.from_numpy(n), u=torch.from_numpy(n), m=n[::2])
    assert found == {"n": ("owner", ""), "t": ("wraps", "n"), "u": ("wraps", "n"), "m": ("view", "n")}
    (group,) = collect_aliases({"n": n, "t": torch.from_numpy(n), "u": torch.from_numpy(n)}).groups
    assert (group.storages, group.nbytes) == (2, 48)


@pytest.mark.parametrize(
    "buffer", [bytearray(16), array.array("f", [0.0] * 4), mmap.mmap(-1, 16), memoryview(bytearray(16)), bytes(16)]
)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_buffers(buffer):
    """Memory that Python objects export, seen through torch and NumPy; afterwards the object can grow again."""
    t, n = torch.frombuffer(buffer, dtype=torch.float32), np.frombuffer(buffer, dtype=np.float32)
    found = relations(buffer=buffer, t=t, n=n)
    assert found["buffer"] == ("buffer", "")
    assert found["t"] == ("wraps", "buffer")
    assert found["n"][0] == "buffer view"
    if isinstance(buffer, bytearray):
        fresh = bytearray(4)
        collect_aliases({"fresh": fresh, "other": fresh})
        fresh.append(1)


def test_dlpack():
    """The same memory under another storage object, and as an array."""
    a = base()
    found = relations(a=a, t=torch.from_dlpack(a), n=np.from_dlpack(a))
    assert found["t"] == ("wraps", "a")
    assert found["n"][0] == "capsule"


@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_a_sparse_tensor_is_made_of():
    """Its values are the tensor it was made from: a write there changes the sparse tensor."""
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
    sparse = torch.sparse_coo_tensor(indices, values, (2, 2))
    found = relations(values=values, sparse=sparse)
    assert found["sparse._values()"] == ("part", "sparse")


def test_one_object_with_several_names():
    """Aliases of a name, tied weights; what an optimizer updates is no second name, nor is a gradient's."""
    net = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    net[1].weight = net[0].weight
    a = base()
    optimizer = torch.optim.Adam(net.parameters())
    net[0](torch.ones(2)).sum().backward()
    optimizer.step()
    report = collect_aliases({"a": a, "b": a, "batch": [a], "net": net, "optimizer": optimizer, "other": base()})
    assert [group.members[0].names for group in report.groups] == [
        ("a", "b", "batch[0]"), ("net.0.weight", "net.1.weight"),
    ]  # fmt: skip


def test_version_counters():
    """Views and detach count on the base's counter, .data on its own, arrays on none."""
    a = base()
    q, v, n = a.data, a[0], a.numpy()
    v.add_(1)
    found = members(a=a, v=v, q=q, n=n)
    assert (found["a"].version, found["v"].version, found["q"].version, found["n"].version) == (1, 1, 0, None)
    assert found["a"].counter == found["v"].counter
    assert found["q"].counter not in {found["a"].counter, None}
    assert found["n"].counter is None


def test_inside_of_one_member():
    """An expanded tensor repeats its own memory, a plain one does not."""
    e = torch.zeros(3)
    found = members(e=e, wide=e.expand(4, 3), plain=e[:2])
    assert {name: each.overlap for name, each in found.items()} == {"e": "no", "wide": "yes", "plain": "no"}


def test_coverage():
    """For each of the cells of the strip, which part of it is read."""
    a = base()
    found = members(a=a, odd=a.view(24)[1::2], half=a[2:])
    assert found["a"].coverage == (1.0,) * 24
    assert found["odd"].coverage == (0.0, 1.0) * 12
    assert found["half"].coverage == (0.0,) * 12 + (1.0,) * 12
    big = torch.zeros(96)
    assert members(big=big, every=big[::3])["every"].coverage == (1 / 3,) * 32


def test_coverage_of_huge_memory_is_counted_not_marked():
    """Arithmetic gives for ten thousand million bytes what marking gives for few."""
    x = torch.empty((10**5, 10**5), device="meta")
    found = members(x=x, left=x[:, : 10**5 // 2])
    assert found["left"].coverage == pytest.approx((0.5,) * 40, abs=1e-4)


def test_pairs_of_a_small_group_are_complete():
    """Every two, also those that share nothing although their ranges meet."""
    a = base()
    report = collect_aliases({"a": a, "left": a[:, ::2], "right": a[:, 1::2]})
    found = {(pair.left, pair.right): (pair.overlap, pair.overlap_elements) for pair in report.pairs}
    assert found == {("a", "left"): ("yes", 12), ("a", "right"): ("yes", 12), ("left", "right"): ("no", 0)}


def test_of_a_large_group_those_that_overlap():
    """More members than are compared each with each: neighbours that overlap are found by the sweep."""
    a = torch.zeros(100)
    windows = {f"w{at}": a[3 * at : 3 * at + 4] for at in range(SMALL + 8)}
    report = collect_aliases(windows)
    assert {(pair.left, pair.right, pair.overlap_elements) for pair in report.pairs} == {
        (f"w{at}", f"w{at + 1}", 1) for at in range(SMALL + 7)
    }
    assert report.groups[0].pairs_complete


def test_bytes_of_different_types():
    """A float32 and an int8 view of one storage: elements are counted each in its own size."""
    a = torch.zeros(4)
    (pair,) = collect_aliases({"a": a, "b": a.view(torch.int8)[3:5]}).pairs
    assert (pair.overlap_elements, pair.reverse_elements) == (2, 2)


def test_only_what_was_asked_for():
    """Groups without it are left out; an expression's result is a member under that name."""
    a, b = base(), base()
    names = {"a": a, "v": a[0], "b": b, "w": b[0]}
    report = collect_aliases(names, only={"a[1]": a[1]})
    assert [sorted(member.name for member in group.members) for group in report.groups] == [["a", "a[1]", "v"]]
    assert report.asked == ("a[1]",)


def test_what_was_asked_for_and_shares_nothing():
    """It is named, also beside others that do; a model that shares one parameter is not."""
    x, y, net = torch.ones(3), torch.ones(4), torch.nn.Linear(2, 2)
    namespace = {"x": x, "y": y, "net": net, "tied": net.bias}
    asked = {"x": x, "x[1:]": x[1:], "x.clone()": x.clone(), "y": y, "net": net, "5": 5}
    assert collect_aliases(namespace, only=asked).unshared == ("x.clone()", "y")
    assert collect_aliases(namespace).unshared == ()


def test_what_is_alone():
    """Counted, with its bytes: nothing is listed that shares with no other."""
    report = collect_aliases({"a": base(), "n": np.zeros(3), "t": torch.zeros(0)})
    assert (report.groups, report.alone, report.alone_bytes) == ((), 3, 96 + 24)
    assert (report.tensors, report.arrays) == (2, 1)


def test_many_groups_are_cut_with_their_number():
    """The report holds the first, and says how many there are."""
    report = collect_aliases({f"t{at}": (x := torch.zeros(2), x[1:]) for at in range(MOST_GROUPS + 50)})
    assert (len(report.groups), report.groups_found) == (MOST_GROUPS, MOST_GROUPS + 50)


def test_tensors_without_memory_share_by_their_storage():
    """On the meta device there is no address; views share all the same, and strangers do not."""
    x, y = torch.zeros(4, device="meta"), torch.zeros(4, device="meta")
    assert sorted(members(x=x, y=y, v=x[1:])) == ["v", "x"]


def test_nothing_is_changed_or_kept():
    """Versions and random state stay; no tensor outlives its names because it was looked at."""
    a = base()
    names = {"a": a, "v": a[0], "q": a.data, "held": [a.t()]}
    versions, state = [item._version for item in (a, names["v"])], torch.get_rng_state()
    report = collect_aliases(names)
    assert [item._version for item in (a, names["v"])] == versions
    assert torch.equal(torch.get_rng_state(), state)
    gone = [weakref.ref(a), weakref.ref(names["v"])]
    del a, names
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert report.groups[0].found == 4


def test_the_api():
    """By default the caller's globals; misuse says what was expected."""
    globals()["SHARED_HERE"] = torch.zeros(4)
    globals()["ITS_HALF"] = globals()["SHARED_HERE"][:2]
    try:
        report = api.aliases()
    finally:
        del globals()["SHARED_HERE"], globals()["ITS_HALF"]
    assert {member.name for member in report.groups[0].members} == {"SHARED_HERE", "ITS_HALF"}
    with pytest.raises(TensorMagicError, match=r'aliases\(\) takes names .*\{"x": x\}.* a torch.Tensor'):
        api.aliases(torch.zeros(1))
