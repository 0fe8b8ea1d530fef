// The layout of one level, without a page: columns, crossings, rows, and lines that keep clear of boxes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { bent, crossings, layOut, ordered, ranked } from "./trace/layout.js";
import { isotonic } from "./trace/rows.js";

const box = (w = 60, h = 40) => ({ w, h, enter: 20, leave: 20, reach: 11 });
const side = (name) => ({ w: 0, h: 2, enter: 1, leave: 1, reach: 0, side: name });
const items = (count) => Array.from({ length: count }, () => box());
const chain = (count) => Array.from({ length: count - 1 }, (_one, at) => [at, at + 1]);

test("columns follow the longest path", () => {
  assert.deepEqual(ranked(items(4), [[0, 1], [1, 2], [0, 2], [2, 3]]), [0, 1, 2, 3]);
});

test("what hangs on nothing stands next to what it feeds", () => {
  assert.deepEqual(ranked(items(4), [[0, 1], [1, 2], [3 - 1, 3]]), [0, 1, 2, 3]);
  assert.deepEqual(ranked(items(5), [[0, 2], [2, 3], [1, 4], [3, 4]]), [0, 2, 1, 2, 3]);
});

test("points on the frame are before and behind everything", () => {
  const all = [side("left"), box(), box(), side("right")];
  assert.deepEqual(ranked(all, [[0, 2], [1, 3]]), [0, 2, 1, 3].map((_rank, at) => [0, 1, 1, 2][at]));
});

test("isotonic regression is the nearest rising sequence", () => {
  assert.deepEqual(isotonic([1, 3, 2, 4], [1, 1, 1, 1]), [1, 2.5, 2.5, 4]);
  assert.deepEqual(isotonic([3, 0], [1, 3]), [0.75, 0.75]);
});

test("crossings are counted, and two crossed lines are uncrossed", () => {
  const edges = [[0, 3], [1, 2]];
  const { layers } = bent([0, 0, 1, 1], edges, 4);
  assert.equal(crossings(layers), 1);
  assert.equal(ordered(layers), 0);
});

test("the complete graph of three and three keeps its nine crossings", () => {
  const edges = [0, 1, 2].flatMap((tail) => [3, 4, 5].map((head) => [tail, head]));
  assert.equal(ordered(bent([0, 0, 0, 1, 1, 1], edges, 6).layers), 9);
});

test("a chain lies on one level, left to right", () => {
  const { places, routes, height } = layOut(items(4), chain(4), 890);
  assert.deepEqual(new Set(places.map(([, y]) => y)), new Set([0]));
  assert.deepEqual(places.map(([x]) => x), [0, 92, 184, 276]);
  assert.deepEqual(routes[0], [60, 20, 92, 20]);
  assert.equal(height, 40);
});

test("a long chain is broken into rows of about the same length, none wider than allowed", () => {
  const { places, width } = layOut(items(20), chain(20), 500);
  const rows = [...new Set(places.map(([, y]) => y))];
  const lengths = rows.map((row) => places.filter(([, y]) => y === row).length);
  assert.equal(rows.length, 4);
  assert.ok(Math.max(...lengths) - Math.min(...lengths) <= 1, String(lengths));
  assert.ok(width <= 500 + 48);
});

test("boxes never overlap, whatever the graph", () => {
  let seed = 7;
  const chance = (below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 30; round += 1) {
    const count = 2 + chance(40),
      all = Array.from({ length: count }, () => box(38 + chance(150), 40 + chance(200)));
    const edges = Array.from({ length: count * 2 }, () => [chance(count), chance(count)]).filter(([a, b]) => a !== b);
    const { places, width, height } = layOut(all, edges, 890);
    all.forEach((one, a) => {
      const [ax, ay] = places[a];
      assert.ok(ax >= 0 && ay >= 0 && ax + one.w <= width && ay + one.h <= height + 1);
      all.forEach((other, b) => {
        const [bx, by] = places[b];
        const apart = ax + one.w <= bx || bx + other.w <= ax || ay + one.h <= by || by + other.h <= ay;
        assert.ok(a === b || apart, `${a} and ${b} of round ${round}`);
      });
    });
  }
});

test("nothing, one box, and edges that run in a circle are laid out", () => {
  assert.deepEqual(layOut([], [], 890), { width: 0, height: 0, places: [], routes: [] });
  assert.deepEqual(layOut(items(1), [], 890).places, [[0, 0]]);
  const { places, routes } = layOut(items(3), [[0, 1], [1, 2], [2, 0]], 890);
  assert.equal(new Set(places.map(([x]) => x)).size, 3);
  assert.equal(routes.length, 3);
});
