"""Where two runs part in their random numbers, by hand-made runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.comparisons import compare_draws
from tensormagic.reports import Cell, Location
from tensormagic.reports.rng import Draw, GeneratorState, RngRunReport
from tensormagic.views.panels.rng import side_text, verdict

START = GeneratorState("torch, CPU", "torch", "MT19937", seed="3", seeding="chosen", drawn=0, digest="s")
LINES = (Location("a.py", 1, "x = torch.rand(3)"), Location("a.py", 2, "y = torch.randn(4)"))


def run(*draws, start=START):
    """Return a run of draws, each an operation, its values and the digest after it."""
    made = tuple(Draw(0, "drew", op, at % 2, at % 2, values, digest) for at, (op, values, digest) in enumerate(draws))
    return RngRunReport(
        cell=Cell("a.py", None, ()), before=(start,), after=(start,), locations=LINES, draws=made, count=len(made)
    )


SAME = (("aten.rand", 3, "1"), ("aten.randn", 4, "2"))


def test_equal_runs():
    """All draws are compared with each other."""
    report = compare_draws(run(*SAME), run(*SAME))
    assert (report.difference, report.same, report.complete) == ("none", 2, True)


@pytest.mark.parametrize(
    ("other", "difference", "same"),
    [
        (run(SAME[0], ("aten.rand", 4, "2")), "call", 1),
        (run(SAME[0], ("aten.randn", 5, "7")), "values", 1),
        (run(SAME[0], ("aten.randn", 4, "7")), "state", 1),
        (run(SAME[0]), "end", 1),
        (run(("aten.rand", 3, "9"), start=replace(START, seed="4", digest="t")), "start", 0),
    ],
)
def test_the_first_difference(other, difference, same):
    """What differs, and how many draws are the same before it."""
    report = compare_draws(run(*SAME), other, names=("old", "new"))
    assert (report.difference, report.same, report.names) == (difference, same, ("old", "new"))
    assert report.generator == "torch, CPU"


def test_a_seed_is_no_draw():
    """It is compared, and not counted."""
    seeded, other = run(("", None, "0"), *SAME), run(("", None, "0"), ("aten.randn", 4, "7"))
    seeded, other = (replace(one, draws=(replace(one.draws[0], kind="set"), *one.draws[1:])) for one in (seeded, other))
    assert compare_draws(seeded, other).same == 0
    assert compare_draws(seeded, seeded).same == 2


def seeded(seed, *draws, start=START):
    """Return a run that begins with a seed."""
    made = run(("seed", None, f"after {seed}"), *draws, start=start)
    return replace(made, draws=(replace(made.draws[0], kind="set", seed=seed), *made.draws[1:]))


ELSEWHERE = replace(START, seed="4", digest="t")


def test_where_both_seed_the_start_makes_no_difference():
    """Two that seed differently differ there; after the same seed only what comes later can have set it otherwise."""
    parted = compare_draws(seeded("0", ("aten.rand", 3, "1")), seeded("1", ("aten.rand", 3, "2"), start=ELSEWHERE))
    assert (parted.difference, parted.starts) == ("seed", (None, None))
    assert [draw.seed for draw in parted.sides] == ["0", "1"]
    assert verdict(parted) == "a seeds torch, CPU with 0, b with 1."
    assert side_text(parted, 1) == "seeded with 1 (a.py, line 1: x = torch.rand(3))"
    later = compare_draws(seeded("0", ("aten.rand", 3, "1")), seeded("0", ("aten.rand", 3, "2"), start=ELSEWHERE))
    assert (later.difference, later.starts) == ("state", (None, None))


def test_states_that_were_set_by_what_nobody_saw():
    """NumPy's and Python's seeds are not told where they are set."""
    one, other = seeded("", ("", 3, "1")), seeded("", ("", 3, "2"))
    other = replace(other, draws=(replace(other.draws[0], digest="after another"), *other.draws[1:]))
    assert verdict(compare_draws(one, other)) == "a and b set torch, CPU to different states."


def test_a_run_that_draws_nothing():
    """It cannot stop what it never did."""
    nothing = run()
    assert side_text(compare_draws(run(*SAME), nothing), 1) == "drew nothing"
    assert side_text(compare_draws(run(*SAME), run(SAME[0])), 1) == "stopped drawing"
    assert verdict(compare_draws(run(*SAME), nothing)) == "Only one of the runs draws."
    assert verdict(compare_draws(nothing, seeded("0"))) == "Only one of the runs seeds torch, CPU."
    more = seeded("0", SAME[0])
    more = replace(more, draws=more.draws[::-1])
    said = verdict(compare_draws(run(SAME[0]), more))
    assert said == "1 draw is the same; then only one of the runs seeds torch, CPU."


def test_both_lines_and_both_starts_are_told():
    """The draw of each run with its line; where they began elsewhere, both states."""
    report = compare_draws(run(*SAME), run(("aten.rand", 3, "9"), start=replace(START, seed="4", digest="t")))
    assert [place.text for place in report.places] == ["x = torch.rand(3)", "x = torch.rand(3)"]
    assert [state.seed for state in report.starts] == ["3", "4"]


def test_moved_lines_are_no_difference():
    """The same call from another line draws the same."""
    moved = replace(run(*SAME), locations=(Location("b.py", 9, "z = torch.rand(3)"), LINES[1]))
    assert compare_draws(run(*SAME), moved).difference == "none"


def test_long_runs_say_that_only_their_beginning_is_compared():
    """Where draws were left out, the report is not complete."""
    assert not compare_draws(replace(run(*SAME), count=9), run(*SAME)).complete
