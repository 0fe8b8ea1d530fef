"""Live panels: what the page of a running cell is sent, by ``%%tracegrad`` and by ``%%gpumem``.

A sampler takes the newest state at its own pace, leaves out what did not change, and after the run sends once more
what is left. Small messages of numbers come up to thirty times a second, whole documents at most once, and less often
where building them takes long; what the user has opened in a panel stays open.

anywidget, ipywidgets and traitlets are imported by the first live panel, not with the package.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tensormagic import views
from tensormagic.reports import Cell, MemoryFrame, MemoryRunReport, TraceReport
from tensormagic.views import to_text
from tensormagic.views.graph.drawing import Drawing, draw
from tensormagic.views.markup import plain, plain_report
from tensormagic.views.page.columns import pack_delta
from tensormagic.views.page.document import LIVE_LIMITS, trace_document
from tensormagic.views.page.files import bundle
from tensormagic.views.page.sampler import Sampler, Sender
from tensormagic.views.panels import trace
from tensormagic.views.theme import module, static, tokens
from tensormagic.words import DOT, number_of_bytes, plural

if TYPE_CHECKING:
    from tensormagic.reports import Graph, LiveFrame

Mode = Literal["widget", "html"]
Bundle = dict[str, Any]

HTML_INTERVAL = 1 / 4  # seconds between two pictures, in mode "html"
PAUSED_INTERVAL = 1 / 4  # and between two words on how far a run has come that goes on untraced
WORD_INTERVAL = 4.0  # and between two that are the same: a page that hears nothing for long says so (viewer.js)
REBUILD_INTERVAL = 1.0  # and between two whole documents, where the structure changes
REFRESH_INTERVAL = 2.0  # and where only numbers do: findings and the kept passes come with them
KEEP_INTERVAL = 3.0  # and between two pictures that a saved notebook shows where its kernel was restarted meanwhile


class LivePanel(Sampler):
    """Samples a traced run and sends what changed, from its start to its stop.

    Attributes:
        sender: Where the states go; the widget's in mode ``"widget"``.
    """

    def __init__(  # noqa: PLR0913  (two parameters; the rest are options, by name)
        self,
        frame: Callable[[], LiveFrame],
        report: Callable[[], TraceReport],
        *,
        mode: Mode = "widget",
        update: Callable[[Bundle], None] | None = None,
        keep: Callable[[Bundle], None] | None = None,
        wall: bool = False,
        sender: Sender | None = None,
        interval: float | None = None,
        **clocks: Callable[[], float],
    ) -> None:
        """Make a panel; nothing is sent before `start`.

        Args:
            frame: Returns what changes quickly; called 4 to 30 times a second, from the sampler's thread.
            report: Returns a consistent snapshot of everything; called when the structure changed.
            mode: ``"widget"``, or ``"html"``, for hosts without widgets.
            update: Replaces the shown output by a mimebundle: in mode ``"html"``, and where no widget can be made.
            keep: Shows, or replaces, a mimebundle below the widget: see `kept_bundle`.
            wall: Whether it is seen from the last row of a lecture hall.
            sender: Where to send; by default what the mode asks for.
            interval: Seconds between two looks; by default what a look costs decides.
            clocks: ``clock`` and ``processor`` of `Sampler`.
        """
        super().__init__(interval, **clocks)
        if sender is None and mode == "widget":
            try:
                sender = WidgetSender(report(), wall=wall)
            except Exception as error:  # noqa: BLE001  (a broken widget installation must not stop the run)
                self.note(error)
        self.sender = sender or (HtmlSender(update) if update is not None else Sender())
        self._frame, self._report = frame, report
        self._structure: int | None = None
        self._last_key, self._key_of_document = b"", b""
        self._last_step, self._last_delta = 0, -math.inf
        self._keep, self._keep_next = keep, self.clock() + KEEP_INTERVAL

    def close(self) -> None:
        """Stop, and take the live output away: the final bundle stands in its place by then."""
        self.stop()
        with contextlib.suppress(Exception):  # its kernel may have gone
            self.sender.close()

    def retire(self) -> None:
        """Stop, and leave the widget as the run ended, until the next one retires.

        The output in the page is replaced by then. But a page that was closed while the cell ran missed that: when it
        is opened again, what it has saved is a view of this widget, and asks the kernel for it.
        """
        self.stop()
        _keep_retired(self.sender.close)

    def bundle(self) -> Bundle:
        """Return the mimebundle to display before the run: the widget's view where there is one, and fallbacks."""
        view = view_of(self.sender.widget) if isinstance(self.sender, WidgetSender) else {}
        return {**view, **running_bundle(self._report())}

    def look(self, *, final: bool) -> None:
        """Send a whole document where the structure changed, else what changed, else nothing."""
        frame, now = self._frame(), self.clock()
        # What makes two frames different; not the time, nor the steps that go by untraced. Bytes: a NaN is not itself.
        key = pack_delta(replace(frame, seconds=0.0, next_step=0, step=0 if frame.paused else frame.step))
        begun = frame.graph != 0  # before the first graph the page shows all there is: the first is sent without delay
        grown, wait = frame.structure != self._structure, self.sender.refresh
        due = final or (begun and self.due(min(REBUILD_INTERVAL, wait) if grown else wait))
        if due and (grown or key != self._key_of_document):
            self.document(self._send_whole)
            self._structure, self._key_of_document = frame.structure, key
        paused = frame.step if frame.paused and (final or now >= self._last_delta + PAUSED_INTERVAL) else 0
        news = key != self._last_key or (paused and paused != self._last_step)
        if news or (self._last_delta + WORD_INTERVAL <= now and not final):
            self.sender.delta(frame)
            self._last_key, self._last_step, self._last_delta = key, frame.step, now

    def _send_whole(self) -> None:
        report = self._report()
        self.sender.document(report)
        if self._keep is not None and isinstance(self.sender, WidgetSender) and self.clock() >= self._keep_next:
            self._keep(kept_bundle(report))
            self._keep_next = self.clock() + KEEP_INTERVAL


_retired: list[Callable[[], None]] = []  # at most one: closes what showed a run, without the run


def _keep_retired(close: Callable[[], None]) -> None:
    """Leave what showed a run as the run ended, in the place of what did before; ``close`` will take it away."""
    dismiss_retired()
    _retired.append(close)


def dismiss_retired() -> None:
    """Close the widget of the last run that retired; nothing is left of it in the kernel then."""
    while _retired:
        with contextlib.suppress(Exception):  # its kernel may have gone
            _retired.pop()()


class HtmlSender(Sender):
    """Replaces the output by static HTML: for hosts that cannot show a widget.

    A delta has no picture of its own here, so whole documents are shown, and oftener.
    """

    refresh = HTML_INTERVAL

    def __init__(self, update: Callable[[Bundle], None]) -> None:
        """Send through ``update``, which replaces the shown output by a mimebundle."""
        self._update = update

    def document(self, report: TraceReport) -> None:
        """Replace the output by the report as it is now."""
        self._update(running_bundle(report))


class Wire:
    """Sends buffers to the page of a widget, each in a custom message without content.

    A widget's ``send`` packs and signs a message from nothing: header, parent and content become JSON through some
    twenty functions. Thirty times a second, each time with the caches that the run has filled with its own, that is
    what an update costs most. Here the first message is packed as Jupyter packs it, and the next ones are that one
    again: with a number, a buffer, and a signature of their own. A kernel, or a widget, that is not made as expected
    gets what ``send`` sends.
    """

    def __init__(self, widget: Any) -> None:
        self._widget, self._plain = widget, False
        self._comm: Any = None

    def send(self, buffer: bytes) -> None:
        """Send one buffer; what the page has not taken yet waits in no queue of ours."""
        if not self._plain:
            try:
                comm = self._widget.comm
                if self._comm is None:
                    self._pack(comm)
                # A child that a cell forks must not write to its parent's sockets.
                if comm is self._comm and os.getpid() == self._process:
                    before, after = self._header
                    number = f"{comm.comm_id}_{next(self._count)}".encode()
                    signed = [before + number + after, *self._rest]
                    self._socket.send_multipart([*self._opening, self._sign(signed), *signed, buffer])
                    return
            except Exception:  # noqa: BLE001  (another kernel, or none: the widget's own way works, or says why not)
                self._plain = True
        self._widget.send({}, buffers=[buffer])

    def _pack(self, comm: Any) -> None:
        session = comm.kernel.session
        content = {"data": {"method": "custom", "content": {}}, "comm_id": comm.comm_id}
        message = session.msg("comm_msg", content=content, parent=comm.kernel.get_parent(), metadata={})
        to, delimiter, _, header, *rest = session.serialize(message, comm.topic)
        before, after = header.split(message["msg_id"].encode())
        if header[:1] != b"{" or len(rest) != 3:  # parent, metadata, content
            raise ValueError("these messages have an unexpected form")
        self._header, self._rest, self._opening, self._sign = (before, after), rest, (to, delimiter), session.sign
        self._socket, self._count, self._process = comm.kernel.iopub_socket, itertools.count(1), os.getpid()
        self._comm = comm


class WidgetSender(Sender):
    """Sends to an anywidget: documents as a synced trait, deltas as binary messages."""

    refresh = REFRESH_INTERVAL

    def __init__(self, report: TraceReport, *, wall: bool = False) -> None:
        """Make the widget, showing ``report``; ``wall``: as large as it is seen from the last row."""
        self._wall = wall
        self._drawings: dict[tuple[int, int, int], Drawing] = {}
        self.widget = _trace_widgets()(_document=self._document_of(report))
        self._wire = Wire(self.widget)

    def _document_of(self, report: TraceReport) -> dict[str, Any]:
        def drawn(graph: Graph, *, max_boxes: int) -> Drawing:  # once, and again where it grew: the same every time
            key = (graph.number, len(graph.nodes), len(graph.edges))
            if key not in self._drawings:
                self._drawings[key] = draw(graph, max_boxes=max_boxes)
            return self._drawings[key]

        document = trace_document(plain_report(report), limits=LIVE_LIMITS, draw=drawn)
        return {**document, "wall": self._wall}

    def document(self, report: TraceReport) -> None:
        """Replace the document."""
        self.widget._document = self._document_of(report)  # noqa: SLF001  (the trait of our own class)

    def delta(self, frame: LiveFrame) -> None:
        """Send the newest norms."""
        self._wire.send(pack_delta(frame))

    def close(self) -> None:
        """Close the widget, here and in the page."""
        self.widget.close()


class MemoryPanel(Sampler):
    """Shows a run whose memory is followed, from its start to its stop: a line of bytes, over the panel as it is now.

    Args:
        frame: Returns where the run stands; called up to 30 times a second, from the sampler's thread.
        report: Returns everything known so far.
        widget: What is sent to; by default a new widget.
        clocks: ``clock`` and ``processor`` of `Sampler`.

    Attributes:
        widget: What is sent to.
    """

    def __init__(
        self,
        frame: Callable[[], MemoryFrame],
        report: Callable[[], MemoryRunReport],
        *,
        widget: Any = None,
        **clocks: Callable[[], float],
    ) -> None:
        super().__init__(None, **clocks)
        self._frame, self._report = frame, report
        self.widget = _memory_widgets()(_document=self._html()) if widget is None else widget
        self._sent: tuple[int, int, bool] | None = None
        self._pictured = 0

    def _html(self) -> dict[str, Any]:
        return {"html": views.draw(plain_report(self._report()), "html")}

    def look(self, *, final: bool) -> None:
        """Send the numbers where they changed, and the panel where it is time for one."""
        frame = self._frame()
        if (stands := (frame.operations, frame.live, frame.running)) != self._sent:
            self._sent = stands
            where = f"line {frame.line}" if frame.line else plain(frame.place)
            rest = f"peak {number_of_bytes(frame.peak)}", plural(frame.operations, "operation"), where
            words = f"{number_of_bytes(frame.live)} alive", f" {DOT} ".join(filter(None, rest))
            moment = {"seconds": round(frame.seconds, 4), "live": frame.live, "peak": frame.peak}
            self.widget.send({**moment, "words": words})
        if frame.operations != self._pictured and (final or self.due(REBUILD_INTERVAL)):
            self.document(self._send_whole)
            self._pictured = frame.operations

    def _send_whole(self) -> None:
        self.widget._document = self._html()  # noqa: SLF001  (the trait of our own class)

    def retire(self) -> None:
        """Stop, and leave the widget as the run ended, until the next one retires: see `LivePanel.retire`."""
        self.stop()
        _keep_retired(self.widget.close)


def preload() -> None:
    """Import and read what the first live panel needs: a third of a second that it need not take when it is wanted."""
    _trace_widgets()
    nothing = TraceReport(title="", state="finished", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0)
    bundle(nothing)
    trace_document(nothing, limits=LIVE_LIMITS)


def view_of(widget: Any) -> Bundle:
    """Return the part of a mimebundle that displays a widget."""
    media = "application/vnd.jupyter.widget-view+json"
    return {media: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}


@cache
def _trace_widgets() -> Any:
    return _widget_class("TraceWidget", trace.viewer_module(), trace.viewer_style())


@cache
def _memory_widgets() -> Any:
    return _widget_class("MemoryWidget", module("memory/live.js"), tokens() + static("memory_live.css"))


def _widget_class(name: str, javascript: str, style: str) -> Any:
    """Return a class of widgets whose trait ``_document`` holds a dictionary, which the page is given.

    Args:
        name: What it is called.
        javascript: A module whose default export is ``{ render }``.
        style: Its style sheet.
    """
    import anywidget  # 42 ms that only a live panel should cost
    import traitlets

    def close(widget: Any) -> None:
        """Close the widget, and that of its layout, which ipywidgets leaves open."""
        layout = widget.layout
        anywidget.AnyWidget.close(widget)
        layout.close()

    members = {"_esm": javascript, "_css": style, "_document": traitlets.Dict().tag(sync=True), "close": close}
    return type(name, (anywidget.AnyWidget,), members)


# A notebook that is saved in the middle of a run holds a view of a widget. Where the kernel was restarted since, there
# is nothing to view, and JupyterLab says "model not found". A second output below the first holds the last picture.
# It is seen where no live panel is, and hides what is said in its place.
_KEPT = """<style>.tm-last{display:none}
.jp-OutputArea:not(:has(.tmv)) .tm-last{display:block}
.jp-OutputArea:has(.tm-last):not(:has(.tmv))>.jp-OutputArea-child:first-child{display:none}</style>"""


def kept_bundle(report: TraceReport) -> Bundle:
    """Return what a notebook that is saved now shows if the kernel is gone when it is opened again."""
    shown = running_bundle(report)
    note = '<p class="quiet">Saved while this cell ran; the kernel was restarted since.</p>'
    return {**shown, "text/html": f'{_KEPT}<div class="tm-last">{shown["text/html"]}{note}</div>'}


def running_bundle(report: TraceReport) -> Bundle:
    """Return what the html mode shows while the cell runs: static, and small enough to be sent often."""
    report = plain_report(report)
    return {"text/html": trace.render_static(report), "text/plain": to_text.render(trace.view(report))}
