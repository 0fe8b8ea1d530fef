"""The panels of memory: numbers where a user looks for them, sizes kept, everything there without a script."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.reports import AllocatedBlock, DeviceMemory, Holder, ProcessUse, Release
from tensormagic.views.panels.memory import device_bar, held_by, release_notes, summary
from tensormagic.views.panels.memory_run import peak_tiles
from tests.views.markup_reader import Page
from tests.views.samples_memory import GIB, MIB, SAMPLES, storage
from tests.views.samples_memory_run import SAMPLES as RUNS


def page(report) -> Page:
    return Page(views.render(report, "html"))


@pytest.mark.parametrize(
    ("report", "most"),
    [(SAMPLES["hundred"], 64_000), (SAMPLES["many"], 150_000), (RUNS["long"], 120_000)],
    ids=["a hundred storages", "ten thousand storages", "two thousand moments"],
)
def test_sizes_are_kept(report, most: int) -> None:
    """What exports it included: a hundred storages in 64 KB, ten thousand in 150, two thousand moments in 120."""
    assert len(views.render(report, "html").encode()) <= most


def test_a_device_is_a_bar_that_adds_up() -> None:
    """Tensors, what no tensor was found for, the reserve, the context, others, what is free: the device."""
    device = SAMPLES["gpt"].devices[0]
    bar = device_bar(device, SAMPLES["gpt"].every())
    amounts = {part.kind: part.nbytes for part in bar.parts if part.kind != "tensors"}
    assert amounts == {
        "unexplained": 36 * MIB, "unused": 664 * MIB, "context": 310 * MIB, "others": 700 * MIB,
        "unaccounted": 6 * GIB - 2 * GIB - device.reserved - 1010 * MIB, "free": 2 * GIB,
    }  # fmt: skip
    assert sum(part.nbytes for part in bar.parts) == device.total
    assert sum(part.share for part in bar.parts) == pytest.approx(1)
    assert not bar.cut


def test_a_device_with_room_to_spare_is_cut() -> None:
    """Free memory of more than half is drawn as long as the rest, and the panel says so."""
    report = SAMPLES["small"]
    bar = device_bar(report.devices[0], report.every())
    assert bar.cut
    assert bar.parts[-1].share == 0.5
    assert "(free part not to scale)" in page(report).text
    assert "(free part not to scale)" not in page(SAMPLES["many"]).text


def test_a_device_that_tells_nothing_has_only_its_tensors() -> None:
    """Without counters the bar is the tensors, and no number is made up."""
    report = replace(SAMPLES["small"], devices=(DeviceMemory("cpu", live=6272, storages=3, tensors=4),))
    bar = device_bar(report.devices[0], report.every())
    assert [(part.kind, part.category) for part in bar.parts] == [("tensors", "parameter"), ("tensors", "input")]
    assert sum(part.share for part in bar.parts) == pytest.approx(1)


def test_shared_pages_never_make_a_negative_part() -> None:
    """Tensors of memory that the process has not touched yet are more than it takes: there is no part below nothing."""
    device = DeviceMemory("cpu", live=9 * GIB, storages=1, tensors=1, free=GIB, total=16 * GIB, process=GIB,
                          others=(ProcessUse(1, "x", None),))  # fmt: skip
    bar = device_bar(device, [storage("x", 9 * GIB, "other", device="cpu")])
    assert [(part.kind, part.nbytes) for part in bar.parts] == [
        ("tensors", 9 * GIB), ("rest", 6 * GIB), ("free", GIB),
    ]  # fmt: skip


def test_what_letting_go_frees_stands_with_its_code() -> None:
    """Each name with the code to run, what it frees, and what it shares with whom; the small ones folded."""
    text = page(SAMPLES["gpt"]).text
    assert "del losses 693 MiB 24 storages" in text
    assert "del opt 600 MiB 96 storages of 900 MiB that it reaches, shared with gpt" in text
    assert "or inside: losses.clear() 693 MiB, del losses[0] 96 MiB" in text
    assert "cache.clear() 5 MiB 1 storage del cache on its own frees nothing" in text
    assert "13 more that would free memory" in text
    assert "%gpumem --free --yes" in text
    assert "%gpumem --free --yes" not in page(SAMPLES["small"]).text


def test_words() -> None:
    """Holders and shared storages in words."""
    holders = tuple(Holder(path, "name", "tensor") for path in ("x", "y", "Out[3]", "_", "_3"))
    assert held_by(storage("x", 4, "other", holders=holders, found=9)) == "y, Out[3], _ and 5 more"
    assert release_notes(Release("x", "name", 10, 1, 10)) == ""
    assert release_notes(Release("x", "name", 0, 0, 2048, ("y", "z", "w", "v"))) == (
        "of 2 KiB that it reaches, shared with y, z, w and 1 more"
    )
    assert summary(SAMPLES["empty"]) == "no tensor is alive"


def test_a_run_begins_with_its_peak() -> None:
    """The peak, where it was, both ends; then the timeline twice, by category and by line."""
    drawn = page(RUNS["training"])
    assert drawn.text.startswith("gpumem peak 86.2 MiB on cpu at operation 438 · 18 MiB before, 51.5 MiB after")
    assert [one.get("checked") for one in drawn.attributes("input")] == ["", None]
    assert drawn.attributes("form")[0]["method"] == "dialog"
    assert "optimizer state 30 MiB" in drawn.text


def test_lines_have_their_bytes_beside_them() -> None:
    """As line profilers show it: at the peak, allocated, freed, kept, times, line, source."""
    text = page(RUNS["training"]).text
    assert "12 MiB 80 MiB 1 MiB 12 MiB 40 6 loss = criterion(out, target)" in text
    assert "1 %%gpumem" in text
    assert "net.py 300 MiB 20 MiB 240 41 return F.relu(self.fc(x))" in text


def test_a_function_is_listed_as_it_stands() -> None:
    """Line by line from its first number on; its lines are not listed a second time with their file."""
    text = page(RUNS["functions"]).text
    assert text.count("return F.relu(self.fc(x))") == 1
    assert re.search(r'In net.forward .* 39 def forward\(self, x\): 40 """One layer.""" 300 MiB', text)
    assert "In idle no line of it allocated anything" in text


def test_a_run_that_died_says_first_what_was_refused() -> None:
    """What asked for how much, where; then what was alive then, by name, in place of the peak."""
    text = page(RUNS["died"]).text
    assert "cuda:0 ran out of memory: aten.mm.default asked for 8 GiB, 310 MiB was free." in text
    assert "cell 7, line 5: out = net(batch)" in text
    assert "Alive when it failed by name" in text
    assert "Alive at the peak" not in text
    assert "del losses 693 MiB 24 storages" in text


def test_what_only_the_allocator_saw_is_told() -> None:
    """Its peak beside that of the tensors; which line used memory inside of operations, the most first."""
    for form in ("html", "txt"):
        told = views.render(RUNS["died"], form)
        text = " ".join((Page(told).text if form == "html" else told).split())
        peaks = "at most 90 MiB in use, tensors by themselves at most 82 MiB"
        assert f"412 events of the allocator of cuda:0; {peaks}" in text
        assert "2 blocks without a tensor at the end, 1 MiB" in text
        assert "cell 7, line 5: out = net(batch) 8 MiB 40 MiB 30 none of your lines: backward, libraries 1 MiB" in text
        assert "cell 7, line 7" not in text.split("of the allocator")[1]


def test_what_grows_is_told() -> None:
    """The line that stores it, how much each time, what keeps it."""
    assert (
        "losses.append(loss) cell 7, line 9 300 KiB more after each of 12 iterations, 3.5 MiB in total in autograd "
        "graphs, kept by losses"
    ) in page(RUNS["training"]).text


def test_the_map_of_the_peak_is_the_peak() -> None:
    """Blocks that had been there before the run stand in their own group, and nothing is counted twice."""
    run = RUNS["training"]
    peak = run.timelines[0].live[run.timelines[0].peak]
    assert sum(tile.nbytes for tile in peak_tiles(run)) == peak
    had = AllocatedBlock(storage("net.weight", 5 * MIB, "parameter", device="cpu"), "", -1, 0)
    more = replace(run, peak_blocks=(*run.peak_blocks, had))
    assert sum(tile.nbytes for tile in peak_tiles(more)) == peak
    groups = [tile.group for tile in peak_tiles(more) if tile.label == "net.weight"]
    assert groups == ["before the run"]


def test_executions_that_were_not_counted_are_not_made_up() -> None:
    """Without a count of executions the column tells how many operations allocated, and says so."""
    run = RUNS["training"]
    uncounted = replace(run, lines=tuple(replace(line, executions=0) for line in run.lines))
    assert "kept times number of the line" in page(run).text
    assert "kept operations number of the line" in page(uncounted).text
    assert "1.2 GiB 12 MiB 480 5 out = net(batch)" in page(uncounted).text
