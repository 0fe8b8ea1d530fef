"""How a case of the corpus is declared: a function that runs something under a collector, and what must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensormagic.reports import Report, Severity

Run = Callable[[], Report]


@dataclass(frozen=True)
class Case:
    """One piece of code that a user would really write.

    Attributes:
        run: Runs it and returns the report, of whatever type.
        code: The code that must be found; empty for code in which nothing is wrong.
        severity: Of that finding; any, where empty.
        op: The node that the finding must point to (TM402); empty where it points to none.
        line: What the line that the finding points to must contain.
        subject: What the finding must be about; empty where ``op`` says it.
        says: Words that the sentence or the remedy must contain.
        related: What other lines of the finding must contain, in order.
        also: Codes that may be found besides, because the program has that fault too.
        nearly: The code whose fault a healthy program nearly has; empty where it is simply healthy.
        family: What kind of training it is, of a healthy program that trains something; empty of any other.
    """

    run: Run
    code: str = ""
    severity: Severity | str = ""
    op: str = ""
    line: str = ""
    subject: str = ""
    says: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    nearly: str = ""
    family: str = ""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__


HEALTHY: list[Case] = []
ILL: list[Case] = []


def healthy(run: Run | None = None, *, nearly: str = "", family: str = "") -> Any:
    """Declare code in which nothing is wrong: any finding above a note, or with the code ``nearly``, is false."""

    def declare(run: Run) -> Run:
        HEALTHY.append(Case(run, nearly=nearly, family=family))
        return run

    return declare if run is None else declare(run)


def ill(code: str, **expected: Any) -> Callable[[Run], Run]:
    """Declare code with exactly one illness, and how it must be named; ``expected`` are fields of `Case`."""

    def declare(run: Run) -> Run:
        ILL.append(Case(run, code, **expected))
        return run

    return declare
