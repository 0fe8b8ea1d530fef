// What a style says, as attributes of SVG: no page is needed for that.
import assert from "node:assert/strict";
import { test } from "node:test";
import { attributes, escaped, gradient, items, paint, part } from "./export/paints.js";

const BOX = { left: 10, top: 20, width: 40, height: 20 };

test("colours become a paint and its opacity, or nothing where nothing is seen", () => {
  assert.deepEqual(paint("fill", "rgb(1, 2, 3)"), { fill: "rgb(1,2,3)" });
  assert.deepEqual(paint("stroke", "rgba(1, 2, 3, 0.5)"), { stroke: "rgb(1,2,3)", "stroke-opacity": "0.5" });
  assert.deepEqual(paint("fill", "color(srgb 1 0.5 0 / 0.25)"), { fill: "rgb(255,128,0)", "fill-opacity": "0.25" });
  assert.deepEqual(paint("fill", "color(srgb 1e-7 0 0)"), { fill: "rgb(0,0,0)" });
  for (const unseen of ["rgba(0, 0, 0, 0)", "none", "", "url(#a)"]) assert.equal(paint("fill", unseen), null);
});

test("text stays text, and what XML cannot say is left out", () => {
  assert.equal(escaped(`<a href="&">`), "&#60;a href=&#34;&#38;&#34;&#62;");
  assert.equal(escaped("a\0\u001b[1m\ud800b\uffff"), "a[1mb");
  assert.equal(escaped("é 模型 \u{1f600}\tx"), "é 模型 \u{1f600}\tx");
  assert.equal(attributes({ x: 1.23456, fill: '"' }), ' x="1.23" fill="&#34;"');
});

test("a list is cut at the commas outside brackets", () => {
  assert.deepEqual(items("rgb(1, 2, 3) 0px, rgba(0, 0, 0, 0) 4px"), ["rgb(1, 2, 3) 0px", "rgba(0, 0, 0, 0) 4px"]);
});

test("a gradient runs along its angle, through the middle of the box", () => {
  const ends = (image) => /x1="(\S+)" y1="(\S+)" x2="(\S+)" y2="(\S+)"/.exec(gradient(image, BOX, "g")).slice(1).map(Number);
  assert.deepEqual(ends("linear-gradient(rgb(0, 0, 0), rgb(1, 1, 1))"), [30, 20, 30, 40]);
  assert.deepEqual(ends("linear-gradient(90deg, rgb(0, 0, 0), rgb(1, 1, 1))"), [10, 30, 50, 30]);
  assert.deepEqual(ends("linear-gradient(to left, rgb(0, 0, 0), rgb(1, 1, 1))"), [50, 30, 10, 30]);
  const hatch = gradient("repeating-linear-gradient(90deg, rgb(9, 9, 9) 0px, rgb(9, 9, 9) 1px, rgba(0, 0, 0, 0) 1px, rgba(0, 0, 0, 0) 4px)", BOX, "g");
  assert.match(hatch, /x1="10" y1="30" x2="14" y2="30" gradientUnits="userSpaceOnUse" spreadMethod="repeat"/);
  assert.deepEqual([...hatch.matchAll(/offset="([^"]+)"/g)].map((found) => Number(found[1])), [0, 0.25, 0.25, 1]);
  assert.equal(gradient("none", BOX, "g"), null);
  assert.equal(gradient('url("data:x")', BOX, "g"), null);
});

test("a background fills the part of its box that it is told to", () => {
  assert.deepEqual(part(BOX, "auto", "0% 0%"), BOX);
  assert.deepEqual(part(BOX, "100% 18px", "0px 1px"), { left: 10, top: 21, width: 40, height: 18 });
  assert.deepEqual(part(BOX, "16px 10px", "8px 50%"), { left: 18, top: 25, width: 16, height: 10 });
});
