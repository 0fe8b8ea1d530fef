"""The documentation site: it builds without a warning, no link is dead, and nothing comes from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tensormagic.views.theme import elements
from tests.support.kernel import ROOT, notebook_of, run_notebook
from tests.support.missing import missing, needs_module

BESIDE = {"genindex.html", "search.html", "py-modindex.html"}  # the generator's own
LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}


@dataclass
class Page(HTMLParser):
    """A page of the site: what it links to, what it loads, and the places in it that can be linked to."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loaded += [given[name] for kind, name in LOADING if kind == tag and name in given]


def read(path: Path) -> Page:
    """Return what a page links to and loads."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site without running the notebooks; return its folder."""
    needs_module("sphinx", "myst_nb", "furo")
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "tools.docs", "--fast", "--output", str(output)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return output / "html"


@pytest.fixture(scope="module")
def pages(site):
    """Return every page by its path below the site, but for the search, whose form a script fills."""
    written = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    return {path.relative_to(site).as_posix(): read(path) for path in written}


def test_every_document_is_on_the_site(pages):
    """Each page of docs/ and each example has one on the site."""
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    examples = [path.relative_to(ROOT) for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"}]
    wanted = {path.with_suffix(".html").as_posix() for path in [*documents, *examples]}
    assert wanted - set(pages) == set()


def test_the_course_has_its_order_in_the_sidebar(site):
    """Each lesson stands there once, by its number and its short name."""
    index = (site / "index.html").read_text(encoding="utf-8")
    entries = re.findall(r'<li class="toctree-l1"><a class="reference internal" href="(examples/[^"]+)">([^<]*)', index)
    paths = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"})
    assert [link for link, _ in entries] == [path.relative_to(ROOT).with_suffix(".html").as_posix() for path in paths]
    assert [name[:3] for _, name in entries] == [f"{path.stem[:2]} " for path in paths]
    assert max(len(name) for _, name in entries) <= 32


def test_no_link_is_dead(site, pages):
    """Every link within the site leads to a file that is there and, where it names a place, to that place."""
    dead = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = os.path.normpath(Path(name).parent / path) if path else name
            found = pages.get(target)
            if found is None:
                dead += [] if (site / target).is_file() else [f"{name}: {link}"]
            elif parts.fragment and unquote(parts.fragment) not in found.places | {""}:
                dead.append(f"{name}: {link}")
    assert dead == []


def test_addresses_outside_are_well_formed(pages):
    """Links that leave the site have a scheme that is safe, and a host."""
    outside = {link for page in pages.values() for link in page.links if urlsplit(link).scheme}
    assert {link for link in outside if not re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link)} == set()


def test_nothing_is_loaded_from_the_network(pages):
    """Scripts, styles, fonts and pictures are files of the site."""
    loaded = {address for page in pages.values() for address in page.loaded}
    assert [address for address in loaded if re.match(r"(?!data:)[\w+.-]+:|//", address)] == []


def test_styles_load_nothing_from_the_network(site):
    """Nor do the styles themselves ask for anything outside."""
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_the_fields_of_reports_are_told(site):
    """The pages of the API come from the docstrings: functions, errors and the fields of a report."""
    functions = (site / "api" / "functions.html").read_text(encoding="utf-8")
    assert 'id="tensormagic.inspect"' in functions
    fields = re.sub(r"<[^>]*>", "", (site / "api" / "reports.html").read_text(encoding="utf-8"))
    assert "One plain sentence with the user’s own names and numbers." in fields


def clicks(pages: dict[str, Page], start: str) -> dict[str, int]:
    """Return, for each page of the site and each place that is linked to, the fewest clicks that lead there."""
    found, reached = {start: 0}, deque([start])
    while reached:
        name = reached.popleft()
        for link in pages[name].links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = os.path.normpath(Path(name).parent / unquote(parts.path)) if parts.path else name
            for place in (target, f"{target}#{unquote(parts.fragment)}"):
                found.setdefault(place, found[name] + 1)
            if target in pages and found[target] == found[name] + 1 and target not in reached:
                reached.append(target)
    return found


def test_every_answer_is_near(pages):
    """The questions are one click from the front page, every page two; and the front page one from anywhere."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. \[.+\?\]\(([\w/]+)\.md(#[\w-]+)\)$", index, re.MULTILINE)
    assert len(asked) >= 20
    away = clicks(pages, "index.html")
    assert {away.get(f"{page}.html{place}") for page, place in asked} == {1}
    assert {name: away.get(name) for name in pages if away.get(name, 9) > 2 and name not in BESIDE} == {}
    assert [name for name in pages if "index.html" not in read_targets(name, pages[name]) and name not in BESIDE] == []


def read_targets(name: str, page: Page) -> set[str]:
    """Return the pages that a page links to."""
    paths = [unquote(urlsplit(link).path) for link in page.links if not urlsplit(link).scheme]
    return {os.path.normpath(Path(name).parent / path) for path in paths if path} | {name}


@pytest.fixture(scope="module")
def chromium():
    """Return Chromium."""
    from playwright.sync_api import sync_playwright

    from tools.system import find_chromium

    path = find_chromium() or missing("no Chromium here")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.mark.browser
def test_the_site_in_a_browser(site, chromium):
    """It opens as files; nothing fails or leaves the machine; panels are told the theme; a phone need not scroll."""
    page, wrong = chromium.new_page(color_scheme="light"), []
    page.on("request", lambda request: wrong.append(request.url) if request.url[:5] not in {"file:", "data:"} else None)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((site / "index.html").as_uri())
    theme = "document.body.dataset.jpThemeLight"
    assert page.evaluate(theme) == "true"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{theme} === 'false'")
    page.locator(".theme-toggle:visible").first.click()  # from the system's choice to light
    page.wait_for_function(f"{theme} === 'true'")
    page.set_viewport_size({"width": 390, "height": 800})
    for name in ("index", "comparison", "topics", "recipes/gradients", "magics/tracegrad"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
    page.goto((site / "search.html").as_uri() + "?q=stride")
    page.locator("#search-results li").first.wait_for()
    assert wrong == []
    page.close()


def test_a_lesson_holds_the_viewer_once(tmp_path):
    """The settings under which the site's notebooks run let the second panel find the code of the first."""
    needs_module("sphinx")
    from tools import docs

    docs.settings(tmp_path / "ipythondir")
    cells = notebook_of("import torch\n%load_ext tensormagic\nx = torch.ones(3)", "%tensor x", "%tensor x.t()")
    outputs = run_notebook(cells, tmp_path).cells
    first, second = (shown.outputs[0]["data"]["text/html"] for shown in outputs[1:])
    assert [name.partition("-")[0] for name in sorted(elements(first))] == ["export", "tensor"]
    assert not elements(second)
    assert re.findall(r"data-tm-cell=\W?(\d+)", second) == ["2", "2"]
