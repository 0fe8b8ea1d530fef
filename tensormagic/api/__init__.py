"""The pipeline put together: collect, diagnose, hand over. Needs no notebook.

Everything the magics can do, a script can do with these functions; the magics add only parsing and display.

Where PyTorch's terms are dealt with:

    saved tensor       collectors/graphs/saved_tensors.py
    leaf               collectors/objects/identity.py
    view               collectors/aliasing/aliases.py
    storage offset     collectors/geometry/layout.py
    version counter    collectors/geometry/strides.py
    hook               collectors/gradients/gradients.py
    checkpoint         collectors/gradients/pass_log.py
    graph break        collectors/hooks/capturing.py
    retained memory    diagnoses/retained_memory.py
    in-place           collectors/graphs/in_place.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensormagic import lazy_exports
from tensormagic.errors import TraceError

if TYPE_CHECKING:
    from tensormagic.api.asking import compare, load, model, rank_report, ranks, why
    from tensormagic.api.diagnosing import Watch, check, explain_error, ignore, is_out_of_memory, start
    from tensormagic.api.looking import (
        aliases,
        copy_or_view,
        evaluate,
        gradgraph,
        inspect,
        overlay,
        set_repr,
        tensor_lines,
        tensors,
    )
    from tensormagic.api.process_state import (
        DrawWatch,
        MemoryRun,
        free_history,
        memory,
        read_snapshot,
        rng,
        track_memory,
        track_rng,
    )
    from tensormagic.api.running import Explanation, Trace, WriteWatch, explain, trace, watch_writes
    from tensormagic.api.showing import (
        form_of,
        help_found,
        help_index,
        help_page,
        help_topics,
        install_display,
        print_anywhere,
        print_page,
        print_text,
        show,
    )

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
    "help_found",
    "help_index",
    "help_page",
    "help_topics",
    "ignore",
    "inspect",
    "install_display",
    "is_out_of_memory",
    "load",
    "memory",
    "model",
    "overlay",
    "print_anywhere",
    "print_page",
    "print_text",
    "rank_report",
    "ranks",
    "read_snapshot",
    "rng",
    "set_repr",
    "show",
    "start",
    "tensor_lines",
    "tensors",
    "trace",
    "track_memory",
    "track_rng",
    "watch_writes",
    "why",
]

# Where each name is found when it is first asked for: loading the extension needs very few of them.
_MODULES = {
    "asking": ("compare", "load", "model", "rank_report", "ranks", "why"),
    "diagnosing": ("Watch", "check", "explain_error", "ignore", "is_out_of_memory", "start"),
    "looking": (
        "aliases",
        "copy_or_view",
        "evaluate",
        "gradgraph",
        "inspect",
        "overlay",
        "set_repr",
        "tensor_lines",
        "tensors",
    ),
    "process_state": (
        "DrawWatch",
        "MemoryRun",
        "free_history",
        "memory",
        "read_snapshot",
        "rng",
        "track_memory",
        "track_rng",
    ),
    "running": ("Explanation", "Trace", "WriteWatch", "explain", "trace", "watch_writes"),
    "showing": (
        "form_of",
        "help_index",
        "help_page",
        "help_found",
        "help_topics",
        "install_display",
        "print_anywhere",
        "print_page",
        "print_text",
        "show",
    ),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

__getattr__, __dir__ = lazy_exports.names(__name__, _MODULE_OF, _MODULE_OF.__getitem__)
