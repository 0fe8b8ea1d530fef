"""What a kernel sends to a page: the messages of Jupyter's websocket protocol, with their times and sizes."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from dataclasses import dataclass, field

from playwright.sync_api import Page, WebSocket


@dataclass(frozen=True, slots=True)
class Message:
    """One message: when it came, its type, and its bytes with all buffers."""

    at: float
    kind: str
    size: int


@dataclass
class Traffic:
    """All messages from kernels to a page, from `watch` on."""

    messages: list[Message] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Begin to listen; before the notebook is opened."""
        page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._note)

    def _note(self, payload: bytes | str) -> None:
        if isinstance(payload, str):
            return
        kind = _kind(payload)
        if kind:
            self.messages.append(Message(time.monotonic(), kind, len(payload)))

    def busiest(self, seconds: float, kinds: frozenset[str]) -> int:
        """Return how many messages of these kinds came within so many seconds, at most."""
        times = [message.at for message in self.messages if message.kind in kinds]
        return max((sum(0 <= other - first < seconds for other in times) for first in times), default=0)

    def counted(self) -> Counter[str]:
        """Return how many came of each kind."""
        return Counter(message.kind for message in self.messages)


def _kind(payload: bytes) -> str:
    """Return the type of a message: a count of offsets, the offsets, then channel, header and the rest."""
    try:
        (count,) = struct.unpack_from("<Q", payload)
        offsets = struct.unpack_from(f"<{count}Q", payload, 8)
        return str(json.loads(payload[offsets[1] : offsets[2]])["msg_type"])
    except (struct.error, ValueError, KeyError, IndexError, TypeError):
        return ""
