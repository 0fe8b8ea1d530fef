"""Code that is near to TM106, TM206, TM610 to TM613 and TM806, and means what it says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches


@healthy(nearly="TM106")
def heads_that_are_split_and_joined():
    """Splits and merges of neighbouring dimensions, each beside its transpose."""
    project = nn.Linear(24, 24)
    with tm.trace(namespace={"project": project}) as trace:
        for _ in range(3):
            x = torch.randn(2, 10, 24)
            q = project(x).view(2, 10, 4, 6).transpose(1, 2)
            mixed = (q @ q.transpose(-2, -1)).softmax(-1) @ q
            mixed.transpose(1, 2).reshape(2, 10, 24).square().mean().backward()
    return trace.report


@healthy(nearly="TM106")
def scores_that_are_permuted_first():
    net = nn.Conv2d(1, 3, 3, padding=1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 4):
            scores = net(images).permute(0, 2, 3, 1).reshape(-1, 3)
            F.cross_entropy(scores, (images > 0.5).long().flatten()).backward()
    return trace.report


def _detected(flat, boxes=2):
    """A head of SSD or RetinaNet: four numbers for each of two boxes at 4 by 4 places; ``flat`` lines them up."""
    head = nn.Conv2d(8, boxes * 4, 3, padding=1)
    optimizer = torch.optim.SGD(head.parameters(), 1e-2)
    with tm.trace(namespace={"head": head}) as trace:
        for _ in range(6):
            found = flat(head(torch.randn(3, 8, 4, 4)).permute(0, 2, 3, 1))
            optimizer.zero_grad()
            F.smooth_l1_loss(found, torch.randn(3, 16 * boxes, 4)).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM106")
def boxes_of_a_detector():
    """Last in memory are two boxes of four numbers: that the grid is four wide, too, is chance."""
    return _detected(lambda found: found.contiguous().view(len(found), -1, 4))


@healthy(nearly="TM106")
def boxes_of_a_detector_reshaped():
    return _detected(lambda found: found.reshape(3, -1, 4))


@healthy(nearly="TM106")
def boxes_of_a_detector_after_an_activation():
    return _detected(lambda found: found.contiguous().relu().view(found.size(0), -1, 4), boxes=3)


def _attended(shift):
    """Attention of 6 places to 6 others, by how far apart they are; ``shift`` moves each row on by one."""
    key = nn.Linear(8, 8)
    with tm.trace(namespace={"key": key}) as trace:
        for _ in range(4):
            scores = torch.einsum("ibd,jbd->ijb", torch.randn(6, 2, 8), key(torch.randn(7, 2, 8)))
            shift(scores).softmax(1).square().mean().backward()
    return trace.report


@healthy(nearly="TM106")
def rows_that_are_shifted_by_a_view():
    """Transformer-XL: a column is added, and the sizes change places, so that each row begins one later."""

    def shift(x):
        padded = torch.cat([torch.zeros(x.size(0), 1, x.size(2)), x], 1)
        sizes = x.size(1) + 1, x.size(0), x.size(2)
        padded = padded.view(*sizes)
        return padded[1:].view_as(x)

    return _attended(shift)


@healthy(nearly="TM106")
def rows_that_are_shifted_by_two_views():
    """XLNet: the column is there from the beginning."""

    def shift(x):
        rows, columns, samples = x.shape
        return x.reshape(columns, rows, samples)[1:, ...].reshape(rows, columns - 1, samples)

    return _attended(shift)


@healthy(nearly="TM106")
def windows_groups_and_flat_batches():
    """Windows of an image, groups of channels, a batch of sequences as one: all in the order of the elements."""
    net = nn.Conv2d(1, 8, 3, padding=1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 4):
            x = net(images)
            windows = x.permute(0, 2, 3, 1).reshape(4, 2, 4, 2, 4, 8).transpose(2, 3).reshape(-1, 16, 8)
            groups = x.view(4, 2, 4, 8, 8).transpose(1, 2).reshape(4, 8, 8, 8)
            flat = x.flatten(2).transpose(1, 2).reshape(4 * 64, 8)
            (windows.mean() + groups.square().mean() + flat.abs().mean()).backward()
    return trace.report


@healthy(nearly="TM106")
def heads_of_a_transformer_in_time_first_order():
    """(T, B, E) as (T, B * heads, size), where the size happens to be that of the batch."""
    project, t, b, heads = nn.Linear(16, 16), 5, 4, 4
    with tm.trace(namespace={"project": project}) as trace:
        for _ in range(3):
            q = project(torch.randn(t, b, 16)).view(t, b * heads, 4).transpose(0, 1)
            torch.bmm(q, q.transpose(1, 2)).square().mean().backward()
    return trace.report


@healthy(nearly="TM106")
def steps_of_samples_that_are_summed_one_by_one():
    """Integrated gradients: 8 steps of 3 pictures lie one after the other, and pictures are 8 pixels wide, too."""
    net, steps = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), torch.linspace(0, 1, 8)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 3):
            path = torch.cat([images * step for step in steps]).requires_grad_()
            (gradient,) = torch.autograd.grad(net(path)[:, 1].sum(), path)
            total = (gradient.contiguous().view(8, -1) * steps.view(8, 1)).view(8, *images.shape).sum(0)
            assert total.shape == images.shape
    return trace.report


@healthy(nearly="TM206")
def one_row_repeated():
    """The same object many times, and views of what nobody writes."""
    net, row = nn.Linear(3, 1), torch.randn(3)
    with tm.trace(namespace={"net": net}) as trace:
        rows = torch.stack([row] * 4) + torch.stack([row.view(3) for _ in range(4)])
        net(rows).square().mean().backward()
    return trace.report


@healthy(nearly="TM206")
def copies_of_a_state_that_is_written():
    net, state, seen = nn.Linear(3, 1), torch.zeros(3), []
    with tm.trace(namespace={"net": net}) as trace:
        for step in range(5):
            state.fill_(step)
            seen.append(state.clone())
        net(torch.stack(seen)).square().mean().backward()
    return trace.report


class Dropping(nn.Module):
    """Dropout as a submodule, as a function with its mode, and on purpose."""

    def __init__(self, *, always=False):
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(64, 32), nn.Linear(32, 10), nn.Dropout(0.3)
        self.always = always

    def forward(self, x):
        x = self.drop(self.body(x).relu())
        x = F.dropout(x, 0.1, training=True) if self.always else F.dropout(x, 0.1, self.training)
        return self.head(x)


def _train(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for images, classes in batches(4):
        optimizer.zero_grad()
        F.cross_entropy(net(images.flatten(1)), classes).backward()
        optimizer.step()


@healthy(nearly="TM610")
def dropouts_that_know_the_mode():
    net = Dropping()
    with tm.trace(namespace={"net": net}) as trace:
        _train(net)
        net.eval()
        with torch.no_grad():
            for images, _ in batches(2):
                net(images.flatten(1))
        net.train()
    return trace.report


@healthy(nearly="TM610")
def dropout_for_an_estimate_of_uncertainty():
    """Monte Carlo dropout: the line says that it drops, and the registered one is switched on by hand."""
    net = Dropping(always=True)
    with tm.trace(namespace={"net": net}) as trace:
        _train(net)
        net.eval()
        net.drop.train()
        with torch.no_grad():
            for images, _ in batches(3):
                torch.stack([net(images.flatten(1)) for _ in range(4)]).var(0)
        net.train()
    return trace.report


@healthy(nearly="TM611")
def a_distillation_of_logarithms():
    student, teacher = nn.Linear(8, 5), nn.Linear(8, 5)
    with tm.trace(namespace={"student": student}) as trace:
        for _ in range(3):
            x = torch.randn(16, 8)
            with torch.no_grad():
                q = teacher(x).softmax(1)
            F.kl_div(student(x).log_softmax(1), q, reduction="batchmean").backward()
            F.kl_div(student(x).softmax(1).log(), q.log(), log_target=True, reduction="batchmean").backward()
    return trace.report


@healthy(nearly="TM611")
def a_divergence_between_distributions():
    scores = nn.Parameter(torch.zeros(4))
    wanted = torch.distributions.Categorical(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    with tm.trace(namespace={"scores": scores}) as trace:
        for _ in range(3):
            torch.distributions.kl_divergence(wanted, torch.distributions.Categorical(logits=scores)).backward()
    return trace.report


@healthy(nearly="TM612")
def attention_over_the_keys():
    query, drop = nn.Linear(6, 6), nn.Dropout(0.2)
    with tm.trace(namespace={"query": query}) as trace:
        for _ in range(3):
            x = torch.randn(4, 7, 6)
            weights = drop((query(x) @ x.mT).softmax(-1))
            (weights @ x).square().mean().backward()
    return trace.report


@healthy(nearly="TM612")
def attention_over_instances_and_pooled_nodes():
    """Weights of a bag's instances lie in a column, and soft clusters are transposed before they are summed."""
    score, assign = nn.Linear(6, 1), nn.Linear(6, 3)
    with tm.trace(namespace={"score": score, "assign": assign}) as trace:
        for _ in range(3):
            x = torch.randn(9, 6)
            bag = torch.softmax(score(x), dim=0).T @ x
            pooled = assign(x).softmax(1).T @ x
            (bag.square().mean() + pooled.square().mean()).backward()
    return trace.report


@healthy(nearly="TM612")
def log_softmax_over_the_classes_of_pixels():
    net = nn.Conv2d(1, 3, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 4):
            F.nll_loss(F.log_softmax(net(images), dim=1), (images > 0.5).long().squeeze(1)).backward()
    return trace.report


@healthy(nearly="TM613")
def the_last_step_of_both_orders():
    first, last = nn.LSTM(8, 16, batch_first=True), nn.GRU(8, 16)
    with tm.trace(namespace={"first": first, "last": last}) as trace:
        for images, _ in batches(3, 16):
            x = images.squeeze(1)
            (first(x)[0][:, -1].square().mean() + last(x.transpose(0, 1))[0][-1].square().mean()).backward()
    return trace.report


@healthy(nearly="TM613")
def a_batch_of_one_sequence():
    """``[:, -1]`` leaves out the dimension of a batch of one."""
    rnn = nn.RNN(2, 6)
    with tm.trace(namespace={"rnn": rnn}) as trace:
        for _ in range(3):
            out, _ = rnn(torch.randn(12, 1, 2))
            out[:, -1].square().mean().backward()
    return trace.report


@healthy(nearly="TM806")
def bytes_within_their_range():
    net = nn.Linear(64, 1)
    frame = torch.randint(0, 100, (2, 8, 8), dtype=torch.uint8)
    with tm.trace(namespace={"net": net}) as trace:
        mixed = frame + frame // 2
        net(mixed.float().flatten(1) / 255).sum().backward()
    return trace.report


@healthy(nearly="TM806")
def bytes_that_are_converted_first():
    net = nn.Linear(64, 1)
    frame = torch.randint(0, 256, (2, 8, 8), dtype=torch.uint8)
    with tm.trace(namespace={"net": net}) as trace:
        x = (frame.int() - 128) / 128
        net(x.flatten(1)).sum().backward()
    return trace.report
