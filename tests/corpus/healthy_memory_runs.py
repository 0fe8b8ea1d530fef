"""Runs after which a good deal is alive, as it should be: nothing above a note may be said of them."""

from __future__ import annotations

import copy
from collections import deque

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.ill_kept import MIB, regression
from tests.corpus.ill_memory_runs import step, wide

# -- nearly TM503 --------------------------------------------------------------------------------------------------


@healthy(nearly="TM503")
def numbers_of_every_step_in_a_run():
    net, x, y = regression()
    optimizer = torch.optim.Adam(net.parameters())
    losses, total = [], 0.0
    with tm.track_memory() as run:
        for _ in range(12):
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            total += loss.detach()
    return run.report


@healthy(nearly="TM503")
def an_episode_whose_log_probabilities_wait_for_the_return():
    """What policy gradients do: the graphs are used in the end, and the list is emptied."""
    policy, saved_log_probs = nn.Linear(512, 2048), []
    with tm.track_memory() as run:
        for _ in range(12):
            logits = policy(torch.randn(256, 512)).tanh()
            saved_log_probs.append(logits.log_softmax(-1)[:, 0])
    torch.stack(saved_log_probs).sum().backward()
    saved_log_probs.clear()
    return run.report


@healthy(nearly="TM503")
def a_recurrent_network_over_a_whole_sequence():
    """One graph over all steps, for one backward that comes in the next cell."""
    cell, state, outputs = nn.GRUCell(8, 128), torch.zeros(512, 128), []
    with tm.track_memory() as run:
        for _ in range(12):
            state = cell(torch.randn(512, 8), state)
            outputs.append(state)
    return run.report


@healthy(nearly="TM503")
def truncated_backpropagation_in_a_run():
    cell, state = nn.RNNCell(8, 256), torch.zeros(1024, 256)
    with tm.track_memory() as run:
        for _ in range(8):
            state = cell(torch.randn(1024, 8), state.detach())
            state.square().mean().backward()
    return run.report


@healthy(nearly="TM503")
def gradients_that_are_accumulated():
    net, x, y = regression()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with tm.track_memory() as run:
        for number in range(12):
            loss = (net(x) - y).square().mean() / 4
            loss.backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    return run.report


# -- nearly TM504 --------------------------------------------------------------------------------------------------


@healthy(nearly="TM504")
def a_data_set_that_is_made_before_the_training():
    net, optimizer, _, y = wide()
    with tm.track_memory() as run:
        batches = [torch.randn(2048, 1024) for _ in range(10)]
        for batch in batches:
            step(net, optimizer, batch[:, :2], y)
    return run.report


@healthy(nearly="TM504")
def a_list_of_batches_and_nothing_else():
    """Nothing tells it from the layers of a network."""
    with tm.track_memory() as run:
        batches = [torch.zeros(MIB * 8) for _ in range(10)]
    assert len(batches) == 10
    return run.report


@healthy(nearly="TM504")
def the_last_outputs_in_a_queue():
    net, optimizer, x, y = wide()
    latest = deque(maxlen=64)
    with tm.track_memory() as run:
        for _ in range(12):
            latest.append(step(net, optimizer, x, y))
    return run.report


@healthy(nearly="TM504")
def a_replay_memory_that_forgets():
    net, optimizer, x, y = wide()
    replayed = []
    with tm.track_memory() as run:
        for _ in range(12):
            replayed.append(step(net, optimizer, x, y))
            if len(replayed) > 100:
                replayed.pop(0)
    return run.report


@healthy(nearly="TM504")
def results_into_a_tensor_of_full_size():
    net, optimizer, x, y = wide()
    with tm.track_memory() as run:
        results = torch.empty(10, 2048, 1024)
        for number in range(10):
            results[number] = step(net, optimizer, x, y)
    return run.report


@healthy(nearly="TM504")
def an_average_of_weights_and_the_best_ones():
    net = nn.Linear(1024, 1024)
    optimizer, x, y = torch.optim.Adam(net.parameters()), torch.randn(4, 1024), torch.zeros(4, 1024)
    with tm.track_memory() as run:
        averaged = copy.deepcopy(net)
        for number in range(10):
            step(net, optimizer, x, y)
            with torch.no_grad():
                for mine, other in zip(averaged.parameters(), net.parameters(), strict=True):
                    mine.lerp_(other, 0.1)
            if number % 3 == 0:
                best = {name: value.clone() for name, value in net.state_dict().items()}
    assert best
    return run.report


@healthy(nearly="TM504")
def keys_and_values_of_a_generation():
    """The cache grows with every token: that is what it is for."""
    layers = [nn.Linear(64, 192) for _ in range(3)]
    keys = [torch.zeros(1, 0, 64) for _ in layers]
    values = [torch.zeros(1, 0, 64) for _ in layers]
    with torch.no_grad(), tm.track_memory() as run:
        token = torch.randn(1, 1, 64)
        for _ in range(12):
            for number, layer in enumerate(layers):
                query, key, value = layer(token).chunk(3, -1)
                keys[number] = torch.cat([keys[number], key], 1)
                values[number] = torch.cat([values[number], value], 1)
                attention = (query @ keys[number].mT).softmax(-1)
                token = attention @ values[number]
    return run.report


@healthy(nearly="TM504")
def the_activations_of_one_forward():
    """A dozen layers are no iterations."""
    net = nn.Sequential(*(nn.Linear(512, 512) for _ in range(12)))
    activations = {}
    for name, layer in net.named_children():
        layer.register_forward_hook(
            lambda _module, _inputs, output, name=name: activations.__setitem__(name, output.detach())
        )
    with tm.track_memory() as run:
        net(torch.randn(4096, 512)).mean().backward()
    return run.report


@healthy(nearly="TM504")
def networks_that_are_trained_one_after_the_other():
    """An ensemble: parameters stay."""
    x, y = torch.randn(4, 1024), torch.zeros(4, 2048)
    ensemble = []
    with tm.track_memory() as run:
        for _ in range(6):
            net = nn.Linear(1024, 2048)
            optimizer = torch.optim.Adam(net.parameters())
            for _ in range(2):
                step(net, optimizer, x, y)
            ensemble.append(net)
    return run.report


@healthy(nearly="TM504")
def a_snapshot_an_epoch():
    """One in eight steps: a user who keeps checkpoints."""
    net = nn.Linear(1024, 1024)
    optimizer, x, y = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(4, 1024), torch.zeros(4, 1024)
    checkpoints = []
    with tm.track_memory() as run:
        for number in range(48):
            step(net, optimizer, x, y)
            if number % 8 == 7:
                checkpoints.append(copy.deepcopy(net.state_dict()))
    return run.report


@healthy(nearly="TM504")
def a_ring_of_the_last_outputs():
    """A list of fixed length: the oldest is overwritten."""
    net, optimizer, x, y = wide()
    ring = [None] * 9
    with tm.track_memory() as run:
        for number in range(30):
            ring[number % 9] = step(net, optimizer, x, y)
    return run.report


@healthy(nearly="TM504")
def a_queue_of_keys_that_is_cut_to_its_length():
    """As contrastive learning has it; not full yet."""
    net, optimizer, x, y = wide()
    queue = torch.zeros(0, 1024)
    with tm.track_memory() as run:
        for _ in range(9):
            queue = torch.cat([queue, step(net, optimizer, x, y)])[-65536:]
    return run.report


@healthy(nearly="TM503")
def adapted_weights_whose_graph_is_used():
    """The inner loop of meta-learning keeps its graph until the outer backward."""
    weight = torch.randn(512, 512, requires_grad=True)
    x, y = torch.randn(1024, 512), torch.zeros(1024, 512)
    with tm.track_memory() as run:
        fast = weight
        for _ in range(6):
            (slope,) = torch.autograd.grad(nn.functional.mse_loss(x @ fast, y), fast, create_graph=True)
            fast = fast - 0.1 * slope
        nn.functional.mse_loss(x @ fast, y).backward()
    return run.report
