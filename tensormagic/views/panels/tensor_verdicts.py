"""The verdicts on a layout, one sentence each: order, memory format, views, repeats and gaps.

Text between backticks is code; renderers turn it into ``<code>`` or drop the backticks.
"""

from __future__ import annotations

from collections.abc import Callable

from tensormagic.reports import Barrier, LayoutReport, ViewReport
from tensormagic.words import DOT, count, listed, number_of_bytes, plural, tuple_text

MOST_BARRIERS = 3
_FORMAT_NAMES = {"contiguous_format": "contiguous"}
_FORMAT_ARGUMENTS = {
    "channels_last": "torch.channels_last",
    "channels_last_3d": "torch.channels_last_3d",
}


def verdicts(layout: LayoutReport) -> tuple[tuple[str, str], ...]:
    """Return what is worth knowing of a layout: title and sentence of each verdict that has something to say."""
    phrase = ((title, say(layout)) for title, say in _VERDICTS.items())
    return tuple((title, sentence) for title, sentence in phrase if sentence)


def _numel(layout: LayoutReport) -> int:
    numel = 1
    for size in layout.shape:
        numel *= size
    return numel


def format_verdict(layout: LayoutReport) -> str:
    """Return which memory formats hold, which dimension breaks the first that does not, and what a copy takes."""
    held = [each for each in layout.formats if each.holds]
    plain = next((each for each in layout.formats if each.name == "contiguous_format"), None)
    if plain is None:
        return ""
    if plain.holds:
        good = listed(["contiguous", *(each.name for each in held if each is not plain)])
        return f"{good}: `.contiguous()` returns the tensor itself, without a copy"
    copies = f"`.contiguous()` copies {number_of_bytes(layout.contiguous_bytes)}"
    dim = plain.breaking_dim
    because = "" if dim is None else f"{_stride(layout, dim)}, a contiguous tensor has {plain.stride[dim]} there"
    if held:
        kept = f"`.contiguous(memory_format={_FORMAT_ARGUMENTS.get(held[0].name, held[0].name)})` nothing"
        return f"{held[0].name}, not contiguous: {because}; {copies}, {kept}"
    names = [_FORMAT_NAMES.get(each.name, each.name) for each in layout.formats]
    return f"{'not' if len(names) == 1 else 'neither'} {' nor '.join(names)}: {because}; {copies}"


def _stride(layout: LayoutReport, dim: int) -> str:
    return f"{layout.dim_names[dim]} has stride {layout.stride[dim]}"


def view_verdict(layout: LayoutReport) -> str:
    """Return which dimensions ``.view()`` can merge, and for each that cannot, the two numbers that differ."""
    report, numel = layout.views, _numel(layout)
    if report is None or numel < 2:
        return ""
    if report.flat:
        return f"every `.view(shape)` of {count(numel)} elements works, as does `.view(-1)`"
    barriers = [barrier_text(layout, barrier) for barrier in report.barriers[:MOST_BARRIERS]]
    left_out = len(report.barriers) - len(barriers)
    barriers += [f"{plural(left_out, 'barrier')} more"] if left_out > 0 else []
    fails = f"`.view(-1)` raises, `.reshape(-1)` copies {number_of_bytes(report.copy_bytes)}"
    return "; ".join([part for part in (_merges(layout, report), *barriers, fails) if part])


def _merges(layout: LayoutReport, report: ViewReport) -> str:
    merged = [group for group in report.groups if len(group) > 1]
    if not merged:
        return ""
    names = listed((DOT.join(layout.dim_names[dim] for dim in group) for group in merged), most=len(merged))
    return f"{names} merge: `.view{tuple_text(report.sizes)}` works"


def barrier_text(layout: LayoutReport, barrier: Barrier) -> str:
    """Return ``i and j cannot merge: i has stride 1, but size·stride of j is 4·6 = 24``."""
    outer, inner = layout.dim_names[barrier.outer], layout.dim_names[barrier.inner]
    product = f"{barrier.inner_size}{DOT}{barrier.inner_stride} = {barrier.needed}"
    numbers = f"{outer} has stride {barrier.stride}, but size{DOT}stride of {inner} is {product}"
    return f"{outer} and {inner} cannot merge: {numbers}"


def order_verdict(layout: LayoutReport) -> str:
    """Return in which order the dimensions lie in memory, where that is not the order in which they are read."""
    moving = [
        dim for dim, (size, step) in enumerate(zip(layout.shape, layout.stride, strict=True)) if size > 1 and step
    ]
    memory = sorted(moving, key=lambda dim: -layout.stride[dim])
    if memory == moving or 0 in layout.shape:
        return ""
    names = layout.dim_names
    return (
        f"in memory {', '.join(names[dim] for dim in memory)} from slowest to fastest, "
        f"read as {', '.join(names[dim] for dim in moving)}"
    )


def repeats_verdict(layout: LayoutReport) -> str:
    """Return which dimensions repeat what they read, or that different indices meet in one element."""
    numel = _numel(layout)
    still = [dim for dim, step in enumerate(layout.stride) if step == 0 and layout.shape[dim] > 1]
    if numel == 0 or layout.internal_overlap == "no":
        return ""
    parts = [
        f"{layout.dim_names[dim]} has stride 0: all {count(layout.shape[dim])} of its indices read the same"
        for dim in still
    ]
    once = numel
    for dim in still:
        once //= layout.shape[dim]
    if layout.distinct is None:
        parts.append("different indices may read the same element")
    elif layout.distinct < once:
        parts.append(f"{count(once)} indices share {count(layout.distinct)} elements: writing to one changes several")
    return "; ".join(parts)


def gaps_verdict(layout: LayoutReport) -> str:
    """Return how much is skipped between the first element read and the last."""
    if layout.lowest is None or layout.highest is None or layout.distinct is None:
        return ""
    span = layout.highest - layout.lowest + 1
    skipped = span - layout.distinct
    if not skipped:
        return ""
    ends = f"{count(layout.lowest)} to {count(layout.highest)}"
    return f"{count(skipped)} of the {count(span)} elements from {ends} are skipped"


_VERDICTS: dict[str, Callable[[LayoutReport], str]] = {
    "order": order_verdict,
    "repeats": repeats_verdict,
    "gaps": gaps_verdict,
    "format": format_verdict,
    "views": view_verdict,
}
