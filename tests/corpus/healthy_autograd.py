"""Code that writes in place, goes through graphs again or reads gradients, rightly: nearly TM301 to TM311."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy


@healthy(nearly="TM301")
def writes_that_nobody_saved():
    """In-place ReLU after a linear layer and batch norm, `+=` on a sum, a write before the value is used."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
    with tm.trace(namespace={"net": net}) as trace:
        hidden = net(torch.randn(5, 3))
        total = hidden + 1
        total += hidden
        target = torch.empty(5, 4)
        target[:] = 0.5
        (total - target).square().mean().backward()
    return trace.report


@healthy(nearly="TM301")
def states_collected_in_a_list():
    weight = torch.randn(4, 4, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        states = [torch.zeros(2, 4)]
        for _ in range(3):
            states.append(torch.tanh(states[-1] @ weight) + 1.0)
        filled = torch.zeros(2, 3, 4)
        for t, state in enumerate(states[1:]):
            filled[:, t] = state
        filled.square().sum().backward()
    return trace.report


@healthy(nearly="TM301")
def an_error_that_is_caught_and_mended():
    """A lesson about in-place writes shows the error on purpose and goes on."""
    x = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = x.exp()
        y += 1
        with pytest.raises(RuntimeError, match="inplace"):
            y.sum().backward()
        z = x.exp()
        z = z + 1
        z.sum().backward()
    return trace.report


@healthy(nearly="TM302")
def a_critic_whose_weights_are_clipped_after_each_step():
    critic = nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    with tm.trace(namespace={"critic": critic}) as trace:
        for _ in range(3):
            for weight in critic.parameters():
                weight.data.clamp_(-0.01, 0.01)
            optimizer.zero_grad()
            (critic(torch.randn(6, 2)).mean() - critic(torch.randn(6, 2) + 1).mean()).backward()
            optimizer.step()
            for weight in critic.parameters():
                weight.data.clamp_(-0.01, 0.01)
    return trace.report


@healthy(nearly="TM302")
def an_average_of_weights_and_a_descent_by_hand():
    """All of it through `.data`, as it was written in 2017; the graph of each step is gone by then."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    average = copy.deepcopy(net)
    with tm.trace(namespace={"net": net, "average": average}) as trace:
        for layer in (net[0], net[2]):
            layer.weight.data.normal_(0, 0.1)
            layer.bias.data.zero_()
        for _ in range(3):
            loss = net(torch.randn(5, 3)).square().mean()
            loss.backward()
            for mean, weight in zip(average.parameters(), net.parameters(), strict=True):
                weight.data -= 0.1 * weight.grad.data
                weight.grad.data.zero_()
                mean.data.mul_(0.9).add_(weight.data, alpha=0.1)
    return trace.report


@healthy(nearly="TM302")
def weights_swapped_for_an_evaluation_and_put_back():
    """Between forward and backward the averaged weights replace a moment."""
    net = nn.Conv2d(1, 2, 3)
    with tm.trace(namespace={"net": net}) as trace:
        x = torch.randn(2, 1, 5, 5, requires_grad=True)
        loss = net(x).square().mean()
        kept = net.weight.data.clone()
        net.weight.data.copy_(kept * 0.5)
        with torch.no_grad():
            net(x)
        net.weight.data.copy_(kept)
        loss.backward()
    return trace.report


@healthy(nearly="TM302")
def an_image_attacked_through_data():
    """Projected gradient descent: the image moves after each backward."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 2))
    image = torch.rand(1, 3, 3, requires_grad=True)
    with tm.trace(namespace={"net": net, "image": image}) as trace:
        for _ in range(3):
            F.cross_entropy(net(image), torch.tensor([1])).backward()
            image.data = (image.data + 0.1 * image.grad.sign()).clamp(0, 1)
            image.grad.data.zero_()
    return trace.report


class Binary(nn.Conv2d):
    """Sets its weights, and its input, to their signs in every forward, as the first binary networks did."""

    def forward(self, x):
        if not hasattr(self, "real"):
            self.real = self.weight.data.clone()
        x.data = x.data.sign()
        self.weight.data = self.real.sign()
        return super().forward(x)


@healthy(nearly="TM302")
def binary_weights_used_twice_before_one_backward():
    """The second forward sets what is there already."""
    left, right = Binary(1, 2, 3), Binary(1, 2, 3)
    with tm.trace(namespace={"left": left, "right": right}) as trace:
        x = torch.randn(2, 1, 5, 5, requires_grad=True) * 1.0
        total = left(x) + right(x) + left(x + 1)
        total.square().mean().backward()
    return trace.report


@healthy(nearly="TM302")
def a_rounding_that_lets_the_gradient_through():
    """A straight-through estimator by `.data`: nothing had saved what is overwritten."""
    net, head = nn.Linear(3, 4), nn.Linear(4, 1)
    with tm.trace(namespace={"net": net, "head": head}) as trace:
        hidden = net(torch.randn(5, 3))
        hidden.data.round_()
        head(hidden).square().mean().backward()
    return trace.report


@healthy(nearly="TM304")
def a_graph_that_is_kept():
    x = torch.randn(4, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        slope.sum().backward()
    return trace.report


@healthy(nearly="TM304")
def backpropagation_through_time_cut_at_each_batch():
    rnn, head = nn.RNN(3, 4, batch_first=True), nn.Linear(4, 1)
    with tm.trace(namespace={"rnn": rnn, "head": head}) as trace:
        hidden = torch.zeros(1, 2, 4)
        for _ in range(3):
            out, hidden = rnn(torch.randn(2, 5, 3), hidden.detach())
            head(out[:, -1]).square().mean().backward()
    return trace.report


@healthy(nearly="TM304")
def checkpoints_inside_checkpoints():
    """Each segment's graph is made anew in backward."""
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def half(x):
        return checkpoint(layers[1], layers[0](x).relu(), use_reentrant=False)

    with tm.trace(namespace={"layers": layers}) as trace:
        for _ in range(2):
            x = torch.randn(2, 4, requires_grad=True)
            layers[2](checkpoint(half, x, use_reentrant=False)).sum().backward()
    return trace.report


@healthy(nearly="TM305")
def backward_from_a_gradient_of_ones_own():
    x = torch.arange(3.0, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        (x * x).backward(gradient=torch.tensor([1.0, 0.1, 0.01]))
        torch.autograd.grad(x.exp(), x, grad_outputs=torch.ones(3))
        torch.autograd.backward([x.sum(), x * 2], [None, torch.ones(3)])
    return trace.report


@healthy(nearly="TM305")
def backward_from_one_element():
    weight = torch.randn(3, 1, requires_grad=True)
    with tm.trace(namespace={"weight": weight}) as trace:
        (torch.randn(1, 3) @ weight).backward()
    return trace.report


@healthy(nearly="TM307")
def gradients_of_activations_that_are_kept():
    body, head = nn.Linear(3, 4), nn.Linear(4, 1)
    with tm.trace(namespace={"body": body, "head": head}) as trace:
        hidden = body(torch.randn(5, 3)).tanh()
        hidden.retain_grad()
        kept = []
        hidden.register_hook(kept.append)
        head(hidden).mean().backward()
        assert hidden.grad is not None
        assert torch.equal(hidden.grad, kept[0])
    return trace.report


@healthy(nearly="TM307")
def tensors_that_are_asked_whether_they_have_a_gradient():
    x = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = x * 2
        y.sum().backward()
        for tensor in (x, y):
            if tensor.grad is not None:
                tensor.grad.zero_()
        nn.utils.clip_grad_norm_([x, y], 1.0)
        cleared = [getattr(tensor, "grad", None) for tensor in (x, y)]
        assert cleared[1] is None
    return trace.report


@healthy(nearly="TM307")
def leaves_without_a_gradient_yet():
    net = nn.Linear(3, 1)
    constant = torch.ones(3)
    with tm.trace(namespace={"net": net}) as trace:
        before = [parameter.grad for parameter in net.parameters()]
        net(constant).sum().backward()
        assert before == [None, None]
        assert constant.grad is None
    return trace.report


@healthy(nearly="TM308")
def an_update_under_no_grad():
    w = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(3):
            (w * w).sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                w[0] = 0
            w.grad = None
    return trace.report


@healthy(nearly="TM308")
def weights_initialised_as_torch_does_it():
    net = nn.Linear(3, 2)
    with tm.trace(namespace={"net": net}) as trace:
        nn.init.xavier_uniform_(net.weight)
        nn.init.zeros_(net.bias)
        net.weight.detach()[0] = 0
        net(torch.randn(4, 3)).sum().backward()
    return trace.report


class Square(torch.autograd.Function):
    """With everything that a custom Function may have."""

    @staticmethod
    def forward(x, scale, flag):
        return scale * x * x if flag else x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * ctx.scale * x * grad_output, None, None


@healthy(nearly="TM311")
def a_function_with_a_context_of_its_own():
    x = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        Square.apply(x, 3.0, True).sum().backward()
    return trace.report


class Plus(torch.autograd.Function):
    """Returns the gradient of the broadcast shape, and in another precision: autograd sums and converts it."""

    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.double()


@healthy(nearly="TM311")
def a_gradient_that_autograd_sums_itself():
    bias = torch.zeros(3, requires_grad=True)
    with tm.trace(namespace={"bias": bias}) as trace:
        Plus.apply(torch.randn(4, 3), bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((3,), 4.0))
    return trace.report


class Clipped(torch.autograd.Function):
    """Clips a gradient in place, or a copy of it."""

    @staticmethod
    def forward(ctx, x, copies):
        ctx.copies = copies
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone() if ctx.copies else g
        g.clamp_(-0.1, 0.1)
        made = torch.zeros_like(g)
        made += g
        return made, None


@healthy(nearly="TM311")
def a_backward_that_writes_into_a_copy():
    """Beside a skip connection."""
    x = torch.randn(4, 6, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        hidden = x.tanh()
        (hidden + Clipped.apply(hidden, True)).square().sum().backward()
    return trace.report


@healthy(nearly="TM311")
def a_backward_that_writes_into_what_it_alone_is_given():
    """In a chain, in a part of a list that is joined, of the value that backward starts from, and beside a leaf."""
    x, bias = torch.randn(4, 6, requires_grad=True), torch.zeros(4, 6, requires_grad=True)
    with tm.trace(namespace={"x": x, "bias": bias}) as trace:
        Clipped.apply(x.tanh(), False).flatten().square().sum().backward()
        torch.cat([x.sin(), Clipped.apply(x.cos(), False)]).square().sum().backward()
        Clipped.apply(x.tanh().sum(), False).backward()
        made = Clipped.apply(x.tanh(), False).clone()
        made.backward(torch.ones_like(made))
        (bias + Clipped.apply(x.tanh(), False)).square().sum().backward()
        (x.sin() - Clipped.apply(x.tanh(), False)).square().sum().backward()
    return trace.report


class Doubled(torch.autograd.Function):
    """Writes into its argument in forward, and says so."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


@healthy(nearly="TM311")
def a_forward_that_writes_and_says_so():
    net = nn.Linear(3, 3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            hidden = net(torch.randn(4, 3))
            (hidden.sin() + Doubled.apply(hidden + 1)).square().mean().backward()
            net.zero_grad()
    return trace.report


@healthy(nearly="TM302")
def arrays_that_are_copied_read_and_put_back():
    """Values for a plot, scaled in a copy; a weight set to zero for a moment and put back."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            hidden = net[:2](torch.randn(5, 3))
            shown = hidden.detach().numpy().copy()
            shown -= shown.mean()
            loss = net[2](hidden).square().mean()
            weights = net[2].weight.detach().numpy()
            kept = weights.copy()
            weights[:] = 0
            with torch.no_grad():
                net(torch.randn(5, 3))
            weights[:] = kept
            loss.backward()
    return trace.report


@healthy(nearly="TM302")
def a_buffer_that_is_filled_anew_after_each_backward():
    """One array for all batches: each graph is gone when the next one is written."""
    net, buffer = nn.Linear(4, 2), np.zeros((8, 4), np.float32)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for seed in range(4):
            buffer[:] = np.random.default_rng(seed).normal(size=buffer.shape)
            optimizer.zero_grad()
            loss = net(torch.as_tensor(buffer)).square().mean()
            loss.backward()
            optimizer.step()
            weights = net.weight.detach().numpy()
            np.clip(weights, -0.5, 0.5, out=weights)
    return trace.report


@healthy(nearly="TM301")
def tests_that_expect_the_error():
    """Two ways to say that an error is wanted, one of them in a loop."""
    x = torch.randn(3, requires_grad=True)

    def spoilt():
        y = x.exp()
        y += 1
        return y.sum()

    with tm.trace(namespace={"x": x}) as trace:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="inplace"):
                spoilt().backward()
        with contextlib.suppress(RuntimeError):
            spoilt().backward()
    return trace.report
