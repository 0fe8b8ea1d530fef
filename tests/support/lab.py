"""A JupyterLab server of our own, and a notebook opened in it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page

from tests.support import warm
from tests.support.kernel import jupyter_environment

START_SECONDS = 90
KERNEL_MILLISECONDS = 90_000
# What a page keeps of a notebook's panels goes with the notebook; CodeMirror's own style sheets stay.
CLOSE = """async () => {
  const app = window.jupyterapp;
  for (const widget of [...(app?.shell.widgets('main') ?? [])]) {
    if (widget.context) widget.context.model.dirty = false;
    widget.dispose();
  }
  await app?.serviceManager.sessions.shutdownAll();
  const ours = Object.values(document.tensormagicSheets ?? {});
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter(sheet => !ours.includes(sheet));
  for (const place of [window, document])
    for (const name of Object.keys(place)) if (name.startsWith('tensormagic')) delete place[name];
  localStorage.clear();
  sessionStorage.clear();
}"""
OPEN = """async path => {
  const app = window.jupyterapp, before = [...app.shell.widgets('main')];
  await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  before.forEach(widget => widget.dispose());
}"""
# No news box over the page; every cell in the page at all times, so that a test finds it.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: where it answers, and the folder it shows."""

    url: str
    folder: Path


@contextlib.contextmanager
def lab_server(folder: Path) -> Iterator[Server]:
    """Run JupyterLab with all its files under ``folder``, and end its whole process group after.

    It takes the first port that is free when it binds it, and its kernels have sockets in files: no other process can
    take a port between the search and its use. A socket's path has 100 characters at most, so theirs are elsewhere.
    The kernels are forks.
    """
    notebooks = folder / "notebooks"
    notebooks.mkdir(parents=True)
    _write_settings(folder / "settings")
    with tempfile.TemporaryDirectory(prefix="tm") as runtime, (folder / "server.log").open("w") as log:
        with warm.kernels():
            process = _start(notebooks, folder, Path(runtime), log)
        try:
            yield Server(_url_when_up(Path(runtime), process, folder / "server.log"), notebooks)
        finally:
            _end(process)


def _start(notebooks: Path, folder: Path, runtime: Path, log: Any) -> subprocess.Popen[bytes]:
    own = {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTER_RUNTIME_DIR": str(runtime)}
    options = (
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port_retries=200",
        "--KernelManager.transport=ipc",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={notebooks}",
        "--LabApp.expose_app_in_browser=True",
        "--JupyterNotebookApp.expose_app_in_browser=True",
    )
    return subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env=jupyter_environment(folder) | own,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _url_when_up(runtime: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"JupyterLab ended while starting:\n{log.read_text()}"
        with contextlib.suppress(OSError, ValueError):
            url = json.loads((runtime / f"jpserver-{process.pid}.json").read_text())["url"].rstrip("/")
            with urllib.request.urlopen(f"{url}/api/status", timeout=2):
                return url
        time.sleep(0.1)
    raise TimeoutError(f"JupyterLab did not answer in {START_SECONDS} s:\n{log.read_text()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _write_settings(folder: Path) -> None:
    for name, values in SETTINGS.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


@dataclass
class LabNotebook:
    """A notebook that is open in a page of JupyterLab (or of Notebook 7).

    Attributes:
        page: The Playwright page.
        path: The notebook's file.
    """

    page: Page
    path: Path

    def open(self, url: str) -> None:
        """Go to the notebook and wait until its kernel has started and its cells are drawn."""
        self.page.goto(url)
        self._wait_until_ready()

    def open_beside(self) -> None:
        """Open the notebook where another one was, whose page is there still."""
        self.page.evaluate(OPEN, self.path.name)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell?.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle'"
            " && document.querySelector('.jp-Cell')",
            timeout=KERNEL_MILLISECONDS,
        )

    def start(self) -> None:
        """Begin to run all cells, and come back at once: the page can be looked at while they run."""
        self.page.evaluate(
            "() => { window.tensormagicRun = null;"
            " window.jupyterapp.commands.execute('notebook:run-all-cells')"
            ".then(() => { window.tensormagicRun = 'done' }, error => { window.tensormagicRun = String(error) }) }"
        )

    def is_running(self) -> bool:
        """Whether the cells that `start` began are still running (told by the cells, not by the kernel's status)."""
        return self.page.evaluate("() => window.tensormagicRun === null")

    def wait(self, *, seconds: float = 120) -> None:
        """Wait until all cells that `start` began have run, or one of them failed."""
        self.page.wait_for_function("() => window.tensormagicRun !== null", timeout=seconds * 1000)

    def run(self, *, seconds: float = 120) -> None:
        """Run all cells and wait for them."""
        self.start()
        self.wait(seconds=seconds)

    def output(self, cell: int) -> Locator:
        """Return the output area of the cell with that index, from 0, Markdown cells counted."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-Cell-outputArea")

    def saved(self) -> nbformat.NotebookNode:
        """Save the notebook, and return what is in the file then."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.path, as_version=4)

    def theme(self, *, dark: bool) -> None:
        """Switch JupyterLab to its dark or its light theme."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        command = "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})"
        self.page.evaluate(command, name)
        self.page.wait_for_selector(f"body[data-jp-theme-light='{str(not dark).lower()}']", state="attached")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")  # it is removed twice if themes follow fast

    def close(self) -> None:
        """Close the notebook and end its kernel, which would stay with the server otherwise."""
        self.page.mouse.move(0, 0)
        self.page.evaluate(CLOSE)

    def is_as_loaded(self) -> bool:
        """Whether this is JupyterLab for one document, as light and as large as a new page and without a question."""
        return self.page.viewport_size == {"width": 1280, "height": 720} and self.page.evaluate(
            "() => /\\/doc(\\/|$)/.test(location.pathname) && document.body.dataset.jpThemeLight === 'true'"
            " && !document.querySelector('.jp-Dialog')"
        )
