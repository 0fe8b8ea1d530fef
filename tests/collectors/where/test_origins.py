"""Which call made a node, by its sequence number: also where calls lie inside others, or made nothing."""

from __future__ import annotations

import threading

import numpy as np

from tensormagic.collectors.where.caller import Origins


def sites(origins, numbers):
    found = (origins.of(number) for number in numbers)
    return [origins.origins[number][0] if exact else None for number, exact in found]


def test_calls_one_after_the_other():
    """Every number in a range belongs to it; one in between to none, exactly."""
    origins = Origins()
    origins.add(0, 2, (7, ""))
    origins.add(3, 4, (8, "net"))
    assert sites(origins, range(5)) == [7, 7, None, 8, None]
    assert origins.nodes == 3


def test_a_call_inside_another():
    """What a custom Function's backward made keeps its line; the rest of the backward's nodes get the backward's."""
    origins = Origins()
    origins.add(0, 2, (1, ""))
    origins.add(4, 5, (2, ""))
    origins.add(7, 8, (3, ""))
    origins.add(2, 10, (9, ""))
    assert sites(origins, range(10)) == [1, 1, 9, 9, 2, 9, 9, 3, 9, 9]
    assert origins.nodes == 10


def test_many_at_once_as_each_alone():
    """Before, inside, between and after the ranges; what was forgotten counts as lost in both ways."""
    asked = np.array([0, 4, 5, 6, 7, 8, 9, 12, 2**64 - 1], np.uint64)
    alone, together = Origins(), Origins()
    for origins in (alone, together):
        assert origins.of_all(asked) == -1
        origins.add(5, 7, (1, ""))
        origins.add(8, 9, (2, "net"))
        origins._forgotten_below = 5
    assert list(together.of_all(asked)) == [alone.of(int(number))[0] for number in asked]
    assert together.lost == alone.lost == 2


class Stopping(np.ndarray):
    """An array that lets another thread go on when it is compared: in the midst of a search."""

    between = staticmethod(lambda: None)

    def __lt__(self, other):
        type(self).between()
        return np.asarray(self) < other


def test_the_traced_thread_goes_on_while_another_asks():
    """While nodes are looked up on another thread, calls can be noted: NumPy holds none of the columns."""
    origins = Origins()
    origins.add(0, 4, (1, ""))
    asked = np.arange(4, dtype=np.uint64).view(Stopping)
    Stopping.between = staticmethod(lambda: [origins.add(at, at + 1, (2, "")) for at in range(4, 400)])
    assert list(origins.of_all(asked)) == [0, 0, 0, 0]
    assert sites(origins, range(398, 401)) == [2, 2, None]


def test_many_calls_while_other_threads_ask_and_forget():
    """Each answer is that of one moment, whatever is added, filled in between and forgotten meanwhile."""
    origins, wrong, over = Origins(), [], threading.Event()

    def ask():
        while not over.is_set():
            end = origins._end
            numbers = np.arange(max(end - 50, 0), end, dtype=np.uint64)
            found = origins.of_all(numbers)
            site = [origins.origins[number][0] for number in np.atleast_1d(found) if number >= 0]
            single = [origins.of(int(number)) for number in numbers]
            if any(number not in range(7) for number in site) or any(number >= 7 for number, _ in single):
                wrong.append((site, single))
            origins.settle()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for at in range(0, 60_000, 3):
            origins.add(at, at + 2, (at % 7, ""))
            if at % 99 == 0:
                origins.add(at, at + 3, (at % 5, ""))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
