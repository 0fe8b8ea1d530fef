"""Reports in a PDF: text as LaTeX that sets what no font of LaTeX has."""

from __future__ import annotations

import re
import shutil
import subprocess

import nbformat
import pytest
from nbconvert import LatexExporter

from tensormagic.magics.frames import bundle
from tensormagic.views.page.files import listing
from tests.views.test_every_renderer import RENDERERS

TEXTS = {one.name: one.render(next(iter(one.samples.values()))) for one in RENDERERS if one.output == "text"}
# What Latin Modern Mono has beyond ASCII, of what we write; XeLaTeX leaves out anything else without a word.
IN_THE_FONT = set("±²³µ·×–—•…←→−\u00a0é")
CALL = re.compile(r"\\tm(?:l|s|r(?:\d|\{\d+\}){4}|x(?:\d|\{\d+\}){3})(?:\d|\{\d+\})")


def body(latex: str) -> str:
    """Return what is between the beginning and the end of the listing."""
    return latex.split("\\scriptsize]\n", 1)[1].removesuffix("\n\\end{Verbatim}")


@pytest.mark.parametrize("name", TEXTS)
def test_a_report_holds_only_what_the_font_has(name):
    """As many lines as the text; blocks, boxes and lines are rules, whose numbers no listing can misread."""
    text = TEXTS[name]
    inner = body(listing(text))
    assert len(inner.splitlines()) == len(text.rstrip("\n").splitlines())
    plain = CALL.sub("", inner)
    assert "\\tm" not in plain
    assert {letter for letter in plain if not letter.isascii()} <= IN_THE_FONT


def test_rules_stand_for_characters():
    """A run is one rule as wide as it; a bar is as high as its eighths; a corner has its two arms."""
    assert body(listing("───")) == r"\tml{24}"
    assert body(listing("█▄▌")) == r"\tms8\tms4\tmr84{220}00"
    assert body(listing("▄▄▄▄")) == r"\tmr{32}{32}{110}00"
    assert body(listing("░")) == r"\tmr88{220}0{85}"
    assert body(listing("┌│")) == r"\tmx44{119}0\tmx40{220}0"
    assert body(listing("▲ 3 ≠ 4")) == "^ 3 != 4"


def test_hostile_text_stays_text():
    """A name cannot end the listing, nor call a command of LaTeX."""
    inner = body(listing("\\end{Verbatim}\\input{/etc/passwd}"))
    assert inner == r"\textbackslash{}end\{Verbatim\}\textbackslash{}input\{/etc/passwd\}"


@pytest.fixture(scope="module")
def exported() -> str:
    """A notebook with a panel of every kind, as ``nbconvert --to latex`` writes it."""
    cells = [nbformat.v4.new_code_cell("show()") for one in RENDERERS if one.output == "html"]
    samples = [next(iter(one.samples.values())) for one in RENDERERS if one.output == "html"]
    for cell, sample in zip(cells, samples, strict=True):
        cell.outputs = [nbformat.v4.new_output("display_data", bundle(sample))]
    return LatexExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))[0]


def test_nbconvert_takes_the_listing(exported):
    """Each output is our listing, and no picture is asked for, which would need Inkscape."""
    assert exported.count("\\providecommand\\tmr") == sum(one.output == "html" for one in RENDERERS)
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
