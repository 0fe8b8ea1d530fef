"""Watched writes on real tensors: whose elements changed, how many, which first, and what is no surprise."""

from __future__ import annotations

import copy
import gc
import math
import threading
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.aliasing import writes
from tensormagic.errors import TraceError


def watched(source, names=None):
    """Run source as a cell of its own; return its report and its names."""
    names = {"torch": torch, "nn": nn, "np": np, "copy": copy, **(names or {})}
    with tm.watch_writes(namespace=names) as watch:
        run_as_cell(source, names)
    return watch.report


def run_as_cell(source, names):
    import linecache

    filename = f"<cell {abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, [line + "\n" for line in source.split("\n")], filename)
    exec(compile(source, filename, "exec"), names)


def changes(report):
    """Return what changed besides, as (line, target, name, elements, of)."""
    return [
        (write.location.line, write.target, name.name, name.elements, name.of_elements)
        for write in report.writes
        for name in write.changed
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("b = a.t()\nb[0, 1] = 7", [(2, "b", "a", 1, 12)]),
        ("b = a.t()\na[1] = 0", [(2, "a", "b", 4, 12)]),
        ("b = a[:, ::2]\na[:, 1::2].zero_()", []),
        ("b = a[1:]\nb.add_(1)", [(2, "b", "a", 8, 12)]),
        ("b = a[[0, 1]]\nb.add_(1)", []),
        ("b = a.view(-1)\na[a > 9] = 0", [(2, "a", "b", 2, 12)]),
        ("b = a.flatten()\na[[0, 2], 1] = 5", [(2, "a", "b", 2, 12)]),
        ("b = a.detach()\nb.mul_(2)", [(2, "b", "a", 12, 12)]),
        ("b = a.view(torch.int32)\nb[0, :2] = 1", [(2, "b", "a", 2, 12)]),
        ("b = [a[0], {'k': a[1]}]\na.zero_()", [(2, "a", "b[0]", 4, 4), (2, "a", "b[1]['k']", 4, 4)]),
        ("b = a.numpy()\na.add_(1)", [(2, "a", "b", 12, 12)]),
        ("b = a.numpy()[1]\na[0] = 1", []),
        ("b = torch.from_dlpack(a)\na[0] = 1", [(2, "a", "b", 4, 12)]),
        ("b = torch.from_dlpack(a)\nb[0] = 1", [(2, "b", "a", 4, 12)]),
        ("b = np.from_dlpack(a)[1:]\na[2] = 1", [(2, "a", "b", 4, 8)]),
        ("b = torch.frombuffer(a.numpy(), dtype=torch.float32)[6:]\na[1:] = 1", [(2, "a", "b", 6, 6)]),
        ("b = a.expand(2, 3, 4)\na[0, 0] = 1", [(2, "a", "b", 2, 24)]),
        ("b = a\nb += 1", [(2, "b", "a", 12, 12)]),
        ("torch.add(a, 1, out=a)\nb = a.t()\ntorch.mul(a, 2, out=a)", [(3, "a", "b", 12, 12)]),
        ("b = a[2]\nfor i in range(3):\n    a[i] = i", [(3, "a", "b", 4, 4)]),
    ],
)
def test_the_elements_of_other_names(source, expected):
    """Name, number of elements and size, for every way of sharing and of writing; no name where nothing is shared."""
    assert changes(watched(source, {"a": torch.arange(12.0).view(3, 4).clone()})) == expected


@pytest.mark.parametrize(
    "source",
    [
        "a[0] = 1\na.t().zero_()\na.data.mul_(2)\na.view(-1)[3:].add_(1)",
        "for row in a:\n    row.zero_()",
        "for t in (a, c):\n    t.zero_()",
        "a += 1\na = a * 2\na.mul_(3)",
        "with torch.no_grad():\n    for p in net.parameters():\n        p -= 0.1",
        "nn.init.zeros_(net[0].weight)\nnet[0].weight.data.fill_(1)\nnet[0].bias.data[0] = 3",
        "holder = type('Holder', (), {})()\nholder.buffer = torch.zeros(3)\nholder.buffer[0] = 1",
        "def step(x):\n    x.add_(1)\n    return x\nstep(a)",
        "row = a[0]\ndel row\na[0] = 1",
        "def scaled(x):\n    return x.mul_(2)\na = scaled(a)\nb = scaled(a * 1)",
        "relu = nn.ReLU(inplace=True)\na = relu(a)\nc = torch.relu_(c)",
        "net.load_state_dict(net.state_dict())",
    ],
)
def test_what_the_line_says_itself_is_no_change_of_another_name(source):
    """Writing through a name's own view, over a loop's tensor, or to a module's parameters."""
    names = {"a": torch.arange(12.0).view(3, 4).clone(), "c": torch.ones(2), "net": nn.Sequential(nn.Linear(2, 2))}
    report = watched(source, names)
    assert report.writes_seen > 0 or "load_state_dict" in source
    assert changes(report) == []
    assert report.gaps == ()


@pytest.mark.parametrize(
    "source",
    [
        "torch.swapaxes(a, 0, 1)[0] = 2",
        "torch.narrow(a, 0, 1, 2).add_(3)",
        "a.__setitem__(0, 3)",
        "torch.from_dlpack(a)[1:].add_(1)",
    ],
)
def test_a_view_that_a_function_made_is_called_by_the_tensor_that_it_is_of(source):
    """The line names no tensor that it writes through: what was written to is the one whose memory it is."""
    names = {"a": torch.zeros(3, 4)}
    names["b"] = names["a"].view(-1)
    (write,) = watched(source, names).writes
    assert (write.target, [changed.name for changed in write.changed]) == ("a", ["b"])


def test_a_sparse_tensor_is_called_by_its_name():
    """It has no storage by which to know it."""
    (write,) = watched("s.mul_(2)", {"s": torch.eye(3).to_sparse()}).writes
    assert (write.target, write.shape) == ("s", (3, 3))


def test_the_first_element_and_where_they_lie():
    """Index of the first changed element in the other name's own terms, and a digit an element."""
    report = watched("b = a[1:, 1:]\nb.zero_()", {"a": torch.arange(12.0).view(3, 4).clone()})
    (changed,) = report.writes[0].changed
    assert (changed.first, changed.marks, changed.extent) == ((1, 1), "000009990999", "around")
    assert (changed.certain, changed.noticed, changed.relation) == (True, True, "base")


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("source", [
    "x.unfold(0, 2, 1).masked_fill_(mask, 7)", "x.expand(2, 4).index_fill_(0, torch.tensor([0]), 7)",
    "x.expand(2, 4)[wide] = 7",
])  # fmt: skip
def test_some_elements_of_what_overlaps_itself(source):
    """An element that several indices are was changed where any of them was written to."""
    names = {"x": torch.zeros(4), "mask": torch.tensor([[False, True], [False, False], [False, False]])}
    names |= {"wide": torch.tensor([[False, True, False, True], [True, False, False, False]]), "y": names["x"].numpy()}
    (write,) = watched(source, names).writes
    (changed,) = (one for one in write.changed if one.name == "y")
    assert changed.marks == "".join("9" if value else "0" for value in names["y"])


def test_float8_that_overlaps_itself_is_inspected():
    """float8 has no arithmetic of its own."""
    source = "u = x.unfold(0, 2, 1)\nu[torch.tensor([0, 1])] = 1"
    report = watched(source, {"x": torch.zeros(4).to(torch.float8_e4m3fn)})
    assert (report.writes_seen, report.gaps) == (1, ())


def test_an_array_that_walks_backwards_is_told_in_its_own_order():
    """NumPy has negative strides: the first changed element and the marks are those of the array as it is indexed."""
    source = "b = a.numpy()[::-1, ::2]\na[0, 1:] = 7"
    names = {"a": torch.arange(12.0).view(3, 4).clone()}
    (changed,) = watched(source, names).writes[0].changed
    assert (changed.elements, changed.first, changed.marks) == (1, (2, 1), "000009")
    assert names["a"].numpy()[::-1, ::2][changed.first] == 7


@pytest.mark.parametrize(
    ("source", "wrong", "index", "got", "expected"),
    [
        ("x -= x[:, :1]", 6, (1, 1), "5", "1"),
        ("x[:, 1:] += x[:, :-1]", 6, (0, 2), "3", "3"),
        ("x[:, 1:] = x[:, :-1]", 6, (0, 2), "0", "1"),
        ("torch.mv(y, v, out=v)", 2, (1,), "29", "14"),  # of integers: with BLAS the processor decides
        ("u = z.unfold(0, 3, 1)\nu.add_(1)", 10, (0, 1), "3", "2"),
    ],
)
def test_a_write_that_reads_what_it_writes_is_compared(source, wrong, index, got, expected):
    """How many elements are wrong, which is the first, and what it should be, against brute force on copies."""
    names = {"x": torch.arange(12.0).view(3, 4), "z": torch.arange(6.0)}
    names |= {"y": torch.arange(9).view(3, 3), "v": torch.arange(3)}
    apart = {name: tensor.clone() for name, tensor in names.items()}
    clash = next(write.clash for write in watched(source, names).writes if write.clash)
    if source.startswith("x"):
        run_as_cell(source + ".clone()", {"torch": torch, **apart})
        differing = (names["x"] != apart["x"]).nonzero()
        assert clash.wrong == len(differing)
        assert clash.index == tuple(differing[0].tolist())
        assert (clash.got, clash.expected) == (f"{names['x'][clash.index]:g}", f"{apart['x'][clash.index]:g}")
    else:
        assert (clash.wrong, clash.index, clash.got, clash.expected) == (wrong, index, got, expected)


@pytest.mark.parametrize(
    "source",
    [
        "x += x",
        "x[:, :2] += x[:, 2:]",
        "x.mul_(x.t().contiguous().t())",
        "torch.cumsum(x, 1, out=x)",
        "x[[0, 1]] = x[[1, 0]]",
        "x.addcmul_(x, x)",
        "e = torch.zeros(3).expand(2, 3)\ne.fill_(1)\ne.zero_()",
        "torch._foreach_add_([x, y], [y, y])",
    ],
)
def test_operands_that_may_share_are_no_clash(source):
    """The same elements one by one, separate columns, and ops that come out right."""
    names = {"x": torch.arange(9.0).view(3, 3), "y": torch.ones(3, 3)}
    if "[:, 2:]" in source:
        names["x"] = torch.arange(12.0).view(3, 4)
    assert [write.clash for write in watched(source, names).writes if write.clash] == []


def test_a_part_of_an_expanded_tensor():
    """e[0] = 1 changes six indices of e, not three."""
    (write,) = watched("e[0] = 1", {"e": torch.zeros(3).expand(2, 3)}).writes
    assert (write.clash.kind, write.clash.tensor, write.clash.elements, write.clash.of_elements) == (
        "repeats",
        "e",
        6,
        3,
    )


@pytest.mark.parametrize(
    ("source", "kind", "elements"),
    [("x[1:] += x[:-1]", "reads what it writes", 10), ("e.add_(1)", "overlaps itself", 3)],
)
def test_what_torch_refuses_is_said_and_raised(source, kind, elements):
    """The error is the user's, the clash stands in the report."""
    names = {"torch": torch, "x": torch.arange(12.0), "e": torch.zeros(3).expand(2, 3)}
    with pytest.raises(RuntimeError, match="clone"), tm.watch_writes(namespace=names) as watch:
        run_as_cell(source, names)
    (write,) = watch.report.writes
    assert (write.clash.kind, write.clash.elements, write.clash.refused) == (kind, elements, True)
    assert watch.report.state == "failed"


def test_a_write_behind_autograd_s_back():
    """w.data.mul_ where a graph holds w; through detach autograd notices; where nothing holds it, nothing is said."""
    names = {"s": torch.ones(3, requires_grad=True)}
    report = watched("w = s * 2\nq = w.pow(2)\nw.data.mul_(10)\nq.sum().backward()", names)
    (changed,) = report.writes[0].changed
    assert (changed.name, changed.relation, changed.noticed, changed.saved) == ("w", "itself", False, True)
    assert names["s"].grad.tolist() == [80, 80, 80]  # 8 is right
    assert changes(watched("w = s * 2\nw.data.mul_(10)", names)) == []
    assert changes(watched("w = s * 2\nq = w.pow(2)\nw.detach().mul_(10)", names)) == []


@pytest.mark.parametrize("kept", ["w.detach()", "w.data", "w", "w.view(3)"])
def test_a_list_of_snapshots_that_are_none(kept):
    """Every item is the same memory; the list is named once, with how many items there were."""
    report = watched(
        f"history = []\nfor _ in range(6):\n    w.add_(1)\n    history.append({kept})", {"w": torch.zeros(3)}
    )
    (changed,) = report.writes[0].changed
    assert (changed.name, changed.relation) == ("history", "item of a list")
    assert changed.items >= 3


def test_a_loop_is_one_write_with_a_count():
    """A thousand writes on one line; the one row that another name holds is found although names were known before."""
    names = {"out": torch.zeros(1000, 4)}
    names["row"] = names["out"][777]
    report = watched("for i in range(1000):\n    out[i] = i", names)
    (write,) = report.writes
    assert (write.count, write.target, report.writes_seen) == (1000, "out", 1000)
    assert [(name.name, name.elements, name.writes) for name in write.changed] == [("row", 4, 1)]


def test_every_statement_of_a_line_says_what_it_writes_to():
    """And what one of them is given is not said to be changed by its call."""
    for other in ("torch.ones(2)", "torch.ones(2, 2)"):  # a number is written to one element, and to several
        report = watched(f"b = a[:1]; c = {other}\na[0] = 1; c[0] = 2", {"a": torch.zeros(3, 4)})
        assert {write.target for write in report.writes} == {"a", "c"}
        assert changes(report) == [(2, "a", "b", 4, 4)]
    report = watched("d = torch.sum(c); c.view(2).mul_(2)", {"c": torch.ones(2)})
    assert changes(report) == []


def test_the_names_of_a_function_that_is_running():
    """Local names count while their function runs, and are not kept."""
    source = "def work():\n    x = torch.zeros(4)\n    first = x[:2]\n    x.add_(1)\n    return 0\nwork()"
    assert changes(watched(source)) == [(4, "x", "first", 2, 2)]


def test_no_local_name_is_kept_alive_by_looking():
    """What a function lets go of is gone, also after its names were looked up (Python 3.11 keeps such a dictionary)."""
    names = {"gone": [], "weakref": weakref, "gc": gc}
    source = (
        "def work():\n    x = torch.zeros(4)\n    y = x[:2]\n    y.add_(1)\n    seen = weakref.ref(x)\n    del x, y\n"
        "    gc.collect()\n    gone.append(seen() is None)\nwork()"
    )
    watched(source, names)
    assert names["gone"] == [True]


def test_backward_adds_up_gradients_itself():
    """Accumulation into .grad is counted, not listed; what a user's own backward writes is listed."""
    names = {"w": torch.ones(3, requires_grad=True)}
    report = watched("for _ in range(3):\n    (w * 2).sum().backward()", names)
    assert (report.writes, report.engine_writes) == ((), 2)
    source = (
        "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.clone()\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g.clone().mul_(2)\n"
        "Twice.apply(w).sum().backward()"
    )
    assert [(write.location.line, write.op) for write in watched(source, names).writes] == [(7, "mul_")]


def test_ops_that_change_no_element_are_no_writes():
    """Shape and stride, a new storage, requires_grad, and a copy onto itself."""
    report = watched("x.t_()\nx.unsqueeze_(0)\nx.resize_(2)\ny.copy_(y)\nx.set_()\ny.requires_grad_()",
                     {"x": torch.zeros(2, 3), "y": torch.zeros(2)})  # fmt: skip
    assert report.writes == ()


def test_odd_tensors_are_written_to_without_a_gap():
    """Sparse, meta, empty, complex, conjugated, 0-d, bfloat16, inference and quantized ones."""
    source = (
        "s.mul_(2)\nm.add_(1)\nz.add_(1)\nc.conj().mul_(2)\nd.fill_(3)\nh.mul_(2)\n"
        "with torch.inference_mode():\n    i = torch.ones(3)\n    v = i[1:]\n    v.zero_()"
    )
    names = {
        "s": torch.eye(3).to_sparse(), "m": torch.zeros(2, device="meta"), "z": torch.zeros(0, 3),
        "c": torch.ones(2, dtype=torch.complex64), "d": torch.zeros(()), "h": torch.ones(3, dtype=torch.bfloat16),
    }  # fmt: skip
    report = watched(source, names)
    assert report.gaps == ()
    assert ("v", "i") in {(write.target, name.name) for write in report.writes for name in write.changed}


def test_compiled_code_stays_compiled():
    """torch.compile makes its graph under the watch, and gives the same."""
    import torch._dynamo

    torch._dynamo.reset()
    frames = []
    doubled = torch.compile(lambda x: x.sin() * 2, backend=lambda module, _: frames.append(1) or module.forward)
    with tm.watch_writes(namespace={}):
        result = doubled(torch.ones(3))
    assert frames == [1]
    assert torch.equal(result, torch.ones(3).sin() * 2)


def test_versions_and_random_numbers_are_untouched():
    """Counters count the user's writes alone; no number is drawn."""
    x = torch.zeros(3, 4)
    row = x[0]
    before = torch.get_rng_state()
    with tm.watch_writes(namespace={"x": x, "row": row}):
        x[:, 1:] += x[:, :-1]
    assert x._version == 2  # add_, and setitem's copy onto itself
    assert torch.equal(torch.get_rng_state(), before)


def test_a_watch_is_used_once_and_keeps_nothing():
    """A second start is refused; the tensors of the run are gone when the user lets go."""
    x = torch.zeros(3)
    names = {"x": x}
    watch = tm.watch_writes(namespace=names)
    with watch:
        names["y"] = x[1:]
        x.add_(1)
    with pytest.raises(TraceError, match="used before"):
        watch.__enter__()
    reference = weakref.ref(x)
    names.clear()
    del x
    gc.collect()
    assert reference() is None
    assert watch.report.writes_seen == 1


def test_an_optimizer_changes_what_it_is_there_for():
    """Adam and SGD, clipping, batch norm, EMA: no other name; a state_dict that is still around is one."""
    source = (
        "opt = kind(net.parameters(), lr=0.1, foreach=foreach)\nema = copy.deepcopy(net)\nfor _ in range(3):\n"
        "    opt.zero_grad(set_to_none=False)\n    net(torch.ones(4, 2)).sum().backward()\n"
        "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n"
        "    for e, p in zip(ema.parameters(), net.parameters()):\n        e.data.mul_(0.9).add_(p.data, alpha=0.1)"
    )
    for kind in (torch.optim.Adam, torch.optim.SGD):
        for foreach in (False, True):
            net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True), nn.Linear(3, 1))
            names = {"net": net, "kind": kind, "foreach": foreach}
            assert changes(watched(source, names)) == []
    names["best"] = net.state_dict()
    found = {name for _, _, name, elements, of in changes(watched(source, names)) if elements == of}
    assert found == {f"best[{name!r}]" for name in net.state_dict()}


def test_a_line_for_which_no_names_could_be_looked_up_is_a_gap(monkeypatch):
    """Looking is limited where it takes long; what was missed by it is said, and the first line is not."""
    monkeypatch.setattr(writes, "FIRST_SEARCHES", -1.0)
    monkeypatch.setattr(writes, "SEARCH_SHARE", math.inf)
    a, b = torch.zeros(4), torch.zeros(4)
    names = {"a": a, "b": b}
    with tm.watch_writes(namespace=names) as watch:
        names["view"] = a[1:]
        a.add_(1)
        names["other"] = b[1:]
        b.add_(1)
    first, second = watch.report.writes
    assert [changed.name for changed in first.changed] == ["view"]
    assert second.changed == ()
    (gap,) = watch.report.gaps
    assert gap.section == "names"
    assert "not searched again for the writes of one line" in gap.reason


def test_what_writes_to_nothing_and_what_has_no_name():
    """Batch norm without running statistics writes to nothing; a global that a function hands on has no local name."""
    report = watched("nn.InstanceNorm2d(4)(torch.randn(2, 4, 3, 3))")
    assert report.gaps == ()
    source = """cell = nn.LSTMCell(1, 5)
x = torch.randn(4, 1)
optimizer = torch.optim.LBFGS(cell.parameters())
def closure():
    h, _ = cell(x)
    loss = h.square().mean()
    loss.backward()
    return loss
optimizer.step(closure)"""
    assert watched(source).gaps == ()


def test_the_tensor_that_changed_another_is_named():
    """An optimizer writes to many tensors: the one whose memory another name shares is told of, not the first."""
    source = """first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
optimizer = torch.optim.Adam([first, second])
for _ in range(3):
    seen = second.expand(20)
    (seen * first).sum().backward()
    optimizer.step()"""
    (found,) = [name for write in watched(source).writes for name in write.changed if name.name == "seen"]
    assert (found.through, found.at_least) == ("second", False)


def test_what_was_compared_with_a_write_is_freed_at_once():
    """The copies on which a suspicious op is done again keep nothing of the user's until Python looks for cycles."""
    names = {"x": torch.arange(12.0).view(3, 4).clone()}
    gc.collect()
    gc.disable()
    try:
        with tm.watch_writes(namespace=names) as watch:
            run_as_cell("x -= x[:, :1]", names)
        gone = weakref.ref(names.pop("x"))
        assert watch.report.writes[-1].clash
        assert gone() is None
    finally:
        gc.enable()


def test_a_slot_that_is_still_empty_is_no_way_to_a_tensor():
    source = "class Held:\n    __slots__ = ('kept',)\nheld = Held()\nheld.kept = z.mul_(2)"
    y = torch.ones(3)
    report = watched(source, {"y": y, "z": y[1:]})
    assert changes(report) == [(4, "z", "y", 2, 3)]
    assert report.gaps == ()


def test_an_object_on_the_way_to_a_tensor_is_not_asked_for_its_class():
    source = (
        "class Proxy:\n    __class__ = property(lambda self: asked.append(1))\n"
        "held = Proxy()\nheld.__dict__['kept'] = z\nheld.kept += 1"
    )
    y, asked = torch.ones(3), []
    report = watched(source, {"y": y, "z": y[1:], "asked": asked})
    assert changes(report) == [(5, "held.kept", "y", 2, 3)]
    assert asked == []


def test_a_write_of_another_thread_is_not_denied():
    """It is not seen: where nothing was, the version counter of what has a name shows that it happened."""
    source = "thread = threading.Thread(target=x.add_, args=(1,))\nthread.start()\nthread.join()"
    report = watched(source, {"x": torch.zeros(3), "y": torch.ones(3), "threading": threading})
    assert not report.writes
    assert [gap.reason for gap in report.gaps] == [
        "x changed by writes that were not seen: of another thread, or within a compiled function"
    ]
    assert watched("y = x + 1", {"x": torch.zeros(3)}).gaps == ()


def test_a_write_of_another_thread_is_told_beside_writes_that_were_seen():
    """What the own thread wrote accounts for what it did, in place or laid out anew, and for no more."""
    names = {"x": torch.zeros(3), "y": torch.ones(3), "z": torch.ones(3), "threading": threading}
    other = "thread = threading.Thread(target=lambda: [x.add_(1), x.add_(1), y.add_(1)])\nthread.start()\nthread.join()"
    report = watched(f"x.mul_(2)\nz.add_(1)\n{other}", names)
    assert report.writes_seen == 2
    assert [gap.reason for gap in report.gaps] == [
        "x and y changed by writes that were not seen: of another thread, or within a compiled function"
    ]


@pytest.mark.parametrize("source", ["x.t_()", "x.unsqueeze_(0); x.add_(1)", "x.resize_(2)", "Dirty.apply(x)"])
def test_what_raises_a_version_counter_on_the_own_thread_is_no_unseen_write(source):
    """Laying out anew raises it, too, and a Function that marks what it wrote raises it twice."""

    class Dirty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(_, gradient):
            return gradient

    assert watched(source, {"x": torch.zeros(3), "Dirty": Dirty}).gaps == ()


def test_looking_for_unseen_writes_asks_no_class_for_its_hash_and_holds_no_weak_reference():
    """A class whose own class has an ``__eq__`` has no hash; torch swaps no tensor that has such a reference."""

    class Equal(type):
        def __eq__(cls, other):
            return NotImplemented

        __hash__ = None

    class Odd(metaclass=Equal):
        pass

    names = {"odd": Odd(), "x": torch.zeros(3), "weakref": weakref}
    with tm.watch_writes(namespace=names) as watch:
        run_as_cell("references = weakref.getweakrefcount(x)", names)
    assert not watch.report.gaps
    assert names["references"] == 0


@pytest.mark.parametrize("line", [
    "w.add_(1)", "w += 1", "torch._foreach_add_([w], 1)", "torch._foreach_add_(held, 1)", "exec('w.add_(1)')",
    "getattr(w, 'add_')(1)", "w.__iadd__(1)", "operator.iadd(w, 1)", "functools.partial(w.add_, 1)()",
    "torch.ops.aten.add_.Scalar(w, 1)", "w.__setitem__(slice(None), 1.0)",
])  # fmt: skip
def test_a_view_with_a_name_changes_its_base_however_the_line_writes(line):
    report = watched(f"import functools, operator\nbase = torch.zeros(3, 4)\nw = base[0]\nheld = [w]\n{line}")
    assert [change[1:] for change in changes(report)] == [("w", "base", 4, 12)]


@pytest.mark.parametrize(
    "line", ["base[0].add_(1)", "torch._foreach_add_([base[0]], 1)", "nn.ReLU(inplace=True)(base[0])"]
)
def test_a_view_without_a_name_is_its_base(line):
    assert not changes(watched(f"base = torch.zeros(3, 4)\n{line}"))


@pytest.mark.parametrize("kind", [nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer])
def test_a_lazy_module_that_has_not_run_is_loaded(kind):
    """As ``lazy.load_state_dict(other.state_dict())`` does: such a tensor has no shape that could be asked for."""
    net, other = nn.LazyLinear(3), nn.LazyLinear(3)
    lazy, given = kind(), kind()
    with tm.watch_writes(namespace={}) as watch, torch.no_grad():
        net.load_state_dict(other.state_dict())
        lazy.copy_(given)
        torch.zeros(3).add_(1)
    assert watch.report.gaps == ()
    assert watch.report.writes_seen == 1


def test_what_cannot_be_inspected_is_a_gap_and_the_write_is_made(monkeypatch):
    """Whatever goes wrong in looking is said, and never raised into the run."""

    def odd(*_given):
        raise ValueError("odd")

    x = torch.zeros(3)
    for look in ("does_write", "innermost_own"):
        with monkeypatch.context() as patch:
            patch.setattr(writes, look, odd)
            with tm.watch_writes(namespace={}) as watch:
                x.add_(1)
        assert "odd" in watch.report.gaps[0].reason
    assert x.tolist() == [2, 2, 2]


def test_what_only_a_closure_leads_to_is_called_by_the_name_that_can_be_typed():
    """An engine that is handed to its own step holds the model, too, and by no expression."""
    source = """
class Engine:
    def __init__(self, step):
        self.step = step
def main():
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def step(engine):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        str(trainer)
    trainer = Engine(step)
    trainer.step(trainer)
main()"""
    report = watched(source)
    assert {write.target for write in report.writes} - {""} == {"net.weight"}
    assert changes(report) == []
