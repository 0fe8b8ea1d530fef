"""A tensor in one line: ``%tensor x --line``, and every print while ``set_repr("line")`` holds."""

from __future__ import annotations

import pytest
import torch
from IPython.core.error import UsageError
from torch import nn
from torch.overrides import TorchFunctionMode

import tensormagic as tm


@pytest.fixture
def lines():
    """Print tensors in one line, until the test has ended."""
    before = tm.set_repr("line")
    yield
    tm.set_repr(before)


def test_a_line_for_each_expression(cell):
    """Printed, not displayed; of a collection one for each tensor."""
    ran = cell("%tensor a b.sum() --line")
    assert ran.out.splitlines() == [
        "a: Tensor (3, 4) float32 n=12 x∈[0 ██████ 11] μ=5.5 σ=3.61",
        "b.sum(): Tensor () float32 = 66",
    ]
    assert ran.shown == []
    printed = cell("%tensor net --line").out.splitlines()
    assert [line.partition(" (")[0] for line in printed] == ["net.weight: Parameter", "net.bias: Parameter"]


def test_an_array_is_a_line_as_a_tensor_is(cell):
    """By its values, not as torch prints them."""
    ran = cell("import numpy as np\n%tensor np.zeros((2,3)) np.arange(2.0) np.array(['a']) --line")
    assert ran.out.splitlines() == [
        "np.zeros((2,3)): ndarray (2, 3) float64 (owns its memory) [[0, 0, 0], [0, 0, 0]]",
        "np.arange(2.0): ndarray (2,) float64 (owns its memory) [0, 1]",
        "np.array(['a']): ndarray (1,) <U1 (owns its memory) array(['a'], dtype='<U1')",
    ]


def test_a_masked_array_is_the_elements_that_count(cell):
    """A masked one stands as NumPy prints it, and is left out of the numbers."""
    cell("import numpy as np\nfew = np.ma.masked_array([1.0, -2.0, 99.0], [0, 0, 1])")
    cell("many = np.ma.masked_array([*range(20), 1e9], [False] * 20 + [True])")
    cell("text = np.ma.masked_array(['a', 'b'], [0, 1])")
    few, many, text = cell("%tensor few many text --line").out.splitlines()
    assert few.endswith("[1, −2, --]")
    assert " 19] " in many
    assert many.endswith("of the 20 elements that count")
    assert text.endswith("['a' --]")


@pytest.mark.parametrize("others", ["--save x.html", "--into r", "--figure", "--slide --picture", "--at 1,:"])
def test_a_line_and_nothing_else(cell, others):
    """An option that only a panel has a use for is refused, not passed over."""
    ran = cell(f"%tensor a --line {others}")
    options = " ".join(word for word in others.split() if word.startswith("--"))
    assert f"--line prints a line and makes nothing else: leave out --line or {options}" in ran.err
    assert ran.out == ""


def test_a_line_of_nothing_is_refused(cell):
    """In the words that the panel has for it."""
    assert isinstance(cell("%tensor 'abc' --line").error, UsageError) or "abc" in cell("%tensor 'abc' --line").err


@pytest.mark.usefixtures("lines")
def test_every_print_is_a_line():
    """Alone, in a list, in a dictionary, of a parameter; the format of a number is its own."""
    x = torch.tensor([[1.0, 2], [float("nan"), float("inf")]])
    assert repr(x) == str(x) == "Tensor (2, 2) float32 [[1, 2], [nan, inf]]"
    assert str([x[0]]) == "[Tensor (2,) float32 [1, 2]]"
    assert repr(nn.Parameter(torch.ones(1))) == "Parameter (1,) float32 [1] requires_grad"
    assert repr(nn.Parameter(torch.ones(1)) * 2) == "Tensor (1,) float32 [2] grad_fn=MulBackward0"
    assert f"{x[0, 1]:.1f}" == "2.0"


@pytest.mark.usefixtures("lines")
def test_what_is_no_number_is_counted():
    """And the range is that of the others."""
    x = torch.arange(100.0)
    x[3], x[7], x[8] = float("nan"), float("inf"), float("inf")
    assert repr(x).endswith(" 1 NaN! 2 +Inf!")
    assert repr(x).startswith("Tensor (100,) float32 x∈[0 ")
    assert repr(torch.zeros(3, 5)) == "Tensor (3, 5) float32 n=15 all 0"
    assert repr(torch.zeros(0, 5)) == "Tensor (0, 5) float32 empty"


def test_undone_everything_is_torchs_own():
    """By ``"torch"``, however often ``"line"`` was said; the call says how it was before."""
    own = torch.Tensor.__repr__, nn.Parameter.__repr__
    assert tm.set_repr("line") == "torch"
    assert tm.set_repr("line") == "line"
    assert tm.set_repr("torch") == "line"
    assert (torch.Tensor.__repr__, nn.Parameter.__repr__) == own
    assert repr(torch.ones(2)) == "tensor([1., 1.])"


def test_unloading_undoes_it(cell, shell):
    """As it undoes all that was switched on."""
    cell("import tensormagic as tm; tm.set_repr('line')")
    assert cell("print(a[0])").out == "Tensor (4,) float32 [0, 1, 2, 3]\n"
    shell.extension_manager.unload_extension("tensormagic")
    try:
        assert repr(torch.ones(2)) == "tensor([1., 1.])"
    finally:
        shell.extension_manager.load_extension("tensormagic")


def test_another_word_is_refused():
    """With what there is."""
    with pytest.raises(tm.SettingError, match=r"set_repr\(\) takes 'torch' or 'line', but was given 'lines'"):
        tm.set_repr("lines")


class Calls(TorchFunctionMode):
    """Notes what is called."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Note it, and do it."""
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("lines")
def test_a_mode_sees_what_it_sees_of_torchs_own():
    """One call of ``__repr__``, and nothing of how the numbers were read."""
    with Calls() as calls:
        repr(torch.ones(2))
    assert calls.seen.count("__repr__") == 1
    assert not {"aminmax", "min", "sum", "isnan"} & set(calls.seen)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # torch's own, of how it prints
@pytest.mark.usefixtures("lines")
def test_a_trace_of_torchscript_records_nothing_of_it():
    """The graph is that of the function alone."""

    def doubled(x):
        repr(x)
        return x * 2

    printed = torch.jit.trace(doubled, torch.ones(40)).code
    tm.set_repr("torch")
    assert printed == torch.jit.trace(doubled, torch.ones(40)).code


@pytest.mark.usefixtures("lines")
def test_a_panel_shows_what_torch_prints(cell):
    """The values in the metadata are torch's text, not the line."""
    assert "tensor([[ 0.,  1.,  2.,  3.]," in cell("%tensor a").shown[0]["text/html"]
