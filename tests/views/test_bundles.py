"""What hosts get of a report that they show by themselves: other notebooks, marimo, plain IPython."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tensormagic
from tensormagic.api import showing
from tests.views import samples_trace

KEYS = ["text/html", "text/latex", "text/plain"]


def test_a_report_shows_itself_where_the_extension_is_not_loaded():
    """As the value of a cell it is the panel and its text, not the pages of a dataclass's repr."""
    report = samples_trace.broken()
    data, _ = InteractiveShell().display_formatter.format(report)
    assert sorted(data) == KEYS
    assert data["text/plain"] == str(report)
    assert 'class="tm' in data["text/html"]
    assert report._repr_html_() == data["text/html"]


def test_what_cannot_be_drawn_is_said(monkeypatch):
    """Showing never raises."""

    def failing(*_, **__):
        raise RuntimeError("ink ran out")

    monkeypatch.setattr("tensormagic.views.render", failing)
    bundle = samples_trace.broken()._repr_mimebundle_(include=None, exclude=None)
    assert sorted(bundle) == KEYS
    assert all("ink ran out" in text for text in bundle.values())


@pytest.mark.parametrize("inside", [True, False], ids=["in a marimo notebook", "in a script that imports marimo"])
def test_show_in_marimo(monkeypatch, capsys, inside):
    """In marimo the panel is appended to the cell's output; elsewhere it is printed."""
    appended = []
    fake = SimpleNamespace(running_in_notebook=lambda: inside, output=SimpleNamespace(append=appended.append))
    monkeypatch.setitem(sys.modules, "marimo", fake)
    monkeypatch.setattr(showing, "_display", None)
    report = samples_trace.broken()
    tensormagic.show(report)
    assert (appended == [report]) is inside
    assert ("TM402" in capsys.readouterr().out) is not inside
