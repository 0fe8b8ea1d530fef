"""Random generators: as they are (``%rng``), over a run (``%%rng``), and two runs compared with each other."""

from __future__ import annotations

from tensormagic.reports.rng import Draw, DrawSum, GeneratorState, RngComparison, RngReport, RngRunReport
from tensormagic.views.nodes import Cell, Column, Findings, Line, Node, Panel, Source, Table, Words, listing, table_of
from tensormagic.words import TIMES, count, listed, plural, shortened

WHOLE = 80  # a cell of at most so many lines is shown whole
NO_LINE = "line unknown"
_SEED_WIDTH = 28


def view(report: RngReport | RngRunReport | RngComparison) -> Panel:
    """Return the panel."""
    name, facts, body = "random generators", list[Cell](), list[Node]()
    if isinstance(report, RngReport):
        entropy = sum(state.seeding == "entropy" for state in report.generators)  # no second run will have its numbers
        fact = plural(len(report.generators), "generator")
        facts = [fact + (f", {count(entropy)} of them probably seeded by the system" if entropy else "")]
        body = [Findings(report.findings, report.gaps), table_of(GENERATORS, report.generators)]
    elif isinstance(report, RngRunReport):
        state = Words(f"{report.state}: {report.error}", "error") if report.error else report.state
        name, facts = "random numbers", [state, run_headline(report)]
        body = [Findings(report.findings, report.gaps), _source(report), Table(CHANGES, change_rows(report))]
    else:
        name, facts = "two runs' random numbers", [verdict(report)]
        sides = [(name, side_text(report, at)) for at, name in enumerate(report.names)]
        body = [Table(SIDES, sides if report.difference != "none" else [])]
    return Panel("rng", "random", name, facts, body)


def _source(report: RngRunReport) -> Source:
    """Return the lines that drew, of a cell that is not long all of its lines, with the draws of each beside it."""
    drawn: dict[tuple[str, int], list[Cell]] = {}
    places, lines = [], list[Line]()
    for draw in report.sums:
        since, here = report.location(draw.since), report.location(draw.location)
        between = ""
        if since and here and since != here:
            between = f", since {f'line {since.line}' if since.filename == here.filename else since.label}"
        between = ", after this line" if since and not here else between
        values = "" if draw.values is None else f", {plural(draw.values, 'value')}"
        if draw.values is not None and draw.kind == "drew" and not draw.op:  # seen by how far the state has moved
            values = f", {_numbers(draw.values, report.before[draw.generator].bits)}"
        times = f" {count(draw.calls)} times" if draw.calls > 1 else ""
        words = f"{report.before[draw.generator].name}: {call_text(draw)}{times}{values}{between}"
        if (place := here or since) is None:
            lines.append(Line(0, f"{NO_LINE}: {words}"))
            continue
        places.append(place)
        beside = drawn.setdefault((place.filename, place.line), [])
        beside.append(Words(words, "quiet") if draw.kind == "set" else words)
    for filename, number, text in listing(report.cell, places, WHOLE):
        said = drawn.get((filename, number), ())
        lines.append(Line(number, text, said, sign="mark" if said else ""))
    return Source(lines)


def seed_text(state: GeneratorState) -> str:
    """Return where a generator's numbers come from."""
    if state.seeding == "entropy":
        seed = shortened(state.seed, 12)
        return f"probably the system's, different in each run: {seed}" if seed else "none: each number is the system's"
    if state.seeding == "default":
        return "never seeded (torch's default seed: the same in each run)"
    if state.seeding == "unknown" and state.seed:  # no one writes such a number down
        return f"probably the system's, or drawn from another generator: {shortened(state.seed, 12)}"
    return shortened(state.seed, _SEED_WIDTH) or "not known (never seeded, or a state was set)"


def drawn_text(state: GeneratorState) -> str:
    """Return how far a generator has come."""
    if state.drawn is None:
        return f"more than {count(state.least)}, or another state was set" if state.least else "not known"
    kept = ", one normal number cached" if state.pending else ""
    return ("none" if state.drawn == 0 else _numbers(state.drawn, state.bits)) + kept


def _numbers(drawn: int, bits: int) -> str:
    """Return how many numbers, and how long each is: ``81 × 32 bits``."""
    return f"{count(drawn)} {TIMES} {bits} bits"


def run_headline(report: RngRunReport) -> str:
    """Return how often random numbers were drawn, and from what."""
    if not report.count:
        return "nothing was drawn"
    used = sorted({draw.generator for draw in report.sums if draw.kind == "drew"})
    drew, set_ = (sum(draw.calls for draw in report.sums if draw.kind == kind) for kind in ("drew", "set"))
    *most, last = [report.before[index].name for index in used] or [""]  # a name may hold a comma
    names = f"{'; '.join(most)} and {last}" if most else last
    described = f"{plural(drew, 'draw')} from {names}" if used else "nothing was drawn"
    return described + (f"; a generator was set {plural(set_, 'time') if set_ > 1 else 'once'}" if set_ else "")


def call_text(draw: Draw | DrawSum) -> str:
    """Return what drew."""
    if draw.kind == "set":
        return "seeded" if draw.op else "seeded, or state set"
    return draw.op.removeprefix("aten.") or "drew (between statements)"


def change_rows(report: RngRunReport) -> list[tuple[str, ...]]:
    """Return what the run did to each generator that it touched, under `CHANGES`."""
    rows: list[tuple[str, ...]] = []
    for at, (before, after) in enumerate(zip(report.before, report.after, strict=False)):
        draws = [draw for draw in report.sums if draw.generator == at]
        moved = [draw.values for draw in draws if not draw.op]
        taken = "not known"
        if any(draw.kind == "set" for draw in draws):
            taken = "reseeded"
        elif before.drawn is not None and after.drawn is not None:
            taken = _numbers(after.drawn - before.drawn, after.bits)
        elif None not in moved:  # how far it has come in all nobody knows, but how far it moved
            taken = _numbers(sum(filter(None, moved)), after.bits)
        rows += [(before.name, _stand(before), _stand(after), taken)] if draws else []
    return rows


def _stand(state: GeneratorState) -> str:
    if not state.seed and state.drawn is None:
        return "not known"
    drawn = "?" if state.drawn is None else count(state.drawn)
    return f"seed {shortened(state.seed, 12) or '?'}, {drawn} drawn"


def verdict(report: RngComparison) -> str:
    """Return in one sentence whether two runs drew the same numbers, and where they part."""
    first, second = report.names
    agree, same = "is" if report.same == 1 else "are", plural(report.same, "draw")
    after = f"After {same} that {agree} the same," if report.same else "From the first draw on,"
    said = {
        "none": f"{first} and {second} drew the same: {same}.",
        "start": f"{report.generator} was not in the same state when {first} and {second} began.",
        "seed": _seeds(report, after if report.same else ""),
        "state": f"{after} {report.generator} was set to something else, or used elsewhere.",
        "call": f"{after} {first} and {second} draw with different calls.",
        "values": f"{after} the next call draws a different number of values.",
        "end": _end(report, f"{same} {agree} the same" if report.same else ""),
    }[report.difference]  # fmt: skip
    return said if report.complete else f"{said} Only the first draws of these long runs were recorded."


def _seeds(report: RngComparison, after: str) -> str:
    """Return with what each of two runs seeded a generator, where that is known."""
    (first, second), seeds = report.names, [shortened(draw.seed, 12) if draw else "" for draw in report.sides]
    if not all(seeds) or seeds[0] == seeds[1]:
        return f"{after} {first} and {second} set {report.generator} to different states.".lstrip()
    return f"{after} {first} seeds {report.generator} with {seeds[0]}, {second} with {seeds[1]}.".lstrip()


def _end(report: RngComparison, same: str) -> str:
    """Return what one of two runs does no more."""
    if any(draw is not None and draw.kind == "set" for draw in report.sides):
        return (
            f"{same}; then only one of the runs seeds {report.generator}."
            if same
            else f"Only one of the runs seeds {report.generator}."
        )
    return f"{same}; then one of the runs stops drawing." if same else "Only one of the runs draws."


def side_text(report: RngComparison, at: int) -> str:
    """Return what one run did where they part."""
    draw, place, start = report.sides[at], report.places[at], report.starts[at]
    where = f"{place.label}: {place.text}" if place is not None else NO_LINE
    begun = f"{start.name}: {_stand(start)} when it began; " if start is not None else ""
    if draw is None:
        return f"{begun}stopped drawing" if report.same else f"{begun}drew nothing"
    values = "" if draw.values is None else f", {plural(draw.values, 'value')}"
    does = f"seeded with {shortened(draw.seed, 12)}" if draw.seed else call_text(draw)
    return f"{begun}{does}{values} ({where})"


GENERATORS = (
    Column("generator", lambda one: one.name + (f" ({listed(one.names, most=2)})" if one.names else ""), "name"),
    Column("seed", seed_text),
    Column("drawn", drawn_text),
    Column("algorithm", lambda one: one.algorithm + ("" if one.device == "cpu" else f" on {one.device}")),
    Column("state", lambda state: state.digest, "code quiet"),
)
CHANGES = (Column("generator", look="name"), Column("before"), Column("after"), Column("drawn"))
SIDES = (Column("run", look="name"), Column("first difference"))
