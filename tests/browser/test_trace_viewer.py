"""Reading a graph of any size in a browser: opening boxes in place, searching, colouring, going through the order."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from playwright.sync_api import Page, expect

import tensormagic as tm
from tensormagic.reports import NodeCosts, OpsReport, TraceReport
from tensormagic.views import theme
from tensormagic.views.markup import json_block
from tensormagic.views.page.document import Limits, trace_document
from tensormagic.views.panels import trace as trace_html
from tests.views import samples_viewer

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]

FEW = Limits(boxes=12)

# What is seen where something is not finite, as far as that is in view.
ON_TOP = """(place) => {
  const specks = document.querySelector(place), seen = specks.closest(".map,.graph").getBoundingClientRect();
  return [...specks.querySelectorAll(".bad")].flatMap((path) => {
    const { a, d, e, f } = path.getScreenCTM();
    return [...path.getAttribute("d").matchAll(/M([-\\d.]+) ([-\\d.]+)h([\\d.]+)v([\\d.]+)/g)].map((one) => {
      const [x, y, w, h] = one.slice(1).map(Number);
      return [e + a * (x + w / 2), f + d * (y + h / 2)];
    });
  }).filter(([, y]) => y > seen.top + 2 && y < seen.bottom - 2)
    .map(([x, y]) => document.elementFromPoint(x, y).getAttribute("class"));
}"""


def _mounted(static_page: OpenPage, report: TraceReport, *, limits: Limits = FEW) -> Page:
    """Return a page with a panel whose graph is open, kept as ``window.panel``."""
    document = json_block(trace_document(report, limits=limits))
    call = (
        "window.mountAgain = doc => { window.panel = new Panel(document.querySelector('section'), doc) };"
        f"mountAgain({document});"
    )
    style = f"<style>{trace_html.viewer_style()}</style>"
    script = f'<script type="module">{trace_html.viewer_module()}\n{call}</script>'
    page = static_page(f'{style}<section class="tm tm-trace"></section>{script}')
    expect(page.locator(".tmv")).to_be_visible()
    toggle = page.get_by_role("button", name="Open graph")
    if toggle.is_visible():
        toggle.click()
    return page


def _deep(count: int = 1800) -> TraceReport:
    return samples_viewer.large_run(count, passes=3)


def test_a_newer_document_before_the_panel_is_seen_leaves_its_lines(static_page: OpenPage) -> None:
    """In a tab that nobody looks at, a run goes on: the panel that is turned to then has all it had."""
    page = _mounted(static_page, _deep())
    lines = page.locator(".wire").count()
    assert lines
    page.evaluate(
        "doc => { const section = document.querySelector('section'); section.replaceChildren();"
        " section.style.display = 'none'; window.mountAgain(doc); window.panel.update(structuredClone(doc));"
        " section.style.display = '' }",
        trace_document(_deep(), limits=FEW),
    )
    expect(page.locator(".box").first).to_be_visible()
    expect(page.locator(".wire")).to_have_count(lines)


def test_click_opens_a_box_where_it_stands_and_its_handle_folds_it(static_page: OpenPage) -> None:
    """What lies inside stands in a frame below the box; its handle folds it, with the focus on the box."""
    page = _mounted(static_page, _deep())
    before = page.locator(".box").count()
    box = page.locator(".box.folds").first
    label = box.locator(".name").text_content()
    assert box.get_attribute("aria-expanded") == "false"
    box.click()
    frame = page.locator(".frame")
    expect(frame).to_have_count(1)
    expect(frame.locator(".frame-name")).to_contain_text(label)
    inside = int((frame.locator(".frame-name").text_content() or "").split("·")[1].split()[0])
    expect(page.locator(".box")).to_have_count(before + inside)
    handle = frame.get_by_role("button", name=f"fold {label}")
    assert handle.get_attribute("aria-expanded") == "true"
    handle.click()
    expect(page.locator(".frame")).to_have_count(0)
    expect(page.locator(".box")).to_have_count(before)
    expect(page.locator(":focus .name")).to_have_text(label)


def test_enter_opens_and_escape_folds_level_by_level(static_page: OpenPage) -> None:
    """The keyboard goes in and out: Enter opens the box with the focus, Escape folds what lies round it."""
    page = _mounted(static_page, _deep(4000))
    page.locator(".box[tabindex='0']").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".frame")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".frame")).to_have_count(2)
    assert page.evaluate("() => document.activeElement.classList.contains('box')")
    page.keyboard.press("Escape")
    expect(page.locator(".frame")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".frame")).to_have_count(0)
    expect(page.get_by_role("button", name="fold all boxes")).to_be_hidden()
    page.get_by_role("button", name="open all boxes").click()
    assert page.locator(".frame").count() > 1
    expect(page.get_by_role("button", name="open all boxes")).to_be_hidden()
    page.get_by_role("button", name="fold all boxes").click()
    expect(page.locator(".frame")).to_have_count(0)


def test_opened_boxes_are_coloured_and_their_lines_are_lit(static_page: OpenPage) -> None:
    """What lies inside shows the pass that is shown, at once and when another is chosen."""
    page = _mounted(static_page, _deep())
    page.locator(".box.folds").first.click()
    expect(page.locator(".frame")).to_have_count(1)
    assert page.locator(".box.wait, .wire.wait").count() == 0
    values = page.locator(".box .value").all_text_contents()
    page.locator("input[aria-label=pass]").fill("0")
    assert page.locator(".box .value").all_text_contents() != values


def test_healthy_graph_stays_in_view_when_what_is_opened_is_higher_than_the_screen(static_page: OpenPage) -> None:
    """A graph that needed no click to be seen is not folded away by a click on one of its boxes."""
    page = _mounted(static_page, samples_viewer.large_run(200, passes=2), limits=Limits())
    expect(page.get_by_role("button", name="Close graph")).to_be_visible()
    for _ in range(3):
        page.locator(".box.folds").first.click()
    expect(page.locator(".frame")).to_have_count(3)
    expect(page.locator(".stage")).to_be_visible()
    assert page.locator(".box.wait, .wire.wait").count() == 0


def test_op_inside_an_opened_box_opens_its_drawer(static_page: OpenPage) -> None:
    """An op inside shows its module; the drawer stays when the box round it is folded, which is then marked."""
    page = _mounted(static_page, _deep())
    page.locator(".box.folds").first.click()
    name = page.evaluate("() => document.activeElement.querySelector('.name').textContent")
    page.keyboard.press(" ")
    expect(page.locator(".drawer .title b")).to_contain_text(name)
    expect(page.locator(".drawer")).to_contain_text("encoder.layers.")
    page.locator(".frame .handle").click()
    expect(page.locator(".drawer .title b")).to_contain_text(name)
    expect(page.locator(".chosen")).to_have_attribute("visibility", "visible")


def test_search_lights_what_it_finds_and_opens_what_hides_it(static_page: OpenPage) -> None:
    """The number of hits is said; Enter goes to the next, Shift+Enter back, Escape clears."""
    page = _mounted(static_page, _deep())
    page.locator(".tmv").focus()
    page.keyboard.press("/")
    page.keyboard.type("layers.57. gelu")
    count = page.locator(".hits")
    expect(count).to_have_text("nothing found")
    page.keyboard.press("Control+A")
    page.keyboard.type("layers.57 gelu")
    expect(count).to_have_text("3 nodes")
    total = 3
    expect(page.locator(".box.picked")).to_have_count(1)
    expect(page.locator(".frame")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(count).to_have_text(f"1 of {total}")
    assert page.locator(".frame").count() >= 1
    expect(page.locator(".drawer")).to_contain_text("encoder.layers.57")
    page.keyboard.press("Shift+Enter")
    expect(count).to_have_text(f"{total} of {total}")
    assert page.evaluate("() => document.activeElement.type") == "search"
    page.keyboard.press("Escape")
    expect(count).to_have_text("")
    expect(page.locator(".graph.picking")).to_have_count(0)


def test_enter_goes_to_what_was_typed_last(static_page: OpenPage) -> None:
    """Also at once after a letter, before the page has looked for it: what was found before is not gone through."""
    page = _mounted(static_page, _deep())
    count, field = page.locator(".hits"), page.locator(".search input")
    field.fill("layers.57")
    expect(count).not_to_have_text("")
    field.evaluate(
        "field => { field.value = 'layers.57 gelu'; field.dispatchEvent(new Event('input'));"
        " field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})) }"
    )
    expect(count).to_have_text("1 of 3")
    page.wait_for_timeout(200)
    expect(count).to_have_text("1 of 3")


def test_search_finds_leaves_and_lines(static_page: OpenPage) -> None:
    """A parameter is found by its name, a node by its line."""
    page = _mounted(static_page, samples_viewer.broken_run())
    field, count = page.locator(".search input"), page.locator(".hits")
    field.fill("conv1.bias")
    expect(count).to_have_text("1 node")
    assert page.locator(".box.picked .name").all_text_contents() == ["conv"]
    field.fill("line 3")
    expect(count).to_have_text("2 nodes")
    assert page.locator(".box.picked .name").all_text_contents() == ["conv", "relu"]


def test_colours_can_say_something_else(static_page: OpenPage) -> None:
    """By saved bytes the convolution is darkest, with its legend; by NaN only what is not finite stands out."""
    page = _mounted(static_page, samples_viewer.broken_run())
    chooser = page.get_by_label("colour by")
    assert chooser.locator("option").all_inner_texts() == ["gradient norm", "NaN and Inf", "saved bytes"]
    chooser.select_option("saved bytes")
    conv = page.locator(".box", has_text="conv").first
    assert "n5" in (conv.get_attribute("class") or "")
    expect(conv.locator(".value")).to_have_text("144 KiB")
    expect(page.locator(".legend")).to_contain_text("bytes kept for backward")
    chooser.select_option("NaN and Inf")
    assert page.locator(".box.bad").count() == 7
    assert page.locator(".box.zero").count() == 2
    expect(page.locator(".legend")).to_contain_text("all finite")


def test_colours_by_time_where_it_was_measured(static_page: OpenPage) -> None:
    """A run at level ops can be coloured by the time of each node's backward; the largest ends the scale."""
    report = samples_viewer.calm_run(2)
    count = len(report.graphs[0].nodes)
    nothing = array("d", [0.0] * count)
    seconds = array("d", [2e-5 * (node + 1) for node in range(count)])
    costs = NodeCosts(1, 2, 2, nothing, nothing, seconds, nothing)
    page = _mounted(static_page, replace(report, ops=OpsReport(nodes=(costs,))))
    page.get_by_label("colour by").select_option(label="time, backward")
    expect(page.locator(".legend")).to_contain_text("time of the node's backward")
    addmm = page.locator(".box", has_text="addmm")
    expect(addmm.locator(".value")).to_have_text("660 µs")
    assert "n5" in (addmm.get_attribute("class") or "")


def test_order_slider_lights_what_backward_has_reached(static_page: OpenPage) -> None:
    """At node 3 of 15 three nodes carry colours, the cursor stands at the third, and no NaN has come yet."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.locator("input[aria-label=order]").fill("2")
    expect(page.locator(".order-text")).to_have_text("order: node 2 of 15")
    assert page.locator(".box:not(.wait)").count() == 2
    expect(page.locator(".cursor")).to_have_attribute("visibility", "visible")
    expect(page.locator(".whereabouts")).to_contain_text("backward is at log, node 2 of 15")
    expect(page.locator(".born-text")).to_have_count(0)
    page.locator("input[aria-label=order]").fill("15")
    expect(page.locator(".box.bad")).to_have_count(7)
    expect(page.locator(".born-text")).to_have_count(1)


def test_space_plays_the_order_and_stops_it(static_page: OpenPage) -> None:
    """From the end it starts over; another press of the key holds it where it is."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.get_by_label("speed of playing").select_option("0.25")
    page.locator("input[aria-label=order]").focus()
    page.keyboard.press(" ")
    expect(page.locator(".order-text")).to_have_text("order: node 2 of 15")
    page.keyboard.press(" ")
    held = page.locator(".order-text").inner_text()
    page.wait_for_timeout(800)
    assert page.locator(".order-text").inner_text() == held
    page.keyboard.press("ArrowRight")
    assert page.locator(".order-text").inner_text() != held


def test_line_brings_its_nodes_into_view_and_opens_what_hides_a_few(static_page: OpenPage) -> None:
    """A click on a line lights and frames its boxes, also those that are folded away."""
    base = _deep()
    graph = base.graphs[0]
    deep = next(node.index for node in graph.nodes if node.module.endswith(".60") and node.op == "gelu")
    nodes = tuple(replace(node, location=6 if node.index == deep else 0) for node in graph.nodes)
    page = _mounted(static_page, replace(base, graphs=(replace(graph, nodes=nodes),)))
    page.locator(".lines button", has_text="return F.nll_loss").click()
    expect(page.locator(".box.picked:not(.unfolded)")).to_have_count(1)
    expect(page.locator(".box.picked:not(.unfolded) .name")).to_have_text("gelu")
    expect(page.locator(".box.picked:not(.unfolded)")).to_be_in_viewport()
    page.locator(".box.picked:not(.unfolded)").click()
    expect(page.locator(".lines .here code")).to_contain_text("return F.nll_loss")


def test_newer_document_keeps_what_is_open(static_page: OpenPage) -> None:
    """A document of the same graph, one pass later, leaves the opened boxes open."""
    page = _mounted(static_page, replace(_deep(), state="running"))
    page.locator(".box.folds").first.click()
    label = page.locator(".frame-name").text_content() or ""
    newer = replace(samples_viewer.large_run(1800, passes=4), state="running")
    page.evaluate("doc => panel.update(doc)", trace_document(newer, limits=FEW))
    expect(page.locator(".frame-name")).to_have_text(label)
    assert page.locator(".box.wait").count() == 0


def test_many_boxes_are_elements_only_where_they_are_seen(static_page: OpenPage) -> None:
    """Of a graph drawn as 1445 boxes a screenful has elements; from far away a few paths, in their colours.

    The colours are those of the theme, which may change meanwhile; a move draws nothing anew.
    """
    page = _mounted(static_page, samples_viewer.large_run(2000, passes=1), limits=Limits(boxes=2000))
    assert 10 < page.locator(".box").count() < 400
    page.get_by_role("button", name="see all of it").click()
    specks = page.locator(".canvas .speck")
    expect(specks.first).to_be_visible()
    expect(page.locator(".canvas .boxes")).to_be_hidden()
    for dark in (False, True):
        page.emulate_media(color_scheme="dark" if dark else "light")
        for at in range(specks.count()):
            step = (specks.nth(at).get_attribute("class") or "").split()[-1]
            expect(specks.nth(at)).to_have_css("fill", _rgb(theme.role(step, dark=dark)))
    drawn = specks.first.evaluate_handle("it => it")
    before = page.evaluate(SAW)
    page.mouse.move(545, 210)
    page.mouse.down()
    page.mouse.move(585, 230, steps=4)
    page.mouse.up()
    assert page.evaluate(SAW) != before
    assert drawn.evaluate("it => it.isConnected")
    page.locator(".canvas").click(position={"x": 545, "y": 210})
    page.locator(".graph").press("0")


@pytest.mark.parametrize(
    ("state", "role"), [("bad", "error"), ("wait", "line"), ("blind", "line-2"), ("zero", "line-2"), ("n0", "n0")]
)
def test_each_state_has_its_colour_from_far_away(static_page: OpenPage, state: str, role: str) -> None:
    """On the map, and where the graph is seen from far away."""
    page = _mounted(static_page, samples_viewer.large_run(120, passes=1))
    for place in ("", ".map "):
        one = page.locator(f"{place}.specks").first
        one.evaluate("(it, state) => { it.innerHTML = `<path class='speck ${state}'/>` }", state)
        expect(one.locator("path")).to_have_css("fill", _rgb(theme.role(role)))


def test_what_is_not_finite_lies_on_top_from_far_away(static_page: OpenPage) -> None:
    """Specks are larger than the boxes that they stand for: no neighbour hides a NaN, on the map and in the graph."""
    report = samples_viewer.large_run(2000, passes=1)
    (graph,), nan = report.graphs, float("nan")
    norms = array("f", [nan if at % 7 == 0 else norm for at, norm in enumerate(graph.frames[0].norms)])
    broken = replace(report, graphs=(replace(graph, frames=(replace(graph.frames[0], norms=norms),)),))
    page = _mounted(static_page, broken, limits=Limits(boxes=2000))
    assert set(page.evaluate(ON_TOP, ".map .specks")) == {"speck bad"}
    page.get_by_role("button", name="see all of it").click()
    assert set(page.evaluate(ON_TOP, ".canvas .specks")) == {"speck bad"}


def _rgb(colour: str) -> str:
    """As a browser writes it."""
    return f"rgb({', '.join(str(channel) for channel in bytes.fromhex(colour[1:]))})"


def test_saved_page_opens_boxes_too(static_page: OpenPage) -> None:
    """The page that stays in a notebook holds what lies inside, and opens it without any kernel."""
    page = static_page(trace_html.render(samples_viewer.large_run(2000, passes=2)))
    page.locator(".box.folds").last.click()
    expect(page.locator(".frame")).to_have_count(1)


AGAIN = "doc => { panel.dispose(); mountAgain(doc) }"
SAW = "() => document.querySelector('.world').getAttribute('transform')"


def test_run_that_comes_again_is_shown_as_it_was_looked_at(static_page: OpenPage) -> None:
    """Open boxes, colours, zoom, the chosen node and its path come back; a run of another name starts afresh."""
    page = _mounted(static_page, _deep())
    page.locator(".box.folds").first.click()
    page.get_by_label("colour by").select_option("saved bytes")
    page.locator(".box").first.click(modifiers=["Shift"])
    page.get_by_role("button", name="Show path").click()
    page.get_by_role("button", name="zoom in").click()
    page.wait_for_timeout(200)
    label, node = page.locator(".frame-name").text_content() or "", page.locator(".drawer .title b").inner_text()
    said, saw = page.locator(".way").inner_text(), page.evaluate(SAW)
    page.evaluate(AGAIN, trace_document(_deep(), limits=FEW))
    expect(page.locator(".frame-name")).to_have_text(label)
    expect(page.get_by_label("colour by")).to_have_value("saved")
    expect(page.locator(".drawer .title b")).to_have_text(node)
    expect(page.locator(".way")).to_have_text(said)
    assert page.evaluate(SAW) == saw
    page.evaluate(AGAIN, trace_document(replace(_deep(), title="another"), limits=FEW))
    expect(page.locator(".frame")).to_have_count(0)
    expect(page.locator(".drawer")).to_be_hidden()


def test_graph_of_another_shape_is_seen_whole(static_page: OpenPage) -> None:
    """The zoom and the node of the last run are not laid on a graph of the same title that has other nodes."""
    page = _mounted(static_page, samples_viewer.large_run(120, passes=2))
    fitted = page.evaluate(SAW)
    page.locator(".box").nth(3).click(modifiers=["Shift"])
    page.get_by_role("button", name="zoom in").click()
    page.wait_for_timeout(200)
    other = replace(samples_viewer.large_run(126, passes=2), title="encoder of 120")
    page.evaluate(AGAIN, trace_document(other, limits=FEW))
    expect(page.locator(".drawer")).to_be_hidden()
    page.evaluate(AGAIN, trace_document(samples_viewer.large_run(120, passes=2), limits=FEW))
    expect(page.locator(".drawer")).to_be_visible()
    page.keyboard.press("0")
    assert page.evaluate(SAW) != fitted


def _lit(page: Page) -> list[str]:
    return page.locator(".box.picked .name").all_text_contents()


def test_path_lights_what_leads_through_a_node(static_page: OpenPage) -> None:
    """Key P lights the way through the chosen box; leaves beside it step back; Escape ends it, then the drawer."""
    page = _mounted(static_page, samples_viewer.broken_run())
    page.locator(".box", has_text="relu").first.click()
    page.keyboard.press("p")
    expect(page.locator(".way")).to_contain_text("path through relu: 11 of 15 nodes")
    assert len(_lit(page)) == 9
    off = page.locator(".badge.off text").all_text_contents()
    assert off == ["conv2.weight", "conv2.bias", "fc.weight", "fc.bias"]
    expect(page.get_by_role("button", name="End path")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("p")
    expect(page.locator(".way")).to_contain_text("path through conv: 13 of 15 nodes")
    page.keyboard.press("Escape")
    expect(page.locator(".way")).to_be_hidden()
    expect(page.locator(".graph.picking, .badge.off")).to_have_count(0)
    expect(page.locator(".drawer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".drawer")).to_be_hidden()


def test_path_stays_while_boxes_are_opened_and_searched(static_page: OpenPage) -> None:
    """Of a folded box the way through all of it is shown; it follows what is opened, and gives way to a search."""
    page = _mounted(static_page, _deep())
    page.locator(".box.folds").nth(2).focus()
    page.keyboard.press("p")
    chip, label = page.locator(".way"), page.locator(".box.folds").nth(2).locator(".name").text_content()
    expect(chip).to_contain_text(f"path through {label}: ")
    expect(chip).to_contain_text("of 1800 nodes")
    said = chip.inner_text()
    page.locator(".box.folds").nth(2).click()
    expect(page.locator(".frame")).to_have_count(1)
    expect(chip).to_have_text(said)
    lit = _lit(page)
    assert lit
    assert page.locator(".wire.picked").count() > 5
    page.locator(".search input").fill("layers.57 gelu")
    expect(page.locator(".hits")).to_have_text("3 nodes")
    assert len(_lit(page)) == 1
    page.locator(".search input").press("Escape")
    expect(page.locator(".wire.picked").first).to_be_attached()
    assert _lit(page) == lit
    page.get_by_role("button", name="show the whole graph again").click()
    expect(page.locator(".graph.picking")).to_have_count(0)


SEEN_WHOLE = """() => {
    const bar = document.querySelector(".asides").getBoundingClientRect();
    const words = [...document.querySelectorAll(".asides > span")];
    const seen = words.map(one => [one.textContent, one.getBoundingClientRect()]);
    const inside = seen.filter(([, box]) => box.top < bar.bottom - 1 && box.left < bar.right);
    return inside.map(([text, box]) => [text, box.right <= bar.right + 1]);
}"""


def test_words_of_the_bar_are_there_whole_or_not_at_all(static_page: OpenPage) -> None:
    """Where there is room for one of them, it is how many boxes there are; the zoom is told where both fit."""
    page = _mounted(static_page, samples_viewer.broken_run())
    told = []
    for width in (760, 1000, 1180):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(150)
        told.append(page.evaluate(SEEN_WHOLE))
        assert page.evaluate("(one => one.scrollWidth - one.clientWidth)(document.querySelector('.whereabouts'))") <= 0
        expect(page.locator(".whereabouts")).to_have_css("text-overflow", "clip")  # it goes on in a second line
    assert told[:2] == [[], [["15 nodes in 9 boxes", True]]]
    assert [[text.split()[0], whole] for text, whole in told[2]] == [["15", True], ["zoom", True]]


@pytest.mark.parametrize("width", [892, 400])
def test_a_line_of_the_source_is_shown_whole(static_page: OpenPage, width: int) -> None:
    """Beside the norms, too, in a cell with a sidebar: the line is what people look for."""
    report = samples_viewer.broken_run()
    line = "    p = torch.softmax(net.classifier(net.norm(net.features(x).flatten(1))), dim=-1, dtype=torch.float32)"
    lines = (*report.cell.lines[:4], line, *report.cell.lines[5:])
    page = static_page(trace_html.render(replace(report, cell=replace(report.cell, lines=lines))), width=width)
    shown = page.locator(".lines code").filter(has_text="net.classifier")
    expect(shown).to_be_visible()
    cut = "one => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1"
    assert shown.text_content() == line
    assert not shown.evaluate(cut)
    assert not shown.evaluate(f"one => ({cut})(one.closest('.line'))")


def test_graph_whose_forward_and_backward_are_both_not_finite_is_seen_whole(static_page: OpenPage) -> None:
    """One box has the words, the others in which something was born have none; all of it is in view."""
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    with tm.trace() as run:
        (p * p.log()).sum().backward()
    assert len(run.report.graphs[0].first_nonfinite) > 1
    page = _mounted(static_page, run.report)
    around = page.locator(".graph").bounding_box()
    for box in page.locator(".box").all():
        place = box.bounding_box()
        assert around is not None
        assert place is not None
        assert around["x"] <= place["x"]
        assert around["y"] <= place["y"]


def test_charts_say_how_many_parameters_there_are(static_page: OpenPage) -> None:
    """Where some have no chart, both numbers stand above the charts."""
    page = _mounted(static_page, samples_viewer.broken_run(), limits=Limits(parameters=4))
    expect(page.get_by_text("of 4 of 6 parameters")).to_be_visible()


def test_counts_of_a_line_stay_left_of_its_bar(static_page: OpenPage) -> None:
    """Five digits have room: a line of a run of 100,000 nodes."""
    page = _mounted(static_page, samples_viewer.broken_run())
    count = page.locator(".lines .count").first
    gap = count.evaluate("""element => {
        element.textContent = "60000";
        const words = document.createRange();
        words.selectNodeContents(element);
        return element.nextElementSibling.getBoundingClientRect().left - words.getBoundingClientRect().right;
    }""")
    assert gap >= 2


def test_the_map_stands_below_the_details(static_page: OpenPage) -> None:
    """It covers no box that the details leave free; without them it is where it was."""
    page = _mounted(static_page, samples_viewer.large_run(200, passes=2), limits=Limits())
    for _ in range(3):
        page.locator(".box.folds").first.click()
    small, drawer = page.locator(".map"), page.locator(".drawer")
    before = small.bounding_box()
    page.keyboard.press(" ")
    expect(drawer).to_be_visible()
    now, details = small.bounding_box(), drawer.bounding_box()
    assert now["y"] >= details["y"] + details["height"] > details["y"] + 250
    assert now["x"] >= details["x"]
    page.keyboard.press("Escape")
    assert small.bounding_box() == before
