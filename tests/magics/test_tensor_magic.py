"""The %tensor magic: what it shows, binds and saves, and what it says to bad input."""

from __future__ import annotations

import json
import re

import pytest
from IPython.core.error import UsageError

from tensormagic import views
from tensormagic.errors import TensorMagicError
from tensormagic.reports import TensorReport


def test_a_tensor_is_shown_as_text_and_html(cell):
    """One display with both forms, both about the tensor under the name that was typed."""
    ran = cell("%tensor b")
    assert ran.error is None
    (bundle,) = ran.shown
    assert sorted(bundle) == ["text/html", "text/latex", "text/plain"]
    assert bundle["text/plain"].startswith("── b ── (4, 3) · float32 · cpu · view of a · ")
    assert "TM201" not in bundle["text/html"]
    cell("b += 1")
    assert "TM201" in cell("%tensor b").shown[0]["text/html"]
    assert ran.out == ""
    assert ran.value is None


def test_several_expressions_are_shown_in_order(cell):
    """What they have of the same memory, then each in a display of its own."""
    titles = [bundle["text/plain"].split(" ── ")[0] for bundle in cell("%tensor -a a[0, 1:3] a + 1 b").shown]
    assert titles == ["── a[0, 1:3] and b", "── (-a)", "── a[0, 1:3]", "── (a + 1)", "── b"]


def test_below_a_picture_of_several_each_panel_is_folded(cell):
    """The strip that holds them together is the answer; a panel takes a line until it is opened."""
    picture, *panels = [bundle["text/html"] for bundle in cell("%tensor a b").shown]
    assert "<summary><code>a (" not in picture
    folds = [panel.partition("</code></summary>")[0] for panel in panels]
    assert [fold.rpartition("<code>")[2].split(" (")[0] for fold in folds] == ["a", "b"]
    assert not any("<summary><code>-a (" in bundle["text/html"] for bundle in cell("%tensor -a a + 1").shown)


def test_tensors_without_common_memory_say_so_in_one_line(cell):
    """Nothing to draw: a sentence, then the panels."""
    first, *panels = cell("%tensor -a a + 1").shown
    assert first["text/plain"].endswith("-a and a + 1 share no memory: they lie in different storages.\n")
    assert len(panels) == 2


def test_a_picture_is_added_when_asked_for(cell):
    """--picture draws the values, in the page and in the terminal; without it nothing is drawn."""
    plain, drawn = cell("%tensor a").shown[0], cell("%tensor a --picture").shown[0]
    assert "PICTURE" not in plain["text/plain"]
    assert "a is read as (H, W)" in drawn["text/plain"]
    assert "a is read as (H, W)" in drawn["text/html"]
    (scalar,) = cell("%tensor a.sum() --picture").shown
    assert "not shown: picture: a scalar or an empty tensor cannot be drawn" in scalar["text/plain"]


def test_too_many_for_one_strip(cell):
    """Nine tensors are shown, and why they are not drawn together."""
    ran = cell("%tensor a[0] a[1] a[2] a a+1 a+2 a+3 a+4 a+5")
    assert len(ran.shown) == 9
    assert ran.out == "not drawn together: overlay() takes 2 to 8 tensors by name, but was given 9\n"


@pytest.mark.parametrize(
    "expression",
    ["(lambda t: t * 2)(a)", "torch.stack([row for row in a])", "{'k': a}['k']", "(a if True else b)", "net.weight",
     "(y := a + 1)", "next(iter([a]))", "a[..., None]"],
)  # fmt: skip
def test_expressions_of_every_kind(cell, expression):
    """Names bound inside the expression itself are not missed."""
    ran = cell(f"%tensor {expression}")
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith(f"── {expression} ──")


def test_the_same_expression_twice_is_shown_twice(cell):
    """As it was asked for."""
    titles = [bundle["text/plain"].split(" ── ")[0] for bundle in cell("%tensor a a").shown]
    assert titles.count("── a") == 2


def test_an_expression_is_told_whether_it_copied(cell):
    """Copy or view against its operands, evaluated once; a plain name has nothing to be told."""
    _, view, copy, name = (bundle["text/plain"] for bundle in cell("%tensor a[0] a.t().contiguous() a").shown)
    assert "VIEW\n  shares 4 of the 12 elements of a" in view
    assert "shares no memory with a" in copy
    assert " VIEW " not in name
    cell("calls = []")
    cell("%tensor (calls.append(1), a[0])[1]")
    assert cell("len(calls)").value == 1


def test_who_keeps_it_alive(cell):
    """Output history and the last error's frame with the cell it is in; several values hold not each other."""
    cell("c = a + 1")
    cell("def step(t):\n    return t.view(99)")
    cell("step(c)")
    cell("from tensormagic import inspect")
    text = cell("%tensor c c.t() --text").out
    held = next(part for part in text.split("\n\n") if " HELD BY" in part)
    assert "the last error (RuntimeError)" in held
    assert re.search(r"local.* of step .*an error's traceback, cell \d+, line 2", held)
    assert "torch's count" not in held


@pytest.mark.parametrize("line", ["make() nosuch", "make() 3", "make() --save /dev/null/x.html", "make()"])
def test_what_was_shown_is_gone_afterwards(cell, line):
    """Neither the output nor the traceback of an error keeps the result of an expression alive."""
    cell("import weakref; made = []")
    cell("def make():\n    t = torch.zeros(3)\n    made.append(weakref.ref(t))\n    return t")
    cell(f"%tensor {line}")
    assert cell("[reference() for reference in made]").value == [None]


def test_braces_and_dollars_are_not_expanded(cell):
    """IPython leaves the line as typed."""
    assert cell("%tensor {'a': a}['a']").error is None


def test_text(cell):
    """With --text the report is printed, once, and nothing is displayed."""
    ran = cell("%tensor a --text")
    assert ran.shown == []
    assert ran.out.count("── a ──") == 1


def test_a_figure_is_shown_by_its_mimetype_alone(cell):
    """Without plotly.js in the notebook, and with text for hosts that cannot draw it."""
    (bundle,) = cell("%tensor a --figure=storage").shown
    assert sorted(bundle) == ["application/vnd.plotly.v1+json", "text/plain"]
    assert set(bundle["application/vnd.plotly.v1+json"]) >= {"data", "layout"}
    assert bundle["text/plain"].startswith("── a ──")
    assert len(json.dumps(bundle)) < 100_000


def test_an_unknown_figure_shows_the_report(cell):
    """The kinds there are get named; nothing is lost."""
    ran = cell("%tensor a --figure=nosuch --into r")
    assert isinstance(ran.error, UsageError)
    assert '"strides"' in str(ran.error)
    assert "text/html" in ran.shown[0]
    assert cell("r").value.name == "a"


def test_into(cell):
    """The report is bound to the name, and the tensor is not kept by it."""
    cell("%tensor a[0] --into r --text")
    report = cell("r").value
    assert isinstance(report, TensorReport)
    assert (report.name, report.shape) == ("a[0]", (4,))


@pytest.mark.parametrize("ending", ["html", "svg", "txt", "json"])
def test_save(cell, tmp_path, ending):
    """Each ending writes its form; quotes and spaces in the path are fine; one line says what was written."""
    path = tmp_path / f"my file.{ending}"
    ran = cell(f"%tensor a --text --save '{path}'")
    assert ran.out.startswith(f"saved {path}\n")
    text = path.read_text()
    if ending == "json":
        assert TensorReport.from_dict(json.loads(text)).name == "a"
    else:
        assert "a" in text
        assert text.lstrip().lower().startswith({"html": "<!doctype html>", "svg": "<svg", "txt": "── a"}[ending])


@pytest.mark.parametrize(
    ("path", "words"),
    [("/dev/null/x.html", "Not a directory"), ("x.pdf", "the file's extension selects the format: .html")],
)
def test_what_cannot_be_saved_is_shown_and_bound_all_the_same(cell, path, words):
    """The reason is one line; the report is not lost."""
    ran = cell(f"%tensor a --save {path} --into r")
    assert isinstance(ran.error, UsageError)
    assert words in ran.err
    assert len(ran.shown) == 1
    assert cell("r").value.name == "a"


def test_one_file_or_name_cannot_hold_two_tensors(cell):
    """The second would overwrite the first: refused before anything is evaluated."""
    ran = cell("%tensor a b --into r")
    assert str(ran.error) == "--save and --into take one tensor, but here are 2: a, b"
    assert ran.shown == []


# -- bad input ----------------------------------------------------------------------------------------------------


def test_a_parameter_does_not_share_with_itself(cell):
    """``net[0].weight``, as it was typed, and ``net.0.weight``, as torch calls it, are one name."""
    cell("net = nn.Sequential(nn.Linear(2, 2)); tied = net[0].weight")
    text = cell("%tensor net[0].weight").shown[0]["text/plain"]
    shared = text.partition("SHARES WITH")[2].partition("VALUES")[0]
    assert "tied" in shared
    assert "net.0.weight" not in shared


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nett", "there is no name 'nett' here; did you mean net?"),
        ("nosuch", "there is no name 'nosuch' here; tensors here: a, b, x"),
        ("a + zzz", "there is no name 'zzz' here; tensors here: a, b, x"),
    ],
)
def test_an_unknown_name(cell, line, message):
    """A UsageError that names near names, or else the tensors there are."""
    ran = cell(f"%tensor {line}")
    assert isinstance(ran.error, UsageError)
    assert str(ran.error) == message
    assert ran.err == f"UsageError: {message}\n"
    assert ran.shown == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("a[7] + 1", IndexError),
        ("(lambda: a.nosuch)()", AttributeError),
        ("1/0", ZeroDivisionError),
        ("a @ a", RuntimeError),
    ],
)
def test_an_expression_that_raises(cell, line, kind):
    """Its own error, plainly: no frame of this package stands in the traceback that IPython shows."""
    ran = cell(f"%tensor {line}")
    assert type(ran.error) is kind
    assert kind.__name__ in ran.out
    assert "tensormagic/" not in ran.out.replace("tests/", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('d["c"]', "KeyError: 'c'"), ("net.wieght", "net has no wieght; did you mean weight?"),
        ("net.wieght.t() + a.sum()", "net has no wieght; did you mean weight?"),
        ("nn.Sequential(net).0.wieght", "nn.Sequential(net)[0] has no wieght; did you mean weight?"),
        ("a[7]", "IndexError: index 7 is out of bounds"), ("a.nosuch", "a has no nosuch"),
        ("a.nosuch()", "a has no nosuch; did you mean cosh?"),
    ],
)  # fmt: skip
def test_a_path_that_leads_to_nothing(cell, line, message):
    """One line, with near names; no traceback through code that nobody wrote."""
    cell("d, net = {'a': a}, nn.Linear(2, 2)")
    ran = cell(f"%tensor {line}")
    assert isinstance(ran.error, UsageError)
    assert str(ran.error).startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3", "3 is an int, not a tensor; torch.tensor(3) makes one"),
        ("'abc'", "'abc' is a str, not a tensor; give an expression that makes a torch.Tensor"),
        ("[1, 2]", "[1, 2] is a list of 2, not a tensor; torch.tensor([1, 2]) makes one"),
        ("{}", "{} is a dict of 0, not a tensor; it holds none"),
        ("nn.ReLU()", "nn.ReLU() is an nn.ReLU, not a tensor; it has no parameters to show"),
        ("x.grad", "x.grad is None, not a tensor; no backward has left a gradient in x yet"),
        ("a.shape", "a.shape is a torch.Size of 2, not a tensor; torch.tensor(a.shape) makes one"),
    ],
)  # fmt: skip
def test_what_is_no_tensor(cell, line, message):
    """What it is, and what would work."""
    cell("arr = a.numpy()")
    ran = cell(f"%tensor {line}")
    assert isinstance(ran.error, UsageError)
    assert str(ran.error) == message


def test_a_masked_array_is_no_collection(cell):
    """It has a mask beside its elements, and is shown in full all the same: a list would name the same line again."""
    cell("import numpy as np; masked = np.ma.masked_array([1.0, 2.0, 99.0], [0, 0, 1])")
    (shown,) = cell("%tensor masked").shown
    text = shown["text/plain"]
    assert "one in full" not in text
    assert "min 1 ██ max 2" in text
    assert "of the 2 elements that count" in text
    assert "masked.mask" in text


@pytest.mark.parametrize("line", ["a +", "a; b", "a == ", "(a", "for", "a b c ]"])
def test_what_is_no_expression(cell, line):
    """Refused before anything is shown."""
    ran = cell(f"%tensor {line}")
    assert "is not a Python expression" in str(ran.error)
    assert ran.shown == []


def test_an_unknown_option(cell):
    """The usage line, as IPython shows it."""
    ran = cell("%tensor a --colour")
    assert ran.err.startswith("UsageError: unrecognized arguments: --colour\nusage: %tensor [--text]")


@pytest.mark.parametrize("line", ["%tensor", "%tensor --help", "%tensor -h a"])
def test_help(cell, line):
    """Without an expression, and when asked, the help is printed."""
    ran = cell(line)
    assert ran.error is None
    for option in ("--text", "--figure", "--save", "--into", "expressions that evaluate to tensors"):
        assert option in ran.out


def test_nothing_is_bound_or_changed(cell, shell):
    """Neither names nor Out nor the tensor's version counter are touched."""
    cell("pass")
    own = {name for name in shell.user_ns if not name.startswith("_")}
    version = shell.user_ns["a"]._version
    cell("%tensor a a.t()[1:] --text")
    assert {name for name in shell.user_ns if not name.startswith("_")} == own
    assert shell.user_ns["a"]._version == version
    assert shell.user_ns["Out"] == {}


@pytest.mark.parametrize("form", ["html", "txt"])
def test_a_renderer_that_fails_is_a_visible_line(cell, monkeypatch, form):
    """The other form is shown; where the one should be stands what happened."""
    render = views.render

    def failing(report, asked):
        if asked == form:
            raise RuntimeError("ink ran out")
        return render(report, asked)

    monkeypatch.setattr(views, "render", failing)
    ran = cell("%tensor a")
    assert ran.error is None
    broken, whole = ("text/html", "text/plain") if form == "html" else ("text/plain", "text/html")
    assert f"tensormagic could not draw this report as {form}: RuntimeError: ink ran out" in ran.shown[0][broken]
    assert "float32" in ran.shown[0][whole]


def test_a_report_shows_itself(shell, cell):
    """As the value of a cell a report is a bundle of both forms; printed, it is text."""
    cell("%tensor a --into r --text")
    data, _ = shell.display_formatter.format(shell.user_ns["r"])
    assert sorted(data) == ["text/html", "text/latex", "text/plain"]
    assert cell("print(r)").out.startswith("── a ──")


def test_show(cell):
    """tensormagic.show is rich in a notebook, and refuses what is no report."""
    ran = cell("import tensormagic\ntensormagic.show(tensormagic.inspect(a, 'a'))")
    assert sorted(ran.shown[0]) == ["text/html", "text/latex", "text/plain"]
    assert isinstance(cell("tensormagic.show(3)").error, TensorMagicError)


@pytest.mark.parametrize(
    "options", ["--dims 0,2 --at :,1,:", "--at :,1,:", '--at ":, 1, :"', "--dims=i,k --at=(:,-2,:)"]
)
def test_a_slice_is_chosen(cell, options):
    """By dimensions, by index, with quotes round spaces; the text says which slice it is."""
    cell("t3 = torch.arange(24.).reshape(2, 3, 4)")
    ran = cell(f"%tensor t3 {options} --text")
    assert ran.error is None
    assert "Showing slice t3[:, 1, :], one of 3" in ran.out


def test_a_slice_that_is_not_there(cell):
    """One plain message."""
    ran = cell("%tensor a --dims 0,5")
    assert isinstance(ran.error, UsageError)
    assert "dims takes two different dimensions of the 2 there are (0 to 1, or i, j), but was given 0, 5" in str(
        ran.error
    )


def test_an_array_lies_on_the_strip_too(cell):
    """``%tensor a n``: a tensor and the NumPy array over its memory."""
    cell("n = a.numpy()[1:]")
    first, *_ = cell("%tensor a n").shown
    assert first["text/plain"].startswith("── a and n ── one storage of 48 B on cpu")
    assert "a and n have 8 elements in common" in first["text/plain"]


def test_a_hook_stands_where_its_cell_is(cell):
    """By the number of the cell, as the user sees it, not by the name that IPython compiled it under."""
    cell("w = torch.ones(2, requires_grad=True)\nhandle = w.register_hook(lambda gradient: None)")
    (shown,) = cell("%tensor w").shown
    assert re.search(r"Hooks: <lambda> tensor hook \(cell \d+, line 2\)\.", " ".join(shown["text/plain"].split()))


def test_an_error_in_an_expression_is_no_holder(cell):
    """IPython keeps the last error, whose frames were handed all names: they are not listed as holding each tensor."""
    ran = cell("%tensor a @ a")
    assert isinstance(ran.error, RuntimeError)
    (shown,) = cell("%tensor b").shown
    assert "the last error" not in shown["text/plain"]


def test_an_operator_stands_in_brackets_before_an_index(cell):
    """What is shown can be typed: `(a > 5)[1, 2]`, not `a > 5[1, 2]`."""
    text = cell("%tensor a > 5 --text").out
    assert "(a > 5)[" in text
    assert "a > 5[" not in text.replace("(a > 5)", "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%tensor a = 3", "'a = 3' is an assignment: run it on its own line, and give a here"),
        (
            "%tensor a --figure values",
            "there is no name 'values' here; a kind of figure is joined to its option: --figure=values",
        ),
        (
            "%tensor a --figure=colours",
            'there is no figure "colours" of a tensor report; it has: "strides", "storage", "values"',
        ),
    ],
)
def test_what_is_meant_is_said(cell, line, told):
    """Slips that look right say what would work."""
    assert told in cell(line).err


def test_a_scalar_has_no_first_element(cell):
    """One NaN is one NaN: no index of it is told."""
    text = cell('%tensor torch.tensor(float("nan")) --text').out
    assert "the one element is NaN." in " ".join(text.split())
    assert "[]" not in text
