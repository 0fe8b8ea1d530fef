/** What a user chooses in a panel: a box to open or to fold, a node to read about, a line, a finding. */

import { sayBoxes } from "./headline.js";
import { digits, worded } from "../dom.js";
import { hide, say, speaker } from "./words.js";

export function openBox(panel, box) {
  const { x, y, open } = panel.graphView.graph.boxes[box],
    part = panel.folds.part(box),
    before = standing(panel.graphView);
  if (open) return foldPart(panel, part);
  panel.folds.open(part);
  reshaped(panel);
  panel.graphView.revealFrame(part, { x, y });
  const { boxes } = panel.graphView.graph,
    first = boxes.findIndex((one) => boxes[one.inside]?.part === part);
  if (first >= 0) panel.graphView.focus(first);
  slide(panel.graphView, before, before.get(part) ?? null);
}

export function foldPart(panel, part) {
  const before = standing(panel.graphView);
  panel.folds.fold(part);
  reshaped(panel);
  const box = panel.graphView.graph.boxes.findIndex((one, at) => panel.folds.part(at) === part);
  if (box >= 0) panel.graphView.focus(box);
  slide(panel.graphView, before, null);
}

/** Fold what lies round the box that has the focus; whether there was anything. */
export function foldAround(panel) {
  if (!panel.folds.anyOpen()) return false;
  const tree = panel.folds.grown(),
    around = tree.path(panel.folds.part(panel.graphView.focused)).filter((part) => tree.open.has(part));
  if (around.length) foldPart(panel, around[around.length - 1]);
  return around.length > 0;
}

export function foldAll(panel) {
  panel.folds.foldAll();
  reshaped(panel);
  panel.graphView.moved = false;
  panel.graphView.resize();
}

export function openAll(panel) {
  panel.folds.openAll();
  reshaped(panel);
  panel.graphView.fit();
}

/** The same graph with other boxes: everything that goes by boxes is told. */
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

export function close(panel) {
  const box = panel.selection?.box;
  panel.selection = null;
  panel.drawer.hide();
  panel.main.classList.remove("detailed");
  panel.graphView.aside = 0;
  panel.remember();
  panel.source.mark(undefined);
  if (panel.graphView.graph) panel.graphView.select(-1);
  panel.graphView.show();
  if (box !== undefined && panel.root.contains(document.activeElement))
    panel.graphView.marks[box]?.element.focus({ preventScroll: true });
}

/** searching: the focus stays in the field */
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

/** Light the nodes of a line, and bring them into view; a fold or two that hides all of them is opened. */
export function pickLine(panel, nodes) {
  panel.lit = nodes;
  if (nodes && nodes.size <= 12 && panel.folds.hiding(nodes) && panel.folds.hiding(nodes) <= 3) {
    for (const node of nodes) panel.folds.reveal(node);
    reshaped(panel);
  }
  relight(panel);
  if (nodes && panel.graphView.lit) panel.graphView.frameBoxes(panel.graphView.lit);
}

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

/** Where every box is on the screen, by the part that it stands for. */
export function standing({ graph, view: { k, x, y } }) {
  return new Map(
    graph.boxes.map((box, at) => [box.part ?? at, [box.x * k + x, box.y * k + y]]),
  );
}

/** from: where new boxes come from */
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

// The way through one node: what leads to it from the loss and from it to the leaves stays, the rest steps back.

/** @typedef {{starts:number[], label:string, nodes:Set<number>, edges:Uint8Array}} Way edges: 1 for each that is on it */

/** What is reached along edges from some nodes, themselves included. */
function reach(from, to, starts) {
  const seen = new Set(starts);
  for (let known = 0; known < seen.size; ) { // the edges stand about in their order: a few times, there and back
    known = seen.size;
    for (let edge = 0; edge < from.length; edge += 1) if (seen.has(from[edge])) seen.add(to[edge]);
    for (let edge = from.length - 1; edge >= 0; edge -= 1) if (seen.has(from[edge])) seen.add(to[edge]);
  }
  return seen;
}

/** Every way from the loss to the leaves that goes through any of these nodes. */
export function wayThrough([sources, targets], starts, label = "") {
  const [before, after] = [reach(targets, sources, starts), reach(sources, targets, starts)],
    on = (nodes, edge) => nodes.has(sources[edge]) && nodes.has(targets[edge]),
    edges = Uint8Array.from(sources, (_source, edge) => on(before, edge) || on(after, edge));
  return { starts, label, nodes: new Set([...before, ...after]), edges };
}

/** Which lines the way goes along, in a graph as it is folded now. */
export function linesOf(graph, way) {
  const [sources, targets] = graph.edges,
    pairs = new Set();
  way.edges.forEach((on, edge) => {
    if (on) pairs.add(`${graph.boxOf.get(sources[edge])} ${graph.boxOf.get(targets[edge])}`);
  });
  return ({ source, target, edges }) => (edges ? edges.some((edge) => way.edges[edge]) : pairs.has(`${source} ${target}`));
}

/** Show the way through the box that has the focus, else through the node that is told of; the same again ends it. */
export function togglePath(panel) {
  const { selection, graphView } = panel,
    box = panel.model.graphs[panel.graph]?.boxes[graphView.focused],
    elsewhere = graphView.canvas.contains(document.activeElement) && graphView.focused !== selection?.box,
    node = selection && !elsewhere ? selection.node : -1,
    starts = node >= 0 ? [node] : (box?.nodes ?? []);
  if (panel.way && panel.way.starts.join() === starts.join()) endPath(panel);
  else if (starts.length) showPath(panel, starts, node >= 0 ? panel.model.boxLabel(panel.graph, node) : box.label);
}

export function showPath(panel, starts, label) {
  const graph = panel.model.graphs[panel.graph];
  panel.way = wayThrough(graph.edges, starts, label);
  pathChanged(panel);
}

export function endPath(panel) {
  panel.way = null;
  pathChanged(panel);
}

function pathChanged(panel) {
  relight(panel);
  sayPath(panel);
  panel.remember();
}

/** Say which way is shown, and how much of the graph lies on it. */
export function sayPath(panel) {
  const { way, selection, words } = panel,
    { pathButton } = panel.drawer,
    count = panel.model.graphs[panel.graph]?.count ?? 0;
  hide(panel.wayChip, !way, pathButton, panel.graphView.marks[panel.graphView.focused]?.element);
  panel.stage.classList.toggle("on-path", Boolean(way));
  say(panel.wayText, way ? worded(words.path, { label: way.label, on: digits(way.nodes.size), nodes: count }) : "");
  const ends = way && selection && way.starts.join() === String(selection.node);
  say(pathButton, ends ? words.end_path : words.show_path);
  pathButton.title = ends ? words.end_path_keys : words.show_path_keys;
}

/** Light what is asked for: the line that is picked, else what was found, else the way. */
export function relight(panel) {
  light(panel, panel.lit ?? (panel.search.found.length ? new Set(panel.search.found) : null));
}

/** Light some nodes; the way, where there is one, as soon as there are none. */
export function light({ way, graphView }, nodes) {
  graphView.way = nodes || !way ? null : { nodes: way.nodes, on: linesOf(graphView.graph, way) };
  graphView.highlight(nodes ?? way?.nodes ?? null);
}

// How a run was looked at: a cell that is run again shows its graph so again. Nothing of it leaves the page.

/** @typedef {{open:Set<string>, spread:boolean, view:{k:number, x:number, y:number, size:string}|null, node:number, way:{starts:number[], label:string}|null}} Look how one graph was looked at; x and y: what was in the middle */
/** @typedef {{mode:string, opened:boolean|null, tall:string, graphs:Map<string, Look>, open:Set<string>}} Looks of one place in the page; `open`: of the graph that was looked at last */

const MOST_LOOKS = 12; // graphs that one place remembers

/** What is known of the place in which an element stands: a notebook keeps the output area of a cell when the cell is run
 * again. Elsewhere a page is one place, and the title tells its runs apart. */
export function looksAt(element, title) {
  const places = globalThis.tensormagicLooks ??= new WeakMap(),
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

/** How the graph that is shown was looked at before; undefined where nobody has. */
export function known(panel) {
  return panel.looks?.graphs.get(panel.likeness);
}

/** Write down how the graph is looked at now. */
export function note(panel) {
  const { looks, graphView, folds, selection, way } = panel;
  if (!looks || !graphView.graph || !panel.likeness) return;
  const { width, height } = graphView.clear(),
    { k, x, y } = graphView.view,
    open = folds.openKeys();
  const seen = { k, x: (width / 2 - x) / k, y: (height / 2 - y) / k, size: sizeOf(panel) },
    view = graphView.wanted ?? (graphView.moved ? seen : null);
  looks.graphs.delete(panel.likeness);
  looks.graphs.set(panel.likeness, {
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

/** Where a view fits: in a picture of the same boxes. */
function sizeOf({ graphView: { graph } }) {
  return `${graph.boxes.length} ${Math.round(graph.size.width)} ${Math.round(graph.size.height)}`;
}

/** Look at a graph as it was looked at before: what was chosen, the way, the piece that was in view. */
export function recall(panel) {
  const look = known(panel),
    { graphView, looks } = panel;
  if (looks?.tall) {
    graphView.sized = true;
    graphView.element.style.height = looks.tall;
  }
  if (!look) return;
  const box = graphView.graph.boxOf.get(look.node);
  if (box !== undefined) choose(panel, box, look.node);
  if (look.way) showPath(panel, look.way.starts, look.way.label);
  if (look.view?.size === sizeOf(panel)) graphView.wanted = look.view;
  graphView.resize();
}
