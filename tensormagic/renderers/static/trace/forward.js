// @ts-check
/** What the forward made of a node, at the pass that is shown or the nearest one before it; where it was asked for. */

import { badText, decoded, html, normText, number, percentText } from "./words.js";

/** @typedef {import("./model.js").Model} Model */

/** The forward values of a frame as the drawer asks for them (columns.py). @param {any} forward @returns {any} */
export function decodedForward(forward) {
  if (!forward) return null;
  const { norms, abs_max: largest, std, bad, ...others } = forward;
  const counts = new Map(bad.map((/** @type {number[]} */ [node, nan, inf]) => [node, [nan, inf]]));
  return { norms: decoded(norms), abs_max: decoded(largest), std: decoded(std), bad: counts, ...others };
}

/** The newest forward value of a node up to a pass. @param {Model} model @param {number} graph @param {number} node @param {number} pass */
function forwardAt(model, graph, node, pass) {
  const frames = model.graphs[graph].frames.filter(
    (/** @type {any} */ frame) => frame.forward && frame.pass <= pass && frame.forward.norms[node] !== -1,
  );
  return frames[frames.length - 1] ?? null;
}

/** @param {Model} model @param {number} graph @param {number} node @param {number} pass @returns {Element[]} */
export function forwardOf(model, graph, node, pass) {
  const frame = forwardAt(model, graph, node, pass);
  if (!frame) return [];
  const { norms, abs_max: largest, mean, std, zero_share: zeros, bad } = frame.forward,
    counts = bad.get(node);
  /** @type {[string, string, boolean][]} */
  const rows = [
    ["norm", counts ? badText(.../** @type {[number, number]} */ (counts)) : normText(norms[node]), Boolean(counts)],
    ["|max|", normText(largest[node]), false],
    ["mean", number(Number(mean?.[node] ?? 0)), false],
    ["std", normText(std[node]), false],
    ["zeros", percentText(zeros?.[node] ?? 0), false],
  ];
  const heading = html("div", { class: "part small" }, "Forward value ", html("span", { class: "quiet" }, `pass ${frame.pass}`));
  const cells = rows.map(([name, value, wrong]) =>
    html("tr", {}, html("th", { scope: "row" }, name), html("td", { class: wrong ? "bad" : "" }, value)),
  );
  return [html("div", {}, heading, html("table", {}, ...cells))];
}
