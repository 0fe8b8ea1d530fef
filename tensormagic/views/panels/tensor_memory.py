"""What the panel of a tensor says of its memory, as nodes: copy or view, who shares the storage, who keeps it alive."""

from __future__ import annotations

from tensormagic.reports import Alias, CopyVerdict, Holder, HoldersReport, Step, TensorReport
from tensormagic.views.nodes import Cell, Column, Node, Paragraph, Section, Table, Words, table_of
from tensormagic.views.pictures.tensor_elements import name
from tensormagic.words import count, listed, number_of_bytes, part_of, plural, shortened, tuple_text

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
MOST_HOLDERS = 12
_TELLING = 2  # holders that the summary names
_PATH = 46
# What is least expected first.
_TELLING_ORDER = (
    "traceback", "graph", "history", "function", "generator", "optimizer",
    "view", "array", "attribute", "item", "module", "name",
)  # fmt: skip
_KINDS = {
    "name": "a name",
    "item": "an item of a container",
    "attribute": "an attribute",
    "history": "output history",
    "module": "in a module",
    "optimizer": "an optimizer",
    "graph": "an autograd graph",
    "traceback": "an error's traceback",
    "function": "a function",
    "generator": "an unfinished generator",
    "array": "a NumPy array",
    "view": "a view of it",
}
MOST_ALIASES = 12


def verdict_nodes(verdict: CopyVerdict | None) -> list[Node]:
    """Return whether an expression made a copy or a view, and what each call of a chain did."""
    if verdict is None:
        return []
    steps = verdict.steps
    body: list[Node] = [sentence(verdict), Paragraph(steps[0].reason if len(steps) == 1 else "", "quiet")]
    if len(steps) > 1:
        left_out = f"{plural(verdict.more_steps, 'earlier step')} not shown" if verdict.more_steps else ""
        body += [table_of(STEPS, steps), Paragraph(left_out, "quiet")]
    copied = f"{number_of_bytes(verdict.copied_bytes)} copied" if verdict.copied_bytes else ""
    return [Section(WORDS[verdict.outcome], body, note=copied)]


def sharing_nodes(report: TensorReport) -> list[Node]:
    """Return who shares the storage; nothing where a gap says why that is not known."""
    if report.storage is None and not report.aliases:
        return []
    if not report.aliases:
        looked = plural(report.aliases_searched, "name and attribute", "names and attributes")
        nothing = f"nothing found among {looked}" if report.aliases_searched else "not searched"
        return [Section("Shares with", [Paragraph(nothing, "quiet")])]
    rows, on = [*map(_alias, report.aliases)], ("more on this storage", "more on this storage")
    return [Table(ALIASES, rows, most=(MOST_ALIASES, MOST_ALIASES), more=on)]


def memory_nodes(report: TensorReport) -> list[Node]:
    """Return the storage, who keeps it alive, and which memory formats hold, or which dimension breaks them."""
    rows, layout = [], report.layout
    if layout is not None:
        for one in layout.formats:
            at = one.breaking_dim
            because = "" if at is None else f"dim {at} ({layout.dim_names[at]}) has stride {layout.stride[at]}"
            rows.append((one.name, "yes" if one.holds else "no", tuple_text(one.stride), because))
    return [*memory_lines(report), *holders_nodes(report.holders, name(report)), Table(FORMATS, rows)]


FORMATS = (Column("memory format", look="name"), Column("holds"), Column("its stride"), Column("broken by"))


def holders_nodes(report: HoldersReport | None, name: str) -> list[Node]:
    """Return who keeps a tensor alive, with notes; nothing where nobody was looked for."""
    if report is None:
        return []
    if [(holder.path, holder.holds) for holder in report.holders] == [(name, "tensor")]:
        return [f"Held {_only(report)}by `{name}`.", *notes(report, name)]
    return [table_of(HOLDERS, report.holders[:MOST_HOLDERS]), *notes(report, name)]


def sentence(verdict: CopyVerdict) -> str:
    """Return what a write would change, with the exact number of elements."""
    sharing = [operand for operand in verdict.operands if operand.shares]
    if verdict.outcome == "same object":
        same = next(operand for operand in sharing if operand.relation == "same object")
        written = any(step.outcome == "written in place" for step in verdict.steps)
        how = ", written to in place" if written else ": no new tensor was made"
        return f"the result is `{same.name}` itself{how}"
    if sharing:
        shared = []
        for one in sharing:
            if one.relation == "may overlap":
                shared.append(f"the storage of `{one.name}` and may overlap it")
            elif one.elements is None or one.of_elements is None:
                shared.append(f"memory with `{one.name}`")
            else:
                shared.append(f"{part_of(one.elements, one.of_elements)} of `{one.name}`")
        transparent = ", and autograd does not notice" if sharing[0].shares_version is False else ""
        certain = any(one.relation != "may overlap" for one in sharing)
        writing = f": writing to one changes the other{transparent}" if certain else ""
        return f"shares {listed(shared, most=_NAMED)}{writing}"

    def named(relation: str = "", more: int = 0) -> str:
        found = [f"`{one.name}`" for one in verdict.operands if relation in {"", one.relation}]
        return listed(found, most=_NAMED, found=len(found) + more)

    if unknown := named("unknown"):
        return f"its memory cannot be compared with {unknown}"
    if beside := named("same storage"):
        return f"uses the storage of {beside}, but shares no elements with it"
    if every := named(more=verdict.more_operands if verdict.operands else 0):
        return f"shares no memory with {every}: writing to it leaves {every} alone"
    return "the expression names no tensor or array to share memory with"


def outcome(step: Step) -> str:
    """Return what a step gave: ``view of `x```, ``copy, 48 B``, ``new, 48 B``."""
    if step.outcome in {"copy", "new"}:
        return f"{step.outcome}, {number_of_bytes(step.nbytes)}"
    if step.outcome in {"same object", "view"} and step.of.isidentifier():
        return f"view of `{step.of}`" if step.outcome == "view" else f"`{step.of}` itself"
    return {"separate": "separate memory", "unknown": "cannot tell"}.get(step.outcome, step.outcome)


STEPS = (
    Column(cell=lambda step: Words(step.code, "code"), look="name"),
    Column(cell=outcome),
    Column(cell=lambda step: step.reason, look="quiet wide"),
)


def _alias(alias: Alias) -> tuple[Cell, ...]:
    """Return who shares the storage as a row: which elements, and whether writes are counted together."""
    how = alias.relation if alias.kind in {"Tensor", "ndarray"} else f"{alias.relation}, {alias.kind}"
    overlap = "none" if alias.overlap == "no" else "may overlap"
    if alias.overlap == "yes" and alias.overlap_elements is not None:
        overlap = f"{count(alias.overlap_elements)} of {count(alias.of_elements)}"
    counter = f"{'shared' if alias.shares_version else 'its own'}, now {alias.version}"
    counter = counter if alias.version is not None else "none: writes not counted"
    return Words(shortened(alias.name, 28, tail=12), "code"), shortened(how, 34), overlap, counter


ALIASES = (Column("Shares with", look="name"), Column("how"), Column("overlap"), Column("version counter"))


def memory_summary(report: TensorReport) -> str:
    """Return the storage and who keeps it, for a closed disclosure."""
    storage, held = report.storage, holders_summary(report.holders, name(report))
    if storage is None:
        return held or "no storage"
    size = number_of_bytes(storage.nbytes)
    if storage.device == "meta":
        return f"none: on the meta device; elsewhere it would take {size}"
    arrays = sum(alias.kind == "ndarray" for alias in report.aliases)
    buffers = sum(alias.relation == "buffer" for alias in report.aliases)
    numbers = (1 + len(report.aliases) - arrays - buffers, "tensor"), (arrays, "array"), (buffers, "buffer")
    known = ", ".join(plural(number, what) for number, what in numbers if number)
    return f"{size}, {held or known}"


def memory_lines(report: TensorReport) -> tuple[str, ...]:
    """Return what the storage is, who was found to hold it, and what a copy would take, in sentences."""
    storage, layout = report.storage, report.layout
    if storage is None:
        parts = sum(len(kind.components) for kind in report.kinds)
        held = f"It has no storage of its own; its data is in {plural(parts, 'component')}, shown above."
        return (held if parts else "No readable storage.",)
    kinds = {"shared between processes": storage.shared, "pinned": storage.pinned}
    extra = "".join(f", {word}" for word, on in kinds.items() if on)
    where = f"{storage.device}, {f'first byte at `{storage.address:#x}`' if storage.address else 'without memory'}"
    lines = [f"One storage of {number_of_bytes(storage.nbytes)} on {where}{extra}."]
    if storage.device == "meta":
        taken = number_of_bytes(storage.nbytes)
        lines = [f"On the meta device it uses no memory; elsewhere its storage would take {taken}."]
    if report.aliases and report.holders is None:
        holders = listed((shortened(alias.name, 28) for alias in report.aliases), most=8)
        lines.append(f"Also kept alive by: {holders}.")
    if layout is not None and layout.distinct is not None and storage.elements:
        read = f"{count(layout.distinct)} of the storage's {plural(storage.elements, 'element')}"
        copy = number_of_bytes(layout.contiguous_bytes)
        lines.append(f"{name(report)} reads {read}; a contiguous copy would take {copy}.")
    return tuple(lines)


def holders_summary(report: HoldersReport | None, name: str) -> str:
    """Return the holders worth a glance: ``held by batch[0], Out[12], and 3 more``; nothing where there are none."""
    if report is None:
        return ""
    others = [holder for holder in report.of_tensor if holder.path != name]
    if others:
        telling = sorted(others, key=lambda holder: _TELLING_ORDER.index(holder.kind))
        return f"held by {listed(dict.fromkeys(map(_root, telling)), most=_TELLING)}"
    if report.of_tensor:
        return f"held {_only(report)}by {name}" if not report.of_storage else "others hold its storage"
    return "held by no name" if not report.of_storage else "held by no name, but its storage is"


def _only(report: HoldersReport) -> str:
    return "" if report.cut else "only "  # a search that was cut short may have missed others


def _root(holder: Holder) -> str:
    """Return the part of a way by which a user would call the holder: ``graph of loss``, ``the last error``."""
    path = holder.path.split(": ")[0] if holder.kind == "graph" else holder.path
    return shortened(path.split(", ")[0] if holder.kind in {"traceback", "generator", "function"} else path, 32)


HOLDERS = (
    Column("held by", lambda one: Words(shortened(one.path, _PATH), "code"), "name"),
    Column("keeps alive", lambda one: "tensor" if one.holds == "tensor" else f"storage, {number_of_bytes(one.nbytes)}"),
    Column("which is", lambda one: _KINDS[one.kind] + (f", {one.location.label}" if one.location else ""), "quiet"),
)


def notes(report: HoldersReport, name: str) -> tuple[str, ...]:
    """Return what there is to add: a temporary, how many are not listed, who has no name, where the search ended."""
    lines = []
    if not report.of_tensor:
        lines.append(f"No variable was found that holds {name} itself.")
    if report.found > MOST_HOLDERS:
        lines.append(f"{report.found - MOST_HOLDERS} more holders are not listed.")
    if report.unreached:
        verb, users = ("uses" if report.unreached == 1 else "use"), plural(report.unreached, "more tensor")
        lines.append(f"By torch's count, {users} that cannot be reached from a variable {verb} the storage.")
    if report.cut:
        lines.append(f"The search stopped {report.cut}: there may be more.")
    return tuple(lines)
