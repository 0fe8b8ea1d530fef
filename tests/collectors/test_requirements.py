"""What is said where torch is missing or too old, or where a function is given what it does not take."""

from __future__ import annotations

import collections
import concurrent.futures
import re

import numpy as np
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


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (concurrent.futures.Future(), "a concurrent.futures.Future"),
        (np.random.RandomState(0), "a numpy.random.RandomState"),
        (torch.optim.SGD([torch.ones(1)]), "a torch.optim.SGD"),
        (torch.Size([1]), "a torch.Size of 1"),
        (collections.Counter(), "a collections.Counter of 0"),
    ],
)
def test_a_class_is_named_as_a_user_imports_it(value, words):
    """By the outermost module that has it, not by the file that it is written in."""
    assert what(value) == words


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


X = torch.ones(2, requires_grad=True)
WRONG = (3, [1, 2], "x", torch.relu)
TAKERS = {
    "aliases": tm.aliases, "tensors": tm.tensors, "memory": tm.memory, "rng": tm.rng, "check": tm.check,
    "overlay": tm.overlay, "copy_or_view": lambda given: tm.copy_or_view(torch.ones(2), given),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("given", WRONG, ids=("number", "list", "text", "function"))
def test_what_is_no_mapping_of_names_is_refused_with_what_was_given(name, given):
    """By every function that takes names, in the same words."""
    expected = rf'^{name}\(\) takes names and their values, as in {{"x": x}}, but was given {re.escape(what(given))}$'
    with pytest.raises(tm.TensorMagicError, match=expected):
        TAKERS[name](given)


@pytest.mark.parametrize("name", TAKERS)
def test_a_name_that_is_no_text_is_refused(name):
    """A list that was numbered is no namespace."""
    expected = rf"^{name}\(\) takes names .*: a name is text, but was given an int$"
    with pytest.raises(tm.TensorMagicError, match=expected):
        TAKERS[name]({0: torch.ones(2), 1: torch.ones(2)})


NAMESPACES = {
    "inspect": lambda given: tm.inspect(torch.ones(2), namespace=given),
    "gradgraph": lambda given: tm.gradgraph(torch.ones(2, requires_grad=True) * 2, namespace=given),
    "why": lambda given: tm.why(torch.ones(2), namespace=given),
    "model": lambda given: tm.model(torch.nn.ReLU(), namespace=given),
    "trace": lambda given: tm.trace(namespace=given),
    "watch_writes": lambda given: tm.watch_writes(namespace=given),
    "explain": lambda given: tm.explain(namespace=given),
    "track_memory": lambda given: tm.track_memory(namespace=given),
    "track_rng": lambda given: tm.track_rng(namespace=given),
}


@pytest.mark.parametrize("name", NAMESPACES)
@pytest.mark.parametrize("given", WRONG, ids=("number", "list", "text", "function"))
def test_a_namespace_is_a_mapping_of_names(name, given):
    """For every function that looks names up, before anything is looked at."""
    with pytest.raises(tm.TensorMagicError, match=rf"^{name}\(\) takes names and their values"):
        NAMESPACES[name](given)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: tm.overlay(None), 'overlay() takes names and their values, as in {"x": x}, but was given None'),
        (lambda: tm.show(3), "was given an int"),
        (lambda: tm.ignore(None), "cannot ignore None: codes look like TM201"),
        (lambda: tm.ignore([None]), "cannot ignore [None]: codes look like TM201"),
        (lambda: tm.memory({}, devices=3.5), "torch knows no device 3.5"),
        (lambda: tm.memory({}, devices=[]), "was given no device: name one, or leave it out"),
        (lambda: tm.memory({}, most="all"), "memory(most=…) takes a whole number, but was given a str"),
        (lambda: tm.memory({}, only=[X]), "memory() takes names and their values"),
        (lambda: tm.aliases({}, only=[X]), "aliases() takes names and their values"),
        (lambda: tm.tensors({}, around=[X]), "tensors() takes names and their values"),
        (lambda: tm.tensors({}, panels="all"), "tensors(panels=…) takes a whole number, but was given a str"),
        (lambda: tm.inspect(X, X), "inspect(x, name) takes a name as text, but was given a torch.Tensor"),
        (lambda: tm.inspect(X, at=0), "inspect(at=…) takes one entry for each dimension, but was given an int"),
        (lambda: tm.inspect(X, dims=0), "inspect(dims=…) takes one entry for each dimension, but was given an int"),
        (lambda: tm.inspect(X, verdict="copy"), "inspect(verdict=…) takes what copy_or_view() returned"),
        (lambda: tm.inspect(X, besides=None), "inspect(besides=…) takes a list"),
        (lambda: tm.gradgraph(X * 2, X), "gradgraph(loss, name) takes a name as text, but was given a torch.Tensor"),
        (lambda: tm.why(X, X * 2), "why(x, name) takes a name as text, but was given a torch.Tensor"),
        (lambda: tm.model(torch.nn.ReLU(), X), "model(net, name) takes a name as text, but was given a torch.Tensor"),
        (lambda: tm.load(None), "load() takes a path, but was given None"),
        (lambda: tm.load("~nobody-of-that-name/run.json"), "load(): there is no home folder for '~nobody"),
        (lambda: tm.ranks("~nobody-of-that-name/run"), "ranks(): there is no home folder for '~nobody"),
        (
            lambda: tm.read_snapshot("~nobody-of-that-name/s.pickle"),
            "read_snapshot(): there is no home folder for '~no",
        ),
        (lambda: tm.gradgraph(X.detach().numpy()), "loss is an array: only torch tensors have a graph"),
        (lambda: tm.compare(None, None, names=("a", 3)), "compare(names=…) takes a name as text, but was given an int"),
        (lambda: tm.inspect(X).save(None), "save() takes a path, but was given None"),
        (lambda: tm.trace(ranks=3), "trace(ranks=…) takes a path, but was given 3"),
        (lambda: tm.compare(None, None, names=2), "compare() takes two names, one per run, but was given an int"),
        (
            lambda: tm.check({}, earlier=3),
            "check(earlier=…) takes the reports of earlier checks, the oldest first",
        ),
        (lambda: tm.check({}, earlier=[3]), "the oldest first, but was given an int"),
        (lambda: tm.track_memory(functions=3), "track_memory(functions=…) takes functions, or their names"),
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
