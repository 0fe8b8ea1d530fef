"""The elements of a tensor that are drawn: their colours, their place in the storage, and the words for them.

It holds no markup: grid, strip, SVG, terminal and figures agree about what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tensormagic import words
from tensormagic.reports import Grid, LayoutReport, Statistics, Strip, StripCell, TensorReport
from tensormagic.views import theme
from tensormagic.views.pictures.cells import fraction
from tensormagic.views.text_canvas import fewer, printable, sparkline
from tensormagic.words import DOT, ELLIPSIS, MINUS, TIMES, count, short_count, short_number, worded

TABLE_CELLS = 144  # up to here a grid is drawn as cells with their numbers in them
TABLE_COLUMNS = 16
NUMBERED_STRIP_CELLS = 32  # up to here a strip cell is wide enough for a number
FEW_STRIP_CELLS, MANY_STRIP_CELLS = 16, 24  # up to here its numbers may be long, and not quite so long
CELL_TEXT, STRIP_TEXT = 8, 6  # characters of a value in a cell of the grid, and of a short strip
PAIR_TEXT = 11  # and of a complex one in a cell: two numbers
ROW_TEXT = 64  # of a row of few whole numbers, none of which loses a digit there
# What is said of an element and of a slice: in the static page of one, in the viewer of any (`words.worded`).
ELEMENT_WORDS = {
    "formula": "offset({index}) = {sum}[ = {offset}]",
    "element": "{element}[ = {value}][, {why}]",
    "same": "[the same element is {other}]",
    "repeated": "the stride along {letters} is 0: all of {part} is this one element",
    "slice": "[{size}; ]slice {part}, one of {slices}[, with the first {bad}][; {values}]",
    "size": f"{{rows}} {TIMES} {{columns}} of {{row_count}} {TIMES} {{column_count}}",
    "showing": "Showing ",
    "value": "value",
    "offset": "offset",
    "value_map": "value",
    "offset_map": "storage offset",
    # where the viewer has no element to tell of, or not all of it
    "offset_alone": "offset {offset}",
    "unread": "not read by {name}[; {same}]",
    "unfound": "no element found that reads it",
    "elsewhere": "in another slice: click to turn to it",
    "undrawn": "not among the cells shown",
    "no_value": "value not in this output",
    "no_values": "its values are not in this output",
    # of what it is operated by
    "cells_show": "cells show",
    "rowDim": "rows",
    "columnDim": "columns",
    "indices": "indices of {name}: arrow keys move",
    "storage": "storage of {name}: arrow keys move",
    "along": "index along {letter}",
    "at": " {letter}={at} of {size}",
}


@dataclass(frozen=True, slots=True)
class DrawnLayout:
    """A layout, and what is singled out in it."""

    layout: LayoutReport  # What is drawn.
    row: int  # Row of the worked example in `Grid.rows`.
    column: int  # Its column in `Grid.columns`.
    index: tuple[int, ...]  # Its index in the tensor.
    offset: int  # Its storage offset.
    low: int  # The offset drawn in the darkest colour: the lowest of the tensor, or of the one slice that is drawn.
    high: int  # The offset drawn in the lightest colour.
    # The offsets of the one slice of several that is drawn, where all of it is; else empty, and what lies between
    # ``low`` and ``high`` counts as drawn.
    drawn: frozenset[int] = frozenset()

    @property
    def grid(self) -> Grid:
        """The index grid."""
        return self.layout.grid

    @property
    def strip(self) -> Strip | None:
        """The storage strip."""
        return self.layout.strip

    @property
    def drawable(self) -> bool:
        """Whether there is an element to draw."""
        return bool(self.grid.offsets and self.grid.offsets[0])

    @property
    def as_table(self) -> bool:
        """Whether the grid is small enough for a cell with a number in it per element."""
        columns = len(self.grid.columns)
        return columns <= TABLE_COLUMNS and columns * len(self.grid.rows) <= TABLE_CELLS

    def colour(self, offset: int) -> str:
        """Return the colour of an offset."""
        return theme.offset_colour(fraction(offset, self.low, self.high))

    def cell_colour(self, cell: StripCell) -> str | None:
        """Return the colour of a strip cell; None where the tensor reads it, but not in the slice that is drawn."""
        outside = self.drawn and not any(cell.start <= offset < cell.stop for offset in self.drawn)
        if cell.stop <= self.low or cell.start > self.high or outside:
            return None
        return self.colour(min(max((cell.start + cell.stop - 1) // 2, self.low), self.high))

    def strip_cell(self, offset: int) -> int | None:
        """Return the place in `Strip.cells` where a storage element lies, or None where it is not drawn."""
        strip = self.strip
        if strip is None or not strip.start <= offset < strip.stop:
            return None
        return (offset - strip.start) // strip.cell_elements

    @property
    def chosen(self) -> int | None:
        """The place in `Strip.cells` of the worked example."""
        return self.strip_cell(self.offset)

    def value(self, row: int, column: int) -> str:
        """Return an element as text, empty where values could not be read."""
        return self.grid.values[row][column] if self.grid.values else ""

    @property
    def strip_values(self) -> dict[int, str]:
        """Storage offset → value, as a cell of the strip holds it; nothing where there is not room for all of them."""
        cells = len(self.strip.cells) if self.strip is not None and self.strip.cell_elements == 1 else 0
        if not 0 < cells <= NUMBERED_STRIP_CELLS:
            return {}
        layout, grid = self.layout, self.grid
        texts: Sequence[str] = layout.elements or [text for row in grid.values for text in row]
        places = [offset for row in grid.offsets for offset in row]
        if layout.elements:  # not only those that are drawn
            places = [layout.offset(unravel(at, layout.shape)) for at in range(len(texts))]
        room = STRIP_TEXT if cells <= FEW_STRIP_CELLS else STRIP_TEXT - 2
        found = {place: narrowed(text, room) for place, text in zip(places, texts, strict=False)}
        most = room if cells <= MANY_STRIP_CELLS else 3
        return found if all(len(text) <= most and not text.endswith(ELLIPSIS) for text in found.values()) else {}

    def bad(self, row: int, column: int) -> str:
        """Return ``"NaN"``, ``"Inf"`` or nothing: what a corner mark has to say about an element."""
        level = self.grid.levels[row][column] if self.grid.levels else 0.0
        return "" if math.isfinite(level) else "NaN" if math.isnan(level) else "Inf"

    def bad_offsets(self) -> dict[int, str]:
        """Return storage offset → ``"NaN"`` or ``"Inf"`` for the elements shown that are one of them."""
        places = ((at, r, c) for r, row in enumerate(self.grid.offsets) for c, at in enumerate(row))
        return {at: mark for at, r, c in places if (mark := self.bad(r, c))}


def drawn_layout(report: TensorReport) -> DrawnLayout | None:
    """Return what is drawn of a strided tensor, None for a layout without strides."""
    layout = report.layout
    if layout is None:
        return None
    grid, low = layout.grid, layout.lowest or 0
    high = layout.highest if layout.highest is not None else low
    if not grid.offsets or not grid.offsets[0]:
        return DrawnLayout(layout, 0, 0, (), low, low, high)
    row, column, drawn = len(grid.offsets) // 2, len(grid.offsets[0]) // 2, frozenset[int]()  # the worked example
    if is_slice(layout):
        drawn = frozenset(offset for offsets in grid.offsets for offset in offsets)
        low, high = min(drawn), max(drawn)
    index, offset = index_at(grid, row, column), grid.offsets[row][column]
    return DrawnLayout(layout, row, column, index, offset, low, high, drawn if grid.complete else frozenset())


def is_slice(layout: LayoutReport) -> bool:
    """Return whether the grid is one slice of several: then only that slice is coloured."""
    drawn = {layout.grid.row_dim, layout.grid.column_dim}
    return any(size > 1 for dim, size in enumerate(layout.shape) if dim not in drawn)


def index_at(grid: Grid, row: int, column: int) -> tuple[int, ...]:
    """Return the tensor's index of the element shown at a row and column of the grid."""
    index = list(grid.fixed)
    if grid.row_dim is not None:
        index[grid.row_dim] = grid.rows[row]
    if grid.column_dim is not None:
        index[grid.column_dim] = grid.columns[column]
    return tuple(index)


def unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index that the element at ``position`` has in a contiguous tensor of that shape."""
    index = []
    for size in reversed(shape):
        position, at = divmod(position, size)
        index.append(at)
    return tuple(reversed(index))


def row_dims(shape: tuple[int, ...], row_length: int) -> int:
    """Return how many leading indices of a contiguous tensor name a row of that length; 0 where none do."""
    lengths = [math.prod(shape[dims:]) for dims in range(1, len(shape))]
    return lengths.index(row_length) + 1 if row_length in lengths else 0


def share_read(cell: StripCell) -> float | None:
    """Return which part of a strip cell's storage elements the tensor reads; None where that is not known."""
    return None if cell.distinct is None else cell.distinct / max(cell.stop - cell.start, 1)


def bases_index(report: TensorReport, offset: int) -> str:
    """Return what a storage element is called in the tensor whose rows are drawn (``a[2, 3]``), or nothing.

    Only where that tensor covers the whole storage, row by row: then its index follows from the offset alone.
    """
    strip = report.layout.strip if report.layout else None
    if strip is None or not strip.row_length or not strip.row_name or report.storage is None:
        return ""
    for alias in report.aliases:
        covers = math.prod(alias.shape) == report.storage.elements
        if alias.name == strip.row_name and covers and row_dims(alias.shape, strip.row_length):
            return f"{alias.name}[{', '.join(map(str, unravel(offset, alias.shape)))}]"
    return ""


def value_range(grid: Grid, statistics: Statistics | None) -> tuple[float, float] | None:
    """Return the values that get the darkest and the lightest colour: what is shown, outliers cut at 3 std."""
    finite = [level for levels in grid.levels for level in levels if math.isfinite(level)]
    return without_outliers(min(finite), max(finite), statistics) if finite else None


def without_outliers(low: float, high: float, statistics: Statistics | None) -> tuple[float, float]:
    """Return a range of values, cut at 3 std; unchanged where these are not known, or nothing would be left."""
    if statistics is None or statistics.mean is None or not statistics.std or statistics.of_what != "values":
        return low, high
    reach = 3 * statistics.std
    cut = max(low, statistics.mean - reach), min(high, statistics.mean + reach)
    return cut if cut[0] < cut[1] else (low, high)


def scale_words(low: float, high: float, scale: tuple[float, float]) -> tuple[str, str]:
    """Return how the ends of a scale are written; with a sign where there are values beyond them."""
    below, above = ("\u2264 " if low < scale[0] else ""), ("\u2265 " if high > scale[1] else "")
    return below + short_number(scale[0]), above + short_number(scale[1])


def narrowed(text: str, room: int) -> str:
    """Return a value in at most ``room`` characters: with fewer digits, not with digits cut off."""
    if len(text) <= room:
        return text
    with suppress(ValueError):
        value = complex(text)
        for digits in (3, 2, 1):
            short = f"{value.real:.{digits}g}" + (f"{value.imag:+.{digits}g}j" if text.endswith("j") else "")
            if len(short) <= room:
                return short
    return words.shortened(text, room)


def in_cell(value: str, columns: int) -> str:
    """Return a value as a cell of the grid holds it: a whole number in full, where so many columns have room for it."""
    whole = ROW_TEXT // max(columns, 1) if value.removeprefix("-").isdigit() else 0
    return narrowed(value, PAIR_TEXT if value.endswith("j") else max(CELL_TEXT, whole))


def formula(layout: LayoutReport, index: tuple[int, ...] = ()) -> str:
    """Return ``offset(i, j) = 1 + 1·i + 12·j``; with an index filled in ``offset(2, 1) = 1 + 1·2 + 12·1 = 15``."""
    factors = [*map(str, index or layout.dim_names)]
    terms = (f"{step}{DOT}{factor}" for step, factor in zip(layout.stride, factors, strict=True))
    summed, offset = " + ".join([str(layout.storage_offset), *terms]), str(layout.offset(index)) if index else ""
    return worded(ELEMENT_WORDS["formula"], index=", ".join(factors), sum=summed, offset=offset)


def element(report: TensorReport, index: tuple[int, ...]) -> str:
    """Return how an element is written in code: ``x[2, 1]``."""
    inner = ", ".join(map(str, index))
    return f"{name(report)}[{inner}]" if index else name(report)


def worked_example(report: TensorReport, drawn: DrawnLayout) -> list[str]:
    """Return what there is to say about the element singled out: its value, and its other names.

    Those are its index in the base, and the indices that stand still: ``x[:, 3]``.
    """
    value, still = drawn.value(drawn.row, drawn.column), still_dims(drawn.layout)
    lines = [worded(ELEMENT_WORDS["element"], element=element(report, drawn.index), value=value)]
    if other := bases_index(report, drawn.offset):
        lines.append(worded(ELEMENT_WORDS["same"], other=other))
    if still:
        inner = ", ".join(":" if dim in still else str(at) for dim, at in enumerate(drawn.index))
        part, letters = f"{name(report)}[{inner}]", still_letters(drawn.layout)
        lines.append(worded(ELEMENT_WORDS["repeated"], letters=letters, part=part))
    return lines


def still_dims(layout: LayoutReport) -> list[int]:
    """Return the dimensions along which every element is the same one."""
    return [dim for dim, step in enumerate(layout.stride) if step == 0 and layout.shape[dim] > 1]


def still_letters(layout: LayoutReport) -> str:
    """Return the letters of those dimensions."""
    return words.listed((layout.dim_names[dim] for dim in still_dims(layout)), most=len(layout.shape))


def jumps(report: TensorReport) -> str:
    """Return the walk through the storage: ``Row by row, x jumps +12, −11, +12, …``, or that it does not jump."""
    steps = report.layout.jumps if report.layout else ()
    if report.layout is None or not steps:
        return ""
    if any(each.name == "contiguous_format" and each.holds for each in report.layout.formats):
        return "Contiguous: read row by row, every step in memory is +1"
    more = f", {ELLIPSIS}" if report.numel - 1 > len(steps) else ""
    return f"Row by row, {name(report)} jumps {', '.join(map(words.signed, steps))}{more}"


def shown(report: TensorReport) -> str:
    """Return exactly what is drawn of what, or nothing where everything is."""
    if report.layout is None or not report.layout.grid.offsets:
        return ""
    grid, letters, parts = report.layout.grid, report.layout.dim_names, []
    if not grid.complete:
        sizes = {"rows": len(grid.rows), "columns": len(grid.columns), "row_count": count(grid.row_count),
                 "column_count": count(grid.column_count)}  # fmt: skip
        whole = ELEMENT_WORDS["size"] if grid.row_dim is not None else "{columns} of {column_count}"
        axes = ((grid.row_dim, grid.rows, grid.row_count), (grid.column_dim, grid.columns, grid.column_count))
        cut = [f"{letters[dim]} {words.series(at)}" for dim, at, full in axes if dim is not None and len(at) < full]
        parts.append(f"{whole.format(**sizes)}: {', '.join(cut)}")
    others = [dim for dim in range(len(report.shape)) if dim not in {grid.row_dim, grid.column_dim}]
    slices = math.prod(report.shape[dim] for dim in others)
    if slices > 1:
        inner = ", ".join(str(at) if dim in others else ":" for dim, at in enumerate(grid.fixed))
        first = report.statistics.first_nan if report.statistics is not None else None
        held = first is not None and any(grid.fixed) and all(grid.fixed[dim] == first[dim] for dim in others)
        said = {"part": f"{name(report)}[{inner}]", "slices": count(slices)}
        # "NaN": why it is this slice, and not the first
        parts.append(worded(ELEMENT_WORDS["slice"], **said, bad="NaN" if held else ""))
    return "; ".join(parts)


def strip_shown(report: TensorReport) -> str:
    """Return what one cell of the strip stands for, where it is more than one element or not all of the storage."""
    strip = report.layout.strip if report.layout else None
    if strip is None or report.storage is None:
        return ""
    parts = []
    if strip.cell_elements > 1:
        parts.append(f"a cell is {words.plural(strip.cell_elements, 'element')}")
    if strip.start > 0 or strip.stop < report.storage.elements:
        whole = count(report.storage.elements)
        parts.append(f"elements {count(strip.start)} to {count(strip.stop - 1)} of {whole} are drawn")
    if not strip.exact:
        parts.append("counts are sampled")
    return "; ".join(parts)


_BARS, _LABEL = 8, 40
_LARGE = 10**7  # whole numbers from here on are rounded
_IN, _MU, _SIGMA = "\u2208", "\u03bc", "\u03c3"


def line(report: TensorReport) -> str:
    """Return what a tensor is in one line: ``Tensor (10, 20) float32 n=200 x∈[−2.5 ▁▃█▅▁ 2.6] μ=0.02 σ=0.91``."""
    unknown = report.type_name.startswith("Uninitialized")  # a lazy module's parameter: nobody knows its shape yet
    values = report.data_text.replace("-", MINUS).replace(2 * MINUS, "--")  # a masked element of NumPy's
    numbers = report.statistics
    parts = [report.type_name, "(shape not known yet)" if unknown else shape_text(report.shape), report.dtype]
    if not unknown:  # where it is and what it is, where that is not a plain tensor on the CPU
        layout = "" if report.layout_name in {"strided", "unknown"} else report.layout_name.lstrip("_")
        label = "" if layout or report.device == "meta" else words.shortened(report.role, _LABEL)
        parts += ["" if report.device == "cpu" else report.device, layout]
        parts += [f"({label})"] if label not in {"", report.type_name, report.dtype} else []
    parts.append(f"= {values}" if not report.shape and values else values)
    if not values and not unknown:
        parts += [f"n={short_count(report.numel)}"] if len(report.shape) > 1 and report.numel else []
        read = ["no values to read"] if numbers is None else numbers_words(numbers, report.dtype)
        parts += read if report.numel else ["empty"]
    if report.autograd is not None and report.autograd.requires_grad:
        made_by = report.autograd.grad_fn
        parts.append(f"grad_fn={made_by}" if made_by else "requires_grad")
    return printable(" ".join(part for part in parts if part).replace("\u00a0", ""))


def name(report: TensorReport) -> str:
    """Return the name a panel goes by: short, on one line, never empty."""
    return words.shortened(report.name, _LABEL) or "tensor"


def shape(report: TensorReport) -> str:
    """Return a shape as Python writes it; of a lazy module's parameter that nobody knows it yet."""
    unknown = any(kind.key == "uninitialized" for kind in report.kinds)
    return "shape not known yet" if unknown else shape_text(report.shape)


def summary(report: TensorReport) -> str:
    """Return what a list says of a tensor: ``x (4, 2) float32 cpu 32 B``."""
    size = words.number_of_bytes(report.nbytes)
    return printable(f"{name(report)} {shape(report)} {report.dtype} {report.device} {size}")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as Python writes it; a size that differs from item to item is ``ragged``."""
    return words.tuple_text([size if size >= 0 else "ragged" for size in shape])


def numbers_words(numbers: Statistics, dtype: str) -> list[str]:
    """Return what values are like: range with histogram, mean, deviation, and what is not a number."""
    said, of = [], numbers.of_what
    if not numbers.count:
        return [of.removeprefix("the ")]
    if numbers.minimum is not None and numbers.minimum == numbers.maximum:
        said.append(f"{'all ' if numbers.finite == numbers.count else 'x='}{_value(numbers.minimum)}")
    elif numbers.minimum is not None:
        letter = "|x|" if "magnitudes" in of else "x"
        low, high = _value(numbers.minimum), _value(numbers.maximum)
        said.append(f"{letter}{_IN}[{low} {sparkline(fewer(numbers.histogram_counts, _BARS))} {high}]")
        said.append(f"{_MU}={_rounded(numbers.mean)}")
        said += [f"{_SIGMA}={_rounded(numbers.std)}"] if numbers.std is not None and dtype != "bool" else []
    bad = {"NaN": numbers.nan, "+Inf": numbers.positive_infinity, f"{MINUS}Inf": numbers.negative_infinity}
    said += [f"{short_count(number)} {kind}!" for kind, number in bad.items() if number]
    sampled = numbers.sampled is None and numbers.count < numbers.of
    said += [f"(of {short_count(numbers.count)} of them)"] if sampled else []
    return said + ([] if of in {"values", "magnitudes"} else [f"of {of}"])


def _value(value: float | None) -> str:
    """Return an end of the range; a whole number in full."""
    if value is None or not float(value).is_integer() or abs(value) >= _LARGE:
        return short_number(value)
    return str(int(value)).replace("-", MINUS)


def _rounded(value: float | None) -> str:
    return short_number(None if value is None else float(f"{value:.3g}"))
