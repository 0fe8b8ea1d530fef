// @ts-check
/** Says what is new in a running trace to who hears the page: politely, and at most once a second. */

import { html } from "./words.js";

const BETWEEN_WORDS = 1000; // milliseconds between two announcements

/** A region that is heard, not seen. */
export class Announcer {
  /** @type {string[]} what was not said yet */ waiting = [];
  /** @type {any} */ timer = undefined;

  constructor() {
    this.element = html("div", { class: "tm-sr", role: "status", "aria-live": "polite" });
  }

  /** What a newer document says that the older did not: its findings, and that the run has ended.
   * @param {any} before @param {any} doc */
  compare(before, doc) {
    const known = new Set(before.findings.map(sameness));
    for (const finding of doc.findings)
      if (!known.has(sameness(finding))) this.say(`${finding.severity}: ${finding.message.replaceAll("`", "")}`);
    if (before.state === "running" && doc.state !== "running") this.say(doc.state === "lost" ? "the kernel is gone" : `the run is ${doc.state}`);
  }

  /** @param {string} words */
  say(words) {
    this.waiting.push(words);
    this.timer ??= setTimeout(() => this.speak());
  }

  /** All that waits is one announcement; the next comes a second later. */
  speak() {
    this.element.textContent = this.waiting.join(". ");
    this.waiting = [];
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (this.waiting.length) this.speak();
    }, BETWEEN_WORDS);
  }
}

/** What stays the same of a finding while its numbers go on: nobody wants to hear each of them. @param {any} finding */
function sameness({ code, where, subject, message }) {
  return [code, where, subject, message.replace(/\d+/g, "")].join("\n");
}
