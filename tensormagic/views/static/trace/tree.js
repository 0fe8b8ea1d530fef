// @ts-check
/** What lies inside the boxes of a graph: the tree that inside.py made and laid out, and which of it is open. */

/** @typedef {{parent:number, children:number[], label:string, detail:string, kind:string, module:string, w:number, h:number, nodes:number[], badges:[number,string][], written:number}} Part */
/** @typedef {{width:number, height:number, margin:number, ends:number[], places:number[], wires:number[][], children:number[]}} Level wires: source, target (-1: the border), points */

/** The parts of one graph: the drawn boxes first, then what lies inside them, down to single ops. */
export class Tree {
  /** @type {Part[]} */ parts = [];
  /** @type {Set<number>} the parts that are opened */ open = new Set();
  spread = false; // whether the picture may be wider than a screen: to see all of it at once

  /** @param {any} raw the graph in the document @param {number[][]} edges decoded @param {string[]} text its table of strings @param {import("./constants.js").Box[]} boxes */
  constructor({ nodes, parts = {}, drawing, ends }, edges, text, boxes) {
    this.edges = edges;
    this.drawing = drawing;
    this.severed = ends?.wires ?? [];
    this.level = parts.level ?? [];
    this.levels = parts.levels ?? [];
    this.roots = boxes.length;
    this.parts = boxes.map((box) => ({ ...box, parent: -1, children: [], module: text[nodes.module[box.nodes[0]]] ?? "" }));
    const [inner, leaves] = [steps(parts.nodes), steps(parts.leaves)];
    (parts.parent ?? []).forEach((/** @type {number} */ parent, /** @type {number} */ at) => {
      const [label, detail, kind, module] = ["label", "detail", "kind", "module"].map((name) => text[parts[name][at]]);
      const badges = leaves[at].map((leaf, row) => /** @type {[number,string]} */ ([leaf, text[parts.names[at][row]]]));
      const [w, h, written] = [parts.width[at], parts.height[at], parts.written[at]];
      this.parts[parent].children.push(this.parts.length);
      this.parts.push({ parent, children: [], label, detail, kind, module, w, h, nodes: inner[at], badges, written });
    });
    this.fill();
    /** @type {Int32Array} the innermost part of every node, -1 for leaves */
    this.partOf = new Int32Array(nodes.op.length).fill(-1);
    /** @type {Map<number, number>} the innermost part that a leaf is a badge of first */
    this.badgeOf = new Map();
    this.parts.forEach((part, place) => {
      if (part.children.length) return;
      for (const node of part.nodes) this.partOf[node] = place;
      for (const [leaf] of part.badges) if (!this.badgeOf.has(leaf)) this.badgeOf.set(leaf, place);
    });
  }

  /** What is told of whole parts alone: the nodes and leaves of all others. What comes last in the forward speaks first. */
  fill() {
    for (let place = this.parts.length - 1; place >= this.roots; place -= 1) {
      const part = this.parts[place];
      if (!part.children.length) continue;
      part.nodes = [...part.children].reverse().flatMap((child) => this.parts[child].nodes);
      part.badges = [...new Map(part.children.flatMap((child) => this.parts[child].badges)).entries()];
    }
  }

  /** The layout of what lies inside a part; of all that is drawn: -1. @param {number} place @returns {Level} */
  inside(place) {
    if (place < 0) {
      const { width, height, margin, rows, boxes, wires } = this.drawing,
        places = boxes.flatMap((/** @type {any[]} */ [x, y]) => [x, y]),
        lines = wires.map((/** @type {any[]} */ [source, target, points]) => [source, target, ...points]);
      return { width, height, margin, ends: rows, places, wires: lines, children: [...Array(this.roots).keys()] };
    }
    const [width, height, margin, ends, places, wires] = this.levels[this.level[place]];
    return { width, height, margin, ends, places, wires, children: this.parts[place].children };
  }

  /** Whether a box can be opened. @param {number} place */
  opens(place) {
    return this.parts[place]?.children.length > 0;
  }

  /** Close a part, and whatever is open inside it. @param {number} place */
  fold(place) {
    for (const open of [...this.open]) if (this.path(open).includes(place)) this.open.delete(open);
  }

  /** The part and what it lies in, outermost first. @param {number} place @returns {number[]} */
  path(place) {
    const found = [];
    for (let at = place; at >= 0; at = this.parts[at].parent) found.unshift(at);
    return found;
  }

  /** Of the path to a part what is shown now: up to the outermost closed part. @param {number} place @returns {number[]} */
  shown(place) {
    const path = this.path(place),
      closed = path.findIndex((at) => !this.open.has(at));
    return closed < 0 ? path : path.slice(0, closed + 1);
  }

  /** The innermost part of a node or a leaf; -1 where it has none. @param {number} node */
  home(node) {
    return this.partOf[node] >= 0 ? this.partOf[node] : (this.badgeOf.get(node) ?? -1);
  }

  /** What stays the same of a part from one document to the next. @param {number} place */
  key(place) {
    const part = this.parts[place];
    return `${part.kind} ${part.module} ${part.nodes[part.nodes.length - 1]} ${part.nodes.length}`;
  }

  /** Open what was open in another tree, where it is there again. @param {Set<string>} wanted keys */
  adopt(wanted) {
    for (let place = 0; wanted.size && place < this.parts.length; place += 1)
      if (wanted.has(this.key(place)) && this.opens(place) && this.path(place).slice(0, -1).every((at) => this.open.has(at)))
        this.open.add(place);
  }
}

/** Rows of numbers, each written as the step from the one before it (columns.py). @param {number[][]} [rows] @returns {number[][]} */
function steps(rows = []) {
  let last = 0;
  return rows.map((row) => row.map((step) => (last += step)));
}
