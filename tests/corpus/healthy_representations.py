"""Training of representations, by pairs, targets and tasks, as tutorials write it: nothing is wrong with it."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, digits, mlp


@healthy(family="siamese network")
def a_siamese_network():
    """The contrastive loss of Hadsell: pairs that are far enough apart cost nothing."""
    embed = mlp(64, 32, 8)
    optimizer = torch.optim.Adam(embed.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            left, right = images.flatten(1).chunk(2)
            same = (classes[:32] == classes[32:]).float()
            distance = F.pairwise_distance(embed(left), embed(right))
            loss = (same * distance.pow(2) + (1 - same) * F.relu(1.0 - distance).pow(2)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="triplet loss")
def triplets_that_are_learnt():
    """A hinge: once all triplets are apart the loss, and every gradient, is exactly zero."""
    embed = mlp(64, 32, 8)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.5)
    criterion = nn.TripletMarginLoss(margin=0.05)
    images, classes = digits()
    images = images.flatten(1)
    anchors, positives, negatives = images[classes == 0][:32], images[classes == 0][32:64], images[classes == 4][:32]
    with tm.trace(namespace=locals()) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            loss = criterion(embed(anchors), embed(positives), embed(negatives))
            loss.backward()
            optimizer.step()
    assert loss == 0
    return trace.report


@healthy(family="contrastive learning")
def contrastive_learning():
    """SimCLR: two views, a projection, and the diagonal masked with minus infinity."""
    encoder, projector = mlp(64, 32), mlp(32, 32, 16)
    optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(4, 32):
            x = images.flatten(1)
            views = torch.cat([x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2)])
            z = F.normalize(projector(F.relu(encoder(views))), dim=1)
            similarity = z @ z.t() / 0.5
            similarity.fill_diagonal_(float("-inf"))
            targets = torch.arange(64).roll(32)
            loss = F.cross_entropy(similarity, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="stop-gradient similarity (SimSiam)")
def similarity_with_a_stop_gradient():
    encoder, predictor = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()), mlp(32, 16, 32)
    optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
    with tm.trace(namespace={"encoder": encoder, "predictor": predictor, "optimizer": optimizer}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            z1, z2 = (encoder(x + 0.1 * torch.randn_like(x)) for _ in range(2))
            p1, p2 = predictor(z1), predictor(z2)
            loss = -(F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean()) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="bootstrapped representations (BYOL)")
def a_target_network_that_follows():
    """The target is a moving average of the online network and gets no gradient."""
    online, predictor = mlp(64, 32, 16), mlp(16, 16, 16)
    target = copy.deepcopy(online)
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=1e-3)
    with tm.trace(namespace={"online": online, "predictor": predictor, "target": target}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            guess = predictor(online(x + 0.1 * torch.randn_like(x)))
            with torch.no_grad():
                goal = target(x + 0.1 * torch.randn_like(x))
            loss = 2 - 2 * F.cosine_similarity(guess, goal, dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for old, new in zip(target.parameters(), online.parameters(), strict=True):
                old.data = old.data * 0.99 + new.data * 0.01
    return trace.report


@healthy(family="semi-supervised learning (mean teacher)")
def mean_teacher():
    """The teacher is a copy whose parameters are detached in place, and still asked for nothing."""
    student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    teacher = copy.deepcopy(student)
    for parameter in teacher.parameters():
        parameter.detach_()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for step, (images, classes) in enumerate(batches(5)):
            x = images.flatten(1)
            logits = student(x)
            with torch.no_grad():
                target = teacher(x).softmax(dim=1)
            supervised = F.cross_entropy(logits[:16], classes[:16])
            consistency = F.mse_loss(logits.softmax(dim=1), target)
            loss = supervised + min(1.0, step / 3) * consistency
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, new in zip(teacher.parameters(), student.parameters(), strict=True):
                    mean.mul_(0.99).add_(new, alpha=0.01)
    return trace.report


@healthy(family="meta-learning (MAML)")
def model_agnostic_meta_learning():
    """An inner step by hand with create_graph, an outer one with Adam; the model is called with torch.func."""
    model = mlp(1, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            outer_loss = 0.0
            for _ in range(2):
                phase, x = torch.rand(1) * 3.14, torch.rand(20, 1) * 10 - 5
                y = torch.sin(x + phase)
                weights = dict(model.named_parameters())
                inner = F.mse_loss(torch.func.functional_call(model, weights, (x[:10],)), y[:10])
                gradients = torch.autograd.grad(inner, weights.values(), create_graph=True)
                fast = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
                outer_loss = outer_loss + F.mse_loss(torch.func.functional_call(model, fast, (x[10:],)), y[10:])
            outer_loss.backward()
            optimizer.step()
    return trace.report
