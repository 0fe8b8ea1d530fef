"""Sessions that keep a good deal and are right to: nothing above a note may be said of them."""

from __future__ import annotations

from collections import deque

import torch
from torch import nn

import tensormagic as tm
from tests.corpus.cases import healthy
from tests.corpus.ill_kept import MIB, last_error, regression, runs, session

# -- nearly TM501, TM502 -------------------------------------------------------------------------------------------


@healthy(nearly="TM501")
def a_large_tensor_displayed_that_has_a_name():
    weights = torch.zeros(20, MIB)
    return tm.check(session({3: weights, 4: weights[2:]}, weights=weights))


@healthy(nearly="TM501")
def small_results_displayed():
    return tm.check(session({number: torch.zeros(MIB) for number in range(1, 9)}))


@healthy(nearly="TM501")
def a_view_displayed_of_what_a_model_holds():
    net = nn.Linear(1024, 5 * 1024)
    return tm.check(session({2: net.weight.detach()[:10], 5: net}, net=net))


def fails_with(batch):
    """Fails on the user's own batch."""
    small = batch[:1].clone()
    raise ValueError(f"no classes for {tuple(small.shape)}")


@healthy(nearly="TM502")
def an_error_about_a_batch_that_has_a_name():
    batch = torch.zeros(20, MIB // 4)
    with last_error(lambda: fails_with(batch)):
        return tm.check({"batch": batch})


def fails_over_a_weight(net):
    """Holds a parameter of the user's model."""
    weight = net.weight
    raise ValueError(f"weights of {tuple(weight.shape)} are too large")


@healthy(nearly="TM502")
def an_error_about_a_model_that_has_a_name():
    net = nn.Linear(1024, 5 * 1024)
    with last_error(lambda: fails_over_a_weight(net)):
        return tm.check({"net": net})


# -- nearly TM205 --------------------------------------------------------------------------------------------------


@healthy(nearly="TM205")
def rows_of_a_batch_that_has_a_name():
    batch = torch.zeros(20, MIB)
    return tm.check({"batch": batch, "row": batch[3], "others": [batch[0], batch[1]]})


@healthy(nearly="TM205")
def a_row_whose_whole_a_loader_holds():
    """In an iterator that somebody else wrote, into which nobody looks."""
    whole = torch.zeros(20, MIB)
    loader = iter([whole[1:], whole])
    return tm.check({"loader": loader, "row": whole[0]})


# -- nearly TM503 --------------------------------------------------------------------------------------------------


@healthy(nearly="TM503")
def numbers_in_a_list():
    net, x, y = regression()
    losses, total = [], 0.0
    for _ in range(6):
        loss = (net(x) - y).square().mean()
        losses.append(loss.item())
        total += loss.detach()
    return tm.check({"net": net, "losses": losses, "total": total, "loss": loss})


@healthy(nearly="TM503")
def a_forward_in_one_cell_whose_backward_comes_in_the_next():
    net, x, y = nn.Sequential(nn.Linear(4, 1024), nn.ReLU(), nn.Linear(1024, 1)), torch.randn(8192, 4), torch.zeros(1)
    out = net(x)
    losses = {"mse": (out - y).square().mean(), "l1": (out - y).abs().mean(), "max": out.max(), "min": out.min()}
    loss = losses["mse"] + losses["l1"] + losses["max"] - losses["min"]
    return tm.check({"net": net, "out": out, "losses": losses, "loss": loss, "x": x})


@healthy(nearly="TM503")
def the_states_of_a_recurrent_network():
    """One graph: every state was computed from the one before."""
    cell, state, states = nn.RNNCell(8, 256), torch.zeros(2048, 256), []
    for _ in range(12):
        state = cell(torch.randn(2048, 8), state)
        states.append(state)
    return tm.check({"cell": cell, "states": states})


@healthy(nearly="TM503")
def a_penalty_over_all_parameters():
    """Many terms in one sum, each about another parameter."""
    net = nn.Sequential(*(nn.Linear(512, 512) for _ in range(12)))
    penalty = sum(parameter.square().sum() for parameter in net.parameters())
    return tm.check({"net": net, "penalty": penalty})


# -- nearly TM504 --------------------------------------------------------------------------------------------------


@healthy(nearly="TM504")
def a_list_that_is_made_anew():
    names = {"images": torch.zeros(5, MIB)}

    def cell():
        names["features"] = [names["images"] * 2 for _ in range(3)]

    return runs(names, cell)


@healthy(nearly="TM504")
def a_queue_with_an_end():
    queue = deque(maxlen=3)
    return runs({"queue": queue}, lambda: queue.append(torch.zeros(5, MIB)), count=7)


@healthy(nearly="TM504")
def a_replay_memory_that_is_not_full_yet():
    """It grows with every run, up to the end that it was given."""
    memory = deque(maxlen=10_000)
    return runs({"memory": memory}, lambda: memory.append(torch.zeros(20, MIB)))


@healthy(nearly="TM504")
def numbers_of_every_run():
    history = {"loss": [], "accuracy": []}

    def cell():
        history["loss"].append(0.5)
        history["accuracy"].append(0.9)

    return runs({"history": history, "net": nn.Linear(64, 64)}, cell)
