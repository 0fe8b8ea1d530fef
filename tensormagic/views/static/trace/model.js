/** A trace document, decoded: columns turned back into what the views ask for. Everywhere in the viewer a graph, a node, a box
 * and an edge are numbers: their places in the lists of the document. */

import { worded } from "../dom.js";
import { changed, decoded, stepped } from "./words.js";
import { placesOf } from "./folds.js";

/** A trace document with its columns turned back into what the views ask for. */
export class Model {
  constructor(doc) {
    this.doc = doc;
    this.graphs = doc.graphs.map((graph) => ({ ...decodedGraph(graph), words: doc.words }));
    this.passNumbers = doc.passes.map((row) => row[0]);
    this.series = doc.parameters.map((parameter) => [...decoded(stepped(parameter.norms))]);
    /** Of one pass those inside it come first. */
    this.frames = this.graphs
      .flatMap((graph, place) => graph.frames.map((frame) => ({ graph: place, frame })))
      .sort((left, right) => left.frame.pass - right.frame.pass || right.graph - left.graph);
    this.rowOfLocation = new Map(
      doc.source.flatMap(([, , locations], place) => locations.map((location) => [location, place])),
    );
  }

  /** What backward was called on in each kept pass, where all calls stand on one line; else nothing. */
  losses() {
    const rows = this.doc.passes;
    if (rows.some((row) => row[1] !== rows[0][1])) return [];
    return rows.map(([, , value]) => (value === null ? undefined : typeof value === "number" ? value : value.endsWith("inf") ? Infinity : NaN));
  }

  /** What went along an edge into a slot that several feed; undefined along others. */
  part(graph, edge, pass) {
    const at = this.graphs[graph].shared.get(edge);
    const frame = at === undefined ? null : this.graphs[graph].frames.find((one) => one.pass === pass);
    return frame && frame.parts.length ? frame.parts[at] : undefined;
  }

  node(graph, index) {
    const columns = this.doc.graphs[graph].nodes,
      text = this.doc.strings;
    return {
      index,
      op: text[columns.op[index]],
      name: text[columns.name[index]],
      kind: text[columns.kind[index]],
      location: columns.location[index],
      guessed: columns.guessed.includes(index),
      module: text[columns.module[index]],
      variable: text[columns.variable[index]],
      shapes: text[columns.shapes[index]],
      dtype: text[columns.dtype[index]],
      device: text[columns.device[index]],
      statistics: columns.statistics[index],
      saved: columns.saved[index]
        .map((place) => this.doc.saved[place])
        .map(([name, shape, dtype, nbytes, state]) =>
          ({ name: text[name], shape: text[shape], dtype: text[dtype], nbytes, state: text[state] })),
    };
  }

  nodeLabel(graph, index) {
    const columns = this.doc.graphs[graph].nodes,
      text = this.doc.strings;
    return (text[columns.kind[index]] === "accumulate" && text[columns.variable[index]]) || text[columns.op[index]];
  }

  /** As its box names it, with its own op where the box stands for more. */
  boxLabel(graph, index) {
    const box = this.graphs[graph].boxes[this.graphs[graph].boxOf.get(index)];
    if (!box?.nodes.includes(index)) return this.nodeLabel(graph, index);
    return box.nodes.length === 1 ? box.label : `${box.label} (${this.nodeLabel(graph, index)})`;
  }

  /** What a box stands for, with every name in full. */
  boxTip(graph, place) {
    const box = this.graphs[graph].boxes[place],
      facts = this.node(graph, box.nodes[0]);
    const head = worded(this.doc.words.in_box, { ...facts, nodes: box.nodes.length > 1 && box.nodes.length });
    const leaves = box.badges.slice(0, 12).map(([node]) => this.nodeLabel(graph, node));
    if (box.badges.length > leaves.length) leaves.push(worded(this.doc.words.more_leaves, { more: box.badges.length - leaves.length }));
    return [head, facts.shapes, facts.module, ...leaves].filter(Boolean).join("\n");
  }

  placeOf(graphNumber) {
    return this.doc.graphs.findIndex((graph) => graph.number === graphNumber);
  }
}

function decodedGraph(graph) {
  const boxes = graph.drawing.boxes.map(
    ([x, y, w, h, nodes, label, detail, kind, badges, written]) =>
      ({ x, y, w, h, nodes, label, detail, kind, badges, written }),
  );
  const rows = (name) => changed(graph.frames.map((frame) => frame[name] ?? []));
  const [norms, parts] = [rows("norms"), rows("parts")],
    [steps, below, inputs] = graph.edges,
    sources = stepped(steps);
  return {
    ...graph,
    count: graph.nodes.op.length,
    boxes,
    boxOf: placesOf(boxes),
    nonfinite: graph.first_nonfinite,
    forwardMark: graph.forward_mark,
    size: { width: graph.drawing.width, height: graph.drawing.height },
    opened: [],
    cutWires: graph.ends?.wires ?? [],
    edges: [sources, below.map((distance, at) => sources[at] - distance), inputs],
    order: stepped(graph.order),
    shared: new Map(graph.shared_edges.map((edge, at) => [edge, at])),
    wires: graph.drawing.wires.map(([source, target, ...points]) => ({ source, target, points })),
    frames: graph.frames.map((frame, at) => ({
      ...frame,
      norms: decoded(norms[at]),
      bad: decodedBad(frame.bad),
      forward: frame.forward && { ...frame.forward, norms: decoded(frame.forward.norms), bad: decodedBad(frame.forward.bad) },
      parts: decoded(parts[at]),
    })),
  };
}

/** What decoded graphs that are drawn alike have in common. */
export function pictureOf({ number, count, drawing }) {
  return JSON.stringify([number, count, drawing.boxes, drawing.wires.length]);
}

/** What is not finite, by node: how many NaN, how many infinite. */
function decodedBad(rows) {
  return new Map(rows.map(([node, nan, inf]) => [node, [nan, inf]]));
}
