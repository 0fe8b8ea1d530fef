// @ts-check
/**
 * The trace viewer: one module, two transports.
 *
 * `mount(element, document)` draws a trace document (tensormagic/renderers/document.py, version 1) into an element and
 * returns a handle; the saved page calls it once, the live panel calls `update` with newer documents and `delta` with
 * the newest gradient norms. The default export is what anywidget calls. No dependency, no request, no innerHTML: all
 * text becomes text nodes. A delta touches only the attributes that changed and is painted at most once a frame.
 */

/** @typedef {{x:number,y:number,w:number,h:number,nodes:number[],label:string,detail:string,kind:string,badges:[number,string][],written:number}} Box */
/** @typedef {{source:number,target:number,points:number[]}} Wire */
/** @typedef {{pass:number,norms:Float32Array,bad:Map<number,[number,number]>}} Frame */
/** @typedef {{norms:Float32Array,bad:Map<number,[number,number]>,births:any[],cursor:number,pass:number,running:boolean}} Picture */
/** @typedef {{structure:number,graph:number,pass:number,step:number,running:boolean,cursor:number,reached:number,finished:number,seconds:number,nodes:number,parameters:number}} DeltaHeader */

const VERSION = 1;
const UNTOUCHED = -1; // no gradient came; below that, UNREADABLE: one came that could not be measured. No norm is below zero.
const UNREADABLE = -2;
const NOT_MEASURABLE = "not measurable";
const SVG = "http://www.w3.org/2000/svg";
const LOW = -5,
  HIGH = 1; // log10 of the norms at which the colour scale starts and ends (theme.py)
const LONGEST_LIVE_SERIES = 600;
const PLAY_MILLISECONDS = 300;
const CLOCK_MILLISECONDS = 100;
const LATEST = 5; // seconds that a document of a running run may come late
const LARGEST = 1.25; // how far a small graph is enlarged by itself: to be read from the last row
const HEAD = 40,
  BADGE = 15; // heights of a box without its badges, and of one badge (graph_drawing.py)
let mounted = 0;

// ---- elements and words -------------------------------------------------------------------------------------------

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|null)} children @returns {any} */
function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|null)} children @returns {any} */
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** @param {Element} element @param {Record<string, any>} attributes @param {(Node|string|null)[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A member that its class sets before anything reads it. @returns {any} */
function later() {
  return null;
}

/** @param {Element} element @param {string} text */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text in which `backticks` mark code. @param {string} text @returns {Node[]} */
function prose(text) {
  return quoting(text, (code) => html("code", {}, code));
}

/** @param {string} text @param {(code:string)=>Node} quote what to make of each piece between backticks @returns {Node[]} */
function quoting(text, quote) {
  return text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? quote(part) : document.createTextNode(part)));
}

/** @param {number} value @returns {string} */
function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "−Inf";
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(3)));
  return text
    .replace(/\.?0+e/, "e")
    .replace("e+", "e")
    .replaceAll("-", "−");
}

/** A norm in two digits, as everywhere (trace_phrases.py). @param {number} norm @returns {string} */
function normText(norm) {
  if (norm === UNTOUCHED || norm === undefined) return "none";
  if (norm < 0) return NOT_MEASURABLE;
  return norm === 0 || !Number.isFinite(norm)
    ? number(norm)
    : norm.toExponential(1).replace("e+", "e").replaceAll("-", "−");
}

/** @param {number} norm log10 with one decimal, as written on the graph @returns {string} */
function exponentText(norm) {
  if (norm === UNTOUCHED) return "";
  if (norm < 0) return "?";
  if (norm === 0) return "zero";
  if (!Number.isFinite(norm)) return Number.isNaN(norm) ? "NaN" : "Inf";
  return Math.log10(norm).toFixed(1).replace("-", "−").replace("−0.0", "0.0");
}

/** @param {number} count @param {string} noun @returns {string} */
function plural(count, noun) {
  const digits = count < 10000 ? String(count) : String(count).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
  return `${digits} ${noun}${count === 1 ? "" : /[sx]$/.test(noun) ? "es" : "s"}`;
}

/** @param {number} bytes @returns {string} */
function bytesText(bytes) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (bytes < 1024 || unit === "GiB") return `${Number(bytes.toPrecision(3))} ${unit}`;
    bytes /= 1024;
  }
  return "";
}

/** A duration as everywhere (trace_phrases.py). @param {number} seconds @returns {string} */
function secondsText(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds >= 0.001 ? 0 : 1)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** @param {number} nan @param {number} inf @returns {string} */
function badText(nan, inf) {
  return [nan ? `${nan} NaN` : "", inf ? `${inf} Inf` : ""].filter(Boolean).join(", ");
}

/** The same over a box: where both have no room, only the first is counted. @param {number} nan @param {number} inf @param {number} room */
function shortBadText(nan, inf, room) {
  const text = badText(nan, inf);
  return text.length * 6.2 <= room || !(nan && inf) ? text : `${nan} NaN, Inf`;
}

/** The word for how a norm is drawn: a step of the scale, or "wait", "blind", "bad", "zero". @param {number} norm @returns {string} */
function level(norm) {
  if (norm === UNTOUCHED) return "wait";
  if (norm < 0) return "blind";
  if (!Number.isFinite(norm)) return "bad";
  if (norm === 0) return "zero";
  const step = Math.floor((6 * (Math.log10(norm) - LOW)) / (HIGH - LOW));
  return `n${Math.min(Math.max(step, 0), 5)}`;
}

/** @param {string} state @returns {number} stroke width of a wire that carries it */
function wireWidth(state) {
  return state.length > 3 ? 1.1 : state === "bad" ? 2.4 : 1.4 + 0.55 * Number(state.slice(1));
}

/** The norm of a box: any non-finite one decides, else that of the first node that was reached (trace_values.py).
 * @param {number[]} nodes @param {Float32Array} norms @returns {number} */
function ofBox(nodes, norms) {
  let first = UNTOUCHED;
  for (const node of nodes) {
    if (!Number.isFinite(norms[node])) return norms[node];
    if (first === UNTOUCHED) first = norms[node];
  }
  return first;
}

/** The norm of a line: any non-finite one decides, else the largest, else whether one came at all. @param {number[]} nodes @param {Float32Array} norms @returns {number} */
function ofLine(nodes, norms) {
  let most = UNTOUCHED;
  for (const node of nodes) {
    if (!Number.isFinite(norms[node])) return norms[node];
    if (norms[node] > most || most === UNTOUCHED) most = norms[node];
  }
  return most;
}

/** What stands for a norm that has no logarithm (document_columns.py). @type {Map<string|null, number>} */
const CODES = new Map([
  [null, UNTOUCHED],
  ["u", UNREADABLE],
  ["z", 0],
  ["n", NaN],
  ["i", Infinity],
]);

/** @param {any[]} codes @returns {Float32Array} */
function decoded(codes) {
  return Float32Array.from(codes, (code) =>
    typeof code === "number" ? 10 ** (code / 1000) : (CODES.get(code) ?? NaN),
  );
}

const ICONS = {
  error: ["M7 .4 13.6 7 7 13.6.4 7Z", "M7 3.6v4M7 9.4v1"],
  warning: ["M7 .8 13.7 13H.3Z", "M7 5v4M7 10.6v.9"],
  note: ["M7 .6a6.4 6.4 0 1 0 .01 0Z", "M7 6.2v4.4M7 3.4v1"],
};

/** @param {"error"|"warning"|"note"} severity */
function severityIcon(severity) {
  const [shape, mark] = ICONS[severity] ?? ICONS.note;
  return svg(
    "svg",
    { class: "icon", viewBox: "0 0 14 14", "aria-hidden": "true" },
    svg("path", { d: shape, fill: "currentColor" }),
    svg("path", { d: mark, class: "icon-mark" }),
  );
}

/** @param {string} path @param {boolean} [solid] */
function glyph(path, solid = false) {
  return svg(
    "svg",
    { class: solid ? "glyph solid" : "glyph", viewBox: "0 0 14 14", "aria-hidden": "true" },
    svg("path", { d: path }),
  );
}

const GLYPHS = {
  run: "M7 1.8a5.2 5.2 0 1 1-5.2 5.2",
  done: "M2.5 7.5l3 3 6-7",
  stop: "M3.5 3.5l7 7m0-7l-7 7",
  in: "M3 7h8M7 3v8",
  out: "M3 7h8",
  info: "M7 1.6a5.4 5.4 0 1 0 .01 0M7 6.6v3.4M7 4.2v.1",
  fit: "M2.5 5V2.5H5M11.5 5V2.5H9M2.5 9v2.5H5M11.5 9v2.5H9",
  play: "M4 2.6l7 4.4-7 4.4z",
  pause: "M3.5 3h2.4v8H3.5zM8.1 3h2.4v8H8.1z",
};

/** @param {string} words @returns {string} */
function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** What a pass was called on, where that was one number. @param {any[]} row @returns {string} */
function lossText(row) {
  return lossOf(row) === undefined ? "" : `, loss ${number(/** @type {number} */ (lossOf(row)))}`;
}

/** @param {any[]} row @returns {number|undefined} */
function lossOf(row) {
  const value = row[8];
  if (typeof value === "number") return value;
  return value ? ({ inf: Infinity, "-inf": -Infinity }[/** @type {string} */ (value)] ?? NaN) : undefined;
}

// ---- the document, decoded ----------------------------------------------------------------------------------------

/** A trace document with its columns turned back into what the views ask for. */
class Model {
  /** @param {any} doc */
  constructor(doc) {
    this.doc = doc;
    /** @type {any[]} */
    this.graphs = doc.graphs.map((/** @type {any} */ graph) => decodedGraph(graph));
    /** @type {number[]} */
    this.passNumbers = doc.passes.map((/** @type {any[]} */ row) => row[0]);
    /** @type {Map<number, any[]>} */
    this.passes = new Map(doc.passes.map((/** @type {any[]} */ row) => [row[0], row]));
    /** @type {number[][]} */
    this.series = doc.parameters.map((/** @type {any} */ parameter) => [...decoded(parameter.norms)]);
    /** @type {{graph:number, frame:Frame}[]} */
    this.frames = this.graphs
      .flatMap((graph, place) => graph.frames.map((/** @type {Frame} */ frame) => ({ graph: place, frame })))
      .sort((left, right) => left.frame.pass - right.frame.pass);
    /** @type {Map<number, number>} */
    this.rowOfLocation = new Map(
      doc.source.flatMap((/** @type {any[]} */ row, /** @type {number} */ place) =>
        row[2].map((/** @type {number} */ l) => [l, place]),
      ),
    );
  }

  /** The first and the last loss, where all backward calls stand on one line. @returns {string} */
  loss() {
    const rows = this.doc.passes,
      [first, last] = [rows[0], rows[rows.length - 1]];
    if (!first || rows.some((/** @type {any[]} */ row) => row[6] !== first[6])) return "";
    const values = [lossOf(first), lossOf(last)].slice(0, rows.length);
    if (values.includes(undefined)) return "";
    return `loss ${values.map((value) => number(/** @type {number} */ (value))).join(" → ")}`;
  }

  /** @param {number} graph @param {number} index */
  node(graph, index) {
    const columns = this.doc.graphs[graph].nodes,
      text = this.doc.strings;
    return {
      index,
      op: text[columns.op[index]],
      name: text[columns.name[index]],
      kind: text[columns.kind[index]],
      location: /** @type {number|null} */ (columns.location[index]),
      guessed: columns.guessed.includes(index),
      module: text[columns.module[index]],
      variable: text[columns.variable[index]],
      shapes: text[columns.shapes[index]],
      dtype: text[columns.dtype[index]],
      device: text[columns.device[index]],
      statistics: columns.statistics[index],
      saved: columns.saved[index]
        .map((/** @type {number} */ place) => this.doc.saved[place])
        .map((/** @type {any[]} */ [name, shape, dtype, nbytes, state]) => ({
          name: text[name],
          shape: text[shape],
          dtype: text[dtype],
          nbytes,
          state: text[state],
        })),
    };
  }

  /** @param {number} graph @param {number} index @returns {string} */
  nodeLabel(graph, index) {
    const columns = this.doc.graphs[graph].nodes,
      text = this.doc.strings;
    return (text[columns.kind[index]] === "accumulate" && text[columns.variable[index]]) || text[columns.op[index]];
  }

  /** As its box names it, with its own op where the box stands for more. @param {number} graph @param {number} index */
  boxLabel(graph, index) {
    const box = this.graphs[graph].boxes[this.graphs[graph].boxOf.get(index)];
    if (!box?.nodes.includes(index)) return this.nodeLabel(graph, index);
    return box.nodes.length === 1 ? box.label : `${box.label} (${this.nodeLabel(graph, index)})`;
  }

  /** What a box stands for, with every name in full. @param {number} graph @param {number} place @returns {string} */
  boxTip(graph, place) {
    const box = this.graphs[graph].boxes[place],
      facts = this.node(graph, box.nodes[0]);
    const several = box.nodes.length > 1 ? `${plural(box.nodes.length, "node")} in one box, the first: ` : "";
    const leaves = box.badges.slice(0, 12).map((/** @type {[number, string]} */ [node]) => this.nodeLabel(graph, node));
    if (box.badges.length > leaves.length) leaves.push(`… ${box.badges.length - leaves.length} more`);
    return [`${several}${facts.op}, ${facts.name}`, facts.shapes, facts.module, ...leaves].filter(Boolean).join("\n");
  }

  /** @param {number} graphNumber @returns {number} */
  placeOf(graphNumber) {
    return this.doc.graphs.findIndex((/** @type {any} */ graph) => graph.number === graphNumber);
  }
}

/** @param {any} graph */
function decodedGraph(graph) {
  const boxes = graph.drawing.boxes.map(
    (/** @type {any[]} */ [x, y, w, h, nodes, label, detail, kind, badges, written]) => ({
      x,
      y,
      w,
      h,
      nodes,
      label,
      detail,
      kind,
      badges,
      written,
    }),
  );
  const boxOf = new Map();
  boxes.forEach((/** @type {Box} */ box, /** @type {number} */ place) => {
    for (const node of box.nodes) boxOf.set(node, place);
    for (const [node] of box.badges) if (!boxOf.has(node)) boxOf.set(node, place);
  });
  return {
    count: graph.nodes.op.length,
    boxes,
    boxOf,
    births: graph.births,
    drawing: graph.drawing,
    number: graph.number,
    edges: graph.edges,
    wires: graph.drawing.wires.map((/** @type {any[]} */ [source, target, points]) => ({ source, target, points })),
    frames: graph.frames.map((/** @type {any} */ frame) => ({
      pass: frame.pass,
      norms: decoded(frame.norms),
      bad: new Map(frame.bad.map((/** @type {number[]} */ [node, nan, inf]) => [node, [nan, inf]])),
    })),
  };
}

/** Whether two decoded graphs are drawn alike. @param {any} old @param {any} now @returns {boolean} */
function samePicture(old, now) {
  return (
    now &&
    old.number === now.number &&
    old.count === now.count &&
    JSON.stringify(old.drawing.boxes) === JSON.stringify(now.drawing.boxes) &&
    old.wires.length === now.wires.length
  );
}

// ---- the graph ----------------------------------------------------------------------------------------------------

/** The picture of one graph: built once, then recoloured; pan, zoom, focus and selection live here. */
class GraphView {
  /** @type {string} */ bornKey = "";
  /** @type {Picture|null} */ picture = null;
  /** @type {((zoom:number)=>void)|undefined} called when the zoom changed */ zoomed;
  /** @type {number} pixels of the map a pixel of the drawing */ mapScale = 1;
  /** @type {any} */ cursorMark = later();
  /** @type {any} */ chosenMark = later();
  /** @type {any} */ bornLayer = later();
  dragged = false;
  /** @type {string} the height that the view gave itself */ ownHeight = "";
  sized = false;

  /** @param {string} hatch @param {{select:(box:number, node:number|null)=>void, tell:(box:number)=>string}} hooks */
  constructor(hatch, hooks) {
    this.hooks = hooks;
    this.view = { k: 1, x: 0, y: 0 };
    this.moved = false;
    this.world = svg("g", { class: "world" });
    this.canvas = svg(
      "svg",
      {
        class: "canvas",
        role: "group",
        "aria-label": "Backward graph. Arrow keys move along the edges, Enter opens a node.",
        "data-lm-suppress-shortcuts": "true",
      },
      svg("defs", {}, hatchPattern(hatch)),
      this.world,
    );
    this.map = html("canvas", { class: "map", "aria-hidden": "true", hidden: true });
    this.element = html("div", { class: "graph" }, this.canvas, this.map);
    /** @type {any[]} */ this.marks = [];
    /** @type {any[]} */ this.lines = [];
    /** @type {any} */ this.graph = null;
    this.selected = -1;
    this.focused = 0;
    this.listen();
  }

  /** @param {any} graph a decoded graph */
  load(graph) {
    this.graph = graph;
    this.marks = graph.boxes.map(boxMark);
    this.lines = graph.wires.map(wireMark);
    this.cursorMark = svg("rect", { class: "cursor", rx: 7, visibility: "hidden" });
    this.chosenMark = svg("rect", { class: "chosen", rx: 8, visibility: "hidden" });
    this.bornLayer = svg("g", { class: "born" });
    const all = [...this.lines.map((line) => line.element), ...this.marks.map((mark) => mark.element)];
    this.world.replaceChildren(...all, this.cursorMark, this.chosenMark, this.bornLayer);
    this.bornKey = "";
    this.selected = -1;
    this.focused = Math.max(graph.boxOf.get(graph.boxes.length ? graph.boxes[0].nodes[0] : 0) ?? 0, 0);
    if (this.marks.length) this.marks[this.focused].element.setAttribute("tabindex", "0");
    this.moved = false;
    this.resize();
  }

  // -- painting

  /** @param {Picture} picture */
  paint(picture) {
    const { norms, bad } = picture;
    this.picture = picture;
    const far = this.view.k < 0.5;
    this.marks.forEach((mark) => paintBox(mark, norms, bad, far));
    for (const line of this.lines)
      paintWire(line, this.marks[line.wire.source].state, this.marks[line.wire.target].state);
    this.paintCursor(picture);
    this.paintBorn(picture);
    this.paintMap();
  }

  /** @param {Picture} picture */
  paintCursor(picture) {
    const place = picture.running ? this.graph.boxOf.get(picture.cursor) : undefined;
    around(this.cursorMark, place === undefined ? null : this.graph.boxes[place], 3);
  }

  /** @param {Picture} picture */
  paintBorn(picture) {
    const key = picture.births.map((birth) => birth.node).join();
    if (key === this.bornKey) return;
    this.bornKey = key;
    const birth = picture.births[0],
      place = birth ? (this.graph.boxOf.get(birth.node) ?? 0) : -1;
    this.bornLayer.replaceChildren(
      ...(birth ? [bornMark(this.graph.boxes[place], birth, this.graph.drawing.width)] : []),
    );
    // The words take the place of the norm; the drawer and the line of source still say it.
    this.marks.forEach((mark, at) => mark.element.classList.toggle("born", at === place));
  }

  /** @param {number} box -1 for none */
  select(box) {
    this.selected = box;
    around(this.chosenMark, box < 0 ? null : this.graph.boxes[box], 3.5);
  }

  /** @param {Set<number>|null} nodes show these, step the others back */
  highlight(nodes) {
    this.element.classList.toggle("picking", nodes !== null);
    for (const mark of this.marks) {
      const hit =
        nodes !== null &&
        (mark.box.nodes.some((/** @type {number} */ node) => nodes.has(node)) ||
          mark.box.badges.some((/** @type {[number,string]} */ [node]) => nodes.has(node)));
      mark.element.classList.toggle("picked", hit);
    }
  }

  // -- pan and zoom

  /** What has to be seen, the words above the boxes included. @returns {{width:number, height:number, top:number}} */
  extent() {
    const { width, height } = this.graph.drawing,
      top = 20;
    return { width, height: height + top, top };
  }

  /** The height the graph wants at this width, in pixels. @param {number} width @returns {number} */
  wantedHeight(width) {
    const { width: w, height: h } = this.extent();
    return Math.min(Math.max(h * Math.min(LARGEST, (width - 16) / w) + 12, 110), 420);
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || !this.graph) return;
    const { style } = this.element;
    if (style.height !== this.ownHeight) this.sized = true; // the person pulled at the corner
    if (!this.moved && !this.sized) style.height = this.ownHeight = `${Math.round(this.wantedHeight(width))}px`;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${this.element.clientHeight}`);
    if (!this.moved) this.home();
    else this.show();
  }

  /** The first view: all of it where it stays readable, else its width, from where the gradient starts. */
  home() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element;
    const whole = Math.min(LARGEST, (W - 16) / width, (H - 8) / height);
    const beside = whole >= 0.6 ? W : W - this.mapSize().w - 12; // nothing lies under the map
    const k = whole >= 0.6 ? whole : Math.max(Math.min(1, (beside - 16) / width), 0.6);
    this.view = {
      k,
      x: Math.max((beside - width * k) / 2, 8),
      y: (height * k <= H ? (H - height * k) / 2 : 4) + top * k,
    };
    const root = this.graph.boxes[this.rootBox()];
    if (root && whole < 0.6) this.reveal(root);
    this.show();
  }

  rootBox() {
    const fed = new Set(this.graph.wires.map((/** @type {Wire} */ wire) => wire.target));
    return Math.max(
      this.graph.boxes.findIndex((/** @type {Box} */ _box, /** @type {number} */ place) => !fed.has(place)),
      0,
    );
  }

  /** See all of it. */
  fit() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element;
    const k = Math.min(1.5, (W - 16) / width, (H - 8) / height);
    this.view = { k, x: (W - width * k) / 2, y: (H - height * k) / 2 + top * k };
    this.moved = true;
    this.show();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] the point that stays where it is */
  zoom(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
    const k = Math.min(Math.max(this.view.k * factor, 0.05), 4),
      change = k / this.view.k;
    this.view = { k, x: x - (x - this.view.x) * change, y: y - (y - this.view.y) * change };
    this.moved = true;
    this.show();
  }

  /** Move as little as needed to see a box. @param {Box} box */
  reveal(box) {
    const { k } = this.view,
      { clientWidth: W, clientHeight: H } = this.element,
      margin = 24;
    const left = box.x * k + this.view.x,
      top = box.y * k + this.view.y;
    if (left < margin || left + box.w * k > W - margin) this.view.x = W / 2 - (box.x + box.w / 2) * k;
    if (top < margin || top + box.h * k > H - margin) this.view.y = H / 2 - (box.y + box.h / 2) * k;
    this.keepInside();
    this.show();
  }

  /** No empty margins where there is more to see on the other side. */
  keepInside() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element,
      { k } = this.view;
    if (height * k > H) this.view.y = Math.min(Math.max(this.view.y, H - 8 - (height - top) * k), top * k + 4);
    const right = W - (height * k > H ? this.mapSize().w + 12 : 0) - 8;
    if (width * k > W) this.view.x = Math.min(Math.max(this.view.x, right - width * k), 8);
  }

  show() {
    const { k, x, y } = this.view;
    this.world.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(4)})`);
    const far = k < 0.5;
    this.canvas.classList.toggle("tiny", k < 0.32);
    if (this.canvas.classList.contains("far") !== far) {
      this.canvas.classList.toggle("far", far);
      const { picture } = this;
      if (picture) this.marks.forEach((mark) => paintBox(mark, picture.norms, picture.bad, far));
    }
    this.zoomed?.(k);
    this.paintMap();
  }

  /** How large the map is, where there is one. */
  mapSize() {
    const { width, height } = this.graph.drawing,
      scale = Math.min(150 / width, Math.min(this.element.clientHeight - 30, 180) / height);
    return { scale, w: Math.max(Math.round(width * scale), 24), h: Math.max(Math.round(height * scale), 8) };
  }

  paintMap() {
    const { width, height } = this.graph.drawing,
      { k, x, y } = this.view,
      { clientWidth: W, clientHeight: H } = this.element;
    const whole = x >= -1 && y >= -1 && x + width * k <= W + 1 && y + height * k <= H + 1;
    this.map.hidden = whole || H < 140;
    if (this.map.hidden) return;
    const { scale, w, h } = this.mapSize(),
      ratio = globalThis.devicePixelRatio || 1;
    Object.assign(this.map, { width: w * ratio, height: h * ratio });
    Object.assign(this.map.style, { width: `${w}px`, height: `${h}px` });
    this.mapScale = scale;
    const pen = this.map.getContext("2d"),
      style = getComputedStyle(this.map);
    const colour = (/** @type {string} */ state) =>
      style.getPropertyValue(
        state === "bad" ? "--error" : state === "wait" ? "--line" : state.length > 3 ? "--line-2" : `--${state}`,
      );
    pen.scale(ratio * scale, ratio * scale);
    for (const mark of this.marks) {
      pen.fillStyle = colour(mark.state);
      pen.fillRect(mark.box.x, mark.box.y, Math.max(mark.box.w, 1.5 / scale), Math.max(mark.box.h, 1.5 / scale));
    }
    pen.strokeStyle = style.getPropertyValue("--accent");
    pen.lineWidth = 1.5 / scale;
    pen.strokeRect(-x / k, -y / k, W / k, H / k);
  }

  // -- the person

  listen() {
    this.canvas.addEventListener("click", (/** @type {any} */ event) => {
      const mark = event.target.closest("[data-box]");
      if (mark && !this.dragged)
        this.hooks.select(Number(mark.dataset.box), event.target.closest("[data-node]")?.dataset.node ?? null);
    });
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this.wheel(event), { passive: false });
    this.drag(this.canvas, (dx, dy) => {
      this.view.x += dx;
      this.view.y += dy;
    });
    this.canvas.addEventListener("pointerover", (/** @type {any} */ event) => {
      const mark = event.target.closest("[data-box]");
      if (mark && !mark.querySelector(":scope > title"))
        mark.prepend(svg("title", {}, this.hooks.tell(Number(mark.dataset.box))));
    });
    this.map.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.centre(event));
    this.drag(this.map, (_dx, _dy, event) => this.centre(event));
  }

  /** @param {Element} surface @param {(dx:number, dy:number, event:PointerEvent)=>void} move */
  drag(surface, move) {
    /** @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    surface.addEventListener("pointerdown", (/** @type {any} */ event) => {
      fingers.set(event.pointerId, event);
      this.dragged = false;
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"])
      surface.addEventListener(end, (/** @type {any} */ event) => fingers.delete(event.pointerId));
    surface.addEventListener("pointermove", (/** @type {any} */ event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      if (!this.dragged) surface.setPointerCapture(event.pointerId);
      this.dragged = this.moved = true;
      if (fingers.size === 2) this.pinch(fingers, event);
      else move(dx, dy, event);
      fingers.set(event.pointerId, event);
      this.show();
    });
  }

  /** @param {Map<number, PointerEvent>} fingers @param {PointerEvent} event */
  pinch(fingers, event) {
    const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
    const before = fingers.get(event.pointerId);
    if (!other || !before) return;
    const spread = (/** @type {PointerEvent} */ finger) =>
      Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
    const box = this.canvas.getBoundingClientRect();
    this.zoom(
      spread(event) / Math.max(spread(before), 1),
      (event.clientX + other.clientX) / 2 - box.left,
      (event.clientY + other.clientY) / 2 - box.top,
    );
  }

  /** Plain wheel scrolls the page until the graph has the focus. @param {WheelEvent} event */
  wheel(event) {
    if (!(event.ctrlKey || event.metaKey || this.element.contains(document.activeElement))) return;
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    this.zoom(
      Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)),
      event.clientX - box.left,
      event.clientY - box.top,
    );
  }

  /** @param {PointerEvent} event */
  centre(event) {
    const box = this.map.getBoundingClientRect(),
      { k } = this.view,
      scale = this.mapScale;
    this.view.x = this.element.clientWidth / 2 - ((event.clientX - box.left) / scale) * k;
    this.view.y = this.element.clientHeight / 2 - ((event.clientY - box.top) / scale) * k;
    this.moved = true;
    this.show();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    });
    if (event.key === "Enter" || event.key === " ") this.hooks.select(this.focused, null);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (steps[event.key]) this.focus(this.neighbour(...steps[event.key]));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The box the arrow points to: along a wire where one leads there, else the nearest. @param {number} dx @param {number} dy @returns {number} */
  neighbour(dx, dy) {
    const here = this.graph.boxes[this.focused],
      middle = (/** @type {Box} */ box) => [box.x + box.w / 2, box.y + box.h / 2];
    const [hx, hy] = middle(here);
    const wired = new Set(
      this.graph.wires.flatMap((/** @type {Wire} */ wire) =>
        wire.source === this.focused ? [wire.target] : wire.target === this.focused ? [wire.source] : [],
      ),
    );
    let best = this.focused,
      least = Infinity;
    this.graph.boxes.forEach((/** @type {Box} */ box, /** @type {number} */ place) => {
      const [x, y] = middle(box),
        ahead = (x - hx) * dx + (y - hy) * dy,
        aside = Math.abs((x - hx) * dy) + Math.abs((y - hy) * dx);
      if (ahead <= 1 || (!wired.has(place) && aside > ahead)) return;
      const cost = ahead + 2 * aside - (wired.has(place) ? 1e6 : 0);
      if (cost < least) [best, least] = [place, cost];
    });
    return best;
  }

  /** @param {number} place */
  focus(place) {
    this.marks[this.focused].element.setAttribute("tabindex", "-1");
    this.focused = place;
    const mark = this.marks[place];
    mark.element.setAttribute("tabindex", "0");
    this.reveal(mark.box);
    mark.element.focus({ preventScroll: true });
  }
}

/** @param {string} id */
function hatchPattern(id) {
  return svg(
    "pattern",
    { id, width: 4.2, height: 4.2, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 4.2, height: 4.2, class: "hatch-ground" }),
    svg("rect", { width: 1.7, height: 4.2, class: "hatch-line" }),
  );
}

/** @param {Box} box @param {number} place */
function boxMark(box, place) {
  const r = 5,
    foot = 5,
    head = box.badges.length ? HEAD : box.h;
  const value = svg("text", { class: "value", x: box.w / 2, y: -7 });
  const badges = box.badges
    .slice(0, box.written)
    .map(([node, label], row) => ({ node, state: "", element: badgeMark(node, label, row, box.w) }));
  const hidden = box.badges.slice(box.written).map(([node]) => node);
  const rest = svg("text", { class: "more-badges", x: 4, y: HEAD + BADGE * box.written + 13 });
  const element = svg(
    "g",
    {
      class: "box wait",
      transform: `translate(${box.x} ${box.y})`,
      "data-box": place,
      tabindex: -1,
      role: "button",
    },
    svg("rect", { class: "plate", width: box.w, height: head, rx: r }),
    svg("path", {
      class: "foot",
      d: `M0 ${head - foot}h${box.w}a${r} ${r} 0 0 1-${r} ${foot}h${2 * r - box.w}a${r} ${r} 0 0 1-${r}-${foot}z`,
    }),
    svg("rect", { class: "rim", width: box.w, height: head, rx: r }),
    svg("text", { class: "name", x: box.w / 2, y: box.detail ? 16 : head / 2 + 2 }, box.label),
    box.detail ? svg("text", { class: "detail", x: box.w / 2, y: 29 }, box.detail) : null,
    ...badges.map((badge) => badge.element),
    rest,
    value,
  );
  return { box, element, badges, hidden, rest, state: "wait", value: "", valueMark: value };
}

/** @param {number} node @param {string} label @param {number} row @param {number} width */
function badgeMark(node, label, row, width) {
  return svg(
    "g",
    { class: "badge wait", "data-node": node, transform: `translate(0 ${HEAD + 3 + BADGE * row})` },
    svg("rect", { class: "tag", width, height: 13, rx: 3 }),
    svg("rect", { class: "dot", x: 4, y: 3, width: 7, height: 7 }),
    svg("text", { x: 15, y: 9.8 }, label),
  );
}

/** @param {Element} element @param {string} name a class that a new state leaves as it is */
function kept(element, name) {
  return element.classList.contains(name) ? ` ${name}` : "";
}

/** @param {any} mark @param {Float32Array} norms @param {Map<number,[number,number]>} bad @param {boolean} far */
function paintBox(mark, norms, bad, far) {
  const norm = ofBox(mark.box.nodes, norms),
    state = level(norm);
  if (state !== mark.state)
    mark.element.setAttribute("class", `box ${state}${kept(mark.element, "picked")}${kept(mark.element, "born")}`);
  mark.state = state;
  for (const badge of mark.badges) {
    const now = level(norms[badge.node]);
    if (now !== badge.state) badge.element.setAttribute("class", `badge ${now}`);
    badge.state = now;
  }
  if (mark.hidden.length) paintRest(mark, norms);
  if (far) return;
  const counts =
    state === "bad" ? mark.box.nodes.map((/** @type {number} */ node) => bad.get(node)).find(Boolean) : null;
  const value = counts ? shortBadText(counts[0], counts[1], mark.box.w + 8) : exponentText(norm);
  if (value !== mark.value) mark.valueMark.textContent = mark.value = value;
}

/** The leaves that are not written out: how many, and how many of them are not finite. @param {any} mark @param {Float32Array} norms */
function paintRest(mark, norms) {
  const bad = mark.hidden.filter((/** @type {number} */ node) => level(norms[node]) === "bad").length,
    count = mark.hidden.length;
  const words = mark.box.written ? `+ ${count} more` : count === 1 ? "1 leaf" : `${count} leaves`;
  say(mark.rest, bad ? `${words}, ${bad} not finite` : words);
  mark.rest.classList.toggle("bad", bad > 0);
}

/** @param {Wire} wire */
function wireMark(wire) {
  const points = [];
  for (let at = 0; at < wire.points.length; at += 2) points.push([wire.points[at], wire.points[at + 1]]);
  const [tip, back] = [points[points.length - 1], points[points.length - 2]];
  const angle = Math.atan2(tip[1] - back[1], tip[0] - back[0]);
  const head = svg("path", {
    class: "tip",
    d: "M0 0l-7-4.2v8.4z",
    transform: `translate(${tip[0]} ${tip[1]}) rotate(${((angle * 180) / Math.PI).toFixed(1)})`,
  });
  const end = [tip[0] - 5 * Math.cos(angle), tip[1] - 5 * Math.sin(angle)];
  const line = svg("path", { class: "line", d: smooth([...points.slice(0, -1), end]) });
  return { wire, line, state: "", element: svg("g", { class: "wire wait" }, line, head) };
}

/** Rounded corners. @param {number[][]} points @returns {string} */
function smooth(points) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [[ax, ay], [bx, by], [cx, cy]] = [points[at - 1], points[at], points[at + 1]];
    const cut = (/** @type {number} */ dx, /** @type {number} */ dy) =>
      Math.min(8, Math.hypot(dx, dy) / 2) / (Math.hypot(dx, dy) || 1);
    const [before, after] = [cut(ax - bx, ay - by), cut(cx - bx, cy - by)];
    path += `L${(bx + (ax - bx) * before).toFixed(1)} ${(by + (ay - by) * before).toFixed(1)}Q${bx} ${by} ${(bx + (cx - bx) * after).toFixed(1)} ${(by + (cy - by) * after).toFixed(1)}`;
  }
  const last = points[points.length - 1];
  return `${path}L${last[0].toFixed(1)} ${last[1].toFixed(1)}`;
}

/** A wire is lit once the gradient has gone through it: both ends were reached. @param {any} line @param {string} from @param {string} to */
function paintWire(line, from, to) {
  const state = from === "wait" ? "wait" : to;
  if (state === line.state) return;
  line.state = state;
  line.element.setAttribute("class", `wire ${state}`);
  line.line.setAttribute("stroke-width", wireWidth(state).toFixed(1));
}

/** @param {Element} mark @param {Box|null} box @param {number} gap */
function around(mark, box, gap) {
  mark.setAttribute("visibility", box ? "visible" : "hidden");
  if (!box) return;
  const place = { x: box.x - gap, y: box.y - gap, width: box.w + 2 * gap, height: box.h + 2 * gap };
  for (const [name, value] of Object.entries(place)) mark.setAttribute(name, String(value));
}

/** @param {Box} box @param {any} birth @param {number} width of the drawing */
function bornMark(box, birth, width) {
  const word = birth.nan ? "NaN" : "Inf";
  const where = ["module", "repeat"].includes(box.kind) ? "in here" : "here";
  const height = box.badges.length ? HEAD : box.h,
    words = `◆ ${word} born ${where}${birth.certain ? "" : ", or beside it"}`;
  // To the right, from where a finite gradient came: its few digits leave room, the counts of NaN at the left do not.
  const fits = box.x + 6.6 * words.length < width;
  return svg(
    "g",
    {},
    svg("rect", { class: "born-rim", x: box.x, y: box.y, width: box.w, height, rx: 5 }),
    svg(
      "text",
      {
        class: "born-text",
        x: fits ? box.x - 14 : box.x + box.w + 4,
        y: box.y - 8,
        "text-anchor": fits ? "start" : "end",
      },
      words,
    ),
  );
}

/** First and last place of every run of values for which it holds. @param {number[]} values @param {(value:number)=>boolean} holds @returns {[number, number][]} */
function runs(values, holds) {
  /** @type {[number, number][]} */
  const found = [];
  values.forEach((value, at) => {
    if (!holds(value)) return;
    const last = found[found.length - 1];
    if (last && last[1] === at - 1) last[1] = at;
    else found.push([at, at]);
  });
  return found;
}

/** For each dotted name its shortest ending, of two parts or more, that no other name has. @param {string[]} names @returns {string[]} */
function shortNames(names) {
  const endings = names.map((name) => {
    const parts = name.split(".");
    return parts.slice(1).map((_part, at) => parts.slice(parts.length - 2 - at).join("."));
  });
  /** @type {Map<string, number>} */
  const uses = new Map();
  for (const ending of endings.flat()) uses.set(ending, (uses.get(ending) ?? 0) + 1);
  return names.map((name, place) => endings[place].find((ending) => uses.get(ending) === 1) ?? name);
}

// ---- gradient norms over the passes -------------------------------------------------------------------------------

const ROW_HEIGHT = 22;

/** Small multiples, one a parameter, on one shared log scale. */
class Charts {
  /** @type {number[]} */ passes = [];
  /** @type {number[][]} a row of norms for each parameter */ series = [];
  /** @type {any[]} */ parameters = [];
  /** @type {[number, number]|null} log10 of the scale's ends */ bounds = null;
  /** @type {string} */ names = "";
  /** @type {number|undefined} */ current;
  width = 0;
  grid = false;

  /** @param {string} hatch @param {{goto:(pass:number)=>void}} hooks */
  constructor(hatch, hooks) {
    this.hatch = hatch;
    this.hooks = hooks;
    this.scope = html("span", { class: "quiet end" });
    this.count = html("span", { class: "quiet" }, "log scale");
    this.list = html("div", { class: "rows" });
    this.axis = html("div", { class: "axis quiet" });
    this.element = html(
      "div",
      { class: "charts" },
      html("div", { class: "part" }, "Gradient norm ", this.count, this.scope),
      this.list,
      this.axis,
    );
    this.list.addEventListener("scroll", () => this.paintVisible());
    this.list.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.read(this.passAt(event)));
    this.list.addEventListener("pointerleave", () => this.read(null));
    this.list.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      const pass = this.passAt(event);
      if (pass !== null) this.hooks.goto(pass);
    });
    /** @type {any[]} */ this.rows = [];
    /** @type {number|null} */ this.hovered = null;
  }

  /** @param {Model} model @param {boolean} grid small multiples in columns, as in a run without problems */
  load(model, grid) {
    this.passes = [...model.passNumbers];
    this.series = model.series;
    this.parameters = model.doc.parameters;
    this.grid = grid;
    this.list.classList.toggle("grid", grid);
    this.bounds = null;
    this.sampled = model.doc.state === "running";
    const names =
      JSON.stringify(
        this.parameters.map((/** @type {any} */ one) => [one.name, one.shape, one.requires_grad, one.used]),
      ) + model.doc.state;
    if (names === this.names) return this.changed();
    this.names = names;
    const short = shortNames(this.parameters.map((/** @type {any} */ one) => one.name));
    this.rows = this.parameters.map((/** @type {any} */ parameter, /** @type {number} */ place) =>
      this.row(parameter, short[place]),
    );
    say(this.count, `of ${plural(this.rows.length, "parameter")}, log scale`);
    const none =
      model.doc.state === "running" ? "No parameter has received a gradient yet." : "No parameter took part.";
    this.list.replaceChildren(
      ...(this.rows.length ? this.rows.map((row) => row.element) : [html("p", { class: "quiet empty" }, none)]),
    );
    this.changed();
  }

  /** @param {any} parameter @param {string} name its shortest name that is no other's */
  row(parameter, name) {
    const line = svg("path", { class: "series" }),
      alone = svg("path", { class: "series alone" }),
      bad = svg("path", { class: "bad-passes", fill: `url(#${this.hatch})` }),
      zero = svg("path", { class: "zero-passes" }),
      blind = svg("path", { class: "blind-passes" });
    const now = svg("line", { class: "now", y1: 0, y2: ROW_HEIGHT }),
      knob = svg("circle", { class: "knob", r: 2.2 });
    const plot = svg("svg", { class: "plot", height: ROW_HEIGHT, "aria-hidden": "true" });
    plot.append(bad, zero, blind, line, alone, now, knob);
    const value = html("span", { class: "reading" });
    const label = html(
      "span",
      {
        class: "label",
        title: `${parameter.name}  ${parameter.shape}  ${parameter.dtype}, ${plural(parameter.numel, "element")}`,
      },
      html("bdi", {}, name),
    );
    return {
      element: html("div", { class: parameter.requires_grad ? "row" : "row frozen" }, label, plot, value),
      line,
      alone,
      bad,
      zero,
      blind,
      now,
      knob,
      value,
      plot,
      stale: true,
      parameter,
    };
  }

  /** One more pass, from the live feed. @param {number} pass @param {Float32Array} norms */
  append(pass, norms) {
    if (this.passes[this.passes.length - 1] >= pass || norms.length !== this.rows.length) return;
    this.passes.push(pass);
    norms.forEach((norm, place) => this.series[place].push(norm));
    if (this.passes.length > LONGEST_LIVE_SERIES) this.thin();
    this.changed();
  }

  thin() {
    const bad = (/** @type {number} */ at) => this.series.some((norms) => !Number.isFinite(norms[at]));
    const keep = this.passes.map((_pass, at) => at % 2 === 0 || at === this.passes.length - 1 || bad(at));
    this.passes = this.passes.filter((_pass, at) => keep[at]);
    this.series = this.series.map((norms) => norms.filter((_norm, at) => keep[at]));
  }

  changed() {
    this.rows.forEach((row) => {
      row.stale = true;
    });
    const finite = this.series
      .flatMap((norms) => (this.bounds ? norms.slice(-1) : norms))
      .filter((norm) => norm > 0 && Number.isFinite(norm))
      .map(Math.log10);
    const low = finite.reduce((least, value) => Math.min(least, value), this.bounds?.[0] ?? Infinity),
      high = finite.reduce((most, value) => Math.max(most, value), this.bounds?.[1] ?? -Infinity);
    this.bounds = Number.isFinite(low) ? [Math.floor(low), Math.max(Math.ceil(high), Math.floor(low) + 1)] : null;
    say(this.scope, this.bounds ? `1e${this.bounds[0]} to 1e${this.bounds[1]}`.replaceAll("-", "−") : "");
    this.sayAxis();
    this.paintVisible();
  }

  sayAxis() {
    const [first, last] = [this.passes[0], this.passes[this.passes.length - 1]];
    const span = this.passes.length
      ? `pass ${first}${last > first ? ` … ${last}` : ""}${this.sampled ? ", sampled while running" : ""}`
      : "";
    say(this.axis, this.hovered === null ? span : `pass ${this.hovered}`);
  }

  /** @param {number} pass the one whose values are read when nothing is hovered */
  at(pass) {
    this.current = pass;
    this.paintVisible();
  }

  paintVisible() {
    this.width = this.rows.length ? this.rows[0].plot.clientWidth || this.width : 0;
    if (!this.width) return;
    const columns = this.grid ? getComputedStyle(this.list).gridTemplateColumns.split(" ").length : 1;
    const pitch = (this.rows[columns]?.element.offsetTop ?? 0) - this.rows[0].element.offsetTop || ROW_HEIGHT;
    const first = Math.max(Math.floor(this.list.scrollTop / pitch) - 1, 0) * columns,
      count = (Math.ceil(this.list.clientHeight / pitch) + 3) * columns;
    for (let place = first; place < Math.min(first + count, this.rows.length); place += 1)
      this.paintRow(this.rows[place], place);
  }

  /** @param {any} row @param {number} place */
  paintRow(row, place) {
    if (row.stale || row.width !== this.width) this.plot(row, this.series[place]);
    const at = this.place(this.hovered ?? this.current ?? Infinity),
      norm = at < 0 ? UNTOUCHED : this.series[place][at];
    const x = at < 0 ? -9 : this.x(this.passes[at]),
      drawn = norm > 0 && Number.isFinite(norm);
    row.now.setAttribute("x1", x);
    row.now.setAttribute("x2", x);
    row.knob.setAttribute("cx", drawn ? x : -9);
    row.knob.setAttribute("cy", drawn ? this.y(norm) : 0);
    row.value.classList.toggle("bad", at >= 0 && !Number.isFinite(norm));
    say(row.value, this.wording(row.parameter, norm));
  }

  /** @param {any} parameter @param {number} norm */
  wording(parameter, norm) {
    if (!parameter.requires_grad) return "frozen";
    if (norm === UNTOUCHED || norm === undefined) return parameter.used ? "none" : "unused";
    return norm < UNTOUCHED ? "unknown" : normText(norm);
  }

  /** @param {any} row @param {number[]} norms */
  plot(row, norms) {
    const [line, alone] = this.curve(norms);
    const band = (/** @type {[number, number]} */ [from, to]) =>
      `M${from.toFixed(1)} 1H${to.toFixed(1)}V${ROW_HEIGHT - 1}H${from.toFixed(1)}z`;
    const floor = (/** @type {[number, number]} */ [from, to]) =>
      `M${from.toFixed(1)} ${ROW_HEIGHT - 1}H${to.toFixed(1)}`;
    const middle = (/** @type {[number, number]} */ [from, to]) =>
      `M${from.toFixed(1)} ${ROW_HEIGHT / 2}H${to.toFixed(1)}`;
    row.line.setAttribute("d", line);
    row.alone.setAttribute("d", alone);
    row.bad.setAttribute(
      "d",
      this.stretches(norms, (norm) => !Number.isFinite(norm))
        .map(band)
        .join(""),
    );
    row.zero.setAttribute(
      "d",
      this.stretches(norms, (norm) => norm === 0)
        .map(floor)
        .join(""),
    );
    row.blind.setAttribute(
      "d",
      this.stretches(norms, (norm) => norm < UNTOUCHED)
        .map(middle)
        .join(""),
    );
    row.stale = false;
    row.width = this.width;
  }

  /** The line through the norms that have a logarithm, and the points that have no neighbour. @param {number[]} norms @returns {[string, string]} */
  curve(norms) {
    let line = "",
      alone = "";
    for (const [first, last] of runs(norms, (norm) => norm > 0 && Number.isFinite(norm))) {
      const points = norms
        .slice(first, last + 1)
        .map((norm, at) => `${this.x(this.passes[first + at]).toFixed(1)} ${this.y(norm).toFixed(1)}`);
      if (points.length > 1) line += `M${points.join("L")}`;
      else alone += `M${points[0]}h.01`;
    }
    return [line, alone];
  }

  /** Where the passes for which it holds lie: one stretch a run of them, from half way to the neighbours on.
   * @param {number[]} norms @param {(norm:number)=>boolean} holds @returns {[number, number][]} */
  stretches(norms, holds) {
    const x = (/** @type {number} */ at) => this.x(this.passes[at]);
    return runs(norms, holds).map(([first, last]) => {
      const from = first ? (x(first - 1) + x(first)) / 2 : 0.5,
        to = last < norms.length - 1 ? (x(last) + x(last + 1)) / 2 : this.width - 0.5;
      const least = Math.max(0, 4 - (to - from)) / 2; // a single pass of hundreds is still seen
      return [from - least, to + least];
    });
  }

  /** @param {number} pass @returns {number} */
  x(pass) {
    const first = this.passes[0],
      span = this.passes[this.passes.length - 1] - first;
    return 3 + (span ? ((pass - first) / span) * (this.width - 6) : 0);
  }

  /** @param {number} norm @returns {number} */
  y(norm) {
    const [low, high] = this.bounds ?? [LOW, HIGH];
    return ROW_HEIGHT - 3 - ((Math.log10(norm) - low) / (high - low)) * (ROW_HEIGHT - 6);
  }

  /** @param {number} pass @returns {number} place of the last kept pass that is not later */
  place(pass) {
    let low = 0,
      high = this.passes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.passes[middle] <= pass) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** @param {PointerEvent} event @returns {number|null} */
  passAt(event) {
    const plot = /** @type {Element} */ (event.target).closest?.(".plot");
    if (!plot || !this.passes.length) return null;
    const box = plot.getBoundingClientRect(),
      share = (event.clientX - box.left - 3) / Math.max(box.width - 6, 1);
    const wanted = this.passes[0] + share * (this.passes[this.passes.length - 1] - this.passes[0]);
    return this.passes.reduce(
      (best, pass) => (Math.abs(pass - wanted) < Math.abs(best - wanted) ? pass : best),
      this.passes[0],
    );
  }

  /** @param {number|null} pass */
  read(pass) {
    if (pass === this.hovered) return;
    this.hovered = pass;
    this.sayAxis();
    this.paintVisible();
  }
}

// ---- the source ---------------------------------------------------------------------------------------------------

/** The person's lines, each with how many nodes it made and the norm that reached them. */
class Source {
  /** @type {string} */ content = "";
  /** @type {string|undefined} the content whose first interesting line was shown */ begun;
  /** @type {number|undefined} the row to begin with */ start;
  /** @type {Set<number|undefined>} rows that called backward */ calls = new Set();

  /** @param {{pick:(nodes:Set<number>|null)=>void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    this.list = html("ol", { class: "lines" });
    this.element = html(
      "div",
      { class: "source" },
      html("div", { class: "part" }, "Source", html("span", { class: "quiet end" }, "nodes and norm per line")),
      this.list,
    );
    /** @type {any[]} */ this.rows = [];
    this.picked = -1;
  }

  /** @param {Model} model @param {number} graph */
  load(model, graph) {
    const locations = model.doc.graphs.length ? model.doc.graphs[graph].nodes.location : [];
    const content = JSON.stringify([model.doc.source, locations]);
    if (content === this.content) return;
    this.content = content;
    this.picked = -1;
    this.rows = model.doc.source.map((/** @type {any[]} */ [line, text, places], /** @type {number} */ place) => {
      /** @type {number[]} */
      const nodes = [];
      locations.forEach((/** @type {number|null} */ location, /** @type {number} */ node) => {
        if (location !== null && places.includes(location)) nodes.push(node);
      });
      return this.row(line, text, nodes, place);
    });
    this.list.replaceChildren(...this.rows.map((row) => row.element));
    const calls = (this.calls = new Set(
      model.doc.passes.map((/** @type {any[]} */ row) => model.rowOfLocation.get(row[6])),
    ));
    this.rows.forEach((row, place) => row.element.classList.toggle("calls", calls.has(place)));
  }

  /** @param {number} line @param {string} text @param {number[]} nodes @param {number} place */
  row(line, text, nodes, place) {
    if (!line) return { nodes, element: html("li", { class: text ? "heading" : "omitted" }, text || "⋯"), state: "" };
    const bar = html("span", { class: "bar" }),
      value = html("span", { class: "reading" });
    const inner = [
      html("span", { class: "count" }, nodes.length ? String(nodes.length) : ""),
      html("span", { class: "gauge" }, bar),
      value,
      html("span", { class: "number" }, String(line)),
      html("code", { title: text.length > 36 ? text.trim() : null }, text || " "),
    ];
    const click = () => this.pick(this.picked === place ? -1 : place);
    const body = nodes.length
      ? html(
          "button",
          { class: "line", type: "button", click, title: `show the ${plural(nodes.length, "node")} of line ${line}` },
          ...inner,
        )
      : html("span", { class: "line" }, ...inner);
    return { nodes, element: html("li", {}, body), bar, value, state: "", text: "" };
  }

  /** @param {Float32Array} norms */
  paint(norms) {
    for (const row of this.rows) {
      if (!row.nodes.length) continue;
      const norm = ofLine(row.nodes, norms),
        state = level(norm),
        text = norm === UNTOUCHED ? "wait" : exponentText(norm);
      if (state !== row.state) row.bar.setAttribute("class", `bar ${state}`);
      if (state !== row.state || text !== row.text)
        row.bar.style.width = `${state.length === 2 ? 25 + 15 * Number(state[1]) : 100}%`;
      if (text !== row.text) row.value.textContent = text;
      if (state !== row.state) row.value.classList.toggle("bad", state === "bad");
      [row.state, row.text] = [state, text];
    }
  }

  /** @param {number} place -1 for none */
  pick(place) {
    this.picked = place;
    this.rows.forEach((row, at) => row.element.classList.toggle("picked", at === place));
    this.hooks.pick(place < 0 ? null : new Set(this.rows[place].nodes));
  }

  /** Mark the line of the selected node, and bring it into view. @param {number|undefined} place */
  mark(place) {
    this.rows.forEach((row, at) => row.element.classList.toggle("here", at === place));
    if (place === undefined) return;
    const line = this.rows[place].element,
      box = this.list;
    if (line.offsetTop < box.scrollTop || line.offsetTop > box.scrollTop + box.clientHeight - 20)
      box.scrollTop = line.offsetTop - box.clientHeight / 2;
  }

  /** Mark lines that findings are about. @param {Set<number|undefined>} places */
  warn(places) {
    this.rows.forEach((row, at) => row.element.classList.toggle("hit", places.has(at)));
    this.start = this.rows.findIndex((_row, at) => places.has(at));
    if (this.start < 0) this.start = this.rows.findIndex((row) => row.nodes.length);
    this.open();
  }

  /** Begin where something happened, once the list has a height. */
  open() {
    const row = this.rows[this.start ?? -1];
    if (!row || !this.list.clientHeight || this.begun === this.content) return;
    this.begun = this.content;
    this.list.scrollTop = row.element.offsetTop - 60;
  }
}

// ---- one node, in words -------------------------------------------------------------------------------------------

/** What is known of the selected node, at the pass that is shown. */
class Drawer {
  /** @type {{graph:number, node:number}|null} */ live = null;
  /** @type {[number, Element][]} where it sent gradients, and the cells that say how large */ sent = [];
  /** @type {any} */ normCell;
  /** @type {any} */ heading;
  /** @type {any} */ story;

  /** @param {{close:()=>void, select:(box:number, node:number|null)=>void, line:(location:number)=>void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    this.inside = html("div", { class: "inside" });
    this.element = html("aside", { class: "drawer", "aria-label": "Selected node", hidden: true }, this.inside);
  }

  /** @param {Model} model @param {number} graph @param {number} box @param {number} node @param {Picture} picture */
  show(model, graph, box, node, picture) {
    const facts = model.node(graph, node),
      shape = model.graphs[graph].boxes[box];
    this.element.hidden = false;
    const members = this.members(model, graph, box, shape, node);
    this.inside.replaceChildren(
      html(
        "div",
        { class: "title" },
        html("b", {}, model.boxLabel(graph, node)),
        html(
          "button",
          {
            type: "button",
            class: "square bare",
            title: "close (Escape)",
            "aria-label": "close",
            click: () => this.hooks.close(),
          },
          glyph(GLYPHS.stop),
        ),
      ),
      ...(members ? [members] : []),
      this.facts(model, facts),
      this.gradient(model, graph, node, picture),
      ...saved(facts.saved),
      ...statistics(facts.statistics),
    );
    this.live = { graph, node };
  }

  hide() {
    this.element.hidden = true;
    this.live = null;
  }

  /** @param {Model} model @param {number} graph @param {number} place @param {Box} box @param {number} node */
  members(model, graph, place, box, node) {
    const all = [...box.nodes, ...box.badges.map(([badge]) => badge)];
    if (all.length < 2) return null;
    const options = all
      .slice(0, 200)
      .map((member) =>
        html("option", { value: member, selected: member === node }, `${model.nodeLabel(graph, member)}  #${member}`),
      );
    const more = all.length > 200 ? `, the first 200` : "";
    const change = (/** @type {any} */ event) => this.hooks.select(place, Number(event.target.value));
    return html(
      "label",
      { class: "members" },
      html("span", { class: "quiet" }, `${plural(all.length, "node")} in “${box.label}”${more}`),
      html("select", { change }, ...options),
    );
  }

  /** @param {Model} model @param {any} facts */
  facts(model, facts) {
    const rows = [["op", `${facts.op}, ${facts.name}`]];
    if (facts.variable) rows.push([facts.kind === "accumulate" ? "leaf" : "result", facts.variable]);
    if (facts.module) rows.push(["module", facts.module]);
    if (facts.shapes) rows.push(["shape", facts.shapes]);
    if (facts.dtype) rows.push(["dtype", [facts.dtype, facts.device].filter(Boolean).join(", ")]);
    const list = html("dl", {}, ...rows.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
    if (facts.location === null) return list;
    const [label, , text] = model.doc.locations[facts.location];
    const link = html("button", { type: "button", class: "link", click: () => this.hooks.line(facts.location) }, label);
    list.append(
      html("dt", {}, "source"),
      html("dd", {}, link, facts.guessed ? " or before" : "", text ? html("code", { class: "quote" }, text) : ""),
    );
    return list;
  }

  /** @param {Model} model @param {number} graph @param {number} node @param {Picture} picture */
  gradient(model, graph, node, picture) {
    const [sources, targets, inputs] = model.graphs[graph].edges,
      rows = [];
    this.normCell = html("td", {});
    rows.push(html("tr", {}, html("th", { scope: "row" }, "received"), this.normCell));
    this.sent = [];
    for (let edge = 0; edge < sources.length; edge += 1) {
      if (sources[edge] !== node) continue;
      const cell = html("td", {});
      this.sent.push([targets[edge], cell]);
      rows.push(
        html(
          "tr",
          {},
          html(
            "th",
            { scope: "row", title: "what that node received in all" },
            `input ${inputs[edge]} → ${model.nodeLabel(graph, targets[edge])}`,
          ),
          cell,
        ),
      );
    }
    this.story = html("p", { class: "story" });
    this.heading = html("span", { class: "quiet" });
    const part = html(
      "div",
      {},
      html("div", { class: "part small" }, "Gradient norm ", this.heading),
      html("table", {}, ...rows),
      this.story,
    );
    this.live = { graph, node };
    this.refresh(picture);
    return part;
  }

  /** @param {Picture} picture */
  refresh(picture) {
    if (!this.live) return;
    const { norms, bad } = picture,
      words = (/** @type {number} */ index) =>
        bad.has(index) ? badText(.../** @type {[number, number]} */ (bad.get(index))) : normText(norms[index]);
    const put = (/** @type {Element} */ cell, /** @type {number} */ index) => {
      say(cell, words(index));
      cell.classList.toggle("bad", level(norms[index]) === "bad");
    };
    say(this.heading, picture.pass ? `pass ${picture.pass}` : "");
    put(this.normCell, this.live.node);
    for (const [target, cell] of this.sent) put(cell, target);
    const birth = picture.births.find((one) => one.node === this.live?.node);
    say(this.story, birth ? birthText(birth) : "");
  }
}

/** @param {any} birth @returns {string} */
function birthText(birth) {
  const made = `${badText(birth.nan, birth.inf)} of ${birth.count}`;
  const kept = [
    [birth.saved_zero, "zero"],
    [birth.saved_negative, "negative value"],
    [birth.saved_bad, "non-finite value"],
  ]
    .filter(([count]) => count)
    .map(([count, word]) => plural(count, word))
    .join(", ");
  const why = birth.saved && kept ? ` Its saved tensor ${birth.saved} holds ${kept}.` : "";
  return `Here finite became non-finite: norm ${number(Number(birth.incoming))} came in, ${made} went on for input ${birth.input}.${why}${birth.certain ? "" : " Several nodes feed the receiver, and only their sum was seen."}`;
}

/** @param {any[]} tensors @returns {Element[]} */
function saved(tensors) {
  if (!tensors.length) return [];
  const rows = tensors.map((tensor) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, tensor.name),
      html("td", {}, tensor.shape),
      html("td", { title: tensor.dtype }, bytesText(tensor.nbytes)),
      html("td", { class: "state" }, html("span", { class: `dot ${tensor.state.replaceAll(" ", "-")}` }), tensor.state),
    ),
  );
  return [html("div", {}, html("div", { class: "part small" }, "Saved tensors"), html("table", {}, ...rows))];
}

/** @param {any[]|null} row @returns {Element[]} */
function statistics(row) {
  if (!row) return [];
  const [pass, count, norm, most, mean, std, zero, nan, inf] = row;
  const pairs = [
    ["norm", norm],
    ["|max|", most],
    ["mean", mean],
    ["std", std],
    ["zeros", zero],
    ["NaN", nan],
    ["Inf", inf],
  ];
  const note = nan + inf ? ", mean and std of the finite ones" : "";
  const heading = html(
    "div",
    { class: "part small" },
    "Statistics ",
    html("span", { class: "quiet" }, `pass ${pass}, ${plural(count, "element")}${note}`),
  );
  const rows = pairs.map(([name, value]) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, name),
      html(
        "td",
        { class: (name === "NaN" || name === "Inf") && value ? "bad" : "" },
        number(Number(value === "inf" ? Infinity : value)),
      ),
    ),
  );
  return [html("div", {}, heading, html("table", {}, ...rows))];
}

// ---- findings -----------------------------------------------------------------------------------------------------

/** @param {any} finding @param {{node:(graph:number, node:number)=>void, line:(location:number)=>void}} hooks */
function findingElement(finding, hooks) {
  const buttons = [];
  if (finding.node)
    buttons.push(
      html("button", { type: "button", click: () => hooks.node(finding.node[0], finding.node[1]) }, "Show node"),
    );
  const fixes = [...finding.remedy.matchAll(/`([^`]+)`/g)].map((match) => match[1]);
  if (fixes.length === 1) buttons.push(copyButton(fixes[0]));
  const where = !finding.where
    ? null
    : finding.location === null
      ? html("span", { class: "quiet" }, finding.where)
      : html("button", { type: "button", class: "link", click: () => hooks.line(finding.location) }, finding.where);
  // Where the message names the place itself, that is where the link goes.
  const [before, after] = finding.where ? finding.message.split(finding.where) : [finding.message];
  const evidence = Object.entries(finding.evidence)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "number" ? number(value) : value}`)
    .join(" · ");
  return html(
    "div",
    { class: `finding ${finding.severity}` },
    severityIcon(finding.severity),
    html("span", { class: "code-name" }, `${finding.code} ${finding.severity}`),
    html(
      "div",
      { class: "message" },
      html(
        "p",
        { title: evidence },
        ...(after === undefined
          ? [...prose(finding.message), where ? " " : null, where]
          : [...prose(before), where, ...prose(after)]),
      ),
      finding.text ? culprit(finding, hooks) : null,
      finding.remedy ? html("p", { class: "remedy" }, ...quoting(finding.remedy, snippet)) : null,
    ),
    html("div", { class: "actions" }, ...buttons),
  );
}

/** The line itself, to be seen from far away. @param {any} finding @param {{line:(location:number)=>void}} hooks */
function culprit(finding, hooks) {
  const line = finding.where.match(/\d+$/)?.[0] ?? "",
    inner = [html("span", { class: "number" }, line), html("code", {}, finding.text)];
  if (finding.location === null) return html("div", { class: "culprit" }, ...inner);
  const click = () => hooks.line(finding.location);
  return html("button", { type: "button", class: "culprit", title: `show ${finding.where}`, click }, ...inner);
}

/** A piece of code in a remedy: a click copies it. @param {string} code */
function snippet(code) {
  const button = html("button", { type: "button", class: "snippet", title: "copy", click: () => copied(button, code) });
  button.append(html("code", {}, code));
  return button;
}

/** @param {string} code */
function copyButton(code) {
  const click = async () => {
    say(button, (await copied(button, code)) ? "Copied" : "Cannot copy here");
    setTimeout(() => say(button, "Copy fix"), 1500);
  };
  const button = html("button", { type: "button", title: code, click }, "Copy fix");
  return button;
}

/** Copy, and show for a moment whether it worked. @param {Element} button @param {string} code @returns {Promise<boolean>} */
async function copied(button, code) {
  const done = await toClipboard(code),
    mark = done ? "copied" : "not-copied";
  button.classList.add(mark);
  setTimeout(() => button.classList.remove(mark), 1500);
  return done;
}

/** Through the clipboard, which only pages from https or this machine have; else as people copied before there was one.
 * @param {string} text @returns {Promise<boolean>} */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** @param {string} text @returns {boolean} */
function copiedBySelection(text) {
  const before = /** @type {any} */ (document.activeElement),
    field = html("textarea", {
      style: "position:fixed;top:0;opacity:0",
      "aria-hidden": "true",
      "data-lm-suppress-shortcuts": "true",
    });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus?.({ preventScroll: true });
  return done;
}

// ---- the panel ----------------------------------------------------------------------------------------------------

/** Everything together: which pass of which graph is shown, and what is selected. */
class Panel {
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

// ---- the two transports -------------------------------------------------------------------------------------------

/**
 * Draw a trace document into an element.
 * @param {Element} element @param {any} doc @param {{live?:boolean}} [options]
 * @returns {{update:(doc:any)=>void, delta:(header:DeltaHeader, values:Float32Array)=>void, dispose:()=>void}}
 */
export function mount(element, doc, options = {}) {
  const panel = new Panel(element, doc, options);
  return {
    update: (newer) => panel.update(newer),
    delta: (header, values) => panel.delta(header, values),
    dispose: () => panel.dispose(),
  };
}

/**
 * What anywidget calls, once a view.
 * @param {{model:any, el:Element}} context
 */
function render({ model, el }) {
  const section = html("section", { class: "tm tm-trace" });
  el.append(section);
  const panel = new Panel(section, model.get("_document"), { live: true });
  const changed = () => panel.update(model.get("_document"));
  const received = (/** @type {DeltaHeader} */ header, /** @type {DataView[]} */ buffers) => {
    const { buffer, byteOffset, byteLength } = buffers[0];
    panel.delta(header, new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength)));
  };
  model.on("change:_document", changed);
  model.on("msg:custom", received);
  return () => {
    model.off("change:_document", changed);
    model.off("msg:custom", received);
    panel.dispose();
  };
}

export default { render };
