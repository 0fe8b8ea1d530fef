"""Who keeps what a run left alive: real containers, sums and graphs."""

from __future__ import annotations

import weakref
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tensormagic.collectors.memory_runs.leaks import find_holders

HERE = (__file__,)


def keys(*tensors: torch.Tensor) -> list[int]:
    """Return the identities of storages."""
    return [x.untyped_storage()._cdata for x in tensors]


def holds_of(tensors, **names):
    """Return who keeps each of some tensors."""
    wanted = keys(*tensors)
    found = find_holders(set(wanted), names, HERE)
    assert found.complete
    return [found.holds.get(key) for key in wanted]


def test_items_of_a_list():
    """The list has a name, the line that fills it, and numbered items."""
    outputs = []
    for _ in range(3):
        outputs.append(torch.zeros(4))  # noqa: PERF401
    holds = holds_of(outputs, outputs=outputs)
    assert [(hold.name, hold.item, hold.form, hold.graph, hold.ends) for hold in holds] == [
        ("outputs", f"[{at}]", "items", False, False) for at in range(3)
    ]
    assert {hold.location.text for hold in holds} == {"outputs.append(torch.zeros(4))  # noqa: PERF401"}


def test_items_of_items_count_to_the_outermost_number():
    """A list of dictionaries is one list."""
    steps = [{"x": torch.zeros(4), "y": torch.ones(4)} for _ in range(2)]
    holds = holds_of([steps[1]["y"], steps[0]["x"]], epoch=SimpleNamespace(steps=steps))
    assert [(hold.name, hold.item) for hold in holds] == [("epoch.steps", "[1]"), ("epoch.steps", "[0]")]


def test_an_item_that_has_a_name_of_its_own_is_one_of_many_all_the_same():
    """The last one is still the variable of the loop."""
    kept = [torch.zeros(4) for _ in range(3)]
    (hold,) = holds_of([kept[2]], latest=kept[2], kept=kept)
    assert (hold.name, hold.item) == ("kept", "[2]")


def test_queues_with_an_end_and_lists_that_are_emptied():
    """None of them grows for ever."""
    recent, nested = deque([torch.zeros(4)], maxlen=9), {"a": deque([[torch.zeros(4)]], maxlen=9)}
    replayed = [torch.zeros(4), torch.zeros(4)]
    replayed.pop(0)
    tensors = [recent[0], nested["a"][0][0], replayed[0]]
    holds = holds_of(tensors, recent=recent, nested=nested, replayed=replayed)
    assert [hold.ends for hold in holds] == [True, True, True]


def test_a_tensor_grows_only_where_a_line_joins_it_to_itself():
    """Any other tensor is one tensor."""
    joined, single = torch.zeros(1), torch.zeros(1)
    joined = torch.cat([joined, torch.ones(1)])
    grown, ended = holds_of([joined, single], joined=joined, single=single)
    assert (grown.name, grown.form, grown.ends) == ("joined", "joined", False)
    assert grown.location.text == "joined = torch.cat([joined, torch.ones(1)])"
    assert ended.ends


def activations_of(results):
    """Return what the exponential saved in the graph of each result."""
    return [result.grad_fn.next_functions[0][0]._saved_result for result in results]


def test_graphs_of_stored_losses():
    """Each loss has a graph of its own, which keeps an activation."""
    w = torch.ones(4, requires_grad=True)
    val_losses = []
    for _ in range(5):
        val_losses.append((w * 2).exp().sum())  # noqa: PERF401
    saved = activations_of(val_losses)
    holds = holds_of(saved, val_losses=val_losses, w=w)
    assert {(hold.name, hold.graph, hold.form, hold.results, hold.scalars) for hold in holds} == {
        ("val_losses", True, "items", 5, True)
    }


def test_a_sum_of_losses():
    """The sum has a graph of many terms."""
    w, summed = torch.ones(4, requires_grad=True), torch.zeros(())
    saved = []
    for _ in range(5):
        loss = (w * 2).exp().sum()
        saved += activations_of([loss])
        summed = summed + loss
    holds = holds_of(saved, summed=summed, w=w)
    assert {(hold.name, hold.form, hold.results) for hold in holds} == {("summed", "sum", 5)}
    assert holds[0].location.text == "summed = summed + loss"


def test_a_state_that_is_carried_over():
    """One tensor, one graph over all steps."""
    cell, state = nn.RNNCell(2, 3), torch.zeros(1, 3)
    states = []
    for _ in range(4):
        state = cell(torch.zeros(1, 2), state)
        states.append(state.detach())
    holds = holds_of(states[:-1], cell=cell, state=state)
    assert {(hold.name, hold.form, hold.graph, hold.results) for hold in holds} == {("state", "carried", True, 0)}


@pytest.mark.parametrize("nothing", [{}, {"x": 1}], ids=str)
def test_nobody(nothing):
    """What no name leads to has no holder."""
    assert holds_of([torch.zeros(3)], **nothing) == [None]


def test_nothing_is_kept_alive():
    """The answer holds names alone."""
    kept = [torch.zeros(4) for _ in range(3)]
    found = find_holders(set(keys(*kept)), {"kept": kept}, HERE)
    gone = [weakref.ref(x) for x in kept]
    del kept
    assert [x() for x in gone] == [None] * 3
    assert len(found.holds) == 3
