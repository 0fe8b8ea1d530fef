/** What several parts of the viewer go by; elements, and numbers put into words: the same words as in Python (tensormagic/words.py). */

import { clamp, html, svg, digits } from "../dom.js";

/** @typedef {{x:number,y:number,w:number,h:number,nodes:number[],label:string,detail:string,kind:string,badges:[number,string][],written:number,part?:number,inside?:number,lowered?:number,open?:boolean}} Box inside: the box it lies in, -1 for none; lowered: how far it stands below its place in the drawing */
/** @typedef {{source:number,target:number,points:number[],ends?:[number,number][],edges?:number[],plain?:boolean,bounds?:Piece}} Wire */
/** @typedef {{x:number, y:number, w:number, h:number}} Piece of a picture */
/** @typedef {{pass:number,norms:Float32Array,bad:Map<number,[number,number]>,values?:string[][]|null,said:string}} Frame */
/** @typedef {{norms:Float32Array,bad:Map<number,[number,number]>,values?:string[][]|null,nonfinite:any[],cursor:number,pass:number,running:boolean}} Picture */
/** @typedef {{structure:number,graph:number,pass:number,step:number,running:boolean,cursor:number,reached:number,finished:number,seconds:number,nodes:number,parameters:number,paused?:boolean,next?:number}} DeltaHeader */

export const UNTOUCHED = -1; // no gradient came; below that, UNREADABLE: one came that could not be measured. No norm is below zero.
export const UNREADABLE = -2;
export const NOT_MEASURABLE = "not measurable";
export const ENDS = [-5, 1]; // log10 of the norms at which the colour scale starts and ends where a run has none (theme.py)
export const LONGEST_LIVE_SERIES = 600;
export const PLAY_MILLISECONDS = 300;
export const CLOCK_MILLISECONDS = 100;
export const LATEST = 5; // seconds that a document of a running run may come late
export const LARGEST = 1.25; // how far a small graph is enlarged by itself: to be read from the last row
export const HEAD = 40;
export const BADGE = 15; // heights of a box without its badges, and of one badge (drawing.py)

/** A part of the drawer: its title, quiet words beside it, and what is below. */
export function drawerPart(title, quiet, ...below) {
  const beside = typeof quiet === "string" ? html("span", { class: "quiet" }, quiet) : quiet;
  return html("div", {}, html("div", { class: "part small" }, quiet === null ? title : `${title} `, beside), ...below);
}

/** A row of a table. */
export function tableRow(name, ...cells) {
  return html("tr", {}, html("th", { scope: "row" }, name), ...cells);
}

/** The points of a line, which are written one number after the other. */
export function pointsOf(numbers) {
  const points = [];
  for (let at = 0; at < numbers.length; at += 2) points.push([numbers[at], numbers[at + 1]]);
  return points;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text in which `backticks` mark code. */
export function prose(text) {
  return quoting(text, (code) => html("code", {}, code));
}

/** Text of which each piece between backticks becomes what `quote` makes of it. */
export function quoting(text, quote) {
  const bound = (part, place) => (place ? part.replace(/^(?=[.,;:)])/, "\u2060") : part); // no line begins with a full stop
  return text
    .split(/`([^`]+)`/)
    .map((part, place) => (place % 2 ? quote(part) : document.createTextNode(bound(part, place))));
}

/** A norm in two digits, as everywhere (trace_words.py). */
export function normText(norm) {
  if (norm === UNTOUCHED || norm === undefined) return "none";
  if (norm < 0) return NOT_MEASURABLE;
  if (!Number.isFinite(norm)) return Number.isNaN(norm) ? "NaN" : "Inf";
  if (norm === 0 || (norm >= 1e-3 && norm < 9999.5)) return norm < 99.5 ? String(Number(norm.toPrecision(2))) : norm.toFixed(0);
  return norm.toExponential(1).replace("e+", "e").replace(".0e", "e").replaceAll("-", "−");
}

/** The same where there is little room: over a box, beside a line. */
export function shortNorm(norm) {
  return norm === UNTOUCHED ? "" : norm < 0 ? "?" : normText(norm);
}

export function bytesText(bytes) {
  let unit = 0;
  for (; bytes >= (unit ? 1023.95 : 1024) && unit < 5; unit++) bytes /= 1024;
  return `${Number(bytes.toFixed(1))} ${unit ? `${" KMGTP"[unit]}iB` : "B"}`;
}

export function secondsText(seconds) {
  if (!seconds) return "0 s";
  let small = seconds * 1e9;
  for (const unit of ["ns", "µs", "ms"]) {
    if (small < 999.5) return `${small.toFixed(unit !== "ns" && small < 9.95 ? 1 : 0)} ${unit}`;
    small /= 1000;
  }
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${digits(Math.floor(whole / 60))} min ${whole % 60} s`;
}

export function badText(nan, inf) {
  return [nan ? `${digits(nan)} NaN` : "", inf ? `${digits(inf)} Inf` : ""].filter(Boolean).join(", ");
}

/** The same over a box: where both have no room, only the first is counted. */
export function shortBadText(nan, inf, room) {
  const text = badText(nan, inf);
  return text.length * 6.2 <= room || !(nan && inf) ? text : `${digits(nan)} NaN, Inf`;
}

/** The word for how a norm is drawn: a step of the scale, or "wait", "blind", "bad", "zero". ends: log10 of the norms at the ends of the scale. */
export function level(norm, [low, high] = ENDS) {
  if (norm === UNTOUCHED) return "wait";
  if (norm < 0) return "blind";
  if (!Number.isFinite(norm)) return "bad";
  if (norm === 0) return "zero";
  const step = Math.floor((6 * (Math.log10(norm) - low)) / (high - low));
  return `n${clamp(step, 0, 5)}`;
}

/** Log10 of the norms at the ends of a run's scale (theme.py: norm_scale, least_of); one that there is already only grows. */
export function scaleOf(norms, before) {
  const known = [...norms].filter((norm) => norm > 0 && norm < Infinity).sort((one, other) => one - other);
  if (!known.length) return before;
  const first = known.findLastIndex((norm, at) => at && at <= known.length >> 2 && norm >= known[at - 1] * 1e4),
    [least, most] = [known[Math.max(first, 0)], known.at(-1)];
  const high = Math.max(Math.ceil(Math.log10(most) - 1e-6), before?.[1] ?? -Infinity),
    low = Math.min(Math.floor(Math.log10(least) + 1e-6), high - 3, before?.[0] ?? Infinity);
  return [Math.max(low, high - 15), high];
}

/** The norm of a box: any non-finite one decides, else that of the first node that was reached (values.py). */
export function ofBox(nodes, norms) {
  return norms[speaker(nodes, norms)] ?? UNTOUCHED;
}

/** The node that speaks for some: the first with NaN or Inf, else the first that was reached. */
export function speaker(nodes, norms) {
  return nodes.find((node) => !Number.isFinite(norms[node])) ?? nodes.find((node) => norms[node] !== UNTOUCHED) ?? nodes[0];
}

/** The norm of a line: any non-finite one decides, else the largest, else whether one came at all. */
export function ofLine(nodes, norms) {
  const came = nodes.map((node) => norms[node]).filter((norm) => norm !== UNTOUCHED);
  return came.find((norm) => !Number.isFinite(norm)) ?? (came.length ? came.reduce((most, norm) => Math.max(most, norm)) : UNTOUCHED);
}

/** What represents a norm that has no logarithm (columns.py). */
const CODES = { null: UNTOUCHED, u: UNREADABLE, z: 0, n: NaN, i: Infinity };

export function decoded(codes) {
  return Float32Array.from(codes, (code) => (typeof code === "number" ? 10 ** (code / 250) : CODES[code]));
}

/** Codes that are written as steps, each from the last number before it (columns.py). */
export function stepped(codes) {
  let at = 0;
  return codes.map((code) => (typeof code === "number" ? (at += code) : code));
}

/** Rows of codes that are written as changes, each from the last number above it. */
export function changed(rows) {
  const above = [];
  return rows.map((row) =>
    row.map((code, at) => (typeof code === "number" ? (above[at] = (above[at] ?? 0) + code) : code)),
  );
}

export function glyph(path, solid = false) {
  return svg(
    "svg",
    { class: solid ? "glyph solid" : "glyph", viewBox: "0 0 14 14", "aria-hidden": "true" },
    svg("path", { d: path }),
  );
}

/** A button that is a sign. */
export function squareButton(label, title, icon, click, look = "square") {
  return html("button", { type: "button", class: look, title, "aria-label": label, click }, glyph(icon));
}

export const GLYPHS = {
  run: "M7 1.8a5.2 5.2 0 1 1-5.2 5.2",
  done: "M2.5 7.5l3 3 6-7",
  stop: "M3.5 3.5l7 7m0-7l-7 7",
  in: "M3 7h8M7 3v8",
  out: "M3 7h8",
  info: "M7 1.6a5.4 5.4 0 1 0 .01 0M7 6.6v3.4M7 4.2v.1",
  fit: "M2.5 5V2.5H5M11.5 5V2.5H9M2.5 9v2.5H5M11.5 9v2.5H9",
  fold: "M4 2l3 3 3-3M4 12l3-3 3 3M2 7h10",
  unfold: "M4 4.5l3-3 3 3M4 9.5l3 3 3-3M2 7h10",
  play: "M4 2.6l7 4.4-7 4.4z",
  pause: "M3.5 3h2.4v8H3.5zM8.1 3h2.4v8H8.1z",
};

export function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// Where the keyboard goes on, where what had the focus is exchanged or hidden: never to the top of the page.

const STOPS = "button,select,[tabindex]";

/** Exchange what is in an element; the focus stays at the same place in the order of Tab. */
export function keepingFocus(element, exchange) {
  const stops = () => [...element.querySelectorAll(STOPS)],
    at = stops().indexOf(document.activeElement);
  exchange();
  stops()[at]?.focus({ preventScroll: true });
}

/** Show or hide; the focus goes to the first of some others that is there. */
export function hide(element, hidden, ...others) {
  const inside = hidden && element.contains(document.activeElement);
  element.hidden = hidden;
  if (inside) others.find((one) => one?.getClientRects().length)?.focus({ preventScroll: true });
}
