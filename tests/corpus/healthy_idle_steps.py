"""Training that is near to TM315 and TM614 to TM619, and does what it should."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp, train_classifier


@healthy(nearly="TM614")
def layers_that_are_copied():
    layer = nn.Linear(16, 16)
    blocks = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)])
    net = nn.Sequential(nn.Linear(64, 16), *blocks, nn.Linear(16, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM614")
def activations_that_are_shared_and_a_layer_that_comes_twice():
    act, layer = nn.ReLU(), nn.Linear(16, 16)
    net = nn.Sequential(nn.Linear(64, 16), act, layer, act, layer, act, act, nn.Linear(16, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Configured(nn.Module):
    """Keeps its settings as attributes, and acts on them."""

    def __init__(self, *, requires_grad=False):
        super().__init__()
        self.requires_grad, self.trainable = requires_grad, False
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 10)
        self.body.requires_grad_(requires_grad)

    def forward(self, x):
        return self.head(self.body(x).relu())


@healthy(nearly="TM615")
def a_part_that_is_frozen_by_the_method():
    net = mlp(64, 16, 10)
    net[0].requires_grad_(False)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM615")
def a_setting_of_the_same_name():
    """The attribute says True, or what it says was done."""
    net = Configured(requires_grad=True)
    frozen = Configured()
    frozen.head.requires_grad_(False)
    with tm.trace(namespace={"net": net, "frozen": frozen}) as trace:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for images, classes in batches(3):
            optimizer.zero_grad()
            x = images.flatten(1)
            F.cross_entropy(net(x) + frozen(x), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM616")
def an_optimizer_for_each_fold():
    with tm.trace() as trace:
        for _ in range(3):
            net = mlp(64, 16, 10)
            train_classifier(net, flat=True, steps=3)
    return trace.report


@healthy(nearly="TM616")
def an_optimizer_for_each_stage():
    """Gradual unfreezing makes an optimizer of other parameters each time, and takes many steps with it."""
    net = mlp(64, 16, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for stage in range(3):
            optimizer = torch.optim.Adam(net[4 - 2 * stage :].parameters(), lr=0.01)
            for images, classes in batches(2):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
    return trace.report


def _handed_over(kind, **options):
    net, state = mlp(64, 16, 10), None
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(6):
            optimizer = kind(net.parameters(), lr=0.01, **options)
            if state is not None:
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            state = optimizer.state_dict()
    return trace.report


@healthy(nearly="TM616")
def an_optimizer_for_each_round_that_takes_over_the_state():
    """A client of federated learning is started anew for each round, with the state of the one before."""
    return _handed_over(torch.optim.AdamW)


@healthy(nearly="TM616")
def an_optimizer_made_with_a_state_that_takes_over_another():
    return _handed_over(torch.optim.Adagrad)


@healthy(nearly="TM617")
def weights_in_bfloat16_that_move():
    net = mlp(64, 16, 10).bfloat16()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1).bfloat16()), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM617")
def updates_by_hand_that_are_written_back():
    """In place; through ``.data``; as new values that are copied in."""
    nets = [mlp(64, 16, 10) for _ in range(3)]
    with tm.trace(namespace={"nets": nets}) as trace:
        for images, classes in batches(5):
            for net in nets:
                net.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
            with torch.no_grad():
                for p in nets[0].parameters():
                    p -= 0.1 * p.grad  # noqa: PLW2901  (that is what this is about)
                for p in nets[1].parameters():
                    p.data = p - 0.1 * p.grad
                for parameter in nets[2].parameters():
                    p = parameter
                    p = p - 0.1 * p.grad
                    parameter.copy_(p)
    return trace.report


@healthy(nearly="TM617")
def inner_updates_that_are_used_and_dropped():
    """MAML of first order: updated weights are used once, and an optimizer steps on what they teach."""
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.cross_entropy(net(x), classes).backward()
            fast = []
            for p in net.parameters():
                p = p - 0.1 * p.grad  # noqa: PLW2901  (that is what this is about)
                fast.append(p)
            optimizer.zero_grad()
            F.cross_entropy(F.linear(x, *fast), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM617")
def steps_that_are_tried_and_dropped():
    """What would the loss be after a step: how much a batch would teach, and an attack on an image that is trained."""
    net, image, drops = nn.Linear(64, 10), nn.Parameter(torch.rand(1, 64)), []

    def attacked(image):
        image = image + 0.1 * image.grad.sign()
        return net(image)

    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            x, image.grad = images.flatten(1), None
            net.zero_grad()
            (F.cross_entropy(net(x), classes) + F.cross_entropy(net(image), classes[:1])).backward()
            with torch.no_grad():
                tried = []
                for p in net.parameters():
                    p = p - 0.1 * p.grad  # noqa: PLW2901  (that is what this is about)
                    tried.append(p)
                drops.append(F.cross_entropy(F.linear(x, *tried), classes).item() - attacked(image).max().item())
    return trace.report


@healthy(nearly="TM617")
def a_rate_that_warms_up_and_falls_to_zero_at_the_end():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 3, 1 - step / 12))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(12):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            scheduler.step()
    return trace.report


@healthy(nearly="TM617")
def cosine_restarts_that_touch_zero():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            scheduler.step()
    return trace.report


@healthy(nearly="TM618")
def clipping_between_backward_and_step():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for number, (images, classes) in enumerate(batches(6)):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            if number % 2:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@healthy(nearly="TM618")
def two_networks_that_are_clipped_in_turn():
    """Actor and critic: each is clipped before its own step, and a large limit only measures the norm after it."""
    actor, critic = mlp(64, 16, 1), mlp(64, 16, 1)
    first, second = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    with tm.trace(namespace={"actor": actor, "critic": critic}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            first.zero_grad()
            second.zero_grad()
            (actor(x).mean() + (critic(x) - 1).square().mean()).backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            first.step()
            nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
            second.step()
            nn.utils.clip_grad_norm_(critic.parameters(), 1e9)
    return trace.report


@healthy(nearly="TM315")
def a_gradient_penalty():
    """Differentiates its gradients again."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            x = images.flatten(1).requires_grad_()
            loss = F.cross_entropy(net(x).tanh(), classes)
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM315")
def curvature_with_updates_by_hand():
    """Each update is scaled by the second derivative, for which the gradient has to keep its graph."""
    w, target = torch.zeros(4, requires_grad=True), torch.tensor([1.0, -2.0, 0.5, 3.0])
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(6):
            x = torch.randn(16, 4)
            loss = (x @ w - x @ target).square().mean()
            loss.backward(create_graph=True)
            (curved,) = torch.autograd.grad(w.grad.sum(), w)
            with torch.no_grad():
                w -= 0.2 * w.grad / curved.abs().clamp_min(1.0)
            w.grad = None
    return trace.report


@healthy(nearly="TM315")
def a_graph_that_is_kept_for_a_second_loss():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            scores = net(images.flatten(1))
            F.cross_entropy(scores, classes).backward(retain_graph=True)
            scores.square().mean().backward()
            optimizer.step()
    return trace.report


class Normed(nn.Module):
    """A body with a normalisation, and a head; the body stays as it is where it is frozen."""

    def __init__(self, *, keeps=False):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10)
        self.keeps = keeps

    def train(self, mode=True):
        super().train(mode)
        if self.keeps:
            self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


@healthy(nearly="TM619", family="semi-supervised learning (Mean Teacher)")
def a_teacher_that_follows_its_student_and_normalises_by_batches():
    """Its weights ask for no gradient and are averages: they do not stay."""
    student = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.detach_()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with tm.trace(namespace={"student": student, "teacher": teacher, "optimizer": optimizer}) as trace:
        for images, classes in batches(6, 16):
            x = images.flatten(1)
            scores, soft = student(x + 0.1 * torch.randn_like(x)), teacher(x).softmax(1)
            optimizer.zero_grad()
            (F.cross_entropy(scores, classes) + F.mse_loss(scores.softmax(1), soft)).backward()
            optimizer.step()
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)
    return trace.report


@healthy(nearly="TM619")
def a_frozen_normalisation_in_eval_mode():
    net = Normed(keeps=True).train()
    net.norm.requires_grad_(False)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM619")
def a_discriminator_that_is_frozen_for_the_other_s_step():
    """Its normalisation learns in its own steps."""
    maker, judge = mlp(8, 16, 64), Normed()
    first, second = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    with tm.trace(namespace={"maker": maker, "judge": judge}) as trace:
        for images, classes in batches(4, 32):
            fake = maker(torch.randn(32, 8))
            judge.requires_grad_(True)
            second.zero_grad()
            (F.cross_entropy(judge(images.flatten(1)), classes) + judge(fake.detach()).square().mean()).backward()
            second.step()
            judge.requires_grad_(False)
            first.zero_grad()
            judge(fake).logsumexp(1).mean().backward()
            first.step()
    return trace.report


def _scaled(after, *, enabled=True):
    """Train with a scaled loss; ``after`` makes the step of an optimizer by a scaler."""
    net = mlp(64, 16, 10)
    optimizer, scaler = (
        torch.optim.SGD(net.parameters(), lr=0.1),
        torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=enabled),
    )
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(images.flatten(1)), classes)).backward()
            after(net, optimizer, scaler)
    return trace.report


@healthy(nearly="TM625")
def a_step_after_unscaling():
    def after(net, optimizer, scaler):
        scaler.unscale_(optimizer)
        if all(one.grad.isfinite().all() for one in net.parameters()):
            optimizer.step()
        scaler.update()

    return _scaled(after)


@healthy(nearly="TM625")
def gradients_that_are_divided_by_hand():
    """Also past their version counters."""

    def after(net, optimizer, scaler):
        for one in net.parameters():
            one.grad.data.div_(scaler.get_scale())
        optimizer.step()

    return _scaled(after)


def _scaled_and_divided(divide, rate=0.1):
    net, scaler = mlp(64, 16, 10), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            divide(scaler.scale(F.cross_entropy(net(images.flatten(1)), classes)), scaler).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM625")
def a_scaled_loss_that_is_divided_by_its_factor():
    return _scaled_and_divided(lambda loss, scaler: loss / scaler.get_scale())


@healthy(nearly="TM625")
def a_scaled_loss_that_is_multiplied_by_the_inverse_and_added_to():
    return _scaled_and_divided(lambda loss, scaler: (loss + loss.square().log()) * (1 / scaler.get_scale()) / 2)


@healthy(nearly="TM625")
def a_learning_rate_that_is_divided_by_the_factor():
    return _scaled_and_divided(lambda loss, _: loss, rate=0.1 / 1024)


@healthy(nearly="TM625")
def a_scaler_that_is_off():
    return _scaled(lambda _, optimizer, __: optimizer.step(), enabled=False)


@healthy(nearly="TM625")
def two_losses_of_which_one_is_scaled():
    """The second optimizer steps after the first one's scaled backward, with gradients of its own."""
    left, right = mlp(64, 16, 10), mlp(64, 16, 10)
    first, second = torch.optim.SGD(left.parameters(), lr=0.1), torch.optim.SGD(right.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with tm.trace(namespace={"left": left, "right": right}) as trace:
        for images, classes in batches(4):
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(right(images.flatten(1)), classes).backward()
            scaler.scale(F.cross_entropy(left(images.flatten(1)), classes)).backward()
            second.step()
            scaler.step(first)
            scaler.update()
    return trace.report
