// Opening boxes in place, without a page: what is inside, what is drawn, and which lines go where.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Model } from "./trace/model.js";
import { Tree, sceneOf } from "./trace/folds.js";
import { orderPace, upTo } from "./trace/parts.js";

const document = JSON.parse(readFileSync(new URL("./document.json", import.meta.url)));
const raw = document.graphs[0];
const { edges } = new Model(document).graphs[0];
const drawn = raw.drawing.boxes.map(([x, y, w, h, nodes, label, detail, kind, badges, written]) => ({
  x, y, w, h, nodes, label, detail, kind, badges, written,
}));
const grown = () => new Tree(raw, edges, document.strings, drawn);
const folded = (tree) => tree.parts.findIndex((_part, place) => tree.opens(place));
const all = [...raw.nodes.op.keys()];

const lower = (one, other) => one.y + one.h <= other.y || other.y + other.h <= one.y;
const beside = (one, other) => one.x + one.w <= other.x || other.x + other.w <= one.x;

test("with nothing open the boxes and lines are those that Python drew", () => {
  const { boxes, wires, frames } = sceneOf(grown());
  assert.deepEqual(boxes.map(({ x, y }) => [x, y]), drawn.map(({ x, y }) => [x, y]));
  assert.deepEqual(wires.map(({ source, target, points }) => [source, target, ...points]), raw.drawing.wires);
  assert.deepEqual(frames, []);
});

test("what lies inside an opened box stands in a frame below it, and no other box does", () => {
  const tree = grown(),
    part = folded(tree);
  tree.open.add(part);
  const { boxes, frames } = sceneOf(tree),
    [frame] = frames;
  assert.deepEqual(frames.map((one) => one.part), [part]);
  for (const box of boxes) {
    const within = box.x >= frame.x && box.x + box.w <= frame.x + frame.w && box.y >= frame.y && box.y + box.h <= frame.y + frame.h;
    assert.equal(within, tree.parts[part].children.includes(box.part), box.label);
    if (!within) assert.ok(lower(box, frame) || beside(box, frame), box.label);
  }
  const tab = boxes.find((box) => box.part === part);
  assert.ok(tab.open && tab.y + tab.h <= frame.y);
  assert.equal(frame.y + frame.neck[1], tab.y + tab.h);
});

test("a frame makes room: what is below its row goes down by so much, with the lines there; nothing else moves", () => {
  const tree = grown(),
    closed = sceneOf(tree),
    part = folded(tree);
  tree.open.add(part);
  const { boxes, wires, frames, height } = sceneOf(tree),
    grew = height - closed.height,
    down = (y) => (y < frames[0].y ? 0 : grew);
  assert.ok(grew > frames[0].h);
  closed.boxes.forEach(({ x, y }, at) => {
    assert.equal(boxes[at].x, x);
    assert.ok([y, y + grew].includes(boxes[at].y));
  });
  assert.ok(closed.boxes.some(({ y }, at) => boxes[at].y === y + grew));
  closed.wires.forEach(({ points }, at) =>
    assert.deepEqual(wires[at].points, points.map((value, place) => (place % 2 ? value + down(wires[at].points[place]) : value))),
  );
});

test("every node is in exactly one box that is closed, however much is open", () => {
  const tree = grown();
  for (let turn = 0; turn < 5; turn += 1) {
    const boxes = sceneOf(tree).boxes.filter((box) => !box.open);
    const nodes = boxes.flatMap((box) => box.nodes);
    assert.equal(new Set(nodes).size, nodes.length);
    const shown = new Set([...nodes, ...boxes.flatMap((box) => box.badges.map(([node]) => node))]);
    assert.deepEqual(all.filter((node) => !shown.has(node)), []);
    const next = tree.parts.findIndex((_part, place) => tree.opens(place) && !tree.open.has(place));
    if (next >= 0) tree.open.add(next);
  }
});

test("lines that leave a frame go on to its border, and every line knows its edges", () => {
  const tree = grown(),
    part = folded(tree);
  tree.open.add(part);
  const { boxes, frames, wires } = sceneOf(tree),
    [frame] = frames;
  const leaving = wires.filter(({ source, target }) => source < 0 || target < 0);
  assert.ok(leaving.length >= 1);
  for (const { source, points } of leaving) assert.equal(source < 0 ? points[0] : points.at(-2), source < 0 ? frame.x + frame.w : frame.x);
  assert.ok(wires.every(({ points }) => points.every(Number.isFinite)));
  for (const { source, target, edges: mine, ends } of wires) {
    assert.ok(mine.length >= 1 && ends.length >= 1);
    for (const edge of mine) {
      assert.ok(source < 0 || boxes[source].nodes.includes(edges[0][edge]));
      assert.ok(target < 0 || boxes[target].nodes.includes(edges[1][edge]));
    }
  }
});

test("frames lie over no other frame of their level and no box of another, however much is open", () => {
  const tree = grown();
  for (const spread of [false, true]) {
    tree.parts.forEach((_part, place) => tree.opens(place) && tree.open.add(place));
    tree.spread = spread;
    const { width, height, frames, boxes } = sceneOf(tree);
    frames.forEach((frame) => {
      assert.ok(frame.x >= 0 && frame.x + frame.w <= width && frame.y + frame.h <= height);
      for (const other of frames) assert.ok(other === frame || other.depth !== frame.depth || lower(frame, other) || beside(frame, other));
    });
    for (const box of boxes.slice(0, drawn.length)) assert.ok(frames.every((frame) => lower(box, frame) || beside(box, frame)), box.label);
    assert.equal(spread, width / height > 0.4, `${width} x ${height}`);
  }
});

test("folding closes what is open inside too", () => {
  const tree = grown(),
    part = tree.parts.findIndex(({ children }) => children.some((child) => tree.opens(child)));
  tree.open.add(part);
  tree.open.add(tree.parts[part].children.find((child) => tree.opens(child)));
  assert.equal(sceneOf(tree).frames.length, 2);
  tree.fold(part);
  assert.equal(tree.open.size, 0);
  assert.equal(sceneOf(tree).boxes.length, drawn.length);
});

test("another tree of the same graph opens what was open", () => {
  const [old, now] = [grown(), grown()];
  old.open.add(folded(old));
  now.adopt(new Set([...old.open].map((part) => old.key(part))));
  assert.deepEqual([...now.open], [...old.open]);
});

test("the way to a node leads through everything that hides it", () => {
  const tree = grown(),
    deep = tree.parts.findLastIndex(({ nodes }) => nodes.length > 0),
    node = tree.parts[deep].nodes[0];
  assert.equal(tree.home(node), deep);
  assert.deepEqual(tree.shown(deep), [tree.path(deep)[0]]);
  tree.path(deep).slice(0, -1).forEach((part) => tree.open.add(part));
  assert.deepEqual(tree.shown(deep), tree.path(deep));
});

test("however large a graph is, its order is played in a few seconds", () => {
  for (const count of [3, 40, 2000, 100000]) {
    const [milliseconds, step] = orderPace(count, 1);
    assert.ok(milliseconds >= 33);
    assert.ok((count / step) * milliseconds <= 6700, String(count));
  }
});

test("the order shows the norms of what was reached, and nothing of the rest", () => {
  assert.deepEqual([...upTo(Float32Array.of(1, 2, 4), [2, 0, 1], 2)], [1, -1, 4]);
});
