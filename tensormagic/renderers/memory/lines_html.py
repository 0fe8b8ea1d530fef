"""The source with what each line did to memory beside it, as line profilers show it: numbers with bars behind them."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import scroll
from tensormagic.renderers.memory.memory_run_words import COLUMNS, operation
from tensormagic.renderers.memory.source_rows import SourceRow
from tensormagic.reports import LineMemory
from tensormagic.words import count, number_of_bytes, plural

_SURELY_WHOLE = 40  # characters of source; a longer line may end in an ellipsis, and is told whole when pointed at


def lines_html(rows: Sequence[SourceRow], ranks: dict[int, int]) -> str:
    """Return the listing; ``ranks`` are the lines that have a colour in the timeline."""
    memories = [row.memory for row in rows if row.memory is not None]
    if not memories:
        return ""
    alive = max((max(one.at_peak, one.kept) for one in memories), default=0)
    moved = max((max(one.allocated, one.freed) for one in memories), default=0)
    counted = any(one.executions for one in memories)
    titles = (*COLUMNS, "times" if counted else "operations", "line")
    numbers = (tag("th", text, scope="col", class_="tm-num") for text in titles)
    head = tag("tr", *numbers, tag("th", "source", scope="col"))
    body = "".join(_row(row, ranks, (alive, moved), counted=counted) for row in rows)
    return scroll(
        "Source, and bytes beside it",
        tag("table", tag("thead", head), tag("tbody", body), class_="tm-lines"),
        class_="tm-tall",
    )


def _row(row: SourceRow, ranks: dict[int, int], tops: tuple[int, int], *, counted: bool) -> str:
    if not row.number:
        words = tag("b", escape(row.text)) if row.text else "⋯"
        return tag("tr", tag("td", words, colspan=7, class_="quiet"))
    mark = tag("span", class_=f"tm-swatch tm-l{ranks[row.index]}") if row.index in ranks else ""
    title = row.text if len(row.text) > _SURELY_WHOLE else None
    source = tag("td", tag("code", escape(row.text)), class_="tm-source", title=title)
    return tag(
        "tr",
        *_cells(row.memory, tops, counted=counted),
        tag("td", mark, str(row.number), class_="tm-num quiet"),
        source,
    )


def _cells(memory: LineMemory | None, tops: tuple[int, int], *, counted: bool) -> list[str]:
    if memory is None:
        return ["<td></td>"] * 5
    alive, moved = tops
    amounts = (
        (memory.at_peak, alive, "p"),
        (memory.allocated, moved, "a"),
        (memory.freed, moved, "f"),
        (memory.kept, alive, "k"),
    )
    return [*(_amount(*amount) for amount in amounts), _times(memory, counted=counted)]


def _amount(nbytes: int, top: int, letter: str) -> str:
    if not nbytes:
        return "<td></td>"
    share = f"--w:{100 * nbytes / top:.0f}%" if top else None
    return tag("td", number_of_bytes(nbytes), class_=f"tm-num tm-b{letter}", style=share)


def _times(memory: LineMemory, *, counted: bool) -> str:
    times = memory.executions if counted else memory.calls
    backward = f", {number_of_bytes(memory.backward)} of it in its backward" if memory.backward else ""
    most = f"most of it {operation(memory.op)}, at most {number_of_bytes(memory.largest)} at once"
    said = f"{plural(memory.calls, 'operation')} allocated, {most}{backward}"
    return tag("td", count(times) if times else "", class_="tm-num quiet", title=said)
