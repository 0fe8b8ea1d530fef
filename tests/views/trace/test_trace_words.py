"""What is said of a traced run beside its graph: where passes ran, operations, forward values, steps traced."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import replace

import pytest

from tensormagic.reports import UNTOUCHED, ForwardValues, NonfiniteSource, Pass, PassContext, Schedule
from tensormagic.views import to_html, to_text
from tensormagic.views.graph.marks import forward_mark, with_crash
from tensormagic.views.page.document import trace_document
from tensormagic.views.panels import trace
from tensormagic.views.panels.trace_words import (
    all_clear,
    asked_text,
    pass_context_text,
    run_text,
    sampling_lines,
    sampling_text,
    verdict,
)
from tests.reports.samples import trace_report
from tests.views import samples_ops, samples_trace as samples, trace_forms
from tests.views.markup_reader import Page, svg_of
from tests.views.samples_failure import SAMPLES as FAILURES
from tests.views.snapshots import assert_snapshot

OPS = {node.index: node.op for node in trace_report().graphs[0].nodes}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (None, ""),
        (PassContext(inside=1, graph=1, node=1), f"inside {OPS[1]}"),
        (PassContext(inside=1, graph=9, node=1), "inside another"),
        (PassContext(inside=1, graph=1, node=99), "inside another"),
        (PassContext(thread="worker"), "on thread worker"),
        (PassContext(levels=("vmap", "grad")), "in vmap > grad"),
        (PassContext(2, 1, 0, "worker", ("grad",)), f"inside {OPS[0]}, on thread worker, in grad"),
    ],
)
def test_where_a_backward_ran(told, words):
    """The node that made the call is named where it is known."""
    one = Pass(1, 1, 1, "finished", 0.1, 3, pass_context=told)
    assert pass_context_text(replace(trace_report(), passes=(one,)), one) == words


def operations(run):
    """The section of the operations of a run."""
    return trace.panel(run).body[-1]


def test_operations_are_as_stored():
    """The whole text of a run with operations, and the section of its page, stand in ``tests/snapshots``."""
    run = samples_ops.operations()
    assert_snapshot("trace_operations.txt", trace_forms.text(run))
    section = to_html.html(operations(run))
    style = f"<style>{trace.viewer_style()}</style>"
    assert_snapshot("trace_operations.html", f'{style}<section class="tm tm-trace">{section}</section>')


def test_a_long_run_on_an_accelerator_says_what_it_leaves_out_and_what_its_time_is():
    """Of 59 operations the longest are shown; the time on a device that works on by itself is that of launching."""
    run = samples_ops.many_operations()
    assert "and 39 more" in to_html.html(operations(run))
    assert "  and 49 more" in to_text.text(operations(run), 100)
    assert "the time to launch an operation, not to run it" in trace_forms.text(run, width=200)
    assert "TIME" in trace_forms.text(run, width=40), "the column that matters most stays, however narrow it is"


def test_a_page_has_the_table_of_forward_values():
    """HTML without scripts holds the same numbers as the text, which is stored."""
    html = trace.render(samples.forward())
    assert '<th scope="col" class="tm-num">zeros</th>' in html
    assert "the forward of pass 7 first produced 3 Inf of 320 in log" in html
    assert "zeros</th>" not in trace.render(samples.report())
    measures = array("f", [2.0, math.nan, 0.125, 0.0001, 0.0, 0.0])
    assert trace.forward_numbers(ForwardValues(array("f", [1.0]), measures), 0) == ("1", "2", "–", "0.125", "0.01 %")


@pytest.mark.parametrize("source", ["data", "leaf"])
def test_what_was_not_finite_in_the_forward_is_marked_at_the_op_that_used_it(source):
    """Not at the loss, in whose backward the first NaN is made. A leaf is no box of its own: it is marked at its op."""
    report = samples.broken()
    (graph,) = report.graphs
    used = next(node.index for node in graph.nodes if node.op == "convolution")
    node = next(edge.target for edge in graph.edges if edge.source == used) if source == "leaf" else used
    born = NonfiniteSource(37, node, source, 1, 0, 320)
    run = replace(report, graphs=(replace(graph, nonfinite_source=born),))
    mark = forward_mark(run.graphs[0])
    assert (mark.node, mark.pass_number, mark.nan, mark.certain) == (used, 37, 1, True)
    assert "NaN born in conv, pass 37" in trace_forms.text(run)
    assert trace_document(run)["graphs"][0]["forward_mark"]["node"] == used
    later = replace(graph, nonfinite_source=replace(born, pass_number=38))
    assert forward_mark(later) is None, "a gradient of an earlier pass is older"
    assert forward_mark(graph) is None


def with_sampling(**changes):
    whole = samples.paced()
    return replace(whole, sampling=replace(whole.sampling, **changes))


PAUSED = replace(with_sampling(paused=True, next_step=830), state="running")
OVER = "the budget was not kept"
NO_GRAD = array("f", [UNTOUCHED] * 2)
BAD_GRAD = array("f", [math.nan, 1.0, UNTOUCHED])
LAST = "the last step, 800, was not traced"


@pytest.mark.parametrize(
    ("say", "given", "words"),
    [
        # What was asked for, as a user would say it: the last step that is traced, not the first that is not.
        (asked_text, Schedule(budget=0.05), "budget 5 %"),
        (asked_text, Schedule(every=10), "every 10"),
        (asked_text, Schedule(start=10, stop=21), "steps 10 to 20"),
        (asked_text, Schedule(start=10, every=3), "steps from 10, every 3"),
        (asked_text, Schedule(stop=4), "steps 1 to 3"),
        (sampling_text, samples.report(), ""),
        # No more is claimed than was looked at.
        (all_clear, with_sampling(passes=0), "none of 800 backward passes was traced"),
        (all_clear, replace(samples.report(), state="running"), "no problems found in 40 backward passes so far"),
        (all_clear, replace(samples.empty(), state="running"), "no backward was seen yet"),
        (
            all_clear,
            replace(samples.empty(), findings=(replace(samples.broken().findings[0], code="TM306"),)),
            "no backward ran: what it was called on has no graph",
        ),
        # The tracer's own time is a share of the rest; nothing measured, nothing claimed.
        (run_text, replace(samples.report(), own_seconds=0.0), "40 steps, 40 backward passes in 12.4 s"),
        (verdict, samples.broken(), None),
        (verdict, replace(samples.report(), state="running"), None),
    ],
)
def test_words_about_a_run(say, given, words):
    assert say(given) == words


@pytest.mark.parametrize(
    ("report", "last"),
    [
        (with_sampling(ranges=((1, 1), (7, 12)), steps=7, after_finding=0, last_traced=True),
         "traced: steps 1, 7–12"),
        (with_sampling(last_norms=NO_GRAD), f"{LAST}, and left no .grad"),
        (with_sampling(last_norms=BAD_GRAD), f"{LAST}; of the .grad left at the end 1 of 2 hold NaN or Inf"),
        (PAUSED, "paused: step 800, next traced about 830"),
    ],
    ids=["few stretches", "no .grad", "bad .grad", "paused"],
)  # fmt: skip
def test_which_steps_were_traced(report, last):
    """Stretches in full where they are few, what the last step left, where a run that is paused is traced again.

    That a budget was not kept is said, with the reason where it was the first step.
    """
    assert [*sampling_lines(report)][-1] == last
    lines = list(sampling_lines(with_sampling(cost=0.081, first_cost=0.07)))
    assert f"{OVER}: the first step, in which every graph is new, already cost 7 %" in lines
    assert OVER in list(sampling_lines(with_sampling(cost=0.081, first_cost=0.001)))


def test_the_viewer_is_told():
    """The words, how many passes were traced, and while the tracer is paused the next step."""
    document = trace_document(samples.paced())
    assert document["cost"] == "traced 41 of 800 steps (budget 5 %: cost 4.6 %)"
    assert (document["passes_traced"], document["passes_seen"], document["rest"]) == (41, 800, -1)
    assert trace_document(PAUSED)["rest"] == 830
    assert trace_document(samples.report())["cost"] == "tracing +4.2 %"


def test_the_viewer_is_given_its_verdict():
    """What is said first of a run that has ended, ready; nothing while it runs, or where a finding says it."""
    calm = "no problems found in 40 backward passes"
    checked = "23 nodes checked, parameter norms from 7.2e−5 to 0.11"
    assert verdict(samples.report()) == ("healthy", calm, "", checked)
    assert "23 nodes checked, 2 cuts, " in verdict(samples.cuts())[3]
    dead = replace(samples.report().parameters[0], norms=(0.0,))
    more = verdict(replace(samples.report(), parameters=(dead, *samples.report().parameters[1:])))[3]
    assert more.endswith(f", 1 of {len(samples.report().parameters)} parameters got a gradient of zero")
    note = replace(samples.broken().findings[0], severity="note")
    assert verdict(replace(samples.broken(), findings=(note,)))[1].startswith("1 note, no errors or warnings in ")
    failed = verdict(samples.failed())
    assert failed[:3] == ("failed", "the cell failed", "ValueError: expected 10 classes, got 11")
    assert verdict(replace(samples.failed(), passes_seen=0))[3] == "before any backward"
    assert verdict(samples.empty())[0] == "nothing"


RUN = replace(samples.one_pass(), state="failed")


def pictures_of(run):
    """The pictures of a run's page."""
    return [svg_of(source) for source in re.findall(r'src="(data:image/svg[^"]*)"', trace.render(run))]


def test_a_run_that_failed_begins_with_the_refused_call():
    """Above the run's own panel, in a page and in text; what was found about it is not told twice."""
    run = replace(RUN, failure=FAILURES["linear"], findings=FAILURES["linear"].findings)
    page, text = Page(trace.render(run)).text, trace_forms.text(run)
    assert page.index("the shapes do not fit") < page.index("As text")
    assert "".join(page.split()).count("takes784(in_features)") == 1
    assert text.index("TM804") < text.index("  18 ✖ x = self.fc1(x.flatten(1))")
    assert text.count("takes 784") == 1


def test_where_a_run_failed_is_marked_in_one_picture():
    """In the run's own graph; what a forward had recorded has solid lines and no scale of norms."""
    (backward,) = pictures_of(replace(RUN, failure=FAILURES["backward"]))
    assert backward.count("backward failed here: RuntimeError, train.py, line 5</text>") == 1
    (forward,) = pictures_of(replace(RUN, failure=FAILURES["recorded"], graphs=(), passes=()))
    assert "Graph so far" in forward
    assert forward.count("torch refused this: RuntimeError, ") == 1
    assert "gradient norm" not in forward


def test_after_passes_the_graph_up_to_the_refused_call_comes_last_for_the_viewer():
    """The graph of the passes stays the first; the block above keeps its picture."""
    run = replace(RUN, failure=FAILURES["recorded"])
    drawn, crash = with_crash(run)
    document = trace_document(drawn, crash=crash)
    assert [graph["crash"] and graph["crash"][0] for graph in document["graphs"]] == [
        *(None for _ in run.graphs), FAILURES["recorded"].graph.roots[0]]  # fmt: skip
    assert [graph["passes_seen"] > 0 for graph in document["graphs"]] == [True] * len(run.graphs) + [False]
    assert len({graph["number"] for graph in document["graphs"]}) == len(run.graphs) + 1
    assert "torch refused this" in pictures_of(run)[0]
    assert "torch refused this" not in trace_forms.svg(run)
