"""One tensor (``%tensor x``): what it is, where its elements lie in memory, who shares them, and what they are like."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.reports import KindReport, LayoutReport, TensorReport
from tensormagic.views.markup import escape, tag
from tensormagic.views.nodes import Cell, Column, Findings, Node, Panel, Paragraph, Picture, Section, Table, Words
from tensormagic.views.panels.tensor_autograd import autograd_nodes, broken, summary
from tensormagic.views.panels.tensor_memory import memory_nodes, memory_summary, sharing_nodes, verdict_nodes
from tensormagic.views.pictures.placement import PlacementGrid
from tensormagic.views.pictures.tensor_elements import drawn_layout, name, shape, shown
from tensormagic.views.pictures.tensor_kinds import Components, Stored
from tensormagic.views.pictures.tensor_layout import LayoutPicture
from tensormagic.views.pictures.tensor_shot import Shot, heading, notes
from tensormagic.views.pictures.tensor_values import (
    Histogram,
    SliceRows,
    ValueRange,
    slices_summary,
    statistics_rows,
    statistics_scope,
    urgent,
)
from tensormagic.words import DOT, count, listed, number_of_bytes, plural, shortened, tuple_text

# The verdicts on a layout, one sentence each: order, memory format, views, repeats and gaps.
#
# Text between backticks is code; renderers turn it into ``<code>`` or drop the backticks.

MOST_BARRIERS = 3


def verdicts(layout: LayoutReport, *, of_array: bool = False) -> tuple[tuple[str, str], ...]:
    """Return what is worth knowing of a layout: title and sentence of each verdict that has something to say."""
    said = {"order": order_verdict(layout), "repeats": repeats_verdict(layout), "gaps": gaps_verdict(layout)}
    if not of_array:  # what calls of tensors would do
        said |= {"format": format_verdict(layout), "views": view_verdict(layout)}
    return tuple((title, sentence) for title, sentence in said.items() if sentence)


def format_verdict(layout: LayoutReport) -> str:
    """Return which memory formats hold, which dimension breaks the first that does not, and what a copy takes."""
    held = [each.name for each in layout.formats if each.holds]
    plain = next((each for each in layout.formats if each.name == "contiguous_format"), None)
    if plain is None:
        return ""
    if plain.holds:
        good = listed(["contiguous", *(name for name in held if name != plain.name)])
        return f"{good}: `.contiguous()` returns the tensor itself, without a copy"
    because, dim = "", plain.breaking_dim
    if dim is not None:
        stride = f"{layout.dim_names[dim]} has stride {layout.stride[dim]}"
        because = f"{stride}, a contiguous tensor has {plain.stride[dim]} there"
    because += f"; `.contiguous()` copies {number_of_bytes(layout.contiguous_bytes)}"
    if held:
        kept = f"`.contiguous(memory_format=torch.{held[0]})` nothing"
        return f"{held[0]}, not contiguous: {because}, {kept}"
    names = ["contiguous", *(each.name for each in layout.formats if each is not plain)]
    return f"{'not' if len(names) == 1 else 'neither'} {' nor '.join(names)}: {because}"


def view_verdict(layout: LayoutReport) -> str:
    """Return which dimensions ``.view()`` can merge, and for each that cannot, the two numbers that differ."""
    report, numel = layout.views, math.prod(layout.shape)
    if report is None or numel < 2:
        return ""
    if report.flat:
        return f"every `.view(shape)` of {count(numel)} elements works, as does `.view(-1)`"
    merged = [DOT.join(layout.dim_names[dim] for dim in group) for group in report.groups if len(group) > 1]
    parts = [f"{listed(merged, most=len(merged))} merge: `.view{tuple_text(report.sizes)}` works"] if merged else []
    for barrier in report.barriers[:MOST_BARRIERS]:  # i has stride 1, but size·stride of j is 4·6 = 24
        outer, inner = layout.dim_names[barrier.outer], layout.dim_names[barrier.inner]
        product = f"{barrier.inner_size}{DOT}{barrier.inner_stride} = {barrier.needed}"
        numbers = f"{outer} has stride {barrier.stride}, but size{DOT}stride of {inner} is {product}"
        parts.append(f"{outer} and {inner} cannot merge: {numbers}")
    left_out = len(report.barriers) - MOST_BARRIERS
    parts += [f"{plural(left_out, 'barrier')} more"] if left_out > 0 else []
    parts.append(f"`.view(-1)` raises, `.reshape(-1)` copies {number_of_bytes(report.copy_bytes)}")
    return "; ".join(parts)


def order_verdict(layout: LayoutReport) -> str:
    """Return in which order the dimensions lie in memory, where that is not the order in which they are read."""
    moving = [dim for dim, size in enumerate(layout.shape) if size > 1 and layout.stride[dim]]
    memory = sorted(moving, key=lambda dim: -layout.stride[dim])
    if memory == moving or 0 in layout.shape:
        return ""
    lies, read = (", ".join(layout.dim_names[dim] for dim in dims) for dims in (memory, moving))
    return f"in memory {lies} from slowest to fastest, read as {read}"


def repeats_verdict(layout: LayoutReport) -> str:
    """Return which dimensions repeat what they read, or that different indices meet in one element."""
    still = [dim for dim, step in enumerate(layout.stride) if step == 0 and layout.shape[dim] > 1]
    if 0 in layout.shape or layout.internal_overlap == "no":
        return ""
    parts = [
        f"{layout.dim_names[dim]} has stride 0: all {count(layout.shape[dim])} of its indices read the same"
        for dim in still
    ]
    once = math.prod(size for dim, size in enumerate(layout.shape) if dim not in still)
    if layout.distinct is None:
        parts.append("different indices may read the same element")
    elif layout.distinct < once:
        parts.append(f"{count(once)} indices share {count(layout.distinct)} elements: writing to one changes several")
    return "; ".join(parts)


def gaps_verdict(layout: LayoutReport) -> str:
    """Return how much is skipped between the first element read and the last."""
    if layout.lowest is None or layout.highest is None or layout.distinct is None:
        return ""
    span, ends = layout.highest - layout.lowest + 1, f"{count(layout.lowest)} to {count(layout.highest)}"
    skipped = span - layout.distinct
    return f"{count(skipped)} of the {count(span)} elements from {ends} are skipped" if skipped else ""


SHEETS = ("tensor.css", "kind.css")
_METADATA_WIDTH, _DATA_WIDTH = 120, 2000  # characters of a value, and of ``x.data``, at most
_VERDICT_COLUMNS = (Column(look="name"), Column(look="wide"))
_STATISTICS = (Column(look="quiet"), Column(), Column(look="quiet"), Column(look="number"))
_FACTS = (Column(look="quiet"), Column(look="code"), Column(look="quiet wide"))


def view(report: TensorReport, *, brief: bool = False) -> Panel:
    """Return the panel; a ``brief`` one folds what the lines at its top say already, and the sample of a large grid."""
    drawn = drawn_layout(report)
    single, more = "", False  # the value of a tensor of one element; whether its storage has others
    if report.numel == 1 and drawn is not None and drawn.drawable:
        single = shortened(drawn.value(0, 0), 24)  # it is shown in the header, and needs no statistics
        more = drawn.strip is not None and len(drawn.strip.cells) > 1
    layout: list[Node] = []  # nothing for a tensor without strides
    if drawn is not None:
        of_array = any(kind.key == "numpy" for kind in report.kinds)
        caption = verdicts(drawn.layout, of_array=of_array) if drawn.layout.shape else ()
        layout = [LayoutPicture(report, drawn), Table(_VERDICT_COLUMNS, caption)]
    lone = bool(single) and not more
    hidden = lone or (brief and drawn is not None and drawn.drawable and not drawn.as_table)
    small: list[Node] = []
    large: list[Node] = []
    for kind in report.kinds:  # what it is besides plain memory
        facts = (f"{fact.label} {fact.value}" + (f" ({fact.note})" if fact.note else "") for fact in kind.facts)
        if kind.map or kind.stored or kind.components or kind.placed or len(kind.facts) > 3:
            large.append(_large(kind))
        elif kind.label:
            called = Words(shortened(kind.label, 40), "strong")
            small.append(Paragraph((called, kind.summary, Words("; ".join(facts), "quiet"))))
    picture: list[Node] = []
    if (shot := report.picture) is not None:
        about = Paragraph("; ".join(notes(shot)), "quiet")
        picture = [Section("Picture", [Shot(report, shot), about], heading(report, shot))]
    statistics, values = None if single else report.statistics, list[Node]()
    if statistics is not None:
        inside: list[Node] = [Histogram(statistics), Table(_STATISTICS, statistics_rows(statistics))]
        values = [Section("Values", inside, statistics_scope(statistics), folded=brief)]
    body: list[Node] = [
        *verdict_nodes(report.verdict), Findings(report.findings, report.gaps), *picture, *large, Section("", small),
        Section("", [] if hidden else layout),
        Section("", [Section("", sharing_nodes(report)), *values]),
    ]  # fmt: skip
    folded = [Section("Autograd", autograd_nodes(report), summary(report), folded=not broken(report))]
    if report.slices:
        folded.append(Section("By slice", [SliceRows(report)], slices_summary(report), folded=not urgent(report)))
    elements = "one element" if lone else shown(report)
    folded.append(Section("Layout", layout if hidden else [], elements, folded=True))
    folded.append(Section("Memory and holders", memory_nodes(report), memory_summary(report), folded=True))
    fields = plural(len(report.metadata.keys() - {"data"}) + bool(report.data_text), "field")
    folded.append(Section("All metadata", [Metadata(report)], fields, folded=True))
    folded.sort(key=lambda part: part.folded)  # what is urgent first
    body += folded
    lead = ValueRange(statistics) if statistics is not None and statistics.count else ""
    second, facts_ = [" \u00b7 ".join(_details(report))], [*_facts(report, single)]
    sheets, label = SHEETS if large else SHEETS[:1], f"Tensor {name(report)}"
    return Panel("tensor", "tensor", name(report), facts_, body, label, second, lead, sheets=sheets)


def _facts(report: TensorReport, single: str) -> Iterator[Cell]:
    """Yield what stands in the header, last the two or three states that a glance must catch."""
    yield Words(shape(report) + (f" = {single}" if single else ""), "code")
    yield Words(shortened(report.dtype, 24), "code")
    yield report.device
    yield "" if report.type_name == "Tensor" else shortened(report.type_name, 32)
    own = report.role == "owns its storage" and report.device.partition(":")[0] == "meta"  # of which nothing is there
    yield "" if own else shortened(report.role, 60)
    size, behind = number_of_bytes(report.nbytes), ""
    really = next((kind.stored_bytes for kind in report.kinds if kind.stored_bytes is not None), None)
    is_meta, storage = report.device.partition(":")[0] == "meta", report.storage
    if really in {None, report.nbytes} and not is_meta and storage is not None and storage.nbytes < report.nbytes:
        really = storage.nbytes
    if really is not None and really != report.nbytes:
        size, behind = number_of_bytes(really), f"stored, seen as {size}"
    elif is_meta:
        size, behind = "no values and no memory", f"{size} on any other device"
    elif storage is not None and storage.nbytes != report.nbytes:
        behind = f"of a {number_of_bytes(storage.nbytes)} storage"
    yield (size, Words(behind, "quiet")) if behind else size
    if report.layout is not None and report.layout.formats:
        held = [one.name for one in report.layout.formats if one.holds] or ["not contiguous"]
        yield Words("contiguous" if "contiguous_format" in held else held[0], "badge")
    if (autograd := report.autograd) is not None:
        needs = "leaf, requires grad" if autograd.is_leaf else "requires grad, not a leaf"
        yield Words(needs if autograd.requires_grad else "requires_grad=False", "badge")
        if autograd.grad == "present":
            yield Words("grad present", "badge")


def _details(report: TensorReport) -> Iterator[str]:
    """Yield the last line of the header: stride, storage offset, elements, version."""
    layout, repeats = report.layout, ""
    if layout is None:
        yield f"layout `{report.layout_name}`"
    else:
        contiguous = next((one for one in layout.formats if one.name == "contiguous_format"), None)
        other = contiguous is not None and not contiguous.holds
        would = f"; contiguous would be `{tuple_text(contiguous.stride)}`" if contiguous is not None and other else ""
        yield f"stride `{tuple_text(layout.stride)}`{would}"
        yield f"storage offset `{count(layout.storage_offset)}`"
        some = f" over {count(layout.distinct)} stored" if layout.distinct else ", some repeated"
        repeats = {"maybe": ", possibly with repeats", "no": ", none repeated"}.get(layout.internal_overlap, some)
    yield plural(report.numel, "element") + (repeats if report.numel > 1 else "")
    yield "no version counter" if report.version is None else f"version `{report.version}`"


def _large(kind: KindReport) -> Section:
    facts = [[fact.label, shortened(fact.value, 120), shortened(fact.note, 150)] for fact in kind.facts]
    body: list[Node] = [
        *([Stored(kind)] if kind.map or kind.stored else []),
        *kind.reading,
        Table(_FACTS, facts),
        *([PlacementGrid(kind.placed)] if kind.placed is not None else []),
        *([Components(kind.components)] if kind.components else []),
    ]
    return Section(shortened(kind.label, 60), body, kind.summary)


@dataclass(frozen=True, slots=True)
class Metadata(Picture):
    """Every field that torch has of a tensor: in a page alone, one click away; a terminal asks for the one it wants."""

    report: TensorReport

    def html(self) -> str:
        """Return a name and a value each, in as many columns as there is room for, then what ``x.data`` prints."""
        pairs = (
            tag("div", tag("dt", escape(key)), " ", tag("dd", escape(shortened(value, _METADATA_WIDTH))))
            for key, value in self.report.metadata.items() if key != "data"
        )  # fmt: skip
        data = tag("pre", escape(self.report.data_text[:_DATA_WIDTH])) if self.report.data_text else ""
        return tag("dl", *pairs) + (tag("p", "data", class_="quiet") + data if data else "")
