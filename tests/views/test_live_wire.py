"""The short way of a live panel's messages: each is one that Jupyter reads, and where it does not fit, none goes it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import Session

from tensormagic.views.page import live
from tensormagic.views.page.live import Wire

PARENT = {"header": {"msg_id": "the cell", "msg_type": "execute_request"}}


class Socket:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []

    def send_multipart(self, parts: list[bytes]) -> None:
        self.sent.append(parts)


class Widget:
    """A widget with a kernel's channel, or any other."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.plain: list[tuple[Any, list[bytes]]] = []

    def send(self, content: Any, buffers: list[bytes]) -> None:
        self.plain.append((content, buffers))


def _comm(session: Session) -> Any:
    kernel = SimpleNamespace(session=session, iopub_socket=Socket(), get_parent=lambda: PARENT)
    return SimpleNamespace(kernel=kernel, comm_id="abc", topic=b"comm-abc")


@pytest.fixture
def session() -> Session:
    """What packs and signs a kernel's messages."""
    return Session(key=b"secret")


@pytest.mark.parametrize("key", [b"secret", b""])
def test_messages_are_read_as_a_widgets_own_are(key: bytes) -> None:
    """Address, signature, type, parent and content are those of `Widget.send`; the buffer is its own."""
    widget = Widget(_comm(Session(key=key)))
    Wire(widget).send(b"12345678")
    reader = Session(key=key)
    to, rest = reader.feed_identities(widget.comm.kernel.iopub_socket.sent[0])
    message = reader.deserialize(rest)
    assert to == [b"comm-abc"]
    assert message["header"]["msg_type"] == "comm_msg"
    assert message["parent_header"] == PARENT["header"]
    assert message["content"] == {"comm_id": "abc", "data": {"method": "custom", "content": {}}}
    assert [bytes(one) for one in message["buffers"]] == [b"12345678"]
    assert widget.plain == []


def test_every_message_has_a_number_and_a_signature_of_its_own(session: Session) -> None:
    """A reader refuses one that it has seen: all of a run go by the same reader."""
    widget, reader = Widget(_comm(session)), Session(key=b"secret")
    wire = Wire(widget)
    for at in range(12):
        wire.send(bytes([at]))
    sent = widget.comm.kernel.iopub_socket.sent
    messages = [reader.deserialize(reader.feed_identities(parts)[1]) for parts in sent]
    assert len({message["header"]["msg_id"] for message in messages}) == 12
    assert [bytes(message["buffers"][0])[0] for message in messages] == list(range(12))


@pytest.mark.parametrize("comm", [None, SimpleNamespace(comm_id="of another kernel")])
def test_other_kernels_get_what_the_widget_sends(comm: Any) -> None:
    """Without a Jupyter kernel's channel the widget's own way is taken, every time."""
    widget = Widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    wire.send(b"2")
    assert widget.plain == [({}, [b"1"]), ({}, [b"2"])]


def test_messages_that_are_no_json_are_left_to_the_session(session: Session) -> None:
    """A kernel may pack its messages otherwise: then nothing is put into them."""
    session.pack = lambda found: b"\x80" + repr(found).encode()
    widget = Widget(_comm(session))
    Wire(widget).send(b"1")
    assert (widget.plain, widget.comm.kernel.iopub_socket.sent) == ([({}, [b"1"])], [])


def test_what_fails_goes_the_long_way(session: Session) -> None:
    """The message that could not be sent is not lost, and the short way is not tried again."""
    widget = Widget(_comm(session))
    wire = Wire(widget)
    wire.send(b"1")
    widget.comm.kernel.iopub_socket.send_multipart = None
    wire.send(b"2")
    assert widget.plain == [({}, [b"2"])]


def test_nothing_goes_to_a_channel_that_was_closed(session: Session) -> None:
    """Somebody closed all widgets while the cell runs: the widget knows what to do without a channel."""
    comm = _comm(session)
    widget = Widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    widget.comm = None
    wire.send(b"2")
    assert (len(comm.kernel.iopub_socket.sent), widget.plain) == (1, [({}, [b"2"])])


def test_a_forked_child_leaves_it_to_the_session(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter's session sends nothing from a child of the kernel: so it is asked."""
    widget = Widget(_comm(session))
    wire = Wire(widget)
    wire.send(b"1")
    child = os.getpid() + 1
    monkeypatch.setattr(live.os, "getpid", lambda: child)
    wire.send(b"2")
    assert widget.plain == [({}, [b"2"])]
