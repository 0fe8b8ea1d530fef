"""``python -m tensormagic demo --headless``: a notebook becomes one page that needs no network."""

from __future__ import annotations

import nbformat
import pytest

from tensormagic.commands import main
from tests.support.kernel import notebook_of

pytestmark = pytest.mark.notebook


def write_page(tmp_path, *cells):
    """Run the command on a notebook of ``cells``; return its exit status and the page."""
    nbformat.write(notebook_of(*cells), tmp_path / "page.ipynb")
    status = main(["demo", "--headless", "--notebook", str(tmp_path / "page.ipynb"), str(tmp_path / "out")])
    return status, (tmp_path / "out" / "page.html").read_text(encoding="utf-8")


def test_the_page_holds_the_outputs_and_loads_nothing(tmp_path, capsys):
    """What the cells printed is in the page, its path is printed, and no script comes from elsewhere."""
    status, html = write_page(tmp_path, "print('six times', 7)")
    assert status == 0
    assert "six times 7" in html
    assert f"wrote {tmp_path / 'out' / 'page.html'}" in capsys.readouterr().out
    assert '<script src="http' not in html
    assert '<link href="http' not in html


def test_a_failing_notebook_fails_and_still_leaves_a_page(tmp_path, capsys):
    """The exit status says so, the error is printed, and the page shows how far it came."""
    status, html = write_page(tmp_path, "print('before')", "1 / 0", "print('after')")
    assert status == 1
    assert "division by zero" in capsys.readouterr().out
    assert "before" in html
