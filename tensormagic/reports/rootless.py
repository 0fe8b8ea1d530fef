"""A value without a history that backward was called on: what stood around it, so that it can be said why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInSight:
    """A model that the code which called backward can name.

    Attributes:
        name: ``"net"``, ``"self.model"``.
        parameters: How many parameters it has.
        frozen: How many of them do not ask for a gradient.
    """

    name: str
    parameters: int
    frozen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rootless:
    """A backward called on a value that does not ask for a gradient and that nothing leads back from: torch refuses.

    Attributes:
        name: What the person calls the value; empty where it has no name there.
        location: Index into `TraceReport.locations` of the line that called backward; None where not known.
        shape: Of the value.
        dtype: Of the value, without the prefix.
        grad_enabled: Whether gradients were being recorded when backward was called.
        inference: Whether the value was made under ``inference_mode``.
        cut: Index into `TraceReport.cuts` of what ended its way; None where that was not seen.
        models: The models that the calling code can name.
        count: How often this line did it.
        expected: Whether the code says that it expects the error; see `CaughtBackward`.
    """

    name: str = ""
    location: int | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    grad_enabled: bool = True
    inference: bool = False
    cut: int | None = None
    models: tuple[ModelInSight, ...] = ()
    count: int = 1
    expected: bool = False
