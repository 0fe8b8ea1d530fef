"""Training loops in which some parameters get no gradient, or not always, and are not meant to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, digits, train_classifier


@healthy(family="generative adversarial network")
def adversarial_training():
    """Each network's backward leaves the other's parameters alone, or reaches them without training them."""
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    discriminator = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), 2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    with tm.trace(namespace={"G": generator, "D": discriminator}) as trace:
        for images, _ in batches(5):
            real, noise = images.flatten(1), torch.randn(64, 8)
            discriminator_optimizer.zero_grad()
            fake = generator(noise)
            loss = criterion(discriminator(real), torch.ones(64, 1))
            (loss + criterion(discriminator(fake.detach()), torch.zeros(64, 1))).backward()
            discriminator_optimizer.step()
            generator_optimizer.zero_grad()
            criterion(discriminator(fake), torch.ones(64, 1)).backward()
            generator_optimizer.step()
    return trace.report


@healthy
def only_the_discriminator_s_half_of_a_step():
    """The generator ran and got no gradient: meant."""
    generator, discriminator = nn.Linear(8, 64), nn.Linear(64, 1)
    with tm.trace(namespace={"G": generator, "D": discriminator}) as trace:
        fake = generator(torch.randn(16, 8)).detach()
        F.softplus(discriminator(fake)).mean().backward()
    return trace.report


@healthy(family="transfer learning with a frozen backbone")
def a_frozen_backbone():
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten())
    net = nn.Sequential(backbone.requires_grad_(False), nn.Linear(128, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net)
    return trace.report


@healthy(nearly="TM601")
def a_backbone_under_no_grad():
    """The backbone needs gradients but is a model of its own that no backward reached."""
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten())
    head = nn.Linear(288, 10)
    with tm.trace(namespace={"backbone": backbone, "head": head}) as trace:
        for images, classes in batches(4):
            with torch.no_grad():
                features = backbone(images)
            F.cross_entropy(head(features), classes).backward()
    return trace.report


class TwoHeads(nn.Module):
    """Two heads on one body; only the first is used in training."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(64, 32), nn.Linear(32, 10), nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


@healthy(nearly="TM601")
def a_frozen_spare_head():
    net = TwoHeads()
    net.spare.requires_grad_(False)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(family="gradient accumulation")
def gradient_accumulation():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for number, (images, classes) in enumerate(batches(12, 16)):
            (F.cross_entropy(net(images.flatten(1)), classes) / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


def _checkpointed(use_reentrant):
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3))
    head = nn.Linear(64, 10)
    net = nn.ModuleDict({"stem": nn.Linear(64, 64), "blocks": blocks, "head": head})
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            x = net["stem"](images.flatten(1))
            for block in net["blocks"]:
                x = checkpoint(block, x, use_reentrant=use_reentrant)
            F.cross_entropy(net["head"](x), classes).backward()
    return trace.report


@healthy
def checkpointing():
    return _checkpointed(use_reentrant=False)


@healthy
def checkpointing_reentrant():
    """The inner backward runs inside the outer one; its parameters do get their gradients."""
    return _checkpointed(use_reentrant=True)


class Checkpointed(nn.Module):
    """A model whose own forward checkpoints its blocks, the older way."""

    def __init__(self, *, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.stem, self.head = nn.Linear(64, 64), nn.Linear(64, 10)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant)
        return self.head(x)


@healthy
def a_model_that_checkpoints_reentrant():
    net = Checkpointed(use_reentrant=True)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=3)
    return trace.report


@healthy(family="activation checkpointing")
def a_model_that_checkpoints():
    net = Checkpointed(use_reentrant=False)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=3)
    return trace.report


@healthy
def gradient_penalty():
    """A second backward through the first: create_graph=True."""
    critic = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
    with tm.trace(namespace={"critic": critic}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1).requires_grad_()
            (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            ((slope.norm(dim=1) - 1) ** 2).mean().backward()
    return trace.report


@healthy
def saliency_of_an_image():
    """Only the input's gradient is asked for; the parameters are meant to get none."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    image = digits()[0][:1].flatten(1).requires_grad_()
    with tm.trace(namespace={"net": net, "image": image}) as trace:
        torch.autograd.grad(net(image)[0, 3], image)
    return trace.report


@healthy(family="two losses in turn", nearly="TM601")
def finetuning_with_two_losses_in_turn():
    """Two heads, trained in turn: each is without a gradient in every other pass."""
    net = TwoHeads()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for number, (images, classes) in enumerate(batches(6)):
            hidden = net.body(images.flatten(1)).relu()
            optimizer.zero_grad()
            if number % 2:
                F.cross_entropy(net.head(hidden), classes).backward()
            else:
                F.cross_entropy(net.spare(hidden), classes % 2).backward()
            optimizer.step()
    return trace.report


@healthy(family="distillation")
def teacher_and_student():
    """A teacher under no_grad, an exponential moving average, and a student that learns."""
    student, teacher = (nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)) for _ in range(2))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with tm.trace(namespace={"student": student, "teacher": teacher}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            with torch.no_grad():
                target = teacher(x).softmax(-1)
            optimizer.zero_grad()
            F.kl_div(student(x).log_softmax(-1), target, reduction="batchmean").backward()
            optimizer.step()
            with torch.no_grad():
                for mean, new in zip(teacher.parameters(), student.parameters(), strict=True):
                    mean.lerp_(new, 0.01)
    return trace.report


class Distiller(nn.Module):
    """A wrapper that holds both, as libraries of vision have it."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x, target):
        return F.kl_div(self.student(x).log_softmax(-1), target, reduction="batchmean")


@healthy(nearly="TM601")
def a_teacher_inside_of_the_wrapper_that_is_called():
    """The optimizer holds the student alone, and the teacher has spoken before."""
    both, ((images, _),) = Distiller(), batches(1)
    optimizer = torch.optim.SGD(both.student.parameters(), lr=0.1)
    with torch.no_grad():
        target = both.teacher(images.flatten(1)).softmax(-1)
    with tm.trace(namespace={"both": both}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            both(images.flatten(1), target).backward()
            optimizer.step()
    return trace.report


@healthy(family="policy gradient (REINFORCE)")
def policy_gradient():
    """REINFORCE: the log-probability of the sampled action times its return."""
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    with tm.trace(namespace={"policy": policy}) as trace:
        for _ in range(5):
            chosen = torch.distributions.Categorical(logits=policy(torch.randn(20, 4)))
            action = chosen.sample()
            optimizer.zero_grad()
            (-chosen.log_prob(action) * (action.float() * 2 - 1)).mean().backward()
            optimizer.step()
    return trace.report
