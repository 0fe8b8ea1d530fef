"""The words of a refused call, said the same way in the terminal and in the panel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensormagic.reports import Clashing, FailureReport, Finding, Location, Operand
from tensormagic.views.panels.memory_run import out_of_memory_words
from tensormagic.words import plural, tuple_text

MOST_WAY = 5
_KINDS = {
    "shape": "the shapes do not fit",
    "dtype": "the dtypes do not fit",
    "device": "the tensors are on different devices",
    "view": "this view is not possible",
    "layout": "the memory layouts do not fit",
    "index": "an index does not fit",
    "argument": "an argument does not fit",
}
_SHORT = {"torch.nn.functional.": "F.", "torch.autograd.": "autograd."}
UNKNOWN_SHAPE = "not kept"
_BACKENDS = " This could be because the operator doesn't exist for this backend"


class Cell(NamedTuple):
    """One cell of the table of operands.

    Attributes:
        text: What stands there.
        clash: What does not fit, in a few words; empty where it does, or is not to blame.
    """

    text: str
    clash: str = ""


class Row(NamedTuple):
    """One operand as a row.

    Attributes:
        name: What the person calls it.
        role: What torch calls it.
        dimensions: Of its shape, a cell each; none where it is no tensor.
        text: In place of the shape.
        dtype: Empty where there is none.
        device: Likewise.
        stride: Likewise.
        made: Where the line is that made it.
        maker: That line.
    """

    name: Cell
    role: str
    dimensions: tuple[Cell, ...] | None
    text: Cell
    dtype: Cell
    device: Cell
    stride: Cell
    made: Cell
    maker: str

    @property
    def clashes(self) -> bool:
        """Whether any part of it does not fit."""
        cells = (self.name, *(self.dimensions or ()), self.text, self.dtype, self.device, self.stride)
        return any(cell.clash for cell in cells)


def function_text(report: FailureReport) -> str:
    """Return the refused call's function as people write it: ``F.linear``, ``Tensor.view``."""
    name = report.function or report.call or "a call of torch"
    for long, short in _SHORT.items():
        name = name.replace(long, short) if name.startswith(long) else name
    return name


def headline(report: FailureReport) -> str:
    """Return what happened, in a few words."""
    if report.out_of_memory is not None:
        return "memory ran out"
    if report.mismatch is not None:
        return _KINDS[report.mismatch.kind]
    return "failed within backward" if report.phase == "backward" and report.node is not None else "torch refused this"


def place_text(report: FailureReport) -> str:
    """Return where: line, module, and inside which function of torch's."""
    parts = [report.location.label] if report.location is not None else []
    parts += [f"in {report.module}"] if report.module else []
    parts += [f"inside {report.inside.replace('torch.nn.functional.', 'F.')}"] if report.inside else []
    parts += ["within backward"] if report.phase == "backward" and report.node is None else []
    return ", ".join(parts)


def way_lines(report: FailureReport) -> tuple[list[Location | str], Location | None]:
    """Return the lines that lead there, a long way without its middle, which is counted; and the one that failed."""
    way: list[Location | str] = list(report.way[:-1])
    left = len(way) + 1 - MOST_WAY
    short = way if left <= 0 else [way[0], f"{plural(left, 'line')} more", *way[-MOST_WAY + 2 :]]
    return short, report.location


def marked(location: Location, call: str) -> tuple[str, str, str]:
    """Return a line's text before the failing call, the call itself, and after it; all before where it is not there."""
    text = location.text
    for length in range(len(call), 0, -1):
        if (at := text.find(call[:length])) >= 0 and (length == len(call) or at + length == len(text)):
            return text[:at], text[at : at + length], text[at + length :]
    return text, "", ""


def rows(report: FailureReport) -> list[Row]:
    """Return the operands as rows, with what does not fit marked."""
    parts = report.mismatch.parts if report.mismatch is not None else ()
    kind = report.mismatch.kind if report.mismatch is not None else ""
    of_each = [[part for part in parts if part.operand == at] for at in range(len(report.operands))]
    return [_row(operand, its, kind) for operand, its in zip(report.operands, of_each, strict=True)]


def _row(operand: Operand, parts: list[Clashing], kind: str) -> Row:
    by_dimension = {part.dimension: _clash(part) for part in parts if part.dimension is not None}
    whole = next((_clash(part) for part in parts if part.dimension is None), "")
    has_shape = operand.is_tensor or bool(operand.shape)
    sizes = tuple(Cell(str(size), by_dimension.get(at, "")) for at, size in enumerate(operand.shape))
    described = {
        "dtype": operand.dtype,
        "device": operand.device,
        "view": tuple_text(operand.stride) if operand.stride else _layout(operand),
    }
    dtype, device, stride = (Cell(text, whole if kind == name and text else "") for name, text in described.items())
    aside = "" if described.get(kind) else whole
    return Row(
        Cell(operand.name, aside if has_shape else ""),
        operand.place or operand.role,
        sizes if has_shape else None,
        Cell(operand.text or ("" if has_shape else UNKNOWN_SHAPE), "" if has_shape else aside),
        dtype,
        device,
        stride,
        Cell(operand.location.label if operand.location is not None else ""),
        operand.location.text if operand.location is not None else "",
    )


def _layout(operand: Operand) -> str:
    return operand.layout if operand.layout not in {"", "strided"} else ""


def _clash(part: Clashing) -> str:
    """Return what would have fitted, in a few words."""
    if not part.expected:
        return "does not fit"
    return f"≠ {part.expected}" if part.expected.isdigit() else f"fits: {part.expected}"


def columns(table: list[Row]) -> list[str]:
    """Return which columns hold anything, by the name of their field."""
    optional = {
        "dtype": any(row.dtype.text for row in table),
        "device": any(row.device.text not in {"", "cpu"} or row.device.clash for row in table),
        "stride": any(row.stride.text for row in table),
        "made": any(row.made.text for row in table),
    }
    return [name for name, there in optional.items() if there]


def rule(report: FailureReport) -> str:
    """Return what the call asks for, where no finding says it already; where memory ran out, what there was."""
    if report.out_of_memory is not None:
        return out_of_memory_words(report.out_of_memory)
    if report.mismatch is None or any(report.mismatch.rule.rstrip(".") in one.message for one in report.findings):
        return ""
    return report.mismatch.rule


def works(report: FailureReport) -> list[str]:
    """Return what would have worked, where no finding says it already."""
    ways = report.mismatch.works if report.mismatch is not None else ()
    return [way for way in ways if not any(way in one.remedy for one in report.findings)]


def maybe(report: FailureReport) -> list[str]:
    """Return what may help and could not be tried, where no finding says it already."""
    ways = report.mismatch.maybe if report.mismatch is not None else ()
    return [way for way in ways if not any(way in one.remedy for one in report.findings)]


def torch_said(report: FailureReport) -> str:
    """Return the exception as Python's last line has it, without the page on backends that a missing kernel brings."""
    sentence = report.error.split(_BACKENDS, 1)[0]
    return f"{report.error_type}: {sentence}" if sentence else report.error_type


def finding_place(finding: Finding, report: FailureReport) -> str:
    """Return a finding's line, where it is not the failing one, which is shown anyway."""
    place = finding.location
    if place is None or place == report.location:
        return ""
    return f"{place.label}: `{place.text}`" if place.text else place.label


def related_lines(finding: Finding) -> Iterator[str]:
    """Yield the other lines that matter to a finding."""
    for line in finding.related:
        yield f"{line.what}: {line.location.label}: `{line.location.text}`"
