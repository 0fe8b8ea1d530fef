"""One object never ends a look at the others: every kind of tensor and module in the namespace of every question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.api.process_state import free_history
from tests.support.zoo import ZOO

WEIGHT = torch.ones(1000, requires_grad=True)
VIEW = WEIGHT.detach()[2:]

QUESTIONS = {
    "tensors": tm.tensors,
    "aliases": tm.aliases,
    "memory": tm.memory,
    "why": lambda names: tm.why(WEIGHT, namespace=names),
    "check": tm.check,
    "rng": tm.rng,
    "history": free_history,
}
RUNS = {
    "trace": lambda names: tm.trace(namespace=names),
    "ops": lambda names: tm.trace(namespace=names, level="ops"),
    "memory": lambda names: tm.track_memory(namespace=names),
    "writes": lambda names: tm.watch_writes(namespace=names),
    "rng": lambda names: tm.track_rng(namespace=names),
}


class Lazy(nn.Module):
    """A lazy layer that has not run, among others."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.LazyLinear(3), nn.Linear(2, 2))


MODULES = {
    "lazy": Lazy,
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())),
    "traced": lambda: torch.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2)),
    "frozen script": lambda: torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(2, 2))).eval()),
    "script function": lambda: torch.jit.script(nn.functional.relu),
    "symbolically traced": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="eager"),
    "quantized": lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), dtype=torch.qint8),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    "lists and dictionaries": lambda: nn.ModuleDict({"a b": nn.ModuleList([nn.ParameterList([torch.ones(2)])])}),
}


def beside(x: Any) -> dict[str, Any]:
    """Names of common things, and of ``x`` in several places."""
    array = np.ones(50)
    return {
        "x": x, "items": [x], "by_key": {"x": x}, "w": WEIGHT, "view": VIEW, "array": array,
        "t": torch.from_numpy(array), "other": torch.ones(7),
    }  # fmt: skip


def look(names: dict[str, Any], which: dict[str, Any]) -> dict[str, Any]:
    """Ask every question; what it could not read must not be an error of ours or torch's."""
    reports = {name: ask(names) for name, ask in which.items()}
    for name, report in reports.items():
        wrong = [gap.reason for gap in report.gaps if "Error" in gap.reason]
        assert not wrong or name == "rng", f"{name}: {wrong}"
    return reports


def run(names: dict[str, Any], follower: Any) -> Any:
    """Follow a run that draws, computes, writes and goes back."""
    with follower as followed:
        kept = (names["w"] * torch.rand(1000)).sum()
        kept.backward()
        names["other"].add_(1)
    return followed.report


@pytest.fixture(scope="module")
def every_kind():
    """One tensor or array of every kind that can be held."""
    return {kind: specimen.visit(lambda x: x) for kind, specimen in ZOO.items() if specimen.lives}


def is_told_in_full(reports):
    """Say whether what lies beside is there."""
    named = {storage.name for storage in reports["memory"].storages}
    together = [{name for member in group.members for name in member.names} for group in reports["aliases"].groups]
    return named >= {"w", "t", "other"} and any(names >= {"w", "view"} for names in together)


def test_every_kind_of_tensor(every_kind):
    """What is beside them is told in full."""
    assert is_told_in_full(look(beside(every_kind), QUESTIONS))


@pytest.mark.parametrize("kind", [kind for kind, specimen in ZOO.items() if not specimen.lives])
def test_every_kind_of_tensor_inside_of_transforms(kind):
    """The same where a tensor exists only while something runs."""
    assert ZOO[kind].visit(lambda x: is_told_in_full(look(beside(x), QUESTIONS)))


def test_every_kind_of_tensor_beside_a_run(every_kind):
    """Whatever lies there, the run is followed, and nothing is called an error."""
    names = beside(every_kind)
    look(names, {name: lambda names, make=make: run(names, make(names)) for name, make in RUNS.items()})


@pytest.mark.parametrize("kind", MODULES)
def test_every_kind_of_module(kind):
    """The same with modules, and ``why`` of the module itself."""
    names = beside(MODULES[kind]())
    assert is_told_in_full(look(names, QUESTIONS))
    look(names, {name: lambda names, make=make: run(names, make(names)) for name, make in RUNS.items()})
    if isinstance(names["x"], nn.Module):
        assert tm.why(names["x"], namespace=names).answer


@pytest.mark.usefixtures("no_garbage")
def test_a_lazy_module_that_has_not_run_changes_no_number():
    """Memory of a run is counted with and without it; what is there before is there."""
    big = torch.zeros(1000, 1000)

    def counted():
        with tm.track_memory(namespace={"big": big}) as followed:
            kept = torch.ones(1000)
        (device,) = followed.report.timelines
        return device.live[0] >= big.nbytes, device.live[-1] - device.live[0] == kept.nbytes, followed.report.gaps

    alone = counted()
    assert alone[:2] == (True, True)
    lazy = nn.LazyLinear(3)
    assert counted() == alone
    with tm.trace(namespace={"lazy": lazy}) as trace:
        lazy(torch.ones(2, 3)).sum().backward()
    assert trace.report.gaps == ()


def test_names_in_a_scripted_module():
    """A parameter of a scripted module has its own name and no other; a session's check counts it."""
    net = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert tm.aliases({"net": net}).groups == ()
    assert tm.why(net, namespace={"net": net}).answer.startswith("The same holds for both parameters of net")
    assert tm.check({"net": net}).tensors >= 2
