"""TM501 to TM504, TM603, TM605, TM609: exact sentences, severities and what is left alone, by hand-made reports."""

from __future__ import annotations

import pytest

from tensormagic.reports import Growth, StorageKeepingView, UntiedPair
from tests.views.samples_watch import MIB, found, growth, hidden, kept, line, loose, stored

ERROR = "the last error (ValueError), local x of f"


def only(**parts):
    """Return the one finding that these parts give."""
    (finding,) = found(**parts).findings
    return finding


def test_the_history_is_told_once_with_all_it_keeps():
    """The largest first; each with the magic that deletes it."""
    told = only(retained=(kept("Out[7][0]", mib=30), kept("Out[2]", mib=20)))
    assert (told.code, told.severity, told.subject) == ("TM501", "warning", "Out[7]")
    assert told.message.startswith("Out[7] and Out[2] keep 50 MiB alive that none of your variables refers to")
    assert "`%xdel _7` and `%xdel _2`" in told.remedy
    assert told.evidence["bytes"] == 50 * MIB


def test_outputs_that_are_left_alone():
    """Fifteen megabytes are no trouble."""
    assert found(retained=(kept(mib=15), kept("Out[6]", mib=15))).findings == ()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (ERROR, "holds the variable x of f."),
        ("the last error (ValueError), local of f", "holds a local of f."),
        ("the last error (ValueError).args[0]", "holds the last error (ValueError).args[0]."),
    ],
)
def test_the_last_error_says_what_holds_the_memory(place, words):
    """The variable where the frame tells it."""
    told = only(retained=(kept(place, "traceback", location=line(3, "raise ValueError", "f")),))
    assert told.code == "TM502"
    kept_alive = "The last error keeps 20 MiB alive that none of your variables refers to"
    assert told.message == f"{kept_alive}: its traceback {words}"
    assert told.location.line == 3


def test_what_both_keep_takes_both_remedies():
    """An error about something that was displayed."""
    told = only(retained=(kept("Out[4]", "both"),))
    assert told.code == "TM502"
    assert "`1/0`" in told.remedy
    assert "then `%xdel _4`" in told.remedy


def test_a_view_that_alone_keeps_a_storage():
    """TM205, as of a single tensor: from 16 MiB on, of which it reads a sixteenth or less."""
    told = only(views=(StorageKeepingView("rows[1]", MIB, 16 * MIB),))
    assert (told.code, told.severity, told.subject) == ("TM205", "warning", "rows[1]")
    assert told.message.startswith("rows[1] reads 1 MiB and keeps 16 MiB alive: nothing else uses")
    assert "`rows[1] = rows[1].clone()`" in told.remedy
    assert (
        found(views=(StorageKeepingView("a", MIB + 1, 16 * MIB), StorageKeepingView("b", 4, 16 * MIB - 1))).findings
        == ()
    )


def test_a_stored_graph_by_its_bytes():
    """Sixteen megabytes make it a warning; below, ten graphs a note; below that, nothing."""
    told = only(graphs=(stored(),))
    assert (told.code, told.severity) == ("TM503", "warning")
    assert told.message == (
        "losses stores 6 tensors with their graphs (30 nodes), which keep 24 MiB of saved tensors alive until "
        "backward runs."
    )
    assert only(graphs=(stored(nbytes=MIB, graphs=10, items=10),)).severity == "note"
    assert found(graphs=(stored(nbytes=MIB, graphs=9, items=9),)).findings == ()


def test_a_look_at_part_of_the_graphs_says_at_least():
    """What was cut short is no exact number."""
    assert "at least 24 MiB" in only(graphs=(stored(complete=False),)).message
    freed = stored(nbytes=0, graphs=50, items=50, freed=True, complete=False)
    assert "more than 30 nodes" in only(graphs=(freed,)).message


def test_sums_and_tensors_that_are_no_numbers():
    """A sum has terms; what is no number is detached."""
    assert only(graphs=(stored(form="sum", items=1),)).message.startswith("losses was added up from 6 results")
    assert "`.detach()`" in only(graphs=(stored(scalars=False),)).remedy
    assert "`.item()`" in only(graphs=(stored(),)).remedy


def test_growth():
    """By tensors or by bytes; a warning from 64 MiB on."""
    told = only(growing=(growth(mib=16),))
    assert (told.code, told.severity) == ("TM504", "warning")
    assert told.message == ("features grows by 1 tensor, 16 MiB, each time this runs: 16 MiB 4 runs ago, 80 MiB now.")
    assert "`features.clear()`" in told.remedy
    assert only(growing=(growth(mib=15),)).severity == "note"
    joined = Growth("memory", (1,) * 5, (0, 16 * MIB, 32 * MIB, 48 * MIB, 64 * MIB))
    assert only(growing=(joined,)).message.startswith("memory grows by 16 MiB each time")


def test_a_tensor_that_asks_for_a_gradient():
    """A warning once an optimizer has its siblings, with the line as it should be."""
    told = only(unregistered_tensors=(loose(),))
    assert (told.code, told.severity, told.location.line) == ("TM603", "warning", 6)
    assert "`self.scale = nn.Parameter(torch.ones(4))`" in told.remedy
    assert only(unregistered_tensors=(loose(siblings=0),)).severity == "note"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("self.w = torch.randn(3).requires_grad_()", "self.w = nn.Parameter(torch.randn(3))"),
        ("self.w = Variable(torch.ones(2), requires_grad=True)", "self.w = nn.Parameter(Variable(torch.ones(2)))"),
        ("for name in names:", "self.scale = nn.Parameter(\N{HORIZONTAL ELLIPSIS})"),
        ("self.a, self.b = a, b", "self.scale = nn.Parameter(\N{HORIZONTAL ELLIPSIS})"),
    ],
)
def test_the_line_as_it_should_be(text, remedy):
    """What the line assigns goes into a Parameter; where that cannot be read off it, it is left open."""
    assert f"`{remedy}`" in only(unregistered_tensors=(loose(location=line(6, text)),)).remedy


@pytest.mark.parametrize(
    "facts",
    [
        {"optimized": True},
        {"kept_elsewhere": True},
        {"method": "forward"},
        {"grad_fn": "MulBackward0", "method": "step"},
    ],
    ids=str,
)
def test_tensors_that_are_left_alone(facts):
    """Optimized by hand, named elsewhere, or remembered by a method that runs later."""
    assert found(unregistered_tensors=(loose(**facts),)).findings == ()


def test_a_parameter_that_was_computed_with():
    """The Parameter is lost behind what was made of it, optimizer or not."""
    told = only(unregistered_tensors=(loose(grad_fn="MulBackward0", siblings=0),))
    assert told.severity == "warning"
    assert told.message.startswith("net.scale is not a Parameter: MulBackward0 computed it from one when net was built")


def test_buffers_are_one_note_a_module():
    """And say where they lie, if that is elsewhere than the module."""
    where = line(7, "self.mask = torch.tril(torch.ones(4, 4))")
    plain = {"requires_grad": False, "location": where, "siblings": 0}
    told = only(unregistered_tensors=(loose("net.mask", **plain), loose("net.mean", **plain)))
    assert (told.code, told.severity) == ("TM603", "note")
    assert told.message.startswith("net.mask and net.mean are plain tensors: net.to(device) does not move them, and")
    assert '`self.register_buffer("mask", torch.tril(torch.ones(4, 4)))`' in told.remedy
    moved = only(unregistered_tensors=(loose("net.mask", module_device="cuda:0", **plain),))
    assert "it is on cpu, the module on cuda:0" in moved.message


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        ({}, "warning"),
        ({"optimized": 5}, "warning"),
        ({"optimized": 6}, "note"),
        ({"modules": 1, "parameters": 2}, "note"),
        ({"trained": True}, "note"),
        ({"trained": True, "with_gradient": 1}, "warning"),
        ({"modules": 0, "parameters": 2}, "warning"),
    ],
    ids=str,
)
def test_hidden_modules(facts, severity):
    """A note where they are trained all the same, where they take no part in training, and for one alone."""
    assert (
        only(unregistered_modules=(hidden(**facts),)).code,
        only(unregistered_modules=(hidden(**facts),)).severity,
    ) == ("TM605", severity)


@pytest.mark.parametrize(
    ("container", "modules", "text", "remedy"),
    [
        ("list", 3, "self.layers = []", "nn.ModuleList()"),
        ("dict", 3, "self.layers = {}", "nn.ModuleDict()"),
        ("tuple", 3, "self.layers = layers", "nn.ModuleList(layers)"),
        ("list", 0, "self.layers = [nn.Parameter(a)]", "nn.ParameterList([nn.Parameter(a)])"),
        ("dict", 0, "", "nn.ParameterDict(…)"),
    ],
)
def test_the_container_that_registers(container, modules, text, remedy):
    """Of the kind that fits, with what the line puts into it."""
    where = line(5, text) if text else None
    told = only(unregistered_modules=(hidden(container=container, modules=modules, location=where),))
    assert f"`self.layers = {remedy}`" in told.remedy


@pytest.mark.parametrize(
    ("evidence", "severity", "words"),
    [
        ("was one", "warning", "were one Parameter and are now two"),
        ("one memory", "warning", "are two Parameters that share one memory"),
        ("equal values", "note", "hold the same values, but are two Parameters"),
    ],
)
def test_untied_weights(evidence, severity, words):
    """How sure it is, is how severe it is."""
    pair = UntiedPair("lm.emb.weight", "lm.head.weight", "lm", evidence, compared=160, numel=160)
    told = only(untied=(pair,))
    assert (told.code, told.severity, told.subject) == ("TM609", severity, "lm.head.weight")
    assert f"lm.emb.weight and lm.head.weight {words}" in told.message
    assert "`lm.head.weight = lm.emb.weight`" in told.remedy
