"""A tensor in one line: shape, dtype, range with a histogram, mean, NaN and Inf (``%tensor x --line``)."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.reports import Statistics, TensorReport
from tensormagic.views.text_canvas import fewer, printable, sparkline
from tensormagic.words import MINUS, number_of_bytes, short_count, short_number, shortened, tuple_text

_BARS, _LABEL = 8, 40
_LARGE = 10**7  # whole numbers from here on are rounded
_IN, _MU, _SIGMA = "\u2208", "\u03bc", "\u03c3"


def line(report: TensorReport) -> str:
    """Return what a tensor is in one line: ``Tensor (10, 20) float32 n=200 x∈[−2.5 ▁▃█▅▁ 2.6] μ=0.02 σ=0.91``."""
    unknown = report.type_name.startswith("Uninitialized")  # a lazy module's parameter: nobody knows its shape yet
    size = "(shape not known yet)" if unknown else shape_text(report.shape)
    values = report.data_text.replace("-", MINUS)
    parts = [report.type_name, size, report.dtype, *([] if unknown else _unusual(report))]
    parts += [f"= {values}" if not report.shape and values else values]
    parts += [] if values or unknown else _numbers(report)
    if report.autograd is not None and report.autograd.requires_grad:
        made_by = report.autograd.grad_fn
        parts.append(f"grad_fn={made_by}" if made_by else "requires_grad")
    return printable(" ".join(part for part in parts if part).replace("\u00a0", ""))


def name(report: TensorReport) -> str:
    """Return the name a panel goes by: short, on one line, never empty."""
    return shortened(report.name, _LABEL) or "tensor"


def shape(report: TensorReport) -> str:
    """Return a shape as Python writes it; of a lazy module's parameter that nobody knows it yet."""
    unknown = any(kind.key == "uninitialized" for kind in report.kinds)
    return "shape not known yet" if unknown else shape_text(report.shape)


def summary(report: TensorReport) -> str:
    """Return what a list says of a tensor: ``x (4, 2) float32 cpu 32 B``."""
    return printable(f"{name(report)} {shape(report)} {report.dtype} {report.device} {number_of_bytes(report.nbytes)}")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as Python writes it; a size that differs from item to item is ``ragged``."""
    return tuple_text([size if size >= 0 else "ragged" for size in shape])


def _unusual(report: TensorReport) -> list[str]:
    """Return where it is and what it is, where that is not a plain tensor on the CPU."""
    device = "" if report.device == "cpu" else report.device
    layout = "" if report.layout_name in {"strided", "unknown"} else report.layout_name.lstrip("_")
    label = "" if layout or report.device == "meta" else shortened(report.role, _LABEL)
    return [device, layout, f"({label})" if label not in {"", report.type_name, report.dtype} else ""]


def _numbers(report: TensorReport) -> list[str]:
    """Return how many values there are and what they are like; why there are none."""
    numbers = report.statistics
    if not report.numel:
        return ["empty"]
    size = [f"n={short_count(report.numel)}"] if len(report.shape) > 1 else []
    return [*size, *(numbers_words(numbers, report.dtype) if numbers is not None else ["no values to read"])]


def numbers_words(numbers: Statistics, dtype: str) -> list[str]:
    """Return what values are like: range with histogram, mean, deviation, and what is no number."""
    words, of = [], numbers.of_what
    if not numbers.count:
        return [of.removeprefix("the ")]
    if numbers.minimum is not None and numbers.minimum == numbers.maximum:
        words.append(f"{'all ' if numbers.finite == numbers.count else 'x='}{_value(numbers.minimum)}")
    elif numbers.minimum is not None:
        letter = "|x|" if "magnitudes" in of else "x"
        low, high = _value(numbers.minimum), _value(numbers.maximum)
        words.append(f"{letter}{_IN}[{low} {sparkline(fewer(numbers.histogram_counts, _BARS))} {high}]")
        words.append(f"{_MU}={_rounded(numbers.mean)}")
        words += [f"{_SIGMA}={_rounded(numbers.std)}"] if numbers.std is not None and dtype != "bool" else []
    bad = {"NaN": numbers.nan, "+Inf": numbers.positive_infinity, f"{MINUS}Inf": numbers.negative_infinity}
    words += [f"{short_count(number)} {kind}!" for kind, number in bad.items() if number]
    sampled = numbers.sampled is None and numbers.count < numbers.of
    return (
        words
        + ([f"(of {short_count(numbers.count)} of them)"] if sampled else [])
        + ([] if of in {"values", "magnitudes"} else [f"of {of}"])
    )


def _value(value: float | None) -> str:
    """Return an end of the range; a whole number in full."""
    if value is None or not float(value).is_integer() or abs(value) >= _LARGE:
        return short_number(value)
    return str(int(value)).replace("-", MINUS)


def _rounded(value: float | None) -> str:
    return short_number(None if value is None else float(f"{value:.3g}"))
