/** The picture of one graph: what is near is an element each, what is far one for all that look alike; pan, zoom, focus and selection live here. */

import { Camera, FAR, boundsOf, coveredBy, mapSize, listenTo } from "./camera.js";
import { filled, html, svg } from "../dom.js";
import { pointsOf } from "./words.js";
import { hatchPattern, boxMark, paintBox, frameMark, wireMark, paintWire, wireState, around, bornMark, findingMarks, derivativeMarks, crashMarks, boxSpecks, lineSpecks, frameSpecks, cutMarks } from "./marks.js";

/** @typedef {{label:string, select:(box:number, node:number|null)=>void, tell:(box:number)=>string, opens:(box:number)=>boolean, open:(box:number)=>void, fold:(part:number)=>void}} GraphHooks */

const ALWAYS = 300; // so many boxes are elements wherever they lie; of more only those in view are
const TINY = 0.32; // below that not even these: many boxes are specks then
const LINES_SEEN = 0.12; // below that zoom no lines are drawn between them
const SPECK = 1.5; // pixels, at least, that a box has there
const LEAST_ASIDE = 320; // pixels of the view, the map's own beside them, that the details leave it room in
const STEPS = 4; // in which zoom doubles: within one, what is drawn only grows

/** The picture of one graph: built once, then recoloured. */
export class GraphView extends Camera {
  bornKey = "";
  picture = null;
  lens = null;
  /** what each box shows */ states = [];
  /** called when the zoom changed */ zoomed;
  cursorMark = svg("rect", { class: "cursor", rx: 7, visibility: "hidden" });
  chosenMark = svg("rect", { class: "chosen", rx: 8, visibility: "hidden" });
  bornLayer = svg("g", { class: "born" });
  crashLayer = svg("g");
  derivativeLayer = svg("g");
  wireLayer = svg("g", { class: "wires" });
  cutLayer = svg("g", { class: "ends" });
  frameLayer = svg("g", { class: "frames" });
  boxLayer = svg("g", { class: "boxes" });
  farLayer = svg("g", { class: "specks" });
  /** the zoom for which it was drawn; 0: it is empty */ farZoom = 0;
  /** the same of the map */ mapScale = 0;
  /** the elements of boxes, where they have any */ marks = [];
  lines = [];
  bars = [];
  /** the part of the picture that has elements */ covered = null;
  /** boxes that are lit while the others step back */ lit = null;
  /** the way that is lit */ way = null;
  selected = -1;
  focused = 0;

  constructor(hatch, hooks) {
    super();
    this.hooks = hooks;
    this.world = svg(
      "g",
      { class: "world" },
      ...[this.frameLayer, this.wireLayer, this.cutLayer, this.boxLayer, this.farLayer, this.cursorMark, this.chosenMark],
      ...[this.bornLayer, this.derivativeLayer, this.crashLayer],
    );
    this.canvas = svg(
      "svg",
      {
        class: "canvas",
        role: "group",
        tabindex: "-1", // Chromium stops at what listens for the focus: the boxes are one stop, and the only one
        "aria-label": hooks.label,
      },
      svg("defs", {}, hatchPattern(hatch)),
      this.world,
    );
    this.specks = svg("svg", { class: "specks", preserveAspectRatio: "xMinYMin" });
    this.window = html("div", { class: "window" });
    this.map = html("div", { class: "map", "aria-hidden": "true", hidden: true }, this.specks, this.window);
    this.words = html("p", { class: "tm-sr" }); // what the picture says, for who hears it
    this.element = html("div", { class: "graph" }, this.words, this.canvas, this.map);
    listenTo(this);
  }

  /** graph: a decoded graph */
  load(graph) {
    this.picture = this.lens = this.lit = this.way = null;
    this.selected = -1;
    this.focused = 0;
    this.moved = false;
    this.wanted = null;
    for (const mark of [this.cursorMark, this.chosenMark]) around(mark, null, 0);
    this.bornLayer.replaceChildren();
    this.reshape(graph);
    this.element.classList.remove("picking");
    this.resize();
  }

  /** Take over other boxes and wires of the same graph: something was opened or folded. */
  reshape(graph) {
    this.graph = graph;
    this.bornKey = "none";
    this.born = -1;
    this.covered = null;
    this.states = graph.boxes.map(() => "wait");
    this.marks = graph.boxes.map(() => undefined);
    this.lines = graph.wires.map(() => undefined);
    this.boxLayer.replaceChildren();
    this.wireLayer.replaceChildren();
    this.cutLayer.replaceChildren(...cutMarks(graph));
    this.crashLayer.replaceChildren(...crashMarks(graph), ...findingMarks(graph));
    this.bars = graph.opened.map(() => undefined);
    this.frameLayer.replaceChildren();
    this.focused = Math.min(this.focused, Math.max(graph.boxes.length - 1, 0));
    this.element.classList.toggle("opened", graph.opened.length > 0);
  }

  // -- painting

  paint(picture, lens) {
    [this.picture, this.lens] = [picture, lens];
    this.states = this.graph.boxes.map(lens.box);
    this.paintMarks();
    if (lens.wires || this.derivativeLayer.childElementCount)
      this.derivativeLayer.replaceChildren(...derivativeMarks(this.graph, lens.wires, this.states));
    const at = picture.cursor >= 0 && picture.running ? this.graph.boxOf.get(picture.cursor) : undefined;
    around(this.cursorMark, at === undefined ? null : this.graph.boxes[at], 3);
    this.paintBorn(picture);
    this.paintFar();
    this.paintMap();
  }

  paintMarks() {
    const { lens, states } = this,
      far = this.view.k < FAR;
    if (!lens) return;
    const { way } = this;
    this.marks.forEach((mark, at) => mark && paintBox(mark, states[at], this.flags(at), lens, far, way && way.nodes));
    this.lines.forEach((line) => line && paintWire(line, wireState(line.wire, states), way?.on(line.wire) ? " picked" : ""));
  }

  /** Classes of a box beside that of its state. */
  flags(at) {
    return `${this.lit?.has(at) ? " picked" : ""}${at === this.born ? " born" : ""}`;
  }

  paintBorn(picture) {
    const older = this.graph.forwardMark, // what the forward held already is not born in the backward
      nonfinite = older && older.pass === picture.pass ? [older] : picture.nonfinite;
    const key = nonfinite.map((first) => first.node).join();
    if (key === this.bornKey) return;
    this.bornKey = key;
    const first = nonfinite[0],
      before = this.born;
    this.born = first ? (this.graph.boxOf.get(first.node) ?? 0) : -1;
    this.bornLayer.replaceChildren(
      ...(first ? [bornMark(this.graph, this.graph.boxes[this.born], first)] : []),
    );
    // The words take the place of the norm; the drawer and the line of source still say it.
    for (const at of [before, this.born]) this.marks[at]?.element.classList.toggle("born", at === this.born);
  }

  /** box: -1 for none */
  select(box) {
    this.selected = box;
    around(this.chosenMark, box < 0 ? null : this.graph.boxes[box], 3.5);
  }

  /** nodes: show these, step the others back */
  highlight(nodes) {
    this.element.classList.toggle("picking", nodes !== null);
    this.lit = nodes && new Set();
    this.graph?.boxes.forEach((box, at) => {
      const hit = nodes && (box.nodes.some((node) => nodes.has(node)) || box.badges.some(([node]) => nodes.has(node)));
      if (hit) this.lit?.add(at);
    });
    this.paintMarks();
    this.paintFar();
    if (this.lens) this.paintMap();
  }

  // -- what has elements

  /** Whether boxes are specks, without an element each: there are many, and they are too small to be read. */
  isFar() {
    return this.view.k < TINY && (this.graph?.boxes.length ?? 0) > ALWAYS;
  }

  /** The zoom, in steps, for which specks are drawn; 0 where it is near. */
  farStep() {
    return this.isFar() ? 2 ** (Math.round(Math.log2(this.view.k) * STEPS) / STEPS) : 0;
  }

  /** What can still be told apart from far away: an element for all that look alike. */
  paintFar() {
    const { graph, states, way } = this,
      k = (this.farZoom = this.farStep());
    if (!k) return this.farLayer.replaceChildren();
    const lineState = (wire) => (way && !way.on(wire) ? "wait" : wireState(wire, states));
    this.farLayer.replaceChildren(
      ...frameSpecks(graph.opened, k),
      ...(k > LINES_SEEN ? lineSpecks(graph.wires, lineState) : []),
      ...boxSpecks(graph.boxes, this.litStates(), 0, SPECK / k),
    );
  }

  /** What each box shows, as far as it does not step back. */
  litStates() {
    const { lit, states } = this;
    return lit ? states.map((state, at) => (lit.has(at) ? state : "wait")) : states;
  }

  /** Give elements to what is in view, and to a little around it. */
  cover() {
    const { k, x, y } = this.view,
      { width: W, height: H } = this.room,
      every = this.graph.boxes.length <= ALWAYS;
    const seen = [-x / k, -y / k, (W - x) / k, (H - y) / k];
    const had = this.covered;
    if (had && (every || (seen[0] >= had[0] && seen[1] >= had[1] && seen[2] <= had[2] && seen[3] <= had[3]))) return;
    const [wide, tall] = [(seen[2] - seen[0]) * 0.4, (seen[3] - seen[1]) * 0.4];
    this.covered = every
      ? [-Infinity, -Infinity, Infinity, Infinity]
      : [seen[0] - wide, seen[1] - tall, seen[2] + wide, seen[3] + tall];
    const covers = coveredBy(this.covered);
    this.graph.boxes.forEach((box, at) => {
      const { x, y, w, h } = box,
        within = covers({ x, y: y - 20, w, h: h + 20 }); // with the number above it
      if (within !== Boolean(this.marks[at])) this.exchange(at, within || at === this.focused);
    });
    this.graph.wires.forEach((wire, at) => {
      wire.bounds ??= boundsOf(pointsOf(wire.points));
      exchanged(this.lines, at, covers(wire.bounds), this.wireLayer, () => wireMark(wire));
    });
    this.coverFrames(this.graph.opened.map(covers));
    this.paintMarks();
  }

  /** Frames in their order, the outer ones below. */
  coverFrames(near) {
    if (near.every((within, at) => within === Boolean(this.bars[at]))) return;
    this.bars = near.map((within, at) =>
      within ? (this.bars[at] ?? frameMark(this.graph.opened[at], this.graph.words)) : undefined,
    );
    this.frameLayer.replaceChildren(...this.bars.filter(Boolean));
  }

  /** Give a box its element, or take it away. */
  exchange(at, wanted) {
    const { boxes, words } = this.graph;
    exchanged(this.marks, at, wanted, this.boxLayer, () => boxMark(boxes[at], at, this.hooks.opens(at), words));
    if (at === this.focused) this.marks[at]?.element.setAttribute("tabindex", "0");
  }

  show() {
    if (!this.graph) return;
    const { k, x, y } = this.view,
      far = k < FAR,
      bare = this.isFar();
    this.canvas.classList.toggle("bare", bare);
    this.world.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(4)})`);
    this.canvas.classList.toggle("tiny", k < TINY);
    if (!bare) this.cover();
    if (this.canvas.classList.contains("far") !== far) {
      this.canvas.classList.toggle("far", far);
      this.paintMarks();
    }
    this.zoomed?.(k);
    if (this.farZoom !== this.farStep()) this.paintFar();
    this.moveMap();
  }

  // -- the map: drawn once for each change of the picture, the window on it at each move

  paintMap() {
    const { width, height } = this.graph.size,
      { w, h, scale } = mapSize(this.graph.size, this.room.height);
    this.mapScale = scale;
    filled(this.specks, { width: w, height: h, viewBox: `0 0 ${width} ${height}` });
    this.specks.replaceChildren(...boxSpecks(this.graph.boxes, this.litStates(), SPECK / scale, SPECK / scale));
    this.moveMap();
  }

  moveMap() {
    const { width, height } = this.graph.size,
      { k, x, y } = this.view,
      { width: W, height: H } = this.room;
    const whole = x >= -1 && y >= -1 && x + width * k <= W + 1 && y + height * k <= H + 1;
    const { scale, w, h } = mapSize(this.graph.size, H);
    this.map.hidden = whole || H < (this.aside ? h + LEAST_ASIDE : 140);
    this.element.parentElement?.style.setProperty("--map", `${this.map.hidden ? 0 : h + 10}px`);
    if (this.map.hidden) return;
    if (this.lens && this.mapScale !== scale) return this.paintMap(); // it was made for another room
    const [left, top] = [Math.max((-x / k) * scale, 0), Math.max((-y / k) * scale, 0)];
    const wide = Math.max(Math.min(((W - x) / k) * scale, w) - left, 3),
      tall = Math.max(Math.min(((H - y) / k) * scale, h) - top, 3);
    this.window.style.cssText = `width:${wide}px;height:${tall}px;transform:translate(${left}px,${top}px)`;
  }

  // -- focus

  /** The box the arrow points to: along a wire where one leads there, else the nearest. */
  neighbour(dx, dy) {
    const { focused } = this,
      here = this.graph.boxes[focused],
      middle = (box) => [box.x + box.w / 2, box.y + box.h / 2];
    const [hx, hy] = middle(here);
    const ways = this.graph.wires.flatMap(({ source, target }) => [[source, target], [target, source]]),
      wired = new Set(ways.filter(([from]) => from === focused).map(([, to]) => to));
    let best = focused,
      least = Infinity;
    this.graph.boxes.forEach((box, place) => {
      const [x, y] = middle(box),
        ahead = (x - hx) * dx + (y - hy) * dy,
        aside = Math.abs((x - hx) * dy) + Math.abs((y - hy) * dx);
      if (ahead <= 1 || (!wired.has(place) && aside > ahead)) return;
      const cost = ahead + 2 * aside - (wired.has(place) ? 1e6 : 0);
      if (cost < least) [best, least] = [place, cost];
    });
    return best;
  }

  /** place: the one box that Tab stops at */
  stopAt(place) {
    this.marks[this.focused]?.element.setAttribute("tabindex", "-1");
    this.focused = place;
    this.marks[place]?.element.setAttribute("tabindex", "0");
  }

  focus(place) {
    this.stopAt(place);
    if (this.isFar()) this.zoom(0.6 / this.view.k);
    this.reveal(this.graph.boxes[place]);
    this.exchange(place, true);
    this.paintMarks();
    this.marks[place].element.focus({ preventScroll: true });
  }
}

/** Give one of many its element, or take it away. */
function exchanged(marks, at, wanted, layer, made) {
  if (wanted === Boolean(marks[at])) return;
  if (wanted) layer.append((marks[at] = made()).element);
  else {
    marks[at].element.remove();
    marks[at] = undefined;
  }
}
