"""The table of all tensors: one row an object, its memory counted once, whatever kind it is."""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic import api


def rows(**namespace):
    """The rows by name."""
    return {row.name: row for row in api.tensors(namespace).rows}


def test_a_row():
    """What is told of a tensor, an array, a parameter."""
    found = rows(a=torch.zeros(2, 3, dtype=torch.float16), n=np.zeros(3), net=nn.Linear(2, 1, bias=False))
    assert [(row.kind, row.dtype, row.shape, row.device, row.nbytes) for row in found.values()] == [
        ("Tensor", "float16", (2, 3), "cpu", 12),
        ("ndarray", "float64", (3,), "cpu", 24),
        ("Parameter", "float32", (1, 2), "cpu", 8),
    ]


def test_buffers_are_told_apart():
    """What a module has registered is a buffer, in containers too; what merely lies in it is a tensor."""
    net = nn.BatchNorm1d(2, affine=False)
    net.loose = torch.zeros(2)
    found = rows(nets=[nn.Sequential(net)], seen=net.running_mean)
    assert {name.rpartition(".")[2]: row.kind for name, row in found.items()} == {
        "seen": "buffer", "running_var": "buffer", "num_batches_tracked": "buffer", "loose": "Tensor",
    }  # fmt: skip


def test_one_row_an_object():
    """Several names are counted, the shortest is shown."""
    a = torch.zeros(2)
    (row,) = api.tensors({"batch": [a], "a": a, "b": a}).rows
    assert (row.name, row.names) == ("a", 3)


def test_groups_and_totals():
    """Rows of one storage have one number, in the order in which they are met; their memory is counted once."""
    lone, a = torch.zeros(5), torch.zeros(4, 6)
    n = np.zeros(3)
    table = api.tensors({"lone": lone, "n": n, "t": torch.from_numpy(n), "a": a, "v": a[0], "x": a.numpy()})
    assert {row.name: row.group for row in table.rows} == {"lone": 0, "n": 1, "t": 1, "a": 2, "v": 2, "x": 2}
    (total,) = table.totals
    assert (total.device, total.tensors, total.storages, total.nbytes) == ("cpu", 6, 3, 20 + 24 + 96)
    assert table.groups == 2


def test_gradient_states():
    """Leaf, leaf with gradient, made by an operation, not tracked; read without a warning."""
    w, u = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = w * 2
    y.sum().backward()
    z = w * 3
    part, view = (w * 4).chunk(2)[0], z.view(2, 1)
    with torch.no_grad():
        part.mul_(2)
    z.add_(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows(w=w, u=u, y=y, plain=torch.ones(1), part=part, view=view)
    assert {name: row.gradient for name, row in found.items()} == {
        "w": "leaf, grad", "w.grad": "", "u": "leaf", "y": "MulBackward0", "plain": "",
        "part": "tracked", "view": "tracked",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
def test_odd_kinds():
    """Sparse and nested tensors count what they are made of; meta, fake and empty ones have their row."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3)
    values, offsets = torch.zeros(5, 2), torch.tensor([0, 2, 5])
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets)
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    found = rows(csr=torch.eye(3).to_sparse_csr(), jagged=jagged, nested=nested, fake=fake,
                 meta=torch.zeros(3, device="meta"), empty=torch.zeros(0), values=values)  # fmt: skip
    assert (found["csr"].layout, found["csr"].nbytes) == ("sparse_csr", 4 * 8 + 3 * 8 + 3 * 4)
    assert (found["jagged"].layout, found["jagged"].nbytes) == ("jagged", 40 + 24)
    assert (found["jagged"].shape, found["nested"].shape) == ((2, -1, 2), (2, -1, 3))
    assert "(2, ragged, 3)" in str(api.tensors({"nested": nested, "values": values}))
    assert found["jagged"].group == found["values"].group == 1
    assert (found["meta"].device, found["empty"].nbytes, found["fake"].kind) == ("meta", 0, "FakeTensor")


def test_a_wrapper_of_functorch():
    """Inside of vmap a tensor has no storage to be asked for: a row without memory."""
    seen = []

    def body(x):
        seen.append(rows(x=x))
        return x

    torch.vmap(body)(torch.zeros(3, 2))
    assert seen[0]["x"].shape == (2,)


def test_totals_by_device():
    """What lies nowhere is not added to what lies on the CPU."""
    totals = api.tensors({"a": torch.zeros(2), "m": torch.zeros(10, device="meta")}).totals
    assert {total.device: total.nbytes for total in totals} == {"cpu": 8, "meta": 40}


def test_ten_thousand_in_one_list():
    """None is left out."""
    table = api.tensors({"ts": [torch.zeros(1) for _ in range(10_000)]})
    assert (len(table.rows), table.totals[0].nbytes, table.gaps) == (10_000, 40_000, ())


def test_nothing_is_kept():
    """The table holds no tensor."""
    a = torch.zeros(2)
    table = api.tensors({"a": [a], "n": np.zeros(2)}, panels=2)
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None
    assert [(panel.name, panel.type_name) for panel in table.panels] == [("a[0]", "Tensor"), ("n", "ndarray")]


def test_the_api():
    """A collection under its name; panels on request, with their findings."""
    base = torch.zeros(4).add_(1)
    batch = {"x": base[1:], "y": (torch.tensor([float("nan")]),)}
    table = api.tensors({"batch": batch}, title="batch", panels=2, around={"base": base})
    assert [row.name for row in table.rows] == ["batch['x']", "batch['y'][0]"]
    assert [[finding.code for finding in panel.findings] for panel in table.panels] == [["TM201"], ["TM401"]]
