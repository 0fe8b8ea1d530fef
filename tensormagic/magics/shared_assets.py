"""Which cell of a notebook is which; and which outputs carry the code that panels share, which point to one that does.

A saved notebook of twenty panels should hold the viewer once. The kernel never sees the notebook; but each request to
run a cell says which front end it comes from, in which cell it stands, and, from JupyterLab, which cells were deleted.
Where a front end is known to show all outputs of a notebook on one page, the first panel carries the code. A mistake
costs a second copy where that is possible, and else the interaction, of which the panel then says how it comes back.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.getipython import get_ipython

MODES = ("auto", "once", "each")
MOST_PAGES = 8  # pages whose outputs are remembered; each time the notebook is opened is one
_PAGES: dict[int, Pages] = {}  # of each shell


def running_number(shell: Any) -> int:
    """Return the number that the notebook shows beside the running cell: the one in ``In [n]``.

    ``shell.execution_count`` is that number in IPython 8, and one more in IPython 9, which counts on before it runs a
    cell. The frame of the cell that called the magic belongs to the number it was compiled under, in both.
    """
    filename = _running_file(shell)
    return int(shell.execution_count) if filename is None else int(_numbers(shell)[filename])


def _running_file(shell: Any) -> str | None:
    """Return the name that the running cell was compiled under; None where no cell runs."""
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))  # noqa: SLF001  (the way to one's callers)
    names = (frame.f_code.co_filename for frame in frames)
    return next((name for name in names if cell_number(shell, name) is not None), None)


def cell_number(shell: Any, filename: str) -> int | None:
    """Return the execution count of the cell that IPython compiled under ``filename``, or None."""
    number = _numbers(shell).get(filename)
    return int(number) if number is not None else None


def cell_numbers(shell: Any) -> dict[str, int]:
    """Return the execution count of every cell, by the last part of the name that IPython compiled it under."""
    return {PurePath(name).name: int(number) for name, number in _numbers(shell).items() if number is not None}


def name_of_cell(shell: Any, source: str, cell: str) -> str:
    """Return a name to compile the body of a cell magic under, and let Python and IPython find its source there.

    It is the name of the running cell where that is this magic alone: under this name a notebook's debugger sets its
    breakpoints, and its lines are those of ``source``. Any other name must not be that of a cell with the same body
    and no magic, whose lines count from the body on: the magic's own line is part of what IPython makes it from.
    """
    running = _running_file(shell)
    called = linecache.getlines(running) if running is not None else []
    if running is not None and len(called) == 1 and called[0].rstrip().endswith(f", {cell!r})"):
        linecache.cache[running] = len(source), None, [f"{line}\n" for line in source.splitlines()], running
        return running
    number = running_number(shell)
    name: str = shell.compile.cache(source, number, raw_code=f"{source.partition(chr(10))[0]}\n{cell}")
    _numbers(shell)[name] = number
    return name


def _numbers(shell: Any) -> dict[str, int]:
    """Return the number of each cell by the name that it was compiled under, which IPython 8 keeps for its tracebacks.

    IPython 7, which is Colab's, forgets it: names are made again from the text of the cells.
    """
    if (kept := getattr(shell.compile, "_filename_map", None)) is not None:
        return kept  # type: ignore[no-any-return]
    known, history = _NUMBERS.setdefault(shell, {}), shell.history_manager
    last = max(known.values(), default=0)
    if last >= len(history.input_hist_parsed):  # after %reset
        known.clear()
        last = 0
    for number in range(last + 1, len(history.input_hist_parsed)):
        code = f"{history.input_hist_parsed[number]}\n"
        known[shell.compile.get_code_name(history.input_hist_raw[number], code, number)] = number
    return known


_NUMBERS: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Request:
    """What a front end said as it asked for a cell to be run."""

    number: str  # Names the request.
    page: str  # Names the page that it comes from.
    cell: str  # Names the cell; empty where the front end does not say.
    code: str  # The cell's text.
    deleted: tuple[str, ...]  # Cells that were deleted since the last request.
    on_one_page: bool  # Whether this front end is known to show all outputs of a notebook on one page.

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Request:
        """Read an execute request of the Jupyter protocol."""
        header, metadata, content = (message.get(part) or {} for part in ("header", "metadata", "content"))
        cell = str(metadata.get("cellId") or "")
        # JupyterLab and Notebook 7 send a list of deleted cells, VS Code the address of the cell.
        known = bool(cell) and ("deletedCells" in metadata or cell.startswith("vscode-notebook-cell:"))
        number, page, code = (str(found) for found in (header.get("msg_id", ""), header.get("session", ""),
                                                       content.get("code", "")))  # fmt: skip
        return cls(number, page, cell, code, tuple(map(str, metadata.get("deletedCells") or ())), known)


class SharedPieces:
    """Which cells of one page carry which pieces of code, as far as the kernel can know."""

    def __init__(self) -> None:
        self._carriers: dict[str, dict[str, tuple[int, int]]] = {}  # of each piece the cells: their run and number
        self._runs: dict[str, tuple[int, int]] = {}  # of each cell the last one, and its text's hash
        self._cell, self._now, self._since = "", 0, 0

    def begin(self, cell: str, code: str) -> None:
        """A cell is run: what its output carried is gone.

        Whoever runs a cell again, and nothing else has changed, misses the code of its panel, because the output that
        carried it was cleared: then only carriers that were run since are relied on.
        """
        before, text = self._runs.get(cell, (0, None))
        self._cell, self._now, self._since = cell, self._now + 1, before if text == hash(code) else 0
        self._runs[cell] = (self._now, hash(code))
        self.forget([cell])

    def clear(self) -> None:
        """The output of the running cell is cleared."""
        self.forget([self._cell])

    def forget(self, cells: Iterable[str]) -> None:
        """These cells carry nothing any more."""
        for carriers in self._carriers.values():
            for cell in cells:
                carriers.pop(cell, None)

    def elsewhere(self, pieces: Iterable[str], number: int) -> dict[str, int]:
        """Return which of these pieces another output carries, with its cell's number; this output carries the rest.

        ``number`` is what the page shows beside the running cell.
        """
        found = {}
        for piece in pieces:
            carriers = self._carriers.setdefault(piece, {})
            run, its_number = max(carriers.values(), default=(0, 0))
            if run > self._since:
                found[piece] = its_number
            else:
                carriers[self._cell] = self._now, number
        return found


class Pages:
    """The pages on which the outputs of one shell are; ``mode`` returns how the user wants it: one of `MODES`."""

    def __init__(self, shell: Any, mode: Callable[[], str]) -> None:
        self._shell, self._mode = shell, mode
        self._pieces_of_pages: dict[str, SharedPieces] = {}
        self._last_request = ""

    def elsewhere(self, pieces: Iterable[str]) -> dict[str, int]:
        """Return which pieces the output that is about to be shown need not carry, and where they are."""
        request = self._request()
        if request is None or (mode := self._mode()) == "each" or (mode == "auto" and not request.on_one_page):
            return {}
        return self._noted(request).elsewhere(pieces, running_number(self._shell))

    def note_run(self, _info: Any = None) -> None:
        """A cell is about to run; IPython calls this."""
        if (request := self._request()) is not None:
            self._noted(request)

    def note_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Something is about to be sent to the page; ipykernel calls this, and sends what is returned."""
        if message.get("msg_type") == "clear_output" and (request := self._request()) is not None:
            self._noted(request).clear()
        return message

    def _request(self) -> Request | None:
        """Return what asked for what runs now; None where displays do not go to the page."""
        get_parent = getattr(self._shell, "get_parent", None)
        if get_parent is None or not hasattr(self._shell.display_pub, "register_hook"):
            return None
        request, module = Request.of(get_parent()), sys.modules.get("ipywidgets.widgets.widget")
        kind = getattr(module, "Widget", None)  # none while another thread imports ipywidgets
        places = ((module, "_instances"), (kind, "_active_widgets"), (kind, "widgets"))  # before 8.0.3, and in 7
        widgets: dict[Any, Any] = next((getattr(holder, name) for holder, name in places if hasattr(holder, name)), {})
        # what an `Output` widget takes is not saved with the cell
        caught = any(getattr(widget, "msg_id", "") == request.number for widget in tuple(widgets.values()))
        return None if not request.number or caught else request

    def _noted(self, request: Request) -> SharedPieces:
        """Write down a request, once, and which cells are gone since the one before; return what its page carries."""
        pages = self._pieces_of_pages
        if request.number != self._last_request:
            self._last_request = request.number
            pages[request.page] = carried = pages.pop(request.page, None) or SharedPieces()  # the newest last
            while len(pages) > MOST_PAGES:
                del pages[next(iter(pages))]
            carried.forget(request.deleted)
            carried.begin(request.cell or f"text {hash(request.code)}", request.code)
        return pages[request.page]


class Placement:
    """One output, however often it is replaced: what it carries stays with it."""

    def __init__(self) -> None:
        self._decided: frozenset[str] = frozenset()
        self._elsewhere: dict[str, int] = {}

    def deduplicate(self, html: str) -> str:
        """Return what is to be shown there without the code that another output of the page carries."""
        pages = _PAGES.get(id(get_ipython()))
        if pages is None:
            return html
        from tensormagic.views import theme

        if new := theme.elements(html).keys() - self._decided:
            self._elsewhere |= pages.elsewhere(sorted(new))
            self._decided |= new
        return theme.deduplicate(html, self._elsewhere)


def install(shell: Any, mode: Callable[[], str]) -> Callable[[], None]:
    """Begin to follow what the shell shows; returns what ends it."""
    pages = _PAGES[id(shell)] = Pages(shell, mode)
    shell.events.register("pre_run_cell", pages.note_run)
    publisher = shell.display_pub
    if hasattr(publisher, "register_hook"):
        publisher.register_hook(pages.note_message)

    def undo() -> None:
        del _PAGES[id(shell)]
        shell.events.unregister("pre_run_cell", pages.note_run)
        if hasattr(publisher, "unregister_hook"):
            publisher.unregister_hook(pages.note_message)

    return undo
