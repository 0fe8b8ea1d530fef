"""TM503 and TM504 of a run: exact sentences, severities, and what is left alone, by hand-made reports."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Cell, Leak, Location, MemoryRunReport

MIB = 2**20
MADE = Location("<ipython-input-4>", 6, "loss = (net(x) - y).square().mean()", 4)
STORED = Location("<ipython-input-4>", 7, "losses.append(loss)", 4)


def leak(each: int = 12 * MIB, iterations: int = 40, **facts) -> Leak:
    """Return what ``losses`` keeps of a training loop, less ``facts``."""
    known = {"holder": "losses", "holder_location": STORED, "graph": True, "training": True, "scalars": True}
    return Leak(MADE, "cpu", each, iterations, each * iterations, **{**known, **facts})


def found(*leaks: Leak):
    """Return what is said of a run with these leaks."""
    return diagnose(MemoryRunReport(cell=Cell("<ipython-input-4>", 4, ()), leaks=leaks))


def test_stored_graphs_of_a_training_loop():
    """The sentence has the bytes, the iterations and the name; both lines are given."""
    (told,) = found(leak())
    assert (told.code, told.severity, told.subject) == ("TM503", "warning", "losses")
    assert told.message == (
        "12 MiB more after each of 40 iterations, 480 MiB in total: losses stores tensors with their graphs, which "
        "keep "
        "the activations of each."
    )
    assert told.location == STORED
    assert [line.location for line in told.related] == [MADE]
    assert "`.item()`" in told.remedy
    assert told.evidence == {"bytes an iteration": 12 * MIB, "iterations": 40, "bytes": 480 * MIB}


@pytest.mark.parametrize(
    ("each", "iterations", "severity"),
    [(4 * MIB, 4, "warning"), (MIB, 15, "note"), (8, 10, "note"), (4 * MIB, 3, None), (8, 9, None)],
)
def test_how_severe_a_stored_graph_is(each, iterations, severity):
    """Sixteen megabytes make it a warning; below, ten graphs a note; below that, nothing."""
    assert [one.severity for one in found(leak(each, iterations))] == ([severity] if severity else [])


def test_a_sum_and_what_is_no_number():
    """A sum is one tensor; what is no number is detached."""
    (told,) = found(leak(form="sum", holder="total", scalars=False))
    assert "total is added up from results with their graphs" in told.message
    assert "`.detach()`" in told.remedy


def test_a_graph_that_is_carried_over():
    """One tensor whose graph goes back over all iterations is detached."""
    (told,) = found(leak(form="carried", holder="state"))
    assert told.message.endswith(
        "480 MiB in total: the graph of state goes back over all of them and keeps the activations of each."
    )
    assert told.remedy.endswith("`state = state.detach()`")


def test_a_line_that_allocates_and_stores_is_told_once():
    """Nothing is related to itself."""
    (told,) = found(leak(holder_location=MADE))
    assert told.related == ()


@pytest.mark.parametrize(
    ("each", "iterations", "training", "severity"),
    [
        (8 * MIB, 8, True, "warning"),
        (8 * MIB, 7, True, "note"),
        (2 * MIB, 7, True, None),
        (8 * MIB, 800, False, "note"),
        (8 * MIB, 7, False, None),
    ],
)
def test_how_severe_growth_is(each, iterations, training, severity):
    """A warning from 64 MiB on in a training loop, a note from 16 MiB on; elsewhere a note from 64 MiB on."""
    told = found(leak(each, iterations, graph=False, training=training))
    assert [(one.code, one.severity) for one in told] == ([("TM504", severity)] if severity else [])


def test_growth_says_what_holds_it():
    """A container, a tensor that is joined to itself, or nothing that is known."""
    (told,) = found(leak(graph=False, holder="features"))
    assert told.message == (
        "12 MiB more after each of 40 iterations, 480 MiB in total: features keeps the results of each."
    )
    assert "give features an end" in told.remedy
    (told,) = found(leak(graph=False, form="joined", holder="memory", holder_location=MADE))
    assert told.message.endswith("memory is replaced each time by all that it held before and something new.")
    assert told.remedy.startswith("Allocate memory once")
    (told,) = found(leak(graph=False, holder="", holder_location=None))
    assert told.message.endswith("what this line makes stays alive.")
    assert told.location == MADE


def test_what_grew_up_to_the_peak_only_is_a_note():
    """What a function collects until it returns."""
    (told,) = found(leak(graph=False, holder="", holder_location=None, ended=True))
    assert (told.code, told.severity) == ("TM504", "note")
    assert told.message == (
        "12 MiB more after each of 40 iterations, 480 MiB at the peak: what this line makes stayed alive until then, "
        "and was freed all at once."
    )
    assert "when it returns" in told.remedy
    assert found(leak(MIB, 63, graph=False, ended=True)) == ()


def test_a_device_that_is_not_the_cpu_has_another_way():
    """To the CPU."""
    (told,) = found(leak(graph=False))
    assert ".cpu()" not in told.remedy
    (told,) = diagnose(MemoryRunReport(cell=Cell("c", 4, ()), leaks=(Leak(MADE, "cuda:0", MIB, 99, 99 * MIB),)))
    assert ".cpu()" in told.remedy
