"""What a test does where a program or a device that it needs is not there."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip with the reason; in continuous integration (``CI=true``) fail instead, so that nothing hides there."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason}; under CI=true what is missing is a failure", pytrace=False)
    pytest.skip(reason)


def needs_module(*names: str) -> None:
    """Go on only where these modules are installed."""
    for name in names:
        if find_spec(name) is None:
            missing(f"{name} is not installed")
