"""The tables of docs/comparison.md, from what was measured: the page holds no figure that does not come from here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from textwrap import fill
from typing import Any

from tests.support.kernel import ROOT

PAGE = ROOT / "docs" / "comparison.md"
MEASURED = Path(__file__).with_name("measured.json")
DRAWERS = ("tensormagic", "torchviz", "torchview", "torchlens", "torchvista", "anomaly mode", "DebugMode")
VIEWERS = ("tensormagic", "lovely-tensors", "treescope", "print")
LINE = 126  # a line of the page's text
_TABLE = r"^\| {head} \|.*\n(?:\|.*\n)+"
_SENTENCE = re.compile(r"\*\*Measured\*\* means: .*?\.(?=\n\n)", re.DOTALL)


def measured() -> dict[str, Any]:
    """Return what was measured last."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def pass_context(found: dict[str, Any]) -> str:
    """Return the sentence that says when, and with which versions."""
    day = date.fromisoformat(found["date"])
    versions = [f"{name} {version}" for name, version in sorted(found["versions"].items())]
    text = (
        f"**Measured** means: run by us on {day.day} {day:%B %Y}, on torch {found['torch']} (CPU, Python "
        f"{found['python']}, {found['cores']} cores), with {', '.join(versions[:-1])} and {versions[-1]}."
    )
    return fill(text, LINE, break_on_hyphens=False)


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" if line[0] != "---" else f"|{'|'.join(line)}|\n" for line in lines)


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables by the first cell of each."""
    made: dict[str, Callable[[dict[str, Any]], str]] = {
        "program": graphs, "20 tensors": tensors, "tool": costs
    }  # fmt: skip
    return {head: make(found) for head, make in made.items()}


# -- graphs ----------------------------------------------------------------------------------------------------------


def graphs(found: dict[str, Any]) -> str:
    """Return what the tools that draw or trace do with the same programs."""
    return table(("program", *DRAWERS), _graph_rows(found["graphs"], found["pictures"]))


def _graph_rows(seen: dict[str, Any], pictures: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "a plain function, no `nn.Module`", *(_outcome(seen["function"], tool) for tool in DRAWERS)
    yield "a graph 1,500 operations deep", *(_outcome(seen["deep"], tool) for tool in DRAWERS)
    yield (
        "side effects in train mode",
        *(_changes(seen["changed"], tool) for tool in DRAWERS),
    )
    yield "torch functions left patched", *(_replaced(seen["replaced"], tool) for tool in DRAWERS)
    for fault, text in _FAULTS.items():
        yield text, *(_named(seen["told"], tool, fault) for tool in DRAWERS)
    yield "size of its 17-layer graph", *(_size(pictures, tool) for tool in DRAWERS)


_FAULTS = {
    "spoilt": "a saved tensor was modified: lines it names",
    "born_nan": "names the line of a NaN gradient",
    "born_infinite": "names the line of an infinite gradient",
}


def _outcome(seen: dict[str, str], tool: str) -> str:
    if tool not in seen:
        return "–"
    return "raises" if seen[tool] else "yes"


def _changes(seen: dict[str, list[str]], tool: str) -> str:
    return "–" if tool not in seen else ", ".join(seen[tool]) or "nothing"


def _replaced(seen: dict[str, int], tool: str) -> str:
    return "–" if tool not in seen else f"{seen[tool]:,}" if seen[tool] else "none"


def _named(seen: dict[str, dict[str, list[str]]], tool: str, fault: str) -> str:
    if tool not in seen:
        return "–"
    lines = seen[tool][fault]
    if fault != "spoilt":
        return "yes" if lines else "no"
    return {0: "none", 1: f"one: where it was {lines[0] if lines else ''}", 2: "both"}[len(lines)]


def _size(pictures: dict[str, Any], tool: str) -> str:
    if "kilobytes" not in pictures.get(tool, {}):
        return "–"
    return f"{pictures[tool]['kilobytes']:,} KB" + (", loads more" if pictures[tool]["loads"] else "")


# -- tensors ---------------------------------------------------------------------------------------------------------


def tensors(found: dict[str, Any]) -> str:
    """Return how many of the 20 tensors each tool shows, and at what price."""
    there = [tool for tool in VIEWERS if tool in found["tensors"]["refused"]]
    head = ("20 tensors", *(f"`{tool}`" if tool == "print" else tool for tool in there))
    return table(head, _tensor_rows(found["tensors"], there))


def _tensor_rows(seen: dict[str, Any], there: list[str]) -> Iterator[tuple[str, ...]]:
    yield "supported", *(str(seen["kinds"] - len(seen["refused"][tool])) for tool in there)
    yield "raises", *(", ".join(seen["refused"][tool]) or "–" for tool in there)
    looks = [seen["looks"].get(tool) for tool in there]
    yield "lines of text for 64 × 64 numbers", *(f"{look['lines']}" if look else "raises" for look in looks)
    yield "CPU time", *(f"{look['milliseconds']:.2g} ms" if look else "–" for look in looks)


# -- costs -----------------------------------------------------------------------------------------------------------


def costs(found: dict[str, Any]) -> str:
    """Return by how much each tool slows a step down."""
    return table(("tool", "slowdown"), _cost_rows(found["costs"]))


def _cost_rows(seen: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "untraced", f"1 ({seen['step_milliseconds']} ms)"
    names = {"tensormagic": "`%%tracegrad`, every step", "DebugMode": "`DebugMode`"}
    for name, times in seen["of_the_step"].items():
        if name != "step":
            yield names.get(name, name.replace("DebugMode with", "`DebugMode` with")), f"{times:g}"
    for name, times in seen["of_the_forward"].items():
        if name != "forward":
            yield f"`{name}`, forward only ({seen['forward_milliseconds']} ms)", f"{times:g}"


# -- the page --------------------------------------------------------------------------------------------------------


def write(page: Path = PAGE) -> None:
    """Put what was measured into the page."""
    page.write_text(as_measured(page.read_text(encoding="utf-8"), measured()), encoding="utf-8")


def as_measured(text: str, found: dict[str, Any]) -> str:
    """Return the page's text with the sentence and the tables as they were measured."""
    text = _SENTENCE.sub(lambda _: pass_context(found), text, count=1)
    for head, lines in tables(found).items():
        place = re.compile(_TABLE.format(head=re.escape(head)), re.MULTILINE)
        text, count = place.subn(lambda _, lines=lines: lines, text)
        assert count == 1, f"one table that begins with {head!r}"
    return text
