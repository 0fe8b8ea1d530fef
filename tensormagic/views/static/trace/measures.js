// @ts-check
/** What was measured of a gradient besides its norm, at the pass that is shown or the nearest one before it. */

import { digits, html, normText, drawerPart, plural, tableRow } from "./words.js";

/** @typedef {import("./model.js").Model} Model */

/**
 * The newest full measurement of a node up to a pass: [pass, count, norm, |max|, mean, std, zeros, NaN, Inf, below, at].
 * @param {Model} model @param {number} graph @param {number} node @param {number} pass @returns {any[]|null}
 */
export function statisticsAt(model, graph, node, pass) {
  const first = model.node(graph, node).statistics;
  if (!first) return null;
  const frames = model.graphs[graph].frames.filter(
    (/** @type {any} */ frame) => frame.pass <= pass && frame.measures?.["|max|"][node],
  );
  const alone = first.length > 2, // else the frame of that pass has the rest (columns.py)
    frame = frames[frames.length - 1] ?? (alone ? null : measuredFirst(model, graph, node));
  if (!frame || (alone && frame.pass < first[0])) return alone ? first : null;
  const [nan, inf] = frame.bad.get(node) ?? [0, 0],
    of = (/** @type {string} */ name) => frame.measures[name]?.[node] ?? "0";
  return [frame.pass, first[1], normText(frame.norms[node]), ...["|max|", "mean", "std", "zeros"].map(of), nan, inf, of("too small"), of("at the limit")];
}

/** @param {Model} model @param {number} graph @param {number} node */
function measuredFirst(model, graph, node) {
  return model.graphs[graph].frames.find(
    (/** @type {any} */ frame) => frame.measures?.["|max|"][node],
  );
}

/** @param {any[]|null} row @returns {Element[]} */
export function statistics(row) {
  if (!row) return [];
  const [pass, count, norm, most, mean, std, zeros, nan, inf, below = "0", at = "0"] = row;
  const pairs = Object.entries({ norm, "|max|": most, mean, std, zeros, NaN: digits(nan), Inf: digits(inf), "too small": below, "at the limit": at });
  const rows = pairs.map(([name, value]) => {
    const row = tableRow(name, html("td", { class: ["NaN", "Inf", "at the limit"].includes(name) && value !== "0" ? "bad" : "" }, value));
    if (RARE.has(name)) row.title = RARE.get(name);
    row.hidden = RARE.has(name) && value === "0";
    return row;
  });
  const note = nan + inf ? ", mean and std of the finite ones" : "";
  return [drawerPart("Gradient statistics ", `pass ${pass}, ${plural(count, "element")}${note}`, html("table", {}, ...rows.filter((one) => !one.hidden)))];
}

const RARE = new Map([
  ["too small", "not zero, but below the smallest normal number of this type"],
  ["at the limit", "at the largest number of this type, or beyond"],
]);

/** How far the step after a pass moved a parameter. @param {Model} model @param {string} name @param {number} pass @returns {string} */
export function updateText(model, name, pass) {
  const series = model.doc.parameters.find((/** @type {any} */ one) => one.name === name);
  return series?.updates[model.passNumbers.indexOf(pass)] ?? "";
}
