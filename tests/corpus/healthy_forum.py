"""What looks like the questions of `ill_forum`, and is right."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.ill_forum import CLASSES, X


@healthy(nearly="TM303")
def features_through_numpy_for_a_head_of_its_own():
    """Nobody trains the encoder."""
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 3)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with tm.trace(namespace={"encoder": encoder, "head": head, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            features = encoder(X).detach().numpy()
            F.cross_entropy(head(torch.from_numpy(np.tanh(features))), CLASSES).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM303")
def outputs_kept_for_a_plot():
    """The model learns; what it gives is looked at in NumPy after each step."""
    net, curve = nn.Linear(4, 3), []
    optimizer = torch.optim.Adam(net.parameters())
    with tm.trace(namespace={"net": net, "optimizer": optimizer}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            scores = net(X)
            F.cross_entropy(scores, CLASSES).backward()
            optimizer.step()
            curve.append(scores.detach().numpy().mean())
    return trace.report


@healthy(nearly="TM601")
def a_generator_that_waits_for_its_critic():
    """Its optimizer is called in every step, and has gradients in the last two."""
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    with tm.trace(namespace={"generator": generator, "critic": critic}) as trace:
        for step in range(6):
            of_critic.zero_grad()
            (critic(generator(X).detach()).mean() - critic(X).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            if step >= 4:
                (-critic(generator(X)).mean()).backward()
            of_generator.step()
    return trace.report
