"""One set of icons: severities, and what a panel is about; monochrome, in the colour of the text around them.

A severity is a text sign with a shape over it: the style sheet cuts the shape out, and where styles are stripped the
sign stays; what a panel is about has no sign. Icons are decoration: the word beside one says the same, so none has a
text alternative of its own.
"""

from __future__ import annotations

from tensormagic.renderers.basics.markup import tag

# Name → the sign where there are no styles, and the shape in a box of 14 by 14.
ICONS: dict[str, tuple[str, str]] = {
    "error": ("\u2716", "M7 .5 13.5 7 7 13.5.5 7zM6.1 3.6v4.2h1.8V3.6zM6.1 8.9v1.7h1.8V8.9z"),
    "warning": ("\u25b2", "M7 .8 13.7 13H.3zM6.2 5v4h1.6V5zM6.2 10v1.6h1.6V10z"),
    "note": ("\u25cb", "M7 .5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM6.2 3.4h1.6V5H6.2zM6.2 6h1.6v4.7H6.2z"),
    "ok": ("\u2714", "M1 7.6 2.5 6.1 5.4 9 11.5 2.6 13 4.1 5.4 12z"),
    "tensor": ("", "M1 1h5.4v5.4H1zM7.6 1H13v5.4H7.6zM1 7.6h5.4V13H1zM7.6 7.6H13V13H7.6zM8.8 8.8v3h3v-3z"),
    "graph": ("", "M1 5.2h3.6v1.2h4.2V3.2h4v3.2H10v1.2h2.8v3.2h-4V7.6H4.6v1.2H1z"),
    "memory": ("", "M1 1.5h12v3H1zM1 5.5h12v3H1zM1 9.5h12v3H1zM2.2 10.7v.6h6v-.6z"),
    "random": ("", "M2 1h10v12H2zM4 3v2h2V3zM8 3v2h2V3zM6 6v2h2V6zM4 9v2h2V9zM8 9v2h2V9z"),
    "code": ("", "M1 2.2h8v1.6H1zM3 5.4h10V7H3zM3 8.6h7v1.6H3zM1 11.8h5v1.6H1z"),
    "compare": ("", "M4 1v2h9v1.6H4v2L.8 3.8zM10 7.4l3.2 2.8L10 13v-2H1V9.4h9z"),
}
SIGNS = {name: sign for name, (sign, _) in ICONS.items()}


def icon(name: str) -> str:
    """Return an icon of the set."""
    return tag("span", SIGNS[name], class_=f"tm-icon tm-i-{name}", aria_hidden="true")


def icon_style() -> str:
    """Return the shapes of all icons."""
    return "".join(f'.tm .tm-i-{name}{{--icon:path(evenodd,"{shape}")}}' for name, (_, shape) in ICONS.items())
