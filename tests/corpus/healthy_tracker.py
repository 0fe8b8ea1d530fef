"""The healthy twins of `ill_tracker_loops` and `ill_tracker_models`: what was written in place of the bug."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, digits, mlp


@healthy(nearly="TM309")
def a_critic_that_is_cleared_in_each_of_its_steps():
    """ajbrock/BigGAN-PyTorch#25, mended; the spectral norm writes to its buffers in every forward."""
    maker, judge = (
        mlp(4, 8, 2),
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8)), nn.ReLU(), nn.Linear(8, 1)),
    )
    of_maker, of_judge = (
        torch.optim.Adam(maker.parameters(), betas=(0.0, 0.9)),
        torch.optim.Adam(judge.parameters(), betas=(0.0, 0.9)),
    )
    with tm.trace(namespace={"maker": maker, "judge": judge, "of_maker": of_maker, "of_judge": of_judge}) as trace:
        for _ in range(3):
            for _ in range(2):
                of_judge.zero_grad()
                fake = maker(torch.randn(16, 4)).detach()
                (F.relu(1 - judge(torch.randn(16, 2) + 2)).mean() + F.relu(1 + judge(fake)).mean()).backward()
                of_judge.step()
            of_maker.zero_grad()
            (-judge(maker(torch.randn(16, 4))).mean()).backward()
            of_maker.step()
    return trace.report


@healthy(nearly="TM316")
def a_toggled_pair():
    """Lightning-AI/pytorch-lightning#591, mended: one line for both, and the other network asks for no gradient."""
    generator, judge = mlp(4, 16, 2), mlp(2, 16, 1)
    pair = [(torch.optim.Adam(generator.parameters()), generator), (torch.optim.Adam(judge.parameters()), judge)]
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)

    def training_step(number):
        if number == 0:
            return F.binary_cross_entropy_with_logits(judge(generator(torch.randn(8, 4))), ones)
        fake, real = generator(torch.randn(8, 4)).detach(), torch.randn(8, 2)
        true = F.binary_cross_entropy_with_logits(judge(real), ones)
        return (true + F.binary_cross_entropy_with_logits(judge(fake), zeros)) / 2

    with tm.trace(namespace={"generator": generator, "judge": judge}) as trace:
        for _ in range(4):
            for number, (optimizer, module) in enumerate(pair):
                for _, other in pair:
                    other.requires_grad_(other is module)
                training_step(number).backward()
                optimizer.step()
                optimizer.zero_grad()
            generator.requires_grad_(True)
            judge.requires_grad_(True)
    return trace.report


@healthy(nearly="TM316")
def an_embedding_that_steps_every_second_batch():
    """Two optimizers of one model: what the second accumulates meanwhile is of the same loss."""
    table, head = nn.Embedding(20, 8), nn.Linear(8, 4)
    slow, fast = torch.optim.Adagrad(table.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
    with tm.trace(namespace={"table": table, "head": head, "slow": slow, "fast": fast}) as trace:
        for step in range(8):
            words, classes = torch.randint(0, 20, (6, 3)), torch.randint(0, 4, (6,))
            F.cross_entropy(head(table(words).mean(1)), classes).backward()
            fast.step()
            fast.zero_grad()
            if step % 2:
                slow.step()
                slow.zero_grad()
    return trace.report


@healthy(nearly="TM618")
def clipping_after_unscaling():
    """milesial/Pytorch-UNet#468, mended."""
    net = mlp(64, 32, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with tm.trace(namespace={"net": net, "optimizer": optimizer, "scaler": scaler}) as trace:
        for images, classes in batches(5):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(images.flatten(1)), classes)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return trace.report


@healthy(nearly="TM618")
def clipping_beside_a_scaler_of_another_optimizer():
    """The scaler steps the body alone; the head has plain gradients, a step of its own, and a clip."""
    body, head = mlp(64, 16), nn.Linear(16, 10)
    first, second = torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.Adam(head.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with tm.trace(namespace={"body": body, "head": head, "scaler": scaler}) as trace:
        for images, classes in batches(4):
            features = body(images.flatten(1))
            first.zero_grad()
            second.zero_grad()
            F.cross_entropy(head(features.detach().relu()), classes).backward()
            clip_grad_norm_(head.parameters(), 1.0)
            second.step()
            for parameter in head.parameters():
                parameter.requires_grad_(False)
            scaler.scale(F.cross_entropy(head(features.relu()), classes)).backward()
            for parameter in head.parameters():
                parameter.requires_grad_(True)
            scaler.unscale_(first)
            clip_grad_norm_(body.parameters(), 1.0)
            scaler.step(first)
            scaler.update()
    return trace.report


@healthy(nearly="TM616")
def warm_restarts_of_plain_descent():
    """SGD without momentum has nothing to forget."""
    model = mlp(3, 8, 1)
    with tm.trace(namespace={"model": model}) as trace:
        for rate in (0.1, 0.05, 0.02, 0.01, 0.005):
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            for _ in range(3):
                optimizer.zero_grad()
                F.mse_loss(model(torch.randn(8, 3)), torch.randn(8, 1)).backward()
                optimizer.step()
    return trace.report


@healthy(nearly="TM616")
def a_fold_and_an_optimizer_each():
    """Cross validation: five models, five optimizers."""
    images, classes = digits()
    with tm.trace() as trace:
        for fold in range(5):
            net = mlp(64, 8, 10)
            optimizer = torch.optim.Adam(net.parameters())
            for at in range(2):
                rows = slice(fold * 40 + at * 20, fold * 40 + at * 20 + 20)
                optimizer.zero_grad()
                F.cross_entropy(net(images[rows].flatten(1)), classes[rows]).backward()
                optimizer.step()
    return trace.report


@healthy(nearly="TM617")
def a_scheduler_of_steps_in_the_batch_loop():
    """One cycle is made for batches, and is given as many as there are."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=12)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(2):
            for images, classes in batches(6, 32):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
                scheduler.step()
    return trace.report


@healthy(nearly="TM606")
def a_validation_that_puts_the_mode_back():
    """joeynmt/joeynmt#184, mended: the mode of before is kept, and set again."""
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def validate(images):
        was = model.training
        model.eval()
        try:
            with torch.no_grad():
                return model(images.flatten(1)).argmax(1)
        finally:
            model.train(was)

    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for step, (images, classes) in enumerate(batches(8, 32)):
            optimizer.zero_grad()
            F.cross_entropy(model(images.flatten(1)), classes).backward()
            optimizer.step()
            if step % 3 == 2:
                validate(images)
    return trace.report


@healthy(nearly="TM621")
def a_target_that_loads_the_online_network():
    """thesouther/MARL#8, mended."""
    mixer = mlp(4, 8, 1)
    target_mixer = copy.deepcopy(mixer)
    optimizer = torch.optim.RMSprop(mixer.parameters(), lr=5e-4)
    with tm.trace(namespace={"mixer": mixer, "target_mixer": target_mixer}) as trace:
        for step in range(6):
            with torch.no_grad():
                wanted = torch.randn(8, 1) + 0.99 * target_mixer(torch.randn(8, 4))
            optimizer.zero_grad()
            F.mse_loss(mixer(torch.randn(8, 4)), wanted).backward()
            optimizer.step()
            if step % 2:
                target_mixer.load_state_dict(mixer.state_dict())
    return trace.report


@healthy(nearly="TM303")
def a_reentrant_checkpoint_whose_input_asks():
    """huggingface/transformers#21381, the way round: the frozen embedding's output is made to ask."""
    embed = nn.Linear(64, 16).requires_grad_(False)
    layer, head = mlp(16, 16, 16), nn.Linear(16, 10)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    with tm.trace(namespace={"embed": embed, "layer": layer, "head": head}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            inputs = embed(images.flatten(1)).requires_grad_()
            F.cross_entropy(head(checkpoint(layer, inputs, use_reentrant=True)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def a_frozen_trunk_in_a_reentrant_checkpoint():
    """Nothing in it is to learn; the head is."""
    trunk, head = mlp(64, 16, 16).requires_grad_(False), nn.Linear(16, 10)
    optimizer = torch.optim.Adam(head.parameters())
    with tm.trace(namespace={"trunk": trunk, "head": head}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(head(checkpoint(trunk, images.flatten(1), use_reentrant=True)), classes).backward()
            optimizer.step()
    return trace.report


class _Attending(nn.Module):
    """Attention by einsum, and a pooling of clusters that compete for each place."""

    def __init__(self, size=8, clusters=4):
        super().__init__()
        self.stem, self.size = nn.Linear(8, size), size
        self.qkv, self.assign = nn.Linear(size, 3 * size), nn.Linear(size, clusters)
        self.centres, self.head = nn.Parameter(torch.randn(clusters, size) * 0.1), nn.Linear(clusters * size, 10)

    def forward(self, x):
        x = self.stem(x)
        q, k, v = self.qkv(x).chunk(3, -1)
        attn = (torch.einsum("bid,bjd->bij", q, k) / math.sqrt(self.size)).softmax(dim=2)
        x = x + torch.einsum("bij,bjd->bid", attn, v)
        soft = self.assign(x).softmax(dim=-1)
        pooled = torch.einsum("bnk,bnd->bkd", soft, x) - soft.sum(1)[..., None] * self.centres
        return self.head(F.normalize(pooled, dim=-1).flatten(1))


@healthy(nearly="TM612")
def attention_and_clusters_by_einsum():
    """labmlai#146, mended, beside NetVLAD, whose softmax over the clusters is what it is about."""
    net = _Attending()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.squeeze(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM612")
def attention_of_which_one_place_is_there():
    """A decoder's first step attends to one place alone, and a mixture that may have more experts has one here."""
    cell, query, head = nn.GRUCell(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
    with tm.trace(namespace={"cell": cell, "query": query, "head": head}) as trace:
        for _ in range(3):
            state, seen, loss = torch.zeros(6, 8), [], torch.zeros(())
            for _ in range(4):
                state = cell(torch.randn(6, 8), state)
                seen.append(state)
                keys = torch.stack(seen, 1)
                weights = torch.softmax((keys @ query(state)[:, :, None]).squeeze(-1), dim=1)
                found = (weights[:, :, None] * keys).sum(1)
                loss = loss + F.cross_entropy(head(found), torch.randint(0, 4, (6,)))
            loss.backward()
    return trace.report


@healthy(nearly="TM313")
def a_distillation_of_the_student():
    """labmlai#66, mended; the teacher's entropy is taken off, so that the loss is a divergence."""
    small, large = mlp(64, 16, 10), mlp(64, 64, 10)
    optimizer = torch.optim.Adam(small.parameters(), lr=1e-3)
    with tm.trace(namespace={"small": small, "large": large}) as trace:
        for images, classes in batches(3, 16):
            with torch.no_grad():
                wanted = F.softmax(large(images.flatten(1)) / 5, -1)
            output = small(images.flatten(1))
            soft = -(wanted * (F.log_softmax(output / 5, -1) - wanted.log())).sum(1).mean()
            loss = 25.0 * soft + 0.5 * F.cross_entropy(output, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM313")
def a_loss_that_is_logged_with_its_teacher_s():
    """What is compared with the teacher's loss is for the log alone."""
    small, large, gaps = mlp(64, 16, 10), mlp(64, 64, 10), []
    optimizer = torch.optim.NAdam(small.parameters())
    with tm.trace(namespace={"small": small, "large": large}) as trace:
        for images, classes in batches(3, 16):
            with torch.no_grad():
                theirs = F.cross_entropy(large(images.flatten(1)), classes)
            loss = F.cross_entropy(small(images.flatten(1)), classes)
            gaps.append((loss - theirs).item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM605")
def weights_in_a_parameter_dictionary():
    """pytorch/pytorch#632, mended; the plain list beside it holds what is registered."""

    class Relations(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterDict({str(at): nn.Parameter(1 + torch.randn(64) * 0.1) for at in range(2)})
            self.head = nn.Linear(128, 10)
            self.order = [self.weights["1"], self.weights["0"]]

        def forward(self, x):
            return self.head(torch.cat([x * one for one in self.order], 1))

    net = Relations()
    optimizer = torch.optim.Rprop(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM619")
def a_probe_whose_trunk_stays_in_eval_mode():
    """kdexd/virtex#16, mended: `train` of the whole is overridden."""

    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
            self.body.requires_grad_(False)
            self.fc = nn.Linear(4 * 36, 10)

        def train(self, mode=True):
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, x):
            return self.fc(self.body(x))

    model = Probe()
    for images, _ in batches(2):
        model.body(images)
    model.train()
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for images, classes in batches(4, 16):
            optimizer.zero_grad()
            F.cross_entropy(model(images), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM408")
def an_adapter_whose_second_matrix_is_zero():
    """Guitaricet/relora#18, as in the paper: A is random and B is zero, and both learn."""

    class Adapted(nn.Module):
        def __init__(self, rank=2):
            super().__init__()
            self.base = nn.Linear(64, 10).requires_grad_(False)
            self.lora_A, self.lora_B = nn.Linear(64, rank, bias=False), nn.Linear(rank, 10, bias=False)
            nn.init.zeros_(self.lora_B.weight)

        def forward(self, x):
            return self.base(x) + self.lora_B(self.lora_A(x))

    net = Adapted()
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for images, classes in batches(5, 16):
            optimizer.zero_grad()
            F.cross_entropy(net(images.flatten(1)), classes).backward()
            optimizer.step()
    return trace.report
