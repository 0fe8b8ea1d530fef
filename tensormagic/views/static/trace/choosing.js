// @ts-check
/** What a user chooses in a panel: a box to open or to fold, a node to read about, a line, a finding. */

import { relight, sayPath, speaker } from "./path.js";
import { sayBoxes } from "./headline.js";

/** @typedef {import("./panel.js").Panel} Panel */
/** @typedef {import("./graph.js").GraphView} GraphView */

/** @param {Panel} panel @param {number} box */
export function openBox(panel, box) {
  const { x, y, open } = panel.graphView.graph.boxes[box],
    part = panel.folds.part(box),
    before = standing(panel.graphView);
  if (open) return foldPart(panel, part);
  panel.folds.open(part);
  reshaped(panel);
  panel.graphView.revealFrame(part, { x, y });
  const { boxes } = panel.graphView.graph,
    first = boxes.findIndex((/** @type {any} */ one) => boxes[one.inside]?.part === part);
  if (first >= 0) panel.graphView.focus(first);
  slide(panel.graphView, before, before.get(part) ?? null);
}

/** @param {Panel} panel @param {number} part */
export function foldPart(panel, part) {
  const before = standing(panel.graphView);
  panel.folds.fold(part);
  reshaped(panel);
  const box = panel.graphView.graph.boxes.findIndex((/** @type {any} */ one, /** @type {number} */ at) => panel.folds.part(at) === part);
  if (box >= 0) panel.graphView.focus(box);
  slide(panel.graphView, before, null);
}

/** Fold what lies round the box that has the focus; whether there was anything. @param {Panel} panel @returns {boolean} */
export function foldAround(panel) {
  if (!panel.folds.anyOpen()) return false;
  const tree = panel.folds.grown(),
    around = tree.path(panel.folds.part(panel.graphView.focused)).filter((part) => tree.open.has(part));
  if (around.length) foldPart(panel, around[around.length - 1]);
  return around.length > 0;
}

/** @param {Panel} panel */
export function foldAll(panel) {
  panel.folds.foldAll();
  reshaped(panel);
  panel.graphView.moved = false;
  panel.graphView.resize();
}

/** @param {Panel} panel */
export function openAll(panel) {
  panel.folds.openAll();
  reshaped(panel);
  panel.graphView.fit();
}

/** The same graph with other boxes: everything that goes by boxes is told. @param {Panel} panel */
export function reshaped(panel) {
  const node = panel.selection?.node,
    { graphView } = panel;
  panel.remember();
  graphView.reshape(panel.model.graphs[panel.graph]);
  graphView.moved = true;
  graphView.resize();
  panel.arrangeFolds();
  sayBoxes(panel);
  if (node !== undefined) {
    panel.selection = { box: graphView.graph.boxOf.get(node) ?? -1, node };
    graphView.select(panel.selection.box);
  } else graphView.select(-1);
  if (graphView.lit || panel.lit) relight(panel);
  panel.paint();
}

/** @param {Panel} panel @param {number} box @param {number|string|null} node */
export function choose(panel, box, node) {
  const shape = panel.model.graphs[panel.graph].boxes[box],
    chosen = node === null ? speaker(shape.nodes, panel.picture.norms) : Number(node);
  panel.selection = { box, node: chosen };
  panel.graphView.select(box);
  panel.drawer.show(panel.model, panel.graph, box, chosen, panel.picture);
  panel.main.classList.add("detailed");
  panel.graphView.aside = panel.drawer.over();
  panel.graphView.uncover(box);
  sayPath(panel);
  panel.remember();
  const location = panel.model.doc.graphs[panel.graph].nodes.location[chosen];
  panel.source.mark(location === null ? undefined : panel.model.rowOfLocation.get(location));
}

/** @param {Panel} panel */
export function close(panel) {
  const box = panel.selection?.box;
  panel.selection = null;
  panel.drawer.hide();
  panel.main.classList.remove("detailed");
  panel.graphView.aside = 0;
  panel.remember();
  panel.source.mark(undefined);
  if (panel.graphView.graph) panel.graphView.select(-1);
  if (box !== undefined && panel.root.contains(document.activeElement))
    panel.graphView.marks[box]?.element.focus({ preventScroll: true });
}

/** @param {Panel} panel @param {number} graph @param {number} node @param {boolean} [searching] the focus stays in the field */
export function showNode(panel, graph, node, searching = false) {
  if (panel.collapsed()) panel.toggle();
  if (graph !== panel.graph && panel.model.graphs[graph]) panel.chooseGraph(graph);
  if (panel.model.graphs[graph] && panel.folds.reveal(node)) reshaped(panel);
  const box = panel.model.graphs[graph]?.boxOf.get(node);
  if (box === undefined) return;
  choose(panel, box, node);
  panel.graphView.resize();
  panel.graphView.focus(box);
  if (searching) panel.search.field.focus({ preventScroll: true });
}

/** Light the nodes of a line, and bring them into view; a fold or two that hides all of them is opened.
 * @param {Panel} panel @param {Set<number>|null} nodes */
export function pickLine(panel, nodes) {
  panel.lit = nodes;
  if (nodes && nodes.size <= 12 && panel.folds.hiding(nodes) && panel.folds.hiding(nodes) <= 3) {
    for (const node of nodes) panel.folds.reveal(node);
    reshaped(panel);
  }
  relight(panel);
  if (nodes && panel.graphView.lit) panel.graphView.frameBoxes(panel.graphView.lit);
}

/** @param {Panel} panel @param {number} location */
export function showLine(panel, location) {
  if (panel.collapsed()) panel.toggle();
  const place = panel.model.rowOfLocation.get(location);
  if (place === undefined) return;
  panel.source.mark(place);
  panel.source.pick(panel.source.rows[place].nodes.length ? place : -1);
}

// Boxes slide from where they stood to where they stand, so that a user sees what became of each.

const MILLISECONDS = 200;
const MOST = 160; // boxes that are moved; of more the eye follows none

/** Where every box is on the screen, by the part that it stands for. @param {GraphView} view @returns {Map<number, [number, number]>} */
export function standing({ graph, view: { k, x, y } }) {
  return new Map(
    graph.boxes.map((/** @type {any} */ box, /** @type {number} */ at) => [box.part ?? at, [box.x * k + x, box.y * k + y]]),
  );
}

/** @param {GraphView} view @param {Map<number, [number, number]>} before @param {[number, number]|null} from where new boxes come from */
export function slide(view, before, from) {
  if (globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches || view.isFar()) return;
  const { k, x, y } = view.view,
    marks = view.marks.filter(Boolean);
  if (marks.length <= MOST)
    for (const { element, box, place } of marks) {
      const old = before.get(box.part ?? place) ?? from;
      if (!old || !element.animate) continue;
      const start = `translate(${(old[0] - x) / k}px,${(old[1] - y) / k}px)`,
        fresh = before.has(box.part ?? place) ? 1 : 0;
      const steps = [{ transform: start, opacity: fresh }, { transform: `translate(${box.x}px,${box.y}px)`, opacity: 1 }];
      element.animate(steps, { duration: MILLISECONDS, easing: "ease-out" });
    }
  for (const layer of [view.wireLayer, view.frameLayer])
    layer.animate?.([{ opacity: 0 }, { opacity: 1 }], { duration: MILLISECONDS * 1.5, easing: "ease-in" });
}
