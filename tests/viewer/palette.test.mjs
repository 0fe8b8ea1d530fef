// How often the far picture and the map ask the style sheet for their colours, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { inks, palette } from "./trace/minimap.js";

let asked = [];
let dark = false;
const made = () => ({ style: { color: "" } });
globalThis.getComputedStyle = (element) => {
  asked.push(element.style.color);
  return { color: `${element.style.color} ${dark ? "dark" : "light"}` };
};
const reads = (look) => {
  asked = [];
  const told = look();
  return [told, asked.filter((one) => one !== "var(--bg)").length];
};

test("a colour is read once, and the next picture takes it as read", () => {
  const element = made();
  assert.deepEqual(reads(() => palette(element, 0)("--n3")), ["var(--n3) light", 1]);
  assert.deepEqual(reads(() => palette(element, 900)("--n3")), ["var(--n3) light", 0]);
  assert.deepEqual(reads(() => palette(made(), 900)("--n3")), ["var(--n3) light", 1]);
});

test("after a while colours are read again, and at once where the theme is another", () => {
  const element = made();
  palette(element, 0)("--n3");
  assert.deepEqual(reads(() => palette(element, 1001)("--n3")), ["var(--n3) light", 1]);
  dark = true;
  assert.deepEqual(reads(() => palette(element, 1002)("--n3")), ["var(--n3) dark", 1]);
  dark = false;
});

test("each state has a colour", () => {
  const ink = inks(made());
  assert.deepEqual(
    ["bad", "wait", "blind", "n0", "zero"].map(ink),
    ["--error", "--line", "--line-2", "--n0", "--line-2"].map((name) => `var(${name}) light`),
  );
});
