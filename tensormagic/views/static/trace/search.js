/** Finding nodes by name, op, module, variable or line: all that match are lit, and gone through one by one. */

import { html, take, worded } from "../dom.js";
import { say } from "./words.js";

/** A field, how many were found, and which of them is shown. */
export class Search {
  /** in the order in which backward reaches them */ found = [];
  at = -1;
  /** what each node can be found by */ texts;
  graph = 0;
  /** while what was typed last is not looked for yet */ timer;

  constructor(words, hooks) {
    this.words = words;
    this.hooks = hooks;
    this.field = html("input", {
      type: "search",
      placeholder: words.search,
      "aria-label": words.search_for,
      title: words.search_keys,
      spellcheck: "false",
      autocomplete: "off",
      input: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.look(), 80);
      },
      keydown: (event) => this.key(event),
    });
    this.count = html("span", { class: "hits", "aria-live": "polite" });
    this.element = html("span", { class: "search" }, this.field, this.count);
  }

  load(model, graph) {
    this.model = model;
    this.graph = graph;
    this.texts = undefined;
    if (this.field.value) this.look();
  }

  look() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const wanted = this.field.value.trim().toLowerCase();
    this.at = -1;
    if (!wanted || !this.model?.doc.graphs.length) {
      this.found = [];
      say(this.count, "");
      return this.hooks.light(null);
    }
    this.found = this.matches(wanted);
    this.sayCount();
    this.hooks.light(new Set(this.found));
  }

  matches(wanted) {
    const { doc, graphs } = this.model,
      { nodes } = doc.graphs[this.graph],
      line = wanted.match(/^(?:line|l)\s*(\d+)$/)?.[1],
      words = wanted.split(/\s+/),
      textOf = (node) => ["op", "name", "module", "variable"].map((name) => doc.strings[nodes[name][node]]).join("\n").toLowerCase(),
      inOrder = new Set([...graphs[this.graph].order, ...nodes.op.keys()]);
    this.texts ??= [...nodes.op.keys()].map(textOf); // made when it is first searched
    const hits = (node) =>
      line
        ? nodes.location[node] !== null && doc.locations[nodes.location[node]][1] === Number(line)
        : words.every((word) => this.texts[node].includes(word));
    return [...inOrder].filter(hits);
  }

  sayCount() {
    const { length } = this.found,
      { words } = this;
    say(this.count, worded(this.at >= 0 ? words.hit : length ? words.hits : words.no_hits, { at: this.at + 1, found: length }));
    this.count.classList.toggle("none", !length);
  }

  go(step) {
    if (this.timer || !this.found.length) this.look();
    const { length } = this.found;
    if (!length) return;
    this.at = this.at < 0 ? (step > 0 ? 0 : length - 1) : (this.at + step + length) % length;
    this.sayCount();
    this.hooks.show(this.found[this.at]);
  }

  clear() {
    this.field.value = "";
    this.look();
  }

  key(event) {
    if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && this.field.value) this.clear();
    else if (event.key === "Escape") this.hooks.leave();
    else return event.stopPropagation();
    take(event);
  }
}
