"""A refused call: its operands, and the table of messages that explain it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from tensormagic.reports import Clashing, FailureReport, Mismatch, Operand
from tensormagic.reports.failure import MismatchKind

# A failed call as the rules about it read it: its operands by name, role and place, and how to write them.
#
# What torch calls an operand (``weight``) is known where the collector found it; otherwise its place among the
# arguments says it. The user's own name for it is what sentences and code use.

Shape = tuple[int, ...]
ValueT = TypeVar("ValueT")

_NUMBER = re.compile(r"-?\d+")
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "floordiv": "//", "matmul": "@", "pow": "**",
    "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_SIGNS = {sign: word for word, sign in _OPERATORS.items()}
_QUOTED = re.compile(r"`([^`]+)`")
_PLACE = re.compile(r"^(.*)\[(\d+)\]$")
_CODES = {"self": "x", "input": "x", "mat1": "x", "mat2": "other", "vec2": "other"}
_WORDS = {"self": "tensor", "hx": "hidden state"}
_PARAMETER = re.compile(r"[\w.\[\]]+\.(?:in_proj_)?(?:weight|bias|running_mean)(?:_ih|_hh)?(?:_l\d+)?")
_HANDED_ON = "the input of "
_CLASS = re.compile(r"[A-Z]\w*[a-z]")


class MissingError(LookupError):
    """What an explanation needs is not among the operands: there is none."""


@dataclass(frozen=True, slots=True)
class Given:
    """One operand of a call."""

    index: int  # Its index among the report's operands.
    operand: Operand  # What is known of it.
    position: int  # Its place among the arguments, from 0; members of a list share theirs.

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        return self.operand.shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.operand.shape)

    @property
    def dtype(self) -> str:
        """Its dtype, without the prefix."""
        return self.operand.dtype

    @property
    def device(self) -> str:
        """Its device."""
        return self.operand.device

    @property
    def name(self) -> str:
        """How a sentence names it: as the user does, else by what torch calls it, else by its place."""
        operand = self.operand
        if operand.name.startswith(_HANDED_ON) and operand.role not in {"", "self", "input"}:
            return f"the {_word(operand.role)} of {operand.name.removeprefix(_HANDED_ON)}"
        if operand.name:
            return operand.name
        if operand.place:
            return f"tensor {_number_in(operand.place)} of the list" if _number_in(operand.place) else operand.place
        if operand.role:
            return f"the {_word(operand.role)}"
        return f"operand {self.position + 1}"

    @property
    def code(self) -> str:
        """How code writes it; ready to take an attribute or an index."""
        quoted = _QUOTED.search(self.operand.name)
        text = quoted[1] if quoted else self.operand.name
        if _is_atom(text):
            return text
        if _is_expression(text):
            return f"({text})"
        return self.operand.place or _CODES.get(self.operand.role, self.operand.role) or "x"

    @property
    def can_be_assigned(self) -> bool:
        """Whether a line can give its name another value: not that of a call's result."""
        return bool(self.operand.name) and not self.code.endswith(")")

    @property
    def sized(self) -> str:
        """Its name and its shape: ``x (32 × 784)``."""
        return f"{self.name} ({sizes(self.shape)})"


def _word(role: str) -> str:
    return _WORDS.get(role, role.replace("_", " "))


def _number_in(place: str) -> str:
    found = _PLACE.match(place)
    return found[2] if found else ""


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _is_atom(text: str) -> bool:
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(body, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def sizes(shape: Shape) -> str:
    """Return a shape in words: ``"32 × 784"``, ``"3"``, ``"0-dimensional"``."""
    return " × ".join(map(str, shape)) or "0-dimensional"


def tuple_text(shape: Shape) -> str:
    """Return a shape as code that goes between the parentheses of ``reshape``."""
    return ", ".join(map(str, shape))


class Call:
    """A failed call: its function in one word, torch's message, and what it was given.

    Attributes:
        report: What was seen.
        error: Torch's message.
        function: The last word of the function's name, without underscores around it: ``"matmul"``, ``"getitem"``.
    """

    def __init__(self, report: FailureReport) -> None:
        self.report = report
        self.error = report.error
        last = report.function.strip().rsplit(".", 1)[-1].strip("()")
        self.function = _SIGNS.get(last, last.strip("_") or last)

    @property
    def in_place(self) -> bool:
        """Whether the call writes to its first operand."""
        last = self.report.function.rsplit(".", 1)[-1]
        return (last.endswith("_") and not last.endswith("__")) or last.startswith("__i")

    @property
    def title(self) -> str:
        """The function as a sentence names it."""
        sign = _OPERATORS.get(self.function, "")
        dunder = self.report.function.rsplit(".", 1)[-1].startswith("__")
        if self.function in {"getitem", "setitem"}:
            return "indexing"
        return sign if sign and dunder else self.report.function or "the call"

    @cached_property
    def given(self) -> tuple[Given, ...]:
        """Everything that was given, tensor or not."""
        return tuple(self._numbered())

    def _numbered(self) -> Iterator[Given]:
        position, group = -1, ""
        for index, operand in enumerate(self.report.operands):
            base = operand.place.split("[", 1)[0] + "[" if "[" in operand.place else ""
            position += not (base and base == group)
            group = base
            yield Given(index, operand, position)

    @cached_property
    def tensors(self) -> tuple[Given, ...]:
        """The tensors of which anything is known, less what the result was to be written to."""
        return tuple(one for one in self.given if one.operand.is_tensor and one.dtype and one.operand.role != "out")

    def tensor(self, roles: str, position: int = -1) -> Given | None:
        """Return a tensor by what torch calls it (``"input|self"``), else by its place among the arguments."""
        names = roles.split("|") if roles else []
        named = next((one for one in self.tensors if one.operand.role in names), None)
        if named is not None:
            return named
        found = (one for one in self.tensors if one.position == position)
        return next((one for one in found if not one.operand.role or one.operand.role not in _KEYWORDS), None)

    def first(self, condition: Callable[[Given], object]) -> Given:
        """Return the first tensor for which a condition holds; raises MissingError where there is none."""
        return self.every(condition)[0]

    def every(self, condition: Callable[[Given], object]) -> list[Given]:
        """Return the tensors for which a condition holds; raises MissingError where there is none."""
        found = [one for one in self.tensors if condition(one)]
        if not found:
            raise MissingError
        return found

    def value(self, roles: str, position: int = -1) -> str:
        """Return an argument that is no tensor, as text; empty where it was not given."""
        names = roles.split("|")
        plain = [one for one in self.given if not one.operand.is_tensor]
        named = [one for one in plain if one.operand.role in names]
        found = named or [one for one in plain if one.position == position and not one.operand.role]
        return found[0].operand.text if found else ""

    def written(self, keyword: str) -> str:
        """Return what the user's own call gives for a keyword, as it is written there; empty where it gives none."""
        try:
            body = ast.parse(self.report.call, mode="eval").body
        except (SyntaxError, ValueError):
            return ""
        given = {each.arg: each.value for each in body.keywords} if isinstance(body, ast.Call) else {}
        return ast.unparse(given[keyword]) if keyword in given else ""

    def of_shape(self, shape: Shape) -> Given | None:
        """Return the tensor that has this shape, if exactly one has."""
        found = [one for one in self.tensors if one.shape == shape]
        return found[0] if len(found) == 1 else None

    @property
    def layer(self) -> str:
        """The layer as code names it; empty where it has no name but that of its class."""
        return "" if _CLASS.match(self.owner) else self.owner

    @property
    def subject(self) -> str:
        """What takes the operands, as a sentence names it: the layer, else the function."""
        return self.owner or self.title

    @property
    def owner(self) -> str:
        """What represents the layer in a sentence: ``net.fc1``, or what its parameter is called, without the name."""
        names = (one.operand.name for one in self.tensors)
        found = next((name for name in names if _PARAMETER.fullmatch(name)), "")
        return found.rpartition(".")[0] if found else self.report.module.strip("()")


_KEYWORDS = frozenset({"out", "weight", "bias", "attn_mask", "key_padding_mask"})


def needed(value: ValueT | None) -> ValueT:
    """Return what is there; raises MissingError where it is not, so that nothing is explained."""
    if value is None:
        raise MissingError
    return value


def numbers(text: str) -> Shape:
    """Return the whole numbers in a text, as a shape."""
    return tuple(int(found) for found in _NUMBER.findall(text))


def article(kind: str) -> str:
    """Return the name of a class as a sentence has it: ``an int``, ``a list``."""
    return f"an {kind}" if kind[:1] in "aeiouAEIOU" else f"a {kind}"


# The messages of refused calls, and the parts that their sentences share.

# The table of what torch says: a pattern, and the function that explains a message of this form.
#
# Such a function names in its parameters what it needs, and is asked only where all of it is there::
#
#     ``@says(r"Found parameter numbers = (\d+) and channel size = (\d+)")``
#     ``def _prelu(given: First, weight: Weight, got: str, wanted: str) -> Mismatch``
#
# - ``call: Call`` is the failed call, ``found: re.Match[str]`` what the pattern found in its message.
# - An operand has a type that says where to look for it: ``Weight`` is what torch calls ``weight``, else the second
#   argument. ``Weight | None`` is given where it is there, and not needed.
# - ``int``, ``str`` and ``Shape`` are the groups of the pattern: that of the parameter's name, else the next in order.
# - What a row of the table fixes (``says(pattern, least=2)``) fills the parameter of that name; keyword-only parameters
#   with a default are filled by rows alone.

Explain = Callable[..., Mismatch | None]
ExplainT = TypeVar("ExplainT", bound=Explain)
Finder = Callable[[Call], Any]
_READ: Mapping[Any, Callable[[str], Any]] = {int: int, str: str, Shape: numbers}


def operand(roles: str, position: int = -1) -> Finder:
    """Look for a tensor by what torch calls it (``"input|self"``), else by its place among the arguments."""
    return lambda call: call.tensor(roles, position)


def nth(number: int) -> Finder:
    """Look for a tensor by its number among the tensors."""
    return lambda call: call.tensors[number] if number < len(call.tensors) else None


def argument(role: str) -> Finder:
    """Look for an argument, tensor or not, by what torch calls it."""
    return lambda call: next((one for one in call.given if one.operand.role == role), None)


def whole_number(role: str, position: int) -> Finder:
    """Look for an argument that is a whole number."""

    def find(call: Call) -> int | None:
        text = call.value(role, position)
        return int(text) if text.lstrip("-").isdigit() else None

    return find


First = Annotated[Given, operand("input|self", 0)]
Input = Annotated[Given, operand("input", 0)]
Weight = Annotated[Given, operand("weight", 1)]
Left = Annotated[Given, nth(0)]
Right = Annotated[Given, nth(1)]
Dim = Annotated[int, whole_number("dim", 1)]
AskedDtype = Annotated[Given, argument("dtype")]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; the pattern is compiled where it is first needed, after an error."""

    pattern: str
    explain: Explain
    fixed: Mapping[str, Any]

    def mismatch(self, call: Call) -> Mismatch | None:
        """Return what did not fit; None where torch says something else, or an operand that is needed is not there."""
        found = re.search(self.pattern, call.error, re.DOTALL)
        if found is None:
            return None
        try:
            return self.explain(**self.fixed, **dict(_filled(self, call, found)))
        except (IndexError, ZeroDivisionError, MissingError):  # also a dimension that the operand does not have
            return None


class Messages:
    """The rows of one subject, in the order in which they are compared with a message."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, *patterns: str, **fixed: object) -> Callable[[ExplainT], ExplainT]:
        """Return a decorator: what it is above explains these messages."""

        def add(explain: ExplainT) -> ExplainT:
            self.rows += [Row(pattern, explain, fixed) for pattern in patterns]
            return explain

        return add


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a handler asks for: its type, how a group of the pattern is read as one, else where to look for it."""

    kind: Any
    read: Callable[[str], Any] | None
    find: Finder | None
    needed: bool


def _filled(row: Row, call: Call, found: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """Give each parameter what it asks for; raises MissingError where it is not there."""
    named = found.re.groupindex
    unnamed = (group for number, group in enumerate(found.groups(), 1) if number not in named.values())
    for name, asked in parameters(row.explain).items():
        if name in row.fixed:
            continue
        if asked.read is not None:
            yield name, asked.read((found[name] if name in named else next(unnamed)) or "")
        elif asked.find is None:
            yield name, call if asked.kind is Call else found
        else:
            value = asked.find(call)
            if value is None and asked.needed:
                raise MissingError
            yield name, value


@cache
def parameters(explain: Explain) -> Mapping[str, Parameter]:
    """Return what a function asks for; keyword-only parameters with a default are filled by rows alone."""
    left_out = {"return", *(explain.__kwdefaults__ or ())}
    hints = get_type_hints(explain, include_extras=True)
    return {name: _parameter(hint) for name, hint in hints.items() if name not in left_out}


def _parameter(hint: Any) -> Parameter:
    optional = NoneType in get_args(hint)
    kind = next(one for one in get_args(hint) if one is not NoneType) if optional else hint
    find = kind.__metadata__[0] if hasattr(kind, "__metadata__") else None
    return Parameter(kind, _READ.get(kind) if find is None else None, find, not optional)


# What an explanation consists of: the rule that was broken, and which parts of the operands break it.


def size(given: Given, dimension: int, expected: object = "") -> Clashing:
    """Return a part of a mismatch: one dimension of an operand; raises IndexError where it has no such dimension."""
    got = given.shape[dimension]
    return Clashing(given.index, dimension % given.ndim, str(got), str(expected))


def whole(given: Given, got: object = "", expected: object = "") -> Clashing:
    """Return a part of a mismatch: an operand as a whole."""
    return Clashing(given.index, None, str(got), str(expected))


def dims(given: Given, expected: object) -> Clashing:
    """Return a part of a mismatch: how many dimensions an operand has."""
    return whole(given, f"{given.ndim}-D", f"{expected}-D")


def shaped(given: Given, expected: object = "") -> Clashing:
    """Return a part of a mismatch: the whole shape of an operand."""
    return whole(given, sizes(given.shape), expected)


def against(one: Given, at: int, other: Given, there: int | None = None) -> list[Clashing]:
    """Return two parts of a mismatch: one dimension of each of two operands (the same of both), which must be equal."""
    there = at if there is None else there
    return [size(one, at, other.shape[there]), size(other, there, one.shape[at])]


def unlike(one: Given, other: Given) -> list[int]:
    """Return the dimensions in which two operands of as many dimensions have other sizes."""
    return [at for at in range(one.ndim) if one.shape[at] != other.shape[at]]


def mismatch(kind: MismatchKind, rule: str, *parts: Clashing, works: Iterable[str] = ()) -> Mismatch:
    """Return a mismatch; its rule begins with a capital letter, and no way out is named twice."""
    return Mismatch(kind, rule[:1].upper() + rule[1:], parts, tuple(dict.fromkeys(filter(None, works))))
