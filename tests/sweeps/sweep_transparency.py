"""Tracing changes nothing: every differentiable operator and every module that torch tests itself with."""

from __future__ import annotations

import pytest
import torch

from tests.sweeps import transparency
from tests.sweeps.transparency import WriteTotal

pytestmark = pytest.mark.sweep


@pytest.mark.parametrize("level", transparency.LEVELS)
@pytest.mark.parametrize("dtype", transparency.DTYPES, ids=str)
def test_operators(dtype, level):
    """Outputs, gradients, random numbers and exceptions are the same under ``%%tracegrad``'s tracer."""
    tally, seen = WriteTotal(level), 0
    for op in transparency.operators():
        if transparency.supports(op, dtype):
            seen += 1
            for call in transparency.operator_calls(op, dtype, samples=4):
                tally.add(call)
    print(f"\n{dtype}, {seen} operators, level {level}: {tally}")
    assert seen
    assert not tally.different


@pytest.mark.parametrize("level", transparency.LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64], ids=str)
def test_operators_without_gradients(dtype, level):
    """Torch has other ways where no gradient is asked for: they are taken under the tracer, too."""
    tally = WriteTotal(level)
    for op in transparency.every_operator():
        if dtype in op.supported_dtypes("cpu"):
            for call in transparency.operator_calls(op, dtype, samples=2, graded=False):
                tally.add(call)
    print(f"\n{dtype} without gradients, level {level}: {tally}")
    assert tally.same > 500
    assert not tally.different


@pytest.mark.parametrize("level", transparency.LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_transforms(dtype, level):
    """Forward-mode AD, batching and differentiation of every operator, or torch's refusal, are the same."""
    tally = WriteTotal(level)
    for op in transparency.operators():
        if transparency.supports(op, dtype):
            for call in transparency.transform_calls(op, dtype):
                tally.add(call)
    print(f"\n{dtype}, transforms, level {level}: {tally}")
    assert tally.same > 500
    assert not tally.different


@pytest.mark.parametrize("level", transparency.LEVELS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_modules(training, level):
    """Outputs, buffers, gradients and random numbers are the same."""
    tally = WriteTotal(level)
    for info in transparency.modules():
        for call in transparency.module_calls(info, torch.float32, training=training):
            tally.add(call)
    print(f"\n{len(transparency.modules())} modules, {training=}, level {level}: {tally}")
    assert not tally.different
