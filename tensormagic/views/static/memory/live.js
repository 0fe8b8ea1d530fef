/**
 * `%%gpumem` while its cell runs: a line of bytes that moves, over the panel as it is every second or so.
 *
 * The panel is markup from the kernel, escaped there; it holds no script. What is open in it, chosen or focused stays so
 * when a newer one comes.
 */

import { fed, filled, html, keepingKeys, svg } from "../dom.js";

/** @typedef {{seconds:number, live:number, peak:number, words:[string, string]}} Frame */

const [WIDTH, HEIGHT] = [600, 48];
const MOST = 600; // moments that are kept: two for each pixel of a narrow notebook

// What is remembered of a run: the bytes alive at a bounded number of moments.

/** The bytes alive over time; of crowded neighbours the lowest and the highest stay. */
export class Track {
  constructor() {
    this.points = [];
  }

  add(frame) {
    this.points.push([frame.seconds, frame.live]);
    if (this.points.length > MOST) this.points = thinned(this.points);
  }

  /** The line as an SVG path in a box, and the height of the peak in it. */
  drawn(width, height, peak) {
    const [first, last] = [this.points[0], this.points[this.points.length - 1]];
    if (!first || !last) return { area: "", top: height };
    const span = last[0] - first[0] || 1;
    const most = Math.max(peak, ...this.points.map((point) => point[1])) || 1;
    const across = (seconds) => (((seconds - first[0]) / span) * width).toFixed(1);
    const down = (bytes) => (height - (bytes / most) * (height - 2)).toFixed(1);
    // what is alive stays what it is until it changes: steps, not slopes
    const steps = this.points.map(([seconds, bytes]) => `H${across(seconds)}V${down(bytes)}`);
    return { area: `M0 ${height}V${down(first[1])}${steps.join("")}H${width}V${height}Z`, top: Number(down(peak)) };
  }
}

/** Half as many: of each four neighbours the lowest and the highest, in their order. */
export function thinned(points) {
  const kept = [];
  for (let at = 0; at < points.length; at += 4) {
    const few = points.slice(at, at + 4);
    const low = few.reduce((best, point) => (point[1] < best[1] ? point : best));
    const high = few.reduce((best, point) => (point[1] > best[1] ? point : best));
    kept.push(...few.filter((point) => point === low || point === high));
  }
  return kept;
}

/** The line of bytes with its words. */
export class Now {
  constructor() {
    this.track = new Track();
    this.area = svg("path", { class: "tm-now-area" });
    this.top = svg("line", { class: "tm-now-top", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT });
    const size = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    this.words = html("p", { "aria-hidden": "true" }); // thirty times a second nobody wants to hear it
    this.element = html("div", { class: "tm-now" }, this.words, svg("svg", size, this.area, this.top));
    this.frame = null;
    this.waiting = 0;
  }

  show(frame) {
    this.track.add(frame);
    this.frame = frame;
    if (!this.waiting) this.waiting = requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.waiting = 0;
    const frame = this.frame;
    if (!frame) return;
    const { area, top } = this.track.drawn(WIDTH, HEIGHT, frame.peak);
    this.area.setAttribute("d", area);
    filled(this.top, { y1: top, y2: top });
    this.words.replaceChildren(html("b", {}, frame.words[0]), ` · ${frame.words[1]}`);
  }
}

/** Put newer markup in the place of the old: what was open, chosen or focused is so again. */
function replace(element, markup) {
  // by the words up to the first number: the numbers move
  const named = (each) => (each.querySelector("summary")?.textContent ?? "").split(/\d/)[0];
  const all = (selector) => [...element.querySelectorAll(selector)];
  const open = new Set(all("details[open]").map(named));
  const shut = new Set(all("details:not([open])").map(named));
  const chosen = new Set(all("input:checked").map((each) => each.className));
  const scrolled = all(".tm-scroll").map((each) => each.scrollTop);
  const places = "summary, input, [tabindex]";
  const focused = all(places).indexOf(document.activeElement);
  element.innerHTML = markup;
  for (const each of all("details")) {
    if (open.has(named(each))) each.open = true;
    else if (shut.has(named(each))) each.open = false;
  }
  for (const each of all("input")) if (chosen.has(each.className)) each.checked = true;
  all(".tm-scroll").forEach((each, at) => { each.scrollTop = scrolled[at] ?? 0; });
  if (focused >= 0) all(places)[focused]?.focus();
}

/** What anywidget calls, once a view. */
function render({ model, el }) {
  const now = new Now();
  const page = html("div");
  el.append(keepingKeys(html("section", { class: "tm tm-memory-live" }, now.element, page)));
  const show = (doc) => replace(page, doc.html),
    end = fed(model, show, (frame) => now.show(frame));
  show(model.get("_document"));
  return () => {
    end();
    cancelAnimationFrame(now.waiting);
  };
}

export default { render };
