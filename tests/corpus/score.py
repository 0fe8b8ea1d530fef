"""How right the findings are: precision and recall per code, over every program of the corpus.

``make corpus`` prints the table, and below it every miss and every false alarm; it fails where there is one.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread

import torch

from tensormagic.collectors.aliasing import writes
from tensormagic.diagnoses import RULES
from tensormagic.reports import Finding
from tests.corpus.cases import HEALTHY, ILL, Case

HEADS = ("code", "programs", "found", "recall", "false alarms", "precision", "nearly")


@dataclass(frozen=True)
class Verdict:
    """What was said of one program.

    Attributes:
        case: The program, and what must be said of it.
        findings: What was said; empty where it raised.
        raised: Why it could not be run to its end; empty where it could.
    """

    case: Case
    findings: tuple[Finding, ...]
    raised: str = ""

    @property
    def found(self) -> bool:
        """Whether the illness was found, at its line."""
        return bool(self.case.code) and any(self._is_expected(finding) for finding in self.findings)

    @property
    def false(self) -> tuple[Finding, ...]:
        """What was said and is not so: any other code above a note, the expected one elsewhere, what it nearly has."""
        return tuple(finding for finding in self.findings if self._is_false(finding))

    def _is_expected(self, finding: Finding) -> bool:
        line = finding.location.text if finding.location else ""
        return finding.code == self.case.code and self.case.line in line

    def _is_false(self, finding: Finding) -> bool:
        if finding.code == self.case.code:
            return not self._is_expected(finding)
        if finding.code == self.case.nearly:
            return True
        return finding.severity != "note" and finding.code not in self.case.also


@dataclass(frozen=True)
class Score:
    """How right one code is.

    Attributes:
        code: The code.
        programs: How many programs have the fault.
        found: In how many of them it was found, at its line.
        false: How often it was said where it is not so.
        nearly: How many healthy programs nearly have the fault.
    """

    code: str
    programs: int
    found: int
    false: int
    nearly: int

    @property
    def recall(self) -> float | None:
        """The share of its programs in which it was found; None without programs."""
        return self.found / self.programs if self.programs else None

    @property
    def precision(self) -> float | None:
        """The share of what was said that is so; None where it was never said."""
        said = self.found + self.false
        return self.found / said if said else None


def every_case() -> tuple[Case, ...]:
    """Return all programs of the corpus, those about in-place writes too."""
    for pattern in ("ill_*.py", "healthy_*.py"):
        for path in sorted(Path(__file__).parent.glob(pattern)):
            import_module(f"tests.corpus.{path.stem}")
    writes = import_module("tests.corpus.ill_writes").ILL_WRITES
    healthy = import_module("tests.corpus.healthy_writes").HEALTHY_WRITES
    ill = (Case(each.run, each.code, severity=each.severity, line=each.line) for each in writes)
    return (*ill, *healthy, *ILL, *HEALTHY)


def judge(case: Case) -> Verdict:
    """Run a program, from the random numbers that every program starts from."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return Verdict(case, tuple(case.run().findings))
        except Exception as error:  # a program that breaks off is a miss, not the end of the table
            return Verdict(case, (), f"{type(error).__name__}: {error}")


def judge_all(cases: Sequence[Case]) -> list[Verdict]:
    """Run all programs, each from a thread of its own: what a program's callers hold is not looked through."""
    verdicts: list[Verdict] = []
    for case in cases:
        thread = Thread(target=lambda case=case: verdicts.append(judge(case)))
        thread.start()
        thread.join()
    return verdicts


def scores(verdicts: Sequence[Verdict], codes: Iterable[str]) -> list[Score]:
    """Return the score of each of ``codes``."""
    return [_score(verdicts, code) for code in codes]


def _score(verdicts: Sequence[Verdict], code: str) -> Score:
    ill = [verdict for verdict in verdicts if verdict.case.code == code]
    false = sum(finding.code == code for verdict in verdicts for finding in verdict.false)
    nearly = sum(verdict.case.nearly == code for verdict in verdicts)
    return Score(code, len(ill), sum(verdict.found for verdict in ill), false, nearly)


def table(rows: Sequence[Score]) -> str:
    """Return the scores as a table, a line a code."""
    cells = [HEADS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def _cells(row: Score) -> tuple[str, ...]:
    return (row.code, str(row.programs), str(row.found), _share(row.recall), str(row.false), _share(row.precision),
            str(row.nearly))  # fmt: skip


def _share(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{100 * value:.0f} %"


def complaints(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a line for everything that is not as it must be."""
    lines = [f"raised  {verdict.case.name}: {verdict.raised}" for verdict in verdicts if verdict.raised]
    lines += [
        f"missed  {verdict.case.code}  {verdict.case.name}"
        for verdict in verdicts
        if verdict.case.code and not verdict.found and not verdict.raised
    ]
    return lines + [
        f"false   {finding.code}  {verdict.case.name}: {finding.message}"
        for verdict in verdicts
        for finding in verdict.false
    ]


def main() -> int:
    """Print the table, and what is not as it must be; return how to exit."""
    torch.set_num_threads(1)
    writes.FREE_SEARCHES = writes.FIRST_SEARCHES = math.inf  # what is found must not hang on how busy the machine is
    began, cases = time.process_time(), every_case()
    verdicts = judge_all(cases)
    healthy = [case for case in cases if not case.code]
    print(table(scores(verdicts, dict.fromkeys(rule.code for rule in RULES))))
    print(
        f"\n{len(cases) - len(healthy)} programs with a fault; {len(healthy)} healthy ones, among them "
        f"{len({case.family for case in healthy if case.family})} families of training programs; "
        f"{time.process_time() - began:.0f} s"
    )
    found = complaints(verdicts)
    print("\n".join(found) or "nothing missed, no false alarm")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
