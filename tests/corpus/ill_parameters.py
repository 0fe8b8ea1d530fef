"""Training code in which a parameter gets no gradient (TM601), each for another reason."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy, ill
from tests.corpus.data import batches, train_classifier


class Unused(nn.Module):
    """Owns a scale that forward forgets."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        return self.body(x)


@ill("TM601", subject="net.scale", line="loss.backward()", says=(
    "net.scale gets no gradient in 6 backward passes", "1 of the 3 parameters of net"))  # fmt: skip
def parameter_that_forward_forgets():
    net = Unused()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Cut(nn.Module):
    """Detaches one of its two paths; ``how`` says by what means."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.left, self.right = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x):
        return self.left(x) + self.how(self.right(x))


@ill("TM601", subject="net.right.weight", says=("net.right gets", "cut off at `.detach()`"),
     related=(".detach().numpy()",))  # fmt: skip
def a_path_cut_by_rounding_through_numpy():
    net = Cut(lambda values: torch.from_numpy(values.detach().numpy().round()))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class Branching(nn.Module):
    """Takes a branch that the data never ask for."""

    def __init__(self):
        super().__init__()
        self.usual, self.rare = nn.Linear(64, 10), nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.rare(x) if x.mean() < 0 else self.usual(x)


@ill("TM601", subject="net.rare.0.weight", says=("net.rare gets no gradient", "4 of the 6 parameters of net"))
def a_branch_not_taken():
    net = Branching()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


class TwoHeads(nn.Module):
    """A second head that nobody calls."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(64, 32), nn.Linear(32, 10), nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


@ill("TM601", subject="net.spare.weight", says=("net.spare gets no gradient",))
def a_second_head_never_called():
    net = TwoHeads()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM601", subject="TwoHeads.spare.weight", line="F.cross_entropy(net(images.flatten(1)), classes).backward()",
     says=("TwoHeads.spare gets no gradient in 1 backward pass:",))  # fmt: skip
def a_model_without_a_name():
    """The model lives inside a function: it is called by its class."""
    net = TwoHeads()
    with tm.trace(namespace={}) as trace:
        for images, classes in batches(1):
            F.cross_entropy(net(images.flatten(1)), classes).backward()
    return trace.report


@ill("TM601", severity="note", subject="scores.weight", line="loss.backward()", says=(
    "scores gets no gradient in 5 backward passes", "(all of its parameters)",
))  # fmt: skip
def a_task_whose_loss_is_overwritten():
    """The second loss has the name of the first."""
    body, scores, age = nn.Linear(64, 16), nn.Linear(16, 10), nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *scores.parameters(), *age.parameters()])
    with tm.trace(namespace={"body": body, "scores": scores, "age": age, "optimizer": optimizer}) as trace:
        for images, classes in batches(5):
            hidden = body(images.flatten(1)).relu()
            loss = F.cross_entropy(scores(hidden), classes)
            loss = F.mse_loss(age(hidden).squeeze(1), classes.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM601", says=("net.stem, net.right", "parameters of net"))
def embeddings_that_are_never_looked_up():
    """Several modules at once."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.right, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(64, 10)
            self.table = nn.Embedding(10, 4)

        def forward(self, x):
            return self.head(x)

    net = Net()
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True)
    return trace.report


@ill("TM601", severity="note", subject="net.experts.2.weight", says=("A router may never have chosen it",))
def an_expert_that_its_router_never_chooses():
    """Others are chosen now and then: which, the data say."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.experts[int(x.mean() > 0)](x))

    net = Experts()
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for step in range(6):
            loss = F.cross_entropy(net(torch.randn(8, 4).abs() * (-1) ** step), torch.arange(8) % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM602", severity="note", subject="log_vars", line="optimizer.step()", says=(
    "log_vars gets gradients in every step, but it is in no optimizer", '({"params": [log_vars]'))  # fmt: skip
def weights_of_losses_that_nothing_learns():
    """They are a plain leaf, and the optimizer was given those of the model alone."""
    net, log_vars = nn.Linear(6, 4), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with tm.trace(namespace={"net": net, "log_vars": log_vars}) as trace:
        for _ in range(5):
            first, second = net(torch.randn(32, 6)).split(2, 1)
            losses = torch.stack([F.mse_loss(first, torch.randn(32, 2)), second.square().mean()])
            loss = ((-log_vars).exp() * losses + log_vars).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM606", severity="note", subject="net", says=("net is trained in eval mode",))
def biases_of_a_frozen_network_in_eval_mode():
    """Dropout is off on purpose, it may be: nearly all of the weights are frozen."""
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2)).eval()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    optimizer = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=1e-2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            loss = F.cross_entropy(net(torch.randn(8, 8)), torch.arange(8) % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM602")
def points_of_an_equation_with_derivatives():
    """The points ask for gradients, because the equation has derivatives by them; nobody trains them."""
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    t, x = torch.rand(32, 1, requires_grad=True), torch.rand(32, 1, requires_grad=True)
    with tm.trace(namespace={"net": net, "t": t, "x": x}) as trace:
        for _ in range(5):
            u = net(torch.cat([t, x], 1))
            u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
            loss = (u_t + x * u_x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report
