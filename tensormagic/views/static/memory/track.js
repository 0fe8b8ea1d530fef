// @ts-check
/**
 * What the live view of memory remembers of a run: the bytes alive at a bounded number of moments.
 *
 * @typedef {{seconds:number, operations:number, live:number, peak:number, line:number, place:string, running:boolean}} Frame
 */

const MOST = 600; // moments that are kept: two for each pixel of a narrow notebook

/** The bytes alive over time; of crowded neighbours the lowest and the highest stay. */
export class Track {
  constructor() {
    /** @type {[number, number][]} */
    this.points = [];
  }

  /** @param {Frame} frame */
  add(frame) {
    this.points.push([frame.seconds, frame.live]);
    if (this.points.length > MOST) this.points = thinned(this.points);
  }

  /**
   * The line as an SVG path in a box, and the height of the peak in it.
   * @param {number} width @param {number} height @param {number} peak
   * @returns {{area:string, top:number}}
   */
  drawn(width, height, peak) {
    const [first, last] = [this.points[0], this.points[this.points.length - 1]];
    if (!first || !last) return { area: "", top: height };
    const span = last[0] - first[0] || 1;
    const most = Math.max(peak, ...this.points.map((point) => point[1])) || 1;
    const across = (/** @type {number} */ seconds) => (((seconds - first[0]) / span) * width).toFixed(1);
    const down = (/** @type {number} */ bytes) => (height - (bytes / most) * (height - 2)).toFixed(1);
    // what is alive stays what it is until it changes: steps, not slopes
    const steps = this.points.map(([seconds, bytes]) => `H${across(seconds)}V${down(bytes)}`);
    return { area: `M0 ${height}V${down(first[1])}${steps.join("")}H${width}V${height}Z`, top: Number(down(peak)) };
  }
}

/**
 * Half as many: of each four neighbours the lowest and the highest, in their order.
 * @param {[number, number][]} points @returns {[number, number][]}
 */
export function thinned(points) {
  /** @type {[number, number][]} */
  const kept = [];
  for (let at = 0; at < points.length; at += 4) {
    const few = points.slice(at, at + 4);
    const low = few.reduce((best, point) => (point[1] < best[1] ? point : best));
    const high = few.reduce((best, point) => (point[1] > best[1] ? point : best));
    kept.push(...few.filter((point) => point === low || point === high));
  }
  return kept;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * Bytes in words, as the panel writes them.
 * @param {number} bytes @returns {string}
 */
export function bytesInWords(bytes) {
  let [value, unit] = [bytes, 0];
  while (Math.abs(value) >= (unit ? 1023.95 : 1024) && unit < UNITS.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit ? value.toFixed(1).replace(/\.0$/, "") : value} ${UNITS[unit]}`;
}
