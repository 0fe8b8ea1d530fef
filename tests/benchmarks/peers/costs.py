"""What it costs to be watched: processor time of the same step, taken in turns, as multiples of the step alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode

import tensormagic
from tests.benchmarks.peers.looks import cpu_seconds
from tests.benchmarks.peers.subjects import BATCH, WIDTH, overhead

ROUNDS, FRAMES = 5, 40


def measure(peers: dict[str, Any]) -> dict[str, Any]:
    """Return milliseconds of the step and of its forward, and the multiples of each."""
    net, inputs = overhead(), torch.randn(BATCH, WIDTH)

    def step() -> None:
        net(inputs).sum().backward()

    taken = _in_turns(_watched(step) | _forwards(peers, net, inputs))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {
        "step_milliseconds": round(medians["step"] * 1e3, 2),
        "forward_milliseconds": round(medians["forward"] * 1e3, 2),
        "of_the_step": {name: _times(taken[name], taken["step"]) for name in _watched(step)},
        "of_the_forward": {name: _times(taken[name], taken["forward"]) for name in _forwards(peers, net, inputs)},
    }


def _watched(step: Callable[[], None]) -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is run in a round, by name, with the number of steps in it."""
    return {
        "step": (lambda: _many(step, 20), 20),
        "tensormagic": (lambda: _within(tensormagic.trace(), step, 20), 20),
        "anomaly mode": (lambda: _within(torch.autograd.set_detect_anomaly(True), step, 5), 5),
        "anomaly mode, 40 functions deep": (lambda: _deep(FRAMES, step), 3),
        "DebugMode": (lambda: _within(DebugMode(), step, 3), 3),
        "DebugMode with stacks": (lambda: _within(DebugMode(record_stack_trace=True), step, 2), 2),
    }


def _forwards(peers: dict[str, Any], net: Any, inputs: Any) -> dict[str, tuple[Callable[[], object], int]]:
    found: dict[str, tuple[Callable[[], object], int]] = {
        "forward": (lambda: _many(lambda: net(inputs), 20), 20),
    }
    if "torchlens" in peers:
        found["torchlens.trace"] = (lambda: peers["torchlens"].trace(net, inputs), 1)
    if "torchvista" in peers:
        found["torchvista.trace_model"] = (lambda: peers["torchvista"].trace_model(net, inputs), 1)
    if "torchview" in peers:
        found["torchview.draw_graph"] = (lambda: peers["torchview"].draw_graph(net, input_data=inputs), 1)
    return found


def _many(action: Callable[[], object], times: int) -> None:
    for _ in range(times):
        action()


def _within(context: Any, step: Callable[[], None], times: int) -> None:
    with context:
        _many(step, times)


def _deep(frames: int, step: Callable[[], None]) -> None:
    """Run three steps below so many functions: anomaly mode writes down the stack of each call."""
    if frames:
        _deep(frames - 1, step)
    else:
        _within(torch.autograd.set_detect_anomaly(True), step, 3)


def _in_turns(runs: dict[str, tuple[Callable[[], object], int]]) -> dict[str, list[float]]:
    for run, _ in runs.values():  # what is made at the first use
        run()
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, (run, count) in runs.items():
            taken[name].append(cpu_seconds(run, 1) / count)
    return taken


def _times(times: list[float], alone: list[float]) -> float:
    """Return the median of the ratios, each taken within its round."""
    ratio = statistics.median(one / base for one, base in zip(times, alone, strict=True))
    return round(ratio, 1 if ratio < 10 else None)
