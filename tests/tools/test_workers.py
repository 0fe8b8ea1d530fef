"""How tests are spread: in the browser from the beginning, by one worker; never another test after one of those."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support.workers import SlowFilesFirst

BROWSER = [f"tests/browser/test_a.py::test_{at}[chromium-{case}]" for at in range(3) for case in "xy"]
OTHERS = [f"tests/views/test_{at}.py::test_{name}" for at in range(4) for name in "abcd"]


class Worker:
    """Runs what it is given at once, in the order in which it is given."""

    def __init__(self, collection: list[str]):
        self.collection, self.given, self.shutting_down = collection, [], False
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, places: list[int]) -> None:
        self.given += [self.collection[place] for place in places]

    def shutdown(self) -> None:
        self.shutting_down = True


def spread(collection: list[str], workers: int, pace: list[int]) -> list[list[str]]:
    """Return what each worker was given, each of which is done with as many tests a turn as ``pace`` says."""
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=False))
    scheduler = SlowFilesFirst(config)
    nodes = [Worker(collection) for _ in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, collection)
    scheduler.schedule()
    done = dict.fromkeys(nodes, 0)
    while any(done[node] < len(node.given) for node in nodes):
        for node, most in zip(nodes, pace, strict=True):
            for test in node.given[done[node] : done[node] + most]:
                scheduler.mark_test_complete(node, collection.index(test))
                done[node] += 1
    assert not scheduler.workqueue
    return [node.given for node in nodes]


@pytest.mark.parametrize("pace", [[1, 1, 1], [5, 1, 1], [1, 1, 9], [1, 4, 2]])
def test_every_test_is_run_once_and_none_after_one_in_the_browser(pace):
    """However fast the workers are; the last begins with the browser, the others end with it."""
    given = spread(OTHERS + BROWSER, 3, pace)
    assert sorted(test for each in given for test in each) == sorted(OTHERS + BROWSER)
    assert given[2][0] == BROWSER[0]
    assert all(each[0] == OTHERS[at * 4] for at, each in enumerate(given[:2]))
    for each in given:
        in_browser = [test in BROWSER for test in each]
        assert in_browser == sorted(in_browser)


def test_a_file_and_the_cases_of_a_test_in_the_browser_stay_together():
    """Their fixtures are made once."""
    given = spread(OTHERS + BROWSER, 3, [1, 1, 1])
    places = {test: at for at, each in enumerate(given) for test in each}
    together = [{places[test] for test in (*OTHERS, *BROWSER) if test.startswith(start)}
                for start in [*(f"tests/views/test_{at}.py" for at in range(4)),
                              *(f"tests/browser/test_a.py::test_{at}[" for at in range(3))]]  # fmt: skip
    assert all(len(one) == 1 for one in together)


@pytest.mark.parametrize("collection", [OTHERS, BROWSER, [*OTHERS, BROWSER[0]], OTHERS + BROWSER])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_nothing_is_left_over(collection, workers):
    """Without browser tests, with nothing else, with one worker."""
    given = spread(collection, workers, [1] * workers)
    assert sorted(test for each in given for test in each) == sorted(collection)
