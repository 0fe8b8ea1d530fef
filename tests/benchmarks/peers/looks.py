"""One tensor, shown by each tool: of how many kinds, in how many lines, and how long a look takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tensormagic
from tests.benchmarks.peers.subjects import Look, looked_at, outcome

ROUNDS, LOOKS = 7, 20


def viewers(peers: dict[str, Any]) -> dict[str, Look]:
    """Return how each tool that is there shows a tensor as text; torch's own ``print`` is the measure of all."""
    known: dict[str, Callable[[Any], Look]] = {
        "lovely-tensors": lambda lovely: lambda x: str(lovely.lovely(x)),
        "treescope": lambda treescope: treescope.render_to_text,
    }
    found: dict[str, Look] = {"print": repr, "tensormagic": lambda x: str(tensormagic.inspect(x, "x", namespace={}))}
    return found | {name: make(peers[name]) for name, make in known.items() if name in peers}


def measure(peers: dict[str, Any]) -> dict[str, Any]:
    """Return what each tool raised for which tensor, and what a look at a plain one costs."""
    tools = viewers(peers)
    refused = {name: {kind: why for kind, why in looked_at(look).items() if why} for name, look in tools.items()}
    return {"kinds": len(looked_at(repr)), "refused": refused, "looks": _looks(tools)}


def _looks(tools: dict[str, Look]) -> dict[str, dict[str, float]]:
    """Return lines and milliseconds of a look at 64 × 64 numbers, of each tool that shows them."""
    x = torch.randn(64, 64)
    tools = {name: look for name, look in tools.items() if not outcome(lambda look=look: look(x))}
    taken: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(ROUNDS):
        for name, look in tools.items():
            taken[name].append(cpu_seconds(lambda look=look: look(x), LOOKS))
    return {
        name: {"milliseconds": round(statistics.median(times) * 1e3, 2), "lines": len(tools[name](x).splitlines())}
        for name, times in taken.items()
    }


def cpu_seconds(action: Callable[[], object], times: int) -> float:
    """Return the processor time that an action takes, over so many of them."""
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times
