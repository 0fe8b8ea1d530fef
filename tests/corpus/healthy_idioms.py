"""Ways of writing a training that libraries brought: trainers, hooks, wrappers, functional calls; nothing is wrong."""

from __future__ import annotations

import contextlib
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, prune, vector_to_parameters

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


class Trainer:
    """A trainer with callbacks, as Lightning and fastai have it."""

    def __init__(self, model, callbacks=()):
        self.model, self.callbacks, self.logs = model, callbacks, []
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=0)

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name, lambda _: None)(self)

    def fit(self, epochs):
        for _ in range(epochs):
            self.model.train()
            for images, classes in batches(3, 16):
                self.loss = F.cross_entropy(self.model(images.flatten(1)), classes, label_smoothing=0.1)
                self.optimizer.zero_grad()
                self.loss.backward()
                self.call("after_backward")
                self.optimizer.step()
                self.call("after_step")
            self.model.eval()
            with torch.inference_mode():
                held = sum(F.cross_entropy(self.model(x.flatten(1)), y).item() for x, y in batches(2, 16))
            self.scheduler.step(held)


class Clip:
    def after_backward(self, trainer):
        clip_grad_norm_(trainer.model.parameters(), 1.0)


class Average:
    """An exponential moving average, as timm keeps it."""

    def __init__(self, model):
        self.module = copy.deepcopy(model).eval()

    def after_step(self, trainer):
        with torch.no_grad():
            for kept, now in zip(self.module.state_dict().values(), trainer.model.state_dict().values(), strict=True):
                kept.copy_(0.99 * kept + 0.01 * now if kept.is_floating_point() else now)


class Log:
    def after_step(self, trainer):
        trainer.logs.append(trainer.loss.detach().item())


@healthy(nearly="TM606", family="a trainer with callbacks")
def a_trainer_with_callbacks():
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    trainer = Trainer(net, (Clip(), Average(net), Log()))
    with tm.trace(namespace={"trainer": trainer, "net": net}) as trace:
        trainer.fit(2)
    return trace.report


class Accelerator:
    """As accelerate does it: the step, the clearing and the schedule do nothing until the batches are together."""

    def __init__(self, every):
        self.every, self.count = every, 0

    @contextlib.contextmanager
    def accumulate(self):
        self.count += 1
        yield

    @property
    def sync(self):
        return self.count % self.every == 0


class Patient(torch.optim.SGD):
    """An optimizer that waits for its accelerator."""

    accelerator: Accelerator

    def step(self, closure=None):
        return super().step(closure) if self.accelerator.sync else None

    def zero_grad(self, set_to_none=True):
        if self.accelerator.sync:
            super().zero_grad(set_to_none)


@healthy(nearly="TM310", family="an accelerator that accumulates")
def steps_that_wait_until_all_batches_are_there():
    """`zero_grad` and `step` are called for each batch, and do something for each third."""
    net, accelerator = mlp(64, 16, 10), Accelerator(3)
    optimizer = Patient(net.parameters(), lr=0.1)
    optimizer.accelerator = accelerator
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(9, 8):
            with accelerator.accumulate():
                (F.cross_entropy(net(images.flatten(1)), classes) / 3).backward()
                optimizer.step()
                optimizer.zero_grad()
    return trace.report


@healthy(nearly="TM309", family="accumulation with a last part")
def a_last_window_that_is_not_full():
    """Seven batches by three: the last step uses one."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(2):
            for at, (images, classes) in enumerate(batches(7, 8)):
                (F.cross_entropy(net(images.flatten(1)), classes) / 3).backward()
                if (at + 1) % 3 == 0 or at == 6:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=False)
    return trace.report


@healthy(nearly="TM607", family="look-ahead around another optimizer")
def an_optimizer_that_looks_ahead():
    """Every third step the slow weights go half the way, and the fast ones begin there again."""
    net = mlp(64, 16, 10)
    fast = torch.optim.Adam(net.parameters(), lr=1e-2)
    slow = [p.detach().clone() for p in net.parameters()]
    with tm.trace(namespace={"net": net, "fast": fast}) as trace:
        for step, (images, classes) in enumerate(batches(7, 8)):
            fast.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            fast.step()
            if step % 3 == 2:
                with torch.no_grad():
                    for kept, now in zip(slow, net.parameters(), strict=True):
                        kept.lerp_(now, 0.5)
                        now.copy_(kept)
    return trace.report


@healthy(nearly="TM601", family="private training (DP-SGD)")
def gradients_of_each_sample():
    """Each sample's gradient is clipped, and noise is added: `vmap` of `grad`, and `.grad` set by hand."""
    net = mlp(64, 8, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss_of(weights, image, label):
        return F.cross_entropy(functional_call(net, weights, (image[None],)), label[None])

    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            weights = {name: p.detach() for name, p in net.named_parameters()}
            each = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, images.flatten(1), classes)
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
            factor = (1.0 / norms).clamp(max=1.0)
            for name, parameter in net.named_parameters():
                total = torch.einsum("b,b...->...", factor, each[name])
                parameter.grad = (total + 0.1 * torch.randn_like(total)) / len(images)
            optimizer.step()
            optimizer.zero_grad()
    return trace.report


@healthy(nearly="TM602", family="a network that makes weights (hypernetwork)")
def a_network_that_makes_the_weights_of_another():
    """What the second is given through `functional_call`; its own parameters are a mould."""
    mould, maker = mlp(4, 6, 2), nn.Linear(3, 4 * 6 + 6 + 6 * 2 + 2)
    shapes = [(name, p.shape, p.numel()) for name, p in mould.named_parameters()]
    optimizer = torch.optim.Adam(maker.parameters())
    with tm.trace(namespace={"mould": mould, "maker": maker, "optimizer": optimizer}) as trace:
        for _ in range(4):
            parts = maker(torch.randn(3)).split([size for _, _, size in shapes])
            weights = {name: part.view(shape) for (name, shape, _), part in zip(shapes, parts, strict=True)}
            optimizer.zero_grad()
            functional_call(mould, weights, (torch.randn(8, 4),)).square().mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM603", family="training of pruned weights")
def weights_that_are_pruned():
    """`prune` leaves a plain tensor in the place of the weight, which a hook makes anew in each forward."""
    net = mlp(64, 16, 10)
    for module in (net[0], net[2]):
        prune.l1_unstructured(module, "weight", amount=0.4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


class Quantised(torch.autograd.Function):
    """Rounds to eight bits; the gradient goes through where nothing was cut off."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward((x / scale).abs() <= 127)
        return (x / scale).round().clamp(-127, 127) * scale

    @staticmethod
    def backward(ctx, gradient):
        (inside,) = ctx.saved_tensors
        return gradient * inside, None


@healthy(nearly="TM405", family="training for quantisation")
def weights_that_are_quantised_in_training():
    class Layer(nn.Linear):
        def forward(self, x):
            return F.linear(x, Quantised.apply(self.weight, self.weight.detach().abs().max() / 127), self.bias)

    net = nn.Sequential(Layer(64, 16), nn.ReLU6(), Layer(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            clip_grad_value_(net.parameters(), 0.5)
            optimizer.step()
    return trace.report


class StochasticDepth(nn.Module):
    """Residual blocks, some of which are left out in each pass."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(3)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                x = x + block(x)
        return self.head(x)


@healthy(nearly="TM601", family="stochastic depth")
def blocks_that_are_left_out_at_random():
    net = StochasticDepth()
    optimizer = torch.optim.AdamW(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(8, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM310", family="gradients of tasks that are projected (PCGrad)")
def gradients_of_two_tasks_that_do_not_fight():
    """Each task's gradient is read and cleared; what is stepped on is put together by hand."""
    net = nn.ModuleDict({"body": mlp(64, 16, 8), "first": nn.Linear(8, 10), "second": nn.Linear(8, 1)})
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            body = net["body"](images.flatten(1)).relu()
            losses = F.cross_entropy(net["first"](body), classes), F.l1_loss(net["second"](body)[:, 0], classes.float())
            each = []
            for loss in losses:
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                each.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                                       for p in net.parameters()]))  # fmt: skip
            one, two = each
            agree = one @ two
            one, two = (
                (one - agree / two.square().sum() * two, two - agree / one.square().sum() * one)
                if agree < 0
                else (one, two)
            )
            at = 0
            for parameter in net.parameters():
                parameter.grad = (one + two)[at : at + parameter.numel()].view_as(parameter)
                at += parameter.numel()
            optimizer.step()
    return trace.report


@healthy(nearly="TM617", family="a search for a learning rate")
def a_search_for_a_learning_rate():
    """The rate grows from almost nothing; the weights are put back afterwards."""
    net = mlp(64, 16, 10)
    before = parameters_to_vector(net.parameters()).detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-7)
    losses = []
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(10, 16):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            for group in optimizer.param_groups:
                group["lr"] *= 4
        vector_to_parameters(before, net.parameters())
    return trace.report


@healthy(nearly="TM621", family="a training that is resumed")
def a_training_that_goes_on_from_a_checkpoint():
    """Weights, the optimizer's state and the schedule come back; the first part of the run stays behind."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.Adam(net.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for part in range(2):
            for images, classes in batches(3, 16):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
                scheduler.step()
            if part == 0:
                saved = copy.deepcopy({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
            else:
                net.load_state_dict(saved["net"])
                optimizer.load_state_dict(saved["optimizer"])
    return trace.report


@healthy(nearly="TM614", family="a transformer that shares its layers")
def one_layer_that_is_called_several_times():
    """As in ALBERT and universal transformers: a loop over one layer, which is registered once."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    embed, head = nn.Linear(8, 16), nn.Linear(16, 10)
    parameters = [p for module in (embed, layer, head) for p in module.parameters()]
    optimizer = torch.optim.RAdam(parameters, lr=1e-3)
    with tm.trace(namespace={"embed": embed, "layer": layer, "head": head, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            x = embed(images.squeeze(1))
            for _ in range(3):
                x = layer(x)
            optimizer.zero_grad()
            F.cross_entropy(head(x.mean(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM312", family="per-parameter hooks that step in backward")
def an_update_within_the_backward():
    """One optimizer for each parameter, stepped by a hook as soon as its gradient is there."""
    net = mlp(64, 16, 10)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in net.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 16):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
    return trace.report


@healthy(nearly="TM404", family="gradients that a hook scales")
def a_hook_that_slows_the_lower_layers_down():
    net = mlp(64, 32, 16, 10)
    for depth, parameter in enumerate(net.parameters()):
        parameter.register_hook(lambda gradient, depth=depth: gradient * 0.9 ** (6 - depth))
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606", family="adaptation at test time (TENT)")
def normalisations_that_adapt_to_what_they_are_tested_on():
    """Only the scales and shifts learn, by the entropy of the predictions; the statistics are those of the batch."""
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    net.train()
    net.requires_grad_(False)
    net[1].requires_grad_(True)
    net[1].track_running_stats, net[1].running_mean, net[1].running_var = False, None, None
    optimizer = torch.optim.Adam(net[1].parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, _ in batches(4, 32):
            scores = net(images.flatten(1) + 0.3 * torch.randn(32, 64))
            entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            entropy.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM703", family="stochastic gradient Langevin dynamics")
def noise_added_to_each_update():
    """A generator of its own for the noise, and none is seeded within the loop."""
    net, noise = mlp(64, 16, 10), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(6, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=1e-3)
    return trace.report


@healthy(nearly="TM622", family="centres that have an optimizer of their own")
def classes_whose_centres_are_learned_apart():
    """Center loss: its gradients are scaled back by hand, and both optimizers step."""
    net, head, centres = mlp(64, 16, 8), nn.Linear(8, 10), nn.Parameter(torch.randn(10, 8))
    of_net = torch.optim.Adam([*net.parameters(), *head.parameters()])
    of_centres = torch.optim.SGD([centres], lr=0.5)
    with tm.trace(namespace={"net": net, "head": head, "centres": centres, "of_centres": of_centres}) as trace:
        for images, classes in batches(4, 16):
            features = net(images.flatten(1))
            pull = (features - centres[classes]).square().sum(1).mean()
            loss = F.cross_entropy(head(features.relu()), classes) + 0.01 * pull
            of_net.zero_grad()
            of_centres.zero_grad()
            loss.backward()
            of_net.step()
            centres.grad.mul_(100)
            of_centres.step()
    return trace.report
