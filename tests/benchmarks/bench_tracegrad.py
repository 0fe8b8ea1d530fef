"""What ``%%tracegrad`` costs: ratios to the untraced loop in the same run, in a real kernel. Run by ``make bench``.

The bounds are those the project promises; they are asserted on medians, so that a slow machine changes nothing and a
slower tracer does.
"""

from __future__ import annotations

import json
import statistics

import pytest

from tests.benchmarks.workloads import STEPS, WORKLOADS
from tests.support.kernel import notebook_of, run_notebook

pytestmark = pytest.mark.benchmark


def _measure(folder, name):
    cells = notebook_of("%load_ext tensormagic\nfrom tests.benchmarks import overhead", f"overhead.main({name!r})")
    notebook = run_notebook(cells, folder, seconds=1800)
    streams = "".join(output.get("text", "") for output in notebook.cells[1].outputs if output.output_type == "stream")
    line = next(line for line in streams.splitlines() if line.startswith('{"workload"'))
    return json.loads(line)


def _report(found):
    print(f"\n{WORKLOADS[found['workload']].__doc__}")
    print(f"    eager: {found['eager_ms']:.2f} ms a step; ratios for a run of {STEPS[found['workload']]} steps")
    for config, ratios in found["ratios"].items():
        low, _, high = statistics.quantiles(ratios, n=4)
        print(f"    {config:<28} {statistics.median(ratios):6.3f}   (half of {len(ratios)}: {low:.3f} to {high:.3f})")
    return {config: statistics.median(ratios) for config, ratios in found["ratios"].items()}


@pytest.mark.parametrize("name", WORKLOADS)
def test_overhead(tmp_path, name):
    """(a) at most a no-op dispatch mode; (c) at most 1.05 × eager; the live panel at most 5 % more.

    Level ``ops``: (a) at most twice a no-op dispatch mode, and below anomaly mode and DebugMode on every model.
    """
    medians = _report(_measure(tmp_path, name))
    if name == "a":
        assert medians["off / no-op dispatch mode"] <= 1.0
    if name == "c":
        assert medians["%%tracegrad"] <= 1.05
    assert medians["live / off"] <= 1.05
    if name == "a":
        assert medians["ops / no-op dispatch mode"] <= 2.0
    assert medians["ops / anomaly mode"] < 1
    assert medians["ops / DebugMode"] < 1
