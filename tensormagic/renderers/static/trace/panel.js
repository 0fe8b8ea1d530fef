// @ts-check
/** Everything together: which pass of which graph is shown, and what is selected. */

import { VERSION, UNTOUCHED, NOT_MEASURABLE } from "./constants.js";
import { html, later, say, plural, level, glyph, lossText, GLYPHS } from "./words.js";
import { Model, samePicture } from "./model.js";
import { GraphView } from "./graph.js";
import { Charts } from "./charts.js";
import { Source } from "./source.js";
import { Drawer } from "./drawer.js";
import { Folds } from "./folds.js";
import { Heat } from "./heat.js";
import { Search } from "./search.js";
import { Headline } from "./headline.js";
import { standing, slide } from "./motion.js";
import { Player, speedChooser, passPace, orderPace, upTo } from "./player.js";

/** @typedef {import("./constants.js").Picture} Picture */
/** @typedef {import("./constants.js").DeltaHeader} DeltaHeader */

const OPENING = "\nclick: what is inside · Shift+click: numbers of the whole";
const TIGHT = 900; // pixels below which numbers beside the tools have no room
const FEW = 10; // nodes below which nothing has to be searched

let mounted = 0;

/** How the last panel of each model was looked at: a cell that is run again shows it so again. @type {Map<string, {mode:string, open:Set<string>}>} */
const remembered = new Map();

/** A picture of nothing yet. @param {number} count @returns {Picture} */
function blank(count) {
  const norms = new Float32Array(count).fill(UNTOUCHED);
  return { norms, bad: new Map(), births: [], cursor: -1, pass: 0, running: false };
}

/** Everything together: which pass of which graph is shown, and what is selected. */
export class Panel {
  /** @type {Model} */ model = new Model({ graphs: [], passes: [], parameters: [], source: [] });
  /** @type {Picture} what is painted */ picture = blank(0);
  /** @type {Picture} the whole pass that the order slider goes through */ whole = blank(0);
  /** @type {Folds} */ folds = later();
  /** @type {Player} */ passes = later();
  /** @type {Player} */ order = later();
  /** @type {any} */ liveButton = later();
  /** @type {any} */ tools = later();
  /** @type {any} */ footer = later();
  /** @type {Set<number>|null} the nodes of the line that is picked */ lit = null;
  graph = 0;
  reached = 0;
  running = false;
  calm = false;
  shown = false;
  opened = false;
  following = true;
  painting = 0;
  /** @type {{box:number, node:number}|null} */ selection = null;
  /** @type {{header:DeltaHeader, values:Float32Array}|null} */ newest = null;

  /** @param {Element} host @param {any} doc @param {{live?:boolean}} [options] live: a kernel feeds it, so that time goes on */
  constructor(host, doc, { live = false } = {}) {
    mounted += 1;
    this.hatch = `tm-hatch-${mounted}-${Math.random().toString(36).slice(2, 7)}`;
    this.root = html("div", { class: "tmv", tabindex: -1, style: `--hatch-fill:url(#${this.hatch})` });
    const jump = {
      line: (/** @type {number} */ location) => this.showLine(location),
      node: (/** @type {number} */ graph, /** @type {number} */ node) => this.showNode(graph, node),
    };
    this.headline = new Headline(live, { ...jump, toggle: () => this.toggle() });
    this.graphView = new GraphView(this.hatch, {
      select: (box, node) => this.choose(box, node),
      tell: (box) => this.model.boxTip(this.graph, box) + (this.folds.opens(box) ? OPENING : ""),
      opens: (box) => this.folds?.opens(box) ?? false,
      open: (box) => this.openBox(box),
      fold: (part) => this.foldPart(part),
    });
    this.charts = new Charts(this.hatch, { goto: (pass) => this.goto(pass) });
    this.source = new Source({ pick: (nodes) => this.pickLine(nodes) });
    this.drawer = new Drawer({ close: () => this.close(), select: (box, node) => this.choose(box, node), line: jump.line });
    this.heat = new Heat(this.hatch, () => {
      this.remember();
      this.paint();
    });
    this.search = new Search({
      light: (nodes) => this.graphView.highlight(nodes),
      show: (node) => this.showNode(this.graph, node, true),
      leave: () => this.graphView.graph && this.graphView.focus(this.graphView.focused),
    });
    this.buildPlayers();
    this.build();
    host.replaceChildren(this.root);
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(this.root);
    this.sizes.observe(this.graphView.element);
    this.update(doc);
  }

  buildPlayers() {
    const { select, speed } = speedChooser();
    this.passes = new Player({
      name: "pass",
      title: "play the kept passes (space)",
      label: "play",
      pace: () => passPace(speed()),
      move: (at) => this.scrub(at),
    });
    this.order = new Player({
      name: "order",
      title: "play the way that backward goes through the nodes (space)",
      label: "play the order of backward",
      pace: () => orderPace(this.wayLength(), speed()),
      move: (at) => this.walk(at),
    });
    this.liveButton = html("button", { type: "button", hidden: true, click: () => this.follow() }, "Back to live");
    this.passes.element.append(this.liveButton);
    this.order.element.append(select);
    this.footer = html("footer", { class: "foot-bar" }, this.passes.element, this.order.element);
  }

  build() {
    this.whereabouts = html("span", { class: "whereabouts", "aria-live": "off" });
    this.zoomText = html("span", { class: "quiet" });
    this.graphView.zoomed = (/** @type {number} */ k) => say(this.zoomText, `zoom ${Math.round(k * 100)} %`);
    this.graphNote = html("span", { class: "quiet" });
    this.chooser = html("select", {
      hidden: true,
      "aria-label": "graph",
      change: (/** @type {any} */ event) => this.chooseGraph(Number(event.target.value)),
    });
    const square = (/** @type {string} */ title, /** @type {string} */ icon, /** @type {()=>void} */ click) =>
      html("button", { type: "button", class: "square", title, "aria-label": title, click }, glyph(icon));
    this.foldButton = square("fold all boxes", GLYPHS.fold, () => this.foldAll());
    this.unfoldButton = square("open all boxes", GLYPHS.unfold, () => this.openAll());
    const zooms = html(
      "span",
      { class: "zooms" },
      this.unfoldButton,
      this.foldButton,
      square("zoom in", GLYPHS.in, () => this.graphView.zoom(1.25)),
      square("zoom out", GLYPHS.out, () => this.graphView.zoom(0.8)),
      square("see all of it", GLYPHS.fit, () => this.graphView.fit()),
    );
    const end = html("span", { class: "end" });
    this.tools = html(
      "span",
      { class: "tools" },
      this.search.element,
      html("label", {}, html("span", { class: "quiet" }, "colour"), this.heat.select),
    );
    const bar = html(
      "div",
      { class: "bar-top" },
      ...[this.whereabouts, this.chooser, end, this.tools, this.graphNote, this.zoomText, zooms],
    );
    this.stage = html("div", { class: "stage" }, bar, this.graphView.element, this.heat.legend);
    this.lower = html("div", { class: "lower" }, this.charts.element, this.source.element);
    const left = html("div", { class: "left" }, this.stage, this.lower);
    const main = html("div", { class: "main" }, left, this.drawer.element);
    this.notes = html("div", { class: "notes quiet" });
    this.root.append(this.headline.header, this.headline.findings, main, this.footer, this.notes);
    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const writing = /** @type {any} */ (event.target).closest?.("input,select,textarea,button");
    if (event.key === "Escape" && this.selection) this.close();
    else if (event.key === "Escape" && this.graphView.canvas.contains(document.activeElement)) this.foldAround();
    else if (event.key === "/" && !writing && !this.stage.hidden) this.search.field.focus();
    else if (event.key === " " && !writing && !this.footer.hidden) this.order.play(!this.order.timer);
    else return;
    event.stopPropagation();
    event.preventDefault();
  }

  // -- documents

  /** Show a newer document, or the first. What did not change keeps its elements, its focus and its place.
   * @param {any} doc */
  update(doc) {
    if (doc.version !== VERSION)
      return void this.root.replaceChildren(
        html(
          "p",
          { class: "notes" },
          `This panel reads documents of version ${VERSION}; this one has version ${doc.version}.`,
        ),
      );
    const old = this.shown ? this.model : null,
      shown = old?.graphs[this.graph];
    this.shown = true;
    this.model = new Model(doc);
    this.running = doc.state === "running";
    if (!this.running) this.setFollowing(false);
    this.headline.load(this.model, old?.doc);
    this.calm = doc.state === "finished" && doc.passes_seen > 0 && !this.headline.serious();
    this.charts.load(this.model, this.collapsed());
    this.drawNotes();
    this.passes.limit(this.model.frames.length - 1);
    const place = Math.max(shown ? this.model.placeOf(shown.number) : 0, 0);
    if (shown && samePicture(shown, this.model.graphs[place])) this.graph = this.keep(place);
    else this.load(place, shown);
    this.arrange();
    if (this.running && this.newest) this.paintDelta();
    if (!this.running || !this.newest) this.scrub(this.firstFrame());
    else if (!this.following) this.goto(this.picture.pass);
  }

  /** Exchange the data under a picture whose boxes and wires are the same. @param {number} place @returns {number} */
  keep(place) {
    this.enter(place, this.folds);
    this.graphView.graph = this.model.graphs[place];
    if (this.folds.anyOpen()) this.graphView.reshape(this.model.graphs[place]);
    return place;
  }

  /** What goes by the graph that is shown. @param {number} place @param {Folds|null} before whose open boxes stay open */
  enter(place, before) {
    const graph = this.model.graphs[place],
      raw = this.model.doc.graphs[place],
      known = before ? undefined : remembered.get(this.kept(graph));
    if (known) this.heat.mode = known.mode;
    this.source.load(this.model, place);
    this.warnLines();
    this.fillChooser(place);
    this.heat.load(this.model, place);
    if (graph) this.folds = new Folds(graph, raw, this.model.doc.strings, before?.openKeys() ?? known?.open);
    this.search.load(this.model, place);
    this.order.limit(graph?.order.length ?? 0);
    this.arrangeFolds();
    this.tools.hidden = (graph?.count ?? 0) < FEW;
  }

  /** What a run is known by when it comes again. @param {any} graph */
  kept(graph) {
    return `${this.model.doc.title} ${graph?.count}`;
  }

  remember() {
    const graph = this.model.graphs[this.graph];
    if (graph) remembered.set(this.kept(graph), { mode: this.heat.mode, open: this.folds.openKeys() });
  }

  collapsed() {
    return this.calm && !this.opened;
  }

  /** What is visible in this state of the run. */
  arrange() {
    const empty = !this.model.graphs.length,
      folded = this.collapsed();
    this.stage.hidden = empty || folded;
    const nothing = !this.running && !this.model.doc.passes_seen;
    this.source.element.hidden = folded || nothing || !this.source.rows.length;
    this.lower.classList.toggle("single", this.source.element.hidden);
    this.charts.element.hidden = nothing || (!this.model.doc.parameters.length && !this.running);
    this.lower.hidden = this.charts.element.hidden && this.source.element.hidden;
    this.arrangeFooter(folded);
    this.graphView.resize();
    this.charts.paintVisible();
    this.source.open();
  }

  /** @param {boolean} folded */
  arrangeFooter(folded) {
    const { length } = this.model.frames;
    this.passes.element.hidden = length < 2 && !(this.running && length);
    this.order.element.hidden = this.running || !length || this.wayLength() < 2;
    this.footer.hidden = folded || (this.passes.element.hidden && this.order.element.hidden);
  }

  drawNotes() {
    const { doc } = this.model,
      lines = [...doc.cuts, ...doc.gaps.map((/** @type {string[]} */ [section, reason]) => `${section}: ${reason}`)];
    this.notes.replaceChildren(...lines.map((line) => html("p", {}, line)));
    this.notes.hidden = !lines.length;
  }

  // -- which graph, which pass

  /** @param {number} place @param {any} [before] the graph that was shown in its stead */
  load(place, before) {
    const graph = this.model.graphs[place],
      view = { ...this.graphView.view },
      same = before?.number === graph?.number,
      stays = this.graphView.moved && same;
    this.graph = place;
    this.enter(place, same ? this.folds : null);
    this.close();
    if (!graph) return;
    this.picture = this.whole = blank(graph.count);
    this.graphView.load(graph);
    if (stays) {
      this.graphView.view = view;
      this.graphView.moved = true;
      this.graphView.show();
    }
    this.sayBoxes();
  }

  sayBoxes() {
    const { drawing, boxes, count } = this.model.graphs[this.graph];
    const words = boxes.length < count ? ` in ${plural(boxes.length, "box")}` : "";
    say(this.graphNote, `${plural(count, "node")}${words}`);
    this.graphNote.title = drawing.note;
  }

  warnLines() {
    const { doc, rowOfLocation } = this.model,
      serious = doc.findings.filter(
        (/** @type {any} */ finding) => finding.severity !== "note" && finding.location !== null,
      );
    this.source.warn(new Set(serious.map((/** @type {any} */ finding) => rowOfLocation.get(finding.location))));
  }

  /** @param {number} place */
  fillChooser(place) {
    const { doc, graphs } = this.model;
    this.chooser.hidden = graphs.length < 2;
    this.chooser.replaceChildren(
      ...graphs.map((one, at) =>
        html(
          "option",
          { value: at, selected: at === place },
          `graph ${one.number}: ${plural(one.count, "node")}, ${doc.graphs[at].passes_seen || !one.crash ? plural(doc.graphs[at].passes_seen, "pass") : "up to the refused call"}`,
        ),
      ),
    );
  }

  /** @param {number} place */
  chooseGraph(place) {
    const frame = this.model.frames.findLastIndex((one) => one.graph === place);
    if (frame >= 0) this.scrub(frame);
    else {
      this.load(place);
      this.paint();
    }
  }

  /** The pass to open with: the first one something was born in, where that is what went wrong; else the last. */
  firstFrame() {
    const births = this.model.graphs
      .flatMap((graph, place) => graph.births.map((/** @type {any} */ birth) => ({ place, pass: birth.pass })))
      .sort((a, b) => a.pass - b.pass);
    const at = births.length
      ? this.model.frames.findIndex((one) => one.graph === births[0].place && one.frame.pass === births[0].pass)
      : -1;
    return at >= 0 ? at : this.model.frames.length - 1;
  }

  /** @param {number} at place among the kept passes */
  scrub(at) {
    const one = this.model.frames[at];
    if (!one) return this.paint();
    if (this.running) this.setFollowing(at === this.model.frames.length - 1 && this.following);
    if (one.graph !== this.graph) this.load(one.graph);
    this.order.play(false);
    const { norms, bad, pass } = one.frame,
      births = this.model.graphs[one.graph].births.filter((/** @type {any} */ birth) => birth.pass === pass);
    this.picture = this.whole = { norms, bad, births, cursor: -1, pass, running: false };
    const row = this.model.passes.get(pass),
      { doc } = this.model;
    const kept =
      this.model.frames.length < doc.passes_traced ? ` · ${this.model.frames.length} of ${doc.passes_traced} kept` : "";
    const step = row ? `, step ${row[1]}${row[3] === "failed" ? ", failed" : ""}${lossText(row)}` : "";
    this.passes.stand(at, `pass ${pass}${step}${kept}`);
    this.order.stand(this.wayLength(), "order: all nodes");
    this.paint();
  }

  /** How many nodes the engine reached, in their order. */
  wayLength() {
    return this.model.graphs[this.graph]?.order.length ?? 0;
  }

  /** Go through the order of backward: what it has reached so far is lit. @param {number} at how many nodes */
  walk(at) {
    const { order } = this.model.graphs[this.graph],
      { norms, bad, births, pass } = this.whole;
    this.reached = at;
    const done = at >= order.length,
      reached = new Set(order.slice(0, at));
    const born = births.filter((birth) => done || reached.has(birth.receiver));
    this.picture = done
      ? this.whole
      : { norms: upTo(norms, order, at), bad, births: born, cursor: at ? order[at - 1] : -1, pass, running: true };
    this.order.stand(at, done ? "order: all nodes" : `order: node ${at} of ${order.length}`);
    this.paint();
    if (!done && at) this.graphView.follow(order[at - 1]);
  }

  /** @param {number} pass show the kept pass nearest to it */
  goto(pass) {
    const distance = (/** @type {number} */ at) => Math.abs(this.model.frames[at].frame.pass - pass);
    let best = 0;
    this.model.frames.forEach((_frame, at) => {
      if (distance(at) < distance(best)) best = at;
    });
    if (!this.model.frames.length) return;
    this.following = false;
    this.scrub(best);
  }

  // -- live

  /** @param {DeltaHeader} header @param {Float32Array} values */
  delta(header, values) {
    this.newest = { header, values };
    if (!this.painting)
      this.painting = requestAnimationFrame(() => {
        this.painting = 0;
        if (this.running) this.paintDelta();
      });
  }

  paintDelta() {
    const { header, values } = /** @type {{header:DeltaHeader, values:Float32Array}} */ (this.newest);
    this.headline.drawProgress(header.step, header.pass, header.seconds, header.resting ? header.next : -1);
    if (header.finished)
      this.charts.append(header.finished, values.subarray(header.nodes, header.nodes + header.parameters));
    const place = this.model.placeOf(header.graph);
    if (!this.following || place < 0 || this.model.graphs[place].count !== header.nodes) return;
    if (place !== this.graph) this.load(place);
    this.picture = {
      norms: values.subarray(0, header.nodes),
      bad: new Map(),
      births: [],
      cursor: header.cursor,
      pass: header.pass,
      running: header.running,
    };
    const shown = header.resting ? `pass ${header.pass}, the last that was traced` : `pass ${header.pass}, step ${header.step}`;
    this.passes.stand(Number(this.passes.slider.max), `live, ${shown}`);
    this.reached = header.reached;
    this.paint();
  }

  follow() {
    this.setFollowing(true);
    if (this.newest) this.paintDelta();
  }

  /** @param {boolean} on */
  setFollowing(on) {
    this.following = on;
    this.liveButton.hidden = on || !this.running;
  }

  // -- painting

  paint() {
    const { picture } = this;
    if (!this.model.graphs.length) return;
    if (this.collapsed()) return void this.charts.at(picture.pass || Infinity);
    this.stage.dataset.heat = this.heat.mode.split(" ").pop();
    this.graphView.paint(picture, this.heat.lens(picture, this.graphView.graph.boxes));
    this.source.paint(picture.norms);
    this.charts.at(this.running && picture.running ? Infinity : picture.pass);
    this.drawer.refresh(picture);
    this.sayWhere(picture);
    if (!this.liveButton.hidden && !this.running) this.liveButton.hidden = true;
  }

  /** @param {Picture} picture */
  sayWhere(picture) {
    const graph = this.model.graphs[this.graph];
    if (picture.running && picture.cursor >= 0)
      return say(
        this.whereabouts,
        `◀ backward is at ${this.model.boxLabel(this.graph, picture.cursor)}, node ${this.reached} of ${graph.count}`,
      );
    let touched = 0,
      bad = 0,
      blind = 0;
    for (const norm of picture.norms) {
      if (norm !== UNTOUCHED) touched += 1;
      if (norm < UNTOUCHED) blind += 1;
      if (!Number.isFinite(norm)) bad += 1;
    }
    if (blind) this.stage.classList.add("has-blind");
    const waiting = graph.count - touched;
    this.root.classList.toggle("drawn", Boolean(this.model.doc.words));
    if (this.model.doc.words) return say(this.whereabouts, "what backward runs through, right to left");
    say(
      this.whereabouts,
      `${picture.pass ? `pass ${picture.pass}: ` : ""}${touched} of ${plural(graph.count, "node")} reached${bad ? `, ${bad} with NaN or Inf` : ""}${blind ? `, ${blind} ${NOT_MEASURABLE}` : ""}${waiting && touched && !picture.running ? `, ${waiting} untouched` : ""}`,
    );
  }

  // -- opening and folding

  /** @param {number} box */
  openBox(box) {
    const { x, y } = this.graphView.graph.boxes[box],
      part = this.folds.part(box),
      before = standing(this.graphView);
    this.folds.open(part);
    this.reshaped();
    this.graphView.revealFrame(part, { x, y });
    const first = this.graphView.graph.boxes.findIndex((/** @type {any} */ one) =>
      this.folds.grown().path(one.part ?? -1).includes(part),
    );
    if (first >= 0) this.graphView.focus(first);
    slide(this.graphView, before, before.get(part) ?? null);
  }

  /** @param {number} part */
  foldPart(part) {
    const before = standing(this.graphView);
    this.folds.fold(part);
    this.reshaped();
    const box = this.graphView.graph.boxes.findIndex((/** @type {any} */ one, /** @type {number} */ at) => this.folds.part(at) === part);
    if (box >= 0) this.graphView.focus(box);
    slide(this.graphView, before, null);
  }

  /** Fold what lies round the box that has the focus. */
  foldAround() {
    if (!this.folds.anyOpen()) return;
    const tree = this.folds.grown(),
      around = tree.path(this.folds.part(this.graphView.focused)).filter((part) => tree.open.has(part));
    if (around.length) this.foldPart(around[around.length - 1]);
  }

  foldAll() {
    this.folds.foldAll();
    this.reshaped();
    this.graphView.moved = false;
    this.graphView.resize();
  }

  openAll() {
    this.folds.openAll();
    this.reshaped();
    this.graphView.fit();
  }

  arrangeFolds() {
    this.foldButton.hidden = !this.folds?.anyOpen();
    this.unfoldButton.hidden = !this.folds?.mayOpenAll();
  }

  /** The same graph with other boxes: everything that goes by boxes is told. */
  reshaped() {
    const node = this.selection?.node,
      { graphView } = this;
    this.remember();
    graphView.reshape(this.model.graphs[this.graph]);
    graphView.moved = true;
    graphView.resize();
    this.arrangeFolds();
    this.sayBoxes();
    if (node !== undefined) {
      this.selection = { box: graphView.graph.boxOf.get(node) ?? -1, node };
      graphView.select(this.selection.box);
    } else graphView.select(-1);
    if (graphView.lit || this.lit) graphView.highlight(this.lit ?? (this.search.found.length ? new Set(this.search.found) : null));
    this.paint();
  }

  // -- selecting

  /** @param {number} box @param {number|string|null} node */
  choose(box, node) {
    const shape = this.model.graphs[this.graph].boxes[box],
      norms = this.picture.norms;
    const worst =
      shape.nodes.find((/** @type {number} */ one) => level(norms[one]) === "bad") ??
      shape.nodes.find((/** @type {number} */ one) => norms[one] !== UNTOUCHED) ??
      shape.nodes[0];
    const chosen = node === null ? worst : Number(node);
    this.selection = { box, node: chosen };
    this.graphView.select(box);
    this.drawer.show(this.model, this.graph, box, chosen, this.picture);
    const location = this.model.doc.graphs[this.graph].nodes.location[chosen];
    this.source.mark(location === null ? undefined : this.model.rowOfLocation.get(location));
  }

  close() {
    const box = this.selection?.box;
    this.selection = null;
    this.drawer.hide();
    this.source.mark(undefined);
    if (this.graphView.graph) this.graphView.select(-1);
    if (box !== undefined && this.root.contains(document.activeElement))
      this.graphView.marks[box]?.element.focus({ preventScroll: true });
  }

  /** @param {number} graph @param {number} node @param {boolean} [searching] the focus stays in the field */
  showNode(graph, node, searching = false) {
    if (this.collapsed()) this.toggle();
    if (graph !== this.graph && this.model.graphs[graph]) this.chooseGraph(graph);
    if (this.model.graphs[graph] && this.folds.reveal(node)) this.reshaped();
    const box = this.model.graphs[graph]?.boxOf.get(node);
    if (box === undefined) return;
    this.choose(box, node);
    this.graphView.resize();
    this.graphView.focus(box);
    if (searching) this.search.field.focus({ preventScroll: true });
  }

  /** Light the nodes of a line, and bring them into view; a fold or two that hides all of them is opened.
   * @param {Set<number>|null} nodes */
  pickLine(nodes) {
    this.lit = nodes;
    if (nodes && nodes.size <= 12 && this.folds.hiding(nodes) && this.folds.hiding(nodes) <= 3) {
      for (const node of nodes) this.folds.reveal(node);
      this.reshaped();
    }
    this.graphView.highlight(nodes ?? (this.search.found.length ? new Set(this.search.found) : null));
    if (nodes && this.graphView.lit) this.graphView.frameBoxes(this.graphView.lit);
  }

  /** @param {number} location */
  showLine(location) {
    if (this.collapsed()) this.toggle();
    const place = this.model.rowOfLocation.get(location);
    if (place === undefined) return;
    this.source.mark(place);
    this.source.pick(this.source.rows[place].nodes.length ? place : -1);
  }

  toggle() {
    this.opened = !this.opened;
    this.charts.load(this.model, this.collapsed());
    this.arrange();
    this.paint();
  }

  resized() {
    const { toggleButton } = this.headline;
    if (toggleButton) {
      toggleButton.hidden = !this.calm;
      say(toggleButton, this.collapsed() ? "Open graph" : "Close graph");
    }
    if (!this.stage.hidden) this.graphView.resize();
    this.stage.classList.toggle("tight", this.graphView.room.width < TIGHT);
    this.source.open();
    this.charts.paintVisible();
  }

  dispose() {
    this.passes.play(false);
    this.order.play(false);
    clearInterval(this.headline.clock);
    cancelAnimationFrame(this.painting);
    this.sizes.disconnect();
    this.root.remove();
  }
}
