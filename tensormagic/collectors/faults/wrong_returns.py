"""Explains what autograd refuses of a custom Function's backward: which gradient, of which argument, on which line."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import re
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

from torch.autograd.function import BackwardCFunction, Function

from tensormagic.reports.backward_faults import ReturnProblem, WrongReturn
from tensormagic.reports.finding import Location


class Complaint(NamedTuple):
    """One of autograd's complaints.

    Attributes:
        problem: What it is about.
        pattern: Its words; groups ``node``, ``index``, ``got`` and ``expected`` where they say so.
    """

    problem: ReturnProblem
    pattern: re.Pattern[str]


_NODE = r"[Ff]unction (?P<node>\S+) returned "
_INVALID = _NODE + r"an invalid gradient at index (?P<index>\d+) - "
# The words of torch's python_function.cpp and engine.cpp.
_PATTERNS: tuple[tuple[ReturnProblem, str], ...] = (
    ("count", _NODE + r"an incorrect number of gradients \(expected (?P<expected>\d+), got (?P<got>\d+)\)"),
    ("not None", _NODE + r"a gradient different than None at position (?P<position>\d+), but"),
    ("shape", _INVALID + r"got (?P<got>\[.*?\]) but expected shape compatible with (?P<expected>\[.*?\])"),
    ("device", _INVALID + r"expected device (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", _INVALID + r"expected type (?P<expected>\S+) but got (?P<got>\S+)"),
    ("dtype", r"Expected isFloatingType\(grad\.scalar_type\(\)\) \|\| \(input_is_complex == grad_is_complex\)"),
    ("layout", _INVALID + r"expected layout (?P<expected>\S+) but got (?P<got>\S+)"),
    ("not a tensor", r"expected Variable or None \(got (?P<got>\S+?)\)"),
)
_COMPLAINTS = tuple(Complaint(problem, re.compile(pattern)) for problem, pattern in _PATTERNS)


def is_about_a_return(error: BaseException) -> bool:
    """Return whether autograd may be complaining of what a custom Function's backward returned."""
    return isinstance(error, RuntimeError) and any(one.pattern.search(str(error)) for one in _COMPLAINTS)


def wrong_return(
    error: BaseException,
    nodes: Sequence[Any],
    reached: int | None,
    location: Callable[[int], Location | None],
    locate: Callable[[str, int, str], Location],
) -> WrongReturn | None:
    """Return what is known of a return that autograd refuses; None where no custom Function can have made it.

    Args:
        error: What was raised.
        nodes: The live nodes of the backward.
        reached: Place of the node that the engine reached last; None where that is not known.
        location: Gives the line of the node with a sequence number.
        locate: Makes a location of a file name, a line and the name of a function.
    """
    found = next(((one.problem, told) for one in _COMPLAINTS if (told := one.pattern.search(str(error)))), None)
    place = _place(nodes, reached, found[1].groupdict().get("node") if found else None)
    if found is None or place is None:
        return None
    problem, told = found
    groups, kind = told.groupdict(), type(nodes[place])._forward_cls
    arguments = _arguments(kind)
    return WrongReturn(
        function=kind.__name__, problem=problem, arguments=arguments,
        argument=_argument(nodes[place], groups, arguments), got=_shown(groups.get("got")),
        expected=_shown(groups.get("expected")), location=location(nodes[place]._sequence_nr()), node=place,
        returns=tuple(locate(*line) for line in _returns(kind, problem, groups.get("got"))),
    )  # fmt: skip


def _place(nodes: Sequence[Any], reached: int | None, name: str | None) -> int | None:
    """Return the place of the custom Function's node that the complaint is about; None where it is about another."""
    places = range(len(nodes)) if reached is None else (reached, *range(len(nodes)))
    custom = [at for at in dict.fromkeys(places) if _is_the_persons(nodes[at])]
    if name is None:
        return custom[0] if custom and (reached == custom[0] or len(custom) == 1) else None
    return next((at for at in custom if nodes[at].name() == name), None)


def _is_the_persons(node: Any) -> bool:
    kind = getattr(type(node), "_forward_cls", None)
    return isinstance(node, BackwardCFunction) and not str(getattr(kind, "__module__", "torch.")).startswith("torch.")


def _arguments(kind: Any) -> tuple[str, ...]:
    """Return the names of the forward's arguments; those after the context, where it is given one."""
    try:
        names = list(inspect.signature(kind.forward).parameters)
        separate = kind.setup_context is not Function.setup_context
    except (TypeError, ValueError, AttributeError):
        return ()
    return tuple(names if separate else names[1:])


def _argument(node: Any, groups: dict[str, str | None], arguments: tuple[str, ...]) -> str:
    """Return whose gradient it is. Autograd's index counts tensors alone; those that need a gradient are known."""
    if position := groups.get("position"):
        at = int(position) - 1
    elif index := groups.get("index"):
        needed = [at for at, needs in enumerate(node.needs_input_grad) if needs]
        rank = sum(target is not None for target, _ in node.next_functions[: int(index) + 1]) - 1
        at = needed[rank] if 0 <= rank < len(needed) else -1
    else:
        return ""
    return arguments[at] if 0 <= at < len(arguments) else ""


def _shown(text: str | None) -> str:
    """Return a shape as Python writes it, anything else as torch does."""
    if not text or not text.startswith("["):
        return text or ""
    sizes = text.strip("[]").replace(" ", "").split(",")
    return f"({sizes[0]},)" if len(sizes) == 1 and sizes[0] else f"({', '.join(sizes)})"


def _returns(kind: Any, problem: str, got: str | None) -> list[tuple[str, int, str]]:
    """Return file, line and function of where the backward returns; those that return so many, where that is known."""
    code = getattr(inspect.unwrap(kind.backward), "__code__", None)
    if not isinstance(code, CodeType):
        return []
    lines = _return_lines(code)
    counts = _counts(code) if problem == "count" and got else {}
    chosen = [line for line in lines if str(counts.get(line)) == got] or lines
    return [(code.co_filename, line, code.co_name) for line in chosen]


def _return_lines(code: CodeType) -> list[int]:
    """Return the lines of the ``return`` statements in a function's source; without it, those of its instructions."""
    if tree := _tree(code):
        inside = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
        return sorted({node.lineno for node in inside})
    line, found = code.co_firstlineno, set()
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line if type(instruction.starts_line) is int else line
        if instruction.opname == "RETURN_VALUE":
            found.add(line)
    return sorted(found)


def _counts(code: CodeType) -> dict[int, int]:
    """Return how many values each of the ``return`` statements names: line → count."""
    tree = _tree(code)
    returned = [node for node in ast.walk(tree) if isinstance(node, ast.Return)] if tree else []
    return {
        node.lineno: len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1 for node in returned if node.value
    }


def _tree(code: CodeType) -> ast.FunctionDef | None:
    """Return the function's syntax tree; None where its source cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    inside = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == code.co_name)
    return next((node for node in inside if _first_line(node) == code.co_firstlineno), None)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
