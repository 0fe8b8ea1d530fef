"""An IPython and Jupyter extension that makes ordinary PyTorch code explain itself.

In a notebook::

    %load_ext tensormagic
    %tensor x            # its shape, strides, storage, aliases, values and autograd state
    %gradgraph loss      # the operations that backward will visit, and what is saved for it
    %why x               # why x.grad is None, zero or NaN, and how to fix it
    %%tracegrad          # the backward graph of a training cell while it runs, and what went wrong

In a script::

    import tensormagic as tm
    report = tm.inspect(x, name="x")
    with tm.trace() as trace: ...
    print(trace.report)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tensormagic import lazy_exports
from tensormagic.errors import (
    NoGraphError,
    NonFiniteError,
    NotATensorError,
    ReportFormatError,
    RequirementError,
    SettingError,
    SnapshotError,
    TensorMagicError,
    TraceError,
    UnknownNameError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from tensormagic.api import (
        DrawWatch,
        Explanation,
        MemoryRun,
        Trace,
        WriteWatch,
        aliases,
        check,
        compare,
        copy_or_view,
        explain,
        gradgraph,
        ignore,
        inspect,
        load,
        memory,
        model,
        overlay,
        ranks,
        read_snapshot,
        rng,
        set_repr,
        show,
        tensors,
        trace,
        track_memory,
        track_rng,
        watch_writes,
        why,
    )
    from tensormagic.reports import (
        AliasReport,
        ComparisonReport,
        FailureReport,
        Finding,
        Gap,
        Location,
        MemoryReport,
        MemoryRunReport,
        ModelReport,
        OverlayReport,
        RankReport,
        Report,
        RngComparison,
        RngReport,
        RngRunReport,
        SnapshotReport,
        StartReport,
        TensorReport,
        TensorTable,
        TraceReport,
        WatchReport,
        WhyReport,
        WritesReport,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "AliasReport",
    "ComparisonReport",
    "DrawWatch",
    "Explanation",
    "FailureReport",
    "Finding",
    "Gap",
    "Location",
    "MemoryReport",
    "MemoryRun",
    "MemoryRunReport",
    "ModelReport",
    "NoGraphError",
    "NonFiniteError",
    "NotATensorError",
    "OverlayReport",
    "RankReport",
    "Report",
    "ReportFormatError",
    "RequirementError",
    "RngComparison",
    "RngReport",
    "RngRunReport",
    "SettingError",
    "SnapshotError",
    "SnapshotReport",
    "StartReport",
    "TensorMagicError",
    "TensorReport",
    "TensorTable",
    "Trace",
    "TraceError",
    "TraceReport",
    "UnknownNameError",
    "UnknownTopicError",
    "WatchReport",
    "WhyReport",
    "WriteWatch",
    "WritesReport",
    "aliases",
    "check",
    "compare",
    "copy_or_view",
    "explain",
    "gradgraph",
    "ignore",
    "inspect",
    "load",
    "load_ipython_extension",
    "memory",
    "model",
    "overlay",
    "ranks",
    "read_snapshot",
    "rng",
    "set_repr",
    "show",
    "tensors",
    "trace",
    "track_memory",
    "track_rng",
    "unload_ipython_extension",
    "watch_writes",
    "why",
]


def _module_of(name: str) -> str:
    return "tensormagic.api" if name in import_module("tensormagic.api").__all__ else "tensormagic.reports"


__getattr__, __dir__ = lazy_exports.names(__name__, __all__, _module_of)  # ``import tensormagic`` costs next to nothing


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to an IPython shell: what ``%load_ext tensormagic`` calls."""
    from tensormagic.magics.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take everything away again: what ``%unload_ext tensormagic`` calls."""
    from tensormagic.magics.extension import unload

    unload(shell)
