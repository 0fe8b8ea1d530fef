"""Whether the result of an expression shares memory with what it was made from: step by step, and in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["same object", "view", "written in place", "copy", "new", "separate", "unknown"]
Verdict = Literal["same object", "view", "same storage", "copy", "new", "separate", "unknown"]
Relation = Literal["same object", "overlap", "may overlap", "same storage", "separate", "unknown"]


@dataclass(frozen=True, slots=True)
class Step:
    """One call, index or attribute of an expression.

    Attributes:
        code: As it stands in the expression: ``"x.t()"``, ``".contiguous()"``, ``"[1:]"``.
        outcome: ``"same object"`` (an input was returned as it is), ``"view"`` (other sizes or strides over the memory
            of an input), ``"written in place"`` (the same object, changed), ``"copy"`` (values of the inputs in new
            memory), ``"new"`` (computed into new memory), ``"separate"`` (shares nothing with its inputs; whether the
            memory is new is not known, for a function of the person's own made it), ``"unknown"`` (it has no memory
            that can be compared).
        of: The input it shares memory with, as it stands in the expression; empty where with none.
        nbytes: Bytes of the result where it is in new memory, else 0.
        reason: Why so, in words with code between backticks; empty where there is nothing to add.
    """

    code: str
    outcome: Outcome
    of: str = ""
    nbytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a result has in common with one operand.

    Attributes:
        name: The operand: ``"x"``, ``"net.weight"``, ``"batch[0]"``.
        relation: ``"same storage"`` says that they lie in one storage without an element in common.
        elements: How many different elements of the operand the result reaches; None where counting was given up.
        of_elements: How many different elements the operand has; None where counting was given up.
        shares_version: Whether both count writes on one version counter, so that autograd notices a write to either;
            None where that cannot be told, or where one of them has none (a NumPy array).
    """

    name: str
    relation: Relation
    elements: int | None = 0
    of_elements: int | None = None
    shares_version: bool | None = None

    @property
    def shares(self) -> bool:
        """Whether a write to the result can change the operand."""
        return self.relation in {"same object", "overlap", "may overlap"}


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """Whether a result shares memory with its operands.

    Attributes:
        name: The result: the expression that made it, or what it was called.
        operands: The verdict against each operand, those it shares with first.
        steps: How it came to that, call by call; empty where only the result was looked at.
        more_steps: How many earlier steps are left out.
        more_operands: How many operands are left out that share nothing.
    """

    name: str
    operands: tuple[Sharing, ...]
    steps: tuple[Step, ...] = ()
    more_steps: int = 0
    more_operands: int = 0

    @property
    def outcome(self) -> Verdict:
        """The verdict in a word."""
        relations = {operand.relation for operand in self.operands}
        if "same object" in relations:
            return "same object"
        if relations & {"overlap", "may overlap"}:
            return "view"
        if "same storage" in relations:
            return "same storage"
        if "unknown" in relations:
            return "unknown"
        made = [step.outcome for step in self.steps if step.outcome in {"copy", "new", "separate"}]
        return made[-1] if made else "separate"

    @property
    def shares_with(self) -> tuple[str, ...]:
        """The operands that a write to the result can change."""
        return tuple(operand.name for operand in self.operands if operand.shares)

    @property
    def copied_bytes(self) -> int:
        """Bytes that the steps copied from one place in memory to another."""
        return sum(step.nbytes for step in self.steps if step.outcome == "copy")
