"""Every fix is pasted into its program: the finding is gone, and nothing new is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tensormagic.diagnoses import RULES
from tensormagic.diagnoses.fixes import FIXES
from tensormagic.reports import Finding
from tests.corpus.cases import HEALTHY, ILL, Case
from tests.corpus.score import every_case

CASES = [case for case in every_case() if case.code in FIXES]
BY_HAND = {"a_loss_read_in_every_step"}
REFUSED = ("the program was to raise", "nothing was refused", "DID NOT RAISE")


@pytest.fixture(autouse=True)
def same_numbers():
    """Every case starts from the same random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def fixes_of(case: Case) -> tuple[list[Finding], list[Finding]]:
    """Return what is found in a program, and those of its findings that have a fix and are about a line of it."""
    found = list(case.run().findings)
    home = sys.modules[case.run.__module__].__file__
    own = [one for one in found if one.fix and one.location is not None and one.location.filename == home]
    return found, own


def pasted(case: Case, finding: Finding, folder: Path) -> Case:
    """Return the program with the line of a finding replaced by its fix."""
    home = sys.modules[case.run.__module__]
    lines = Path(home.__file__).read_text(encoding="utf-8").splitlines()
    line = lines[finding.location.line - 1]
    indent = line[: len(line) - len(line.lstrip())]
    lines[finding.location.line - 1] = "\n".join(indent + new for new in finding.fix.splitlines())
    path = folder / f"{home.__name__.rpartition('.')[2]}_{finding.code}.py"
    ill = re.sub(r"(?m)^( +)assert .*$", r"\1pass", "\n".join(lines))  # what a program says of its own illness
    path.write_text(f"{ill}\n", encoding="utf-8")
    mended = sys.modules[f"tests.corpus.{path.stem}"] = ModuleType(f"tests.corpus.{path.stem}")
    mended.__file__ = str(path)
    before = HEALTHY[:], ILL[:]
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(mended))
    finally:
        HEALTHY[:], ILL[:] = before
        del sys.modules[mended.__name__]
    return Case(getattr(mended, case.name), case.code)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fix_that_is_pasted_works(case, tmp_path):
    """Nothing is found any more that has this code, and nothing above a note that was not found before."""
    found, own = fixes_of(case)
    if not own or case.name in BY_HAND:
        pytest.skip("no fix is certain here" if not own else "the report does not come from a run")
    for finding in own:
        torch.manual_seed(0)
        try:
            after = pasted(case, finding, tmp_path).run().findings
        except (AssertionError, pytest.fail.Exception) as error:  # the program itself says that it is not ill
            if str(error) and not any(words in str(error) for words in REFUSED):
                raise
            after = ()
        left = [one for one in after if (one.code, one.subject) == (finding.code, finding.subject)]
        known = {one.code for one in found}
        new = [f"{one.code} {one.message}" for one in after if one.severity != "note" and one.code not in known]
        assert ([one.message for one in left], new) == ([], []), finding.fix


@pytest.mark.parametrize("code", sorted({rule.code for rule in RULES}))
def test_a_code_has_a_fix_or_its_page_says_why_it_has_none(code):
    """A fix is shown by one of the code's programs at least; a page that excuses the lack of one has none."""
    page = Path(__file__).parents[2] / "docs" / "diagnoses" / f"{code}.md"
    excused = "\nNo fix to paste: " in page.read_text(encoding="utf-8")
    assert excused != (code in FIXES)
    assert excused or any(fixes_of(case)[1] for case in CASES if case.code == code)


def test_a_sum_on_the_device_needs_no_graph():
    """The program of TM803 is a report made by hand, which no pasted line changes: the line itself is run."""
    (case,) = [case for case in CASES if case.name in BY_HAND]
    _, (finding,) = fixes_of(case)
    names = {"running": 0.0, "loss": torch.tensor(2.0, requires_grad=True) * 1.5}
    exec(finding.fix, names)
    assert (float(names["running"]), names["running"].requires_grad) == (3.0, False)
