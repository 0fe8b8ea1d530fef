"""Which calls end the gradient's way, which values have none, and which nodes used one of these."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from tensormagic.collectors.graphs.live_nodes import flat, inputs_of, next_nodes, walk_nodes
from tensormagic.collectors.objects.children import has_history, is_stale
from tensormagic.collectors.objects.identity import Leaves, Marks, holds
from tensormagic.collectors.quiet import TensorRef, numbers
from tensormagic.reports.graph import CutKind, LeftOut

# What a function is to the tracer is its role.

GRAD_MODE: Final = "grad mode"
VALUELESS: Final = "valueless"  # the result does not depend on the values of what goes in
WRITTEN: Final = "written"  # the first argument holds something else afterwards
INTO: Final = "into"  # a part of the first argument is the last one afterwards
OVERWRITE: Final = "overwrite"  # and neither does what the first argument holds afterwards

CUTTING: dict[str, CutKind] = {
    **dict.fromkeys(("detach", "detach_"), "detach"),
    **dict.fromkeys(("item", "__float__", "__int__", "__index__", "__complex__"), "item"),
    **dict.fromkeys(("tolist", "numpy", "__array__"), "numpy"),
    **dict.fromkeys(("tensor", "asarray", "as_tensor", "new_tensor"), "copy"),
    **dict.fromkeys(("long", "int", "short", "char", "byte", "bool", "to", "type", "type_as"), "cast"),
    **dict.fromkeys(
        ("eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal", "not_equal", "isclose",
         "argmax", "argmin", "argsort", "multinomial", "bucketize", "searchsorted", "nonzero", "argwhere", "histc",
         "floor_divide", "__floordiv__", "__rfloordiv__", "logical_not", "signbit"),
        "non-differentiable",
    ),
}  # fmt: skip
_MAKING = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like",
           "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")  # fmt: skip
_FILLING = ("zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")


def named(names: Iterable[str], owners: Iterable[Any] = (torch.Tensor, torch)) -> Iterator[tuple[str, Any]]:
    """Yield each name with what bears it: the method of a tensor, and the function of torch."""
    for name in names:
        for owner in owners:
            if callable(function := getattr(owner, name, None)) and not isinstance(function, type | torch.dtype):
                yield name, function


_TENSOR: Any = torch.Tensor
ROLES: dict[Any, str] = {
    **{function: CUTTING[name] for name, function in named(CUTTING)},
    **dict.fromkeys((function for _, function in named(_MAKING)), VALUELESS),
    **dict.fromkeys((function for _, function in named(_FILLING)), OVERWRITE),
    _TENSOR.__eq__: "non-differentiable",  # ``==``; all other comparisons reach torch under their own names
    _TENSOR.data.__get__: "data",
    _TENSOR.grad.__get__: VALUELESS,
    _TENSOR.requires_grad_: "frozen",
    torch._C._set_grad_enabled: GRAD_MODE,
    _TENSOR.data.__set__: WRITTEN,
    _TENSOR.__setitem__: INTO,
}


# Which leaves lie behind a cut: what would have got a gradient through here, and may get none anywhere now.
#
# A cut is a fault only if something that asks for a gradient gets none because of it. Backward never comes there, so
# it is looked for while the value's history is still there: the graph behind it is walked the first times a place in
# the source cuts something, as long as that brings leaves not seen there before. Only weak references are kept.

MOST_NODES = 20_000  # walked for one place of the source, over the whole run
MOST_LEAVES, MOST_WRITTEN = 512, 4096  # kept of one place; of those that are written to
MOST_GIVEN = 4  # kinds of values that were written to one leaf
MOST_FRUITLESS_WALKS = 3  # walks in a row without a new leaf, after which a place is known


class DetachedLeaves:
    """The leaves behind the values that one place of the source cut off, by their ``id``."""

    __slots__ = ("_fruitless_walks", "_nodes_left", "leaves")

    def __init__(self) -> None:
        self.leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        self._nodes_left, self._fruitless_walks = MOST_NODES, 0

    def add(self, source: torch.Tensor) -> None:
        """Note a value that went in: the leaf that it is, or those that its history leads to."""
        if not has_history(source):
            self._keep(source)
        elif self._fruitless_walks < MOST_FRUITLESS_WALKS and self._nodes_left > 0 and not is_stale(source):
            before = len(self.leaves)
            for node in walk_nodes([source.grad_fn], self._nodes_left):
                self._nodes_left -= 1
                leaf = getattr(node, "variable", None)
                if isinstance(leaf, torch.Tensor):
                    self._keep(leaf)
            self._fruitless_walks = 0 if len(self.leaves) > before else self._fruitless_walks + 1

    def _keep(self, leaf: torch.Tensor) -> None:
        if not holds(self.leaves, leaf) and len(self.leaves) < MOST_LEAVES:
            self.leaves[id(leaf)] = TensorRef(leaf)

    def alive(self) -> Iterator[torch.Tensor]:
        """Yield the leaves that are still there."""
        return (leaf for reference in list(self.leaves.values()) if (leaf := reference()) is not None)


class Trained:
    """The parameters that optimizers were given which made a step in the run, and the leaves that other code writes."""

    def __init__(self) -> None:
        self._stepped = False
        self._held: dict[int, weakref.ref[torch.Tensor]] = {}
        self.written = Marks(MOST_WRITTEN)  # each with dictionaries of the leaves behind the values that were written

    def step(self, given: Iterable[torch.Tensor]) -> None:
        """Note what an optimizer was given that makes its first step."""
        self._stepped = True
        self._held.update((id(each), TensorRef(each)) for each in given)

    def write(self, leaf: torch.Tensor, behind: Iterable[dict[int, weakref.ref[torch.Tensor]]]) -> None:
        """Note a leaf that is written to by hand, as a moving average is, and the leaves ``behind`` what is written."""
        if (given := self.written.of(leaf)) is None:
            self.written.put(leaf, given := [])
        for each in behind if len(given) < MOST_GIVEN else ():
            if not any(each is one or each.keys() <= one.keys() for one in given):
                given.append(each)

    def known(self) -> list[int]:
        """Return, by ``id``, all that optimizers hold or other code writes, as far as it is alive."""
        return [*(key for key, reference in self._held.items() if reference() is not None), *self.written]

    def is_held(self, leaf: torch.Tensor) -> bool | None:
        """Return whether an optimizer that made a step holds the leaf; None where none made one."""
        return holds(self._held, leaf) if self._stepped else None

    def is_following(self, leaf: torch.Tensor) -> bool:
        """Return whether values of leaves went into a leaf that were not written to in the same way themselves."""
        return any(
            reference() is not None and not any(one is given for one in getattr(self.written.get(key), "note", ()))
            for given in self.written.of(leaf) or ()
            for key, reference in given.items()
            if key != id(leaf)
        )


class Missed(NamedTuple):
    """A leaf that asks for a gradient and has none."""

    number: int | None  # in `Leaves`
    leaf: LeftOut


def left_out(leaves: Iterable[torch.Tensor], known: Leaves, reached: set[int], trained: Trained) -> dict[int, Missed]:
    """Return by ``id`` which ``leaves`` ask for a gradient and have none, and that no graph of the run led to."""
    found = {}
    with torch._C.DisableTorchFunction():
        for leaf in leaves:
            number = known.find(leaf)
            if not leaf.requires_grad or leaf.grad_fn is not None or leaf.grad is not None or number in reached:
                continue
            is_parameter = isinstance(leaf, torch.nn.Parameter)
            if number is not None:
                name, owner = known.known[number].name, known.known[number].owner
            else:  # a Parameter without a name: a module that was met has put another in its place
                name, owner = known.called(leaf) or ("" if is_parameter else f"leaf {tuple(leaf.shape)}"), ""
            written, held = holds(trained.written, leaf) or number in known.replaced, trained.is_held(leaf)
            if name:
                found[id(leaf)] = Missed(number, LeftOut(
                    name=name, owner=owner, shape=tuple(leaf.shape), is_parameter=is_parameter, held=held,
                    written=written,
                ))  # fmt: skip
    return found


# Which node took a value as an input. Nothing here may change what is asked: a view that was written to is not asked
# for its node, because torch would make one to answer.

_TAKE_MASKS = ("Where", "IndexPut")  # nodes that have no input for a mask, and one for a number
MOST_SEARCHED = 64  # nodes that one call made, looked through for an input without a way back


class Receiver(NamedTuple):
    """What used a marked value: a node by its sequence number, or a leaf that the value itself became."""

    number: int
    input_number: int | None
    shape: tuple[int, ...]
    dtype: str
    selects: bool = False
    leaf: weakref.ref[torch.Tensor] | None = None


def receiver_of(made: tuple[int, int], values: list[Any], at: int, result: Any) -> Receiver | None:
    """Return what used the marked value at ``values[at]``, in a call that made the nodes ``made``; None if unknown."""
    value = values[at]
    shape, dtype = shape_of(value), dtype_of(value)
    if isinstance(value, torch.Tensor) and value.requires_grad and value is not result:
        return Receiver(-1, None, leaf=TensorRef(value), shape=shape, dtype=dtype)  # a leaf of its own by now
    nodes = _nodes_made(made, values[0] if result is None else result)
    if not nodes:
        return None
    ended = sorted((number, places) for number, places, *_ in nodes if places)
    if isinstance(value, torch.Tensor) and not differentiable(value):
        tensors = [x for x in values if isinstance(x, torch.Tensor) and x is not value and x is not result]
        others = sum(differentiable(x) and not x.requires_grad for x in tensors)  # for which a node has an input
        masks = value.dtype == torch.bool and any(
            name.startswith(_TAKE_MASKS) or len(places) < count for _, places, count, name in nodes
        )
        if masks or sum(len(places) for _, places in ended) <= others:
            ended = []
    if not ended:
        number = max(number for number, *_ in nodes)
        return Receiver(number, None, selects=isinstance(value, torch.Tensor), shape=shape, dtype=dtype)
    number, places = ended[0]
    place: int | None = places[0]
    if len(places) > 1:  # by its place, where there is one node, which has an input for each tensor
        given = [other for other, x in enumerate(values) if isinstance(x, torch.Tensor)]
        fits = at in given and [count for _, _, count, _ in nodes] == [len(given)]
        place = given.index(at) if fits and given.index(at) in places else None
    return Receiver(number, place, shape=shape, dtype=dtype)


def differentiable(value: torch.Tensor) -> bool:
    """Say whether its dtype can have a gradient."""
    return value.is_floating_point() or value.is_complex()


def _nodes_made(made: tuple[int, int], result: Any) -> list[tuple[int, list[int], int, str]]:
    """Return the nodes of one call, each with its inputs that have no way back, how many it has, and its name."""
    waiting: list[Any] = [x.grad_fn for x in flat((result,)) if has_history(x) and not is_stale(x)]
    found: dict[int, tuple[int, list[int], int, str]] = {}
    while waiting and len(found) < MOST_SEARCHED:
        node = waiting.pop()
        number = node._sequence_nr()
        if number not in found and made[0] <= number < made[1]:
            targets = inputs_of(node)
            found[number] = number, [at for at, x in enumerate(targets) if x is None], len(targets), node.name()
            waiting += next_nodes(node)
    return list(found.values())


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or an array; empty for a number, and where it is unknown."""
    try:
        return numbers(value.shape) if isinstance(value, torch.Tensor | np.ndarray) else ()
    except (RuntimeError, TypeError, AttributeError):  # nested, jagged or symbolic sizes
        return ()


def dtype_of(value: Any) -> str:
    """Return the dtype of a tensor or an array, without the prefix; of a number its type."""
    if not isinstance(value, torch.Tensor | np.ndarray):
        return type(value).__name__
    dtype = value.dtype
    # What else a class has under that name may show the tensor, which shows its dtype.
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype | np.dtype) else ""


@dataclass(slots=True, eq=False)
class Detachment:
    """One call that ended the way, and what became of the value."""

    kind: CutKind  # As in `Cut`.
    op: str  # As in `Cut`.
    site: int | None  # Of the call, or of the region around it.
    number: int  # Sequence number of the node that made what went in; -1 for a leaf, or where it must not be asked for.
    leaf: weakref.ref[torch.Tensor] | None  # What went in, where it is a leaf.
    source_name: str  # What went in: the name of its node, or the path of the module that it belongs to.
    listed: bool  # Whether to tell of it also where nothing used the value.
    shape: tuple[int, ...]  # Of what came out.
    dtype: str  # Of what came out.
    detached_leaves: DetachedLeaves  # The leaves behind all that this place of the source cut off.
    by_library: bool  # As in `Cut`.
    call_site: int | None  # Of a leaf in a region: the site of the call.
    receivers: list[Receiver] = field(default_factory=list)  # What used it.
    age: int = 0  # How many passes it has waited for.
    place: tuple[int, int, int] | None = None  # ``(graph, node, pass)`` of what went in, once that is known.
    # Whether the value was only written into what was used: noted where something is left out because of it.
    quiet: bool = False
    outside: bool = False  # Whether the value of a leaf went on as NumPy or as numbers, in the forward of a module.

    def with_sources(self, sources: Iterable[torch.Tensor]) -> Detachment:
        """Note values that went in here besides, and what lies behind them; returns itself."""
        for source in sources:
            self.detached_leaves.add(source)
        return self


class NumberMark(NamedTuple):
    """Replaces the mark of a Python number, of which there can be no weak reference."""

    key: int
    note: Detachment
    value: Any

    def __call__(self) -> Any:
        """Return the number."""
        return self.value
