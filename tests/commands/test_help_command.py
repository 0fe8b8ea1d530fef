"""``python -m tensormagic help``: the documentation in a terminal, and into a pipe."""

from __future__ import annotations

import subprocess
import sys

from tensormagic.commands import main
from tests.support.kernel import ROOT


def test_a_page_is_printed(capsys):
    """Into a pipe or a file as Markdown, which can be read as it is."""
    assert main(["help", "TM302"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# TM302: a saved tensor changed without autograd noticing\n")
    assert "`python -m tensormagic help TM301`" in out


def test_words_make_a_topic(capsys):
    """A topic of several words needs no quotes."""
    assert main(["help", "aliases", "cell"]) == 0
    assert capsys.readouterr().out.startswith("# `%%aliases`\n")


def test_words_are_looked_up_in_the_pages(capsys):
    """What is no topic is searched for, as behind %tensormagic."""
    assert main(["help", "nan"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pages about nan: python -m tensormagic help TOPIC shows one:\n")
    assert "TM402" in out


def test_the_list_is_set_in_two_columns(capsys):
    """Also where a topic has a long name."""
    main(["help"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    column = {row.index(row.split(maxsplit=1)[1]) for row in rows}
    assert len(rows) > 50
    assert len(column) == 1


def test_an_unknown_topic_fails(capsys):
    """With the near ones, and how to see all."""
    assert main(["help", "TM999"]) == 1
    out = capsys.readouterr().out
    assert "there is no page on 'TM999'; did you mean TM" in out
    assert "`python -m tensormagic help` lists all topics" in out


def test_a_reader_that_stops_early_is_no_error():
    """``python -m tensormagic help | head -1`` ends without a traceback."""
    command = [sys.executable, "-m", "tensormagic", "help"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
