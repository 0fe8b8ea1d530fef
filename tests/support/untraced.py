"""Reads errors of a traced run a second time, as if nobody had traced it: what the source tells, beside the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensormagic.collectors.failures import failures


def read_untraced(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list to which each backward that torch refuses from now on adds what its source tells of it."""
    read: list[dict[str, Any]] = []
    kept = failures._of_backward

    def also_read(*given: Any) -> dict[str, Any]:
        *call, around = given
        read.append(kept(*call, replace(around, origins=None)))
        return kept(*given)

    monkeypatch.setattr(failures, "_of_backward", also_read)
    return read
