// @ts-check
/** The picture of a graph in which boxes are opened: what lies inside one stands in a frame below the row of the box.
 *
 * Every level was laid out by itself (inside.py). Here they are put together: a frame makes room for itself, so that
 * what is below its row goes down by its height, with the lines that lead there; nothing else moves.
 */

/** @typedef {import("./folds.js").Tree} Tree */
/** @typedef {{part:number, x:number, y:number, w:number, h:number, label:string, count:number, depth:number, neck:[number, number, number]}} Frame neck: from its box down to the frame, left and top of the frame: x, y, width */
/** @typedef {{part:number, size:Size, x:number, y:number, w:number, h:number}} Body x, and y below the end of its row */
/** @typedef {{level:import("./folds.js").Level, width:number, height:number, rows:{grown:number, bodies:Body[]}[]}} Size */

export const FRAME_HEAD = 26; // the bar of an opened box, with its handle
const ABOVE = 22; // what belongs to a box of the first row is written above it
const PAD = 12;
const APART = 10; // between a row, a frame, and the next
const SPREAD = 2.4; // so many times as wide as high may all frames of a level be, where everything was opened at once
const NECK = 26;
const MOST_ENDS = 6; // pairs of boxes that one line remembers to be coloured by

/** Boxes, frames and wires as far as a tree is open; places in `boxes` are what everything else goes by. @param {Tree} tree */
export function sceneOf(tree) {
  const size = measured(tree, -1),
    boxes = /** @type {any[]} */ ([]),
    frames = /** @type {Frame[]} */ ([]),
    wires = /** @type {any[]} */ ([]);
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
          middle = Math.min(Math.max(boxX + boxW / 2, x + left + 8 + wide / 2), x + left + w - 8 - wide / 2);
        frames.push({ part, x: x + left, y: top, w, h, label, count: tree.parts[part].children.length, depth, neck: [middle - wide / 2 - x - left, boxY + boxH - top, wide] });
        waiting.push({ size, x: x + left + PAD, y: top + FRAME_HEAD + ABOVE, depth: depth + 1, inside: box });
      }
    });
  }
  carry(tree, boxes, wires);
  const down = lowered(size),
    severed = tree.severed.map((/** @type {any[]} */ [source, target, points, cut]) => [source, target, points.map((/** @type {number} */ value, /** @type {number} */ at) => (at % 2 ? value + down(value) : value)), cut]);
  return { boxes, frames, wires, severed, width: size.width, height: size.height };
}

/** How large a level is with what is open inside of it, and where that stands. @param {Tree} tree @param {number} part -1 for all @returns {Size} */
function measured(tree, part) {
  const level = tree.inside(part),
    rows = level.ends.map(() => ({ grown: 0, bodies: /** @type {Body[]} */ ([]) }));
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

/** Put the frames of a row below it, each under its box, beside each other where they have room. @param {Size["rows"][0]} row @param {number} margin @param {number} most how wide they may be @returns {number} how wide they are */
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

/** How far what stands at a height goes down, for the frames above it. @param {Size} size @returns {(y:number)=>number} */
function lowered({ level, rows }) {
  return (y) => rows.reduce((sum, { grown }, row) => sum + (level.ends[row] < y ? grown : 0), 0);
}

/** Say of every line which edges go along it, and between which innermost boxes. @param {Tree} tree @param {any[]} boxes @param {any[]} wires */
function carry(tree, boxes, wires) {
  const lines = new Map(wires.map((wire) => [wire.parts, Object.assign(wire, { edges: [], ends: [] })])),
    boxOf = new Map(boxes.map((box, at) => [box.part, at])),
    paths = new Map();
  const pathOf = (/** @type {number} */ node) => {
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
    const on = (/** @type {string} */ parts) => {
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
