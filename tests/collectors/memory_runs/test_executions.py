"""How often a line is reached: counted by Python 3.12 and later, and said not to be before."""

from __future__ import annotations

import sys

import pytest

from tensormagic.collectors.memory_runs.functions import NAME, Executions

MONITORING = getattr(sys, "monitoring", None)


def looping(many: int) -> int:
    """Reaches its lines so many times."""
    total = 0
    for each in range(many):
        total += each
    return total


def others() -> int:
    """Is not asked for."""
    return looping(3)


@pytest.mark.skipif(MONITORING is None, reason="Python tells of single functions' lines from 3.12 on")
def test_each_line_is_counted_as_often_as_it_is_reached():
    """Of the functions that were asked for only, and only inside."""
    with Executions([looping.__code__]) as counted:
        assert looping(4) == 6
        others()
    looping(9)
    begin = looping.__code__.co_firstlineno
    assert {line - begin: count for (_, line), count in counted.counts.items()} == {2: 2, 3: 9, 4: 7, 5: 2}
    assert counted.gap == ""
    assert all(MONITORING.get_tool(tool) != NAME for tool in range(6))


@pytest.mark.skipif(MONITORING is None, reason="Python tells of single functions' lines from 3.12 on")
def test_an_exception_leaves_nothing_behind():
    """The number is free again, and the functions are quick again."""
    with pytest.raises(ZeroDivisionError), Executions([looping.__code__]):
        looping(1 // 0)
    assert all(MONITORING.get_tool(tool) != NAME for tool in range(6))


def test_before_it_says_that_it_does_not():
    """Nothing is counted, and the reason is there."""
    with Executions([looping.__code__], monitoring=None) as counted:
        assert looping(4) == 6
    assert (counted.counts, counted.gap) == ({}, "counting how often a line ran needs Python 3.12")


class Taken:
    """A Python all of whose places are taken."""

    def get_tool(self, _tool: int) -> str:
        """Return who has it."""
        return "another"


def test_where_no_place_is_free_it_says_so():
    """Other tools are left alone."""
    with Executions([looping.__code__], monitoring=Taken()) as counted:
        assert looping(4) == 6
    assert counted.counts == {}
    assert "other tools" in counted.gap
