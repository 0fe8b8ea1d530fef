"""Runs a notebook and writes it as one static page that needs no network: where there is no browser to open.

This is what ``HEADLESS=1 make demo`` and ``python -m tensormagic demo --headless`` do. Needs the extra ``lab``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter
from traitlets.config import Config

# The exporter would load these from the network; what tensormagic shows needs none of them.
OFFLINE = dict.fromkeys(("mathjax_url", "require_js_url", "widget_renderer_url"), "")
CELL_SECONDS = 600


@contextlib.contextmanager
def sockets_in_files() -> Iterator[Config]:
    """Yield settings with which a kernel is reached through files and not through ports, where the system can.

    Jupyter looks for free ports before it starts the kernel that takes them, and another process can be faster: the
    kernel then dies with "Address already in use". The folder's path is short: a socket's holds 100 characters.
    """
    if os.name == "nt":
        yield Config()
        return
    with tempfile.TemporaryDirectory(prefix="tm") as folder:
        yield Config(KernelManager={"transport": "ipc", "connection_file": str(Path(folder, "kernel.json"))})


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run every cell in ``folder``, in place, and print which; stops at the first that fails.

    Raises:
        CellExecutionError: where a cell fails that is not tagged ``raises-exception``.
    """

    def tell(cell: nbformat.NotebookNode, cell_index: int) -> None:
        first = cell.source.partition("\n")[0]
        print(f"  cell {cell_index + 1} of {len(notebook.cells)}: {first}", flush=True)

    with sockets_in_files() as config:
        NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            extra_arguments=["--log-level=ERROR"],  # where there are ports, it warns of them at length
            store_widget_state=False,  # a live panel is gone when its cell has ended: what it sent is of no more use
            config=config,
            on_cell_execute=tell,
        ).execute()


def write_page(notebook: nbformat.NotebookNode, page: Path, title: str) -> None:
    """Write the notebook, outputs and all, as one HTML file."""
    html, _ = HTMLExporter(**OFFLINE).from_notebook_node(notebook, {"metadata": {"name": title}})
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(html, encoding="utf-8")


def run_to_page(source: Path, page: Path) -> str:
    """Run a notebook where, and write its page, also where a cell failed.

    Returns:
        Why it failed; empty where it did not.
    """
    notebook = nbformat.read(source, as_version=4)
    print(f"running {source} \u2026", flush=True)
    failure = ""
    try:
        execute(notebook, source.parent)
    except CellExecutionError as error:
        failure = str(error)
    write_page(notebook, page, source.stem)
    print(f"{failure}\n" * bool(failure) + f"wrote {page.resolve()} ({page.stat().st_size / 1e3:.0f} kB)")
    return failure
