"""Networks that train each other wrongly, alike units, loads and loops without effect (TM316, TM408, TM62x)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, digits, mlp, train_classifier

REAL, FAKE = torch.ones(32, 1), torch.zeros(32, 1)
bce = F.binary_cross_entropy_with_logits


def _pair():
    gen, dis = mlp(8, 16, 64), mlp(64, 16, 1)
    return gen, dis, torch.optim.Adam(gen.parameters(), lr=1e-3), torch.optim.Adam(dis.parameters(), lr=1e-3)


# TM303: a generator that its own loss does not reach


@ill("TM303", severity="warning", subject="gen.0.weight", line="fake = gen(torch.randn(32, 8)).detach()",
     says=("all 4 parameters of gen", "detach for the other loss alone: `fake.detach()`"))  # fmt: skip
def a_fake_that_is_detached_for_both_losses():
    """For the discriminator, and used for the generator's loss too (nikhilsinghmus/image2reverb#37)."""
    gen, dis, og, od = _pair()
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for images, _ in batches(5, 32):
            fake = gen(torch.randn(32, 8)).detach()
            od.zero_grad()
            loss = bce(dis(images.flatten(1)), REAL) + bce(dis(fake), FAKE)
            loss.backward()
            od.step()
            og.zero_grad()
            loss = bce(dis(fake), REAL)
            loss.backward()
            og.step()
    return trace.report


# TM316: gradients of another network's loss


@ill("TM316", severity="warning", line="od.step()", related=("bce(dis(fake), REAL).backward()",), subject="od",
     says=("gradients of two losses, in at least 4 of its 5 steps", "`od.zero_grad()`"))  # fmt: skip
def a_discriminator_that_is_cleared_too_early():
    """Both are cleared at the top; the generator's loss then goes through it (Lightning-AI/pytorch-lightning#591)."""
    gen, dis, og, od = _pair()
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for images, _ in batches(5, 32):
            og.zero_grad()
            od.zero_grad()
            fake = gen(torch.randn(32, 8))
            bce(dis(fake), REAL).backward()
            og.step()
            (bce(dis(images.flatten(1)), REAL) + bce(dis(fake.detach()), FAKE)).backward()
            od.step()
    return trace.report


@ill("TM316", severity="warning", line="critic_optimizer.step()", subject="critic_optimizer", says=("actor_optimizer",))
def a_critic_that_keeps_what_the_actor_s_loss_left():
    actor, critic = mlp(64, 16, 2), mlp(66, 16, 1)
    actor_optimizer, critic_optimizer = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(6, 32):
            state = images.flatten(1)
            actor_optimizer.zero_grad()
            critic_optimizer.zero_grad()
            gain = critic(torch.cat([state, actor(state)], 1)).mean()
            (-gain).backward()
            actor_optimizer.step()
            value = critic(torch.cat([state, torch.randn(32, 2)], 1))
            F.mse_loss(value, classes[:, None] / 10).backward()
            critic_optimizer.step()
    return trace.report


@ill("TM316", severity="warning", line="judge_optimizer.step()", says=("in at least 5 of its 6 steps",))
def a_domain_classifier_that_learns_to_be_fooled():
    """The features are to fool it; what is left in its gradients makes it help them."""
    features, judge = mlp(64, 16, 16), mlp(16, 1)
    features_optimizer = torch.optim.SGD(features.parameters(), lr=0.05)
    judge_optimizer = torch.optim.SGD(judge.parameters(), lr=0.05)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(6, 32):
            domain = (classes > 4).float()[:, None]
            judge_optimizer.zero_grad()
            features_optimizer.zero_grad()
            made = features(images.flatten(1))
            loss = -bce(judge(made), domain)
            loss.backward()
            features_optimizer.step()
            loss = bce(judge(made.detach()), domain)
            loss.backward()
            judge_optimizer.step()
    return trace.report


# TM408: units that stay the same


@ill(
    "TM408",
    severity="warning",
    line="optimizer.step()",
    subject="net.0.weight",
    says=("All 16 units of net.0.weight and net.2.weight", "are exactly zero", "nn.init.kaiming_uniform_"),
)
def a_network_of_zeros():
    """wagonhelm/NaNmnist#2."""
    net = mlp(64, 16, 10)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM408", severity="warning", line="optimizer.step()", subject="net.0.weight", says=("all units learn the same",))
def a_network_of_equal_weights():
    net = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    nn.init.constant_(net[0].weight, 0.1)
    nn.init.constant_(net[2].weight, 0.1)
    nn.init.zeros_(net[0].bias)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill(
    "TM408",
    severity="warning",
    line="optimizer.step()",
    subject="w1",
    says=("8 units of w1", "w1 = torch.randn(64, 8)"),
)
def hand_written_layers_of_ones():
    w1 = torch.full((64, 8), 0.05, requires_grad=True)
    w2 = torch.full((8, 10), 0.05, requires_grad=True)
    optimizer = torch.optim.SGD([w1, w2], lr=0.1)
    with tm.trace(namespace={"w1": w1, "w2": w2, "optimizer": optimizer}) as trace:
        for images, classes in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(torch.tanh(images.flatten(1) @ w1) @ w2, classes).backward()
            optimizer.step()
    return trace.report


# TM405: steps on the way to a weight


@ill("TM405", line="weight = torch.round(net.weight * 8) / 8", subject="net.weight", says=("round", "a step function"))
def weights_that_are_rounded_before_they_are_used():
    """Quantised by hand; the bias still learns."""
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            weight = torch.round(net.weight * 8) / 8
            F.cross_entropy(F.linear(images.flatten(1), weight, net.bias), classes).backward()
            optimizer.step()
    return trace.report


# TM620: an iterator that is used up


def _step(net, optimizer, images, classes):
    optimizer.zero_grad()
    F.cross_entropy(net(images.flatten(1)), classes).backward()
    optimizer.step()


@ill("TM620", severity="warning", line="for images, classes in data:", subject="data",
     says=("data is an iterator (generator)", "the first of 3 rounds"))  # fmt: skip
def a_generator_for_all_epochs():
    """BindsNET/bindsnet#188: after the first round of the outer loop nothing is left."""
    net = mlp(64, 16, 10)
    optimizer, data = torch.optim.Adam(net.parameters()), batches(4)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            for images, classes in data:
                _step(net, optimizer, images, classes)
    return trace.report


@ill("TM620", severity="warning", line="for number, (images, classes) in enumerate(pairs):", says=("zip", "5 rounds"))
def inputs_and_targets_that_were_zipped_once():
    net, epochs = mlp(64, 16, 10), 5
    optimizer = torch.optim.Adam(net.parameters())
    images, classes = zip(*batches(3), strict=True)
    pairs = zip(images, classes, strict=True)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(epochs):
            for number, (images, classes) in enumerate(pairs):
                _step(net, optimizer, images, classes)
                assert number < 3
    return trace.report


@ill("TM620", severity="warning", line="for images, classes in loader:", says=("SingleProcessDataLoaderIter",))
def the_iterator_of_a_loader():
    """pytorch/pytorch#6179: the data can be gone through once."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    pairs = [(images[0], classes[0]) for images, classes in batches(8)]
    loader = iter(torch.utils.data.DataLoader(pairs, batch_size=4))
    with tm.trace(namespace={"net": net}) as trace:
        for _ in [1, 2]:
            for images, classes in loader:
                _step(net, optimizer, images, classes)
    return trace.report


# TM621: a load that loads nothing


@ill("TM621", severity="warning", line="net.load_state_dict(saved, strict=False)", subject="net",
     says=("loaded nothing into net: it was given `module.0.weight`", "removeprefix('module.')"))  # fmt: skip
def a_checkpoint_of_data_parallel():
    """pytorch/examples#1029: the keys begin with ``module.``, and strict=False says nothing of it."""
    saved = {f"module.{key}": value for key, value in mlp(64, 16, 10).state_dict().items()}
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        net.load_state_dict(saved, strict=False)
        train_classifier(net, flat=True)
    return trace.report


@ill("TM621", severity="warning", line="net.load_state_dict(checkpoint, strict=False)", says=("it was given `model`",))
def a_checkpoint_that_holds_more_than_the_model():
    other = mlp(64, 16, 10)
    checkpoint = {"model": other.state_dict(), "epoch": 3}
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        net.load_state_dict(checkpoint, strict=False)
        train_classifier(net, flat=True)
    return trace.report


@ill(
    "TM621",
    severity="note",
    line="net.body.load_state_dict(saved, strict=False)",
    says=("1 of 4 tensors into net.body",),
)
def a_backbone_of_another_library():
    saved = {"0.weight": torch.randn(16, 64), "fc1.bias": torch.zeros(16), "fc2.weight": torch.randn(10, 16),
             "fc2.bias": torch.zeros(10)}  # fmt: skip
    net = nn.Module()
    net.body = mlp(64, 16, 10)
    net.forward = net.body.forward
    with tm.trace(namespace={"net": net}) as trace:
        net.body.load_state_dict(saved, strict=False)
        train_classifier(net.body, flat=True)
    return trace.report


@ill("TM621", severity="warning", line="net.load_state_dict(best)", says=("net's own tensors", "copy.deepcopy("))
def the_best_weights_without_a_copy():
    """What is kept of the best epoch changes with every step after it."""
    net = mlp(64, 16, 10)
    with tm.trace(namespace={"net": net}) as trace:
        best = net.state_dict()
        train_classifier(net, flat=True)
        net.load_state_dict(best)
    return trace.report


@ill("TM621", severity="warning", line="target.load_state_dict(target.state_dict())", says=("target's own tensors",))
def a_target_network_that_is_loaded_from_itself():
    """thesouther/MARL#8."""
    q = mlp(64, 16, 2)
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    with tm.trace(namespace={"q": q, "target": target}) as trace:
        for images, classes in batches(6, 16):
            with torch.no_grad():
                wanted = classes / 10 + 0.9 * target(images.flatten(1)).max(1).values
            optimizer.zero_grad()
            F.smooth_l1_loss(q(images.flatten(1))[:, 0], wanted).backward()
            optimizer.step()
            target.load_state_dict(target.state_dict())
    return trace.report


# TM622: an optimizer that makes no step


@ill("TM622", severity="note", line="od.step()", subject="og", says=("the 4 parameters of gen", "`og.step()`"))
def a_generator_whose_optimizer_never_steps():
    """The discriminator's optimizer steps twice."""
    gen, dis, og, od = _pair()
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for images, _ in batches(5, 32):
            fake = gen(torch.randn(32, 8))
            od.zero_grad()
            (bce(dis(images.flatten(1)), REAL) + bce(dis(fake.detach()), FAKE)).backward()
            od.step()
            od.zero_grad()
            og.zero_grad()
            bce(dis(fake), REAL).backward()
            od.step()
    return trace.report


@ill("TM622", severity="note", line="head_optimizer.step()", subject="body_optimizer", says=("of body",))
def a_body_whose_optimizer_was_forgotten():
    body, head = mlp(64, 16), nn.Linear(16, 10)
    body_optimizer, head_optimizer = torch.optim.Adam(body.parameters()), torch.optim.Adam(head.parameters())
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            body_optimizer.zero_grad()
            head_optimizer.zero_grad()
            F.cross_entropy(head(body(images.flatten(1)).relu()), classes).backward()
            head_optimizer.step()
    return trace.report


@ill("TM622", severity="note", line="first_optimizer.step()", subject="second_optimizer", says=("of second",))
def the_second_of_two_models():
    first, second = mlp(64, 10), mlp(64, 16, 10)
    first_optimizer, second_optimizer = (
        torch.optim.SGD(first.parameters(), 0.1),
        torch.optim.SGD(second.parameters(), 0.1),
    )
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            for net, optimizer in ((first, first_optimizer), (second, first_optimizer)):
                optimizer.zero_grad()
                net.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
            first_optimizer.step()
    return trace.report


@ill("TM309", severity="warning", line="od.step()", subject="od", says=("before the backward: `od.zero_grad()`",))
def a_critic_that_is_never_cleared():
    """After its step would be too early: the generator's loss brings it more before its own does."""
    gen, dis, og, od = _pair()
    with tm.trace(namespace={"gen": gen, "dis": dis, "og": og, "od": od}) as trace:
        for images, _ in batches(5, 32):
            fake = gen(torch.randn(32, 8))
            (bce(dis(images.flatten(1)), REAL) + bce(dis(fake.detach()), FAKE)).backward()
            od.step()
            og.zero_grad()
            bce(dis(fake), REAL).backward()
            og.step()
    return trace.report


@ill("TM622", severity="note", line="optimizer.zero_grad()", subject="optimizer", says=("`optimizer.step()`",))
def a_step_that_was_forgotten():
    net = mlp(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with tm.trace(namespace=locals()) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
    return trace.report


# TM905: data that repeats between epochs


@ill("TM905", severity="warning", line="for inputs, targets in loader:", subject="loader",
     says=("same order in two rounds of the loop over epoch", "loader.sampler.set_epoch(epoch)"))  # fmt: skip
def a_sampler_that_is_not_told_the_epoch():
    net, (images, classes) = mlp(64, 16, 10), digits()
    optimizer, data = torch.optim.Adam(net.parameters()), TensorDataset(images[:64].flatten(1), classes[:64])
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=2, rank=0))
    with tm.trace(namespace={"net": net, "loader": loader}) as trace:
        for epoch in range(3):  # noqa: B007  (the sampler should be told)
            for inputs, targets in loader:
                optimizer.zero_grad()
                F.cross_entropy(net(inputs), targets).backward()
                optimizer.step()
    return trace.report


# TM623: a target network left behind


def _q_learning(q, target, steps, *, graph=False):
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    with tm.trace(namespace={"q": q, "target": target, "optimizer": optimizer}) as trace:
        for images, classes in batches(steps, 16):
            state, reward = images.flatten(1), classes / 10
            with torch.set_grad_enabled(graph):
                wanted = reward + 0.9 * target(state).max(1).values
            value = q(state)[:, 0]
            loss = F.smooth_l1_loss(value, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill(
    "TM623", severity="note", says=("target has the shapes of q", "100 steps", "target.load_state_dict(q.state_dict())")
)
def a_target_network_that_is_never_copied():
    """shakedzy/tic_tac_toe#1: the condition for the copy is never true."""
    q = mlp(64, 16, 2)
    return _q_learning(q, copy.deepcopy(q), 100)


@ill("TM623", severity="warning", line="optimizer.step()", subject="target", says=("one module", "copy.deepcopy(q)"))
def a_target_network_that_is_the_network():
    """andri27-ts/Reinforcement-Learning#14: the target points to the moving network."""
    q = mlp(64, 16, 2)
    return _q_learning(q, q, 5)


@ill(
    "TM623", severity="note", line="optimizer.step()", subject="target", says=("target, a copy of q", "torch.no_grad()")
)
def a_target_network_that_gets_gradients():
    q = mlp(64, 16, 2)
    return _q_learning(q, copy.deepcopy(q), 5, graph=True)


class Agent:
    """Both networks are the model that it is given."""

    def __init__(self, model):
        self.policy_net, self.target_net = model.to("cpu"), model.to("cpu")


@ill("TM623", severity="warning", line="optimizer.step()", subject="agent.target_net",
     says=("agent.target_net and agent.policy_net are one module", "copy.deepcopy(agent.policy_net)"))  # fmt: skip
def an_agent_whose_networks_are_one():
    """datawhalechina/easy-rl#140: `to()` returns the module itself."""
    agent = Agent(mlp(64, 16, 2))
    optimizer = torch.optim.Adam(agent.policy_net.parameters(), lr=1e-3)
    with tm.trace(namespace={"agent": agent, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            with torch.no_grad():
                wanted = classes / 10 + 0.9 * agent.target_net(images.flatten(1)).max(1).values
            loss = F.smooth_l1_loss(agent.policy_net(images.flatten(1))[:, 0], wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
