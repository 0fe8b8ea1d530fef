"""Which models are named where backward was called on a value without a history: those of the code that ran."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import nn

import tensormagic as tm


def refused(source):
    """Run a cell with two models of earlier cells, one of them frozen; return the message of TM306."""
    filename = f"<cell {len(linecache.cache)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space = {"torch": torch, "old": nn.Linear(2, 1), "net": nn.Linear(2, 1).requires_grad_(False), "x": torch.ones(2)}
    with tm.trace(namespace=space) as trace, pytest.raises(RuntimeError):
        exec(compile(source, filename, "exec"), space)
    (finding,) = (one for one in trace.report.findings if one.code == "TM306")
    return finding.message.partition(": ")[2]


FROZEN = "nothing that it was made from asks for a gradient; all 2 parameters of net are frozen."


def test_the_model_that_the_cell_mentions():
    """The frozen model is to blame; one of an earlier cell that asks for gradients is not offered in its place."""
    assert refused("loss = net(x).sum()\nloss.backward()\n") == FROZEN


def test_the_model_that_a_function_mentions():
    """A function uses a model of the notebook: its own names count as the cell's do."""
    assert refused("def train():\n    net(x).sum().backward()\n\ntrain()\n") == FROZEN


def test_no_model():
    """Where the code mentions none, none is named."""
    assert refused("x.sum().backward()\n") == "nothing that it was made from asks for a gradient."
