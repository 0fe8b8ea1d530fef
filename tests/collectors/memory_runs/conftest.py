"""Every test of this folder counts bytes that are alive."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def counted_without_garbage(no_garbage: None) -> None:
    """Begin without what earlier tests left in cycles."""
