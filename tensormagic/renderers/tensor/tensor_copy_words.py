"""Copy or view, in words: what the panel and the terminal say of the result of an expression."""

from __future__ import annotations

from tensormagic.reports import CopyVerdict, Sharing, Step
from tensormagic.words import count, listed, number_of_bytes, plural

WORDS = {
    "same object": "Same object",
    "view": "View",
    "same storage": "View",
    "copy": "Copy",
    "new": "New memory",
    "separate": "Separate memory",
    "unknown": "Cannot tell",
}
_NAMED = 3  # operands that a sentence names


def word(verdict: CopyVerdict) -> str:
    """Return the verdict in a word or two."""
    return WORDS[verdict.outcome]


def sentence(verdict: CopyVerdict) -> str:
    """Return what a write would change, with the exact number of elements."""
    sharing = [operand for operand in verdict.operands if operand.shares]
    if verdict.outcome == "same object":
        same = next(operand for operand in sharing if operand.relation == "same object")
        written = any(step.outcome == "written in place" for step in verdict.steps)
        return f"the result is `{same.name}` itself" + (
            ", written to in place" if written else ": no new tensor was made"
        )
    if sharing:
        return f"shares {listed(map(_shared, sharing), most=_NAMED)}{_writing(sharing)}"
    return _apart(verdict)


def _shared(operand: Sharing) -> str:
    name, shared, of = f"`{operand.name}`", operand.elements, operand.of_elements
    if operand.relation == "may overlap":
        return f"the storage of {name} and may overlap it"
    if shared is None or of is None:
        return f"memory with {name}"
    if shared >= of:
        return f"the one element of {name}" if of == 1 else f"all {count(of)} elements of {name}"
    return f"{count(shared)} of the {count(of)} elements of {name}"


def _writing(sharing: list[Sharing]) -> str:
    if all(operand.relation == "may overlap" for operand in sharing):
        return ""
    transparent = sharing[0].shares_version is False
    return ": writing to one changes the other" + (", and autograd does not notice" if transparent else "")


def _apart(verdict: CopyVerdict) -> str:
    if not verdict.operands:
        return "the expression names no tensor or array to share memory with"
    unknown = [operand for operand in verdict.operands if operand.relation == "unknown"]
    if unknown:
        return f"its memory cannot be compared with {_names(unknown)}"
    beside = [operand for operand in verdict.operands if operand.relation == "same storage"]
    if beside:
        return f"uses the storage of {_names(beside)}, but shares no elements with it"
    names = _names(verdict.operands, verdict.more_operands)
    return f"shares no memory with {names}: writing to it leaves {names} alone"


def _names(operands: tuple[Sharing, ...] | list[Sharing], more: int = 0) -> str:
    return listed((f"`{operand.name}`" for operand in operands), most=_NAMED, found=len(operands) + more)


def cost(verdict: CopyVerdict) -> str:
    """Return how many bytes were copied on the way, or nothing."""
    return f"{number_of_bytes(verdict.copied_bytes)} copied" if verdict.copied_bytes else ""


def outcome(step: Step) -> str:
    """Return what a step gave: ``view of `x```, ``copy, 48 B``, ``new, 48 B``."""
    if step.outcome in {"copy", "new"}:
        return f"{step.outcome}, {number_of_bytes(step.nbytes)}"
    if step.outcome == "same object" and step.of.isidentifier():
        return f"`{step.of}` itself"
    if step.outcome == "view" and step.of.isidentifier():
        return f"view of `{step.of}`"
    return {"separate": "separate memory", "unknown": "cannot tell"}.get(step.outcome, step.outcome)


def left_out(verdict: CopyVerdict) -> str:
    """Return how many steps are not shown, or nothing."""
    return f"{plural(verdict.more_steps, 'earlier step')} not shown" if verdict.more_steps else ""
