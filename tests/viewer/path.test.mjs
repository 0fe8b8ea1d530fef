// The way through a node, without a page: what lies on it, and which lines it goes along.

import assert from "node:assert/strict";
import { test } from "node:test";

import { linesOf, wayThrough } from "./trace/choosing.js";

// 0 is the loss; 1 and 2 stand beside each other, 3 is fed by both, and 0 goes round all of them to 4, a leaf.
const edges = [
  [0, 0, 1, 2, 0, 3],
  [1, 2, 3, 3, 4, 4],
];
const sorted = (nodes) => [...nodes].sort((a, b) => a - b);

test("before a node lies what leads to it from the loss, behind it what it leads to", () => {
  assert.deepEqual(sorted(wayThrough(edges, [1]).nodes), [0, 1, 3, 4]);
  assert.deepEqual(sorted(wayThrough(edges, [3]).nodes), [0, 1, 2, 3, 4]);
});

test("an edge that goes round the node is not on the way, though both its ends are", () => {
  assert.deepEqual([...wayThrough(edges, [1]).edges], [1, 0, 1, 0, 0, 1]);
  assert.deepEqual([...wayThrough(edges, [0]).edges], [1, 1, 1, 1, 1, 1]);
});

test("through a box lead the ways through any of its nodes", () => {
  assert.deepEqual([...wayThrough(edges, [1, 2]).edges], [1, 1, 1, 1, 0, 1]);
});

test("lines follow the boxes as they are folded now", () => {
  const way = wayThrough(edges, [1]),
    boxOf = new Map([[0, 0], [1, 1], [2, 1], [3, 2], [4, 2]]),
    on = linesOf({ edges, boxOf }, way);
  assert.ok(on({ source: 0, target: 1, points: [] }));
  assert.ok(on({ source: 0, target: 0, points: [], edges: [1, 5] }));
  assert.ok(!on({ source: 0, target: 1, points: [], edges: [1, 3] }));
  assert.ok(!on({ source: 0, target: 2, points: [] }));
});

test("a graph of a chain of 100,000 nodes needs no stack", () => {
  const count = 100_000,
    chain = [[...Array(count - 1).keys()], [...Array(count - 1).keys()].map((at) => at + 1)];
  assert.equal(wayThrough(chain, [50_000]).nodes.size, count);
});
