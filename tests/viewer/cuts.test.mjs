// Cuts, without a page: which lines stand under which box, and how much room they take when boxes are laid out anew.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { cutCount, cutHeight, cutRows, cutWidth } from "./trace/cuts.js";
import { Model } from "./trace/model.js";
import { sceneOf } from "./trace/scene.js";
import { Tree } from "./trace/tree.js";

const cut = (target, label, severed = true) => [0, target, severed, null, label, `${label}: words`];
const ends = { cuts: [cut(1, "detach, line 3"), cut(1, "detach, line 3"), cut(2, "item, line 4"), cut(2, "argmax, line 5", false), cut(null, "item, line 9", false)] };

test("equal cuts share a line, with how many they are; what only chooses or reads has none", () => {
  assert.deepEqual(cutRows(ends, [1, 2], [], "op"), [
    { label: "detach, line 3 ×2", cuts: [0, 1] },
    { label: "item, line 4", cuts: [2] },
  ]);
  assert.deepEqual(cutRows(ends, [7], [[2, "w"]], "op"), [{ label: "item, line 4", cuts: [2] }]);
  assert.deepEqual(cutRows(ends, [3], [], "op"), []);
  assert.deepEqual(cutRows(null, [1], [], "op"), []);
  assert.equal(cutCount(ends), 3);
  assert.equal(cutCount(null), 0);
});

test("what is too much for a box is counted in its last line", () => {
  assert.deepEqual(cutRows(ends, [1, 2], [], "module"), [{ label: "3 cuts", cuts: [0, 1, 2] }]);
  const many = { cuts: [3, 4, 5, 6].map((line) => cut(1, `detach, line ${line}`)) };
  assert.deepEqual(cutRows(many, [1], [], "op").map((row) => row.label), ["detach, line 3", "3 more cuts"]);
});

test("a box that is laid out anew has room for its cuts", () => {
  const document = JSON.parse(readFileSync(new URL("./document.json", import.meta.url)));
  const raw = document.graphs[0];
  const drawn = raw.drawing.boxes.map(([x, y, w, h, nodes, label, detail, kind, badges, written]) => ({
    x, y, w, h, nodes, label, detail, kind, badges, written,
  }));
  const { edges } = new Model(document).graphs[0];
  const opened = (given) => {
    const tree = new Tree({ ...raw, ends: given }, edges, document.strings, drawn);
    tree.unfold(tree.parts.findIndex((_part, place) => tree.opens(place)));
    return sceneOf(tree).boxes;
  };
  const plain = opened(null),
    inside = plain.find((box) => box.part >= drawn.length);
  const box = opened({ cuts: [cut(inside.nodes[0], "detach, line 3")] }).find(({ part }) => part === inside.part);
  assert.ok(box.w >= cutWidth([{ label: "detach, line 3" }]));
  assert.equal(box.h, inside.h + cutHeight([{}], inside.badges.length > 0));
});
