// @ts-check
/** Everything together: which pass of which graph is shown, and what is selected. */

import { VERSION, UNTOUCHED, NOT_MEASURABLE, PLAY_MILLISECONDS, CLOCK_MILLISECONDS, LATEST } from "./constants.js";
import { html, svg, later, say, number, normText, plural, secondsText, level, glyph, capital, lossText, GLYPHS } from "./words.js";
import { Model, samePicture } from "./model.js";
import { GraphView } from "./graph.js";
import { Charts } from "./charts.js";
import { Source } from "./source.js";
import { Drawer } from "./drawer.js";
import { findingElement } from "./findings.js";

/** @typedef {import("./constants.js").Picture} Picture */
/** @typedef {import("./constants.js").DeltaHeader} DeltaHeader */

let mounted = 0;

/** Everything together: which pass of which graph is shown, and what is selected. */
export class Panel {
  /** @type {Model} */ model = new Model({ graphs: [], passes: [], parameters: [], source: [] });
  /** @type {Picture} */ picture = {
    norms: new Float32Array(0),
    bad: new Map(),
    births: [],
    cursor: -1,
    pass: 0,
    running: false,
  };
  /** @type {ReturnType<typeof setInterval>|undefined} */ timer;
  /** @type {GraphView} */ graphView = later();
  /** @type {Charts} */ charts = later();
  /** @type {Source} */ source = later();
  /** @type {Drawer} */ drawer = later();
  /** @type {any} */ header = later();
  /** @type {any} */ findings = later();
  /** @type {any} */ whereabouts = later();
  /** @type {any} */ zoomText = later();
  /** @type {any} */ graphNote = later();
  /** @type {any} */ chooser = later();
  /** @type {any} */ bar = later();
  /** @type {any} */ stage = later();
  /** @type {any} */ lower = later();
  /** @type {any} */ footer = later();
  /** @type {any} */ notes = later();
  /** @type {any} */ playButton = later();
  /** @type {any} */ slider = later();
  /** @type {any} */ passText = later();
  /** @type {any} */ liveButton = later();
  /** @type {any} */ progress = later();
  /** @type {any} */ toggleButton = later();
  graph = 0;
  reached = 0;
  running = false;
  calm = false;
  shown = false;
  /** @type {any} */ soFar = later();
  /** @type {{step:number, pass:number, seconds:number, at:number}} what the kernel said last, and when that was */ told =
    {
      step: 0,
      pass: 0,
      seconds: 0,
      at: 0,
    };

  /** @param {Element} host @param {any} doc @param {{live?:boolean}} [options] live: a kernel feeds it, so that time goes on */
  constructor(host, doc, { live = false } = {}) {
    mounted += 1;
    this.hatch = `tm-hatch-${mounted}-${Math.random().toString(36).slice(2, 7)}`;
    this.host = host;
    this.root = html("div", { class: "tmv", style: `--hatch-fill:url(#${this.hatch})` });
    /** @type {{box:number, node:number}|null} */ this.selection = null;
    /** @type {{header:DeltaHeader, values:Float32Array}|null} */ this.newest = null;
    this.painting = 0;
    this.following = true;
    this.opened = false;
    this.build();
    host.replaceChildren(this.root);
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(this.root);
    this.sizes.observe(this.graphView.element);
    this.update(doc);
    this.clock = live ? setInterval(() => this.running && this.sayProgress(), CLOCK_MILLISECONDS) : undefined;
  }

  build() {
    this.header = html("header", { class: "head" });
    this.findings = html("div", { class: "findings" });
    this.graphView = new GraphView(this.hatch, {
      select: (box, node) => this.choose(box, node),
      tell: (box) => this.model.boxTip(this.graph, box),
    });
    this.graphView.zoomed = (/** @type {number} */ k) => say(this.zoomText, `zoom ${Math.round(k * 100)} %`);
    this.charts = new Charts(this.hatch, { goto: (pass) => this.goto(pass) });
    this.source = new Source({ pick: (nodes) => this.graphView.highlight(nodes) });
    this.drawer = new Drawer({
      close: () => this.close(),
      select: (box, node) => this.choose(box, node),
      line: (location) => this.showLine(location),
    });
    this.whereabouts = html("span", { class: "whereabouts", "aria-live": "off" });
    this.zoomText = html("span", { class: "quiet" });
    this.graphNote = html("span", { class: "quiet" });
    this.chooser = html("select", {
      hidden: true,
      "aria-label": "graph",
      change: (/** @type {any} */ event) => this.chooseGraph(Number(event.target.value)),
    });
    const zoomButton = (/** @type {string} */ title, /** @type {string} */ icon, /** @type {()=>void} */ click) =>
      html("button", { type: "button", class: "square", title, "aria-label": title, click }, glyph(icon));
    this.bar = html(
      "div",
      { class: "bar-top" },
      this.whereabouts,
      this.chooser,
      html("span", { class: "end" }),
      this.graphNote,
      this.zoomText,
      html(
        "span",
        { class: "zooms" },
        zoomButton("zoom in", GLYPHS.in, () => this.graphView.zoom(1.25)),
        zoomButton("zoom out", GLYPHS.out, () => this.graphView.zoom(0.8)),
        zoomButton("see all of it", GLYPHS.fit, () => this.graphView.fit()),
      ),
    );
    this.stage = html("div", { class: "stage" }, this.bar, this.graphView.element, legend(this.hatch));
    this.lower = html("div", { class: "lower" }, this.charts.element, this.source.element);
    const main = html(
      "div",
      { class: "main" },
      html("div", { class: "left" }, this.stage, this.lower),
      this.drawer.element,
    );
    this.footer = this.buildFooter();
    this.notes = html("div", { class: "notes quiet" });
    this.root.append(this.header, this.findings, main, this.footer, this.notes);
    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape" && this.selection) {
        event.stopPropagation();
        this.close();
      }
    });
  }

  buildFooter() {
    this.playButton = html(
      "button",
      {
        type: "button",
        class: "square",
        title: "play the kept passes",
        "aria-label": "play",
        click: () => this.play(!this.timer),
      },
      glyph(GLYPHS.play, true),
    );
    this.slider = html("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "pass",
      "data-lm-suppress-shortcuts": "true",
      input: () => this.scrub(Number(this.slider.value)),
    });
    this.passText = html("span", { class: "pass-text" });
    this.liveButton = html("button", { type: "button", hidden: true, click: () => this.follow() }, "Back to live");
    return html("footer", { class: "foot-bar" }, this.playButton, this.passText, this.slider, this.liveButton);
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
    this.calm = doc.state === "finished" && doc.passes_seen > 0 && !this.serious();
    this.drawHeader();
    if (
      !old ||
      JSON.stringify([old.doc.findings, old.doc.state, old.doc.passes_seen]) !==
        JSON.stringify([doc.findings, doc.state, doc.passes_seen])
    )
      this.drawFindings();
    this.charts.load(this.model, this.collapsed());
    this.drawNotes();
    this.setFrames();
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
    this.graphView.graph = this.model.graphs[place];
    this.source.load(this.model, place);
    this.warnLines();
    this.fillChooser(place);
    return place;
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
    this.footer.hidden = folded || (this.model.frames.length < 2 && !(this.running && this.model.frames.length));
    this.graphView.resize();
    this.charts.paintVisible();
    this.source.open();
  }

  drawHeader() {
    const { doc } = this.model,
      words = { running: "running", finished: "finished", failed: "failed", interrupted: "interrupted", drawn: "drawn" };
    const icon = { running: GLYPHS.run, finished: GLYPHS.done, failed: GLYPHS.stop, interrupted: GLYPHS.stop, drawn: GLYPHS.info };
    this.progress = html("span", { class: "quiet" });
    this.soFar = html("span", { class: "so-far", hidden: true }, "no problems so far");
    const others = doc.seconds - doc.own_seconds,
      share = others > 0 ? (100 * doc.own_seconds) / others : 0;
    const cost = html(
      "span",
      {
        class: "quiet",
        title: `${number(doc.own_seconds)} s of ${number(doc.seconds)} s were spent in the tracer's own hooks`,
      },
      "tracing ",
      html("b", {}, `+${number(Number(share.toPrecision(2)))} %`),
    );
    const toggle = this.model.graphs.length
      ? html("button", { type: "button", class: "toggle", click: () => this.toggle() }, "Open graph")
      : null;
    this.toggleButton = toggle;
    this.header.replaceChildren(
      html("b", { class: "run" }, doc.title || "backward"),
      html(
        "span",
        { class: `state ${doc.state}` },
        glyph(/** @type {any} */ (icon)[doc.state] ?? GLYPHS.done),
        /** @type {any} */ (words)[doc.state] ?? doc.state,
      ),
      this.progress,
      this.soFar,
      ...((this.running && !doc.passes_seen) || doc.words ? [] : [cost]),
      html("span", { class: "end" }),
      ...(toggle ? [toggle] : []),
    );
    this.drawProgress(doc.steps_seen, doc.passes_seen, doc.seconds);
  }

  /** @param {number} step @param {number} pass @param {number} seconds */
  drawProgress(step, pass, seconds) {
    // A document may be a moment older than what the clock shows already: it does not go back for that.
    const behind = this.running ? this.seconds() - seconds : 0;
    // A graph is known from the moment its backward begins, though a document counts that pass only once it has ended,
    // and a delta may have been taken just before it.
    const begun = this.running && this.model.graphs.length ? 1 : 0;
    this.told = {
      step: Math.max(step, begun),
      pass: Math.max(pass, begun),
      seconds: seconds + (behind > 0 && behind < LATEST ? behind : 0),
      at: performance.now(),
    };
    this.sayProgress();
  }

  /** How far it is. Between two words of the kernel, which is silent during a long op, the page's own clock goes on. */
  sayProgress() {
    const { step, pass, seconds } = this.told;
    if (this.model.doc.words) return say(this.progress, this.model.doc.words[0]);
    if (!this.running) {
      const loss = this.model.loss();
      const done = `${plural(step, "step")}, ${plural(pass, "backward pass")} in ${secondsText(seconds)}`;
      return say(this.progress, loss ? `${done} · ${loss}` : done);
    }
    const now = this.seconds(),
      time = now < 60 ? `${now.toFixed(1)} s` : secondsText(now);
    say(this.progress, pass ? `step ${step} · backward ${pass} · ${time}` : `${time} · waiting for the first backward`);
    this.soFar.hidden = !pass || this.serious();
  }

  /** Since the start of a run that goes on, by the page's clock from the kernel's last word on. */
  seconds() {
    const { seconds, at } = this.told;
    return at && this.clock !== undefined ? seconds + (performance.now() - at) / 1000 : seconds;
  }

  serious() {
    return this.model.doc.findings.some((/** @type {any} */ finding) => finding.severity !== "note");
  }

  drawFindings() {
    const { doc } = this.model,
      rank = ["error", "warning", "note"];
    const hooks = {
      node: (/** @type {number} */ graph, /** @type {number} */ node) => this.showNode(graph, node),
      line: (/** @type {number} */ location) => this.showLine(location),
    };
    const sorted = [...doc.findings].sort((left, right) => rank.indexOf(left.severity) - rank.indexOf(right.severity));
    const rows = sorted.map((finding) => findingElement(finding, hooks));
    rows.slice(3).forEach((row) => {
      row.hidden = true;
    });
    const more =
      rows.length > 3
        ? html(
            "button",
            {
              type: "button",
              class: "more",
              click: () => {
                rows.forEach((row) => {
                  row.hidden = false;
                });
                more.remove();
              },
            },
            `${plural(rows.length - 3, "more finding")}`,
          )
        : null;
    const verdict = this.running ? null : this.verdict();
    this.findings.replaceChildren(...(verdict ? [verdict] : []), ...rows, ...(more ? [more] : []));
  }

  /** What is to be said first of a run that has ended; nothing where a finding says it. @returns {Element|null} */
  verdict() {
    const { doc } = this.model,
      passes = plural(doc.passes_seen, "backward pass");
    if (doc.words) return callout(doc.words[2] ? "calm" : "failed", GLYPHS.info, capital(doc.words[1]), "", "");
    if (doc.state !== "finished") {
      const error = doc.error.replace(/:\s*$/, ""),
        before = !doc.passes_seen ? "before any backward" : this.serious() ? `after ${passes}` : "";
      const fine = before || `No problems found in the gradients of the ${passes} before that.`;
      return callout(
        "failed",
        GLYPHS.stop,
        `The cell ${doc.state === "failed" ? "failed" : "was interrupted"}`,
        error,
        fine,
      );
    }
    if (!doc.passes_seen) return callout("nothing", GLYPHS.info, "No backward pass was seen", "", this.unreached());
    return this.serious() ? null : callout("calm", GLYPHS.done, `No problems found in ${passes}`, "", this.range());
  }

  unreached() {
    return `The forward made ${plural(this.model.doc.forward_nodes, "autograd node")}. Call .backward() on a scalar loss inside the traced code.`;
  }

  range() {
    const norms = this.model.series.flat().filter((norm) => norm > 0 && Number.isFinite(norm)),
      nodes = this.model.graphs.reduce((sum, graph) => sum + graph.count, 0);
    const [least, most] = [
      norms.reduce((a, b) => Math.min(a, b), Infinity),
      norms.reduce((a, b) => Math.max(a, b), 0),
    ].map(normText);
    const range = !norms.length
      ? ""
      : least === most
        ? `, parameter norm ${least}`
        : `, parameter norms from ${least} to ${most}`;
    return `${plural(nodes, "node")} checked${range}`;
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
    this.graph = place;
    const graph = this.model.graphs[place],
      view = { ...this.graphView.view },
      stays = this.graphView.moved && before?.number === graph?.number;
    this.source.load(this.model, place);
    this.warnLines();
    this.fillChooser(place);
    this.close();
    if (!graph) return;
    this.picture = {
      norms: new Float32Array(graph.count).fill(UNTOUCHED),
      bad: new Map(),
      births: [],
      cursor: -1,
      pass: 0,
      running: false,
    };
    this.graphView.load(graph);
    if (stays) {
      this.graphView.view = view;
      this.graphView.moved = true;
      this.graphView.show();
    }
    const { note, boxes } = graph.drawing;
    say(
      this.graphNote,
      `${plural(graph.count, "node")}${boxes.length < graph.count ? ` in ${plural(boxes.length, "box")}` : ""}`,
    );
    this.graphNote.title = note;
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
          `graph ${one.number}: ${plural(one.count, "node")}, ${plural(doc.graphs[at].passes_seen, "pass")}`,
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

  setFrames() {
    this.slider.max = Math.max(this.model.frames.length - 1, 0);
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
    const births = this.model.graphs[one.graph].births.filter(
      (/** @type {any} */ birth) => birth.pass === one.frame.pass,
    );
    this.picture = {
      norms: one.frame.norms,
      bad: one.frame.bad,
      births,
      cursor: -1,
      pass: one.frame.pass,
      running: false,
    };
    this.slider.value = String(at);
    const row = this.model.passes.get(one.frame.pass),
      { doc } = this.model;
    const kept =
      this.model.frames.length < doc.passes_seen ? ` · ${this.model.frames.length} of ${doc.passes_seen} kept` : "";
    say(
      this.passText,
      `pass ${one.frame.pass}${row ? `, step ${row[1]}${row[3] === "failed" ? ", failed" : ""}${lossText(row)}` : ""}${kept}`,
    );
    this.slider.setAttribute("aria-valuetext", this.passText.textContent);
    this.paint();
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

  /** @param {boolean} on */
  play(on) {
    clearInterval(this.timer);
    this.timer = undefined;
    this.playButton.replaceChildren(glyph(on ? GLYPHS.pause : GLYPHS.play, true));
    if (!on) return;
    if (Number(this.slider.value) >= Number(this.slider.max)) this.scrub(0);
    this.timer = setInterval(() => {
      const next = Number(this.slider.value) + 1;
      if (next > Number(this.slider.max)) this.play(false);
      else this.scrub(next);
    }, PLAY_MILLISECONDS);
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
    this.drawProgress(header.step, header.pass, header.seconds);
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
    say(this.passText, `live, pass ${header.pass}, step ${header.step}`);
    this.slider.value = this.slider.max;
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
    this.graphView.paint(picture);
    this.source.paint(picture.norms);
    this.charts.at(picture.running ? Infinity : picture.pass);
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

  /** @param {number} graph @param {number} node */
  showNode(graph, node) {
    if (this.collapsed()) this.toggle();
    if (graph !== this.graph && this.model.graphs[graph]) this.chooseGraph(graph);
    const box = this.model.graphs[graph]?.boxOf.get(node);
    if (box === undefined) return;
    this.choose(box, node);
    this.graphView.resize();
    this.graphView.focus(box);
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
    if (this.toggleButton) {
      this.toggleButton.hidden = !this.calm;
      say(this.toggleButton, this.collapsed() ? "Open graph" : "Close graph");
    }
    if (!this.stage.hidden) this.graphView.resize();
    this.source.open();
    this.charts.paintVisible();
  }

  dispose() {
    this.play(false);
    clearInterval(this.clock);
    cancelAnimationFrame(this.painting);
    this.sizes.disconnect();
    this.root.remove();
  }
}

/** One strip that says how the run ended. @param {string} kind @param {string} icon @param {string} words @param {string} code @param {string} more */
function callout(kind, icon, words, code, more) {
  return html(
    "div",
    { class: `callout ${kind}` },
    glyph(icon),
    html("b", {}, words),
    code ? html("code", {}, code) : null,
    html("span", { class: "quiet" }, more),
  );
}

/** @param {string} hatch */
function legend(hatch) {
  const steps = [0, 1, 2, 3, 4, 5].map((step) =>
    svg("rect", {
      class: `n${step}`,
      x: 18 * step,
      y: 4.2 - 0.5 * step,
      width: 17,
      height: 1.8 + step,
      fill: "currentColor",
    }),
  );
  const swatch = (/** @type {Element} */ mark, /** @type {string} */ word) =>
    html("span", { class: "key" }, svg("svg", { width: 20, height: 10, "aria-hidden": "true" }, mark), word);
  return html(
    "div",
    { class: "legend quiet" },
    html(
      "span",
      { class: "key" },
      "log₁₀ gradient norm",
      html("span", {}, "−5"),
      svg("svg", { width: 108, height: 10, "aria-hidden": "true" }, ...steps),
      html("span", {}, "1"),
    ),
    swatch(
      svg("rect", { class: "swatch-bad", x: 0.5, y: 0.5, width: 19, height: 9, fill: `url(#${hatch})` }),
      "NaN or Inf",
    ),
    swatch(svg("rect", { class: "swatch-wait", x: 0.5, y: 0.5, width: 19, height: 9, rx: 2 }), "not reached"),
    swatch(svg("rect", { class: "swatch-zero", x: 0.5, y: 0.5, width: 19, height: 9, rx: 2 }), "exactly zero"),
    swatch(svg("rect", { class: "swatch-blind", x: 0.5, y: 0.5, width: 19, height: 9, rx: 2 }), NOT_MEASURABLE),
    html("span", { class: "key" }, "← gradient flow"),
  );
}
