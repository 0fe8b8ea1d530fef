"""What a snapshot report tells is what the allocator did, counted independently."""

from __future__ import annotations

import pickle
import random

import pytest

import tensormagic
from tensormagic import SnapshotError
from tensormagic.collectors.memory import snapshot, snapshot_segments
from tensormagic.collectors.memory.snapshot import snapshot_report
from tests.support.snapshot_writer import BEGIN, C_PLUS_PLUS, STANDARD, TORCH, UNWIND, ToyAllocator, frame, stack


def programs(seed):
    """Return an allocator after a random program, and what each line allocated."""
    chance, allocator, alive, lines = random.Random(seed), ToyAllocator(), [], {}
    for _ in range(chance.randint(1, 60)):
        if alive and chance.random() < 0.4:
            allocator.free(alive.pop(chance.randrange(len(alive))), stack(50), completed=chance.random() < 0.8)
        else:
            size, line = chance.randint(1, 5000), chance.randint(1, 5)
            alive.append(allocator.alloc(size, stack(line, 99)))
            lines[line] = lines.get(line, 0) + size
    return allocator, lines


@pytest.mark.parametrize("seed", range(30))
def test_sums_peak_and_lines_are_the_allocators_own(seed):
    """Over random programs: what is live, the peak, each line's bytes and every segment are what was counted."""
    allocator, lines = programs(seed)
    report = snapshot_report(allocator.snapshot())
    report.check()
    (device,) = report.devices
    assert (device.requested, device.peak) == (allocator.live, allocator.peak)
    assert device.reserved == device.reserved_peak == allocator.segment
    assert device.allocated + device.awaiting + device.free == allocator.segment
    assert {one.location.line: one.allocated for one in report.lines if one.allocated} == lines
    (timeline,) = report.timelines
    assert timeline.live[timeline.peak] == max(timeline.live) == allocator.peak
    assert timeline.live[-1] == allocator.live == sum(one.kept for one in report.lines)
    assert sum(one.requested for one in report.peak_blocks) == allocator.peak == sum(o.at_peak for o in report.lines)
    assert report.gaps == ()


@pytest.mark.parametrize("seed", range(30))
def test_a_history_that_begins_late_has_the_same_end_and_the_same_levels(seed):
    """The level before the first event follows from the blocks that are left: of a ring buffer's rest too."""
    allocator, _ = programs(seed)
    whole = snapshot_report(allocator.snapshot())
    kept = max(len(allocator.events) // 2, 1)
    late = snapshot_report(allocator.snapshot(history=kept))
    late.check()
    levels = dict(zip(whole.timelines[0].operation, whole.timelines[0].live, strict=True))
    offset = len(allocator.events) - kept
    timeline = late.timelines[0]
    assert {at + offset: live for at, live in zip(timeline.operation, timeline.live, strict=True)}.items() <= {
        **levels, len(allocator.events) - 1: allocator.live,
    }.items()  # fmt: skip
    blocks = sum(one.requested for one in late.peak_blocks) + late.peak_left_out[1]
    assert blocks == timeline.live[timeline.peak] == late.devices[0].peak


def test_lines_are_the_persons_own_innermost_ones():
    """Torch's, Python's and C++ frames are passed over; where there is no other, the innermost that tells something."""
    allocator = ToyAllocator()
    allocator.alloc(5000, stack(12, 99))
    allocator.alloc(4000, [UNWIND, C_PLUS_PLUS, TORCH, STANDARD])
    allocator.alloc(3000, [UNWIND, C_PLUS_PLUS])
    allocator.alloc(2000, [])
    allocator.alloc(1000, [TORCH, frame(3, "<module>", "/tmp/ipykernel_77/12.py")])
    report = snapshot_report(allocator.snapshot(), cell_number={"/tmp/ipykernel_77/12.py": 8}.get)
    told = [(one.location.label, one.location.function, one.allocated) for one in report.lines]
    assert told == [
        ("train.py, line 12", "forward", 5000),
        ("linear.py, line 134", "forward", 4000),
        ("??, line 0", C_PLUS_PLUS["name"], 3000),
        ("cell 8, line 3", "", 1000),
    ]
    assert [place.line for place in report.live[0].stack] == [99, 12]
    assert report.live[3].line == -1


def test_no_file_is_opened_for_the_text_of_a_line(tmp_path):
    """A snapshot may name any file: none of them is read."""
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    allocator = ToyAllocator()
    allocator.alloc(5000, [frame(1, "f", str(secret))])
    report = snapshot_report(allocator.snapshot())
    assert report.lines[0].location.text == ""
    assert "password" not in str(report.to_dict())


def test_a_refused_allocation_tells_when_where_and_what_was_free():
    """An oom event has its bytes, what the driver had free, what was in use then, its time and its way."""
    allocator = ToyAllocator()
    allocator.alloc(5000, stack(12))
    allocator.refuse(2**33, 2**20, stack(13, 99))
    allocator.free(BEGIN)
    (refused,) = snapshot_report(allocator.snapshot()).refused
    assert (refused.device, refused.asked, refused.free, refused.live) == ("cuda:0", 2**33, 2**20, 5000)
    assert refused.seconds == pytest.approx(0.002)
    assert [place.line for place in refused.stack] == [99, 13]


def test_a_freed_line_is_told_where_frees_have_stacks():
    """With ``context="all"`` the line at which memory went away is known."""
    allocator = ToyAllocator()
    allocator.free(allocator.alloc(5000, stack(12)), stack(40))
    freed = {one.location.line: one.freed for one in snapshot_report(allocator.snapshot()).lines}
    assert freed == {12: 0, 40: 5000}


def test_the_stack_that_a_free_borrows_from_its_allocation_is_no_place_where_anything_was_freed():
    """With ``context="alloc"`` torch puts the allocation's own stack into the events of the free, the same list."""
    allocator = ToyAllocator()
    allocator.free(allocator.alloc(5000, stack(12)))
    allocator.alloc(700, stack(13))
    given = pickle.loads(pickle.dumps(allocator.snapshot()))
    report = snapshot_report(given)
    assert {one.location.line: (one.allocated, one.freed) for one in report.lines} == {12: (5000, 0), 13: (700, 0)}
    assert report.timelines[0].live[-1] == 700


def test_the_frames_of_our_own_stand_ins_are_passed_over():
    """A snapshot taken in a cell that was followed holds the frames that made the user's calls for them."""
    allocator = ToyAllocator()
    allocator.alloc(5000, [UNWIND, frame(12, "tensormagic_call"), frame(12, "forward"), frame(99, "<module>")])
    report = snapshot_report(allocator.snapshot())
    assert [(one.location.line, one.location.function) for one in report.lines] == [(12, "forward")]
    assert [place.line for place in report.live[0].stack] == [99, 12]


def test_old_and_other_forms_are_read():
    """Blocks with a history (torch 2.0), a bare list of segments, and what torch.profiler makes of its own events."""
    old = {"device": 1, "address": BEGIN, "total_size": 1024, "stream": 0, "blocks": [
        {"size": 512, "state": "active_allocated", "history": [{"addr": BEGIN, "real_size": 500, "frames": stack(7)}]},
        {"size": 512, "state": "inactive"},
    ]}  # fmt: skip
    report = snapshot_report([old])
    assert (report.devices[0].device, report.devices[0].allocated, report.devices[0].requested) == ("cuda:1", 512, 500)
    assert report.lines[0].kept == 500
    event = {"action": "alloc", "addr": 1, "size": 64, "stream": 0, "frames": [], "category": "optimizer_state"}
    profiled = snapshot_report({"segments": [], "device_traces": [[event]]})
    assert profiled.timelines[0].by_category == (("other", (64,)),)
    assert profiled.peak_blocks[0].label == "optimizer_state"
    assert [gap.reason for gap in profiled.gaps] == ["the events of cuda:0 have no times"]


def test_a_crowded_segment_is_drawn_by_a_bounded_number_of_stretches():
    """Thousands of small blocks are joined; together they are still the segment, and every large block stands alone."""
    allocator = ToyAllocator()
    places = [allocator.alloc(400, stack(7)) for _ in range(6000)]
    allocator.alloc(2**23, stack(8))
    for place in places[::2]:
        allocator.free(place)
    (segment,) = snapshot_report(allocator.snapshot()).segments
    assert segment.blocks == 6002
    assert len(segment.ranges) < 100
    assert sum(one.blocks for one in segment.ranges) == 6002
    assert sum(one.used for one in segment.ranges) == segment.allocated == 3000 * 512 + 2**23
    assert {one.state for one in segment.ranges} == {"mixed", "allocated", "free"}
    assert segment.fragmentation == pytest.approx(1 - segment.largest_free / segment.free)


def test_a_long_history_is_a_short_report_with_the_true_peak(monkeypatch):
    """A timeline keeps a bounded number of moments, the peak among them; a bound on events is told where it bites."""
    allocator = ToyAllocator(segment=2**30)
    for at in range(2000):
        place = allocator.alloc(700 + (at == 777) * 10**6, stack(at % 500 + 1))
        allocator.free(place)
    report = snapshot_report(allocator.snapshot())
    assert report.devices[0].peak == 700 + 10**6
    assert report.timelines[0].live[report.timelines[0].peak] == 700 + 10**6
    assert len(report.timelines[0].live) < 700
    assert (len(report.lines), report.lines_left_out) == (200, (300, 300 * 4 * 700))
    monkeypatch.setattr(snapshot, "MOST_EVENTS", 100)
    bounded = snapshot_report(allocator.snapshot())
    assert bounded.devices[0].events == 100
    assert bounded.gaps[0].reason == "the history of cuda:0 has 6003 events; the last 100 were read"


def test_events_that_contradict_the_blocks_are_told():
    """Where blocks and events do not fit, the timeline says that its level is a guess, and still adds up."""
    allocator = ToyAllocator()
    allocator.alloc(5000, stack(7))
    given = allocator.snapshot()
    given["device_traces"][0].append({"action": "alloc", "addr": 5, "size": 900, "stream": 0, "frames": []})
    report = snapshot_report(given)
    report.check()
    assert min(report.timelines[0].live) >= 0
    (gap,) = report.gaps
    assert gap.reason == (
        "the events of cuda:0 and its blocks differ by 900 B: the level before the first event is estimated"
    )


@pytest.mark.parametrize(
    "data",
    [
        None, 7, [], {}, [1], {"segments": 3}, {"segments": {}}, {"device_traces": []},
    ],
)  # fmt: skip
def test_other_data_is_no_snapshot(data):
    """Plain data of another shape is refused with what it is."""
    with pytest.raises(SnapshotError, match="None" if data is None else type(data).__name__):
        snapshot_report(data)


@pytest.mark.parametrize(
    "inside",
    [
        {"segments": [3, None, {}, {"blocks": 5}, {"blocks": [7, {}]}]},
        {"segments": [{"blocks": [{"size": -5, "state": "active_allocated", "frames": [{}, 3, {"line": "x"}]}]}]},
        {"segments": [], "device_traces": [[{}, 3, {"action": [1]}, {"action": "alloc", "addr": [], "size": 1.5}]]},
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 2**62, "frames": 3}] * 9]},
        {"segments": [{"device": "x", "segment_pool_id": (1, "a"), "total_size": 10**30}]},
        {"segments": [], "allocator_settings": {"a": {}, 3: "b", "c": "d"}},
    ],
)  # fmt: skip
def test_damaged_fields_are_read_as_far_as_they_go(inside):
    """Fields of the wrong type are left out; the report adds up and survives its own JSON."""
    report = snapshot_report(inside)
    report.check()
    assert type(report).from_dict(report.to_dict()) == report


def test_what_is_repeated_without_end_is_refused(monkeypatch):
    """A small file whose parts refer to each other by the million is refused, rather than gone through."""
    monkeypatch.setattr(snapshot_segments, "MOST_BLOCKS", 25_000)
    block = {"size": 512, "state": "inactive"}
    segment = {"device": 0, "blocks": [block] * 10_000}
    with pytest.raises(SnapshotError, match="more than 25000 blocks"):
        snapshot_report({"segments": [segment] * 10_000})


def test_it_is_read_from_a_file_and_from_a_dictionary(tmp_path):
    """``tm.read_snapshot`` takes the path of a file, or what ``_snapshot()`` returns, and gives the same report."""
    allocator, _ = programs(3)
    given = allocator.snapshot()
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(given))
    report = tensormagic.read_snapshot(path)
    assert report.source == "memory.pickle"
    assert (
        tensormagic.read_snapshot(given).timelines == report.timelines == tensormagic.read_snapshot(str(path)).timelines
    )
