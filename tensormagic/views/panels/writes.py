"""Watched writes (``%%aliases``): findings, the cell with what each line changed, then every write as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tensormagic.reports import ChangedName, Clash, Write, WritesReport
from tensormagic.views import nodes
from tensormagic.words import count, listed, plural, shortened, tuple_text

WHOLE = 120  # a cell of at most so many lines is shown whole
AROUND = 1  # lines shown before and after one that writes, in a longer one
MOST_CHANGED = 6  # names listed beside a line
_NAME = 48  # characters


def view(report: WritesReport) -> nodes.Panel:
    """Return the panel."""
    body: list[nodes.Node] = [nodes.Findings(report.findings, report.gaps, all_clear(report))]
    body.append(nodes.Source(source_lines(report), ("line, and what else it changes", "writes to")))
    more = ("more line that writes", "more lines that write")
    every = nodes.table_of(WRITES, report.writes, most=(60, 40), more=more, label="Every write")
    body.append(nodes.Section("Every write", [every], plural(len(report.writes), "operation"), folded=True))
    ended = f"{report.state}: {report.error}" if report.error else report.state
    facts: list[nodes.Cell] = [nodes.Words(ended, "error") if report.state != "finished" else ended, headline(report)]
    return nodes.Panel("writes", "code", "in-place writes", facts, body)


def headline(report: WritesReport) -> str:
    """Return how much was written, and how much of it changed something else."""
    if not report.writes_seen:
        return "no in-place write"
    lines = {(write.location.filename, write.location.line) for write in report.writes if write.location}
    parts = [f"{plural(report.writes_seen, 'in-place write')} on {plural(len(lines), 'line')}"]
    others = {changed.name for write in report.writes for changed in write.changed if changed.relation != "itself"}
    them = "them" if report.writes_seen > 1 else "it"
    parts += [f"{plural(len(others), 'other name')} changed by {them}"] if others else []
    if report.engine_writes:
        parts.append(f"{count(report.engine_writes)} more by backward (it adds up gradients)")
    return ", ".join(parts)


def all_clear(report: WritesReport) -> str:
    """Return the sentence for a run without findings; it claims no more than was looked at."""
    if not report.writes_seen:
        return "No operation of torch wrote in place; what NumPy writes is not seen."
    some = "No write that was seen" if any(gap.section == "writes" for gap in report.gaps) else "No write"
    return (
        f"{some} changed another name ({count(report.names_searched)} names and attributes were searched), and none "
        "read what it wrote."
    )


def amount_text(changed: ChangedName) -> str:
    """Return how much of another name was changed: ``4 of 12 elements``."""
    if changed.items > 1:
        return f"{plural(changed.items, 'item')} share one memory"
    if changed.elements is None:
        return "amount unknown"
    most = "" if changed.certain else "at most "
    behind = ", not noticed by autograd" if changed.saved and changed.noticed is False else ""
    same = ", the same tensor" if changed.relation == "same object" else ""
    return f"{most}{count(changed.elements)} of {plural(changed.of_elements, 'element')}{behind}{same}"


def clash_text(clash: Clash) -> str:
    """Return what memory a write used twice, and what came of it."""
    if clash.kind == "repeats":
        return f"changes {clash.elements} elements of {clash.tensor}, not {clash.of_elements}"
    what = "overlaps itself"
    if clash.kind != what:
        known = clash.elements is not None
        some = f"{count(clash.elements or 0)} of the {plural(clash.of_elements, 'element')}" if known else "elements"
        what = f"reads {some} that it writes"
    if clash.refused:
        return f"{what}: refused"
    if clash.wrong is None:
        return what
    return f"{what}: {plural(clash.wrong, 'wrong element')}" if clash.wrong else (f"{what}: correct this time")


Effect = tuple[str, str, ChangedName | None]  # what was changed, how much of it; None for several names together


def effects(changed: Iterable[ChangedName]) -> list[Effect]:
    """Return what was changed, three or more tensors that one variable holds together."""
    by_root: dict[str, list[ChangedName]] = {}
    for one in {one.name: one for one in changed}.values():
        by_root.setdefault(re.split(r"[.\[]", one.name, maxsplit=1)[0], []).append(one)
    found: list[Effect] = []
    for root, held in by_root.items():
        if len(held) < 3:
            found += [(one.name, amount_text(one), one) for one in held]
            continue
        touched, elements = sum(one.elements or 0 for one in held), sum(one.of_elements for one in held)
        most = "" if all(one.certain for one in held) else "at most "
        part = f"{most}{count(touched)} of {plural(elements, 'element')}"
        found.append((root, f"{plural(len(held), 'tensor')} in it, {part}", None))
    return found


def phrases_of(write: Write) -> str:
    """Return what a write did besides."""
    found = effects(write.changed)
    sentences = [clash_text(write.clash)] if write.clash is not None else []
    sentences += [f"{name}: {amount}" for name, amount, _ in found[:MOST_CHANGED]]
    left = len(found) - MOST_CHANGED
    return "; ".join([*sentences, f"and {plural(left, 'more name')}"] if left > 0 else sentences)


def target_text(write: Write) -> str:
    """Return what was written to: ``x``, ``net.0.weight and others``, ``tensors without a name``."""
    name = write.target or ("tensors" if write.several else "a tensor") + " without a name"
    return f"{name} and others" if write.several and write.target else name


def written_text(writes: Sequence[Write]) -> str:
    """Return what a line writes to and how often: ``b``, ``e ×18``; those without a name only where no other is."""
    targets: dict[str, int] = {}
    named = [write for write in writes if write.target]
    for write in named or writes:
        target = target_text(write)
        targets[target] = max(targets.get(target, 0), write.count)
    return listed([f"{name} \u00d7{count(times)}" if times > 1 else name for name, times in targets.items()], most=3)


def noticed_text(write: Write) -> str:
    """Return whether autograd notices what a write changed; nothing of a NumPy array, it need not."""
    noticed = {changed.noticed for changed in write.changed if changed.relation != "NumPy array"}
    return "does not notice" if False in noticed else "notices" if noticed == {True} else ""


# What a write changed besides stands in the listing: a terminal has no room to say it again.
WRITES = (
    nodes.Column("line", lambda write: write.location.label if write.location else "not on one of your lines", "code"),
    nodes.Column("op", lambda write: write.op, "code"),
    nodes.Column("writes to", target_text, "code"),
    nodes.Column("shape", lambda write: tuple_text(write.shape), "code"),
    nodes.Column("times", lambda write: count(write.count), "number"),
    nodes.Column("changes besides", phrases_of, in_terminal=False),
    nodes.Column("autograd", noticed_text, in_terminal=False),
)


def source_lines(report: WritesReport) -> list[nodes.Line]:
    """Return the lines to list: the watched cell first, then lines of other files that wrote."""
    signs: dict[tuple[str, int], str] = {}
    for finding in report.findings:  # the most severe first
        if finding.location is not None:
            signs.setdefault((finding.location.filename, finding.location.line), finding.severity)
    writing: dict[tuple[str, int], list[Write]] = {}
    places = []
    for write in report.writes:
        if write.location is not None:
            places.append(write.location)
            writing.setdefault((write.location.filename, write.location.line), []).append(write)
    lines = []
    for filename, number, text in nodes.listing(report.cell, places, WHOLE, AROUND):
        writes = writing.get((filename, number), [])
        # Where no finding is: its note may stand at another line of the same names.
        plain = "note" if any(write.changed for write in writes) else "mark" if writes else ""
        beside = [f"`{written_text(writes)}`"] if writes else []
        lines.append(nodes.Line(number, text.rstrip(), beside, _below(writes), signs.get((filename, number), plain)))
    return lines


def _below(writes: Sequence[Write]) -> list[nodes.Cell]:
    """Return what a line did: of several ops that changed the same name, the first is shown."""
    below: list[nodes.Cell] = [
        nodes.Words(f"\u2717 {clash_text(write.clash)}", "strong") for write in writes if write.clash is not None
    ]
    changed = {one.name: one for write in reversed(writes) for one in reversed(write.changed)}
    found = effects(reversed(changed.values()))
    below += map(_effect, found[:MOST_CHANGED])
    left = len(found) - MOST_CHANGED
    return below + ([nodes.Words(f"and {plural(left, 'more name')}, in the table below", "quiet")] if left > 0 else [])


def _effect(effect: Effect) -> nodes.Cell:
    """Return what was changed, how much of it, and where in it that lies."""
    name, amount, changed = effect
    described = f"\u2192 `{shortened(name, _NAME)}`: {amount}"
    if changed is None or not changed.marks:
        return described
    row = changed.shape[-1] if len(changed.shape) > 1 and len(changed.marks) == changed.of_elements else 0
    sentence = f"{count(changed.elements or 0)} of {plural(changed.of_elements, 'element')} reached, in reading order"
    return described, nodes.Strip([{"0": 0.0, "9": 1.0}.get(mark, 0.5) for mark in changed.marks], sentence, row)
