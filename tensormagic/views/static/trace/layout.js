// @ts-check
/**
 * The layered layout of one level of an opened graph: the steps of layout.py, for what a user opens on the page.
 *
 * Items come in forward order, so that an edge from a smaller to a larger number points right. Columns by longest path,
 * few crossings by barycentres, heights by isotonic regression, and rows like lines of text. Pure: no element, no state.
 */

import { isotonic, pageOf } from "./rows.js";

/**
 * @typedef {object} Item
 * @property {number} w
 * @property {number} h
 * @property {number} enter from its top: where lines come in from the left
 * @property {number} leave from its top: where lines go out to the right
 * @property {number} reach how far above and below these points a line may touch it
 * @property {"left"|"right"|""} [side] a point on the frame round this level: before or behind everything
 */
/** @typedef {{members:number[][], following:number[][], preceding:number[][], columnOf:number[]}} Layers */
/** @typedef {{width:number, height:number, places:[number,number][], routes:number[][]}} Layout */

const MOST_BENDS = 20000;
const ORDER_SWEEPS = 12;
const HEIGHT_SWEEPS = 10;
const STRENGTH = [4, 1, 8]; // how strongly an edge is kept level: between two items, an item and a bend, two bends
const ADRIFT = 0.05;
const ROW_GAP = 18;

/** @param {Item[]} items @param {[number,number][]} edges @param {number} wrap where to break into a new row @returns {Layout} */
export function layOut(items, edges, wrap) {
  if (!items.length) return { width: 0, height: 0, places: [], routes: [] };
  const forward = edges.map(([a, b]) => /** @type {[number,number]} */ (a < b ? [a, b] : [b, a]));
  const ranks = ranked(items, forward);
  const { layers, paths } = bent(ranks, forward, items.length);
  ordered(layers);
  const all = layers.columnOf.map((_column, at) => items[at] ?? BEND);
  const heights = settled(layers, all, items.length);
  return pageOf(layers, all, heights, paths, items.length, wrap);
}

/** @type {Item} */
const BEND = { w: 0, h: 2, enter: 1, leave: 1, reach: 0 };

/** The column of every item: longest path, then whatever hangs on nothing is pulled next to what it feeds.
 * @param {Item[]} items @param {[number,number][]} edges @returns {number[]} */
export function ranked(items, edges) {
  const ranks = items.map(() => 0),
    { following, preceding } = neighbours(items.length, edges);
  items.forEach((item, at) => {
    ranks[at] = preceding[at].reduce((most, tail) => Math.max(most, ranks[tail] + 1), 0);
    if (item.side === "" || item.side === undefined) ranks[at] = Math.max(ranks[at], items[0].side === "left" ? 1 : 0);
  });
  const free = items.map(() => false);
  items.forEach((item, at) => {
    free[at] = !item.side && preceding[at].every((tail) => free[tail] && following[tail].length === 1);
  });
  for (let at = items.length - 1; at >= 0; at -= 1)
    if (free[at] && following[at].length)
      ranks[at] = following[at].reduce((least, head) => Math.min(least, ranks[head]), Infinity) - 1;
  const last = items.length - 1;
  if (items[last].side === "right") ranks[last] = ranks.reduce((a, b) => Math.max(a, b), 0) + (last ? 1 : 0);
  const used = [...new Set(ranks)].sort((a, b) => a - b);
  const column = new Map(used.map((rank, at) => [rank, at]));
  return ranks.map((rank) => /** @type {number} */ (column.get(rank)));
}

/** @param {number} count @param {Iterable<[number,number]>} edges */
function neighbours(count, edges) {
  /** @type {number[][]} */ const following = Array.from({ length: count }, () => []);
  /** @type {number[][]} */ const preceding = Array.from({ length: count }, () => []);
  for (const [tail, head] of edges) {
    if (tail === head) continue;
    following[tail].push(head);
    preceding[head].push(tail);
  }
  return { following, preceding };
}

/** A bend in every column that an edge crosses; edges with a common end share them up to where they part.
 * @param {number[]} ranks @param {[number,number][]} edges @param {number} count */
export function bent(ranks, edges, count) {
  const columnOf = [...ranks],
    leaving = new Map(),
    arriving = new Map();
  for (const [tail, head] of edges) {
    leaving.set(tail, (leaving.get(tail) ?? 0) + 1);
    arriving.set(head, (arriving.get(head) ?? 0) + 1);
  }
  const bends = new Map(),
    links = new Map();
  const paths = edges.map(([tail, head]) => {
    if (ranks[head] <= ranks[tail] || columnOf.length - count + ranks[head] - ranks[tail] > MOST_BENDS)
      return [tail, head];
    const shared = leaving.get(tail) >= arriving.get(head) ? tail : head,
      path = [tail];
    for (let column = ranks[tail] + 1; column < ranks[head]; column += 1) {
      const key = `${shared} ${column}`;
      if (!bends.has(key)) bends.set(key, columnOf.push(column) - 1);
      path.push(bends.get(key));
    }
    path.push(head);
    for (let at = 1; at < path.length; at += 1) links.set(`${path[at - 1]} ${path[at]}`, [path[at - 1], path[at]]);
    return path;
  });
  /** @type {number[][]} */
  const members = Array.from({ length: columnOf.reduce((a, b) => Math.max(a, b), 0) + 1 }, () => []);
  columnOf.forEach((column, item) => members[column].push(item));
  return { layers: { members, columnOf, ...neighbours(columnOf.length, links.values()) }, paths };
}

/** Order every column so that few lines cross: barycentre sweeps to and fro, the best order seen is kept.
 * @param {Layers} layers @returns {number} the crossings that are left */
export function ordered(layers) {
  let best = layers.members.map((column) => [...column]),
    least = crossings(layers);
  for (const start of [depthFirst(layers), best]) {
    layers.members = start.map((column) => [...column]);
    for (let sweep = 0; sweep < ORDER_SWEEPS && least; sweep += 1) {
      if (sweep || start !== best) orderOnce(layers, sweep);
      for (let at = 0; at < layers.members.length; at += 1) swapped(layers, at);
      const now = crossings(layers);
      if (now < least) [best, least] = [layers.members.map((column) => [...column]), now];
    }
  }
  layers.members = best;
  return least;
}

/** @param {Layers} layers @returns {number[][]} */
function depthFirst({ members, following }) {
  const place = new Map(),
    stack = members.flat().reverse();
  while (stack.length) {
    const item = /** @type {number} */ (stack.pop());
    if (place.has(item)) continue;
    place.set(item, place.size);
    stack.push(...[...following[item]].reverse().filter((other) => !place.has(other)));
  }
  return members.map((column) => [...column].sort((a, b) => place.get(a) - place.get(b)));
}

/** @param {Layers} layers @param {number} sweep */
function orderOnce({ members, following, preceding }, sweep) {
  const right = sweep % 2 === 0,
    near = right ? preceding : following;
  for (let step = 1; step < members.length; step += 1) {
    const at = right ? step : members.length - 1 - step,
      place = placesIn(members[right ? at - 1 : at + 1]);
    const column = sweep % 4 >= 2 ? [...members[at]].reverse() : members[at];
    const mean = (/** @type {number} */ item) =>
      near[item].reduce((sum, other) => sum + (place.get(other) ?? 0), 0) / near[item].length;
    const moved = column
      .filter((item) => near[item].length)
      .map((item) => /** @type {[number,number]} */ ([mean(item), item]))
      .sort((a, b) => a[0] - b[0]);
    members[at] = column.map((item) =>
      near[item].length ? /** @type {[number,number]} */ (moved.shift())[1] : item,
    );
  }
}

/** @param {number[]} column @returns {Map<number,number>} */
function placesIn(column) {
  return new Map(column.map((item, at) => [item, at]));
}

/** Swap neighbours of one column wherever that saves a crossing. @param {Layers} layers @param {number} at */
function swapped({ members, following, preceding }, at) {
  const column = members[at];
  if (column.length > 60) return;
  const sides = [
    [preceding, members[at - 1]],
    [following, members[at + 1]],
  ]
    .filter(([, other]) => other)
    .map(([near, other]) => {
      const place = placesIn(/** @type {number[]} */ (other));
      return (/** @type {number} */ item) =>
        /** @type {number[][]} */ (near)[item].map((one) => /** @type {number} */ (place.get(one)));
    });
  for (let row = 0; row + 1 < column.length; row += 1) {
    let gain = 0;
    for (const side of sides)
      for (const above of side(column[row]))
        for (const below of side(column[row + 1])) gain += Number(above > below) - Number(above < below);
    if (gain > 0) [column[row], column[row + 1]] = [column[row + 1], column[row]];
  }
}

/** How many pairs of lines cross, over all neighbouring columns. @param {Layers} layers @returns {number} */
export function crossings({ members, following }) {
  let total = 0;
  for (let at = 0; at + 1 < members.length; at += 1) {
    const place = placesIn(members[at + 1]),
      tree = new Int32Array(members[at + 1].length + 1);
    let seen = 0;
    for (const item of members[at])
      for (const head of following[item].map((one) => place.get(one) ?? 0).sort((a, b) => a - b)) {
        let below = 0;
        for (let slot = head + 1; slot > 0; slot -= slot & -slot) below += tree[slot];
        total += seen - below;
        seen += 1;
        for (let slot = head + 1; slot < tree.length; slot += slot & -slot) tree[slot] += 1;
      }
  }
  return total;
}

/** The height at which lines come into every item, as near to its neighbours as the order in its column allows.
 * @param {Layers} layers @param {Item[]} items bends included @param {number} real how many of them are no bends @returns {number[]} */
function settled({ members, following, preceding }, items, real) {
  const heights = items.map(() => 0);
  const steps = members.map((column) => {
    const found = [0];
    for (let at = 1; at < column.length; at += 1) {
      const [above, below] = [items[column[at - 1]], items[column[at]]],
        gap = column[at - 1] < real || column[at] < real ? ROW_GAP : ROW_GAP / 2;
      found.push(found[at - 1] + above.h - above.enter + below.enter + gap);
    }
    return found;
  });
  members.forEach((column, at) =>
    column.forEach((item, row) => {
      heights[item] = steps[at][row] - steps[at][column.length - 1] / 2;
    }),
  );
  const pull = (/** @type {number} */ item, /** @type {number} */ sides) => {
    let total = heights[item] * ADRIFT,
      weight = ADRIFT;
    const add = (/** @type {number} */ other, /** @type {number} */ wanted) => {
      const strength = STRENGTH[Number(item >= real) + Number(other >= real)];
      total += wanted * strength;
      weight += strength;
    };
    const bias = (/** @type {number} */ one) => items[one].leave - items[one].enter;
    if (sides & 1) for (const other of preceding[item]) add(other, heights[other] + bias(other));
    if (sides & 2) for (const other of following[item]) add(other, heights[other] - bias(item));
    return [total / weight, weight];
  };
  const settle = (/** @type {number} */ at, /** @type {number} */ sides) => {
    const pulls = members[at].map((item) => pull(item, sides));
    const starts = isotonic(
      pulls.map(([target], row) => target - steps[at][row]),
      pulls.map(([, weight]) => weight),
    );
    members[at].forEach((item, row) => {
      heights[item] = starts[row] + steps[at][row];
    });
  };
  for (let sweep = 0; sweep < HEIGHT_SWEEPS + 2; sweep += 1)
    for (let step = 0; step < members.length; step += 1)
      if (sweep >= HEIGHT_SWEEPS) settle(step, 3);
      else settle(sweep % 2 ? members.length - 1 - step : step, sweep % 2 ? 2 : 1);
  return heights.map(Math.round);
}
