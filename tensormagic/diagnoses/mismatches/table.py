r"""The table of what torch says when it refuses a call: a message is one row of text, or a function.

A row begins with what torch says; indented below it stand the kind of mismatch with the sentence about it, the parts
of the operands that do not fit, and the code that would have worked::

    Found parameter numbers = {got} and channel size = {wanted}
        shape: There must be one parameter for each channel, or one for all: {weight} against the {wanted} of {first}.
        parts: first[1] must be {got}; weight is {got} must be {wanted}
        try: nn.PReLU({first[1]}) when first.ndim > 1

- The first line is a regular expression in which ``{got}`` stands for a whole number, ``{got:word}`` for a word,
  ``{got:dtype}`` for a dtype as torch's C++ calls it, ``{got:shape}`` for sizes, and ``{got:counts}`` for numbers of
  dimensions. Several such lines are several messages of one row.
- The sentence and the code are f-strings. They name what was found in the message, operands (`OPERANDS`: ``{first}`` is
  its name and shape, ``{first[1]}`` a size, ``{first.code}`` how to write it), and the ``call``.
- A part is a dimension (``weight[0]``), ``weight.ndim``, ``weight.shape``, ``weight.dtype``, or ``weight`` as a whole;
  ``is`` says what it is where that is not its size, ``must be`` what would fit. ``left[-1] must equal right[0]`` is two
  parts.
- ``try:`` is code that is tried on stand-ins; ``maybe:`` is code of which those would tell nothing.
- ``if:`` is a condition: where it does not hold, the row explains nothing.
- ``with wrong: first one.ndim > 2`` names the first tensor of which that holds; ``last``, ``every`` (one or more) and
  ``all`` (or none) go likewise, and ``with at: dim % first.ndim`` names a value.
- One of parts or ways ends in ``for one in wrong`` to stand for each, in ``when …`` to stand where that holds.
- The expressions can call `FUNCTIONS`, and name whatever the file of the row defines.
- Several of these may share a line: ``parts: x[0] must be 1; try: {x.code}[:1]``.

A message that takes more than this has a function, whose parameters ask for the same names::

    @says(r"hx has inconsistent hidden_size: got {got}, expected {wanted}")
    def _hidden_size(call: Call, hidden: Given, wanted: int) -> Mismatch | None: ...

A row or function that names what is not there is not asked, and one that raises IndexError explains nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from operator import itemgetter
from types import CodeType
from typing import Any, TypeVar, cast

from tensormagic.diagnoses.lines import call_on, called_function, only_place, spliced, statement_of
from tensormagic.diagnoses.mismatches.call import (
    FUNCTIONS,
    OPERANDS,
    Call,
    Given,
    dtype_of,
    mismatch,
    needed,
    numbers,
    sizes,
)  # fmt: skip
from tensormagic.reports import Clashing, FailureReport, Finding, Mismatch, Operand, RelatedLine, Report, TraceReport
from tensormagic.reports.base import Scalar
from tensormagic.reports.failure import MismatchKind

Lines = tuple[tuple[str, str], ...]  # what stands below a message in the table, by the word before the colon
Explain = Callable[..., Mismatch | None]
ExplainT = TypeVar("ExplainT", bound=Explain)

_FIELD = re.compile(r"\{([a-z_]+)(?::([a-z]+))?\}")
_GROUPS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "": (r"-?\d+", int), "word": (r"[\w.]+", str), "dtype": (r"\w+", dtype_of), "shape": (r"[-\d, ]*", numbers),
    "counts": (r"\dD(?:, \dD)*(?: (?:\(unbatched\) )?(?:or|and) \dD)?", numbers),
}  # fmt: skip
_BLOCK = re.compile(r"((?:^\S.*\n)+)((?:^ {4}.*\n)+)", re.MULTILINE)
_ENTRIES = re.compile(r"; (?=(?:if|with \w+|parts|try|maybe): )")
_PART = re.compile(r"(\w+)(?:\[(.+?)\]|\.(\w+))?(?: is (.+?))?(?: must be (.+))?")
_EQUAL = re.compile(r"(\w+)\[(.+?)\] must equal (\w+)\[(.+?)\]")
_LAYER = re.compile(r"(?:\w+\.)*[A-Z]\w*\(")
_CHOICES: Mapping[str, Callable[[list[Given]], Any]] = {
    "first": itemgetter(0), "last": itemgetter(-1), "every": lambda found: needed(found or None), "all": list,
}  # fmt: skip


class Names(dict[str, Any]):
    """What a row can name: what was found in the message, helpers, and operands, which are looked for when asked."""

    def __init__(self, call: Call, found: Mapping[str, Any]) -> None:
        super().__init__(FUNCTIONS)
        self.update(found, call=call, __builtins__={})

    def __missing__(self, name: str) -> Any:
        if name not in OPERANDS:
            raise NameError(name)  # a slip of the pen in a row
        self[name] = needed(OPERANDS[name](self["call"]))
        return self[name]


class Row:
    """What torch says, as it stands in the table, and what explains it.

    Attributes:
        fixed: What it can name besides the groups of the message and the operands.
    """

    def __init__(self, says: str, explain: Explain | Lines, fixed: Mapping[str, Any]) -> None:
        self.says, self.explain, self.fixed = says, explain, fixed

    @cached_property
    def pattern(self) -> str:
        """The regular expression; it is compiled where it is first needed, after an error."""
        return _FIELD.sub(lambda field: f"(?P<{field[1]}>{_GROUPS[field[2] or ''][0]})", self.says)

    def mismatch(self, call: Call) -> Mismatch | None:
        """Return what did not fit; None where torch says something else, or an operand that is needed is not there."""
        found = re.search(self.pattern, call.error, re.DOTALL)
        if found is None:
            return None
        kinds = dict(_FIELD.findall(self.says))
        groups = {name: _GROUPS[kinds[name]][1](text) if name in kinds and text is not None else text
                  for name, text in found.groupdict().items()}  # fmt: skip
        names = Names(call, {**self.fixed, **groups})
        try:
            if isinstance(self.explain, tuple):
                return _read(self.explain, names)
            asked = self.explain.__annotations__.keys() & (names.keys() | OPERANDS.keys())
            return self.explain(**{name: names[name] for name in asked})
        except (IndexError, ZeroDivisionError):  # also a dimension that the operand does not have
            return None


class Messages:
    """The rows of one subject, in the order in which they are compared with a message.

    Args:
        defined: The names of its file, which rows of text can use.
    """

    def __init__(self, defined: Mapping[str, Any]) -> None:
        self.rows: list[Row] = []
        self.defined = defined

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
            entries = (entry for line in body.splitlines() for entry in _ENTRIES.split(line.strip()))
            explain = tuple((key, rest) for key, _, rest in (entry.partition(": ") for entry in entries))
            patterns = (line for line in messages.splitlines() if not line.startswith("# "))
            self.rows += [Row(says, explain, self.defined) for says in patterns]


def _read(lines: Lines, names: Names) -> Mismatch | None:
    """Return the mismatch that the lines describe; None where a condition does not hold."""
    kind, sentence, parts = "", "", list[Clashing]()
    ways = {"try": list[str](), "maybe": list[str]()}
    for key, text in lines:
        if key == "if":
            if not _value(text, names):
                return None
        elif key.startswith("with "):
            names[key.removeprefix("with ")] = _defined(text, names)
        elif key == "parts":
            texts = (each for body in _repeated(text, names) for each in body.split("; "))
            parts += [part for each in texts for part in _parts(each, names)]
        elif key in ways:
            ways[key] += [_filled(body, names) for body in _repeated(text, names)]
        else:
            kind, sentence = key, _filled(text, names)
    return mismatch(cast("MismatchKind", kind), sentence, *parts, works=ways["try"], maybe=ways["maybe"])


def _defined(text: str, names: Names) -> Any:
    """Return what a name of the row stands for; raises IndexError where there is none."""
    which, _, condition = text.partition(" ")
    if which not in _CHOICES:
        return needed(_value(text, names))
    found = [one for one in names["call"].tensors if _value(condition, names, one=one)]
    return _CHOICES[which](found)


def _repeated(text: str, names: Names) -> Iterator[str]:
    """Yield a text once for each value that its ``for`` names, as far as its ``when`` holds."""
    body, _, condition = text.partition(" when ")
    body, _, loop = body.partition(" for ")
    name, _, values = loop.partition(" in ")
    each: list[Any] = _value(values, names) if loop else [None]
    for value in each:
        names.update(zip(name.split(", "), value, strict=True) if ", " in name else [(name, value)])
        if not condition or _value(condition, names):
            yield body


def _parts(text: str, names: Names) -> Iterator[Clashing]:
    """Yield the parts of the operands that a text says do not fit."""
    if equal := _EQUAL.fullmatch(text):
        one, at, other, there = equal.groups()
        yield from names[one].against(_value(at, names), names[other], _value(there, names))
        return
    found = _PART.fullmatch(text)
    assert found is not None, text
    name, dimension, fact, got, wanted = found.groups()
    given: Given = names[name]
    expected = _filled(wanted or "", names)
    if dimension is not None:
        yield given.size(_value(dimension, names), expected, got and _filled(got, names))
    elif fact in {"ndim", "shape"}:
        yield given.dims(expected) if fact == "ndim" else given.whole(sizes(given.shape), expected)
    else:
        yield given.whole(getattr(given, fact) if fact else _filled(got or "", names), expected)


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<a row of the table>", "eval")


def _filled(template: str, names: Names) -> str:
    return str(_value(f"f'''{template}'''", names)) if "{" in template else template


def _value(expression: str, names: Names, **more: object) -> Any:
    names.update(more)
    return eval(_compiled(expression), names)  # noqa: S307  (the text of the table above, never a message)


# -- what did not fit in a call ------------------------------------------------------------------------------------

_FULL = {"F": "torch.nn.functional", "nn": "torch.nn"}


def as_named(report: FailureReport, code: str) -> str:
    """Return code with torch's modules by their whole names, where the failing code does not know the usual ones."""
    for name in report.unnamed:
        code = re.sub(rf"(?<![\w.]){name}\.", f"{_FULL[name]}.", code)
    return code


# In this order, as far as two rows fit one message: those that ask for a certain function stand first. A subject is
# imported where no row of those before it explains the message.
_SUBJECTS = (
    "loading", "conditions", "values", "layers", "dtypes", "products", "shapes", "dimensions", "saving", "training",
    "arguments",
)  # fmt: skip


def mismatch_of(report: FailureReport) -> Mismatch | None:
    """Return what did not fit in a failed call; None where that is not what was wrong, or is not known.

    Args:
        report: The failed call; its own ``mismatch`` is not looked at.
    """
    call = Call(report)
    found = next(filter(None, (row.mismatch(call) for row in rows())), None)
    if found is None or not any(call.given[part.operand].before for part in found.parts):
        return found
    # No code of the user's names what one layer hands on to the next: a layer alone can be changed.
    works, maybe = (tuple(filter(_LAYER.match, ways)) for ways in (found.works, found.maybe))
    return replace(found, works=works, maybe=maybe)


def rows() -> Iterator[Row]:
    """Yield the rows of the table in the order in which they are compared with a message."""
    for name in _SUBJECTS:
        yield from import_module(f"{__package__}.{name}").says.rows


# TM101, TM702, TM801, TM802, TM804, TM807: calls that torch refused because what they were given does not go together.
#
# An argument that is wrong, or an index that the code gives as a number, has no code: the explanation of the error says
# the rule all the same.

_CODES = {"view": "TM101", "dtype": "TM802", "shape": "TM804"}
# A tensor of classes or indices holds one that is not there; on a GPU that ends the process's use of it.
# Calls whose arguments are sizes, or an order of dimensions.
_TAKE_SIZES = frozenset({"view", "reshape", "expand", "repeat", "tile", "split", "split_with_sizes", "permute",
                         "unflatten", "broadcast_to", "interpolate"})  # fmt: skip
_IGNORED = 255  # marks a border in masks, as a habit
_OF_VALUES = re.compile(r"Target -?\d+ is out of bounds|^index out of range in self|Class values must be")


def rule_of(code: str) -> Callable[[FailureReport], Iterator[Finding]]:
    """Return the rule that reports the mismatches of one code."""
    return lambda report: _described(report, code)


def _code_of(report: FailureReport, kind: MismatchKind) -> str:
    if kind == "device":
        return "TM702" if "generator" in report.error.lower() else "TM801"
    if kind == "index":
        return "TM807" if _OF_VALUES.search(report.error) else ""
    return _CODES.get(kind, "")


def _about_values(report: FailureReport, clash: Mismatch, given: Operand) -> str:
    """Return what to do about classes, or about indices into a table of embeddings."""
    if given.most is None:
        return ""
    most = int(given.most)
    least = int(given.least or 0)
    span = f"{given.name or 'it'} holds {most if least == most else f'{least} to {most}'}."
    if "index out of range in self" in report.error:
        if least < 0:
            return f"Indices count from 0, and none is negative: {span}"
        table = as_named(report, f"nn.Embedding({most + 1}, …)")
        return f"`{table}` has a row for each: {span}" if " rows;" in clash.rule else ""
    if most == _IGNORED:
        return f"If {most} marks what has no class, say so: `ignore_index={most}`."
    ways = _ways(clash)
    return f"{ways}; {span}" if ways else ""


def _described(report: FailureReport, code: str) -> Iterator[Finding]:
    """Yield the finding of a mismatch; what a backward ran into is not the user's call."""
    clash = report.mismatch
    if clash is None or report.phase == "backward" or not clash.parts or _code_of(report, clash.kind) != code:
        return
    operands = [report.operands[part.operand] for part in clash.parts]
    about_values = _about_values(report, clash, operands[0]) if code == "TM807" else ""
    yield Finding(
        code=code,
        severity="error",
        message=clash.rule,
        location=report.location,
        evidence=_evidence(report, clash),
        remedy=about_values or _ways(clash) or (_without_a_way(report, clash, operands) if code == "TM804" else ""),
        subject=next((operand.name for operand in operands if operand.name), ""),
        related=tuple(_origins(report, operands)),
    )


def _evidence(report: FailureReport, clash: Mismatch) -> dict[str, Scalar]:
    evidence: dict[str, Scalar] = {"call": report.function} if report.function else {}
    for part in clash.parts[:8]:
        operand = report.operands[part.operand]
        name = operand.name or operand.role or f"operand {part.operand + 1}"
        if part.got:
            evidence[name if part.dimension is None else f"dimension {part.dimension} of {name}"] = part.got
        elif operand.most is not None:
            evidence[name] = f"{int(operand.least or 0)} to {int(operand.most)}"
    return evidence


def _ways(clash: Mismatch) -> str:
    """Return what would have worked, as code: the first two ways; else what may help and could not be tried."""
    ways = " or ".join(f"`{way}`" for way in clash.works[:2] or clash.maybe[:2])
    return ways if clash.works or not ways else f"try {ways}"


def _without_a_way(report: FailureReport, clash: Mismatch, operands: list[Operand]) -> str:
    """Return what is to be done where no code is known that would work: sizes come from where a tensor is made."""
    if report.inside.endswith("default_collate"):
        return (
            "Give every sample one shape in the dataset's `__getitem__` (resize or crop images, pad or cut sequences), "
            "or give the DataLoader a `collate_fn` that pads the samples of a batch."
        )
    known = [operand for operand in operands if operand.is_tensor]
    counts = {len(operand.shape) for operand in known}
    if all(part.dimension is None for part in clash.parts) and len(counts) == 2 and max(counts) - min(counts) == 1:
        return "`unsqueeze` adds a dimension of size 1, and `squeeze` removes one."
    data = [operand for operand in known if operand.role not in {"weight", "bias"}] or known
    named = (operand.name or operand.role for operand in data)
    names = list(dict.fromkeys(name.removeprefix("the result of ") for name in named if name not in {"", "self"}))
    if not names:
        return ""
    if report.function.rpartition(".")[2] in _TAKE_SIZES and report.call:
        return f"Change the sizes in `{report.call}`, or look at where {names[0]} is made."
    if len(names) == 1:
        return f"Look at where {names[0]} is made: its sizes come from there."
    return _more_rows(report, clash, names) + f"Look at where {names[0]} and {names[1]} are made."


def _more_rows(report: FailureReport, clash: Mismatch, names: list[str]) -> str:
    """Return what it means that a loss has several rows for each target: a view made samples of other dimensions."""
    at, part = report.function.rpartition(".")[2], clash.parts[0]
    if not (part.got.isdigit() and part.expected.isdigit()) or report.operands[part.operand].role != "input" or not at:
        return ""
    many, few = int(part.got), int(part.expected)
    if not few or many <= few or many % few or part.dimension != 0:
        return ""
    return (
        f"{many} is {few} × {many // few}: {names[0]} has {many // few} for each of the {few} in {names[1]}. A "
        "`view(-1, …)` puts all that does not fit its other sizes into the batch; `flatten(1)` keeps the batch. "
    )


def _origins(report: FailureReport, operands: list[Operand]) -> Iterator[RelatedLine]:
    """Yield the lines on which the clashing operands were made, where they are others than the failing one."""
    described = {(report.location.filename, report.location.line)} if report.location is not None else set()
    for operand in operands:
        place = operand.location
        if place is not None and (place.filename, place.line) not in described:
            described.add((place.filename, place.line))
            yield RelatedLine(f"made {operand.name or operand.role or 'an operand'}", place)


def tried_way(finding: Finding, report: Report, line: str) -> str:
    """The one way that was tried stands in place of the call, or of an operand of it."""
    failure = report.failure if isinstance(report, TraceReport) else report
    if not isinstance(failure, FailureReport) or failure.mismatch is None or len(failure.mismatch.works) != 1:
        return ""
    (way,) = failure.mismatch.works
    tree = statement_of(way)
    if finding.remedy != f"`{way}`" or _LAYER.match(way) or not isinstance(tree, ast.Expr):
        return ""
    replaced = failure.call if isinstance(tree.value, ast.BinOp) else ""
    if isinstance(tree.value, ast.Call) and isinstance(tree.value.func, ast.Attribute):
        if called_function(tree.value) in {"view", "reshape", "flatten"} and call_on(line, "view", "reshape"):
            return ""  # it stands in place of the call, and its sizes are those of this batch
        replaced = ast.unparse(tree.value.func.value)
    place = only_place(line, replaced)
    return spliced(line, place, way) if place is not None else ""
