"""A traced run as text: findings first, the way of the gradient, every parameter, and what is not shown."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace

import pytest

from tensormagic.reports import UNTOUCHED, Pass
from tensormagic.views.graph.drawing import draw
from tensormagic.views.panels.trace_words import all_clear, norm_text, run_text
from tensormagic.views.pictures.gradient_graph import main_path
from tensormagic.views.pictures.norms import Norms
from tensormagic.views.text_canvas import bar, bars, largest
from tests.views import samples_failure, trace_forms
from tests.views import samples_trace as samples
from tests.views.snapshots import assert_snapshot
from tests.views.trace_forms import CASES


@pytest.mark.parametrize("name", CASES)
def test_text_is_as_stored(name):
    """Every kind of run has its text in ``tests/snapshots``; a change is seen there."""
    assert_snapshot(f"trace_{name}.txt", trace_forms.text(CASES[name]()))


def test_findings_come_before_the_picture():
    """Code, message, line and remedy stand above the gradient flow."""
    text = trace_forms.text(samples.broken())
    order = ["TM402", "3 zeros", "remedy: use logp", "cell 5, line 12: logp = p.log()", "gradient flow", "parameter"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_flow_runs_from_the_loss_to_the_input():
    """The longest chain of boxes, the loss first; what lies beside it is counted."""
    drawing = draw(samples.digits_cnn())
    assert [box.label for box in main_path(drawing)] == [
        "+", "nll_loss", "log", "softmax", "linear", "view ×2", "relu", "conv", "relu", "conv",
    ]  # fmt: skip
    assert "beside this path: 2 boxes (linear, mse_loss)" in trace_forms.text(samples.report())


def test_birth_is_named():
    """Which op made the NaN, and in which pass."""
    assert "  NaN born in log, pass 37\n" in trace_forms.text(samples.broken())


def test_no_backward_says_what_would_make_one():
    """An empty trace ends with what to do."""
    ending = "no backward was seen; call .backward() on a scalar loss inside the traced code\n"
    assert trace_forms.text(samples.empty()).endswith(ending)


def test_states_are_told_apart():
    """Running, finished, failed and interrupted runs say what they are, and claim no more than they know."""
    running = replace(samples.report(), state="running")
    assert "── digits-cnn ── running · " in trace_forms.text(running)
    assert all_clear(running) == "no problems found in 40 backward passes so far"
    assert all_clear(replace(samples.empty(), state="running")) == "no backward was seen yet"
    assert "failed: ValueError: expected 10 classes, got 11" in trace_forms.text(samples.failed())
    assert all_clear(samples.failed()).endswith("2 backward passes; the error comes from your code")
    assert "── digits-cnn ── interrupted · " in trace_forms.text(replace(samples.report(), state="interrupted"))


def test_a_refused_backward_is_the_last_of_the_passes_and_not_after_it():
    """The passes that are counted include the one that torch refused: none of them came before it that did not."""
    failure = samples_failure.backward()
    last = replace(samples.failed().passes[-1], outcome="failed")
    two = replace(samples.failed(), failure=failure, passes=(samples.failed().passes[0], last), passes_seen=2)
    assert all_clear(two).endswith("which torch refused, in the last of 2 backward passes")
    one = replace(two, passes=(last,), passes_seen=1)
    assert all_clear(one).endswith("which torch refused in the first backward")
    forward = replace(failure, phase="forward")
    assert all_clear(replace(two, failure=forward)).endswith("which torch refused; 2 backward passes before it")


def test_gaps_and_other_graphs_are_named():
    """What could not be seen stands with what was found, what is not shown below the graph."""
    whole = samples.failed()
    whole = replace(whole, graphs=(*whole.graphs, replace(samples.chain(3), number=2)))
    text = trace_forms.text(whole)
    assert "\nnot shown: saved tensors: the graph was freed before they were read\n" in text
    assert "\n  1 graph with another structure not shown\n" in text


def test_left_out_parameters_and_passes_are_counted():
    """Of many parameters forty are shown; the numbers of the others, and of thinned passes, are said."""
    whole = replace(samples.report(samples.resnet(10)), passes_seen=4000)
    text = trace_forms.text(whole)
    assert f"not shown: {len(whole.parameters) - 40} parameters more\n" in text
    assert "40 of 4000 passes were kept and are shown\n" in text


def test_first_last_smallest_and_largest_are_those_of_the_series():
    """The numbers of a row are the series' own; NaN is told as the last, and left out of the extremes."""
    (series,) = samples.parameters_of(samples.chain(1))
    norms = array("f", [0.5, 0.25, 2.0, math.nan])
    whole = samples.report(samples.chain(1), count=4, parameters=(replace(series, norms=norms),))
    row = next(line for line in trace_forms.text(whole).splitlines() if line.startswith("x "))
    assert row.split()[-4:] == ["0.5", "NaN", "0.25", "2"]
    assert "min and max are over finite norms" in trace_forms.text(whole)


def test_one_pass_has_one_number():
    """A single backward has no first and last."""
    text = trace_forms.text(samples.one_pass())
    assert "norm\n" in text
    assert "first" not in text


def test_nothing_moves_the_cursor():
    """Names with escape sequences or direction marks come out harmless."""
    text = trace_forms.text(samples.hostile())
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_bars_stand_for_norms():
    """Eight heights over the scale, and letters of their own for what is no height."""
    assert [bar(10.0**exponent) for exponent in (-9, -5, -2, 0.9, 9)] == ["▁", "▁", "▅", "█", "█"]
    assert [bar(norm) for norm in (math.nan, math.inf, UNTOUCHED, 0.0)] == ["!", "!", "·", "0"]


def test_a_long_series_keeps_its_nan():
    """One NaN among a thousand passes marks its stretch; else a bar is the largest of its stretch."""
    norms = array("f", [1e-3] * 1000)
    norms[500] = math.nan
    assert bars(norms, 10, (-5, 1)) == "▃▃▃▃▃!▃▃▃▃"
    assert largest([UNTOUCHED, 2.0, 1.0]) == 2.0
    assert largest([]) == UNTOUCHED


@pytest.mark.parametrize(
    ("norm", "written"),
    [
        (1.0, "1"), (0.64, "0.64"), (24.2, "24"), (640.4, "640"), (9999.4, "9999"), (3.14e-5, "3.1e−5"),
        (1e-6, "1e−6"), (0.00123, "0.0012"), (0.125, "0.13"), (99.5, "100"), (123456.0, "1.2e5"),
        (0.0, "0"), (math.nan, "NaN"), (math.inf, "Inf"), (UNTOUCHED, "none"),
    ],
)  # fmt: skip
def test_norms_are_written_as_numbers(norm, written):
    """Two digits, as a user writes them; powers of ten only where there is no other way."""
    assert norm_text(norm) == written


def test_the_share_of_the_tracer_is_told_only_where_it_is_known():
    """The tracer's own time is a share of the rest; nothing measured, nothing claimed."""
    assert run_text(samples.report()) == "40 steps, 40 backward passes in 12.4 s, tracing +4.2 %"
    assert run_text(replace(samples.report(), own_seconds=0.0)) == "40 steps, 40 backward passes in 12.4 s"


@pytest.mark.parametrize(
    ("values", "locations", "words"),
    [
        ((2.3, 0.5, 0.125), (0, 0, 0), ", loss 2.3 → 0.125"),
        ((2.3, 0.5, math.nan), (0, 0, 0), ", loss 2.3 → NaN"),
        ((2.3,), (0,), ", loss 2.3"),
        ((2.3, 0.5), (0, 1), ""),  # two losses, as of a generator and its critic
        ((2.3, None), (0, 0), ""),  # not a number every time
    ],
)
def test_the_loss_is_told_where_there_is_one(values, locations, words):
    """First and last of what backward was called on, where that is one number, on one line."""
    passes = tuple(
        Pass(number, number, 1, "finished", 0.1, 3, location, value=value)
        for number, (value, location) in enumerate(zip(values, locations, strict=True), start=1)
    )
    report = replace(samples.broken(), passes=passes, own_seconds=0.0)
    assert run_text(report).endswith(words)
    assert ("loss" in run_text(report)) == bool(words)


def test_cuts_that_read_the_same_are_one_line():
    """The same call on the same line, used at twelve places alike: said once, with the number of places."""
    report = samples.cuts()
    (graph,) = report.graphs
    cut = graph.cuts[0]
    repeated = replace(report, graphs=(replace(graph, cuts=(cut,) * 12),))
    lines = [line for line in trace_forms.text(repeated).splitlines() if f"{cut.op}, line" in line]
    assert "12 cuts in the graph" in trace_forms.text(repeated)
    assert len(lines) == 1
    assert " ".join(trace_forms.text(repeated).split()).count("at each of 12 places") == 1


def test_a_move_that_is_not_the_last_says_after_which_pass():
    """Where later steps were not measured, nobody takes the number for one of the last step."""
    report = samples.report(count=3)
    shown = {}
    for updates in ([0.5, UNTOUCHED, UNTOUCHED], [0.5, UNTOUCHED, 0.25]):
        moved = tuple(replace(one, updates=array("d", updates)) for one in report.parameters)
        text = " ".join(" ".join(Norms(replace(report, parameters=moved)).text(120)).split())
        shown[updates[-1]] = re.findall(r"the last measured step of the optimizer(.*?) changed it", text)
    assert shown == {UNTOUCHED: [", after pass 1,"], 0.25: [""]}
