"""What only a session's history keeps in memory, and letting go of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensormagic.collectors.requirements import require_torch
from tensormagic.reports import FreeingReport


def free_history(namespace: Mapping[str, Any], *, drop: bool = False) -> FreeingReport:
    """Return what outputs and the last error keep that no name leads to; with ``drop``, let go of it.

    Args:
        namespace: The names of a session, as IPython keeps them.
        drop: Whether to let go: outputs leave ``Out``, ``_`` and ``_5``, the last error ``sys.last_value``; then
            Python's garbage collector runs, and torch's caches are emptied.
    """
    require_torch()
    from tensormagic.collectors.releases.session import free_session

    return free_session(namespace, drop=drop)
