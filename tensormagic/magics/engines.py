"""``%%tracegrad --ranks``: runs the cell on all engines of an ipyparallel cluster, each a rank; one panel here.

Engines write what they do to files, as under ``tensormagic.trace(ranks=...)``. Where they reach the folder of this
process the panel is drawn while they run; their files are sent here at the end in any case.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Output
from tensormagic.magics.display import bundle, deliver, relays_updates
from tensormagic.reports import RankReport

_SECONDS = 1.0
_NO_CLIENT = (
    "--ranks alone runs the cell on the engines of an ipyparallel client, and there is none here: rc = "
    "ipyparallel.Cluster(n=2).start_and_connect_sync(). In any other process --ranks FOLDER writes what this rank does"
)


def run(shell: Any, options: str, cell: str, output: Output, *, live: bool) -> None:
    """Run a cell under ``%%tracegrad`` on all engines, and show their ranks as they go on, and at the end.

    Raises:
        UsageError: where there is no client, no engine wrote anything, or the cell failed on an engine.
    """
    __tracebackhide__ = True
    view = _view(shell)
    live = live and relays_updates(shell) and not output.text
    handle = display(display_id=True) if live else None
    with tempfile.TemporaryDirectory(prefix="tensormagic-ranks-", ignore_cleanup_errors=True) as place:
        report, failed = _ended(view.apply_async(traced_here, options, cell, place), Path(place), handle)
    if report is None:
        raise UsageError("; ".join(failed) or "on the engines no run of several ranks was traced")
    if handle is not None:
        handle.update(bundle(report), raw=True)
    deliver(shell, report, output, shown=handle is not None)
    if failed:
        raise UsageError(f"the cell failed: {'; '.join(failed)}")


def _ended(running: Any, folder: Path, handle: Any) -> tuple[RankReport | None, list[str]]:
    """Wait for the engines, drawing meanwhile; return the report, and which failed. Prints what the cell printed."""
    while not running.ready():
        running.wait(_SECONDS)
        if handle is not None and not running.ready() and (report := _report(folder)) is not None:
            handle.update(bundle(report), raw=True)
    failed = []
    for engine, (written, error, said) in zip(running.engine_id, running.get(), strict=True):
        for name, content in written.items():
            (folder / name).write_bytes(content)
        if said.strip():
            print(f"[engine {engine}] {said.rstrip()}")  # noqa: T201  (what the cell printed there)
        failed += [f"{error} (engine {engine})"] if error else []
    return _report(folder), failed


def _report(folder: Path) -> RankReport | None:
    """Return what the engines have written so far; None where that is nothing, or they do not reach that folder."""
    try:
        return replace(api.ranks(folder), title="")
    except TensorMagicError:
        return None


def _view(shell: Any) -> Any:
    """Return the engines that ``%px`` would use, else all of the first client in the person's namespace."""
    magics = shell.magics_manager.registry.get("ParallelMagics")
    if magics is not None and getattr(magics, "view", None) is not None:
        return magics.view
    module = sys.modules.get("ipyparallel")
    clients = [each for each in shell.user_ns.values() if module is not None and issubclass(type(each), module.Client)]
    if not clients:
        raise UsageError(_NO_CLIENT)
    return clients[0][:]


def traced_here(options: str, cell: str, folder: str) -> tuple[dict[str, bytes], str, str]:
    """Run a cell under ``%%tracegrad --ranks`` in this process, an engine.

    Returns:
        What this rank wrote, by the name of its file; the error that ended the cell, or nothing; what it printed.
    """
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    shell = get_ipython()
    if "tensormagic" not in shell.extension_manager.loaded:
        shell.extension_manager.load_extension("tensormagic")
    place = Path(folder) if Path(folder).is_dir() else Path(tempfile.mkdtemp())
    with capture_output(display=False) as said:
        result = shell.run_cell(f"%%tracegrad {options} --live off --ranks '{place}'\n{cell}")
    error = result.error_before_exec or result.error_in_exec
    mark = f'"pid":{os.getpid()},'.encode()
    written = {path.name: text for path in place.glob("rank*.jsonl") if mark in (text := path.read_bytes())[:300]}
    return written, f"{type(error).__name__}: {error}" if error is not None else "", str(said.stdout)
