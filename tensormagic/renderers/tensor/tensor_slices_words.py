"""What is said about a tensor slice by slice: where what is not finite lies, what is all zeros, what is far larger."""

from __future__ import annotations

from tensormagic.renderers.tensor.tensor_picture import TABLE_CELLS
from tensormagic.reports import DimensionSlices, TensorReport
from tensormagic.words import TIMES, count, listed, plural, series, short_number


def letter(report: TensorReport, dim: int) -> str:
    """Return the letter of a dimension, as the panel's first line gives it."""
    return report.layout.dim_names[dim] if report.layout is not None else f"dim {dim}"


def urgent(report: TensorReport) -> bool:
    """Return whether slices say where NaN and infinities are better than the first one's index does."""
    return any(sum(each.cell_bad) > 1 for each in _telling(report)) and report.numel > TABLE_CELLS


def slices_summary(report: TensorReport) -> str:
    """Return what stands out, for a closed disclosure."""
    parts = [_bad_clause(report, each) for each in _telling(report)[:1]]
    for each in report.slices:
        at = letter(report, each.dim)
        if 0 < each.zero_count < each.size:
            parts.append(f"{count(each.zero_count)} of {count(each.size)} along {at} all zeros")
        parts += [f"{at}={large.index} {TIMES}{short_number(_rounded(large.ratio))}" for large in each.large[:1]]
    return ", ".join(parts[:3]) or "no outliers"


def slices_lines(report: TensorReport) -> tuple[str, ...]:
    """Return every dimension's story in sentences: where NaN and infinities lie first."""
    telling = _telling(report)
    single = [each for each in telling if each.bad_count == 1]
    lines = [_only_there(report, single[:3])] if single else [f"{_several(report, each)}." for each in telling[:2]]
    for each in report.slices:
        lines += _zeros(report, each) + _large(report, each)
    return tuple(lines + _scope(report))


def _telling(report: TensorReport) -> list[DimensionSlices]:
    """Return the dimensions that say where the bad elements are: few of their slices hold any, the fewest first."""
    holding = [each for each in report.slices if 0 < each.bad_count < each.size]
    return sorted(holding, key=lambda each: (each.bad_count / each.size, each.bad_count))


def _bad_clause(report: TensorReport, each: DimensionSlices) -> str:
    at = letter(report, each.dim)
    if each.bad_count == 1:
        return f"{_kind(each)} only at {at}={each.bad[0].index} of {count(each.size)}"
    return f"{_kind(each)} in {count(each.bad_count)} of {count(each.size)} along {at}"


def _kind(each: DimensionSlices) -> str:
    nan, inf = any(bad.nan for bad in each.bad), any(bad.inf for bad in each.bad)
    return "NaN and Inf" if nan and inf else "NaN" if nan else "Inf"


def _only_there(report: TensorReport, single: list[DimensionSlices]) -> str:
    """Return where all bad elements lie, when they lie at one index of each of these dimensions."""
    bad, total = single[0].bad[0], sum(single[0].cell_bad)
    places = [f"`{letter(report, each.dim)}={each.bad[0].index}` (one of {count(each.size)})" for each in single]
    every = f"All {_held(bad.nan, bad.inf)} lie in" if total > 1 else f"The one {_kind(single[0])} lies in"
    return f"{every} {listed(places)}{_seen(single[0])}."


def _several(report: TensorReport, each: DimensionSlices) -> str:
    at = letter(report, each.dim)
    places = (f"`{at}={bad.index}` ({_held(bad.nan, bad.inf)})" for bad in each.bad)
    first = listed(places, most=len(each.bad), found=each.bad_count)
    of = f"{count(each.bad_count)} of {count(each.size)}"
    return f"{of} slices along {at} hold {_kind(each)}: {first}{_seen(each)}"


def _seen(each: DimensionSlices) -> str:
    return "" if each.bad_exact else f", of the {count(each.looked)} elements looked at in each slice"


def _held(nan: int, inf: int) -> str:
    return " + ".join(f"{count(n)} {kind}" for n, kind in ((nan, "NaN"), (inf, "Inf")) if n)


def _zeros(report: TensorReport, each: DimensionSlices) -> list[str]:
    if not 0 < each.zero_count < each.size:
        return []
    at = letter(report, each.dim)
    which = series(each.zero) + (" \u2026" if each.zero_count > len(each.zero) else "")
    what = "slices is" if each.zero_count == 1 else "slices are"
    seen = "" if each.looked == each.elements else f" in the {count(each.looked)} elements looked at of each"
    return [f"{count(each.zero_count)} of {count(each.size)} {what} all zeros along {at}{seen}: `{at}={which}`."]


def _large(report: TensorReport, each: DimensionSlices) -> list[str]:
    at = letter(report, each.dim)
    return [
        f"`{at}={large.index}` is far larger than the others along {at}: its mean magnitude is "
        f"{short_number(_rounded(large.ratio))} {TIMES} that of the median slice."
        for large in each.large[:2]
    ]


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.2g}")


def _scope(report: TensorReport) -> list[str]:
    sampled = [each for each in report.slices if each.looked < each.elements]
    if not sampled:
        return []
    each = sampled[0]
    exact = " NaN and infinities were searched for everywhere." if all(other.bad_exact for other in sampled) else ""
    looked = (
        f"{count(each.looked)} of {plural(each.elements, 'element')} of each slice along {letter(report, each.dim)}"
    )
    return [f"Colours come from a sample: {looked}.{exact}"]
