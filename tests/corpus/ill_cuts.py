"""Training code in which a cut keeps something from learning (TM303), each by another call."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, train_classifier


class TwoPaths(nn.Module):
    """Cuts one of its two paths; ``how`` says by what means."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.left, self.right = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x):
        return self.left(x) + self.how(self.right(x))


BCE, ONES = F.binary_cross_entropy_with_logits, torch.ones(32, 1)


@ill("TM303", severity="warning", line="loss = BCE(dis(fake.detach()), ONES)", says=("`loss = BCE(dis(fake), ONES)`",))
def a_generator_whose_own_loss_is_detached_too():
    """The critic's loss has to be; the step that changes nothing is that after the other."""
    gen, dis = nn.Linear(8, 64), nn.Linear(64, 1)
    og, od = torch.optim.Adam(gen.parameters()), torch.optim.Adam(dis.parameters())
    with tm.trace(namespace=locals()) as trace:
        for images, _ in batches(3, 32):
            fake = gen(torch.randn(32, 8))
            od.zero_grad()
            loss = BCE(dis(images.flatten(1)), ONES) + BCE(dis(fake.detach()), 1 - ONES)
            loss.backward()
            od.step()
            og.zero_grad()
            loss = BCE(dis(fake.detach()), ONES)
            loss.backward()
            og.step()
    return trace.report


@ill("TM303", severity="warning", subject="net.right.weight", line=".detach()", related=("self.right(x)",),
     says=("net.right gets no gradient in 6 backward passes", "2 of the 4 parameters of net"))  # fmt: skip
def a_path_cut_by_detach():
    net = TwoPaths(lambda values: values.detach())
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM303", subject="net.right.weight", line="argmax(1)", says=("`.argmax()`", "F.gumbel_softmax"))
def a_hard_choice_by_argmax():
    net = TwoPaths(lambda values: F.one_hot(values.argmax(1), 10).float())
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Autoencoder(nn.Module):
    """Its encoder was copied from a script that only evaluates."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    @torch.no_grad()
    def encode(self, x):
        return self.encoder(x)

    def forward(self, x):
        return self.decoder(self.encode(x))


@ill("TM303", severity="warning", subject="model.encoder.0.weight", line="self.encode(x)",
     says=("model.encoder gets no gradient in 4 backward passes", "`torch.no_grad()`", "decorator"))  # fmt: skip
def a_decorator_left_on_the_encoder():
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tm.trace(namespace={"model": model}) as trace:
        for images, _ in batches(4):
            x = images.flatten(1)
            loss = F.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="encoder.weight", line="encoder(images.flatten(1)).detach()",
     says=("encoder gets no gradient", "leave out `.detach()`: `z = encoder(images.flatten(1))`"))  # fmt: skip
def two_models_in_one_optimizer_with_a_detach_between():
    encoder, classifier = nn.Linear(64, 16), nn.Linear(16, 10)
    optimizer = torch.optim.SGD([*encoder.parameters(), *classifier.parameters()], lr=0.1)
    with tm.trace(namespace={"encoder": encoder, "classifier": classifier}) as trace:
        for images, classes in batches(4):
            z = encoder(images.flatten(1)).detach()
            loss = F.cross_entropy(classifier(z.relu()), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="net.weight", line="loss.item()", says=(
    "net gets no gradient in 3 backward passes", "made the tensor that backward starts from",
     "If it should learn, remove this line."))  # fmt: skip
def a_loss_made_anew_so_that_backward_does_not_complain():
    """The answer that forums warn of: the error is gone, and so is the learning."""
    net = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            loss = F.cross_entropy(net(images.flatten(1)), classes)
            loss = torch.tensor(loss.item(), requires_grad=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill(
    "TM303",
    severity="warning",
    subject="net.weight",
    line="argmax(1) != classes",
    says=("net gets no gradient", "argmax"),
)
def an_error_rate_as_a_loss_told_to_require_grad():
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(2):
            loss = (net(images.flatten(1)).argmax(1) != classes).float().mean()
            loss.requires_grad_()
            loss.backward()
    return trace.report


@ill("TM303", severity="warning", subject="log_variances", line=".item()",
     says=("log_variances gets no gradient", "`weights = [torch.exp(-value) for value in log_variances]`"))  # fmt: skip
def learned_loss_weights_read_with_item():
    """Weighting two losses by their uncertainty: the weights never move."""
    net, log_variances = nn.Linear(64, 11), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*net.parameters(), log_variances], lr=1e-3)
    with tm.trace(namespace={"net": net, "log_variances": log_variances}) as trace:
        for images, classes in batches(3):
            found = net(images.flatten(1))
            losses = F.cross_entropy(found[:, :10], classes), F.mse_loss(found[:, 10], images.mean((1, 2, 3)))
            weights = [torch.exp(-value).item() for value in log_variances]
            total = weights[0] * losses[0] + weights[1] * losses[1]
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    return trace.report


class Gated(nn.Module):
    """Lets a gate choose the samples that an expert sees."""

    def __init__(self):
        super().__init__()
        self.gate, self.expert = nn.Linear(64, 1), nn.Linear(64, 10)

    def forward(self, x):
        chosen = self.gate(x).squeeze(1) > 0
        return self.expert(x[chosen]), chosen


@ill("TM303", severity="warning", subject="net.gate.weight", line="> 0", says=("net.gate gets no gradient", "`>`"))
def a_gate_that_only_chooses():
    """A threshold has no slope: the gate stays what it was."""
    net = Gated()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            scores, chosen = net(images.flatten(1))
            logits = torch.zeros(len(images), 10).index_put((chosen,), scores)
            loss = F.cross_entropy(logits, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill(
    "TM303",
    severity="warning",
    subject="delta",
    also=("TM604",),
    line=".data",
    says=("delta gets no gradient", "leave out `.data`"),
)
def a_perturbation_added_through_data():
    """An adversarial perturbation that is to be learned, added the way old code clamps images."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    delta = torch.zeros(1, 1, 8, 8, requires_grad=True)
    optimizer = torch.optim.SGD([delta], lr=0.1)
    with tm.trace(namespace={"net": net, "delta": delta}) as trace:
        for images, classes in batches(3):
            loss = -F.cross_entropy(net((images + delta).data.clamp(0, 1)), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


class Remembering(nn.Module):
    """Collects the outputs of a cell in a tensor made beforehand, each detached."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(8, 16), nn.Linear(16, 10)

    def forward(self, rows):
        state, kept = torch.zeros(len(rows[0]), 16), torch.zeros(len(rows), len(rows[0]), 16)
        for at, row in enumerate(rows):
            state = self.cell(row, state)
            kept[at] = state.detach()
        return self.head(kept.mean(0))


@ill(
    "TM303",
    severity="warning",
    subject="net.cell.weight_ih",
    line="state.detach()",
    says=("net.cell gets no gradient",),
)
def states_written_detached_into_a_buffer():
    net = Remembering()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(2, size=8):
            loss = F.cross_entropy(net(images.squeeze(1).transpose(0, 1)), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="w", line="w.detach()", says=("w gets no gradient in 1 backward pass",))
def a_plain_leaf_detached_on_the_way():
    x, w, b = torch.rand(4), torch.rand(4, requires_grad=True), torch.zeros(1, requires_grad=True)
    with tm.trace(namespace={"x": x, "w": w, "b": b}) as trace:
        y = (w.detach() * x).sum() + b
        y.backward()
    return trace.report


@ill("TM303", severity="warning", line="out = torch.tensor(out, requires_grad=True)", says=("remove this line",))
def outputs_made_anew_so_that_they_are_leaves():
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            out = net(torch.randn(8, 4))
            out = torch.tensor(out, requires_grad=True)
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="policy.0.weight", line="torch.tensor(",
     says=("policy gets no gradient", "copies values without their history"))  # fmt: skip
def losses_collected_in_a_new_tensor():
    """Policy gradients as often seen: the list of losses goes through torch.tensor."""
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    with tm.trace(namespace={"policy": policy}) as trace:
        for _ in range(2):
            losses = []
            for state in torch.randn(5, 4):
                spread = torch.distributions.Categorical(logits=policy(state))
                losses.append(-spread.log_prob(spread.sample()) * 0.7)
            loss = torch.tensor(losses, requires_grad=True).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="net.weight", line="hits = (net(x) == 0).float()",
     says=("`==` cuts it off", "use a distance"))  # fmt: skip
def features_that_count_what_is_equal():
    """``==`` reaches torch under a name of its own, unlike ``>``."""
    net, head = nn.Linear(8, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"net": net, "head": head}) as trace:
        for _ in range(3):
            x = torch.randn(16, 8)
            hits = (net(x) == 0).float()
            optimizer.zero_grad()
            (head(hits) - 1).square().mean().backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="net.weight", line="ranks = net(x)", says=("`.argsort()`", "soft rank"))
def ranks_in_place_of_scores():
    net, head = nn.Linear(8, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"net": net, "head": head}) as trace:
        for _ in range(3):
            x = torch.randn(16, 8)
            ranks = net(x).argsort(dim=1).float()
            optimizer.zero_grad()
            (head(ranks) - 1).square().mean().backward()
            optimizer.step()
    return trace.report


class Tagger(nn.Module):
    """Looks its words up in an array, or in lists."""

    def __init__(self, lists=False):
        super().__init__()
        self.emb, self.fc, self.lists = nn.Embedding(20, 8), nn.Linear(8, 3), lists

    def forward(self, ids):
        if self.lists:
            rows = self.emb.weight.tolist()
            return self.fc(torch.tensor([rows[i] for i in ids]))
        table = self.emb.weight.detach().numpy()
        return self.fc(torch.from_numpy(np.stack([table[i] for i in ids])))


def _tagged(lists):
    model, ids = Tagger(lists), [1, 5, 5, 0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with tm.trace(namespace={"model": model, "optimizer": optimizer}) as trace:
        for _ in range(4):
            loss = F.cross_entropy(model(ids), torch.tensor([0, 1, 2, 0]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="model.emb.weight", line="table = self.emb.weight.detach().numpy()", says=(
    "although an optimizer holds it", "in forward, its values leave torch at `.numpy()`", "stay in torch"))  # fmt: skip
def word_vectors_looked_up_in_an_array():
    """The rest of the model learns; the rows come back as a new array, in which nothing tells where they are from."""
    return _tagged(lists=False)


@ill("TM303", severity="warning", subject="model.emb.weight", line="rows = self.emb.weight.tolist()", says=(
    "its values leave torch at `.tolist()`",))  # fmt: skip
def word_vectors_looked_up_in_lists():
    return _tagged(lists=True)
