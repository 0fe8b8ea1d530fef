// Brings the panels of a page together with the code that they share. An output carries a piece of code, packed, in an
// inert element under its key, or an empty element with the number of the cell whose output carries it; whichever comes
// first waits for the other. A page unpacks each piece once. What the panel was is kept before a script touches it.
// A page may hold outputs of several versions, and one script takes the elements of all: what they are called stays.
import { keepingKeys } from "./dom.js";

const unpacked = (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); // markup.py: gzip, in base 64
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
const mountPanels = (script, elsewhere) => {
  const shared = (globalThis.tensormagicScripts ??= {}), patience = 4000;
  const pieceOf = (key) => (shared[key] ??= newPiece(key));
  const run = (key, source) => {
    const element = document.createElement("script"); // needs neither a request nor a blob
    element.textContent = `tensormagicScripts[${JSON.stringify(key)}].mount = (() => {"use strict";${source}})()`;
    document.head.append(element);
    element.remove();
    return shared[key].mount;
  };
  const newPiece = (key) => {
    const piece = {};
    piece.ready = new Promise((come) => { piece.come = come; }).then(async (text) => run(key, await unpacked(text)));
    return piece;
  };
  const panelOf = (element) => {
    let panel = element.closest("section.tm"), outer = panel;
    while ((outer = outer?.parentElement?.closest("section.tm"))) panel = outer;
    return panel;
  };
  const missing = (panel, piece, cell) => {
    if (piece.text) return;
    const line = panel.appendChild(document.createElement("p"));
    line.style.cssText = "margin:0;padding:3px 14px;font:var(--t-xs,12px)/1.5 var(--font-ui);color:var(--ink-2)";
    line.textContent = elsewhere.replace("{cell}", cell);
    piece.ready.then(() => line.remove());
  };
  const mountFor = (element) => {
    const { tmCode: key, tmCell: cell } = element.dataset, panel = panelOf(element), piece = pieceOf(key);
    if (!panel || element.tensormagicTaken) return;
    element.tensormagicTaken = true;
    if (panel.tensormagicSource === undefined) {
      panel.tensormagicSource = panel.outerHTML;
      keepingKeys(panel);
    }
    if (typeof DecompressionStream === "undefined") return;
    if (element.textContent) piece.come((piece.text ??= element.textContent));
    else if (cell && !key.startsWith("export")) setTimeout(missing, patience, panel, piece, cell);
    piece.ready.then((mount) => mount(panel, unpacked, key));
  };
  for (const root of new Set([document, script?.getRootNode() ?? document])) root.querySelectorAll("script[data-tm-code]").forEach(mountFor);
};
