r"""The table of what torch says when it refuses a call: a message is one row of text, or a function.

A row begins with what torch says; indented below it stand the kind of mismatch with the sentence about it, the parts
of the operands that do not fit, and the code that would have worked::

    Found parameter numbers = {got} and channel size = {wanted}
        shape: There must be one parameter for each channel, or one for all: {weight} against the {wanted} of {first}.
        parts: first[1] must be {got}; weight is {got} must be {wanted}
        try: nn.PReLU({first[1]}) when first.ndim > 1

- The first line is a regular expression in which ``{got}`` stands for a whole number, ``{got:word}`` for a word,
  ``{got:dtype}`` for a dtype as torch's C++ calls it, and ``{got:shape}`` for sizes. Several such lines are several
  messages of one row.
- The sentence and the code are f-strings. They name what was found in the message, operands (`OPERANDS`: ``{first}`` is
  its name and shape, ``{first[1]}`` a size, ``{first.code}`` how to write it), and the ``call``.
- A part is a dimension (``weight[0]``), ``weight.ndim``, ``weight.shape``, ``weight.dtype``, or ``weight`` as a whole;
  ``is`` says what it is where that is not its size, ``must be`` what would fit. ``weight?`` may be missing.
  ``left[-1] must equal right[0]`` is two parts.
- ``if:`` is a condition: where it does not hold, the row explains nothing. ``when`` is the condition of a way.

A message that takes more than this has a function, whose parameters ask for the same names (``weight: Given``, or
``weight: Given | None``)::

    @says(r"hx has inconsistent hidden_size: got {got}, expected {wanted}")
    def _hidden_size(call: Call, hidden: Given, wanted: int) -> Mismatch | None: ...

A row or function that names what is not there is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar, cast

from tensormagic.diagnoses.mismatches.call import (
    Call,
    Given,
    MissingError,
    Shape,
    against,
    article,
    as_dtype,
    below,
    clashing,
    dims,
    dtype_of,
    floating,
    mismatch,
    needed,
    numbers,
    shaped,
    size,
    sizes,
    tuple_text,
    unlike,
    whole,
)
from tensormagic.diagnoses.rule import as_code
from tensormagic.reports import Clashing, Mismatch
from tensormagic.reports.failure import MismatchKind
from tensormagic.words import count, listed, plural

# -- what a row or a function can name ------------------------------------------------------------------------------

Finder = Callable[[Call], Any]


def _tensor(roles: str, position: int = -1) -> Finder:
    return lambda call: call.tensor(roles, position)


def _nth(number: int) -> Finder:
    return lambda call: call.tensors[number] if number < len(call.tensors) else None


def _whole_number(role: str, position: int) -> Finder:
    def find(call: Call) -> int | None:
        text = call.value(role, position)
        return int(text) if text.lstrip("-").isdigit() else None

    return find


def _having(condition: Callable[[Given], object]) -> Finder:
    return lambda call: next((one for one in call.tensors if condition(one)), None)


def _target(call: Call) -> Given | None:
    return call.tensor("target", 2) if call.function == "linear_cross_entropy" else call.tensor("target|targets", 1)


def hidden_state(call: Call, shape: Shape = ()) -> Given | None:
    """Return the hidden state that a recurrent layer was given: of this shape, where one is asked for."""
    found = [one for one in call.tensors[1:] if not shape or one.shape == shape]
    named = (one for one in found if one.operand.role.startswith(("hx", "h_0", "hidden")) or one.operand.place)
    return next(iter([*named, *found]), None)


# An operand by what torch calls it, else by its place among the arguments.
OPERANDS: Mapping[str, Finder] = {
    "first": _tensor("input|self", 0),
    "given": _tensor("input", 0),
    "weight": _tensor("weight", 1),
    "bias": _tensor("bias", 2),
    "tensor": _tensor("input|self|tensor|query", 0),
    "left": _nth(0),
    "right": _nth(1),
    "third": _nth(2),
    "number": _having(lambda one: not one.ndim),
    "empty": _having(lambda one: 0 in one.shape),
    "sparse": _having(lambda one: one.operand.layout.startswith("sparse")),
    "only": lambda call: call.tensors[0] if len(call.tensors) == 1 else call.tensor("input|self", 0),
    "anything": lambda call: call.given[0] if call.given else None,
    # indices
    "index": _tensor("index", 2),
    "taken": _tensor("index", 1),
    "indices": _tensor("indices", 1),
    "src": _tensor("src", 3),
    "source": _tensor("source", 3),
    "repeats": _tensor("repeats", 1),
    "split": _tensor("input|self|tensor", 0),
    "start": _tensor("start", 2),
    "value": _tensor("value", 2),
    # losses and products
    "compared": _tensor("input|self|log_probs", 0),
    "target": _target,
    "class_weight": _tensor("weight", 2),
    "variance": _tensor("var", 2),
    "matrix": _tensor("input|self|A", 0),
    "linear_weight": _tensor("linear_weight", 1),
    # layers; the input of a recurrent layer is the first tensor that is none of its parameters
    "sequence": lambda call: call.tensor("input", 0) or next(iter(call.tensors), None),
    "hidden": hidden_state,
    "query": _tensor("query", 0),
    "key": _tensor("key", 1),
    "attn_mask": _tensor("attn_mask", 3),
    "hx": _tensor("hx"),
    "grid": _tensor("grid", 1),
    # arguments that are no tensors
    "dim": _whole_number("dim", 1),
    "dtype_given": lambda call: call.argument("dtype"),
    "layout_given": lambda call: call.argument("layout"),
    "mode_given": lambda call: call.argument("mode"),
}
# What the expressions of a row can call.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        abs, as_code, as_dtype, article, below, clashing, count, dtype_of, floating, int, len, listed, map, max, min,
        numbers, plural, prod, range, sizes, str, sum, tuple_text, unlike,
    )
}  # fmt: skip


class Names(dict[str, Any]):
    """What a row can name: what was found in the message, helpers, and operands, which are looked for when asked."""

    def __init__(self, call: Call, found: Mapping[str, Any]) -> None:
        super().__init__(FUNCTIONS)
        self.update(found, call=call, found=found)

    def __missing__(self, name: str) -> Any:
        if name not in OPERANDS:
            raise NameError(name)  # a slip of the pen in a row
        self[name] = needed(OPERANDS[name](self["call"]))
        return self[name]

    def optional(self, name: str) -> Any:
        """Return what has this name; None where it is not there."""
        try:
            return self[name]
        except (MissingError, NameError):
            return None


# -- the rows --------------------------------------------------------------------------------------------------------

_FIELD = re.compile(r"\{([a-z_]+)(?::([a-z]+))?\}")
_GROUPS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "": (r"-?\d+", int), "word": (r"[\w.]+", str), "dtype": (r"\w+", dtype_of), "shape": (r"[-\d, ]*", numbers),
}  # fmt: skip
_BLOCK = re.compile(r"((?:^\S.*\n)+)((?:^ {4}.*\n)+)", re.MULTILINE)
_PART = re.compile(r"(\w+)(\??)(?:\[(.+?)\]|\.(\w+))?(?: is (.+?))?(?: must be (.+))?")
_EQUAL = re.compile(r"(\w+)\[(.+?)\] must equal (\w+)\[(.+?)\]")

Explain = Callable[..., Mismatch | None]
ExplainT = TypeVar("ExplainT", bound=Explain)


@dataclass(frozen=True, slots=True)
class Row:
    """What torch says, and what explains it; the pattern is compiled where it is first needed, after an error."""

    says: str  # As it stands in the table.
    explain: Explain | Text
    fixed: Mapping[str, Any]  # What a function is given besides.

    @property
    def pattern(self) -> str:
        """The regular expression."""
        return _FIELD.sub(lambda field: f"(?P<{field[1]}>{_GROUPS[field[2] or ''][0]})", self.says)

    def mismatch(self, call: Call) -> Mismatch | None:
        """Return what did not fit; None where torch says something else, or an operand that is needed is not there."""
        found = re.search(self.pattern, call.error, re.DOTALL)
        if found is None:
            return None
        kinds = dict(_FIELD.findall(self.says))
        groups = {name: _GROUPS[kinds[name]][1](text) if name in kinds and text is not None else text
                  for name, text in found.groupdict().items()}  # fmt: skip
        try:
            return self.explained(Names(call, {**groups, **self.fixed}))
        except (IndexError, ZeroDivisionError, MissingError):  # also a dimension that the operand does not have
            return None

    def explained(self, names: Names) -> Mismatch | None:
        """Return what did not fit, with what the row or function names."""
        if isinstance(self.explain, Text):
            return self.explain.mismatch(names)
        asked = {name: hint for name, hint in self.explain.__annotations__.items() if name != "return"}
        given = {name: names.optional(name) if hint.endswith("| None") else names[name] for name, hint in asked.items()}
        return self.explain(**given)


class Messages:
    """The rows of one subject, in the order in which they are compared with a message."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, *messages: str, **fixed: object) -> Callable[[ExplainT], ExplainT]:
        """Return a decorator: the function below it explains these messages."""

        def add(explain: ExplainT) -> ExplainT:
            self.rows += [Row(says, explain, fixed) for says in messages]
            return explain

        return add

    def table(self, text: str) -> None:
        """Add rows of text."""
        joined = re.sub(r"\n {8,}", " ", text.replace("\\\n", ""))
        for messages, body in _BLOCK.findall(joined):
            lines = (line.strip().partition(": ") for line in body.splitlines())
            explain = Text(*((key, rest) for key, _, rest in lines))
            said = (line for line in messages.splitlines() if not line.startswith("# "))
            self.rows += [Row(says, explain, {}) for says in said]


class Text:
    """What stands below a message in the table."""

    def __init__(self, *lines: tuple[str, str]) -> None:
        self.lines = lines

    def mismatch(self, names: Names) -> Mismatch | None:
        """Return the mismatch that the lines describe; None where a condition does not hold."""
        kind, sentence, parts, works = "", "", [], []
        for key, text in self.lines:
            if key == "if":
                if not _value(text, names):
                    return None
            elif key.startswith("with "):
                names[key.removeprefix("with ")] = _defined(text, names)
            elif key == "parts":
                texts = (each for body in _repeated(text, names) for each in body.split("; "))
                parts += [part for each in texts for part in _parts(each, names)]
            elif key == "try":
                works += [_filled(body, names) for body in _repeated(text, names)]
            else:
                kind, sentence = key, _filled(text, names)
        return mismatch(cast("MismatchKind", kind), sentence, *parts, works=works)


def _defined(text: str, names: Names) -> Any:
    """Return what a name of the row stands for; raises MissingError where there is none."""
    which, _, condition = text.partition(" ")
    if which in {"first", "last", "every", "all"}:
        found = []
        for one in names["call"].tensors:
            names["one"] = one
            found += [one] if _value(condition, names) else []
        if not found and which != "all":
            raise MissingError(condition)
        return found[0] if which == "first" else found[-1] if which == "last" else found
    return needed(_value(text, names))


def _repeated(text: str, names: Names) -> Iterator[str]:
    """Yield a text once for each value that its ``for`` names, as far as its ``when`` holds."""
    body, _, condition = text.partition(" when ")
    body, _, loop = body.partition(" for ")
    name, _, values = loop.partition(" in ")
    for value in _value(values, names) if loop else [None]:
        names[name] = value
        if not condition or _value(condition, names):
            yield body


def _parts(text: str, names: Names) -> Iterator[Clashing]:
    """Yield the parts of the operands that a text says do not fit."""
    if equal := _EQUAL.fullmatch(text):
        one, at, other, there = equal.groups()
        yield from against(names[one], _value(at, names), names[other], _value(there, names))
        return
    found = _PART.fullmatch(text)
    assert found is not None, text
    name, optional, dimension, fact, got, wanted = found.groups()
    given = names.optional(name) if optional else names[name]
    if given is None:
        return
    expected = _filled(wanted or "", names)
    if dimension is not None:
        yield size(given, _value(dimension, names), expected, got and _filled(got, names))
    elif fact in {"ndim", "shape"}:
        yield dims(given, expected) if fact == "ndim" else shaped(given, expected)
    else:
        yield whole(given, getattr(given, fact) if fact else _filled(got or "", names), expected)


def _filled(template: str, names: Names) -> str:
    return str(_value(f"f'''{template}'''", names)) if "{" in template else template


def _value(expression: str, names: Names) -> Any:
    code = compile(expression, "<a row of the table>", "eval")
    return eval(code, {"__builtins__": {}}, names)  # noqa: S307  (the text of the table above, never a message)
