"""``%model``: a model, or a call of one, as a user types it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tensormagic.magics import completion


@pytest.mark.parametrize("typed", ["net", "net(a.t()[:, :2])", "net(torch.ones(5, 2)).sum()"])
def test_a_model_or_a_call_of_one(cell, typed):
    """The same panel; shapes where something ran."""
    (bundle,) = cell(f"%model {typed}").shown
    assert sorted(bundle) == ["text/html", "text/latex", "text/plain"]
    assert bundle["text/plain"].startswith("── net ── Linear · 3 parameters · train mode ──")
    assert ("OUTPUT" in bundle["text/plain"]) == (typed != "net")
    assert ("%model net(x)" in bundle["text/plain"]) == (typed == "net")


def test_the_table_of_a_model_leads_to_its_tree(cell):
    """%tensor net says how to see it as a tree, %tensor of a list does not."""
    assert "%model net" in cell("%tensor net").shown[0]["text/plain"]
    assert "%model" not in cell("%tensor [a, b]").shown[0]["text/plain"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("a", "a is a torch.Tensor and calls no model: give a model, or a call of one such as net(x)"),
        ("nett", "there is no name 'nett' here; did you mean net?"),
        ("net, a", "%model shows one model, but here are 2: net, a. Name one: %model net"),
    ],
)
def test_what_is_no_model(cell, typed, said):
    """One line that says what would work."""
    assert said in cell(f"%model {typed}").err


def test_models_complete(cell, shell):
    """Behind %model the names of models stand first."""
    event = SimpleNamespace(line="%model ", symbol="", command="%model", text_until_cursor="%model ")
    assert completion._complete(shell, event)[0] == "net"
