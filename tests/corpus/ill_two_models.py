"""Two models in one run, of which the optimizer, the loss or the gradient knows one (TM303, TM310, TM313 to TM604)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


def _train(first, second, *optimizers, steps=4):
    names = {f"optimizer_{at}": each for at, each in enumerate(optimizers)}
    with tm.trace(namespace={"first": first, "second": second, **names}) as trace:
        for images, classes in batches(steps):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = F.cross_entropy(second(first(images.flatten(1))), classes)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    return trace.report


@ill("TM604", severity="warning", line="optimizer.step()", says=(
    "4 parameters of first and second get gradients", "`torch.optim.Adam([*first.parameters(), *second.parameters()]",
))  # fmt: skip
def two_models_of_other_sizes():
    """A wider hidden layer is tried; the optimizer is that of the narrow one."""
    narrow = nn.Linear(64, 8), nn.Linear(8, 10)
    optimizer = torch.optim.Adam([*narrow[0].parameters(), *narrow[1].parameters()])
    return _train(nn.Linear(64, 32), nn.Linear(32, 10), optimizer)


@ill("TM602", severity="warning", line="optimizer.step()", subject="first.weight", says=(
    "optimizer_0 holds 2 parameters of the same shapes that no model uses any more", "Make the optimizer once first",
))  # fmt: skip
def one_of_two_models_is_made_anew():
    """The cell that makes the encoder was run again; the head still learns, so the loss falls a little."""
    encoder, head = nn.Linear(64, 16), nn.Linear(16, 10)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    return _train(nn.Linear(64, 16), head, optimizer)


@ill("TM602", severity="note", line="optimizer.step()", subject="temperature", says=(
    "temperature gets gradients in every step, but it is in no optimizer", '{"params": [temperature]}',
))  # fmt: skip
def a_temperature_that_is_in_no_optimizer():
    """A Parameter beside the model, with a name of its own."""
    net, temperature = mlp(64, 16, 10), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "temperature": temperature, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)) / temperature, classes).backward()
            optimizer.step()
    return trace.report


class Spread(nn.Module):
    """An autoencoder whose code is drawn: the mean and the logarithm of the variance come from a layer each."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_variance, self.decoder = nn.Linear(64, 4), nn.Linear(64, 4), nn.Linear(4, 64)

    def forward(self, x):
        mean, log_variance = self.mean(x), self.log_variance(x)
        code = torch.distributions.Normal(mean, (log_variance / 2).exp()).sample()
        return self.decoder(code), mean, log_variance


def _reconstruct(penalty):
    net = Spread()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, _ in batches(5):
            x = images.flatten(1)
            made, mean, log_variance = net(x)
            optimizer.zero_grad()
            (F.mse_loss(made, x) + penalty(mean, log_variance)).backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", line=".sample()", subject="net.log_variance.weight", says=(
    "net.log_variance gets no gradient", "use `.rsample()`"))  # fmt: skip
def a_variance_that_only_the_draws_could_teach():
    """The mean has another way to the loss, and layers of the same shapes: it is no copy of the other."""
    return _reconstruct(lambda mean, _: 0.1 * mean.square().mean())


@ill("TM313", severity="note", line=".sample()", says=(
    "learns from other terms of the loss alone", "use `.rsample()`"))  # fmt: skip
def draws_that_teach_nothing_beside_a_penalty():
    """Both layers get gradients, of the penalty; what the decoder makes of a draw teaches them nothing."""
    return _reconstruct(
        lambda mean, log_variance: -0.05 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
    )


@ill("TM310", severity="warning", subject="opt", line="loss.backward()", says=("were cleared before a step used them",))
def micro_batches_of_which_the_last_counts():
    """The model is cleared in the inner loop, and the step is outside of it."""
    net = mlp(64, 16, 10)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "opt": opt}) as trace:
        for _ in range(4):
            for images, classes in batches(3):
                net.zero_grad()
                loss = F.cross_entropy(net(images.flatten(1)), classes) / 3
                loss.backward()
            opt.step()
    return trace.report


@ill("TM315", severity="warning", line="loss.backward(create_graph=True)", says=("reference cycle",))
def a_create_graph_under_two_optimizers():
    """Body and head have an optimizer each."""
    body, head = nn.Linear(64, 16), nn.Linear(16, 10)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (body, head)]
    with tm.trace(namespace={"body": body, "head": head}) as trace:
        for images, classes in batches(4):
            loss = F.cross_entropy(head(body(images.flatten(1)).relu()), classes)
            loss.backward(create_graph=True)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@ill("TM622", severity="note", line="e.step()", subject="d", says=("of decoder", "`d.step()`"))
def a_decoder_whose_optimizer_never_steps():
    """It lies between the loss and what is stepped, as a critic does; but its own gradients are cleared each time."""
    encoder, decoder = mlp(64, 16, 4), mlp(4, 16, 64)
    e, d = torch.optim.Adam(encoder.parameters()), torch.optim.Adam(decoder.parameters())
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder, "e": e, "d": d}) as trace:
        for images, _ in batches(5, 16):
            x = images.flatten(1)
            e.zero_grad()
            d.zero_grad()
            F.mse_loss(decoder(encoder(x)), x).backward()
            e.step()
    return trace.report


@ill("TM622", severity="note", line="opt.zero_grad()", subject="opt", says=("of Sequential", "`opt.step()`"))
def a_function_that_trains_without_a_step():
    """All is made in a function, and gone when the run has ended."""

    def train():
        net = mlp(64, 16, 10)
        opt = torch.optim.Adam(net.parameters())
        for images, classes in batches(5):
            opt.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()

    with tm.trace(namespace={}) as trace:
        train()
    return trace.report


@ill("TM622", severity="note", line="head_opt.step()", subject="body_opt", says=("head_opt steps", "`body_opt.step()`"))
def a_function_that_steps_one_of_two():
    """The optimizer of the first part is cleared and never stepped, in a function."""

    def train():
        body, head = mlp(64, 16, 16), nn.Linear(16, 10)
        body_opt, head_opt = torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
        for images, classes in batches(5):
            body_opt.zero_grad()
            head_opt.zero_grad()
            F.cross_entropy(head(body(images.flatten(1))), classes).backward()
            head_opt.step()

    with tm.trace(namespace={}) as trace:
        train()
    return trace.report


def _adapt(step, outer):
    """Meta-learning: ``step(parameters, gradients)`` gives the adapted ones, ``outer(loss, net, adapted)`` learns."""
    net = mlp(8, 16, 3)
    meta = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "meta": meta}) as trace:
        for _ in range(5):
            parameters, classes = dict(net.named_parameters()), torch.arange(6) % 3
            inner = F.cross_entropy(functional_call(net, parameters, torch.randn(6, 8)), classes)
            gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
            fast = step(parameters, gradients)
            meta.zero_grad()
            outer(F.cross_entropy(functional_call(net, fast, torch.randn(6, 8)), classes), net, fast)
            meta.step()
    return trace.report


@ill("TM303", severity="warning", line="p.data - 0.1 * g", subject="net.0.weight", says=(
    "all 4 parameters of net", "leave out `.data`"))  # fmt: skip
def an_inner_step_from_the_data_of_the_weights():
    """The adapted weights are leaves: the outer loss does not lead back to where they came from."""

    def step(parameters, gradients):
        pairs = zip(parameters.items(), gradients, strict=True)
        return {name: (p.data - 0.1 * g.detach()).requires_grad_() for (name, p), g in pairs}

    return _adapt(step, lambda loss, _net, _fast: loss.backward())


@ill("TM601", severity="warning", line="meta.step()", says=(
    "meta makes 5 steps, but no parameter of net has a gradient", "was returned by `autograd.grad`",
))  # fmt: skip
def meta_learning_of_weights_that_begin_anew():
    """The adapted weights are made leaves of their own: the outer loss has no way back to the model."""

    def step(parameters, gradients):
        pairs = zip(parameters.items(), gradients, strict=True)
        return {name: (p - 0.1 * g).detach().requires_grad_() for (name, p), g in pairs}

    return _adapt(step, lambda loss, _net, _fast: loss.backward())
