// @ts-check
/** How a run was looked at: a cell that is run again shows its graph so again. Nothing of it leaves the page. */

import { choose } from "./choosing.js";
import { showPath } from "./path.js";

/** @typedef {import("./panel.js").Panel} Panel */
/** @typedef {{open:Set<string>, spread:boolean, view:{k:number, x:number, y:number, size:string}|null, node:number, way:{starts:number[], label:string}|null}} Look how one graph was looked at; x and y: what was in the middle */
/** @typedef {{mode:string, opened:boolean|null, tall:string, graphs:Map<string, Look>, open:Set<string>}} Looks of one place in the page; `open`: of the graph that was looked at last */

const MOST_LOOKS = 12; // graphs that one place remembers

/** What is known of the place in which an element stands: a notebook keeps the output area of a cell when the cell is run
 * again. Elsewhere a page is one place, and the title tells its runs apart.
 * @param {Element} element @param {string} title @returns {Looks} */
export function looksAt(element, title) {
  const places = /** @type {any} */ (globalThis).tensormagicLooks ??= new WeakMap(),
    area = element.closest(".jp-OutputArea"),
    place = area ?? document.documentElement,
    name = area ? "" : title;
  if (!places.has(place)) places.set(place, new Map());
  const known = places.get(place);
  const { graphs = [], ...rest } = known.get(name) ?? {};
  const looks = { mode: "", opened: null, tall: "", open: new Set(), ...rest, graphs: new Map(graphs) };
  known.set(name, looks); // a copy: a panel that goes writes into its own
  return looks;
}

/** A name for a graph: the same where its nodes and edges are the same. @param {any} doc @param {number} place @param {number[][]} edges */
export function nameOf(doc, place, edges) {
  const { op, variable } = doc.graphs[place].nodes;
  let hash = 0x811c9dc5;
  const put = (/** @type {number} */ value) => {
    hash = Math.imul(hash ^ value, 0x01000193);
  };
  for (const column of [op, variable])
    for (const word of column) for (let at = 0; at < doc.strings[word].length; at += 1) put(doc.strings[word].charCodeAt(at));
  for (const column of edges) column.forEach(put);
  return `${op.length} ${hash >>> 0}`;
}

/** @param {Panel} panel @returns {Look|undefined} how the graph that is shown was looked at */
export function known(panel) {
  return panel.looks?.graphs.get(panel.name);
}

/** Write down how the graph is looked at now. @param {Panel} panel */
export function note(panel) {
  const { looks, graphView, folds, selection, way } = panel;
  if (!looks || !graphView.graph || !panel.name) return;
  const { width, height } = graphView.clear(),
    { k, x, y } = graphView.view,
    open = folds.openKeys();
  const seen = { k, x: (width / 2 - x) / k, y: (height / 2 - y) / k, size: sizeOf(panel) },
    view = graphView.wanted ?? (graphView.moved ? seen : null);
  looks.graphs.delete(panel.name);
  looks.graphs.set(panel.name, {
    open,
    spread: folds.tree?.spread ?? false,
    view,
    node: selection?.node ?? -1,
    way: way && { starts: way.starts, label: way.label },
  });
  if (looks.graphs.size > MOST_LOOKS) looks.graphs.delete(looks.graphs.keys().next().value ?? "");
  looks.open = open;
  if (graphView.sized) looks.tall = graphView.element.style.height;
  if (panel.running && (view || open.size || selection || way)) looks.opened ??= true; // it stays before one's eyes at the end
}

/** Where a view fits: in a picture of the same boxes. @param {Panel} panel */
function sizeOf({ graphView: { graph } }) {
  return `${graph.boxes.length} ${Math.round(graph.size.width)} ${Math.round(graph.size.height)}`;
}

/** Look at a graph as it was looked at before: what was chosen, the way, the piece that was in view. @param {Panel} panel */
export function recall(panel) {
  const look = known(panel),
    { graphView, looks } = panel;
  if (looks?.tall) graphView.pull(looks.tall);
  if (!look) return;
  const box = graphView.graph.boxOf.get(look.node);
  if (box !== undefined) choose(panel, box, look.node);
  if (look.way) showPath(panel, look.way.starts, look.way.label);
  if (look.view?.size === sizeOf(panel)) graphView.wanted = look.view;
  graphView.resize();
}
