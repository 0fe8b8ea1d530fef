"""What changed since the last look, as the bytes that a live panel's page is sent: thirty times a second.

One buffer holds all of it: numbers, then norms. There is no JSON to write here and to read there, and what is around
the buffer is the same each time, so that it is made once (live.py). `delta.js` takes it apart again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensormagic.reports import LiveFrame

_NUMBERS = struct.Struct("<13d")  # what counts steps is exact in a float64; the norms after them stay aligned


def pack_delta(frame: LiveFrame) -> bytes:
    """Return thirteen float64, in the order of `NUMBERS` in `delta.js`, then float32: node norms, parameter norms."""
    numbers = _NUMBERS.pack(
        frame.structure, frame.graph, frame.pass_number, frame.step, frame.running, frame.cursor, frame.reached,
        frame.finished_pass, frame.seconds, frame.resting, frame.next_step,
        len(frame.norms), len(frame.parameter_norms),
    )  # fmt: skip
    return numbers + frame.norms.tobytes() + frame.parameter_norms.tobytes()
