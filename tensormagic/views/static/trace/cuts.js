// @ts-check
/** Where the gradient's way ended: severed wires, and a line under the box that used the value (drawing.py). */

import { HEAD, BADGE, html, drawerPart, svg } from "./words.js";

/** @typedef {import("./words.js").Box} Box */
/** @typedef {[number|null, number|null, boolean, number|null, string, string]} Cut source, target, severed, location, label, words */
/** @typedef {[string, number[]]} CutRow its words, and which cuts they are */

const CUT_INDENT = 20; // where the words of a cut begin

/** How many ways were severed. @param {any} ends of a graph */
export function cutCount(ends) {
  return ends?.cuts.filter((/** @type {Cut} */ cut) => cut[2]).length ?? 0;
}

/** Everything that is drawn of cuts, for the boxes that are shown now. @param {any} graph @returns {Element[]} */
export function cutMarks(graph) {
  const { ends, boxes, boxOf, severed } = graph;
  if (!ends) return [];
  const marks = [],
    wired = new Set();
  for (const [, , points, cut] of severed) {
    wired.add(cut);
    marks.push(severedMark(points, ends.cuts[cut]));
  }
  ends.cuts.forEach((/** @type {Cut} */ cut, /** @type {number} */ at) => {
    const [source, target, ended] = cut;
    const maker = source === null ? undefined : boxOf.get(source),
      user = target === null ? undefined : boxOf.get(target);
    if (maker === undefined || maker === user || wired.has(at) || (target !== null && !ended)) return;
    marks.push(stubMark(boxes[maker], cut));
  });
  const rowsOf = new Map(ends.rows);
  boxes.forEach((/** @type {Box} */ box, /** @type {number} */ place) => {
    const rows = /** @type {CutRow[]} */ (rowsOf.get(box.part ?? place) ?? []);
    rows.forEach((row, at) => marks.push(rowMark(box, place, rows.length - at, row, ends.cuts)));
  });
  return marks;
}

/** A gap with a stroke on either side of it. @param {number} x @param {number} y */
function breakMark(x, y) {
  return [
    svg("path", { class: "gap", d: `M${x - 2.5} ${y}h5` }),
    svg("path", { class: "strokes", d: `M${x - 4.5} ${y + 4.5}l4-9M${x + 0.5} ${y + 4.5}l4-9` }),
  ];
}

/** @param {number[]} points @param {Cut} cut */
function severedMark(points, cut) {
  const pairs = [];
  for (let at = 0; at < points.length; at += 2) pairs.push([points[at], points[at + 1]]);
  let d = `M${pairs[0].join(" ")}`;
  for (let at = 1; at < pairs.length; at += 1) {
    const [[ax, ay], [bx, by]] = [pairs[at - 1], pairs[at]],
      half = (bx - ax) / 2;
    d += ax === bx || ay === by ? `L${bx} ${by}` : `C${ax + half} ${ay} ${ax + half} ${by} ${bx} ${by}`;
  }
  const [[ax, ay], [bx, by]] = pairs.slice(-2);
  const [x, y] = ay === by ? [bx - Math.min(13, Math.max(bx - ax - 4, 6)), by] : [ax + 0.752 * (bx - ax), ay + 0.896 * (by - ay)];
  return svg("g", { class: "cut" }, svg("title", {}, cut[5]), svg("path", { class: "lead", d }), ...breakMark(x, y));
}

/** A short line out of the box whose value was taken: severed, or with a cap where it was only read. @param {Box} box @param {Cut} cut */
function stubMark(box, cut) {
  const [x, y] = [box.x + box.w, box.y + HEAD - 9],
    severed = cut[2];
  const parts = severed ? [svg("path", { class: "lead", d: `M${x} ${y}h14` }), ...breakMark(x + 8, y)] : [svg("path", { class: "cap", d: `M${x} ${y}h6m0-4v8` })];
  return svg("g", { class: "cut" }, svg("title", {}, cut[5]), ...parts);
}

/** @param {Box} box @param {number} place @param {number} fromBottom @param {CutRow} row @param {Cut[]} cuts */
function rowMark(box, place, fromBottom, [label, made], cuts) {
  const y = box.y + box.h - fromBottom * BADGE;
  return svg(
    "g",
    { class: "cut row", "data-box": place },
    svg("title", {}, made.map((cut) => cuts[cut][5]).join("\n")),
    svg("path", { class: "lead", d: `M${box.x - 4} ${y + 6}h20` }),
    ...breakMark(box.x + 7, y + 6),
    svg("text", { x: box.x + CUT_INDENT, y: y + 10 }, label),
  );
}

/** The cuts at one node, in words. @param {import("./model.js").Model} model @param {number} graph @param {number} node @param {(location:number)=>void} line @returns {Element[]} */
export function cutsOf(model, graph, node, line) {
  const ends = model.graphs[graph].ends;
  const mine = (ends?.cuts ?? []).filter((/** @type {Cut} */ [source, target]) => source === node || target === node);
  if (!mine.length) return [];
  const rows = mine.map((/** @type {Cut} */ [, , , location, label, words]) =>
    html(
      "p",
      {},
      location === null ? "" : html("button", { type: "button", class: "link", click: () => line(location) }, label),
      location === null ? words : words.replace(/^[^:]*/, ""),
    ),
  );
  const found = drawerPart("Cuts ", `where the gradient stops: ${mine.length}`, ...rows);
  found.className = "node-cuts";
  return [found];
}

/** The sign of a cut in the legend. @returns {Element} */
export function cutKey() {
  const mark = svg("svg", { width: 22, height: 12, viewBox: "0 0 22 12" }, svg("path", { class: "lead", d: "M0 6h22" }), ...breakMark(11, 6));
  return html("span", { class: "key cut" }, mark, "cut");
}
