/** The viewer in an output that stays: the static picture gives way to it, and the outputs of a page share its style. */

import { dataIn, html } from "../dom.js";
import { Panel } from "./panel.js";

/** Draw what the outputs within an element hold, each once. key: names this very viewer; rules: its style sheet; words: what it says: the same in all documents. */
export async function mountSaved(scope, unpacked, key, rules, words) {
  for (const section of [scope, ...scope.querySelectorAll("section")]) {
    const place = section.querySelector(".tm-static"), held = section.querySelector("script.tm-document");
    if (!section.matches(".tm-trace[data-tm-waiting]") || !place || !held) continue;
    section.removeAttribute("data-tm-waiting");
    const doc = await dataIn(held, unpacked), drawn = html("div");
    shareStyle(section, key, rules);
    const slide = section.matches(".tm-slides"); // there the picture's place is one of the slides
    if (slide) place.replaceChildren(drawn);
    else place.before(drawn); // in its place from the start: it asks there how the cell was looked at before
    new Panel(drawn, { ...doc, words });
    if (!slide) place.remove();
  }
}

/** One style sheet for all outputs of a page, or of a shadow root: thirty copies would slow every change in the page. */
function shareStyle(section, key, rules) {
  const own = section.querySelector("style"), root = section.getRootNode();
  if (!own) return;
  const whole = own.textContent + rules;
  try {
    const shared = (root.tensormagicSheets ??= {});
    if (!shared[key]) {
      shared[key] = new CSSStyleSheet();
      shared[key].replaceSync(whole);
      root.adoptedStyleSheets = [...root.adoptedStyleSheets, shared[key]];
    }
    own.remove();
  } catch {
    own.textContent = whole; // a browser without shared sheets
  }
}
