"""What several forms of one report need is made once, and packed text comes back."""

from __future__ import annotations

import random
from threading import Thread

import pytest

from tensormagic.views import markup
from tensormagic.views.markup import made_once, once

made = []


@once
def listed(numbers):
    """Return a new list each time that it runs."""
    made.append(numbers)
    return [*numbers, "made"]


@pytest.fixture(autouse=True)
def _nothing_made():
    made.clear()


def test_the_same_object_is_made_into_the_same_once():
    """Within the block, a second call returns what the first did; another object, equal or not, has its own."""
    first, equal = [1], [1]
    with made_once():
        kept = listed(first)
        with made_once():
            assert listed(first) is kept
        assert listed(first) is kept
        assert listed(equal) is not kept
    assert made == [first, equal]


def test_outside_nothing_is_kept():
    """Without the block, and after it, everything is made anew."""
    given = [1]
    with made_once():
        within = listed(given)
    assert listed(given) is not within
    assert listed(given) is not listed(given)
    assert len(made) == 4


def test_a_thread_has_its_own():
    """What another thread keeps is not seen, and a failure keeps nothing."""
    given, found = [1], []
    with made_once():
        within = listed(given)
        other = Thread(target=lambda: found.append(listed(given)))
        other.start()
        other.join()
    assert found[0] is not within
    with pytest.raises(TypeError), made_once():
        listed(3)
    assert len(made) == 3


@pytest.mark.parametrize("count", [3, 600_000])
def test_what_is_packed_is_unpacked(count):
    """Short and long text comes back, and holds nothing that means something in a page."""
    text = "".join(random.Random(0).choices("abc<&>é∞\n", k=count))
    assert markup.unpacked(markup.packed(text)) == text
    assert not {"<", ">", "&", '"', "'", "\\"}.intersection(markup.packed(text))
