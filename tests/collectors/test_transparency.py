"""A seeded sample of ``make sweep``: tracing changes no output, gradient, random number or exception."""

from __future__ import annotations

import random

import pytest
import torch

from tests.sweeps import transparency
from tests.sweeps.transparency import LEVELS, SEED, Call, WriteTotal

OPERATORS, MODULES = {"grad": 40, "ops": 16, "memory": 12}, {"grad": 8, "ops": 4, "memory": 4}
# What once differed, or goes through Python code of torch's that asks who overrides it.
ALWAYS = {
    "nn.functional.max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.dropout", "einsum", "norm",
    # What torch computes otherwise while a dispatch mode is on.
    "prod", "cumprod", "amax", "max", "median", "masked_fill", "linalg.eigh", "linalg.svd", "pinverse",
    "nn.functional.ctc_loss", "nn.functional.cross_entropy",
}  # fmt: skip


def _sampled_operators(level):
    drawn = random.Random(SEED).sample(transparency.operators(), OPERATORS[level])
    every = drawn + [op for op in transparency.operators() if op.name in ALWAYS and op not in drawn]
    return [pytest.param(level, op, id=f"{level}-{op.formatted_name}") for op in every]


def _sampled_modules(level):
    drawn = random.Random(SEED).sample(transparency.modules(), MODULES[level])
    return [pytest.param(level, info, id=f"{level}-{info.formatted_name}") for info in drawn]


@pytest.mark.corpus
@pytest.mark.parametrize(("level", "op"), [case for level in LEVELS for case in _sampled_operators(level)])
def test_operators(level, op):
    """Every call of the operator, and every one it refuses, is the same under a trace."""
    tally = WriteTotal(level)
    for call in transparency.operator_calls(op, torch.float32, samples=2):
        tally.add(call)
    assert tally.same
    assert not tally.different


@pytest.mark.parametrize(("level", "info"), [case for level in LEVELS for case in _sampled_modules(level)])
def test_modules(level, info):
    """Every call of the module is the same under a trace."""
    tally = WriteTotal(level)
    for call in transparency.module_calls(info, torch.float32, training=True):
        tally.add(call)
    assert tally.same
    assert not tally.different


def test_a_difference_is_found(monkeypatch):
    """The check can fail: a call that sees the tracer's mode, and answers otherwise, is reported."""

    def run(given):
        return given[0] * (1 + torch._C._len_torch_function_stack())

    monkeypatch.setattr(transparency, "TRIES", 60)
    tally = WriteTotal()
    tally.add(Call("mode-sensitive", lambda: (torch.ones(3, requires_grad=True),), run))
    assert tally.same == 0
    assert tally.different == ["mode-sensitive: outputs, gradients"]


def test_what_changes_by_itself_now_and_then_is_counted_apart():
    """A result that comes under the tracer, and after many calls without it too, is no difference that it made."""
    calls = []

    def run(given):
        calls.append(given)
        return given[0] * (2 if len(calls) in (3, 40) else 1)

    tally = WriteTotal()
    tally.add(Call("now and then", lambda: (torch.ones(3, requires_grad=True),), run))
    assert tally.restless == ["now and then"]
    assert not tally.different
