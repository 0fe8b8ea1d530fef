"""The line "Export": what it gives is the panel, in files that stand by themselves."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect

from tensormagic import reports, views
from tensormagic.reports import Gap
from tensormagic.views import MOST_CARRIED, MOST_IN_FILE, carried, stem
from tests.browser.conftest import NOTEBOOK
from tests.views import samples_viewer, test_every_renderer
from tests.views.test_files import KINDS, sample

SVG = "{http://www.w3.org/2000/svg}"
# The share of points that clearly differ between the panel on the screen and its picture, both seen from afar.
COMPARE = """async ([screen, picture]) => {
    const seen = async (source) => {
        const image = new Image();
        image.src = source;
        await image.decode();
        return image;
    };
    const [a, b] = await Promise.all([screen, picture].map(seen));
    const sizes = [Math.min(a.width, b.width), Math.min(a.height, b.height)];
    const [width, height] = sizes.map((size) => Math.floor(size / 4));
    const [one, other] = [a, b].map((image) => {
        const whole = new OffscreenCanvas(image.width, image.height), small = new OffscreenCanvas(width, height);
        whole.getContext("2d").drawImage(image, 0, 0);
        const pen = small.getContext("2d");
        pen.drawImage(whole, 0, 0, width * 4, height * 4, 0, 0, width, height);
        return pen.getImageData(0, 0, width, height).data;
    });
    const far = one.filter((value, at) => Math.abs(value - other[at]) > 32).length;
    return far / one.length;
}"""


@pytest.fixture
def panel(static_page: Callable[..., Page]) -> Callable[..., Page]:
    """Return a function that opens panels on one page, with the first one's line open."""

    def open_panel(*shown: reports.Report, **options: object) -> Page:
        body = "".join(views.render(report, "html") for report in shown)
        page = static_page("<!doctype html><html lang=en><meta charset=utf-8>" + body, **options)
        page.locator(".tm-export summary").first.click()
        return page

    return open_panel


def saved(page: Page, button: str) -> tuple[str, bytes]:
    """Return the name and the content of what a button downloads."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button, exact=True).first.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def screen_of(page: Page) -> bytes:
    """Return what is on the screen, without the controls that are no part of a picture."""
    page.add_style_tag(content=":is(.tm-export,.tm-turn,.tools,.zooms,.foot-bar){display:none!important}")
    return page.locator("section.tm").first.screenshot()


def compared(page: Page, screen: bytes, picture: bytes) -> float:
    """Return which share of the points differs clearly, both seen from a little way off."""
    return float(page.evaluate(COMPARE, [data_uri(screen, "image/png"), data_uri(picture, "image/svg+xml")]))


def test_the_line_stays_within_its_panel(panel: Callable[..., Page]) -> None:
    """Neither the rule above it nor the word sticks out of the frame, in any panel."""
    page = panel(*(sample(kind) for kind in KINDS))
    page.wait_for_function(f"() => document.querySelectorAll('.tm-export').length >= {len(KINDS)}")
    out = page.evaluate("""() => [...document.querySelectorAll('.tm-export')].filter(line => {
        const [own, frame] = [line, line.closest('section.tm')].map(one => one.getBoundingClientRect());
        return own.left < frame.left || own.right > frame.right || own.bottom > frame.bottom + 1;
    }).map(line => line.closest('section.tm').className)""")
    assert out == []


def words_of(svg: bytes) -> str:
    return " ".join(one.text or "" for one in ET.fromstring(svg).iter(SVG + "text"))


def assert_self_contained(svg: bytes) -> None:
    """Strict XML without variables, scripts, style sheets, foreign markup, and without a way out."""
    root, text = ET.fromstring(svg), svg.decode()
    assert {one.tag.removeprefix(SVG) for one in root.iter()}.isdisjoint({"foreignObject", "script", "style"})
    assert "var(" not in text
    values = [(key, value) for one in root.iter() for key, value in one.items()]
    assert not [value for key, value in values if key.endswith("href") and not value.startswith("data:")]
    assert not [pair for pair in values if pair[1] in {"NaN", "undefined"} or "NaN " in pair[1]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_picture_is_the_panel(kind, panel):
    """It looks like the panel, in its theme, and stands by itself."""
    page = panel(sample(kind), dark=KINDS.index(kind) % 2 == 0)
    name, svg = saved(page, "SVG")
    assert name == f"{stem(sample(kind))}.svg"
    assert_self_contained(svg)
    assert compared(page, screen_of(page), svg) < 0.03


def test_lines_seen_from_far_away_are_as_wide_in_the_picture(panel):
    """They are a point wide at any zoom; the picture says how wide that is in the graph, for every reader of SVG."""
    page = panel(samples_viewer.large_run(600, passes=1))
    page.get_by_role("button", name="open all boxes").click()
    page.get_by_role("button", name="see all of it").click()
    expect(page.locator(".canvas .specks .line").first).to_be_visible()
    zoom = float(re.search(r"scale\((\S+)\)", page.locator(".world").get_attribute("transform") or "")[1])
    drawn = ET.fromstring(saved(page, "SVG")[1]).iter(SVG + "path")
    lines = [one for one in drawn if one.get("stroke") and one.get("d", "").count("M") > 20]
    assert zoom < 0.3
    assert lines
    assert [float(one.get("stroke-width", 1)) * zoom for one in lines] == pytest.approx([1] * len(lines), abs=0.01)


def test_the_comparison_can_fail(panel):
    """The wrong theme, or a picture that is a little off, is seen."""
    report = sample("tensor")
    light, dark = panel(report), panel(report, dark=True)
    (_, svg), screen = saved(light, "SVG"), screen_of(light)
    assert compared(light, screen, svg) < 0.003
    assert compared(light, screen_of(dark), svg) > 0.5
    assert compared(light, screen, svg.replace(b'viewBox="0 0', b'viewBox="-9 6', 1)) > 0.05


def test_what_one_panel_gives(panel):
    """A PNG of twice the size, a page that works again, the report, and copies; the line says what was done."""
    report = sample("tensor")
    page = panel(report, report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    name, svg = saved(page, "SVG")
    _, png = saved(page, "PNG")
    assert name == "tensor-x.svg"
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    root = ET.fromstring(svg)
    assert [int.from_bytes(png[at : at + 4], "big") for at in (16, 20)] == [
        2 * int(root.get("width")), 2 * int(root.get("height")),
    ]  # fmt: skip
    assert type(report).from_dict(json.loads(saved(page, "JSON")[1])) == report
    assert page.locator(".tm-export output").first.inner_text() == "saved tensor-x.json"
    for button, said in (("Copy SVG", svg.decode()), ("Copy JSON", saved(page, "JSON")[1].decode())):
        page.get_by_role("button", name=button).first.click()
        page.get_by_text("copied", exact=True).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == said


def test_a_copy_that_the_page_refuses_leaves_the_next_one_alone(panel):
    """It says that it cannot; what a person copies afterwards is what they selected."""
    page = panel(sample("tensor"))
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Copy SVG").click()
    page.get_by_text("this page cannot copy").wait_for()
    assert page.evaluate("document.body.dispatchEvent(new ClipboardEvent('copy', { bubbles: true, cancelable: true }))")


# Draws the first frame of a file and, by the browser's own reading of it, how many there are and how they differ.
FRAMES = """async (bytes) => {
    const data = Uint8Array.from(atob(bytes), (one) => one.charCodeAt(0));
    const decoder = new ImageDecoder({ data, type: "image/png" });
    await decoder.tracks.ready;
    const { frameCount } = decoder.tracks.selectedTrack, seen = [];
    for (let frameIndex = 0; frameIndex < frameCount; frameIndex += 1) {
        const { image } = await decoder.decode({ frameIndex });
        const canvas = new OffscreenCanvas(image.displayWidth, image.displayHeight), pen = canvas.getContext("2d");
        pen.drawImage(image, 0, 0);
        seen.push([canvas.width, canvas.height, pen.getImageData(0, 0, canvas.width, canvas.height).data
            .reduce((sum, value, at) => (sum + value * (at % 997)) % 1000003, 0)]);
    }
    return seen;
}"""


def test_a_run_as_a_picture_that_moves(panel):
    """A frame for each node that backward reaches, each another picture; the panel stands as it did."""
    page = panel(samples_viewer.calm_run())
    order = page.get_by_label("order", exact=True)
    last = int(order.get_attribute("max"))
    name, picture = saved(page, "Moving PNG")
    assert name.endswith("-moving.png")
    frames = page.evaluate(FRAMES, base64.b64encode(picture).decode())
    assert len(frames) == last + 1 > 5
    assert len({tuple(frame[:2]) for frame in frames}) == 1
    assert len({frame[2] for frame in frames}) > last / 2
    assert order.input_value() == str(last)
    expect(page.get_by_role("button", name="Moving PNG")).to_have_count(1)


def test_only_a_run_moves(panel):
    """Another panel has no such button."""
    expect(panel(sample("tensor")).get_by_role("button", name="Moving PNG")).to_have_count(0)


def markup(page):
    """Return the panel as it is, without the mark that the focus leaves."""
    return re.sub(' style=""| data-lm-suppress-shortcuts="true"', "", page.locator("section.tm").inner_html())


def test_all_of_it(panel):
    """What is folded or has to be scrolled to is in the picture, if that is asked for; the panel stays as it was."""
    page = panel(sample("memory"))
    before = markup(page)
    shown = saved(page, "SVG")[1]
    page.get_by_label("all of it").check()
    whole = saved(page, "SVG")[1]
    page.get_by_label("all of it").uncheck()
    assert_self_contained(whole)
    assert "held by" not in words_of(shown)
    assert "held by" in words_of(whole)
    page.locator(".tm-export output").evaluate("one => { one.value = '' }")
    assert markup(page) == before


@pytest.mark.parametrize("kind", ["tensor", "trace", "tensors", "memory"])
def test_the_page_works_like_the_output(kind, panel, static_page):
    """From an output that was used already: it begins as that output began, with its viewer and one line "Export"."""
    page = panel(sample(kind), sample(kind))
    page.wait_for_timeout(300)  # the viewers have changed the output meanwhile
    name, html = saved(page, "HTML")
    assert name.endswith(".html")
    alone = static_page(html.decode())
    alone.locator(".tm-export summary").wait_for()
    assert alone.locator(".tm-export").count() == 1
    assert alone.title() == name.removesuffix(".html")
    for part in (".tm-choice", ".tmv", ".tm-filter"):
        assert alone.locator(part).count() == page.locator("section.tm").first.locator(part).count()


def test_keyboard(panel):
    """Tab goes there, Enter opens it and presses a button, Escape closes it and leaves the focus on its name."""
    page = panel(sample("why"))
    page.keyboard.press("Escape")
    assert page.locator(".tm-export[open]").count() == 0
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith(".svg")
    assert page.evaluate("document.activeElement.textContent") == "SVG"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Export"


def test_without_scripts_there_is_no_line(static_page):
    """Nothing promises what cannot be done."""
    page = static_page(views.render(sample("why"), "html"), scripts=False)
    assert page.get_by_text("Export").count() == 0


def test_a_large_report_is_not_carried(panel):
    """The line then says how the report is had; a page of its own carries it."""
    report = max(test_every_renderer.TRACES.values(), key=lambda one: len(carried(one, MOST_IN_FILE)))
    large = replace(report, gaps=tuple(Gap("noise", f"{at * 7919 % 10007:x}" * 3) for at in range(9000)))
    assert carried(large, MOST_CARRIED) == ""
    page = panel(large)
    assert page.get_by_text("JSON: --save FILE.json").count() == 1
    assert page.get_by_role("button", name="JSON").count() == 0
    assert len(carried(large, MOST_IN_FILE)) > MOST_CARRIED


def test_in_jupyterlab(notebook):
    """The same in a notebook: keys stay in the line, a cell is neither added nor edited by them."""
    lab = notebook("%load_ext tensormagic\nimport torch; x = torch.arange(6.).view(2, 3)", "%tensor x")
    lab.run()
    page = lab.page
    page.locator(".tm-export summary").click()
    name, svg = saved(page, "SVG")
    assert name == "tensor-x.svg"
    assert_self_contained(svg)
    cells = page.locator(".jp-Cell").count()
    page.get_by_role("button", name="SVG", exact=True).focus()
    for key in ("a", "b", "Escape"):
        page.keyboard.press(key)
    assert page.locator(".jp-Cell").count() == cells
    assert page.evaluate("document.activeElement.textContent") == "Export"


def assert_every_download_opens(page: Page, static_page: Callable[..., Page]) -> None:
    """The picture is drawn, the page shows the same tensor, the data is the report."""
    page.locator(".tm-export summary").click()
    files = {kind: saved(page, kind) for kind in ("SVG", "PNG", "HTML", "JSON")}
    assert {kind: name for kind, (name, _) in files.items()} == {
        "SVG": "tensor-x.svg", "PNG": "tensor-x.png", "HTML": "tensor-x.html", "JSON": "tensor-x.json",
    }  # fmt: skip
    assert_self_contained(files["SVG"][1])
    uris = [data_uri(files["SVG"][1], "image/svg+xml"), data_uri(files["PNG"][1], "image/png")]
    drawn = [page.evaluate("src => Object.assign(new Image(), { src }).decode().then(() => true)", uri) for uri in uris]
    assert drawn == [True, True]
    assert "offset(i, j) = 0 + 3·i + 1·j" in words_of(files["SVG"][1])
    alone = static_page(files["HTML"][1].decode())
    alone.locator(".tm-cells td").get_by_text("5", exact=True).first.hover()
    expect(alone.locator(".tm-now")).to_have_text("offset(1, 2) = 0 + 3·1 + 1·2 = 5")
    assert reports.TensorReport.from_dict(json.loads(files["JSON"][1])).shape == (2, 3)


def test_in_notebook_7_and_on_the_page_that_nbconvert_makes(notebook, static_page):
    """Every download arrives and opens, with a kernel and, from the saved notebook as a page, without."""
    lab = notebook("%load_ext tensormagic\nimport torch; x = torch.arange(6.).view(2, 3)", "%tensor x", front=NOTEBOOK)
    lab.run()
    assert_every_download_opens(lab.page, static_page)
    converted, _ = HTMLExporter().from_notebook_node(lab.saved())
    own = re.sub(r'<script src="https?:[^"]*">\s*</script>', "", converted)  # what nbconvert itself has from elsewhere
    assert_every_download_opens(static_page(own), static_page)
