"""What two ranks wrote, compared with each other: each planted fault is found, and nothing where nothing is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import time
from dataclasses import replace

import pytest
import torch

import tensormagic as tm
from tensormagic.commands import main
from tensormagic.comparisons.rank_files import Facts, OnePass, OneStep, Posting, of_posts
from tensormagic.comparisons.ranks import compare_ranks
from tests.support import warm
from tests.support.kernel import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]

WORLD = 2
HEALTHY = (
    "healthy", "healthy_clipped", "healthy_accumulation", "healthy_sharded", "healthy_rates", "healthy_dropout",
    "healthy_buffers", "healthy_sharded_clipped", "healthy_last_batch", "healthy_tensor_parallel",
    "healthy_fixed_input", "healthy_other_lines", "healthy_dropped_inputs", "healthy_loader",
    "healthy_shared_optimizer",
)  # fmt: skip
FAULTS = {
    "never_reduced": ("TM902", "no pass since the previous step reduced them"),
    "past_the_wrapper": ("TM902", "no pass since the previous step reduced them"),
    "converted": ("TM902", "or the parameters were converted after wrapping"),
    "added_after": ("TM902", "later passes added to them"),
    "changed_by_hand": ("TM902", "Step 3 used"),
    "started_apart": ("TM901", "Before the first step"),
    "drifted": ("TM901", "After step 4, with equal gradients"),
    "other_rates": ("TM903", "from step 3 on: 0.05 on rank 0 and 0.1 on rank 1"),
    "nan_on_one": ("TM907", "began only on rank 1, in pass 3"),
    "one_more_pass": ("TM908", "rank 1 made 5, rank 0 6"),
    "own_buffers": ("TM904", "after step 5: module.1.running_mean is different on rank 1"),
    "same_data": ("TM905", "Ranks 0 and 1 were given the same input in all 5 forwards"),
    "same_masks": ("TM909", "at each of 5 forwards, and 5 of them drew"),
    "same_masks_of_inputs": ("TM909", "at each of 5 forwards, and 4 of them drew"),
    "same_masks_before_the_model": ("TM909", "at each of 5 forwards, and 4 of them drew"),
    "smaller_last_batch": ("TM910", "in 1 of 5 forwards, first in pass 5"),
    "clipped_by_shards": ("TM913", "Before step 2 the ranks scaled the shards of their gradients"),
    "clipped_flat": ("TM913", "Before step 2 the ranks scaled the shards of their gradients"),
    "whole_by_mistake": ("TM912", "Each rank holds 2 of 4 DTensors whole"),
    "slow": ("TM915", "The other rank waits for rank 1: it was last in"),
    "another_collective": ("TM906", "The ranks diverge at collective"),
    "left_out": ("TM906", "Rank 1 never reached collective 2 of group"),
    "nan_that_passed": ("TM907", "before gradients were reduced: the last pass is finite again."),
    "stepped_on_one": ("TM901", "At the end 4 of 4 parameters differ between ranks, after 5 steps on rank 0 and 0 "),
    "skipped_step": ("TM902", "they are of different passes, because some ranks skipped a step that others made"),
    "left_unused": ("TM902", "DistributedDataParallel.module.spare.weight gets none on ranks 0 and 1"),
    "raised": ("TM906", "where rank 0 waited and failed. Rank 1 ended with RuntimeError: sample 17 is empty."),
    "killed": ("TM900", "Rank 1 stopped reporting after pass 3"),
}
ELSEWHERE = {"TM911", "TM914", "TM916"}  # by the fake backend, and by hand-made facts: see the files beside


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the ranks wrote, a folder a program."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*warm.python(), str(ROOT / "tests" / "ranks" / "faulty_ranks.py")]
    started = [
        subprocess.Popen([*command, str(rank), str(WORLD), str(folder)], env=environment, stderr=subprocess.PIPE)
        for rank in range(WORLD)
    ]
    said = [each.communicate(timeout=300)[1].decode() for each in started]
    assert [each.returncode for each in started] == [0, -9], "\n".join(said)
    return folder


@pytest.fixture(scope="module")
def reports(folder):
    """The trace reports of both ranks, by program."""
    return [pickle.loads((folder / f"reports{rank}").read_bytes()) for rank in range(WORLD)]


def codes(report):
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("program", FAULTS)
def test_a_planted_fault_is_found(folder, program):
    """It, and nothing that follows from it."""
    code, words = FAULTS[program]
    if torch.__version__ < "2.11" and code in {"TM906", "TM915"}:
        pytest.skip("torch 2.10 lets nobody see its collectives")
    report = tm.ranks(folder / program)
    assert codes(report) == [code]
    assert words in report.findings[0].message
    assert report.gaps == ()


@pytest.mark.parametrize("program", HEALTHY)
def test_a_healthy_run_is_silent(folder, reports, program):
    """Both by what the ranks wrote and by their reports."""
    report = tm.ranks(str(folder / program))
    assert codes(report) == codes(tm.ranks([each[program] for each in reports])) == []
    assert [one.state for one in report.ranks] == ["finished"] * 2
    assert [one.steps for one in report.ranks] == [5, 5]
    assert report.compared_step == 5
    assert "could not" not in str(report)


@pytest.mark.parametrize("program", ["never_reduced", "added_after", "changed_by_hand", "nan_on_one", "one_more_pass"])
def test_reports_of_the_ranks_say_the_same(reports, program):
    """What needs no bits of parameters and no rates."""
    report = tm.ranks([each[program] for each in reversed(reports)])
    assert codes(report) == [FAULTS[program][0]]
    assert [one.steps for one in report.ranks] == [5, 5]


def test_ranks_that_join_differ_in_nothing_but_their_number_of_passes(folder):
    """What each held after the last step of the shortest is not compared with what it held at the end."""
    report = tm.ranks(folder / "joined")
    assert [(one.passes, one.reduced, one.steps) for one in report.ranks] == [(5, 5, 5), (4, 4, 4)]
    assert (
        codes(report)
        == codes(tm.ranks([of_posts(*posted(file)) for file in (folder / "joined").glob("*.jsonl")]))
        == []
    )


def test_before_the_reduction_the_ranks_differ_and_after_it_they_do_not(folder):
    """Of the same run, by the norms that are shown."""
    report = tm.ranks(folder / "healthy")
    width = len(report.names)
    assert len(report.pass_norms) == len(report.step_norms) == 2 * width
    assert report.pass_norms[:width] != report.pass_norms[width:]
    assert report.step_norms[:width] == report.step_norms[width:]


def test_a_file_that_ends_within_a_line_is_read_up_to_there(folder, tmp_path):
    """As a rank that is killed may leave it."""
    shutil.copytree(folder / "healthy", tmp_path / "cut")
    path = tmp_path / "cut" / "rank00001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]) + lines[-3][:10])
    report = tm.ranks(tmp_path / "cut")
    assert report.ranks[1].state == "running"
    assert "rank 1: line" in report.gaps[0].reason
    assert "TM900" in codes(report)


@pytest.mark.parametrize("program", ["healthy", "drifted", "slow", "clipped_by_shards", "nan_on_one"])
def test_parts_of_a_folder_are_merged(folder, program):
    """File by file, each elsewhere: the panel is that of the folder."""
    parts = [tm.ranks(file) for file in sorted((folder / program).glob("*.jsonl"))]
    assert len(parts) == WORLD
    assert [part.findings[0].code for part in parts] == ["TM900"] * WORLD  # one rank of two
    both = tm.ranks(pickle.loads(pickle.dumps(parts)))
    assert both.to_dict() == tm.ranks(folder / program).to_dict()


def test_a_rank_that_left_no_file_is_missed(folder, tmp_path):
    """The world is as large as the others say."""
    shutil.copytree(folder / "healthy", tmp_path / "one")
    (tmp_path / "one" / "rank00001.jsonl").unlink()
    report = tm.ranks(tmp_path / "one")
    assert codes(report) == ["TM900"]
    assert report.findings[0].message.startswith("Rank 1 of 2 left no report")


@pytest.mark.parametrize("what", ["nothing", "empty", "other"])
def test_what_no_rank_wrote_is_refused(tmp_path, what):
    """With a sentence."""
    if what != "nothing":
        (tmp_path / what).mkdir()
    if what == "other":
        (tmp_path / what / "rank00000.jsonl").write_text("{}\n")
    with pytest.raises(tm.ReportFormatError, match="rank"):
        tm.ranks(tmp_path / what)


def test_reports_of_one_process_are_refused():
    """Each rank has to trace its own part."""
    with tm.trace() as trace:
        torch.ones(2, requires_grad=True).sum().backward()
    with pytest.raises(tm.TraceError, match="one process"):
        tm.ranks([trace.report])
    with pytest.raises(tm.TraceError, match="one report of each rank"):
        tm.ranks([])


def test_files_and_reports_are_not_mixed(folder, reports):
    """Steps have numbers in the one, and are called by the pass before them in the other."""
    with pytest.raises(tm.TraceError, match="give one kind for all ranks"):
        tm.ranks([reports[0]["healthy"], folder / "healthy" / "rank00001.jsonl"])


def test_a_folder_that_cannot_be_written_is_a_gap_and_no_error(tmp_path):
    """The run is the user's."""
    (tmp_path / "file").write_text("")
    with tm.trace(ranks=tmp_path / "file" / "below") as trace:
        torch.ones(2, requires_grad=True).sum().backward()
    assert len(trace.report.passes) == 1
    assert any("this rank's file ends early" in gap.reason for gap in trace.report.gaps)


HASHED = {"healthy": [0, 1, 2, 4, 5], "killed": [0, 1, 2]}  # killed within step 3


@pytest.mark.parametrize("program", HASHED)
def test_hashes_are_of_the_start_the_end_and_steps_2_to_the_k(folder, program):
    """So that a run of a million steps has twenty-two."""
    lines = map(json.loads, (folder / program / "rank00001.jsonl").read_text().splitlines())
    assert sorted({one["step"] for one in lines if one["k"] == "hash"}) == HASHED[program]


@pytest.mark.parametrize(("program", "ranks"), [("healthy", [0]), ("drifted", [0, 1]), ("nan_on_one", [0, 1])])
def test_full_reports_are_of_rank_0_and_of_ranks_that_differ(folder, reports, program, ranks):
    """Each saved its own when it ended; they are read when they are asked for, also from a saved comparison."""
    found = tm.RankReport.from_dict(tm.ranks(folder / program).to_dict())
    assert list(found.reports) == ranks
    for rank in ranks:
        own = reports[rank][program]
        assert found.reports[rank].to_dict() == {**own.to_dict(), "own_seconds": found.reports[rank].own_seconds}
    assert f"--rank {ranks[-1]} or .reports[{ranks[-1]}]" in " ".join(str(found).split())
    if 1 not in ranks:
        with pytest.raises(KeyError, match="rank 1 left no full report: there are those of rank 0"):
            found.reports[1]


def test_a_rank_that_was_killed_left_no_full_report(folder):
    """And that is said."""
    found = tm.ranks(folder / "killed")
    assert list(found.reports) == [0]
    assert "full report of rank 0: --rank 0 or .reports[0]; none of rank 1: killed" in " ".join(str(found).split())


@pytest.mark.parametrize(("program", "ranks"), [("ends", []), ("fails", [1]), ("overflows", [1])])
def test_a_rank_saves_its_full_report_for_what_it_has_itself(tmp_path, monkeypatch, program, ranks):
    """An error that ended it, or something that was found in its run: nobody else is asked."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    x = torch.ones(2, requires_grad=True)
    with contextlib.suppress(ValueError), tm.trace(ranks=tmp_path):
        (x / (0.0 if program == "overflows" else 2.0)).sum().backward()
        if program == "fails":
            raise ValueError("only here")
    found = tm.ranks(tmp_path)
    assert list(found.reports) == ranks
    assert [one.error for one in found.reports.values()] == ["ValueError: only here"] * (program == "fails") or ranks


def test_an_older_full_report_goes_with_its_run(tmp_path):
    """A folder that is used again has none of a rank that ended otherwise."""

    def run():
        with tm.trace(ranks=tmp_path):
            torch.ones(2, requires_grad=True).sum().backward()

    run()
    full = tmp_path / "rank00000.report.json"
    assert list(tm.ranks(tmp_path).reports) == [0]
    full.write_text("of another run")
    full.with_name("rank00001.report.json").write_text("of another rank")
    run()
    assert list(tm.ranks(tmp_path).reports) == [0]
    assert len(tm.ranks(tmp_path).reports[0].passes) == 1


def test_the_command_opens_the_full_report_of_a_rank(folder, capsys):
    """The run's own panel; where that rank saved none, it is said which did."""
    assert main(["ranks", str(folder / "drifted"), "--rank", "1"]) == 0
    assert "5 backward passes" in capsys.readouterr().out
    assert main(["ranks", str(folder / "healthy"), "--rank", "1"]) == 1
    assert "rank 1 left no full report: there are those of rank 0" in capsys.readouterr().out


def posted(path, parts=1):
    """Return the head and the posts that come of a file which grows in so many parts."""
    whole, growing = path.read_bytes(), path.with_suffix(".growing")
    growing.write_bytes(b"")
    posting, posts = Posting(growing), b""
    for part in range(1, parts + 1):
        growing.write_bytes(whole[: len(whole) * part // parts])
        posts += posting.new(peak=2**40)
    growing.unlink()
    return posting.head, posts


@pytest.mark.parametrize("program", ["healthy", "never_reduced", "drifted", "other_rates", "nan_on_one", "slow"])
def test_64_bytes_a_step_tell_what_is_seen_at_once(folder, program):
    """The table, when ranks came to their steps, and what parts them, though not in which parameter."""
    files = sorted((folder / program).glob("*.jsonl"))
    whole = tm.ranks(folder / program)
    posts = [posted(file) for file in files]
    assert [len(each) for _, each in posts] == [64 * one.steps for one in whole.ranks]
    found = tm.ranks([of_posts(*each) for each in posts])
    for one, known in zip(found.ranks, whole.ranks, strict=True):
        assert one.peak == 2**40
        assert repr(replace(one, peak=0, seconds=0)) == repr(replace(known, peak=0, seconds=0, report=""))
    assert {*codes(found)} - {"TM915"} == {*codes(whole)} - {"TM915"}  # of a straggler the collectives tell
    assert found.arrivals.group == ""
    assert found.arrivals.ranks == (0, 1)
    assert len(found.arrivals.numbers) == whole.ranks[0].steps
    if program == "healthy":
        assert "differ" not in str(found)
        grown = [posted(file, parts=40) for file in files]
        assert tm.ranks([of_posts(*each) for each in grown]).to_dict() == found.to_dict()
        assert max(len(each) for _, each in grown) <= 64 * (5 + 4)  # once more with hashes: of steps 1, 2, 4, and 5


def test_what_a_rank_posts_besides_is_small_whatever_it_is(tmp_path):
    """Long names and errors, a thousand lines, a group of many ranks without order."""
    path, long = tmp_path / "rank00000.jsonl", "x" * 50_000
    lines = [
        {"k": "rank", "v": 1, "rank": 0, "world": 4096, "host": long, "pid": 7, "at": 0.0},
        {"k": "names", "names": [long] * 10},
        {"k": "place", "kinds": ["DDP"], "replicas": [*range(4096)], "shares": [0, 1, 3, *range(5, 4096)]},
    ]
    for n in range(1, 1001):
        lines += [
            {"k": "pass", "n": n, "loss": None, "finite": True, "reduced": None, "line": f"{n}{long}", "at": 1.0,
             "norms": None},
            {"k": "step", "n": n, "lr": [], "at": 1.0, "used": None},
        ]  # fmt: skip
    lines.append({"k": "end", "state": "failed", "error": long, "peak": 0, "at": 2.0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    head, posts = posted(path)
    assert len(head) < 10_000
    assert len(posts) == 64_000
    (one,) = tm.ranks([of_posts(head, posts)]).ranks
    assert (one.state, one.passes, one.steps, one.loss) == ("failed", 1000, 1000, None)
    assert (len(one.replicas), one.shares) == (4096, ())


def test_the_command_shows_saves_and_says_whether_there_is_an_error(folder, tmp_path, capsys):
    """For people and for scripts."""
    assert main(["ranks", str(folder / "never_reduced"), "--save", str(tmp_path / "ranks.html")]) == 1
    assert "TM902" in (tmp_path / "ranks.html").read_text(encoding="utf-8")
    assert main(["ranks", str(folder / "healthy"), "--watch"]) == 0
    assert "2 ranks" in capsys.readouterr().out
    assert main(["ranks", str(tmp_path / "nowhere")]) == 1


def test_watching_ends_where_a_rank_was_killed(folder, monkeypatch, capsys):
    """It cannot say that it ended, but its process is gone."""
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it is waited for"))
    assert main(["ranks", str(folder / "killed"), "--watch"]) == 0
    assert "Rank 1 stopped reporting after pass 3" in capsys.readouterr().out


def synthetic(rank, world, names, norms, *, odd=False):
    """Return what a rank of many would have written, of a hundred steps."""
    facts = Facts(world=world, names=names, began=0.0)
    facts.row = {"rank": rank, "kinds": ("DDP",), "replicas": tuple(range(world)), "state": "finished"}
    for step in range(1, 101):
        facts.passes[step] = OnePass(0.5, True, True, "train.py, line 3", norms)
        facts.steps[step] = OneStep((0.1,), norms * 2 if odd and step == 17 else norms, [step])
    return facts


def test_a_thousand_ranks_are_held_against_each_other_in_seconds():
    """1,024 ranks, 300 parameters, 100 steps: the one that differs is named, and the panel stays small."""
    import numpy as np

    names, norms = [f"net.{at}.weight" for at in range(300)], np.linspace(0.1, 1, 300, dtype=np.float32)
    found = [synthetic(rank, 1024, names, norms, odd=rank == 777) for rank in range(1024)]
    began = time.process_time()
    report = compare_ranks(found, "runs/large")
    text, html = str(report), report._repr_html_()
    assert time.process_time() - began < 10
    (difference,) = report.differences
    assert (difference.what, difference.step, difference.ranks) == ("gradients", 17, (777,))
    assert "ranks 0 to 1023" in text.replace("1 023", "1023")
    assert len(html) < 200_000


def test_each_line_is_json_that_anybody_can_read(folder):
    """One line a pass and a step, with what it is first."""
    lines = (folder / "healthy" / "rank00000.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["k"] for line in lines]
    assert kinds[0] == "rank"
    assert kinds[-1] == "end"
    assert kinds.count("pass") == kinds.count("step") == 5
