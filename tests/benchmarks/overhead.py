"""Measures what tracing costs, inside a real kernel: ``run_cells("...; overhead.main('a')")``.

The machine may drift, and may be slowed by what else it does: so the loops are short and take turns, before and after
each comes the untraced one, and a ratio is that to the mean of these two. A run's first steps cost more, the first pass
of a trace above all: they are measured apart, and count as they do in a run of `STEPS`. What a live panel costs changes
while it goes on: that takes whole runs, each between two of the same length without it.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from typing import Any, NamedTuple

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm
from tests.benchmarks.workloads import STEPS, WORKLOADS

ROUNDS = {"a": 16, "b": 12, "c": 16}
SLICE = {"a": 100, "b": 40, "c": 3}  # steps of one loop, after the first
FIRST = {"a": 3, "b": 2, "c": 1}
SELDOM = 4  # rounds between two in which those take part that take long
EAGER, NO_OP = "eager", "no-op dispatch mode"
OFF, OPS = "%%tracegrad", "%%tracegrad --level ops"
WHOLE_OFF, WHOLE_LIVE = "%%tracegrad, whole run", "%%tracegrad, whole run, live"
LIVE_ROUNDS = 9
USUAL, SLOW = (NO_OP, OFF, OPS), ("anomaly mode", "DebugMode")


class NoOp(TorchDispatchMode):
    """Does nothing, in Python, for every op: what the cheapest possible dispatch-level tracer costs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


class Pace(NamedTuple):
    """How long a loop takes.

    Attributes:
        first: Seconds of its first steps together.
        step: Seconds of each one after these.
    """

    first: float
    step: float

    def whole(self, name: str) -> float:
        """Return the seconds of a whole run of a workload."""
        return self.first + (STEPS[name] - FIRST[name]) * self.step


class Bench:
    """One workload, in each configuration."""

    def __init__(self, shell: Any, name: str) -> None:
        net, self._step = WORKLOADS[name]()
        self._name, self._shell = name, shell
        shell.user_ns.update(net=net, _timed=self._timed)

    def _timed(self, count: int) -> Pace:
        began = time.perf_counter()
        for _ in range(FIRST[self._name]):
            self._step()
        first = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(count):
            self._step()
        return Pace(first, (time.perf_counter() - began) / count)

    def _within(self, context: Any, share: int = 1) -> Pace:
        with context:
            return self._timed(max(SLICE[self._name] // share, 1))

    def _magic(self, options: str, *, whole: bool = False) -> Pace:
        count = STEPS[self._name] - FIRST[self._name] if whole else SLICE[self._name]
        self._shell.run_cell_magic("tracegrad", options, f"_pace = _timed({count})")
        return self._shell.user_ns["_pace"]  # type: ignore[no-any-return]

    def run(self, config: str) -> float:
        """Return the seconds of a whole run in a configuration."""
        return {
            EAGER: lambda: self._within(contextlib.nullcontext()),
            NO_OP: lambda: self._within(NoOp()),
            "anomaly mode": lambda: self._within(torch.autograd.detect_anomaly(check_nan=True), 8),
            "DebugMode": lambda: self._within(DebugMode(), 8),
            OFF: lambda: self._magic("--live off"),
            OPS: lambda: self._magic("--live off --level ops"),
            WHOLE_OFF: lambda: self._magic("--live off", whole=True),
            WHOLE_LIVE: lambda: self._magic("--live widget", whole=True),
        }[config]().whole(self._name)

    def round(self, configs: tuple[str, ...]) -> dict[str, float]:
        """Return the ratio of each configuration to the untraced loops around it; seconds of these by ``eager``."""
        before, ratios, eager = self.run(EAGER), {}, []
        for config in configs:
            seconds, after = self.run(config), self.run(EAGER)
            ratios[config] = 2 * seconds / (before + after)
            before = after
            eager.append(after)
        return {**ratios, EAGER: statistics.median(eager)}

    def live_rounds(self) -> list[float]:
        """Return, for each round, the ratio of a whole run with a live panel to those without one around it."""
        ratios, before = [], self.run(WHOLE_OFF)
        for _ in range(LIVE_ROUNDS):
            live, after = self.run(WHOLE_LIVE), self.run(WHOLE_OFF)
            ratios.append(2 * live / (before + after))
            before = after
        return ratios


COMPARED = {
    "off / no-op dispatch mode": (OFF, NO_OP),
    **{f"ops / {other}": (OPS, other) for other in (NO_OP, *SLOW)},
}


def main(name: str) -> None:
    """Measure one workload and print the ratios as one line of JSON."""
    import warnings

    warnings.simplefilter("ignore")
    from IPython import get_ipython

    bench = Bench(get_ipython(), name)
    bench.round(USUAL + SLOW)  # warm-up
    rounds = [bench.round(USUAL if at % SELDOM else USUAL + SLOW) for at in range(ROUNDS[name])]
    eager = statistics.median(row[EAGER] for row in rounds) / STEPS[name]
    ratios = {config: [row[config] for row in rounds if config in row] for config in USUAL + SLOW}
    for told, (one, other) in COMPARED.items():
        ratios[told] = [row[one] / row[other] for row in rounds if other in row]
    ratios["live / off"] = bench.live_rounds()
    print(json.dumps({"workload": name, "eager_ms": 1000 * eager, "torch": torch.__version__,
                      "version": tm.__version__, "ratios": ratios}))  # fmt: skip
