"""The way of the gradient, looked at from the loss: right on branches, and linear in the size of the graph."""

from __future__ import annotations

from array import array
from dataclasses import replace

from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.paths import Paths
from tensormagic.reports import Graph
from tests.views import samples_trace


def _deep(layers, norms=None):
    """A chain of ``layers`` matrix products with a weight each."""
    build = samples_trace.Builder()
    at = None
    for number in range(layers):
        at = build.op("mm", at, build.leaf(f"net.{number}.weight", (4, 4)), shape=(4, 4))
    return build.graph(norms)


def test_the_largest_value_above_a_node():
    """Of two branches from the loss each node sees its own and what they share, and never itself."""
    build = samples_trace.Builder()
    bottom = build.op("mm")
    left, right = build.op("mm", bottom), build.op("mm")
    build.op("add", left, right)
    paths = Paths(build.graph())
    assert paths.largest_above({bottom: 9.0, left: 2.0, right: 5.0, 3: 1.0}, 0.0) == [2.0, 1.0, 1.0, 0.0]


def test_the_last_layer_on_the_way_down():
    """A deep layer is compared with the last layer above it, not with one on another branch."""
    build = samples_trace.Builder()
    first = build.op("mm", build.leaf("a", (4, 4)))
    second = build.op("mm", first, build.leaf("b", (4, 4)))
    other = build.op("mm", build.leaf("c", (4, 4)))
    build.op("add", second, other)
    paths = Paths(build.graph([0.1, 1.0, 0.1, 2.0, 0.1, 8.0, 1.0]))
    assert paths.first == {second, other}
    assert (paths.at_the_last_layer(first), paths.at_the_last_layer(second)) == (2.0, 0.0)
    assert paths.least_at_a_last_layer() == 2.0


class Counting(list):
    """Counts how often it is gone through."""

    walks = 0

    def __iter__(self):
        Counting.walks += 1
        return super().__iter__()


def test_all_rules_are_linear(monkeypatch):
    """Three hundred layers whose gradient explodes: each list of feeders is gone through a few times, not 300 times."""
    count = 300
    norms = array("f", [10.0 ** (2 + 8 * (1 - at / (2 * count))) for at in range(2 * count)])
    graph = _deep(count, norms)
    series = samples_trace.parameters_of(graph, 1)
    series = tuple(_with_norm(each, 1e9 - at) for at, each in enumerate(series))
    report = samples_trace.report(graph, count=1, parameters=series)
    original = Paths.__init__

    def counted(self, given: Graph):
        original(self, given)
        self._feeders = {node: Counting(feeders) for node, feeders in self._feeders.items()}

    monkeypatch.setattr(Counting, "walks", 0)
    monkeypatch.setattr(Paths, "__init__", counted)
    found = diagnose(report)
    assert [finding.code for finding in found] == ["TM404"]
    assert 0 < Counting.walks < 8 * 2 * count


def _with_norm(series, norm):
    return replace(series, norms=array("f", [norm]), touched=1)
