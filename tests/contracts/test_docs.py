"""What the documentation says is what the code does: examples run and give what they claim, no option is missing.

The message of a finding is quoted on its page. ``TENSORMAGIC_SNAPSHOTS=refresh pytest tests/contracts/test_docs.py``
writes the quotes anew; the difference is then read in the commit.
"""

from __future__ import annotations

import argparse
import re
import runpy
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tensormagic
from tensormagic.commands import COMMANDS, parser as command_parser
from tensormagic.diagnoses import RULES
from tensormagic.magics import about
from tensormagic.magics.extension import TensorMagic
from tensormagic.views.page.figures import KINDS
from tests.corpus.no_gpu import generators_checked
from tests.support.apart import run_apart
from tests.support.kernel import ROOT
from tests.views.snapshots import REFRESH

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CODES = list(dict.fromkeys(rule.code for rule in RULES))
MODULES = {"aliases_cell": "writes"}  # of the pages that are called otherwise
PARSERS = {
    path.stem: about.magic(MODULES.get(path.stem, path.stem)).parser
    for path in sorted((DOCS / "magics").iterdir())
    if path.stem not in {"tensormagic", "explain"}  # these take words, no options
}
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of that language in a page."""
    return [text for marked, text in FENCE.findall(page.read_text(encoding="utf-8")) if marked == language]


def run(source: str, folder: Path) -> dict[str, object]:
    """Run a block as the file ``example.py``; return its names, of one that starts processes the report alone."""
    path = folder / "example.py"
    if "multiprocessing" in source:
        path.write_text(f"{source}\nif 'report' in globals(): report.save('report.json')\n", encoding="utf-8")
        print(run_apart(path), end="")
        return {"report": tensormagic.load(folder / "report.json")} if (folder / "report.json").exists() else {}
    path.write_text(source, encoding="utf-8")
    with generators_checked():
        return runpy.run_path(str(path))


def assert_quoted(page: Path, message: str) -> None:
    """Compare the one ``text`` block of a page with a message, or write it there where a refresh was asked for."""
    if REFRESH:
        text = page.read_text(encoding="utf-8")
        quote = f"```text\n{message}\n```"
        page.write_text(re.sub(r"```text\n.*?\n```", lambda _: quote, text, flags=re.DOTALL), encoding="utf-8")
    # Depends on what the process holds anyway, and on who is late on a machine that is busy with something else.
    about = re.compile(r"about [\d.]+ times|last in 2\d of 22")
    (quoted,) = blocks(page, "text")
    assert about.sub("about", quoted) == about.sub("about", message + "\n")


def assert_printed(page: Path, source: str, printed: str) -> None:
    """Compare what an example prints with the block of text below it, or write it there where that was asked for."""
    wanted = f"```python\n{source}```\n\n```text\n{printed.rstrip()}\n```"
    text = page.read_text(encoding="utf-8")
    if REFRESH:
        old = re.compile(re.escape(f"```python\n{source}```\n\n```text\n") + r".*?```", re.DOTALL)
        page.write_text(old.sub(lambda _: wanted, text), encoding="utf-8")
    else:
        assert wanted in text, printed


def relative(path: Path) -> str:
    """Return a page's path below the project, as the name of its test case."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_page_with_its_title(code):
    """The page of a code is headed by the code and the title that the table of rules gives it."""
    title = next(rule.title for rule in RULES if rule.code == code)
    text = (DOCS / "diagnoses" / f"{code}.md").read_text(encoding="utf-8")
    assert text.splitlines()[0] == f"# {code}: {title}"
    for section in ("## Symptom", "## Cause", "## Fix"):
        assert section in text


def test_no_page_is_about_a_code_that_is_not_there():
    """The pages are those of the table of rules, and the index lists all of them."""
    assert sorted(path.stem for path in (DOCS / "diagnoses").iterdir()) == sorted(CODES)
    index = (DOCS / "findings.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(diagnoses/(TM\d+)\.md\)", index) == CODES


@pytest.mark.parametrize("code", CODES)
def test_the_symptom_gives_exactly_this_finding_and_the_page_quotes_it(code, tmp_path):
    """The first example of a page gives its finding and no other, in the words that stand below it."""
    page = DOCS / "diagnoses" / f"{code}.md"
    report = run(blocks(page, "python")[0], tmp_path)["report"]
    assert [finding.code for finding in report.findings] == [code]
    assert_quoted(page, report.findings[0].message)
    assert f"*A {report.findings[0].severity}" in page.read_text().replace("*An ", "*A ")


@pytest.mark.parametrize("code", CODES)
def test_the_fix_gives_no_finding(code, tmp_path):
    """The second example of a page, which mends the first, has nothing to be found."""
    examples = blocks(DOCS / "diagnoses" / f"{code}.md", "python")
    assert len(examples) == 2
    assert run(examples[1], tmp_path)["report"].findings == ()


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name != "diagnoses"], ids=relative)
def test_examples_on_other_pages_run(path, tmp_path, capsys, monkeypatch):
    """Every Python block runs, and prints what a comment says, and what the block of text below it quotes."""
    monkeypatch.chdir(tmp_path)
    for number, (source, quoted) in enumerate(EXAMPLE.findall(path.read_text(encoding="utf-8"))):
        folder = tmp_path / str(number)  # Python remembers the lines of a file by its path
        folder.mkdir()
        run(source, folder)
        printed = capsys.readouterr().out
        for told in re.findall(r"^print\(.*\)\s+# ([(\d].*|torch\.\w+)$", source, re.MULTILINE):
            assert told.split("…")[0] in printed
        if quoted or path.parent.name == "recipes":
            assert_printed(path, source, printed)


def _told(magic: str) -> list[argparse.Action]:
    """Return what the help of a magic lists: a figure only where there is one."""
    return [action for action in PARSERS[magic]()._actions if action.help != argparse.SUPPRESS]


@pytest.mark.parametrize("magic", PARSERS)
def test_every_option_is_on_the_magics_page(magic):
    """What ``--help`` lists stands in the page's table of options, with its choices."""
    text = (DOCS / "magics" / f"{magic}.md").read_text(encoding="utf-8")
    options = [line for line in text.splitlines() if line.startswith("| `-")]
    told = set(re.findall(r"`(--?[a-z]+)", " ".join(line.split("|")[1] for line in options)))
    parsed = [action for action in _told(magic) if action.option_strings]
    assert told == {option for action in parsed for option in action.option_strings}
    for action in parsed:
        assert [choice for choice in action.choices or () if f"`{choice}`" not in text] == []


@pytest.mark.parametrize("magic", PARSERS)
def test_the_usage_line_names_every_option(magic):
    """The line at the head of the page has every option but help."""
    usage = blocks(DOCS / "magics" / f"{magic}.md", "")[0]
    parsed = [action for action in _told(magic) if not isinstance(action, argparse._HelpAction)]
    longest = {action.option_strings[0] for action in parsed if action.option_strings} - {"--help"}
    assert {option for option in longest if option not in usage} == set()


def test_every_magic_is_held_to_its_page():
    """None is left out above: what takes options has a parser, and what `%tensormagic` lists has a page."""
    assert {MODULES.get(name, name) for name in PARSERS} == set(about.MAGICS)
    names = {name for kind in TensorMagic.magics.values() for name in kind}
    assert {name.removesuffix("_cell") for name in PARSERS} == names - {"tensormagic"}


def test_every_word_of_the_magic_that_takes_words_is_on_its_page():
    """`%tensormagic` takes `check`, `help` and switches: each in the line at the head of its page, and told below."""
    text = (DOCS / "magics" / "tensormagic.md").read_text(encoding="utf-8")
    usage, told = text.split("```\n")[1], text.partition("## ")[2]
    for word in (about.HELP, "check", *about.SWITCHES):
        assert word in usage, word
        assert re.search(rf"`%tensormagic {word}\b", text), word
    assert [name for name in about.SWITCHES if f"`%config TensorMagic.{name}`" not in told] == []


def test_every_option_of_a_command_is_told():
    """What `python -m tensormagic COMMAND --help` lists stands in the command's row, and nothing else does."""
    lines = (DOCS / "command.md").read_text(encoding="utf-8").splitlines()
    rows = {found[1]: line for line in lines if (found := re.match(r"\| `python -m tensormagic (\w+)", line))}
    assert sorted(rows) == sorted(COMMANDS)
    (choices,) = (action.choices for action in command_parser()._actions if isinstance(action.choices, dict))
    for name, made in choices.items():
        options = {option for action in made._actions for option in action.option_strings}
        assert set(re.findall(r"--\w+", rows[name])) == options - {"-h", "--help"}, name


def test_every_call_and_every_figure_is_in_the_list_of_calls():
    """What can be had from Python stands in the table, each at the beginning of a row, and each kind of figure."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    heads = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    calls = {name for name in tensormagic.__all__ if name.islower() and not name.endswith("_ipython_extension")}
    assert {name for name in calls if f"`tm.{name}(" not in heads} == set()
    assert {kind for kind in KINDS if f'`"{kind}"`' not in text} == set()


def test_the_targets_that_are_named_are_there():
    """What the pages say to `make` can be made."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text(encoding="utf-8"))}
    assert named
    assert named - targets == set()


def table_below(path: Path, head: str) -> str:
    """Return the table whose first line begins with ``head``."""
    text = path.read_text(encoding="utf-8")
    return text[text.index(head) :].partition("\n\n")[0]


def test_the_costs_are_those_of_the_readme():
    """What was measured stands twice, and is the same."""
    head = "| forward + backward of |"
    assert table_below(DOCS / "how_it_works.md", head) == table_below(ROOT / "README.md", head)


def test_twenty_questions_are_one_click_away():
    """Each question of the index leads to a heading; that of a recipe is the question, with an example that runs."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. \[(.+\?)\]\(([\w/]+\.md)#([\w-]+)\)$", index, re.MULTILINE)
    assert len(asked) >= 20
    for question, target, place in asked:
        page = (DOCS / target).read_text(encoding="utf-8")
        headings = {anchor(heading): heading for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
        assert place in headings, target
        if target.startswith("recipes/"):
            assert headings[place] == question
            assert "```python" in page.partition(f"## {question}\n")[2].partition("\n## ")[0]


def test_every_example_has_its_place_in_the_course():
    """The map of the course leads to each example, and to an example from each of its topics."""
    text = (DOCS / "topics.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./(examples/[^)]+)\)", text))
    assert linked == {relative(path) for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"}}
    topics = text.partition("## By topic")[2].partition("\n## ")[0].split("\n| ")[2:]
    assert len(topics) == 26
    assert [topic for topic in topics if "](../examples/" not in topic or "](magics/" not in topic] == []


def anchor(heading: str) -> str:
    """Return the name that GitHub and the site give to a heading's place."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", sorted((DOCS / "recipes").glob("*.md")), ids=lambda path: path.stem)
def test_recipes_name_magics_that_there_are(path):
    """Each recipe says what to type in a notebook, and that is there."""
    text = path.read_text(encoding="utf-8")
    names = {name for kind in TensorMagic.magics.values() for name in kind}
    assert {found for found in re.findall(r"`%%?(\w+)", text) if found not in names} == set()
    recipes = text.split("\n## ")[1:]
    assert [recipe.split("\n")[0] for recipe in recipes if not re.search(r"[Ii]n a notebook:\s[^.]*`%", recipe)] == []


def test_every_setting_and_every_magic_has_its_place():
    """The settings are listed with their values, and each magic has a page that the index links to."""
    settings = (DOCS / "magics" / "tensormagic.md").read_text(encoding="utf-8")
    for name, trait in TensorMagic.class_own_traits(config=True).items():
        assert f"`%config TensorMagic.{name}`" in settings
        assert [value for value in getattr(trait, "values", ()) if f'`"{value}"`' not in settings] == []
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    names = {name for kind in TensorMagic.magics.values() for name in kind}
    assert {name for name in names if f"](magics/{name}.md)" not in index} == set()


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=relative)
def test_links_lead_somewhere(path):
    """Every link and picture of a page that is not an address on the web is a file of the project."""
    targets = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if not urlsplit(target).scheme]
    assert [target for target in targets if not (path.parent / target.partition("#")[0]).exists()] == []
