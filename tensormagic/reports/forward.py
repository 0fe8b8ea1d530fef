"""The values that the forward made, node by node, in one pass: on demand, beside the gradients."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Floats = array[float]
else:
    Floats = array  # subscriptable only since Python 3.12


@dataclass(frozen=True, slots=True)
class ForwardValues:
    """What each node made in the forward of one pass; of a pass measured in full, also the leaves as they stood.

    Of a node with several outputs these are the numbers of all of them together. Nodes that a call made on the way to
    its result (the ``log_softmax`` inside ``cross_entropy``) have none.

    Attributes:
        norms: Euclidean norm, by node index, `UNTOUCHED` where none was seen; as in `Frame.norms`.
        measures: As in `Frame.measures`.
        bad: Node index (as text) → (NaN count, Inf count), only where one of them is not zero.
    """

    norms: Floats
    measures: Floats
    bad: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForwardBirth:
    """Where the forward first made a NaN or Inf.

    Attributes:
        pass_number: Of the pass whose forward it was.
        node: Index of the node; nothing that was seen of what it was made from, in this graph, had one.
        nan: How many elements of its output are NaN.
        inf: How many are infinite.
        count: How many elements it has.
        given: Whether something that went into the call held a NaN or Inf already: data, a parameter; None where that
            could not be asked without waiting for a device.
    """

    pass_number: int
    node: int
    nan: int
    inf: int
    count: int
    given: bool | None
