// @ts-check
/** Opening and folding boxes in place: the graph that is shown gets other boxes, everything else stays as it is. */

import { Tree } from "./tree.js";
import { sceneOf } from "./scene.js";

/** @typedef {import("./constants.js").Box} Box */

const MOST_ALL = 4000; // boxes up to which everything may be opened at once

/** The tree of the graph that is shown, and what of it is open. */
export class Folds {
  /** @type {Tree|null} */ tree = null;
  /** @type {any} */ graph = null;

  /** @param {any} graph a decoded graph @param {any} raw the same in the document @param {string[]} text its strings @param {Set<string>} [open] keys of the parts to open @param {boolean} [spread] whether all were opened at once */
  constructor(graph, raw, text, open = new Set(), spread = false) {
    this.graph = graph;
    this.raw = raw;
    this.text = text;
    this.drawn = { boxes: graph.boxes, wires: graph.wires, size: graph.size, severed: graph.severed };
    if (!open.size) return;
    this.grown().adopt(open);
    this.grown().spread = spread;
    if (this.grown().open.size) this.redraw();
  }

  /** The tree: made when it is asked for, for most graphs are looked at folded. @returns {Tree} */
  grown() {
    this.tree ??= new Tree(this.raw, this.graph.edges, this.text, this.drawn.boxes);
    return this.tree;
  }

  /** The part that a box stands for. @param {number} box */
  part(box) {
    return this.graph.boxes[box]?.part ?? box;
  }

  /** @param {number} box */
  opens(box) {
    return this.tree ? this.tree.opens(this.part(box)) : (this.raw.parts?.level?.[box] ?? -1) >= 0;
  }

  /** What is open, by what stays the same from one document to the next. @returns {Set<string>} */
  openKeys() {
    const { tree } = this;
    return new Set(tree ? [...tree.open].map((part) => tree.key(part)) : []);
  }

  anyOpen() {
    return (this.tree?.open.size ?? 0) > 0;
  }

  /** @param {number} part */
  open(part) {
    this.grown().open.add(part);
    this.redraw();
  }

  /** @param {number} part */
  fold(part) {
    this.grown().fold(part);
    this.redraw();
  }

  foldAll() {
    this.grown().open.clear();
    this.grown().spread = false;
    this.redraw();
  }

  /** Open whatever hides a node. @param {number} node @returns {boolean} whether anything had to be opened */
  reveal(node) {
    const tree = this.grown(),
      home = tree.home(node);
    if (home < 0) return false;
    const hidden = tree.path(home).slice(0, -1).filter((part) => !tree.open.has(part));
    hidden.forEach((part) => tree.open.add(part));
    if (hidden.length) this.redraw();
    return hidden.length > 0;
  }

  /** How many folds hide any of these nodes. @param {Set<number>} nodes */
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
      const { boxes, frames, wires, severed, width, height } = sceneOf(tree);
      Object.assign(this.graph, { boxes, opened: frames, wires, severed, size: { width, height } });
    }
    this.graph.boxOf = placesOf(this.graph.boxes);
  }
}

/** A chain of views is opened by itself alone. @param {import("./tree.js").Part} part */
const isOpenedWithAll = (part) => part.children.length > 0 && part.kind !== "views";

/** The innermost box of every node, and of every leaf the first that shows it. @param {Box[]} boxes @returns {Map<number, number>} */
export function placesOf(boxes) {
  const places = new Map();
  boxes.forEach((box, place) => {
    for (const node of box.nodes) places.set(node, place);
    for (const [node] of box.badges) if (!places.has(node) || places.get(node) === box.inside) places.set(node, place);
  });
  return places;
}
