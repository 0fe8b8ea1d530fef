"""Every report type is saved in every form it has, whole or not at all; what cannot be is told in a sentence."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from IPython.core.interactiveshell import InteractiveShell

import tensormagic as tm
from tensormagic import reports, views
from tensormagic.api import showing
from tensormagic.errors import TensorMagicError
from tensormagic.views.markup import in_address, unpacked
from tensormagic.views.page import files
from tensormagic.views.theme import EITHER_SIDE
from tests.views import samples_run, samples_sharing, samples_trace, samples_values, test_every_renderer
from tests.views.markup_reader import Page

FORMS = ("html", "htm", "json", "txt", "svg")
TYPES = {kind.kind_name: kind for kind in vars(reports).values()
         if isinstance(kind, type) and issubclass(kind, reports.Report) and kind is not reports.Report}  # fmt: skip
KINDS = sorted(TYPES)
REPORT = samples_sharing.ALIASES["slices"]


def sample(kind: str) -> reports.Report:
    """Return a report of that kind: the first that the renderers are tested with."""
    every = (report for one in test_every_renderer.RENDERERS for report in one.samples.values())
    return next(report for report in every if report.kind_name == kind)


def assert_holds(path: Path, report: reports.Report) -> None:
    """The file is what its ending says, and holds the report."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        assert type(report).load(path) == report or repr(type(report).load(path)) == repr(report)
    elif path.suffix == ".svg":
        assert ET.fromstring(text).tag.endswith("svg")
    elif path.suffix == ".txt":
        assert text == str(report)
    else:
        assert text.startswith("<!doctype html>")
        assert f"tensormagic: {report.kind_name}" in text
        assert any(name == "section" for name, _ in Page(text).elements)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_every_report_in_every_form(kind, form, tmp_path):
    """It is written, holds what it should, and nothing stands beside it."""
    report, path = sample(kind), tmp_path / f"run.{form}"
    assert set(views.forms_of(TYPES[kind])) == {"html", "svg", "txt"}
    report.save(path)
    assert_holds(path, report)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_paths_of_all_kinds(tmp_path, monkeypatch):
    """Strings, paths, ``~``, an ending in capitals, a folder that is not there, one relative to here."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    REPORT.save("~/home.json")
    REPORT.save(Path("~/a/b/c.JSON"))
    REPORT.save("here.Html")
    REPORT.save(str(tmp_path / "two words.and.dots.txt"))
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.*")) == [
        "a/b/c.JSON", "here.Html", "home.json", "two words.and.dots.txt",
    ]  # fmt: skip
    assert tm.load("~/a/b/c.JSON") == REPORT


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("run.html.gz", "compressed files are not supported: save without .gz, and compress the file yourself"),
        ("run.png", ".png needs a browser: save as .svg, or as .html and choose Export there (PNG), or print it (PDF)"),
        ("run.pdf", ".pdf needs a browser"),
        ("run.parquet", "the file's extension selects the format: .html, .htm, .svg, .txt, .json"),
        ("run", "the file's extension selects the format"),
    ],
)
def test_unknown_endings_say_what_to_do(name, advice, tmp_path):
    """Given, expected, and what to do; nothing is written."""
    with pytest.raises(TensorMagicError) as refused:
        REPORT.save(tmp_path / name)
    assert advice in str(refused.value)
    assert repr(str(tmp_path / name)) in str(refused.value)
    with pytest.raises(TensorMagicError, match=r"aliases report has no form 'pdf'; there are: html, .*json"):
        views.render(REPORT, "pdf")
    assert list(tmp_path.iterdir()) == []


def full(self, target):
    """What happens in the middle of a save where the disk is full."""
    raise OSError(28, "No space left on device", str(self))


@pytest.mark.parametrize(
    ("owner", "name", "failing", "error"),
    [
        (Path, "replace", full, "No space left"),
        (views, "render", lambda *_, **__: 1 / 0, "division by zero"),
        (files.os, "access", lambda *_: False, "Permission denied"),  # for root every file can be written
    ],
    ids=["the disk is full", "it cannot be drawn", "the file may not be written"],
)
def test_a_save_that_fails_leaves_the_old_file(owner, name, failing, error, tmp_path, monkeypatch):
    """The old text, and no file beside it; an error of the system names the file."""
    path = tmp_path / "run.html"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(owner, name, failing)
    with pytest.raises((OSError, ZeroDivisionError), match=error) as failed:
        REPORT.save(path)
    assert getattr(failed.value, "filename", str(path)) == str(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_permissions_that_it_had_or_those_of_any_new_file(tmp_path):
    """An old one that the group may read stays one, and a link goes on pointing where it did.

    A new one has those that the user's umask gives, not those of a temporary file.
    """
    path, link = tmp_path / "run.json", tmp_path / "latest.json"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    link.symlink_to(path)
    REPORT.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert json.loads(path.read_text(encoding="utf-8"))["tensormagic"] == "aliases"
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "any").touch()
    REPORT.save(tmp_path / "run.txt")
    assert (tmp_path / "run.txt").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_what_is_no_file_is_refused(tmp_path):
    """A folder of that name stays; a link to itself leads to no file; no system has files whose names hold a NUL.

    A pipe that nobody writes into is not waited for.
    """
    (tmp_path / "run.html").mkdir()
    with pytest.raises(IsADirectoryError):
        REPORT.save(tmp_path / "run.html")
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]
    (tmp_path / "x.txt").symlink_to(tmp_path / "x.txt")
    with pytest.raises((TensorMagicError, OSError)):
        REPORT.save(tmp_path / "x.txt")
    with pytest.raises(TensorMagicError, match="cannot create the file"):
        REPORT.save(tmp_path / "a\0b.txt")
    with pytest.raises(TensorMagicError):
        tm.read_snapshot(tmp_path / "a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TensorMagicError, match="it is not a file"):
            tm.read_snapshot(tmp_path / "pipe")


def test_text_that_utf8_cannot_say(tmp_path):
    """A name with half of a surrogate pair stops no save."""
    report = reports.TensorTable(title="half \ud800")
    for form in ("txt", "html", "json"):
        report.save(tmp_path / f"run.{form}")
        assert "half" in (tmp_path / f"run.{form}").read_text(encoding="utf-8")


def test_the_picture_of_a_run_is_dark_on_a_dark_slide(tmp_path):
    """It has a ground of its own, which is light anywhere else; what is dark there by itself is not made light."""
    with pytest.raises(TensorMagicError, match=r"slides are a page: save to \.html, not to '.*run\.svg'"):
        sample("memory").save(tmp_path / "run.svg", slide=True)
    sample("trace").save(tmp_path / "slides.html", slide=True)
    sample("trace").save(tmp_path / "page.html")
    samples_values.graph().save(tmp_path / "way.html", slide=True)
    assert in_address(f"{EITHER_SIDE}</style>") in (tmp_path / "slides.html").read_text()
    assert EITHER_SIDE not in (tmp_path / "page.html").read_text()
    assert (tmp_path / "way.html").read_text().count("prefers-color-scheme:dark") == 1


KEYS = ["text/html", "text/latex", "text/plain"]


def test_what_a_page_exports_keeps_every_character():
    """Of several questions to one run, too: what is shown is made harmless, what is carried is the report."""
    report = replace(samples_run.SAMPLES["healthy"], title="net\x1b[31m")
    page = views.render(report, "html", in_file=True)
    carried = re.search(r'class="tm-report"[^>]*>([^<]+)<', page)
    assert reports.RunReport.from_dict(json.loads(unpacked(carried[1]))) == report
    assert "\x1b" not in page


def test_a_report_shows_itself_where_the_extension_is_not_loaded():
    """As the value of a cell it is the panel and its text, not the pages of a dataclass's repr."""
    report = samples_trace.broken()
    data, _ = InteractiveShell().display_formatter.format(report)
    assert sorted(data) == KEYS
    assert data["text/plain"] == str(report)
    assert 'class="tm' in data["text/html"]
    assert report._repr_html_() == data["text/html"]


def test_what_cannot_be_drawn_is_said(monkeypatch):
    """Showing never raises, and the error's own words are no markup either."""

    def failing(*_, **__):
        raise RuntimeError("ink ran out '<b>\x1b'")

    monkeypatch.setattr("tensormagic.views.render", failing)
    bundle = samples_trace.broken()._repr_mimebundle_(include=None, exclude=None)
    assert sorted(bundle) == KEYS
    assert all("ink ran out" in text for text in bundle.values())
    assert r"RuntimeError: ink ran out &#x27;&lt;b&gt;\x1b&#x27;" in bundle["text/html"]
    assert bundle["text/plain"].endswith(r"RuntimeError: ink ran out '<b>\x1b'")


@pytest.mark.parametrize("inside", [True, False], ids=["in a marimo notebook", "in a script that imports marimo"])
def test_show_in_marimo(monkeypatch, capsys, inside):
    """In marimo the panel is appended to the cell's output; elsewhere it is printed."""
    appended = []
    fake = SimpleNamespace(running_in_notebook=lambda: inside, output=SimpleNamespace(append=appended.append))
    monkeypatch.setitem(sys.modules, "marimo", fake)
    monkeypatch.setattr(showing, "_display", None)
    report = samples_trace.broken()
    tm.show(report)
    assert (appended == [report]) is inside
    assert ("TM402" in capsys.readouterr().out) is not inside
