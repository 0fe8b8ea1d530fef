"""The parts that every panel is made of: card, header, all-clear, section, disclosure, scrolled table.

One module, so that a person who has read one panel can read them all: what it is about stands at the top left, what is
wrong right under it, then sections by the same headings, and behind a plus sign what is not needed at once. Everything
works without scripts, and reads in order where styles are stripped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensormagic.renderers.basics.icons import icon
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.styling import sheet


def panel(kind: str, label: str, parts: Iterable[str], *, css: Sequence[str] = (), extra: str = "") -> str:
    """Return a panel as a ``<section>`` that needs nothing from outside.

    Args:
        kind: Its classes beside ``tm``: ``tm-why``.
        label: What a screen reader calls it.
        parts: Its content, markup already.
        css: The files of ``static/`` that are its own.
        extra: Rules that no file holds.
    """
    body = "".join(parts)
    return tag("section", tag("style", sheet(*css, extra=extra)), body, class_=f"tm {kind}", aria_label=label)


def header(  # noqa: PLR0913  (all but title and facts is keyword-only)
    title: str,
    facts: Iterable[str] = (),
    *,
    about: str = "",
    badges: str = "",
    second: Iterable[str] = (),
    lead: str = "",
) -> str:
    """Return the header: what this is, the first facts beside it, badges at the right; all are markup already.

    Args:
        title: What the panel is about; set as code.
        facts: One after the other on the line of the title.
        about: The icon that says what kind of thing that is.
        badges: At the right.
        second: Quiet lines below.
        lead: The answer, as a sentence in large type.
    """
    name = tag("b", title, class_="tm-name")
    described = (fact if fact.startswith("<") else tag("span", fact) for fact in facts if fact)
    line = tag("p", (icon(about) if about else "") + " ".join([name, *described]), class_="tm-line")
    right = " " + tag("p", badges, class_="tm-badges") if badges else ""
    below = "".join(tag("p", text, class_="tm-second quiet") for text in second if text)
    answer = tag("p", lead, class_="tm-lead") if lead else ""
    return tag("header", line, right, answer, below, class_="tm-head")


def all_clear(text: str) -> str:
    """Return the line that says that nothing was found; ``text`` is plain."""
    return tag("p", icon("ok"), " ", escape(text), class_="tm-clear")


def section(title: str, *content: str, about: str = "", more: str = "", class_: str = "") -> str:
    """Return a section with its heading; nothing where there is no content.

    Args:
        title: Plain text; none where empty.
        content: Markup.
        about: What the section shows, in quiet words beside the heading; plain text.
        more: Markup at the end of the heading's line.
        class_: Its own classes beside ``tm-section``.
    """
    body = "".join(content)
    if not body:
        return ""
    return tag("div", heading(title, about, more) if title else "", body, class_=f"tm-section {class_}".strip())


def heading(title: str, about: str = "", more: str = "") -> str:
    """Return the heading of a section; see `section`."""
    sentence = " " + tag("span", escape(about), class_="quiet") if about else ""
    return tag("div", tag("h3", escape(title)), sentence, more, class_="tm-about")


def fold(title: str, *content: str, state: str = "", is_open: bool = False) -> str:
    """Return what opens on demand: a heading behind a plus sign, with what it would show in quiet words beside it."""
    body = "".join(content)
    if not body:
        return ""
    sentence = " " + tag("span", escape(state), class_="quiet") if state else ""
    inside = tag("div", body, class_="tm-inside")
    return tag("details", tag("summary", title, sentence), inside, class_="tm-fold", open="" if is_open else None)


def folds(*each: str) -> str:
    """Return disclosures side by side; nothing where there are none."""
    shown = " ".join(one for one in each if one)
    return tag("div", shown, class_="tm-folds") if shown else ""


def scroll(label: str, *content: str, class_: str = "") -> str:
    """Return content that is as high as it may be and scrolls beyond, by the keyboard too; ``label`` names it."""
    pairs = {"class_": f"tm-scroll {class_}".strip(), "tabindex": "0", "role": "region", "aria_label": label}
    pairs["data_lm_suppress_shortcuts"] = "true"  # JupyterLab would take the arrow keys for its own
    return tag("div", *content, **pairs)
