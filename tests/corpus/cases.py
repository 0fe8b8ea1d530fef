"""How a case of the corpus is declared: a function that trains something under a trace, and what must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensormagic.reports import TraceReport

Run = Callable[[], TraceReport]


@dataclass(frozen=True)
class Case:
    """One piece of training code.

    Attributes:
        run: Trains under a trace and returns its report.
        code: The only code that may be found; empty for code in which nothing is wrong.
        op: The node that the finding must point to (TM402); empty where it points to a parameter.
        line: What the line that the finding points to must contain.
        subject: What the finding must be about; empty where ``op`` says it.
        says: Words that the sentence must contain.
    """

    run: Run
    code: str = ""
    op: str = ""
    line: str = ""
    subject: str = ""
    says: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__


HEALTHY: list[Case] = []
ILL: list[Case] = []


def healthy(run: Run) -> Run:
    """Declare training code in which nothing is wrong: any finding would be a false alarm."""
    HEALTHY.append(Case(run))
    return run


def ill(
    code: str, *, op: str = "", line: str = "", subject: str = "", says: tuple[str, ...] = ()
) -> Callable[[Run], Run]:
    """Declare training code with exactly one illness, and how it must be named."""

    def declare(run: Run) -> Run:
        ILL.append(Case(run, code, op, line, subject, says))
        return run

    return declare
