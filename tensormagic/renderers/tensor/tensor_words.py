"""What is said about a tensor, in words: the sentences that the panel, the terminal and the pictures share.

Text between backticks is code; renderers turn it into ``<code>`` or drop the backticks.
"""

from __future__ import annotations

from tensormagic.renderers.tensor.tensor_picture import Picture, bases_index
from tensormagic.reports import AutogradReport, Grid, LayoutReport, TensorReport
from tensormagic.views.panels.tensor_line import shape_text
from tensormagic.words import (
    DOT,
    ELLIPSIS,
    TIMES,
    count,
    listed,
    number_of_bytes,
    plural,
    series,
    shortened,
    signed,
    tuple_text,
)

NAME_WIDTH = 40


def name(report: TensorReport) -> str:
    """Return the name a panel goes by: short, on one line, never empty."""
    return shortened(report.name, NAME_WIDTH) or "tensor"


def shape(report: TensorReport) -> str:
    """Return a shape as Python writes it; of a lazy module's parameter that nobody knows it yet."""
    unknown = any(kind.key == "uninitialized" for kind in report.kinds)
    return "shape not known yet" if unknown else shape_text(report.shape)


def kind(report: TensorReport) -> str:
    """Return the class where it is more than a plain tensor, else nothing."""
    return "" if report.type_name == "Tensor" else report.type_name


def size_in_memory(report: TensorReport) -> tuple[str, str]:
    """Return how many bytes there are, and what to add about the storage behind them."""
    own, storage = number_of_bytes(report.nbytes), report.storage
    really = next((kind.stored_bytes for kind in report.kinds if kind.stored_bytes is not None), None)
    if really is not None and really != report.nbytes:
        return number_of_bytes(really), f"stored, seen as {own}"
    if storage is None or storage.nbytes == report.nbytes:
        return own, ""
    if storage.nbytes < report.nbytes:
        return number_of_bytes(storage.nbytes), f"stored, seen as {own}"
    return own, f"of a {number_of_bytes(storage.nbytes)} storage"


def badges(report: TensorReport) -> tuple[str, ...]:
    """Return the two or three states that a glance must catch."""
    parts = [_contiguity(report.layout), _gradient_state(report.autograd), _gradient(report.autograd)]
    return tuple(part for part in parts if part)


def _contiguity(layout: LayoutReport | None) -> str:
    held = [memory_format.name for memory_format in layout.formats if memory_format.holds] if layout else []
    if layout is None or not layout.formats:
        return ""
    if "contiguous_format" in held:
        return "contiguous"
    return f"{held[0]}" if held else "not contiguous"


def _gradient_state(autograd: AutogradReport | None) -> str:
    if autograd is None:
        return ""
    if not autograd.requires_grad:
        return "leaf, no grad" if autograd.is_leaf else "no grad"
    return "leaf, requires grad" if autograd.is_leaf else "requires grad, not a leaf"


def _gradient(autograd: AutogradReport | None) -> str:
    return "grad present" if autograd is not None and autograd.grad == "present" else ""


def details(report: TensorReport) -> tuple[str, ...]:
    """Return the last line of the header: stride, storage offset, elements, version."""
    parts = [*_stride_details(report.layout), _elements(report), _version(report)]
    if report.layout is None:
        parts.insert(0, f"layout `{report.layout_name}`")
    return tuple(part for part in parts if part)


def _stride_details(layout: LayoutReport | None) -> tuple[str, ...]:
    if layout is None:
        return ()
    contiguous = next((f for f in layout.formats if f.name == "contiguous_format"), None)
    stride = f"stride `{tuple_text(layout.stride)}`"
    if contiguous is not None and not contiguous.holds:
        stride += f"; contiguous would be `{tuple_text(contiguous.stride)}`"
    return stride, f"storage offset `{count(layout.storage_offset)}`"


def _elements(report: TensorReport) -> str:
    elements, layout = plural(report.numel, "element"), report.layout
    if layout is None or report.numel < 2:
        return elements
    if layout.internal_overlap == "maybe":
        return f"{elements}, possibly with repeats"
    if layout.internal_overlap == "no":
        return f"{elements}, none repeated"
    return f"{elements} over {count(layout.distinct)} stored" if layout.distinct else f"{elements}, some repeated"


def _version(report: TensorReport) -> str:
    return "no version counter" if report.version is None else f"version `{report.version}`"


def formula(layout: LayoutReport) -> str:
    """Return ``offset(i, j) = 1 + 1·i + 12·j``."""
    return f"offset({', '.join(layout.dim_names)}) = {_sum(layout, layout.dim_names)}"


def formula_at(layout: LayoutReport, index: tuple[int, ...]) -> str:
    """Return the formula with an index filled in: ``offset(2, 1) = 1 + 1·2 + 12·1 = 15``."""
    given = tuple(map(str, index))
    result = f" = {layout.offset(index)}" if index else ""
    return f"offset({', '.join(given)}) = {_sum(layout, given)}{result}"


def _sum(layout: LayoutReport, factors: tuple[str, ...]) -> str:
    terms = [f"{step}{DOT}{factor}" for step, factor in zip(layout.stride, factors, strict=True)]
    return " + ".join([str(layout.storage_offset), *terms])


def element(report: TensorReport, index: tuple[int, ...]) -> str:
    """Return how an element is written in code: ``x[2, 1]``."""
    inner = ", ".join(map(str, index))
    return f"{name(report)}[{inner}]" if index else name(report)


def worked_example(report: TensorReport, picture: Picture) -> tuple[str, ...]:
    """Return what there is to say about the element singled out: its value, and its other names."""
    if picture.row is None or picture.column is None or picture.offset is None:
        return ()
    value = picture.value(picture.row, picture.column)
    first = element(report, picture.index) + (f" = {value}" if value else "")
    other = bases_index(report, picture.offset)
    more = (f"the same element is {other}" if other else "", _repeated(report, picture))
    return (first, *(line for line in more if line))


def _repeated(report: TensorReport, picture: Picture) -> str:
    """Return which other indices read the same element because they stand still: ``x[:, 3]``."""
    layout = picture.layout
    still = [dim for dim, step in enumerate(layout.stride) if step == 0 and layout.shape[dim] > 1]
    if not still:
        return ""
    inner = ", ".join(":" if dim in still else str(at) for dim, at in enumerate(picture.index))
    letters = listed((layout.dim_names[dim] for dim in still), most=len(still))
    return f"the stride along {letters} is 0: all of {name(report)}[{inner}] is this one element"


def jumps(report: TensorReport) -> str:
    """Return the walk through the storage: ``Row by row, x jumps +12, −11, +12, …``, or that it does not jump."""
    steps = report.layout.jumps if report.layout else ()
    if report.layout is None or not steps:
        return ""
    if any(each.name == "contiguous_format" and each.holds for each in report.layout.formats):
        return "Contiguous: read row by row, every step in memory is +1"
    more = f", {ELLIPSIS}" if report.numel - 1 > len(steps) else ""
    return f"Row by row, {name(report)} jumps {', '.join(map(signed, steps))}{more}"


def shown(report: TensorReport) -> str:
    """Return exactly what is drawn of what, or nothing where everything is."""
    if report.layout is None or not report.layout.grid.offsets:
        return ""
    grid = report.layout.grid
    parts = [_cut(grid, report.layout.dim_names), _slice(report, grid)]
    return "; ".join(part for part in parts if part)


def _cut(grid: Grid, letters: tuple[str, ...]) -> str:
    if grid.complete:
        return ""
    rows, columns = len(grid.rows), len(grid.columns)
    if grid.row_dim is None:
        size = f"{columns} of {count(grid.column_count)}"
    else:
        size = f"{rows} {TIMES} {columns} of {count(grid.row_count)} {TIMES} {count(grid.column_count)}"
    axes = [(grid.row_dim, grid.rows, grid.row_count), (grid.column_dim, grid.columns, grid.column_count)]
    cut = [f"{letters[dim]} {series(at)}" for dim, at, full in axes if dim is not None and len(at) < full]
    return f"{size}: {', '.join(cut)}"


def _slice(report: TensorReport, grid: Grid) -> str:
    drawn = {grid.row_dim, grid.column_dim}
    others = [dim for dim in range(len(report.shape)) if dim not in drawn]
    if not others:
        return ""
    inner = ", ".join(":" if dim in drawn else str(at) for dim, at in enumerate(grid.fixed))
    slices = 1
    for dim in others:
        slices *= report.shape[dim]
    return (
        f"slice {name(report)}[{inner}], one of {count(slices)}{_because(report, grid, others)}" if slices > 1 else ""
    )


def _because(report: TensorReport, grid: Grid, others: list[int]) -> str:
    """Return why this slice is drawn and not the first: it holds the first NaN."""
    first = report.statistics.first_nan if report.statistics is not None else None
    held = first is not None and all(grid.fixed[dim] == first[dim] for dim in others)
    return ", with the first NaN" if held and any(grid.fixed) else ""


def strip_shown(report: TensorReport) -> str:
    """Return what one cell of the strip stands for, where it is more than one element or not all of the storage."""
    strip = report.layout.strip if report.layout else None
    if strip is None or report.storage is None:
        return ""
    parts = []
    if strip.cell_elements > 1:
        parts.append(f"a cell is {plural(strip.cell_elements, 'element')}")
    if strip.start > 0 or strip.stop < report.storage.elements:
        whole = count(report.storage.elements)
        parts.append(f"elements {count(strip.start)} to {count(strip.stop - 1)} of {whole} are drawn")
    if not strip.exact:
        parts.append("counts are sampled")
    return "; ".join(parts)
