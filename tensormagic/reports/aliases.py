"""Who else touches a tensor's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name (or an unnamed object) whose memory lies in the same storage.

    Attributes:
        name: As it stands in the namespace (``"a"``, ``"net.fc.weight"``, ``"batch[0]"``), or what reaches it
            (``"x._base"``) where no name does.
        relation: How it comes to share: ``"same object"``, ``"base"``, ``"view of the same base"``,
            ``"view of it"``, ``"same storage"`` (``.data``, ``.detach()``, ``set_``), ``"NumPy array"``.
        kind: ``"Tensor"``, ``"Parameter"``, ``"ndarray"`` …
        shape: Its shape.
        overlap_elements: How many *bytes-wise distinct* elements of the inspected tensor it can read or write;
            None where counting was given up ("may overlap").
        of_elements: How many elements it has itself.
        overlap: ``"yes"``, ``"no"`` or ``"maybe"``: exact wherever it is not maybe.
        version: The value of its version counter; None where it has none (NumPy arrays, inference tensors).
        shares_version: Whether it counts its writes on the same version counter as the inspected tensor, so that
            autograd notices them (views and ``.detach()`` do, ``.data`` and NumPy do not); None where that cannot be
            told without writing.
    """

    name: str
    relation: str
    kind: str
    shape: tuple[int, ...]
    overlap_elements: int | None
    of_elements: int
    overlap: Literal["yes", "no", "maybe"]
    version: int | None
    shares_version: bool | None
