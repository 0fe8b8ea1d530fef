"""1,024 ranks with 300 parameters and 100 steps each: files of 410 MB are read, compared and drawn in one process.

And what ranks post meanwhile, and what it costs a rank to write: beside a trace that does not.
"""

from __future__ import annotations

import base64
import itertools
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.comparisons.rank_files import Posting, of_posts
from tests.benchmarks.workloads import WORKLOADS
from tests.support.kernel import ROOT

pytestmark = pytest.mark.benchmark

RANKS, PARAMETERS, STEPS, ODD = 1024, 300, 100, 777
SECONDS, BYTES = 10.0, 10**9
# The peak is read from /proc: getrusage counts the process that it was forked from as well.
MEASURED = r"""
import json, pathlib, re, sys, time
import tensormagic as tm
began = time.process_time()
files = sorted(pathlib.Path(sys.argv[1]).iterdir())
given = sys.argv[1] if len(sys.argv) < 3 else [tm.ranks(files[at : at + 128]) for at in range(0, len(files), 128)]
report = tm.ranks(given)
read = time.process_time() - began
html, text = report._repr_html_(), str(report)
told = {"read": read, "seconds": time.process_time() - began, "html": len(html), "text": len(text),
        "peak": 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]),
        "found": [(one.code, one.message) for one in report.findings], "ranks": len(report.ranks)}
print(json.dumps(told))
"""


def packed(numbers):
    return base64.b64encode(numbers.tobytes()).decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of such a run."""
    folder = tmp_path_factory.mktemp("ranks")
    write(folder)
    return folder


def write(folder):
    """Write what so many ranks would have written; one used other gradients once."""
    draws = np.random.default_rng(0)
    used = draws.lognormal(0, 1, (STEPS, PARAMETERS)).astype(np.float32)
    names = [f"net.layers.{at // 10}.part{at % 10}.weight" for at in range(PARAMETERS)]
    hashes = packed(draws.integers(0, 2**63, PARAMETERS, np.uint64))
    numbers, which = np.arange(1, 2 * STEPS + 1, dtype=np.int32), np.zeros(2 * STEPS, np.int32)
    kind = ["0", list(range(RANKS)), "gloo:all_reduce", "[[4096]]", "train.py, line 30"]
    for rank in range(RANKS):
        own = (used * draws.lognormal(0, 0.05, used.shape)).astype(np.float32)
        moments = 0.05 * np.arange(2 * STEPS) + draws.uniform(0, 0.01, 2 * STEPS)
        lines = [
            {"k": "rank", "v": 1, "rank": rank, "world": RANKS, "host": f"node{rank // 8}", "pid": 1, "at": 0.0},
            {"k": "names", "names": names},
            {"k": "place", "kinds": ["DDP"], "replicas": list(range(RANKS)), "shares": list(range(RANKS))},
        ]
        for step in range(1, STEPS + 1):
            norms = used[step - 1] * (2 if rank == ODD and step == 17 else 1)
            given = {"given": f"{rank:08x}{step:08x}", "sizes": [32], "state": f"{rank + step:x}", "drew": True}
            lines += [
                {"k": "pass", "n": step, "loss": 1.0 / step, "finite": True, "reduced": True, "line": "a.py, line 30",
                 "at": 0.1 * step, "norms": packed(own[step - 1]), "held": None, "forward": given},
                {"k": "step", "n": step, "lr": [0.1], "at": 0.1 * step, "used": packed(norms)},
            ]  # fmt: skip
            if step & (step - 1) == 0:
                lines.append({"k": "hash", "step": step, "of": hashes})
        lines += [
            {
                "k": "collectives",
                "kinds": [kind],
                "n": packed(numbers),
                "which": packed(which),
                "moments": packed(moments),
            },
            {"k": "end", "state": "finished", "error": "", "peak": 2**30, "at": 11.0},
        ]
        (folder / f"rank{rank:05d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("how", [[], ["parts"]], ids=["at once", "in eight parts"])
def test_a_thousand_ranks_are_read_compared_and_drawn(folder, how):
    """In seconds of CPU, and in a gigabyte; the odd one is named."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), *how], capture_output=True, text=True, check=True, cwd=ROOT
    )
    told = json.loads(done.stdout)
    print(f"\n{size / 1e6:.0f} MB, {told['read']:.1f} s to read and compare, {told['seconds']:.1f} s with drawing")
    print(f"{told['peak'] / 1e6:.0f} MB of memory, a page of {told['html'] / 1e3:.0f} KB")
    assert told["ranks"] == RANKS
    assert [code for code, _ in told["found"]] == ["TM902"]
    assert f"rank {ODD}" in told["found"][0][1]
    assert told["seconds"] < SECONDS
    assert told["peak"] < BYTES
    assert told["html"] < 200_000


def test_a_thousand_ranks_post_64_bytes_a_step(folder):
    """What they post is compared and drawn in seconds; no head has 20 KB, nor has a message of 255 posts."""
    posts = []
    for path in sorted(folder.iterdir()):
        posting = Posting(path)
        posted = posting.new(peak=2**30)
        posts.append((posting.head, posted))
    assert {len(posted) for _, posted in posts} == {64 * STEPS}
    assert max(len(head) for head, _ in posts) < 20_000
    began = time.process_time()
    report = tm.ranks([of_posts(*each) for each in posts])
    html = report._repr_html_()
    seconds = time.process_time() - began
    print(
        f"\n{64 * RANKS * STEPS / 1e6:.1f} MB of posts, a head of {len(posts[0][0])} bytes, {seconds:.1f} s", len(html)
    )
    assert len(report.ranks) == RANKS
    assert [one.code for one in report.findings] == ["TM902"]
    assert seconds < SECONDS / 2


ROUNDS, WRITTEN_STEPS, MORE = 9, 40, 1.1


def unreduced(_state, bucket):
    """Leave gradients as they are: there is nobody to add them to."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.usefixtures("one_thread")
def test_what_a_rank_writes_costs_little_more_than_its_trace(tmp_path):
    """The encoder of width 128, a rank of two of which the other is not there: at most 1.1 × the trace alone."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    torch.distributed.init_process_group("fake", rank=0, world_size=2)
    try:
        net = DistributedDataParallel(WORKLOADS["b"]()[0])
        net.register_comm_hook(None, unreduced)
        optimizer, x = torch.optim.SGD(net.parameters(), 1e-3), torch.randn(4, 32, 128)
        numbers = itertools.count()

        def seconds(**options):
            with tm.trace(namespace={}, **options):
                began = time.process_time()
                for _ in range(WRITTEN_STEPS):
                    optimizer.zero_grad()
                    (net(x) - x).square().mean().backward()
                    optimizer.step()
                return time.process_time() - began

        def both():
            plain = seconds()
            return seconds(ranks=tmp_path / str(next(numbers))) / plain

        both()
        ratio = statistics.median(both() for _ in range(ROUNDS))
        net = None
    finally:
        torch.distributed.destroy_process_group()
    print(f"\n    ranks= / trace: {ratio:.3f}")
    assert ratio <= MORE
