// @ts-check
/** From columns to a page: where a row ends, where every item stands, and the points of every line (layout.py). */

/** @typedef {import("./layout.js").Item} Item */
/** @typedef {import("./layout.js").Layers} Layers */
/** @typedef {import("./layout.js").Layout} Layout */

const COLUMN_GAP = 32;
const LANE = 8;
const ABOVE_LANES = 10;
const BELOW_LANES = 28; // a number and the words of a mark are written above a box of the next row
const TURN = 8;
const APART = 9; // how far apart two lines touch an item, where there is room
const EVEN_STEP = 30;

/** @param {Layers} layers @param {Item[]} items @param {number[]} heights @param {number[][]} paths @param {number} real @param {number} wrap
 * @returns {Layout} */
export function pageOf(layers, items, heights, paths, real, wrap) {
  const ports = touching(layers, items, heights),
    widths = layers.members.map((column) => column.reduce((most, item) => Math.max(most, items[item].w), 0)),
    gaps = layers.members.map((column, at) => gapAfter(layers, ports, column, at, items));
  const rowOf = evened(layers, widths, gaps, wrap),
    rows = rowOf[rowOf.length - 1] + 1;
  const lanes = lanesOf(layers, ports, rowOf, rows);
  const page = placed({ layers, items, heights, widths, gaps, rowOf, rows, lanes });
  const y = (/** @type {number} */ item, /** @type {number} */ height) =>
    height + page.shift[rowOf[layers.columnOf[item]]];
  /** @type {[number,number][]} */
  const places = items.slice(0, real).map((item, at) => {
    const column = layers.columnOf[at];
    return [page.x[column] + Math.round((widths[column] - item.w) / 2), y(at, heights[at] - item.enter)];
  });
  const side = (/** @type {number} */ item, /** @type {boolean} */ right) => {
    const column = layers.columnOf[item];
    if (item < real) return places[item][0] + (right ? items[item].w : 0);
    return page.x[column] + (right ? widths[column] : 0);
  };
  const route = (/** @type {number[]} */ path) => {
    /** @type {number[]} */
    const points = [];
    for (let at = 1; at < path.length; at += 1) {
      const [left, right] = [path[at - 1], path[at]],
        key = `${left} ${right}`;
      const columns = [layers.columnOf[left], layers.columnOf[right]];
      const leave = y(left, ports.leave.get(key) ?? heights[left]),
        reach = y(right, ports.reach.get(key) ?? heights[right]);
      points.push(side(left, true), leave, page.x[columns[0]] + widths[columns[0]], leave);
      const lane = lanes.of.get(key);
      if (lane !== undefined) {
        const row = rowOf[columns[0]],
          turn = page.right[row] + TURN + (lane + 1) * LANE,
          back = page.margin - (lanes.counts[row] - lane) * LANE,
          height = page.bottom[row] + ABOVE_LANES + (lane + 0.5) * LANE;
        points.push(turn, leave, turn, height, back, height, back, reach);
      }
      points.push(page.x[columns[1]], reach, side(right, false), reach);
    }
    return withoutNeedless(points);
  };
  return { width: page.width, height: page.height, places, routes: paths.map(route) };
}

/** Where lines touch the items: level where they can be, in the order they arrive, no two at one point.
 * @param {Layers} layers @param {Item[]} items @param {number[]} heights */
function touching({ following, preceding }, items, heights) {
  /** @type {Map<string,number>} */ const leave = new Map();
  /** @type {Map<string,number>} */ const reach = new Map();
  const axis = (/** @type {number} */ item, /** @type {boolean} */ right) =>
    heights[item] + (right ? items[item].leave - items[item].enter : 0);
  const spread = (/** @type {number} */ item, /** @type {number[]} */ others, /** @type {boolean} */ right) => {
    const own = axis(item, right),
      far = items[item].reach,
      sorted = [...new Set(others)].sort((a, b) => axis(a, !right) - axis(b, !right));
    const apart = Math.min(APART, (2 * far) / Math.max(sorted.length - 1, 1));
    const targets = sorted.map((other, at) => {
      const to = axis(other, !right),
        reached = items[other].reach;
      const [top, bottom] = [Math.max(own - far, to - reached), Math.min(own + far, to + reached)];
      return (top <= bottom ? (top + bottom) / 2 : to > own ? own + far : own - far) - at * apart;
    });
    const most = own + far - apart * (sorted.length - 1);
    isotonic(targets, targets.map(() => 1)).forEach((start, at) => {
      const height = Math.round(Math.min(Math.max(start, own - far), Math.max(most, own - far)) + at * apart);
      if (right) leave.set(`${item} ${sorted[at]}`, height);
      else reach.set(`${sorted[at]} ${item}`, height);
    });
  };
  following.forEach((heads, item) => spread(item, heads, true));
  preceding.forEach((tails, item) => spread(item, tails, false));
  return { leave, reach };
}

/** The distance after a column: wider where lines climb far; little beside a point on the frame.
 * @param {Layers} layers @param {{leave:Map<string,number>, reach:Map<string,number>}} ports @param {number[]} column @param {number} at @param {Item[]} items */
function gapAfter({ members, following }, ports, column, at, items) {
  if (at + 1 >= members.length) return 0;
  let climb = 0;
  for (const item of column)
    for (const head of following[item]) {
      const key = `${item} ${head}`;
      climb = Math.max(climb, Math.abs((ports.leave.get(key) ?? 0) - (ports.reach.get(key) ?? 0)));
    }
  const bare = [column, members[at + 1]].some((one) => one.every((item) => items[item].side));
  return Math.round((bare ? 14 : COLUMN_GAP) + Math.min(climb * 0.12, 36));
}

/** The row of every column: as few rows as the width allows, of about the same length.
 * @param {Layers} layers @param {number[]} widths @param {number[]} gaps @param {number} wrap @returns {number[]} */
export function evened(layers, widths, gaps, wrap) {
  let rows = broken(layers, widths, gaps, wrap);
  const last = rows[rows.length - 1];
  if (!last || last > 24) return rows;
  const step = Math.max(EVEN_STEP, wrap / 60);
  for (let limit = wrap - step; limit > 0; limit -= step) {
    const earlier = broken(layers, widths, gaps, limit);
    if (earlier[earlier.length - 1] > last) break;
    rows = earlier;
  }
  return rows;
}

/** @param {Layers} layers @param {number[]} widths @param {number[]} gaps @param {number} limit @returns {number[]} */
function broken({ members, preceding }, widths, gaps, limit) {
  const rows = widths.map(() => 0);
  const cut = (/** @type {number} */ column) =>
    members[column].reduce((sum, item) => sum + preceding[item].length, 0);
  for (let start = 0, row = 0; start < widths.length; row += 1) {
    let used = 0,
      end = start,
      best = -1;
    while (end < widths.length && (end === start || used + widths[end] <= limit)) {
      used += widths[end] + gaps[end];
      end += 1;
      if (end < widths.length && used - gaps[end - 1] > 0.6 * limit && (best < 0 || cut(end) <= cut(best))) best = end;
    }
    if (end < widths.length && best > 0) end = best;
    rows.fill(row, start, end);
    start = end;
  }
  return rows;
}

/** The lane of every line that goes on in the next row: the lowest line at a row's end turns first.
 * @param {Layers} layers @param {{leave:Map<string,number>}} ports @param {number[]} rowOf @param {number} rows */
function lanesOf({ members, following }, ports, rowOf, rows) {
  /** @type {Map<string,number>} */ const of = new Map();
  const counts = Array.from({ length: rows }, () => 0);
  for (let at = 0; at + 1 < members.length; at += 1) {
    if (rowOf[at] === rowOf[at + 1]) continue;
    const links = members[at].flatMap((item) => following[item].map((head) => `${item} ${head}`));
    links.sort((a, b) => (ports.leave.get(b) ?? 0) - (ports.leave.get(a) ?? 0));
    links.forEach((key, lane) => of.set(key, lane));
    counts[rowOf[at]] = links.length;
  }
  return { of, counts };
}

/** @param {{layers:Layers, items:Item[], heights:number[], widths:number[], gaps:number[], rowOf:number[], rows:number, lanes:{counts:number[]}}} all */
function placed({ layers, items, heights, widths, gaps, rowOf, rows, lanes }) {
  const most = lanes.counts.reduce((a, b) => Math.max(a, b), 0),
    margin = rows > 1 ? (most + 1) * LANE : 0;
  /** @type {number[]} */ const right = Array.from({ length: rows }, () => 0);
  /** @type {number[]} */ const xs = [];
  let x = margin;
  widths.forEach((width, column) => {
    if (column && rowOf[column] !== rowOf[column - 1]) x = margin;
    xs.push(x);
    right[rowOf[column]] = x + width;
    x += width + gaps[column];
  });
  const spans = right.map(() => [Infinity, -Infinity]);
  layers.members.forEach((column, at) => {
    const span = spans[rowOf[at]];
    for (const item of column) {
      span[0] = Math.min(span[0], heights[item] - items[item].enter);
      span[1] = Math.max(span[1], heights[item] - items[item].enter + items[item].h);
    }
  });
  /** @type {number[]} */ const shift = [];
  /** @type {number[]} */ const bottom = [];
  let y = 0;
  spans.forEach(([low, high], row) => {
    shift.push(y - low);
    y = bottom[row] = y + high - low;
    if (row + 1 < rows) y += ABOVE_LANES + lanes.counts[row] * LANE + BELOW_LANES;
  });
  const width = right.reduce((a, b) => Math.max(a, b), 0) + margin + (rows > 1 ? TURN : 0);
  return { x: xs, right, shift, bottom, margin, width, height: y };
}

/** @param {number[]} points @returns {number[]} */
function withoutNeedless(points) {
  /** @type {number[]} */
  const kept = [];
  for (let at = 0; at < points.length; at += 2) {
    const [x, y] = [Math.round(points[at]), Math.round(points[at + 1])],
      size = kept.length;
    if (size && kept[size - 2] === x && kept[size - 1] === y) continue;
    const level = size > 2 && kept[size - 1] === y && kept[size - 3] === y;
    if (level && kept[size - 4] <= kept[size - 2] && kept[size - 2] <= x) kept.length -= 2;
    kept.push(x, y);
  }
  return kept;
}

/** The non-decreasing sequence nearest to the targets in weighted squares. @param {number[]} targets @param {number[]} weights */
export function isotonic(targets, weights) {
  /** @type {{mean:number, mass:number, size:number}[]} */
  const pools = [];
  targets.forEach((target, at) => {
    let pool = { mean: target, mass: weights[at], size: 1 };
    while (pools.length && pools[pools.length - 1].mean >= pool.mean) {
      const other = /** @type {{mean:number, mass:number, size:number}} */ (pools.pop()),
        mass = pool.mass + other.mass;
      pool = { mean: (other.mean * other.mass + pool.mean * pool.mass) / mass, mass, size: pool.size + other.size };
    }
    pools.push(pool);
  });
  return pools.flatMap(({ mean, size }) => Array.from({ length: size }, () => mean));
}
