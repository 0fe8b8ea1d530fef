/** What every script does with a page: makes elements, says counts, takes keys before the notebook does. */

/** An element with more: a function among the attributes listens, true is an empty attribute, and what is false or null is not there. */
export function filled(element, attributes, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A new element. */
export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** A count, as in Python (tensormagic/words.py). */
export function digits(count) {
  return count < 10000 ? String(count) : String(count).replace(/\B(?=(\d{3})+$)/g, "\u00a0");
}

export function plural(count, one, many = `${one}s`) {
  return `${digits(count)} ${count === 1 ? one : many}`;
}

/** A sentence of Python's with its numbers and names: ``{pass}``, or with what is counted, ``{nodes node}``, ``{leaves leaf/leaves}``;
 * a part in brackets is left out where something in it is 0 or empty. */
export function worded(sentence, values = {}) {
  const known = (part) => [...part.matchAll(/\{(\w+)/g)].every(([, name]) => values[name]);
  return sentence
    .replace(/\[([^\]]*)\]/g, (_, part) => (known(part) ? part : ""))
    .replace(/\{(\w+) ?([^}]*)\}/g, (_, name, noun) => (noun ? plural(values[name], ...noun.split("/")) : values[name]));
}

/** Whether a key is a command of the browser's, or of the notebook's. */
export function isCommand({ ctrlKey, metaKey, altKey }) {
  return ctrlKey || metaKey || altKey;
}

/** Which way an arrow key leads, across and down; null for other keys, and for commands. */
export function arrowOf(event) {
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  return (!isCommand(event) && ways[event.key]) || null;
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** Nobody else is to act on it. */
export function take(event) {
  event.preventDefault();
  event.stopPropagation();
}

/** Through the clipboard, which only pages from https or this machine have; else as people copied before there was one. Returns whether it could. */
export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement,
      field = html("textarea", { style: "position:fixed;top:0;opacity:0", "aria-hidden": "true", "data-lm-suppress-shortcuts": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    before?.focus?.({ preventScroll: true });
    return done;
  }
}

/** The data of a panel: packed, where it is large. */
export async function dataIn(block, unpacked) {
  return JSON.parse(block.type === "application/json" ? block.textContent : await unpacked(block.textContent));
}

/** Whatever has the focus in a panel keeps its keys, Escape leads back to the cell. JupyterLab asks what has the focus, and
 * nothing around it: two d on a heading would delete the cell. */
export function keepingKeys(panel) {
  panel.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) panel.closest(".jp-Cell")?.focus();
  });
  return panel;
}

/** Listens to the model of a widget: to newer documents, and to messages of its kernel. Returns what ends that. */
export function fed(model, show, received) {
  const changed = () => show(model.get("_document"));
  model.on("change:_document", changed);
  model.on("msg:custom", received);
  return () => {
    model.off("change:_document", changed);
    model.off("msg:custom", received);
  };
}
