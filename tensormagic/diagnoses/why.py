"""``%why``: the first reason that holds for a gradient being what it is; of a module, its parameters by reason.

Not a rule: nothing is found to be wrong here, somebody asked. What is decided, and in which order, is two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensormagic.diagnoses import why_answers as absent
from tensormagic.diagnoses import why_answers as present
from tensormagic.diagnoses.rule import shortest
from tensormagic.diagnoses.why_question import Question
from tensormagic.reports import GradientFacts, TraceReport, WhyGroup, WhyReport
from tensormagic.words import is_or_are, listed, part_of, plural

MEANT = frozenset({"fine", "frozen", "scaled down"})

Check = Callable[[Question], "WhyReport | None"]

ABSENT: tuple[Check, ...] = (
    absent.not_asked, absent.not_a_leaf, absent.cut_off, absent.cleared, absent.refused, absent.asked_for_others,
    absent.not_from_this_loss, absent.gone_through, absent.no_backward_yet, absent.unused, absent.nothing_known,
)  # fmt: skip
PRESENT: tuple[Check, ...] = (
    present.not_finite, present.zero, present.scaled, present.accumulated, present.scaled_down, present.fine,
)  # fmt: skip


def explain(facts: GradientFacts, trace: TraceReport | None = None) -> WhyReport:
    """Return why the gradient of a tensor is what it is: the first reason that holds."""
    question = Question(facts, trace)
    checks = PRESENT if facts.grad == "present" and facts.requires_grad else ABSENT
    return next(answer for check in checks if (answer := check(question)) is not None)


def explain_module(name: str, every: Iterable[GradientFacts], trace: TraceReport | None = None) -> WhyReport:
    """Return the parameters of a module by the reason for which their gradients are what they are."""
    answers = [explain(facts, trace) for facts in every]
    groups: dict[tuple[str, object], list[WhyReport]] = {}
    for answer in answers:
        groups.setdefault((answer.reason, answer.location), []).append(answer)
    names = [answer.name for answer in answers]
    described = tuple(_group(reason, found, names) for (reason, _), found in groups.items())
    return WhyReport(
        name=name, reason=described[0].reason if len(described) == 1 else "several",
        answer=_says(name, answers, described),
        groups=tuple(sorted(described, key=lambda group: group.fine)), source=max(answer.source for answer in answers)
        if answers else "", evidence=_findings(trace) if any(answer.source for answer in answers) else (),
        remedy=answers[0].remedy if len(described) == 1 and not described[0].fine else (),
    )  # fmt: skip


def _says(name: str, answers: list[WhyReport], groups: tuple[WhyGroup, ...]) -> str:
    """Return the sentence over the groups."""
    if not answers:
        return f"{name} has no parameters: there is no gradient to ask about."
    amiss = sum(group.count for group in groups if not group.fine)
    if not amiss:
        return _all_in_order(name, groups)
    if len(groups) == 1:
        return f"The same holds for {part_of(len(answers), len(answers), 'parameter')} of {name}: {answers[0].answer}"
    has = "has" if amiss == 1 else "have"
    which = part_of(amiss, len(answers), "parameter")
    return f"{which[0].upper()}{which[1:]} of {name} {has} no gradient, or a faulty one."


def _findings(trace: TraceReport | None) -> tuple[str, ...]:
    """Return what else was found in the run, as a sentence each: gradients may be in order where training is not."""
    found = trace.findings if trace is not None else ()
    return tuple(f"{one.code}: {one.message}" for one in found if one.severity != "note")


def _all_in_order(name: str, groups: tuple[WhyGroup, ...]) -> str:
    """Return that nothing is amiss with the gradients that are there, and what has none on purpose."""
    frozen = [group for group in groups if group.reason == "frozen"]
    if not frozen:
        return f"Nothing is wrong with the gradients of {name}."
    count = sum(group.count for group in frozen)
    which = listed([each for group in frozen for each in group.names])
    if len(frozen) == len(groups):
        return f"{name} is frozen: none of its {plural(count, 'parameter')} requires a gradient."
    kept = f"{plural(count, 'parameter')} {is_or_are(count)} frozen: {which}."
    return f"Nothing is wrong with the gradients of {name} that are there; {kept}"


def _group(reason: str, found: list[WhyReport], names: list[str]) -> WhyGroup:
    mine = shortest([answer.name for answer in found], names)
    return WhyGroup(reason=reason, names=tuple(mine), count=len(found), answer=found[0].answer, fine=reason in MEANT)
