"""What is noted of a call while it runs, and what two operands do to each other."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.graphs.live_nodes import flat
from tensormagic.collectors.objects.children import has_history
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.quiet import Looking, quiet
from tensormagic.collectors.where.source import SourceLines, frame_of, is_own_code, known_lines, part_at, position_of
from tensormagic.reports import Gap, Observation, Operand
from tensormagic.reports.training import ObservationKind

# Names come from the source: reading the frame's variables would make a copy that keeps tensors alive. Where Python
# knows which part of a line is running (from 3.11 on), that part is parsed: ``pred``, ``self.w``, ``x[:, None]``.

LONGEST = 40  # characters of an operand's text; a longer one is not repeated

MODULE_CALL = nn.Module._call_impl.__code__


def operand_of(x: torch.Tensor, name: str = "") -> Operand:
    """Describe a tensor; what cannot be read of it is left empty."""
    strided = x.layout is torch.strided and not x.is_nested
    return Operand(
        name=name, shape=tuple(x.shape) if not x.is_nested else (), dtype=str(x.dtype).removeprefix("torch."),
        device=str(x.device), stride=tuple(x.stride()) if strided else (), requires_grad=x.requires_grad,
        layout=str(x.layout).removeprefix("torch."), is_leaf=not has_history(x),
    )  # fmt: skip


def operand_names(frame: FrameType, operands: Sequence[torch.Tensor], of: int, path: str) -> list[str]:
    """Return what each operand is called: by the user's line, or as a part of the module that is running.

    The call has ``of`` operands in all, these first; ``path`` is that of the module that runs in ``frame``.
    """
    called = frame_of(MODULE_CALL, frame)
    module = called.f_locals["self"] if called is not None else None
    held = {} if module is None else {**module._parameters, **module._buffers}
    parts = [next((f"{path}.{name}" for name, value in held.items() if value is x), "") for x in operands]
    if is_own_code(frame.f_code.co_filename):
        return [text or part for text, part in zip(operand_texts(frame, of), parts, strict=False)]
    rest = [x for x, part in zip(operands, parts, strict=True) if not part]
    others = iter(operand_texts(frame, of - sum(map(bool, parts)), rest))
    return [part or next(others, "") for part in parts]


def operand_texts(frame: FrameType, count: int, operands: Sequence[torch.Tensor] = ()) -> list[str]:
    """Return what is in the source for each of the ``count`` operands of the call that ``frame`` is making.

    Empty texts where it is unknown: no source, another number of operands, a call from library code. Of torch's own
    code, the operands are what it was given, where it is a function, or a module that was given these ``operands``.
    """
    given: list[list[Any]] = []  # what each module was called with
    known = is_own_code(frame.f_code.co_filename) or str(frame.f_globals.get("__name__")).partition(".")[0] == "torch"
    while frame.f_back is not None and not is_own_code(frame.f_code.co_filename):
        if frame.f_code is MODULE_CALL:
            given.append([*flat((*frame.f_locals["args"], *frame.f_locals["kwargs"].values()))])
        frame = frame.f_back
    if given:
        known = len(given) == 1 and all(any(x is one for one in given[0]) for x in operands)
    found = [ast.unparse(node) for node in _operands(running_part(frame))] if known else []
    if len(found) < count or (count > 1 and len(found) > count):
        return [""] * count
    return [text if len(text) <= LONGEST else "" for text in found[:count]]


def running_part(frame: FrameType) -> ast.AST | None:
    """Return the expression or statement that ``frame`` is in the middle of; None where that is unknown."""
    lines = known_lines(frame.f_code.co_filename, frame.f_globals)
    found = part_at(position_of(frame.f_code, frame.f_lasti), lines)
    return found[0] if found is not None else None


def operand_parts(frame: FrameType) -> list[ast.expr] | None:
    """Return the operands of what the user's own ``frame`` is in the middle of; None where not known."""
    return (_operands(running_part(frame)) if is_own_code(frame.f_code.co_filename) else None) or None


_PLACES = {"input": 0, "input1": 0, "input2": 1, "target": 2}  # that torch gives what is passed by name


def _operands(part: ast.AST | None) -> list[ast.expr]:
    """Return the operands of an expression: both sides, or what a call is given, its tensor first.

    ``x.reshape(…)`` is given ``x``, but ``F.relu(x)`` is not given ``F``; ``torch.cat([a, b], dim=1)``, the tensors.
    """
    match part:
        case ast.BinOp(left=x, right=y) | ast.AugAssign(target=x, value=y):
            return [x, y]
        case ast.Compare(left=x, comparators=others):
            return [x, *others]
        case ast.Subscript(value=x):
            return [x]
        case ast.Call(func=func, args=args, keywords=keywords):
            owner = func.value if isinstance(func, ast.Attribute) else None
            # By what everybody calls torch's modules; ``torch.cat(…)`` itself is a tensor.
            text = ast.unparse(owner) if isinstance(owner, ast.Name | ast.Attribute) else ""
            free = text in {"F", "torch", "nn", "self"} or text.startswith(("torch.", "nn.", "F."))
            if free and args and isinstance(args[0], ast.List | ast.Tuple):
                tensors = args[0].elts
                return [] if any(isinstance(each, ast.Starred) for each in tensors) else tensors
            method = isinstance(func, ast.Attribute) and hasattr(torch.Tensor, func.attr)  # not ``model.loss(x, y)``
            own = [owner] if owner is not None and method and not free else []
            by_name = sorted(keywords, key=lambda one: _PLACES.get(one.arg or "", len(_PLACES)))
            return [*own, *args, *(keyword.value for keyword in by_name)]
    return []


CLOSELY = 4  # calls of a place that are looked at before they get rarer
MOST_FOUND = 512  # different things that are kept
MOST_SEQUENCES, MOST_WIDE, MOST_DROPOUTS = 32, 64, 1024  # results and modules that are followed

_SHOWN = {
    "__radd__": "add", "__rsub__": "sub", "rsub": "sub", "__rmul__": "mul", "__rtruediv__": "div", "__rpow__": "pow",
    "__eq__": "eq", "__ne__": "ne", "__float__": "float", "__int__": "int", "__bool__": "bool", "__index__": "index",
    "__repr__": "print", "__format__": "format", "__array__": "numpy", "__getitem__": "index",
    "cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll_loss",
    "__matmul__": "matmul",
}  # fmt: skip


class Call(NamedTuple):
    """One call that was made: the function, what it was given, what came out, and from which frame."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    frame: FrameType

    @property
    def name(self) -> str:
        """What was called, as a user knows it."""
        name = str(getattr(self.function, "__name__", self.function))
        return _SHOWN.get(name, name)

    @property
    def filename(self) -> str:
        """The file of the code that made the call, with slashes."""
        return self.frame.f_code.co_filename.replace("\\", "/")


@dataclass(slots=True, eq=False)
class Place:
    """A place in code that makes a watched call, and how often it did."""

    sparing: bool  # whether most of its calls are only counted: not in library code, where it may be another line's
    calls: int = 0
    looked: int = 0


@dataclass(slots=True, eq=False)
class Found:
    """What becomes an `Observation`: the first of its kind at a line, and counts."""

    first: Observation
    nbytes: int = 0
    seen: int = 0
    places: dict[int, Place] = field(default_factory=dict)

    def report(self) -> Observation:
        """Return it with its counts so far; calls of a place in library code count where they were noted."""
        places = self.places.values() if all(place.sparing for place in self.places.values()) else ()
        calls = max(self.seen, sum(place.calls for place in places))
        looked = max(self.seen, sum(place.looked for place in places))
        return replace(self.first, calls=calls, looked=looked, seen=self.seen, nbytes=self.nbytes)


ALONE = Place(sparing=False)  # of calls that are not counted by place


class CallNotes(Looking):
    """What was found about the calls of one run.

    Args:
        sites: Interns the user's lines.
        module_path: Gives the path of the module that runs in a frame.
        line_of_node: Gives the site that made an autograd node.
    """

    def __init__(
        self, sites: SourceLines, module_path: Callable[[FrameType], str], line_of_node: Callable[[int], int | None]
    ) -> None:
        self._sites, self.module_path, self._line_of_node = sites, module_path, line_of_node
        self._kept: dict[tuple[str, str, int | None], Found] = {}  # by kind, op and site
        self._place = ALONE
        # Where float64 tensors were made, by the address of their storage.
        self.doubles: dict[int, tuple[StorageWeakRef, int | None]] = {}
        self.sequences = Marks(MOST_SEQUENCES)  # what recurrent layers gave that take time first: ``nn.GRU``
        self.attended: dict[int, tuple[int, int]] = {}  # by number of an attention's node: places and samples
        self.wide = Marks(MOST_WIDE)  # results that grew, each with what is to be noted of it
        self.fresh: dict[int, Any] = {}  # memory that nobody has written, by the address of its storage
        self.since_fresh = 0  # calls since the last such was asked for
        self.dropouts = Marks(MOST_DROPOUTS)  # those that their model knows
        self.drops = False  # whether a dropout was seen that drops
        self.updates: dict[tuple[int | None, int], Any] = {}  # those by hand, by line and parameter
        self.labels: dict[tuple[str, int | None], tuple[frozenset[float], int]] = {}  # of losses, by line; how many

    def note(self, kind: ObservationKind, call: Call, *, nbytes: int = 0, **wording: Any) -> None:
        """Note that ``call`` did something; further facts, as in `found`, are noted once for its line."""
        self.keep(self.found(kind, call, **wording), nbytes)

    def keep(self, found: Found, nbytes: int = 0, times: int = 1) -> None:
        """Note that what was found has come about, once more, or several times."""
        key = found.first.kind, found.first.op, found.first.location
        if key not in self._kept and len(self._kept) >= MOST_FOUND:
            self.gap = f"more than {MOST_FOUND} different observations in single calls were found; the rest is left out"
            return
        found = self._kept.setdefault(key, found)
        found.seen += times
        found.nbytes = max(found.nbytes, nbytes)

    def forget(self, kind: ObservationKind, call: Call) -> None:
        """Take back what was noted of a line, where a later call shows that it was meant."""
        self._kept.pop((kind, call.name, self.site(call)), None)

    def found(  # noqa: PLR0913  (two parameters; the rest says what was found, by name)
        self,
        kind: ObservationKind,
        call: Call,
        *,
        operands: Sequence[torch.Tensor] = (),
        of: int = 0,
        about: int | None = None,
        result: torch.Tensor | None = None,
        made: int | None = None,
        detail: str = "",
        op: str = "",
    ) -> Found:
        """Return what was found at a line before, of this kind, or describe it.

        ``operands`` are those of the call in order, called as in the user's line where that is known; ``of`` says how
        many it has in all, ``about`` which one is noted, if not all. ``op`` is what was called, if the call does not
        say it; ``kind``, ``made`` and ``detail`` are as in `Observation`.
        """
        key = (kind, op or call.name, self.site(call))
        found = self._kept.get(key)
        if found is None:
            path = self.module_path(call.frame)
            names = operand_names(call.frame, operands, max(of, len(operands)), path)
            described = tuple(operand_of(x, name) for x, name in zip(operands, names, strict=True))
            found = Found(Observation(
                kind=kind, op=key[1], location=key[2], module=path, made=made, detail=detail,
                operands=described if about is None else described[about : about + 1],
                result=None if result is None else operand_of(result),
            ))  # fmt: skip
        found.places[id(self._place)] = self._place
        return found

    def site(self, call: Call) -> int | None:
        """Return the user's line that made a call."""
        return self._sites.of_frame(call.frame)

    def line_of(self, node: Any) -> int | None:
        """Return the user's line that made an autograd node; None of none."""
        return None if node is None else self._line_of_node(node._sequence_nr())

    def observations(self) -> tuple[Observation, ...]:
        """Return what was found so far, in order of first appearance."""
        return tuple(found.report() for found in list(self._kept.values()))

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be looked at."""
        return (Gap("calls", f"some calls could not be inspected: {self.gap}"),) if self.gap else ()


ELEMENTWISE = ("add", "sub", "mul", "div", "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "rsub", "pow", "where",
               "maximum", "minimum")  # fmt: skip
LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
JOINING = ("cat", "stack", "concat")
CONVOLUTIONS = ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d")

_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

MOST_MADE = 64


def made_double(watch: CallNotes, call: Call) -> None:
    """Remember where a float64 tensor was made from data."""
    x = call.result
    if isinstance(x, torch.Tensor) and x.dtype is torch.float64 and x.dim() and x.layout is torch.strided:
        storage, site = x.untyped_storage(), watch.site(call)
        if len(watch.doubles) >= MOST_MADE:
            del watch.doubles[next(iter(watch.doubles))]
        watch.doubles[storage._cdata] = (StorageWeakRef(storage), site)  # type: ignore[no-untyped-call]


def promoted(watch: CallNotes, call: Call) -> None:
    """Note a result in float64 where something narrower met float64; a number or a 0-d tensor never promotes."""
    result = call.result
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.float64:
        return
    given = [x for x in flat((*call.args, *call.kwargs.values())) if isinstance(x, torch.Tensor)]
    wide = next((x for x in given if x.dtype is torch.float64 and x.dim()), None)
    narrow = next((x for x in given if x.dtype in _NARROW and x.dim()), None)
    if wide is None or narrow is None:
        return
    made, origin = None, ""
    if wide.layout is torch.strided:
        storage = wide.untyped_storage()
        _, made = watch.doubles.get(storage._cdata, (None, None))
        origin = "" if storage.resizable() else "numpy"
    operands = given if len(given) == 2 else [wide, narrow]
    watch.note("promoted", call, operands=operands, result=result, made=made, detail=origin)


def mixed(watch: CallNotes, call: Call) -> None:
    """Note operands of which one lies channels-last and another contiguous, neither both at once."""
    given = [x for x in flat(call.args) if isinstance(x, torch.Tensor) and x.dim() in _LAST][:2]
    if len(given) < 2 or not isinstance(call.result, torch.Tensor):
        return
    formats = [_format(x) for x in given]
    if "" in formats or formats[0] == formats[1]:
        return
    odd = given[formats[0] == _format(call.result)]  # the one whose order the result does not have
    how = "converted" if call.name in CONVOLUTIONS else "strided"
    watch.note("mixed formats", call, operands=given, result=call.result, nbytes=odd.nbytes, detail=how)


def _format(x: torch.Tensor) -> str:
    """Return in which of both orders a tensor lies; empty where in both, or in neither."""
    if x.layout is not torch.strided:
        return ""
    plain, last = x.is_contiguous(), x.is_contiguous(memory_format=_LAST[x.dim()])
    return "" if plain == last else "contiguous" if plain else "channels_last"


# Eight bits without a sign hold 0 to 255: what lies outside comes back at the other end.

_MOST_COMPARED = 1 << 20


def wrapped(watch: CallNotes, call: Call) -> None:
    """Note arithmetic of uint8 whose result is another than that of the same numbers in int32."""
    result = call.result
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.uint8 or type(result) is not torch.Tensor:
        return
    given = call.args[:2]
    if call.kwargs or result.device.type != "cpu" or not 0 < result.numel() <= _MOST_COMPARED or result is given[0]:
        return
    with quiet():
        right = call.function(*(x.to(torch.int32) if isinstance(x, torch.Tensor) else x for x in given))
        lost, lowest, highest = int((right != result).sum()), int(right.min()), int(right.max())
    if lost:
        tensors = [x for x in flat(given) if isinstance(x, torch.Tensor)]
        watch.note("wrapped", call, operands=tensors, of=len(given), result=result,
                   detail=f"{lost} of {result.numel()} from {lowest} to {highest}")  # fmt: skip
