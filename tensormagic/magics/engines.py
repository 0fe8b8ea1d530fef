"""``%%tracegrad --ranks``: runs the cell on all engines of an ipyparallel cluster, each a rank; one panel here.

Engines write what they do to files, as under ``tensormagic.trace(ranks=...)``. The panel is drawn while they run: from
the files where they reach the folder of this process, else from the parts of them that they publish once a second.
Whole files are sent here at the end in any case.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.background import Background
from tensormagic.errors import TensorMagicError
from tensormagic.magics.arguments import Output
from tensormagic.magics.frames import bundle, deliver, relays_updates
from tensormagic.reports import RankReport
from tensormagic.words import error_text

_SECONDS = 1.0
_LARGEST = 16_384  # bytes of a message that an engine publishes
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
        report, failed = _ended(view.apply_async(traced_here, options, cell, place, live=live), Path(place), handle)
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
        if handle is None or running.ready():
            continue
        _take_published(running, folder)
        if (report := _report(folder)) is not None:
            handle.update(bundle(report), raw=True)
    failed = []
    for engine, (written, error, said) in zip(running.engine_id, running.get(), strict=True):
        for name, content in written.items():
            (folder / name).write_bytes(content)
        if said.strip():
            print(f"[engine {engine}] {said.rstrip()}")  # noqa: T201  (what the cell printed there)
        failed += [f"{error} (engine {engine})"] if error else []
    return _report(folder), failed


def _take_published(running: Any, folder: Path) -> None:
    """Write the parts of files that engines have published so far."""
    for published in running.data:
        files: dict[str, bytes] = {}
        for key in sorted(published):
            name = key.partition(" ")[0]
            files[name] = files.get(name, b"") + published[key]
        for name, content in files.items():
            (folder / name).write_bytes(content)


class _Published:
    """Publishes what is appended to the files in a folder, in numbered parts.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: Counter[Path] = Counter()
        self._number = 0

    def run(self, over: Event) -> None:
        """Publish once a second, until it is over."""
        from ipyparallel.datapub import publish_data  # type: ignore[import-untyped,unused-ignore]

        while not over.wait(_SECONDS):
            for path in self._folder.glob("rank*.jsonl"):
                with path.open("rb") as file:
                    file.seek(self._sent[path])
                    while part := file.read(_LARGEST):
                        publish_data({f"{path.name} {self._number:09d}": part})
                        self._sent[path] += len(part)
                        self._number += 1


def _report(folder: Path) -> RankReport | None:
    """Return what the engines have written so far; None where that is nothing, or they do not reach that folder."""
    try:
        return replace(api.ranks(folder), title="")
    except TensorMagicError:
        return None


def _view(shell: Any) -> Any:
    """Return the engines that ``%px`` would use, else all of the first client in the user namespace."""
    magics = shell.magics_manager.registry.get("ParallelMagics")
    if magics is not None and getattr(magics, "view", None) is not None:
        return magics.view
    module = sys.modules.get("ipyparallel")
    clients = [each for each in shell.user_ns.values() if module is not None and issubclass(type(each), module.Client)]
    if not clients:
        raise UsageError(_NO_CLIENT)
    return clients[0][:]


def traced_here(options: str, cell: str, folder: str, *, live: bool) -> tuple[dict[str, bytes], str, str]:
    """Run a cell under ``%%tracegrad --ranks`` in this process, an engine.

    Args:
        options: As they stand behind the magic.
        cell: The code.
        folder: Where all engines write, if they reach it.
        live: Whether what is written is looked at while the cell runs.

    Returns:
        What this rank wrote, by the name of its file; the error that ended the cell, or nothing; what it printed.
    """
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    shell = get_ipython()
    if "tensormagic" not in shell.extension_manager.loaded:
        shell.extension_manager.load_extension("tensormagic")
    shares = Path(folder).is_dir()
    place = Path(folder if shares else tempfile.mkdtemp(prefix="tensormagic-ranks-"))
    publishing = Background(_Published(place).run, "tensormagic-publishing")
    if live and not shares:
        publishing.start()
    try:
        with capture_output(display=False) as said:
            result = shell.run_cell(f"%%tracegrad {options} --live off --ranks '{place}'\n{cell}")
    finally:
        publishing.stop()
    error = result.error_before_exec or result.error_in_exec
    mark = f'"pid":{os.getpid()},'.encode()
    written = {path.name: text for path in place.glob("rank*.jsonl") if mark in (text := path.read_bytes())[:300]}
    if not shares:
        shutil.rmtree(place, ignore_errors=True)
    return written, error_text(error) if error is not None else "", str(said.stdout)
