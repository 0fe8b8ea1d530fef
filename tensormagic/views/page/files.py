"""What a notebook or a file is given of a report."""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from uuid import uuid4

from tensormagic import views
from tensormagic.errors import TensorMagicError
from tensormagic.reports import Report
from tensormagic.reports.base import gc_paused
from tensormagic.views.markup import escape, made_once, plain, tag
from tensormagic.views.text_canvas import LOOKALIKES
from tensormagic.words import error_text

# An output for exports that let hardly a tag through and print the others: nbconvert with ``sanitize_html``.
#
# Such an export reads on inside ``<style>`` and ``<script>``, where a browser reads no markup. The panel stands
# between two marks that a browser takes for a style sheet and for a script of no known kind, both without effect;
# what the export makes of the same marks is a comment around the panel, which it drops, and the text of the report
# after it. JupyterLab, where a notebook is not trusted, and GitHub drop style and script with what they hold: they
# show the panel and no text.

MOST_TEXT = 2_400  # bytes, of which a drawn line takes three a character: what comes first is what matters
_BEFORE, _AFTER = "<style><!--</style>", '<script type="text/plain">-->{}</script>'
_ENDS = ("-->", "--!>")  # of a comment: with one of them in the panel, the rest of it would be printed
_ALL = (
    "This export removed the panel; to export the rest of its text:"
    " jupyter nbconvert --NbConvertBase.display_data_priority=\"['text/plain']\""
)


def with_text(html: str, text: str) -> str:
    """Return an output with the text that a sanitised export shows in its place.

    Of a long text the beginning is taken, and said how the rest is had.
    """
    if any(end in html for end in _ENDS):
        return html
    if len(written := text.encode()) > MOST_TEXT:
        lines, _, cut = written[:MOST_TEXT].decode(errors="ignore").rpartition("\n")
        text = f"{lines or cut}\n\n{_ALL}"
    return tag("div", _BEFORE, html, _AFTER.format(tag("pre", tag("code", escape(text)))))


# A report in a PDF: its text as LaTeX, with every bar, box and line drawn as a rule.
#
# ``nbconvert --to pdf`` takes ``text/latex`` where there is one, else the plain text. The font that it sets plain
# text in has neither blocks nor box drawings: XeLaTeX leaves them out without an error, and everything to their right
# stands in the wrong column. Rules need no font. They are as wide as a character of whatever font is in use
# (``\fontdimen2``, the width of a space), so that columns stay columns; LaTeX's ``fancyvrb``, which every export of
# notebooks loads, sets them.

# Widths are in eighths of a character, heights in hundredths of an ex above the lower end of a full block. All of them
# are whole numbers from 0: in the listings of a notebook "-" and "." are commands.
_FULL, _TOP = 8, 220
_RULE = (119, 109)  # where a horizontal line begins and ends, seen from above: in the macros too
# \tmr: advance, width, upper and lower end, grey. \tmx: where the horizontal arm begins and how long it is, upper and
# lower end of the vertical one. A number of one digit needs no braces.
_MACROS = r"""\providecommand\tmw{\dimexpr\fontdimen2\font/8\relax}\providecommand\tmh{\dimexpr.01ex\relax}%
\providecommand\tmr[5]{{\ifdefined\color\color[gray]{.#5}\fi
\lower.5ex\hbox to#1\tmw{\vrule width#2\tmw height#3\tmh depth-#4\tmh\hfil}}}%
\providecommand\tmx[4]{\lower.5ex\hbox to8\tmw{\rlap{\kern#1\tmw\vrule width#2\tmw height119\tmh depth-109\tmh}%
\kern3.8\tmw\vrule width10\tmh height#3\tmh depth-#4\tmh\hfil}}%
"""
# width, upper and lower end, grey
_RULES = {
    "─": (_FULL, *_RULE, 0), "░": (_FULL, _TOP, 0, 85), "▒": (_FULL, _TOP, 0, 65), "▓": (_FULL, _TOP, 0, 40),
    **{letter: (_FULL, _TOP * (at + 1) // 8, 0, 0) for at, letter in enumerate("▁▂▃▄▅▆▇█")},
    **{letter: (at + 1, _TOP, 0, 0) for at, letter in enumerate("▏▎▍▌▋▊▉")},
}  # fmt: skip
# left, right, up, down
_ARMS = {
    "│": (0, 0, 1, 1), "┌": (0, 1, 0, 1), "┐": (1, 0, 0, 1), "└": (0, 1, 1, 0), "┘": (1, 0, 1, 0),
    "├": (0, 1, 1, 1), "┤": (1, 0, 1, 1), "┬": (1, 1, 0, 1), "┴": (1, 1, 1, 0), "┼": (1, 1, 1, 1),
}  # fmt: skip
_FOUND_IN_FONTS = frozenset("±²³µ·×–—•…←→−\u00a0")
_ESCAPES = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}"}


def listing(text: str) -> str:
    """Return plain text as a LaTeX listing, small enough that 100 columns fit the page."""
    set_ = "".join(_run(letter, len(list(run))) for letter, run in groupby(text.rstrip("\n")))
    return f"{_MACROS}\\begin{{Verbatim}}[commandchars=\\\\\\{{\\}},fontsize=\\scriptsize]\n{set_}\n\\end{{Verbatim}}"


def _run(letter: str, times: int) -> str:
    """Return a run of one character; of what is as wide as the run is, one rule."""
    if rule := _RULES.get(letter):
        width, *more = rule
        long = times if width == _FULL else 1
        return _call("tmr", _FULL * long, width * long, *more) * (times // long)
    if letter in _ARMS:
        left, right, up, down = _ARMS[letter]
        upper, lower = (_TOP if up else _RULE[0]), (0 if down else _RULE[1])
        return _call("tmx", (1 - left) * 4, (left + right) * 4, upper, lower) * times
    letters = letter if letter in _FOUND_IN_FONTS else LOOKALIKES.get(letter, letter)
    return "".join(_ESCAPES.get(one, one) for one in letters) * times


def _call(macro: str, *numbers: int) -> str:
    return f"\\{macro}" + "".join(f"{number}" if number < 10 else f"{{{number}}}" for number in numbers)


# A report for hosts that choose for themselves: one mimebundle, from which each front end takes the best it can show.
#
# HTML is what notebooks show; the text is for terminals and for hosts that trust no HTML; as LaTeX it is for PDF.
# There is no widget in it and no ``image/svg+xml``: a widget would be dead in a saved notebook, and an SVG beside it
# makes an export to LaTeX fail where Inkscape is missing.


def bundle(report: Report, *, folded: bool = False, slide: bool = False) -> dict[str, str]:
    """Return a report as static HTML, as text, and as this text for LaTeX; what cannot be drawn becomes a line."""

    def drawn(form: str) -> str:
        try:
            if form == "html" and (slide or folded):
                return views.render(report, form, slide=True) if slide else views.folded(report)
            return views.render(report, form)
        except Exception as error:  # noqa: BLE001  (showing never raises)
            reason = plain(f"tensormagic could not draw this report as {form}: {error_text(error)}")
            return escape(reason) if form == "html" else reason

    with gc_paused(), made_once():
        html, text = drawn("html"), drawn("txt")
    return {"text/html": with_text(html, text), "text/latex": listing(text), "text/plain": text}


# The ways out of a report: files, figures and text; the first report that is drawn imports this.
#
# A file appears whole or not at all: what is written first is a neighbour with a name of its own, which then takes
# the place of what stood there. A save that fails leaves the old file as it was, and no other.

_FORMS = {".html": "html", ".htm": "html", ".svg": "svg", ".txt": "txt", ".json": "json"}
_PACKED = {".gz", ".bz2", ".xz", ".zip", ".zst"}
_PICTURES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".pdf"}
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body{{margin:16px;background:Canvas;color-scheme:light dark}}"
    "main>:is(h1,h2){{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}</style></head>"
    "<body><main><h1>tensormagic</h1><h2>{title}</h2>{body}</main></body></html>\n"
)


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form in which a report is written to ``path``.

    Raises:
        TensorMagicError: where its ending names none; what is given, what there is, and what to do instead.
    """
    suffix = Path(path).suffix.lower()
    if form := _FORMS.get(suffix):
        return form
    advice = ""  # of an ending that people try
    if suffix in _PACKED:
        advice = f"; compressed files are not supported: save without {suffix}, and compress the file yourself"
    elif suffix in _PICTURES:
        browser = "save as .svg, or as .html and choose Export there (PNG), or print it (PDF)"
        advice = f"; {suffix} needs a browser: {browser}"
    endings = f"the file's extension selects the format: {', '.join(_FORMS)}"
    raise TensorMagicError(f"cannot save to {os.fspath(path)!r}: {endings}{advice}")


def save(report: Report, path: str | os.PathLike[str], *, slide: bool = False) -> None:
    """Write ``report`` in the form that the ending of ``path`` names; a folder that is not there is made."""
    form = form_of(path)
    if slide and form != "html":
        raise TensorMagicError(f"slides are a page: save to .html, not to {os.fspath(path)!r}")
    try:
        target = Path(path).expanduser().resolve()
    except (ValueError, RuntimeError) as error:  # a NUL in it, a link to itself, a ~ of nobody
        raise TensorMagicError(f"cannot create the file {os.fspath(path)!r}: {error}") from error
    if target.is_symlink():  # Python 3.13 resolves a link to itself to that link
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
    if form == "json":
        text = json.dumps(report.to_dict(), allow_nan=False, indent=1)
    elif form == "html":
        body = views.render(report, form, in_file=True, slide=slide)
        text = _PAGE.format(title=escape(f"tensormagic: {report.kind_name}"), body=body)
    else:
        text = views.render(report, form)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # "file exists" would sound as if that were needed
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent)) from error
    _replace(target, text)


def _replace(target: Path, text: str) -> None:
    """Put ``text`` where ``target`` is, all of it or nothing; permissions stay what they were."""
    # A replacement would go around a file's own protection: writing to it would have been refused.
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    part = target.with_name(f".{target.name[:80]}.{uuid4().hex[:8]}.part")
    try:
        with part.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):  # it names the file that was asked for, not the neighbour that nobody knows
            error.filename = str(target)
            del error.filename2  # set to None it would be shown
        raise
