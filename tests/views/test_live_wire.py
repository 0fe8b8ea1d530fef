"""The short way of a live panel's messages: read as a widget's own are; the long way where it cannot be taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import Session

from tensormagic.views.page import live
from tensormagic.views.page.live import Wire

PARENT = {"header": {"msg_id": "the cell", "msg_type": "execute_request"}}


def _comm(session: Session) -> Any:
    """A kernel's channel, which keeps what is sent."""
    sent: list[list[bytes]] = []
    socket = SimpleNamespace(sent=sent, send_multipart=sent.append)
    kernel = SimpleNamespace(session=session, iopub_socket=socket, get_parent=lambda: PARENT)
    return SimpleNamespace(kernel=kernel, comm_id="abc", topic=b"comm-abc")


def _widget(comm: Any) -> Any:
    """A widget with a kernel's channel, or any other; what it sends by itself is kept."""
    plain: list[tuple[Any, list[bytes]]] = []
    return SimpleNamespace(comm=comm, plain=plain, send=lambda content, buffers: plain.append((content, buffers)))


@pytest.fixture
def session() -> Session:
    """What packs and signs a kernel's messages."""
    return Session(key=b"secret")


@pytest.mark.parametrize("key", [b"secret", b""])
def test_messages_are_read_as_a_widgets_own_are(key: bytes) -> None:
    """Address, signature, type, parent and content are those of `Widget.send`; the buffer is its own.

    A reader refuses a message that it has seen: each has a number and a signature of its own.
    """
    widget, reader = _widget(_comm(Session(key=key))), Session(key=key)
    wire = Wire(widget)
    for at in range(12):
        wire.send(bytes([at]))
    numbers = set()
    for at, sent in enumerate(widget.comm.kernel.iopub_socket.sent):
        to, rest = reader.feed_identities(sent)
        message = reader.deserialize(rest)
        assert (to, message["header"]["msg_type"]) == ([b"comm-abc"], "comm_msg")
        assert message["parent_header"] == PARENT["header"]
        assert message["content"] == {"comm_id": "abc", "data": {"method": "custom", "content": {}}}
        assert [bytes(one) for one in message["buffers"]] == [bytes([at])]
        numbers.add(message["header"]["msg_id"])
    assert (len(numbers), widget.plain) == (12, [])


@pytest.mark.parametrize("comm", [None, SimpleNamespace(comm_id="of another kernel")])
def test_other_kernels_get_what_the_widget_sends(comm: Any) -> None:
    """Without a Jupyter kernel's channel the widget's own way is taken, every time."""
    widget = _widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    wire.send(b"2")
    assert widget.plain == [({}, [b"1"]), ({}, [b"2"])]


# What keeps the second message from the short way, by what is done to the widget before it.
IN_THE_WAY = {
    "it fails": lambda widget, _: setattr(widget.comm.kernel.iopub_socket, "send_multipart", None),
    "somebody closed all widgets while the cell runs": lambda widget, _: setattr(widget, "comm", None),
    "Jupyter's session sends nothing from a forked child": lambda _, patch: patch.setattr(
        live.os, "getpid", lambda: -1
    ),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_cannot_go_the_short_way_goes_the_long_one(case: str, session: Session, monkeypatch) -> None:
    """The message is not lost: the widget knows what to do with it."""
    comm = _comm(session)
    widget = _widget(comm)
    wire = Wire(widget)
    wire.send(b"1")
    IN_THE_WAY[case](widget, monkeypatch)
    wire.send(b"2")
    assert (len(comm.kernel.iopub_socket.sent), widget.plain) == (1, [({}, [b"2"])])


def test_messages_that_are_no_json_are_left_to_the_session(session: Session) -> None:
    """A kernel may pack its messages otherwise: then nothing is put into them."""
    session.pack = lambda found: b"\x80" + repr(found).encode()
    widget = _widget(_comm(session))
    Wire(widget).send(b"1")
    assert (widget.plain, widget.comm.kernel.iopub_socket.sent) == ([({}, [b"1"])], [])
