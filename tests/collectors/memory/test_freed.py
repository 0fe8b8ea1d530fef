"""What letting go of one name frees: the cases that people meet, in bytes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.aliasing.aliases import Budget
from tensormagic.collectors.memory.flow import bits
from tensormagic.collectors.memory.freed import CYCLES, ELSEWHERE, collect_freeable, look
from tensormagic.reports import FreeableMemory
from tests.collectors.memory.freeing_programs import freed_by, run


@pytest.fixture(autouse=True)
def _no_error_of_before() -> Iterator[None]:
    """Look without the last error that the test runner may have left."""
    names = ("last_exc", "last_value", "last_traceback", "last_type")
    kept = {name: vars(sys).pop(name) for name in names if name in vars(sys)}
    yield
    vars(sys).update(kept)


def released(source: str) -> dict[str, FreeableMemory]:
    """Run a program and return what would be freed, by name."""
    namespace: dict[str, Any] = {"__name__": "program", "torch": torch, "nn": nn, "np": np}
    exec(source, namespace)
    gc.collect()
    return {one.name: one for one in collect_freeable(namespace).freeable}


def test_a_tensor_frees_its_storage() -> None:
    """A name that alone holds a tensor frees its bytes, and says how."""
    found = released("x = torch.zeros(10)")["x"]
    assert (found.nbytes, found.storages, found.reaches, found.shared_with) == (40, 1, 40, ())
    assert (found.code, found.device_bytes, found.kind) == ("del x", {"cpu": 40}, "name")


def test_a_view_frees_the_whole_storage_where_it_is_alone() -> None:
    """Of a view whose base has no name the whole storage goes."""
    assert released("v = torch.zeros(100)[3:5]")["v"].nbytes == 400


def test_what_a_storage_has_as_an_attribute_goes_with_it() -> None:
    """A storage is an object of Python's, too, and can hold tensors."""
    found = released("x = torch.zeros(6)\nx.untyped_storage().mine = torch.zeros(7)")
    assert found["x"].nbytes == 52


def test_a_view_and_its_base_go_together() -> None:
    """Neither of two names of one storage frees it; both do, and that is offered."""
    found = released("x = torch.zeros(100)\nv = x[3:5]")
    assert (found["x"].nbytes, found["x"].reaches, found["x"].shared_with) == (0, 400, ("v",))
    assert (found["x, v"].nbytes, found["x, v"].code) == (400, "del x, v")


def test_a_model_frees_its_buffers_while_an_optimizer_is_there() -> None:
    """The optimizer holds the parameters: the model's name frees its buffers, and the optimizer is named."""
    made = (
        "model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\n"
        "opt = torch.optim.Adam(model.parameters())\n"
        "model(torch.zeros(2, 8)).sum().backward()\nopt.step()"
    )
    found = released(made)
    parameters, buffers = 4 * (32 + 4 + 8), 4 * (4 + 4) + 8
    assert (found["model"].nbytes, found["model"].shared_with) == (buffers, ("opt",))
    assert found["opt"].nbytes == 2 * parameters + 4 * 4  # what Adam remembers, and four counts of steps
    assert found["model, opt"].nbytes == 4 * parameters + buffers + 16  # with the gradients


def test_a_loss_frees_what_its_graph_saved() -> None:
    """Activations that backward has not consumed go with the loss; after backward only the loss's own bytes do."""
    made = "w = torch.zeros(50, requires_grad=True)\nloss = (w * 2).exp().sum()"
    assert released(made)["loss"].nbytes == 4 + 200 + 8  # the loss, the result of exp, and the number 2
    assert released(f"{made}\nloss.backward()")["loss"].nbytes == 4


def test_a_list_of_losses_frees_their_graphs() -> None:
    """A list is one name: it frees all that only its items lead to."""
    found = released("w = torch.ones(50, requires_grad=True)\nlosses = [(w * 2).exp().sum() for _ in range(3)]")
    assert found["losses"].nbytes == 3 * (4 + 200 + 8)


def test_a_cycle_is_freed() -> None:
    """Objects that refer to each other are freed with the name that leads to them."""
    found = released("a = [torch.zeros(5)]\na.append(a)")
    assert found["a"].nbytes == 20


def test_what_a_function_that_runs_holds_is_not_promised() -> None:
    """A tensor that a local of a running function holds as well is held from elsewhere, and that is said."""
    held = torch.zeros(25)
    namespace = {"__name__": "program", "x": held}
    (found,) = collect_freeable(namespace).freeable
    assert (found.nbytes, found.reaches, found.shared_with) == (0, 100, (ELSEWHERE,))


def test_a_storage_that_something_elsewhere_views_is_not_promised() -> None:
    """A view that no name leads to keeps the storage; the count of its users tells."""
    hidden = SimpleNamespace()
    namespace: dict[str, Any] = {"__name__": "program", "x": torch.zeros(25)}
    hidden.view = namespace["x"].detach()[1:]
    (found,) = collect_freeable(namespace).freeable
    assert (found.nbytes, found.shared_with) == (0, (ELSEWHERE,))


def test_a_graph_that_something_elsewhere_holds_is_not_promised() -> None:
    """Of nodes nobody shows the count: a tensor that no name leads to is looked for where it could hold one."""
    namespace: dict[str, Any] = {"__name__": "program", "y": torch.ones(25, requires_grad=True).exp()}
    hidden = SimpleNamespace(loss=namespace["y"].sum())
    later = SimpleNamespace(loss=hidden.loss * 2)
    del hidden
    (found,) = collect_freeable(namespace).freeable
    assert (found.nbytes, found.shared_with) == (0, (ELSEWHERE,))  # exp saved its result, which is y
    del later
    assert collect_freeable(namespace).freeable[0].nbytes == 200  # y, and the leaf it was made of


def test_deleting_an_imported_module_frees_nothing() -> None:
    """Python keeps imported modules: what lies in them stays."""
    module = ModuleType("held_module")
    module.cache = torch.zeros(10)  # type: ignore[attr-defined]
    sys.modules["held_module"] = module
    try:
        assert collect_freeable({"__name__": "program", "held_module": module}).freeable == ()
    finally:
        del sys.modules["held_module"]


def test_memory_of_an_array_is_free_when_the_array_is() -> None:
    """A tensor over a NumPy array frees nothing while the array has a name; both together do, each byte once."""
    found = released("a = np.zeros(100)\nx = torch.from_numpy(a)\ny = torch.from_numpy(a)[2:]")
    assert [found[name].nbytes for name in ("x", "y")] == [0, 0]
    assert (found["a, x, y"].nbytes, found["a, x, y"].storages) == (800, 1)


def test_memory_of_a_storage_counts_once_under_its_pieces() -> None:
    """A piece of a storage, and a tensor over an array over a tensor, bring no bytes of their own."""
    found = released("s = torch.zeros(100).untyped_storage()\npiece = s[8:]")
    assert (found["s, piece"].nbytes, found["piece"].nbytes, found["s"].nbytes) == (400, 0, 0)
    found = released("x = torch.zeros(100)\na = x.numpy()\npiece = x.untyped_storage()[8:]")
    assert (found["x, a, piece"].nbytes, "piece" in found and found["piece"].nbytes) == (400, 0)
    found = released("x = torch.zeros(100)\na = x.numpy()\nagain = torch.from_numpy(a)")
    assert found["x, a, again"].nbytes == 400


def test_memory_of_an_array_without_a_name_is_the_tensors() -> None:
    """A tensor over an array that nothing else holds frees it."""
    assert released("x = torch.from_numpy(np.zeros(100))")["x"].nbytes == 800
    assert released("x = torch.zeros(100).numpy()")["x"].nbytes == 400


@pytest.mark.parametrize(
    "source",
    [
        "b = bytearray(400)\nx = torch.frombuffer(b, dtype=torch.float32)",
        "b = memoryview(bytearray(400))\nx = torch.frombuffer(b, dtype=torch.float32)",
        "import array\nb = array.array('f', bytes(400))\nx = torch.frombuffer(b, dtype=torch.float32)",
        "import mmap\nb = mmap.mmap(-1, 400)\nx = torch.frombuffer(b, dtype=torch.float32)",
        "b = bytearray(400)\nx = torch.from_numpy(np.frombuffer(b, dtype=np.float32))",
    ],
)
def test_memory_of_a_buffer_is_free_when_the_buffer_is(source: str) -> None:
    """A tensor over an object that exports its memory frees nothing while that has a name; both together do."""
    found = released(source)
    assert [found[name].nbytes for name in ("b", "x")] == [0, 0]
    assert (found["x"].shared_with, found["b, x"].nbytes, found["b, x"].code) == (("b",), 400, "del b, x")
    held = released(f"{source}\nagain = [b]\ndel b")
    assert (held["x"].nbytes, held["x, again"].nbytes) == (0, 400)


def test_memory_of_a_buffer_without_a_name_is_the_tensors() -> None:
    """A tensor over a buffer that nothing else holds frees it."""
    assert released("x = torch.frombuffer(bytearray(400), dtype=torch.float32)")["x"].nbytes == 400


@pytest.mark.parametrize("view", ["z.imag", "z.real[1:]", "z.conj()", "torch.view_as_real(z)"])
def test_a_view_that_reads_other_numbers_goes_with_its_base(view: str) -> None:
    """Such a view refers to its base twice, and nobody else does; a container that does is seen all the same."""
    found = released(f"z = torch.ones(50, dtype=torch.complex64)\nv = {view}")
    assert (found["z, v"].nbytes, found["z"].shared_with, found["v"].shared_with) == (400, ("v",), ("z",))
    found = released(f"z = torch.ones(50, dtype=torch.complex64)\nv = {view}\nkept = [z]\ndel z")
    assert (found["v, kept"].nbytes, found["v"].nbytes) == (400, 0)


def test_a_view_of_other_numbers_promises_nothing_that_a_graph_elsewhere_holds() -> None:
    """What a graph that no name leads to has saved stays."""
    z = torch.ones(50, dtype=torch.complex64)
    node = (z * torch.ones(50, dtype=torch.complex64, requires_grad=True)).grad_fn
    namespace = {"__name__": "program", "z": z, "v": z.imag}
    del z
    found = {one.name: one for one in collect_freeable(namespace).freeable}
    assert found["z"].nbytes == found["v"].nbytes == 0
    assert "z, v" not in found or found["z, v"].nbytes == 0
    del node


def test_a_jagged_tensor_frees_what_it_lies_in_once() -> None:
    """The storage that the wrapper shows has no memory: it does not count; its values do."""
    found = released("x = torch.nested.nested_tensor([torch.ones(100), torch.ones(200)], layout=torch.jagged)")["x"]
    assert 1200 <= found.nbytes <= found.reaches < 1300  # besides them there are its offsets


@pytest.mark.parametrize(
    "source",
    [
        "x = torch.ones(10).add",
        "import threading\nx = threading.local()\nx.held = torch.ones(10)",
        "from concurrent.futures import Future\nx = Future()\nx.set_result(torch.ones(10))",
        "x = torch.ones(0, requires_grad=True)\nx.register_hook(lambda g, held=torch.ones(10): g)",
    ],
)
def test_what_only_a_library_shows_is_freed_with_it(source: str) -> None:
    """A bound method of torch's, what a thread or a future holds, and what a hook does."""
    assert released(source)["x"].nbytes == 40


def test_a_list_of_numbers_is_not_looked_through() -> None:
    """A long list that begins with numbers holds nothing: it is not walked."""
    looked = look({"__name__": "program", "numbers": list(map(float, range(100_000)))})
    assert len(looked.flow.sets) < 50


def test_looking_changes_no_count() -> None:
    """A second look promises what the first did, and nothing is kept alive."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec("import torch\nw = torch.ones(50, requires_grad=True)\nloss = (w * 2).exp().sum()", namespace)
    first = collect_freeable(namespace)
    assert collect_freeable(namespace).freeable == first.freeable
    made = "w = torch.ones(50, requires_grad=True)\nloss = (w * 2).exp().sum()"
    assert freed_by(made, "loss", "w") == 200 + 4 + 200 + 8


def test_a_report_of_memory_tells_what_names_free() -> None:
    """`tm.memory` says what can be freed; with ``only`` those of these names, though the question holds them too."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec("import torch\nx = torch.zeros(10)\ny = torch.zeros(20)\nv = y[1:]", namespace)
    assert [(one.name, one.nbytes) for one in tm.memory(namespace).freeable][:2] == [("y, v", 80), ("x", 40)]
    asked = tm.memory(namespace, only={"x": namespace["x"]})
    assert [(one.name, one.nbytes) for one in asked.freeable] == [("x", 40)]
    assert tm.memory(namespace, devices="cuda").freeable == ()


def test_names_beyond_the_list_are_counted() -> None:
    """Where more names free something than are listed, the report says how many."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec("import torch\na, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)", namespace)
    found = collect_freeable(namespace, most=1)
    assert [one.name for one in found.freeable] == ["c"]
    assert found.gaps[0].reason.startswith("2 more names would free memory")


def test_thousands_of_names_of_one_storage_are_each_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a name shares with all others is named by the first few; the others are not gone through for each."""
    read = 0

    def counted(members: int) -> Iterator[int]:
        nonlocal read
        for at in bits(members):
            read += 1
            yield at

    monkeypatch.setattr("tensormagic.collectors.memory.freed.bits", counted)
    base, count = torch.zeros(2_000), 2_000
    found = collect_freeable({"base": base, **{f"v{at}": base[at:] for at in range(1, count)}}).freeable
    assert found[0].reaches == base.nbytes
    assert read < 8 * count


def test_a_list_of_very_many_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read last, as far as time allows; and nothing is promised of what it may hold besides."""
    monkeypatch.setattr("tensormagic.collectors.memory.references._MANY", 64)
    source = "rows = [torch.zeros(9) for _ in range(5000)]\nlate = rows[4000]\nnet = nn.Linear(30, 30)"
    namespace: dict[str, Any] = {"__name__": "program"}
    exec("import torch\nfrom torch import nn\n" + source, namespace)
    whole = {one.name: one.nbytes for one in collect_freeable(namespace).freeable}
    assert whole == {"rows": 4999 * 36, "net": 930 * 4, "late": 0}
    found = collect_freeable(namespace, budget=Budget(limit=3000, seconds=60))
    assert [gap.reason for gap in found.gaps] == ["only 3000 objects were searched"]
    assert {one.name: one.nbytes for one in found.freeable}.items() >= {("net", 930 * 4)}
    assert all(one.nbytes == 0 for one in found.freeable if one.name == "late")


def test_too_many_objects_are_said_and_nothing_is_promised() -> None:
    """A walk that is cut short says so; what it has not met counts as held."""
    namespace: dict[str, Any] = {"__name__": "program", "every": [[torch.zeros(2)] for _ in range(2000)]}
    found = collect_freeable(namespace, budget=Budget(limit=300, seconds=60))
    assert found.gaps[0].section == "freeable memory"
    assert "only 300 objects" in found.gaps[0].reason
    assert sum(one.nbytes for one in found.freeable) < 8 * 2000


CIRCLING = {
    "a gradient that leads back to its parameter": (
        "v0 = torch.ones(5, requires_grad=True)\nv1 = v0.exp()\nv1.sum().backward(create_graph=True)", "v0.grad = None"
    ),
    "what was computed from a tensor, kept on it": (
        "v0 = torch.ones(5, requires_grad=True)\nv1 = v0.sin()\nv0.other = v1", "del v0.other"
    ),
    "a view kept on what it views": ("v0 = torch.ones(5)\nv1 = v0[3:]\nv0.other = v1", "del v0.other"),
    "a tensor kept on its gradient": (
        "v0 = torch.ones(5, requires_grad=True)\nv0.grad = torch.ones(5)\nv0.grad.other = v0\nv1 = 3", "v0.grad = None"
    ),
    "a hook that refers to its own tensor": (
        ("v0 = torch.ones(5, requires_grad=True)\nv1 = v0 * 2\n"
        "handle = v1.register_hook(lambda gradient, held=v1: None)"), "handle.remove()"
    ),
    "a hook after accumulation that does": (
        ("v0 = torch.ones(5, requires_grad=True)\nv1 = 3\n"
        "handle = v0.register_post_accumulate_grad_hook(lambda x, held=v0: None)"), "handle.remove()"
    ),
    "a pack hook that keeps the tensor itself": (
        "v0 = torch.ones(2, 5, requires_grad=True)\nwith torch.autograd.graph.save_on_cpu():\n v1 = v0.exp().sin()",
        "v1 = v1.detach(); graph = None",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("case", CIRCLING)
def test_what_holds_itself_where_python_cannot_see_it_is_not_promised(case: str) -> None:
    """Torch's own references are not shown to the garbage collector: such a circle stays, and that is said."""
    source, breaks = CIRCLING[case]
    namespace, _ = run(source)
    report = collect_freeable(namespace)
    assert CYCLES in [gap.reason for gap in report.gaps]
    promised = max((one.nbytes for one in report.freeable), default=0)
    del namespace
    assert promised <= freed_by(source, "v0", "v1")
    namespace, _ = run(source)
    exec(breaks, namespace)
    whole = collect_freeable(namespace)
    if "graph" not in namespace:  # of a pack hook's circle nothing can be taken out
        assert CYCLES not in [gap.reason for gap in whole.gaps]
        assert max(one.nbytes for one in whole.freeable) > promised


def test_a_circle_through_a_function_of_the_persons_own_is_freed() -> None:
    """A context that keeps its own output: of that node Python's garbage collector is told, and frees both."""
    source = (
        "class Kept(torch.autograd.Function):\n"
        " @staticmethod\n"
        " def forward(ctx, x):\n"
        "  ctx.result = x * 2\n"
        "  return ctx.result\n"
        "v0 = Kept.apply(torch.ones(50, requires_grad=True))"
    )
    namespace, _ = run(source)
    report = collect_freeable(namespace)
    promised = next(one.nbytes for one in report.freeable if one.name == "v0")
    assert (promised, report.gaps) == (400, ())
    del namespace
    assert freed_by(source, "v0") == 400
