"""How a library of the ecosystem is declared: a small program as its users write it, and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@dataclass(frozen=True)
class Library:
    """One library.

    Attributes:
        distribution: Its name at pip.
        does: What the program does with it, in the table's words.
        run: The program; returns whatever has to be the same, bit for bit, in every run.
        finds: The findings above a note that are true of the program.
        gaps: Words of the gaps that are true of the program.
        as_under_a_mode: Whether torch itself computes something else, in the last bits, under a dispatch mode that
            does nothing: the results are those of a run under that, too.
    """

    distribution: str
    does: str
    run: Callable[[], Any]
    finds: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    as_under_a_mode: bool = False


LIBRARIES: dict[str, Library] = {}


def library(distribution: str, does: str, **said: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Declare a function as the program of a library; what may be said of it by the names of `Library`."""

    def declare(run: Callable[[], Any]) -> Callable[[], Any]:
        LIBRARIES[distribution] = Library(distribution, does, run, **said)
        return run

    return declare
