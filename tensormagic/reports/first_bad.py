"""Where a forward whose result is not finite first held a NaN or Inf, as far as its nodes' saved tensors tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BadSource = Literal["made", "data", "leaf"]


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The first NaN or Inf of a forward: made by a node, or there already in what went into it.

    Attributes:
        pass_number: Of the pass whose forward it was.
        node: Index of the node that made it, or that the data went into; of the leaf itself.
        source: ``"made"`` by the node, already in the ``"data"`` that it was given, or in a ``"leaf"``.
        nan: How many elements are NaN: of the node's result, of the data, or of the leaf.
        inf: How many are infinite.
        count: How many elements it has.
        name: Under which the person holds the data; empty where no name is known.
        shape: Of the data or the leaf; empty of what a node made.
        zero: Of what a node made: how many elements of its operand are zero, where that explains it.
        negative: The same of elements outside the op's domain: below zero, mostly.
        certain: Whether everything that went into the node was seen, and was finite.
    """

    pass_number: int
    node: int
    source: BadSource
    nan: int
    inf: int
    count: int
    name: str = ""
    shape: tuple[int, ...] = ()
    zero: int = 0
    negative: int = 0
    certain: bool = True
