"""What hangs in the gallery: every panel, small, huge and in trouble, each made from a report written by hand.

The pictures of the design system, the gallery page and the tests of appearance all read this one table; a new panel is
a line in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tensormagic import views
from tensormagic.reports import Report
from tests.views import (
    samples_comparison,
    samples_failure,
    samples_freeing,
    samples_memory,
    samples_memory_run,
    samples_model,
    samples_ops,
    samples_overlay,
    samples_ranks,
    samples_rng,
    samples_sharing,
    samples_snapshot,
    samples_tensor,
    samples_trace,
    samples_values,
    samples_viewer,
    samples_watch,
    samples_why,
    samples_writes,
)

Size = Literal["small", "huge", "error"]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A panel in the gallery.

    Attributes:
        name: Of its pictures.
        typed: What a user types to see such a panel.
        size: What it shows of the panel: the everyday case, the largest, or one in trouble.
        make: Makes the report.
        viewer: Whether a script draws the panel anew: then there is something to wait for.
    """

    name: str
    typed: str
    size: Size
    make: Callable[[], Report]
    viewer: bool = False

    def html(self) -> str:
        """Return the panel."""
        return views.render(self.make(), "html")


def _of(samples: Mapping[str, Report], name: str) -> Callable[[], Report]:
    return lambda: samples[name]


EXHIBITS = (
    Exhibit("tensor", "%tensor x", "small", samples_tensor.transpose_slice),
    Exhibit("tensor_huge", "%tensor scores", "huge", samples_tensor.causal_scores),
    Exhibit("tensor_error", "%tensor x", "error", _of(samples_tensor.SAMPLES, "every_severity")),
    Exhibit("tensor_scalar", "%tensor loss", "small", samples_tensor.scalar),
    Exhibit("tensor_channels", "%tensor images", "small", _of(samples_tensor.SAMPLES, "channels")),
    Exhibit("tensor_sparse", "%tensor s", "small", samples_tensor.sparse),
    Exhibit("tensor_graph", "%tensor y", "small", samples_values.graph),
    Exhibit("tensor_missing", "%tensor x", "error", samples_tensor.all_missing),
    Exhibit("overlay", "%tensor a x y e n c", "small", _of(samples_overlay.SAMPLES, "views")),
    Exhibit("overlay_huge", "%tensor even odd row", "huge", _of(samples_overlay.SAMPLES, "large")),
    Exhibit("overlay_apart", "%tensor f m", "error", _of(samples_overlay.SAMPLES, "apart")),
    Exhibit("tensors", "%tensors", "small", _of(samples_sharing.TABLES, "few")),
    Exhibit("tensors_huge", "%tensors", "huge", _of(samples_sharing.TABLES, "many")),
    Exhibit("tensors_error", "%tensors", "error", _of(samples_sharing.TABLES, "finding")),
    Exhibit("model", "%model net(x)", "small", _of(samples_model.SAMPLES, "trained")),
    Exhibit("model_huge", "%model net", "huge", _of(samples_model.SAMPLES, "large")),
    Exhibit("aliases", "%aliases", "small", _of(samples_sharing.ALIASES, "slices")),
    Exhibit("aliases_huge", "%aliases", "huge", _of(samples_sharing.ALIASES, "many")),
    Exhibit("aliases_error", "%aliases", "error", _of(samples_sharing.ALIASES, "finding")),
    Exhibit("writes", "%%aliases", "error", samples_writes.effects),
    Exhibit("writes_quiet", "%%aliases", "small", _of(samples_writes.SAMPLES, "quiet")),
    Exhibit("writes_huge", "%%aliases", "huge", samples_writes.large),
    Exhibit("trace", "%%tracegrad", "small", samples_viewer.calm_run, viewer=True),
    Exhibit("trace_huge", "%%tracegrad", "huge", samples_viewer.large_run, viewer=True),
    Exhibit("trace_error", "%%tracegrad", "error", samples_viewer.broken_run, viewer=True),
    Exhibit("trace_failed", "%%tracegrad", "error", samples_trace.failed, viewer=True),
    Exhibit("trace_empty", "%%tracegrad", "error", samples_trace.empty, viewer=True),
    Exhibit("forward", "%%tracegrad", "small", samples_trace.forward, viewer=True),
    Exhibit("gradgraph", "%gradgraph loss", "small", samples_viewer.standing, viewer=True),
    Exhibit("refused", "%%tracegrad", "error", samples_failure.refused_run, viewer=True),
    Exhibit("operations", "%%tracegrad --level ops", "small", samples_ops.operations, viewer=True),
    Exhibit("comparison", "%compare slow fast", "small", _of(samples_comparison.SAMPLES, "larger")),
    Exhibit("comparison_huge", "%compare a b", "huge", _of(samples_comparison.SAMPLES, "deeper")),
    Exhibit("comparison_error", "%compare a b", "error", _of(samples_comparison.SAMPLES, "nan")),
    Exhibit("ranks", "%ranks runs/a", "small", samples_ranks.healthy),
    Exhibit("ranks_error", "%ranks runs/a", "error", samples_ranks.broken),
    Exhibit("ranks_huge", "%ranks runs/a", "huge", samples_ranks.large),
    Exhibit("failure", "an error in a cell", "error", _of(samples_failure.SAMPLES, "linear")),
    Exhibit("failure_backward", "an error in a cell", "error", samples_failure.backward),
    Exhibit("failure_recorded", "an error in a cell", "huge", _of(samples_failure.SAMPLES, "recorded")),
    Exhibit("failure_small", "an error in a cell", "small", _of(samples_failure.SAMPLES, "dtypes")),
    Exhibit("out_of_memory", "an error in a cell", "error", _of(samples_failure.SAMPLES, "out_of_memory")),
    Exhibit("why", "%why w", "small", _of(samples_why.SAMPLES, "zero")),
    Exhibit("why_error", "%why w", "error", _of(samples_why.SAMPLES, "cut_off")),
    Exhibit("why_huge", "%why net", "huge", _of(samples_why.SAMPLES, "module")),
    Exhibit("watch", "%tensormagic check", "error", _of(samples_watch.SAMPLES, "everything")),
    Exhibit("watch_small", "%tensormagic check", "small", _of(samples_watch.SAMPLES, "nothing")),
    Exhibit("memory", "%gpumem", "small", samples_memory.small),
    Exhibit("memory_error", "%gpumem", "error", samples_memory.gpt),
    Exhibit("memory_huge", "%gpumem", "huge", samples_memory.many),
    Exhibit("memory_run", "%%gpumem", "small", samples_memory_run.training),
    Exhibit("memory_run_huge", "%%gpumem", "huge", _of(samples_memory_run.SAMPLES, "long")),
    Exhibit("memory_run_error", "%%gpumem", "error", samples_memory_run.died),
    Exhibit("snapshot", "%gpumem --snapshot FILE", "small", samples_snapshot.training),
    Exhibit("snapshot_huge", "%gpumem --snapshot FILE", "huge", samples_snapshot.longest),
    Exhibit("snapshot_error", "%gpumem --snapshot FILE", "error", _of(samples_snapshot.SAMPLES, "found")),
    Exhibit("freeing", "%gpumem --free", "small", _of(samples_freeing.SAMPLES, "listed")),
    Exhibit("freeing_done", "%gpumem --free --yes", "small", _of(samples_freeing.SAMPLES, "dropped")),
    Exhibit("rng", "%rng", "small", samples_rng.standing),
    Exhibit("rng_run", "%%rng", "small", samples_rng.run),
    Exhibit("rng_compared", "%compare first second", "error", _of(samples_rng.SAMPLES, "parted")),
)
