"""Runs a notebook and writes it as one static page that needs no network: python -m tools.notebook_page IN OUT.

This is what ``HEADLESS=1 make demo`` does where there is no browser to open.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

# The exporter would load these from the network; what tensormagic shows needs none of them.
OFFLINE = dict.fromkeys(("mathjax_url", "require_js_url", "widget_renderer_url"), "")
CELL_SECONDS = 600


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run every cell in ``folder``, in place; stops at the first that fails.

    Raises:
        CellExecutionError: where a cell fails that is not tagged ``raises-exception``.
    """
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,  # a live panel is gone when its cell has ended: what it sent is of no more use
    ).execute()


def write_page(notebook: nbformat.NotebookNode, page: Path, title: str) -> None:
    """Write the notebook, outputs and all, as one HTML file."""
    html, _ = HTMLExporter(**OFFLINE).from_notebook_node(notebook, {"metadata": {"name": title}})
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(html, encoding="utf-8")


def main() -> int:
    """Run the notebook that the command line names; the page is written also where a cell failed."""
    parser = argparse.ArgumentParser(description="Run a notebook and write it as one static page.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    if not given.notebook.is_file():
        parser.error(f"there is no notebook {given.notebook}")
    notebook = nbformat.read(given.notebook, as_version=4)
    print(f"running {given.notebook} …", flush=True)
    failure = ""
    try:
        execute(notebook, given.notebook.parent)
    except CellExecutionError as error:
        failure = str(error)
    write_page(notebook, given.page, given.notebook.stem)
    print(f"{failure}\n" * bool(failure) + f"wrote {given.page.resolve()} ({given.page.stat().st_size / 1e3:.0f} kB)")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
