"""Training code that cuts the gradient's way where that is meant: everything that should learn does (nearly TM303)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, train_classifier


class MomentumContrast(nn.Module):
    """MoCo: a key encoder inside the same module, kept up as a moving average."""

    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.key = copy.deepcopy(self.query)

    def forward(self, x):
        queries = F.normalize(self.query(x), dim=1)
        with torch.no_grad():
            for mean, online in zip(self.key.parameters(), self.query.parameters(), strict=True):
                mean.mul_(0.99).add_(online, alpha=0.01)
            keys = F.normalize(self.key(x), dim=1)
        return queries @ keys.T / 0.07


@healthy(nearly="TM303")
def a_momentum_encoder_in_the_same_module():
    net = MomentumContrast()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03)  # all of them, as in the original code
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(4):
            loss = F.cross_entropy(net(images.flatten(1)), torch.arange(len(images)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def a_moving_average_through_data():
    """BYOL as first published for torch: ``.data`` of the target's parameters is reseeded."""
    net = nn.ModuleDict({"online": nn.Linear(64, 16), "head": nn.Linear(16, 16), "target": nn.Linear(64, 16)})
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            aim = net["target"](x + 0.1).detach()
            loss = 2 - 2 * F.cosine_similarity(net["head"](net["online"](x)), aim).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for mean, online in zip(net["target"].parameters(), net["online"].parameters(), strict=True):
                mean.data = mean.data * 0.99 + online.data * 0.01
    return trace.report


@healthy(nearly="TM303")
def keys_kept_in_a_queue():
    """MoCo's queue: detached keys are written into a buffer that the next steps use."""
    net = MomentumContrast()
    optimizer = torch.optim.SGD(net.query.parameters(), lr=0.03)
    queue = F.normalize(torch.randn(16, 64), dim=0)
    with tm.trace(namespace={"net": net, "queue": queue}) as trace:
        for images, _ in batches(4, size=16):
            x = images.flatten(1)
            queries, keys = F.normalize(net.query(x), dim=1), F.normalize(net.query(x + 0.1).detach(), dim=1)
            logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ queue.clone()], 1) / 0.07
            loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            queue[:, :16] = keys.T
    return trace.report


class Quantizer(nn.Module):
    """A codebook kept up by moving averages: a new Parameter in every step, as a well-known VQ-VAE has it."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 4), nn.Linear(4, 64)
        self.codes = nn.Embedding(16, 4)

    def forward(self, x):
        z = self.encoder(x)
        chosen = F.one_hot(torch.cdist(z, self.codes.weight).argmin(1), 16).float()
        quantized = chosen @ self.codes.weight
        commitment = F.mse_loss(quantized.detach(), z)
        self.codes.weight = nn.Parameter(0.9 * self.codes.weight + 0.1 * (chosen.T @ z.detach()))
        return self.decoder(z + (quantized - z).detach()), commitment


@healthy(nearly="TM303")
def a_codebook_kept_up_by_moving_averages():
    net = Quantizer()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            reconstruction, commitment = net(x)
            loss = F.mse_loss(reconstruction, x) + 0.25 * commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Frozen(nn.Module):
    """A backbone that is only evaluated, and a head that is trained."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 10)

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


@healthy(nearly="TM303")
def a_head_trained_on_features_made_under_no_grad():
    """Only the head is in the optimizer: nobody expects the backbone to learn."""
    net = Frozen()
    optimizer = torch.optim.Adam(net.head.parameters(), lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Siamese(nn.Module):
    """SimSiam: each half is compared with the other, which is detached."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.predictor = nn.Linear(16, 16)

    def forward(self, first, second):
        one, two = self.encoder(first), self.encoder(second)
        ahead = F.cosine_similarity(self.predictor(one), two.detach()).mean()
        return -(ahead + F.cosine_similarity(self.predictor(two), one.detach()).mean()) / 2


@healthy(nearly="TM303")
def stop_gradient_in_siamese_networks():
    net = Siamese()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            loss = net(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def a_hidden_state_detached_between_windows():
    cell, head = nn.GRUCell(8, 16), nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        hidden = torch.zeros(8, 16)
        for images, _ in batches(3, size=8):
            rows = images.squeeze(1).transpose(0, 1)
            hidden = hidden.detach()
            for row in rows:
                hidden = cell(row, hidden)
            loss = F.mse_loss(head(hidden).squeeze(1), rows.mean((0, 2)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class ActorCritic(nn.Module):
    """One body, two heads; the advantage is read from the critic."""

    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state):
        found = self.body(state).relu()
        return torch.distributions.Categorical(logits=self.actor(found)), self.critic(found).squeeze(-1)


@healthy(nearly="TM303")
def an_advantage_that_is_detached():
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    with tm.trace(namespace={"agent": agent}) as trace:
        for _ in range(3):
            spread, values = agent(torch.randn(32, 4))
            actions = spread.sample()
            advantage = actions.float() - values
            loss = advantage.pow(2).mean() - (spread.log_prob(actions) * advantage.detach()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Adversaries(nn.Module):
    """A generator and a discriminator in one module."""

    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = nn.Linear(8, 64), nn.Linear(64, 1)


@healthy(nearly="TM303")
def the_discriminator_s_steps_of_a_gan_in_one_module():
    """Several critic steps before the generator has its first."""
    gan = Adversaries()
    optimizer = torch.optim.RMSprop(gan.discriminator.parameters(), lr=5e-5)
    with tm.trace(namespace={"gan": gan}) as trace:
        for images, _ in batches(3):
            fake = gan.generator(torch.randn(len(images), 8)).detach()
            loss = gan.discriminator(fake).mean() - gan.discriminator(images.flatten(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def a_target_network_under_no_grad_without_its_next_synchronisation():
    """DQN: the target is not written to within these few steps, and stands in the same module."""
    agent = nn.ModuleDict({"online": nn.Linear(4, 2), "target": nn.Linear(4, 2)})
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    with tm.trace(namespace={"agent": agent}) as trace:
        for _ in range(3):
            state, after = torch.randn(2, 16, 4)
            with torch.no_grad():
                aim = 0.5 + 0.99 * agent["target"](after).max(1).values
            loss = F.smooth_l1_loss(agent["online"](state)[:, 0], aim)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def losses_logged_with_item_and_scaled_by_their_own_values():
    """Balancing two losses by their current sizes: numbers, but of what learns anyway."""
    net = nn.Linear(64, 11)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    logged = []
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            found = net(images.flatten(1))
            first, second = F.cross_entropy(found[:, :10], classes), F.mse_loss(found[:, 10], images.mean((1, 2, 3)))
            loss = first + second * (first.item() / max(second.item(), 1e-6))
            logged.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def a_network_whose_signs_pass_straight_through():
    """Binary activations: forward takes the sign, backward the identity."""

    class Signs(nn.Module):
        def forward(self, x):
            return x + (torch.where(x > 0, 1.0, -1.0) - x).detach()

    net = nn.Sequential(nn.Linear(64, 32), Signs(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@healthy(nearly="TM303")
def features_cut_and_joined_again_by_hand():
    """Backward in two halves: the features are a leaf of their own, and hand their gradient on."""
    body, head = nn.Linear(64, 32), nn.Linear(32, 10)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"body": body, "head": head}) as trace:
        for images, classes in batches(3):
            optimizer.zero_grad()
            features = body(images.flatten(1))
            leaf = features.detach().requires_grad_()
            F.cross_entropy(head(leaf.relu()), classes).backward()
            features.backward(leaf.grad)
            optimizer.step()
    return trace.report


class Watched(nn.Module):
    """Keeps figures of its weights in forward."""

    def __init__(self):
        super().__init__()
        self.emb, self.fc, self.figures = nn.Embedding(20, 8), nn.Linear(8, 3), []

    def forward(self, ids):
        for weight in self.parameters():
            self.figures.append(weight.detach().numpy().mean())
        self.figures.append(max(self.fc.bias.tolist()))
        return self.fc(self.emb(ids))


@healthy(nearly="TM303")
def weights_that_are_read_for_a_plot():
    """In forward, and in the loop: all of them learn."""
    model, kept = Watched(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for _ in range(4):
            kept.append(model.emb.weight.detach().numpy().copy())
            loss = F.cross_entropy(model(torch.tensor([1, 5, 5, 0])), torch.tensor([0, 1, 2, 0]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(model.fc.weight.data.numpy().std())
    return trace.report


class WithAnchors(nn.Module):
    """Has centres that are no part of the loss: frozen, and looked up as an array."""

    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(3, 64), requires_grad=False)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        nearest = self.centres.detach().numpy().mean(0)
        return self.fc(x - torch.from_numpy(nearest))


@healthy(nearly="TM303")
def frozen_centres_that_are_read_as_an_array():
    net = WithAnchors()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report
