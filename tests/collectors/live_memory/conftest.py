"""What the tests of live memory share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _few_objects():
    """Let Python forget what was there before the tests: all objects of a long test run are many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
