"""Measures what tracing costs, inside a real kernel: ``run_cells("...; overhead.main('a')")``.

All configurations take turns in every round, and every ratio is taken within its round: the machine's speed may
drift, the ratios stay. A round of a configuration is a whole loop, the first, costlier pass of a trace included.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from typing import Any

import torch
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm
from tests.benchmarks.workloads import STEPS, WORKLOADS

ROUNDS = 5


class NoOp(TorchDispatchMode):
    """Does nothing, in Python, for every op: what the cheapest possible dispatch-level tracer costs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


def _timed(step: Any, count: int) -> float:
    """Return the seconds of one step, over ``count`` of them."""
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


def _magic(shell: Any, options: str, step: Any, count: int) -> float:
    shell.user_ns.update(_timed=_timed, _step=step, _count=count)
    shell.run_cell_magic("tracegrad", options, "_seconds = _timed(_step, _count)")
    return float(shell.user_ns["_seconds"])


def configurations(shell: Any, step: Any, count: int) -> dict[str, Any]:
    """Return what is compared, by name: functions that return the seconds of a step."""

    def within(context: Any, steps: int = count) -> float:
        with context:
            return _timed(step, steps)

    return {
        "eager": lambda: within(contextlib.nullcontext()),
        "no-op dispatch mode": lambda: within(NoOp()),
        "anomaly mode": lambda: within(torch.autograd.detect_anomaly(check_nan=True), max(count // 8, 2)),
        "DebugMode": lambda: within(DebugMode(), max(count // 16, 2)),
        "%%tracegrad": lambda: _magic(shell, "--live off", step, count),
        "%%tracegrad, live": lambda: _magic(shell, "--live widget", step, count),
        "%%tracegrad --level ops": lambda: _magic(shell, "--live off --level ops", step, count),
    }


def main(name: str) -> None:
    """Measure one workload and print the ratios as one line of JSON."""
    import warnings

    warnings.simplefilter("ignore")
    from IPython import get_ipython

    net, step = WORKLOADS[name]()
    shell = get_ipython()
    shell.user_ns["net"] = net
    runs = configurations(shell, step, STEPS[name])
    for run in runs.values():  # warm-up
        run()
    rounds = [{config: run() for config, run in runs.items()} for _ in range(ROUNDS)]
    eager = statistics.median(row["eager"] for row in rounds)
    ratios = {config: [row[config] / row["eager"] for row in rounds] for config in runs}
    ratios["live / off"] = [row["%%tracegrad, live"] / row["%%tracegrad"] for row in rounds]
    ratios["off / no-op dispatch mode"] = [row["%%tracegrad"] / row["no-op dispatch mode"] for row in rounds]
    for other in ("no-op dispatch mode", "anomaly mode", "DebugMode"):
        ratios[f"ops / {other}"] = [row["%%tracegrad --level ops"] / row[other] for row in rounds]
    print(json.dumps({"workload": name, "eager_ms": 1000 * eager, "torch": torch.__version__,
                      "version": tm.__version__, "ratios": ratios}))  # fmt: skip
