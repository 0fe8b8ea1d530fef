"""Backward calls that raise for their graph, their start or a custom Function (TM301, TM304, TM305, TM311)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.refusals import refused


@ill("TM304", line="loss.backward()  # and once more", related=("loss.backward()",), says=(
    "the graph of loss a second time", "retain_graph=True"))  # fmt: skip
def the_same_loss_twice():
    w = torch.randn(3, requires_grad=True)

    def program():
        loss = (w * w).sum()
        loss.backward()
        loss.backward()  # and once more

    return refused(program, w=w)


@ill("TM304", line="loss.backward()", related=("loss.backward()", "out, hidden = rnn(x, hidden)"), says=(
    "hidden belongs to a graph", "`hidden = hidden.detach()`"))  # fmt: skip
def a_hidden_state_handed_from_batch_to_batch():
    rnn, head = nn.RNN(3, 4, batch_first=True), nn.Linear(4, 1)

    def program():
        hidden = torch.zeros(1, 2, 4)
        for _ in range(3):
            x = torch.randn(2, 5, 3)
            out, hidden = rnn(x, hidden)
            loss = head(out[:, -1]).square().mean()
            loss.backward()

    return refused(program, rnn=rnn, head=head)


@ill("TM304", line="loss.backward()", related=("loss.backward()", "out, hidden = rnn(x, hidden)"), says=(
    "hidden belongs to a graph", "`hidden = hidden.detach()`"))  # fmt: skip
def a_hidden_state_handed_on_in_a_line_of_several_statements():
    rnn, head = nn.RNN(3, 4, batch_first=True), nn.Linear(4, 1)

    def program():
        hidden = torch.zeros(1, 2, 4)
        for _ in range(3):
            x = torch.randn(2, 5, 3); out, hidden = rnn(x, hidden)  # noqa: E702  # fmt: skip
            loss = head(out[:, -1]).square().mean()
            loss.backward()

    return refused(program, rnn=rnn, head=head)


@ill("TM301", line="optimizer.step()", says=("`retain_graph=True`", "compute out again in each step"))
def a_prediction_made_before_the_loop():
    """The graph is kept, so the second backward meets weights that the first step has changed."""
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(8, 3)

    def program():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        out = net(x)
        for _ in range(3):
            loss = out.square().mean()
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()

    return refused(program, net=net)


@ill("TM304", line="loss.backward()", related=("loss.backward()", "penalty = net.weight.square().sum()"), says=(
    "penalty", "Compute penalty again in each step"))  # fmt: skip
def a_penalty_computed_once_before_the_loop():
    net = nn.Linear(3, 1)

    def program():
        penalty = net.weight.square().sum()
        for _ in range(2):
            loss = net(torch.randn(4, 3)).square().mean() + 0.01 * penalty
            loss.backward()

    return refused(program, net=net)


@ill("TM304", line="F.softplus(-critic(fake)).mean().backward()", related=(
    "(F.softplus(critic(fake)) + F.softplus(-critic(real))).mean().backward()", "fake = generator(noise)"), says=(
    "fake belongs to a graph", "`fake.detach()`"))  # fmt: skip
def a_generator_trained_through_a_freed_fake():
    generator = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def program():
        real, noise = torch.randn(5, 3), torch.randn(5, 2)
        fake = generator(noise)
        (F.softplus(critic(fake)) + F.softplus(-critic(real))).mean().backward()
        F.softplus(-critic(fake)).mean().backward()

    return refused(program, generator=generator, critic=critic)


@ill("TM304", line="l.backward()", related=("l.backward()", "labels = points.mm(true_w).tanh()"), says=("labels",))
def labels_made_by_weights_that_ask_for_gradients():
    """The data of a regression exercise, made from ``true_w``, which needs a gradient by mistake."""
    points = torch.randn(20, 2)

    def program():
        true_w = torch.randn(2, 1, requires_grad=True)
        labels = points.mm(true_w).tanh()
        w = torch.zeros(2, 1, requires_grad=True)
        for start in (0, 10):
            batch = slice(start, start + 10)
            l = (points[batch].mm(w) - labels[batch]).square().mean()  # noqa: E741  (as people write it)
            l.backward()

    return refused(program)


@ill("TM304", line="energy.backward()", related=("torch.autograd.grad(energy, positions)",), says=("energy",))
def forces_by_autograd_grad_and_then_backward():
    positions = torch.randn(4, 3, requires_grad=True)

    def program():
        energy = torch.cdist(positions, positions + 1).square().sum()
        (forces,) = torch.autograd.grad(energy, positions)
        assert forces.shape == positions.shape
        energy.backward()

    return refused(program, positions=positions)


# -- TM305 ------------------------------------------------------------------------------------------------------------


@ill("TM305", line="loss.backward()", says=("loss has 8 elements, shape (8,)", "`loss.mean().backward()`"))
def a_loss_that_is_not_reduced():
    net = nn.Linear(3, 4)

    def program():
        logits = net(torch.randn(8, 3))
        loss = F.cross_entropy(logits, torch.randint(4, (8,)), reduction="none")
        loss.backward()

    return refused(program, net=net)


@ill("TM305", line="y.backward()", says=("y has 3 elements, shape (3,)", "gradient=torch.ones_like(y)"))
def the_square_of_a_vector():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def program():
        y = x**2
        y.backward()

    return refused(program, x=x)


@ill("TM305", line="torch.autograd.grad(u, t", says=("u has 10 elements, shape (10, 1)",))
def the_derivative_of_a_network_at_many_points():
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def program():
        t = torch.linspace(0, 1, 10).reshape(-1, 1).requires_grad_()
        u = net(t)
        return torch.autograd.grad(u, t, create_graph=True)

    return refused(program, net=net)


@ill("TM305", line="(prediction - target).pow(2).backward()", says=("6 elements, shape (2, 3)",))
def an_error_without_a_mean():
    weight = torch.randn(3, 3, requires_grad=True)

    def program():
        prediction, target = torch.randn(2, 3) @ weight, torch.zeros(2, 3)
        (prediction - target).pow(2).backward()

    return refused(program, weight=weight)


# -- TM311 ------------------------------------------------------------------------------------------------------------


class LinearFunction(torch.autograd.Function):
    """The linear layer of torch's own tutorial; the bias got no gradient."""

    @staticmethod
    def forward(ctx, input, weight, bias):  # noqa: A002  (as in the tutorial)
        ctx.save_for_backward(input, weight)
        return input @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors  # noqa: A001
        return grad_output @ weight, grad_output.t() @ input


@ill("TM311", line="return grad_output @ weight, grad_output.t() @ input", related=("LinearFunction.apply",), says=(
    "LinearFunction.backward returns 2 gradients", "3 arguments (input, weight and bias)",
    "`return grad_input, grad_weight, grad_bias`"))  # fmt: skip
def a_gradient_too_few():
    weight, bias = torch.randn(2, 3, requires_grad=True), torch.zeros(2, requires_grad=True)
    return refused(lambda: LinearFunction.apply(torch.randn(4, 3), weight, bias).sum().backward(), weight=weight)


class Scale(torch.autograd.Function):
    """A factor for each column; its gradient is not summed over the rows."""

    @staticmethod
    def forward(ctx, x, power, factor):
        ctx.save_for_backward(x, factor)
        ctx.power = power
        return x * factor**power

    @staticmethod
    def backward(ctx, grad_output):
        x, factor = ctx.saved_tensors
        grad_factor = grad_output * x * ctx.power * factor ** (ctx.power - 1)
        return grad_output * factor**ctx.power, None, grad_factor[:, :2]


@ill("TM311", line="return grad_output * factor**ctx.power, None, grad_factor[:, :2]", says=(
    "Scale.backward returns a gradient of shape (5, 2) for factor, whose shape is (3,)", "factor.shape"))  # fmt: skip
def a_gradient_of_another_shape():
    factor = torch.ones(3, requires_grad=True)
    return refused(lambda: Scale.apply(torch.randn(5, 3), 2, factor).sum().backward(), factor=factor)


class LowPass(torch.autograd.Function):
    """A filter in the frequency domain; what comes back from there is complex."""

    @staticmethod
    def forward(ctx, signal, keep):
        ctx.keep = keep
        spectrum = torch.fft.fft(signal)
        spectrum[keep:-keep] = 0
        return torch.fft.ifft(spectrum).real

    @staticmethod
    def backward(ctx, grad_output):
        spectrum = torch.fft.fft(grad_output)
        spectrum[ctx.keep : -ctx.keep] = 0
        return torch.fft.ifft(spectrum), None


@ill("TM311", line="return torch.fft.ifft(spectrum), None", says=("LowPass.backward returns a complex", "grad.real"))
def a_complex_gradient_for_a_real_signal():
    signal = torch.randn(8, requires_grad=True)
    return refused(lambda: LowPass.apply(signal, 2).sum().backward(), signal=signal)


class Reverse(torch.autograd.Function):
    """A gradient reversal layer; somebody thought that the factor wants a gradient, too."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.factor == 0:
            return torch.zeros_like(grad_output), None
        return -ctx.factor * grad_output, grad_output


@ill("TM311", line="return", related=("return -ctx.factor * grad_output, grad_output",), says=(
    "Reverse.backward returns a gradient for factor, which is not a tensor", "None"))  # fmt: skip
def a_gradient_for_a_number():
    x = torch.randn(4, requires_grad=True)
    return refused(lambda: Reverse.apply(x, 0.3).sum().backward(), x=x)


class Half(torch.autograd.Function):
    """The slope, as a number."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad_output):
        return 0.5


@ill("TM311", line="return 0.5", says=("Half.backward returns a float instead of a tensor or None",))
def a_number_for_a_gradient():
    x = torch.randn(4, requires_grad=True)
    return refused(lambda: Half.apply(x).sum().backward(), x=x)


class Sign(torch.autograd.Function):
    """A straight-through estimator that clips the gradient where it stands."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[x.abs() > 1] = 0
        return g


@ill("TM311", severity="warning", line="g[x.abs() > 1] = 0", subject="Sign", related=("h = h + Sign.apply(h)",), says=(
    "Sign.backward changes g", "addmm", "is given the same tensor", "`g = g.clone()`"))  # fmt: skip
def a_clipped_gradient_that_a_skip_connection_shares():
    """What was to be zero beside the skip connection is zero on it as well."""
    first, second = nn.Linear(8, 16), nn.Linear(16, 2)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for _ in range(3):
            h = first(2 * torch.randn(8, 8))
            h = h + Sign.apply(h)
            loss = F.cross_entropy(second(h), torch.arange(8) % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Weighed(torch.autograd.Function):
    """Passes a part of the gradient on."""

    @staticmethod
    def forward(ctx, x, part):
        ctx.part = part
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.mul_(ctx.part), None


@ill("TM311", severity="warning", line="return grad_output.mul_(ctx.part), None", subject="Weighed", says=(
    "Weighed.backward changes grad_output",))  # fmt: skip
def a_gradient_that_is_weighed_for_two_heads():
    """The two branches meet in a sum, which hands one tensor to both, through a view."""
    x = torch.randn(4, 6, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        hidden = x.tanh()
        joined = hidden.sin().flatten() + Weighed.apply(hidden, 0.1).flatten()
        joined.square().sum().backward()
    return trace.report
