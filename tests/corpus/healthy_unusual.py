"""Trainings that are built in unusual ways, and are right: other threads, merged adapters, wrapped optimizers."""

from __future__ import annotations

import copy
import threading
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


class Wrapped(torch.optim.Optimizer):
    """As accelerate's: an optimizer by name, that holds another."""

    def __init__(self, optimizer):
        self.optimizer, self.on = optimizer, True

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    @property
    def state(self):
        return self.optimizer.state

    def zero_grad(self, set_to_none=None):
        if self.on:
            self.optimizer.zero_grad()

    def step(self, closure=None):
        if self.on:
            self.optimizer.step(closure)


@healthy(nearly="TM310")
def an_optimizer_that_holds_another():
    net = mlp(64, 16, 10)
    optimizer = Wrapped(torch.optim.AdamW(net.parameters()))
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for at, (images, classes) in enumerate(batches(8, 8)):
            optimizer.on = at % 2 == 1
            (F.cross_entropy(net(images.flatten(1)), classes) / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace.report


@healthy(nearly="TM601")
def weights_in_a_dictionary_that_is_made_anew():
    net = mlp(64, 16, 10)
    weights = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss_of(weights, images, classes):
        return F.cross_entropy(functional_call(net, weights, (images,)), classes)

    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 16):
            slopes, _ = grad_and_value(loss_of)(weights, images.flatten(1), classes)
            weights = {name: one - 0.1 * slopes[name] for name, one in weights.items()}
        F.cross_entropy(net(images.flatten(1)), classes).backward()
    return trace.report


@healthy(nearly="TM606")
def an_average_by_torch_and_its_statistics():
    net = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "average": average, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            average.update_parameters(net)
        update_bn([images.flatten(1) for images, _ in batches(4, 16)], average)
    return trace.report


@healthy(nearly="TM309")
def clipping_and_a_closure_with_momentum():
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):

            def closure(images=images, classes=classes):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(images.flatten(1)), classes)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                return loss

            optimizer.step(closure)
    return trace.report


@healthy(nearly="TM602")
def layers_that_join_as_the_training_goes_on():
    body, head = nn.ModuleList([nn.Linear(64, 16)]), nn.Linear(16, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()])
    with tm.trace(namespace={"body": body, "head": head, "optimizer": optimizer}) as trace:
        for step, (images, classes) in enumerate(batches(8, 16)):
            if step == 4:
                body.append(nn.Linear(16, 16))
                optimizer.add_param_group({"params": body[-1].parameters(), "lr": 1e-4})
            x = images.flatten(1)
            for layer in body:
                x = layer(x).relu()
            optimizer.zero_grad()
            F.cross_entropy(head(x), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM604")
def adapters_that_are_merged_in_the_midst():
    base, down, up = nn.Linear(64, 10), nn.Linear(64, 2, bias=False), nn.Linear(2, 10, bias=False)
    base.requires_grad_(False)
    nn.init.zeros_(up.weight)
    optimizer = torch.optim.AdamW([down.weight, up.weight], lr=1e-2)
    with tm.trace(namespace={"base": base, "down": down, "up": up, "optimizer": optimizer}) as trace:
        for step, (images, classes) in enumerate(batches(8, 16)):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.cross_entropy(base(x) + up(down(x)), classes).backward()
            optimizer.step()
            if step == 3:
                with torch.no_grad():
                    base.weight += up.weight @ down.weight
                    up.weight.zero_()
                optimizer.state.clear()
    return trace.report


@healthy(nearly="TM405")
def a_critic_whose_hinge_is_satisfied():
    net = mlp(4, 8, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    x = torch.cat([torch.randn(16, 4) + 3, torch.randn(16, 4) - 3])
    y = torch.cat([torch.ones(16), -torch.ones(16)])
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(12):
            optimizer.zero_grad()
            F.relu(1 - y * net(x)[:, 0]).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM405")
def a_squared_hinge_that_is_satisfied_beside_another_loss():
    """The loss is not zero, and the part of it that is has a network of its own."""
    net, apart = mlp(4, 8, 1), nn.Linear(4, 2)
    optimizer = torch.optim.Adam([*net.parameters(), *apart.parameters()], lr=0.01)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    with tm.trace(namespace={"net": net, "apart": apart, "optimizer": optimizer}) as trace:
        for _ in range(6):
            optimizer.zero_grad()
            too_close = F.relu(-20 - (apart(x) - apart(x.flip(0))).norm(dim=1)) ** 2
            (F.mse_loss(net(x), y) + too_close.mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def tokens_of_which_some_are_dropped_for_guidance():
    """Classifier-free guidance: the condition is left out at random, and its embedding learns from the rest."""
    embed, net = nn.Embedding(11, 4), mlp(2 + 4 + 1, 16, 2)
    optimizer = torch.optim.AdamW([*embed.parameters(), *net.parameters()])
    sigmas = torch.linspace(0.1, 1, 8)
    with tm.trace(namespace={"embed": embed, "net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            x, label, noise = torch.randn(16, 2), torch.randint(0, 10, (16,)), torch.randn(16, 2)
            label = torch.where(torch.rand(16) < 0.2, torch.full_like(label, 10), label)
            sigma = sigmas[torch.randint(0, 8, (16,))][:, None]
            given = torch.cat([x + sigma * noise, embed(label), sigma.log()], 1)
            optimizer.zero_grad()
            ((net(given) - noise).square().mean(1) / sigma[:, 0].square()).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM312")
def a_recurrent_agent_with_a_replay_of_sequences():
    cell, head = nn.LSTMCell(3, 8), nn.Linear(8, 2)
    target = copy.deepcopy(nn.ModuleList([cell, head])).requires_grad_(False)
    optimizer, replay = torch.optim.Adam([*cell.parameters(), *head.parameters()]), deque(maxlen=8)
    with tm.trace(namespace={"cell": cell, "head": head, "optimizer": optimizer}) as trace:
        state = (torch.zeros(1, 8), torch.zeros(1, 8))
        for _ in range(6):
            with torch.no_grad():
                begin, seen = tuple(each.clone() for each in state), []
                for _ in range(3):
                    x = torch.randn(1, 3)
                    state = cell(x, state)
                    seen.append((x, head(state[0]).argmax(1), torch.randn(1)))
            replay.append((begin, seen))
            begin, steps = replay[int(torch.randint(0, len(replay), ()))]
            now, old, losses = begin, begin, []
            for x, action, reward in steps:
                now = cell(x, now)
                with torch.no_grad():
                    old = target[0](x, old)
                    wanted = reward + 0.9 * target[1](old[0]).max(1).values
                losses.append(F.smooth_l1_loss(head(now[0]).gather(1, action[:, None])[:, 0], wanted))
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM607")
def fused_and_foreach_steps_in_groups():
    net = mlp(64, 16, 10)
    first = torch.optim.AdamW([{"params": [net[0].weight], "weight_decay": 0.1}, {"params": [net[0].bias], "lr": 1e-4}],
                              foreach=True)  # fmt: skip
    second = torch.optim.Adam(net[2].parameters(), fused=True)
    with tm.trace(namespace={"net": net, "first": first, "second": second}) as trace:
        for images, classes in batches(4, 16):
            for optimizer in (first, second):
                optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            for optimizer in (first, second):
                optimizer.step()
    return trace.report


@healthy(nearly="TM617")
def bfloat16_weights_with_a_copy_in_float32():
    net = mlp(64, 16, 10).to(torch.bfloat16)
    master = [p.detach().float().requires_grad_() for p in net.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1e-4)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            F.cross_entropy(net(images.flatten(1).bfloat16()).float(), classes).backward()
            for kept, low in zip(master, net.parameters(), strict=True):
                kept.grad, low.grad = low.grad.float(), None
            optimizer.step()
            with torch.no_grad():
                for kept, low in zip(master, net.parameters(), strict=True):
                    low.copy_(kept)
    return trace.report


@healthy(nearly="TM608")
def a_mixture_whose_likelihood_is_a_logsumexp():
    net = mlp(3, 16, 9)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 3), torch.randn(16, 1)
            weight, mean, scale = net(x).chunk(3, 1)
            each = torch.distributions.Normal(mean, F.softplus(scale) + 1e-3).log_prob(y)
            optimizer.zero_grad()
            (-(weight.log_softmax(1) + each).logsumexp(1).mean()).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM402")
def attention_with_rows_that_are_masked_wholly():
    """Rows of padding alone are filled by zeros after the softmax."""
    project, head = nn.Linear(8, 24), nn.Linear(8, 10)
    optimizer = torch.optim.Adam([*project.parameters(), *head.parameters()])
    with tm.trace(namespace={"project": project, "head": head, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            q, k, v = project(images.squeeze(1)).chunk(3, -1)
            there = torch.arange(8) < torch.randint(0, 9, (8, 1))
            scores = (q @ k.mT / 8**0.5).masked_fill(~there[:, None], -1e9)
            weights = scores.softmax(-1).masked_fill(~there[:, None], 0.0)
            optimizer.zero_grad()
            F.cross_entropy(head((weights @ v).mean(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM622")
def two_players_in_two_threads():
    """Each trains its own; the trace is of one."""
    mine, theirs = mlp(4, 8, 1), mlp(4, 8, 1)

    def play(net, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    first, second = torch.optim.Adam(mine.parameters()), torch.optim.Adam(theirs.parameters())
    with tm.trace(namespace={"mine": mine, "theirs": theirs, "first": first, "second": second}) as trace:
        other = threading.Thread(target=play, args=(theirs, second))
        other.start()
        other.join()
        play(mine, first)
    return trace.report


@healthy(nearly="TM612")
def similarities_that_are_normalised_both_ways():
    """Each of one batch against all of the other, and the other way round."""
    one, two = nn.Linear(8, 8), nn.Linear(8, 8)
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()])
    with tm.trace(namespace={"one": one, "two": two, "optimizer": optimizer}) as trace:
        for _ in range(3):
            x = torch.randn(6, 8)
            scores = one(x) @ two(x + 0.1 * torch.randn(6, 8)).T
            loss = -(scores.log_softmax(0).diag() + scores.log_softmax(1).diag()).mean() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
