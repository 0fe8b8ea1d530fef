/**
 * The trace viewer while a kernel feeds it: `update` shows newer documents (tensormagic/views/page/document.py), `delta`
 * the newest gradient norms. No dependency, no request, no innerHTML: all text becomes text nodes. A delta touches only
 * the attributes that changed and is painted at most once a frame.
 */

import { fed, html, keepingKeys } from "../dom.js";
import { Panel } from "./panel.js";

/** What anywidget calls, once a view. */
function render({ model, el }) {
  const section = keepingKeys(html("section", { class: "tm tm-trace" }));
  el.append(section);
  const panel = new Panel(section, model.get("_document"), { live: true });
  const link = new Link(el, panel);
  const end = fed(
    model,
    (doc) => {
      link.heard();
      panel.update(doc);
    },
    (_content, buffers) => {
      link.heard();
      panel.delta(...unpackDelta(buffers[0]));
    },
  );
  const told = () => link.told();
  model.on("comm_live_update", told);
  return () => {
    model.off("comm_live_update", told);
    link.end();
    end();
    panel.dispose();
  };
}

// What comes from a kernel, taken apart, and whether one still feeds a live panel: where it has gone, the panel must not run for ever.

export const SILENT = 10; // seconds without a word, of which the kernel sends one every 4 (live.py)
const LOOK_MILLISECONDS = 1000;

/** What a live panel hears of its kernel, and since when nothing. */
export class Link {
  /** element: of the panel; clock: milliseconds */
  constructor(element, panel, clock = () => performance.now()) {
    this.element = element;
    this.panel = panel;
    this.clock = clock;
    this.last = clock();
    this.timer = setInterval(() => this.look(), LOOK_MILLISECONDS);
  }

  /** The kernel said something. */
  heard() {
    this.last = this.clock();
    this.panel.headline.silent = 0;
    const { doc } = this.panel.model;
    if (doc.state !== "lost") return;
    this.panel.following = true; // it was the way to it that was cut
    this.panel.update({ ...doc, state: "running" });
  }

  /** The host says whether its kernel is there: JupyterLab marks a widget that has none. */
  told() {
    if (this.element.closest(".jupyter-widgets-disconnected")) lose(this.panel);
  }

  look() {
    if (!this.panel.running) return;
    const seconds = (this.clock() - this.last) / 1000;
    if (seconds >= SILENT && cellEnded(this.element)) lose(this.panel);
    else this.panel.headline.silent = seconds >= SILENT ? Math.round(seconds) : 0;
  }

  end() {
    clearInterval(this.timer);
  }
}

/** Whether the host says that the cell has ended; where it has another sign, or none, nobody knows. */
export function cellEnded(element) {
  const prompt = element.closest(".jp-Cell")?.querySelector(".jp-InputPrompt")?.textContent ?? "";
  return /^\s*\[[ \d]*\]/.test(prompt);
}

/** The kernel has gone while the cell ran: what it sent last stays, and is called that. */
function lose(panel) {
  if (!panel.running) return;
  const { step, pass, seconds } = panel.headline.told;
  panel.update({ ...panel.model.doc, state: "lost", steps_seen: step, passes_seen: pass, seconds });
}

// Takes apart what a kernel sends of a run that goes on: one buffer, written by columns.py.

const NUMBERS = ["structure", "graph", "pass", "step", "running", "cursor", "reached", "finished", "seconds", "paused", "next", "nodes", "parameters"];

/** view: of the message's buffer */
export function unpackDelta({ buffer, byteOffset, byteLength }) {
  const bytes = buffer.slice(byteOffset, byteOffset + byteLength), // numbers have to be aligned
    numbers = new Float64Array(bytes, 0, NUMBERS.length),
    header = Object.fromEntries(NUMBERS.map((name, at) => [name, numbers[at]]));
  for (const name of ["running", "paused"]) header[name] = Boolean(header[name]);
  return [header, new Float32Array(bytes, numbers.byteLength)];
}

export default { render };
