"""``HEADLESS=1 make demo``: a notebook becomes one page that needs no network."""

from __future__ import annotations

import sys

import nbformat
import pytest

from tests.support.kernel import notebook_of
from tools import notebook_page

pytestmark = pytest.mark.notebook


def write_page(tmp_path, monkeypatch, *cells):
    """Run the tool on a notebook of ``cells``; return its exit status and the page."""
    nbformat.write(notebook_of(*cells), tmp_path / "in.ipynb")
    page = tmp_path / "out" / "page.html"
    monkeypatch.setattr(sys, "argv", ["notebook_page", str(tmp_path / "in.ipynb"), str(page)])
    return notebook_page.main(), page.read_text(encoding="utf-8")


def test_the_page_holds_the_outputs_and_loads_nothing(tmp_path, monkeypatch, capsys):
    """What the cells printed is in the page, its path is printed, and no script comes from elsewhere."""
    status, html = write_page(tmp_path, monkeypatch, "print('six times', 7)")
    assert status == 0
    assert "six times 7" in html
    assert f"wrote {tmp_path / 'out' / 'page.html'}" in capsys.readouterr().out
    assert '<script src="http' not in html
    assert '<link href="http' not in html


def test_a_failing_notebook_fails_and_still_leaves_a_page(tmp_path, monkeypatch, capsys):
    """The exit status says so, the error is printed, and the page shows how far it came."""
    status, html = write_page(tmp_path, monkeypatch, "print('before')", "1 / 0", "print('after')")
    assert status == 1
    assert "division by zero" in capsys.readouterr().out
    assert "before" in html
