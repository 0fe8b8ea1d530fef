"""What a traced run knows of tensors by their names: put in order once, for every tensor of a question."""

from __future__ import annotations

from functools import cached_property

from tensormagic.diagnoses.paths import cuts_in, neighbours, reached
from tensormagic.diagnoses.rule import optimizers_of
from tensormagic.reports import Cut, Graph, OptimizerUse, ParameterSeries, TraceReport

_KINDS = ("accumulate", "op", "custom")  # the node that collects a leaf's gradient before the one that made a tensor


class KnownRun:
    """A run, or none. Each part is made when it is first asked for."""

    def __init__(self, trace: TraceReport | None) -> None:
        self.trace = trace
        self._graphs = trace.graphs if trace is not None else ()
        self._reached: dict[tuple[int, int], set[int]] = {}
        self._silencers: dict[int, dict[int, tuple[int, int]]] = {}

    def series(self, name: str, shape: tuple[int, ...]) -> ParameterSeries | None:
        """Return what the run brought a tensor; None where it did not know it."""
        return self._series[name, shape][1] if (name, shape) in self._series else None

    @cached_property
    def _series(self) -> dict[tuple[str, tuple[int, ...]], tuple[int, ParameterSeries]]:
        found: dict[tuple[str, tuple[int, ...]], tuple[int, ParameterSeries]] = {}
        for number, one in enumerate(self.trace.parameters if self.trace is not None else ()):
            found.setdefault((one.name, one.shape), (number, one))
        return found

    def users(self, series: ParameterSeries) -> list[OptimizerUse]:
        """Return the optimizers that held a tensor."""
        return self._users.get(self._series[series.name, series.shape][0], [])

    @cached_property
    def _users(self) -> dict[int, list[OptimizerUse]]:
        found: dict[int, list[OptimizerUse]] = {}
        for use in optimizers_of(self.trace) if self.trace is not None else ():
            for number in dict.fromkeys(use.holds):
                found.setdefault(number, []).append(use)
        return found

    def node(self, name: str) -> tuple[Graph, int] | None:
        """Return the first graph that leads to a tensor, and the node there that collects its gradient or made it."""
        return self._nodes.get(name)

    @cached_property
    def _nodes(self) -> dict[str, tuple[Graph, int]]:
        found: dict[str, tuple[Graph, int]] = {}
        for graph in self._graphs:
            nodes = sorted(graph.nodes, key=lambda node: (_KINDS.index(node.kind), node.index))
            for node in nodes:
                found.setdefault(node.variable, (graph, node.index))
        return found

    def cuts(self, name: str) -> list[tuple[Graph | None, Cut]]:
        """Return the cuts that left out a tensor, those in graphs first."""
        return self._cuts.get(name, [])

    @cached_property
    def _cuts(self) -> dict[str, list[tuple[Graph | None, Cut]]]:
        found: dict[str, list[tuple[Graph | None, Cut]]] = {}
        if self.trace is not None:
            for pair in [*cuts_in(self.trace), *((None, cut) for cut in self.trace.cuts)]:
                for name in dict.fromkeys(one.name for one in pair[1].left_out):
                    found.setdefault(name, []).append(pair)
        return found

    @cached_property
    def frozen(self) -> dict[str, int | None]:
        """The line that froze a parameter, by its name."""
        pairs = list(cuts_in(self.trace)) if self.trace is not None else []
        return {cut.source_name: cut.location for _, cut in reversed(pairs) if cut.kind == "frozen"}

    def leads_to(self, graph: Graph, node: int, leaf: int) -> bool:
        """Return whether the gradient of a node goes into that of a leaf, or is it."""
        key = (id(graph), node)
        if key not in self._reached:
            self._reached[key] = reached(neighbours(graph)[1], [node])
        return leaf in self._reached[key]

    def silencer(self, graph: Graph, leaf: int) -> tuple[int, int] | None:
        """Return the node on the way to a leaf that got a gradient in the last pass, and what only zeros came to.

        Of several the one nearest to the loss.
        """
        if id(graph) not in self._silencers:
            self._silencers[id(graph)] = _silencers(graph)
        return self._silencers[id(graph)].get(leaf)


def _silencers(graph: Graph) -> dict[int, tuple[int, int]]:
    """Return by node: where its zeros begin."""
    found: dict[int, tuple[int, int]] = {}
    norms, targets = graph.frames[-1].norms if graph.frames else (), neighbours(graph)[1]
    for loud in reversed(range(len(norms))):
        if not norms[loud] > 0:
            continue
        pending = [(at, at) for at in targets.get(loud, ())]
        while pending:
            at, first = pending.pop()
            if norms[at] == 0 and at not in found:
                found[at] = loud, first
                pending += [(following, first) for following in targets.get(at, ())]
    return found
