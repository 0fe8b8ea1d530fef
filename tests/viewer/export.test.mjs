// What a style says, as attributes of SVG: no page is needed for that.
import assert from "node:assert/strict";
import { test } from "node:test";
import { attributes, escaped, gradient, items, paint, part } from "./export/drawing.js";

import { checksum, chunksOf, moving } from "./export/menu.js";

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

test("pictures become one that moves: frames are numbered, and every chunk has its checksum", async () => {
  const word = (value) => [0, 8, 16, 24].map((shift) => (value >>> shift) & 255).reverse();
  const chunk = (kind, data) => [...word(data.length), ...Buffer.from(kind), ...data, ...word(checksum([...Buffer.from(kind), ...data]))];
  const head = [...word(3), ...word(2), 8, 6, 0, 0, 0];
  const picture = (...data) => new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10, ...chunk("IHDR", head), ...data.flatMap((one) => chunk("IDAT", one)), ...chunk("IEND", [])]);
  assert.equal(checksum(Buffer.from("IEND")), 0xae426082);
  const bytes = new Uint8Array(await moving([picture([1, 2]), picture([3], [4])], [160, 1800]).arrayBuffer());
  const found = chunksOf(bytes);
  assert.deepEqual(found.map(([kind]) => kind), ["IHDR", "acTL", "fcTL", "IDAT", "fcTL", "fdAT", "fdAT", "IEND"]);
  assert.deepEqual([...found[1][1]], [...word(2), ...word(0)]);
  assert.deepEqual([...found[4][1]], [...word(1), ...word(3), ...word(2), ...word(0), ...word(0), 7, 8, 3, 232, 0, 0]);
  assert.deepEqual([...found[5][1]], [...word(2), 3]);
  assert.deepEqual([...found[6][1]], [...word(3), 4]);
  for (let at = 8; at < bytes.length; ) {
    const [length] = [new DataView(bytes.buffer).getUint32(at)];
    assert.equal(new DataView(bytes.buffer).getUint32(at + 8 + length), checksum(bytes.subarray(at + 4, at + 8 + length)));
    at += 12 + length;
  }
});
