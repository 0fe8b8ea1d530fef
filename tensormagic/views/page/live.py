"""The live panel: what it is sent, and the document that it starts from."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tensormagic.reports import Cell, TraceReport
from tensormagic.views import to_text
from tensormagic.views.graph.drawing import Drawing, draw
from tensormagic.views.markup import plain_report
from tensormagic.views.page.columns import pack_delta
from tensormagic.views.page.document import LIVE_LIMITS, trace_document
from tensormagic.views.page.files import bundle
from tensormagic.views.page.sampler import Sampler, Sender
from tensormagic.views.panels import trace

if TYPE_CHECKING:
    from tensormagic.reports import Graph, LiveFrame


# The way of a live panel's small messages: as a widget sends them, without what is the same each time.
#
# A widget's ``send`` packs and signs a message from nothing: header, parent and content become JSON through some
# twenty functions. Thirty times a second, each time with the caches that the run has filled with its own, that is two
# thirds of what an update costs. Here the first message is packed as Jupyter packs it, and the next ones are that one
# again: with a number of their own, a buffer of their own, and a signature over both.
#
# A kernel, or a widget, that is not made as expected gets what ``send`` sends.

UNCHANGED = 3  # parts of a message after its header: parent, metadata, content


class Wire:
    """Sends buffers to the page of a widget, each in a custom message without content."""

    def __init__(self, widget: Any) -> None:
        self._widget = widget
        self._envelope: Envelope | None = None
        self._plain = False

    def send(self, buffer: bytes) -> None:
        """Send one buffer; what the page has not taken yet waits in no queue of ours."""
        if not self._plain and self._sent(buffer):
            return
        self._widget.send({}, buffers=[buffer])

    def _sent(self, buffer: bytes) -> bool:
        """Send it the short way, where there is one; where that fails once, it is not tried again."""
        try:
            if self._envelope is None:
                self._envelope = Envelope.around(self._widget.comm)
            if not self._envelope.fits(self._widget.comm):
                return False
            self._envelope.send(buffer)
        except Exception:  # noqa: BLE001  (another kernel, or none: the widget's own way works, or says why not)
            self._plain = True
            return False
        return True


@dataclass(frozen=True, slots=True)
class Envelope:
    """All of a message but its number, its signature and its buffer."""

    comm: Any  # The channel between a widget and its page.
    process: int  # The process that it was made in: a child that a cell forks must not write to its parent's sockets.
    socket: Any  # The kernel's, to all pages.
    sign: Callable[[list[bytes]], bytes]  # Signs the parts of a message that are signed.
    opening: tuple[bytes, bytes]  # What stands before that.
    header: tuple[bytes, bytes]  # Around the number of the message.
    rest: tuple[bytes, ...]  # Parent, metadata and content.
    count: Iterator[int]  # The next message.

    @classmethod
    def around(cls, comm: Any) -> Envelope:
        """Return what is around every message through ``comm``.

        Raises:
            AttributeError: for a channel that is none of a Jupyter kernel's.
            ValueError: where its messages are not packed as Jupyter's are.
        """
        session = comm.kernel.session
        content = {"data": {"method": "custom", "content": {}}, "comm_id": comm.comm_id}
        message = session.msg("comm_msg", content=content, parent=comm.kernel.get_parent(), metadata={})
        to, delimiter, _, header, *rest = session.serialize(message, comm.topic)
        before, after = header.split(message["msg_id"].encode())
        if header[:1] != b"{" or len(rest) != UNCHANGED:
            raise ValueError("these messages have an unexpected form")
        socket, opening, around = comm.kernel.iopub_socket, (to, delimiter), (before, after)
        return cls(comm, os.getpid(), socket, session.sign, opening, around, tuple(rest), itertools.count(1))

    def fits(self, comm: Any) -> bool:
        """Whether messages through ``comm`` still go the way that this one was made for."""
        return comm is self.comm and os.getpid() == self.process

    def send(self, buffer: bytes) -> None:
        """Hand a message over to the kernel's own thread, which sends it in its turn."""
        before, after = self.header
        number = f"{self.comm.comm_id}_{next(self.count)}".encode()
        signed = [before + number + after, *self.rest]
        self.socket.send_multipart([*self.opening, self.sign(signed), *signed, buffer])


# The live side of ``%%tracegrad``: a thread that looks at the run a few times a second and sends what changed.
#
# A sampler takes the newest state at its own pace, leaves out what did not change, and after the run sends once more
# what is left. A whole document is built at most once a second, and less often where building it takes long.
#
# anywidget, ipywidgets and traitlets are imported by the first live panel, not with the package.

Mode = Literal["widget", "html", "terminal", "off"]
Bundle = dict[str, Any]

HTML_INTERVAL = 1 / 4
PAUSED_INTERVAL = 1 / 4  # and between two words on how far a run has come that goes on untraced
WORD_INTERVAL = (
    4.0  # seconds after which the same is sent again: a page that hears nothing for long says so (viewer.js)
)
REBUILD_INTERVAL = 1.0  # seconds between two whole documents, where the structure changes
REFRESH_INTERVAL = 2.0  # and where only numbers do: findings and the kept passes come with them
REBUILD_SHARE = 0.02  # of the time, at most, goes into building documents
KEEP_INTERVAL = 3.0  # seconds between two pictures that a saved notebook shows where its kernel was restarted meanwhile
HTML_BYTES = 100_000  # larger pictures are left out of the updates of the html mode


class LivePanel(Sampler):
    """Samples a run and sends what changed, from its start to its stop.

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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a panel; nothing is sent before `start`.

        Args:
            frame: Returns what changes quickly; called 4 to 30 times a second, from the sampler's thread.
            report: Returns a consistent snapshot of everything; called when the structure changed.
            mode: ``"widget"``, ``"html"`` (for hosts without widgets; needs ``update``), or ``"off"``.
            update: Replaces the shown output by a mimebundle, in mode ``"html"``.
            keep: Shows, or replaces, a mimebundle below the widget, in mode ``"widget"``: see `kept_bundle`.
            wall: Whether it is seen from the last row of a lecture hall.
            sender: Where to send; by default what the mode asks for.
            interval: Seconds between two looks; by default what suits the mode, and what a look costs.
            clock: Seconds, monotonic.
        """
        self._wall = wall
        super().__init__(interval or (HTML_INTERVAL if mode == "html" else None))
        self.sender = sender or self._sender_of(mode, report, update)
        self._frame, self._report, self._clock = frame, report, clock
        self._structure: int | None = None
        self._last_key: tuple[Any, ...] | None = None
        self._last_step, self._last_delta = 0, -math.inf
        self._key_of_document: tuple[Any, ...] | None = None
        self._last_rebuild = -math.inf
        self._rest = 0.0
        self._keep, self._keep_next = (keep if mode == "widget" else None), self._clock() + KEEP_INTERVAL

    def _sender_of(
        self, mode: Mode, report: Callable[[], TraceReport], update: Callable[[Bundle], None] | None
    ) -> Sender:
        if mode == "html" and update is not None:
            return HtmlSender(update)
        if mode != "widget":
            return Sender()
        try:
            return WidgetSender(report(), wall=self._wall)
        except Exception as error:  # noqa: BLE001  (a broken widget installation must not stop the run)
            self.note(error)
            return Sender()

    @property
    def shows_nothing(self) -> bool:
        """Whether there is nobody to look for."""
        return type(self.sender) is Sender

    def close(self) -> None:
        """Stop, and take the live output away: the final bundle stands in its place by then."""
        self.stop()
        self.guarded(self.sender.close)

    def retire(self) -> None:
        """Stop, and leave the widget as the run ended, until the next one retires.

        The output in the page is replaced by then. But a page that was closed while the cell ran missed that: when it
        is opened again, what it has saved is a view of this widget, and asks the kernel for it.
        """
        self.stop()
        keep_retired(self.sender.close)

    def bundle(self) -> Bundle:
        """Return the mimebundle to display before the run: the widget's view where there is one, and fallbacks."""
        view = view_of(self.sender.widget) if isinstance(self.sender, WidgetSender) else {}
        return {**view, **running_bundle(self._report())}

    def look(self, *, final: bool) -> None:
        """Send a whole document where the structure changed, else what changed, else nothing."""
        frame = self._frame()
        # What makes two frames different; not the time, nor the steps that go by untraced. Bytes: a NaN is not itself.
        step = 0 if frame.paused else frame.step
        place = (frame.structure, frame.graph, frame.pass_number, step, frame.running, frame.cursor, frame.reached)
        key = (*place, frame.finished_pass, frame.norms.tobytes(), frame.parameter_norms.tobytes())
        begun = frame.graph != 0  # before the first graph the page shows all there is: the first is sent without delay
        changed = frame.structure != self._structure or key != self._key_of_document
        grown, wait = frame.structure != self._structure, self.sender.refresh
        due = self._last_rebuild + max(min(REBUILD_INTERVAL, wait) if grown else wait, self._rest)
        if changed and (final or (begun and self._clock() >= due)):
            self._rebuild(frame.structure, key)
        paused = frame.step if frame.paused and (final or self._clock() >= self._last_delta + PAUSED_INTERVAL) else 0
        news = key != self._last_key or (paused and paused != self._last_step)
        if news or (self._last_delta + WORD_INTERVAL <= self._clock() and not final):
            self.sender.delta(frame)
            self._last_key, self._last_step, self._last_delta = key, frame.step, self._clock()

    def _rebuild(self, structure: int, key: tuple[Any, ...]) -> None:
        start, spent = self._clock(), self.pace.clock()
        try:
            report = self._report()
            self.sender.document(report)
            self._structure, self._key_of_document = structure, key
            if self._keep is not None and self._clock() >= self._keep_next:
                self._keep(kept_bundle(report))
                self._keep_next = self._clock() + KEEP_INTERVAL
        finally:
            self.pace.set_apart(self.pace.clock() - spent)
            self._last_rebuild = self._clock()
            self._rest = (self._last_rebuild - start) / REBUILD_SHARE


_retired: list[Callable[[], None]] = []  # at most one: closes what showed a run, without the run


def keep_retired(close: Callable[[], None]) -> None:
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


class WidgetSender(Sender):
    """Sends to an anywidget: documents as a synced trait, deltas as binary messages."""

    refresh = REFRESH_INTERVAL

    def __init__(self, report: TraceReport, *, wall: bool = False) -> None:
        """Make the widget, showing ``report``; ``wall``: as large as it is seen from the last row."""
        self._wall = wall
        self._drawings: dict[tuple[int, int, int], Drawing] = {}
        self.widget = _widget_class()(_document=self._document_of(report))
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
        self._drawings.clear()
        self.widget.close()


def preload() -> None:
    """Import and read what the first live panel needs: a third of a second that it need not take when it is wanted."""
    _widget_class()
    nothing = TraceReport(title="", state="finished", cell=Cell("", None, ()), seconds=0.0, own_seconds=0.0)
    bundle(nothing)
    trace_document(nothing, limits=LIVE_LIMITS)


def view_of(widget: Any) -> Bundle:
    """Return the part of a mimebundle that displays a widget."""
    media = "application/vnd.jupyter.widget-view+json"
    return {media: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}


@cache
def _widget_class() -> Any:
    return widget_class("TraceWidget", trace.viewer_module(), trace.viewer_style())


def widget_class(name: str, module: str, style: str) -> Any:
    """Return a class of widgets whose trait ``_document`` holds a dictionary, which the page is given.

    Args:
        name: What it is called.
        module: JavaScript whose default export is ``{ render }``.
        style: Its style sheet.
    """
    import anywidget  # 42 ms that only a live panel should cost
    import traitlets

    def close(widget: Any) -> None:
        """Close the widget, and that of its layout, which ipywidgets leaves open."""
        layout = widget.layout
        anywidget.AnyWidget.close(widget)
        layout.close()

    members = {"_esm": module, "_css": style, "_document": traitlets.Dict().tag(sync=True), "close": close}
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
    html = trace.render_static(report)
    if len(html) > HTML_BYTES:
        html = trace.render_static(report, picture=False)
    return {"text/html": html, "text/plain": to_text.render(trace.view(report))}
