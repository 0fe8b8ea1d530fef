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
from tensormagic.errors import TraceError as TraceError

if TYPE_CHECKING:
    from tensormagic.api.asking import (
        compare as compare,
        load as load,
        model as model,
        rank_report as rank_report,
        ranks as ranks,
        why as why,
    )
    from tensormagic.api.diagnosing import (
        Watch as Watch,
        check as check,
        explain_error as explain_error,
        ignore as ignore,
        is_out_of_memory as is_out_of_memory,
        start as start,
    )
    from tensormagic.api.looking import (
        aliases as aliases,
        copy_or_view as copy_or_view,
        gradgraph as gradgraph,
        inspect as inspect,
        overlay as overlay,
        set_repr as set_repr,
        tensor_lines as tensor_lines,
        tensors as tensors,
    )
    from tensormagic.api.process_state import (
        DrawWatch as DrawWatch,
        MemoryRun as MemoryRun,
        free_history as free_history,
        memory as memory,
        read_snapshot as read_snapshot,
        rng as rng,
        track_memory as track_memory,
        track_rng as track_rng,
    )
    from tensormagic.api.running import (
        Explanation as Explanation,
        Trace as Trace,
        WriteWatch as WriteWatch,
        explain as explain,
        trace as trace,
        watch_writes as watch_writes,
    )
    from tensormagic.api.showing import (
        help_found as help_found,
        help_index as help_index,
        help_page as help_page,
        help_topics as help_topics,
        install_display as install_display,
        show as show,
    )
    from tensormagic.views.page.files import form_of as form_of
    from tensormagic.views.page.terminal import print_markdown as print_markdown, print_report as print_report

# Where each name is found when it is first asked for: loading the extension needs very few of them.
_MODULES = {
    "asking": ("compare", "load", "model", "rank_report", "ranks", "why"),
    "diagnosing": ("Watch", "check", "explain_error", "ignore", "is_out_of_memory", "start"),
    "looking": ("aliases", "copy_or_view", "gradgraph", "inspect", "overlay", "set_repr", "tensor_lines", "tensors"),
    "process_state": (
        "DrawWatch", "MemoryRun", "free_history", "memory", "read_snapshot", "rng", "track_memory", "track_rng",
    ),
    "running": ("Explanation", "Trace", "WriteWatch", "explain", "trace", "watch_writes"),
    "showing": ("help_found", "help_index", "help_page", "help_topics", "install_display", "show"),
}  # fmt: skip
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_MODULE_OF |= {"form_of": "tensormagic.views.page.files"}
_MODULE_OF |= dict.fromkeys(("print_markdown", "print_report"), "tensormagic.views.page.terminal")

__all__ = sorted((*_MODULE_OF, "TraceError"), key=lambda name: (name[0].islower(), name))  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports.names(__name__, _MODULE_OF, _MODULE_OF.__getitem__)
