"""What lies behind a cut: found while the history stands, as weak references, and only what got no gradient is told."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.detachment.detachment_facts import (
    MOST_FRUITLESS_WALKS,
    MOST_LEAVES,
    DetachedLeaves,
    Trained,
)


def left_out(program, **namespace):
    """Return what each cut of a run left out: name → (held, written)."""
    with tm.trace(namespace=namespace) as trace:
        program()
    cuts = [cut for graph in trace.report.graphs for cut in graph.cuts]
    return {one.name: (one.held, one.written) for cut in cuts for one in cut.left_out}


def leaf():
    return torch.ones(3, requires_grad=True)


def test_leaves_are_found_through_the_history():
    """However deep; and a leaf that went in itself."""
    a, b, c = leaf(), leaf(), leaf()
    behind = DetachedLeaves()
    behind.add((a * 2 + b).exp())
    behind.add(c)
    assert {id(one) for one in behind.alive()} == {id(a), id(b), id(c)}


def test_nothing_is_kept_alive():
    """Neither a leaf nor a graph."""
    behind, a = DetachedLeaves(), leaf()
    made = a * 2
    node, watched = weakref.ref(made), weakref.ref(a)
    behind.add(made)
    del made, a
    gc.collect()
    assert (node(), watched(), list(behind.alive())) == (None, None, [])


def test_a_place_that_is_known_is_not_walked_again():
    """After a few walks without anything new, nor beyond the bound."""
    behind, a, b = DetachedLeaves(), leaf(), leaf()
    for _ in range(MOST_FRUITLESS_WALKS + 1):
        behind.add(a * 2)
    behind.add(b * 2)
    assert [id(one) for one in behind.alive()] == [id(a)]
    many, full = [leaf() for _ in range(MOST_LEAVES + 9)], DetachedLeaves()
    for one in many:
        full.add(one)
    assert sum(1 for _ in full.alive()) == MOST_LEAVES


def test_who_gets_a_gradient_elsewhere_is_not_left_out():
    """One of two leaves behind the cut is reached by another way."""
    a, b, head = leaf(), leaf(), leaf()

    def program():
        hidden = a * b
        (hidden.detach() * head + a).sum().backward()

    assert left_out(program, a=a, b=b, head=head) == {"b": (None, False)}


def test_a_gradient_from_before_the_trace_counts():
    """What has one is not left out."""
    a, head = leaf(), leaf()
    a.sum().backward()
    assert left_out(lambda: ((a * 2).detach() * head).sum().backward(), a=a, head=head) == {}


def test_optimizers_that_step_say_who_is_to_learn():
    """Held by one that made a step, by none of those, and nobody made one."""
    a, b, head = leaf(), leaf(), leaf()
    optimizer = torch.optim.SGD([a, head], lr=0.1)

    def program():
        ((a * b).detach() * head).sum().backward()
        optimizer.step()

    assert left_out(program, a=a, b=b, head=head) == {"a": (True, False), "b": (False, False)}
    assert Trained().is_held(a) is None


def test_writes_by_hand():
    """In place under no_grad, and through ``.data``; a no-op is no write, and one that was replaced is not told."""
    net = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("held", "data", "plain", "new", "head")})

    def step():
        x = torch.ones(1, 2)
        hidden = sum(net[name](x) for name in ("held", "data", "plain", "new"))
        net["head"](hidden.detach()).sum().backward()
        with torch.no_grad():
            net["held"].weight.mul_(0.9)
            net["plain"].weight.to("cpu")
        net["data"].weight.data.mul_(0.9)
        net["new"].weight = nn.Parameter(net["new"].weight.detach() * 0.9)

    def program():
        for _ in range(3):
            step()

    found = left_out(program, net=net)
    written = {name: written for name, (_, written) in found.items()}
    assert written == {"net.held.weight": True, "net.data.weight": True, "net.plain.weight": False}


def test_all_that_runs_under_no_grad_is_behind_it():
    """Not only the first layer."""
    body, head = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), nn.Linear(2, 1)

    def program():
        with torch.no_grad():
            hidden = body(torch.ones(1, 2))
        head(hidden).sum().backward()

    found = left_out(program, body=body, head=head)
    assert list(found) == ["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]


def test_what_is_written_into_a_buffer_is_told_only_where_it_explains_something():
    """A queue of detached keys is no cut; a buffer for whose sake a leaf gets nothing is one."""
    a, head = leaf(), leaf()

    def program(value):
        kept = torch.zeros(2, 3)
        kept[0] = value().detach()
        (kept.sum(0) * head).sum().backward()

    def queued():
        a.sum().backward()
        program(lambda: a * 2)

    assert left_out(lambda: program(lambda: a * 2), a=a, head=head) == {"a": (None, False)}
    with tm.trace(namespace={"a": a, "head": head}) as trace:
        queued()
    assert [cut for graph in trace.report.graphs for cut in graph.cuts if cut.target is not None] == []


class Looked(nn.Module):
    """Reads two of its weights as arrays, and one of them for a log alone."""

    def __init__(self):
        super().__init__()
        self.table, self.fc, self.log = nn.Parameter(torch.ones(3, 2)), nn.Linear(2, 1), []

    def forward(self, ids):
        self.log.append(self.fc.weight.detach().numpy().copy())
        rows = self.table.detach().numpy()
        return self.fc(torch.tensor([list(rows[at]) for at in ids]))


def test_a_leaf_that_forward_reads_as_an_array_is_outside():
    """What is read for a log, and learns, is no cut; nor is what the loop reads."""
    net = Looked()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(2):
            net([0, 2]).sum().backward()
            optimizer.step()
            net.table.data.numpy().sum()
    (cut,) = [cut for graph in trace.report.graphs for cut in graph.cuts]
    assert (cut.outside, [one.name for one in cut.left_out]) == (True, ["net.table"])
    assert trace.report.location(cut.location).text == "rows = self.table.detach().numpy()"
