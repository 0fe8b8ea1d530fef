// The live line of bytes, without a page: what it remembers, and how it is drawn.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Track, thinned } from "./memory/live.js";

const frame = (seconds, live) => ({ seconds, live, peak: live, words: ["", ""] });

test("of four neighbours the lowest and the highest stay, in their order", () => {
  assert.deepEqual(thinned([[0, 5], [1, 9], [2, 1], [3, 5]]), [[1, 9], [2, 1]]);
});

test("a long run keeps its highest and its lowest moment in a bounded number of points", () => {
  const track = new Track();
  for (let at = 0; at < 20000; at += 1) track.add(frame(at, at === 7777 ? 999 : at === 12345 ? 1 : 50 + (at % 7)));
  assert.ok(track.points.length <= 600);
  const heights = track.points.map((point) => point[1]);
  assert.equal(Math.max(...heights), 999);
  assert.equal(Math.min(...heights), 1);
});

test("the line goes in steps from the left edge to the right, and the peak is at the top", () => {
  const track = new Track();
  for (const [seconds, live] of [[0, 0], [1, 100], [2, 50]]) track.add(frame(seconds, live));
  assert.deepEqual(track.drawn(200, 50, 100), {
    area: "M0 50V50.0H0.0V50.0H100.0V2.0H200.0V26.0H200V50Z", top: 2,
  });
});

test("nothing yet is nothing drawn", () => {
  assert.deepEqual(new Track().drawn(200, 50, 0), { area: "", top: 50 });
});
