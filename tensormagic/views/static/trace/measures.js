// @ts-check
/** What was measured of a gradient besides its norm, at the pass that is shown or the nearest one before it. */

import { decoded, digits, html, number, normText, drawerPart, percentText, plural, stepped, tableRow } from "./words.js";

/** @typedef {import("./model.js").Model} Model */

/** The columns of a frame as the drawer asks for them (columns.py). @param {any} frame @returns {any} */
export function decodedMeasures(frame) {
  if (!frame.measures) return null;
  const { abs_max: largest, std, ...others } = frame.measures;
  return { abs_max: decoded(largest), std: decoded(std), ...others };
}

/**
 * The newest full measurement of a node up to a pass: [pass, count, norm, |max|, mean, std, zeros, NaN, Inf, below, at].
 * @param {Model} model @param {number} graph @param {number} node @param {number} pass @returns {any[]|null}
 */
export function statisticsAt(model, graph, node, pass) {
  const first = model.node(graph, node).statistics;
  if (!first) return null;
  const frames = model.graphs[graph].frames.filter(
    (/** @type {any} */ frame) => frame.measures && frame.pass <= pass && frame.measures.abs_max[node] !== -1,
  );
  const alone = first.length > 2, // else the frame of that pass has the rest (columns.py)
    frame = frames[frames.length - 1] ?? (alone ? null : measuredFirst(model, graph, node));
  if (!frame || (alone && frame.pass < first[0])) return alone ? first : null;
  const { abs_max: largest, mean, std, zero_share: zero, subnormal_share: below, saturated_share: at } = frame.measures;
  const [nan, inf] = frame.bad.get(node) ?? [0, 0],
    count = first[1],
    of = (/** @type {any[]|undefined} */ column) => Math.round((column?.[node] ?? 0) * count);
  const numbers = [frame.norms[node], largest[node], mean?.[node] ?? 0, std[node]];
  return [frame.pass, count, ...numbers, of(zero), nan, inf, of(below), of(at)];
}

/** @param {Model} model @param {number} graph @param {number} node */
function measuredFirst(model, graph, node) {
  return model.graphs[graph].frames.find(
    (/** @type {any} */ frame) => frame.measures && frame.measures.abs_max[node] !== -1,
  );
}

/** @param {any[]|null} row @returns {Element[]} */
export function statistics(row) {
  if (!row) return [];
  const [pass, count, norm, most, mean, std, zero, nan, inf, below = 0, at = 0] = row;
  const pairs = Object.entries({ norm, "|max|": most, mean, std, zeros: zero, NaN: nan, Inf: inf });
  if (below) pairs.push(["too small", below]);
  if (at) pairs.push(["at the limit", at]);
  const rows = pairs.map(([name, value]) => {
    const bad = ["NaN", "Inf", "at the limit"].includes(name) && value;
    const row = tableRow(name, html("td", { class: bad ? "bad" : "" }, words(name, value, count)));
    if (RARE.has(name)) row.title = RARE.get(name);
    return row;
  });
  const note = nan + inf ? ", mean and std of the finite ones" : "";
  return [drawerPart("Gradient statistics ", `pass ${pass}, ${plural(count, "element")}${note}`, html("table", {}, ...rows))];
}

const RARE = new Map([
  ["too small", "not zero, but below the smallest normal number of this type"],
  ["at the limit", "at the largest number of this type, or beyond"],
]);

/** Counts with their share, numbers as everywhere. @param {string} name @param {any} value @param {number} count */
function words(name, value, count) {
  const plain = Number(value === "inf" ? Infinity : value);
  if (["norm", "|max|", "std"].includes(name)) return number(Number(plain.toPrecision(2)));
  if (!["zeros", "too small", "at the limit"].includes(name) || !plain || !count) return number(plain);
  return `${digits(plain)}  (${percentText(plain / count)})`;
}

/** How far the step after a pass moved a parameter. @param {Model} model @param {string} name @param {number} pass @returns {string} */
export function updateText(model, name, pass) {
  const series = model.doc.parameters.find((/** @type {any} */ one) => one.name === name);
  const place = model.doc.passes.findIndex((/** @type {any[]} */ row) => row[0] === pass);
  const ratio = series?.updates?.length && place >= 0 ? decoded(stepped(series.updates))[place] : -1;
  if (ratio < 0) return "";
  return ratio === Infinity ? "from all zeros" : `${normText(ratio)} of its norm`;
}
