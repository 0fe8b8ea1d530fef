"""Agents, generators and representations of other families than those in `healthy_generative`; nothing is wrong."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


def soft_update(target, online, tau=0.05):
    """Move a target network a little."""
    with torch.no_grad():
        for kept, now in zip(target.parameters(), online.parameters(), strict=True):
            kept.mul_(1 - tau).add_(tau * now)


@healthy(nearly="TM316", family="soft actor-critic (SAC)")
def soft_actor_critic():
    """A squashed Gaussian, two critics and their targets, and a temperature that is learnt in its logarithm."""
    actor, critics = mlp(3, 16, 2), nn.ModuleList([mlp(4, 16, 1), mlp(4, 16, 1)])
    targets, log_alpha = copy.deepcopy(critics).requires_grad_(False), torch.zeros((), requires_grad=True)
    of_actor, of_critics = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critics.parameters())
    of_alpha = torch.optim.Adam([log_alpha])

    def act(state):
        mean, log_std = actor(state).chunk(2, -1)
        chosen = TransformedDistribution(
            Independent(Normal(mean, log_std.clamp(-5, 2).exp()), 1), TanhTransform(cache_size=1)
        )
        action = chosen.rsample()
        return action, chosen.log_prob(action)

    space = {"actor": actor, "critics": critics, "targets": targets, "of_actor": of_actor, "of_critics": of_critics}
    with tm.trace(namespace=space) as trace:
        for _ in range(4):
            state, after, action, reward = (
                torch.randn(16, 3),
                torch.randn(16, 3),
                torch.rand(16, 1) * 2 - 1,
                torch.randn(16),
            )
            with torch.no_grad():
                following, log_prob = act(after)
                q = torch.min(*(one(torch.cat([after, following], 1)).squeeze(1) for one in targets))
                wanted = reward + 0.99 * (q - log_alpha.exp() * log_prob)
            of_critics.zero_grad()
            sum(F.mse_loss(one(torch.cat([state, action], 1)).squeeze(1), wanted) for one in critics).backward()
            of_critics.step()
            of_actor.zero_grad()
            new, log_prob = act(state)
            q = torch.min(*(one(torch.cat([state, new], 1)).squeeze(1) for one in critics))
            (log_alpha.exp().detach() * log_prob - q).mean().backward()
            of_actor.step()
            of_alpha.zero_grad()
            (-log_alpha * (log_prob.detach() - 1.0)).mean().backward()
            of_alpha.step()
            soft_update(targets, critics)
    return trace.report


@healthy(nearly="TM622", family="twin delayed policy gradient (TD3)")
def a_policy_that_is_delayed():
    """The actor steps in every second step, and its target with it."""
    actor, critic = nn.Sequential(mlp(3, 16, 1), nn.Tanh()), mlp(4, 16, 2)
    actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
    of_actor, of_critic = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    space = {"actor": actor, "critic": critic, "actor_target": actor_target, "critic_target": critic_target}
    with tm.trace(namespace=space) as trace:
        for step in range(6):
            state, after, action, reward = torch.randn(8, 3), torch.randn(8, 3), torch.rand(8, 1), torch.randn(8)
            with torch.no_grad():
                noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
                best = (actor_target(after) + noise).clamp(-1, 1)
                wanted = reward + 0.99 * critic_target(torch.cat([after, best], 1)).min(1).values
            of_critic.zero_grad()
            F.mse_loss(critic(torch.cat([state, action], 1)), wanted[:, None].expand(-1, 2)).backward()
            of_critic.step()
            if step % 2:
                of_actor.zero_grad()
                (-critic(torch.cat([state, actor(state)], 1))[:, 0].mean()).backward()
                of_actor.step()
                soft_update(actor_target, actor)
                soft_update(critic_target, critic)
    return trace.report


@healthy(nearly="TM314", family="advantages over several steps (GAE)")
def advantages_that_are_summed_backwards():
    """All of it under `no_grad`; the values' own loss is clipped as well."""
    net = nn.ModuleDict({"body": nn.Linear(4, 16), "policy": nn.Linear(16, 2), "value": nn.Linear(16, 1)})
    optimizer = torch.optim.Adam(net.parameters(), eps=1e-5)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(2):
            states, rewards = torch.randn(8, 4), torch.randn(8)
            with torch.no_grad():
                body = net["body"](states).tanh()
                chosen, values = Categorical(logits=net["policy"](body)), net["value"](body).squeeze(1)
                actions = chosen.sample()
                before, advantages, last = chosen.log_prob(actions), torch.zeros(8), 0.0
                for at in reversed(range(7)):
                    last = rewards[at] + 0.99 * values[at + 1] - values[at] + 0.99 * 0.95 * last
                    advantages[at] = last
                returns = advantages + values
            for _ in range(2):
                body = net["body"](states).tanh()
                chosen, value = Categorical(logits=net["policy"](body)), net["value"](body).squeeze(1)
                ratio = (chosen.log_prob(actions) - before).exp()
                policy = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
                clipped = values + (value - values).clamp(-0.2, 0.2)
                fit = torch.max((value - returns).square(), (clipped - returns).square()).mean()
                optimizer.zero_grad()
                (policy + 0.5 * fit - 0.01 * chosen.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
    return trace.report


@healthy(nearly="TM623", family="preferences (DPO)")
def preferences_against_a_frozen_reference():
    """The reference begins as a copy, and stays what it was."""
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def score(network, words):
        return network(words[:, :-1]).log_softmax(-1).gather(-1, words[:, 1:, None]).sum((1, 2))

    with tm.trace(namespace={"model": model, "reference": reference, "optimizer": optimizer}) as trace:
        for _ in range(4):
            chosen, rejected = torch.randint(0, 12, (2, 6, 5))
            with torch.no_grad():
                margin = score(reference, chosen) - score(reference, rejected)
            loss = -F.logsigmoid(0.1 * (score(model, chosen) - score(model, rejected) - margin)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303", family="momentum contrast with a queue (MoCo)")
def momentum_contrast_with_a_queue():
    """Keys of earlier batches lie in a buffer; the encoder of the keys follows."""
    query, key = mlp(64, 16, 8), mlp(64, 16, 8)
    key.load_state_dict(query.state_dict())
    queue, at = F.normalize(torch.randn(32, 8), dim=1), 0
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9)
    with tm.trace(namespace={"query": query, "key": key, "optimizer": optimizer}) as trace:
        for images, _ in batches(4, 8):
            x = images.flatten(1)
            q = F.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
            with torch.no_grad():
                for kept, now in zip(key.parameters(), query.parameters(), strict=True):
                    kept.data = kept.data * 0.99 + now.data * 0.01
                k = F.normalize(key(x + 0.1 * torch.randn_like(x)), dim=1)
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().t()], 1) / 0.2
            optimizer.zero_grad()
            F.cross_entropy(scores, torch.zeros(8, dtype=torch.long)).backward()
            optimizer.step()
            queue[at : at + 8], at = k, (at + 8) % 32
    return trace.report


@healthy(nearly="TM602", family="self-distillation (DINO)")
def a_teacher_that_is_centred():
    student = mlp(64, 16, 12)
    teacher, centre = copy.deepcopy(student), torch.zeros(1, 12)
    for parameter in teacher.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.AdamW(student.parameters())
    with tm.trace(namespace={"student": student, "teacher": teacher, "optimizer": optimizer}) as trace:
        for images, _ in batches(4, 16):
            x = images.flatten(1)
            views = [x + 0.1 * torch.randn_like(x) for _ in range(2)]
            made = [teacher(view).detach() for view in views]
            loss = 0
            for at, wanted in enumerate(made):
                sharp = F.softmax((wanted - centre) / 0.04, dim=-1)
                loss = loss - (sharp * F.log_softmax(student(views[1 - at]) / 0.1, dim=-1)).sum(-1).mean() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            centre = 0.9 * centre + 0.1 * torch.cat(made).mean(0, keepdim=True)
            soft_update(teacher, student)
    return trace.report


@healthy(nearly="TM105", family="redundancy reduction (Barlow twins)")
def features_that_are_decorrelated():
    """As many features as samples, and their correlations are a table on purpose."""
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    norm, optimizer = nn.BatchNorm1d(16, affine=False), torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "norm": norm, "optimizer": optimizer}) as trace:
        for images, _ in batches(3, 16):
            x = images.flatten(1)
            one, two = (norm(net(x + 0.1 * torch.randn_like(x))) for _ in range(2))
            table = one.T @ two / 16
            on = (torch.diagonal(table) - 1).square().sum()
            off = (table - torch.diag(torch.diagonal(table))).square().sum()
            optimizer.zero_grad()
            (on + 5e-3 * off).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM104", family="masked autoencoder")
def patches_that_are_masked():
    """Three in four are left out; a token that is learnt stands for them."""
    encoder, decoder, token = mlp(4, 16, 8), mlp(8, 16, 4), nn.Parameter(torch.zeros(1, 1, 8))
    places = nn.Parameter(torch.randn(1, 16, 8) * 0.02)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters(), token, places])
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder, "token": token, "places": places}) as trace:
        for images, _ in batches(3, 8):
            patches = images.unfold(2, 2, 2).unfold(3, 2, 2).reshape(8, 16, 4)
            order = torch.rand(8, 16).argsort(1)
            seen, back = order[:, :4, None], order.argsort(1)[..., None]
            coded = encoder(patches.gather(1, seen.expand(-1, -1, 4))) + places.expand(8, -1, -1).gather(
                1, seen.expand(-1, -1, 8)
            )
            full = torch.cat([coded, token.expand(8, 12, -1)], 1).gather(1, back.expand(-1, -1, 8)) + places
            hidden = torch.ones(8, 16).scatter(1, order[:, :4], 0.0)
            loss = ((decoder(full) - patches).square().mean(-1) * hidden).sum() / hidden.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM608", family="images and words (CLIP)")
def images_and_words_in_one_space():
    """Both ways round, and a temperature in its logarithm that is kept below 100."""
    image, text = mlp(64, 16, 8), nn.EmbeddingBag(30, 8)
    log_scale = nn.Parameter(torch.tensor(2.6))
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), log_scale])
    with tm.trace(namespace={"image": image, "text": text, "log_scale": log_scale, "optimizer": optimizer}) as trace:
        for images, _ in batches(3, 8):
            one, two = (
                F.normalize(image(images.flatten(1)), dim=-1),
                F.normalize(text(torch.randint(0, 30, (8, 4))), dim=-1),
            )
            scores, labels = log_scale.exp() * one @ two.t(), torch.arange(8)
            optimizer.zero_grad()
            ((F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2).backward()
            optimizer.step()
            log_scale.data.clamp_(0, 4.6052)
    return trace.report


@healthy(nearly="TM612", family="margins between faces (ArcFace)")
def angles_with_a_margin():
    net, weight = mlp(64, 16, 8), nn.Parameter(torch.randn(10, 8) * 0.1)
    optimizer = torch.optim.SGD([*net.parameters(), weight], lr=0.1, weight_decay=5e-4)
    with tm.trace(namespace={"net": net, "weight": weight, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 16):
            cosine = F.linear(F.normalize(net(images.flatten(1))), F.normalize(weight)).clamp(-1 + 1e-7, 1 - 1e-7)
            shifted = torch.cos(torch.acos(cosine) + 0.3)
            scores = torch.where(F.one_hot(classes, 10).bool(), shifted, cosine) * 16
            optimizer.zero_grad()
            F.cross_entropy(scores, classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM315", family="gradient penalty on real pictures (R1)")
def a_penalty_on_the_real_pictures():
    """A second derivative in every second step of the judge; the maker's weights are averaged."""
    maker, judge = mlp(4, 16, 8), mlp(8, 16, 1)
    average = copy.deepcopy(maker)
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    with tm.trace(namespace={"maker": maker, "judge": judge, "of_maker": of_maker, "of_judge": of_judge}) as trace:
        for step in range(4):
            real = torch.randn(8, 8, requires_grad=step % 2 == 0)
            judge.requires_grad_(True)
            scores = judge(real)
            loss = F.softplus(-scores).mean() + F.softplus(judge(maker(torch.randn(8, 4)).detach())).mean()
            if step % 2 == 0:
                (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
                loss = loss + 5.0 * slope.square().sum(1).mean()
            of_judge.zero_grad(set_to_none=True)
            loss.backward()
            of_judge.step()
            judge.requires_grad_(False)
            of_maker.zero_grad(set_to_none=True)
            F.softplus(-judge(maker(torch.randn(8, 4)))).mean().backward()
            of_maker.step()
            soft_update(average, maker)
    return trace.report


@healthy(nearly="TM701", family="flow matching")
def a_flow_that_is_matched():
    """Seeded before; the time is embedded by sines, and the velocity is what a straight line has."""
    torch.manual_seed(5)
    net, frequencies = mlp(2 + 8, 32, 2), 2.0 ** torch.arange(4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            end, start, time = torch.randn(32, 2) + 3, torch.randn(32, 2), torch.rand(32, 1)
            angles = time * frequencies
            x = torch.cat([(1 - time) * start + time * end, angles.sin(), angles.cos()], 1)
            optimizer.zero_grad()
            F.mse_loss(net(x), end - start).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM306", family="a layer that is a fixed point (DEQ)")
def a_layer_that_is_a_fixed_point():
    """Found without gradients; one application at the end, whose backward solves for its own fixed point."""

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 8), nn.Linear(64, 8)
            nn.init.uniform_(self.inner.weight, -0.1, 0.1)

        def once(self, z, x):
            return torch.tanh(self.inner(z) + self.outer(x))

        def forward(self, x):
            with torch.no_grad():
                z = torch.zeros(len(x), 8)
                for _ in range(8):
                    z = self.once(z, x)
            z = self.once(z, x)
            if z.requires_grad:
                z0 = z.clone().detach().requires_grad_()
                f0 = self.once(z0, x)

                def solve(gradient):
                    g = gradient
                    for _ in range(6):
                        g = torch.autograd.grad(f0, z0, g, retain_graph=True)[0] + gradient
                    return g

                z.register_hook(solve)
            return z

    net = nn.Sequential(Fixed(), nn.Linear(8, 10))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM616", family="meta-learning without second derivatives (Reptile)")
def tasks_that_pull_the_weights_their_way():
    """A copy and an optimizer of its own for each task."""
    net = mlp(1, 16, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            phase, fast = torch.rand(()) * 3, copy.deepcopy(net)
            inner = torch.optim.Adam(fast.parameters(), lr=1e-2, betas=(0.0, 0.999))
            for _ in range(3):
                x = torch.rand(8, 1) * 6
                inner.zero_grad()
                F.mse_loss(fast(x), torch.sin(x + phase)).backward()
                inner.step()
            with torch.no_grad():
                for slow, new in zip(net.parameters(), fast.parameters(), strict=True):
                    slow.lerp_(new, 0.1)
    return trace.report


@healthy(nearly="TM611", family="virtual adversarial training")
def a_direction_that_would_change_the_answer_most():
    """A divergence in logarithms, whose gradient is asked for at the input first."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            x = images.flatten(1)
            with torch.no_grad():
                wanted = net(x).softmax(1)
            way = F.normalize(torch.randn_like(x), dim=1).mul_(1e-2).requires_grad_()
            far = F.kl_div(net(x + way).log_softmax(1), wanted, reduction="batchmean")
            (slope,) = torch.autograd.grad(far, way)
            worst = F.normalize(slope, dim=1).detach()
            smooth = F.kl_div(net(x + worst).log_softmax(1), wanted, reduction="batchmean")
            optimizer.zero_grad()
            (F.cross_entropy(net(x), classes) + smooth).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM313", family="losses whose weights follow their gradients (GradNorm)")
def losses_balanced_by_their_gradients():
    """The weights learn from a loss of their own; in the other they are numbers."""
    body, heads, weights = (
        mlp(64, 16, 8),
        nn.ModuleList([nn.Linear(8, 10), nn.Linear(8, 1)]),
        nn.Parameter(torch.ones(2)),
    )
    of_model = torch.optim.Adam([*body.parameters(), *heads.parameters()])
    of_weights = torch.optim.SGD([weights], lr=0.01)
    with tm.trace(namespace={"body": body, "heads": heads, "weights": weights, "of_weights": of_weights}) as trace:
        for images, classes in batches(3, 16):
            features = body(images.flatten(1)).relu()
            losses = torch.stack([F.cross_entropy(heads[0](features), classes),
                                  F.mse_loss(heads[1](features)[:, 0], classes / 10)])  # fmt: skip
            of_model.zero_grad()
            (losses * weights.detach()).sum().backward(retain_graph=True)
            norms = torch.stack([
                torch.autograd.grad(weight * loss, body[2].weight, retain_graph=True, create_graph=True)[0].norm()
                for weight, loss in zip(weights, losses, strict=True)
            ])  # fmt: skip
            of_weights.zero_grad()
            weights.grad = torch.autograd.grad((norms - norms.mean().detach()).abs().sum(), weights)[0]
            of_weights.step()
            of_model.step()
            with torch.no_grad():
                weights.mul_(2 / weights.sum())
    return trace.report


@healthy(nearly="TM106", family="windows of attention (Swin)")
def windows_that_are_cut_and_put_together():
    """Views, then a permutation, then one more view, each way."""
    attend, embed, head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Conv2d(1, 8, 1), nn.Linear(8, 10)
    optimizer = torch.optim.AdamW([*attend.parameters(), *embed.parameters(), *head.parameters()])
    with tm.trace(namespace={"attend": attend, "embed": embed, "head": head, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 4):
            x = embed(images).permute(0, 2, 3, 1).roll((-2, -2), (1, 2))
            cut = x.view(4, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
            cut = cut + attend(cut, cut, cut, need_weights=False)[0]
            x = cut.view(4, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(4, 8, 8, 8).roll((2, 2), (1, 2))
            optimizer.zero_grad()
            F.cross_entropy(head(x.mean((1, 2))), classes).backward()
            optimizer.step()
    return trace.report
