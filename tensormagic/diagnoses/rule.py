"""What a rule is, and what rules share: which findings come first, what a run holds, phrases."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tensormagic.diagnoses.lines import SIGNS, as_code, call_on, text_of
from tensormagic.reports import (
    SEVERITIES,
    Finding,
    IdleOptimizer,
    LeftOut,
    Location,
    Observation,
    ObservationKind,
    OptimizerUse,
    ParameterSeries,
    RelatedLine,
    Report,
    Severity,
    TraceReport,
    Training,
)
from tensormagic.words import count, plural, tidy_exponent

# What a diagnosis is: a function from a report to findings, with the code it may give and what it is about.


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table of diagnoses."""

    code: str  # The code its findings carry.
    title: str  # The symptom, in a few words.
    reads: type[Report]  # The type of report it reads.
    check: Callable[[Any], Iterable[Finding]]  # Yields findings; pure: the same report gives the same findings.
    # What a report must have, or it is not asked: a field, one of a field, as ``training.clips``; ``a or b`` is either.
    needs: str = ""
    says: str = ""  # What torch's message must say, or it is not asked, of a call that was refused.


# What a user wants silenced: codes in a comment on the line, or switched off for the session.
#
# ``# tm: ignore[TM201]`` at the end of a line silences that code where the line is the one that the finding is about,
# or one that it names; several codes are separated by commas, the first digits stand for a family (``TM2``), and ``#
# tm: ignore`` alone silences them all.

_COMMENT = re.compile(r"#\s*tm:\s*ignore(?:\[([^\]]*)\])?")
_CODE = re.compile(r"TM\d{0,3}")


def codes_of(text: str) -> tuple[str, ...]:
    """Return the codes, or first parts of codes, that a setting names: separated by commas or blanks.

    Raises:
        ValueError: for anything that is not a code.
    """
    codes = tuple(part.upper() for part in re.split(r"[,\s]+", text.strip()) if part)
    for code in codes:
        if not _CODE.fullmatch(code):
            raise ValueError(f"codes look like TM201, or TM2 for a family, separated by commas; not {code!r}")
    return codes


def is_silenced(finding: Finding, ignored: Iterable[str]) -> bool:
    """Return whether the user silenced this finding: in a comment on one of its lines, or by ``ignored`` codes."""
    lines = [line.location for line in finding.related]
    texts = [line.text for line in (finding.location, *lines) if line is not None]
    return _names(ignored, finding.code) or any(_says_ignore(text, finding.code) for text in texts)


def _names(codes: Iterable[str], code: str) -> bool:
    return any(code.startswith(given) for given in codes)


def _says_ignore(text: str, code: str) -> bool:
    for listed in _COMMENT.findall(text):
        try:
            codes = codes_of(listed) or ("TM",)
        except ValueError:
            continue
        if _names(codes, code):
            return True
    return False


# What several reports of one run found, as one list: what is said twice is said once, one line's findings together.

_Line = tuple[str, int]


def joined(reports: Iterable[Report]) -> tuple[Finding, ...]:
    """Return the findings of all, the most severe first; those about one line follow one another."""
    found: list[Finding] = []
    for report in reports:
        known = {(finding.code, line_of(finding)) for finding in found}
        found += [one for one in report.findings if line_of(one) is None or (one.code, line_of(one)) not in known]
    found.sort(key=likelihood)
    lines = grouped(enumerate(found), lambda numbered: line_of(numbered[1]) or numbered[0])
    return tuple(finding for group in lines.values() for _, finding in group)


def line_of(finding: Finding) -> _Line | None:
    """Return the line that a finding is about."""
    return None if finding.location is None else (finding.location.filename, finding.location.line)


_MEASURED = frozenset({"TM312", "TM403", "TM404", "TM405", "TM601", "TM617"})
"""What gradients and weights did: another finding of the same run may say why, and comes first."""


def likelihood(finding: Finding) -> tuple[int, bool, str]:
    """Return the place of a finding among others: what is proven first, a cause before what was measured of it."""
    return SEVERITIES.index(finding.severity), finding.code in _MEASURED, finding.code


FEWEST_STEPS = 3  # fewer are no loop, and no habit
IN_A_ROW = 2  # steps; a single one may be meant

# Small phrases that several diagnoses use: norms (all other numbers are written by `tensormagic.words`), parameters
# with the fewest names, steps and calls.


def scientific(value: float) -> str:
    """Return a norm the way it is compared, with three significant digits: ``0.847``, ``1.58e−26``, ``3.36e28``."""
    if 1000 <= value < 1e6:
        return count(round(value))
    return tidy_exponent(f"{value:.3g}")


def passes_words(report: TraceReport) -> str:
    """Return how many passes there were, and how many of them were traced."""
    passes = plural(report.passes_seen, "backward pass", "backward passes")
    if report.passes_traced < report.passes_seen:
        return f"the {count(report.passes_traced)} traced of {passes}"
    return passes


def shortest(missing: Sequence[str], of: Sequence[str]) -> list[str]:
    """Return the missing names, those of a module that misses all it has (two or more) as the module alone."""
    inside, missed = (Counter(module for name in names for module in _above(name)) for names in (of, missing))
    places: dict[str, None] = {}
    for name in missing:
        whole = (module for module in _above(name) if 1 < inside[module] == missed[module])
        places[next(whole, name)] = None
    return list(places)


def to_freeze(names: Sequence[str], owner: str = "") -> str:
    """Return what to do where no gradient is wanted, with code where what they belong to is a name, and no class."""
    it, they = ("it", "it") if len(names) == 1 else ("them", "they")
    code = ", ".join(f"`{as_code(name)}.requires_grad_(False)`" for name in names[:3]) + (", …" if names[3:] else "")
    if owner[:1].isupper():
        code = "`requires_grad_(False)`"
    return f"If {they} should stay fixed, freeze {it}: {code}."


def _above(name: str) -> Iterator[str]:
    """Yield the paths of the modules that a parameter lies in, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


# What the rules about single calls share: how often a thing was seen, and who is who, in words.


def observed(report: TraceReport, kind: ObservationKind) -> Iterator[Observation]:
    """Yield what was seen of one kind, where the user's line is known: a finding without a line helps nobody."""
    return (one for one in report.observations if one.kind == kind and one.location is not None)


def every_call(one: Observation) -> bool:
    """Whether it was so in every call that was looked at."""
    return one.seen == one.looked


def times(one: Observation) -> int:
    """Return in how many calls of the line it was so; of those only counted, the same share as of the rest."""
    return one.calls if every_call(one) else round(one.calls * one.seen / one.looked)


def how_often(one: Observation) -> str:
    """Return ``"in its one call"``, ``"in each of its 6 calls"`` or ``"in 3 of the 7 calls looked at"``."""
    if not every_call(one):
        return f"in {count(one.seen)} of the {plural(one.looked, 'call')} looked at"
    if one.calls == 1:
        return "in its one call"
    return f"in both of its {one.calls} calls" if one.calls == 2 else f"in each of its {count(one.calls)} calls"


def expression(one: Observation) -> str:
    """Return a call of two operands as a user would write it, with the names that are known."""
    left, right = (operand.name or "…" for operand in one.operands[:2])
    sign = SIGNS.get(one.op)
    if left == right == "…":
        return one.op
    return f"{one.op}({left}, {right})" if sign is None else f"{_wrapped(left)} {sign} {_wrapped(right)}"


def _wrapped(name: str) -> str:
    return f"({name})" if " " in name and not name.endswith((")", "]")) else name


def optimizer_code(use: OptimizerUse | IdleOptimizer, line: Location | None = None) -> str:
    """Return an optimizer as code names it: the user's name, else what a line steps or clears, or ``optimizer``."""
    call = call_on(text_of(line), "step", "zero_grad")
    given = ast.unparse(call.func.value) if call and not call.args and isinstance(call.func, ast.Attribute) else ""
    is_class = use.name == use.type_name if isinstance(use, OptimizerUse) else use.name[:1].isupper()
    return given or "optimizer" if is_class or not use.name.isidentifier() else use.name


def clipping(report: TraceReport, owner: str = "") -> str:
    """Return the call that clips, with the name of the model that is trained."""
    owners = dict.fromkeys(series.owner for series in report.parameters if series.touched and series.owner)
    owner = owner or (next(iter(owners)) if len(owners) == 1 else "")
    whose = f"{as_code(owner)}.parameters()" if owner and not owner[0].isupper() else "parameters"
    return f"torch.nn.utils.clip_grad_norm_({whose}, 1.0)"


def training_of(report: TraceReport) -> Training:
    """Return what the training loop of a run did: nothing, where nothing was trained."""
    return report.training or Training()


def whole_training(report: TraceReport) -> Training | None:
    """Return what is known of the training, where that is all there was to see of it."""
    training = report.training
    whole = report.passes_traced == report.passes_seen
    if training is None or training.elsewhere is None or not whole:
        return None
    return training if training.optimizers_seen == len(training.optimizers) else None


def optimizers_of(report: TraceReport) -> tuple[OptimizerUse, ...]:
    """Return the optimizers that made steps in a run."""
    return training_of(report).optimizers


def updaters_of(report: TraceReport) -> list[OptimizerUse]:
    """Return the optimizers that made steps in a run, and updates by hand as if an optimizer made them."""
    by_hand = training_of(report).by_hand
    return [*optimizers_of(report), *([by_hand] if by_hand is not None else [])]


def held_by(report: TraceReport, *uses: OptimizerUse | IdleOptimizer) -> list[ParameterSeries]:
    """Return the parameters of models that some optimizers hold, as far as the run knows them."""
    return [report.parameters[number] for use in uses for number in use.holds]


def kept_by(report: TraceReport, *uses: OptimizerUse) -> list[ParameterSeries]:
    """Return what optimizers hold, without what is in no model any more."""
    return [report.parameters[number] for use in uses for number in use.holds if number not in use.outlived]


def is_idle(use: OptimizerUse) -> bool:
    """Return whether no step had a gradient: none of the last ones, where its model was made anew in the run."""
    last = [one for one in use.patterns if one.last == use.steps and one.longest >= FEWEST_STEPS]
    steps = last if use.outlived else use.patterns
    return bool(steps) and all(pattern.kind in {"idle", "unseen"} for pattern in steps)


def in_steps(number: int, of: int) -> str:
    """Return ``"in all of its 6 steps"`` or ``"in 5 of its 6 steps"``."""
    if number < of:
        return f"in {count(number)} of its {plural(of, 'step')}"
    return {1: "in its one step", 2: "in both of its steps"}.get(number, f"in all of its {count(number)} steps")


def step_line(report: TraceReport, *uses: OptimizerUse) -> Location | None:
    """Return the first line that is known to make a step of one of these optimizers."""
    return report.location(next((pattern.location for use in uses for pattern in use.patterns), None))


COPIED = re.compile(
    r"(?:^|_)(?:target|tgt|teacher|ema|frozen|reference|best)(?:_|$)|(?:target|ema|best)$", re.IGNORECASE
)
"""The name of what is meant to be a copy of a network."""


def twin_of(report: TraceReport, owner: str, parts: Sequence[ParameterSeries | LeftOut], among: Iterable[str]) -> str:
    """Return which of some models has parameters of the names and shapes of these; empty where none has."""
    mine = {part.name.removeprefix(owner): part.shape for part in parts}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for series in report.parameters:
        shapes.setdefault(series.owner, {})[series.name.removeprefix(series.owner)] = series.shape
    return next((name for name in among if name and mine.items() <= shapes.get(name, {}).items()), "")


def is_floating(dtype: str) -> bool:
    """Whether a dtype is one of real floating point numbers."""
    return dtype.startswith(("float", "bfloat"))


def is_differentiable(dtype: str) -> bool:
    """Whether tensors of a dtype can have gradients."""
    return is_floating(dtype) or dtype.startswith("complex")


_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return what has one key together, in the order in which it came."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def related_lines(*described: tuple[str, Location | None], besides: Location | None = None) -> tuple[RelatedLine, ...]:
    """Return the lines that are known, with what is said of each; without the one that stands ``besides`` them."""
    return tuple(RelatedLine(what, place) for what, place in described if place is not None and place != besides)


def about_calls(  # noqa: PLR0913, PLR0917  (a finding about what was observed, by what differs)
    report: TraceReport, code: str, one: Observation, severity: Severity, message: str, remedy: str, made: str = ""
) -> Finding:
    """Return the finding about calls of one line; what is said of the line that ``made`` their operand, where it is."""
    here, before = report.location(one.location), report.location(one.made)
    return Finding(
        code=code,
        severity=severity,
        message=message,
        location=here,
        evidence={"calls": one.calls, "looked at": one.looked, "seen": one.seen},
        remedy=remedy,
        subject=one.operands[0].name if one.operands else one.op,
        related=related_lines((made, before if made else None), besides=here),
    )
