"""Comparisons of runs made by hand, for the renderers."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.comparisons import compare_traces
from tensormagic.reports import Gap
from tests.comparisons import samples

SAMPLES = {
    "larger": compare_traces(samples.small(), samples.small(factor=130.0, since=3), names=("slow", "fast")),
    "equal": compare_traces(samples.small(), samples.small()),
    "nan": compare_traces(samples.small(), samples.with_nan()),
    "deeper": compare_traces(samples.small(), samples.deeper()),
    "empty": compare_traces(
        *[replace(samples.small(), graphs=(), passes=(), parameters=(), passes_seen=0, steps_seen=0)] * 2
    ),
    "hostile": replace(
        compare_traces(samples.small(), samples.hostile(), names=(samples.HOSTILE, samples.HOSTILE + "2")),
        gaps=(Gap(*[samples.HOSTILE.replace("`", "")] * 2),),
    ),
}
