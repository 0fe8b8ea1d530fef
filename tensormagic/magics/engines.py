"""``%%tracegrad --ranks``: runs the cell on all engines of an ipyparallel cluster, each a rank; one panel here.

Engines write what they do to files, as under ``tensormagic.trace(ranks=...)``, and post 64 bytes a step, once a second.
While they run the panel is drawn from the files, where they reach the folder of this process and are small, else from
the posts: there all parameters count as one. At the end it is drawn from the files; those that lie elsewhere are sent
here in pieces. No message is larger than 20 KB.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from tensormagic import api
from tensormagic.background import Background
from tensormagic.errors import TensorMagicError
from tensormagic.magics.frames import bundle, deliver, relays_updates
from tensormagic.reports import RankReport
from tensormagic.words import error_text

_SECONDS = 1.0
_LARGEST = 16_384  # bytes of posts, or of a piece of a file, in a message
_KEY = "tensormagic posts "  # of what is published; by itself, of the head
_MOST_READ = 32 * 2**20  # bytes of files that are read while the engines run
_NO_CLIENT = (
    "--ranks alone runs the cell on the engines of an ipyparallel client, and there is none here: rc = "
    "ipyparallel.Cluster(n=2).start_and_connect_sync(). In any other process --ranks FOLDER writes what this rank does"
)

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def run(shell: Any, options: str, cell: str, given: Namespace, *, live: bool) -> None:
    """Run a cell under ``%%tracegrad`` on all engines, and show their ranks as they go on, and at the end.

    Raises:
        UsageError: where there is no client, no engine wrote anything, or the cell failed on an engine.
    """
    __tracebackhide__ = True
    view = _view(shell)
    live = live and relays_updates(shell) and not given.text
    handle = display(display_id=True) if live else None
    # Full reports are read from there when they are asked for: it goes with this process.
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="tensormagic-ranks-", ignore_cleanup_errors=True))
    place = _FOLDERS[-1].name
    report, failed = _ended(view, view.apply_async(traced_here, options, cell, place, live=live), Path(place), handle)
    if report is None:
        raise UsageError("; ".join(failed) or "no multi-rank run was traced on the engines")
    if handle is not None:
        handle.update(bundle(report), raw=True)
    deliver(shell, report, given, shown=handle is not None)
    if failed:
        raise UsageError(f"the cell failed: {'; '.join(failed)}")


def _ended(view: Any, running: Any, folder: Path, handle: Any) -> tuple[RankReport | None, list[str]]:
    """Wait for the engines, drawing meanwhile; return the report, and which failed. Prints what the cell printed."""
    while not running.ready():
        running.wait(_SECONDS)
        if handle is not None and not running.ready() and (report := _so_far(running, folder)) is not None:
            handle.update(bundle(report), raw=True)
    failed, is_away = [], False
    for engine, (shares, error, printed) in zip(running.engine_id, running.get(), strict=True):
        is_away |= not shares
        if printed.strip():
            print(f"[engine {engine}] {printed.rstrip()}")  # noqa: T201  (what the cell printed there)
        failed += [f"{error} (engine {engine})"] if error else []
    for number in itertools.count() if is_away else ():
        parts = [part for part in view.apply_sync(piece, number) if part is not None]
        for name, content in parts:
            with (folder / name).open("ab") as file:
                file.write(content)
        if not parts:
            break
    return _report(folder), failed


def _so_far(running: Any, folder: Path) -> RankReport | None:
    """Return what the engines do now: what they wrote, where that is here and soon read, else what they posted.

    No rank is missing yet (TM900): one begins, or ends, before another.
    """
    sizes = [path.stat().st_size for path in folder.glob("rank*.jsonl")]
    if sizes and sum(sizes) <= _MOST_READ:
        report = _report(folder)
    else:
        from tensormagic.comparisons.rank_files import of_posts

        posted = [[each[key] for key in sorted(each) if str(key).startswith(_KEY)] for each in running.data]
        found = [of_posts(head, b"".join(posts)) for head, *posts in filter(None, posted)]
        report = api.ranks(found) if found else None
    if report is None:
        return None
    return replace(report, findings=tuple(one for one in report.findings if one.code != "TM900"))


class _Posted:
    """Posts what this process does as a rank, from the file that it writes into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._posting: Any = None
        self._number = 0

    def run(self, over: Event) -> None:
        """Post once a second, until it is over; goes on where it was after a fork."""
        from ipyparallel.datapub import publish_data  # type: ignore[import-untyped,unused-ignore]

        from tensormagic.collectors.runs.rank_file import peak_bytes
        from tensormagic.comparisons.rank_files import Posting

        while not over.wait(_SECONDS):
            own = filter(_is_own, self._folder.glob("rank*.jsonl"))
            self._posting = self._posting or next(map(Posting, own), None)
            if self._posting is None:
                continue
            before, posts = self._posting.head, self._posting.new(peak_bytes())
            if self._posting.head != before:
                publish_data({_KEY: self._posting.head})
            for at in range(0, len(posts), _LARGEST):
                self._number += 1
                publish_data({f"{_KEY}{self._number:09d}": posts[at : at + _LARGEST]})


def _is_own(path: Path) -> bool:
    """Return whether this process writes a file of a rank."""
    with path.open("rb") as file:
        return f'"pid":{os.getpid()},'.encode() in file.read(300)


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


def traced_here(options: str, cell: str, folder: str, *, live: bool) -> tuple[bool, str, str]:
    """Run a cell under ``%%tracegrad --ranks`` in this process, an engine, with options as they stand behind the magic.

    All engines write into ``folder``, if they reach it; ``live``: what is written is looked at while the cell runs.

    Returns:
        Whether what this rank wrote is there: if not, `piece` has it. The error that ended the cell, or nothing; what
        it printed.
    """
    from IPython import get_ipython
    from IPython.utils.capture import capture_output

    shell = get_ipython()
    if "tensormagic" not in shell.extension_manager.loaded:
        shell.extension_manager.load_extension("tensormagic")
    shares = Path(folder).is_dir()
    place = Path(folder if shares else tempfile.mkdtemp(prefix="tensormagic-ranks-"))
    _remove_left()  # of a run whose client was interrupted before it asked
    _left[:] = [] if shares else [place]
    posting = Background(_Posted(place).run, "tensormagic-posting")
    if live:
        posting.start()
    try:
        with capture_output(display=False) as printed:
            result = shell.run_cell(f"%%tracegrad {options} --live off --ranks '{place}'\n{cell}")
    finally:
        posting.stop()
    error = result.error_before_exec or result.error_in_exec
    return shares, error_text(error) if error is not None else "", str(printed.stdout)


_left: list[Path] = []  # the folder of this engine's last run, where the client does not reach it


def piece(number: int) -> tuple[str, bytes] | None:
    """Return a piece of what this engine left, with the name of its file; None behind the last, and all is removed."""
    for path in sorted(_left[0].glob("rank*")) if _left else ():
        pieces = -(-path.stat().st_size // _LARGEST)
        if number < pieces:
            with path.open("rb") as file:
                file.seek(number * _LARGEST)
                return path.name, file.read(_LARGEST)
        number -= pieces
    _remove_left()
    return None


def _remove_left() -> None:
    while _left:
        shutil.rmtree(_left.pop(), ignore_errors=True)
