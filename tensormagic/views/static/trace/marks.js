/** The elements of the picture: boxes with their badges, opened boxes, wires, and what is written on them. */

import { clamp, filled, svg, html, worded } from "../dom.js";
import { HEAD, BADGE, drawerPart, pointsOf, say } from "./words.js";

export function hatchPattern(id) {
  return svg(
    "pattern",
    { id, width: 4.2, height: 4.2, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 4.2, height: 4.2, class: "hatch-ground" }),
    svg("rect", { width: 1.7, height: 4.2, class: "hatch-line" }),
  );
}

/** opens: whether there is something inside that can be shown */
export function boxMark(box, place, opens, words) {
  const r = 5,
    foot = 5,
    head = Math.min(box.h, HEAD);
  const value = svg("text", { class: "value", x: box.w / 2, y: opens ? -9 : -7 });
  const detail = box.detail ? svg("text", { class: "detail", x: box.w / 2, y: 29 }, box.detail) : null;
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
      "aria-expanded": opens ? String(box.open ?? false) : null,
    },
    opens && !box.open ? svg("path", { class: "stack", d: `M7 -5h${box.w - 14}M4 -2.5h${box.w - 8}` }) : null,
    svg("rect", { class: "plate", width: box.w, height: head, rx: r }),
    svg("path", {
      class: "foot",
      d: `M0 ${head - foot}h${box.w}a${r} ${r} 0 0 1-${r} ${foot}h${2 * r - box.w}a${r} ${r} 0 0 1-${r}-${foot}z`,
    }),
    svg("rect", { class: "rim", width: box.w, height: head, rx: r }),
    svg("text", { class: "name", x: box.w / 2, y: box.detail ? 16 : head / 2 + 2 }, box.label),
    detail,
    ...badges.map((badge) => badge.element),
    rest,
    value,
  );
  const base = `box${box.open ? " unfolded" : opens ? " folds" : ""}`;
  return { box, place, element, badges, hidden, rest, words, base, state: "", flags: "", value: "", valueMark: value, detail };
}

function badgeMark(node, label, row, width) {
  return svg(
    "g",
    { class: "badge wait", "data-node": node, transform: `translate(0 ${HEAD + 3 + BADGE * row})` },
    svg("rect", { class: "tag", width, height: 13, rx: 3 }),
    svg("rect", { class: "dot", x: 4, y: 3, width: 7, height: 7 }),
    svg("text", { x: 15, y: 9.8 }, label),
  );
}

/** flags: classes beside that of the state; on: the leaves that do not step back; null for all */
export function paintBox(mark, state, flags, lens, far, on) {
  if (state !== mark.state || flags !== mark.flags) mark.element.setAttribute("class", `${mark.base} ${state}${flags}`);
  [mark.state, mark.flags] = [state, flags];
  for (const badge of mark.badges) {
    const now = lens.node(badge.node) + (on && !on.has(badge.node) ? " off" : "");
    if (now !== badge.state) badge.element.setAttribute("class", `badge ${now}`);
    badge.state = now;
  }
  if (mark.hidden.length) paintRest(mark, lens);
  if (far) return;
  if (mark.detail) say(mark.detail, lens.detail?.(mark.box) ?? mark.box.detail);
  const value = lens.text(mark.box);
  if (value !== mark.value) mark.valueMark.textContent = mark.value = value;
}

/** The leaves that are not written out: how many, and how many of them are not finite. */
function paintRest(mark, lens) {
  const bad = mark.hidden.filter((node) => lens.node(node) === "bad").length;
  say(mark.rest, worded(mark.box.written ? mark.words.rest : mark.words.leaves, { more: mark.hidden.length, bad }));
  mark.rest.classList.toggle("bad", bad > 0);
}

/** What lies inside an opened box: a frame that hangs on the box, with a bar that folds it again. */
export function frameMark(frame, said) {
  const [neckX, neckY, neckWidth] = frame.neck,
    words = worded(said.inside, frame),
    fold = worded(said.fold, frame),
    wide = clamp(7 * words.length + 30, 60, frame.w);
  return svg(
    "g",
    { class: `frame depth${frame.depth % 2}`, transform: `translate(${frame.x} ${frame.y})`, "data-frame": frame.part },
    svg("path", {
      class: "ground",
      d: `M${neckX} ${neckY}V0H7a7 7 0 0 0-7 7V${frame.h - 7}a7 7 0 0 0 7 7H${frame.w - 7}a7 7 0 0 0 7-7V7a7 7 0 0 0-7-7H${neckX + neckWidth}V${neckY}`,
    }),
    svg(
      "g",
      { class: "handle", role: "button", tabindex: -1, "aria-expanded": "true", "aria-label": fold },
      svg("title", {}, worded(said.fold_key, frame)),
      svg("rect", { class: "grip", x: 4, y: 4, width: wide - 8, height: 18, rx: 4 }),
      svg("path", { class: "chevron", d: "M9.5 11l4 4 4-4" }),
      svg("text", { class: "frame-name", x: 23, y: 17 }, words),
    ),
  );
}

export function wireMark(wire) {
  const points = pointsOf(wire.points),
    [tip, back] = [points[points.length - 1], points[points.length - 2] ?? points[0]];
  const angle = Math.atan2(tip[1] - back[1], tip[0] - back[0]),
    bare = wire.plain; // it ends on the frame round it: the line outside has the head
  const head = svg("path", {
    class: "tip",
    d: "M0 0l-7-4.2v8.4z",
    transform: `translate(${tip[0]} ${tip[1]}) rotate(${((angle * 180) / Math.PI).toFixed(1)})`,
  });
  const end = bare ? tip : [tip[0] - 5 * Math.cos(angle), tip[1] - 5 * Math.sin(angle)];
  const line = svg("path", { class: "line", d: smooth([...points.slice(0, -1), end]) });
  return { wire, line, state: "", flags: "", element: svg("g", { class: "wire wait" }, line, bare ? null : head) };
}

/** Rounded corners. */
function smooth(points) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [[ax, ay], [bx, by], [cx, cy]] = [points[at - 1], points[at], points[at + 1]];
    const cut = (dx, dy) =>
      Math.min(8, Math.hypot(dx, dy) / 2) / (Math.hypot(dx, dy) || 1);
    const [before, after] = [cut(ax - bx, ay - by), cut(cx - bx, cy - by)];
    path += `L${(bx + (ax - bx) * before).toFixed(1)} ${(by + (ay - by) * before).toFixed(1)}Q${bx} ${by} ${(bx + (cx - bx) * after).toFixed(1)} ${(by + (cy - by) * after).toFixed(1)}`;
  }
  const last = points[points.length - 1];
  return `${path}L${last[0].toFixed(1)} ${last[1].toFixed(1)}`;
}

/** flags: classes beside that of the state */
export function paintWire(line, state, flags) {
  if (state === line.state && flags === line.flags) return;
  [line.state, line.flags] = [state, flags];
  line.element.setAttribute("class", `wire ${state}${flags}`);
  const width = state.length > 3 ? 1.1 : state === "bad" ? 2.4 : 1.4 + 0.55 * Number(state.slice(1));
  line.line.setAttribute("stroke-width", width.toFixed(1));
}

/** A wire is lit once the gradient has gone through it: both its ends were reached. states: of the boxes. */
export function wireState(wire, states) {
  let found = "wait";
  for (const [source, target] of wire.ends ?? [[wire.source, wire.target]]) {
    if (states[source] === "wait") continue;
    const state = states[target];
    if (found === "wait" || state === "bad" || (found.length > 2 && found !== "bad") || (state.length === 2 && state > found))
      found = state === "wait" && found !== "wait" ? found : state;
    if (found === "bad") break;
  }
  return found;
}

export function around(mark, box, gap) {
  mark.setAttribute("visibility", box ? "visible" : "hidden");
  if (box) filled(mark, { x: box.x - gap, y: box.y - gap, width: box.w + 2 * gap, height: box.h + 2 * gap });
}

/** Where words are at a box: at their place in the drawing (marks.py), else over the middle, above the number, which they
 * would overprint where type is large. */
function wordPlace({ size }, box, half, place) {
  return place?.length && !((box.inside ?? -1) >= 0) ? [place[0], place[1] + (box.lowered ?? 0)] : [clamp(box.x + box.w / 2, half, Math.max(size.width - half, half)), box.y - 20];
}

/** graph: the boxes that are shown now */
export function bornMark(graph, box, first) {
  const height = Math.min(box.h, HEAD),
    words = first.words[Number(["module", "repeat"].includes(box.kind))];
  const [x, y] = wordPlace(graph, box, 3.6 * words.length, first.place);
  return svg(
    "g",
    {},
    svg("rect", { class: "born-rim", x: box.x, y: box.y, width: box.w, height, rx: 5 }),
    svg("text", { class: "born-text", x, y, "text-anchor": "middle" }, words),
  );
}

/** The local derivatives on the wires, where both ends were reached. */
export function derivativeMarks({ wires }, words, states) {
  if (!words) return [];
  return wires.map((wire, place) => {
    const at = 2 * Math.floor(wire.points.length / 4),
      [x, y, tip, height] = wire.points.slice(at - 2, at + 2),
      dark = wireState(wire, states) === "wait";
    return svg("text", { class: "derivative", x: (x + tip) / 2, y: (y + height) / 2 - 4 }, dark ? "" : (words[place] ?? ""));
  });
}

/** Words at the boxes that findings speak of, one a box (marks.py). graph: the boxes that are shown now. */
export function findingMarks(graph) {
  const { marks, boxes, boxOf } = graph;
  const at = new Map();
  for (const mark of marks) if (boxOf.has(mark[0]) && !at.has(boxOf.get(mark[0]))) at.set(boxOf.get(mark[0]), mark);
  const said = []; // words that stand there: others would overprint them
  return [...at].map(([place, [, words, severity, wordsAt]]) => {
    const box = boxes[place],
      half = 3.2 * (words.length + 2),
      [x, y] = wordPlace(graph, box, half, wordsAt),
      free = !said.some(([left, right, height]) => left < x + half && x - half < right && Math.abs(height - y) < 15);
    if (free) said.push([x - half, x + half, y]);
    return svg(
      "g",
      { class: `of-finding tm-${severity === "error" ? "error" : "warning"}` },
      svg("rect", { x: box.x - 2, y: box.y - 2, width: box.w + 4, height: Math.min(box.h, HEAD) + 4, rx: 6 }),
      free ? svg("text", { x, y }, `◆ ${words}`) : null,
    );
  });
}

// What is too far away to be read, and the map: a path for many that look alike. Its colours are the style sheet's.

const NEIGHBOURS = 400;
const UPWARDS = ["wait", "blind", "zero", "n0", "n1", "n2", "n3", "n4", "n5", "bad"]; // what lies on what, the lowest first: specks are larger than their boxes, and hide their neighbours

/** wide: how large a box is at least */
export function boxSpecks(boxes, states, wide, high) {
  return alike("speck", boxes, (_box, at) => states[at], ({ x, y, w, h }) => outline({ x, y, w: Math.max(w, wide), h: Math.max(h, high) }));
}

export function lineSpecks(wires, stateOf) {
  return alike("line", wires, stateOf, ({ points }) => `M${points.join(" ")}`);
}

export function frameSpecks(frames, zoom) {
  const grounds = frames.filter((frame) => frame.depth % 2 === 0),
    rims = frames.filter((frame) => frame.h * zoom > 6);
  return [...alike("under", grounds, () => "", outline), ...alike("line", rims, () => "blind", outline)];
}

/** Neighbours that look alike are one element: one for all of a large graph would be painted whole for each piece of it in view. */
function alike(kind, things, stateOf, drawn) {
  const paths = new Map();
  things.forEach((thing, at) => {
    const state = stateOf(thing, at),
      key = `${state} ${Math.floor(at / NEIGHBOURS)}`;
    if (!paths.has(key)) paths.set(key, { state, parts: [] });
    paths.get(key)?.parts.push(drawn(thing));
  });
  const found = [...paths.values()].sort((one, other) => UPWARDS.indexOf(one.state) - UPWARDS.indexOf(other.state));
  return found.map(({ state, parts }) => svg("path", { class: `${kind} ${state}`, d: parts.join("") }));
}

function outline({ x, y, w, h }) {
  return `M${x} ${y}h${w}v${h}h${-w}z`;
}

// Where a run ended: a frame round the box with the call that torch refused, or the node that was running.

const CRASH_LETTER = 6.1; // how wide a letter of the words is, about

/** graph: the boxes that are shown now */
export function crashMarks(graph) {
  if (!graph.crash) return [];
  const [node, words, , place] = graph.crash,
    box = graph.boxes[graph.boxOf.get(node)],
    half = (CRASH_LETTER * words.length + 14) / 2,
    [middle, y] = wordPlace(graph, box, half, place),
    x = middle - half;
  return [
    svg(
      "g",
      { class: "crash" },
      svg("title", {}, words),
      svg("rect", { x: box.x - 2, y: box.y - 2, width: box.w + 4, height: HEAD + 4, rx: 5 }),
      svg("path", { d: `M${x} ${y - 8}l8 8m0-8l-8 8` }),
      svg("text", { x: x + 14, y }, words),
    ),
  ];
}

// Where the gradient's way ended: cut wires, and a line under the box that used the value (drawing.py).

/** @typedef {[number|null, number|null, boolean, number|null, string, string]} Cut source, target, is a detachment, location, label, words */
/** @typedef {[string, number[]]} CutRow its words, and which cuts they are */

const CUT_INDENT = 20; // where the words of a cut begin

/** Everything that is drawn of cuts, for the boxes that are shown now. */
export function cutMarks(graph) {
  const { ends, boxes, boxOf, cutWires } = graph;
  if (!ends) return [];
  const marks = [],
    wired = new Set();
  for (const [, , points, cut] of cutWires) {
    wired.add(cut);
    marks.push(cutMark(points, ends.cuts[cut]));
  }
  ends.cuts.forEach((cut, at) => {
    const [source, target, ended] = cut;
    const maker = source === null ? undefined : boxOf.get(source),
      user = target === null ? undefined : boxOf.get(target);
    if (maker === undefined || maker === user || wired.has(at) || (target !== null && !ended)) return;
    marks.push(stubMark(boxes[maker], cut));
  });
  const rowsOf = new Map(ends.rows);
  boxes.forEach((box, place) => {
    const rows = rowsOf.get(box.part ?? place) ?? [];
    rows.forEach((row, at) => marks.push(rowMark(box, place, rows.length - at, row, ends.cuts)));
  });
  return marks;
}

/** A gap with a stroke on either side of it. */
function breakMark(x, y) {
  return [
    svg("path", { class: "gap", d: `M${x - 2.5} ${y}h5` }),
    svg("path", { class: "strokes", d: `M${x - 4.5} ${y + 4.5}l4-9M${x + 0.5} ${y + 4.5}l4-9` }),
  ];
}

function cutMark(points, cut) {
  const pairs = pointsOf(points);
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

/** A short line out of the box whose value was taken: cut, or with a cap where it was only read. */
function stubMark(box, cut) {
  const [x, y] = [box.x + box.w, box.y + HEAD - 9],
    isDetachment = cut[2];
  const parts = isDetachment ? [svg("path", { class: "lead", d: `M${x} ${y}h14` }), ...breakMark(x + 8, y)] : [svg("path", { class: "cap", d: `M${x} ${y}h6m0-4v8` })];
  return svg("g", { class: "cut" }, svg("title", {}, cut[5]), ...parts);
}

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

/** The cuts at one node, in words. */
export function cutsOf(model, graph, node, line) {
  const ends = model.graphs[graph].ends;
  const mine = (ends?.cuts ?? []).filter(([source, target]) => source === node || target === node);
  if (!mine.length) return [];
  const rows = mine.map(([, , , location, label, words]) =>
    html(
      "p",
      {},
      location === null ? "" : html("button", { type: "button", class: "link", click: () => line(location) }, label),
      location === null ? words : words.replace(/^[^:]*/, ""),
    ),
  );
  const found = drawerPart(model.doc.words.cuts_of, worded(model.doc.words.cuts, { cuts: mine.length }), ...rows);
  found.className = "node-cuts";
  return [found];
}

/** The sign of a cut in the legend. */
export function cutKey(word) {
  const mark = svg("svg", { width: 22, height: 12, viewBox: "0 0 22 12" }, svg("path", { class: "lead", d: "M0 6h22" }), ...breakMark(11, 6));
  return html("span", { class: "key cut" }, mark, word);
}
