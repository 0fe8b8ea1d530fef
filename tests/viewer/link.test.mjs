// What a live panel makes of a kernel that says nothing, or has gone, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Link, SILENT, cellEnded } from "./trace/viewer.js";

const cell = (prompt) => ({ closest: (what) => (what === ".jp-Cell" ? { querySelector: () => ({ textContent: prompt }) } : null) });
const made = (element) => {
  const panel = {
      running: true,
      model: { doc: { state: "running" } },
      headline: { silent: 0, told: { step: 3, pass: 2, seconds: 1.5 } },
      update: (doc) => Object.assign(panel, { model: { doc }, running: doc.state === "running" }),
    },
    time = { now: 0 },
    link = new Link(element, panel, () => time.now);
  link.end();
  return { panel, time, link };
};

test("silence is told only once it is long, and forgotten with the next word", () => {
  const { panel, time, link } = made(cell("[*]:"));
  time.now = SILENT * 1000 - 1;
  link.look();
  assert.equal(panel.headline.silent, 0);
  time.now += 2000;
  link.look();
  assert.deepEqual([panel.headline.silent, panel.running], [SILENT + 2, true]);
  link.heard();
  assert.equal(panel.headline.silent, 0);
});

test("a silent kernel whose cell has ended is gone; a word brings it back", () => {
  const { panel, time, link } = made(cell("[ ]:"));
  link.look();
  assert.ok(panel.running);
  time.now = SILENT * 1000;
  link.look();
  assert.deepEqual(panel.model.doc, { state: "lost", steps_seen: 3, passes_seen: 2, seconds: 1.5 });
  link.heard();
  assert.ok(panel.running);
});

test("prompts tell whether a cell has ended where there are any", () => {
  assert.deepEqual(["[7]:", "[ ]:", "[*]:", ""].map((prompt) => cellEnded(cell(prompt))), [true, true, false, false]);
  assert.equal(cellEnded({ closest: () => null }), false);
});

test("the host's own mark is believed at once", () => {
  const { panel, link } = made({ closest: (what) => (what === ".jupyter-widgets-disconnected" ? {} : null) });
  link.told();
  assert.ok(!panel.running);
});
