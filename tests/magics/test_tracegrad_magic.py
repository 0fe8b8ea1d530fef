"""The %%tracegrad magic beside its honesty: what it shows, binds and saves, and what it says to bad input."""

from __future__ import annotations

import json

import pytest
from IPython.core.error import UsageError

from tensormagic.magics.live_output import last_report
from tensormagic.reports import RunReport, TraceReport

TRAIN = "loss = net(torch.ones(3, 2)).square().mean()\nloss.backward()"


def test_a_terminal_prints_the_report_once(cell):
    """Without a kernel there is one display, after the cell, with text in it."""
    ran = cell(f"%%tracegrad\n{TRAIN}")
    (bundle,) = ran.shown
    assert bundle["text/plain"].startswith("── net ── finished · ")
    assert "1 backward pass" in bundle["text/plain"]


@pytest.mark.parametrize("mode", ["widget", "html"])
def test_a_notebook_shows_at_once_and_updates_in_place(notebook, cell, mode):
    """The first display comes before the cell has run; the last one is the static report; text in every bundle."""
    ran = cell(f"%%tracegrad --live {mode}\n{TRAIN}")
    outputs = notebook.display_pub.outputs[-len(ran.shown) :]
    assert [output["update"] for output in outputs] == [False] + [True] * (len(outputs) - 1)
    assert len({output["transient"]["display_id"] for output in outputs}) == 1
    assert all("text/plain" in bundle for bundle in ran.shown)
    assert sorted(ran.shown[-1]) == ["text/html", "text/latex", "text/plain"]
    assert ran.shown[-1]["text/plain"].startswith("── net ── finished · ")


def test_the_setting_chooses_how_it_is_live(notebook, cell):
    """%config TensorMagic.live holds for every cell, the option for one."""
    cell("%config TensorMagic.live = 'off'")
    assert len(cell(f"%%tracegrad\n{TRAIN}").shown) == 1
    assert len(cell(f"%%tracegrad --live html\n{TRAIN}").shown) > 1
    cell("%config TensorMagic.live = 'html'")
    assert "application/vnd.jupyter.widget-view+json" not in cell(f"%%tracegrad\n{TRAIN}").shown[0]


@pytest.mark.parametrize("body", ["y = x * 2", "with torch.no_grad():\n    net(x)", "pass", "'only a string'"])
def test_a_cell_without_a_backward(cell, body):
    """The cell runs; the report says that no backward was seen, and what would make one."""
    ran = cell(f"%%tracegrad --into r\n{body}")
    assert ran.error is None
    for form in ("text/plain", "text/html"):
        assert "no backward was seen" in ran.shown[0][form].lower()
        assert ".backward()" in ran.shown[0][form]
    assert cell("r").value.passes_seen == 0


@pytest.mark.parametrize(
    "body", ["{}['a']", "open('/none')", "assert torch.ones(1) > 2, 'mine'", "torch.none(3)", "1 +"]
)
@pytest.mark.parametrize("options", ["", "--live html", "--live widget", "--live off"])
def test_an_error_that_is_not_torchs_stands_alone(notebook, cell, body, options):
    """A cell that fails before torch did anything shows its traceback, and no panel of ours."""
    ran = cell(f"%%tracegrad {options}\n{body}")
    assert ran.error is not None
    assert not ran.shown or ran.shown[-1] == {"text/plain": ""}


def test_stop_leaves_the_person_s_frame_to_debug(cell):
    """With --stop nan the innermost frame that %debug sees is the cell's own, with its tensors."""
    ran = cell("%%tracegrad --stop nan --into r\ndef half(x):\n    y = x - x\n    return y / y\nhalf(torch.ones(2))")
    assert type(ran.error).__name__ == "NonFiniteError"
    entry = ran.error.__traceback__
    while entry.tb_next is not None:
        entry = entry.tb_next
    assert (entry.tb_frame.f_code.co_name, sorted(entry.tb_frame.f_locals), entry.tb_lineno) == ("half", ["x", "y"], 4)
    assert "made 2 NaN of 2 elements" in cell("r").value.error


def test_stop_needs_every_step(cell):
    """What is not traced is not looked at: the two do not go together."""
    assert "leave out --budget, --every and --steps" in str(cell("%%tracegrad --stop nan --every 2\n1").error)


def test_into_also_when_the_cell_failed(cell):
    """What happened until then is bound, and says how it ended."""
    ran = cell(f"%%tracegrad --into r\n{TRAIN}\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    report = cell("r").value
    assert isinstance(report, TraceReport)
    assert (report.state, report.error, report.passes_seen) == ("failed", "ZeroDivisionError: division by zero", 1)


def test_save_also_when_the_cell_failed(cell, tmp_path):
    """The file holds what happened until then; the user's error is still the user's."""
    path = tmp_path / "run.json"
    ran = cell(f"%%tracegrad --save {path}\n{TRAIN}\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert TraceReport.from_dict(json.loads(path.read_text())).state == "failed"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("taken/run.html", "is a file, not a folder"),
        ("taken/deep/run.html", "is a file, not a folder"),
        ("folder.html", "cannot save to 'folder.html': it is a folder"),
        ("run.pdf", "the file's extension selects the format: .html"),
        ("good.html --save run.pdf", "the file's extension selects the format: .html"),
    ],
)
def test_a_bad_path_is_refused_before_the_cell_runs(cell, shell, tmp_path, monkeypatch, path, words):
    """An hour of training must not end with a typing error; of several paths each is looked at."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    (tmp_path / "folder.html").mkdir()
    ran = cell(f"%%tracegrad --save {path}\nran = True")
    assert isinstance(ran.error, UsageError)
    assert words in str(ran.error)
    assert "ran" not in shell.user_ns


def test_a_folder_that_is_not_there_is_made(cell, tmp_path, monkeypatch):
    """Spaces, ``~`` and several files at once: each is written, and named in a line of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = cell(f"%%tracegrad --save '~/my runs/a.html' --save=~/b.json --save {tmp_path}/c/d/e.txt\n{TRAIN}")
    files = [tmp_path / "my runs" / "a.html", tmp_path / "b.json", tmp_path / "c" / "d" / "e.txt"]
    assert ran.error is None
    assert [path.is_file() for path in files] == [True] * 3
    assert [line for line in ran.out.splitlines() if line.startswith("saved ")] == [f"saved {path}" for path in files]
    assert TraceReport.load(files[1]).passes_seen == 1


TAKEN = "import pathlib\npathlib.Path({path!r}).rmdir()\npathlib.Path({path!r}).touch()\n"


def test_a_file_that_fails_later_loses_nothing(cell, tmp_path):
    """The cell's value and report stand; one line says what could not be written, and the other file is there."""
    path, other = tmp_path / "gone" / "run.html", tmp_path / "run.json"
    path.parent.mkdir()
    ran = cell(f"%%tracegrad --into r --save {path} --save {other}\n{TAKEN.format(path=str(path.parent))}'value'")
    assert ran.error is None
    assert ran.value == "value"
    assert ran.err == f"UsageError: cannot write to {str(path.parent)!r}: Not a directory\n"
    assert len(ran.shown) == 1
    assert cell("r").value.state == "finished"
    assert other.is_file()


def test_a_file_that_fails_later_does_not_hide_the_cells_error(cell, tmp_path):
    """The cell's own exception goes on, not the one about the file."""
    path = tmp_path / "gone" / "run.html"
    path.parent.mkdir()
    ran = cell(f"%%tracegrad --save {path}\n{TAKEN.format(path=str(path.parent))}1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)


def test_an_unknown_figure_loses_nothing(cell):
    """The kinds there are get named, the report is shown, and the cell's value stands."""
    ran = cell(f"%%tracegrad --figure=nosuch\n{TRAIN}\n5")
    assert (ran.error, ran.value) == (None, 5)
    assert '"gradient_flow"' in ran.err
    assert "text/html" in ran.shown[0]


def test_a_figure(cell):
    """The gradient flow, by its mimetype, with text beside it."""
    (bundle,) = cell(f"%%tracegrad --figure\n{TRAIN}").shown
    assert sorted(bundle) == ["application/vnd.plotly.v1+json", "text/plain"]


@pytest.mark.parametrize(("title", "shown"), [("run", "run"), ("'my run'", "my run"), ('"it\'s"', "it's")])
def test_a_title(cell, title, shown):
    """Quoted or not, it names the run."""
    assert cell(f"%%tracegrad --text --title {title}\n{TRAIN}").out.startswith(f"── {shown} ── finished · ")


LOOP = "for _ in range(12):\n    loss = net(torch.ones(3, 2)).square().mean()\n    loss.backward()"


@pytest.mark.parametrize(
    ("options", "words", "steps"),
    [
        ("--every 5", "traced 3 of 12 steps (every 5", [1, 6, 11]),
        ("--steps 4:7", "traced 3 of 12 steps (steps 4 to 6", [4, 5, 6]),
        ("--steps 4: --every 3", "traced 3 of 12 steps (steps from 4, every 3", [4, 7, 10]),
        ("--steps :3", "traced 2 of 12 steps (steps 1 to 2", [1, 2]),
    ],
)
def test_some_steps_are_traced(cell, options, words, steps):
    """The options name steps as a slice does, from 1; the header says what came of it, passes keep their numbers."""
    ran = cell(f"%%tracegrad --text --into r {options}\n{LOOP}")
    assert words in " ".join(ran.out.split())
    assert [one.step for one in cell("r").value.passes] == steps


def test_a_budget(cell):
    """The first step is traced; the header says the share that was asked for, and the cost where a run lasts."""
    ran = cell(f"%%tracegrad --text --into r --budget 5%\n{LOOP}")
    report = cell("r").value
    cost = ": cost " if report.sampling.cost else ")"
    assert f"traced {report.sampling.steps} of 12 steps (budget 5 %{cost}" in " ".join(ran.out.split())
    assert report.passes[0].step == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--budget much", "takes a share of the run's time, 5% or 0.05, but was given 'much'"),
        ("--budget 5", "write 0.05 (in a notebook 5%)"),
        ("--budget -5%", "above 0 and at most 1"),
        ("--every x", "--every takes a whole number, but was given 'x'"),
        ("--every 0", "expected a whole number from 1"),
        ("--steps 5", "as in a slice, but was given '5'"),
        ("--steps a:b", "as in a slice, but was given 'a:b'"),
        ("--steps 0:4", "numbers from 1"),
        ("--steps 4:4", "it contains no step"),
        ("--budget 5% --every 2", "leave one of them out"),
        ("--budget 5% --steps 2:", "leave one of them out"),
    ],
)
def test_steps_that_cannot_be_are_refused_before_the_cell_runs(cell, shell, options, words):
    """The message says what was given, what was expected and what to do."""
    ran = cell(f"%%tracegrad {options}\nran = True")
    assert isinstance(ran.error, UsageError)
    assert words in str(ran.error)
    assert "ran" not in shell.user_ns


@pytest.mark.parametrize(
    "line", ["--nosuch", "y = 3", "--live maybe", "--live", "--into 1x", "--ranks ~nobody-of-that-name"]
)
def test_a_wrong_line_runs_nothing(cell, shell, line):
    """A UsageError, and the cell has not run: it can be mended and run once."""
    ran = cell(f"%%tracegrad {line}\nran = True")
    assert isinstance(ran.error, UsageError)
    assert "ran" not in shell.user_ns


def test_help_and_the_single_percent_sign(cell):
    """%tracegrad --help needs no cell; without one there is nothing to run, and that is said."""
    assert "--live {widget,html,off}" in cell("%tracegrad --help").out
    assert "two percent signs" in str(cell("%tracegrad").error)


def test_findings_stand_first(cell):
    """What went wrong comes before the numbers, with its line in the cell."""
    ran = cell("%%tracegrad --text\np = torch.tensor([0.0, 0.5], requires_grad=True)\nh = p.log()\nh.sum().backward()")
    lines = ran.out.splitlines()
    at = next(number for number, line in enumerate(lines) if "TM402" in line)
    assert "log, cell 1, line 3: its input" in " ".join(" ".join(lines[at : at + 3]).split())
    assert at < next(number for number, line in enumerate(lines) if "gradient flow" in line)


def test_alone_it_shows_the_last_run_again(cell, shell):
    """The output may be gone, with a page that was closed meanwhile; the report is not."""
    cell(f"%%tracegrad --title first\n{TRAIN}")
    cell(f"%%tracegrad --title second\n{TRAIN}\n1 / 0")
    ran = cell("%tracegrad --into again")
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith("── second ── failed: ZeroDivisionError")
    assert shell.user_ns["again"].title == "second"


def test_alone_without_a_run_it_says_what_it_is_for(cell):
    """Nothing was traced yet."""
    ran = cell("%tracegrad")
    assert "runs a cell: write it with two percent signs" in str(ran.error)


def test_code_behind_the_magic_is_told_where_it_belongs(cell):
    """The first line is for options alone."""
    error = cell("%tracegrad (a * a).sum().backward()").error
    assert isinstance(error, UsageError)
    assert "must be alone in the first line of a cell, with the code below it" in str(error)


ALL = """x = torch.rand(3, 2)
view = x[0]
view.mul_(2)
loss = net(x).square().mean()
loss.backward()
loss.item()"""


def test_several_questions_of_one_cell(cell, tmp_path):
    """The cell runs once, its value is returned; one output has what was found, then a part each; it is saved."""
    cell("runs = 0")
    path = tmp_path / "run.json"
    ran = cell(f"%%tracegrad --memory --writes --draws --into r --save {path}\nruns += 1\n{ALL}")
    assert ran.error is None
    assert isinstance(ran.value, float)
    assert cell("runs").value == 1
    (bundle,) = ran.shown
    kinds = ("run", "trace", "memory", "writes", "rng")
    assert [bundle["text/html"].count(f'class="tm tm-{kind}"') for kind in kinds] == [1] * 5
    report = cell("r").value
    assert isinstance(report, RunReport)
    assert json.loads(path.read_text()) == report.to_dict()
    assert report.cell.lines[2] == "x = torch.rand(3, 2)"
    assert not [place for place in report.trace.locations if "run_cell_magic" in place.text], "a line of the user's"
    lines = {draw.location for draw in report.draws.sums}
    assert {report.draws.locations[line].line for line in lines} == {3}
    assert [write.location.line for write in report.writes.writes] == [5]
    assert report.memory.state == report.trace.state == report.state == "finished"


@pytest.mark.parametrize("option", ["memory", "writes", "draws"])
def test_one_question_besides(cell, option):
    """Each option adds its part, and no other."""
    cell(f"%%tracegrad --{option} --into r\n{ALL}")
    report = cell("r").value
    assert [name for name in ("memory", "writes", "draws") if getattr(report, name) is not None] == [option]


def test_several_questions_of_a_cell_that_fails(cell):
    """The error goes on; every part says what there was until then, and the failure is explained once."""
    ran = cell(f"%%tracegrad --memory --writes --draws --into r\n{ALL}\nnet(torch.ones(5, 5))")
    assert isinstance(ran.error, RuntimeError)
    assert len(ran.shown) == 1
    report = cell("r").value
    assert [part.state for part in report.parts] == ["failed"] * 4
    assert report.findings[0].code == "TM804"


def test_several_questions_live(notebook, cell):
    """While the cell runs its trace is shown; then, in its place, all of it."""
    ran = cell(f"%%tracegrad --live html --memory --draws\n{ALL}")
    assert 'class="tm tm-run"' in ran.shown[-1]["text/html"]
    assert 'class="tm tm-memory"' in ran.shown[-1]["text/html"]


def test_runs_nest_in_a_cell(cell):
    """A trace in a %%gpumem cell, a memory run in a %%tracegrad cell."""
    cell("import tensormagic as tm")
    cell("%%gpumem --into m\nwith tm.trace() as trace:\n    net(torch.rand(3, 2)).sum().backward()")
    assert len(cell("trace.report.passes").value) == 1
    assert cell("m.operations").value > 0
    cell("%%tracegrad --into t\nwith tm.track_memory() as run:\n    net(torch.rand(3, 2)).sum().backward()")
    assert len(cell("t.passes").value) == 1
    assert cell("run.report.operations").value == cell("m.operations").value


def test_the_traces_of_engines_answer_no_more(cell):
    """Which options go together is said before anything runs."""
    ran = cell("%%tracegrad --ranks --memory\nran = True")
    assert isinstance(ran.error, UsageError)
    assert "leave out --memory" in str(ran.error)
    assert isinstance(cell("ran").error, NameError)


def test_a_script_that_is_run_names_its_model(shell, tmp_path):
    """While ``%run`` runs it, its names are those of ``__main__``, and the user's only afterwards."""
    script = tmp_path / "train.py"
    script.write_text("import torch\nnet = torch.nn.Linear(2, 1)\nnet(torch.ones(1, 2)).sum().backward()\n")
    shell.run_cell(f"%%tracegrad --text\n%run {script}").raise_error()
    assert [series.name for series in last_report(shell).parameters] == ["net.weight", "net.bias"]
