// @ts-check
/** What lies inside the boxes of a graph: the tree that coarsening.py made, and which of it is open. */

/** @typedef {{parent:number, children:number[], label:string, detail:string, kind:string, module:string, w:number, nodes:number[], badges:[number,string][]}} Part */

const LONGEST_CHAIN = 60;
const NARROWEST = 38;
const WIDEST = 190; // of a box (drawing.py)

/** The parts of one graph: the drawn boxes first, then what lies inside them, down to single ops. */
export class Tree {
  /** @type {Part[]} */ parts = [];
  /** @type {Set<number>} the parts that are opened */ open = new Set();
  spread = false; // whether rows may be longer than a screen is wide: to see all of it at once
  /** @type {number[][]} sources, targets */ edges = [[], []];
  /** @type {[number,number,number,number][]} lines between ends of the tree, forward, each with one edge of the graph */ links = [];

  /** @param {any} graph of the document @param {number[][]} edges decoded @param {string[]} text its table of strings @param {import("./constants.js").Box[]} boxes */
  constructor(graph, edges, text, boxes) {
    const { nodes, parts } = graph;
    this.columns = nodes;
    this.ends = graph.ends ?? null;
    this.text = text;
    this.roots = boxes.length;
    this.parts = boxes.map((box) => ({
      parent: -1,
      children: [],
      label: box.label,
      detail: box.detail,
      kind: box.kind,
      module: text[nodes.module[box.nodes[0]]] ?? "",
      w: box.w,
      nodes: box.nodes,
      badges: box.badges,
    }));
    const [inner, leaves] = [steps(parts?.nodes), steps(parts?.leaves)];
    (parts?.parent ?? []).forEach((/** @type {number} */ parent, /** @type {number} */ at) => {
      const [label, detail, kind, module] = ["label", "detail", "kind", "module"].map((name) => text[parts[name][at]]);
      const badges = leaves[at].map((leaf) => /** @type {[number,string]} */ ([leaf, this.leafName(leaf)]));
      this.add({ parent, children: [], label, detail, kind, module, w: parts.width[at], nodes: inner[at], badges });
    });
    this.fill();
    /** @type {Int32Array} the innermost part of every node, -1 for leaves */
    this.partOf = new Int32Array(nodes.op.length).fill(-1);
    /** @type {Map<number, number>} the innermost part that a leaf is a badge of first */
    this.badgeOf = new Map();
    this.parts.forEach((part, place) => this.claim(part, place));
    this.connect(edges);
  }

  /** @param {Part} part */
  add(part) {
    const place = this.parts.push(part) - 1;
    if (part.parent >= 0) this.parts[part.parent].children.push(place);
    return place;
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

  /** @param {Part} part @param {number} place */
  claim(part, place) {
    if (part.children.length) return;
    for (const node of part.nodes) this.partOf[node] = place;
    for (const [leaf] of part.badges) if (!this.badgeOf.has(leaf)) this.badgeOf.set(leaf, place);
  }

  /** @param {number} leaf */
  leafName(leaf) {
    const name = this.text[this.columns.variable[leaf]];
    return name ? name.split(".").slice(-2).join(".") : `leaf ${this.text[this.columns.shapes[leaf]] || "scalar"}`;
  }

  /** Whether a box can be opened. @param {number} place */
  opens(place) {
    const part = this.parts[place];
    return Boolean(part) && (part.children.length > 0 || this.isChain(part));
  }

  /** @param {Part} part */
  isChain(part) {
    return part.kind === "views" && part.nodes.length > 1 && part.nodes.length <= LONGEST_CHAIN;
  }

  /** Open a part: a chain of views gets its single nodes as parts now. @param {number} place */
  unfold(place) {
    const part = this.parts[place];
    if (!part.children.length) {
      for (const node of [...part.nodes].reverse()) this.add(this.single(node, place));
      part.children.forEach((child) => this.claim(this.parts[child], child));
      if (part.badges.length) this.parts[part.children[0]].badges = part.badges;
      this.connect(this.edges);
    }
    this.open.add(place);
  }

  /** @param {number} node @param {number} parent @returns {Part} */
  single(node, parent) {
    const label = this.text[this.columns.op[node]],
      detail = this.text[this.columns.shapes[node]].split(", ")[0] || "";
    const w = Math.min(Math.max(7.4 * label.length + 20, 6.4 * detail.length + 20, NARROWEST), WIDEST);
    return { parent, children: [], label, detail, kind: "op", module: "", w: Math.round(w), nodes: [node], badges: [] };
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

  /** The box that stands for a part now: itself, or the outermost closed part that it lies in. @param {number} place */
  shown(place) {
    return this.path(place).find((at) => !this.open.has(at)) ?? place;
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
        this.unfold(place);
  }

  /** The graph's edges as links between the ends of the tree, those to leaves left out: badges show them.
   * @param {number[][]} edges */
  connect(edges) {
    this.edges = edges;
    const [sources, targets] = edges,
      leafSide = this.leafSide(),
      links = new Map();
    sources.forEach((source, at) => {
      const target = targets[at],
        [from, to] = [this.partOf[target], this.partOf[source]];
      if (from < 0 || to < 0 || from === to || (leafSide[target] && !leafSide[source])) return;
      if (!links.has(`${from} ${to}`)) links.set(`${from} ${to}`, [from, to, source, target]);
    });
    this.links = [...links.values()];
  }

  /** Whether a node is a leaf, or a view of nothing but leaves that was folded into its user (folding.py). */
  leafSide() {
    const [sources, targets] = this.edges,
      side = new Uint8Array(this.partOf.length),
      leaf = this.text.indexOf("accumulate");
    const others = new Map();
    sources.forEach((source, at) => others.set(source, [...(others.get(source) ?? []), targets[at]]));
    for (let node = 0; node < side.length; node += 1) {
      const part = this.parts[this.partOf[node]],
        hangs = part && part.nodes[0] !== node && (others.get(node) ?? []).length > 0;
      side[node] = Number(
        this.columns.kind[node] === leaf || (hangs && others.get(node).every((/** @type {number} */ one) => side[one])),
      );
    }
    return side;
  }
}

/** Rows of numbers, each written as the step from the one before it (columns.py). @param {number[][]} [rows] @returns {number[][]} */
function steps(rows = []) {
  let last = 0;
  return rows.map((row) => row.map((step) => (last += step)));
}
