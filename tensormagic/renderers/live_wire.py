"""The way of a live panel's small messages: as a widget sends them, without what is the same each time.

A widget's ``send`` packs and signs a message from nothing: header, parent and content become JSON through some twenty
functions. Thirty times a second, each time with the caches that the run has filled with its own, that is two thirds of
what an update costs. Here the first message is packed as Jupyter packs it, and the next ones are that one again: with a
number of their own, a buffer of their own, and a signature over both.

A kernel, or a widget, that is not made as expected gets what ``send`` sends.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    """All of a message but its number, its signature and its buffer.

    Attributes:
        comm: The channel between a widget and its page.
        process: The process that it was made in: a child that a cell forks must not write to its parent's sockets.
        socket: The kernel's, to all pages.
        sign: Signs the parts of a message that are signed.
        opening: What stands before that.
        header: Around the number of the message.
        rest: Parent, metadata and content.
        count: The next message.
    """

    comm: Any
    process: int
    socket: Any
    sign: Callable[[list[bytes]], bytes]
    opening: tuple[bytes, bytes]
    header: tuple[bytes, bytes]
    rest: tuple[bytes, ...]
    count: Iterator[int]

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
