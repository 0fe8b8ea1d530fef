"""Training loops that step in unusual ways on purpose, and have nearly the faults of TM309, TM310, TM607 and TM627."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


def _trained(net, step, count=4):
    """Trace ``count`` batches, each given to ``step``."""
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(count, 16):
            step(lambda: F.cross_entropy(net(images.flatten(1)), classes))  # noqa: B023  (called in this turn only)
    return trace.report


@healthy(nearly="TM309")
def clearing_the_old_way():
    """``p.grad.data.zero_()`` leaves no trace in any version."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(loss):
        loss().backward()
        optimizer.step()
        for p in net.parameters():
            p.grad.data.zero_()

    return _trained(net, step, 20)


@healthy(nearly="TM309")
def micro_batches():
    """Four backward passes add up, and one step uses them: cleared after it."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        optimizer.zero_grad()
        for number, (images, classes) in enumerate(batches(16, 8)):
            (F.cross_entropy(net(images.flatten(1)), classes) / 4).backward()
            if (number + 1) % 4 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    return trace.report


@healthy(nearly="TM309")
def the_generator_s_loss_reaches_the_discriminator():
    """Between its own steps the discriminator collects gradients that it never uses: it clears them first."""
    generator, critic = nn.Linear(8, 64), nn.Sequential(nn.Linear(64, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), 2e-4)
    optimizer_c = torch.optim.Adam(critic.parameters(), 2e-4)
    with tm.trace(namespace={**locals()}) as trace:
        for images, _ in batches(5, 16):
            critic.zero_grad()
            fake = generator(torch.randn(16, 8))
            F.softplus(-critic(images.flatten(1))).mean().backward()
            F.softplus(critic(fake.detach())).mean().backward()
            optimizer_c.step()
            generator.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            optimizer_g.step()
    return trace.report


@healthy(nearly="TM309")
def weights_of_losses_that_get_their_gradient_by_hand():
    """GradNorm: what the loss brings them is replaced, by a gradient of how fast each loss is learned."""
    body, heads = nn.Linear(5, 8), nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)])
    weights = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], 1e-2)
    weights_optimizer = torch.optim.Adam([weights], 0.05)
    with tm.trace(namespace={**locals()}) as trace:
        for _ in range(8):
            x, targets = torch.randn(32, 5), torch.randn(2, 32, 1)
            found = torch.relu(body(x))
            losses = torch.stack([(head(found) - y).pow(2).mean() for head, y in zip(heads, targets, strict=True)])
            optimizer.zero_grad()
            (weights * losses).sum().backward(retain_graph=True)
            grads = [torch.autograd.grad(loss, body.weight, retain_graph=True)[0] for loss in losses]
            norms = torch.stack([grad.norm() for grad in grads]) * weights
            (weights.grad,) = torch.autograd.grad((norms - norms.mean().detach()).abs().sum(), weights)
            optimizer.step()
            weights_optimizer.step()
    return trace.report


def _estimated(use):
    """RELAX: the variance of an estimated gradient trains a network alone; ``use`` gives the estimate its place."""
    theta, control = nn.Parameter(torch.zeros(4)), nn.Linear(4, 1)
    optimizer, optimizer_c = torch.optim.Adam([theta], 0.01), torch.optim.Adam(control.parameters(), 0.01)
    with tm.trace(namespace={**locals()}) as trace:
        for _ in range(8):
            z = torch.sigmoid(theta + torch.randn(4))
            value = control(z).squeeze() + (z - 0.4).pow(2).sum()
            (estimate,) = torch.autograd.grad(value, theta, create_graph=True)
            optimizer_c.zero_grad()
            estimate.pow(2).mean().backward()
            optimizer_c.step()
            use(theta, estimate.detach())
            optimizer.step()
    return trace.report


@healthy(nearly="TM309")
def an_estimate_takes_the_place_of_the_gradient():
    return _estimated(lambda theta, estimate: setattr(theta, "grad", estimate))


@healthy(nearly="TM309")
def an_estimate_is_written_over_the_gradient():
    return _estimated(lambda theta, estimate: theta.grad.copy_(estimate))


@healthy(nearly="TM309")
def an_estimate_is_written_over_the_gradient_unseen():
    return _estimated(lambda theta, estimate: theta.grad.data.copy_(estimate))


@healthy(nearly="TM309")
def the_update_is_by_hand_and_clears():
    w = torch.zeros(3, requires_grad=True)
    x, y = torch.randn(20, 3), torch.randn(20)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(6):
            ((x @ w - y) ** 2).mean().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
    return trace.report


@healthy(nearly="TM310")
def a_backbone_is_frozen_by_emptying_its_gradients():
    """Between backward and step, on purpose: all but the head's gradients are thrown away."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(loss):
        optimizer.zero_grad()
        loss().backward()
        for p in net[:4].parameters():
            p.grad = None
        optimizer.step()

    return _trained(net, step)


@healthy(nearly="TM310")
def the_closure_clears_and_computes():
    """LBFGS: whatever stands in the gradients when step is called, the closure makes anew."""
    net = nn.Linear(64, 10)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    def step(loss):
        def closure():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        loss().backward()
        optimizer.zero_grad()
        optimizer.step(closure)

    return _trained(net, step)


@healthy(nearly="TM310")
def a_bad_batch_is_left_out():
    """Once the gradients are cleared instead of used; the step that follows is one without gradients."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for number, (images, classes) in enumerate(batches(6, 16)):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            if number == 3:
                optimizer.zero_grad()
            optimizer.step()
    return trace.report


@healthy(nearly="TM607")
def a_learning_rate_schedule_is_drawn():
    """No forward, no backward: the steps are there for the scheduler."""
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    rates = []
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(10):
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
    assert rates[-1] < rates[0]
    return trace.report


@healthy(nearly="TM607")
def gradients_set_by_hand():
    """Adam is shown the same gradient again and again: how large are its steps?"""
    w = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([w], lr=0.1)
    with tm.trace(namespace={"w": w}) as trace:
        w.grad = torch.tensor([1.0, 10.0, 100.0])
        for _ in range(5):
            optimizer.step()
    return trace.report


@healthy(nearly="TM607")
def one_backward_for_two_optimizers():
    """A joint loss: each optimizer steps once on its own part of the gradients."""
    table, net = nn.Embedding(20, 8, sparse=True), nn.Linear(8, 10)
    sparse, dense = torch.optim.SparseAdam(table.parameters()), torch.optim.AdamW(net.parameters())
    with tm.trace(namespace={**locals()}) as trace:
        for _ in range(5):
            sparse.zero_grad()
            dense.zero_grad()
            F.cross_entropy(net(table(torch.randint(20, (12,)))), torch.randint(10, (12,))).backward()
            dense.step()
            sparse.step()
    return trace.report


@healthy(nearly="TM607")
def sharpness_aware_minimisation():
    """Two backward passes and one step: up to the worst point nearby, and down from there."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(loss):
        optimizer.zero_grad()
        loss().backward()
        with torch.no_grad():
            climbs = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in net.parameters()]
            torch._foreach_add_(list(net.parameters()), climbs)
        optimizer.zero_grad()
        loss().backward()
        with torch.no_grad():
            torch._foreach_sub_(list(net.parameters()), climbs)
        optimizer.step()

    return _trained(net, step)


@healthy(nearly="TM310")
def gradients_of_micro_batches_that_add_up():
    """Cleared after each step: what four batches brought is used."""
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for number in range(12):
            (F.mse_loss(net(torch.randn(8, 3)), torch.randn(8, 1)) / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@healthy(nearly="TM310")
def a_critic_that_several_generator_steps_pass_through():
    """What the generator's backward leaves in the critic is cleared before the critic learns: three in four passes."""
    generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
    g_optimizer, c_optimizer = (torch.optim.Adam(net.parameters()) for net in (generator, critic))
    with tm.trace(namespace={**locals()}) as trace:
        for number in range(12):
            fake = generator(torch.randn(8, 2))
            if number % 4 == 3:
                c_optimizer.zero_grad()
                (critic(fake.detach()).mean() - critic(torch.randn(8, 3)).mean()).backward()
                c_optimizer.step()
            else:
                g_optimizer.zero_grad()
                critic.zero_grad()
                critic(fake).mean().neg().backward()
                g_optimizer.step()
    return trace.report


@healthy(nearly="TM309")
def an_average_that_gets_gradients_and_uses_none():
    """Nobody clears what the targets of a teacher leave in it, and nobody steps on it."""
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    teacher = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "teacher": teacher, "optimizer": optimizer}) as trace:
        for images, classes in batches(6):
            soft, scores = teacher(images.flatten(1)).softmax(1), net(images.flatten(1))
            optimizer.zero_grad()
            (F.cross_entropy(scores, classes) + F.mse_loss(scores.softmax(1), soft)).backward()
            optimizer.step()
            teacher.update_parameters(net)
    return trace.report


@healthy(nearly="TM627")
def methods_handed_on():
    """They are called by another name, or by whom they are given to."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    clear, after = optimizer.zero_grad, [optimizer.step]

    def step(loss):
        clear()
        loss().backward()
        for each in after:
            each()

    return _trained(net, step)


@healthy(nearly="TM627")
def a_function_that_is_never_called():
    """What stands in it is no part of this training."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def later():
        optimizer.zero_grad  # noqa: B018  (no call)

    def step(loss):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return _trained(net, step) if later else None
