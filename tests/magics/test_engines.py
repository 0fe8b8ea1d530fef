"""``%%tracegrad --ranks`` on two engines of ipyparallel: one panel in the client, live, and what failed there."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch
from IPython.core.error import UsageError

from tensormagic.comparisons.rank_files import of_posts
from tensormagic.magics import engines
from tensormagic.magics.frames import bundle
from tensormagic.reports import Finding, RankReport
from tests.support.kernel import ROOT
from tests.views.samples_ranks import EMPTY

ipyparallel = pytest.importorskip("ipyparallel")
pytestmark = [
    pytest.mark.notebook,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]

BEGIN = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://{store}", rank=rank, world_size=2)
"""
TRAIN = """
torch.manual_seed(0)
net = DistributedDataParallel(nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    opt.zero_grad()
    x = torch.full((6, 4), 1.0 + rank + step)
    {call}(x).pow(2).mean().backward()
    opt.step()
print("trained", rank)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two engines that speak to each other."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    cluster = ipyparallel.Cluster(n=2, profile_dir=str(tmp_path_factory.mktemp("profile")), log_level=40)
    client = cluster.start_and_connect_sync()
    for rank, engine in enumerate(client):
        engine["rank"] = rank
    client[:].execute(BEGIN.format(store=tmp_path_factory.mktemp("store") / "store"), block=True)
    yield client
    cluster.stop_cluster_sync()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


def test_a_healthy_run_on_engines(shell, cell, client):
    """The panel is shown once, here; what the cell printed there is printed here."""
    shell.user_ns["rc"] = client
    ran = cell(f"%%tracegrad --ranks --into found --text\n{TRAIN.format(call='net')}")
    assert ran.error is None
    report = shell.user_ns["found"]
    assert isinstance(report, RankReport)
    assert [one.passes for one in report.ranks] == [4, 4]
    assert report.findings == ()
    assert "[engine 1] trained 1" in ran.out
    assert "2 ranks, 4 steps" in ran.out
    assert len(ran.shown) == 0


def test_a_fault_on_engines_is_found(shell, cell, client):
    """As from files: here the model is called past its wrapper; the cell is named, not a file."""
    shell.user_ns["rc"] = client
    ran = cell(f"%%tracegrad --ranks --into found\n{TRAIN.format(call='net.module')}")
    (finding,) = shell.user_ns["found"].findings
    assert finding.code == "TM902"
    assert "tm-ranks" in ran.shown[-1]["text/html"]
    assert "line 9" in shell.user_ns["found"].ranks[0].line


def test_px_shows_the_final_panel_of_each_engine(client):
    """What ``%%px`` sends: updates of a display are not relayed, so each is shown once, when the cell has ended."""
    client[:].execute("%load_ext tensormagic", block=True)
    running = client[:].execute(f"%%tracegrad\n{TRAIN.format(call='net')}", silent=False)
    running.get()
    running.wait_for_output(60)
    for rank, outputs in enumerate(running.outputs):
        (panel,) = [one["data"] for one in outputs]
        assert f"rank {rank} of 2" in panel["text/plain"]
        assert "finished" in panel["text/plain"]
        assert "4 backward passes" in panel["text/plain"]
        assert "tm-" in panel["text/html"]


class Far:
    """Engines that do not reach the folder of this process, as on another machine."""

    def __init__(self, view):
        self.view, self.pieces = view, []

    def apply_sync(self, function, number):
        found = self.view.apply_sync(function, number)
        self.pieces += [part for part in found if part is not None]
        return found

    def apply_async(self, function, options, cell, _folder, *, live):
        self.running = self.view.apply_async(function, options, cell, "/not/there", live=live)
        return self.running


def test_engines_that_do_not_reach_the_folder_post_64_bytes_a_step(shell, cell, client, monkeypatch):
    """The panel is drawn while they run from what they post, and at the end from their files, which come in pieces."""
    far, drawn = Far(client[:]), []
    monkeypatch.setattr(engines, "_view", lambda _: far)
    monkeypatch.setattr(engines, "relays_updates", lambda _: True)
    monkeypatch.setattr(engines, "bundle", lambda report: drawn.append(report) or bundle(report))
    slowly = TRAIN.format(call="net").replace("opt.step()", "opt.step(); time.sleep(0.7)")
    own = "import time, ipyparallel.datapub; ipyparallel.datapub.publish_data({'loss': 0.5})"
    ran = cell(f"%%tracegrad --ranks --into found\n{own}\n{slowly}\ntime.sleep(2)")
    assert ran.error is None
    found = shell.user_ns["found"]
    assert [one.passes for one in found.ranks] == [4, 4]
    assert min(one.passes for one in drawn[0].ranks) < 4
    assert {one.state for one in drawn[0].ranks} == {"running"}
    *_, live, last = drawn
    assert [(one.passes, one.steps) for one in live.ranks] == [(4, 4)] * 2
    assert (live.names, live.findings, len(live.pass_norms)) == (("all parameters",), (), 2)
    assert all(one.peak for one in live.ranks)
    assert len(live.arrivals.numbers) == 4
    assert [one.passes for one in last.ranks] == [4, 4]
    for published in far.running.data:
        assert len(published.pop("tensormagic posts ")) < 2000
        published.pop("loss")
        posts = b"".join(published.values())
        assert len(posts) in {64 * 4, 64 * 5, 64 * 6}  # again where the hashes of step 1, 2 or 4 came a second later
    assert far.pieces
    assert max(len(part) for _, part in far.pieces) < 20_000
    assert found.reports[0].state == "finished"
    assert "full report of rank 0: .reports[0]" in " ".join(str(found).split())


class Once:
    """Is over when it was asked twice."""

    def __init__(self):
        self.answers = iter((False, True))

    def wait(self, _seconds):
        return next(self.answers)


def test_posts_go_on_where_they_were(tmp_path, monkeypatch):
    """The thread that posts begins anew after each fork, as of a data loader's workers: nothing is posted twice."""
    published = {}
    monkeypatch.setattr("ipyparallel.datapub.publish_data", published.update)
    path, posted = tmp_path / "rank00000.jsonl", engines._Posted(tmp_path)
    posted.run(Once())
    assert published == {}
    first = {"k": "rank", "v": 1, "rank": 0, "world": 2, "host": "node", "pid": os.getpid(), "at": 0.0}
    path.write_text(json.dumps(first, separators=(",", ":")) + "\n")
    for step in range(1, 4):
        with path.open("a") as file:
            file.write(json.dumps({"k": "step", "n": step, "lr": [0.1], "at": float(step), "used": None}) + "\n")
        posted.run(Once())
    head, *posts = (published[key] for key in sorted(published))
    assert [len(each) for each in posts] == [64] * 3
    assert list(of_posts(head, b"".join(posts)).steps) == [1, 2, 3]


@pytest.mark.parametrize(("most", "names"), [(2**20, 2), (0, 1)])
def test_files_that_are_soon_read_are_drawn_while_engines_run(shell, cell, client, monkeypatch, most, names):
    """Each parameter is seen then; where the files are larger, what the engines posted."""
    shell.user_ns["rc"], drawn = client, []
    monkeypatch.setattr(engines, "_MOST_READ", most)
    monkeypatch.setattr(engines, "relays_updates", lambda _: True)
    monkeypatch.setattr(engines, "bundle", lambda report: drawn.append(report) or bundle(report))
    ran = cell(f"%%tracegrad --ranks\nimport time\n{TRAIN.format(call='net')}\ntime.sleep(3)")
    assert ran.error is None
    *_, live, last = drawn
    assert ([one.passes for one in live.ranks], len(live.names)) == ([4, 4], names)
    assert len(last.names) == 2


def test_an_error_on_one_engine(shell, cell, client):
    """The panel is there, and the error is told with its engine."""
    shell.user_ns["rc"] = client
    ran = cell("%%tracegrad --ranks --text\nif rank == 1:\n    raise ValueError('only here')")
    assert isinstance(ran.error, UsageError)
    assert "the cell failed: ValueError: only here (engine 1)" in str(ran.error)
    assert "failed: ValueError:" in ran.out


def test_without_a_client_it_is_said_how_to_get_one(shell, cell):
    """And a folder works in any process."""
    ran = cell("%%tracegrad --ranks\n1")
    assert isinstance(ran.error, UsageError)
    assert "ipyparallel.Cluster(n=2)" in str(ran.error)


def test_a_folder_writes_what_this_rank_does(cell, tmp_path, monkeypatch):
    """In this process; also in quotes, relative to where the shell is."""
    monkeypatch.chdir(tmp_path)
    ran = cell(
        "%%tracegrad --ranks 'my runs' --live off\nimport torch\ntorch.ones(2, requires_grad=True).sum().backward()"
    )
    assert ran.error is None
    assert (tmp_path / "my runs" / "rank00000.jsonl").exists()


def test_a_run_removes_what_a_client_never_asked_for(shell, tmp_path, monkeypatch):
    """A client that was interrupted leaves the files of its run on the engines; the next run there removes them."""
    monkeypatch.setattr(engines, "_left", [])
    assert engines.traced_here("", "pass", "/not/there", live=False) == (False, "", "")
    (first,) = engines._left
    assert engines.piece(0) is not None
    engines.traced_here("", "pass", "/not/there", live=False)
    assert not first.exists()
    (second,) = engines._left
    while engines.piece(0) is not None:
        for file in second.glob("rank*"):
            file.unlink()
    assert not second.exists()
    assert engines._left == []


def test_no_rank_is_missing_while_engines_run(monkeypatch, tmp_path):
    """One ends before another, which has yet to say that it has: only the report of the end says who is missing."""
    silent = Finding(code="TM900", severity="warning", message="Rank 1 stopped reporting.", location=None, evidence={})
    other = replace(silent, code="TM902", message="Step 1 used gradients that differ.")
    (tmp_path / "rank0.jsonl").write_text("{}")
    monkeypatch.setattr(engines, "_report", lambda _: replace(EMPTY, findings=(silent, other)))
    assert engines._so_far(None, tmp_path).findings == (other,)
