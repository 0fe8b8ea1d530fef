// @ts-check
/** Where a run ended: a frame round the box with the call that torch refused, or the node that was running. */

import { svg } from "./words.js";
import { HEAD } from "./constants.js";

const CRASH_LETTER = 6.1; // how wide a letter of the words is, about

export const CRASH_BELOW = 15; // from the lowest line of the box down to the words: above it stand numbers

/** @param {any} graph the boxes that are shown now @returns {Element[]} */
export function crashMarks(graph) {
  const { crash, boxes, boxOf, size } = graph,
    box = crash && boxes[boxOf.get(crash.node)];
  if (!box) return [];
  const wide = CRASH_LETTER * crash.words.length + 14,
    x = Math.max(Math.min(box.x + (box.w - wide) / 2, size.width - wide), 0),
    y = box.y + box.h + CRASH_BELOW;
  return [
    svg(
      "g",
      { class: "crash" },
      svg("title", {}, crash.words),
      svg("rect", { x: box.x - 2, y: box.y - 2, width: box.w + 4, height: HEAD + 4, rx: 5 }),
      svg("path", { d: `M${x} ${y - 8}l8 8m0-8l-8 8` }),
      svg("text", { x: x + 14, y }, crash.words),
    ),
  ];
}
