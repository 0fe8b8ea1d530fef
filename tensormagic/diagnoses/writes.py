"""TM201 to TM204 of a run: writes that changed more than their line says, or whose result depends on the order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tensormagic.diagnoses.lines import (
    call_on,
    only_statement,
    parsed,
    rebound,
    spliced,
    statement_of,
    text_of,
    without_out,
)
from tensormagic.reports import ChangedName, Clash, Finding, Write, WritesReport
from tensormagic.reports.base import Scalar, Severity
from tensormagic.words import binding, listed, part_of, plural


def changed_names(report: WritesReport) -> Iterator[Finding]:
    """TM201: a write changed other names; a warning where that is hardly meant, else a note.

    Notes about the same two variables are one: it is at the line that changed most.
    """
    meant: dict[tuple[str, tuple[str, ...]], list[tuple[Write, list[ChangedName]]]] = {}
    for write in report.writes:
        tensors = [changed for changed in write.changed if changed.relation != "NumPy array"]
        for changed in filter(_is_unmeant, tensors):
            how, written = _how_often(write, changed), _target(write, changed)
            if changed.items > 1:
                message = (
                    f"{plural(changed.items, 'item')} of {changed.name} share one memory, so writing to {written} "
                    f"changes all of them{how}: none keeps the values that it had when it was stored."
                )
                remedy = f"Put copies in: {_stored_copies(report, write, changed.name)}"
            elif changed.extent == "crosses":
                message = (
                    f"Writing to {written} changes {_elements(changed)}{_first(changed)}{how}: the two overlap in "
                    "part, neither is a slice of the other."
                )
                remedy = _copy_remedy(write, changed)
            else:
                message = (
                    f"Writing to {written} changes {_elements(changed)}{how} without autograd noticing, and a backward "
                    f"graph holds {changed.name}: gradients that need its values come out wrong, without an error."
                )
                remedy = (
                    f"Write to a copy: `{changed.name}.detach().clone()`. Through `.detach()` instead of `.data` the "
                    "same write raises an error in backward."
                )
            yield _finding("TM201", "warning", write, [changed], message=message, remedy=remedy)
        others = [changed for changed in tensors if not _is_unmeant(changed)]
        if others:
            key = (_root(write.target), tuple(dict.fromkeys(_root(changed.name) for changed in others)))
            meant.setdefault(key, []).append((write, others))
    for same in meant.values():
        write, others = max(same, key=lambda pair: len(pair[1]))
        yield _shared(write, others, len({pair[0].location for pair in same}) - 1)


def _root(name: str) -> str:
    return name.partition(".")[0].partition("[")[0]


def _is_unmeant(changed: ChangedName) -> bool:
    return changed.items > 1 or changed.extent == "crosses" or (changed.saved and changed.noticed is False)


def _shared(write: Write, others: list[ChangedName], more: int) -> Finding:
    first = others[0]
    if first.relation == "argument" and first.name == write.target:
        message = f"The call on this line changes its argument: {_elements(first)}{_how_often(write, first)}."
        remedy = f"If that is not intended, pass a copy: `{first.name}.clone()`; or leave out `inplace=True`."
        return _finding("TM201", "note", write, others, message=message, remedy=remedy)
    if first.relation == "same object" and not first.name.isidentifier():
        own, other = _root(write.target), _root(first.name)
        names = listed(dict.fromkeys((own, *(_root(each.name) for each in others if each.relation == "same object"))))
        same = f"changes {first.name}, the same tensor: {names} are one object"
        message = f"Writing to {_target(write)} {same}{_how_often(write, first)}."
        remedy = f"If {other} should keep its values, make it a copy from the start: `{other} = copy.deepcopy({own})`"
        return _finding("TM201", "note", write, others, message=message, remedy=remedy)
    lines = {0: "", 1: " (so does another line)"}.get(more, f" (so do {plural(more, 'more line')})")
    return _finding(
        "TM201", "note", write, others,
        message=f"Writing to {_target(write, others[0])} {_changes(others)}{_how_often(write, others[0])}{lines}.",
        remedy=_copy_remedy(write, others[0]),
    )  # fmt: skip


def _changes(others: list[ChangedName]) -> str:
    first = others[0]
    if first.relation == "argument":
        return f"changes {_elements(first)}, which was passed in as an argument"
    if len(others) == 1 and first.relation == "same object":
        return f"changes {first.name}, which is the same tensor"
    if len(others) == 1:
        return f"changes {_elements(first)}{_first(first)}"
    if len(others) > 2 and len({_root(changed.name) for changed in others}) == 1:
        return f"changes {plural(len(others), 'tensor')} in {_root(first.name)}, such as {first.name}"
    return f"changes {listed([changed.name for changed in others])}: {_elements(first)}{_first(first)}"


def _target(write: Write, changed: ChangedName | None = None) -> str:
    if changed is not None and changed.through:
        return changed.through
    name = write.target or ("tensors" if write.several else "a tensor") + " without a name"
    return f"{name} and others" if write.several and write.target else name


def _stored_copies(report: WritesReport, write: Write, name: str) -> str:
    """Return the line that fills a list, with a copy in it; both ways in which lists are filled where none is found."""
    kept = write.target if write.target.isidentifier() else ""
    lines = [line.strip() for line in report.cell.lines]
    appended = [line for line in lines if line.startswith(f"{name}.append(") and call_on(line, "append")]
    if len(set(appended)) == 1 and (mended := _with_copy(appended[0], kept)):
        return f"`{mended}`"
    for line in lines:
        statement = statement_of(line)
        value = statement.value if isinstance(statement, ast.Assign) else None
        if line.startswith(f"{name} = [") and isinstance(value, ast.BinOp) and isinstance(value.left, ast.List):
            item = binding(ast.unparse(value.left.elts[0]))
            return f"`{name} = [{item}.clone() for _ in range({ast.unparse(value.right)})]`"
    return f"`{name}.append({kept or '…'}.detach().clone())`; in place of `[x] * n`: `[x.clone() for _ in range(n)]`"


def _with_copy(line: str, kept: str) -> str:
    """Return a line that appends with a copy of what it appends; empty where that is no simple expression."""
    call = call_on(line, "append")
    given = call.args[0] if call is not None and len(call.args) == 1 else None
    inner = [node for node in ast.walk(given) if isinstance(node, ast.Name) and node.id == kept] if given else []
    if len(inner) == 1:
        return spliced(line, inner[0], f"{kept}.detach().clone()")
    if isinstance(given, ast.Call) and ast.unparse(given).endswith(".detach()"):
        return spliced(line, given, f"{ast.unparse(given)}.clone()")
    return ""


def changed_arrays(report: WritesReport) -> Iterator[Finding]:
    """TM204: a write through a tensor changed a NumPy array (a note, one an array: the bridge is often meant)."""
    described: set[str] = set()
    for write in report.writes:
        for changed in write.changed:
            if changed.relation != "NumPy array" or changed.name in described:
                continue
            described.add(changed.name)
            yield _finding(
                "TM204", "note", write, [changed],
                message=f"Writing to {_target(write, changed)} changes {_elements(changed)}{_first(changed)}"
                f"{_how_often(write, changed)}: the array shares the tensor's memory.",
                remedy=f"If that is not intended, make a copy: `torch.tensor({changed.name})`, or "
                f"`{changed.name} = {changed.name}.copy()`",
            )  # fmt: skip


def _elements(changed: ChangedName) -> str:
    if changed.elements is None:
        return f"elements of {changed.name}"
    most = "" if changed.certain else "at most "
    return f"{most}{part_of(changed.elements, changed.of_elements)} of {changed.name}"


def _first(changed: ChangedName) -> str:
    if not changed.first or not changed.certain or changed.elements in {None, changed.of_elements}:
        return ""
    first = f"{changed.name}[{', '.join(map(str, changed.first))}]"
    return f", namely {first}" if changed.elements == 1 else f", the first is {first}"


def _how_often(write: Write, changed: ChangedName) -> str:
    least = "at least " if changed.at_least and (write.several or changed.writes < write.count) else ""
    if write.several:
        return f", {least}{changed.writes} times" if changed.writes > 1 else ""
    return f", in {least}{changed.writes} of {plural(write.count, 'write')}" if write.count > 1 else ""


def _copy_remedy(write: Write, changed: ChangedName) -> str:
    root = _root(changed.name)
    if changed.name.startswith(f"{root}["):
        return f"If {root} should keep its values, make it a copy from the start: `copy.deepcopy(…)`"
    if changed.extent == "within" or not write.target or write.several or changed.relation == "same storage":
        return f"If {changed.name} should keep its values, make it a copy from the start: `….clone()`"
    copy = rebound(write.target, "clone()")
    return f"If that is not intended, write to a copy: `{copy}`"


def overlapping_targets(report: WritesReport) -> Iterator[Finding]:
    """TM202: a write to a tensor that holds elements several times."""
    for write in report.writes:
        clash = write.clash
        if clash is not None and clash.kind == "overlaps itself":
            stored = ""
            if clash.elements is not None:
                stored = f" ({plural(clash.of_elements, 'element')}, {plural(clash.elements, 'stored one')})"
            yield _clash(
                "TM202", _severity(clash), write, clash,
                message=f"{_target(write)} holds elements several times{stored}, and is written to in place: "
                f"{_outcome(clash)}.",
                remedy=f"Write to a full copy: `{rebound(write.target or '…', 'clone()')}`",
            )  # fmt: skip
        elif clash is not None and clash.kind == "repeats":
            yield _clash(
                "TM202", "warning", write, clash,
                message=f"Writing {plural(clash.of_elements, 'element')} of {clash.tensor} changes "
                f"{clash.elements} of its elements, because it holds each of them several times.",
                remedy=f"Write to a full copy: `{rebound(clash.tensor, 'clone()')}`",
            )  # fmt: skip


def reads_what_it_writes(report: WritesReport) -> Iterator[Finding]:
    """TM203: an op reads memory that it writes: what it reads depends on what it has written already."""
    for write in report.writes:
        clash = write.clash
        if clash is not None and clash.kind == "reads what it writes":
            amount = "elements" if clash.elements is None else part_of(clash.elements, clash.of_elements)
            message = f"This line reads {amount} that it writes in {_target(write)}: {_outcome(clash)}."
            severity = _severity(clash, wrong="error")
            yield _clash("TM203", severity, write, clash, message=message, remedy=_separate(write))


def _severity(clash: Clash, wrong: Severity = "warning") -> Severity:
    if clash.refused:
        return "error"
    if clash.wrong is None:
        return "warning"
    return wrong if clash.wrong else "note"


def _outcome(clash: Clash) -> str:
    if clash.refused:
        return "torch refuses that"
    if clash.wrong is None:
        return "the result depends on the order in which elements are visited"
    if not clash.wrong:
        return "this time the result is right, but it depends on the order in which elements are visited"
    first = "" if clash.wrong == 1 else "the first "
    name = clash.tensor if clash.tensor.isidentifier() else ""
    where = f"{'' if name else 'at '}{name}{list(clash.index)} " if clash.index else ""
    return (
        f"{plural(clash.wrong, 'element')} {'comes' if clash.wrong == 1 else 'come'} out wrong, {first}{where}as "
        f"{clash.got} instead of {clash.expected}"
    )


def _separate(write: Write) -> str:
    """Return the line with a copy of what it reads; plain advice where the line is no simple one."""
    if write.op.endswith("out="):
        mended = without_out(text_of(write.location))
        return f"Leave out `out=`, and assign what the call returns{f': `{mended}`' if mended else '.'}"
    statement = only_statement(parsed(text_of(write.location)))
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
        names = ast.unparse(statement.targets[0]).strip("()")
        copies = ", ".join(f"{ast.unparse(one)}.clone()" for one in statement.value.elts)
        return f"Read from copies: `{names} = {copies}`"
    if isinstance(statement, ast.Assign | ast.AugAssign) and isinstance(statement.value, ast.Subscript | ast.Call):
        return f"Read from a copy: `{ast.unparse(statement)}.clone()`"
    return "Read from a copy: `.clone()`"


def _clash(  # noqa: PLR0913  (a finding of a clash, by what differs)
    code: str, severity: Severity, write: Write, clash: Clash, *, message: str, remedy: str
) -> Finding:
    evidence: dict[str, Scalar] = {"op": write.op, "written": clash.of_elements}
    evidence |= {"used twice": clash.elements} if clash.elements is not None else {}
    evidence |= {"wrong": clash.wrong} if clash.wrong is not None else {}
    return Finding(code, severity, message, write.location, evidence, remedy, write.target)


def _finding(  # noqa: PLR0913  (a finding of changed names, by what differs)
    code: str, severity: Severity, write: Write, names: list[ChangedName], *, message: str, remedy: str
) -> Finding:
    evidence: dict[str, Scalar] = {"op": write.op, **{changed.name: changed.elements for changed in names[:8]}}
    return Finding(code, severity, message, write.location, evidence, remedy, write.target)
