"""Training whose gradients are odd numbers, huge, tiny, zero or uneven, for reasons that are no illness."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, digits, mlp, train_classifier


@healthy(family="second-order fit (LBFGS)")
def converged():
    """A fit to rounding error: every gradient is tiny, none has vanished on its way."""
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    y = x @ torch.randn(4, 1)
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    with tm.trace(namespace={"net": net}) as trace:
        optimizer.step(closure)
        final = closure()
    assert final < 1e-7
    return trace.report


@healthy(nearly="TM403")
def converging_from_far_away():
    """The gradient falls by many orders of magnitude over the steps: that is what training is for."""
    w = torch.full((4, 4), 1e4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.4)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(40):
            optimizer.zero_grad()
            w.square().sum().backward()
            optimizer.step()
    return trace.report


@healthy
def a_loss_summed_over_a_big_batch():
    """Large gradients everywhere, from the first step on: a matter of units."""
    images, classes = digits()
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(8):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes, reduction="sum").backward()
            optimizer.step()
    return trace.report


@healthy(family="regression")
def regression_on_raw_units():
    """Unscaled targets (house prices): norms of 1e6 and more, growing nowhere."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(128, 8), 2e5 + 5e4 * torch.randn(128, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(8):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    return trace.report


@healthy
def weights_that_start_at_zero():
    """With a zero last layer the first step's gradient of the layers before is exactly zero, then it grows."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    nn.init.zeros_(net[2].weight)
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=8)
    return trace.report


@healthy(family="low-rank adapter (LoRA)")
def low_rank_adapter():
    """LoRA: B starts at zero, so A gets exactly zero in the first step."""
    base = nn.Linear(64, 10).requires_grad_(False)
    a, b = nn.Parameter(torch.randn(64, 4) / 8), nn.Parameter(torch.zeros(4, 10))
    optimizer = torch.optim.SGD([a, b], lr=0.1)
    with tm.trace(namespace={"base": base, "A": a, "B": b}) as trace:
        for images, classes in batches(8):
            x = images.flatten(1)
            optimizer.zero_grad()
            F.cross_entropy(base(x) + x @ a @ b, classes).backward()
            optimizer.step()
    return trace.report


@healthy
def float64_beside_float32():
    first, second = nn.Linear(64, 32), nn.Linear(32, 10).double()
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for images, classes in batches(4):
            F.cross_entropy(second(first(images.flatten(1)).relu().double()), classes).backward()
    return trace.report


@healthy(family="mixed precision in bfloat16")
def mixed_precision_in_bfloat16():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
            optimizer.step()
    return trace.report


@healthy
def a_scaled_loss_that_fits():
    """A loss scale of 1024 as a gradient scaler applies it: large gradients, none of them infinite."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(6):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(images.flatten(1)), classes)).backward()
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@healthy
def weight_decay_alone():
    """The only loss is the penalty on the weights."""
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            sum(parameter.square().sum() for parameter in net.parameters()).backward()
            optimizer.step()
    return trace.report


@healthy(family="warm-up", nearly="TM404")
def a_learning_rate_that_warms_up():
    """Gradients that rise by a factor of some tens over the first steps and settle."""
    net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=5)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(10):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            schedule.step()
    return trace.report


@healthy(nearly="TM404")
def a_fit_whose_line_search_tried_a_step_that_was_too_long():
    """L-BFGS of SciPy's, as BoTorch fits a process: one probe is thrown away, and what it ends with is converged."""
    raw = nn.Parameter(torch.tensor([1.0]))
    with tm.trace(namespace={"raw": raw}) as trace:
        for at in (3.0, 2.0, 1.5, 1.2, 1.1, 40.0, 1.01, 1.001, 1.0001, 1.0):
            raw.data.fill_(at)
            raw.grad = None
            ((raw - 1) ** 4).sum().backward()
    return trace.report


@healthy
def scalars_and_single_elements():
    """Y = w · x + b with plain tensors, as in every first lesson."""
    w = torch.tensor(0.5, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    x = torch.linspace(0, 1, 20)
    with tm.trace(namespace={"w": w, "b": b}) as trace:
        for _ in range(5):
            loss = ((w * x + b - 3 * x) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                b -= 0.1 * b.grad
            w.grad = b.grad = None
    return trace.report


@healthy(nearly="TM404")
def raw_features():
    """Inputs between 1e-3 and 1e5: the first layer's gradient is huge because its inputs are, not on its way."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(64, 16) * torch.logspace(-3, 5, 16), torch.randn(64, 1) * 1e5
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(8):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM403")
def features_in_tiny_units():
    """Inputs of 1e-9: the first weight's gradient is tiny because they are, and nothing vanishes on its way."""
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    with tm.trace(namespace={"net": net}) as trace:
        F.mse_loss(net(1e-9 * torch.randn(64, 16)), torch.randn(64, 1)).backward()
    return trace.report


@healthy(nearly="TM404")
def a_plateau_left_behind():
    """A deep linear network from small weights: a long plateau, then gradients hundreds of times larger, then rest."""
    net = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(2)), nn.Linear(8, 1, bias=False))
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.05)
    x = torch.randn(64, 8)
    y = x @ torch.ones(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(150):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    return trace.report


@healthy
def actor_and_critic_in_one_loss():
    """The critic's returns are in the thousands, the actor has converged: two scales that have no path in common."""
    torch.manual_seed(0)
    actor, critic = (nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)) for _ in range(2))
    with torch.no_grad():
        actor[2].bias.copy_(torch.tensor([25.0, -25.0]))
    with tm.trace(namespace={"actor": actor, "critic": critic}) as trace:
        for _ in range(4):
            state = torch.randn(32, 4)
            policy_loss = F.cross_entropy(actor(state), torch.zeros(32, dtype=torch.long))
            (policy_loss + F.mse_loss(critic(state), 1e3 * torch.randn(32, 2))).backward()
    return trace.report


@healthy(nearly="TM402")
def the_norm_of_a_zero_vector():
    """The slope of torch's own norm at zero is zero."""
    x = torch.zeros(4, 3, requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        x.norm(dim=1).sum().backward()
        F.normalize(x).sum().backward()
        F.cosine_similarity(x, torch.ones(4, 3)).sum().backward()
    return trace.report


@healthy(nearly="TM402")
def targets_of_exactly_zero_and_one():
    """binary_cross_entropy clamps its own logarithms."""
    x = torch.tensor([-200.0, 200.0], requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        F.binary_cross_entropy(torch.sigmoid(x), torch.tensor([1.0, 0.0])).backward()
        F.binary_cross_entropy_with_logits(x, torch.tensor([1.0, 0.0])).backward()
    return trace.report


@healthy(nearly="TM401")
def similarities_of_which_each_leaves_itself_out():
    """The diagonal is filled with -inf, and no target lies on it: log_softmax makes infinities that no loss takes."""
    net = mlp(64, 32, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(4, 8):
            views = torch.cat([images.flatten(1), images.flatten(1) + 0.1 * torch.randn(8, 64)])
            codes = F.normalize(net(views), dim=1)
            scores = (codes @ codes.T / 0.5).masked_fill(torch.eye(16, dtype=torch.bool), float("-inf"))
            optimizer.zero_grad()
            F.cross_entropy(scores, torch.arange(16).roll(8)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM405")
def a_ranking_of_which_only_the_last_bias_is_left_to_learn():
    """Scores are compared in pairs: the bias of both is the same, and has no gradient but zero."""
    scorer = nn.Linear(64, 1)
    scorer.weight.requires_grad_(False)
    optimizer = torch.optim.SGD([scorer.bias], lr=0.1)
    with tm.trace(namespace={"scorer": scorer}) as trace:
        for images, _ in batches(4):
            better, worse = images.flatten(1).chunk(2)
            loss = F.softplus(-(scorer(better) - scorer(worse))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
