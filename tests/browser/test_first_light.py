"""Example 01 as a user sees it: live in JupyterLab and Notebook 7, then saved, reopened, and as a page on disk."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tensormagic.commands import headless
from tests.support.kernel import ROOT, notebook_of
from tests.support.lab import LabNotebook

EXAMPLE = ROOT / "examples" / "01_first_light.ipynb"
TRAIN_STATES = 10  # painted while the training cell shows [*]; some 40 are usual, and a busy machine paints fewer

# Every animation frame: what does the panel of the cell that shows [*] say and look like? Distinct answers are kept.
WATCH_RUNNING_PANELS = """() => {
  window.tensormagicSeen = {};
  window.tensormagicStale = 0;
  const look = () => {
    document.querySelectorAll('.jp-Notebook .jp-CodeCell').forEach((cell, place) => {
      if (!cell.querySelector('.jp-InputPrompt')?.textContent.includes('*')) return;
      const panel = cell.querySelector('.tmv');
      if (!panel) return;
      const colours = [...panel.querySelectorAll('.box')].map(box => box.getAttribute('class')).join();
      const said = panel.querySelector('.whereabouts')?.textContent ?? '';
      if (colours && panel.textContent.includes('waiting for the first backward')) window.tensormagicStale += 1;
      (window.tensormagicSeen[place] ??= new Set()).add(said + colours);
    });
    if (window.tensormagicRun !== 'done') requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


def places() -> dict[str, int]:
    """Return the place of every cell of the example by its id."""
    return {cell.id: place for place, cell in enumerate(nbformat.read(EXAMPLE, as_version=4).cells)}


def code_place(name: str) -> str:
    """Return the place of a cell among the code cells, as JavaScript writes a key."""
    code = [cell.id for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell.cell_type == "code"]
    return str(code.index(name))


def panel_of(opened: LabNotebook, name: str) -> Locator:
    """Return the panel in the output of the cell with that id."""
    return opened.output(places()[name]).locator(".tmv")


def assert_answers_a_click(panel: Locator) -> None:
    """The panel of the broken run names the line, and a click on the logarithm opens its drawer."""
    expect(panel).to_contain_text("TM402")
    panel.locator(".box", has_text="log").filter(has_not_text="softmax").filter(has_not_text="nll").first.click()
    drawer = panel.locator(".drawer")
    expect(drawer).to_be_visible()
    expect(drawer).to_contain_text("log_p = p.log()")
    expect(drawer).to_contain_text("64×10")


def test_the_example_is_live_in_jupyterlab_and_static_afterwards(notebook):
    """The panel moves while the cell shows [*]; afterwards a static panel is there, and answers a click.

    The fixture adds: no console error, no request that leaves the page.
    """
    opened = notebook(EXAMPLE)
    opened.page.evaluate(WATCH_RUNNING_PANELS)
    opened.start()
    opened.wait(seconds=300)
    seen = opened.page.evaluate(
        "() => Object.fromEntries(Object.entries(window.tensormagicSeen).map(([key, set]) => [key, set.size]))"
    )
    assert seen.get(code_place("train"), 0) >= TRAIN_STATES, f"distinct states painted while running: {seen}"
    assert opened.page.evaluate("() => window.tensormagicStale") == 0, "the graph is drawn, yet backward is waited for"
    assert opened.page.locator(".jp-OutputArea-output .jupyter-widgets-disconnected").count() == 0
    expect(panel_of(opened, "train")).to_contain_text("No problems found in 120 backward passes")
    assert_answers_a_click(panel_of(opened, "broken"))
    saved = {cell.id: cell for cell in opened.saved().cells}
    # what a run kept for a restart is empty when it has ended: on a busy machine this one runs long enough
    bundles = [each.data for each in saved["broken"].outputs if "data" in each and each.data != {"text/plain": ""}]
    assert [sorted(bundle) for bundle in bundles] == [["text/html", "text/latex", "text/plain"]]


def test_pointing_at_a_cell_of_the_index_grid_moves_the_mark_in_the_storage(notebook):
    """In JupyterLab the index grid and the storage strip of ``%tensor`` are linked."""
    content = nbformat.read(EXAMPLE, as_version=4)
    until = [cell.source for cell in content.cells if cell.id in {"load", "data", "transpose"}]
    opened = notebook(*until)
    opened.run()
    output = opened.output(len(until) - 1)
    expect(output).to_contain_text("offset(4, 4) = 0 + 1·4 + 8·4 = 36")
    output.get_by_text("17", exact=True).first.hover()
    expect(output).to_contain_text("offset(1, 2) = 0 + 1·1 + 8·2 = 17")


def short_example() -> list[str]:
    """Return the cells of the example without its long, honest run: what the other tests need."""
    wanted = {"load", "data", "slice", "net", "broken"}
    cells = [cell.source for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell.id in wanted]
    return [cells[0], cells[1], "turned = images[0, 0].t()\n" + cells[2], *cells[3:]]


@pytest.mark.parametrize("front", ["/doc/tree/", "/notebooks/"], ids=["JupyterLab", "Notebook 7"])
def test_the_panel_answers_a_click_after_the_run_and_reopened(notebook, front):
    """In both front ends: after the run, and once more in the saved notebook, which is trusted and ran nothing."""
    opened = notebook(*short_example(), front=front)
    opened.run(seconds=200)
    panel = opened.output(len(short_example()) - 1).locator(".tmv")
    assert_answers_a_click(panel)
    opened.saved()
    opened.open(opened.page.url)
    assert_answers_a_click(panel)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return the short example after a run in a kernel, as a saved notebook."""
    notebook = notebook_of(*short_example())
    folder = tmp_path_factory.mktemp("executed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        headless.execute(notebook, folder)
    nbformat.write(notebook, folder / "saved.ipynb")
    return folder / "saved.ipynb"


def test_a_saved_notebook_that_is_not_trusted_shows_picture_and_tables(notebook, executed):
    """JupyterLab runs no script of a notebook it did not see executed; what the output says is there all the same."""
    opened = notebook(executed)
    tensor, trace = opened.output(2), opened.output(len(short_example()) - 1)
    expect(tensor).to_contain_text("offset(i, j) = 1 + 1·i + 16·j")
    expect(tensor.locator("td", has_text="36").first).to_be_visible()
    picture = trace.locator("img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") > 400
    expect(trace.locator(".tmv")).to_have_count(0)
    trace.locator("summary").first.click()
    expect(trace.locator("details").first).to_contain_text("log_p = p.log()")
    expect(trace.locator("details table").first).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_page_that_the_demo_writes_opens_from_disk(static_page, executed, tmp_path, scripts):
    """``HEADLESS=1 make demo`` writes this page: it needs nothing else, and everything in it is visible."""
    path = tmp_path / "page.html"
    headless.write_page(nbformat.read(executed, as_version=4), path, "page")
    assert "application/vnd.jupyter.widget" not in path.read_text(encoding="utf-8")
    page = static_page(path, scripts=scripts)
    expect(page.get_by_text("offset(i, j) = 1 + 1·i + 16·j").first).to_be_visible()
    if scripts:
        assert_answers_a_click(page.locator(".tmv"))
    else:
        expect(page.locator(".tm-static img").first).to_be_visible()
