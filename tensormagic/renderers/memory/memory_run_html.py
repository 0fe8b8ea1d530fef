"""What a person sees from ``%%gpumem`` in a notebook: the peak, the timeline, what each line took, what stayed.

Everything is markup and small pictures without letters: it needs no script, fits any width and takes the theme.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.alternatives.memory_alternative import treemap_alternative
from tensormagic.renderers.basics.finding_html import findings_html, gaps_html, with_code
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import fold, folds, header, section
from tensormagic.renderers.memory.allocator_words import HEAD, allocator_rows, allocator_words
from tensormagic.renderers.memory.lines_html import lines_html
from tensormagic.renderers.memory.memory_html import details_html, memory_panel, releases_html, storages_html
from tensormagic.renderers.memory.memory_run_words import (
    blocks_bytes,
    leak_words,
    life,
    operation,
    origin,
    peak,
    peak_tiles,
    state,
    summary,
    title,
)
from tensormagic.renderers.memory.memory_words import NO_NAME, kind, tile
from tensormagic.renderers.memory.out_of_memory_words import out_of_memory_words
from tensormagic.renderers.memory.source_rows import function_rows, run_rows
from tensormagic.renderers.memory.timeline_html import timeline_html
from tensormagic.renderers.memory.timeline_stack import line_ranks, main_timeline
from tensormagic.renderers.memory.treemap import Tile, treemap
from tensormagic.renderers.memory.treemap_html import WIDTH, treemap_html
from tensormagic.reports import AllocatedBlock, AllocatorRun, FunctionMemory, Leak, MemoryRunReport, OutOfMemory
from tensormagic.words import count, number_of_bytes, plural, shortened

MOST_BLOCKS, MOST_LEAKS, MOST_TIMELINES = 24, 12, 4
MAP_HEIGHT, MOST_CELLS = 220.0, 160
_ABOUT_LINES = "bytes: alive at the peak, allocated in all, freed while it ran, kept after the run"
_BLOCK_HEAD = ("storage", "bytes", "category", "allocated by", "line", "life")


def render(report: MemoryRunReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    drawn = [timeline for timeline in report.timelines if timeline.live]
    main = main_timeline(report)
    ranked = sorted(drawn, key=lambda timeline: timeline is not main)[:MOST_TIMELINES]
    ranks = line_ranks(main) if main is not None else {}
    dead = _dead(report)
    first = 0 if dead else 1  # what stands open
    parts = [
        _header(report),
        _out_of_memory(report.out_of_memory),
        findings_html(report.findings),
        gaps_html(report.gaps),
        dead,
        *(timeline_html(report, timeline) for timeline in ranked[:first]),
        "" if dead else section("Line by line", lines_html(run_rows(report), ranks), about=_ABOUT_LINES),
        folds(
            *(timeline_html(report, timeline, folded=True) for timeline in ranked[first:]),
            fold("Line by line", lines_html(run_rows(report), ranks), state=_ABOUT_LINES) if dead else "",
            *(_function(report, function, ranks) for function in report.functions),
            _leaks(report.leaks),
            _peak(report),
            *_end(report),
            _allocator(report.allocator),
        ),
    ]
    return memory_panel("Memory of a run", parts)


def _header(report: MemoryRunReport) -> str:
    said = report.state if report.out_of_memory is not None else state(report)  # what ran out is told right below
    words = "" if report.state == "finished" else shortened(said, 200)
    ended = tag("span", escape(words), class_="tm-failed" if report.error else "quiet") if words else ""
    top = tag("b", peak(report), class_="tm-peaked")
    return header(escape(shortened(title(report), 80)), [top, escape(summary(report)), ended], about="memory")


def _out_of_memory(failed: OutOfMemory | None) -> str:
    if failed is None:
        return ""
    parts = [tag("p", tag("b", with_code(out_of_memory_words(failed))))]
    if failed.location is not None:
        parts.append(tag("p", escape(f"{failed.location.label}: "), tag("code", escape(failed.location.text))))
    if failed.message:
        parts.append(tag("p", escape(shortened(failed.message, 400)), class_="quiet"))
    return tag("div", *parts, class_="tm-died")


def _function(report: MemoryRunReport, function: FunctionMemory, ranks: dict[int, int]) -> str:
    inner = lines_html(function_rows(report, function), ranks)
    words = "" if inner else "no line of it allocated anything"
    name = f"In {shortened(function.name, 80)}"
    return fold(escape(name), inner) or tag("p", tag("b", escape(name)), " ", tag("span", words, class_="quiet"))


def _leaks(leaks: Sequence[Leak]) -> str:
    if not leaks:
        return ""
    rows = "".join(_leak(leak) for leak in leaks[:MOST_LEAKS])
    more = f"and {count(len(leaks) - MOST_LEAKS)} more" if len(leaks) > MOST_LEAKS else ""
    table = tag("table", tag("tbody", rows), class_="tm-list") + (tag("p", more, class_="quiet") if more else "")
    return fold("What grows with every iteration", table, state=plural(len(leaks), "line"))


def _leak(leak: Leak) -> str:
    stored = leak.holder_location or leak.location
    cells = (
        tag("th", tag("code", escape(stored.text or leak.location.text)), scope="row"),
        tag("td", escape(stored.label), class_="quiet"),
        tag("td", escape(leak_words(leak)), class_="tm-wide"),
    )
    return tag("tr", *cells)


def _peak(report: MemoryRunReport) -> str:
    tiles = peak_tiles(report)
    if not tiles or (report.out_of_memory is not None and report.at_end):
        return ""
    number = len(report.peak_blocks) + report.peak_left_out[0]
    words = f"{plural(number, 'storage')}, by the line that allocated them"
    table = blocks_html("What was alive at the peak", report.peak_blocks, report.peak_left_out, report)
    return fold("Alive at the peak", _map(tiles, "what was alive at the peak"), table, state=words)


def _map(tiles: Sequence[Tile], what: str, height: float = MAP_HEIGHT) -> str:
    return treemap_html(treemap(tiles, WIDTH, height, most=MOST_CELLS), treemap_alternative(tiles, what))


def blocks_html(name: str, blocks: Sequence[AllocatedBlock], left_out: tuple[int, int], report: MemoryRunReport) -> str:
    """Return blocks as a table, folded; how many more there are is said."""
    if not blocks:
        return ""
    shown = blocks[:MOST_BLOCKS]
    rows = "".join(_block(block, report) for block in shown)
    number = len(blocks) - len(shown) + left_out[0]
    rest = number_of_bytes(blocks_bytes(blocks[MOST_BLOCKS:]) + left_out[1])
    more = tag("p", f"and {count(number)} smaller, {rest}", class_="quiet") if number else ""
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in _BLOCK_HEAD)))
    total = number_of_bytes(blocks_bytes(blocks) + left_out[1])
    told = f"{plural(len(blocks) + left_out[0], 'storage')}, {total}"
    return details_html(name, tag("table", head, tag("tbody", rows), class_="tm-list tm-full") + more, state=told)


def _block(block: AllocatedBlock, report: MemoryRunReport) -> str:
    one = block.storage
    cells = (
        tag(
            "th",
            tag("code", escape(shortened(one.name, 80) or NO_NAME)),
            " ",
            tag("span", escape(kind(one)), class_="quiet"),
            scope="row",
        ),
        tag("td", number_of_bytes(one.nbytes), class_="tm-num"),
        tag("td", escape(one.category)),
        tag("td", tag("code", escape(operation(block.op)))),
        tag("td", tag("code", escape(origin(report, block, width=32)))),
        tag("td", escape(life(block)), class_="quiet"),
    )
    return tag("tr", *cells)


def _end(report: MemoryRunReport) -> tuple[str, str]:
    kept = blocks_html("Allocated here and still alive", report.kept, report.kept_left_out, report)
    when = "Alive when it failed" if report.error else "Alive after the run"
    return storages_html(report.at_end, (), name=when), kept


def _dead(report: MemoryRunReport) -> str:
    """Return what was alive where memory ran out, as a map, and what letting go would have freed."""
    if report.out_of_memory is None or not report.at_end:
        return ""
    drawn = _map([tile(one) for one in report.at_end], "what was alive when it failed")
    return section("Alive when it failed", drawn, about="by name") + releases_html(report.releases)


def _allocator(runs: Sequence[AllocatorRun]) -> str:
    return "".join(_allocator_run(run) for run in runs)


def _allocator_run(run: AllocatorRun) -> str:
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in HEAD)))
    rows = [
        tag(
            "tr",
            tag("th", tag("code", escape(where)), scope="row"),
            *(tag("td", text, class_="tm-num") for text in told),
        )
        for where, *told in allocator_rows(run)
    ]
    table = tag("table", head, tag("tbody", *rows), class_="tm-list") if rows else ""
    return details_html(f"What the allocator of {run.device} recorded", tag("p", escape(allocator_words(run))) + table)
