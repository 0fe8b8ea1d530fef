"""Compares two runs: their graphs, paired by likeness, what each step did, and what was drawn."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Any

from tensormagic.comparisons.layers import Rename, best_pairs, renames_between
from tensormagic.reports import UNTOUCHED, Gap, Graph, Node, ParameterSeries, Pass, TraceReport
from tensormagic.reports.comparison import (
    APART,
    ComparisonReport,
    GraphDifference,
    LossPair,
    Moment,
    NodeDifference,
    NodeMention,
    NormDifference,
    ParameterDifference,
    Side,
)
from tensormagic.reports.rng import Difference, Draw, RngComparison, RngRunReport

# Lines move and indices shift when a cell is edited, so neither is looked at. Every node gets a label of what it is
# (op, module, name of a leaf); the label is then refined, round by round, by the labels of its neighbours (the
# refinement of Weisfeiler and Leman, 1968). From the finest labels to the coarsest, nodes whose label stands equally
# often in both graphs are paired in order, and from every pair its neighbours along the same edges are paired. What
# stays over is tried once more without names. All of it is iterative, and linear in the edges but for sorting.

Labels = list[int]
Links = list[list[tuple[int, int, int]]]  # node → (input number, slot, the node at the other end)
ROUNDS = 3


def match_nodes(left: Graph, right: Graph, rename: Rename = str) -> dict[int, int]:
    """Return which node of ``right`` each node of ``left`` is, for those that both graphs have."""
    named = [_named(node, str) for node in left.nodes], [_named(node, rename) for node in right.nodes]
    matcher = _Matcher(left, right)
    matcher.match(*named, coarsest=0)
    matcher.match(*([name[:2] for name in names] for names in named), coarsest=1)
    return matcher.pairs


def common_edges(left: Graph, right: Graph, pairs: dict[int, int]) -> int:
    """Return how many edges of ``left`` lead between the counterparts of their ends in ``right`` too."""
    there = {(edge.source, edge.target, edge.input_number, edge.slot) for edge in right.edges}
    mapped = ((pairs.get(edge.source), pairs.get(edge.target), edge.input_number, edge.slot) for edge in left.edges)
    return sum(edge in there for edge in mapped)


def _named(node: Node, rename: Rename) -> tuple[str, ...]:
    """Return what a node is; the name of what an op made is the user's, and may be another in the other run."""
    return (node.name, node.kind, rename(node.module), rename(node.variable) if node.kind == "accumulate" else "")


class _Matcher:
    """The pairs found so far."""

    def __init__(self, left: Graph, right: Graph) -> None:
        self._links = _links(left), _links(right)
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()

    def match(self, keys: Iterable[object], others: Iterable[object], *, coarsest: int) -> None:
        """Pair by labels that begin with ``keys``, from the finest round to the round ``coarsest``."""
        levels = [_numbered(keys, others)]
        for _ in range(ROUNDS):
            mine, theirs = levels[-1]
            levels.append(_numbered(_refined(mine, *self._links[0]), _refined(theirs, *self._links[1])))
        self._spread(self.pairs, *levels[0])
        for mine, theirs in reversed(levels[coarsest:]):
            # In order, the nodes left over whose label is as frequent here as there.
            here, there = _places(mine, self.pairs), _places(theirs, self._taken)
            new: dict[int, int] = {}
            for label, places in here.items():
                if len(places) == len(there.get(label, ())):
                    new.update(zip(places, there[label], strict=True))
            self.pairs |= new
            self._taken.update(new.values())
            self._spread(new, *levels[0])

    def _spread(self, start: dict[int, int], mine: Labels, theirs: Labels) -> None:
        """From every pair on, pair the neighbours at the other ends of the same edges, where both are what they are."""
        waiting = deque(start.items())
        while waiting:
            here, there = waiting.popleft()
            for links, others in zip(*self._links, strict=True):
                ends = _single(others[there])
                # Along edges of the same number and slot, where there is one such edge on both sides.
                for at, other in [(at, ends[edge]) for edge, at in _single(links[here]).items() if edge in ends]:
                    if at not in self.pairs and other not in self._taken and mine[at] == theirs[other]:
                        self.pairs[at] = other
                        self._taken.add(other)
                        waiting.append((at, other))


def _links(graph: Graph) -> tuple[Links, Links]:
    """Return the edges of a graph from both ends: along them, and against them."""
    down: Links = [[] for _ in graph.nodes]
    up: Links = [[] for _ in graph.nodes]
    for edge in graph.edges:
        down[edge.source].append((edge.input_number, edge.slot, edge.target))
        up[edge.target].append((edge.input_number, edge.slot, edge.source))
    return down, up


def _numbered(keys: Iterable[object], others: Iterable[object]) -> tuple[Labels, Labels]:
    """Return a number for each key of both sides: equal keys have one."""
    known: dict[object, int] = {}
    return [known.setdefault(key, len(known)) for key in keys], [known.setdefault(key, len(known)) for key in others]


def _refined(labels: Labels, down: Links, up: Links) -> Iterator[object]:
    """Yield of each node its label, and those of its neighbours with the edges between."""
    for at, label in enumerate(labels):
        below = [(number, slot, labels[other]) for number, slot, other in down[at]]
        above = [(number, slot, labels[other]) for number, slot, other in up[at]]
        yield label, tuple(below), tuple(sorted(above))


def _places(keys: Iterable[int], taken: Collection[int] = ()) -> dict[int, list[int]]:
    """Return where each key stands, without places that are taken."""
    places: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        if at not in taken:
            places.setdefault(key, []).append(at)
    return places


def _single(links: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    often = Counter((number, slot) for number, slot, _ in links)
    return {(number, slot): node for number, slot, node in links if often[number, slot] == 1}


_SAME = 1e-5  # relative: what differs by less is the same to five digits


def compare_norms(steps: Sequence[int], left: Sequence[float], right: Sequence[float]) -> NormDifference:
    """Return how two series of norms, one a step, differ."""
    moments = [Moment(step, a, b, ratio(a, b)) for step, a, b in zip(steps, left, right, strict=True)]
    if not moments:
        return NormDifference(0)
    bad = [[moment.step for moment, norm in zip(moments, series, strict=True) if not math.isfinite(norm)]
           for series in (left, right)]  # fmt: skip
    # The moments at the end in all of which one is `APART` times the other, and always the same one.
    direction, least = math.copysign(1.0, moments[-1].ratio), math.log10(APART)
    apart = [*takewhile(lambda moment: moment.ratio * direction >= least, reversed(moments))]
    known = [moment for moment in moments if not math.isnan(moment.ratio)]
    alike = (
        math.isclose(one.left, one.right, rel_tol=_SAME) or (math.isnan(one.left) and math.isnan(one.right))
        for one in moments
    )
    differing = [moment.step for moment, same in zip(moments, alike, strict=True) if not same]
    return NormDifference(
        compared=len(moments), first=moments[0], last=moments[-1],
        worst=max(known, key=lambda moment: abs(moment.ratio), default=None),
        from_step=apart[-1].step if apart else None, apart_steps=len(apart), same=not differing,
        differs_from=differing[0] if differing else None, bad_left=len(bad[0]), bad_right=len(bad[1]),
        bad_from_left=min(bad[0], default=None), bad_from_right=min(bad[1], default=None),
        silent_left=sum(norm == UNTOUCHED for norm in left), silent_right=sum(norm == UNTOUCHED for norm in right),
    )  # fmt: skip


def ratio(left: float, right: float) -> float:
    """Return log10(right / left): infinite where one is zero, NaN where one is no norm."""
    if not (math.isfinite(left) and math.isfinite(right)) or left < 0 or right < 0:
        return math.nan
    if left == right:
        return 0.0
    if not (left and right):
        return math.inf if right else -math.inf
    return math.log10(right) - math.log10(left)


@dataclass(frozen=True, slots=True)
class PassPair:
    """A pass of the left run and its counterpart, and where they stand among the kept passes."""

    step: int
    left: Pass
    right: Pass
    left_place: int
    right_place: int


def pair_passes(left: TraceReport, right: TraceReport) -> list[PassPair]:
    """Return the passes that both runs kept, paired by step, where both kept equally many of it."""
    here, there = (_places(one.step for one in report.passes) for report in (left, right))
    pairs = [
        PassPair(step, left.passes[at], right.passes[other], at, other)
        for step, places in here.items()
        if len(places) == len(there.get(step, ()))
        for at, other in zip(places, there[step], strict=True)
    ]
    if all(len(places) == 1 for side in (here, there) for places in side.values()):
        return pairs
    # Where a step has several passes and some were thinned out, only equal numbers say that two are the same one.
    whole = all(len(report.passes) == report.passes_seen for report in (left, right))
    return [pair for pair in pairs if whole or pair.left.number == pair.right.number]


MOST_NODES = 400  # that differ, the most different first; and that only one graph has
MOST_GRAPHS = 8
LEAST_ALIKE = 0.3  # share of common nodes below which two graphs are no counterparts


def pair_graphs(left: TraceReport, right: TraceReport, rename: Rename) -> list[tuple[Graph, Graph]]:
    """Return the graphs of both runs paired, the most alike first taken; in the left run's order."""
    mine = [_ingredients(graph, str) for graph in left.graphs[:MOST_GRAPHS]]
    theirs = [_ingredients(graph, rename) for graph in right.graphs[:MOST_GRAPHS]]
    alike = [(_likeness(one, other), at, to) for at, one in enumerate(mine) for to, other in enumerate(theirs)]
    found = best_pairs(alike, least=LEAST_ALIKE)
    return [(left.graphs[at], right.graphs[to]) for at, to in sorted(found.items())]


def _ingredients(graph: Graph, rename: Rename) -> Counter[tuple[str, str]]:
    return Counter((node.name, rename(node.variable) if node.kind == "accumulate" else "") for node in graph.nodes)


def _likeness(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> float:
    """Return the share of nodes, those without names, that both have: of the larger graph."""
    here, there = (Counter(name for name, _ in each.elements()) for each in (one, other))
    larger = max(here.total(), there.total())
    exact = (one & other).total() / larger / 1000 if larger else 0.0  # among equals, the names decide
    return (here & there).total() / larger + exact if larger else 0.0


def compare_graphs(
    runs: tuple[TraceReport, TraceReport], pair: tuple[Graph, Graph], rename: Rename, passes: list[PassPair]
) -> tuple[GraphDifference, dict[str, str]]:
    """Return how two graphs of two runs differ, and what matched leaves are called in the left and the right run."""
    left, right = pair
    pairs = match_nodes(left, right, rename)
    leaves = [(left.nodes[at], right.nodes[to]) for at, to in pairs.items() if left.nodes[at].kind == "accumulate"]
    called = {one.variable: other.variable for one, other in leaves if one.variable and other.variable}
    common = common_edges(left, right, pairs)
    mine, theirs = ({(graph.number, frame.pass_number): frame for frame in graph.frames} for graph in pair)
    numbers = [(one.step, (one.left.graph, one.left.number), (one.right.graph, one.right.number)) for one in passes]
    kept = [(step, mine[one], theirs[other]) for step, one, other in numbers if one in mine and other in theirs]
    steps, every = [step for step, _, _ in kept], []
    for at, to in sorted(pairs.items()):
        norms = compare_norms(steps, [one.norms[at] for _, one, _ in kept], [one.norms[to] for _, _, one in kept])
        every.append(NodeDifference(mention(runs[0], left.nodes[at]), mention(runs[1], right.nodes[to]), norms))
    different = [one for one in every if one.reshaped or not one.norms.same]
    only_left = [mention(runs[0], node) for node in left.nodes if node.index not in pairs]
    taken = set(pairs.values())
    only_right = [mention(runs[1], node) for node in right.nodes if node.index not in taken]
    whole = not only_left and not only_right and common == len(left.edges) == len(right.edges)
    return GraphDifference(
        left=left.number, right=right.number, matched=len(pairs), same=whole, equal=len(every) - len(different),
        nodes=tuple(sorted(different, key=lambda one: -one.norms.weight)[:MOST_NODES]), nodes_found=len(different),
        only_left=tuple(only_left[:MOST_NODES]), only_left_found=len(only_left),
        only_right=tuple(only_right[:MOST_NODES]), only_right_found=len(only_right),
        edges_only_left=len(left.edges) - common, edges_only_right=len(right.edges) - common,
    ), called  # fmt: skip


def mention(report: TraceReport, node: Node) -> NodeMention:
    """Return a node as it is named in a comparison."""
    place = report.location(node.location)
    named = node.index, node.op, node.module, node.variable
    return NodeMention(*named, node.shapes, node.dtype, place, node.statistics)


def compare_traces(left: TraceReport, right: TraceReport, *, names: Iterable[str] | None = None) -> ComparisonReport:
    """Return what is different between two traced runs, called by ``names``, their titles, or ``a`` and ``b``."""
    rename, passes = renames_between(left, right), pair_passes(left, right)
    paired = pair_graphs(left, right, rename)
    compared = [compare_graphs((left, right), pair, rename, passes) for pair in paired]
    graphs = tuple(difference for difference, _ in compared)
    leaves = {name: other for _, called in compared for name, other in called.items()}
    pairs = _pair_parameters(left, right, rename, leaves)
    first, second = names if names is not None else (left.title, right.title)
    if not first or not second or first == second:
        first, second = "a", "b"
    main = paired[0] if paired else (next(iter(left.graphs), None), next(iter(right.graphs), None))
    # Findings are told apart by code and subject: lines move, and numbers differ.
    mine = {(finding.code, finding.subject): finding for finding in left.findings}
    theirs = {(finding.code, rename(finding.subject)): finding for finding in right.findings}
    found = []
    for one, other in pairs:
        norms = [one.norms[each.left_place] for each in passes], [other.norms[each.right_place] for each in passes]
        difference = compare_norms([each.step for each in passes], *norms)
        found.append(ParameterDifference(one.name, other.name, one.shape, other.shape, difference))
    known, others = {one.name for one, _ in pairs}, {other.name for _, other in pairs}
    return ComparisonReport(
        left=_side(left, first, main[0]), right=_side(right, second, main[1]), steps_compared=len(passes),
        graphs=graphs, graphs_only_left=len(left.graphs) - len(graphs),
        graphs_only_right=len(right.graphs) - len(graphs),
        parameters=tuple(sorted(found, key=lambda one: -one.norms.weight)),
        parameters_only_left=tuple(one.name for one in left.parameters if one.name not in known),
        parameters_only_right=tuple(one.name for one in right.parameters if one.name not in others),
        losses=tuple(LossPair(one.step, one.left.value, one.right.value) for one in passes
                     if (one.left.value, one.right.value) != (None, None)),
        findings_only_left=tuple(finding for key, finding in mine.items() if key not in theirs),
        findings_only_right=tuple(finding for key, finding in theirs.items() if key not in mine),
        findings_both=tuple(finding for key, finding in theirs.items() if key in mine),
        gaps=tuple(_gaps(left, right, passes)),
    )  # fmt: skip


def _side(report: TraceReport, name: str, graph: Graph | None) -> Side:
    losses = [one.value for one in report.passes]
    return Side(
        name, report.title, report.state, report.steps_seen, report.passes_seen, report.seconds,
        len(graph.nodes) if graph else 0, len(graph.edges) if graph else 0,
        losses[0] if losses else None, losses[-1] if losses else None, len(report.findings), report.error,
    )  # fmt: skip


def _pair_parameters(
    left: TraceReport, right: TraceReport, rename: Rename, leaves: Mapping[str, str]
) -> list[tuple[ParameterSeries, ParameterSeries]]:
    """Pair parameters by name; and those that are called differently, where the nodes of their leaves are paired."""
    theirs = {rename(parameter.name): parameter for parameter in right.parameters}
    found = {one.name: theirs[one.name] for one in left.parameters if one.name in theirs}
    taken = {other.name for other in found.values()}
    others = {other.name: other for other in right.parameters if other.name not in taken}
    found |= {one: others.pop(other) for one, other in leaves.items() if one not in found and other in others}
    return [(one, found[one.name]) for one in left.parameters if one.name in found]


def _gaps(left: TraceReport, right: TraceReport, passes: Sequence[PassPair]) -> Iterator[Gap]:
    shared = min(left.steps_seen, right.steps_seen)
    compared = len({pair.step for pair in passes})
    if compared < shared:
        yield Gap("steps", f"{compared} of {shared} steps are compared: the others were not kept by both runs")
    if not passes and left.passes and right.passes:
        yield Gap("steps", "no step was kept by both runs: only the graphs are compared")
    if max(len(left.graphs), len(right.graphs)) > MOST_GRAPHS:
        yield Gap("graphs", f"only the {MOST_GRAPHS} most used graphs of each run are compared")


def compare_draws(left: RngRunReport, right: RngRunReport, *, names: tuple[str, str] = ("a", "b")) -> RngComparison:
    """Return the first draw that differs between two runs; a line that has moved makes no difference."""
    complete = len(left.draws) == left.count and len(right.draws) == right.count
    for at, (one, other) in enumerate(zip_longest(left.draws, right.draws)):
        here = None if one is None else left.before[one.generator]
        there = None if other is None else right.before[other.generator]
        difference = _difference(one, other, here, there)
        if difference == "none":
            continue
        if difference == "start" and one is not None and any(old.generator == one.generator for old in left.draws[:at]):
            difference = "state"  # they agreed after the start
        alike = here is not None and there is not None and here.digest == there.digest
        began = difference == "start" or (difference == "state" and alike)
        line = None if one is None else left.location(one.location)
        other_line = None if other is None else right.location(other.location)
        return RngComparison(
            names=names, difference=difference, same=_drawn(left, at), generator=getattr(here or there, "name", ""),
            sides=(one, other), places=(line, other_line), complete=complete,
            starts=(here, there) if began else (None, None),
        )  # fmt: skip
    return RngComparison(names=names, same=_drawn(left, len(left.draws)), complete=complete)


def _drawn(run: RngRunReport, first: int) -> int:
    """Return how many of the first records of a run are draws: the others are seeds that were set."""
    return sum(draw.kind == "drew" for draw in run.draws[:first])


def _difference(one: Draw | None, other: Draw | None, here: Any, there: Any) -> Difference:
    """Return how two draws differ; ``here`` and ``there`` are their generators before the runs."""
    if one is None or other is None:
        return "end"
    if (one.op, one.kind, here.name) != (other.op, other.kind, there.name):
        return "call"
    if one.values != other.values:
        return "values"
    if one.digest == other.digest:
        return "none"
    if one.kind == "set":  # how it stood before makes no difference
        return "seed"
    return "state" if here.digest == there.digest else "start"
