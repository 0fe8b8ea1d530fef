// @ts-check
/** The small map beside a picture that does not fit, and the picture itself where it is too far away to be read. */

/** @typedef {import("./words.js").Box} Box */
/** @typedef {{k:number, x:number, y:number, width:number, height:number}} View */

const LASTING = 1000; // milliseconds that colours are taken as read: each reading makes the browser style the page anew

/** @type {WeakMap<Element, {ground:string, until:number, colours:Map<string, string>}>} */
const palettes = new WeakMap();

/** A colour of the style sheet as a canvas takes it: the side, light or dark, is chosen where the element stands.
 * @param {any} element @param {string} name @returns {string} */
function token(element, name) {
  element.style.color = `var(${name})`;
  return getComputedStyle(element).color;
}

/** The colours of an element: read once, and again with another ground (a theme that was changed), or after a while.
 * @param {Element} element @param {number} [now] milliseconds @returns {(name:string)=>string} */
export function palette(element, now = performance.now()) {
  const ground = token(element, "--bg"),
    kept = palettes.get(element),
    fresh = kept && kept.ground === ground && now < kept.until,
    { colours } = fresh ? kept : { colours: new Map() };
  if (!fresh) palettes.set(element, { ground, until: now + LASTING, colours });
  return (name) => {
    if (!colours.has(name)) colours.set(name, token(element, name));
    return colours.get(name);
  };
}

/** The colours of the states, as the style sheet has them now. @param {Element} element @returns {(state:string)=>string} */
export function inks(element) {
  const colour = palette(element);
  return (state) =>
    colour(state === "bad" ? "--error" : state === "wait" ? "--line" : state.length > 3 ? "--line-2" : `--${state}`);
}

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @returns {any} a pen over a clean sheet */
export function sheet(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1,
    [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    Object.assign(canvas, { width: w, height: h });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const pen = /** @type {any} */ (canvas.getContext("2d"));
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, w, h);
  pen.scale(ratio, ratio);
  return pen;
}

/** How large the map is, where there is one. @param {{width:number, height:number}} size @param {number} tall of the view */
export function mapSize({ width, height }, tall) {
  const scale = Math.min(150 / width, Math.min(tall - 30, 180) / height);
  return { scale, w: Math.max(Math.round(width * scale), 24), h: Math.max(Math.round(height * scale), 8) };
}

/** Boxes as specks, drawn once for each change of the picture. @param {any} pen @param {Box[]} boxes @param {string[]} states @param {number} scale @param {(state:string)=>string} ink */
export function specks(pen, boxes, states, scale, ink) {
  const least = 1.5 / scale;
  let last = "";
  boxes.forEach((box, at) => {
    if (states[at] !== last) pen.fillStyle = ink((last = states[at]));
    pen.fillRect(box.x, box.y, Math.max(box.w, least), Math.max(box.h, least));
  });
}

/** The picture from far away: what a user can still tell apart at that size, and no element for any of it. */
export class FarView {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
  }

  /** @param {any} graph @param {string[]} states @param {(at:number)=>string} lineState @param {View} view @param {(box:number)=>boolean} dim @param {number} [chosen] */
  paint(graph, states, lineState, view, dim, chosen = -1) {
    const { width, height } = view,
      pen = sheet(this.canvas, width, height),
      ink = inks(this.canvas),
      colour = palette(this.canvas),
      { k, x, y } = view;
    const [left, top, right, bottom] = [-x / k, -y / k, (width - x) / k, (height - y) / k];
    pen.translate(x, y);
    pen.scale(k, k);
    pen.lineWidth = 1 / k;
    pen.strokeStyle = colour("--line-2");
    pen.fillStyle = colour("--bg-2");
    for (const frame of graph.opened) {
      if (frame.y > bottom || frame.y + frame.h < top) continue;
      if (frame.depth % 2 === 0) pen.fillRect(frame.x, frame.y, frame.w, frame.h);
      if (frame.h * k > 6) pen.strokeRect(frame.x, frame.y, frame.w, frame.h);
    }
    if (k > 0.12) this.strokeLines(pen, graph, lineState, ink, [top, bottom]);
    const place = (/** @type {any} */ box) => box.x < right && box.x + box.w > left && box.y < bottom && box.y + box.h > top;
    let last = "";
    graph.boxes.forEach((/** @type {Box} */ box, /** @type {number} */ at) => {
      if (!place(box)) return;
      const state = dim(at) ? "wait" : states[at];
      if (state !== last) pen.fillStyle = ink((last = state));
      pen.fillRect(box.x, box.y, box.w, Math.max(box.h, 1.5 / k));
    });
    const box = graph.boxes[chosen];
    if (!box) return;
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2 / k;
    pen.strokeRect(box.x - 3, box.y - 3, box.w + 6, box.h + 6);
  }

  /** @param {any} pen @param {any} graph @param {(at:number)=>string} lineState @param {(state:string)=>string} ink @param {[number,number]} rows */
  strokeLines(pen, graph, lineState, ink, [top, bottom]) {
    /** @type {Map<string, Path2D>} */
    const paths = new Map();
    graph.wires.forEach((/** @type {any} */ { points, low, high }, /** @type {number} */ at) => {
      if (low > bottom || high < top) return;
      const state = lineState(at);
      if (!paths.has(state)) paths.set(state, new Path2D());
      const path = /** @type {Path2D} */ (paths.get(state));
      path.moveTo(points[0], points[1]);
      for (let place = 2; place < points.length; place += 2) path.lineTo(points[place], points[place + 1]);
    });
    for (const [state, path] of paths) {
      pen.strokeStyle = ink(state);
      pen.stroke(path);
    }
  }
}
