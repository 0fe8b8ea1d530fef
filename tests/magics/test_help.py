"""``%tensormagic help``: the documentation below the cell, without a network."""

from __future__ import annotations

import re

import pytest

from tensormagic import api
from tensormagic.api import showing
from tensormagic.diagnoses import RULES
from tensormagic.errors import TensorMagicError
from tensormagic.views.page.terminal import print_markdown
from tests.support.kernel import ROOT
from tests.support.screen import Screen, Terminal


def complete(shell, line):
    _, matches = shell.complete(line.split(" ")[-1], line, len(line))
    return matches


@pytest.mark.parametrize(
    ("asked", "topic"),
    [
        ("TM302", "TM302"),
        ("tm302", "TM302"),
        ("%%tracegrad", "tracegrad"),
        ("%gpumem", "gpumem"),
        ("%%gpumem", "gpumem_cell"),
        ("%%rng", "rng"),
        ("`TM302`", "TM302"),
    ],
)
def test_what_a_person_types_is_taken_for_the_topic(asked, topic):
    """Case and marks of magics do not matter; a cell magic with a page of its own gets that."""
    assert api.help_page(asked) == api.help_page(topic)


def test_every_page_can_be_asked_for():
    """The topics are the names of all pages, each once, with every code of a finding among them."""
    topics = [topic for part in api.help_topics().values() for topic in part]
    assert sorted(topics) == sorted(path.stem for path in (ROOT / "docs").rglob("*.md"))
    assert {rule.code for rule in RULES} <= set(topics)
    assert len({api.help_page(topic) for topic in topics}) == len(set(topics))


def test_a_page_stands_by_itself():
    """No picture, no link to a file; what they led to is said at the end, in words that open it."""
    for part in api.help_topics().values():
        for topic in part:
            text = api.help_page(topic)
            assert re.findall(r"\]\((?!https://)[^)]*\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)) == [], topic
    assert api.help_page("TM302").endswith("\nSee also `%tensormagic help tracegrad`, `%tensormagic help TM301`.\n")


def test_a_page_with_many_links_says_how_to_see_the_rest():
    """In words that open the list, wherever the page is read."""
    assert showing.help_page("findings").endswith(" and others: `%tensormagic help` lists them.\n")
    assert showing.help_page("findings", "python -m tensormagic help").endswith(
        " and others: `python -m tensormagic help` lists them.\n"
    )


def test_a_page_that_is_not_there_has_near_ones(cell):
    """A slip of the fingers is no dead end."""
    ran = cell("%tensormagic help tracgrad")
    told = "there is no page on 'tracgrad'; did you mean tracegrad? `%tensormagic help` lists all topics"
    assert told in str(ran.error)


def test_pages_that_are_not_installed(monkeypatch, tmp_path):
    """A broken installation says where it looked; completion offers the switches all the same."""
    from tensormagic.magics.completion import _words_after

    monkeypatch.setattr(showing, "shipped", lambda kind: [tmp_path / kind])
    with pytest.raises(TensorMagicError, match=re.escape(str(tmp_path / "docs"))):
        api.help_page("TM302")
    assert list(_words_after([])) == ["explain", "watch", "check", "help"]


@pytest.mark.parametrize("line", ["%tensormagic help TM302", "%tensormagic TM302"])
def test_in_a_notebook_the_page_is_shown_as_markdown(cell, line):
    """As the front end sets Markdown; the text of the page is there for what cannot."""
    (shown,) = cell(line).shown
    assert shown["text/markdown"].startswith("# TM302: a saved tensor changed without autograd noticing\n")
    assert shown["text/plain"] == shown["text/markdown"]


def test_topics_are_listed(cell):
    """Each with its title, by part."""
    out = cell("%tensormagic help").out
    assert "\n  TM302           a saved tensor changed without autograd noticing\n" in out
    assert "\n  tracegrad       %%tracegrad\n" in out


def test_help_tells_of_help(cell):
    """%tensormagic alone says that there is more."""
    assert "%tensormagic help tracegrad, %tensormagic TM302" in cell("%tensormagic").out


def test_in_a_notebook_the_magics_are_a_table(notebook, cell):
    """Each magic in a row, and each has a page; the text is there for what cannot show a table."""
    (shown,) = cell("%tensormagic").shown
    lines = re.findall(r"^\| `(%%?[a-z]+)` \| [A-Z]", shown["text/markdown"], re.MULTILINE)
    assert {"%tensor", "%%tracegrad", "%%aliases", "%%gpumem"} <= set(lines)
    for line in lines:
        assert line == "%%rng" or api.help_page(line).startswith(f"# `{line}`\n")
    assert "| `%tensormagic explain on\\|off` | If on, PyTorch errors are explained" in shown["text/markdown"]
    assert shown["text/plain"].startswith("%tensor  ")


def test_tab_completes_topics(shell):
    """Behind help all topics, behind the magic alone switches as well."""
    assert complete(shell, "%tensormagic TM30") == [f"TM30{digit}" for digit in range(1, 10)]
    assert "tracegrad" in complete(shell, "%tensormagic help tra")
    assert {"explain", "watch", "help", "check"} <= set(complete(shell, "%tensormagic "))
    assert complete(shell, "%tensormagic explain o") == ["on", "off"]


def test_in_a_terminal_the_page_is_set(monkeypatch):
    """Headings and tables are drawn, not their marks; no line is wider than the window."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen(columns=80)  # which refuses what runs over its edge
    print_markdown(api.help_page("TM302"), Terminal(screen))
    text = "\n".join(screen.everything)
    assert "## Symptom" not in text
    assert "Symptom" in text
    assert "w.data.mul_(10)" in text


def test_words_are_looked_up_in_the_pages(cell):
    """What is no topic is searched for: pages with the word in their title come first."""
    told = cell("%tensormagic zero_grad").out
    assert told.startswith("pages about zero_grad: %tensormagic help TOPIC shows one:")
    assert "TM310" in told
    assert cell("%tensormagic NaN infinite").out.splitlines()[1].split()[0] in {"TM401", "TM402"}
    assert cell("%tensormagic help zero_grad").out == told
    assert cell("%tensormagic qwertz").error is not None
    assert "there is no page on 'qwertz'" in str(cell("%tensormagic help qwertz").error)


def test_a_question_mark_shows_examples(shell):
    """The docstring has the forms that a user types, and no marks of another language."""
    for name in ("tensor", "tensors", "gradgraph", "tracegrad", "why", "compare"):
        kind = "cell" if name == "tracegrad" else "line"
        told = shell.find_magic(name, kind).__doc__
        assert f"%{name} " in told, name
        assert "--help" in told, name
        assert "``" not in told, name
