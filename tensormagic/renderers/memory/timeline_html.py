"""A timeline in a panel: the stacked areas, their axes and the peak as markup around them, a legend with numbers.

Areas by category and by line stand in one form; two radio buttons and a style rule choose between them, no script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tensormagic.renderers.alternatives.memory_alternative import timeline_alternative
from tensormagic.renderers.basics.markup import attributes, escape, svg_image, tag
from tensormagic.renderers.basics.panel import fold, heading
from tensormagic.renderers.memory.categories import LETTERS
from tensormagic.renderers.memory.memory_run_words import layer_words
from tensormagic.renderers.memory.timeline_stack import Layer, by_category, by_line, column_of, thinned_words, ticks
from tensormagic.renderers.memory.timeline_svg import COLUMNS, areas_svg, scale_top
from tensormagic.reports import MemoryRunReport, Timeline
from tensormagic.words import count, number_of_bytes, seconds_text

_RIGHT_HALF = 0.6


def timeline_html(report: MemoryRunReport, timeline: Timeline, *, folded: bool = False) -> str:
    """Return the timeline of one device, by category and by line; ``folded`` leaves it for a click."""
    lines = by_line(timeline)
    switch = _switch() if any(layer.rank or layer.key.isdigit() for layer in lines) else ""
    title = f"Alive on {timeline.device}"
    head = tag("div", switch, class_="tm-about") if folded else heading(title, more=switch)
    words = partial(layer_words, report)
    views = [tag("div", layers_html(timeline, by_category(timeline), words), class_="tm-by-category")]
    views += [tag("div", layers_html(timeline, lines, words), class_="tm-by-line")] if switch else []
    # A form keeps its buttons apart from those of the same panel elsewhere on the page; "dialog": it never leaves.
    drawn = tag("form", head, *views, class_="tm-timeline" if folded else "tm-section tm-timeline", method="dialog")
    return fold(escape(title), drawn, state=f"peak {number_of_bytes(max(timeline.live))}") if folded else drawn


def _switch() -> str:
    choices = (("by category", "tm-pick-category", ""), ("by line", "tm-pick-line", None))
    return "".join(
        tag("label", f"<input{attributes(type='radio', name='by', class_=class_, checked=checked)}>", " ", words)
        for words, class_, checked in choices
    )


def layers_html(
    timeline: Timeline, layers: Sequence[Layer], words: Callable[[Layer], str], *, unit: str = "operation"
) -> str:
    """Return stacked areas with their axes and their legend.

    Args:
        timeline: What is drawn.
        layers: Of it, the lowest first.
        words: What a layer stands for.
        unit: What the axis counts.
    """
    keys = " ".join(_key(timeline, layer, words(layer)) for layer in reversed(layers))
    said = tag("span", "at the peak", class_="tm-key quiet") if keys else ""
    alternative = timeline_alternative(timeline, layers, words, unit=unit)
    drawn = tag("div", _chart(timeline, layers, unit, alternative), class_="tm-drawn")
    return tag("div", drawn, " ", tag("div", said, " ", keys, class_="tm-keys"), class_="tm-beside-keys")


def _key(timeline: Timeline, layer: Layer, words: str) -> str:
    ground = f"tm-c{LETTERS[layer.key]}" if layer.key in LETTERS else f"tm-l{layer.rank}"
    swatch = tag("span", class_=f"tm-swatch {ground}")
    told = tag("code", escape(words)) if layer.key.isdigit() else escape(words)
    nbytes = tag("b", number_of_bytes(layer.values[timeline.peak]))
    return tag("span", swatch, told, " ", nbytes, class_="tm-key")


def _chart(timeline: Timeline, layers: Sequence[Layer], unit: str, alternative: str) -> str:
    top = scale_top(timeline)
    marks = " ".join(_tick(nbytes, top) for nbytes in ticks(top))  # spaces are for who reads it without styles
    image = svg_image(areas_svg(timeline, layers), alternative)
    return tag("div", marks, " ", tag("div", image, _peak(timeline, top), class_="tm-plot"), class_="tm-chart") + _axis(
        timeline, unit
    )


def _tick(nbytes: int, top: int) -> str:
    place = f"bottom:{100 * nbytes / top:.2f}%"
    return tag("span", tag("i", number_of_bytes(nbytes) if nbytes else "0"), class_="tm-tick", style=place)


def _peak(timeline: Timeline, top: int) -> str:
    across = column_of(timeline, timeline.peak, COLUMNS)
    nbytes = timeline.live[timeline.peak]
    side = f"right:{100 * (1 - across):.2f}%" if across > _RIGHT_HALF else f"left:{100 * across:.2f}%"
    label = tag("span", f"peak {number_of_bytes(nbytes)}", class_="tm-peak-label", style=side)
    return tag("span", class_="tm-peak", style=f"left:{100 * across:.2f}%;height:{100 * nbytes / top:.2f}%") + label


def _axis(timeline: Timeline, unit: str) -> str:
    last = count(timeline.operation[-1])
    ends = [f"{unit} {count(timeline.operation[0])}", f"{last}, after {seconds_text(timeline.seconds[-1])}"]
    ends[1:1] = [words] if (words := thinned_words(timeline)) else []
    return tag("div", " ".join(tag("span", text) for text in ends), class_="tm-axis")
