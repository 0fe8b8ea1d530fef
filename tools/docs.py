"""Builds the documentation site: ``make docs`` writes it to build/docs/html, with every notebook run.

The sources are the Markdown under docs/, as it reads on GitHub, and the notebooks under examples/. They are copied to
build/docs/source in the places that they have on the site; tables of contents and the pages of the API, which would be
of no use on GitHub, are added there. Nothing is loaded from the network, neither now nor by the pages.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sphinx.cmd.build import build_main

import tensormagic

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "tools" / "site"
OUTPUT = ROOT / "build" / "docs"

# The parts of the sidebar: a caption, and patterns of pages, each in the order in which it is there.
CONTENTS = {
    "Start": ("quick_start.md", "topics.md", "how_it_works.md", "libraries.md", "hosts.md", "comparison.md"),
    "Recipes": ("recipes/*.md",),
    "Magics": ("magics/*.md", "command.md"),
    "Findings": ("findings.md",),
    "Python": ("api.md",),
    "Examples": ("examples/*",),
    "Project": ("changes.md", "stability.md", "*.md"),
}
# Pages that have pages of their own below them.
BELOW = {
    "findings.md": ("diagnoses/*.md",),
    "api.md": ("api/functions.md", "api/managers.md", "api/errors.md", "api/reports.md", "api/*.md"),
}
_NAMES = {"README": "index", "CONTRIBUTING": "contributing", "CHANGELOG": "changes"}
_UP = re.compile(r"\]\(((?:\.\./)*)\.\./(examples/|README|CONTRIBUTING|CHANGELOG)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\.png\)")
_REPORTS = "tensormagic.reports"
_PAGES = (".md", ".ipynb")
_LINKED = re.compile(r"\]\(([^)#\s]+)\.md")
_LESSON = re.compile(r"\[(\d\d [^\]]+)\]\((examples/\w+)\.")  # in the map of the course: number, name and page


def assemble(source: Path, *, run_scripts: bool) -> None:
    """Lay out the sources of the site in a folder that is made anew; a script is run for what it prints."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    (source / "examples").mkdir()
    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        text = notebook.read_text(encoding="utf-8").replace("](../docs/", "](../")
        (source / "examples" / notebook.name).write_text(text, encoding="utf-8")
    for script in sorted((ROOT / "examples").glob("*.py")):
        _write_script(script, source / "examples", run=run_scripts)
    shutil.copy(ROOT / "CHANGELOG.md", source / "changes.md")
    shutil.copy(ROOT / "CONTRIBUTING.md", source / "contributing.md")
    _write_api(source / "api")
    for page in source.rglob("*.md"):
        page.write_text(_as_on_the_site(page), encoding="utf-8")
    _write_contents(source)


def _as_on_the_site(page: Path) -> str:
    """Return a page's text with its links as they are on the site, and a picture for each side of the theme."""
    text = page.read_text(encoding="utf-8")
    text = _UP.sub(lambda found: f"]({found[1]}{_NAMES.get(found[2], found[2])}", text)

    def both(found: re.Match[str]) -> str:
        if not (page.parent / f"{found[2]}_dark.png").exists():
            return found[0]
        return f"![{found[1]}]({found[2]}.png){{.only-light}}![{found[1]}]({found[2]}_dark.png){{.only-dark}}"

    return _PICTURE.sub(both, text)


def _write_script(script: Path, folder: Path, *, run: bool) -> None:
    """Write a page that shows a script and what it prints, and lets it be downloaded."""
    shutil.copy(script, folder)
    code = script.read_text(encoding="utf-8")
    title = code.lstrip('#" \n').split("\n", 1)[0].strip().rstrip('".')
    page = f"# {title}\n\n[`{script.name}`]({script.name})\n\n```python\n{code.rstrip()}\n```\n"
    page += f"\nIt prints:\n\n```text\n{_printed(script).rstrip()}\n```\n" if run else ""
    folder.joinpath(f"{script.stem}.md").write_text(page, encoding="utf-8")


def _printed(script: Path) -> str:
    """Run a script in a folder of its own; return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        command = [sys.executable, str(script)]
        return subprocess.run(command, cwd=folder, env=settings, check=True, capture_output=True, text=True).stdout


def _write_api(folder: Path) -> None:
    """Write the pages that autodoc fills: functions, what they hand out, errors, and the reports with their fields."""
    folder.mkdir()
    public = {name: getattr(tensormagic, name) for name in tensormagic.__all__ if "ipython" not in name}
    classes = {name: value for name, value in public.items() if isinstance(value, type)}
    errors = [name for name, value in classes.items() if issubclass(value, Exception)]
    runs = [name for name, value in classes.items() if value.__module__.startswith("tensormagic.api")]
    functions = [name for name in public if name not in classes]
    _write_rst(folder / "functions.md", "Functions", [f".. autofunction:: tensormagic.{name}" for name in functions])
    _write_rst(folder / "managers.md", "Context managers", [_members("class", f"tensormagic.{name}") for name in runs])
    _write_rst(folder / "errors.md", "Errors", [_members("exception", f"tensormagic.{name}") for name in errors])
    own = {value.__module__ for value in classes.values() if value.__module__.startswith(_REPORTS)}
    modules = [f"{_REPORTS}.{path.stem}" for path in sorted((ROOT / "tensormagic" / "reports").glob("[!_]*.py"))]
    _write_modules(folder / "reports.md", "Reports", [name for name in modules if name in own])
    _write_modules(
        folder / "reports_parts.md", "What reports are made of", [name for name in modules if name not in own]
    )


def _members(kind: str, name: str) -> str:
    return f".. auto{kind}:: {name}\n   :members:"


def _write_rst(page: Path, title: str, parts: Iterable[str]) -> None:
    page.write_text(f"# {title}\n\n{_rst(parts)}", encoding="utf-8")


def _write_modules(page: Path, title: str, modules: Iterable[str]) -> None:
    parts = [f"## `{name}`\n\n{_rst([_members('module', name)])}" for name in modules]
    page.write_text(f"# {title}\n\n" + "\n".join(parts), encoding="utf-8")


def _rst(parts: Iterable[str]) -> str:
    return "```{eval-rst}\n" + "\n\n".join(parts) + "\n```\n"


def _write_contents(source: Path) -> None:
    """Add the tables of contents: without them a page could be reached by links alone."""
    below = {page: _matching(source, patterns) for page, patterns in BELOW.items()}
    placed = {"index.md", *(page for pages in below.values() for page in pages)}
    for caption, patterns in CONTENTS.items():
        pages = [page for page in _matching(source, patterns) if page not in placed]
        placed.update(pages)
        _append_contents(source / "index.md", pages, caption)
    for page, pages in below.items():
        _append_contents(source / page, pages)


def _matching(source: Path, patterns: Iterable[str]) -> list[str]:
    """Return the pages of some patterns: of each, those that the index links to in its order, then the others."""
    order = [f"{name}.md" for name in _LINKED.findall((source / "index.md").read_text(encoding="utf-8"))]
    found: dict[str, None] = {}
    for pattern in patterns:
        pages = [page.relative_to(source).as_posix() for page in source.glob(pattern) if page.suffix in _PAGES]
        pages.sort(key=lambda page: (order.index(page) if page in order else len(order), page))
        found |= dict.fromkeys(pages)
    return list(found)


def _append_contents(page: Path, pages: list[str], caption: str = "") -> None:
    if pages:
        head = "\n```{toctree}\n:hidden:\n" + (f":caption: {caption}\n" if caption else "")
        lessons = _lessons(page.with_name("topics.md"))
        names = "\n".join(lessons.get(name, name) for name in (path.rpartition(".")[0] for path in pages))
        with page.open("a", encoding="utf-8") as file:
            file.write(f"{head}\n{names}\n```\n")


def _lessons(course: Path) -> dict[str, str]:
    """Return the entries of the sidebar that are called otherwise than their pages: a lesson has its number there."""
    if not course.is_file():
        return {}
    found = _LESSON.findall(course.read_text(encoding="utf-8"))
    return {page: f"{title} <{page}>" for title, page in reversed(found)}


def build(output: Path, *, run_notebooks: bool) -> int:
    """Build the site; warnings are errors.

    Returns:
        Sphinx's exit status: 0 where all went well.
    """
    assemble(output / "source", run_scripts=run_notebooks)
    shutil.rmtree(output / "html", ignore_errors=True)
    os.environ["TENSORMAGIC_DOCS_NOTEBOOKS"] = "force" if run_notebooks else "off"
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # Jupyter's own settings and kernels of the user stay out
    os.environ["IPYTHONDIR"] = str(settings(output / "settings"))
    flags = ("-q", "-W", "--keep-going", "-E", "-j", "auto", "-b", "html")
    places = ("-c", str(SITE), "-d", str(output / "doctrees"), str(output / "source"), str(output / "html"))
    return build_main([*flags, *places])


def settings(folder: Path) -> Path:
    """Make settings for the kernels: none of the user's start-up files, and no alarm that TCP is not encrypted.

    The outputs of a notebook come to lie on one page of the site, which needs the viewer once; what runs the notebooks
    does not say so.
    """
    profile = folder / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    lines = ("c = get_config()", 'c.IPKernelApp.log_level = "ERROR"', 'c.TensorMagic.viewer = "once"\n')
    profile.joinpath("ipython_kernel_config.py").write_text("\n".join(lines), encoding="utf-8")
    return folder.resolve()


def main() -> int:
    """Build the site as the arguments say."""
    parser = argparse.ArgumentParser(description="Builds the documentation site.")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where to; by default build/docs")
    parser.add_argument("--fast", action="store_true", help="without running the notebooks")
    given = parser.parse_args()
    status = build(given.output, run_notebooks=not given.fast)
    if not status:
        print(f"open {given.output / 'html' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
