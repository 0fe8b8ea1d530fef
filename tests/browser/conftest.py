"""Fixtures that drive Chromium: JupyterLab with a notebook open, or a saved page without any server.

Every page is watched: a request that leaves it, a console error or an uncaught exception fails the test, whatever
else the test asserts. What must be let through, a test says with ``watch.ignore(pattern)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Page

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
)
LAB, NOTEBOOK = "/doc/tree/", "/notebooks/"
# Seen with plain outputs and without any extension too.
NOTEBOOK_ERRORS = ("reading 'schema'", "Command 'filebrowser:open-path' not registered")


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


@pytest.fixture
def watch(jupyter: Server) -> Iterator[Watch]:
    """What the pages of JupyterLab do that they must not; asserted after the test."""
    watch = Watch(home=(jupyter.url,))
    yield watch
    watch.assert_clean()


@pytest.fixture
def notebook(jupyter: Server, page: Page, watch: Watch) -> Iterator[Callable[..., LabNotebook]]:
    """Return a function that opens a notebook in JupyterLab: ``notebook("x = 1", "x")`` or ``notebook(path)``.

    It comes back with the kernel ready and nothing run yet. ``front=NOTEBOOK`` opens it in Notebook 7.
    """
    watch.attach(page.context)
    opened: list[LabNotebook] = []

    def open_notebook(*cells: str | Path, front: str = LAB) -> LabNotebook:
        content = nbformat.read(cells[0], as_version=4) if isinstance(cells[0], Path) else notebook_of(*cells)
        path = jupyter.folder / f"t{time.time_ns()}.ipynb"
        nbformat.write(content, path)
        watch.ignored += NOTEBOOK_ERRORS if front == NOTEBOOK else ()
        opened.append(LabNotebook(page, path))
        opened[-1].open(jupyter.url + front + path.name)
        return opened[-1]

    yield open_notebook
    watch.over = True
    for each in opened:
        each.close()


@pytest.fixture
def static_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return a function that opens HTML (text, or a file) from disk: ``static_page(html, dark=False, scripts=True)``.

    The page may ask for nothing but itself.
    """
    opened: list[tuple[Page, Watch]] = []

    def open_page(html: str | Path, *, dark: bool = False, scripts: bool = True, width: int = 1100) -> Page:
        path = html if isinstance(html, Path) else _written(html, tmp_path / f"page{len(opened)}.html")
        context = browser.new_context(
            java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 800},
        )
        watch = Watch(home=(path.as_uri(),))
        watch.attach(context)
        page = context.new_page()
        page.goto(path.as_uri())
        opened.append((page, watch))
        return page

    yield open_page
    for page, _ in opened:
        page.context.close()
    for _, watch in opened:
        watch.assert_clean()


def _written(html: str, path: Path) -> Path:
    path.write_text(html, encoding="utf-8")
    return path
