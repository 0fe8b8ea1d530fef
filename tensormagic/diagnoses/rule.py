"""What a diagnosis is: a function from a report to findings, with the code it may give and what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tensormagic.reports import Finding, Report


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table of diagnoses.

    Attributes:
        code: The code its findings carry.
        title: The symptom, in a few words.
        reads: The type of report it reads.
        check: Yields findings; pure: the same report gives the same findings.
    """

    code: str
    title: str
    reads: type[Report]
    check: Callable[[Any], Iterable[Finding]]
