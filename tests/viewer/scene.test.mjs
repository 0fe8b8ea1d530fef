// Opening boxes in place, without a page: what is inside, what is drawn, and which lines go where.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Model } from "./trace/model.js";
import { sceneOf } from "./trace/scene.js";
import { Tree } from "./trace/tree.js";
import { orderPace, passPace, upTo } from "./trace/player.js";

const document = JSON.parse(readFileSync(new URL("./document.json", import.meta.url)));
const raw = document.graphs[0];
const { edges } = new Model(document).graphs[0];
const drawn = raw.drawing.boxes.map(([x, y, w, h, nodes, label, detail, kind, badges, written]) => ({
  x, y, w, h, nodes, label, detail, kind, badges, written,
}));
const grown = () => new Tree(raw, edges, document.strings, drawn);
const folded = (tree) => tree.parts.findIndex((_part, place) => tree.opens(place));
const all = [...raw.nodes.op.keys()];

test("with nothing open the lines are those that Python drew", () => {
  const { boxes, wires, opened } = { opened: [], ...sceneOf(grown()) };
  const pairs = (lines) => lines.map((line) => line.join("-")).sort();
  assert.equal(boxes.length, drawn.length);
  assert.deepEqual(
    pairs(wires.map(({ source, target }) => [source, target])),
    pairs(raw.drawing.wires.map(([source, target]) => [source, target])),
  );
  assert.deepEqual(opened, []);
});

test("what is opened is shown in a frame, inside of which lie its children and no other box", () => {
  const tree = grown(),
    part = folded(tree);
  tree.unfold(part);
  const { boxes, frames } = sceneOf(tree);
  assert.deepEqual(frames.map((frame) => frame.part), [part]);
  const [frame] = frames;
  for (const box of boxes) {
    const within = box.x >= frame.x && box.x + box.w <= frame.x + frame.w && box.y >= frame.y && box.y + box.h <= frame.y + frame.h;
    assert.equal(within, tree.parts[part].children.includes(box.part), box.label);
  }
});

test("every node is in exactly one box, however much is open", () => {
  const tree = grown();
  for (let turn = 0; turn < 5; turn += 1) {
    const { boxes } = sceneOf(tree);
    const nodes = boxes.flatMap((box) => box.nodes);
    assert.equal(new Set(nodes).size, nodes.length);
    const shown = new Set([...nodes, ...boxes.flatMap((box) => box.badges.map(([node]) => node))]);
    assert.deepEqual(all.filter((node) => !shown.has(node)), []);
    const next = tree.parts.findIndex((_part, place) => tree.opens(place) && !tree.open.has(place));
    if (next >= 0) tree.unfold(next);
  }
});

test("lines that leave a frame go on to its border on both sides", () => {
  const tree = grown(),
    part = folded(tree);
  tree.unfold(part);
  const { frames, wires } = sceneOf(tree),
    [frame] = frames;
  const ends = (x) => wires.filter(({ points }) => [points[0], points.at(-2)].includes(x)).length;
  assert.ok(ends(frame.x) >= 2 || ends(frame.x + frame.w) >= 2);
  assert.ok(wires.every(({ source, target }) => Number.isInteger(source) && Number.isInteger(target)));
  assert.ok(wires.every(({ points }) => points.every(Number.isFinite)));
});

test("where everything is open at once, frames stand side by side and the whole is no strip", () => {
  const tree = grown();
  for (let part = 0; part < tree.parts.length; part += 1) if (tree.parts[part].children.length) tree.unfold(part);
  const strip = sceneOf(tree);
  tree.spread = true;
  const { width, height, frames, boxes } = sceneOf(tree);
  assert.ok(strip.height / strip.width > 10);
  assert.ok(height / width < 2.5 && width / height < 5, `${width} x ${height}`);
  assert.equal(boxes.length, strip.boxes.length);
  const beside = frames.filter((frame) => frames.some((other) => other !== frame && other.y === frame.y));
  assert.ok(beside.length > frames.length / 2);
});

test("folding closes what is open inside too", () => {
  const tree = grown(),
    part = tree.parts.findIndex(({ children }) => children.some((child) => tree.opens(child)));
  tree.unfold(part);
  tree.unfold(tree.parts[part].children.find((child) => tree.opens(child)));
  assert.equal(sceneOf(tree).frames.length, 2);
  tree.fold(part);
  assert.equal(tree.open.size, 0);
  assert.equal(sceneOf(tree).boxes.length, drawn.length);
});

test("a chain of views opens into its single nodes", () => {
  const tree = grown(),
    at = tree.parts.length,
    nodes = [3, 4, 5];
  tree.parts.push({ parent: -1, children: [], label: "views ×3", detail: "", kind: "views", module: "", w: 80, nodes, badges: [] });
  assert.ok(tree.opens(at));
  tree.unfold(at);
  assert.deepEqual(tree.parts[at].children.map((child) => tree.parts[child].nodes), [[5], [4], [3]]);
});

test("another tree of the same graph opens what was open", () => {
  const [old, now] = [grown(), grown()];
  old.unfold(folded(old));
  now.adopt(new Set([...old.open].map((part) => old.key(part))));
  assert.deepEqual([...now.open], [...old.open]);
});

test("the way to a node leads through everything that hides it", () => {
  const tree = grown(),
    deep = tree.parts.findLastIndex(({ nodes }) => nodes.length > 0),
    node = tree.parts[deep].nodes[0];
  assert.equal(tree.home(node), deep);
  assert.equal(tree.shown(deep), tree.path(deep)[0]);
  tree.path(deep).slice(0, -1).forEach((part) => tree.unfold(part));
  assert.equal(tree.shown(deep), deep);
});

test("however large a graph is, its order is played in a few seconds", () => {
  for (const count of [3, 40, 2000, 100000]) {
    const [milliseconds, step] = orderPace(count, 1);
    assert.ok(milliseconds >= 33);
    assert.ok((count / step) * milliseconds <= 6700, String(count));
  }
  assert.deepEqual(passPace(2), [150, 1]);
});

test("the order shows the norms of what was reached, and nothing of the rest", () => {
  assert.deepEqual([...upTo(Float32Array.of(1, 2, 4), [2, 0, 1], 2)], [1, -1, 4]);
});
