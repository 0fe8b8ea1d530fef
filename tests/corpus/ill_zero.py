"""Training code in which whole layers get a gradient of exactly zero (TM405), and some in which they are meant to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy, ill
from tests.corpus.data import batches, mlp, train_classifier


@ill("TM405", op="", line="return self.head(F.relu(self.body(x)))", subject="net.body.weight", says=(
    "net.body.weight and net.body.bias get a gradient of exactly zero in all 5 backward passes",
    "relu in net (ill_zero.py, line", "nowhere above zero", "LeakyReLU"))  # fmt: skip
def a_layer_of_dead_relus():
    """A bias that was initialised to a large negative number."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(64, 32), nn.Linear(32, 10)
            nn.init.constant_(self.body.bias, -10.0)

        def forward(self, x):
            return self.head(F.relu(self.body(x)))

    net = Net()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=5)
    return trace.report


@ill(
    "TM405",
    line="out = F.relu(net(x))",
    says=("net.weight and net.bias get", "relu (ill_zero.py", "nowhere above zero"),
)
def a_dead_output_whose_residual_is_squared_by_hand():
    """A relu that only reductions follow is a loss's own; what is squared as a difference is an output."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.init.constant_(net.bias, -10.0)
    x, y = torch.randn(32, 4), torch.rand(32, 1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(5):
            out = F.relu(net(x))
            loss = ((out - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM405", line="loss = criterion(net(x), y)", says=("in the last", "of 16: relu", "lets nothing through"))
def relus_that_die_of_a_step_too_large():
    """The first steps are alive; then one of them throws every unit below zero."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    criterion, optimizer = nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.5)
    x, y = torch.rand(64, 4) * 10, torch.randn(64, 1) + 5
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(16):
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 20.0)
            optimizer.step()
    return trace.report


@ill("TM405", line="hidden = torch.sigmoid(first(x))", says=("sigmoid", "standardise the data", "its slope is 0"))
def pixels_into_a_sigmoid():
    """Raw features of thousands: every unit is at exactly 1."""
    first, second = nn.Linear(8, 16), nn.Linear(16, 1)
    nn.init.uniform_(first.weight, 0.1, 1.0)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for _ in range(5):
            x, y = torch.randint(50, 256, (32, 8)).float(), torch.randn(32, 1)
            hidden = torch.sigmoid(first(x))
            loss = F.mse_loss(second(hidden), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM405", line="predictions = torch.round(net(x))", says=("round", "a step function", "detach()"))
def predictions_that_are_rounded_before_the_loss():
    """Classes as whole numbers, by rounding: nothing can be learnt through it, which one pass shows."""
    net = nn.Linear(4, 1)
    x, y = torch.randn(16, 4), torch.randint(3, (16, 1)).float()
    with tm.trace(namespace={"net": net}) as trace:
        predictions = torch.round(net(x))
        loss = F.mse_loss(predictions, y)
        loss.backward()
    return trace.report


@ill("TM405", line="p = F.softmax(net(x), dim=1)", says=("dimension of size 1", "torch.sigmoid"))
def a_softmax_over_one_score():
    """Binary classification with one output and a softmax: always 1, whatever the network says."""
    net = mlp(4, 8, 1)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x, y = torch.randn(16, 4), torch.randint(2, (16, 1)).float()
            p = F.softmax(net(x), dim=1)
            loss = F.binary_cross_entropy(p * 0.999, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM405", line="loss = F.cross_entropy(net(x), y)", says=("log_softmax", "one output per class"))
def cross_entropy_of_one_score():
    """The loss is 0.0 from the first step on: there is only one class to choose from."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 4), torch.zeros(16, dtype=torch.long)
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM405", line="output = net(x).clamp(0, 1)", says=("clamp", "outside its bounds", "Widen"))
def outputs_clamped_to_where_none_is():
    """Targets between 0 and 1, outputs that begin at 5: the clamp lets no gradient back."""
    net = nn.Linear(4, 1)
    nn.init.constant_(net.bias, 5.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 4), torch.rand(16, 1)
            output = net(x).clamp(0, 1)
            loss = F.mse_loss(output, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM405")
def an_adapter_before_its_first_step():
    """LoRA's B is zero until the first step, which comes after four accumulated batches: A waits."""
    base = nn.Linear(64, 10).requires_grad_(False)
    a, b = nn.Parameter(torch.randn(64, 4) / 8), nn.Parameter(torch.zeros(4, 10))
    with tm.trace(namespace={"base": base, "A": a, "B": b}) as trace:
        for images, classes in batches(4):
            x = images.flatten(1)
            (F.cross_entropy(base(x) + x @ a @ b, classes) / 4).backward()
    return trace.report


@healthy(nearly="TM405")
def a_residual_branch_with_a_zero_gain():
    """ReZero: the branch gets zero until its gain has moved; here it is looked at for some passes before."""
    branch, head, gain = nn.Linear(64, 64), nn.Linear(64, 10), nn.Parameter(torch.zeros(1))
    with tm.trace(namespace={"branch": branch, "head": head, "gain": gain}) as trace:
        for images, classes in batches(4):
            x = images.flatten(1)
            F.cross_entropy(head(x + gain * F.relu(branch(x))), classes).backward()
    return trace.report


@healthy(nearly="TM405")
def a_margin_that_is_kept_from_the_start():
    """The second loss is satisfied: its hinge is flat, and the head behind it gets zero in every pass."""
    body, head, embed = nn.Linear(64, 32), nn.Linear(32, 10), nn.Linear(32, 4)
    parameters = [*body.parameters(), *head.parameters(), *embed.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    with tm.trace(namespace={"body": body, "head": head, "embed": embed}) as trace:
        for images, classes in batches(5):
            hidden = F.relu(body(images.flatten(1)))
            penalty = F.relu(embed(hidden).norm(dim=1) - 100.0).mean()
            optimizer.zero_grad()
            (F.cross_entropy(head(hidden), classes) + penalty).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM405")
def rounded_with_a_straight_through_gradient():
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            raw = net(torch.randn(16, 4))
            output = raw + (raw.round() - raw).detach()
            optimizer.zero_grad()
            F.mse_loss(output, torch.ones(16, 1)).backward()
            optimizer.step()
    return trace.report


@ill("TM405", severity="warning", line="z = torch.normal(mean, spread.exp())", subject="encoder.weight",
     says=("what is drawn has no slope", "rsample()"))  # fmt: skip
def a_code_that_is_drawn_with_torch_normal():
    """Its backward is there, and gives zeros: the encoder learns nothing."""
    encoder, decoder = nn.Linear(64, 8), nn.Linear(4, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder, "optimizer": optimizer}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            mean, spread = encoder(x).chunk(2, 1)
            z = torch.normal(mean, spread.exp())
            optimizer.zero_grad()
            F.mse_loss(decoder(z), x).backward()
            optimizer.step()
    return trace.report


@ill("TM405", line="loss = F.mse_loss(net(x), y)", subject="net.0.weight",
     says=("tanh", "only makes numbers between -1 and 1", "scale the targets"))  # fmt: skip
def a_tanh_before_a_loss_with_targets_beyond_one():
    """It grows towards what it cannot reach, until its slope is 0."""
    net, x, y = mlp(4, 8, 1), torch.randn(32, 4), 50 + 100 * torch.rand(32, 1)
    net.append(nn.Tanh())
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
    return trace.report


class Quantised(nn.Module):
    """Rounds what an encoder makes to the nearest of sixteen vectors."""

    def __init__(self):
        super().__init__()
        self.encoder, self.codes, self.decoder = nn.Linear(8, 4), nn.Embedding(16, 4), nn.Linear(4, 8)

    def nearest(self, z):
        return self.codes(torch.cdist(z, self.codes.weight).argmin(1))


def train_quantised(net, loss_of):
    """Five steps on the same samples."""
    optimizer, x = torch.optim.Adam(net.parameters(), 1e-3), torch.randn(64, 8)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(x).backward()
            optimizer.step()
    return trace.report


@ill("TM405", severity="warning", line="straight = z + (q - z)", subject="net.encoder.weight",
     says=("net.encoder.weight and net.encoder.bias get a gradient of exactly zero in all 5 backward passes",
           "add and sub send back to", "is not zero, but cancels", "`.detach()`"))  # fmt: skip
def a_straight_through_estimator_without_detach():
    """What is added is subtracted again, and the encoder learns nothing."""
    net = Quantised()

    def loss_of(x):
        z = net.encoder(x)
        q = net.nearest(z)
        straight = z + (q - z)
        return F.mse_loss(net.decoder(straight), x)

    return train_quantised(net, loss_of)


@ill("TM405", severity="warning", line="straight = z + (q - z)", subject="net.encoder.weight",
     says=("add and sub send back to", "cancels"))  # fmt: skip
def a_rounding_without_detach():
    """A third gradient arrives, through the rounding itself, and is zero."""
    net = Quantised()

    def loss_of(x):
        z = net.encoder(x)
        q = torch.round(z)
        straight = z + (q - z)
        return F.mse_loss(net.decoder(straight), x) + net.codes.weight.square().mean()

    return train_quantised(net, loss_of)


@healthy
def a_straight_through_estimator():
    net = Quantised()

    def loss_of(x):
        z = net.encoder(x)
        q = net.nearest(z)
        straight = z + (q - z).detach()
        return F.mse_loss(net.decoder(straight), x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())

    return train_quantised(net, loss_of)


@healthy
def scores_that_are_compared_in_pairs():
    """Of a reward model: the last bias is in both scores and cancels, as it is meant to."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    bias = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*net.parameters(), bias], 1e-3)
    better, worse = torch.randn(32, 8) + 0.5, torch.randn(32, 8)
    with tm.trace(namespace={"net": net, "bias": bias}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            (-F.logsigmoid((net(better) + bias) - (net(worse) + bias))).mean().backward()
            optimizer.step()
    return trace.report


@ill("TM405", severity="warning", line="ratio = (logp - old).exp()", subject="pi.0.weight", says=(
    "what gets there through both sides of sub is not zero, but cancels", "compute it under `torch.no_grad()`",
))  # fmt: skip
def a_ratio_to_itself():
    """Proximal policy optimisation whose old probabilities are computed anew, with gradients."""
    pi = mlp(4, 16, 2)
    opt = torch.optim.Adam(pi.parameters(), lr=3e-4)
    states, actions, advantages = torch.randn(64, 4), torch.randint(0, 2, (64,)), torch.randn(64)
    with tm.trace(namespace={"pi": pi}) as trace:
        for _ in range(4):
            logp = torch.distributions.Categorical(logits=pi(states)).log_prob(actions)
            old = torch.distributions.Categorical(logits=pi(states)).log_prob(actions)
            ratio = (logp - old).exp()
            loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    return trace.report


@ill("TM405", severity="warning", line="F.relu(out[..., 0])", subject="net.0.weight", says=(
    "net.2.bias get a gradient of exactly zero in all 5 backward passes: relu", "nowhere above zero",
))  # fmt: skip
def a_radiance_field_without_density():
    """Nothing is seen where all is transparent: neither the density nor the colours get a gradient."""
    net = mlp(6, 32, 4)
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    with torch.no_grad():
        net[2].bias[0] = -20
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            points = torch.randn(16, 8, 3)
            out = net(torch.cat([points.sin(), points.cos()], -1))
            density, colours = F.relu(out[..., 0]), out[..., 1:].sigmoid()
            alpha = 1 - torch.exp(-density * 0.5)
            through = torch.cumprod(torch.cat([torch.ones(16, 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
            pixels = ((alpha * through).unsqueeze(-1) * colours).sum(1)
            loss = F.mse_loss(pixels, torch.rand(16, 3))
            opt.zero_grad()
            loss.backward()
            opt.step()
    return trace.report


# A hook that makes zeros of a gradient on its way.


def _with_hooked_activations(put):
    """Train a network whose hidden layer is handed to ``put`` before its activation."""
    net = mlp(4, 8, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            opt.zero_grad()
            hidden = net[0](x)
            put(hidden)
            loss = F.mse_loss(net[2](net[1](hidden)), y)
            loss.backward()
            opt.step()
    return trace.report


@ill("TM405", severity="warning", line="hidden.register_hook(lambda g: g * 0)", subject="net.0.weight", says=(
    "what is sent to the result of addmm (ill_zero.py, line", "is not zero, but the hook (ill_zero.py, line",
    "makes it exactly zero"))  # fmt: skip
def a_hook_that_masks_everything():
    def put(hidden):
        hidden.register_hook(lambda g: g * 0)

    return _with_hooked_activations(put)


@ill("TM405", severity="warning", subject="net.0.weight", says=("is not zero, but a hook makes it exactly zero",))
def a_hook_on_a_node():
    """It is put on the node itself, so that no call of torch's tells where."""

    def put(hidden):
        hidden.grad_fn.register_prehook(lambda gradients: (gradients[0] * 0,))

    return _with_hooked_activations(put)


@ill("TM405", severity="warning", line="loss = F.mse_loss(net(x), y)", subject="net.0.weight", says=(
    "BackwardHookFunction in net.1", "a hook of that module returns zeros"))  # fmt: skip
def a_module_hook_that_returns_zeros():
    net = mlp(4, 8, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net[1].register_full_backward_hook(lambda _module, given, _received: (torch.zeros_like(given[0]),))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            opt.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            opt.step()
    return trace.report


@ill("TM405", line="F.mse_loss(net[2](net[1](hidden)), y)", subject="net.0.weight", says=(
    "relu in net.1", "nowhere above zero"))  # fmt: skip
def a_dead_layer_that_a_hook_looks_at():
    """The hook only prints; the activation is what lets nothing through."""
    norms = []

    def put(hidden):
        hidden.data.sub_(100.0)
        hidden.register_hook(lambda g: norms.append(float(g.norm())))

    return _with_hooked_activations(put)


@healthy(nearly="TM405")
def a_weight_that_its_hook_freezes():
    """Its gradient comes straight from an activation: what makes it zero is the hook, on purpose."""
    weight, scale = torch.nn.Parameter(torch.rand(8, 4)), torch.nn.Parameter(torch.ones(4))
    weight.register_hook(torch.zeros_like)
    opt = torch.optim.SGD([weight, scale], lr=0.1)
    x, y = torch.randn(16, 8), torch.randn(16, 4)
    with tm.trace(namespace={"weight": weight, "scale": scale}) as trace:
        for _ in range(5):
            opt.zero_grad()
            F.mse_loss(x @ F.relu(weight) * scale, y).backward()
            opt.step()
    return trace.report


def _normalised(net, x, y):
    opt = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "opt": opt}) as trace:
        for _ in range(4):
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
    return trace.report


@ill("TM405", line="F.mse_loss(net(x), y)", subject="net.3", says=("layer_norm in net.3", "(32, 1)", "is the bias"))
def a_layer_norm_of_one_feature():
    """What is measured of its gradient is rounding, and not exactly zero."""
    x = torch.randn(32, 4)
    return _normalised(nn.Sequential(mlp(4, 16, 1), *[nn.Identity()] * 2, nn.LayerNorm(1)), x, x.sum(1, keepdim=True))


@ill("TM405", line="F.mse_loss(net(x), y)", subject="net.1", says=("group_norm in net.1", "`nn.GroupNorm(1, 16)`"))
def a_group_norm_of_as_many_groups_as_features():
    x = torch.randn(32, 4)
    net = nn.Sequential(nn.Linear(4, 16), nn.GroupNorm(16, 16), nn.ReLU(), nn.Linear(16, 1))
    return _normalised(net, x, x.sum(1, keepdim=True))


@healthy(nearly="TM405")
def norms_of_several_values():
    """A group for each channel, of which each has many places; all features of a sample; one sample alone."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(4, 4), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 1))
    return _normalised(net, torch.randn(1, 1, 8, 8), torch.ones(1, 1))
