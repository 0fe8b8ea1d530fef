// @ts-check
/** What is in words round the picture: where backward is, which graph, what is not shown. */

import { NOT_MEASURABLE, UNTOUCHED } from "./constants.js";
import { digits, html, say, plural } from "./words.js";

/** @typedef {import("./panel.js").Panel} Panel */
/** @typedef {import("./constants.js").Picture} Picture */

/** @param {Panel} panel */
export function drawNotes(panel) {
  const { doc } = panel.model,
    lines = [...doc.cuts, ...doc.gaps.map((/** @type {string[]} */ [section, reason]) => `${section}: ${reason}`)];
  panel.notes.replaceChildren(...lines.map((line) => html("p", {}, line)));
  panel.notes.hidden = !lines.length;
}

/** @param {Panel} panel */
export function sayBoxes(panel) {
  const { drawing, boxes, count } = panel.model.graphs[panel.graph];
  const words = boxes.length < count ? ` in ${plural(boxes.length, "box")}` : "";
  say(panel.graphNote, `${plural(count, "node")}${words}`);
  panel.graphNote.title = drawing.note;
}

/** @param {Panel} panel */
export function warnLines(panel) {
  const { doc, rowOfLocation } = panel.model,
    serious = doc.findings.filter(
      (/** @type {any} */ finding) => finding.severity !== "note" && finding.location !== null,
    );
  panel.source.warn(new Set(serious.map((/** @type {any} */ finding) => rowOfLocation.get(finding.location))));
}

/** @param {Panel} panel @param {number} place */
export function fillChooser(panel, place) {
  const { doc, graphs } = panel.model;
  panel.chooser.hidden = graphs.length < 2;
  panel.chooser.replaceChildren(
    ...graphs.map((one, at) => html("option", { value: at, selected: at === place }, doc.graphs[at].name)),
  );
}

/** @param {Panel} panel @param {Picture} picture */
export function sayWhere(panel, picture) {
  const graph = panel.model.graphs[panel.graph];
  if (picture.running && picture.cursor >= 0)
    return say(
      panel.whereabouts,
      `◀ backward ${panel.model.doc.state === "lost" ? "was" : "is"} at ${panel.model.boxLabel(panel.graph, picture.cursor)}, node ${digits(panel.reached)} of ${digits(graph.count)}`,
    );
  let touched = 0,
    bad = 0,
    blind = 0;
  for (const norm of picture.norms) {
    if (norm !== UNTOUCHED) touched += 1;
    if (norm < UNTOUCHED) blind += 1;
    if (!Number.isFinite(norm)) bad += 1;
  }
  if (blind) panel.stage.classList.add("has-blind");
  const waiting = graph.count - touched;
  const unfinished = Boolean(graph.crash) && !panel.model.doc.graphs[panel.graph].passes_seen;
  panel.root.classList.toggle("drawn", panel.model.doc.state === "drawn" || unfinished);
  if (unfinished) return say(panel.whereabouts, "what autograd had recorded when the call was refused");
  if (panel.model.doc.state === "drawn") return say(panel.whereabouts, "the backward graph, right to left");
  say(
    panel.whereabouts,
    `${picture.pass ? `pass ${picture.pass}: ` : ""}${digits(touched)} of ${plural(graph.count, "node")} reached${bad ? `, ${bad} with NaN or Inf` : ""}${blind ? `, ${blind} ${NOT_MEASURABLE}` : ""}${waiting && touched && !picture.running ? `, ${waiting} untouched` : ""}`,
  );
}
