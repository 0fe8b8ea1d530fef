// @ts-check
/** What is drawn of a graph in which boxes are opened: one layout a level, the inner ones first, put into each other. */

import { HEAD, BADGE } from "./constants.js";
import { cutHeight, cutRows, cutWidth } from "./cuts.js";
import { layOut } from "./layout.js";

/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {import("./layout.js").Item} Item */
/** @typedef {{part:number, x:number, y:number, w:number, h:number, label:string, count:number, depth:number}} Frame */

export const FRAME_HEAD = 26; // the bar of an opened box, with its handle
const ABOVE = 22; // what belongs to a box of the first row is written above it
const PAD = 12;
const CLIMB = 5; // how far inside of the frame's right side a line climbs to where it leaves
const WRAP = 890; // where rows of the outermost level end (drawing.py)
const NARROWER = 40; // by which each level inside is less wide
const TALL = 2; // times as high as wide: a level is spread out then, where everything was opened at once
const SPREAD = 2.4; // to so many times as wide as high
const MOST_BADGES = 4;
const MOST_ENDS = 6; // pairs of boxes that one line remembers to be coloured by

/** The picture of a tree: boxes, frames and wires; places in `boxes` are what everything else goes by.
 * @param {Tree} tree */
export function sceneOf(tree) {
  const levels = projected(tree);
  /** @type {Map<number, any>} */ const laid = new Map();
  const inside = [...tree.open].filter((part) => tree.shown(part) === part || isShown(tree, part));
  inside.sort((a, b) => tree.path(b).length - tree.path(a).length);
  for (const part of [...inside, -1]) laid.set(part, laidOut(tree, levels.get(part), part, laid));
  return composed(tree, laid);
}

/** @param {Tree} tree @param {number} part an open one */
function isShown(tree, part) {
  return tree.path(part).every((at) => tree.open.has(at));
}

/** The links of each level: inside an opened part (-1: outside of all) from child to child, or to its "left" or "right".
 * @param {Tree} tree @returns {Map<number, Map<string, {from:number|"left", to:number|"right", ends:[number,number][]}>>} */
function projected(tree) {
  const levels = new Map();
  const paths = new Map();
  const pathOf = (/** @type {number} */ part) => {
    if (!paths.has(part)) {
      const path = tree.path(part),
        closed = path.findIndex((at) => !tree.open.has(at));
      paths.set(part, path.slice(0, closed + 1));
    }
    return paths.get(part);
  };
  const put = (/** @type {number} */ level, /** @type {any} */ from, /** @type {any} */ to, /** @type {any} */ ends) => {
    if (!levels.has(level)) levels.set(level, new Map());
    const links = levels.get(level),
      key = `${from} ${to}`;
    if (!links.has(key)) links.set(key, { from, to, ends: [] });
    if (links.get(key).ends.length < MOST_ENDS) links.get(key).ends.push(ends);
  };
  for (const [tail, head] of tree.links) {
    const [a, b] = [pathOf(tail), pathOf(head)];
    let common = 0;
    while (common < a.length && common < b.length && a[common] === b[common]) common += 1;
    if (common >= a.length || common >= b.length) continue;
    const ends = [a[a.length - 1], b[b.length - 1]];
    put(common ? a[common - 1] : -1, a[common], b[common], ends);
    for (let at = common + 1; at < a.length; at += 1) put(a[at - 1], a[at], "right", ends);
    for (let at = common + 1; at < b.length; at += 1) put(b[at - 1], "left", b[at], ends);
  }
  return levels;
}

/** @param {Tree} tree @param {Map<string, any>|undefined} links @param {number} part @param {Map<number, any>} laid the levels inside */
function laidOut(tree, links, part, laid) {
  const children = part < 0 ? Array.from({ length: tree.roots }, (_one, at) => at) : tree.parts[part].children,
    all = [...(links?.values() ?? [])];
  const [left, right] = [all.some((link) => link.from === "left"), all.some((link) => link.to === "right")];
  /** @type {(number|"left"|"right")[]} */
  const members = [...(left ? [/** @type {const} */ ("left")] : []), ...children];
  if (right) members.push("right");
  const place = new Map(members.map((member, at) => [member, at]));
  const items = members.map((member) => itemOf(tree, member, laid));
  const edges = all.map((link) => /** @type {[number,number]} */ ([place.get(link.from), place.get(link.to)]));
  const depth = part < 0 ? 0 : tree.path(part).length;
  const wrap = Math.max(WRAP - NARROWER * depth, 480);
  let layout = layOut(items, edges, wrap);
  if (tree.spread && layout.height > TALL * layout.width)
    layout = layOut(items, edges, Math.max(wrap, Math.sqrt(layout.width * layout.height * SPREAD)));
  return { ...layout, members, links: all, items, ...touchOf(layout, members, items, tree.spread) };
}

/** Where lines from outside touch the frame, from its top. @param {any} layout @param {any[]} members @param {Item[]} items
 * @param {boolean} level on both sides at one height: frames that stand beside each other would else go down like stairs */
function touchOf(layout, members, items, level) {
  const at = (/** @type {number} */ place) =>
    FRAME_HEAD + ABOVE + layout.places[place][1] + items[place].enter;
  const [left, right] = [Math.max(members.indexOf("left"), 0), members.indexOf("right")];
  return { enter: at(left), leave: at(level || right < 0 ? left : right) };
}

/** @param {Tree} tree @param {number|"left"|"right"} member @param {Map<number, any>} laid @returns {Item} */
function itemOf(tree, member, laid) {
  if (typeof member === "string") return { w: 0, h: 2, enter: 1, leave: 1, reach: 0, side: member };
  const inner = tree.open.has(member) ? laid.get(member) : undefined;
  if (inner) {
    const h = FRAME_HEAD + ABOVE + inner.height + PAD;
    return { w: inner.width + 2 * PAD, h, enter: inner.enter, leave: inner.leave, reach: 0 };
  }
  const part = tree.parts[member];
  const rows = cutRows(tree.ends, part.nodes, part.badges, part.kind);
  return { w: Math.max(part.w, cutWidth(rows)), h: boxHeight(part) + cutHeight(rows, part.badges.length > 0), enter: HEAD / 2, leave: HEAD / 2, reach: HEAD / 2 - 9 };
}

/** How many badges of a box are written out: all that have room; of a box of many steps all or none (drawing.py).
 * @param {import("./tree.js").Part} part */
function writtenOut(part) {
  if (part.badges.length <= MOST_BADGES) return part.badges.length;
  return part.kind === "module" || part.kind === "repeat" ? 0 : MOST_BADGES - 1;
}

/** @param {import("./tree.js").Part} part */
function boxHeight(part) {
  const rows = writtenOut(part) + Number(writtenOut(part) < part.badges.length);
  return HEAD + (rows ? rows * BADGE + 3 : 0);
}

/** @param {Tree} tree @param {Map<number, any>} laid */
function composed(tree, laid) {
  /** @type {any[]} */ const boxes = [];
  /** @type {Frame[]} */ const frames = [];
  /** @type {any[]} */ const wires = [];
  /** @type {Map<number, number>} */ const placeOf = new Map();
  const waiting = [{ level: -1, x: 0, y: 0, depth: 0 }];
  for (let turn = 0; turn < waiting.length; turn += 1) {
    const { level, x, y, depth } = waiting[turn],
      layout = laid.get(level);
    layout.members.forEach((/** @type {number|string} */ member, /** @type {number} */ at) => {
      if (typeof member === "string") return;
      const [left, top] = [x + layout.places[at][0], y + layout.places[at][1]],
        { w, h } = layout.items[at],
        part = tree.parts[member];
      if (tree.open.has(member)) {
        frames.push({ part: member, x: left, y: top, w, h, label: part.label, count: part.children.length, depth });
        waiting.push({ level: member, x: left + PAD, y: top + FRAME_HEAD + ABOVE, depth: depth + 1 });
        return;
      }
      placeOf.set(member, boxes.length);
      const { nodes, label, detail, kind, badges } = part;
      boxes.push({ x: left, y: top, w, h, nodes, label, detail, kind, badges, written: writtenOut(part), part: member });
    });
    layout.links.forEach((/** @type {any} */ link, /** @type {number} */ at) => {
      const points = shifted(layout.routes[at], x, y);
      if (link.from === "left") points.unshift(x - PAD, points[1]);
      if (link.to === "right") {
        const [edge, level] = [x + layout.width + PAD, y - FRAME_HEAD - ABOVE + layout.leave],
          last = points[points.length - 1];
        points.push(...(last === level ? [] : [edge - CLIMB, last, edge - CLIMB, level]), edge, level);
      }
      wires.push({ ends: link.ends, points: reversed(points), plain: [link.from === "left", link.to === "right"] });
    });
  }
  for (const wire of wires) {
    wire.ends = wire.ends.map((/** @type {number[]} */ [tail, head]) => [placeOf.get(head), placeOf.get(tail)]);
    [wire.source, wire.target] = wire.ends[0];
  }
  const { width, height } = laid.get(-1);
  return { boxes, frames, wires, width, height };
}

/** @param {number[]} points @param {number} x @param {number} y @returns {number[]} */
function shifted(points, x, y) {
  return points.map((value, at) => value + (at % 2 ? y : x));
}

/** A gradient flows from right to left: its line starts where the layout's ends. @param {number[]} points @returns {number[]} */
function reversed(points) {
  /** @type {number[]} */
  const found = [];
  for (let at = points.length - 2; at >= 0; at -= 2) found.push(points[at], points[at + 1]);
  return found;
}
