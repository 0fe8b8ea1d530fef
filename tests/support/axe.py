"""axe-core over a page, from the package that the test extra installs: no request leaves for it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_RUN = """([root, off]) => axe.run(root ?? document, {
  resultTypes: ["violations", "incomplete"],
  rules: Object.fromEntries(off.map(id => [id, {enabled: false}])),
})"""


@dataclass(frozen=True)
class Verdict:
    """What axe found: rules that are broken, and what it could not decide.

    Attributes:
        violations: Rule, what it wants, and the elements, one line each.
        incomplete: Likewise, of rules that a person has to look at.
    """

    violations: list[str]
    incomplete: list[str]


def check(page: Page, root: str | None = None, *, off: tuple[str, ...] = ()) -> Verdict:
    """Run axe over a page, or over what ``root`` selects.

    Args:
        page: The page.
        root: A selector; the whole page by default.
        off: Rules that are not for this page: a fragment in a notebook has no title of its own.
    """
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(SOURCE)
    found = page.evaluate(_RUN, [root, list(off)])
    return Verdict(_lines(found["violations"]), _lines(found["incomplete"]))


def _lines(rules: list[dict[str, Any]]) -> list[str]:
    return [
        f"{rule['id']}: {node['html'][:160]} ({' / '.join(node['failureSummary'].splitlines()[1:2])})"
        for rule in rules
        for node in rule["nodes"]
    ]
