"""What panels say of samples that no stored one shows, as trees of nodes and as the words they are made of."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from tensormagic import views
from tensormagic.reports import (
    AliasPair,
    AllocatedBlock,
    Cell,
    DeviceGain,
    DeviceMemory,
    FailureReport,
    FreeableMemory,
    Gap,
    Holder,
    Location,
    ProcessUse,
)
from tensormagic.views.markup import unpacked
from tensormagic.views.nodes import Section, Source
from tensormagic.views.panels import (
    aliases,
    memory,
    memory_run,
    refused_call,
    rng,
    snapshot,
    watch,
    writes,
)
from tensormagic.views.panels.tensors import TensorRows
from tests.views import samples_rng, samples_snapshot, samples_writes
from tests.views.markup_reader import Page
from tests.views.samples_failure import SAMPLES as FAILURES
from tests.views.samples_memory import GIB, MIB, SAMPLES as MEMORY, storage
from tests.views.samples_memory_run import SAMPLES as RUNS
from tests.views.samples_sharing import ALIASES, SLICES, TABLES, TIED, member, row
from tests.views.samples_watch import found


def of_kind(panel, kind):
    """All nodes of a kind in a panel's body."""
    return [node for node in panel.body if isinstance(node, kind)]


def part(panel, kind):
    """The only one."""
    (node,) = of_kind(panel, kind)
    return node


ONE = replace(ALIASES["nothing"], groups=(TIED,), groups_found=1)
BOTH = replace(ONE, groups=(SLICES, TIED), groups_found=2)
ASKED = replace(BOTH, asked=("a", "net"))
SHARED = "1 piece of memory is shared by several objects"
SAME = "`net.0.weight` and `net.1.weight` are the same tensor"
APART = replace(SLICES, pairs=tuple(replace(pair, overlap="no") for pair in SLICES.pairs))
UNTRACKED = replace(SLICES, members=tuple(replace(each, requires_grad=False) for each in SLICES.members))
NAMESAKES = replace(
    SLICES, pairs=(AliasPair("a.b", "a.b", "yes", 8, 8),),
    members=(member("a.b", requires_grad=True, counter=1), member("a.b", relation="array", version=None)),
)  # fmt: skip
HOLDERS = tuple(Holder(path, "name", "tensor") for path in ("x", "y", "Out[3]", "_", "_3"))
NO_KERNEL = "Could not run 'aten::view' with arguments from the 'SparseCPU' backend."
BACKENDS = "This could be because the operator doesn't exist for this backend, or was omitted. BackendSelect: …"
UNSURE = replace(FAILURES["dtypes"].mismatch, works=(), maybe=("i.max()  # at most 9", "i.long()"))
SAID = [
    *(
        (aliases.how, member("x", relation=relation, base=base, operations=operations), words)
        for relation, base, operations, words in (
            ("view", "", (), "view; its base has no name"),
            ("detached", "a", (), "like `a.detach()`"),
            ("same storage", "", (), "same storage as another tensor"),
            ("wraps", "n", (), "shares memory with `n`"),
            ("wraps", "", (), "memory from outside torch"),
            ("buffer view", "", (), "NumPy array over an unnamed buffer"),
            ("part", "sp", (), "part of `sp`"),
        )
    ),
    (aliases.pair_line, AliasPair("a", "b", "maybe", None, None),
     "`a` and `b` may overlap: too complex to determine"),
    (aliases.pair_line, AliasPair("a", "b", "yes", 1, 1), "1 element of `a` lies in `b`"),
    (aliases.pair_line, AliasPair("a", "b", "yes", 8, 4), "8 elements of `a` lie in `b`"),
    (partial(aliases.shared_cell, name="a"), None, ""),  # what a pair has in common was not looked for
    # Writes that autograd does not notice: none where nothing overlaps, or where nothing is tracked.
    (aliases.transparent, APART, ()),
    (aliases.transparent, UNTRACKED, ()),
    # Two objects of one name, as of a name with a dot and of an attribute.
    (aliases.transparent, NAMESAKES,
     ("Autograd does not notice writes through `a.b`: they change `a.b` without incrementing its version counter.",)),
    # Tied weights are the headline, beside or below what several share; names that were asked for are in it.
    (aliases.aliases_summary, ONE, SAME),
    (aliases.aliases_summary, replace(ONE, groups=(TIED, TIED), groups_found=2), "2 tensors have several names each"),
    (aliases.aliases_summary, BOTH, f"{SHARED}; {SAME}"),
    (aliases.aliases_summary, ASKED, f"Several objects share the memory of `a` and `net`; {SAME}"),
    (aliases.aliases_summary, replace(ASKED, unshared=("net",)),
     f"Several objects share the memory of `a`; {SAME}; nothing else reads the memory of `net`"),
    (aliases.aliases_summary, replace(ASKED, groups=(), groups_found=0),
     "Nothing else reads the memory of `a` and `net`"),
    # A figure that rose or stayed is told as that; one that nobody counts is left out.
    (memory.gain_words, DeviceGain("cpu", process=-2048), "cpu: this process takes 2 KiB more"),
    (memory.gain_words, DeviceGain("cuda:0", allocated=0), "cuda:0: allocated as much as before"),
    (memory.gain_words, DeviceGain("mps"), ""),
    # Nothing found in what was looked at is not nothing wrong.
    (watch.all_clear, found(gaps=(Gap("names", "only 20000 objects were searched"),)),
     "Nothing found in the part that was searched."),
    # Holders and shared storages in words.
    (memory.held_by, storage("x", 4, "other", holders=HOLDERS, found=9), "y, Out[3], _ and 5 more"),
    (memory.freeable_notes, FreeableMemory("x", "name", 10, 1, 10), ""),
    (memory.freeable_notes, FreeableMemory("x", "name", 0, 0, 2048, ("y", "z", "w", "v")),
     "of 2 KiB that it reaches, shared with y, z, w and 1 more"),
    # A missing kernel's message goes on with a hundred lines about every backend; the first sentence says it.
    (refused_call.torch_message, FailureReport(error_type="NotImplementedError", error=f"{NO_KERNEL} {BACKENDS}"),
     f"NotImplementedError: {NO_KERNEL}"),
    # The call is marked in its line, also where it goes on in the next.
    *(
        (partial(refused_call.marked, call=call), Location("a.py", 1, text), part)
        for text, call, part in (
            ("y = net(x) + 1", "net(x)", "net(x)"),
            ("y = torch.cat(", "torch.cat( [a, b])", "torch.cat("),
            ("y = 1", "net(x)", ""),
            ("", "net(x)", ""),
        )
    ),
    # What may fit is tried, what only shows whether it does is checked.
    (refused_call.rule_nodes, replace(FAILURES["dtypes"], mismatch=UNSURE),
     ["Both must be the same.", "try: `i.long()`", "check: `i.max()  # at most 9`"]),
]  # fmt: skip


@pytest.mark.parametrize(("say", "given", "words"), SAID)
def test_the_words_of_a_panel(say, given, words):
    assert say(given) == words


def test_what_was_taken_from_a_generator_whose_way_is_not_known():
    """How many numbers it has given in all nobody knows; what the lines above say that it gave is said again."""
    run, states = samples_rng.run(), (samples_rng.TORCH, samples_rng.LOST)
    for values, taken in ((2, "2 × 32 bits"), (None, "not known")):
        sums = (run.sums[0], replace(run.sums[1], values=values))
        odd = replace(run, before=states, after=states, sums=sums)
        assert rng.change_rows(odd)[1] == ("random", "not known", "not known", taken)


def test_of_a_long_cell_the_lines_that_draw_are_listed():
    """Beyond eighty lines those near them, and no others."""
    long = replace(samples_rng.run(), cell=Cell(samples_rng.run().cell.filename, 4, ("x",) * 200))
    (source,) = of_kind(rng.view(long), Source)
    assert 1 < len(source.lines) < 40
    assert [line.number for line in source.lines if line.beside] == [
        line.number for line in part(rng.view(samples_rng.run()), Source).lines if line.beside
    ]


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"same": 1}, "1 draw is the same; "),
        ({"same": 1, "difference": "values"}, "After 1 draw that is the same, the next call "),
        ({"same": 0}, "Only one of the runs draws."),
        ({"same": 0, "difference": "call"}, "From the first draw on, a and b draw with different calls."),
        ({"same": 0, "difference": "state"}, "From the first draw on, "),
    ],
)
def test_the_sentence_about_two_runs_agrees_with_its_number(changes, begins):
    assert rng.verdict(replace(samples_rng.ENDED, names=("a", "b"), **changes)).startswith(begins)


@pytest.mark.parametrize("name", ["training", "longest"])
def test_segments_are_drawn_whole(name):
    """What is drawn of a segment is all of it: joined stretches lose no byte."""
    for segment in samples_snapshot.SAMPLES[name].segments:
        drawn = snapshot.drawn_ranges(segment)
        assert len(drawn) <= 2 * 48 + 1
        assert sum(one.nbytes for one in drawn) == segment.nbytes
        assert sum(one.used for one in drawn) == segment.allocated + segment.awaiting


def test_the_table_says_whether_autograd_notices():
    """Of a write that it cannot see, it is said that it does not."""
    unseen = samples_writes.changed("w", 3, 3, relation="itself", noticed=False, saved=True)
    report = samples_writes.finished(samples_writes.write(2, "mul_", "w", unseen))
    (table,) = part(writes.view(report), Section).body
    assert table.rows[0][-2:] == ["w: 3 of 3 elements, not noticed by autograd", "does not notice"]


def test_a_backtick_in_the_name_of_a_tensor_is_a_letter():
    """A name is a user's, and nothing in it is markup: not of ours either."""
    table = replace(TABLES["few"], rows=(row("d['a`b`c']"), row("y")))
    html = TensorRows(table).html()
    assert '<th scope="row" class="tm-wide">d[&#x27;a`b`c&#x27;]</th>' in html
    assert "<code>" not in html.partition("</table>")[0]


def test_many_rows_are_cut_to_the_largest():
    """A hundred in the page, the largest; all of them in the packed data."""
    html = views.draw(TABLES["many"], "html")
    page = Page(html)
    assert "The 100 largest of 2000 are listed; the totals are over all." in page.text
    assert page.text.count("ts[") == 100
    assert "ts[1999]" in page.text
    packed = next(content for kind, content in page.scripts if kind == "text/plain")
    rows = json.loads(unpacked(packed))["rows"]
    assert (len(rows), rows[7][0], rows[7][9]) == (2000, "ts[7]", 28)
    assert "the 40 largest of 2000" in views.draw(TABLES["many"], "txt")
    columns = {column.title: column.in_terminal for column in TensorRows(TABLES["many"]).drawn().columns}
    assert columns["device"] is False, "what is above the rows tells the only device"


def test_panels_share_style_and_viewer():
    """Of a collection's panels the style sheet and the script stand there once, whatever their number."""
    html = views.draw(TABLES["collection"], "html")
    assert html.count("<style>") == 1  # the table's own, which holds the panels' rules
    assert ".tm-tensor" in html.split("</style>")[0]
    assert html.count("<script>") == 2
    assert html.count('class="tm tm-tensor"') == 2


def test_the_bar_of_a_device_adds_up():
    """Free memory of more than half is drawn as long as the rest; without counters the bar is the tensors.

    Tensors of memory that the process has not touched yet are more than it takes: there is no part below nothing.
    """
    report = MEMORY["small"]
    bar = memory.device_bar(report.devices[0], report.every())
    assert (bar.note, bar.parts[-1].share) == ("(free part not to scale)", 0.5)
    bar = memory.device_bar(DeviceMemory("cpu", live=6272, storages=3, tensors=4), report.every())
    assert [part.words for part in bar.parts] == ["parameters", "inputs"]
    assert sum(part.share for part in bar.parts) == pytest.approx(1)
    device = DeviceMemory("cpu", live=9 * GIB, storages=1, tensors=1, free=GIB, total=16 * GIB, process=GIB,
                          others=(ProcessUse(1, "x", None),))  # fmt: skip
    bar = memory.device_bar(device, [storage("x", 9 * GIB, "other", device="cpu")])
    parts = [(part.words, part.amount) for part in bar.parts]
    assert parts == [("other", "9 GiB"), ("other programs", "6 GiB"), ("free", "1 GiB")]


def test_what_can_be_taken_out_instead_is_told_apart_from_why_it_frees_less():
    part = FreeableMemory("x", "item", 4, 1, 4)
    one = FreeableMemory("x", "name", 8, 1, 2048, ("y", "z"), code="del x", parts=(part,))
    told = " ".join(views.draw(replace(next(iter(MEMORY.values())), freeable=(one,)), "txt", width=200).split())
    assert "shared with y and z; or inside: x 4 B" in told


def test_executions_that_were_not_counted_are_operations_that_allocated():
    lines = tuple(replace(line, executions=0) for line in RUNS["training"].lines)
    told = " ".join(views.draw(replace(RUNS["training"], lines=lines), "txt", width=200).split())
    assert "freed kept allocating ops line" in told
    assert "1.2 GiB 12 MiB 480 5 out = net(batch)" in told


def test_the_map_of_the_peak_is_the_peak():
    """Blocks that had been there before the run stand in their own group, and nothing is counted twice."""
    run = RUNS["training"]
    peak = run.timelines[0].live[run.timelines[0].peak]
    assert sum(tile.nbytes for tile in memory_run.peak_tiles(run)) == peak
    had = AllocatedBlock(storage("net.weight", 5 * MIB, "parameter", device="cpu"), "", -1, 0)
    more = replace(run, peak_blocks=(*run.peak_blocks, had))
    assert sum(tile.nbytes for tile in memory_run.peak_tiles(more)) == peak
    groups = [tile.group for tile in memory_run.peak_tiles(more) if tile.label == "net.weight"]
    assert groups == ["before the run"]


def test_sizes_that_are_compared_from_the_right_stand_below_each_other():
    """What clashes in one dimension, counted from the right; the inner sizes of a product do not.

    There is no table of operands that are not known, and no note about it: the finding says what torch's message tells.
    """
    report = FAILURES["linear"]
    assert refused_call.operands(report).columns[2].look == "number"
    first, second = report.mismatch.parts
    inner = replace(report, mismatch=replace(report.mismatch, parts=(first, replace(second, dimension=0))))
    assert refused_call.operands(inner).columns[2].look == ""
    unknown = tuple(replace(one, is_tensor=False, shape=(), text="", dtype="") for one in report.operands)
    gap = Gap("operands", "not kept by Python after the error: the result of torch.ones(3)")
    told = ["not kept" in views.draw(replace(report, gaps=(gap,), operands=each), "txt")
            for each in (unknown, report.operands)]  # fmt: skip
    assert told == [False, True]


def test_the_way_leads_to_the_line_that_failed():
    """A long way without its middle, which is counted; files are told apart by headings."""
    lines = refused_call.way(FAILURES["afterwards"]).lines
    assert [line.number for line in lines] == [31, 0, 31, 31, 31, 31]
    assert lines[1].text == "… 5 lines more"
    assert [line.sign for line in lines] == [""] * 5 + ["error"]
    failed = FAILURES["linear"]
    elsewhere = replace(failed, stack=(Location("train.py", 3, "step()"), failed.location))
    lines = refused_call.way(elsewhere).lines
    assert [line.text for line in lines] == ["train.py", "step()", "cell 5", failed.location.text]
