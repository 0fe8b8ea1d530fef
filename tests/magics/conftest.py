"""What the tests of the magics share: a cell run as a front end runs it, and all that came of it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.shell import KERNEL


@dataclass(frozen=True)
class Ran:
    """What a cell did.

    Attributes:
        error: What it raised, or None.
        value: The value of its last expression.
        out: What it printed.
        err: What it printed to standard error; IPython shows a UsageError there.
        shown: The mimebundles that it displayed, in order; updates included.
    """

    error: BaseException | None
    value: Any
    out: str
    err: str
    shown: list[dict[str, Any]]


@pytest.fixture
def cell(shell) -> Callable[[str], Ran]:
    """Return a function that runs a cell; tensors a, b (shares a's memory), x, and a model net are there."""
    a = torch.arange(12.0).reshape(3, 4).clone()
    shell.user_ns.update(torch=torch, nn=nn, a=a, b=a.t(), x=torch.ones(2, requires_grad=True), net=nn.Linear(2, 1))

    def run(source: str) -> Ran:
        before = len(shell.display_pub.outputs)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            result = shell.run_cell(source, store_history=True)
        shown = [output["data"] for output in shell.display_pub.outputs[before:]]
        error = result.error_in_exec or result.error_before_exec
        return Ran(error, result.result, out.getvalue(), err.getvalue(), shown)

    return run


@pytest.fixture
def notebook(shell, monkeypatch):
    """Make the shell one that belongs to a kernel."""
    monkeypatch.setattr(type(shell), "kernel", KERNEL, raising=False)
    return shell
