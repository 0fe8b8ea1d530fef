"""What a person sees from ``%gpumem`` in a notebook: where the memory is, what fills it, what letting go would free.

Everything is markup, placed in per cent and coloured by the theme: no script, no picture to load. Findings come first,
then a bar and a treemap a device; the table of all storages with their holders is one click away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensormagic.renderers.alternatives.memory_alternative import treemap_alternative
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import fold, folds, header, panel, scroll, section
from tensormagic.renderers.memory.categories import LETTERS, category_style
from tensormagic.renderers.memory.device_bar import LETTERS as PART_LETTERS
from tensormagic.renderers.memory.device_bar import DeviceBar, Part, device_bar
from tensormagic.renderers.memory.memory_words import (
    called,
    device_notes,
    freeing,
    frees_by_history,
    held_by,
    kind,
    line_label,
    parts_words,
    release_notes,
    summary,
    tiles,
    title,
    what,
)
from tensormagic.renderers.memory.treemap import treemap
from tensormagic.renderers.memory.treemap_html import WIDTH, treemap_html
from tensormagic.reports import DeviceMemory, LiveStorage, MemoryReport, Release
from tensormagic.words import count, number_of_bytes, plural, shortened

NO_BREAK = "&nbsp;"  # between a number and its unit
MOST_ROWS = 40
MOST_RELEASES, MOST_RELEASES_FOLDED = 3, 32
MAP_HEIGHT, BRIEF_MAP_HEIGHT, SMALL_MAP_HEIGHT = 180.0, 110.0, 56.0
_STORAGE_HEAD = ("storage", "bytes", "category", "tensor", "device", "allocated by", "held by")


def memory_panel(label: str, parts: Iterable[str], kind: str = "tm-memory") -> str:
    """Return a panel with the colours of the categories."""
    return panel(kind, label, parts, css=("memory.css",), extra=category_style())


def render(report: MemoryReport, *, brief: bool = False) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside.

    Args:
        report: What is drawn.
        brief: Whether it stands below another panel: then the map is low, and what could be freed is folded.
    """
    first, others = _devices(report, BRIEF_MAP_HEIGHT if brief else MAP_HEIGHT)
    freed = releases_html(report.releases, folded=brief)
    parts = [
        header(escape(shortened(title(report), 120)), [escape(summary(report))], about="memory"),
        findings_html(report.findings),
        gaps_html(report.gaps),
        section("", first),
        "" if brief else freed,
        folds(*others, freed if brief else "", storages_html(report.storages, report.left_out)),
    ]
    return memory_panel(f"Where the {title(report)} is", parts)


def _devices(report: MemoryReport, height: float) -> tuple[str, list[str]]:
    """Return the device with the most, and the others, each folded."""
    if not report.devices:
        return "", []
    first, *others = sorted(report.devices, key=lambda device: -device.live)
    rest = (each for each in report.devices if each in others)
    folded = [fold(escape(each.device), _device(report, each, SMALL_MAP_HEIGHT), state=_taken(each)) for each in rest]
    return _device(report, first, height), folded


def _taken(device: DeviceMemory) -> str:
    total = f" of {number_of_bytes(device.total)}" if device.total is not None else ""
    return f"{number_of_bytes(device.live)} of tensors{total}"


def _device(report: MemoryReport, device: DeviceMemory, height: float) -> str:
    bar = device_bar(device, report.every())
    parts = [_about(bar), _bar(bar), _keys(bar)]
    if device.live:
        found = tiles(report, device.device)
        said = treemap_alternative(found, f"what is alive on {device.device}")
        parts.append(treemap_html(treemap(found, WIDTH, height), said))
    return "".join(parts)


def _about(bar: DeviceBar) -> str:
    device = bar.device
    name = tag("h3", escape(device.device))
    total = f"{number_of_bytes(device.total)} in all" if device.total is not None else ""
    words = [device.name, total, *device_notes(device)]
    told = (" " + tag("span", escape(text), class_="quiet") for text in words if text)
    return tag("div", name, *told, class_="tm-about")


def _bar(bar: DeviceBar) -> str:
    inner = "".join(
        tag("span", class_=_ground(part, cut=bar.cut), style=f"width:{100 * part.share:.2f}%", title=_said(part))
        for part in bar.parts
    )
    return tag("div", inner, class_="tm-bar", role="img", aria_label="; ".join(map(_said, bar.parts))) if inner else ""


def _ground(part: Part, *, cut: bool = False) -> str:
    if part.category:
        return f"tm-c{LETTERS[part.category]}"
    return f"tm-d{PART_LETTERS[part.kind]}" + (" tm-cut" if cut and part.kind == "free" else "")


def _said(part: Part) -> str:
    return f"{part.words}: {number_of_bytes(part.nbytes)}"


def _keys(bar: DeviceBar) -> str:
    keys = [key_html(_ground(part), part.words, part.nbytes) for part in bar.parts]
    if bar.cut:
        keys.append(tag("span", "(free is not drawn to scale)", class_="tm-key quiet"))
    return tag("div", " ".join(keys), class_="tm-keys")


def key_html(ground: str, words: str, nbytes: int) -> str:
    """Return an entry of a legend: a swatch, what it stands for, its bytes."""
    swatch = tag("span", class_=f"tm-swatch {ground}")
    return tag("span", swatch, escape(words), " ", tag("b", number_of_bytes(nbytes)), class_="tm-key")


def releases_html(releases: Sequence[Release], *, folded: bool = False) -> str:
    """Return what letting go of each name would free, the most first; the smaller ones, or all, folded."""
    every = freeing(releases)
    if not every:
        return ""
    top = max(release.nbytes for release in every)
    note = "each by itself, everything else staying"
    if frees_by_history(every):
        note += "; `%gpumem --free --yes` lets go of what only outputs and errors hold"
    said = " " + tag("span", code_html(note), class_="quiet")
    further = _release_rows(every[MOST_RELEASES : MOST_RELEASES + MOST_RELEASES_FOLDED], top)
    more = f"{count(len(every) - MOST_RELEASES)} more that free something"
    rows = _release_rows(every[:MOST_RELEASES], top)
    title = "What letting go would free"
    parts = (rows, fold(more, further))
    return fold(title + said, *parts) if folded else section(title, *parts, more=said)


def code_html(text: str) -> str:
    """Return a text in which what stands between backticks is code."""
    first, *rest = text.split("`")
    return escape(first) + "".join(
        tag("code", escape(part)) if at % 2 == 0 else escape(part) for at, part in enumerate(rest)
    )


def _release_rows(releases: Iterable[Release], top: int) -> str:
    rows = "".join(_release(release, top) for release in releases)
    return tag("table", tag("tbody", rows), class_="tm-list tm-full tm-frees") if rows else ""


def _release(release: Release, top: int) -> str:
    code = tag("code", escape(shortened(what(release), 80)))
    length = 100 * release.nbytes / top if top else 0
    bar = tag("span", tag("i", style=f"width:{length:.1f}%"), class_="tm-track")
    cells = (
        tag("th", code, scope="row"),
        tag("td", bar),
        tag("td", number_of_bytes(release.nbytes), class_="tm-num"),
        tag("td", plural(release.storages, "storage"), class_="tm-num quiet"),
        tag("td", escape(release_notes(release)), _parts(release), class_="quiet tm-wide"),
    )
    return tag("tr", *cells)


def _parts(release: Release) -> str:
    """Return what can be taken out of a name instead, on a line of its own."""
    told = [
        f"{tag('code', escape(shortened(code, 80)))} {nbytes.replace(' ', NO_BREAK)}"
        for code, nbytes in parts_words(release)
    ]
    return tag("div", "or inside: ", ", ".join(told)) if told else ""


def details_html(title: str, inner: str, *, state: str = "") -> str:
    """Return something folded away; nothing where there is nothing."""
    if not inner:
        return ""
    return fold(escape(title), scroll(title, inner), state=state)


def storages_html(
    storages: Sequence[LiveStorage], left_out: Sequence[LiveStorage], *, name: str = "Storages by size"
) -> str:
    """Return the largest storages with their holders, folded; how many more there are is said."""
    if not storages:
        return ""
    shown = storages[:MOST_ROWS]
    has_lines = any(one.location is not None for one in shown)
    rows = "".join(_storage(one, has_lines=has_lines) for one in shown)
    rest = (*storages[MOST_ROWS:], *left_out)
    number = len(storages[MOST_ROWS:]) + sum(one.tensors for one in left_out)
    more = f"and {count(number)} smaller, {number_of_bytes(sum(one.nbytes for one in rest))}" if rest else ""
    titles = [text for text in _STORAGE_HEAD if has_lines or text != "allocated by"]
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in titles)))
    filled = tag("table", head, tag("tbody", rows), class_="tm-list tm-full") + (
        tag("p", more, class_="quiet") if more else ""
    )
    total = len(storages) + sum(one.tensors for one in left_out)
    nbytes = number_of_bytes(sum(one.nbytes for one in (*storages, *left_out)))
    return details_html(name, filled, state=f"{plural(total, 'storage')}, {nbytes}, and who holds them")


def _storage(one: LiveStorage, *, has_lines: bool) -> str:
    cells = (
        tag("th", tag("code", escape(shortened(called(one), 90))), scope="row"),
        tag("td", number_of_bytes(one.nbytes), class_="tm-num"),
        tag("td", escape(one.category)),
        tag("td", escape(kind(one))),
        tag("td", escape(one.device)),
        *([_line(one)] if has_lines else []),
        tag("td", escape(held_by(one) or "nothing else"), class_="tm-wide quiet"),
    )
    return tag("tr", *cells)


def _line(one: LiveStorage) -> str:
    if one.location is None:
        return tag("td", "")
    text = shortened(one.location.text, 36)
    return tag("td", escape(line_label(one)), " ", tag("code", escape(text)) if text else "", class_="tm-wide")
