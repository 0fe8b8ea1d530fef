"""Code that changes a tensor after a node has saved it for backward: noticed by autograd (TM301), or not (TM302)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.refusals import refused


@ill("TM301", line="odds += 0.1", related=("torch.sigmoid(x)", "odds.sum().backward()"), says=(
    "odds was changed in place by `odds += 0.1` after sigmoid", "`odds = odds + 0.1`"))  # fmt: skip
def an_augmented_assignment_to_a_sigmoid():
    x = torch.randn(5, requires_grad=True)

    def program():
        odds = torch.sigmoid(x)
        odds += 0.1
        odds.sum().backward()

    return refused(program, x=x)


@ill(
    "TM301",
    line="states[:, t + 1] =",
    related=("torch.tanh(states[:, t] @ weight)",),
    says=("states", "`states = torch.stack(parts)`"),
)
def hidden_states_in_one_tensor():
    """A recurrent network by hand, its states written into a tensor that the next step reads."""
    weight = torch.randn(4, 4, requires_grad=True)

    def program():
        states = torch.zeros(2, 4, 4)
        for t in range(3):
            states[:, t + 1] = torch.tanh(states[:, t] @ weight) + 1.0
        states[:, -1].sum().backward()

    return refused(program, weight=weight)


@ill("TM301", line="self.layers(x)", says=("tanh", "`relu_` in net.layers.2", "`net.layers[2].inplace = False`"))
def an_inplace_relu_after_a_tanh():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ReLU(inplace=True), nn.Linear(4, 1))

        def forward(self, x):
            return self.layers(x)

    net = Net()
    return refused(lambda: net(torch.randn(2, 3)).sum().backward(), net=net)


@ill("TM301", line="weights[mask] = 0", related=("scores.softmax(-1)",), says=("weights", "softmax"))
def masked_attention_after_the_softmax():
    queries = torch.randn(2, 4, 8, requires_grad=True)
    mask = torch.ones(2, 4, 4).triu(1).bool()

    def attend():
        scores = queries @ queries.transpose(1, 2)
        weights = scores.softmax(-1)
        weights[mask] = 0
        return weights @ queries

    return refused(lambda: attend().sum().backward(), queries=queries)


@ill("TM301", line="optimizer.step()", related=("value = critic(state)",), says=(
    "critic.2.weight was changed in place by `optimizer.step()`", "every backward"))  # fmt: skip
def an_actor_loss_after_the_critics_step():
    """The actor's loss goes through the critic that has just been moved."""
    actor = nn.Linear(3, 2)
    critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)

    def program():
        state = actor(torch.randn(5, 3))
        value = critic(state)
        (value - 1).square().mean().backward(retain_graph=True)
        optimizer.step()
        (-value).mean().backward()

    return refused(program, actor=actor, critic=critic, optimizer=optimizer)


@ill("TM301", line="optimizer.step()", says=("changed in place by `optimizer.step()`", "Call every backward"))
def an_actor_loss_on_the_line_of_the_critics_step():
    """It is the other backward of the line that keeps its graph."""
    actor, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)

    def program():
        value = critic(actor(torch.randn(5, 3)))
        value.mean().backward(retain_graph=True); optimizer.step(); (-value).mean().backward()  # noqa: E702  # fmt: skip

    return refused(program, actor=actor, critic=critic, optimizer=optimizer)


@ill("TM301", line="discriminator_optimizer.step()", related=("score = gan(noise)",), says=(
    "gan.2.weight was changed in place by `discriminator_optimizer.step()`",))  # fmt: skip
def both_steps_before_the_second_backward():
    """Two optimizers have stepped; backward comes first to what the second one has moved."""
    generator, discriminator = nn.Linear(2, 3), nn.Linear(3, 1)
    gan = nn.Sequential(generator, nn.Tanh(), discriminator)
    generator_optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
    discriminator_optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.1)

    def program():
        noise = torch.randn(4, 2)
        score = gan(noise)
        score.mean().backward(retain_graph=True)
        generator_optimizer.step()
        discriminator_optimizer.step()
        (-score).exp().mean().backward()

    return refused(program, gan=gan)


@ill("TM301", line="out += identity", related=("y = self.second(out)",), says=("out", "`out = out + identity`"))
def a_residual_added_in_place():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            identity = x
            out = F.relu(self.first(x))
            y = self.second(out)
            out += identity
            return y * out

    net = Block()
    return refused(lambda: net(torch.randn(2, 4)).sum().backward(), net=net)


@ill("TM301", line="tokens += 1", related=("embedding(tokens)",), says=("tokens",))
def the_indices_of_an_embedding_are_shifted():
    embedding = nn.Embedding(10, 3)

    def program():
        tokens = torch.tensor([0, 1, 2])
        vectors = embedding(tokens)
        tokens += 1
        vectors.sum().backward()

    return refused(program, embedding=embedding)


@ill("TM301", line="torch.clamp_(ratio, 0.8, 1.2)", says=("ratio", "`clamp_`"))
def a_ratio_clipped_in_place_before_autograd_grad():
    log_probability = torch.randn(6, requires_grad=True)

    def program():
        ratio = (log_probability - log_probability.detach()).exp()
        torch.clamp_(ratio, 0.8, 1.2)
        torch.autograd.grad(ratio.mean(), log_probability)

    return refused(program, log_probability=log_probability)


@ill("TM301", line="net.weight.clamp_(-0.1, 0.1)", related=("net(x)",), says=("net.weight",))
def weights_clamped_before_backward():
    """Under no_grad autograd still counts the write."""
    net = nn.Linear(3, 1)
    x = torch.randn(4, 3, requires_grad=True)

    def program():
        loss = net(x).square().mean()
        with torch.no_grad():
            net.weight.clamp_(-0.1, 0.1)
        loss.backward()

    return refused(program, net=net, x=x)


@ill("TM301", line="hidden.mul_(0.5)", says=("hidden",))
def the_input_of_a_checkpoint_is_scaled():
    layer = nn.Linear(4, 4)

    def program():
        hidden = torch.randn(2, 4, requires_grad=True) * 1.0
        out = checkpoint(layer, hidden, use_reentrant=True)
        hidden.mul_(0.5)
        out.sum().backward()

    return refused(program, layer=layer)


@ill("TM301", line="torch.mul(gain, 2, out=gain)", says=("gain", "out="))
def a_buffer_reused_with_out():
    x = torch.randn(3, requires_grad=True)

    def program():
        gain = torch.ones(3)
        y = x * gain
        torch.mul(gain, 2, out=gain)
        (y * gain).sum().backward()

    return refused(program, x=x)


# -- TM302 ------------------------------------------------------------------------------------------------------------


@ill("TM302", severity="error", line="w.data.mul_(10)", related=("w.pow(2)", "backward()"), says=("w was changed",))
def an_intermediate_scaled_through_data():
    s = torch.randn(4, requires_grad=True)
    with tm.trace(namespace={"s": s}) as trace:
        w = s * 2
        q = w.pow(2)
        w.data.mul_(10)
        q.sum().backward()
    return trace.report


@ill("TM302", line="p.data -= 0.1 * p.grad.data", related=("net(x)",), says=("net.2.weight",))
def a_manual_update_between_two_losses():
    """The second loss goes back through weights that are no longer those of its forward."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    with tm.trace(namespace={"net": net}) as trace:
        out = net(x)
        out.mean().backward(retain_graph=True)
        for p in net.parameters():
            p.data -= 0.1 * p.grad.data
            p.grad = None
        out.square().mean().backward()
    return trace.report


@ill("TM302", line="attention.data[mask] = 0", related=("scores.softmax(-1)",), says=("attention",))
def masked_through_data_to_get_past_the_error():
    scores = torch.randn(3, 3, requires_grad=True)
    mask = torch.ones(3, 3).triu(1).bool()
    with tm.trace(namespace={"scores": scores}) as trace:
        attention = scores.softmax(-1)
        attention.data[mask] = 0
        (attention @ torch.ones(3)).sum().backward()
    return trace.report


@ill("TM302", line="net.weight.data = net.weight.data.sign()", says=("net.weight",))
def weights_binarised_after_the_forward():
    net = nn.Conv2d(1, 2, 3)
    x = torch.randn(4, 1, 5, 5, requires_grad=True)
    with tm.trace(namespace={"net": net, "x": x}) as trace:
        out = net(x).square().sum()
        net.weight.data = net.weight.data.sign()
        out.backward()
    return trace.report


@ill("TM302", line="weight.data.clamp_(-0.01, 0.01)", says=("critic.2.weight",))
def a_critic_clipped_before_its_backward():
    critic = nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))
    with tm.trace(namespace={"critic": critic}) as trace:
        for _ in range(2):
            real = torch.randn(6, 2, requires_grad=True)
            loss = critic(real).mean()
            for weight in critic.parameters():
                weight.data.clamp_(-0.01, 0.01)
            loss.backward()
    return trace.report


@ill("TM302", severity="error", line="scores = attention.detach().numpy()", related=("softmax(-1)",), says=(
    "attention was changed through the NumPy array of `attention.detach().numpy()`",))  # fmt: skip
def attention_masked_with_numpy():
    """What was to be plotted is tidied up in place."""
    logits = torch.randn(3, 3, requires_grad=True)
    with tm.trace(namespace={"logits": logits}) as trace:
        attention = logits.softmax(-1)
        scores = attention.detach().numpy()
        scores[scores < 0.2] = 0
        (attention @ torch.ones(3)).sum().backward()
    return trace.report


@ill("TM302", line="states = torch.as_tensor(observation)", related=("critic(states)",), says=("states",))
def observations_in_one_buffer():
    """The environment writes each observation into the same array, and the backward comes after the last."""
    critic = nn.Linear(4, 1)
    observation = np.zeros(4, np.float32)
    with tm.trace(namespace={"critic": critic}) as trace:
        values = []
        for _ in range(3):
            observation[:] = np.random.default_rng(len(values)).normal(size=4)
            states = torch.as_tensor(observation)
            values.append(critic(states))
        torch.stack(values).square().mean().backward()
    return trace.report


@ill("TM302", line="weights = np.asarray(net[2].weight.detach())", related=("net(x)",), says=("net.2.weight", "copy"))
def weights_clipped_with_numpy_before_backward():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    with tm.trace(namespace={"net": net}) as trace:
        loss = net(x).square().mean()
        weights = np.asarray(net[2].weight.detach())
        np.clip(weights, -0.01, 0.01, out=weights)
        loss.backward()
    return trace.report


# -- errors that the code catches itself ------------------------------------------------------------------------------


@ill("TM301", severity="note", line="y += 1", related=("x.exp()",), says=("the code around it caught the error",))
def a_lesson_that_prints_the_error():
    x = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        y = x.exp()
        y += 1
        try:
            y.sum().backward()
        except RuntimeError as error:
            str(error)
    return trace.report


@ill("TM301", severity="warning", line="hidden += noise", says=("4 times", "caught the errors"))
def a_loop_that_skips_what_fails():
    """Batches that fail are skipped: all of them do, and nothing is learned."""
    first, second = nn.Linear(3, 4), nn.Linear(4, 1)
    skipped = 0
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for _ in range(4):
            hidden = first(torch.randn(5, 3)).tanh()
            noise = 0.1 * torch.randn(5, 4)
            hidden += noise
            loss = second(hidden).square().mean()
            try:
                loss.backward()
            except RuntimeError:
                skipped += 1
    assert skipped == 4
    return trace.report


@ill("TM304", severity="note", line="loss.backward()", says=("a second time", "the code around it caught the error"))
def a_second_backward_that_is_tried():
    w = torch.randn(3, requires_grad=True)
    with tm.trace(namespace={"w": w}) as trace:
        loss = w.square().sum()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError:
            w.grad = None
    return trace.report


@ill("TM301", line="sim.fill_diagonal_(0)", related=("sim = torch.exp(", "loss.backward()"), says=(
    "`sim = sim.clone()` before it",))  # fmt: skip
def a_diagonal_that_is_masked_in_place():
    """There is no ``fill_diagonal`` that would make a new tensor."""
    net = nn.Linear(8, 8)

    def program():
        for _ in range(3):
            z = F.normalize(net(torch.randn(8, 8)), dim=1)
            sim = torch.exp(z @ z.t() / 0.5)
            sim.fill_diagonal_(0)
            loss = sim.sum(1).log().mean()
            loss.backward()

    return refused(program, net=net)


@ill("TM301", line="rows = words(torch.tensor([1, 2, 3]))", related=("words.weight @ mixing", "loss.backward()"), says=(
    "`embedding_renorm_`", "rescales the rows it reads", "`words.weight.clone()`"))  # fmt: skip
def a_lookup_with_a_largest_norm():
    words, mixing = nn.Embedding(10, 4, max_norm=1.0), nn.Parameter(torch.randn(4, 4))

    def program():
        mixed = words.weight @ mixing
        rows = words(torch.tensor([1, 2, 3]))
        loss = (mixed[:3] * rows).sum()
        loss.backward()

    return refused(program, words=words, mixing=mixing)
