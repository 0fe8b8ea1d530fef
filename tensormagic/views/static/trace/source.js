/** The user's lines, each with its nodes and the norm that reached them. */

import { html, worded } from "../dom.js";
import { UNTOUCHED, shortNorm, level, ofLine, say } from "./words.js";

/** The user's lines, each with how many nodes it made and the norm that reached them. */
export class Source {
  content = "";
  /** the content whose first interesting line was shown */ begun;
  /** the row to begin with */ start;

  constructor(words, hooks) {
    this.words = words;
    this.hooks = hooks;
    this.list = html("ol", { class: "lines" });
    this.element = html(
      "div",
      { class: "source" },
      html("div", { class: "part" }, words.source, html("span", { class: "quiet" }, words.per_line)),
      this.list,
    );
    this.rows = [];
    this.picked = -1;
  }

  load(model, graph) {
    const locations = model.doc.graphs.length ? model.doc.graphs[graph].nodes.location : [];
    const content = JSON.stringify([model.doc.source, locations]);
    if (content === this.content) return;
    this.content = content;
    this.picked = -1;
    const calls = new Set(model.doc.passes.map((row) => model.rowOfLocation.get(row[1]))); // of backward
    this.rows = model.doc.source.map(([line, text, places], place) => {
      const nodes = [...locations.keys()].filter((node) => places.includes(locations[node])),
        row = this.row(line, text, nodes, place, model.doc.graphs[graph]?.made[place]);
      row.element.classList.toggle("calls", calls.has(place));
      return row;
    });
    this.list.replaceChildren(...this.rows.map((row) => row.element));
  }

  row(line, text, nodes, place, made = []) {
    if (!line) return { nodes, element: html("li", { class: text ? "heading" : "omitted" }, text || "⋯"), state: "" };
    const bar = html("span", { class: "bar" }),
      value = html("span", { class: "reading" });
    const inner = [
      html("span", { class: "count" }, nodes.length ? String(nodes.length) : ""),
      html("span", { class: "gauge" }, bar),
      value,
      html("span", { class: "number" }, String(line)),
      html("code", {}, text || " "),
    ];
    if (made.length) inner.push(html("span", { class: "made quiet" }, made[made.length - 1]));
    const click = () => this.pick(this.picked === place ? -1 : place);
    const body = nodes.length
      ? html(
          "button",
          { class: "line", type: "button", click, "aria-pressed": "false", title: [worded(this.words.of_line, { nodes: nodes.length, line }), ...made].join("\n") },
          ...inner,
        )
      : html("span", { class: "line" }, ...inner);
    return { nodes, element: html("li", {}, body), bar, value, state: "" };
  }

  /** scale: log10 of its ends */
  paint(norms, scale) {
    for (const row of this.rows) {
      if (!row.nodes.length) continue;
      const norm = ofLine(row.nodes, norms),
        state = level(norm, scale),
        text = norm === UNTOUCHED ? this.words.wait : shortNorm(norm);
      say(row.value, text);
      if (state === row.state) continue;
      row.bar.setAttribute("class", `bar ${state}`);
      row.bar.style.width = `${state.length === 2 ? 25 + 15 * Number(state[1]) : 100}%`;
      row.value.classList.toggle("bad", state === "bad");
      row.state = state;
    }
  }

  /** place: -1 for none */
  pick(place) {
    this.picked = place;
    this.rows.forEach((row, at) => {
      row.element.classList.toggle("picked", at === place);
      if (row.nodes.length) row.element.firstElementChild.setAttribute("aria-pressed", String(at === place));
    });
    this.hooks.pick(place < 0 ? null : new Set(this.rows[place].nodes));
  }

  /** Mark the line of the selected node, and bring it into view. */
  mark(place) {
    this.rows.forEach((row, at) => row.element.classList.toggle("here", at === place));
    if (place === undefined) return;
    const line = this.rows[place].element,
      box = this.list;
    if (line.offsetTop < box.scrollTop || line.offsetTop > box.scrollTop + box.clientHeight - 20)
      box.scrollTop = line.offsetTop - box.clientHeight / 2;
  }

  /** Mark lines that findings are about. */
  warn(places) {
    this.rows.forEach((row, at) => row.element.classList.toggle("hit", places.has(at)));
    this.start = this.rows.findIndex((_row, at) => places.has(at));
    if (this.start < 0) this.start = this.rows.findIndex((row) => row.nodes.length);
    this.open();
  }

  /** Begin where something happened, once the list has a height. */
  open() {
    const row = this.rows[this.start ?? -1];
    if (!row || !this.list.clientHeight || this.begun === this.content) return;
    this.begun = this.content;
    this.list.scrollTop = row.element.offsetTop - 60;
  }
}
