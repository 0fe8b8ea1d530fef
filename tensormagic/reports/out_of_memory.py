"""The moment at which an allocation was refused: what was asked for, where, and what torch said of the device."""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports.finding import Location


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The moment at which an allocation was refused.

    Numbers out of a message are as exact as torch writes them there: ``"1.25 GiB"``.

    Attributes:
        device: Where.
        asked: Bytes asked for; None where the message does not tell.
        op: The operation that asked; empty where unknown.
        location: The person's line.
        message: What torch said.
        free: Bytes free at that moment; None where unknown.
        total: Bytes of the device, or the most that torch may take of it; None where unknown.
        allocated: Bytes that torch's allocator counted as in use; None likewise.
        reserved: Bytes that it had reserved and that were in no use; None likewise.
        only_error: Bytes of the storages that nothing but the functions that failed leads to: they are free once the
            error is let go of. None where that was not looked at.
    """

    device: str
    asked: int | None
    op: str = ""
    location: Location | None = None
    message: str = ""
    free: int | None = None
    total: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    only_error: int | None = None
