"""How the tests are spread over the workers of pytest-xdist: a file to one worker, what takes longest first.

A file's fixtures are then made once. The longest files come first, so that no worker is still busy with one of them
when the others have nothing left; those of the browser come last of all, since Playwright's event loop, once it runs
in a process, is in the way of every other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling

# By the seconds they take, within either half; a file that is not here has its place in the alphabet.
SLOW = (
    "tests/notebooks/test_examples.py",
    "tests/corpus/test_corpus.py",
    "tests/contracts/test_distribution.py",
    "tests/magics/test_honesty.py",
    "tests/collectors/test_transparency.py",
    "tests/tools/test_site.py",
    "tests/notebooks/test_first_light.py",
    "tests/collectors/tracing/test_compiled.py",
    "tests/collectors/memory/test_freed.py",
    "tests/views/test_hostile.py",
    "tests/browser/test_trace_panel.py",
    "tests/browser/test_hosts.py",
    "tests/browser/test_shelf.py",
    "tests/browser/test_first_light.py",
    "tests/browser/test_live_panel.py",
    "tests/browser/test_accessibility.py",
    "tests/browser/test_export.py",
    "tests/browser/test_appearance.py",
    "tests/browser/test_trace_viewer.py",
)
# Files whose tests share nothing but what they do with one case: so many parts, by the case's name.
PARTS = {
    "tests/corpus/test_corpus.py": 4,
    "tests/magics/test_honesty.py": 4,
    "tests/collectors/test_transparency.py": 2,
}
_PLACES = {path: place for place, path in enumerate(SLOW)}


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which workers are given them: those in the browser last, then by `SLOW`."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        path = file_of(item.nodeid)
        return path.startswith("tests/browser/"), _PLACES.get(path, len(SLOW))

    return sorted(items, key=place)


def file_of(nodeid: str) -> str:
    """Return the file of a test, from the project's folder on."""
    return nodeid.partition("::")[0]


class SlowFilesFirst(LoadFileScheduling):
    """Hands out files in the order of the tests, and those in `PARTS` in parts."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what goes to one worker together with this test."""
        path, _, name = nodeid.partition("::")
        case = name.partition("[")[2]
        return f"{path} {zlib.crc32(case.encode()) % PARTS[path]}" if path in PARTS else path
