"""What tensors are and share: the calls that look and change nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tensormagic.api.diagnosing import diagnosed
from tensormagic.collectors import requirements
from tensormagic.collectors.requirements import names_here, require, require_name, require_names, require_torch
from tensormagic.errors import NotATensorError, SettingError, TensorMagicError
from tensormagic.reports import AliasReport, CopyVerdict, OverlayReport, TensorReport, TensorTable, TraceReport


@contextmanager
def readable(value: Any, name: str) -> Iterator[None]:
    """Say in plain words that code of a class other than torch's and NumPy's raises where it is only looked at."""
    try:
        yield
    except TensorMagicError:
        raise
    except Exception as error:
        kind = type(value)
        if isinstance(error, RuntimeError) and " is a view and its base " in str(error):  # of several that a call gave
            refused = "torch refuses to say what made it, since one of the views beside it was changed in place"
            raise TensorMagicError(f"{name} has no graph that can be read: {refused}") from error
        if str(kind.__module__).partition(".")[0] in {"torch", "numpy", "builtins"}:
            raise
        reason = f"{type(error).__name__} when it is read"
        raise TensorMagicError(f"{name} cannot be read: its class {kind.__name__} raises {reason}") from error


def inspect(  # noqa: PLR0913  (all but the tensor and its name is keyword-only)
    tensor: Any,
    name: str = "tensor",
    *,
    namespace: Mapping[str, Any] | None = None,
    verdict: CopyVerdict | None = None,
    dims: Sequence[int | str] | None = None,
    at: Sequence[int | str | slice | None] | None = None,
    besides: Sequence[Any] = (),
    picture: bool = False,
) -> TensorReport:
    """Return everything that can be known about one tensor without changing or keeping it.

    Args:
        tensor: Any ``torch.Tensor``, or a NumPy array.
        name: What to call it in the report.
        namespace: Where to look for other names that share its memory; by default the caller's globals.
        verdict: Whether it shares memory with what it was made from, where that is known (`copy_or_view`).
        dims: Which dimension of a strided tensor runs down the index grid and which to the right, by number or letter.
        at: Which slice the grid shows: an index for each dimension, ``":"`` for those that are drawn.
        besides: What is alive only because it is inspected as well, and keeps nothing alive for longer.
        picture: Whether to add a picture of its values: as an image, a few images, or signals.

    Raises:
        TensorMagicError: where ``dims`` or ``at`` does not fit the tensor.
        NotATensorError: for anything else; the message says what was given and what would work.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> tensormagic.inspect(torch.arange(6).view(2, 3).t(), "x").layout.stride
    (1, 3)
    """
    require_torch()
    from tensormagic.collectors.tensors.arrays import collect_array, elements_of
    from tensormagic.collectors.tensors.picture import with_picture, with_slices
    from tensormagic.collectors.tensors.tensor import collect_tensor

    namespace = names_here(namespace, "inspect")
    require_name(name, "inspect(x, name)")
    for word, given in (("dims", dims), ("at", at)):
        require(() if given is None else given, Iterable, f"inspect({word}=…)", "one entry for each dimension")
    require(besides, Iterable, "inspect(besides=…)", "a list of what is inspected as well")
    if verdict is not None:
        require(verdict, CopyVerdict, "inspect(verdict=…)", "what copy_or_view() returned")
    with readable(tensor, name):
        if advice := requirements.why_not_a_tensor(tensor, name):
            raise NotATensorError(advice)
        collect = collect_array if requirements.is_array(tensor) else collect_tensor
        report = collect(tensor, name=name, namespace=namespace, besides=besides)
    report = dataclasses.replace(report, verdict=verdict)
    if report.layout is not None:
        bad = report.statistics.first_nan if report.statistics is not None else None
        laid = with_slices(elements_of(tensor), report.layout, dims=dims, at=at, bad=bad)
        report = dataclasses.replace(report, layout=laid)
    elif dims is not None or at is not None:
        kind = next((kind.label for kind in report.kinds), report.layout_name)
        raise TensorMagicError(f"dims and at choose a slice of a plain strided tensor, but {name} is not: {kind}")
    return diagnosed(with_picture(report, elements_of(tensor)) if picture else report)


def copy_or_view(result: Any, operands: Mapping[str, Any], *, name: str = "result") -> CopyVerdict:
    """Return whether a tensor or array shares memory with others, exactly to the element.

    Args:
        result: A tensor, an array, or a tuple or list of them.
        operands: What to compare it with, by name.
        name: What to call it in the verdict.

    Raises:
        NotATensorError: where ``result`` is none of these.
        TensorMagicError: where ``operands`` is not a mapping.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> x = torch.arange(6).view(2, 3)
    >>> tensormagic.copy_or_view(x.t().reshape(6), {"x": x}).outcome
    'separate'
    >>> tensormagic.copy_or_view(x[0], {"x": x}).operands[0].elements
    3
    """
    require_torch()
    from tensormagic.collectors.aliasing.aliases import footprint_of
    from tensormagic.collectors.aliasing.copies import copy_or_view as compare
    from tensormagic.collectors.quiet import quiet

    with quiet():
        is_one = footprint_of(result) is not None
    if not is_one:
        raise NotATensorError(requirements.why_not_a_tensor(result, name))
    return compare(result, require_names(operands, "copy_or_view"), name=name)


def overlay(tensors: Mapping[str, Any]) -> OverlayReport:
    """Return what several tensors read of the same memory, element by element, and how much each two have in common.

    Args:
        tensors: Two to eight tensors or NumPy arrays, by name.

    Raises:
        TensorMagicError: where there are fewer or more, or ``tensors`` is not a mapping.
        NotATensorError: where one of them is neither tensor nor array.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> a = torch.arange(6)
    >>> tensormagic.overlay({"even": a[::2], "odd": a[1::2]}).shared[0].pairs[0].common_bytes
    0
    """
    require_torch()
    from tensormagic.collectors.aliasing.overlay import MOST_MEMBERS, overlay as collect_overlay

    if not 2 <= len(require_names(tensors, "overlay")) <= MOST_MEMBERS:
        raise TensorMagicError(f"overlay() takes 2 to {MOST_MEMBERS} tensors by name, but was given {len(tensors)}")
    for name, item in tensors.items():
        advice = requirements.why_not_a_tensor(item, name)
        if advice and not hasattr(type(item), "__array_interface__"):
            raise NotATensorError(advice)
    return diagnosed(collect_overlay(tensors))


def aliases(namespace: Mapping[str, Any] | None = None, *, only: Mapping[str, Any] | None = None) -> AliasReport:
    """Return who shares memory with whom: groups by storage, and exactly how much every two of a group overlap.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals. Containers, attributes, modules,
            optimizers, closures and NumPy arrays are looked through.
        only: Show only memory in which one of these lies.

    Raises:
        TensorMagicError: where ``namespace`` is not a mapping.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> a = torch.arange(6)
    >>> tensormagic.aliases({"a": a, "b": a[1:3]}).pairs[0].overlap_elements
    2
    """
    require_torch()
    from tensormagic.collectors.aliasing.alias_groups import collect_aliases

    namespace = names_here(namespace, "aliases")
    if only is not None:
        require_names(only, "aliases")
    return diagnosed(collect_aliases(namespace, only=only))


def tensors(
    namespace: Mapping[str, Any] | None = None,
    *,
    title: str = "",
    panels: int = 0,
    around: Mapping[str, Any] | None = None,
) -> TensorTable:
    """Return every tensor and array that a namespace, or a collection, holds: a row each, and what they take together.

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals. A collection is given a name:
            ``tensors({"batch": batch})``.
        title: What to call a collection.
        panels: How many of the tensors to inspect in full; their reports are in ``panels`` of the result.
        around: Where to look for others that share memory with those; by default in ``namespace``.

    Raises:
        TensorMagicError: where ``namespace`` is not a mapping.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> table = tensormagic.tensors({"batch": {"x": torch.zeros(2, 3), "y": torch.zeros(2)}})
    >>> [row.name for row in table.rows]
    ["batch['x']", "batch['y']"]
    """
    require_torch()
    from tensormagic.collectors.tensors.table import collect_table

    namespace = names_here(namespace, "tensors")
    require(panels, int, "tensors(panels=…)", "a whole number")
    others = namespace if around is None else require_names(around, "tensors")
    return collect_table(namespace, title=str(title or ""), panels=panels, inspect=partial(inspect, namespace=others))


def gradgraph(tensor: Any, name: str = "loss", *, namespace: Mapping[str, Any] | None = None) -> TraceReport:
    """Return the autograd graph that leads to a tensor, as it is: nothing is run, hooked or kept.

    Args:
        tensor: Something computed, such as a loss.
        name: What to call it in the report.
        namespace: Where names of models and tensors are looked up; by default the caller's globals.

    Raises:
        NotATensorError: for anything that is not a tensor.
        NoGraphError: for a tensor without a graph; the message says why it has none.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> w = torch.ones(2, requires_grad=True)
    >>> [node.op for node in tensormagic.gradgraph((w * w).sum()).nodes]
    ['accumulate', 'mul', 'sum']
    """
    require_torch()
    from tensormagic.collectors.graphs.nodes import collect_graph

    require_name(name, "gradgraph(loss, name)")
    if not requirements.is_tensor(tensor):
        array = f"{name} is an array: only torch tensors have a graph"
        raise NotATensorError(requirements.why_not_a_tensor(tensor, name) or array)
    namespace = names_here(namespace, "gradgraph")
    with readable(tensor, name):
        return collect_graph(tensor, name=name, namespace=namespace)


REPRS = ("torch", "line")

_end: Callable[[], None] | None = None  # what ends that tensors are printed in one line; None while they are not


def tensor_lines(value: Any, name: str = "tensor") -> list[str]:
    """Return a line for a tensor or array, or for each of those that a collection, module or object holds.

    Args:
        value: What is looked at; it is neither changed nor kept.
        name: What to call it.

    Raises:
        NotATensorError: where there is no tensor in it.
    """
    require_torch()
    from tensormagic.collectors.objects.namespace import Walk, walk_arrays

    if requirements.is_tensor(value) or requirements.is_array(value):
        return [f"{name}: {_line(value)}"]
    found = [f"{label}: {_line(item)}" for label, item in walk_arrays(Walk({name: value}))]
    if not found:
        raise NotATensorError(requirements.why_not_a_tensor(value, name) or f"{name} holds no tensor")
    return found


def _line(value: Any) -> str:
    from tensormagic.collectors.tensors.arrays import collect_array, few_values
    from tensormagic.collectors.tensors.tensor import collect_briefly
    from tensormagic.views.pictures.tensor_elements import line

    if not requirements.is_array(value):
        return line(collect_briefly(value))
    report = collect_array(value)
    if report.statistics is not None:  # else torch has no word for its elements
        report = dataclasses.replace(report, data_text=few_values(value))
    return line(report)


def set_repr(kind: str) -> str:
    """Say how tensors are printed from now on; returns how they were until now.

    Args:
        kind: ``"line"``: in one line with shape, dtype, range, histogram, mean, NaN and Inf; ``"torch"``: as torch
            prints. A class that has a ``__repr__`` of its own keeps it.

    Raises:
        SettingError: for anything else.
        RequirementError: where torch is missing or too old.
    """
    if kind not in REPRS:
        raise SettingError(f"set_repr() takes {' or '.join(map(repr, REPRS))}, but was given {kind!r}")
    global _end  # noqa: PLW0603  (a setting of the session, as what is ignored is)
    before = "torch" if _end is None else "line"
    if kind == "torch" and _end is not None:
        _end()
        _end = None
    elif kind == "line" and _end is None:
        require_torch()
        from tensormagic.collectors.hooks.replacing import print_with

        _end = print_with(_line)
    return before
