"""What single calls of the forward did that is worth knowing: plain facts, which the diagnoses judge.

A watcher looks closely at the first calls of a line and at exponentially rarer ones after that, so that an
`Observation` says three numbers: how often the line made the call, at how many of these it was looked, and in how many
of those the thing was so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.failure import Operand

ObservationKind = Literal[
    "copy", "mixed formats", "uninitialised", "both broadcast", "normalised", "draw", "synchronised", "promoted"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One thing that the calls of one line did.

    Attributes:
        kind: ``"copy"``: a call that gives a view where it can has copied; ``"mixed formats"``: operands in different
            memory formats met; ``"uninitialised"``: memory was read that nobody had written; ``"both broadcast"``: both
            operands grew, and what came out was reduced; ``"normalised"``: a loss was given probabilities;
            ``"draw"``: random numbers came from the default generator, whose seed nobody chose; ``"synchronised"``:
            the host waited for a device; ``"promoted"``: float32 became float64 because it met float64.
        op: What was called, as a person knows it: ``"reshape"``, ``"mse_loss"``.
        location: Index into `TraceReport.locations` of the person's line; None where all of it is library code.
        module: Path of the innermost module whose forward was running.
        calls: How often this line made this call.
        looked: At how many of these it was looked closely.
        seen: In how many of those it was so.
        nbytes: Bytes concerned, in the largest of them.
        operands: What the call was given, the first time: only what the finding is about.
        result: What came out, the first time.
        made: Index of the line where the first operand was made, where that matters and is known.
        detail: What only this kind needs, in a word: the op before a loss, the device, the seed.
    """

    kind: ObservationKind
    op: str
    location: int | None = None
    module: str = ""
    calls: int = 1
    looked: int = 1
    seen: int = 1
    nbytes: int = 0
    operands: tuple[Operand, ...] = ()
    result: Operand | None = None
    made: int | None = None
    detail: str = ""
