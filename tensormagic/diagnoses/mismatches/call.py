"""A refused call: its operands by name, role and place, how to write them, and the parts that do not fit.

`OPERANDS` are the names by which rows and functions of the table (`table.py`) ask for operands, `FUNCTIONS` what the
expressions of a row can call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

from tensormagic.diagnoses.lines import SIGNS, as_code, call_on, expression_of, expressions, keyword_of, set_keyword
from tensormagic.diagnoses.rule import is_differentiable, is_floating
from tensormagic.reports import Clashing, FailureReport, Mismatch, Operand
from tensormagic.reports.failure import PLAIN_NAMES, MismatchKind
from tensormagic.reports.storage import resolved, why_not
from tensormagic.words import article, binding, capitalised, count, listed, plural

# What torch calls an operand (``weight``) is known where the collector found it; otherwise its place among the
# arguments says it. The user's own name for it is what sentences and code use.

Shape = tuple[int, ...]
ValueT = TypeVar("ValueT")

_NUMBER = re.compile(r"-?\d+")
# What functions do with their operands: combine them element by element, or multiply matrices or vectors.
_FAMILIES = {
    "elementwise": "add sub mul div true_divide truediv pow maximum minimum where eq ne lt le gt ge atan2 fmod "
    "remainder lerp and or xor mse_loss l1_loss smooth_l1_loss huber_loss",
    "product": "matmul mm mv dot addmm bmm spmm inner", "linear": "linear",
}  # fmt: skip
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split(" ")}
_SCALARS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "long int": "int64", "unsigned char": "uint8",
    "signed char": "int8", "complexfloat": "complex64", "complexdouble": "complex128",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::half": "float16",
    "c10::bfloat16": "bfloat16", "complexhalf": "complex32", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
}  # fmt: skip
_METHODS = {"float32": ".float()", "float64": ".double()", "int64": ".long()", "float16": ".half()", "bool": ".bool()",
            "int32": ".int()", "bfloat16": ".bfloat16()"}  # fmt: skip
_OF_SIGN = {sign: word for word, sign in SIGNS.items()}
_QUOTED = re.compile(r"`([^`]+)`")
_PLACE = re.compile(r"^.*\[(\d+)\]$")
_WORDS = {"self": "tensor", "hx": "hidden state"}
_PARAMETER = re.compile(r"[\w.\[\]]+\.(?:in_proj_)?(?:weight|bias|running_mean)(?:_ih|_hh)?(?:_l\d+)?")
_HANDED_ON = "the input of "
_RESULT = "the result of "
_CLASS = re.compile(r"[A-Z]\w*[a-z]")


class Given:
    """One operand of a call: what is known of it, most of it at hand here as well, and which argument it is."""

    def __init__(self, index: int, operand: Operand, position: int) -> None:
        self.index, self.operand = index, operand  # the index is that among the report's operands
        self.position = position  # among the arguments, from 0; members of a list share theirs
        self.shape, self.dtype, self.device = operand.shape, operand.dtype, operand.device
        self.role, self.place, self.text = operand.role, operand.place, operand.text
        self.is_tensor, self.ndim, self.numel = operand.is_tensor, len(operand.shape), prod(operand.shape)

    @property
    def name(self) -> str:
        """How a sentence names it: as the user does, else by what torch calls it, else by its place."""
        name, word = self.operand.name, _WORDS.get(self.role, self.role.replace("_", " "))
        if name.startswith(_HANDED_ON) and self.role not in {"", "self", "input"}:
            return f"the {word} of {name.removeprefix(_HANDED_ON)}"
        if name or self.place:
            return name or _PLACE.sub(r"tensor \1 of the list", self.place)
        return f"the {word}" if word else f"operand {self.position + 1}"

    @property
    def code(self) -> str:
        """How code writes it; ready to take an attribute or an index."""
        quoted = _QUOTED.search(self.operand.name)
        text = quoted[1] if quoted else self.operand.name
        if expression_of(text) is None:
            return self.place or PLAIN_NAMES.get(self.role, self.role) or "x"
        return binding(text)

    @property
    def before(self) -> str:
        """The layer of an ``nn.Sequential`` whose result it is: no code of the user's names it."""
        text = self.operand.name.removeprefix(_RESULT)
        return text if text != self.operand.name and not text.startswith("`") else ""

    @property
    def can_be_assigned(self) -> bool:
        """Whether a line can give its name another value: not that of a call's result."""
        return bool(self.operand.name) and not self.code.endswith(")")

    def __str__(self) -> str:
        """Return its name and its shape: ``x (32 × 784)``."""
        return f"{self.name} ({sizes(self.shape)})"

    def __getitem__(self, dimension: int) -> int:
        """Return one of its sizes; raises IndexError where it has no such dimension."""
        return self.shape[dimension]

    # The parts of a mismatch: what of an operand does not fit.

    def size(self, dimension: int, expected: object = "", got: object = None) -> Clashing:
        """Return one dimension as a part of a mismatch; raises IndexError where there is no such dimension."""
        own = self[dimension]
        return Clashing(self.index, dimension % self.ndim, str(own if got is None else got), str(expected))

    def whole(self, got: object = "", expected: object = "") -> Clashing:
        """Return the operand as a whole as a part of a mismatch."""
        return Clashing(self.index, None, str(got), str(expected))

    def dims(self, expected: object) -> Clashing:
        """Return how many dimensions there are as a part of a mismatch."""
        return self.whole(f"{self.ndim}-D", f"{expected}-D")

    def against(self, at: int, other: Given, there: int) -> list[Clashing]:
        """Return two parts of a mismatch: a dimension of each of two operands must be equal."""
        return [self.size(at, other.shape[there]), other.size(there, self.shape[at])]


def sizes(shape: Shape) -> str:
    """Return a shape in words: ``"32 × 784"``, ``"3"``, ``"0-dimensional"``."""
    return " × ".join(map(str, shape)) or "0-dimensional"


def as_args(shape: Shape) -> str:
    """Return a shape as code that goes between the parentheses of ``reshape``."""
    return ", ".join(map(str, shape))


class Call:
    """A failed call: its function in one word, torch's message, and what it was given."""

    def __init__(self, report: FailureReport) -> None:
        self.report, self.error = report, report.error
        last = report.function.strip().rsplit(".", 1)[-1].strip("()")
        self.function = _OF_SIGN.get(last, last.strip("_") or last)  # "matmul", "getitem": no underscores around it
        self.family = _FAMILY_OF.get(self.function, "")  # "elementwise", "product" or "linear", else empty

    @property
    def title(self) -> str:
        """The function as a sentence names it."""
        sign = SIGNS.get(self.function, "")
        dunder = self.report.function.rsplit(".", 1)[-1].startswith("__")
        if self.function in {"getitem", "setitem"}:
            return "indexing"
        return sign if sign and dunder else self.report.function or "the call"

    @property
    def short_title(self) -> str:
        """The function as a person writes it."""
        return self.title.replace("torch.nn.functional.", "F.")

    @cached_property
    def given(self) -> tuple[Given, ...]:
        """Everything that was given, tensor or not."""
        found, group = list[Given](), ""
        for index, operand in enumerate(self.report.operands):
            base, inside, _ = operand.place.partition("[")
            position = found[-1].position + (not inside or base != group) if found else 0
            group = base if inside else ""
            found.append(Given(index, operand, position))
        return tuple(found)

    @cached_property
    def tensors(self) -> tuple[Given, ...]:
        """The tensors of which anything is known, less what the result was to be written to."""
        return tuple(one for one in self.given if one.is_tensor and one.dtype and one.role != "out")

    def tensor(self, roles: str, position: int = -1) -> Given | None:
        """Return a tensor by what torch calls it (``"input|self"``), else by its place among the arguments."""
        named = [one for one in self.tensors if one.role in roles.split("|")]
        placed = [one for one in self.tensors if one.position == position and one.role not in _KEYWORDS]
        return next(iter(named + placed), None)

    def every(self, condition: Callable[[Given], object]) -> list[Given]:
        """Return the tensors for which a condition holds."""
        return [one for one in self.tensors if condition(one)]

    def value(self, roles: str, position: int = -1) -> str:
        """Return an argument that is not a tensor, as text; empty where it was not given."""
        plain = [one for one in self.given if not one.is_tensor]
        named = [one.text for one in plain if one.role in roles.split("|")]
        return [*named, *(one.text for one in plain if one.position == position and not one.role), ""][0]

    def number(self, roles: str, position: int = -1) -> int | None:
        """Return an argument that is a whole number; None where it is not given, or is none."""
        text = self.value(roles, position)
        return int(text) if text.lstrip("-").isdigit() else None

    def argument(self, role: str) -> Given | None:
        """Return an argument, tensor or not, by what torch calls it."""
        return next((one for one in self.given if one.role == role), None)

    def written(self, keyword: str) -> str:
        """Return what the user's own call gives for a keyword, as it is written there; empty where it gives none."""
        body = expression_of(self.report.call)
        given = keyword_of(body, keyword) if isinstance(body, ast.Call) else None
        return ast.unparse(given) if given is not None else ""

    def layer_with(self, argument: str, value: Any, *, position: int = 0) -> list[str]:
        """Return the call that makes the layer, with another value for one argument and all others as they are.

        What is given for it by a name, or computed, stays as it is written, and the value stands beside the call.
        """
        body = expression_of(self.report.layer_call)
        if not isinstance(body, ast.Call):
            return []
        given, keyword = keyword_of(body, argument), True
        if given is None and position < len(body.args) and ast.unparse(body.args[position]) != "...":
            given, keyword = body.args[position], False
        named = [node for node in ast.walk(given) if isinstance(node, ast.Name)] if given is not None else []
        if named and given is not None:
            return [f"{ast.unparse(body)}  # with {ast.unparse(given)} = {value}"]
        if keyword:
            set_keyword(body, argument, ast.Constant(value))
        else:
            body.args[position] = ast.Constant(value)
        groups = keyword_of(body, "groups") if argument == "in_channels" and given is not None else None
        if groups is not None and ast.unparse(groups) == ast.unparse(given or groups):  # each channel by itself
            set_keyword(body, "groups", ast.Constant(value))
        return [ast.unparse(body)]

    @property
    def written_arguments(self) -> list[str]:
        """What the user's own call gives, by place, as it is written there; none where that is not read."""
        body = expression_of(self.report.call)
        return [ast.unparse(each) for each in body.args] if isinstance(body, ast.Call) else []

    @property
    def arguments(self) -> str:
        """The same of the method that was refused, as code; empty where the user called another."""
        called = call_on(self.report.call, self.function)
        return ", ".join(self.written_arguments) if called is not None else ""

    def code_of(self, given: Given) -> str:
        """Return an operand as the user's call writes it: ``self.scale`` where its path is ``net.scale``."""
        ending = f".{given.code.rpartition('.')[2]}"
        own = {ast.unparse(node) for node in expressions(self.report.call) if isinstance(node, ast.Attribute)}
        found = [text for text in own if text.startswith("self.") and text.endswith(ending)]
        return found[0] if len(found) == 1 and "." in given.code else given.code

    @property
    def receiver(self) -> str:
        """What the method was called on, as the user's call writes it; empty where it is not a method."""
        body = expression_of(self.report.call)
        method = body.func if isinstance(body, ast.Call) else body
        return ast.unparse(method.value) if isinstance(method, ast.Attribute) else ""

    def with_keyword(self, name: str, keyword: str, value: bool | str) -> str:  # noqa: FBT001  (of any keyword)
        """Return the user's call of a function of torch's, ``torch.load``, with one more argument."""
        found = call_on(self.report.call, name.rpartition(".")[2])
        if found is None or not f".{name}".endswith(f".{ast.unparse(found.func)}"):
            return f"{name}(…, {keyword}={value!r})"
        set_keyword(found, keyword, ast.Constant(value))
        return ast.unparse(found)

    def of_shape(self, shape: Shape) -> Given | None:
        """Return the tensor that has this shape, if exactly one has."""
        found = [one for one in self.tensors if one.shape == shape]
        return found[0] if len(found) == 1 else None

    @property
    def layer(self) -> str:
        """The layer as code names it; empty where it has no name but that of its class."""
        return "" if _CLASS.match(self.owner) else self.owner

    @property
    def model(self) -> str:
        """The whole model that the layer is in, as code names it; empty where it has no name."""
        return self.layer.split(".", 1)[0]

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
    """Return what is there; raises IndexError where it is not, so that nothing is explained."""
    if value is None:
        raise IndexError
    return value


def numbers(text: str) -> Shape:
    """Return the whole numbers in a text, as a shape."""
    return tuple(int(found) for found in _NUMBER.findall(text))


def dtype_of(name: str) -> str:
    """Return the dtype that one of torch's C++ names means: Long is int64, double float64."""
    plain = name.strip().lower().removeprefix("torch.")
    return _SCALARS.get(plain.removesuffix("tensor"), name.strip())


def as_dtype(code: str, dtype: str) -> str:
    """Return the code that makes a tensor or a layer have this dtype."""
    return code + _METHODS.get(dtype, f".to(torch.{dtype})")


def unlike(one: Shape, other: Shape) -> list[int]:
    """Return the dimensions in which two shapes of as many dimensions differ."""
    return [at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right]


def clashing(one: Shape, other: Shape) -> list[int]:
    """Return the dimensions in which two shapes do not broadcast, counted from the right: -1 is the last."""
    both = range(1, min(len(one), len(other)) + 1)
    return [-at for at in both if one[-at] != other[-at] and 1 not in {one[-at], other[-at]}]


def mismatch(
    kind: MismatchKind, rule: str, *parts: Clashing, works: Iterable[str] = (), maybe: Iterable[str] = ()
) -> Mismatch:
    """Return a mismatch; its rule begins with a capital letter, and no way out is named twice."""
    ways, untried = (tuple(dict.fromkeys(filter(None, each))) for each in (works, maybe))
    return Mismatch(kind, capitalised(rule), parts, ways, untried)


# The names by which the table asks for operands, and where each is looked for.

Finder = Callable[[Call], Any]


def hidden_state(call: Call, shape: Shape = ()) -> Given | None:
    """Return the hidden state that a recurrent layer was given: of this shape, where one is asked for."""
    found = [one for one in call.tensors[1:] if not shape or one.shape == shape]
    named = (one for one in found if one.role.startswith(("hx", "h_0", "hidden")) or one.place)
    return next(iter([*named, *found]), None)


def _members(call: Call) -> list[Given]:
    """Return the tensors that are joined: those of a list, if there is one. Torch skips ``torch.empty(0)``.

    None are returned of a list of which one is not known: what they have in common is not, either.
    """
    inside = [one for one in call.tensors if one.place]
    if any(one.place and one.operand.name.startswith("the result of ") and not one.is_tensor for one in call.given):
        return []
    return [one for one in inside or call.tensors if one.shape != (0,)]


def _computed(call: Call) -> list[Given] | None:
    """Return the tensors and what was computed in the failing line, where one of them was."""
    given = [one for one in call.given if one.is_tensor or one.operand.name.startswith("the result of ")]
    return None if all(one.is_tensor for one in given) else given


# Tensors by what torch calls them, else by their place among the arguments.
_TENSORS = {
    "first": ("input|self", 0), "given": ("input", 0), "tensor": ("input|self|tensor|query", 0),
    "split": ("input|self|tensor", 0), "weight": ("weight", 1), "bias": ("bias", 2),
    # indices
    "index": ("index", 2), "indices": ("indices", 1), "src": ("src", 3), "source": ("source", 3),
    "repeats": ("repeats", 1), "start": ("start", 2), "value": ("value", 2),
    # losses and products
    "compared": ("input|self|log_probs", 0), "class_weight": ("weight", 2), "variance": ("var", 2),
    "matrix": ("input|self|A", 0),
    # layers
    "query": ("query", 0), "key": ("key", 1), "attn_mask": ("attn_mask", 3), "hx": ("hx", -1), "grid": ("grid", 1),
}  # fmt: skip
OPERANDS: Mapping[str, Finder] = {
    **{name: partial(Call.tensor, roles=roles, position=at) for name, (roles, at) in _TENSORS.items()},
    "left": lambda call: call.tensors[0],
    "right": lambda call: call.tensors[1],
    "third": lambda call: call.tensors[2],
    "number": lambda call: call.every(lambda one: not one.ndim)[0],
    "empty": lambda call: call.every(lambda one: 0 in one.shape)[0],
    "sparse": lambda call: call.every(lambda one: one.operand.layout.startswith("sparse"))[0],
    "only": lambda call: call.tensors[0] if len(call.tensors) == 1 else call.tensor("input|self", 0),
    "anything": lambda call: call.given[0],
    "computed": _computed,
    "members": _members,
    "outs": lambda call: [one for one in call.given if one.role == "out" or one.place.startswith("out")],
    "target": lambda call: call.tensor("target|targets", 2 if call.function == "linear_cross_entropy" else 1),
    "classes": lambda call: (1, *needed(call.tensor("input|self|log_probs", 0)).shape[:2])[-1],
    # The input of a recurrent layer is the first tensor that is none of its parameters.
    "sequence": lambda call: call.tensor("input", 0) or call.tensors[0],
    "hidden": hidden_state,
    # arguments that are no tensors
    "dim": lambda call: call.number("dim", 1),
    "dtype_given": lambda call: call.argument("dtype"),
    "layout_given": lambda call: call.argument("layout"),
    "mode_given": lambda call: call.argument("mode"),
}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        abs, as_args, as_code, as_dtype, article, clashing, count, dict, dtype_of, expression_of, hidden_state, int,
        is_differentiable, is_floating, len, listed, map, max, min, numbers, pairwise, plural, prod, range, resolved,
        sizes, sorted, str, sum, unlike, why_not, zip,
    )
}  # fmt: skip
