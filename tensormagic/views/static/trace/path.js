// @ts-check
/** The way through one node: what leads to it from the loss and from it to the leaves stays, the rest steps back. */

import { hide, digits, level, plural, say, UNTOUCHED } from "./words.js";

/** @typedef {import("./panel.js").Panel} Panel */
/** @typedef {{starts:number[], label:string, nodes:Set<number>, edges:Uint8Array}} Way edges: 1 for each that is on it */

/** What is reached along edges from some nodes, themselves included.
 * @param {number[]} from @param {number[]} to @param {number[]} starts @param {number} count @returns {Uint8Array} */
function reach(from, to, starts, count) {
  const first = new Int32Array(count).fill(-1),
    next = new Int32Array(from.length),
    seen = new Uint8Array(count),
    waiting = [...starts];
  for (let edge = 0; edge < from.length; edge += 1) {
    next[edge] = first[from[edge]];
    first[from[edge]] = edge;
  }
  for (const start of starts) seen[start] = 1;
  while (waiting.length)
    for (let edge = first[/** @type {number} */ (waiting.pop())]; edge >= 0; edge = next[edge])
      if (!seen[to[edge]]) {
        seen[to[edge]] = 1;
        waiting.push(to[edge]);
      }
  return seen;
}

/** Every way from the loss to the leaves that goes through any of these nodes.
 * @param {number[][]} edges @param {number[]} starts @param {number} count of nodes @param {string} label @returns {Way} */
export function wayThrough([sources, targets], starts, count, label = "") {
  const before = reach(targets, sources, starts, count),
    after = reach(sources, targets, starts, count),
    nodes = new Set();
  for (let node = 0; node < count; node += 1) if (before[node] || after[node]) nodes.add(node);
  const edges = Uint8Array.from(sources, (source, at) =>
    (before[source] && before[targets[at]]) || (after[source] && after[targets[at]]) ? 1 : 0,
  );
  return { starts, label, nodes, edges };
}

/** Which lines the way goes along, in a graph as it is folded now.
 * @param {any} graph @param {Way} way @returns {(wire:import("./words.js").Wire)=>boolean} */
export function linesOf(graph, way) {
  const [sources, targets] = graph.edges,
    pairs = new Set();
  way.edges.forEach((on, edge) => {
    if (on) pairs.add(`${graph.boxOf.get(sources[edge])} ${graph.boxOf.get(targets[edge])}`);
  });
  return ({ source, target, edges }) => (edges ? edges.some((edge) => way.edges[edge]) : pairs.has(`${source} ${target}`));
}

/** The node of a box that speaks for it: the first with NaN or Inf, else the first that was reached.
 * @param {number[]} nodes @param {Float32Array} norms */
export function speaker(nodes, norms) {
  return nodes.find((one) => level(norms[one]) === "bad") ?? nodes.find((one) => norms[one] !== UNTOUCHED) ?? nodes[0];
}

/** Show the way through the box that has the focus, else through the node that is told of; the same again ends it. @param {Panel} panel */
export function togglePath(panel) {
  const { selection, graphView } = panel,
    box = panel.model.graphs[panel.graph]?.boxes[graphView.focused],
    elsewhere = graphView.canvas.contains(document.activeElement) && graphView.focused !== selection?.box,
    node = selection && !elsewhere ? selection.node : -1,
    starts = node >= 0 ? [node] : (box?.nodes ?? []);
  if (panel.way && panel.way.starts.join() === starts.join()) endPath(panel);
  else if (starts.length) showPath(panel, starts, node >= 0 ? panel.model.boxLabel(panel.graph, node) : box.label);
}

/** @param {Panel} panel @param {number[]} starts @param {string} label */
export function showPath(panel, starts, label) {
  const graph = panel.model.graphs[panel.graph];
  panel.way = wayThrough(graph.edges, starts, graph.count, label);
  pathChanged(panel);
}

/** @param {Panel} panel */
export function endPath(panel) {
  panel.way = null;
  pathChanged(panel);
}

/** @param {Panel} panel */
function pathChanged(panel) {
  relight(panel);
  sayPath(panel);
  panel.remember();
}

/** Say which way is shown, and how much of the graph lies on it. @param {Panel} panel */
export function sayPath(panel) {
  const { way, selection } = panel,
    count = panel.model.graphs[panel.graph]?.count ?? 0;
  hide(panel.wayChip, !way, panel.drawer.pathButton, panel.graphView.marks[panel.graphView.focused]?.element);
  panel.stage.classList.toggle("on-path", Boolean(way));
  say(panel.wayText, way ? `path through ${way.label}: ${digits(way.nodes.size)} of ${plural(count, "node")}` : "");
  panel.drawer.pressPath(Boolean(way && selection && way.starts.join() === String(selection.node)));
}

/** Light what is asked for: the line that is picked, else what was found, else the way. @param {Panel} panel */
export function relight(panel) {
  light(panel, panel.lit ?? (panel.search.found.length ? new Set(panel.search.found) : null));
}

/** Light some nodes; the way, where there is one, as soon as there are none. @param {Panel} panel @param {Set<number>|null} nodes */
export function light({ way, graphView }, nodes) {
  graphView.way = nodes || !way ? null : { nodes: way.nodes, on: linesOf(graphView.graph, way) };
  graphView.highlight(nodes ?? way?.nodes ?? null);
}
