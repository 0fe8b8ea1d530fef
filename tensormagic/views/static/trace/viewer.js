// @ts-check
/**
 * The trace viewer: one module, two transports.
 *
 * `mount(element, document)` draws a trace document (tensormagic/views/page/document.py) into an element and
 * returns a handle; the saved page calls it once, the live panel calls `update` with newer documents and `delta` with
 * the newest gradient norms. The default export is what anywidget calls. No dependency, no request, no innerHTML: all
 * text becomes text nodes. A delta touches only the attributes that changed and is painted at most once a frame.
 */

import { html } from "./words.js";
import { Panel } from "./panel.js";
import { Link, unpackDelta } from "./link.js";

/**
 * Draw a trace document into an element.
 * @param {Element} element @param {any} doc @param {{live?:boolean}} [options]
 * @returns {{update:(doc:any)=>void, delta:(view:DataView)=>void, dispose:()=>void}}
 */
export function mount(element, doc, options = {}) {
  const panel = new Panel(element, doc, options);
  return {
    update: (newer) => panel.update(newer),
    delta: (view) => panel.delta(...unpackDelta(view)),
    dispose: () => panel.dispose(),
  };
}

/**
 * What anywidget calls, once a view.
 * @param {{model:any, el:Element}} context
 */
function render({ model, el }) {
  const section = html("section", { class: "tm tm-trace" });
  section.addEventListener("focusin", (/** @type {Event} */ event) => { // two d on a heading would delete the cell
    if (event.target instanceof Element) event.target.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  section.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && !event.defaultPrevented) /** @type {HTMLElement?} */ (section.closest(".jp-Cell"))?.focus();
  });
  el.append(section);
  const panel = new Panel(section, model.get("_document"), { live: true });
  const link = new Link(el, panel);
  const changed = () => {
    link.heard();
    panel.update(model.get("_document"));
  };
  const received = (/** @type {any} */ _content, /** @type {DataView[]} */ buffers) => {
    link.heard();
    panel.delta(...unpackDelta(buffers[0]));
  };
  model.on("change:_document", changed);
  model.on("msg:custom", received);
  const told = () => link.told();
  model.on("comm_live_update", told);
  return () => {
    model.off("comm_live_update", told);
    link.end();
    model.off("change:_document", changed);
    model.off("msg:custom", received);
    panel.dispose();
  };
}

export default { render };
