"""What something is that is no tensor, and what would work."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

from tensormagic.collectors.requirements import is_tensor, why_not_a_tensor

ALL = "; tensors() lists all its tensors"


class Model(nn.Module):
    """A module of the user's own."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 1, bias=False)


class Table:
    """What can be read of a table of pandas or polars."""

    def to_numpy(self):
        return np.ones((2, 2))


@pytest.mark.parametrize("value", [torch.ones(1), nn.Parameter(torch.ones(1)), torch.ones(1, device="meta")])
def test_tensors_need_no_explanation(value):
    """Subclasses and meta tensors are tensors."""
    assert is_tensor(value)
    assert why_not_a_tensor(value, "x") == ""


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (3, "x", "x is an int, not a tensor; torch.tensor(x) makes one"),
        (2.5, "x", "x is a float, not a tensor; torch.tensor(x) makes one"),
        ("s", "x", "x is a str, not a tensor; give an expression that makes a torch.Tensor"),
        (None, "x", "x is None, not a tensor; give an expression that makes a torch.Tensor"),
        (None, "w.grad", "w.grad is None, not a tensor; no backward has left a gradient in w yet"),
        ([], "x", "x is a list of 0, not a tensor; torch.tensor(x) makes one"),
        (["a"], "x", "x is a list of 1, not a tensor; it holds none"),
        ([1, torch.ones(1)], "x", f"x is a list of 2, not a tensor; x[1] is one{ALL}"),
        ([torch.ones(1)], "x + y", f"x + y is a list of 1, not a tensor; (x + y)[0] is one{ALL}"),
        ({"k": torch.ones(1)}, "d", f"d is a dict of 1, not a tensor; d['k'] is one{ALL}"),
        ({1}, "s", "s is a set of 1, not a tensor; give an expression that makes a torch.Tensor"),
        (np.float32(2), "n", "n is a numpy.float32, not a tensor; torch.as_tensor(n) makes one"),
        (nn.Linear(1, 1), "l", f"l is an nn.Linear, not a tensor; l.weight is one of its 2 parameters{ALL}"),
        (nn.ReLU(), "r", "r is an nn.ReLU, not a tensor; it has no parameters to show"),
        (None, "None", "None is not a tensor; give an expression that makes a torch.Tensor"),
        (torch, "torch", "torch is a Python module, not a tensor; give an expression that makes a torch.Tensor"),
        (nn.Linear, "nn.Linear", "nn.Linear is a class, not a tensor; give an expression that makes a torch.Tensor"),
        (
            iter([1]),
            "i",
            "i is a list_iterator, not a tensor; list(i) collects its items and shows the tensors among them",
        ),
        (
            Table(),
            "df",
            f"df is a {__name__}.Table, not a tensor; torch.as_tensor(df.to_numpy()) makes one of numbers",
        ),
        (torch.float32, "t", "t is a torch.dtype, not a tensor; give an expression that makes a torch.Tensor"),
    ],
)
def test_what_it_is_and_what_would_work(value, name, text):
    """One line, in the words of the code that the user would write."""
    assert why_not_a_tensor(value, name) == text


def test_a_module_of_the_persons_own():
    """Named by its class, with its one parameter."""
    assert why_not_a_tensor(Model(), "m").endswith("Model, not a tensor; m.head.weight is its parameter")


def test_classes_of_a_notebook_have_no_home():
    """__main__ is nobody's name for a class."""
    kind = type("Net", (), {"__module__": "__main__"})
    assert why_not_a_tensor(kind(), "n").startswith("n is a Net, not a tensor;")


def test_without_torch(monkeypatch):
    """Nothing is imported for the sake of an explanation."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert why_not_a_tensor(3, "x") == "x is an int, not a tensor; torch.tensor(x) makes one"
