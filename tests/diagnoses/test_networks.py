"""TM316, TM408, TM620 to TM623: what the corpus does not show of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.diagnoses import diagnose
from tensormagic.reports import StateLoad, Training
from tests.diagnoses.samples import run


def codes(report):
    return [(found.code, found.severity) for found in report.findings]


def test_a_loop_whose_rounds_are_not_known_gives_a_note():
    """A ``while`` may go round once."""
    net, data, more = nn.Linear(4, 1), iter([torch.ones(2, 4)] * 3), [1, 1]
    with tm.trace(namespace={"net": net}) as trace:
        while more:
            for x in data:
                net(x).sum().backward()
            more.pop()
    assert codes(trace.report) == [("TM620", "note")]


def test_an_iterator_in_a_loop_of_one_round_is_left_alone():
    net, data = nn.Linear(4, 1), iter([torch.ones(2, 4)] * 3)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(1):
            for x in data:
                net(x).sum().backward()
    assert codes(trace.report) == []


def test_a_loop_in_a_function_that_is_called_with_new_iterators_is_left_alone():
    net = nn.Linear(4, 1)

    def epoch(data):
        for x in data:
            net(x).sum().backward()

    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            epoch(iter([torch.ones(2, 4)]))
    assert codes(trace.report) == []


def test_a_load_is_seen_without_any_training_and_nothing_stays_replaced():
    answer = nn.modules.module._IncompatibleKeys
    net = nn.Linear(4, 1)
    with tm.trace(namespace={"net": net}) as trace:
        result = net.load_state_dict({"model.weight": torch.ones(1, 4)}, strict=False)
        with pytest.raises(RuntimeError, match="Missing key"):
            net.load_state_dict({})
    assert type(result) is answer
    assert nn.modules.module._IncompatibleKeys is answer
    assert codes(trace.report) == [("TM621", "warning")]


@pytest.mark.parametrize(("unexpected", "expected"), [(4, "warning"), (2, "note"), (1, "")])
def test_a_load_is_told_by_how_much_of_it_fits(unexpected, expected):
    load = StateLoad(location=0, module="net", given=4, unexpected=unexpected, missing=3, example="a", wanted="b")
    found = diagnose(replace(run(), training=Training(loads=(load,))))
    assert [one.severity for one in found if one.code == "TM621"] == [expected] * bool(expected)


def test_weights_that_move_apart_again_are_left_alone():
    """Two equal units, and noise on one of them before the third step."""
    net = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1))
    nn.init.constant_(net[0].weight, 0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.rand(8, 4)).sum().backward()
            optimizer.step()
    assert "TM408" not in [code for code, _ in codes(trace.report)]
