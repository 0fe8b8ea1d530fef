"""What an allocator itself recorded during a run: what it served beyond what operations returned, and where.

Operations are seen from outside: what one of them asks for and gives back before it returns (the workspace of a
convolution, say) only the allocator knows. Its events carry the sizes that were asked for; its counters count blocks,
which it rounds up, to 512 bytes and more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports.finding import Location


@dataclass(frozen=True, slots=True)
class AllocatorLine:
    """What the allocator served to one line of the person's.

    Attributes:
        location: The line; None where no frame of the person's was on the stack.
        served: Bytes that were asked for, over the run.
        returned: Bytes of these that were storages which operations returned.
        calls: How often it asked.
        largest: The most it asked for at once.
    """

    location: Location | None
    served: int
    returned: int
    calls: int
    largest: int

    @property
    def workspace(self) -> int:
        """Bytes that were used inside of operations only."""
        return max(self.served - self.returned, 0)


@dataclass(frozen=True, slots=True)
class AllocatorRun:
    """The events of one device over a run.

    Attributes:
        device: As torch writes it.
        events: How many there were.
        peak: The most bytes, as asked for, that were in use at once; None where the history does not go back to the
            beginning of the run.
        reserved: The most bytes that were reserved at once; None likewise.
        seen_peak: The most bytes of storages that operations returned, at once: what the timeline shows.
        lines: What it served, by line, the most first.
        unnamed: Blocks in use at the end over which no tensor was found, by line: location, how many, bytes.
        complete: Whether the history goes back to the beginning of the run.
    """

    device: str
    events: int
    peak: int | None = None
    reserved: int | None = None
    seen_peak: int = 0
    lines: tuple[AllocatorLine, ...] = ()
    unnamed: tuple[tuple[Location | None, int, int], ...] = ()
    complete: bool = True


__all__ = ["AllocatorLine", "AllocatorRun"]
