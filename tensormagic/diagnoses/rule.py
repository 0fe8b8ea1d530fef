"""What a rule is, and findings that are said together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tensormagic.reports import SEVERITIES, Finding, Report

# What a diagnosis is, and what a person wants silenced.

# What a diagnosis is: a function from a report to findings, with the code it may give and what it is about.


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


# What a person wants silenced: codes in a comment on the line, or switched off for the session.
#
# ``# tm: ignore[TM201]`` at the end of a line silences that code where the line is the one that the finding is about,
# or one that it names; several codes are separated by commas, the first digits stand for a family (``TM2``), and ``#
# tm: ignore`` alone silences them all.

_COMMENT = re.compile(r"#\s*tm:\s*ignore(?:\[([^\]]*)\])?")
_CODE = re.compile(r"TM\d{0,3}")


def codes_of(text: str) -> tuple[str, ...]:
    """Return the codes, or first parts of codes, that a setting names: separated by commas or blanks.

    Raises:
        ValueError: for anything that is no code.
    """
    codes = tuple(part.upper() for part in re.split(r"[,\s]+", text.strip()) if part)
    for code in codes:
        if not _CODE.fullmatch(code):
            raise ValueError(f"codes look like TM201, or TM2 for a family, separated by commas; not {code!r}")
    return codes


def is_silenced(finding: Finding, ignored: Iterable[str]) -> bool:
    """Return whether the person said not to be told of this: on a line of it, or by ``ignored`` codes."""
    lines = [line.location for line in finding.related]
    texts = [line.text for line in (finding.location, *lines) if line is not None]
    return _names(ignored, finding.code) or any(_says_ignore(text, finding.code) for text in texts)


def _names(codes: Iterable[str], code: str) -> bool:
    return any(code.startswith(given) for given in codes)


def _says_ignore(text: str, code: str) -> bool:
    for listed in _COMMENT.findall(text):
        try:
            codes = codes_of(listed) or ("TM",)
        except ValueError:
            continue
        if _names(codes, code):
            return True
    return False


# What several reports of one run found, as one list: what is said twice is said once, one line's findings together.

_Line = tuple[str, int]


def joined(reports: Iterable[Report]) -> tuple[Finding, ...]:
    """Return the findings of all, the most severe first; those about one line follow one another."""
    found: list[Finding] = []
    for report in reports:
        known = {(finding.code, line_of(finding)) for finding in found}
        found += [one for one in report.findings if line_of(one) is None or (one.code, line_of(one)) not in known]
    found.sort(key=_severity)
    firsts: dict[_Line | int, int] = {}
    for at, finding in enumerate(found):
        firsts.setdefault(line_of(finding) or at, at)
    places = {id(finding): firsts[line_of(finding) or at] for at, finding in enumerate(found)}
    return tuple(sorted(found, key=lambda finding: places[id(finding)]))


def line_of(finding: Finding) -> _Line | None:
    """Return the line that a finding is about."""
    return None if finding.location is None else (finding.location.filename, finding.location.line)


def _severity(finding: Finding) -> tuple[int, str]:
    return SEVERITIES.index(finding.severity), finding.code
