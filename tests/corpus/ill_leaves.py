"""Gradients looked for where there are none (TM307), leaves written to while autograd records (TM308) or not at all."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches
from tests.corpus.refusals import refused


@ill("TM307", severity="warning", line="seen.append(hidden.grad)", related=("hidden = body(x).tanh()",), says=(
    "The .grad of hidden is read", "tanh made it", "`hidden.retain_grad()`"))  # fmt: skip
def the_gradient_of_an_activation():
    body, head = nn.Linear(3, 4), nn.Linear(4, 1)
    seen = []
    with tm.trace(namespace={"body": body, "head": head}) as trace:
        x = torch.randn(5, 3)
        hidden = body(x).tanh()
        head(hidden).mean().backward()
        seen.append(hidden.grad)
    return trace.report


@ill("TM307", line="w -= lr * w.grad", related=("w = torch.randn(3, 1, requires_grad=True) * 0.01",), says=(
    "The .grad of w is read", "mul made it"))  # fmt: skip
def a_weight_scaled_after_requires_grad():
    """The weight is the product; the leaf has no name."""
    lr = 0.1

    def program():
        w = torch.randn(3, 1, requires_grad=True) * 0.01
        (torch.randn(4, 3) @ w).square().mean().backward()
        w -= lr * w.grad

    return refused(program)


@ill("TM307", line="image.grad", says=("image", "to_copy made it", "3 times"))
def an_input_converted_after_requires_grad():
    net = nn.Linear(6, 2).double()
    with tm.trace(namespace={"net": net}) as trace:
        found = []
        for _ in range(3):
            image = torch.rand(1, 6, requires_grad=True).to(torch.float64)
            net(image)[0, 1].backward()
            found.append(image.grad)
    return trace.report


@ill("TM307", line="return (u * v).sum(), v.grad", says=("v", "`u.grad`"))
def the_gradient_of_a_clone():
    u = torch.ones(3, requires_grad=True)

    def product():
        v = u.clone()
        (v * v).sum().backward()
        return (u * v).sum(), v.grad

    with tm.trace(namespace={"u": u}) as trace:
        product()
    return trace.report


@ill("TM308", line="w -= 0.1 * w.grad", says=("w is a leaf", "`w -= 0.1 * w.grad`", "torch.no_grad()"))
def gradient_descent_by_hand():
    w = torch.randn(3, requires_grad=True)

    def program():
        (w * w).sum().backward()
        global_w = w
        step(global_w)

    def step(w):
        w -= 0.1 * w.grad

    return refused(program, w=w)


@ill("TM308", line="image[:, 0] = 0", says=("image is a leaf",))
def a_pixel_set_in_an_image_that_wants_a_gradient():
    image = torch.rand(1, 3, 4, requires_grad=True)

    def program():
        image[:, 0] = 0
        image.sum().backward()

    return refused(program, image=image)


@ill("TM308", line="net.bias.fill_(0.5)", says=("net.bias is a leaf", "`net.bias.fill_(0.5)`"))
def a_bias_initialised_in_the_open():
    net = nn.Linear(3, 2)
    return refused(lambda: net.bias.fill_(0.5), net=net)


@ill("TM308", line="row.mul_(2)", says=("is a view of a leaf",))
def one_row_of_a_weight_scaled():
    table = nn.Parameter(torch.randn(4, 3))

    def program():
        row = table[1]
        row.mul_(2)

    return refused(program, table=table)


@ill("TM617", severity="warning", subject="p", line="p = p - 0.1 * p.grad",
     says=("gives the name p to a new tensor", "in place: `p -= 0.1 * p.grad`"))  # fmt: skip
def an_update_by_hand_of_a_name_alone():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            with torch.no_grad():
                for p in net.parameters():
                    p = p - 0.1 * p.grad  # noqa: PLW2901  (that is what this is about)
    return trace.report


@ill("TM617", severity="warning", subject="p", line="p = p - 0.1 * p.grad", says=("in place: `p -= 0.1 * p.grad`",))
def an_update_of_the_name_of_a_plain_tensor_that_is_cleared_with_it():
    """What is set on a name reads nothing of it: here it clears the gradient of what the name has come to mean."""
    weight, bias = torch.zeros(10, 64, requires_grad=True), torch.zeros(10, requires_grad=True)
    with tm.trace(namespace={"weight": weight, "bias": bias}) as trace:
        for images, classes in batches(4):
            F.cross_entropy(F.linear(images.flatten(1), weight, bias), classes).backward()
            with torch.no_grad():
                for p in (weight, bias):
                    p = p - 0.1 * p.grad  # noqa: PLW2901  (that is what this is about)
                    p.grad = None
    return trace.report


@ill("TM617", severity="warning", subject="p", line="p = p - p.grad * rate",
     says=("gives the name p to a new tensor", "in place: `with torch.no_grad(): p -= p.grad * rate`"))  # fmt: skip
def an_update_by_hand_of_a_name_alone_in_a_function():
    net, rate = nn.Linear(64, 10), 0.1

    def update():
        for p in net.parameters():
            p = p - p.grad * rate  # noqa: PLW2901  (that is what this is about)

    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            net.zero_grad(set_to_none=False)
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            update()
    return trace.report


@ill("TM617", severity="warning", subject="p", line="for p in net.parameters(): p = p - 0.1 * p.grad",
     says=("gives the name p to a new tensor", "in place: `p -= 0.1 * p.grad`"))  # fmt: skip
def an_update_by_hand_of_a_name_alone_on_one_line():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            with torch.no_grad():
                # fmt: off
                for p in net.parameters(): p = p - 0.1 * p.grad  # noqa: E701, PLW2901  (that is what this is about)
                # fmt: on
    return trace.report


@ill("TM617", severity="warning", subject="p", line="p", says=("in place: `p -= 0.1 * p.grad`",))
def an_update_by_hand_of_a_name_alone_on_several_lines():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            net.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            with torch.no_grad():
                for p in net.parameters():
                    # fmt: off
                    p = (  # noqa: PLW2901  (that is what this is about)
                        p
                        - 0.1 * p.grad
                    )
                    # fmt: on
    return trace.report
