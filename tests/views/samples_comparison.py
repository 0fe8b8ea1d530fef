"""Comparisons of runs made by hand, for the renderers."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.comparisons import compare_traces
from tests.comparisons import samples
from tests.reports.samples import comparison_report

SAMPLES = {
    "larger": compare_traces(samples.small(), samples.small(factor=130.0, since=3), names=("slow", "fast")),
    "equal": compare_traces(samples.small(), samples.small()),
    "nan": compare_traces(samples.small(), samples.with_nan()),
    "deeper": compare_traces(samples.small(), samples.deeper()),
    "empty": compare_traces(
        *[replace(samples.small(), graphs=(), passes=(), parameters=(), passes_seen=0, steps_seen=0)] * 2
    ),
    "hostile": comparison_report(),
}
