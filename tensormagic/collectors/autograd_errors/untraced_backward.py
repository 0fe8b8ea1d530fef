"""Why a backward raised that nobody had followed: what its graph and its source show afterwards.

Which tensor was changed, what had saved it and in which version is in the graph, as long as that is alive. Who wrote to
it, and which backward freed a graph, is read from the statements around, where they leave no doubt.
"""

from __future__ import annotations

import ast
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.autograd_errors.backward_errors import (
    Blame,
    Gone,
    custom_function_return,
    find_modified_saved,
    subject_of,
)
from tensormagic.collectors.graphs.live_nodes import walk_nodes
from tensormagic.collectors.graphs.saved_tensors import is_freed, same_start
from tensormagic.collectors.graphs.structure import start_nodes
from tensormagic.collectors.objects.children import has_history, is_kind, is_stale
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
        blame = Blame(None, lambda _: (None, ""), location, partial(_name_in, spaces), partial(_maker_name, spaces))
        fault: Any = None
        if subject == "modified":
            changed = find_modified_saved(nodes, error, None)
            fault = blame.modified(*changed, nodes) if changed is not None else None
            if source is not None and changed is not None:
                fault = source.with_write(fault, changed[1].tensor, nodes[changed[0]])
        elif subject == "freed":
            blame.gone.extend(source.earlier() if source is not None else ())
            fault = blame.freed(nodes, range(len(starts)), None)
            if source is not None and fault is not None:
                fault = source.in_loop(fault, nodes) if not fault.known else source.with_line(fault)
        else:
            fault = custom_function_return(error, nodes, None, lambda _: None, locate)
        return None if fault is None else BackwardFault(**{subject: fault})


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

    def with_write(self, modified: ModifiedSavedTensor, saved: Any, node: Any) -> ModifiedSavedTensor:
        """Return it, which a node had saved, with the statement that wrote to it, where only one can have."""
        if modified.name.isidentifier() and not modified.saved_version:  # nothing was written before it was saved
            found = self.scope.writes(modified.name)
        else:
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

    def _steps(self, saved: Any) -> Iterator[tuple[str, Any, int]]:
        """Yield the steps of optimizers that hold a tensor: the call, its kind and its line."""
        for statement in statements(self.scope.body):
            for call in calls_in(statement, "step"):
                owner: Any = self.value(call.func.value.id) if isinstance(call.func.value, ast.Name) else None
                if is_kind(owner, torch.optim.Optimizer):
                    held = (one for group in owner.param_groups for one in group["params"])
                    if any(same_start(one, saved) for one in held):
                        yield f"{type(owner).__name__}.step", "step", call.lineno

    def _between(self, line: int, node: Any) -> bool:
        """Return whether a line ran after the node was made and before backward was called."""
        if self.scope.in_one_loop(self.line, line) and "retain_graph=True" in self.scope.location(self.line).text:
            return True  # in the iteration before
        for name in self.scope.read_at(self.line):
            bound, value = self.scope.binding(name, self.line), self.value(name)
            if not (isinstance(bound, ast.stmt) and bound.lineno < line < self.line and _has_graph(value)):
                continue
            if any(each is node for each in walk_nodes(start_nodes([value]), MOST_NODES)):
                return True
        return False

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
                    bound = scope.binding(name, line)
                    same = bound == scope.binding(name, call.lineno) != "unknown" and name not in bound_since
                    if _has_graph(value := self.value(name)) and same and not keeps:
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
            if made is None or made == "unknown" or not any(map(_has_graph, _parts(value))):
                continue
            beside = [part for each in bound_by(made) for part in _parts(self.value(each))]
            graphs = [each for each in beside if _has_graph(each) and id(each.grad_fn) in of_graph]
            if not any(map(is_freed, walk_nodes(start_nodes(graphs), MOST_NODES))):  # or it saves nothing
                continue
            place = self.scope.location(made.lineno)
            if stored is not None:  # read before it is bound anew: of the iteration before
                tuples = (name,) if type(value) is tuple else ()
                return replace(known, joint_name=name, joint_location=place, joint_again=True, joint_tuples=tuples)
            if made.lineno < loops[-1].lineno:
                return replace(known, joint_name=name, joint_location=place)
        return freed


def _parts(value: Any) -> tuple[Any, ...]:
    return value if type(value) is tuple else (value,)


def _has_graph(value: Any) -> bool:
    """Return whether something is a tensor that can be asked what made it."""
    return is_kind(value, torch.Tensor) and has_history(value) and not is_stale(value)


def _named(spaces: Spaces) -> list[tuple[str, Any]]:
    return [(name, value) for space in spaces for name, value in list(space.items()) if not name.startswith("_")]


def _maker_name(spaces: Spaces, node: Any) -> str:
    """Return what the user calls what a node made; empty where it has no name."""
    return next((name for name, value in _named(spaces) if _has_graph(value) and value.grad_fn is node), "")


def _name_in(spaces: Spaces, tensor: torch.Tensor) -> str:
    """Return what the user calls a tensor: by its own name, or as a parameter of a model that has one."""
    for name, value in _named(spaces):
        if is_kind(value, torch.Tensor) and same_start(value, tensor):
            return name
        if is_kind(value, nn.Module):
            inside = (path for path, one in value.named_parameters() if same_start(one, tensor))
            if path := next(inside, ""):
                return f"{name}.{path}"
    return ""
