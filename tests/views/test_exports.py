"""Reports in previews, exports and PDF: everything is still said, nothing of the machinery shows as text.

Two rules that are published: GitHub's for user content (github.com/gjtorikian/html-pipeline: no style, script, svg, no
class, no inline style, pictures from the web alone), and nbconvert's ``--sanitize-html``, which turns what it forbids
into text that a user sees. For LaTeX the text of a report is set in a font that has few characters.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import bleach
import nbformat
import pytest
from nbconvert import HTMLExporter, LatexExporter, MarkdownExporter, SlidesExporter

from tensormagic.views import render
from tensormagic.views.markup import plain_report
from tensormagic.views.page.files import MOST_TEXT, bundle, listing, with_text
from tests.views.markup_reader import Page, as_github
from tests.views.test_every_renderer import PAGES, TEXTS

MACHINERY = ("--s1", "{", "function(", "=>", "H4sI", "const ", "data:image")
CASES = [pytest.param(one, name, id=f"{one.name}-{name}") for one in PAGES for name in one.samples]
WITH_VIEWER = ("trace_html", "run_html")  # the second folds a trace in, beside what it says itself
# A sample of each panel, and every one with hostile text.
FEW = [one for one in CASES if one.values[1] == next(iter(one.values[0].samples)) or "hostile" in one.values[1]]


@pytest.mark.parametrize(("renderer", "sample"), [case for case in CASES if "hostile" not in case.values[1]])
def test_nothing_of_the_machinery_shows_on_github(renderer, sample):
    """What is said there, `test_every_renderer` looks at; labels of pictures of memory do not run together."""
    text = Page(as_github(renderer.render(plain_report(renderer.samples[sample])))).text
    assert [word for word in MACHINERY if word in text] == []
    assert not renderer.name.startswith(("memory", "snapshot")) or re.findall(r"(?:[KMG]iB|\d B)\w", text) == []


@pytest.fixture(scope="module")
def notebook():
    """A saved notebook with a panel of every kind."""
    outputs = [nbformat.v4.new_output("display_data", bundle(next(iter(one.samples.values())))) for one in PAGES]
    cells = [nbformat.v4.new_code_cell("x", outputs=[one]) for one in outputs]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize("exporter", [HTMLExporter, SlidesExporter, MarkdownExporter])
def test_nbconvert_keeps_the_panels(notebook, exporter):
    """Each panel is there once, a trace with its viewer, and needs nothing."""
    exported, _ = exporter().from_notebook_node(notebook)
    assert exported.count("<section") >= len(notebook.cells)
    assert exported.count("data-tm-waiting=") == len(WITH_VIEWER)
    assert "application/vnd.jupyter.widget" not in exported
    assert exported.count("<code>offset(i, j) = 1 + 1·i + 12·j</code>") == 1


def test_a_sanitised_export_shows_the_text(notebook):
    """Panels go as a whole, none of their markup is printed, and the text of each is in their place."""
    exported, _ = HTMLExporter(sanitize_html=True).from_notebook_node(notebook)
    body = exported.partition("<main>")[2]
    text = Page(body).text
    assert "offset(i, j) = 1 + 1·i + 12·j" in text
    assert "─┬─" in text
    assert [word for word in (*MACHINERY, "&lt;section", "&lt;p", "tm-") if word in body] == []
    assert body.count("<pre><code>") == body.count("&lt;style&gt;") == len(notebook.cells)


@pytest.mark.parametrize(("renderer", "sample"), FEW)
def test_every_panel_can_be_taken_out_as_a_whole(renderer, sample):
    """Nothing in it ends the comment that a sanitised export makes of it, and browsers show no text beside it."""
    report = plain_report(renderer.samples[sample])
    output = with_text(render(report, "html"), "<text> -->")
    assert "".join(bleach.clean(output, {"div", "pre", "code"}, {}).split()) == (
        "<div>&lt;style&gt;<pre><code>&lt;text&gt;--&gt;</code></pre>&lt;/script&gt;</div>"
    )
    assert "<text> -->" not in Page(output).text


def test_of_a_long_text_the_beginning_is_told():
    """Whole lines as far as there is room, and how the rest is had; what would end the comment is left alone."""
    told = with_text("", "\n".join(["a line of forty characters, more or less"] * 100))
    lines = told.partition("<code>")[2].partition("</code>")[0].split("\n")
    assert MOST_TEXT / 41 - 1 < lines.index("") <= MOST_TEXT / 41
    assert "display_data_priority" in lines[-1]
    assert with_text("<section>--></section>", "text") == "<section>--></section>"


# What Latin Modern Mono has beyond ASCII, of what we write; XeLaTeX leaves out anything else without a word.
IN_THE_FONT = set("±²³µ·×–—•…←→−\u00a0é")
CALL = re.compile(r"\\tm(?:r(?:\d|\{\d+\})|x)(?:\d|\{\d+\}){4}")


def body(latex: str) -> str:
    """Return what is between the beginning and the end of the listing."""
    return latex.split("\\scriptsize]\n", 1)[1].removesuffix("\n\\end{Verbatim}")


@pytest.mark.parametrize("renderer", TEXTS, ids=lambda one: one.name)
def test_a_report_holds_only_what_the_font_has(renderer):
    """As many lines as the text; blocks, boxes and lines are rules, whose numbers no listing can misread."""
    text = renderer.render(next(iter(renderer.samples.values())))
    inner = body(listing(text))
    assert len(inner.splitlines()) == len(text.rstrip("\n").splitlines())
    plain = CALL.sub("", inner)
    assert "\\tm" not in plain
    assert {letter for letter in plain if not letter.isascii()} <= IN_THE_FONT


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("───", r"\tmr{24}{24}{119}{109}0"),
        ("█▌▌", r"\tmr88{220}00\tmr84{220}00\tmr84{220}00"),
        ("▄▄▄▄", r"\tmr{32}{32}{110}00"),
        ("░", r"\tmr88{220}0{85}"),
        ("┌│", r"\tmx44{119}0\tmx40{220}0"),
        ("▲ 3 ≠ 4", "^ 3 != 4"),
        ("\\end{Verbatim}\\input{/etc}", r"\textbackslash{}end\{Verbatim\}\textbackslash{}input\{/etc\}"),
    ],
)
def test_rules_stand_for_characters(text, latex):
    """A run is one rule as wide as it; a bar is as high as its eighths; a corner has its two arms.

    A name cannot end the listing, nor call a command of LaTeX.
    """
    assert body(listing(text)) == latex


@pytest.fixture(scope="module")
def exported(notebook) -> str:
    """That notebook, as ``nbconvert --to latex`` writes it."""
    return LatexExporter().from_notebook_node(notebook)[0]


def test_nbconvert_takes_the_listing(exported):
    """Each output is our listing, and no picture is asked for, which would need Inkscape."""
    assert exported.count("\\providecommand\\tmr") == len(PAGES)
    assert "\\includegraphics" not in exported.split("\\begin{document}")[1]
    assert "offset(i, j) = 1 + 1·i + 12·j" in exported


@pytest.mark.skipif(shutil.which("xelatex") is None, reason="no XeLaTeX here")
def test_xelatex_sets_every_character(exported, tmp_path):
    """The PDF is made; no character is missing, no line runs over the edge."""
    (tmp_path / "out.tex").write_text(exported, encoding="utf-8")
    command = ["xelatex", "-interaction=nonstopmode", "out.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    log = (tmp_path / "out.log").read_text(encoding="utf-8", errors="replace")
    assert ran.returncode == 0, [line for line in log.splitlines() if line.startswith("!")]
    assert "Missing character" not in log
    assert "Overfull" not in log
    assert (tmp_path / "out.pdf").stat().st_size > 10_000
