"""Lines that take something out of a container: read in the source."""

from __future__ import annotations

import ast
import linecache

import pytest

from tensormagic.collectors.session.session_walk import ChangingLines


def read(source: str) -> ChangingLines:
    """Make a source one that Python remembers, and ask for its lines."""
    linecache.cache["<emptied>"] = (len(source), None, source.splitlines(keepends=True), "<emptied>")
    return ChangingLines(["<emptied>"])


@pytest.mark.parametrize(
    "line",
    [
        "x.pop(0)", "x.popleft()", "x.clear()", "x.remove(y)", "del x[0]", "del x[:5]", "x[:] = []", "x[:5] = y",
        "x = x[-9:]", "x = torch.cat([x, y])[-9:]", "x = (x + y)[1:]", "a, x = b, c; x.popitem()",
    ],
)  # fmt: skip
def test_what_takes_something_out(line):
    """Methods, deletions, and what is cut to a length."""
    assert read(line).is_emptied("x")


@pytest.mark.parametrize(
    "line",
    ["x.append(y)", "y.pop()", "x = []", "x = y[-9:]", "x[0] = y", "x = torch.cat([x, y[:5]])", "del x", "x = ("],
)
def test_what_takes_nothing_out(line):
    """Nor does what cannot be read."""
    assert not read(line).is_emptied("x")


def test_an_attribute_is_called_self_in_its_class():
    """As the line that makes it grow is found."""
    assert read("class Meter:\n    def reset(self):\n        self.losses.clear()").is_emptied("meter.losses")


def test_each_cell_of_a_long_session_is_read_once(monkeypatch: pytest.MonkeyPatch):
    """However many names are asked for: a session of a night has hundreds of cells."""
    every = {f"<cell {at}>": f"a{at}.append({at})\nb{at} = b{at}[-9:]\n" for at in range(300)}
    for name, source in every.items():
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(keepends=True), name))
    parsed: list[str] = []

    def counted(source: str) -> ast.Module:
        parsed.append(source)
        return ast.parse(source)

    monkeypatch.setattr("tensormagic.collectors.session.session_walk.syntax_of", counted)
    for lines in (ChangingLines(every), ChangingLines(every)):
        for at in (0, 7, 299):
            found = lines.grown(f"a{at}")
            assert found is not None
            assert (found.filename, found.line) == (f"<cell {at}>", 1)
            assert lines.is_emptied(f"b{at}")
            assert not lines.is_emptied(f"a{at}")
    assert sorted(parsed) == sorted(every.values())
