"""Training code in which a gradient becomes NaN or infinite (TM402), each for another reason."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, digits, mlp, train_classifier
from tests.corpus.library import Distance, entropy


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


@ill("TM402", op="log", line="p.log()", says=("its input holds 3 zeros, so 3 of the 10 elements it sends to p are",))
def logarithm_of_zero():
    p = torch.rand(10).clamp_min(0.1)
    p[2:5] = 0
    p.requires_grad_()
    with tm.trace(namespace={"p": p}) as trace:
        p.log().clamp_min(-5).sum().backward()
    return trace.report


@ill(
    "TM402", op="log", line="h = F.relu(x @ w).log()", says=("NaN", "in backward pass 3 of 4", "holds 1 zero, so 1 of")
)
def logarithm_after_relu_in_a_loop():
    """Finite for a while: the pass in which it happens is named."""
    w = torch.eye(4).requires_grad_()
    with tm.trace(namespace={"w": w}) as trace:
        for step in range(4):
            x = torch.ones(3, 4)
            if step >= 2:
                x[1, 1] = -1
            h = F.relu(x @ w).log()
            h.clamp_min(-10).mean().backward()
    return trace.report


@ill(
    "TM402", op="log", line="logarithm = probabilities.log()", says=("library.py, line 10", "its input holds 10 zeros")
)
def entropy_of_certain_predictions():
    """The op is in a function of another file: that line is named, not the call."""
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([200.0, 0.0, 0.0]))
    with tm.trace(namespace={"net": net}) as trace:
        entropy(net(torch.randn(5, 4)).softmax(-1)).mean().backward()
    return trace.report


@ill("TM402", op="log", line="loss = F.nll_loss(p.log(), classes)", says=("its input holds", "softmax"))
def softmax_and_logarithm_apart():
    """The commonest of all: cross entropy by hand, on scores that are far apart."""
    net = nn.Linear(64, 10)
    nn.init.normal_(net.weight, std=40)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(2):
            p = net(images.flatten(1)).softmax(-1)
            loss = F.nll_loss(p.log(), classes)
            loss.backward()
    return trace.report


@ill(
    "TM402", op="sqrt", line="difference.square().sum().sqrt()", says=("library.py, line 24", "its input holds 1 zero")
)
def square_root_at_zero_inside_a_module():
    """The op is in the forward of a module: that line, not the line that called the model."""
    net = Distance()
    with tm.trace(namespace={"net": net}) as trace:
        net().backward()
    return trace.report


@ill("TM402", op="sqrt", line="return (a - b).square().sum(1).sqrt()", says=("holds 1 zero, so 1 of the 6 elements",))
def distances_of_which_one_is_zero():
    """The norm of a zero vector written out; torch's own norm is 0 there, with a slope of 0."""

    def distance(a, b):
        return (a - b).square().sum(1).sqrt()

    points = torch.randn(6, 3)
    moved = points.clone()
    moved[:5] += 1
    moved.requires_grad_()
    with tm.trace(namespace={"moved": moved}) as trace:
        F.relu(distance(moved, points) - 0.5).sum().backward()
    return trace.report


@ill(
    "TM402",
    op="mul",
    line="scaled = x * weight",
    says=("it multiplies a finite gradient by a value that is already not finite",),
)
def zero_times_infinity():
    x, weight = leaf(1.0, 2.0, 3.0), torch.tensor([1.0, math.inf, 1.0])
    with tm.trace(namespace={"x": x}) as trace:
        scaled = x * weight
        scaled[[0, 2]].sum().backward()
    return trace.report


@ill("TM402", op="exp", line="e = scores.exp()", says=("its result is not finite, so 1 of the 3 elements",))
def exponential_overflows():
    scores = leaf(1.0, 2.0, 100.0)
    with tm.trace(namespace={"scores": scores}) as trace:
        e = scores.exp()
        e.clamp_max(1e30).add(e).log().sum().backward()
    return trace.report


@ill("TM402", op="div", line="p = e / e.sum()", says=("its divisor is already not finite",))
def softmax_by_hand_overflows():
    scores = leaf(1.0, 2.0, 100.0)
    with tm.trace(namespace={"scores": scores}) as trace:
        e = scores.exp()
        p = e / e.sum()
        p[0].backward()
    return trace.report


@ill("TM402", op="pow", line="x ** 0.5", says=("its input holds 1 zero",))
def fractional_power_of_zero():
    x = leaf(0.0, 1.0, 4.0)
    with tm.trace(namespace={"x": x}) as trace:
        (x ** 0.5).sum().backward()  # fmt: skip
    return trace.report


@ill("TM402", op="reciprocal", line="1 / x", says=("it divides by zero at 1 element, so 1 of the 3",))
def one_over_zero():
    x = leaf(0.0, 1.0, 4.0)
    with tm.trace(namespace={"x": x}) as trace:
        (1 / x).sum().backward()
    return trace.report


@ill("TM402", op="acos", line="angle = cosine.acos()", says=("its input is not strictly between -1 and 1 everywhere",))
def angle_between_equal_directions():
    a, b = leaf(1.0, 0.0), torch.tensor([1.0, 0.0])
    with tm.trace(namespace={"a": a}) as trace:
        cosine = a @ b
        angle = cosine.acos()
        angle.backward()
    return trace.report


@ill("TM402", op="std", line="x.std()", says=("its result is not finite", "the one element"))
def deviation_of_a_single_element():
    x = leaf(3.0)
    with tm.trace(namespace={"x": x}) as trace:
        (x * 2 - x.std()).sum().backward()
    return trace.report


@ill(
    "TM402", op="softmax", line="scores.softmax(-1)", says=("its forward result was already not finite", "4 of the 16")
)
def a_row_that_is_masked_completely():
    """Softmax over nothing but -inf: NaN in the forward."""
    x = torch.randn(4, 4, requires_grad=True)
    mask = torch.zeros(4, 4)
    mask[2] = -math.inf
    with tm.trace(namespace={"x": x}) as trace:
        scores = x + mask
        scores.softmax(-1)[:2].square().sum().backward()
    return trace.report


@ill("TM402", op="mul", line="y.backward(gradient)", says=("Backward was started with a gradient", "1 element"))
def a_gradient_that_was_given():
    x = leaf(1.0, 2.0, 3.0)
    gradient = torch.tensor([1.0, math.nan, 1.0])
    with tm.trace(namespace={"x": x}) as trace:
        y = x * 2
        y.backward(gradient)
    return trace.report


@ill("TM402", op="mul", line="loss = (x * 1e4).mean()", says=("finite but huge",))
def a_loss_scale_without_bound():
    """float32 itself overflows: the line is that of the op whose gradient did not fit."""
    x = leaf(1.0, 2.0, 3.0)
    scale = torch.tensor(1e38)
    with tm.trace(namespace={"x": x}) as trace:
        loss = (x * 1e4).mean()
        (loss * scale).backward()
    return trace.report


@ill("TM402", op="Halved", line="y = Halved.apply(x)", says=("ill_not_finite.py, line", "2 of the 3"))
def a_custom_function_with_a_wrong_backward():
    """A custom Function's own line is given."""

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient / torch.tensor([2.0, 0.0, 0.0])

    x = leaf(1.0, 2.0, 3.0)
    with tm.trace(namespace={"x": x}) as trace:
        y = Halved.apply(x)
        y.sum().backward()
    return trace.report


@ill("TM402", op="log", line="return (z * 2).log()", says=("its input holds 1 zero",))
def inside_a_reentrant_checkpoint():
    """Backward runs through the segment in a pass of its own: its node is named, not the whole checkpoint."""

    def segment(z):
        return (z * 2).log()

    x = leaf(0.0, 1.0)
    with tm.trace(namespace={"x": x}) as trace:
        y = checkpoint(segment, x * 1, use_reentrant=True)
        (y * torch.tensor([0.0, 1.0])).sum().backward()
    return trace.report


@ill("TM402", op="log", line="a = x.log()", says=("its input holds 1 zero",))
def one_of_two_paths_into_the_same_tensor():
    """Two ops feed the gradient of x; only one of them is to blame."""
    x = leaf(0.0, 1.0)
    with tm.trace(namespace={"x": x}) as trace:
        a = x.log()
        b = x.sin()
        (a.clamp_min(-3) + b).sum().backward()
    return trace.report


@ill("TM402", op="sqrt", line="h = F.relu(self.first(x)).sqrt()", says=("its input holds",))
def square_root_after_relu_in_a_model():
    class Rooted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 10)

        def forward(self, x):
            h = F.relu(self.first(x)).sqrt()
            return self.second(h)

    net = Rooted()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, steps=2, flat=True)
    assert digits()[0].min() == 0
    return trace.report


@ill("TM402", op="pow", line="loss = (w**0.5).sum()", says=("its input holds 1 negative number", "1 of the 3 elements"))
def a_fractional_power_of_a_negative_number():
    w = leaf(-1.0, 1.0, 4.0)
    with tm.trace(namespace={"w": w}) as trace:
        loss = (w**0.5).sum()
        loss.backward()
    return trace.report


@ill("TM401", severity="error", line="e = net(x).exp()", says=("made by exp", "subtract the maximum first"),
     also=("TM402",))  # fmt: skip
def a_softmax_by_hand_that_overflows():
    net = nn.Linear(4, 3)
    nn.init.ones_(net.weight)
    x = torch.rand(8, 4) * 100 + 50
    with tm.trace(namespace={"net": net}) as trace:
        e = net(x).exp()
        p = e / e.sum(1, keepdim=True)
        (-p[:, 0].log().mean()).backward()
    return trace.report


@ill("TM401", severity="warning", line="F.cross_entropy(scores, classes)", related=("masked_fill",), says=(
    "made by log_softmax", "leave the class of each target unmasked",
))  # fmt: skip
def a_target_whose_class_is_masked():
    """Classes that the sample cannot have are masked, and a label says otherwise."""
    net, mask = mlp(64, 16, 10), torch.arange(10) > 7
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            scores = net(images.flatten(1)).masked_fill(mask, float("-inf"))
            loss = F.cross_entropy(scores, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM401", severity="error", line=".sum(1)", related=("masked_fill",), says=("in front of a softmax", "with 0"))
def attention_masked_with_infinity_after_the_softmax():
    """The mask of scores, a line too late: what is added up is infinite."""
    score, value = nn.Linear(8, 1), torch.randn(4, 6, 8)
    mask = torch.arange(6) > 3
    with tm.trace(namespace={"score": score}) as trace:
        weights = score(value).squeeze(-1).softmax(-1).masked_fill(mask, float("-inf"))
        (weights.unsqueeze(-1) * value).sum(1).square().mean().backward()
    return trace.report


@ill("TM402", line="loss = F.cross_entropy(net[1](hidden), classes)", says=(
    "a hook (ill_not_finite.py, line", "runs on what it sends"))  # fmt: skip
def a_hook_that_normalises_a_gradient_of_zero():
    """Samples that are already right get a gradient of zero, and the hook divides by its norm."""
    net = nn.Sequential(nn.Linear(64, 16), nn.Linear(16, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            hidden = net[0](images.flatten(1))
            hidden.register_hook(lambda g: (g * 0) / (g * 0).norm())
            loss = F.cross_entropy(net[1](hidden), classes)
            loss.backward()
    return trace.report
