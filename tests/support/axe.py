"""axe-core over a page, from the package that the test extra installs: no request leaves for it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
# What axe leaves to a user: all of it is contrast that it cannot compute, looked at here, and why it is fine. The
# colours themselves are compared with every ground that they can stand on in tests/views/test_contrast.py.
REVIEWED = {
    "it is overlapped by another element": "the thin wire over the layout lets clicks and light through",
    "it's partially obscured by another element": "what is scrolled away in a box of its own",
    "element contains an image node": "words over the graph have a rim in the colour of the ground",
    "Element content is too short to determine": "a number of one digit in a heat cell, on its own background",
    "due to a background gradient": "a bar behind a number: both its colours are tested",
    "contains only non-text characters": "arrows and dashes, in the ink of the text beside them",
    "due to a pseudo element": "brackets under a row of cells, which lie above the words",
}
_RUN = """([root, off, only]) => axe.run(root ?? document, {
  resultTypes: ["violations", "incomplete"],
  ...(only.length && { runOnly: only }),
  rules: Object.fromEntries(off.map(id => [id, {enabled: false}])),
})"""


@dataclass(frozen=True)
class Verdict:
    """What axe found: rules that are broken, and what it could not decide.

    Attributes:
        violations: Rule, what it wants, and the elements, one line each.
        incomplete: Likewise, of rules that a user has to look at.
    """

    violations: list[str]
    incomplete: list[str]

    @property
    def open(self) -> list[str]:
        """What a user would still have to look at: undecided, and not `REVIEWED`."""
        known = (line for line in self.incomplete if line.startswith("color-contrast:"))
        decided = {line for line in known if any(reason in line for reason in REVIEWED)}
        return [line for line in self.incomplete if line not in decided]


def check(page: Page, root: str | None = None, *, off: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> Verdict:
    """Run axe over a page, or over what ``root`` selects.

    Args:
        page: The page.
        root: A selector; the whole page by default.
        off: Rules that are not for this page: a fragment in a notebook has no title of its own.
        only: The rules to run; all by default. What colours decide is asked of the dark side alone.
    """
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(SOURCE)
    found = page.evaluate(_RUN, [root, list(off), list(only)])
    return Verdict(_lines(found["violations"]), _lines(found["incomplete"]))


def _lines(rules: list[dict[str, Any]]) -> list[str]:
    return [
        f"{rule['id']}: {node['html'][:160]} ({' / '.join(node['failureSummary'].splitlines()[1:2])})"
        for rule in rules
        for node in rule["nodes"]
    ]
