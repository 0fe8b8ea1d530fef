"""The code that panels share: held once by a notebook, found by every panel, whatever comes first."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from tensormagic import views
from tensormagic.views import theme
from tests.browser.test_hosts import restart
from tests.views import samples_tensor, samples_viewer
from tests.views.test_files import sample

pytestmark = pytest.mark.browser

RUN = samples_viewer.calm_run(2)
WHOLE = views.render(RUN, "html")
LEAN = theme.deduplicate(WHOLE, dict.fromkeys(theme.elements(WHOLE), 3))
ADD = (
    "html => { const place = document.body.appendChild(document.createElement('div'));"
    " place.append(document.createRange().createContextualFragment(html)) }"
)
SENTENCE = "The interactive view needs the output of cell [3]"
EARLIER = (
    '<section class="tm"><script type="text/plain" data-tm-code="trace-0a1b2c3d" data-tm-cell="3"></script></section>'
)


def test_the_code_may_come_before_or_after(static_page):
    """Panels that come without it begin to live when an output that carries it is there, in any order."""
    page = static_page(LEAN + LEAN)
    expect(page.locator(".tm-static img")).to_have_count(2)
    expect(page.locator("section.tm").first).to_contain_text(SENTENCE)
    expect(page.locator("section.tm").first).to_contain_text("run this cell again")
    assert page.locator(".tmv, .tm-export").count() == 0
    page.evaluate(ADD, WHOLE)
    page.evaluate(ADD, LEAN)
    expect(page.locator(".tmv")).to_have_count(4)
    expect(page.locator(".tm-export")).to_have_count(4)
    expect(page.get_by_text(SENTENCE)).to_have_count(0)
    assert page.evaluate("document.adoptedStyleSheets.length") == 1


def test_outputs_of_two_versions_are_on_one_page(static_page):
    """A front end may add them at once: the script of one takes the elements of all, which are called the same."""
    page = static_page("")
    page.evaluate(ADD, WHOLE + EARLIER)
    expect(page.locator(".tmv")).to_have_count(1)
    expect(page.locator("section.tm").last).to_contain_text(SENTENCE)
    assert re.findall(r'<script type="text/plain" data-tm-code="trace-\w+" data-tm-cell="3"></script>', LEAN)


def test_without_scripts_nothing_is_missed(static_page):
    """Where no script runs the picture is all there is, and nothing speaks of more."""
    page = static_page(LEAN, scripts=False)
    expect(page.locator(".tm-static img")).to_be_visible()
    assert "interactive" not in page.locator("body").inner_text()


def test_what_is_exported_brings_the_code_along(static_page):
    """A page of its own of a panel that found its code in another output."""
    page = static_page(WHOLE + LEAN)
    line = page.locator("section.tm").nth(1).locator(".tm-export")
    line.locator("summary").click()
    with page.expect_download() as download:
        line.get_by_role("button", name="HTML", exact=True).click()
    alone = static_page(download.value.path().read_text())
    expect(alone.locator(".tmv")).to_have_count(1)
    expect(alone.locator(".tm-export")).to_have_count(1)


@pytest.mark.parametrize(("kind", "part"), [("tensors", ".tm-tools"), ("overlay", ".tm-said")])
def test_smaller_viewers_are_shared_too(static_page, kind, part):
    """The table and the strip find theirs; a tensor's grid answers the pointer."""
    tensor = views.render(samples_tensor.transpose_slice(), "html")
    pages = [views.render(sample(kind), "html"), tensor]
    lean = [theme.deduplicate(html, dict.fromkeys(theme.elements(html), 1)) for html in pages]
    page = static_page("".join((*lean, *pages)))
    expect(page.locator(part)).to_have_count(2)
    page.locator("section.tm-tensor:not(.tm-overlay)").first.get_by_text("13", exact=True).first.hover()
    expect(page.locator("body")).to_contain_text("offset(0, 1) = 1 + 1·0 + 12·1 = 13")


SET_UP = """
%load_ext tensormagic
import torch, tensormagic
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
"""
TRACE = "%%tracegrad\nnet(torch.ones(3, 4)).sum().backward()"
TENSOR = "%tensor net[0].weight"
PANELS = [TRACE, TENSOR, "%tensors", "%rng", TRACE, TENSOR, "%%gpumem\nx = torch.ones(9)", "%why net[0].weight",
          "%aliases", "tensormagic.inspect(net[0].bias)"] * 2  # fmt: skip
OFF = '%config TensorMagic.live = "off"'


def carried(lab):
    """Return the pieces of code in the saved file, each with how often it is there."""
    text = json.dumps(lab.saved(), ensure_ascii=False).replace('\\"', '"')
    return Counter(name for name in re.findall(r'data-tm-code="(\w+)-\w+">[^<]', text))


ONCE = Counter(("trace", "export", "tensor", "tensors"))


def assert_live(lab, *, traces=4, tensors=6, panels=20):
    """Every run has its viewer, every tensor's grid is mounted, every panel has its line "Export"."""
    expect(lab.page.locator(".tmv")).to_have_count(traces)
    expect(lab.page.locator(".tm-export")).to_have_count(panels)
    mounted = "() => [...document.querySelectorAll('section.tm-tensor')].filter(one => one.tensormagicPanel).length"
    assert lab.page.evaluate(mounted) == tensors
    expect(lab.page.get_by_text("The interactive view needs")).to_have_count(0)


def act(lab, cell, name):
    """Do what a menu entry does, with one cell selected."""
    lab.page.evaluate("at => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = at }", cell)
    lab.page.evaluate("name => window.jupyterapp.commands.execute(name)", name)


@pytest.mark.parametrize("front", ["/doc/tree/", "/notebooks/"], ids=["JupyterLab", "Notebook 7"])
def test_a_notebook_holds_the_viewer_once(notebook, watch, front):
    """Twenty panels: run, run again, opened again; a carrier deleted, one cleared; the kernel restarted."""
    lab = notebook(SET_UP + OFF, *PANELS, front=front)
    lab.run()
    assert_live(lab)
    assert carried(lab) == ONCE
    lab.run()
    assert carried(lab) == ONCE
    act(lab, 1, "notebook:delete-cell")
    act(lab, 4, "notebook:run-cell")
    assert carried(lab) == ONCE
    act(lab, 1, "notebook:clear-cell-output")
    act(lab, 5, "notebook:run-cell")
    assert carried(lab) == ONCE
    lab.open(lab.page.url)
    assert_live(lab, traces=3, tensors=5, panels=18)
    watch.ignore("Could not restore the debugger state")  # JupyterLab's own, of a kernel that is restarted early
    restart(lab)
    lab.run()
    assert_live(lab, traces=3, panels=19)
    assert carried(lab) == ONCE
