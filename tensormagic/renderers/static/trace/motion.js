// @ts-check
/** Boxes slide from where they stood to where they stand, so that a person sees what became of each. */

/** @typedef {import("./graph.js").GraphView} GraphView */

const MILLISECONDS = 200;
const MOST = 160; // boxes that are moved; of more the eye follows none

/** Where every box stands on the screen, by the part that it stands for. @param {GraphView} view @returns {Map<number, [number, number]>} */
export function standing({ graph, view: { k, x, y } }) {
  return new Map(
    graph.boxes.map((/** @type {any} */ box, /** @type {number} */ at) => [box.part ?? at, [box.x * k + x, box.y * k + y]]),
  );
}

/** @param {GraphView} view @param {Map<number, [number, number]>} before @param {[number, number]|null} from where new boxes come from */
export function slide(view, before, from) {
  if (globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches || view.onPaper()) return;
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
