"""What people ask about in forums, written afresh: one program a question, whatever the code."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.refusals import refused

X, CLASSES = torch.linspace(-1, 1, 32).reshape(8, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


@ill("TM303", severity="warning", subject="encoder.weight", line="features = encoder(X).detach().numpy()",
     says=("encoder gets no gradient in 4 backward passes, although an optimizer holds it", "is cut at `.numpy()`",
           "stay in torch"))  # fmt: skip
def features_that_go_through_numpy():
    """Why does my encoder not learn? NumPy has a tanh, too."""
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    with tm.trace(namespace={"encoder": encoder, "head": head, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            features = encoder(X).detach().numpy()
            scores = head(torch.from_numpy(np.tanh(features)))
            F.cross_entropy(scores, CLASSES).backward()
            optimizer.step()
    return trace.report


@ill("TM601", severity="warning", subject="base", line="optimizer.step()",
     says=("optimizer makes 4 steps, but no parameter of base has a gradient at any", "`nn.Parameter(x)`"))  # fmt: skip
def a_weight_that_is_made_a_parameter_in_every_step():
    """The scaled weight is to stay a Parameter, and becomes a leaf of its own."""
    base = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(base.parameters())
    with tm.trace(namespace={"base": base, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            scaled = nn.Parameter(base.weight * 0.5)
            F.cross_entropy(X @ scaled.t(), CLASSES).backward()
            optimizer.step()
    return trace.report


@ill("TM303", severity="warning", subject="net.weight", line="hits = (torch.sigmoid(net(X)) > 0.5).float()",
     says=("`>` made the tensor that backward starts from", "binary_cross_entropy_with_logits"))  # fmt: skip
def accuracy_as_a_loss():
    """requires_grad_() was added until the error went away."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            hits = (torch.sigmoid(net(X)) > 0.5).float()
            loss = (hits.squeeze(1) - (CLASSES > 0).float()).square().mean()
            loss.requires_grad_(True)
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM608", severity="warning", line="loss = nn.CrossEntropyLoss()(net(X), F.one_hot(CLASSES, 3).float())",
     says=("cross_entropy applies softmax itself",))  # fmt: skip
def one_hot_targets_after_a_softmax():
    """As in Keras: a softmax at the end, and targets that are one-hot."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(net(X), F.one_hot(CLASSES, 3).float())
            loss.backward()
            optimizer.step()
    return trace.report


@ill(
    "TM604", severity="error", subject="optimizer", says=("2 parameters of net get gradients and are in no optimizer",)
)
def parameters_made_double_one_by_one():
    """After the optimizer, each by a new Parameter; net.double() would have kept them."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters())
    net.weight, net.bias = nn.Parameter(net.weight.double()), nn.Parameter(net.bias.double())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(5):
            optimizer.zero_grad()
            net(X.double()).square().mean().backward()
            optimizer.step()
    return trace.report


@ill("TM401", severity="warning", line="divergence = -0.5 * (1 + torch.log(sigma)", says=("negative numbers",))
def a_standard_deviation_without_exp():
    """A variational autoencoder whose layer gives sigma itself."""
    sigma_of = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(sigma_of.parameters())
    with tm.trace(namespace={"sigma_of": sigma_of}) as trace:
        for _ in range(3):
            sigma = sigma_of(X)
            divergence = -0.5 * (1 + torch.log(sigma) - sigma).mean()
            optimizer.zero_grad()
            divergence.backward()
            optimizer.step()
    return trace.report


@ill("TM804", severity="error", says=("are dimension 0", "`picture.permute(2, 0, 1)`"))
def a_picture_as_it_was_loaded():
    """Height, width, channels: as PIL and OpenCV give it."""
    conv, picture = nn.Conv2d(3, 8, 3), torch.rand(32, 32, 3)
    return refused(lambda: conv(picture), conv=conv, picture=picture)


@ill("TM804", severity="error", says=("at least two values for each channel", "drop_last=True"))
def a_last_batch_of_one():
    net, row = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), X[:1]
    return refused(lambda: net(row), net=net, row=row)


@ill("TM301", severity="error", line="out += X", says=("`out = out + X`",))
def a_residual_added_onto_a_saved_result():
    """After an in-place ReLU, whose result is saved."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    relu = nn.ReLU(inplace=True)

    def train():
        out = relu(torch.sigmoid(first(X)))
        out += X
        second(out).sum().backward()

    return refused(train, first=first, second=second)


@ill("TM304", severity="error", says=("`h = h.detach()`",))
def hidden_states_over_batches():
    """Trying to backward through the graph a second time."""
    rnn, head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def train():
        h = None
        for _ in range(2):
            out, h = rnn(X.view(2, 4, 4), h)
            head(out[:, -1]).square().mean().backward()

    return refused(train, rnn=rnn, head=head)
