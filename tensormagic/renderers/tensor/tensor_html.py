"""What a person sees from ``%tensor x`` in a notebook: one self-contained HTML fragment.

Header, findings, layout picture, who shares the storage, values, and the rest on demand. Everything is in the static
markup; the inlined viewer only lets another element be picked. The fragment holds no id, so that the same output
stands on a page twice without a quarrel.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tensormagic.renderers.assets import code_of, loader
from tensormagic.renderers.basics.markup import escape, json_block, packed, tag
from tensormagic.renderers.basics.panel import (
    findings_html,
    fold,
    folds,
    gaps_html,
    header,
    heading,
    panel,
    section,
    with_code,
)
from tensormagic.renderers.tensor.histogram_html import histogram_html, spark_html
from tensormagic.renderers.tensor.kind_html import kinds_html
from tensormagic.renderers.tensor.layout_verdicts_html import verdicts_html
from tensormagic.renderers.tensor.statistics_words import answer, answer_scope, statistics_rows, statistics_scope
from tensormagic.renderers.tensor.tensor_layout_html import layout_html
from tensormagic.renderers.tensor.tensor_picture import Picture, bases_index, picture_of
from tensormagic.renderers.tensor.tensor_shot_html import shot_html
from tensormagic.renderers.tensor.tensor_slices_html import slices_html
from tensormagic.renderers.tensor.tensor_text import one_line
from tensormagic.renderers.tensor.tensor_turning import turning, turns
from tensormagic.renderers.tensor.tensor_words import (
    badges,
    details,
    kind,
    name,
    shape,
    size_in_memory,
)
from tensormagic.reports import Grid, Statistics, TensorReport
from tensormagic.views.panels.tensor import TEXT_WIDTH, memory_nodes, memory_summary, sharing_nodes, verdict_nodes
from tensormagic.views.panels.tensor_autograd import autograd_nodes, broken, summary
from tensormagic.views.to_html import html
from tensormagic.words import shortened

MOST_VIEWER_VALUES = 1024  # values that the viewer can tell; a collector shows 32 by 32 elements at most
MOST_PLAIN = 1000  # characters for the viewer that stand there as they are; more are packed
DATA_WIDTH = 2000  # characters of ``x.data`` at most
CSS = ("tensor.css", "kind.css", "tensor_values.css")


def render(report: TensorReport) -> str:
    """Return the panel of one tensor as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    picture = picture_of(report)
    single = _single(report, picture)
    lone = bool(single) and not _holds_more(picture)
    parts = [
        _header(report, single),
        *map(html, verdict_nodes(report.verdict)),
        findings_html(report.findings),
        gaps_html(report.gaps),
        shot_html(report),
        kinds_html(report),
        "" if lone else section("", _layout(report, picture)),
        section("", _sharing(report) + ("" if single else _values(report.statistics)), class_="tm-two"),
        _more(report, _layout(report, picture) if lone else ""),
    ]
    viewer = "" if lone else _viewer(report, picture)
    return panel("tm-tensor", f"Tensor {name(report)}", [*parts, viewer], css=CSS)


def folded(report: TensorReport) -> str:
    """Return the panel folded under one line that says which tensor it is."""
    return fold(tag("code", escape(one_line(report))), render(report))


def _single(report: TensorReport, picture: Picture | None) -> str:
    """Return the value of a tensor of one element: it is shown in the header, and needs no statistics."""
    if report.numel != 1 or picture is None or not picture.drawable:
        return ""
    return shortened(picture.value(0, 0), 24)


def _holds_more(picture: Picture | None) -> bool:
    """Return whether the storage has other elements than the one: then it is worth seeing where that one lies."""
    strip = picture.strip if picture is not None else None
    return strip is not None and len(strip.cells) > 1


def _layout(report: TensorReport, picture: Picture | None) -> str:
    return (layout_html(report, picture) if picture is not None else "") + verdicts_html(report)


def _header(report: TensorReport, single: str) -> str:
    size, behind = size_in_memory(report)
    facts = [
        tag("code", escape(shape(report)), class_="tm-shape"),
        tag("code", escape(f"= {single}"), class_="tm-shape") if single else "",
        tag("code", escape(shortened(report.dtype, 24))),
        escape(report.device),
        escape(shortened(kind(report), 32)),
        escape(shortened(report.role, 60)),
        escape(size) + (" " + tag("span", escape(behind), class_="quiet") if behind else ""),
    ]
    marks = " ".join(tag("span", escape(badge), class_="tm-badge") for badge in badges(report))
    second = " \u00b7 ".join(tag("span", with_code(part)) for part in details(report))
    values = "" if single else _answer(report.statistics)
    return header(escape(name(report)), facts, about="tensor", badges=marks, second=[second], lead=values)


def _answer(statistics: Statistics | None) -> str:
    """Return the values in short: smallest, a small histogram, largest, mean, NaN and Inf."""
    found = answer(statistics)
    if statistics is None or not found:
        return ""
    parts = [tag("span", escape(label), " ", tag("b", escape(number), class_="tm-failed" if bad else None))
             for label, number, bad in found]  # fmt: skip
    parts.insert(1 if statistics.minimum is not None else 0, spark_html(statistics))
    scope = answer_scope(statistics)
    return " ".join([*filter(None, parts), *([tag("span", escape(scope), class_="quiet")] if scope else [])])


def _sharing(report: TensorReport) -> str:
    return "".join(tag("div", html(node)) for node in sharing_nodes(report))


def _values(statistics: Statistics | None) -> str:
    if statistics is None:
        return ""
    rows = [_statistics_row(row) for row in statistics_rows(statistics)]
    table = tag("table", *rows, class_="tm-list tm-numbers")
    drawn = tag("div", histogram_html(statistics), table, class_="tm-values")
    return tag("div", heading("Values", statistics_scope(statistics)), drawn)


def _statistics_row(row: tuple[str, str, str, str]) -> str:
    label, value, other, number = map(escape, row)
    alarming = other not in {"", "finite", "zero", "zero seen"} and number != "0"
    number = tag("b", number) if alarming else number
    return tag("tr", f'<td class="quiet">{label}</td><td>{value}</td><td class="quiet">{other}</td><td>{number}</td>')


def _more(report: TensorReport, layout: str) -> str:
    metadata = {**report.metadata}
    metadata.pop("data", None)
    parts = [
        fold("Autograd", *map(html, autograd_nodes(report)), state=summary(report), is_open=broken(report)),
        slices_html(report),
        fold("Layout", layout, state="one element"),
        fold("Memory and holders", *map(html, memory_nodes(report)), state=memory_summary(report)),
        fold("All metadata", _metadata(metadata) + _data(report), state=f"{len(metadata) + 1} fields"),
    ]
    return folds(*parts)


def _metadata(metadata: dict[str, str]) -> str:
    pairs = (
        tag("div", tag("dt", escape(key)), " ", tag("dd", escape(shortened(value, TEXT_WIDTH))))
        for key, value in metadata.items()
    )
    return tag("dl", *pairs)


def _data(report: TensorReport) -> str:
    if not report.data_text:
        return ""
    return tag("p", "data", class_="quiet") + tag("pre", escape(report.data_text[:DATA_WIDTH]))


def _viewer(report: TensorReport, picture: Picture | None) -> str:
    if picture is None or not picture.drawable:
        return ""
    text = json_block(_viewer_data(report, picture))
    kind, held = ("application/json", text) if len(text) <= MOST_PLAIN else ("text/plain", packed(text))
    data = tag("script", held, type=kind, class_="tm-data")
    return data + _code() + loader()


@cache
def _code() -> str:
    """Return the element that carries the viewer."""
    both = "async (panel, unpacked) => { await mountTensors(panel, unpacked); mountSlices(panel); }"
    return code_of("tensor", "tensor_viewer.js", "tensor_slices.js", mount=both)


def _viewer_data(report: TensorReport, picture: Picture) -> dict[str, Any]:
    """What the viewer needs to phrase any element as the static page phrases its one."""
    layout, grid, strip = picture.layout, picture.grid, picture.strip
    return {
        "name": name(report),
        "shape": layout.shape,
        "stride": layout.stride,
        "offset": layout.storage_offset,
        "rows": grid.rows,
        "columns": grid.columns,
        "rowDim": grid.row_dim,
        "columnDim": grid.column_dim,
        "fixed": grid.fixed,
        "values": _viewer_values(grid),
        "at": [picture.row, picture.column],
        "base": _base(report),
        "strip": None if strip is None else [strip.start, strip.stop, strip.cell_elements],
        "reads": [] if strip is None else [cell.distinct for cell in strip.cells],
        "letters": layout.dim_names,
        "readable": bool(grid.values),
        **(turning(picture, report.statistics) if turns(picture) else {}),
    }


def _viewer_values(grid: Grid) -> list[list[str]]:
    if len(grid.rows) * len(grid.columns) > MOST_VIEWER_VALUES:
        return []
    return [[shortened(text, 24) for text in row] for row in grid.values]


def _base(report: TensorReport) -> dict[str, Any] | None:
    strip = report.layout.strip if report.layout else None
    if strip is None or not bases_index(report, strip.start):
        return None
    shape = next(alias.shape for alias in report.aliases if alias.name == strip.row_name)
    return {"name": strip.row_name, "shape": shape}
