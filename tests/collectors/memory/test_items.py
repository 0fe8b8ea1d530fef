"""What emptying a container, or taking one thing out of it, frees: the cases that people meet, in bytes."""

from __future__ import annotations

import gc
from typing import Any

import torch
from hypothesis import given, settings

import tensormagic as tm
from tensormagic.collectors.memory import roots as containers_module
from tensormagic.collectors.memory.flow import Flow
from tensormagic.collectors.memory.freed import collect_freeable
from tensormagic.collectors.memory.roots import containers
from tests.collectors.memory.freeing_programs import freed_by
from tests.collectors.memory.test_reachability import GRAPHS, reached

MADE = "import torch, collections\nfrom torch import nn\nzeros = torch.zeros\n"


def parts(source: str) -> dict[str, int]:
    """Return what taking things out of containers frees in a program, by the code; each is tried."""
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(MADE + source, namespace)
    gc.collect()
    found = {part.code: part.nbytes for one in collect_freeable(namespace).freeable for part in one.parts}
    del namespace
    for code, nbytes in found.items():
        assert (code, freed_by(MADE + source, code=code)) == (code, nbytes)
    return found


def test_a_list_of_losses() -> None:
    """Emptying it frees all graphs; one item is told where it frees much more than the others."""
    made = "w = torch.ones(50, requires_grad=True)\nlosses = [(w * 2).exp().sum() for _ in range(20)]\n"
    assert parts(made) == {"losses.clear()": 20 * 212}
    large = made + "losses[3] = (torch.ones(4000, requires_grad=True) * 3).exp().sum()"
    assert parts(large) == {"losses.clear()": 19 * 212 + 32012, "del losses[3]": 32012}


def test_a_list_with_two_names() -> None:
    """Neither name frees it; emptying it does, and stands with the name that comes first."""
    assert parts("a = b = [zeros(700)]") == {"a.clear()": 2800}
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(MADE + "a = b = [zeros(700)]", namespace)
    assert "a.clear()" in str(tm.memory(namespace))
    assert "del a on its own frees nothing" in str(tm.memory(namespace))


def test_items_that_share_free_nothing_alone() -> None:
    """A storage that two items view goes with both of them only."""
    assert parts("x = zeros(100)\nviews = [x[:50], x[50:]]\ndel x") == {"views.clear()": 400}
    assert parts("x = zeros(100)\ntwice = [x, x, zeros(1)]\ndel x") == {"twice.clear()": 404}


def test_values_of_dictionaries_and_attributes() -> None:
    """Told by the key, or the attribute, as a user writes it; nested ones as well, each set of bytes once."""
    made = (
        "class Trainer: pass\ntrainer = Trainer()\ntrainer.seen = {'x': zeros(1000), 'y': zeros(10)}\n"
        "trainer.last = zeros(500)\nfound = {3: zeros(200), ('k', 1): zeros(100), 2.5: zeros(90)}"
    )
    assert parts(made) == {
        "trainer.seen.clear()": 4040, "del trainer.seen['x']": 4000, "del trainer.last": 2000,
        "found.clear()": 1560, "del found[3]": 800, "del found[('k', 1)]": 400, "del found[2.5]": 360,
    }  # fmt: skip


def test_what_a_module_keeps_beside_its_registries() -> None:
    """An activation that a module has kept as an attribute; never a parameter or a child."""
    made = "net = nn.Sequential(nn.Linear(9, 9))\nnet.cache = zeros(300)\nnet[0].last = [zeros(400)]"
    assert parts(made) == {"net[0].last.clear()": 1600, "del net.cache": 1200}


def test_containers_of_other_kinds() -> None:
    """Queues, sets and what lies in tuples; a frozen object's attributes are left alone."""
    made = (
        "import dataclasses, functools\nqueue = collections.deque([zeros(8)], maxlen=4)\n"
        "both = ([zeros(6)], 3)\nall_ = {zeros(5)}\nlibrarys = torch.utils.data.TensorDataset(zeros(9))\n"
        "frozen = dataclasses.make_dataclass('Frozen', ['held'], frozen=True)([zeros(7)])"
    )
    found = parts(made)
    assert found == {"queue.clear()": 32, "both[0].clear()": 24, "all_.clear()": 20, "frozen.held.clear()": 28}


def test_no_code_of_the_persons_runs() -> None:
    """Properties, attributes that are made up, and classes that intercept are passed over."""
    ran: list[str] = []

    class Odd:
        """Answers for what it has not."""

        def __init__(self) -> None:
            self.__dict__["shown"] = torch.zeros(3)
            self.__dict__["plain"] = [torch.zeros(4)]

        @property
        def shown(self) -> Any:
            """Return something else."""
            return ran.append("shown")

        def __getattr__(self, name: str) -> Any:
            """Say that it was asked."""
            ran.append(name)
            raise AttributeError(name)

        def __delattr__(self, name: str) -> None:
            """Refuse."""
            ran.append(f"del {name}")

    class Closed(Odd):
        """Intercepts every attribute."""

        def __getattribute__(self, name: str) -> Any:
            """Say that it was asked."""
            ran.append(name)
            return object.__getattribute__(self, name)

    made = {"odd": Odd(), "closed": Closed()}
    ran.clear()
    found = {path: [entry for entry, _ in one.entries] for path, one in containers(made)}
    assert found == {"odd": ["odd.plain[0]"]}
    assert ran == []


def test_what_lies_in_a_list_of_very_many_comes_last() -> None:
    """The parts of a model that was named after it are found before."""
    rows = [{"at": at} for at in range(5000)]
    found = [one.path for _, one in containers({"rows": rows, "net": {"cache": {"a": torch.zeros(2)}}})]
    assert found[:3] == ["net", "net['cache']", "rows"]
    assert len(found) == containers_module.MOST


def test_a_budget_is_said(monkeypatch: Any) -> None:
    """Where the containers are too many to weigh, that is told, and the names are told all the same."""
    monkeypatch.setattr("tensormagic.collectors.memory.flow.MOST_STEPS", 30)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(MADE + "a = [zeros(2) for _ in range(50)]\nb = [zeros(2) for _ in range(50)]", namespace)
    found = collect_freeable(namespace)
    assert [gap.reason for gap in found.gaps] == [containers_module.CUT]
    assert {one.name: one.nbytes for one in found.freeable if one.nbytes} == {"a": 400, "b": 400}


@given(GRAPHS)
@settings(deadline=None, max_examples=150)
def test_what_a_node_dominates_is_lost_without_it(graph: tuple[list[list[int]], list[list[int]]]) -> None:
    """For each node: what cannot be reached once its references are gone; for each reference likewise."""
    edges, roots = graph
    weights = dict.fromkeys(range(len(edges)), (1, "cpu"))
    flow = Flow(edges, roots, weights)
    starts = [node for begun in roots for node in begun]
    every = reached(edges, starts)
    for node in every:
        emptied = [after if at != node else [] for at, after in enumerate(edges)]
        below = flow.below(node)
        assert below == every - reached(emptied, starts)
        for at, lost in enumerate(flow.parts(node, below)):
            less = [[*after[:at], *after[at + 1 :]] if each == node else after for each, after in enumerate(edges)]
            assert lost == every - reached(less, starts)
