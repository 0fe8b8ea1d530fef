"""What is said where torch is missing or too old."""

from __future__ import annotations

import pytest

from tensormagic.collectors import requirements
from tensormagic.errors import RequirementError


@pytest.fixture(autouse=True)
def ask_anew():
    """Judge the installed torch anew, in each test and after it."""
    requirements.require_torch.cache_clear()
    yield
    requirements.require_torch.cache_clear()


@pytest.mark.parametrize("version", ["2.10", "2.10.0", "2.13.0+cpu", "2.11.0a0+git1234", "3.0.1", "10.0"])
def test_new_enough(version, monkeypatch):
    """Releases, local builds and previews from 2.10 on."""
    monkeypatch.setattr(requirements.metadata, "version", lambda _name: version)
    requirements.require_torch()


@pytest.mark.parametrize("version", ["2.9.1", "2.6.0", "2.5.1+cu124", "1.13.1", "2.0", "0.4"])
def test_too_old(version, monkeypatch):
    """What was found, what is needed, and how to get it, in one line."""
    monkeypatch.setattr(requirements.metadata, "version", lambda _name: version)
    with pytest.raises(RequirementError) as raised:
        requirements.require_torch()
    message = str(raised.value)
    assert f"found torch {version}" in message
    assert "needs torch 2.10 or newer" in message
    assert "\n" not in message
    assert isinstance(raised.value, ImportError)


def test_the_installed_one_is_judged_by_default():
    """Tests run on a torch that is new enough."""
    requirements.require_torch()


def test_what_is_installed_is_read_once(monkeypatch):
    """Not at every call, which would cost each of them ten milliseconds."""
    asked = []
    monkeypatch.setattr(requirements.metadata, "version", lambda name: asked.append(name) or "2.13.0")
    for _ in range(3):
        requirements.require_torch()
    assert asked == ["torch"]


def test_missing(monkeypatch):
    """No torch at all."""

    def version(_name):
        raise requirements.metadata.PackageNotFoundError

    monkeypatch.setattr(requirements.metadata, "version", version)
    with pytest.raises(RequirementError, match=r"needs torch 2.10 or newer, but found none: pip install torch"):
        requirements.require_torch()
