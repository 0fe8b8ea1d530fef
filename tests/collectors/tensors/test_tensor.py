"""A report of any tensor: every section true, the tensor untouched, nothing kept, nothing raised."""

from __future__ import annotations

import gc
import json
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tensormagic.collectors.geometry.layout import level_of, text_of
from tensormagic.collectors.tensors import tensor as tensor_module
from tensormagic.collectors.tensors.tensor import collect_tensor, data_text
from tensormagic.reports import TensorReport

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex128, torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
    torch.uint32, torch.uint64, torch.bool,
]  # fmt: skip

STRIDED: dict[str, Callable[[], torch.Tensor]] = {
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0, 3),
    "nothing at all": lambda: torch.empty(0),
    "ten dimensions": lambda: torch.arange(1024.0).view((2,) * 10),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "overlapping as_strided": lambda: torch.arange(10.0).as_strided((4, 4), (2, 1)),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_3d": lambda: torch.randn(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d),
    "parameter": lambda: nn.Parameter(torch.ones(2, 2)),
    "requires grad": lambda: torch.ones(3, requires_grad=True),
    "non-leaf": lambda: torch.ones(3, requires_grad=True) * 2,
    "conjugate view": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negative view": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "large and stepped": lambda: torch.arange(100_000.0).view(100, 1000)[::3, ::7],
}


def inspect(x: torch.Tensor, /, **names: Any) -> TensorReport:
    """The report of x, under that name."""
    return collect_tensor(x, name="x", namespace=names)


@pytest.mark.parametrize("kind", STRIDED)
def test_strided_tensors_are_complete_and_true(kind: str) -> None:
    """Every section is there, and a shown cell has the value, offset and statistics that torch gives."""
    x = STRIDED[kind]()
    report = inspect(x)
    assert report.gaps == ()
    assert (report.shape, report.numel, report.nbytes) == (tuple(x.shape), x.numel(), x.numel() * x.element_size())
    assert report.layout is not None
    assert report.layout.stride == x.stride()
    assert report.storage is not None
    assert report.storage.address == x.untyped_storage().data_ptr()
    assert report.statistics is not None
    assert report.statistics.count == x.numel()
    assert report.data_text.startswith("tensor(")
    assert TensorReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    values = [x.detach()[index].item() for index in shown_indices(report)]
    assert [text for row in report.layout.grid.values for text in row] == [text_of(value) for value in values]
    assert [level for row in report.layout.grid.levels for level in row] == [level_of(value) for value in values]


def shown_indices(report: TensorReport) -> list[tuple[int, ...]]:
    """The index of every cell of the grid, row by row."""
    assert report.layout is not None
    grid = report.layout.grid
    indices = []
    for row in grid.rows:
        for column in grid.columns:
            index = list(grid.fixed)
            for dim, at in ((grid.row_dim, row), (grid.column_dim, column)):
                if dim is not None:
                    index[dim] = at
            indices.append(tuple(index))
    return indices


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_complete(dtype: torch.dtype) -> None:
    """Numbers, text and picture of every dtype that torch can compute with."""
    report = inspect(torch.tensor([[0, 1], [1, 0]]).to(dtype))
    assert report.gaps == ()
    assert report.statistics is not None
    assert (report.statistics.minimum, report.statistics.maximum, report.statistics.zero) == (0, 1, 2)
    assert report.layout is not None
    words = {torch.bool: ("False", "True"), torch.complex64: ("0+0j", "1+0j"), torch.complex128: ("0+0j", "1+0j")}
    assert report.layout.grid.values[0] == words.get(dtype, ("0", "1"))
    assert report.dtype == str(dtype).removeprefix("torch.")


def test_inference_tensors_have_no_version() -> None:
    """A tensor made under inference_mode is read in full and counts no versions."""
    with torch.inference_mode():
        x = torch.ones(2)
    report = inspect(x)
    assert (report.version, report.gaps, report.flags["is_inference"]) == (None, (), "True")
    assert report.autograd is not None
    assert report.autograd.sentence.startswith("an inference tensor")


def gap_sections(report: TensorReport) -> set[str]:
    """The sections that could not be read."""
    return {gap.section for gap in report.gaps}


def test_meta_tensors_have_layout_but_no_values() -> None:
    """Everything but the values is known of a meta tensor, and the gap says why."""
    x = torch.empty(1000, 1000, device="meta").t()
    report = inspect(x)
    assert gap_sections(report) == {"values"}
    assert "no memory" in report.gaps[0].reason
    assert report.layout is not None
    assert (report.layout.distinct, report.layout.grid.values, report.statistics) == (10**6, (), None)


def test_fake_tensors_are_told_from_real_ones() -> None:
    """A fake tensor says that it is on the CPU; that it has no values is a gap."""
    with FakeTensorMode():
        x = torch.ones(2, 3)
        inside = inspect(x)
    assert gap_sections(inside) == gap_sections(inspect(x)) == {"values"}
    assert (inside.device, inside.shape) == ("cpu", (2, 3))


def test_one_broken_section_does_not_take_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section that raises leaves a gap with the error's first line; the rest of the report is there."""

    def broken(_: torch.Tensor) -> None:
        raise ValueError("no numbers today\nand more")

    monkeypatch.setattr(tensor_module, "values", broken)
    report = inspect(torch.ones(2))
    assert [(gap.section, gap.reason) for gap in report.gaps] == [("statistics", "ValueError: no numbers today")]
    assert (report.statistics, report.data_text) == (None, "tensor([1., 1.])")


def test_looking_changes_nothing() -> None:
    """Version, gradient, random state, grad mode, print options and warnings are as before."""
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    y.sum().backward()
    state, options, version = torch.get_rng_state(), vars(torch._tensor_str.PRINT_OPTS).copy(), y._version
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reports = [inspect(x, w=w, y=y) for x in (w, y, w.grad, torch.zeros(500))]
    assert not caught
    assert torch.equal(torch.get_rng_state(), state)
    assert (vars(torch._tensor_str.PRINT_OPTS), y._version, w._version) == (options, version, 0)
    assert torch.is_grad_enabled()
    assert w.grad is not None
    assert not w.grad.requires_grad
    assert len(reports) == 4


@pytest.mark.parametrize("kind", STRIDED)
def test_nothing_keeps_the_tensor(kind: str) -> None:
    """With the garbage collector off, the tensor dies with its last name although its report lives on."""
    x = STRIDED[kind]()
    gone = weakref.ref(x)
    gc.disable()
    try:
        report = collect_tensor(x, name="x", namespace={"x": x, "list": [x], "view": x[...]})
        del x
        assert gone() is None
        assert report.name == "x"
    finally:
        gc.enable()


def test_graph_is_not_kept() -> None:
    """Neither the graph behind a tensor nor its leaves outlive it in a report."""
    w = torch.ones(3, requires_grad=True)
    y = (w * 2).exp()

    def canary(*_: Any) -> None:
        """Lives as long as the node it hooks."""

    assert y.grad_fn is not None
    y.grad_fn.register_hook(canary)
    gone = weakref.ref(canary)
    report = inspect(y, w=w, y=y)
    del y, canary
    gc.collect()
    assert gone() is None
    assert report.autograd is not None
    assert report.autograd.leaves == ("w",)


def test_modes_of_the_person_see_nothing() -> None:
    """Neither a function mode nor a dispatch mode records our own operations."""
    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, requires_grad=True) * 2
    with Functions(), Dispatches():
        report = inspect(x, x=x)
    assert (seen, report.gaps) == ([], ())


def test_copy_on_write_storage_is_not_copied_by_looking() -> None:
    """Asking a lazily cloned tensor for its address would copy it; looking at it does not."""
    x = torch.arange(6.0)
    clone = torch._lazy_clone(x)
    report = inspect(clone, x=x)
    assert torch._C._is_cow_tensor(clone)
    assert report.storage is not None
    assert report.storage.address != 0
    assert report.statistics is not None
    assert report.statistics.maximum == 5.0


def test_roles() -> None:
    """Who owns the memory, in the words of the header."""
    a = torch.zeros(4, 6)
    array = np.zeros(3)
    hidden = torch.arange(24.0).view(4, 6)
    assert inspect(a, a=a).role == "owns its storage"
    assert inspect(a.t(), a=a).role == "view of a"
    assert inspect(a.clone().t()).role == "view (base has no name)"
    assert inspect(hidden[1], hidden=hidden).role == "view of hidden"
    assert inspect(hidden, x=hidden, row=hidden[1]).role == "view (base has no name)"
    assert inspect(a.detach(), a=a).role == "shares its storage with a"
    assert inspect(torch.from_numpy(array), array=array).role == "shares its storage with array"
    assert inspect(a, x=a, lent=a.numpy()).role == "owns its storage"
    assert inspect(torch.eye(2).to_sparse()).role == "has no storage of its own"


def test_memory_of_a_buffer_is_not_the_tensors_own() -> None:
    """Who exported it is named: its memory, who shares it, who keeps it."""
    buffer = bytearray(400)
    x = torch.frombuffer(buffer, dtype=torch.float32)
    for names in ({"buffer": buffer}, {"buffer": buffer, "view": memoryview(buffer)}):
        report = collect_tensor(x, name="x", namespace={"x": x} | names)
        assert report.role == "its memory belongs to buffer"
        assert {alias.name: alias.relation for alias in report.aliases} == dict.fromkeys(names, "buffer")
        assert report.holders is not None
        assert [holder.path for holder in report.holders.of_storage] == list(names)
    inside = collect_tensor(x, name="x", namespace={"x": x, "kept": [buffer]})
    assert (inside.role, inside.aliases[0].of_elements) == ("its memory belongs to kept[0]", 400)
    assert collect_tensor(x[5:], name="y", namespace={"x": x, "buffer": buffer}).role == "view of x"


def test_rows_under_the_strip_are_those_of_the_base() -> None:
    """The strip is ruled in slices of the contiguous base where it has a name, else of the tensor itself."""
    a = torch.zeros(4, 6)
    for x, expected in ((a.t(), (6, "a")), (a[1:], (6, "a")), (a.view(torch.int16)[0], (0, ""))):
        report = inspect(x, a=a)
        assert report.layout is not None
        assert report.layout.strip is not None
        assert (report.layout.strip.row_length, report.layout.strip.row_name) == expected
    own = inspect(a, x=a)
    assert own.layout is not None
    assert own.layout.strip is not None
    assert (own.layout.strip.row_length, own.layout.strip.row_name) == (6, "x")


def test_long_data_is_cut_whatever_the_print_options() -> None:
    """At most six lines of bounded width, and the user's print options are as they were."""
    torch.set_printoptions(threshold=10**9)
    try:
        assert len(data_text(torch.zeros(300, 300)).splitlines()) == 6
        assert torch._tensor_str.PRINT_OPTS.threshold == 10**9
    finally:
        torch.set_printoptions(profile="default")
    assert data_text(torch.zeros(300, 300)).splitlines()[-1] == "…"
    assert data_text(torch.tensor([1.5])) == "tensor([1.5000])"


def test_truncated_aliases_are_a_gap() -> None:
    """More aliases than are listed: the report says how many there are."""
    a = torch.zeros(100, 2)
    report = inspect(a, rows=list(a.unbind()))
    assert [gap.reason for gap in report.gaps] == ["64 of the 100 objects that share its storage are listed"]


def test_tensor_subclasses_are_named_and_read() -> None:
    """A subclass that overrides everything is read as the tensor it is."""

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{func} was called")

    report = inspect(torch.ones(2).as_subclass(Loud))
    assert (report.type_name, report.gaps) == ("Loud", ())


def test_elements_as_text() -> None:
    """Short, and never ambiguous about what is not a number."""
    assert [text_of(v) for v in (15.0, 0.1, float("nan"), float("-inf"), 1e-5, 12345678.0)] == [
        "15", "0.1", "nan", "-inf", "1e-05", "1.235e+07",
    ]  # fmt: skip
    assert [text_of(v) for v in (True, 2**63 - 1, 1 + 2j, complex(0, -0.5))] == [
        "True", "9223372036854775807", "1+2j", "0-0.5j",
    ]  # fmt: skip
    assert level_of(3 + 4j) == 5.0


def test_a_registered_buffer_is_one():
    """A module that has a name, and has registered it, makes a tensor a buffer; what merely lies in it is none."""
    net = nn.BatchNorm1d(2)
    net.register_buffer("passing", torch.ones(2), persistent=False)
    net.loose = torch.ones(2)
    told = {
        name: [kind.summary for kind in collect_tensor(getattr(net, name), name=name, namespace={"net": net}).kinds]
        for name in ("running_mean", "passing", "loose")
    }
    what = "A module that holds it moves it with .to(), but does not pass it to an optimizer; it is"
    assert told == {
        "running_mean": [f"{what} saved in state_dict()."],
        "passing": [f"{what} not saved in state_dict() (persistent=False)."],
        "loose": [],
    }
