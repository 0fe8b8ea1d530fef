"""Why a backward raised that nobody had followed: what its graph tells afterwards, as long as it is alive.

Who wrote to a tensor, and on which line a node was made, is not known then; which tensor it was, what had saved it and
in which version, is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tensormagic.collectors.faults.backward_errors import (
    Blame,
    FreedBook,
    Origin,
    custom_function_return,
    find_modified_saved,
    is_about_a_freed_graph,
    is_about_a_return,
    is_about_a_write,
)
from tensormagic.collectors.gradients.following import start_nodes
from tensormagic.collectors.graphs.history import walk_nodes
from tensormagic.collectors.graphs.saved_tensors import same_start
from tensormagic.collectors.quiet import quiet
from tensormagic.reports.failure import BackwardFault
from tensormagic.reports.finding import Location

MOST_NODES = 100_000

Spaces = Sequence[Mapping[str, Any]]


def untraced_fault(
    error: BaseException, roots: Sequence[Any], spaces: Spaces, locate: Callable[[str, int, str], Location]
) -> BackwardFault | None:
    """Return why a backward raised; None where it was for none of the usual reasons.

    Args:
        error: What it raised.
        roots: What it was called on.
        spaces: Where names are looked up, the nearest first.
        locate: Makes a location of a file name, a line and the name of a function.
    """
    if not (is_about_a_write(error) or is_about_a_freed_graph(error) or is_about_a_return(error)):
        return None
    with quiet():
        return _fault(error, start_nodes(roots), spaces, locate)


def _fault(
    error: BaseException, starts: list[Any], spaces: Spaces, locate: Callable[[str, int, str], Location]
) -> BackwardFault | None:
    nodes = list(walk_nodes(starts, MOST_NODES))
    blame = Blame(None, _nowhere, _no_line, lambda tensor: _name_in(spaces, tensor))
    if is_about_a_write(error) and (found := find_modified_saved(nodes, error, None)) is not None:
        return BackwardFault(spoilt=blame.spoilt(found, nodes))
    freed = returned = None
    if is_about_a_freed_graph(error):
        freed = FreedBook(_nowhere, _no_line, _no_name).freed(nodes, range(len(starts)), None)
    else:
        returned = custom_function_return(error, nodes, None, _no_line, locate)
    return BackwardFault(freed=freed, returned=returned) if freed is not None or returned is not None else None


def _name_in(spaces: Spaces, tensor: torch.Tensor) -> str:
    """Return what the person calls a tensor: by its own name, or as a parameter of a model that has one."""
    named = [(name, value) for space in spaces for name, value in list(space.items()) if not name.startswith("_")]
    for name, value in named:
        if isinstance(value, torch.Tensor) and same_start(value, tensor):
            return name
        if isinstance(value, nn.Module):
            inside = (path for path, one in value.named_parameters() if same_start(one, tensor))
            if path := next(inside, ""):
                return f"{name}.{path}"
    return ""


def _nowhere(_: int) -> Origin:
    return None, ""


def _no_line(_: int | None) -> None:
    return None


def _no_name(_: Any) -> str:
    return ""
