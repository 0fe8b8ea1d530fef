"""Ends a run where a NaN or Inf is made, for the person who asks for it: ``--stop nan``.

Of the forward each call is looked at: what it returned, and where that is not finite what it was given. A call that was
given a NaN or Inf, or an infinite number such as the ``-inf`` of a mask, makes none. Of the backward the pass is looked
at once it has ended, at the line that called it, before anything uses the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from tensormagic.collectors.graphs.history import flat
from tensormagic.collectors.quiet import answers_itself, here, without_modes
from tensormagic.errors import NonFiniteError
from tensormagic.reports.graph import Graph
from tensormagic.words import count

if TYPE_CHECKING:
    from tensormagic.collectors.gradients.fast_norm import PassValues

_UNWRITTEN = ("empty", "new_empty", "resize")  # what these return was not made by anybody
_WRITES = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")


def look_at_call(func: Any, given: tuple[tuple[Any, ...], Mapping[str, Any]], result: Any) -> None:
    """Raise where a call made a NaN or Inf of what was finite.

    Raises:
        NonFiniteError: names the call, and how many elements.
    """
    name = getattr(func, "__name__", "")
    if name.startswith(_UNWRITTEN) or torch._C._current_autograd_node() is not None:
        return
    arguments = (*given[0], *given[1].values())
    made = arguments[:1] if result is None and arguments else (result,)
    found = _first_bad(flat(made))
    if found is None:
        return
    writes = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
    before = arguments[1:] if writes else arguments
    tensors = [value for value in flat(arguments) if isinstance(value, torch.Tensor)]
    if not tensors or any(map(_is_infinite_number, flat(before))) or _first_bad(flat(before)) is not None:
        return
    nan, inf, elements = found
    raise NonFiniteError(f"{name.strip('_')} made {_words(nan, inf)} of {count(elements)} elements here; {_LOOK}")


def look_at_pass(graph: Graph, values: PassValues, lines: Mapping[int, str]) -> None:
    """Raise where a backward made a NaN or Inf, once it has ended.

    Args:
        graph: The graph it went through.
        values: Its numbers.
        lines: Places of the lines, by their index.

    Raises:
        NonFiniteError: names the node, and its line.
    """
    birth = values.first_nonfinite[0] if values.first_nonfinite else None
    node = graph.nodes[birth.node if birth is not None else values.order[0]]
    nan, inf = (birth.nan, birth.inf) if birth is not None else values.bad[next(iter(values.bad))]
    line = lines.get(node.location) if node.location is not None else None
    place = f" ({line})" if line else ""
    raise NonFiniteError(f"this backward made {_words(nan, inf)} in {node.op}{place}; {_LOOK}")


_LOOK = "%debug in the next cell shows the tensors at this line"


def _words(nan: int, inf: int) -> str:
    return " and ".join(f"{count(number)} {name}" for number, name in ((nan, "NaN"), (inf, "Inf")) if number) or "Inf"


def _is_infinite_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _first_bad(values: Iterable[Any]) -> tuple[int, int, int] | None:
    """Return NaN, infinities and elements of the first tensor that is not finite."""
    return next(_bad_among(values), None)


def _bad_among(values: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
    with torch._C.DisableTorchFunction(), without_modes():
        for value in values:
            if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
                continue
            local = here(value)
            if local.is_meta or answers_itself(local) or not local.numel():
                continue
            plain = local.detach()
            if not bool(plain.isfinite().all()):
                yield int(plain.isnan().sum()), int(plain.isinf().sum()), plain.numel()
