"""The pipeline put together: collect, diagnose, hand over. Needs no notebook.

Everything the magics can do, a script can do with these functions; the magics add only parsing and display.
"""

from __future__ import annotations

from tensormagic.api.asking import why
from tensormagic.api.comparing import compare
from tensormagic.api.explaining import Explanation, explain, explain_error, is_out_of_memory
from tensormagic.api.findings import ignore
from tensormagic.api.freeing import free_history
from tensormagic.api.generators import DrawWatch, rng, track_rng
from tensormagic.api.loading import load
from tensormagic.api.looking import aliases, copy_or_view, evaluate, gradgraph, inspect, overlay, tensors
from tensormagic.api.memory_now import memory
from tensormagic.api.memory_running import MemoryRun, track_memory
from tensormagic.api.pages import help_index, help_page, help_topics
from tensormagic.api.running import Trace, WriteWatch, trace, warm_up, watch_writes
from tensormagic.api.showing import (
    form_of,
    install_display,
    print_anywhere,
    print_page,
    print_text,
    prints_best,
    show,
)
from tensormagic.api.snapshots import read_snapshot
from tensormagic.api.watching import Watch, check
from tensormagic.errors import TraceError

__all__ = [
    "DrawWatch",
    "Explanation",
    "MemoryRun",
    "Trace",
    "TraceError",
    "Watch",
    "WriteWatch",
    "aliases",
    "check",
    "compare",
    "copy_or_view",
    "evaluate",
    "explain",
    "explain_error",
    "form_of",
    "free_history",
    "gradgraph",
    "help_index",
    "help_page",
    "help_topics",
    "ignore",
    "inspect",
    "install_display",
    "is_out_of_memory",
    "load",
    "memory",
    "overlay",
    "print_anywhere",
    "print_page",
    "print_text",
    "prints_best",
    "read_snapshot",
    "rng",
    "show",
    "tensors",
    "trace",
    "track_memory",
    "track_rng",
    "warm_up",
    "watch_writes",
    "why",
]
