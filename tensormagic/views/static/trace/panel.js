/** Everything together: which pass of which graph is shown, and what is selected. */

import { html, worded } from "../dom.js";
import { UNTOUCHED, hide, say } from "./words.js";
import { Model, pictureOf } from "./model.js";
import { Folds } from "./folds.js";
import { upTo, Views } from "./parts.js";
import { close, known, looksAt, note, recall, relight, sayPath } from "./choosing.js";
import { sayBoxes, sayWhere } from "./headline.js";

const FEW = 10; // nodes below which nothing has to be searched

/** A picture of nothing yet. */
function blank(count) {
  return { norms: new Float32Array(count).fill(UNTOUCHED), bad: new Map(), nonfinite: [], cursor: -1, pass: 0, running: false };
}

/** Everything together: which pass of which graph is shown, and what is selected. */
export class Panel extends Views {
  model = new Model({ graphs: [], passes: [], parameters: [], source: [] });
  /** what is painted */ picture = blank(0);
  /** the whole pass that the order slider goes through */ whole = blank(0);
  /** Folds, where there is a graph */ folds;
  /** the nodes of the line that is picked */ lit = null;
  /** the way that is shown alone */ way = null;
  /** how the runs of this cell were looked at */ looks = null;
  recalling = false;
  /** what the graph that is shown is remembered by */ likeness = 0;
  graph = 0;
  reached = 0;
  running = false;
  healthy = false;
  shown = false;
  /** whether the graph of a healthy run is open; null: nobody has chosen */ opened = null;
  following = true;
  painting = 0;
  selection = null;
  newest = null;

  /** live: a kernel feeds it, so that time goes on */
  constructor(host, doc, { live = false } = {}) {
    super(doc.words ?? {}, live);
    host.replaceChildren(this.root);
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(this.root);
    this.sizes.observe(this.graphView.element);
    this.update(doc);
  }

  // -- documents

  /** Show a newer document, or the first. What did not change keeps its elements, its focus and its place. */
  update(doc) {
    const old = this.shown ? this.model : null,
      shown = old?.graphs[this.graph];
    this.shown = true;
    this.model = new Model(doc);
    if (this.root.isConnected) this.looks ??= looksAt(this.root, doc.title);
    this.running = doc.state === "running";
    this.graphView.fills = Boolean(doc.wall);
    this.root.classList.toggle("wall", this.graphView.fills);
    this.heat.follow((doc.scale ?? []).map((end) => 10 ** end), !this.running || !old);
    const last = doc.state === "lost" && this.newest && this.following; // what it sent last is looked at
    if (!this.running && !last) this.setFollowing(false);
    this.headline.load(this.model, old?.doc);
    const calm = doc.findings.every((finding) => finding.severity === "note");
    this.healthy = doc.state === "finished" && doc.passes_seen > 0 && calm;
    this.charts.load(this.model, this.collapsed());
    this.notes.replaceChildren(...doc.notes.map((line) => html("p", {}, line)));
    this.passes.limit(this.model.frames.length - 1);
    const place = Math.max(shown ? this.model.placeOf(shown.number) : 0, 0),
      now = this.model.graphs[place];
    if (shown && now && pictureOf(shown) === pictureOf(now)) this.graph = this.keep(place);
    else this.load(place, shown);
    this.arrange();
    if ((this.running || last) && this.newest) this.paintDelta();
    if (last) this.setFollowing(false);
    else if (!this.running || !this.newest) this.scrub(this.firstFrame());
    else if (!this.following) this.goto(this.picture.pass);
  }

  /** Exchange the data under a picture whose boxes and wires are the same. */
  keep(place) {
    this.enter(place, this.folds);
    this.graphView.graph = this.model.graphs[place];
    if (this.folds.anyOpen()) this.graphView.reshape(this.model.graphs[place]);
    return place;
  }

  /** What goes by the graph that is shown. before: whose open boxes stay open. */
  enter(place, before) {
    const { doc, rowOfLocation } = this.model,
      [graph, raw, look] = [this.model.graphs[place], doc.graphs[place], known(this)],
      serious = doc.findings.filter(({ severity, location }) => severity !== "note" && location !== null);
    if (!before && this.looks?.mode) this.heat.mode = this.looks.mode;
    this.source.load(this.model, place);
    this.source.warn(new Set(serious.map(({ location }) => rowOfLocation.get(location))));
    say(this.graphView.words, raw?.said ?? "");
    this.chooser.hidden = doc.graphs.length < 2;
    this.chooser.replaceChildren(...doc.graphs.map(({ name }, at) => html("option", { value: at, selected: at === place }, name)));
    this.heat.load(this.model, place);
    const open = before?.openKeys() ?? look?.open ?? this.looks?.open,
      spread = before ? before.tree?.spread : look?.spread;
    if (graph) this.folds = new Folds(graph, raw, doc.strings, open, spread);
    this.search.load(this.model, place);
    this.order.limit(graph?.order.length ?? 0);
    this.arrangeFolds();
    this.tools.hidden = (graph?.count ?? 0) < FEW;
  }

  /** Write down how the graph is looked at; while it is moved, once it rests. */
  remember(soon = false) {
    if (this.recalling) return;
    clearTimeout(this.noting);
    this.noting = setTimeout(() => note(this), soon ? 120 : 0);
  }

  collapsed() {
    return this.healthy && !(this.opened ?? this.looks?.opened ?? !this.isTall());
  }

  /** Whether a graph is higher than a screen. */
  isTall() {
    return this.model.graphs.some((graph) => this.graphView.isTall(graph, this.root.clientWidth || 900));
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
    const { length } = this.model.frames;
    this.passes.element.hidden = length < 2 && !(this.running && length);
    this.order.element.hidden = this.running || !length || this.wayLength() < 2;
    this.footer.hidden = folded || (this.passes.element.hidden && this.order.element.hidden);
    this.arrangeToggle();
    if (this.selection) this.graphView.aside = this.drawer.over();
    this.graphView.resize();
    this.charts.paintVisible();
    this.source.open();
  }

  /** Each document brings a new header, with a new button. */
  arrangeToggle() {
    const { toggleButton } = this.headline;
    if (!toggleButton) return;
    toggleButton.hidden = !this.healthy;
    say(toggleButton, this.collapsed() ? this.words.open_graph : this.words.close_graph);
  }

  // -- which graph, which pass

  /** before: the graph that was shown in its stead */
  load(place, before) {
    const graph = this.model.graphs[place],
      view = { ...this.graphView.view },
      same = before?.number === graph?.number,
      stays = this.graphView.moved && same;
    this.recalling = true; // what is put in order step by step is not how a user looks at it
    this.graph = place;
    this.way = null;
    this.likeness = graph && this.looks ? graph.likeness : 0;
    this.enter(place, same ? this.folds : null);
    close(this);
    if (graph) {
      this.picture = this.whole = blank(graph.count);
      this.graphView.load(graph);
      if (stays) this.graphView.stand(view);
      else if (!same) recall(this);
      sayBoxes(this);
      sayPath(this);
      relight(this);
    }
    this.recalling = false;
  }

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
    const nonfinite = this.model.graphs
      .flatMap((graph, place) => graph.nonfinite.map((first) => ({ place, pass: first.pass })))
      .sort((a, b) => a.pass - b.pass);
    const at = nonfinite.length
      ? this.model.frames.findIndex((one) => one.graph === nonfinite[0].place && one.frame.pass === nonfinite[0].pass)
      : -1;
    return at >= 0 ? at : this.model.frames.length - 1;
  }

  /** at: place among the kept passes */
  scrub(at) {
    const one = this.model.frames[at];
    if (!one) return this.paint();
    if (this.running) this.setFollowing(at === this.model.frames.length - 1 && this.following);
    if (one.graph !== this.graph) this.load(one.graph);
    this.order.play(false);
    const { norms, bad, pass, values } = one.frame,
      nonfinite = this.model.graphs[one.graph].nonfinite.filter((first) => first.pass === pass);
    this.picture = this.whole = { norms, bad, values, nonfinite, cursor: -1, pass, running: false };
    const { doc } = this.model;
    const { length } = this.model.frames,
      kept = length < doc.passes_traced && length;
    this.passes.stand(at, worded(this.words.kept, { said: one.frame.said, kept, traced: doc.passes_traced }));
    this.order.stand(this.wayLength(), this.words.whole_order);
    this.paint();
  }

  /** How many nodes the engine reached, in their order. */
  wayLength() {
    return this.model.graphs[this.graph]?.order.length ?? 0;
  }

  /** Go through the order of backward: what it has reached so far is lit. at: how many nodes. */
  walk(at) {
    const { order } = this.model.graphs[this.graph],
      { norms, bad, values, nonfinite, pass } = this.whole;
    this.reached = at;
    const done = at >= order.length,
      reached = new Set(order.slice(0, at));
    const born = nonfinite.filter((first) => done || reached.has(first.receiver));
    this.picture = done
      ? this.whole
      : { norms: upTo(norms, order, at), bad, values, nonfinite: born, cursor: at ? order[at - 1] : -1, pass, running: true };
    const { words } = this;
    this.order.stand(at, worded(done ? words.whole_order : words.order, { at, count: order.length }));
    this.paint();
    if (!done && at) this.graphView.follow(order[at - 1]);
  }

  /** pass: show the kept pass nearest to it */
  goto(pass) {
    const away = this.model.frames.map(({ frame }) => Math.abs(frame.pass - pass));
    if (!away.length) return;
    this.following = false;
    this.scrub(away.indexOf(Math.min(...away)));
  }

  // -- live

  delta(header, values) {
    this.newest = { header, values };
    if (!this.painting)
      this.painting = requestAnimationFrame(() => {
        this.painting = 0;
        if (this.running) this.paintDelta();
      });
  }

  paintDelta() {
    const { header, values } = this.newest;
    this.headline.drawProgress(header.step, header.pass, header.seconds, header.paused ? header.next : -1);
    if (header.finished)
      this.charts.append(header.finished, values.subarray(header.nodes, header.nodes + header.parameters));
    const place = this.model.placeOf(header.graph);
    if (!this.following || place < 0 || this.model.graphs[place].count !== header.nodes) return;
    if (place !== this.graph) this.load(place);
    this.picture = {
      norms: values.subarray(0, header.nodes),
      bad: new Map(),
      nonfinite: [],
      cursor: header.cursor,
      pass: header.pass,
      running: header.running,
    };
    const kind = `${this.running ? "live" : "last"}${header.paused ? "_paused" : ""}`;
    this.passes.stand(Number(this.passes.slider.max), worded(this.words[kind], header));
    this.reached = header.reached;
    this.heat.follow(this.picture.norms);
    this.paint();
  }

  follow() {
    this.setFollowing(true);
    if (this.newest) this.paintDelta();
  }

  setFollowing(on) {
    this.following = on;
    hide(this.liveButton, on || !this.running, this.passes.slider);
  }

  // -- painting

  paint() {
    const { picture } = this;
    if (!this.model.graphs.length) return;
    if (this.collapsed()) return void this.charts.at(picture.pass || Infinity);
    this.stage.dataset.heat = this.heat.mode.split(" ").pop();
    this.graphView.paint(picture, this.heat.lens(picture, this.graphView.graph.boxes));
    this.source.paint(picture.norms, this.heat.scale);
    this.charts.at(this.running && picture.running ? Infinity : picture.pass);
    this.drawer.refresh(picture);
    sayWhere(this, picture);
  }

  arrangeFolds() {
    if (this.folds?.anyOpen()) this.foldButton.hidden = false;
    hide(this.unfoldButton, !this.folds?.mayOpenAll(), this.foldButton);
    hide(this.foldButton, !this.folds?.anyOpen(), this.unfoldButton);
  }

  toggle() {
    this.opened = this.collapsed();
    if (this.looks) this.looks.opened = this.opened;
    this.charts.load(this.model, this.collapsed());
    this.arrange();
    this.paint();
  }

  resized() {
    if (this.shown && !this.looks && this.root.isConnected) {
      this.shown = false; // it was made before it stood in the page, which knows how it was looked at
      this.update(this.model.doc);
    }
    if (this.selection) this.graphView.aside = this.drawer.over();
    if (this.graphView.sized) this.remember(true);
    this.arrangeToggle();
    if (!this.stage.hidden) this.graphView.resize();
    this.source.open();
    this.charts.paintVisible();
  }

  dispose() {
    this.passes.play(false);
    this.order.play(false);
    clearTimeout(this.noting);
    if (this.root.isConnected) note(this);
    clearInterval(this.headline.clock);
    cancelAnimationFrame(this.painting);
    this.sizes.disconnect();
    this.root.remove();
  }
}
