"""How the tests are spread over the workers of pytest-xdist: a file to one worker, what takes longest first.

A file's fixtures are then made once; the files that look at runs of examples go to one worker, too. The longest files
come first, so that no worker is still busy with one of them when the others have nothing left. Tests in the browser
mostly wait, for a page or for a cell: one worker has them from the beginning, beside those that compute, and each of
them by itself. The others take them last of all, since Playwright's event loop, once it runs in a process, is in the
way of every other.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# By the seconds they take, within either half; a file that is not here has its place in the alphabet.
SLOW = (
    "tests/notebooks/test_examples.py",
    "tests/ranks/test_four_ranks.py",
    "tests/magics/test_honesty.py",
    "tests/collectors/hooks/test_compiled.py",
    "tests/views/test_hostile.py",
    "tests/browser/test_appearance.py",
    "tests/browser/test_hosts.py",
    "tests/browser/test_live_panel.py",
    "tests/browser/test_shared_scripts.py",
    "tests/browser/test_first_light.py",
    "tests/browser/test_accessibility.py",
    "tests/browser/test_live_accessibility.py",
    "tests/browser/test_print_flood.py",
    "tests/browser/test_export.py",
)
NOTEBOOKS = "tests/notebooks/"
_PLACES = {path: place for place, path in enumerate(SLOW)}


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which workers are given them: those in the browser last, then by `SLOW`."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        path = file_of(item.nodeid)
        return _in_browser(path), _PLACES.get(path, len(SLOW))

    return sorted(items, key=place)


def _in_browser(scope: str) -> bool:
    return scope.startswith("tests/browser/")


def file_of(nodeid: str) -> str:
    """Return the file of a test, from the project's folder on."""
    return nodeid.partition("::")[0]


class SlowFilesFirst(LoadFileScheduling):
    """Hands out files in the order of the tests, and what runs in a browser by the test."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what goes to one worker together with this test: its file, or in the browser itself with its cases."""
        if nodeid.startswith(NOTEBOOKS):
            return NOTEBOOKS
        return nodeid.partition("[")[0] if _in_browser(nodeid) else file_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the last of several workers what runs in a browser, as long as there is any."""
        if node is self.nodes[-1] is not self.nodes[0] and (scope := self._next_in_browser()):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """End a worker in which Playwright runs where only other tests are left."""
        if self.workqueue and not self._next_in_browser() and _in_browser(next(reversed(self.assigned_work[node]), "")):
            node.shutdown()
        super()._reschedule(node)

    def _next_in_browser(self) -> str | None:
        return next(filter(_in_browser, self.workqueue), None)
