"""Gradients used for fitting, physics and statistics, and the techniques around a step: nothing is wrong with it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


@healthy(family="linear regression by hand")
def linear_regression_by_hand():
    """Two plain tensors, the update under no_grad, grad.zero_() in place."""
    x = torch.randn(100, 2)
    y = x @ torch.tensor([2.0, -3.4]) + 4.2 + 0.01 * torch.randn(100)
    w, b = torch.normal(0, 0.01, size=(2,), requires_grad=True), torch.zeros(1, requires_grad=True)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            for rows in torch.randperm(100).split(25):
                loss = ((x[rows] @ w + b - y[rows]) ** 2 / 2).mean()
                loss.backward()
                with torch.no_grad():
                    w -= 0.1 * w.grad
                    b -= 0.1 * b.grad
                    w.grad.zero_()
                    b.grad.zero_()
    return trace.report


@healthy(family="logistic regression")
def logistic_regression():
    x = torch.randn(80, 3)
    y = (x[:, 0] > 0).float()
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-3)
    losses = []
    with tm.trace(namespace=locals()) as trace:
        for _ in range(6):
            p = torch.sigmoid(model(x)).squeeze(1)
            loss = F.binary_cross_entropy(p, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            accuracy = ((p > 0.5) == y.bool()).float().mean().item()
    assert accuracy > 0.5
    return trace.report


@healthy(family="support vector machine")
def a_support_vector_machine():
    """The hinge loss: points beyond the margin give exactly zero."""
    x = torch.cat([torch.randn(20, 2) + 3, torch.randn(20, 2) - 3])
    y = torch.cat([torch.ones(20), -torch.ones(20)])
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(8):
            hinge = torch.clamp(1 - y * model(x).squeeze(1), min=0).mean()
            loss = hinge + 0.01 * model.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="online learning")
def one_sample_at_a_time():
    """The perceptron's rule as a loss: samples that are right already give zero gradients."""
    w = torch.zeros(3, requires_grad=True)
    x = torch.randn(20, 3)
    y = torch.where(x[:, 0] > 0, 1.0, -1.0)
    with tm.trace(namespace=locals()) as trace:
        for sample, label in zip(x, y, strict=True):
            loss = F.relu(-label * (sample @ w) + 1e-3)
            loss.backward()
            with torch.no_grad():
                w -= 0.5 * w.grad
            w.grad = None
    return trace.report


@healthy(family="Gaussian process")
def a_gaussian_process():
    """The marginal likelihood through a Cholesky factor; hyperparameters in logarithms."""
    x = torch.linspace(0, 1, 20)
    y = torch.sin(6 * x) + 0.1 * torch.randn(20)
    log_length, log_scale, log_noise = (nn.Parameter(torch.tensor(value)) for value in (-1.0, 0.0, -2.0))
    optimizer = torch.optim.Adam([log_length, log_scale, log_noise], lr=0.05)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            distance = (x[:, None] - x[None]).square()
            covariance = log_scale.exp() * torch.exp(-distance / (2 * log_length.exp().square()))
            factor = torch.linalg.cholesky(covariance + log_noise.exp() * torch.eye(20))
            solved = torch.cholesky_solve(y[:, None], factor)
            loss = 0.5 * (y @ solved).squeeze() + factor.diagonal().log().sum() + 10 * math.log(2 * math.pi)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="physics-informed network")
def a_physics_informed_network():
    """The equation u'' = -u as a loss: two derivatives by the input, then one by the parameters."""
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            t = torch.rand(32, 1, requires_grad=True)
            u = net(t)
            (first,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
            (second,) = torch.autograd.grad(first, t, torch.ones_like(first), create_graph=True)
            start = torch.zeros(1, 1)
            loss = (second + u).square().mean() + (net(start) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="neural differential equation")
def a_neural_differential_equation():
    """Euler's method through a network, 20 steps long."""
    field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    t = torch.linspace(0, 2, 20)
    goal = torch.stack([t.cos(), t.sin()], dim=1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            state, path = torch.tensor([1.0, 0.0]), []
            for _ in t:
                path.append(state)
                state = state + 0.1 * field(state)
            loss = (torch.stack(path) - goal).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="radiance field")
def a_picture_from_coordinates():
    """Sines and cosines of the coordinates, and transmittance as a cumulative product along each ray."""
    net = mlp(16, 32, 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    octaves = 2.0 ** torch.arange(4)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            points, colours = torch.rand(8, 10, 2), torch.rand(8, 3)
            angles = (points[..., None] * octaves).flatten(2)
            out = net(torch.cat([angles.sin(), angles.cos()], dim=-1))
            colour, density = out[..., :3].sigmoid(), F.relu(out[..., 3])
            alpha = 1 - torch.exp(-density * 0.1)
            through = torch.cumprod(torch.cat([torch.ones(8, 1), 1 - alpha + 1e-10], dim=1), dim=1)[:, :-1]
            seen = ((through * alpha)[..., None] * colour).sum(1)
            loss = F.mse_loss(seen, colours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="variational inference")
def variational_inference():
    """The evidence lower bound with reparametrised samples of torch.distributions."""
    mean, raw = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([mean, raw], lr=0.1)
    prior = torch.distributions.Normal(0.0, 1.0)
    data = torch.randn(30) + 2
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            posterior = torch.distributions.Normal(mean, F.softplus(raw))
            z = posterior.rsample((4,))
            likelihood = torch.distributions.Normal(z[:, :1], F.softplus(z[:, 1:]) + 0.1).log_prob(data).sum(1).mean()
            divergence = torch.distributions.kl_divergence(posterior, prior).sum()
            loss = divergence - likelihood
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM313", family="a maximum a posteriori estimate")
def a_prior_that_is_uniform():
    """Its density has a factor of 0 or 1, by comparisons: whether the value lies within the bounds."""
    raw = torch.zeros(2, requires_grad=True)
    prior, data = torch.distributions.Uniform(0.0, 1.0), torch.rand(30, 2) < torch.tensor([0.2, 0.7])
    optimizer = torch.optim.Adam([raw], lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            chance = torch.sigmoid(raw)
            likelihood = torch.distributions.Bernoulli(chance).log_prob(data.float()).sum()
            loss = -likelihood - prior.log_prob(chance).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="clustering")
def clusters_refined_by_gradient():
    """K-means under no_grad first, then soft assignments that learn."""
    points = torch.cat([torch.randn(30, 2) + 4, torch.randn(30, 2) - 4])
    centres = points[[0, 30, 45]].clone()
    with tm.trace(namespace=locals()) as trace:
        with torch.no_grad():
            for _ in range(5):
                nearest = torch.cdist(points, centres).argmin(1)
                for number in range(3):
                    if (nearest == number).any():
                        centres[number] = points[nearest == number].mean(0)
        centres.requires_grad_()
        optimizer = torch.optim.SGD([centres], lr=0.1)
        for _ in range(4):
            squared = (points[:, None] - centres[None]).square().sum(-1)
            q = F.normalize(1 / (1 + squared), p=1, dim=1)
            weight = q.square() / q.sum(0)
            target = (weight / weight.sum(1, keepdim=True)).detach()
            loss = F.kl_div(q.log(), target, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="optimal transport")
def entropic_optimal_transport():
    """Sinkhorn's iterations under no_grad; the points learn through the cost alone."""
    x, y = torch.randn(15, 2, requires_grad=True), torch.randn(15, 2) + 3
    optimizer = torch.optim.Adam([x], lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            cost = (x[:, None] - y[None]).square().sum(-1)
            with torch.no_grad():
                kernel, right = torch.exp(-cost / cost.max() / 0.1), torch.ones(15)
                for _ in range(10):
                    left = 1 / (kernel @ right)
                    right = 1 / (kernel.t() @ left)
                plan = left[:, None] * kernel * right[None]
            loss = (plan * cost).sum() / plan.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="hyperparameter found by gradient")
def a_learning_rate_found_by_gradient():
    """Three steps of training are differentiated with respect to their own learning rate."""
    log_rate = torch.tensor(-2.0, requires_grad=True)
    outer = torch.optim.Adam([log_rate], lr=0.1)
    x = torch.randn(40, 3)
    y = x.sum(1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            w = torch.zeros(3, requires_grad=True)
            for _ in range(3):
                (slope,) = torch.autograd.grad(F.mse_loss(x[:20] @ w, y[:20]), w, create_graph=True)
                w = w - log_rate.exp() * slope
            outer.zero_grad()
            F.mse_loss(x[20:] @ w, y[20:]).backward()
            outer.step()
    return trace.report


@healthy(family="mixed precision with a gradient scaler")
def mixed_precision_with_a_gradient_scaler():
    """Autocast to float16, the scaler, unscale_ before clipping: as the AMP recipe writes it."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device_type="cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(images.flatten(1)), classes)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@healthy(family="mixed precision by hand")
def mixed_precision_by_hand():
    """A bfloat16 model with float32 master weights, copied back and forth."""
    model = mlp(64, 32, 10).to(torch.bfloat16)
    master = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(master, lr=0.1)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(4):
            loss = F.cross_entropy(model(images.flatten(1).bfloat16()).float(), classes)
            model.zero_grad()
            loss.backward()
            for full, half in zip(master, model.parameters(), strict=True):
                full.grad = half.grad.float()
            optimizer.step()
            with torch.no_grad():
                for full, half in zip(master, model.parameters(), strict=True):
                    half.copy_(full)
    return trace.report


@healthy(family="curriculum of growing inputs")
def a_curriculum_of_growing_inputs():
    """Another length in every stage: graphs of the same structure with other shapes, and a last batch that is small."""
    model = nn.Sequential(
        nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1)
    )
    optimizer = torch.optim.Adam(model.parameters())
    with tm.trace(namespace=locals()) as trace:
        for length in (8, 16, 32):
            x = torch.randn(20, 1, length)
            loader = DataLoader(TensorDataset(x, x.mean((1, 2))), batch_size=8)
            for inputs, wanted in loader:
                optimizer.zero_grad()
                F.mse_loss(model(inputs).squeeze(1), wanted).backward()
                optimizer.step()
    return trace.report


@healthy(family="two optimizers")
def embeddings_and_layers_with_an_optimizer_each():
    """SparseAdam for the table, AdamW for the rest, one backward for both."""
    table, head = nn.EmbeddingBag(500, 16, mode="mean", sparse=True), nn.Linear(16, 4)
    optimizers = [torch.optim.SparseAdam(table.parameters()), torch.optim.AdamW(head.parameters())]
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            loss = F.cross_entropy(head(table(torch.randint(500, (16, 6)))), torch.randint(4, (16,)))
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    return trace.report


@healthy(family="evolution strategies")
def evolution_beside_backpropagation():
    """Half of the model is trained by perturbing it under no_grad, the other by backward."""
    features, head = nn.Linear(4, 8), nn.Linear(8, 1)
    features.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    x, y = torch.randn(40, 4), torch.randn(40, 1)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            with torch.no_grad():
                noise = 0.05 * torch.randn_like(features.weight)
                before = F.mse_loss(head(features(x).relu()), y)
                features.weight += noise
                if F.mse_loss(head(features(x).relu()), y) > before:
                    features.weight -= noise
            optimizer.zero_grad()
            F.mse_loss(head(features(x).relu()), y).backward()
            optimizer.step()
    return trace.report
