"""Training that carries things over on purpose, and models of which parts are in eval mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.data import batches, mlp


@healthy(nearly="TM312")
def sequences_that_get_longer():
    """A curriculum: one step more in each batch, and with it as many nodes more."""
    cell, head = nn.RNNCell(3, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        for length in range(2, 9):
            hidden = torch.zeros(4, 8)
            for _ in range(length):
                hidden = cell(torch.randn(4, 3), hidden)
            optimizer.zero_grad()
            head(hidden).pow(2).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM312")
def truncated_backpropagation_through_time():
    """The state goes on, detached."""
    cell, head = nn.GRUCell(3, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    hidden = torch.zeros(4, 8)
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        for _ in range(7):
            hidden = cell(torch.randn(4, 3), hidden.detach())
            optimizer.zero_grad()
            head(hidden).pow(2).mean().backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM312")
def a_state_that_goes_on_detached_with_updates_by_hand():
    """Through ``.data``, weight decay too; what is counted is a number."""
    w, state, total = torch.zeros(3, requires_grad=True), torch.zeros(3), 0.0
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(8):
            state = 0.5 * state.detach() + torch.randn(3) * w
            loss = (state - 1).pow(2).sum()
            loss.backward()
            w.data.sub_(w.grad, alpha=0.01)
            w.data.mul_(0.999)
            w.grad.data.zero_()
            total += loss.item()
    return trace.report


@healthy(nearly="TM312")
def backward_at_each_step_of_a_sequence_and_one_update_by_hand():
    """The graph grows within a sequence, and the update comes at its end."""
    cell, head = nn.RNNCell(3, 8), nn.Linear(8, 1)
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        for _ in range(2):
            hidden = torch.zeros(4, 8)
            for _ in range(6):
                hidden = cell(torch.randn(4, 3), hidden)
                head(hidden).pow(2).mean().backward(retain_graph=True)
            for parameter in (*cell.parameters(), *head.parameters()):
                parameter.data.add_(parameter.grad, alpha=-0.01)
                parameter.grad = None
    return trace.report


@healthy(nearly="TM312")
def a_loss_at_each_step_of_a_sequence():
    """Backward at each time step, through all steps so far; one step of the optimizer at the end, and a new state."""
    cell, head = nn.RNNCell(3, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    with tm.trace(namespace={"cell": cell, "head": head}) as trace:
        for _ in range(2):
            hidden = torch.zeros(4, 8)
            optimizer.zero_grad()
            for _ in range(6):
                hidden = cell(torch.randn(4, 3), hidden)
                head(hidden).pow(2).mean().backward(retain_graph=True)
            optimizer.step()
    return trace.report


@healthy(nearly="TM312")
def the_sum_of_the_losses_of_one_batch():
    """Summed over the parts of a batch, and backward goes through the sum."""
    net = mlp(64, 16, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    history = 0.0
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(6, 16):
            total = torch.zeros(())
            for part in torch.arange(16).split(4):
                total = total + F.cross_entropy(net(images[part].flatten(1)), classes[part])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            history += total.item()
    return trace.report


@healthy(nearly="TM312")
def learning_to_learn_over_several_tasks():
    """The outer loss is summed over tasks, each with gradients of its own that keep their graph."""
    w = torch.zeros(3, requires_grad=True)
    meta = torch.optim.SGD([w], lr=0.01)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(2):
            outer = 0
            for _ in range(5):
                fast = w
                for _ in range(3):
                    (slope,) = torch.autograd.grad((fast @ torch.randn(3) - 1).pow(2), fast, create_graph=True)
                    fast = fast - 0.1 * slope
                outer = outer + (fast @ torch.randn(3) - 1).pow(2)
            meta.zero_grad()
            outer.backward()
            meta.step()
    return trace.report


def _backbone_and_head():
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    net = nn.Sequential(backbone, nn.Linear(144, 10))
    net(torch.rand(8, 1, 8, 8))  # its statistics are those of an earlier training
    return net


@healthy(nearly="TM606")
def the_normalisations_are_frozen():
    """Fine-tuning in small batches: train mode, but for the batch normalisations."""
    net = _backbone_and_head().train()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 8):
            optimizer.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606")
def a_new_head_on_a_frozen_backbone_in_eval_mode():
    """All of a loaded model is put into eval mode and frozen, then it gets a new head, which alone is trained."""
    net = _backbone_and_head()
    net.eval().requires_grad_(False)
    net[1] = nn.Linear(144, 10)
    optimizer = torch.optim.Adam([parameter for parameter in net.parameters() if parameter.requires_grad])
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 8):
            optimizer.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606")
def a_head_is_trained_and_the_rest_is_not_given_to_the_optimizer():
    """Nothing is frozen, and backward goes through everything: the optimizer holds the head alone."""
    net = _backbone_and_head().eval()
    optimizer = torch.optim.Adam(net[1].parameters())
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4, 8):
            net.zero_grad()
            F.cross_entropy(net(images), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606")
def evaluation_between_the_epochs():
    """eval() before, train() after it."""
    net = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net.train()
            for images, classes in batches(2, 16):
                optimizer.zero_grad()
                F.cross_entropy(net(images.flatten(1)), classes).backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                net(torch.rand(20, 64)).argmax(1)
    return trace.report


@healthy(nearly="TM606")
def an_image_is_optimised_through_a_fixed_network():
    """The network is in eval mode and gets gradients; the optimizer steps the image."""
    net = _backbone_and_head().eval().requires_grad_(False)
    image = torch.rand(1, 1, 8, 8, requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.1)
    with tm.trace(namespace={"net": net, "image": image}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            (-net(image)[0, 3]).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606")
def adversarial_examples_in_eval_mode():
    """The attack looks at the model in eval mode; its own training step is in train mode."""
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3, 16):
            x = images.flatten(1).requires_grad_()
            net.eval()
            (slope,) = torch.autograd.grad(F.cross_entropy(net(x), classes), x)
            net.train()
            optimizer.zero_grad()
            F.cross_entropy(net((x + 0.1 * slope.sign()).detach()), classes).backward()
            optimizer.step()
    return trace.report


@healthy(nearly="TM606")
def a_generator_draws_samples_now_and_then():
    """In train mode under no_grad: for its critic, which learns from them, and one grid of pictures to look at."""
    generator = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 64))
    critic = nn.Sequential(nn.Linear(64, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), 1e-4)
    optimizer_c = torch.optim.Adam(critic.parameters(), 1e-4)
    with tm.trace(namespace={"generator": generator, "critic": critic}) as trace:
        for images, _ in batches(4, 16):
            for _ in range(2):
                with torch.no_grad():
                    fake = generator(torch.randn(16, 8))
                critic.zero_grad()
                (critic(fake).mean() - critic(images.flatten(1)).mean()).backward()
                optimizer_c.step()
            generator.zero_grad()
            (-critic(generator(torch.randn(16, 8))).mean()).backward()
            optimizer_g.step()
            with torch.no_grad():
                generator(torch.zeros(16, 8)).clamp(-1, 1)
    return trace.report


@healthy(nearly="TM606")
def statistics_are_computed_anew_for_averaged_weights():
    """Stochastic weight averaging ends with a pass over the data in train mode, for the statistics alone."""
    net = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    averaged = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    data = [(images.flatten(1), classes) for images, classes in batches(4, 16)]
    with tm.trace(namespace={"net": net, "averaged": averaged}) as trace:
        for x, classes in data:
            optimizer.zero_grad()
            F.cross_entropy(net(x), classes).backward()
            optimizer.step()
            averaged.update_parameters(net)
        torch.optim.swa_utils.update_bn(data, averaged)
        torch.optim.swa_utils.update_bn(data, net)
    return trace.report


@healthy(nearly="TM606")
def pseudo_labels_in_train_mode():
    """The model's own answers are its targets: several batches under one no_grad, used in what follows."""
    net = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 16):
            x = images.flatten(1)
            with torch.no_grad():
                targets = sum(net(x + 0.1 * torch.randn_like(x)).softmax(-1) for _ in range(4)) / 4
            optimizer.zero_grad()
            F.cross_entropy(net(x), targets).backward()
            optimizer.step()
    return trace.report
