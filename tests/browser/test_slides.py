"""Slides: a panel in large type, one part at a time, turned by keys while the focus is inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from tensormagic import api
from tests.views import samples_overlay, samples_sharing, samples_viewer
from tests.views.test_files import KINDS, sample
from tools.exhibits import EXHIBITS

# The smallest type of what is shown, in points of the screen; not in pictures, and not what is behind icons.
SMALLEST = """() => Math.min(...[...document.querySelectorAll(".tm-stage *")].filter((one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) && one.checkVisibility()
    && one.getBoundingClientRect().width > 2 && !one.closest("nav,svg,.tm-map,.tm-swatch,small,style,script"))
    .map((one) => Number.parseFloat(getComputedStyle(one).fontSize) * (one.currentCSSZoom ?? 1)).filter(Boolean))"""


@pytest.fixture
def slides(static_page: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Return a function that saves a report as slides, and opens them at the size of a projector."""

    def open_slides(kind: str, **options: object) -> Page:
        path = tmp_path / f"{kind}.html"
        sample(kind).save(path, slide=True)
        page = static_page(path, width=1920, **options)
        page.set_viewport_size({"width": 1920, "height": 1080})
        page.wait_for_timeout(300)  # it is laid out anew when it notices its size
        return page

    return open_slides


def position(page: Page | Locator, nav: str = ".tm-stage > nav span") -> tuple[int, int]:
    at, of = page.locator(nav).inner_text().split(" / ")
    return int(at), int(of)


@pytest.mark.parametrize("kind", KINDS)
def test_every_panel_has_slides(kind, slides):
    """Every part is on one, in type that is read from the last row, and nothing is wider than the wall.

    Of a run that several questions were asked of, each part is a show of its own, one below the other.
    """
    page = slides(kind)
    shows = page.locator(".tm-stage").all()
    assert (len(shows) > 1) == (kind == "run")
    for show in shows:
        if kind == "run":
            show.focus()
        count = position(show, "> nav span")[1]
        for at in range(1, count + 1):
            assert position(show, "> nav span") == (at, count)
            assert page.evaluate(SMALLEST) >= 23.5
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 1920
            show.press("ArrowRight")
        assert position(show, "> nav span") == (count, count)
    assert page.locator(".tm-stage details:not([open])").count() == 0


def test_findings_come_first_then_the_graph(slides):
    """One at a time: what is not shown is not there. The graph is the live one, and fills the wall."""
    page = slides("trace")
    expect(page.locator(".tm-find").get_by_text("the first NaN gradient is born in log")).to_be_visible()
    expect(page.locator(".canvas")).to_be_hidden()
    page.keyboard.press("PageDown")
    expect(page.locator(".canvas")).to_be_visible()
    assert position(page) == (2, 2)
    box, drawn = page.locator(".graph").bounding_box(), page.locator(".boxes").bounding_box()
    assert box["height"] > 600
    assert drawn["width"] > 0.85 * box["width"]
    assert page.locator(".box .name").first.bounding_box()["height"] > 24
    expect(page.get_by_role("button", name="play the order of backward")).to_be_visible()


def test_keys_go_on_after_a_click(slides):
    """What was clicked is not on the next slide: the focus is the slide's again, and keys turn on."""
    page = slides("trace")
    page.locator(".tm-find summary").first.click()
    for key, at in (("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.keyboard.press(key)
        assert position(page)[0] == at
    page.locator(".box").first.click()
    page.keyboard.press("PageUp")
    assert position(page)[0] == 1
    page.keyboard.press("ArrowRight")
    assert position(page)[0] == 2


def test_ways_to_turn(slides):
    """Keys, buttons, and a click on an edge; never past the ends."""
    page = slides("tensor")
    count = position(page)[1]
    for key, at in (
        ("Home", 1), ("ArrowLeft", 1), ("PageDown", 2), (" ", 3), ("PageUp", 2), ("ArrowLeft", 1), ("End", count),
        ("ArrowRight", count), ("Home", 1),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert position(page)[0] == at, key
    page.get_by_role("button", name="on (arrow right, Page Down)").click()
    assert position(page)[0] == 2
    page.mouse.click(1900, 500)
    assert position(page)[0] == 3
    page.mouse.click(20, 500)
    page.mouse.click(960, 1000)
    assert position(page)[0] == 2
    assert page.get_by_role("button", name="back (arrow left, Page Up)").is_enabled()


def test_full_screen(slides):
    """F fills the screen and gives it back; Escape leaves."""
    page = slides("tensor")
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement !== null")
    page.keyboard.press("ArrowRight")
    assert position(page)[0] == 2
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement === null")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert position(page)[0] == 2


def test_the_viewer_goes_on_working(slides):
    """Another element is picked by the arrow keys of the grid; the line between grid and strip meets both."""
    page = slides("tensor")
    page.keyboard.press("ArrowRight")
    page.locator(".tm-grid td").first.hover()
    page.locator(".tm-grid").focus()
    page.keyboard.press("ArrowRight")
    assert position(page)[0] == 2
    ends = page.evaluate("""() => {
        const [line] = document.querySelectorAll(".tm-wire path"), cell = document.querySelector(".tm-strip td.tm-on");
        const [path, box] = [line.getBoundingClientRect(), cell.getBoundingClientRect()];
        return [Math.max(path.left, path.right) - (box.left + box.width / 2), path.bottom - box.top];
    }""")
    assert all(abs(end) < 12 for end in ends), ends


def test_without_scripts_it_is_one_long_page(slides):
    """Large, everything open, nothing scrolled inside."""
    page = slides("memory", scripts=False)
    expect(page.get_by_text("held by").first).to_be_visible()
    assert page.locator("section.tm > header").evaluate("one => one.currentCSSZoom") == 2
    assert page.locator(".tm-scroll").first.evaluate("one => one.scrollHeight - one.clientHeight") <= 1


def test_in_jupyterlab(notebook):
    """In the output area: keys turn slides while the focus is inside, and belong to the notebook after Escape."""
    lab = notebook("%load_ext tensormagic\nimport torch; x = torch.full((2, 3), torch.nan)", "%tensor x --slide")
    lab.run()
    page, cells = lab.page, lab.page.locator(".jp-Cell").count()
    stage = lab.output(1).locator(".tm-stage")
    stage.focus()
    page.keyboard.press("ArrowRight")
    assert position(lab.output(1))[0] == 2
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert position(lab.output(1))[0] == 2
    assert page.locator(".jp-Cell").count() == cells
    box = stage.bounding_box()
    assert box["height"] <= 0.86 * page.viewport_size["height"] + 1


def test_a_long_table_goes_over_several_slides(static_page, tmp_path):
    """Each row is on one of them, under the heads of the table, and nothing has to be scrolled to."""
    path = tmp_path / "table.html"
    samples_sharing.TABLES["many"].save(path, slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.tm-stage .tm-rows th button')")
    page.wait_for_function("() => document.querySelector('.tm-stage > nav span').textContent.split(' / ')[1] > 3")
    page.keyboard.press("Home")
    seen = []
    for _ in range(position(page)[1]):
        rows = page.locator(".tm-stage tbody tr th").evaluate_all(
            "all => all.filter(one => one.checkVisibility()).map(one => one.textContent)"
        )
        expect(page.get_by_text("device", exact=True)).to_be_visible()
        assert page.locator(".tm-stage").evaluate("one => one.scrollHeight - one.clientHeight") <= 1
        seen += rows
        page.keyboard.press("ArrowRight")
    assert len(seen) == len(set(seen)) == 100


@pytest.mark.parametrize("name", ["memory_run", "snapshot_huge", "watch", "failure_recorded"])
def test_on_an_old_projector(name, static_page, tmp_path):
    """At 1280 by 720 each slide is whole, its type the same share of the wall, its buttons drawn as buttons."""
    path = tmp_path / f"{name}.html"
    next(one for one in EXHIBITS if one.name == name).make().save(path, slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.tm-stage').clientHeight === 720")
    page.keyboard.press("Home")
    for _ in range(position(page)[1]):
        assert page.locator(".tm-stage").evaluate("one => one.scrollHeight - one.clientHeight") <= 1
        assert page.evaluate(SMALLEST) >= 23.5 * 720 / 1080 * 0.85
        expect(page.get_by_text("goes on below")).to_be_hidden()
        page.keyboard.press("ArrowRight")
    buttons = page.locator(".tm-stage > nav button")
    assert set(buttons.evaluate_all("all => all.map(one => getComputedStyle(one).borderTopWidth)")) == {"1px"}


def test_what_follows_a_list_is_on_its_last_slide(static_page, tmp_path):
    """How many rows are left out is said where the list ends, not where it begins."""
    path = tmp_path / "run.html"
    next(one for one in EXHIBITS if one.name == "memory_run").make().save(path, slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.tm-stage').clientHeight === 720")
    page.keyboard.press("Home")
    said = page.get_by_text("and 34 smaller")
    seen = []
    for _ in range(position(page)[1]):
        if page.get_by_text("What was alive at the peak").is_visible():
            seen.append((page.get_by_text("opt.state[net.0.weight]['exp_avg']").first.is_visible(), said.is_visible()))
        page.keyboard.press("ArrowRight")
    assert len(seen) > 2
    assert [first for first, _ in seen] == [True] + [False] * (len(seen) - 1)
    assert [after for _, after in seen] == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize(("height", "shown"), [(720, [True, True]), (400, [True, False])])
def test_sentences_share_the_slide_of_what_they_follow(static_page, tmp_path, height, shown):
    """What to do stands below the way of the gradient; on a wall without room for both it is a slide of its own."""
    path = tmp_path / "why.html"
    next(one for one in EXHIBITS if one.name == "why_error").make().save(path, slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": height})
    page.wait_for_function("height => document.querySelector('.tm-stage').clientHeight === height", arg=height)
    page.keyboard.press("Home")
    parts = page.get_by_text("the gradient flows from right"), page.get_by_text("What to do")
    assert [part.is_visible() for part in parts] == shown
    page.keyboard.press("End")
    assert parts[1].is_visible()


def test_a_slide_that_cannot_be_whole_says_so(static_page, tmp_path):
    """On a wall that is too low for its one picture it goes on below; where there is room nothing is said."""
    path = tmp_path / "overlay.html"
    samples_overlay.SAMPLES["views"].save(path, slide=True)
    page = static_page(path, width=1280)
    said = page.get_by_text("continues below \u2193")
    page.set_viewport_size({"width": 1280, "height": 180})
    expect(said).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(said).to_be_hidden()


@pytest.mark.parametrize("name", ["memory_error", "snapshot"])
def test_what_is_written_on_a_map_is_whole_on_a_wall(name, static_page, tmp_path):
    """The letters of a map grow with it, and no faster: what fitted its box in a notebook fits it here."""
    path = tmp_path / f"{name}.html"
    next(one for one in EXHIBITS if one.name == name).make().save(path, slide=True)
    page = static_page(path, width=1280, dark=True)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.tm-stage').clientHeight === 720")
    page.keyboard.press("Home")
    while not page.locator(".tm-map").first.is_visible():
        page.keyboard.press("ArrowRight")
    cut = page.locator(".tm-map > span").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
    )
    assert cut == []
    size = page.locator(".tm-mh b").first.evaluate(
        "one => parseFloat(getComputedStyle(one).fontSize) * one.currentCSSZoom"
    )
    assert size >= 1280 / 80


def test_a_slide_has_no_header_of_a_later_part(static_page, tmp_path):
    """The call that torch refused is shown first, alone; the graph stands last, without any header."""
    path = tmp_path / "refused.html"
    next(one for one in EXHIBITS if one.name == "refused").make().save(path, slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.querySelector('.tm-stage').clientHeight === 720")
    page.keyboard.press("Home")
    names = page.locator(".tm-stage .tm-name")
    shown = "all => all.filter(one => one.checkVisibility()).map(one => one.textContent)"
    assert names.evaluate_all(shown) == ["F.linear"]
    page.keyboard.press("End")
    assert names.evaluate_all(shown) == []
    expect(page.locator(".canvas")).to_be_visible()


# Pairs of elements of two kinds that lie over each other on the screen.
OVERLAPS = """([first, second]) => {
    const shown = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.checkVisibility());
    const text = (one) => { const range = document.createRange(); range.selectNodeContents(one); return range; };
    const box = (one) => (one.matches("text,img,rect") ? one : text(one)).getBoundingClientRect();
    return shown(first).flatMap((one) => shown(second).filter((other) => {
        const [a, b] = [box(one), box(other)];
        return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    }).map((other) => [one.textContent, other.textContent]));
}"""


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)], ids=["old", "new"])
def test_nothing_is_printed_over_something_else(static_page, tmp_path, size):
    """Words over a box leave the numbers alone; maps of a tensor leave its formula alone."""
    weight = torch.linspace(-1, 1, 64 * 20).view(64, 20).clone()
    for at, (report, pair) in enumerate(
        [
            (samples_viewer.broken_run(), (".born-text", ".box .value")),
            (api.inspect(weight, name="weight"), (".tm-map img", ".tm-read p, .tm-formula, .tm-legend p")),
        ]
    ):
        path = tmp_path / f"{at}.html"
        report.save(path, slide=True)
        page = static_page(path, width=size[0])
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.locator(".tm-stage").focus()
        while not page.locator(pair[0]).first.is_visible():
            number, of = position(page)
            assert number < of
            page.keyboard.press("ArrowRight")
            expect(page.locator(".tm-stage > nav span")).to_have_text(f"{number + 1} / {of}")
        assert page.evaluate(OVERLAPS, list(pair)) == []


def test_a_long_line_of_source_is_broken(static_page: Callable[..., Page], tmp_path: Path) -> None:
    """It does not make the type of all others small."""
    report = sample("memory run")
    long = f"total = {' + '.join('loss' for _ in range(20))}"
    report = replace(report, cell=replace(report.cell, lines=(*report.cell.lines, long)))
    report.save(path := tmp_path / "run.html", slide=True)
    page = static_page(path, width=1280)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_timeout(300)
    seen = set()
    for _ in range(position(page)[1]):
        assert page.evaluate(SMALLEST) >= 15.5
        seen.update(page.locator(".tm-code .tm-text:visible").all_inner_texts())
        page.keyboard.press("ArrowRight")
    assert long in seen
