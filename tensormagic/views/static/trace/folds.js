/** Opening and folding boxes in place: the tree of what lies inside them (drawing.py), and which of it is open. */

import { clamp } from "../dom.js";

const MOST_ALL = 4000; // boxes up to which everything may be opened at once

/** The tree of the graph that is shown, and what of it is open. */
export class Folds {
  tree = null;
  graph = null;

  /** graph: a decoded graph; raw: the same in the document; text: its strings; open: keys of the parts to open; spread: whether all were opened at once */
  constructor(graph, raw, text, open = new Set(), spread = false) {
    this.graph = graph;
    this.raw = raw;
    this.text = text;
    this.drawn = { boxes: graph.boxes, wires: graph.wires, size: graph.size, cutWires: graph.cutWires };
    if (!open.size) return;
    this.grown().adopt(open);
    this.grown().spread = spread;
    if (this.grown().open.size) this.redraw();
  }

  /** The tree: made when it is asked for, for most graphs are looked at folded. */
  grown() {
    this.tree ??= new Tree(this.raw, this.graph.edges, this.text, this.drawn.boxes);
    return this.tree;
  }

  /** The part that a box stands for. */
  part(box) {
    return this.graph.boxes[box]?.part ?? box;
  }

  opens(box) {
    return this.tree ? this.tree.opens(this.part(box)) : (this.raw.parts?.level?.[box] ?? -1) >= 0;
  }

  /** What is open, by what stays the same from one document to the next. */
  openKeys() {
    const { tree } = this;
    return new Set(tree ? [...tree.open].map((part) => tree.key(part)) : []);
  }

  anyOpen() {
    return (this.tree?.open.size ?? 0) > 0;
  }

  open(part) {
    this.grown().open.add(part);
    this.redraw();
  }

  fold(part) {
    this.grown().fold(part);
    this.redraw();
  }

  foldAll() {
    this.grown().open.clear();
    this.grown().spread = false;
    this.redraw();
  }

  /** Open whatever hides a node. Returns whether anything had to be opened. */
  reveal(node) {
    const tree = this.grown(),
      home = tree.home(node);
    if (home < 0) return false;
    const hidden = tree.path(home).slice(0, -1).filter((part) => !tree.open.has(part));
    hidden.forEach((part) => tree.open.add(part));
    if (hidden.length) this.redraw();
    return hidden.length > 0;
  }

  /** How many folds hide any of these nodes. */
  hiding(nodes) {
    const tree = this.grown(),
      closed = new Set();
    for (const node of nodes)
      for (const part of tree.path(tree.home(node)).slice(0, -1)) if (!tree.open.has(part)) closed.add(part);
    return closed.size;
  }

  /** Whether there is anything left to open, and not too much of it to be opened at once. */
  mayOpenAll() {
    const parents = this.raw?.parts?.parent ?? [];
    if (!parents.length || parents.length > MOST_ALL) return false;
    return this.grown().parts.some((part, place) => isOpenedWithAll(part) && !this.grown().open.has(place));
  }

  openAll() {
    const tree = this.grown();
    tree.parts.forEach((part, place) => isOpenedWithAll(part) && tree.open.add(place));
    tree.spread = true;
    this.redraw();
  }

  /** Put the boxes of the tree, as far as it is open now, into the graph that is shown. */
  redraw() {
    const tree = this.grown();
    if (!tree.open.size) Object.assign(this.graph, this.drawn, { opened: [] });
    else {
      const { boxes, frames, wires, cutWires, width, height } = sceneOf(tree);
      Object.assign(this.graph, { boxes, opened: frames, wires, cutWires, size: { width, height } });
    }
    this.graph.boxOf = placesOf(this.graph.boxes);
  }
}

/** A chain of views is opened by itself alone. */
const isOpenedWithAll = (part) => part.children.length > 0 && part.kind !== "views";

/** The innermost box of every node, and of every leaf the first that shows it. */
export function placesOf(boxes) {
  const places = new Map();
  boxes.forEach((box, place) => {
    for (const node of box.nodes) places.set(node, place);
    for (const [node] of box.badges) if (!places.has(node) || places.get(node) === box.inside) places.set(node, place);
  });
  return places;
}

/** @typedef {{parent:number, children:number[], label:string, detail:string, kind:string, module:string, w:number, h:number, nodes:number[], badges:[number,string][], written:number}} Part */
/** @typedef {{width:number, height:number, margin:number, ends:number[], places:number[], wires:number[][], children:number[]}} Level wires: source, target (-1: the border), points */

/** The parts of one graph: the drawn boxes first, then what lies inside them, down to single ops. */
export class Tree {
  parts = [];
  /** the parts that are opened */ open = new Set();
  spread = false; // whether the picture may be wider than a screen: to see all of it at once

  /** raw: the graph in the document; edges: decoded; text: its table of strings */
  constructor({ nodes, parts = {}, drawing, ends }, edges, text, boxes) {
    this.edges = edges;
    this.drawing = drawing;
    this.cutWires = ends?.wires ?? [];
    this.level = parts.level ?? [];
    this.levels = parts.levels ?? [];
    this.roots = boxes.length;
    this.parts = boxes.map((box) => ({ ...box, parent: -1, children: [], module: text[nodes.module[box.nodes[0]]] ?? "" }));
    const [inner, leaves] = [steps(parts.nodes), steps(parts.leaves)];
    (parts.parent ?? []).forEach((parent, at) => {
      const [label, detail, kind, module] = ["label", "detail", "kind", "module"].map((name) => text[parts[name][at]]);
      const badges = leaves[at].map((leaf, row) => [leaf, text[parts.names[at][row]]]);
      const [w, h, written] = [parts.width[at], parts.height[at], parts.written[at]];
      this.parts[parent].children.push(this.parts.length);
      this.parts.push({ parent, children: [], label, detail, kind, module, w, h, nodes: inner[at], badges, written });
    });
    this.fill();
    /** the innermost part of every node, -1 for leaves */
    this.partOf = new Int32Array(nodes.op.length).fill(-1);
    /** the innermost part that a leaf is a badge of first */
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

  /** The layout of what lies inside a part; of all that is drawn: -1. */
  inside(place) {
    const { boxes } = this.drawing;
    if (place < 0) return { ...this.drawing, places: boxes.flatMap(([x, y]) => [x, y]), children: [...boxes.keys()] };
    const [width, height, margin, ends, places, wires] = this.levels[this.level[place]];
    return { width, height, margin, ends, places, wires, children: this.parts[place].children };
  }

  /** Whether a box can be opened. */
  opens(place) {
    return this.parts[place]?.children.length > 0;
  }

  /** Close a part, and whatever is open inside it. */
  fold(place) {
    for (const open of [...this.open]) if (this.path(open).includes(place)) this.open.delete(open);
  }

  /** The part and what it lies in, outermost first. */
  path(place) {
    const found = [];
    for (let at = place; at >= 0; at = this.parts[at].parent) found.unshift(at);
    return found;
  }

  /** Of the path to a part what is shown now: up to the outermost closed part. */
  shown(place) {
    const path = this.path(place),
      closed = path.findIndex((at) => !this.open.has(at));
    return closed < 0 ? path : path.slice(0, closed + 1);
  }

  /** The innermost part of a node or a leaf; -1 where it has none. */
  home(node) {
    return this.partOf[node] >= 0 ? this.partOf[node] : (this.badgeOf.get(node) ?? -1);
  }

  /** What stays the same of a part from one document to the next. */
  key(place) {
    const part = this.parts[place];
    return `${part.kind} ${part.module} ${part.nodes[part.nodes.length - 1]} ${part.nodes.length}`;
  }

  /** Open what was open in another tree, where it is there again. wanted: keys. */
  adopt(wanted) {
    for (let place = 0; wanted.size && place < this.parts.length; place += 1)
      if (wanted.has(this.key(place)) && this.opens(place) && this.path(place).slice(0, -1).every((at) => this.open.has(at)))
        this.open.add(place);
  }
}

/** Rows of numbers, each written as the step from the one before it (columns.py). */
function steps(rows = []) {
  let last = 0;
  return rows.map((row) => row.map((step) => (last += step)));
}

// The picture of a graph in which boxes are opened: what lies inside one stands in a frame below the row of the box.
//
// Every level was laid out by itself (drawing.py). Here they are put together: a frame makes room for itself, so that
// what is below its row goes down by its height, with the lines that lead there; nothing else moves.

/** @typedef {{part:number, x:number, y:number, w:number, h:number, label:string, count:number, depth:number, neck:[number, number, number]}} Frame neck: from its box down to the frame, left and top of the frame: x, y, width */
/** @typedef {{part:number, size:Size, x:number, y:number, w:number, h:number}} Body x, and y below the end of its row */
/** @typedef {{level:Level, width:number, height:number, rows:{grown:number, bodies:Body[]}[]}} Size */

export const FRAME_HEAD = 26; // the bar of an opened box, with its handle
const ABOVE = 22; // what belongs to a box of the first row is written above it
const PAD = 12;
const APART = 10; // between a row, a frame, and the next
const SPREAD = 2.4; // so many times as wide as high may all frames of a level be, where everything was opened at once
const NECK = 26;
const MOST_ENDS = 6; // pairs of boxes that one line remembers to be coloured by

/** Boxes, frames and wires as far as a tree is open; places in `boxes` are what everything else goes by. */
export function sceneOf(tree) {
  const size = measured(tree, -1),
    boxes = [],
    frames = [],
    wires = [];
  const waiting = [{ size, x: 0, y: 0, depth: 0, inside: -1 }];
  for (const { size, x, y, depth, inside } of waiting) {
    const { level, width, rows } = size,
      first = boxes.length,
      down = lowered(size);
    level.children.forEach((part, at) => {
      const [left, top] = level.places.slice(2 * at, 2 * at + 2),
        { w, h, nodes, label, detail, kind, badges, written } = tree.parts[part];
      boxes.push({ x: x + left, y: y + top + down(top), w, h, nodes, label, detail, kind, badges, written, part, inside, lowered: y + down(top), open: tree.open.has(part) });
    });
    for (const [source, target, ...points] of level.wires) {
      const moved = points.map((value, at) => (at % 2 ? y + value + down(value) : x + value));
      if (source < 0) moved.unshift(x + width + PAD, moved[1]);
      if (target < 0) moved.push(x - PAD, moved[moved.length - 1]);
      const parts = [source, target].map((child) => (child < 0 ? `in ${inside}` : level.children[child])).join(" ");
      wires.push({ source: source < 0 ? -1 : first + source, target: target < 0 ? -1 : first + target, points: moved, plain: target < 0, parts });
    }
    rows.forEach(({ bodies }, row) => {
      for (const { part, size, x: left, y: below, w, h } of bodies.reverse()) {
        const box = first + level.children.indexOf(part),
          { x: boxX, y: boxY, w: boxW, h: boxH, label } = boxes[box],
          top = y + level.ends[row] + down(level.ends[row]) + below,
          wide = Math.min(NECK, boxW - 10, w - 16),
          middle = clamp(boxX + boxW / 2, x + left + 8 + wide / 2, x + left + w - 8 - wide / 2);
        frames.push({ part, x: x + left, y: top, w, h, label, count: tree.parts[part].children.length, depth, neck: [middle - wide / 2 - x - left, boxY + boxH - top, wide] });
        waiting.push({ size, x: x + left + PAD, y: top + FRAME_HEAD + ABOVE, depth: depth + 1, inside: box });
      }
    });
  }
  carry(tree, boxes, wires);
  const down = lowered(size),
    cutWires = tree.cutWires.map(([source, target, points, cut]) => [source, target, points.map((value, at) => (at % 2 ? value + down(value) : value)), cut]);
  return { boxes, frames, wires, cutWires, width: size.width, height: size.height };
}

/** How large a level is with what is open inside of it, and where that stands. part: -1 for all. */
function measured(tree, part) {
  const level = tree.inside(part),
    rows = level.ends.map(() => ({ grown: 0, bodies: [] }));
  level.children.forEach((child, at) => {
    if (!tree.open.has(child)) return;
    const size = measured(tree, child),
      [x, y] = level.places.slice(2 * at, 2 * at + 2),
      w = size.width + 2 * PAD,
      row = level.ends.findIndex((end) => y < end);
    rows[row].bodies.push({ part: child, size, x: x + (tree.parts[child].w - w) / 2, y: 0, w, h: FRAME_HEAD + ABOVE + size.height + PAD });
  });
  let { width, height } = level;
  const bodies = rows.flatMap((row) => row.bodies),
    area = bodies.reduce((sum, { w, h }) => sum + (w + APART) * (h + APART), 0),
    least = Math.max(width - level.margin, tree.spread ? Math.sqrt(area * SPREAD) : 0),
    most = bodies.reduce((wide, { w }) => Math.max(wide, w), least);
  for (const row of rows) {
    width = Math.max(width, put(row, level.margin, most));
    height += row.grown;
  }
  return { level, width, height, rows };
}

/** Put the frames of a row below it, each under its box, beside each other where they have room. most: how wide they may be. Returns how wide they are. */
function put(row, margin, most) {
  const { bodies } = row;
  let [right, y, tall] = [margin, APART, 0];
  bodies.sort((a, b) => a.x + a.w / 2 - b.x - b.w / 2);
  for (const body of bodies) {
    const [least, last] = [right > margin ? right + APART : margin, margin + most - body.w];
    if (least > last) [right, y, tall] = [margin, y + tall + APART, 0];
    body.x = Math.max(Math.min(body.x, last), right > margin ? right + APART : margin);
    body.y = y;
    [right, tall] = [body.x + body.w, Math.max(tall, body.h)];
  }
  row.grown = bodies.length ? y + tall + APART : 0;
  return bodies.reduce((wide, { x, w }) => Math.max(wide, x + w), 0);
}

/** How far what stands at a height goes down, for the frames above it. */
function lowered({ level, rows }) {
  return (y) => rows.reduce((sum, { grown }, row) => sum + (level.ends[row] < y ? grown : 0), 0);
}

/** Say of every line which edges go along it, and between which innermost boxes. */
function carry(tree, boxes, wires) {
  const lines = new Map(wires.map((wire) => [wire.parts, Object.assign(wire, { edges: [], ends: [] })])),
    boxOf = new Map(boxes.map((box, at) => [box.part, at])),
    paths = new Map();
  const pathOf = (node) => {
    const end = tree.partOf[node]; // badges show the edges to leaves
    if (!paths.has(end)) paths.set(end, tree.shown(end));
    return paths.get(end);
  };
  const [sources, targets] = tree.edges;
  sources.forEach((source, edge) => {
    const [from, to] = [pathOf(source), pathOf(targets[edge])],
      ends = [boxOf.get(from[from.length - 1]), boxOf.get(to[to.length - 1])];
    let at = 0;
    while (at < from.length && at < to.length && from[at] === to[at]) at += 1;
    const on = (parts) => {
      const line = lines.get(parts);
      line?.edges.push(edge);
      if (line?.ends.length < MOST_ENDS) line.ends.push(ends);
    };
    if (at >= from.length || at >= to.length) return;
    on(`${from[at]} ${to[at]}`);
    for (let deep = at + 1; deep < from.length; deep += 1) on(`${from[deep]} in ${boxOf.get(from[deep - 1])}`);
    for (let deep = at + 1; deep < to.length; deep += 1) on(`in ${boxOf.get(to[deep - 1])} ${to[deep]}`);
  });
}
