"""Lines that take something out of a container: read in the source."""

from __future__ import annotations

import linecache

import pytest

from tensormagic.collectors.session.session_walk import emptied


def read(source: str) -> list[str]:
    """Make a source one that Python remembers."""
    linecache.cache["<emptied>"] = (len(source), None, source.splitlines(keepends=True), "<emptied>")
    return ["<emptied>"]


@pytest.mark.parametrize(
    "line",
    [
        "x.pop(0)", "x.popleft()", "x.clear()", "x.remove(y)", "del x[0]", "del x[:5]", "x[:] = []", "x[:5] = y",
        "x = x[-9:]", "x = torch.cat([x, y])[-9:]", "x = (x + y)[1:]", "a, x = b, c; x.popitem()",
    ],
)  # fmt: skip
def test_what_takes_something_out(line):
    """Methods, deletions, and what is cut to a length."""
    assert emptied("x", read(line))


@pytest.mark.parametrize(
    "line",
    ["x.append(y)", "y.pop()", "x = []", "x = y[-9:]", "x[0] = y", "x = torch.cat([x, y[:5]])", "del x", "x = ("],
)
def test_what_takes_nothing_out(line):
    """Nor does what cannot be read."""
    assert not emptied("x", read(line))


def test_an_attribute_is_called_self_in_its_class():
    """As the line that makes it grow is found."""
    assert emptied("meter.losses", read("class Meter:\n    def reset(self):\n        self.losses.clear()"))
