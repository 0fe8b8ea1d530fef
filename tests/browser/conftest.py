"""Fixtures that drive Chromium: JupyterLab with a notebook open, or a saved page without any server.

Every page is watched: a request that leaves it, a console error or an uncaught exception fails the test, whatever
else the test asserts. What must be let through, a test says with ``watch.ignore(pattern)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support import warm
from tests.support.kernel import notebook_of
from tests.support.lab import LabNotebook, Server, lab_server
from tests.support.missing import missing
from tests.support.watch import Watch
from tools.system import find_chromium

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine, whatever a page asks for
)
LAB, NOTEBOOK = "/doc/tree/", "/notebooks/"
# Seen with plain outputs and without any extension too.
NOTEBOOK_ERRORS = ("reading 'schema'", "Command 'filebrowser:open-path' not registered")


@pytest.fixture(autouse=True, scope="module")
def warm_kernels() -> Iterator[None]:
    """Kernels that a test starts by itself are forks."""
    with warm.kernels():
        yield


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of the Chromium that the tests drive; skips where there is none."""
    return find_chromium() or missing("no Chromium: set TM_CHROMIUM, or install chromium, or run `playwright install`")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any], chromium: str) -> dict[str, Any]:
    """Tell pytest-playwright which browser to start, and how."""
    return {**browser_type_launch_args, "executable_path": chromium, "args": list(FLAGS)}


@pytest.fixture(scope="session")
def jupyter(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab server for the whole run."""
    with lab_server(tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="session")
def lab_context(browser: Browser, jupyter: Server) -> BrowserContext:
    """Where notebooks are opened: one for all of them, so that JupyterLab's own code is fetched once."""
    return browser.new_context()


@pytest.fixture
def lab_page(lab_context: BrowserContext) -> Iterator[Page]:
    """A fresh page in which `notebook` opens."""
    page = lab_context.new_page()
    yield page
    page.close()


@pytest.fixture(scope="session")
def kept_pages() -> list[Page]:
    """The page, if any, in which JupyterLab is loaded and no notebook is open: loading it takes five seconds."""
    return []


@pytest.fixture
def watch(jupyter: Server) -> Iterator[Watch]:
    """What the pages of JupyterLab do that they must not; asserted after the test."""
    watch = Watch(home=(jupyter.url,))
    yield watch
    watch.assert_clean()


@pytest.fixture
def notebook(
    request: pytest.FixtureRequest, jupyter: Server, lab_context: BrowserContext, watch: Watch, kept_pages: list[Page]
) -> Iterator[Callable[..., LabNotebook]]:
    """Return a function that opens a notebook in JupyterLab: ``notebook("x = 1", "x")`` or ``notebook(path)``.

    It comes back with the kernel ready and nothing run yet. ``front=NOTEBOOK`` opens it in Notebook 7. Where a test
    asks for `lab_page` it is that one; otherwise a test of JupyterLab is given the page of the test before, if that
    passed: its notebook is closed, and nothing of tensormagic is left in it.
    """
    failed = request.session.testsfailed
    given = request.getfixturevalue("lab_page") if "lab_page" in request.fixturenames else None
    opened: list[LabNotebook] = []

    def open_notebook(*cells: str | Path, front: str = LAB) -> LabNotebook:
        content = nbformat.read(cells[0], as_version=4) if isinstance(cells[0], Path) else notebook_of(*cells)
        path = jupyter.folder / f"t{time.time_ns()}.ipynb"
        nbformat.write(content, path)
        watch.ignored += NOTEBOOK_ERRORS if front == NOTEBOOK else ()
        loaded = front == LAB and given is None and bool(kept_pages)
        opened.append(LabNotebook(kept_pages.pop() if loaded else given or lab_context.new_page(), path))
        watch.follow(opened[-1].page)
        if loaded:
            opened[-1].open_beside()
        else:
            opened[-1].open(jupyter.url + front + path.name)
        return opened[-1]

    yield open_notebook
    watch.over = True
    for each in opened:
        each.close()
        watch.leave(each.page)
        if request.session.testsfailed == failed and each.page is not given and not kept_pages and each.is_as_loaded():
            kept_pages.append(each.page)
        elif each.page is not given:
            each.page.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., BrowserContext]:
    """Return a function for the one context of all saved pages, with scripts or without.

    An empty page stays open in it: those that come later are then drawn by the process that is already there.
    """
    empty = _written("", tmp_path_factory.mktemp("empty") / "empty.html").as_uri()

    @cache
    def context(*, scripts: bool) -> BrowserContext:
        made = browser.new_context(java_script_enabled=scripts)
        made.new_page().goto(empty)
        return made

    return context


@pytest.fixture
def static_page(contexts: Callable[..., BrowserContext], tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return a function that opens HTML (text, or a file) from disk: ``static_page(html, dark=False, scripts=True)``.

    The page may ask for nothing but itself.
    """
    opened: list[tuple[Page, Watch]] = []

    def open_page(html: str | Path, *, dark: bool = False, scripts: bool = True, width: int = 1100) -> Page:
        path = html if isinstance(html, Path) else _written(html, tmp_path / f"page{len(opened)}.html")
        watch = Watch(home=(path.as_uri(),))
        page = contexts(scripts=scripts).new_page()
        opened.append((page, watch))
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_viewport_size({"width": width, "height": 800})
        watch.attach(page)
        page.goto(path.as_uri())
        return page

    yield open_page
    for page, _ in opened:
        page.context.clear_permissions()
        page.close()
    for _, watch in opened:
        watch.assert_clean()


def _written(html: str, path: Path) -> Path:
    path.write_text(html, encoding="utf-8")
    return path
