"""Code with softmax or sigmoid near the loss, each where it belongs (nearly TM608); targets (nearly TM626)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches


@healthy(nearly="TM608")
def log_softmax_and_the_likelihood():
    net, criterion = nn.Sequential(nn.Linear(64, 10), nn.LogSoftmax(dim=1)), nn.NLLLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            criterion(net(images.flatten(1)), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def the_logarithm_of_probabilities():
    """Mixed experts: probabilities are averaged, and their logarithm goes into the loss."""
    first, second = nn.Linear(64, 10), nn.Linear(64, 10)
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            mixed = (first(x).softmax(1) + second(x).softmax(1)) / 2
            F.nll_loss(mixed.log(), classes).backward()
            F.nll_loss(first(x).softmax(1).log(), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def likelihoods_made_by_hand():
    """Log-probabilities that no log_softmax made: normalised by hand, of distances, and of a log-linear mixture."""
    net, means, gates = nn.Linear(64, 10), nn.Parameter(torch.randn(10, 64)), nn.Linear(64, 2)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            scores = net(x)
            F.nll_loss(scores - scores.logsumexp(1, keepdim=True), classes).backward()
            near = -torch.cdist(x, means)
            both = torch.stack([near.log_softmax(1), net(x).log_softmax(1)], 1)
            F.nll_loss((gates(x).log_softmax(1)[..., None] + both).logsumexp(1), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def attention_inside_and_scores_outside():
    """Gates and attention are softmaxes and sigmoids of their own; the scores after them are raw."""
    query, head = nn.Linear(64, 64), nn.Linear(64, 10)
    with tm.trace(namespace={"query": query, "head": head}) as trace:
        for images, classes in batches(3):
            x = images.flatten(1)
            mixed = (query(x) @ x.T / 8).softmax(-1) @ x
            F.cross_entropy(head(mixed * torch.sigmoid(x)), classes).backward()
    return trace.report


@healthy(nearly="TM608")
def probabilities_for_the_loss_that_takes_them():
    net = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.binary_cross_entropy(net(images.flatten(1)).squeeze(1), (classes > 4).float()).backward()
    return trace.report


@healthy(nearly="TM608")
def soft_targets_of_a_teacher():
    """The teacher's softmax is what the student's scores are compared with; probabilities are also logged."""
    student, teacher = nn.Linear(64, 10), nn.Linear(64, 10)
    with tm.trace(namespace={"student": student}) as trace:
        for images, _ in batches(3):
            with torch.no_grad():
                wanted = teacher(images.flatten(1)).softmax(1)
            scores = student(images.flatten(1))
            F.cross_entropy(scores, wanted).backward()
            scores.detach().softmax(1).max(1)
    return trace.report


@healthy(nearly="TM608")
def letters_of_normalised_scores():
    """Normalised before the transpose, by hand, and less the logarithm of how frequent each letter is."""
    rnn, head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 6)
    letters, steps, lengths = torch.randint(1, 6, (3, 4)), (12,) * 3, (4,) * 3
    with tm.trace(namespace={"rnn": rnn, "head": head}) as trace:
        for _ in range(3):
            h, _ = rnn(torch.randn(3, 12, 4))
            F.ctc_loss(head(h).log_softmax(-1).transpose(0, 1).float(), letters, steps, lengths).backward()
            scores = head(rnn(torch.randn(3, 12, 4))[0].transpose(0, 1))
            F.ctc_loss(scores - scores.logsumexp(-1, keepdim=True), letters, steps, lengths).backward()
            rare = head(rnn(torch.randn(3, 12, 4))[0]).log_softmax(-1) - 0.3 * torch.full((6,), 1 / 6).log()
            F.ctc_loss(rare.permute(1, 0, 2), letters, steps, lengths).backward()
    return trace.report


@healthy(nearly="TM626")
def labels_that_are_missing_and_left_out():
    """By a mask of the losses, by weights of 0, and by an index; NaN marks them as well."""
    net, missing = nn.Linear(64, 10), -1.0
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            assays = F.one_hot(classes, 10).float()
            assays[::2, :4] = missing
            keep, out = assays != missing, net(images.flatten(1))
            each = F.binary_cross_entropy_with_logits(out, assays, reduction="none")
            (each * keep).sum().div(keep.sum()).backward()
            F.binary_cross_entropy_with_logits(net(images.flatten(1)), assays, weight=keep.float()).backward()
            F.binary_cross_entropy_with_logits(net(images.flatten(1))[keep], assays[keep]).backward()
            F.multilabel_soft_margin_loss(net(images.flatten(1)), assays.clamp(min=0)).backward()
    return trace.report


@healthy(nearly="TM626")
def positives_and_what_is_not_known():
    """A class of its own for each column: the first has positives and gaps alone, as no 0 in its first batches."""
    net = nn.Linear(64, 3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            out, keep = net(images.flatten(1)), classes > 2
            for at in range(3):
                wanted = torch.where(keep, 1.0 if at == 0 else (classes > 4 + at).float(), -1.0)
                each = F.binary_cross_entropy_with_logits(out[:, at], wanted, reduction="none")
                each[keep].mean().backward(retain_graph=True)
    return trace.report


@healthy(nearly="TM626")
def soft_noisy_and_smoothed_labels():
    """A discriminator's labels with noise (0.7 to 1.2), mixtures of two classes, and a mask scaled smoothly."""
    critic, net = nn.Linear(64, 1), nn.Conv2d(1, 1, 3, padding=1)
    with tm.trace(namespace={"critic": critic, "net": net}) as trace:
        for images, classes in batches(3):
            out = critic(images.flatten(1))
            F.binary_cross_entropy_with_logits(out, 0.7 + 0.5 * torch.rand(64, 1)).backward()
            share = torch.rand(64, 1)
            mixed = share * (classes[:, None] > 4) + (1 - share) * (classes.flip(0)[:, None] > 4)
            F.binary_cross_entropy_with_logits(critic(images.flatten(1)), mixed).backward()
            masks = F.interpolate((images > 0.5).float(), scale_factor=2, mode="bicubic")
            large = F.interpolate(net(images), scale_factor=2)
            F.binary_cross_entropy_with_logits(large, masks).backward()
    return trace.report


@healthy(nearly="TM626")
def a_focal_loss_by_hand():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted, out = F.one_hot(classes, 10).float(), net(images.flatten(1))
            each = F.binary_cross_entropy_with_logits(out, wanted, reduction="none")
            ((1 - (-each).exp()) ** 2 * each).mean().backward()
    return trace.report


@healthy(nearly="TM626")
def pairs_of_which_all_are_alike():
    """Targets of 1 alone, and a mask of the pairs that count; both signs with ties between."""
    net, score = nn.Linear(64, 16), nn.Linear(64, 1)
    with tm.trace(namespace={"net": net, "score": score}) as trace:
        for images, classes in batches(3):
            a, b = images.flatten(1), images.flatten(1).flip(0)
            F.cosine_embedding_loss(net(a), net(b), torch.ones(64)).backward()
            valid = (classes > 2).float()
            F.cosine_embedding_loss(net(a), net(b), valid).backward()
            order = (classes - classes.flip(0)).sign()[:, None]
            F.margin_ranking_loss(score(a), score(b), order, margin=0.1).backward()
    return trace.report


@healthy(nearly="TM626")
def ranks_with_ties_in_small_batches():
    """Two pairs at a time: the first batches have no pair of which the second is better."""
    score, better = nn.Linear(8, 1), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, -1.0, 1.0])
    with tm.trace(namespace={"score": score}) as trace:
        for order in better.view(-1, 2, 1):
            a, b = torch.randn(2, 8), torch.randn(2, 8)
            F.margin_ranking_loss(score(a), score(b), order, margin=0.1).backward()
    return trace.report


@healthy(nearly="TM626")
def labels_of_both_signs_where_they_belong():
    net = nn.Linear(64, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted = 2 * (classes[:, None] > 4).float() - 1
            F.soft_margin_loss(net(images.flatten(1)), wanted).backward()
            F.hinge_embedding_loss(net(images.flatten(1)).abs(), wanted).backward()
    return trace.report


@healthy(nearly="TM626")
def counts_and_what_is_left_of_them():
    """Counts of integers, and those less a background, which leaves a few a little below 0."""
    net = nn.Linear(64, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            F.poisson_nll_loss(net(images.flatten(1)), classes[:, None]).backward()
            F.poisson_nll_loss(net(images.flatten(1)), classes[:, None] - 0.4).backward()
    return trace.report


@healthy(nearly="TM626")
def a_distribution_that_is_to_please_a_fixed_network():
    """The target is what is trained: its expected loss under a network without a gradient; and its own entropy."""
    judge, net, gate = nn.Linear(64, 10).requires_grad_(False), nn.Linear(64, 10), nn.Linear(64, 1)
    with tm.trace(namespace={"net": net, "gate": gate}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1)
            F.cross_entropy(judge(x), net(x).softmax(1)).backward()
            F.binary_cross_entropy(judge(x)[:, :1].sigmoid(), gate(x).sigmoid()).backward()
            scores = net(x)
            F.cross_entropy(scores, scores.softmax(1)).backward()
            F.cross_entropy(torch.zeros(64, 10), net(x).softmax(1)).backward()
    return trace.report


@healthy(nearly="TM626")
def actions_weighted_by_how_good_they_were():
    """One-hot targets times an advantage, which may be negative; probabilities; several votes for a class."""
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            x, chosen = images.flatten(1), F.one_hot(classes, 10).float()
            F.cross_entropy(net(x), chosen * torch.randn(len(x), 1)).backward()
            F.cross_entropy(net(x), torch.randn(len(x), 10).softmax(1)).backward()
            F.cross_entropy(net(x), 0.9 * chosen + 0.01).backward()
            F.cross_entropy(net(x), 1 + 3 * chosen).backward()
    return trace.report


@healthy(nearly="TM626")
def a_student_and_its_teacher_that_both_learn():
    first, second = nn.Linear(64, 10), nn.Linear(64, 10)
    with tm.trace(namespace={"first": first, "second": second}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1)
            F.cross_entropy(first(x), second(x).softmax(1)).backward()
            F.cross_entropy(second(x), first(x).softmax(1).detach()).backward()
            F.binary_cross_entropy_with_logits(first(x), second(x).sigmoid().detach()).backward()
    return trace.report


@healthy(nearly="TM313", family="equilibrium propagation")
def energies_of_two_states():
    """What an energy has of the state alone is constant where the state is given: the other term learns."""
    w = torch.randn(4, 8, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)

    def energy(x, h):
        return 0.5 * (h**2).sum() - (x @ w * h).sum()

    with tm.trace(namespace={"w": w, "optimizer": optimizer}) as trace:
        for _ in range(6):
            x, h = torch.rand(16, 4), torch.rand(16, 8, requires_grad=True)
            for _ in range(4):
                (g,) = torch.autograd.grad(energy(x, h), h)
                h = (h - 0.3 * g).clamp(0, 1).detach().requires_grad_()
            nudged = (h + 0.1 * torch.randn(16, 8)).detach()
            optimizer.zero_grad()
            (energy(x, h.detach()) - energy(x, nudged)).backward()
            optimizer.step()
    return trace.report
