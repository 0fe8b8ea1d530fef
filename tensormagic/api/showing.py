"""The ways out of a report: on the screen, into a file, or as a page with the examples."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tensormagic.errors import TensorMagicError, UnknownTopicError

if TYPE_CHECKING:
    from tensormagic.reports import Report

_display: Callable[..., None] | None = None
MOST_FOUND = 12  # pages that are listed for a word


def install_display(display: Callable[..., None] | None) -> None:
    """Say how `show` shows where more than text is possible; None: as text. The notebook extension calls this."""
    global _display  # noqa: PLW0603  (the one seam by which a notebook shows reports)
    _display = display


def show(report: Report, *, slide: bool = False) -> None:
    """Show a report: rich in a notebook with the extension loaded, and in marimo, else as text on standard output.

    Args:
        report: What is shown.
        slide: For a projector: large type, one part at a time, with the arrow keys; text has no such form.

    Raises:
        TensorMagicError: for anything that is not a report.
    """
    from tensormagic.collectors.requirements import what
    from tensormagic.reports import Report

    if not isinstance(report, Report):
        raise TensorMagicError(f"show() takes a report, but was given {what(report)}; try inspect(x) first")
    if _display is not None:
        _display(report, slide=slide)
    elif not _into_marimo(report, slide=slide):
        from tensormagic.views.page.terminal import print_report

        print_report(report)


def _into_marimo(report: Report, *, slide: bool) -> bool:
    """Append a report to the output of the marimo cell that is running; False where none is.

    marimo is asked only where somebody else has imported it: what it shows is what `Report` says of itself.
    """
    marimo = sys.modules.get("marimo")
    if marimo is None or not marimo.running_in_notebook():
        return False
    from tensormagic import views

    marimo.output.append(marimo.iframe(views.render(report, "html", slide=True)) if slide else report)
    return True


# Where the files are that come with the package beside its code: examples, and the pages of the documentation.
#
# In a checkout they lie in its root. An installation puts them under ``share/tensormagic``, of which there are
# several: the environment's, the user's own (``pip install --user``), and the one beside the package
# (``--target``).

_ROOT = Path(__file__).resolve().parents[2]


def shipped(kind: str) -> list[Path]:
    """Return the folders in which files of that kind can lie, ``"examples"`` or ``"docs"``, most likely first."""
    installed = (sysconfig.get_path("data"), sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")), _ROOT)
    checkout = [_ROOT] if (_ROOT / "pyproject.toml").is_file() else []  # else a folder ``examples`` is somebody else's
    return [folder / kind for folder in (*checkout, *(Path(each, "share", "tensormagic") for each in installed))]


# The documentation where the user is: its pages come with the package, so that help needs no network.
#
# A page is known by its topic, which is the name of its file: ``TM302``, ``tracegrad``, ``how_it_works``. What a
# user types is taken generously: ``tm302``, ``%%tracegrad``, ``how it works``.

INDEX = "index"
# What the parts of a topic list are called, and the folder of their pages.
PARTS = {"": "", "recipes": "recipes", "magics": "magics", "findings": "diagnoses"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_MOST_LINKS = 12


def help_topics() -> dict[str, tuple[str, ...]]:
    """Return all topics by part, each part in the order of the index.

    Raises:
        TensorMagicError: where the pages are not there.
    """
    folder = _folder()
    index = (folder / f"{INDEX}.md").read_text(encoding="utf-8")
    order = [PurePosixPath(target).stem for _, _, target in _LINK.findall(index)]

    def place(topic: str) -> tuple[int, str]:
        return (order.index(topic) if topic in order else len(order), topic)

    names = {part: [path.stem for path in (folder / name).glob("*.md")] for part, name in PARTS.items()}
    return {part: tuple(sorted(found, key=place)) for part, found in names.items()}


def help_page(asked: str, command: str = "%tensormagic help") -> str:
    """Return the page on a topic: Markdown that can be read by itself, links as the words that open them.

    Args:
        asked: The topic, as a user types it.
        command: What shows a page where this one will be read.

    Raises:
        UnknownTopicError: where there is none; says which are near.
        TensorMagicError: where the pages are not there.
    """
    texts = {topic: text for _, topic, text in _pages()}
    words = asked.strip().strip("`\"'").removesuffix(".md")
    cell = words.startswith("%%")
    words = re.sub(r"[\s-]+", "_", words.lstrip("%")).lower()
    by_name = {topic.lower().replace("-", "_"): topic for topic in texts}
    for name in ([f"{words}_cell"] if cell else []) + [words]:
        if name in by_name:
            return _by_itself(texts[by_name[name]], command)
    near = [by_name[name] for name in get_close_matches(words, by_name, n=3, cutoff=0.5)]
    near += [by_name[name] for name in by_name if len(words) > 2 and words in name and by_name[name] not in near]
    hint = f" did you mean {' or '.join(near[:5])}?" if near else ""
    raise UnknownTopicError(f"there is no page on {asked!r};{hint} `{command}` lists all topics")


def _pages() -> Iterator[tuple[str, str, str]]:
    """Yield part, topic and text of every page, in the order of the index."""
    folder = _folder()
    for part, topics in help_topics().items():
        for topic in topics:
            yield part, topic, (folder / PARTS[part] / f"{topic}.md").read_text(encoding="utf-8")


def help_found(words: str, command: str = "%tensormagic help") -> str:
    """Return a list of the pages that hold all of some words, in the title first; empty where there is none.

    Raises:
        TensorMagicError: where the pages are not there.
    """
    wanted = [word for word in re.findall(r"\w+", words.lower()) if len(word) > 2]
    every = []
    for _, topic, text in _pages():
        counts = [len(re.findall(rf"\b{re.escape(word)}\b", text.lower())) for word in wanted]
        if counts and all(counts):
            title = _title(text)
            every.append((not all(word in title.lower() for word in wanted), -sum(counts), topic, title))
    found = [(topic, title.removeprefix(f"{topic}: ")) for *_, topic, title in sorted(every)]
    lines = [f"  {topic:<14} {title}" for topic, title in found[:MOST_FOUND]]
    more = [f"  and {len(found) - MOST_FOUND} more"] if len(found) > MOST_FOUND else []
    head = [f"pages about {words.strip()}: {command} TOPIC shows one:"] if found else []
    return "\n".join((*head, *lines, *more))


def help_index() -> str:
    """Return all topics as text, each with its title: what there is to be asked for.

    Raises:
        TensorMagicError: where the pages are not there.
    """
    pages = list(_pages())
    width = max(len(topic) for _, topic, _ in pages)
    parts: dict[str, list[str]] = {}
    for part, topic, text in pages:
        parts.setdefault(part, []).append(f"  {topic:<{width}} {_title(text).removeprefix(f'{topic}: ')}")
    return "\n\n".join("\n".join((f"{part or 'pages'}:", *lines)) for part, lines in parts.items())


def _folder() -> Path:
    folders = shipped("docs")
    found = next((folder for folder in folders if (folder / f"{INDEX}.md").is_file()), None)
    if found is None:
        places = " nor ".join(map(str, folders))
        raise TensorMagicError(f"the documentation is in neither {places}: install tensormagic again")
    return found


def _title(text: str) -> str:
    return text.split("\n", 1)[0].lstrip("# ").replace("`", "")


def _by_itself(text: str, command: str) -> str:
    """Return a page as it can be read alone: what its links lead to is said at its end."""
    topics: dict[str, None] = {}

    def described(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if re.match(r"\w+:", target):
            return link[0]
        name = PurePosixPath(target.partition("#")[0])
        if name.suffix == ".md" and not target.startswith(("#", "../../")):
            topics[name.stem] = None
        return "" if picture else words

    body = re.sub(r"\n{3,}", "\n\n", _LINK.sub(described, text)).rstrip()
    named = ", ".join(f"`{command} {topic}`" for topic in [*topics][:_MOST_LINKS])
    rest = f" and others: `{command}` lists them" if len(topics) > _MOST_LINKS else ""
    return f"{body}\n\nSee also {named}{rest}.\n" if topics else f"{body}\n"
