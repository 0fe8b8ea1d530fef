"""Why a backward raised that nobody had followed: what its graph and its source show afterwards.

Which tensor was changed, what had saved it and in which version is in the graph, as long as that is alive. Who wrote to
it, and which backward freed a graph, is read from the statements around, where they leave no doubt.
"""

from __future__ import annotations

import ast
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch

from tensormagic.collectors.autograd_errors.backward_errors import Blame, Gone, Names, has_graph, subject_of
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.saved_tensors import is_freed, same_start, saved_by
from tensormagic.collectors.graphs.structure import start_nodes
from tensormagic.collectors.objects.children import is_kind, updated_by
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.statements import Scope, bound_by, calls_in, statements
from tensormagic.reports.base import Location
from tensormagic.reports.failure import BackwardFault, FreedGraph, ModifiedSavedTensor, SavedWrite

MOST_NODES = 100_000
MOST_CELLS = 32  # before the one that failed

Spaces = Sequence[Mapping[str, Any]]


def untraced_fault(
    error: BaseException,
    roots: Sequence[Any],
    spaces: Spaces,
    locate: Callable[[str, int, str], Location],
    around: tuple[Scope, int] | None = None,
) -> BackwardFault | None:
    """Return why a backward that was called on ``roots`` raised; None where it was for none of the usual reasons.

    Names are looked up in ``spaces``, the nearest first. ``around`` is the scope that called it, and the line.
    """
    if not (subject := subject_of(error)):
        return None
    with quiet():
        starts = start_nodes(roots)
        nodes = list(walk_nodes(starts, MOST_NODES))
        source = _Source(*around, spaces) if around is not None else None
        location = source.location if source is not None else lambda _: None
        blame = Blame(None, lambda _: (None, ""), location, locate, Names(spaces))
        if source is not None and subject == "freed":
            blame.gone.extend(source.earlier())
        _, fault = blame.fault(error, nodes, range(len(starts)), None)
        if fault is None:
            return None
        if source is not None and subject == "modified":
            fault = source.with_write(fault, nodes[fault.node])
        elif source is not None and subject == "freed":
            fault = source.with_line(fault) if fault.known else source.in_loop(fault, nodes)
        return BackwardFault(**{subject: fault})


@dataclass(slots=True)
class _Source:
    """The statements around the line that called backward, and the names there."""

    scope: Scope
    line: int
    spaces: Spaces
    places: list[Location] = field(default_factory=list)  # of the backwards that ran before

    def location(self, site: int | None) -> Location | None:
        """Return the line of one of them."""
        return None if site is None else self.places[site]

    def value(self, name: str) -> Any:
        """Return what a name stands for; None where it is not bound."""
        return next((space[name] for space in self.spaces if name in space), None)

    # A tensor that was changed after it was saved.

    def with_write(self, modified: ModifiedSavedTensor, node: Any) -> ModifiedSavedTensor:
        """Return it, which a node had saved, with the statement that wrote to it, where only one can have."""
        if modified.name.isidentifier() and not modified.saved_version:  # nothing was written before it was saved
            found = self.scope.writes(modified.name)
        else:
            saved = [one.tensor for one in saved_by(node) if one.slot == modified.slot]
            found = [step for step in self._steps(saved) if self._between(step[2], node)]
        if len(found) != 1 or self.scope.is_branched(found[0][2]):
            return modified
        call, kind, line = found[0]
        before, last = self.scope.binding(modified.name, line), self.scope.binding(modified.name, self.line)
        same = last is before or (isinstance(last, ast.AugAssign) and last.lineno == line)  # as the name stands for now
        if kind != "step" and (not same or last == "unknown" or line > self.line):
            return modified
        made = before if modified.slot in {"result", "output"} else None
        write = SavedWrite(call=call, kind=kind, location=self.scope.location(line), version=modified.version)
        saved_at = self.scope.location(made.lineno) if isinstance(made, ast.Assign) else None
        return replace(modified, writes=(write,), writes_seen=1, location=saved_at)

    def _steps(self, saved: Sequence[Any]) -> Iterator[tuple[str, Any, int]]:
        """Yield the steps of optimizers that hold a tensor: the call, its kind and its line."""
        for call in (call for statement in statements(self.scope.body) for call in calls_in(statement, "step")):
            owner: Any = self.value(call.func.value.id) if isinstance(call.func.value, ast.Name) else None
            held = updated_by(owner) if is_kind(owner, torch.optim.Optimizer) else ()
            if any(same_start(one, each) for one in held for each in saved):
                yield f"{type(owner).__name__}.step", "step", call.lineno

    def _between(self, line: int, node: Any) -> bool:
        """Return whether a line ran after the node was made and before backward was called."""
        if self.scope.in_one_loop(self.line, line) and "retain_graph=True" in self.scope.location(self.line).text:
            return True  # in the iteration before
        here = self.scope.around(self.line)[-1:]
        read = (node.id for each in here for node in ast.walk(each) if isinstance(node, ast.Name))
        made = [(name, self.scope.binding(name, self.line)) for name in read]
        before = [self.value(name) for name, by in made if isinstance(by, ast.stmt) and by.lineno < line < self.line]
        return any(each is node for each in walk_nodes(start_nodes(list(filter(has_graph, before))), MOST_NODES))

    # A graph that an earlier backward had freed.

    def earlier(self) -> Iterator[Gone]:
        """Yield the backwards that ran before, here or in earlier cells, of what their names still stand for."""
        bound_since: set[str] = set()
        cells = islice(self.scope.earlier_cells(), MOST_CELLS)
        for scope, line in ((self.scope, self.line), *((cell, len(cell.lines) + 1) for cell in cells)):
            for statement in scope.before(line):
                for call in (*calls_in(statement, "backward"), *calls_in(statement, "grad")):
                    root = call.func.value if call.func.attr == "backward" else next(iter(call.args), None)
                    name = root.id if isinstance(root, ast.Name) else ""
                    keeps = any(each.arg in {"retain_graph", "create_graph"} for each in call.keywords)
                    same = scope.binding(name, line) == scope.binding(name, call.lineno) != "unknown"
                    if has_graph(value := self.value(name)) and same and name not in bound_since and not keeps:
                        starts = start_nodes([value])
                        numbers = array("Q", (node._sequence_nr() for node in walk_nodes(starts, MOST_NODES)))
                        self.places.append(scope.location(call.lineno))
                        yield Gone(numbers, tuple(node._sequence_nr() for node in starts), len(self.places) - 1, 0)
            bound_since.update(*map(bound_by, statements(scope.body)))

    def with_line(self, freed: FreedGraph) -> FreedGraph:
        """Return it with the line that made what both graphs share."""
        made = self.scope.binding(freed.joint_name, self.line) if freed.joint_name else None
        return replace(freed, joint_location=self.scope.location(made.lineno)) if isinstance(made, ast.stmt) else freed

    def in_loop(self, freed: FreedGraph, nodes: Sequence[Any]) -> FreedGraph:
        """Return it with what an earlier iteration of the loop around it handed on, or used first."""
        loops, here = self.scope.loops(self.line), self.scope.location(self.line)
        if not loops:
            return freed
        of_graph = {id(node) for node in nodes}
        known = replace(freed, known=True, first=here, backward=here)
        for name, stored in self.scope.used_in(loops[-1], self.line):
            value = self.value(name)
            made = stored or self.scope.binding(name, self.line)
            if made is None or made == "unknown" or not any(map(has_graph, _parts(value))):
                continue
            beside = [part for each in bound_by(made) for part in _parts(self.value(each))]
            graphs = [each for each in beside if has_graph(each) and id(each.grad_fn) in of_graph]
            if not any(map(is_freed, walk_nodes(start_nodes(graphs), MOST_NODES))):  # or it saves nothing
                continue
            place = self.scope.location(made.lineno)
            known = replace(known, joint_name=name, joint_location=place)
            if stored is not None:  # read before it is bound anew: of the iteration before
                return replace(known, joint_again=True, joint_tuples=(name,) if type(value) is tuple else ())
            if made.lineno < loops[-1].lineno:
                return known
        return freed


def _parts(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)
