"""%aliases, %tensors, and %tensor of a collection: what they show, bind and save, and what they say to bad input."""

from __future__ import annotations

import json

import pytest
from IPython.core.error import UsageError

from tensormagic.reports import AliasReport, TensorTable


def test_aliases_over_everything(cell):
    """Both forms in one display; what shares is there, what does not is counted."""
    ran = cell("%aliases")
    (bundle,) = ran.shown
    assert sorted(bundle) == ["text/html", "text/latex", "text/plain"]
    assert "view of a" in bundle["text/plain"]
    assert "1 piece of memory is shared by several objects" in bundle["text/plain"]
    assert ran.out == ""


def test_aliases_of_names_and_expressions(cell):
    """Only their memory; an expression is a member under its own text."""
    cell("c = a[1]; other = torch.ones(4); twin = other[:2]")
    text = cell("%aliases a[0] a.clone() --text").out
    assert "Several objects share the memory of a[0]; nothing else reads the memory of a.clone()" in text
    assert "twin" not in text
    assert " c " in text


def test_aliases_of_one_object_under_two_names(cell):
    """Each name once, though the expressions that were typed are names as well."""
    cell("tied = torch.nn.Module(); tied.read = torch.nn.Linear(2, 2); tied.write = torch.nn.Linear(2, 2)")
    cell("tied.write.weight = tied.read.weight")
    text = cell("%aliases tied.read.weight tied.write.weight --text").out
    assert "tied.read.weight and tied.write.weight are the same Parameter" in text
    assert "tied.read.weight = tied.write.weight\n" in text


def test_tensors_over_everything(cell):
    """The user's tensors with their groups and totals, parameters of a model included."""
    cell("arr = a.numpy()")
    (bundle,) = cell("%tensors").shown
    text = bundle["text/plain"]
    for words in ("5 tensors, 1 array", "net.weight", "Parameter", "(3, 4)", "arr", "each counted once"):
        assert words in text


def test_tensors_of_names(cell):
    """Only what they hold, whether spaces or commas part the names."""
    text = cell("%tensors net a, b --text").out
    assert text.startswith("── net, a, b ── 4 tensors ──")
    assert "net.bias" in text
    assert "(a, b)" not in text
    assert " x " not in text


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("[a, 2]", "[a, 2][0]"), ("{'k': (a, b)}", "{'k': (a, b)}['k'][0]"), ("net", "net.weight"),
        ("(a, b)", "(a, b)[0]"),
        ("(lambda t: lambda: t)(a)", ".<closure>.t"), ("torch.optim.SGD([x])", "param_groups[0]"),
    ],
)  # fmt: skip
def test_tensor_of_a_collection(cell, line, first):
    """A table, and below it the panel of each."""
    (bundle,) = cell(f"%tensor {line}").shown
    assert bundle["text/plain"].startswith(f"── {line} ── ")
    assert first in bundle["text/plain"]
    assert "tm-panels" in bundle["text/html"]


def test_several_tensors(cell):
    """What they share, then the panel of each: a comma parts two arguments here."""
    texts = [bundle["text/plain"] for bundle in cell("%tensor a, b").shown]
    assert [text.split(" ── ")[0] for text in texts] == ["── a and b", "── a", "── b"]


def test_a_data_class(cell):
    """Attributes of the user's own objects."""
    cell("import dataclasses\n@dataclasses.dataclass\nclass Batch:\n    x: object\n    y: object = None")
    cell("batch = Batch(a, [b])")
    text = cell("%tensor batch").shown[0]["text/plain"]
    assert "batch.x" in text
    assert "batch.y[0]" in text


def test_many_panels_are_bounded(cell):
    """Six in full, and how many more there are."""
    html = cell("%tensor [torch.zeros(2) for _ in range(9)]").shown[0]["text/html"]
    assert html.count('class="tm tm-tensor"') == 6
    assert "The panels of 3 more are not in this output." in html


@pytest.mark.parametrize(("magic", "kind"), [("aliases", AliasReport), ("tensors", TensorTable)])
def test_into_and_save(cell, tmp_path, magic, kind):
    """Bound to a name, written as a file, loaded again."""
    path = tmp_path / "report.json"
    ran = cell(f"%{magic} --into r --save {path} --text")
    assert ran.shown == []
    assert isinstance(cell("r").value, kind)
    assert kind.from_dict(json.loads(path.read_text())) == cell("r").value
    for ending in ("html", "txt"):
        cell(f"%{magic} --save {tmp_path / 'report'}.{ending} --text")
        assert "float32" in (tmp_path / f"report.{ending}").read_text()


@pytest.mark.parametrize(
    ("magic", "kind"), [("aliases", "memory_map"), ("tensors", "sizes"), ("tensor [a, b]", "sizes")]
)
def test_figures(cell, magic, kind):
    """By their mimetype alone; the default is the one there is."""
    plain, named = (cell(f"%{magic} --figure{which}").shown[0] for which in ("", f"={kind}"))
    assert plain["application/vnd.plotly.v1+json"]["data"][0]["type"] == "bar"
    assert plain == named


@pytest.mark.parametrize("magic", ["aliases", "tensors"])
def test_bad_input(cell, magic):
    """Near names for unknown ones; an unknown option is refused; help is help."""
    ran = cell(f"%{magic} nett")
    assert isinstance(ran.error, UsageError)
    assert str(ran.error) == "there is no name 'nett' here; did you mean net?"
    assert "unrecognized arguments: --colour" in cell(f"%{magic} --colour").err
    assert "--figure" in cell(f"%{magic} --help").out
    assert cell(f"%{magic} 1/0").error.__class__ is ZeroDivisionError


@pytest.mark.parametrize("magic", ["%aliases", "%tensors"])
def test_names_complete(shell, cell, magic):
    """As after %tensor."""
    cell("attention = a")
    _, matches = shell.complete("att", f"{magic} att", len(magic) + 4)
    assert "attention" in matches


def test_nothing_is_bound_or_changed(cell, shell):
    """Neither names nor Out nor version counters."""
    cell("pass")
    own, version = {name for name in shell.user_ns if not name.startswith("_")}, shell.user_ns["a"]._version
    cell("%aliases")
    cell("%tensors")
    cell("%tensor [a, b]")
    assert {name for name in shell.user_ns if not name.startswith("_")} == own
    assert (shell.user_ns["a"]._version, shell.user_ns["Out"]) == (version, {})
