"""How every panel looks: in its place among the others, as high as it may be, and as it looked when it was last judged.

The pictures in ``tests/snapshots/appearance`` are a few dozen pixels wide: letters are grey there, so that another font
changes little, and a lost column, a wrong theme or a missing style sheet changes much.
``TENSORMAGIC_SNAPSHOTS=refresh`` takes them anew; then look at ``make gallery`` before you commit them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tensormagic.reports.comparison import LossPair
from tensormagic.views import to_html
from tensormagic.views.panels import comparison
from tests.views import samples_comparison
from tools.exhibits import EXHIBITS, Exhibit

pytestmark = pytest.mark.browser

FOLDER = Path(__file__).parents[1] / "snapshots" / "appearance"
REFRESH = os.environ.get("TENSORMAGIC_SNAPSHOTS") == "refresh"
WIDTH, MOST_HEIGHT, PHONE_HEIGHT = 1000, 576, 1500
SMALL = 40  # pixels across of a picture that is compared
MEAN, MOST = 4.0, 40.0  # of 255: how far all pixels may be off in the mean, and the worst twentieth of them
# Higher than a laptop's cell: where a run went wrong the graph, the norms and the source stand open beside each other,
# because the fault is found by looking from one to the other.
# The graph of a healthy run stays open, too, up to the height of a screen; a listing shows its lines, up to twenty.
HIGHER = {
    "trace_error": 640, "trace_failed": 885, "ranks_error": 860, "forward": 832, "operations": 840,
    "trace_huge": 915, "tensor_channels": 612, "tensor_huge": 586, "memory_run": 660, "memory_run_huge": 680,
    "writes": 675,
}  # fmt: skip
STATIC = [one for one in EXHIBITS if not one.viewer]
SETTLED = """async () => {
    for (let last = -1, same = 0; same < 3; last = document.body.offsetHeight) {
        await new Promise(requestAnimationFrame);
        same = document.body.offsetHeight === last ? same + 1 : 0;
    }
}"""
# The height of each panel, and how its elements are styled; what the line "Export" brings has a style of its own.
LOOKS = """() => Object.fromEntries([...document.querySelectorAll("[data-panel]")].map((place) => {
    const all = [...place.querySelectorAll("section *")].filter((one) => !one.closest("svg,style,script,.tm-export"));
    const asked = ["color", "background", "padding", "margin", "font", "display", "textAlign", "verticalAlign",
        "whiteSpace", "minWidth", "maxWidth", "border", "overflow", "maxHeight"];
    const styles = all.map((one) => {
        const style = getComputedStyle(one);
        return [one.tagName, one.className, ...asked.map((key) => style[key])].join("; ");
    });
    const height = [...place.children].reduce((sum, one) => sum + one.offsetHeight, 0);
    return [place.dataset.panel, { height, styles: place.querySelector(".tmv") ? [] : styles }];
}))"""
# Numbers along a strip that are cut off, or that run into the next.
RUN_TOGETHER = """() => [...document.querySelectorAll(".tm-offsets")].flatMap((row) => {
    const shown = [...row.querySelectorAll("td")].filter((one) => one.checkVisibility({ visibilityProperty: true })
        && one.textContent.trim());
    const ends = shown.map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return { words: one.textContent, box: range.getBoundingClientRect(), cut:
            getComputedStyle(one).overflow === "hidden" && one.scrollWidth > one.clientWidth + 1 };
    });
    return ends.filter((one, at) => one.cut || one.box.right > (ends[at + 1]?.box.left ?? Infinity))
        .map((one) => one.words);
})"""
SHRUNK = """async ([url, width]) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [width, Math.max(Math.round(image.height * width / image.width), 1)];
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return [canvas.toDataURL(), [canvas.height, ...pen.getImageData(0, 0, canvas.width, canvas.height).data]];
}"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """One page for all pictures."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 100})
    yield page
    page.close()


@dataclass
class Seen:
    """What is seen of a panel by itself: how far it is from its pictures, its style, its width, and it on a phone."""

    off: dict[str, tuple[float, float]]
    look: dict[str, Any]
    width: int
    on_a_phone: tuple[int, list[list[str]]]


@pytest.fixture(scope="module")
def seen(page: Page) -> dict[str, Seen]:
    """Each panel, shown once: small, huge and in trouble, its viewer at work."""
    return {one.name: _seen(page, one) for one in EXHIBITS}


def _seen(page: Page, one: Exhibit) -> Seen:
    _show(page, one.html())
    page.evaluate("name => { document.body.dataset.panel = name }", one.name)
    look = page.evaluate(LOOKS)[one.name]
    width = page.evaluate("document.documentElement.scrollWidth")
    off = {}
    for side in ("light", "dark"):
        page.emulate_media(color_scheme=side)
        off[side] = _as_judged(page, f"{one.name}_{side}")
    page.set_viewport_size({"width": 400, "height": 100})
    page.emulate_media(color_scheme="light")
    page.evaluate(SETTLED)
    on_a_phone = page.evaluate("document.body.offsetHeight"), page.evaluate(RUN_TOGETHER)
    page.set_viewport_size({"width": WIDTH, "height": 100})
    return Seen(off, look, width, on_a_phone)


GROUND = "body { margin: 0; background: #fff } @media (prefers-color-scheme: dark) { body { background: #111 } }"


def _show(page: Page, html: str) -> None:
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto("about:blank")  # a viewer leaves its style sheet with the document
    page.set_content(f'<!doctype html><html lang="en"><title>.</title><style>{GROUND}</style><body>{html}')
    if "data-tm-waiting" in html:
        page.locator(".tmv").first.wait_for()
    if 'data-tm-code="export' in html:
        page.locator(".tm-export").first.wait_for(state="attached")
    page.evaluate(SETTLED)


def _shrunk(page: Page, picture: bytes) -> tuple[str, list[int]]:
    url, pixels = page.evaluate(SHRUNK, [_url(picture), SMALL])
    return url, pixels


def _url(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _taken(page: Page) -> bytes:
    return page.locator("body > *").first.screenshot(animations="disabled")


def _off(one: list[int], other: list[int]) -> tuple[float, float]:
    """How far two small pictures are apart: the mean, and the worst twentieth; endless where their heights are."""
    if abs(one[0] - other[0]) > 1 + one[0] // 12:
        return 255.0, 255.0
    apart = sorted(abs(a - b) for a, b in zip(one[1:], other[1:], strict=False))
    return sum(apart) / len(apart), apart[-len(apart) // 20]


def _as_judged(page: Page, name: str) -> tuple[float, float]:
    url, seen = _shrunk(page, _taken(page))
    file = FOLDER / f"{name}.png"
    if REFRESH:
        FOLDER.mkdir(exist_ok=True)
        file.write_bytes(base64.b64decode(url.partition(",")[2]))
    return _off(seen, _shrunk(page, file.read_bytes())[1])


def test_every_panel_looks_as_it_was_judged(seen: dict[str, Seen]) -> None:
    """Each panel, small, huge and in trouble, its viewer at work, in light and in dark, is what its pictures show."""
    off = {(name, side): off for name, one in seen.items() for side, off in one.off.items()}
    assert {at: (mean, worst) for at, (mean, worst) in off.items() if mean > MEAN or worst > MOST} == {}


@pytest.mark.parametrize(
    "broken",
    [
        lambda html: html.replace("<style>", "<style media=none>"),
        lambda html: html.replace("color-scheme:light dark", "color-scheme:dark", 1),
        lambda html: html.replace("</style>", ".tm .tm-head{display:none!important}</style>", 1),
        lambda html: html.replace(
            "</style>", ".tm.tm table{width:35%!important;margin-left:300px!important}</style>", 1
        ),
    ],
    ids=["no style", "wrong side", "no header", "squeezed"],
)
def test_a_broken_panel_looks_otherwise(page: Page, broken) -> None:
    """The comparison can fail: without styles, on the wrong side, without its header, with its table out of place."""
    tensors = next(one for one in EXHIBITS if one.name == "tensors")
    _show(page, broken(tensors.html()))
    stored = (FOLDER / "tensors_light.png").read_bytes()
    mean, worst = _off(_shrunk(page, _taken(page))[1], _shrunk(page, stored)[1])
    assert mean > MEAN or worst > MOST


def test_every_panel_fits_a_cell_and_leaves_the_others_alone(page: Page, seen: dict[str, Seen]) -> None:
    """Nothing is wider than the page or higher than a laptop's cell; among all others each looks as it does alone."""
    assert {name: one.width for name, one in seen.items() if one.width > WIDTH} == {}
    alone = {name: one.look for name, one in seen.items()}
    heights = {name: look["height"] for name, look in alone.items()}
    assert {name: high for name, high in heights.items() if high > HIGHER.get(name, MOST_HEIGHT)} == {}
    assert {name for name in HIGHER if heights[name] <= MOST_HEIGHT} == set()
    _show(page, "".join(map(_named, STATIC)))
    page.wait_for_function(f"() => document.querySelectorAll('.tm-export').length >= {len(STATIC)}")
    page.evaluate(SETTLED)
    together = page.evaluate(LOOKS)
    assert _others(alone, together) == []


def test_on_a_phone_nothing_is_absurdly_high_and_numbers_stay_apart(seen: dict[str, Seen]) -> None:
    """No column is squeezed to a letter, and a number beside a strip is whole or not there."""
    shown = {one.name: seen[one.name].on_a_phone for one in STATIC}
    assert {name: height for name, (height, _) in shown.items() if height > PHONE_HEIGHT} == {}
    assert {name: words for name, (_, words) in shown.items() if words} == {}


def test_the_ends_of_a_loss_axis_are_whole(static_page: Callable[..., Page]) -> None:
    """A loss that has fallen to rounding is written with ten characters."""
    losses = (LossPair(0, 1.0, 0.5), LossPair(1, 1e-9, 0.5), LossPair(2, 1.388e-17, 0.5))
    report = replace(samples_comparison.SAMPLES["larger"], losses=losses)
    page = static_page(to_html.render(comparison.view(report)), width=500)
    low = page.get_by_text("1.388e\u221217", exact=True).last
    assert (
        low.evaluate("one => one.getBoundingClientRect().left - one.closest('figure').getBoundingClientRect().left")
        >= 0
    )


def _named(one: Exhibit) -> str:
    return f'<div data-panel="{one.name}">{one.html()}</div>'


def _others(alone: dict[str, Any], together: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the elements that look otherwise among other panels: where, how alone, how among them."""
    return [
        (name, before, after)
        for name, look in together.items()
        for before, after in zip(alone[name]["styles"], look["styles"], strict=True)
        if before != after
    ]
