"""Training of generative models and of agents as tutorials write it: nothing is wrong with it."""

from __future__ import annotations

import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


@healthy(family="Wasserstein GAN with gradient penalty")
def wasserstein_gan_with_gradient_penalty():
    """Several critic steps a generator step; the penalty needs a gradient of a gradient."""
    generator, critic = mlp(8, 32, 64), mlp(64, 32, 1)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    with tm.trace(namespace=locals()) as trace:
        for step, (images, _) in enumerate(batches(6, 32)):
            real, fake = images.flatten(1), generator(torch.randn(32, 8)).detach()
            share = torch.rand(32, 1)
            between = (share * real + (1 - share) * fake).requires_grad_(True)
            score = critic(between)
            slopes = torch.autograd.grad(
                outputs=score, inputs=between, grad_outputs=torch.ones_like(score), create_graph=True, retain_graph=True
            )[0]
            penalty = ((slopes.norm(2, dim=1) - 1) ** 2).mean()
            critic_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()
            if step % 3 == 2:
                generator_optimizer.zero_grad()
                (-critic(generator(torch.randn(32, 8))).mean()).backward()
                generator_optimizer.step()
    return trace.report


@healthy(family="vector-quantised autoencoder (VQ-VAE)")
def vector_quantised_autoencoder():
    """The straight-through estimator: z + (q - z).detach(); codes that no input is near to get zero."""
    encoder, decoder, codes = mlp(64, 32, 4), mlp(4, 32, 64), nn.Embedding(16, 4)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *codes.parameters()], lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(5):
            x = images.flatten(1)
            z = encoder(x)
            nearest = torch.cdist(z, codes.weight).argmin(dim=1)
            quantised = codes(nearest)
            codebook = F.mse_loss(quantised, z.detach()) + 0.25 * F.mse_loss(z, quantised.detach())
            quantised = z + (quantised - z).detach()
            loss = F.mse_loss(decoder(quantised), x) + codebook
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="categorical autoencoder (Gumbel softmax)")
def gumbel_softmax():
    """Hard samples with the gradient of soft ones, at a temperature that falls."""
    encoder, decoder = mlp(64, 32, 10), mlp(10, 32, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for step, (images, _) in enumerate(batches(4)):
            x = images.flatten(1)
            z = F.gumbel_softmax(encoder(x), tau=max(0.5, 1 - 0.1 * step), hard=True)
            loss = F.binary_cross_entropy_with_logits(decoder(z), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="diffusion model")
def a_diffusion_model():
    """Predict the noise at a random time; then sample, backwards in time, under no_grad, with averaged weights."""
    model = mlp(3, 32, 32, 2)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    betas = torch.linspace(1e-4, 0.2, 20)
    remaining = torch.cumprod(1 - betas, dim=0)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(5):
            x = torch.randn(32, 2) * torch.tensor([2.0, 0.5])
            t = torch.randint(20, (32,))
            noise, share = torch.randn_like(x), remaining[t, None]
            noisy = share.sqrt() * x + (1 - share).sqrt() * noise
            loss = F.mse_loss(model(torch.cat([noisy, t[:, None] / 20], dim=1)), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, new in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(new, 0.1)
        with torch.no_grad():
            x = torch.randn(4, 2)
            for t in reversed(range(20)):
                guess = average(torch.cat([x, torch.full((4, 1), t / 20)], dim=1))
                x = (x - betas[t] / (1 - remaining[t]).sqrt() * guess) / (1 - betas[t]).sqrt()
                x = x + betas[t].sqrt() * torch.randn_like(x) if t else x
    return trace.report


class Coupling(nn.Module):
    """An affine coupling layer of RealNVP: the mask's half goes through as it is."""

    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.scale, self.shift = mlp(2, 16, 2), mlp(2, 16, 2)

    def forward(self, x):
        kept = x * self.mask
        scale, shift = torch.tanh(self.scale(kept)) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * scale.exp() + shift), scale.sum(1)


@healthy(family="normalizing flow")
def a_normalizing_flow():
    """The biases of the masked half get exactly zero; the weights beside them do not."""
    flow = nn.ModuleList(Coupling(torch.tensor(mask)) for mask in ([0.0, 1.0], [1.0, 0.0], [0.0, 1.0]))
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            z, log_determinant = torch.randn(64, 2) * 2 + 1, torch.zeros(64)
            for layer in flow:
                z, more = layer(z)
                log_determinant = log_determinant + more
            loss = -(prior.log_prob(z) + log_determinant).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="energy-based model")
def an_energy_based_model():
    """Langevin steps make the negative samples: gradients of the input, with the parameters switched off."""
    energy = mlp(2, 32, 1)
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            real, x = torch.randn(32, 2), torch.rand(32, 2, requires_grad=True)
            energy.requires_grad_(False)
            for _ in range(4):
                (slope,) = torch.autograd.grad(energy(x).sum(), x)
                x = (x - 0.1 * slope + 0.01 * torch.randn_like(x)).detach().requires_grad_(True)
            energy.requires_grad_(True)
            optimizer.zero_grad()
            loss = energy(real).mean() - energy(x.detach()).mean()
            loss.backward()
            optimizer.step()
    return trace.report


class Reversed(torch.autograd.Function):
    """Passes values on and turns the gradient round."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


@healthy(family="domain adaptation with gradient reversal")
def domain_adaptation_with_gradient_reversal():
    """A custom Function; at a strength of zero, in the first step, the body gets nothing from the domain head."""
    body, label_head, domain_head = mlp(8, 16), nn.Linear(16, 3), nn.Linear(16, 2)
    parameters = [*body.parameters(), *label_head.parameters(), *domain_head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    with tm.trace(namespace=locals()) as trace:
        for step in range(4):
            source, target, labels = torch.randn(16, 8), torch.randn(16, 8) + 1, torch.randint(3, (16,))
            hidden = F.relu(body(torch.cat([source, target])))
            domain = domain_head(Reversed.apply(hidden, step / 4))
            where_from = torch.cat([torch.zeros(16), torch.ones(16)]).long()
            loss = F.cross_entropy(label_head(hidden[:16]), labels) + F.cross_entropy(domain, where_from)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="deep Q-learning")
def deep_q_learning_with_a_target_network():
    """A replay memory, epsilon-greedy actions, bootstrapped targets under no_grad, clamped gradients."""
    policy_net, target_net = mlp(4, 32, 2), mlp(4, 32, 2)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    memory = deque(maxlen=200)
    chance = random.Random(0)
    with tm.trace(namespace=locals()) as trace:
        state = torch.randn(1, 4)
        for step in range(24):
            if chance.random() < 0.2:
                action = torch.tensor([[chance.randrange(2)]])
            else:
                with torch.no_grad():
                    action = policy_net(state).max(1).indices.view(1, 1)
            following, reward = torch.randn(1, 4), torch.randn(1)
            memory.append((state, action, following, reward))
            state = following
            if len(memory) < 16:
                continue
            states, actions, followings, rewards = map(torch.cat, zip(*chance.sample(memory, 16), strict=True))
            values = policy_net(states).gather(1, actions)
            with torch.no_grad():
                goals = rewards + 0.99 * target_net(followings).max(1).values
            loss = F.smooth_l1_loss(values, goals.unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(policy_net.parameters(), 100)
            optimizer.step()
            if step % 5 == 0:
                target_net.load_state_dict(policy_net.state_dict())
    return trace.report


class ActorCritic(nn.Module):
    """One body, a policy and a value."""

    def __init__(self):
        super().__init__()
        self.body, self.action, self.value = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, x):
        x = F.relu(self.body(x))
        return F.softmax(self.action(x), dim=-1), self.value(x)


@healthy(family="actor-critic")
def actor_critic():
    """PyTorch's own example: log-probabilities and values of an episode are kept in a list until it ends."""
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    eps = 1e-8
    with tm.trace(namespace=locals()) as trace:
        for _ in range(3):
            saved, rewards, state = [], [], torch.randn(4)
            for _ in range(8):
                probabilities, value = model(state)
                chosen = torch.distributions.Categorical(probabilities)
                action = chosen.sample()
                saved.append((chosen.log_prob(action), value))
                rewards.append(float(action.item() == 1))
                state = torch.randn(4)
            returns, total = [], 0.0
            for reward in reversed(rewards):
                total = reward + 0.99 * total
                returns.insert(0, total)
            returns = torch.tensor(returns)
            returns = (returns - returns.mean()) / (returns.std() + eps)
            policy_losses, value_losses = [], []
            for (log_probability, value), wanted in zip(saved, returns, strict=True):
                policy_losses.append(-log_probability * (wanted - value.item()))
                value_losses.append(F.smooth_l1_loss(value, torch.tensor([wanted])))
            optimizer.zero_grad()
            loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(family="proximal policy optimisation (PPO)")
def proximal_policy_optimisation():
    """The clipped ratio: where it is clipped, the gradient is exactly zero for that sample, and that is the point."""
    actor, critic = mlp(4, 32, 2), mlp(4, 32, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    states, rewards = torch.randn(32, 4), torch.randn(32)
    with tm.trace(namespace=locals()) as trace:
        with torch.no_grad():
            before = torch.distributions.Categorical(logits=actor(states))
            actions = before.sample()
            old_log_p, advantage = before.log_prob(actions), rewards - critic(states).squeeze(-1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(4):
            for rows in torch.randperm(32).split(16):
                chosen = torch.distributions.Categorical(logits=actor(states[rows]))
                ratio = (chosen.log_prob(actions[rows]) - old_log_p[rows]).exp()
                clipped = ratio.clamp(0.8, 1.2) * advantage[rows]
                policy_loss = -torch.min(ratio * advantage[rows], clipped).mean()
                value_loss = F.mse_loss(critic(states[rows]).squeeze(-1), rewards[rows])
                loss = policy_loss + 0.5 * value_loss - 0.01 * chosen.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
    return trace.report


@healthy(family="deep deterministic policy gradient (DDPG)")
def deterministic_policy_gradient():
    """The actor learns through the critic: the critic's parameters get a gradient that no step uses."""
    actor, critic = nn.Sequential(mlp(4, 16, 2), nn.Tanh()), mlp(6, 16, 1)
    actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with tm.trace(namespace=locals()) as trace:
        for _ in range(4):
            state, action, reward, following = (
                torch.randn(16, 4),
                torch.rand(16, 2),
                torch.randn(16, 1),
                torch.randn(16, 4),
            )
            with torch.no_grad():
                goal = reward + 0.99 * critic_target(torch.cat([following, actor_target(following)], 1))
            critic_loss = F.mse_loss(critic(torch.cat([state, action], 1)), goal)
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()
            actor_loss = -critic(torch.cat([state, actor(state)], 1)).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            for slow, fast in ((actor_target, actor), (critic_target, critic)):
                for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                    old.data.copy_(0.995 * old.data + 0.005 * new.data)
    return trace.report
