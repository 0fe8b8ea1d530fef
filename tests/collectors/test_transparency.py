"""A seeded sample of ``make sweep``: tracing changes no output, gradient, random number or exception."""

from __future__ import annotations

import random

import pytest
import torch

from tests.sweeps import transparency
from tests.sweeps.transparency import SEED, Call, Tally

OPERATORS, MODULES = 40, 8
# What once differed, or goes through Python code of torch's that asks who overrides it.
ALWAYS = {"nn.functional.max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.dropout", "einsum", "norm"}


def _sampled_operators():
    drawn = random.Random(SEED).sample(transparency.operators(), OPERATORS)
    return drawn + [op for op in transparency.operators() if op.name in ALWAYS and op not in drawn]


@pytest.mark.parametrize("op", _sampled_operators(), ids=lambda op: op.formatted_name)
def test_operators(op):
    """Every call of the operator, and every one it refuses, is the same under a trace."""
    tally = Tally()
    for call in transparency.operator_calls(op, torch.float32, samples=2):
        tally.add(call)
    assert tally.same
    assert not tally.different


@pytest.mark.parametrize(
    "info", random.Random(SEED).sample(transparency.modules(), MODULES), ids=lambda info: info.formatted_name
)
def test_modules(info):
    """Every call of the module is the same under a trace."""
    tally = Tally()
    for call in transparency.module_calls(info, torch.float32, training=True):
        tally.add(call)
    assert tally.same
    assert not tally.different


def test_a_difference_is_found():
    """The check can fail: a call that sees the tracer's mode, and answers otherwise, is reported."""

    def run(given):
        return given[0] * (1 + torch._C._len_torch_function_stack())

    tally = Tally()
    tally.add(Call("mode-sensitive", lambda: (torch.ones(3, requires_grad=True),), run))
    assert tally.same == 0
    assert tally.different == ["mode-sensitive: outputs, gradients"]
