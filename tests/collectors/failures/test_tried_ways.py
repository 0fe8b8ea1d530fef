"""What is said to work was tried: on stand-ins, so that nothing of the user's is run, drawn or kept."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.collectors.failures.tried_ways import with_ways_tried
from tensormagic.reports import Clashing, Mismatch
from tests.support.kernel import ROOT


def refused(call, **names):
    """Return the explanation of what a call of one line is refused for."""
    told = tm.explain(namespace=names)
    with pytest.raises((RuntimeError, IndexError, ValueError, TypeError, AttributeError)), told:
        call(**names)
    return told.report


def tried(report, *ways, kind="shape", clashing=0):
    """Return which of some ways work, and which of them are not known to."""
    mismatch = Mismatch(kind, "", (Clashing(clashing),), ways)
    return with_ways_tried(report, mismatch)


def product(x, y):
    return x @ y


def test_what_torch_warns_of_as_a_call_is_made_again_nobody_sees():
    """Two sizes that it says will broadcast, before it refuses them."""
    with pytest.warns(UserWarning, match="target size"):
        report = refused(F.mse_loss, input=torch.ones(2, 20, 1), target=torch.ones(2, 20))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tried(report, "input.squeeze(2)")
    assert told == []


def _number(x):
    return float(x)


def loss(logits, target):
    return F.cross_entropy(logits, target)


@pytest.mark.parametrize(
    ("way", "works"),
    [
        ("x @ y.T", True),
        ("x.T @ y", True),
        ("y.T", True),
        ("x.mT", True),
        ("x @ y", False),
        ("y.reshape(4, 3)", True),
        ("y.reshape(4, 4)", False),
        ("torch.mm(x, y.T)", True),
        ("torch.zeros(9, 3)", True),
        ("torch.zeros(9)", False),
    ],
)
def test_what_fails_is_not_told(way, works):
    """A way is applied as a user would apply it: in place of an operand, or of the whole call."""
    report = refused(product, x=torch.ones(3, 4), y=torch.ones(3, 4))
    assert tried(report, way) == (((way,), ()) if works else ((), ()))


@pytest.mark.parametrize("way", ["x.view(-1)  # where it fits", "net.eval()", "unknown(x)", "nn.Linear(…, 4)", "x @"])
def test_what_cannot_be_tried_is_not_said_to_work(way):
    """It may help, and no more is claimed."""
    report = refused(product, x=torch.ones(3, 4), y=torch.ones(3, 4))
    assert tried(report, way) == ((), (way,))


@pytest.mark.parametrize(
    ("classes", "works"),
    [([0, 1, 2, 3], ()), ([1, 2, 3, 3], ("target - 1",)), ([3, 3, 3, 3], ("target - 1",)), ([0, 0, 0, 3], ())],
)
def test_classes_are_tried_by_their_values(classes, works):
    """One less is the mend only where no class is 0: else there are too few outputs."""
    report = refused(loss, logits=torch.zeros(4, 3), target=torch.tensor(classes))
    assert report.mismatch.works == works
    assert report.mismatch.maybe == ("nn.Linear(…, 4)  # one output for each class",)


def test_an_operand_that_a_call_made_is_tried_too():
    """`torch.tensor([0, 1, 2, 3]) - 1` stands for the target, not for the whole call."""
    report = refused(lambda logits: F.cross_entropy(logits, torch.tensor([0, 1, 2, 3])), logits=torch.zeros(4, 3))
    assert report.mismatch.works == ()
    report = refused(lambda logits: F.cross_entropy(logits, torch.tensor([1, 2, 3, 3])), logits=torch.zeros(4, 3))
    assert report.mismatch.works == ("torch.tensor([1, 2, 3, 3]) - 1",)


def test_classes_that_are_too_many_to_be_tried():
    """What was not tried is not said to work."""
    target = torch.full((1 << 19,), 3)
    assert refused(loss, logits=torch.zeros(1 << 19, 3), target=target).mismatch.works == ()


def test_a_layer_is_tried_on_its_input():
    """The new layer takes what the refused one was given."""
    report = refused(lambda fc, x: fc(x), fc=nn.Linear(128, 10), x=torch.ones(32, 784))
    assert report.mismatch.works == ("nn.Linear(784, 10)",)
    assert tried(report, "nn.Linear(128, 10)", "nn.Linear(784, 3)") == (("nn.Linear(784, 3)",), ())


def test_nothing_large_is_made():
    """Sizes that no machine has take no memory."""
    huge = torch.zeros(1).expand(10**6, 10**6)
    report = refused(product, x=huge, y=torch.zeros(1).expand(10**6 - 1, 10**6))
    assert tried(report, "x[:, 1:]", "x[:, 2:]") == (("x[:, 1:]",), ())


def test_nothing_is_drawn_kept_or_left():
    """The generator is where it stood, no operand is kept, no mode is left."""
    x, fc = torch.ones(32, 784), nn.Linear(128, 10)
    before, watched = torch.get_rng_state(), weakref.ref(x)
    report = refused(lambda fc, x: fc(x), fc=fc, x=x)
    assert report.mismatch.works
    assert torch.equal(before, torch.get_rng_state())
    assert torch.zeros(1).device.type == "cpu"
    del x
    gc.collect()
    assert watched() is None


def test_devices_are_taken_as_said():
    """That a tensor can be moved need not be tried; that the call then fits is."""
    report = refused(lambda x, y: x + y, x=torch.ones(3), y=torch.ones(3, device="meta"))
    told = tried(report, "y.to(x.device)", "y.cpu()", 'torch.empty_like(y, device="cpu")', kind="device", clashing=1)
    assert told == (("y.to(x.device)", "y.cpu()", 'torch.empty_like(y, device="cpu")'), ())


def test_a_number_of_one_element():
    """What is to be read as one number has to be one."""
    report = refused(_number, x=torch.ones(3))
    assert tried(report, "x.mean()", "x * 2", "x.tolist()", "x.sum().item()") == (
        ("x.mean()", "x.tolist()", "x.sum().item()"), (),
    )  # fmt: skip


def test_the_first_tensor_of_a_process_can_be_that_of_a_way():
    """Torch imports a module of its own where a tensor is first made of a number: a way can be what makes it do so."""
    code = (
        "import torch, tensormagic as tm\n"
        "told = tm.explain(namespace={})\n"
        "try:\n"
        "    with told: torch.nn.functional.mse_loss(torch.ones(2), 3.0)\n"
        "except AttributeError: pass\n"
        "print([*told.report.mismatch.works, *told.report.mismatch.maybe])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['torch.as_tensor(3.0)']"


@pytest.mark.parametrize(
    ("norm", "shape", "way"),
    [
        (nn.BatchNorm2d(8), (8, 5, 6), "x.unsqueeze(0)"),  # channels first: one image without its batch
        (nn.BatchNorm3d(8), (8, 4, 5, 6), "x.unsqueeze(0)"),
        (nn.BatchNorm2d(8), (4, 8, 6), "nn.BatchNorm1d(8)"),  # channels second: a layer for other data
        (nn.BatchNorm2d(8), (8, 8, 6), "nn.BatchNorm1d(8)"),
        (nn.BatchNorm1d(8), (8, 8, 5, 6), "nn.BatchNorm2d(8)"),
    ],
)
def test_where_a_normalisation_finds_its_channels_says_what_is_wrong(norm, shape, way):
    """A batch that is missing, which a convolution before it does not mind, or the wrong layer."""
    report = refused(lambda norm, x: norm(x), norm=norm, x=torch.ones(shape))
    assert (*report.mismatch.works, *report.mismatch.maybe) == (way,)
