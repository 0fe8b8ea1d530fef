"""The set-up of the browser tests itself: it runs cells, and it sees what it is there to see."""

from __future__ import annotations

import pytest

from tests.support.watch import Watch


@pytest.mark.parametrize("front", ["/doc/tree/", "/notebooks/"], ids=["JupyterLab", "Notebook 7"])
def test_a_notebook_runs(notebook, front):
    """A cell's output is on the page and in the saved file; nothing left the page, nothing was complained about."""
    opened = notebook("print(1 + 1)", front=front)
    opened.run()
    assert opened.output(0).inner_text().strip() == "2"
    assert opened.saved().cells[0].outputs[0].text == "2\n"


def test_the_page_can_be_read_while_a_cell_runs(notebook):
    """What a cell prints is on the page before the cell has ended."""
    opened = notebook("import time\nprint('begun', flush=True)\ntime.sleep(3)\nprint('ended')")
    opened.start()
    opened.output(0).get_by_text("begun").wait_for()
    assert opened.is_running()
    assert "ended" not in opened.output(0).inner_text()
    opened.wait()
    assert "ended" in opened.output(0).inner_text()


def test_both_themes_can_be_had(notebook):
    """The page switches to the dark theme and back."""
    opened = notebook("1")
    opened.theme(dark=True)
    assert opened.page.evaluate("document.body.dataset.jpThemeLight") == "false"
    opened.theme(dark=False)
    assert opened.page.evaluate("document.body.dataset.jpThemeLight") == "true"


def test_a_static_page_opens_without_scripts_and_in_the_dark(static_page):
    """The page is drawn with the system's dark setting, and its script does not run where scripts are off."""
    html = "<p id=p>still</p><script>document.getElementById('p').textContent = 'moved'</script>"
    assert static_page(html).inner_text("#p") == "moved"
    quiet = static_page(html, dark=True, scripts=False)
    assert quiet.inner_text("#p") == "still"


BAD_PAGES = {
    "image": ("<img src='https://example.org/x.png'>", "requests left the page: ['https://example.org/x.png']"),
    "file": ("<img src='x.png'>", "x.png"),
    "socket": ("<script>new WebSocket('ws://example.org/x')</script>", "http://example.org/x"),
    "console": ("<script>console.error('told')</script>", "told"),
    "exception": ("<script>throw new Error('thrown')</script>", "thrown"),
}


@pytest.mark.parametrize("case", BAD_PAGES)
def test_the_watch_sees_what_a_page_must_not_do(case, context, tmp_path):
    """A request to elsewhere, a console error and an uncaught exception are each named."""
    html, sentence = BAD_PAGES[case]
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    watch = Watch(home=(path.as_uri(),))
    page = context.new_page()
    watch.attach(page)
    page.goto(path.as_uri())
    page.wait_for_timeout(200)
    with pytest.raises(AssertionError) as failure:
        watch.assert_clean()
    assert sentence in str(failure.value)
