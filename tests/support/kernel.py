"""Runs cells in a real Jupyter kernel, in a folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tensormagic.commands.headless import sockets_in_files

ROOT = Path(__file__).resolve().parents[2]


def notebook_of(*cells: str) -> nbformat.NotebookNode:
    """Return a notebook of code cells."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return nbformat.v4.new_notebook(cells=code, metadata={"kernelspec": kernel})


def jupyter_environment(folder: Path) -> dict[str, str]:
    """Return the environment for Jupyter processes that see this checkout and no settings of the user."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")
    own = {name: str(folder / name.lower()) for name in names}
    return {
        **os.environ,
        **own,
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def run_notebook(
    notebook: nbformat.NotebookNode,
    folder: Path,
    *,
    allow_errors: bool = False,
    seconds: int = 120,
    settings: Path | None = None,
    widget_state: bool = True,
) -> nbformat.NotebookNode:
    """Run every cell, in place, in a fresh kernel in ``folder``; returns the notebook with its outputs.

    Jupyter's and IPython's own files go to ``settings``, by default to ``folder`` as well. ``widget_state`` keeps what
    widgets sent, those that are gone included; JupyterLab does not, unless it is told to.

    Raises:
        CellExecutionError: for the first cell that fails, unless ``allow_errors``.
    """
    with sockets_in_files() as config:
        client = NotebookClient(
            notebook,
            timeout=seconds,
            kernel_name="python3",
            allow_errors=allow_errors,
            resources={"metadata": {"path": str(folder)}},
            store_widget_state=widget_state,
            config=config,
        )
        return client.execute(env=jupyter_environment(settings or folder))
