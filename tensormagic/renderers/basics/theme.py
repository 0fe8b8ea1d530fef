"""Colours, type and spacing: the design tokens that every HTML panel uses, and the colour scales as functions.

Two sides, light and dark: JupyterLab's theme attribute decides where there is one, VS Code's body class likewise, the
system setting elsewhere. All text colours keep at least 4.5:1 on their surface. Scales are monotone in lightness, so
that a picture survives greyscale printing and colour blindness: offsets use cividis (Nuñez, Anderton and Renslow,
2018, doi:10.1371/journal.pone.0199239), gradient norms one blue family.
"""

from __future__ import annotations

import math

# Ten control points of cividis, as published with Matplotlib (CC0), interpolated linearly between.
_CIVIDIS = (
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
)  # fmt: skip

# log10 of the gradient norm, low to high: each step a lighter-to-darker (light side) or darker-to-lighter (dark side).
NORM_SCALE_LIGHT = ("#b9d2de", "#8fb6c9", "#6498b4", "#3f789d", "#2a5484", "#1f2f63")
NORM_SCALE_DARK = ("#38566a", "#4a7188", "#6190a8", "#84b1c6", "#b0d2de", "#eef7f2")
NORM_EXPONENTS = (-5.0, 1.0)  # log10 of the norms at which the scale starts and ends

TOKENS = """
.tm{--s1:2px;--s2:4px;--s3:8px;--s4:12px;--s5:16px;--s6:24px;--radius:4px;--t-xs:11px;--t-sm:12px;--t-md:13px;--t-lg:16px;
--font-ui:var(--jp-ui-font-family,var(--vscode-font-family,system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif));
--font-code:var(--jp-code-font-family,var(--vscode-editor-font-family,ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace));
--bg:#fff;--bg-2:#f5f6f8;--band:#eff1f4;--ink:#1b1f24;--ink-2:#545d68;--line:#d5dae0;--line-2:#868f99;--hatch:#9aa2ac;--skip:#eceef1;
--bar:#5b6672;--accent:#1f5fa8;--error:#b3261e;--error-bg:#fdf3f2;--warning:#8a4b00;--warning-bg:#fdf6ea;--note:#1f5fa8;--note-bg:#f1f6fc;
--ok:#1b6b3a;--n0:#b9d2de;--n1:#8fb6c9;--n2:#6498b4;--n3:#3f789d;--n4:#2a5484;--n5:#1f2f63;color-scheme:light}
%s
.tm{box-sizing:border-box;max-width:960px;background:var(--bg);color:var(--ink);border:1px solid var(--line);border-radius:var(--radius);
font:var(--t-sm)/1.4 var(--font-ui);font-variant-numeric:tabular-nums}
.tm *{box-sizing:border-box}.tm code,.tm .code{font-family:var(--font-code);font-size:inherit}.tm .quiet{color:var(--ink-2)}
.tm :focus-visible{outline:2px solid var(--accent);outline-offset:1px;border-radius:var(--radius)}
@media (prefers-reduced-motion:reduce){.tm *{transition:none!important;animation:none!important}}
"""

_DARK = (
    "--bg:#16181c;--bg-2:#1d2025;--band:#22262c;--ink:#e9ecf0;--ink-2:#a4adb8;--line:#343a42;--line-2:#7d8793;--hatch:#5d6671;"
    "--skip:#1d2126;--bar:#a4adb8;--accent:#8ab8f5;--error:#ff9f97;--error-bg:#2a1b1b;--warning:#efb45c;--warning-bg:#29231a;"
    "--note:#8ab8f5;--note-bg:#1a222c;--ok:#7fd1a0;--n0:#38566a;--n1:#4a7188;--n2:#6190a8;--n3:#84b1c6;--n4:#b0d2de;--n5:#eef7f2;"
    "--ink-on-dark:invert(1) hue-rotate(180deg);color-scheme:dark"  # of pictures that are drawn dark on light
)
_DARK_RULES = (
    f'@media (prefers-color-scheme:dark){{:root:not(:has([data-jp-theme-light="true"],.vscode-light)) .tm{{{_DARK}}}}}'
    f'[data-jp-theme-light="false"] .tm,body.vscode-dark .tm,.tm.tm-dark{{{_DARK}}}'
)

# Eight hues that stay apart in every kind of colour blindness: Okabe and Ito (2008, jfly.uni-koeln.de/color), with grey
# in place of black.
KIND_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999")


def stylesheet() -> str:
    """Return the tokens and base rules of the ``.tm`` panel, both sides."""
    return TOKENS % _DARK_RULES


def offset_colour(fraction: float) -> str:
    """Return the cividis colour at ``fraction`` in [0, 1] as ``#rrggbb``."""
    at = min(max(fraction, 0.0), 1.0) * (len(_CIVIDIS) - 1)
    low = min(int(at), len(_CIVIDIS) - 2)
    pairs = zip(_CIVIDIS[low], _CIVIDIS[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in pairs)


def ink_on(colour: str) -> str:
    """Return the ink, ``#fff`` or ``#111``, that has the higher contrast on ``colour`` (WCAG 2 relative luminance)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#fff" if 1.05 / (luminance + 0.05) >= (luminance + 0.05) / (0.0056 + 0.05) else "#111"


def norm_level(norm: float) -> int:
    """Return which of the six steps of the norm scale a finite, positive norm falls on: 0 (tiny) to 5 (large)."""
    low, high = NORM_EXPONENTS
    if norm <= 0:
        return 0
    fraction = (math.log10(norm) - low) / (high - low)
    return min(max(int(fraction * 6), 0), 5)
