"""CUDA memory snapshots: read safely, wherever they were made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tensormagic.reports import SnapshotReport


def read_snapshot(
    snapshot: str | os.PathLike[str] | Mapping[str, Any],
    *,
    cell_number: Callable[[str], int | None] | None = None,
) -> SnapshotReport:
    """Return what a CUDA memory snapshot holds: segments, blocks, the timeline of its events, each line's part.

    Nothing in the file is imported or called: only plain data is loaded, and anything else is refused. Neither a GPU
    nor CUDA is needed.

    Args:
        snapshot: A file that ``torch.cuda.memory._dump_snapshot`` wrote, or what ``torch.cuda.memory._snapshot()``
            returned.
        cell_number: Gives a cell's execution count from its file name; None outside a notebook.

    Raises:
        SnapshotError: where it is no snapshot, or more than plain data; the message says what and at which byte.
    """
    from tensormagic.collectors.snapshots.reading import plain_data
    from tensormagic.collectors.snapshots.snapshot import snapshot_report

    data, name, size = plain_data(snapshot)
    return snapshot_report(data, source=name, file_bytes=size, cell_number=cell_number)
