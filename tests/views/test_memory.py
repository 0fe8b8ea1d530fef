"""The panels of memory: numbers where a user looks for them, sizes kept, everything there without a script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic import views
from tensormagic.reports import AllocatedBlock, DeviceMemory, Holder, ProcessUse, Release
from tensormagic.views.panels.memory import device_bar, held_by, release_notes, summary
from tensormagic.views.panels.memory_run import peak_tiles
from tests.views.markup_reader import Page
from tests.views.samples_memory import GIB, MIB, SAMPLES, storage
from tests.views.samples_memory_run import SAMPLES as RUNS


def test_a_device_is_a_bar_that_adds_up() -> None:
    """Tensors, what no tensor was found for, the reserve, the context, others, what is free: the device."""
    device = SAMPLES["gpt"].devices[0]
    bar = device_bar(device, SAMPLES["gpt"].every())
    amounts = {part.words: part.share * device.total for part in bar.parts if not part.ground.startswith("tm-c")}
    assert amounts == pytest.approx({
        "in use, no tensor found": 36 * MIB, "reserved, unused": 664 * MIB, "context and libraries": 310 * MIB,
        "other processes": 700 * MIB, "not accounted for": 6 * GIB - 2 * GIB - device.reserved - 1010 * MIB,
        "free": 2 * GIB,
    })  # fmt: skip
    assert (bar.parts[-1].amount, bar.parts[-1].of) == ("2 GiB", "33 %")
    assert sum(part.share for part in bar.parts) == pytest.approx(1)
    assert bar.note == ""


def test_a_device_with_room_to_spare_is_cut() -> None:
    """Free memory of more than half is drawn as long as the rest; without counters the bar is the tensors."""
    report = SAMPLES["small"]
    bar = device_bar(report.devices[0], report.every())
    assert (bar.note, bar.parts[-1].share) == ("(free part not to scale)", 0.5)
    bar = device_bar(DeviceMemory("cpu", live=6272, storages=3, tensors=4), report.every())
    assert [part.words for part in bar.parts] == ["parameters", "inputs"]
    assert sum(part.share for part in bar.parts) == pytest.approx(1)


def test_shared_pages_never_make_a_negative_part() -> None:
    """Tensors of memory that the process has not touched yet are more than it takes: there is no part below nothing."""
    device = DeviceMemory("cpu", live=9 * GIB, storages=1, tensors=1, free=GIB, total=16 * GIB, process=GIB,
                          others=(ProcessUse(1, "x", None),))  # fmt: skip
    bar = device_bar(device, [storage("x", 9 * GIB, "other", device="cpu")])
    parts = [(part.words, part.amount) for part in bar.parts]
    assert parts == [("other", "9 GiB"), ("other programs", "6 GiB"), ("free", "1 GiB")]


LOSSES = "del losses 693 MiB 24 storages"
UNCOUNTED = replace(RUNS["training"], lines=tuple(replace(line, executions=0) for line in RUNS["training"].lines))
TOLD = {
    "what letting go frees, with its code": (SAMPLES["gpt"], (
        LOSSES, "del opt 600 MiB 96 storages of 900 MiB that it reaches, shared with gpt",
        "or inside: losses.clear() 693 MiB, del losses[0] 96 MiB",
        "cache.clear() 5 MiB 1 storage del cache on its own frees nothing", "13 more that would free memory",
        "%gpumem --free --yes",
    ), ()),
    "no advice where nothing is unused": (SAMPLES["small"], (), ("%gpumem --free --yes",)),
    "a full device is not cut": (SAMPLES["many"], (), ("(free part not to scale)",)),
    "what was refused, where, and what was alive then": (RUNS["died"], (
        "cuda:0 ran out of memory: aten.mm.default asked for 8 GiB, 310 MiB was free.",
        "cell 7, line 5: out = net(batch)", "Alive when it failed by name", LOSSES,
        "412 events of the allocator of cuda:0; at most 90 MiB in use, tensors by themselves at most 82 MiB",
        "2 blocks without a tensor at the end, 1 MiB",
        "cell 7, line 5: out = net(batch) 8 MiB 40 MiB 30 none of your lines: backward, libraries 1 MiB",
    ), ("Alive at the peak",)),
    "lines of other files below": (RUNS["training"], (
        "net.py 300 MiB 20 MiB 240 41 return F.relu(self.fc(x))", "kept times number of the line",
    ), ()),
    "executions that were not counted": (UNCOUNTED, (
        "kept operations number of the line", "1.2 GiB 12 MiB 480 5 out = net(batch)",
    ), ()),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_what_is_told(case: str) -> None:
    """Each of these words is on the page, and none of those."""
    report, there, not_there = TOLD[case]
    text = Page(views.render(report, "html")).text
    assert [words for words in there if words not in text] == []
    assert [words for words in not_there if words in text] == []


def test_what_only_the_allocator_saw_names_the_lines_that_used_most() -> None:
    """A line that used less than the others is left out."""
    told = " ".join(views.render(RUNS["died"], "txt").split()).split("of the allocator")[1]
    assert "cell 7, line 5: out = net(batch) 8 MiB 40 MiB 30 none of your lines: backward, libraries 1 MiB" in told
    assert "cell 7, line 7" not in told


HOLDERS = tuple(Holder(path, "name", "tensor") for path in ("x", "y", "Out[3]", "_", "_3"))


@pytest.mark.parametrize(
    ("say", "given", "words"),
    [
        (held_by, storage("x", 4, "other", holders=HOLDERS, found=9), "y, Out[3], _ and 5 more"),
        (release_notes, Release("x", "name", 10, 1, 10), ""),
        (release_notes, Release("x", "name", 0, 0, 2048, ("y", "z", "w", "v")),
         "of 2 KiB that it reaches, shared with y, z, w and 1 more"),
        (summary, SAMPLES["empty"], "no tensor is alive"),
    ],
)  # fmt: skip
def test_words(say, given, words: str) -> None:
    """Holders and shared storages in words."""
    assert say(given) == words


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


def test_a_hundred_storages_are_told_in_64_kilobytes() -> None:
    """What exports it included; ten thousand and long runs have their bounds in `test_every_renderer`."""
    assert len(views.render(SAMPLES["hundred"], "html").encode()) <= 64_000
