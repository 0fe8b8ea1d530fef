"""What is said where torch is missing or too old, or where a function is given what it does not take."""

from __future__ import annotations

import re

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors import requirements
from tensormagic.collectors.requirements import what
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


WRONG = (3, [1, 2], "x", torch.relu)
TAKERS = {
    "aliases": tm.aliases, "tensors": tm.tensors, "memory": tm.memory, "rng": tm.rng, "check": tm.check,
    "overlay": tm.overlay, "copy_or_view": lambda given: tm.copy_or_view(torch.ones(2), given),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("given", WRONG, ids=("number", "list", "text", "function"))
def test_what_is_no_mapping_of_names_is_refused_with_what_was_given(name, given):
    """By every function that takes names, in the same words."""
    expected = f"{name}() takes names and their values, but was given {what(given)}: "
    with pytest.raises(tm.TensorMagicError, match=re.escape(expected)):
        TAKERS[name](given)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: tm.overlay(None), "overlay() takes names and their values, but was given None"),
        (lambda: tm.show(3), "was given an int"),
        (lambda: tm.ignore(None), "cannot ignore None: codes look like TM201"),
        (lambda: tm.ignore([None]), "cannot ignore [None]: codes look like TM201"),
        (lambda: tm.memory({}, devices=3.5), "torch knows no device 3.5"),
        (lambda: tm.ranks(None), "takes a folder, or the trace report of each rank, but was given NoneType"),
        (lambda: tm.ranks([]), "no report was given"),
        (lambda: tm.why(torch.ones(2), trace=3), "not an int"),
        (lambda: tm.track_memory(functions=len).__enter__(), "cannot follow len"),
    ],
)
def test_other_odd_input_is_refused_with_what_was_given(ask, said):
    """A sentence of ours, not an error from within."""
    with pytest.raises(tm.TensorMagicError, match=re.escape(said)):
        ask()


def test_what_is_only_a_name_may_be_anything():
    """A title is shown as text; one function need not be in a list."""

    def double(x):
        return 2 * x

    with tm.trace(title=7) as trace:
        pass
    assert "── 7 ──" in str(trace.report)
    with tm.track_memory(functions=double) as run:
        double(torch.ones(3))
    assert [one.name for one in run.report.functions] == [double.__qualname__]
