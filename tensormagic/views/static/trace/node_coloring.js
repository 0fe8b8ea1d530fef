/** What the colours of the picture say: gradient norm, NaN and Inf, saved bytes, time, bytes. */

import { cutKey } from "./marks.js";
import { clamp, html, svg, worded } from "../dom.js";
import { UNTOUCHED, ENDS, level, ofBox, scaleOf, shortNorm, normText, shortBadText, badText, bytesText, secondsText } from "./words.js";

/** @typedef {{node:(node:number)=>string, box:(box:Box)=>string, text:(box:Box)=>string, detail?:(box:Box)=>string, wires?:string[]}} Lens */
/** @typedef {{name:string, words:string, unit:(value:number)=>string, values:number[]|null}} Mode */

const DECADES = 3; // of a scale that ends at its largest value

/** Colours by one of several measures; those that a document has no data of are not offered. */
export class Heat {
  mode = "norm";
  modes = new Map();
  most = 0;
  scale = ENDS; // log10 of the norms at its ends
  scaled = false; // whether the run has any yet
  /** those that the scale was made for */ boxes;
  /** and of what */ shown;

  hasCuts = false;
  derivatives = false; // whether they are written on the wires

  constructor(words, hatch, changed) {
    this.words = words;
    this.hatch = hatch;
    this.select = html("select", {
      "aria-label": words.colour_by,
      title: words.colour_title,
      change: (event) => {
        this.mode = event.target.value;
        this.drawLegend();
        changed();
      },
    });
    this.legend = html("div", { class: "legend quiet" });
  }

  load(model, graph) {
    this.modes = modesOf(model, graph);
    if (!this.modes.has(this.mode)) this.mode = "norm";
    this.select.replaceChildren(
      ...[...this.modes].map(([key, mode]) => html("option", { value: key, selected: key === this.mode }, mode.name)),
    );
    this.boxes = undefined;
    this.derivatives = model.graphs[graph]?.frames.some((frame) => frame.values);
    this.hasCuts = model.graphs[graph]?.ends?.cuts.some((cut) => cut[2]) ?? false; // not only read
    this.drawLegend();
  }

  /** boxes: those that are drawn */
  lens(picture, boxes) {
    const { values, unit } = this.modes.get(this.mode) ?? { values: null };
    if (!values) return this.mode === "bad" ? badLens(picture, this.words) : normLens(picture, this.scale);
    if (this.boxes !== boxes || this.shown !== values) {
      [this.boxes, this.shown] = [boxes, values];
      this.most = boxes.reduce((most, box) => Math.max(most, total(box, values)), 0);
      this.drawLegend();
    }
    const step = (value) => stepOf(value, this.most);
    return {
      node: (node) => step(values[node]),
      box: (box) => step(total(box, values)),
      text: (box) => (total(box, values) > 0 ? unit(total(box, values)) : ""),
    };
  }

  /** The scale follows the run: while it goes on, it only grows. */
  follow(norms, anew = false) {
    const scale = scaleOf(norms, this.scaled && !anew ? this.scale : null);
    this.scaled = scale !== null;
    if (!scale || (scale[0] === this.scale[0] && scale[1] === this.scale[1])) return;
    this.scale = scale;
    this.drawLegend();
  }

  drawLegend() {
    const mode = this.modes.get(this.mode);
    if (!mode) return;
    const ends = mode.values ? [mode.unit(this.most / 10 ** DECADES), mode.unit(this.most)] : this.scale.map((end) => normText(10 ** end));
    const scale =
      this.mode === "bad"
        ? null
        : html("span", { class: "key" }, mode.words, html("span", {}, ends[0]), ramp(), html("span", {}, ends[1]));
    const { words } = this,
      marks = { ...words.marks, zero: mode.values ? words.none : this.mode === "bad" ? words.all_finite : words.marks.zero };
    this.legend.replaceChildren(
      ...(scale ? [scale] : []),
      ...Object.entries(marks).filter(([state]) => !mode.values || state === "zero").map(([state, word]) => swatch(state, word, this.hatch)),
      html("span", { class: "key" }, worded(words.flow, { derivative: this.derivatives && "derivative" })),
      ...(this.hasCuts ? [cutKey(words.cut)] : []),
    );
  }
}

function modesOf(model, graph) {
  const { nodes } = model.doc.graphs[graph] ?? { nodes: {} },
    count = model.graphs[graph]?.count ?? 0;
  const modes = new Map();
  const saved = (nodes.saved ?? []).map((row) =>
    row.reduce((sum, place) => sum + (model.doc.saved[place][3] || 0), 0),
  );
  const measured = { ...nodes, saved: saved.length === count ? saved : null };
  for (const [key, [name, words, column]] of Object.entries(model.doc.words.modes)) {
    const values = column ? measured[column] : null,
      offered = column ? values?.some((value) => value > 0) : key === "norm" || model.doc.state !== "drawn";
    if (offered) modes.set(key, { name, words, unit: key.endsWith("time") ? secondsText : bytesText, values });
  }
  return modes;
}

/** The sum over all that a box stands for. */
function total(box, values) {
  let sum = 0;
  for (const node of box.nodes) sum += values[node] || 0;
  for (const [node] of box.badges) sum += values[node] || 0;
  return sum;
}

/** A step of a scale of three decades below the largest value. */
export function stepOf(value, most) {
  if (!(value > 0)) return "zero";
  const step = Math.floor(6 * (1 + Math.log10(value / most) / DECADES));
  return `n${clamp(step, 0, 5)}`;
}

/** scale: log10 of its ends */
function normLens({ norms, bad, values }, scale) {
  return {
    node: (node) => level(norms[node], scale),
    box: (box) => level(ofBox(box.nodes, norms), scale),
    detail: (box) => values?.[0][box.nodes[0]] || box.detail,
    wires: values?.[2],
    text: (box) => {
      const norm = ofBox(box.nodes, norms);
      if (values?.[1][box.nodes[0]] && norm !== UNTOUCHED) return values[1][box.nodes[0]];
      const counts = Number.isFinite(norm) ? null : box.nodes.map((node) => bad.get(node)).find(Boolean);
      return counts ? shortBadText(counts[0], counts[1], box.w + 8) : shortNorm(norm);
    },
  };
}

/** Only what is not finite stands out. */
function badLens({ norms, bad }, words) {
  const state = (found) => (found.length === 2 ? "zero" : found);
  return {
    node: (node) => state(level(norms[node])),
    box: (box) => state(level(ofBox(box.nodes, norms))),
    text: (box) => {
      const hit = box.nodes.filter((node) => !Number.isFinite(norms[node]));
      if (hit.length > 1) return worded(words.hits, { found: hit.length });
      const counts = hit.length ? bad.get(hit[0]) : undefined;
      return counts ? badText(...counts) : hit.length && norms[hit[0]] !== UNTOUCHED ? shortNorm(norms[hit[0]]) : "";
    },
  };
}

function ramp() {
  const steps = [0, 1, 2, 3, 4, 5].map((step) =>
    svg("rect", { class: `n${step}`, x: 18 * step, y: 4.2 - 0.5 * step, width: 17, height: 1.8 + step, fill: "currentColor" }),
  );
  return svg("svg", { width: 108, height: 10, "aria-hidden": "true" }, ...steps);
}

function swatch(state, word, hatch) {
  const look = state === "bad" ? { fill: `url(#${hatch})` } : { rx: 2 },
    mark = svg("rect", { class: `swatch-${state}`, x: 0.5, y: 0.5, width: 19, height: 9, ...look });
  return html("span", { class: "key" }, svg("svg", { width: 20, height: 10, "aria-hidden": "true" }, mark), word);
}
