"""Tries what is said to work in place of a refused call, on stand-ins of its operands: the operands are not touched.

A stand-in has the sizes, the strides and the dtype of the operand, and lies on the meta device: it takes no memory,
nothing is computed, and no random number is drawn. Where values decide (an index, a class), it lies on the CPU and
holds the least and the greatest number that the operand held. Devices are not tried: a rule about them holds by itself.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from tensormagic.collectors.quiet import quiet
from tensormagic.reports import FailureReport, Mismatch, Operand
from tensormagic.reports.failure import PLAIN_NAMES

Outcome = Literal["works", "fails", "unknown"]

# What a way may use of Python's own: nothing by name; torch imports some of its modules by what the running code has.
_BUILTINS = {"__import__": __import__}
MOST_VALUES = 1 << 20  # elements of all stand-ins together that are tried by value
_UNKNOWN = object()
_REFUSALS = (RuntimeError, ValueError, IndexError, AssertionError)  # torch's; what is given wrongly is a TypeError
_WHOLE = ("torch.", "F.", "nn.utils.", "~")  # what begins so stands in place of the call, not of an operand
_NUMBERS = frozenset({"__bool__", "__float__", "__int__", "__index__", "item"})
_TAKE_CLASSES = frozenset({"cross_entropy", "nll_loss", "multi_margin_loss", "embedding", "one_hot", "gather",
                           "binary_cross_entropy"})  # fmt: skip
_RESHAPES = frozenset({"view", "reshape", "view_as", "reshape_as", "view_copy"})
_READ_VALUES = _NUMBERS | {"__getitem__", "__setitem__"}  # what reads values, and draws no random number
_TO_DEVICE = re.compile(r"\.(?:cpu|cuda)\(\)|\.to\((?:[\w.\[\]]+\.device|['\"][\w:]+['\"])\)"
                        r"|\.to_empty\(device=['\"][\w:]+['\"]\)|, device=['\"][\w:]+['\"]")  # fmt: skip


def with_ways_tried(report: FailureReport, mismatch: Mismatch) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ways of a mismatch that work, and those where that is unknown; what fails is in neither."""
    again, outcomes = _CallAgain(report, mismatch), dict.fromkeys(mismatch.works, "unknown")
    for way in (each for each in outcomes if "#" not in each and "…" not in each and "..." not in each):
        outcomes[way] = again.outcome(way)
        if outcomes[way] == "unknown" and again.name in _READ_VALUES:
            outcomes[way] = _CallAgain(report, mismatch, by_value=True).outcome(way)
    works, unknown = ([way for way in outcomes if outcomes[way] == wanted] for wanted in ("works", "unknown"))
    return tuple(works), tuple(unknown)


class _CallAgain:
    """The refused call, made again with stand-ins."""

    def __init__(self, report: FailureReport, mismatch: Mismatch, *, by_value: bool = False) -> None:
        self._report, self._mismatch = report, mismatch
        self.name = report.function.rpartition(".")[2]
        small = sum(math.prod(one.shape) for one in report.operands) <= MOST_VALUES
        decide = mismatch.kind == "index" or self.name in _TAKE_CLASSES
        unknown = decide and any("int" in one.dtype and one.least is None for one in report.operands if one.is_tensor)
        decide = decide and any(one.least is not None for one in report.operands)
        self._by_value, too_many = by_value or decide, unknown or (decide and not small)
        self._function: Any = None
        if report.function.startswith(("torch.", "Tensor.")):
            with suppress(AttributeError):
                self._function = attrgetter(report.function.removeprefix("torch."))(torch)
        self._names = _codes(report.operands)
        self._keywords: bool | None = None
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of what it broadcasts
            self._values = [_UNKNOWN if too_many else self._stand_in(one) for one in report.operands]
            refusals = {way: said for way in (False, True) if (said := self._refused_again(way)) is not None}
        same = (way for way, said in refusals.items() if said == report.error)
        self._keywords = next(same, next(iter(refusals), None))

    def outcome(self, way: str) -> Outcome:
        """Return whether a way goes through; where it cannot be tried, that this is unknown."""
        try:
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._tried(self._with_numbers(_TO_DEVICE.sub("", way)))
        except Exception as error:  # also of what is not known here, or not made for stand-ins
            refused = isinstance(error, _REFUSALS) and not isinstance(error, NotImplementedError)
            return "fails" if refused and "meta" not in str(error).lower() else "unknown"

    def _with_numbers(self, way: str) -> str:
        """Return a reshape with the numbers that the sizes were, in place of the user's names for them."""
        written = re.search(rf"\.{self.name}\((.+)\)$", self._report.call) if self.name in _RESHAPES else None
        sizes = ", ".join(one.text for one in self._report.operands if not one.is_tensor).strip("()")
        return way.replace(f"({written[1]})", f"({sizes})") if written is not None and sizes else way

    def _stand_in(self, one: Operand) -> Any:
        if not one.is_tensor:
            return _literal(one.text)
        if not one.dtype or one.layout == "nested":
            return _UNKNOWN
        dtype = getattr(torch, one.dtype)
        if self._by_value:
            known = one.least is not None and one.most is not None
            made = torch.full(one.shape, one.least if known else 0, dtype=dtype)  # type: ignore[arg-type]
            made.view(-1)[-1:] = one.most if known else 0  # type: ignore[assignment]
            return made
        if one.layout == "strided" and one.stride:
            return torch.empty_strided(one.shape, one.stride, dtype=dtype, device="meta")
        return torch.empty(one.shape, dtype=dtype, device="meta")

    def _refused_again(self, keywords: bool) -> str | None:  # noqa: FBT001  (the one thing that is asked)
        """Return what torch says of the call made again as it was; None where it is another call, or cannot be made."""
        if not callable(self._function) or any(value is _UNKNOWN for value in self._values):
            return None
        try:
            self._call({}, keywords=keywords)
        except Exception as error:
            same = isinstance(error, _REFUSALS) or type(error).__name__ == self._report.error_type
            return str(error) if same else None
        return "" if not self._by_value or self._function.__name__ in _READ_VALUES else None  # not by these stand-ins

    def _call(self, replaced: dict[int, Any], *, keywords: bool) -> Any:
        given, named, lists = list[Any](), dict[str, Any](), dict[str, list[Any]]()
        for at, one in enumerate(self._report.operands):
            value = replaced.get(at, self._values[at])
            base = one.place.partition("[")[0]
            if base in lists:
                lists[base].append(value)
                continue
            if base:
                value = lists[base] = [value]
            if keywords and given and one.role:
                named[one.role] = value
            else:
                given.append(value)
        return self._function(*given, **named)

    def _tried(self, way: str) -> Outcome:
        target, _, code = way.partition(" = ")
        if code and target.isidentifier():
            return self._with(dict.fromkeys(self._names.get(target, []), code))
        if re.match(r"(?:torch\.)?nn\.[A-Z]", way):
            return self._with_layer(way)
        owner, (model, _, method) = self._report.module, way.partition(".")
        if owner.split(".", 1)[0] == model and re.match(r"\w+\(", method):  # ``net.double()``
            of_layer = (at for at, one in enumerate(self._report.operands) if one.name.startswith(f"{owner}."))
            return self._with({at: f"operand_{at}.{method}" for at in of_layer})
        named = _Named(self._names)
        named.visit(ast.parse(way, mode="eval"))
        # Whether it stands in place of the call, and not of one of its operands, as in `torch.tensor([0, 1]) - 1`.
        of_call = way.startswith(_WHOLE) and not way.startswith(tuple(named.found))
        is_whole = self._mismatch.kind != "device" and (len(named.found) > 1 or of_call)
        reshapes = self.name in _RESHAPES and re.search(r"\.(?:view|reshape|flatten)\([^()]*\)$", way)
        if named.found and (is_whole or reshapes):
            self._value(way)
            return "works"
        clashing = sorted({part.operand for part in self._mismatch.parts})
        return self._with(dict.fromkeys(next(iter(named.found.values()), clashing), way))

    def _with(self, codes: dict[int, str]) -> Outcome:
        """Make the call with operands as code gives them."""
        if self._keywords is None or not codes or any(self._values[at] is _UNKNOWN for at in codes):
            return "unknown"
        changed = {at: self._value(code) for at, code in codes.items()}
        if self.name in _NUMBERS:  # code that is not a tensor stands for the whole call
            tensors = (value for value in changed.values() if isinstance(value, torch.Tensor))
            return "fails" if any(value.numel() != 1 for value in tensors) else "works"
        values = [changed.get(at, value) for at, value in enumerate(self._values)]
        dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
        if re.match(r"conv|_conv", self.name) and len(dtypes) != 1:
            return "fails"  # which the meta device does not look at
        self._call(changed, keywords=self._keywords)
        return "works"

    def _with_layer(self, code: str) -> Outcome:
        """Call a new layer on what the refused one was given."""
        owner = f"{self._report.module}."
        every = zip(self._report.operands, self._values, strict=True)
        given = [value for one, value in every if isinstance(value, torch.Tensor) and not one.name.startswith(owner)]
        if self._by_value or not given or not self._report.module:
            return "unknown"
        self._value(code)(*given[:1])
        return "works"

    def _value(self, code: str) -> Any:
        space: dict[str, Any] = {"__builtins__": _BUILTINS, "torch": torch, "nn": nn, "F": functional, "int": int}
        space |= {f"operand_{at}": value for at, value in enumerate(self._values) if value is not _UNKNOWN}
        tree = ast.fix_missing_locations(_Named(self._names).visit(ast.parse(code, mode="eval")))
        device = "cpu" if self._by_value else "meta"  # where new tensors and layers are made
        with torch._C._EnableTorchFunction(), torch.device(device):
            return eval(compile(tree, "<way>", "eval"), space)  # noqa: S307  (operands are names)


class _Named(ast.NodeTransformer):
    """Puts a name of ours in the place of code that names an operand; what is ``found`` stands outermost first."""

    def __init__(self, names: dict[str, list[int]]) -> None:
        self._names = names
        self.found: dict[str, list[int]] = {}

    def visit(self, node: ast.AST) -> Any:
        """Replace a whole expression before what it is made of."""
        if isinstance(node, ast.expr) and (code := ast.unparse(node)) in self._names:
            self.found[code] = self._names[code]
            return ast.Name(f"operand_{self._names[code][0]}", ast.Load())
        return self.generic_visit(node)


def _codes(operands: Sequence[Operand]) -> dict[str, list[int]]:
    """Return what code calls each tensor operand: as the user does, else as torch does."""
    found: dict[str, list[int]] = {}
    tensors = [(at, one) for at, one in enumerate(operands) if one.is_tensor]
    for at, one in tensors:
        quoted = re.search(r"`([^`]+)`", one.name)
        with suppress(SyntaxError, ValueError):  # where it is not a code
            code = ast.unparse(ast.parse(quoted[1] if quoted else one.name, mode="eval"))
            found.setdefault(code, []).append(at)
    for at, one in tensors:
        for code in filter(None, (one.place, PLAIN_NAMES.get(one.role, one.role))):
            if not any(at in places for places in found.values()):
                found.setdefault(code, [at])
    return found


def _literal(text: str) -> Any:
    """Return what a short text stands for: numbers, tuples, slices, dtypes; `_UNKNOWN` for anything else."""
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    if re.fullmatch(r"(?:slice|None|Ellipsis|True|False|[-\d\s(),.\[\]]|torch\.[a-z]+\d*)+", text):
        with suppress(Exception):
            return eval(text, {"__builtins__": _BUILTINS, "slice": slice, "Ellipsis": ..., "torch": torch})  # noqa: S307  (no calls but slice)
    return _UNKNOWN
