"""Parameters that stood still while others of their model were trained."""

from __future__ import annotations

from dataclasses import dataclass

from tensormagic.reports.finding import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class StillParameters:
    """Parameters of one model that ask for a gradient and that nothing changed while an optimizer made steps.

    Attributes:
        owner: Name of the model: ``"net"``.
        optimizer: Name of the optimizer that holds them, or of one that trains others of the model.
        held: Whether that optimizer holds them: then they had no gradient at any step. If not, no optimizer does, and
            they get gradients.
        names: All parameters of the model in order: ``"net.fc1.weight"``.
        numels: Elements of each.
        still: The numbers of those that stand still.
        trained: The numbers of those that an optimizer changed.
        alike: The numbers of those that stand still beside modules of the same make that are trained.
        watched: How far the optimizer got while they were seen to stand still: steps where ``steps`` is not 0, else
            in-place changes of the parameter that was changed most.
        steps: How many steps the optimizer has made in all by its own count; 0 where it keeps none.
        location: The line that makes them, or the optimizer that leaves them out; None where neither was found.
    """

    owner: str
    optimizer: str
    held: bool
    names: tuple[str, ...]
    numels: tuple[int, ...]
    still: tuple[int, ...]
    trained: tuple[int, ...]
    alike: tuple[int, ...] = ()
    watched: int = 0
    steps: int = 0
    location: Location | None = None
