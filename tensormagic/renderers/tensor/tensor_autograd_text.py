"""The autograd section in a terminal: sentences, the way to the leaves as a tree, what saved tensors."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor.tensor_autograd_words import (
    details_of,
    lines,
    path_note,
    saved_rows,
    sent_heads,
    sent_rows,
)
from tensormagic.renderers.tensor.tensor_words import name
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.reports import AutogradDetails, Path, PathNode, TensorReport
from tensormagic.words import shortened, tuple_text

MOST_LINES = 14
_INDENT = 12


def autograd_text(report: TensorReport, width: int) -> list[str]:
    """Return the section; nothing where autograd could not be read."""
    sentences = " ".join(line.replace("`", "") for line in lines(report))
    if not sentences:
        return []
    details = details_of(report)
    found = textwrap.wrap(sentences, width, initial_indent=" AUTOGRAD  ", subsequent_indent=" " * (_INDENT - 1))
    return found + (_details(details, name(report), width) if details is not None else [])


def _details(details: AutogradDetails, title: str, width: int) -> list[str]:
    found: list[str] = []
    if details.path is not None:
        found += [" " * (_INDENT - 1) + line for line in tree(details.path, title)]
        note = path_note(details.path)
        found += [" " * (_INDENT - 1) + note] if note else []
        sent = [tuple(map(str.upper, sent_heads(details.path))), *sent_rows(details.path)]
        found += table(sent, indent=_INDENT - 1, width=width)
    if details.saved:
        saved = [("KEEPS", "WHAT", "STATE", "VERSION"), *saved_rows(details)]
        found += table(saved, indent=_INDENT - 1, width=width)
    return found


def tree(path: Path, title: str) -> list[str]:
    """Return the way to the leaves as an indented tree, each node once; iterative, and cut after a few lines."""
    found, seen = [shortened(title, 40)], set[int]()
    pending = [(0, "", True)]
    while pending and len(found) < MOST_LINES:
        place, stem, last = pending.pop()
        branch = "\u2514 " if last else "\u251c "
        found.append(f"{stem}{branch}{_words(path.nodes[place])}{' (as above)' if place in seen else ''}")
        if place in seen:
            continue
        seen.add(place)
        inner = stem + ("  " if last else "\u2502 ")
        following = [to for to in path.nodes[place].inputs if to >= 0]
        pending += [(to, inner, at == 0) for at, to in enumerate(reversed(following))]
    return found + (["\u2026"] if pending else [])


def _words(node: PathNode) -> str:
    shape = tuple_text(node.shape)
    if node.is_leaf:
        return f"{shortened(node.name, 40) or 'leaf'} {shape}, a leaf{', grad there' if node.has_grad else ''}"
    made = f" \u2192 {shortened(node.name, 24)}" if node.name else ""
    return f"{node.node} {shape}{made}" + (f"  ! saved tensor {node.saved}" if node.saved else "")
