"""Programs in which the gradient's way ends at a known line between known nodes, and healthy ones.

Each is a function that runs forward and backward, with what has to be found in it. A cut is told as
``(op, its line, what went in, what used it, which input)``; what went in or used it is a node's op or a leaf's name, in
brackets where it is not in the graph.
"""

from __future__ import annotations

import copy
import warnings

import torch
import torch.nn.functional as F
from torch import nn

CUT, HEALTHY = [], []


def cut(*expected, count=1):
    """Register a program with the cuts that must be found, each of them ``count`` times."""
    return lambda program: CUT.append((program, list(expected), count)) or program


def healthy(*expected):
    """Register a program in which no way ends but those that are meant to."""
    return lambda program: HEALTHY.append((program, list(expected))) or program


def data(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def net():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@cut(("detach", "h = y.detach()", "mul", "mul", 0))
def detached():
    x = data(4).requires_grad_()
    y = x * 2
    h = y.detach()
    ((h * x).sum() + y.sum()).backward()


@cut(("detach_", "y.detach_()", "(mul)", "mul", 0))
def detached_in_place():
    x = data(4).requires_grad_()
    y = x * 2
    y.detach_()
    (y * x).sum().backward()


@cut(("detach", "h = y.detach().abs().add(1)", "mul", "div", 1))
def passed_on():
    x = data(4).requires_grad_()
    y = x * 2
    h = y.detach().abs().add(1)
    (y / h).sum().backward()


@cut((".data", "h = y.data", "mul", "mul", 1))
def data_of_a_result():
    x = data(4).requires_grad_()
    y = x * 2
    h = y.data
    (x * h + y).sum().backward()


@cut((".data", "(w * (w.data + 1)).sum().backward()", "w", "mul", 1))
def data_of_a_leaf():
    w = data(4).requires_grad_()
    (w * (w.data + 1)).sum().backward()


@cut(("no_grad", "with torch.no_grad():", "mul", "mul", 1))
def no_grad_region():
    x = data(4).requires_grad_()
    y = x * 2
    with torch.no_grad():
        h = (y + 1).sqrt()
    (y * h).nansum().backward()


@cut(("no_grad", "h = frozen(y)", "mul", "mul", 0))
def no_grad_decorator():
    x = data(4).requires_grad_()

    @torch.no_grad()
    def frozen(z):
        return z.exp()

    y = x * 2
    h = frozen(y)
    (h * y).sum().backward()


@cut(("no_grad", "torch.set_grad_enabled(False)", "mul", "mul", 1))
def switched_off():
    x = data(4).requires_grad_()
    y = x * 2
    torch.set_grad_enabled(False)
    h = y + 1
    torch.set_grad_enabled(True)
    (y * h).sum().backward()


@cut(("inference_mode", "h = y + 1", "mul", "mul", 1))
def inference_region():
    x = data(4).requires_grad_()
    y = x * 2
    with torch.inference_mode():
        h = y + 1
    (y * h.clone()).sum().backward()


@cut(("item", "(y / y.max().item()).sum().backward()", "(max)", "div", 1))
def item_of_the_scale():
    x = data(4).requires_grad_()
    y = x * 2
    (y / y.max().item()).sum().backward()


@cut(("detach", "scale = y.detach().abs().mean().item()", "mul", "div", 1))
def item_of_what_was_detached():
    x = data(4).requires_grad_()
    y = x * 2
    scale = y.detach().abs().mean().item()
    (y / scale).sum().backward()


@cut(("float", "scale = float(y.norm())", "(linalg_vector_norm)", "mul", 1))
def float_of_the_scale():
    x = data(4).requires_grad_()
    y = x * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scale = float(y.norm())
    (y * scale).sum().backward()


@cut(("tensor", "total = torch.tensor([first, second]).sum()", "mean", "mul", 0))
def stacked_by_tensor():
    x = data(4).requires_grad_()
    first, second = x.mean(), x.square().mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = torch.tensor([first, second]).sum()
    (total * x.sum() + first).backward()


@cut(("detach", "array = y.detach().numpy()", "mul", "mul", 1))
def through_numpy():
    x = data(4).requires_grad_()
    y = x * 2
    array = y.detach().numpy()
    (y * torch.tensor(array)).sum().backward()


@cut(("gt", "gate = (y > 0).float()", "mul", "mul", 1))
def hard_gate():
    x = data(4).requires_grad_()
    y = x * 2
    gate = (y > 0).float()
    (y * gate).sum().backward()


@cut(("argsort", "F.mse_loss(y, y.argsort(1).float()).backward()", "addmm", "mse_loss", 1))
def ranks_of_argsort():
    """It makes a node, for the values that it sorts and does not return."""
    y = nn.Linear(4, 3)(data(2, 4))
    F.mse_loss(y, y.argsort(1).float()).backward()


@cut(("argmax", "F.mse_loss(y, F.one_hot(y.argmax(1), 3).float()).backward()", "addmm", "mse_loss", 1))
def one_hot_of_argmax():
    y = nn.Linear(4, 3)(data(2, 4))
    F.mse_loss(y, F.one_hot(y.argmax(1), 3).float()).backward()


@cut(("long", "(y * y.long()).sum().backward()", "mul", "mul", 1))
def cast_to_integers():
    x = data(4).requires_grad_()
    y = x * 20
    (y * y.long()).sum().backward()


@cut(("to", "(y * y.to(torch.int32)).sum().backward()", "mul", "mul", 1))
def cast_by_to():
    x = data(4).requires_grad_()
    y = x * 20
    (y * y.to(torch.int32)).sum().backward()


@cut(("detach", "h = h.detach()", "relu", "addmm", 1), count=2)
def hidden_state():
    layer, h = nn.Linear(4, 4), data(2, 4)
    for _ in range(3):
        h = layer(h).relu()
        h.sum().backward()
        h = h.detach()


@cut(("detach", "critic(fake.detach()).mean().backward()", "(tanh)", "addmm", 1))
def critic_of_a_generator():
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    fake = generator(data(2, 4)).tanh()
    critic(fake.detach()).mean().backward()
    critic(fake).mean().backward()


@cut(("detach", "a, b, c = x * 2, (x * 3).detach(), x * 4", "(mul)", "cat", 1))
def inside_a_list():
    x = data(4).requires_grad_()
    a, b, c = x * 2, (x * 3).detach(), x * 4
    torch.cat([a, b, c]).sum().backward()


@cut(("detach", "y.add_(z.detach())", "exp", "add", 1))
def into_an_in_place_call():
    x = data(4).requires_grad_()
    y, z = x * 2, x.exp()
    y.add_(z.detach())
    (y * z).sum().backward()


@cut(("detach", "new = y.detach().requires_grad_()", "mul", "new", None))
def a_leaf_of_its_own():
    x = data(4).requires_grad_()
    y = x * 2
    new = y.detach().requires_grad_()
    (new.square().sum() + y.sum()).backward()


@healthy(("detach", "straight = z + (q - z).detach()", "(sub)", "add", 1))
def straight_through():
    z = nn.Linear(4, 4)(data(2, 4))
    q = z.round()
    straight = z + (q - z).detach()
    straight.square().sum().backward()


@healthy(("detach", "advantage = returns - value.detach()", "select", "mul", 1))
def advantages():
    policy, critic, x = net(), nn.Linear(4, 1), data(2, 4)
    returns, value = data(2), critic(x)[:, 0]
    advantage = returns - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    chosen = policy(x).log_softmax(1)[:, 0]
    (-(chosen * advantage).mean() + F.mse_loss(value, returns)).backward()


@healthy(("no_grad", "with torch.no_grad():", "(Sequential.0)", "mse_loss", 1))
def dqn_target():
    online, x, action = net(), data(2, 4), torch.tensor([[0], [2]])
    target = copy.deepcopy(online)
    with torch.no_grad():
        wanted = data(2) + 0.9 * target(x).max(1).values
    F.mse_loss(online(x).gather(1, action)[:, 0], wanted).backward()


@healthy(("detach", "loss = -(F.normalize(p) * F.normalize(z.detach())).sum(1).mean()", "addmm", "mul", 1))
def stop_gradient():
    encoder, predictor, x = net(), nn.Linear(3, 3), data(2, 4)
    z = encoder(x)
    p = predictor(z)
    loss = -(F.normalize(p) * F.normalize(z.detach())).sum(1).mean()
    loss.backward()


@healthy(("no_grad", "with torch.no_grad():", "(Sequential.0)", "mm", 1))
def momentum_queue():
    encoder, x, queue = net(), data(2, 4), data(3, 6)
    key_encoder = copy.deepcopy(encoder)
    with torch.no_grad():
        keys = key_encoder(x)
    (encoder(x) @ torch.cat([keys.T, queue], 1)).square().sum().backward()


@healthy()
def moving_average():
    online, x = net(), data(2, 4)
    average = copy.deepcopy(online).requires_grad_(False)
    for _ in range(3):
        F.mse_loss(online(x), average(x)).backward()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), online.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)


@healthy()
def moving_average_by_data():
    online, x = net(), data(2, 4)
    average = copy.deepcopy(online).requires_grad_(False)
    for _ in range(2):
        F.mse_loss(online(x), average(x)).backward()
        for slow, fast in zip(average.parameters(), online.parameters(), strict=True):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)


@healthy()
def batch_norm_and_dropout():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3))
    for _ in range(2):
        model(data(6, 4)).square().mean().backward()


@healthy()
def integers_from_data():
    table, x = nn.Embedding(5, 4), torch.tensor([[0, 1], [3, 4]])
    table(x.long().clamp(max=4)).sum().backward()


@healthy(("item", "total += loss.item()", "nll_loss", None, None))
def loss_and_accuracy():
    model, x, y, total = net(), data(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), 0.0
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=0.1)
    for _ in range(3):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        (out.argmax(1) == y).float().mean().item()


@healthy(("item", "total += loss.item()", "mse_loss", None, None))
def evaluation_between():
    model, x, total = net(), data(6, 4), 0.0
    for _ in range(2):
        loss = F.mse_loss(model(x), data(6, 3))
        total += loss.item()
        loss.backward()
        model.zero_grad()
        model.eval()
        with torch.no_grad():
            total += F.mse_loss(model(x), data(6, 3)).item()
        model.train()


@healthy(("no_grad", "with torch.no_grad():", "(Sequential.0)", "mul", 0))
def distillation():
    teacher, student, x = net(), net(), data(2, 4)
    with torch.no_grad():
        soft = teacher(x).softmax(1)
    F.kl_div(student(x).log_softmax(1), soft, reduction="sum").backward()


@healthy()
def frozen_teacher():
    teacher, student, x = net().requires_grad_(False), net(), data(2, 4)
    F.mse_loss(student(x), teacher(x)).backward()


@healthy()
def optimizers_of_all_kinds():
    model, x = net(), data(2, 4)
    optimizers = [
        make(model.parameters(), lr=0.01)
        for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Rprop)
    ]
    for optimizer in optimizers:
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@healthy()
def descent_by_hand():
    w, x = data(4).requires_grad_(), data(4)
    for _ in range(3):
        (w * x).square().sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()


@healthy(("gt", "loss = torch.where(y > 0, y, 0.1 * y).sum()", "mul", "where", None))
def chosen_by_a_mask():
    x = data(4).requires_grad_()
    y = x * 2
    loss = torch.where(y > 0, y, 0.1 * y).sum()
    loss.backward()


@healthy(("argmin", "nearest = torch.cdist(z, book).argmin(1)", "(cdist)", "index", None))
def chosen_by_an_index():
    book, z = data(3, 4).requires_grad_(), data(2, 4).requires_grad_()
    nearest = torch.cdist(z, book).argmin(1)
    (book[nearest] - z).square().sum().backward()


@healthy()
def checkpointed():
    model, x = net(), data(2, 4).requires_grad_()
    for reentrant in (False, True):
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()


class Squared(torch.autograd.Function):
    """A custom Function, whose forward runs with gradients off."""

    @staticmethod
    def forward(ctx, x):
        y = x.detach() * x
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 * x.detach()


@healthy()
def custom_function():
    x = data(4).requires_grad_()
    (Squared.apply(x * 2) * x).sum().backward()


@healthy()
def second_order():
    w, x = data(4).requires_grad_(), data(4)
    loss = (w * x).sin().sum()
    (slope,) = torch.autograd.grad(loss, w, create_graph=True)
    (w - 0.1 * slope).square().sum().backward()


@healthy()
def like_another():
    x = data(4).requires_grad_()
    y = x * 2
    noise = torch.zeros_like(y) + torch.ones_like(y) * y.new_full((4,), 0.5)
    (y * noise * y.shape[0]).sum().backward()


@healthy()
def attention_and_layer_norm():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    layer(data(2, 3, 4)).square().mean().backward()


@healthy()
def closure_of_lbfgs():
    w, x = data(4).requires_grad_(), data(4)
    optimizer = torch.optim.LBFGS([w], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = (w * x - 1).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


@healthy()
def inner_loop():
    model, x = net(), data(2, 4)
    fast = dict(model.named_parameters())
    for _ in range(2):
        loss = torch.func.functional_call(model, fast, (x,)).square().mean()
        slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: p - 0.1 * slope for (name, p), slope in zip(fast.items(), slopes, strict=True)}
    torch.func.functional_call(model, fast, (x,)).square().mean().backward()


@healthy(("detach", "y = F.gumbel_softmax(nn.Linear(4, 3)(data(2, 4)), hard=True)", "softmax", "add", 0))
def gumbel_softmax():
    y = F.gumbel_softmax(nn.Linear(4, 3)(data(2, 4)), hard=True)
    y.square().sum().backward()


@healthy(("detach", "mixed = (0.5 * real + 0.5 * fake.detach()).requires_grad_()", "(tanh)", "mixed", None))
def gradient_penalty():
    generator, critic, real = nn.Linear(4, 4), nn.Linear(4, 1), data(2, 4)
    fake = generator(real).tanh()
    mixed = (0.5 * real + 0.5 * fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sigmoid().sum(), mixed, create_graph=True)
    ((slope.norm(dim=1) - 1).square().mean() + critic(mixed).mean()).backward()


@healthy()
def transform_of_a_function():
    w, x = data(4).requires_grad_(), data(4)
    slope = torch.func.grad(lambda w: (w * x).sin().sum())(w)
    (slope * w).sum().backward()


@healthy()
def recurrent_and_tied():
    table, layer = nn.Embedding(6, 4), nn.LSTM(4, 4, batch_first=True)
    out, _ = layer(table(torch.tensor([[0, 1, 5]])))
    F.cross_entropy((out @ table.weight.T).flatten(0, 1), torch.tensor([1, 5, 2])).backward()


@healthy()
def scaled_and_cast():
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(data(2, 4)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
