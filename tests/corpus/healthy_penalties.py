"""Gradients in losses that are as they should be, and custom Functions of every honest kind."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import mlp


@healthy(nearly="TM317")
def a_critic_whose_penalty_has_a_graph():
    """WGAN-GP as it is written in the paper."""
    critic = mlp(2, 16, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with tm.trace(namespace={"critic": critic}) as trace:
        for _ in range(4):
            real, fake = torch.randn(16, 2) + 2, torch.randn(16, 2)
            mixed = (0.5 * real + 0.5 * fake).requires_grad_()
            (pull,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = (pull.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def two_losses_weighed_by_their_gradients():
    """VQGAN's adaptive weight is a factor, and is meant to be a number."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x = torch.randn(16, 4)
            out, last = net(x), net[2].weight
            near, smooth = F.mse_loss(out, x), out.diff(dim=1).square().mean()
            (one,) = torch.autograd.grad(near, last, retain_graph=True)
            (other,) = torch.autograd.grad(smooth, last, retain_graph=True)
            weight = (one.norm() / (other.norm() + 1e-4)).clamp(0, 100)
            optimizer.zero_grad()
            (near + 0.1 * weight * smooth).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def a_first_order_inner_step():
    """First-order MAML of one number: the inner step's gradient is a constant on purpose."""
    w = nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([w], lr=0.01)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(4):
            x = torch.randn(8)
            (inner,) = torch.autograd.grad(F.mse_loss(w * x, 2 * x), w)
            moved = w - 0.1 * inner
            optimizer.zero_grad()
            F.mse_loss(moved * x, 2 * x).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def adversarial_examples_from_their_gradient():
    """A step against the sign of the gradient is data for the next forward."""
    net = mlp(4, 16, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 4).requires_grad_(), torch.arange(16) % 3
            (pull,) = torch.autograd.grad(F.cross_entropy(net(x), y), x)
            worse = x.detach() + 0.1 * pull.sign()
            optimizer.zero_grad()
            (F.cross_entropy(net(x.detach()), y) + F.cross_entropy(net(worse), y)).backward()
            optimizer.step()
    return trace.report


class Half(torch.autograd.Function):
    """Keeps the chain rule."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / 2


class Barrier(torch.autograd.Function):
    """Lets nothing through, and says so."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return None


class Passed(torch.autograd.Function):
    """Hands what arrives to another function."""

    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, *grads):
        return tuple(3 * each for each in grads)


@healthy(nearly="TM318")
def a_barrier_that_returns_none():
    """Its backward ignores what arrives, and passes nothing on."""
    net, head = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"net": net, "head": head}) as trace:
        for _ in range(3):
            hidden = Half.apply(net(torch.randn(8, 4)))
            optimizer.zero_grad()
            (F.cross_entropy(head(Barrier.apply(hidden)), torch.arange(8) % 3) + hidden.square().mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM318")
def a_backward_that_takes_all_it_is_given():
    """What arrives has one name for all of it."""
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            Passed.apply(net(torch.randn(8, 4))).square().mean().backward()
            optimizer.step()
    return trace.report


class Masked(torch.autograd.Function):
    """A product with a mask, which learns nothing."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


@healthy(nearly="TM318")
def a_backward_that_returns_none_for_what_does_not_learn():
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            Masked.apply(net(torch.randn(8, 4)), torch.tensor([1.0, 1.0, 0.0])).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM318")
def gradients_that_torch_puts_on_weights():
    """As differential privacy clips them: torch returns None for the weights, and puts the gradients on them itself."""
    net = mlp(4, 16, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(16, 4)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            for p in net.parameters():
                p.grad_sample = None
            out = call_for_per_sample_grads(net, batch_size=16, loss_reduction="mean")(x)
            F.cross_entropy(out, (x[:, 0] > 0).long()).backward()
            norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in net.parameters()]).norm(dim=0)
            for p in net.parameters():
                p.grad = torch.einsum("n,n...->...", 1 / norms.clamp(min=1), p.grad_sample) / 16
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def an_equation_of_a_second_derivative():
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x = torch.rand(32, 1, requires_grad=True)
            y = net(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
            optimizer.zero_grad()
            (bend + y).square().mean().backward()
            optimizer.step()
    return trace.report


class Pair(torch.autograd.Function):
    """Returns None for what was made into a result that nobody used."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 2

    @staticmethod
    def backward(ctx, of_x, of_y):
        return tuple(None if each is None else 2 * each for each in (of_x, of_y))


@healthy(nearly="TM318")
def a_second_result_that_is_not_always_used():
    """DDP hands the outputs of a model on in this way."""
    net, aside = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*net.parameters(), *aside.parameters()], lr=0.01)
    with tm.trace(namespace={"net": net, "aside": aside}) as trace:
        for step in range(6):
            x = torch.randn(8, 4)
            main, other = Pair.apply(net(x), aside(x))
            optimizer.zero_grad()
            (main if step < 4 else main + other).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM318")
def a_checkpoint_that_is_given_more_than_it_uses():
    """What the function inside does not use gets no gradient there, and its own elsewhere."""
    net, x = nn.Linear(4, 3), torch.randn(8, 4, requires_grad=True)
    optimizer = torch.optim.SGD([*net.parameters(), x], lr=0.01)
    with tm.trace(namespace={"net": net, "x": x}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            made = checkpoint(lambda used, _: net(used).square(), torch.randn(8, 4, requires_grad=True), x,
                              use_reentrant=True)  # fmt: skip
            (made.mean() + x.square().mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def a_student_that_learns_the_teacher_s_slopes():
    """Sobolev training: what the teacher's slopes are is given, those of the student have a graph."""
    teacher, student = mlp(4, 16, 1), mlp(4, 8, 1)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    with tm.trace(namespace={"teacher": teacher, "student": student}) as trace:
        for _ in range(4):
            x = torch.randn(16, 4, requires_grad=True)
            (wanted,) = torch.autograd.grad(teacher(x).sum(), x)
            (slopes,) = torch.autograd.grad(student(x).sum(), x, create_graph=True)
            optimizer.zero_grad()
            (slopes - wanted).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM317")
def images_whose_gradients_are_to_be_those_of_the_data():
    """Dataset condensation: gradients of the parameters are compared, and the network is trained in between."""
    net, images = mlp(8, 16, 3), torch.randn(6, 8, requires_grad=True)
    of_images, of_net = torch.optim.SGD([images], lr=0.1), torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "images": images}) as trace:
        for _ in range(4):
            x, y, classes = torch.randn(16, 8), torch.arange(16) % 3, torch.arange(6) % 3
            real = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
            made = torch.autograd.grad(F.cross_entropy(net(images), classes), list(net.parameters()), create_graph=True)
            of_images.zero_grad()
            sum((a - b).square().sum() for a, b in zip(made, real, strict=True)).backward()
            of_images.step()
            of_net.zero_grad()
            F.cross_entropy(net(images.detach()), classes).backward()
            of_net.step()
    return trace.report


@healthy(nearly="TM317")
def gradients_that_another_network_guesses():
    """Synthetic gradients: the true ones are targets, and everything is trained in one backward."""
    net, head, guess = mlp(8, 16), mlp(16, 3), mlp(16, 16)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters(), *guess.parameters()], lr=1e-3)
    with tm.trace(namespace={"net": net, "head": head, "guess": guess}) as trace:
        for _ in range(4):
            hidden = net(torch.randn(16, 8)).tanh()
            loss = F.cross_entropy(head(hidden), torch.arange(16) % 3)
            (true,) = torch.autograd.grad(loss, hidden, retain_graph=True)
            optimizer.zero_grad()
            (loss + F.mse_loss(guess(hidden.detach()), true)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM309")
def an_image_that_is_rebuilt_from_gradients():
    """The image is updated by hand; the network's gradients, which nobody uses, add up."""
    net, image = mlp(8, 16, 3), torch.randn(4, 8, requires_grad=True)
    x, y = torch.randn(4, 8), torch.arange(4) % 3
    with tm.trace(namespace={"net": net, "image": image}) as trace:
        for _ in range(6):
            real = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
            made = torch.autograd.grad(F.cross_entropy(net(image), y), list(net.parameters()), create_graph=True)
            sum((a - b).square().sum() for a, b in zip(made, real, strict=True)).backward()
            with torch.no_grad():
                image -= 0.1 * image.grad
            image.grad = None
    return trace.report
