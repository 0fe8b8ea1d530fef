"""Reads any report that was saved as ``.json``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tensormagic import reports
from tensormagic.reports import Report


def load(path: str | os.PathLike[str]) -> Report:
    """Return the report that ``report.save("x.json")`` wrote, whatever kind it is.

    Args:
        path: The file.

    Raises:
        ReportFormatError: where the file cannot be read, or holds no report; the message names the file.
    """
    kinds = {
        kind.kind_name: kind for kind in vars(reports).values() if isinstance(kind, type) and issubclass(kind, Report)
    }
    return kinds.get(_kind_name(path), Report).load(path)


def _kind_name(path: str | os.PathLike[str]) -> str:
    """Return what kind of report a file says that it holds; nothing where it cannot be read: `load` says why."""
    try:
        data = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(data.get("tensormagic", "")) if isinstance(data, dict) else ""
