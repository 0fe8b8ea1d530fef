"""What the tools that draw or trace do with a plain function, a deep graph, a fault, and the state of the run."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._debug_mode import DebugMode

import tensormagic
from tests.benchmarks.peers import subjects
from tests.benchmarks.peers.subjects import outcome

X = torch.ones(3)
INPUTS = torch.linspace(-1, 1, 24).reshape(6, 4)
FAULTS = {"spoilt": ("saved", "changed"), "born_nan": ("origin",), "born_infinite": ("origin",)}


class Deep(nn.Module):
    """The deep graph, for tools that want a module."""

    def forward(self, x):
        for _ in range(subjects.DEPTH):
            x = x + 1
        return x


def runners(peers: dict[str, Any]) -> dict[str, Callable[[Any, Any], object]]:
    """Return how each tool that runs a model itself is handed one."""
    known: dict[str, Callable[[Any], Callable[[Any, Any], object]]] = {
        "torchview": lambda torchview: lambda model, x: torchview.draw_graph(model, input_data=x),
        "torchlens": lambda torchlens: torchlens.trace,
        "torchvista": lambda torchvista: torchvista.trace_model,
        "torchinfo": lambda torchinfo: lambda model, x: torchinfo.summary(model, input_data=x, verbose=0),
    }
    return {name: make(peers[name]) for name, make in known.items() if name in peers}


def measure(peers: dict[str, Any]) -> dict[str, Any]:
    """Return, for each tool, what it raised and what it changed; an empty text is a yes."""
    return {
        "replaced": {name: _replaced(run) for name, run in runners(peers).items()}
        | {"tensormagic": _replaced(_traced)},
        "function": _functions(peers),
        "deep": _deep(peers),
        "changed": {name: _changed(run) for name, run in runners(peers).items()} | {"tensormagic": _changed_by_us()},
        "told": {tool: _told(watch) for tool, watch in WATCHES.items()},
    }


def _functions(peers: dict[str, Any]) -> dict[str, str]:
    found = {name: outcome(lambda run=run: run(subjects.function, X)) for name, run in runners(peers).items()}
    if "torchviz" in peers:
        found["torchviz"] = outcome(lambda: peers["torchviz"].make_dot(subjects.function(X)))
    return found | {tool: outcome(lambda c=c: _within(c, subjects.function(X))) for tool, c in CONTEXTS.items()}


def _deep(peers: dict[str, Any]) -> dict[str, str]:
    found = {name: outcome(lambda run=run: run(Deep(), X)) for name, run in runners(peers).items()}
    if "torchviz" in peers:
        found["torchviz"] = outcome(lambda: peers["torchviz"].make_dot(subjects.deep()))
    return found | {tool: outcome(lambda c=c: _within(c, subjects.deep())) for tool, c in CONTEXTS.items()}


def _anomaly() -> Any:
    return torch.autograd.set_detect_anomaly(True)


CONTEXTS: dict[str, Callable[[], Any]] = {
    "tensormagic": tensormagic.trace, "anomaly mode": _anomaly, "DebugMode": DebugMode
}  # fmt: skip


def _within(context: Callable[[], Any], loss: torch.Tensor) -> None:
    with context() as watch:
        loss.backward()
    if isinstance(watch, tensormagic.Trace):
        assert watch.report.graphs[0].nodes, "a graph"


# -- what stays in torch ----------------------------------------------------------------------------------------------


def _replaced(run: Callable[[Any, Any], object]) -> int:
    """Return how many of torch's own functions are others after a tool has looked at a small network."""
    before = _own_functions()
    outcome(lambda: run(nn.Linear(3, 3), X))
    now = _own_functions()
    return sum(now.get(name) is not one for name, one in before.items())


def _own_functions() -> dict[str, Any]:
    """Return torch's functions by name, without those that are made anew whenever they are asked for."""
    places = (torch, torch.Tensor, nn.functional, nn.Module)
    names = [(place, name) for place in places for name in dir(place)]
    pairs = {f"{place.__name__}.{name}": (getattr(place, name), getattr(place, name)) for place, name in names}
    return {name: one for name, (one, again) in pairs.items() if one is again and callable(one)}


def _traced(model: Any, x: Any) -> None:
    with tensormagic.trace():
        model(x).sum().backward()


# -- what a look changes ---------------------------------------------------------------------------------------------


def _changed(run: Callable[[Any, Any], object]) -> list[str]:
    """Return what is not as before, after a tool has looked at a network in train mode."""
    net = subjects.stateful()
    torch.manual_seed(1)
    before = _state(net)
    if why := outcome(lambda: run(net, INPUTS)):
        return [why]
    return [name for name, value in _state(net).items() if not torch.equal(value, before[name])]


def _state(net: nn.Sequential) -> dict[str, torch.Tensor]:
    return {"random state": torch.get_rng_state(), "BatchNorm": net[1].running_mean.clone()}


def _changed_by_us() -> list[str]:
    """Return what is not as in an untraced step, after a traced one."""
    plain, traced = _step(None), _step(tensormagic.trace())
    return [name for name, value in traced.items() if not torch.equal(value, plain[name])]


def _step(watch: Any) -> dict[str, torch.Tensor]:
    net = subjects.stateful()
    torch.manual_seed(1)
    if watch is None:
        loss = net(INPUTS).sum()
        loss.backward()
    else:
        with watch:
            loss = net(INPUTS).sum()
            loss.backward()
    return _state(net) | {"loss": loss.detach(), "gradient": net[0].weight.grad.clone()}


# -- which lines are named -------------------------------------------------------------------------------------------


def _nothing(program: Callable[[], None]) -> str:
    return _caught(program)


def _by_anomaly_mode(program: Callable[[], None]) -> str:
    def run() -> None:
        with _anomaly():
            program()

    return _caught(run)


def _by_us(program: Callable[[], None]) -> str:
    watch = tensormagic.trace()
    with contextlib.suppress(RuntimeError), watch:
        program()
    found = watch.report.findings
    places = [place for one in found for place in (one.location, *(other.location for other in one.related))]
    return "\n".join([*(one.message for one in found), *(place.text for place in places if place)])


def _caught(program: Callable[[], None]) -> str:
    """Run a program; return what is warned of and raised."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        raised = outcome(program)
    return "\n".join([raised, *(str(one.message) for one in warned)])


WATCHES = {"nothing": _nothing, "anomaly mode": _by_anomaly_mode, "tensormagic": _by_us}


def _told(watch: Callable[[Callable[[], None]], str]) -> dict[str, list[str]]:
    """Return which of the lines that matter a tool names, by fault."""
    found = {}
    for name, marks in FAULTS.items():
        program = getattr(subjects, name)
        said = watch(program)
        found[name] = [mark for mark in marks if _line(program, mark) in said]
    return found


def _line(program: Callable[[], None], mark: str) -> str:
    """Return the code of the line that is marked so."""
    line = next(each for each in inspect.getsource(program).splitlines() if each.endswith(f"# line: {mark}"))
    return line.partition("  #")[0].strip()
