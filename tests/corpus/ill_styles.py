"""Known bugs in styles that hide them: a compiled call, a wrapped optimizer, `functional_call`, hooks, generators."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, mlp


class Averaging(torch.optim.Adam):
    """A class of the user's own, with an average of the weights beside it."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, **options)
        self.average = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self, closure=None):
        loss = super().step(closure)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for kept, now in zip(self.average, parameters, strict=True):
            kept.lerp_(now.detach(), 0.01)
        return loss


@ill("TM309", severity="warning", line="optimizer.step()", says=("5 of its 6 steps", "`optimizer.zero_grad()`"))
def a_subclass_of_an_optimizer_that_is_never_cleared():
    net = mlp(64, 16, 10)
    optimizer = Averaging(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(6, 16):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM607", severity="warning", line="optimizer.step()  # for the average", says=("again on the same gradients",))
def a_subclass_that_is_stepped_twice():
    net = mlp(64, 16, 10)
    optimizer = Averaging(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
            optimizer.step()  # for the average
    return trace.report


@ill(
    "TM303",
    severity="warning",
    line="weights = {name: p.detach().clone().requires_grad_()",
    says=("all 4 parameters of net",),
)
def weights_that_are_copied_for_a_functional_call():
    """The dictionary is made of clones that are leaves of their own, and the optimizer holds the module's."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            weights = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
            optimizer.zero_grad()
            F.cross_entropy(functional_call(net, weights, (images.flatten(1),)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM405", severity="warning", says=("exactly zero",))
def a_clamp_that_nothing_gets_past():
    """The logarithm of a deviation is clamped to a range in which it never is."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = nn.Linear(4, 1), nn.Parameter(torch.full((1,), 3.0))

        def forward(self, x):
            return torch.distributions.Normal(self.mean(x), self.log_std.clamp(-5.0, 2.0).exp())

    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters())
    with tm.trace(namespace={"policy": policy, "optimizer": optimizer}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            (-policy(torch.randn(16, 4)).log_prob(torch.randn(16, 1)).mean()).backward()
            optimizer.step()
    return trace.report


@ill("TM612", line="weights = (scores / math.sqrt(8)).softmax(1)", related=("mixed = torch.einsum(",))
def cross_attention_by_einsum():
    """Queries of one sequence, keys of another: the softmax goes over the queries."""
    query, key, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*query.parameters(), *key.parameters(), *head.parameters()])
    with tm.trace(namespace={"query": query, "key": key, "head": head, "optimizer": optimizer}) as trace:
        for _ in range(3):
            x, context = torch.randn(4, 5, 8), torch.randn(4, 7, 8)
            scores = torch.einsum("bqd,bkd->bqk", query(x), key(context))
            weights = (scores / math.sqrt(8)).softmax(1)
            mixed = torch.einsum("bqk,bkd->bqd", weights, context)
            optimizer.zero_grad()
            F.cross_entropy(head(mixed.amax(1)), torch.randint(0, 3, (4,))).backward()
            optimizer.step()
    return trace.report


class Vision(nn.Module):
    """A transformer over patches, with a token for the class."""

    def __init__(self, **options):
        super().__init__()
        self.patch, self.token = nn.Linear(8, 16), nn.Parameter(torch.zeros(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, **options)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 10)

    def forward(self, images):
        x = torch.cat([self.token.expand(len(images), -1, -1), self.patch(images.squeeze(1))], 1)
        return self.head(self.encoder(x)[:, 0])


@ill(
    "TM613", severity="note", line="return self.head(self.encoder(x)[:, 0])", says=("first of 9 samples", "for all 16")
)
def a_class_token_of_an_encoder_that_takes_places_first():
    """om-ai-lab/OmDet#19, aipixel/AEMatter#3, the same class: the samples of a batch attend to each other."""
    net = Vision()
    optimizer = torch.optim.AdamW(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM618", severity="warning", line="torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)", says=("GradScaler",))
def clipping_in_a_hook_of_a_scaled_loss():
    """A helper does it all, and clips before the scaler has unscaled."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)

    def update(loss):
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    with tm.trace(namespace={"net": net, "optimizer": optimizer, "scaler": scaler}) as trace:
        for images, classes in batches(5, 16):
            update(F.cross_entropy(net(images.flatten(1)), classes))
    return trace.report


@ill("TM606", severity="warning", says=("is trained in eval mode",))
def a_context_that_does_not_come_back_to_training():
    """The helper that samples switches the mode for good."""
    net = nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(net.parameters())

    @torch.no_grad()
    def sample(model, x):
        return model.eval()(x).softmax(-1)

    peek = partial(sample, net)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for step, (images, classes) in enumerate(batches(6, 16)):
            if step == 1:
                peek(images.flatten(1))
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", says=("use_reentrant=False",))
def a_checkpoint_of_raw_data():
    """The first block is checkpointed, and pictures ask for no gradient."""
    net = nn.ModuleDict({"stem": nn.Conv2d(1, 4, 3), "head": nn.Linear(4 * 36, 10)})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(3, 8):
            features = torch.utils.checkpoint.checkpoint(net["stem"], images, use_reentrant=True)
            optimizer.zero_grad()
            F.cross_entropy(net["head"](features.relu().flatten(1)), classes).backward()
            optimizer.step()
    return trace.report
