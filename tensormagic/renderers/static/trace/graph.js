// @ts-check
/** The picture of one graph: built once, then recoloured; pan, zoom, focus and selection live here. */

import { LARGEST, HEAD, BADGE } from "./constants.js";
import { html, svg, later, say, exponentText, shortBadText, level, wireWidth, ofBox } from "./words.js";

/** @typedef {import("./constants.js").Box} Box */
/** @typedef {import("./constants.js").Wire} Wire */
/** @typedef {import("./constants.js").Picture} Picture */

/** The picture of one graph: built once, then recoloured; pan, zoom, focus and selection live here. */
export class GraphView {
  /** @type {string} */ bornKey = "";
  /** @type {Picture|null} */ picture = null;
  /** @type {((zoom:number)=>void)|undefined} called when the zoom changed */ zoomed;
  /** @type {number} pixels of the map a pixel of the drawing */ mapScale = 1;
  /** @type {any} */ cursorMark = later();
  /** @type {any} */ chosenMark = later();
  /** @type {any} */ bornLayer = later();
  dragged = false;
  /** @type {string} the height that the view gave itself */ ownHeight = "";
  sized = false;

  /** @param {string} hatch @param {{select:(box:number, node:number|null)=>void, tell:(box:number)=>string}} hooks */
  constructor(hatch, hooks) {
    this.hooks = hooks;
    this.view = { k: 1, x: 0, y: 0 };
    this.moved = false;
    this.world = svg("g", { class: "world" });
    this.canvas = svg(
      "svg",
      {
        class: "canvas",
        role: "group",
        "aria-label": "Backward graph. Arrow keys move along the edges, Enter opens a node.",
        "data-lm-suppress-shortcuts": "true",
      },
      svg("defs", {}, hatchPattern(hatch)),
      this.world,
    );
    this.map = html("canvas", { class: "map", "aria-hidden": "true", hidden: true });
    this.element = html("div", { class: "graph" }, this.canvas, this.map);
    /** @type {any[]} */ this.marks = [];
    /** @type {any[]} */ this.lines = [];
    /** @type {any} */ this.graph = null;
    this.selected = -1;
    this.focused = 0;
    this.listen();
  }

  /** @param {any} graph a decoded graph */
  load(graph) {
    this.graph = graph;
    this.marks = graph.boxes.map(boxMark);
    this.lines = graph.wires.map(wireMark);
    this.cursorMark = svg("rect", { class: "cursor", rx: 7, visibility: "hidden" });
    this.chosenMark = svg("rect", { class: "chosen", rx: 8, visibility: "hidden" });
    this.bornLayer = svg("g", { class: "born" });
    const all = [...this.lines.map((line) => line.element), ...this.marks.map((mark) => mark.element)];
    this.world.replaceChildren(...all, this.cursorMark, this.chosenMark, this.bornLayer);
    this.bornKey = "";
    this.selected = -1;
    this.focused = Math.max(graph.boxOf.get(graph.boxes.length ? graph.boxes[0].nodes[0] : 0) ?? 0, 0);
    if (this.marks.length) this.marks[this.focused].element.setAttribute("tabindex", "0");
    this.moved = false;
    this.resize();
  }

  // -- painting

  /** @param {Picture} picture */
  paint(picture) {
    const { norms, bad } = picture;
    this.picture = picture;
    const far = this.view.k < 0.5;
    this.marks.forEach((mark) => paintBox(mark, norms, bad, far));
    for (const line of this.lines)
      paintWire(line, this.marks[line.wire.source].state, this.marks[line.wire.target].state);
    this.paintCursor(picture);
    this.paintBorn(picture);
    this.paintMap();
  }

  /** @param {Picture} picture */
  paintCursor(picture) {
    const place = picture.running ? this.graph.boxOf.get(picture.cursor) : undefined;
    around(this.cursorMark, place === undefined ? null : this.graph.boxes[place], 3);
  }

  /** @param {Picture} picture */
  paintBorn(picture) {
    const key = picture.births.map((birth) => birth.node).join();
    if (key === this.bornKey) return;
    this.bornKey = key;
    const birth = picture.births[0],
      place = birth ? (this.graph.boxOf.get(birth.node) ?? 0) : -1;
    this.bornLayer.replaceChildren(
      ...(birth ? [bornMark(this.graph.boxes[place], birth, this.graph.drawing.width)] : []),
    );
    // The words take the place of the norm; the drawer and the line of source still say it.
    this.marks.forEach((mark, at) => mark.element.classList.toggle("born", at === place));
  }

  /** @param {number} box -1 for none */
  select(box) {
    this.selected = box;
    around(this.chosenMark, box < 0 ? null : this.graph.boxes[box], 3.5);
  }

  /** @param {Set<number>|null} nodes show these, step the others back */
  highlight(nodes) {
    this.element.classList.toggle("picking", nodes !== null);
    for (const mark of this.marks) {
      const hit =
        nodes !== null &&
        (mark.box.nodes.some((/** @type {number} */ node) => nodes.has(node)) ||
          mark.box.badges.some((/** @type {[number,string]} */ [node]) => nodes.has(node)));
      mark.element.classList.toggle("picked", hit);
    }
  }

  // -- pan and zoom

  /** What has to be seen, the words above the boxes included. @returns {{width:number, height:number, top:number}} */
  extent() {
    const { width, height } = this.graph.drawing,
      top = 20;
    return { width, height: height + top, top };
  }

  /** The height the graph wants at this width, in pixels. @param {number} width @returns {number} */
  wantedHeight(width) {
    const { width: w, height: h } = this.extent();
    return Math.min(Math.max(h * Math.min(LARGEST, (width - 16) / w) + 12, 110), 420);
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || !this.graph) return;
    const { style } = this.element;
    if (style.height !== this.ownHeight) this.sized = true; // the person pulled at the corner
    if (!this.moved && !this.sized) style.height = this.ownHeight = `${Math.round(this.wantedHeight(width))}px`;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${this.element.clientHeight}`);
    if (!this.moved) this.home();
    else this.show();
  }

  /** The first view: all of it where it stays readable, else its width, from where the gradient starts. */
  home() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element;
    const whole = Math.min(LARGEST, (W - 16) / width, (H - 8) / height);
    const beside = whole >= 0.6 ? W : W - this.mapSize().w - 12; // nothing lies under the map
    const k = whole >= 0.6 ? whole : Math.max(Math.min(1, (beside - 16) / width), 0.6);
    this.view = {
      k,
      x: Math.max((beside - width * k) / 2, 8),
      y: (height * k <= H ? (H - height * k) / 2 : 4) + top * k,
    };
    const root = this.graph.boxes[this.rootBox()];
    if (root && whole < 0.6) this.reveal(root);
    this.show();
  }

  rootBox() {
    const fed = new Set(this.graph.wires.map((/** @type {Wire} */ wire) => wire.target));
    return Math.max(
      this.graph.boxes.findIndex((/** @type {Box} */ _box, /** @type {number} */ place) => !fed.has(place)),
      0,
    );
  }

  /** See all of it. */
  fit() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element;
    const k = Math.min(1.5, (W - 16) / width, (H - 8) / height);
    this.view = { k, x: (W - width * k) / 2, y: (H - height * k) / 2 + top * k };
    this.moved = true;
    this.show();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] the point that stays where it is */
  zoom(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
    const k = Math.min(Math.max(this.view.k * factor, 0.05), 4),
      change = k / this.view.k;
    this.view = { k, x: x - (x - this.view.x) * change, y: y - (y - this.view.y) * change };
    this.moved = true;
    this.show();
  }

  /** Move as little as needed to see a box. @param {Box} box */
  reveal(box) {
    const { k } = this.view,
      { clientWidth: W, clientHeight: H } = this.element,
      margin = 24;
    const left = box.x * k + this.view.x,
      top = box.y * k + this.view.y;
    if (left < margin || left + box.w * k > W - margin) this.view.x = W / 2 - (box.x + box.w / 2) * k;
    if (top < margin || top + box.h * k > H - margin) this.view.y = H / 2 - (box.y + box.h / 2) * k;
    this.keepInside();
    this.show();
  }

  /** No empty margins where there is more to see on the other side. */
  keepInside() {
    const { width, height, top } = this.extent(),
      { clientWidth: W, clientHeight: H } = this.element,
      { k } = this.view;
    if (height * k > H) this.view.y = Math.min(Math.max(this.view.y, H - 8 - (height - top) * k), top * k + 4);
    const right = W - (height * k > H ? this.mapSize().w + 12 : 0) - 8;
    if (width * k > W) this.view.x = Math.min(Math.max(this.view.x, right - width * k), 8);
  }

  show() {
    const { k, x, y } = this.view;
    this.world.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${k.toFixed(4)})`);
    const far = k < 0.5;
    this.canvas.classList.toggle("tiny", k < 0.32);
    if (this.canvas.classList.contains("far") !== far) {
      this.canvas.classList.toggle("far", far);
      const { picture } = this;
      if (picture) this.marks.forEach((mark) => paintBox(mark, picture.norms, picture.bad, far));
    }
    this.zoomed?.(k);
    this.paintMap();
  }

  /** How large the map is, where there is one. */
  mapSize() {
    const { width, height } = this.graph.drawing,
      scale = Math.min(150 / width, Math.min(this.element.clientHeight - 30, 180) / height);
    return { scale, w: Math.max(Math.round(width * scale), 24), h: Math.max(Math.round(height * scale), 8) };
  }

  paintMap() {
    const { width, height } = this.graph.drawing,
      { k, x, y } = this.view,
      { clientWidth: W, clientHeight: H } = this.element;
    const whole = x >= -1 && y >= -1 && x + width * k <= W + 1 && y + height * k <= H + 1;
    this.map.hidden = whole || H < 140;
    if (this.map.hidden) return;
    const { scale, w, h } = this.mapSize(),
      ratio = globalThis.devicePixelRatio || 1;
    Object.assign(this.map, { width: w * ratio, height: h * ratio });
    Object.assign(this.map.style, { width: `${w}px`, height: `${h}px` });
    this.mapScale = scale;
    const pen = this.map.getContext("2d"),
      style = getComputedStyle(this.map);
    const colour = (/** @type {string} */ state) =>
      style.getPropertyValue(
        state === "bad" ? "--error" : state === "wait" ? "--line" : state.length > 3 ? "--line-2" : `--${state}`,
      );
    pen.scale(ratio * scale, ratio * scale);
    for (const mark of this.marks) {
      pen.fillStyle = colour(mark.state);
      pen.fillRect(mark.box.x, mark.box.y, Math.max(mark.box.w, 1.5 / scale), Math.max(mark.box.h, 1.5 / scale));
    }
    pen.strokeStyle = style.getPropertyValue("--accent");
    pen.lineWidth = 1.5 / scale;
    pen.strokeRect(-x / k, -y / k, W / k, H / k);
  }

  // -- the person

  listen() {
    this.canvas.addEventListener("click", (/** @type {any} */ event) => {
      const mark = event.target.closest("[data-box]");
      if (mark && !this.dragged)
        this.hooks.select(Number(mark.dataset.box), event.target.closest("[data-node]")?.dataset.node ?? null);
    });
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this.wheel(event), { passive: false });
    this.drag(this.canvas, (dx, dy) => {
      this.view.x += dx;
      this.view.y += dy;
    });
    this.canvas.addEventListener("pointerover", (/** @type {any} */ event) => {
      const mark = event.target.closest("[data-box]");
      if (mark && !mark.querySelector(":scope > title"))
        mark.prepend(svg("title", {}, this.hooks.tell(Number(mark.dataset.box))));
    });
    this.map.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.centre(event));
    this.drag(this.map, (_dx, _dy, event) => this.centre(event));
  }

  /** @param {Element} surface @param {(dx:number, dy:number, event:PointerEvent)=>void} move */
  drag(surface, move) {
    /** @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    surface.addEventListener("pointerdown", (/** @type {any} */ event) => {
      fingers.set(event.pointerId, event);
      this.dragged = false;
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"])
      surface.addEventListener(end, (/** @type {any} */ event) => fingers.delete(event.pointerId));
    surface.addEventListener("pointermove", (/** @type {any} */ event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      if (!this.dragged) surface.setPointerCapture(event.pointerId);
      this.dragged = this.moved = true;
      if (fingers.size === 2) this.pinch(fingers, event);
      else move(dx, dy, event);
      fingers.set(event.pointerId, event);
      this.show();
    });
  }

  /** @param {Map<number, PointerEvent>} fingers @param {PointerEvent} event */
  pinch(fingers, event) {
    const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
    const before = fingers.get(event.pointerId);
    if (!other || !before) return;
    const spread = (/** @type {PointerEvent} */ finger) =>
      Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
    const box = this.canvas.getBoundingClientRect();
    this.zoom(
      spread(event) / Math.max(spread(before), 1),
      (event.clientX + other.clientX) / 2 - box.left,
      (event.clientY + other.clientY) / 2 - box.top,
    );
  }

  /** Plain wheel scrolls the page until the graph has the focus. @param {WheelEvent} event */
  wheel(event) {
    if (!(event.ctrlKey || event.metaKey || this.element.contains(document.activeElement))) return;
    event.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    this.zoom(
      Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)),
      event.clientX - box.left,
      event.clientY - box.top,
    );
  }

  /** @param {PointerEvent} event */
  centre(event) {
    const box = this.map.getBoundingClientRect(),
      { k } = this.view,
      scale = this.mapScale;
    this.view.x = this.element.clientWidth / 2 - ((event.clientX - box.left) / scale) * k;
    this.view.y = this.element.clientHeight / 2 - ((event.clientY - box.top) / scale) * k;
    this.moved = true;
    this.show();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    });
    if (event.key === "Enter" || event.key === " ") this.hooks.select(this.focused, null);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (steps[event.key]) this.focus(this.neighbour(...steps[event.key]));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The box the arrow points to: along a wire where one leads there, else the nearest. @param {number} dx @param {number} dy @returns {number} */
  neighbour(dx, dy) {
    const here = this.graph.boxes[this.focused],
      middle = (/** @type {Box} */ box) => [box.x + box.w / 2, box.y + box.h / 2];
    const [hx, hy] = middle(here);
    const wired = new Set(
      this.graph.wires.flatMap((/** @type {Wire} */ wire) =>
        wire.source === this.focused ? [wire.target] : wire.target === this.focused ? [wire.source] : [],
      ),
    );
    let best = this.focused,
      least = Infinity;
    this.graph.boxes.forEach((/** @type {Box} */ box, /** @type {number} */ place) => {
      const [x, y] = middle(box),
        ahead = (x - hx) * dx + (y - hy) * dy,
        aside = Math.abs((x - hx) * dy) + Math.abs((y - hy) * dx);
      if (ahead <= 1 || (!wired.has(place) && aside > ahead)) return;
      const cost = ahead + 2 * aside - (wired.has(place) ? 1e6 : 0);
      if (cost < least) [best, least] = [place, cost];
    });
    return best;
  }

  /** @param {number} place */
  focus(place) {
    this.marks[this.focused].element.setAttribute("tabindex", "-1");
    this.focused = place;
    const mark = this.marks[place];
    mark.element.setAttribute("tabindex", "0");
    this.reveal(mark.box);
    mark.element.focus({ preventScroll: true });
  }
}

/** @param {string} id */
function hatchPattern(id) {
  return svg(
    "pattern",
    { id, width: 4.2, height: 4.2, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 4.2, height: 4.2, class: "hatch-ground" }),
    svg("rect", { width: 1.7, height: 4.2, class: "hatch-line" }),
  );
}

/** @param {Box} box @param {number} place */
function boxMark(box, place) {
  const r = 5,
    foot = 5,
    head = box.badges.length ? HEAD : box.h;
  const value = svg("text", { class: "value", x: box.w / 2, y: -7 });
  const badges = box.badges
    .slice(0, box.written)
    .map(([node, label], row) => ({ node, state: "", element: badgeMark(node, label, row, box.w) }));
  const hidden = box.badges.slice(box.written).map(([node]) => node);
  const rest = svg("text", { class: "more-badges", x: 4, y: HEAD + BADGE * box.written + 13 });
  const element = svg(
    "g",
    {
      class: "box wait",
      transform: `translate(${box.x} ${box.y})`,
      "data-box": place,
      tabindex: -1,
      role: "button",
    },
    svg("rect", { class: "plate", width: box.w, height: head, rx: r }),
    svg("path", {
      class: "foot",
      d: `M0 ${head - foot}h${box.w}a${r} ${r} 0 0 1-${r} ${foot}h${2 * r - box.w}a${r} ${r} 0 0 1-${r}-${foot}z`,
    }),
    svg("rect", { class: "rim", width: box.w, height: head, rx: r }),
    svg("text", { class: "name", x: box.w / 2, y: box.detail ? 16 : head / 2 + 2 }, box.label),
    box.detail ? svg("text", { class: "detail", x: box.w / 2, y: 29 }, box.detail) : null,
    ...badges.map((badge) => badge.element),
    rest,
    value,
  );
  return { box, element, badges, hidden, rest, state: "wait", value: "", valueMark: value };
}

/** @param {number} node @param {string} label @param {number} row @param {number} width */
function badgeMark(node, label, row, width) {
  return svg(
    "g",
    { class: "badge wait", "data-node": node, transform: `translate(0 ${HEAD + 3 + BADGE * row})` },
    svg("rect", { class: "tag", width, height: 13, rx: 3 }),
    svg("rect", { class: "dot", x: 4, y: 3, width: 7, height: 7 }),
    svg("text", { x: 15, y: 9.8 }, label),
  );
}

/** @param {Element} element @param {string} name a class that a new state leaves as it is */
export function kept(element, name) {
  return element.classList.contains(name) ? ` ${name}` : "";
}

/** @param {any} mark @param {Float32Array} norms @param {Map<number,[number,number]>} bad @param {boolean} far */
function paintBox(mark, norms, bad, far) {
  const norm = ofBox(mark.box.nodes, norms),
    state = level(norm);
  if (state !== mark.state)
    mark.element.setAttribute("class", `box ${state}${kept(mark.element, "picked")}${kept(mark.element, "born")}`);
  mark.state = state;
  for (const badge of mark.badges) {
    const now = level(norms[badge.node]);
    if (now !== badge.state) badge.element.setAttribute("class", `badge ${now}`);
    badge.state = now;
  }
  if (mark.hidden.length) paintRest(mark, norms);
  if (far) return;
  const counts =
    state === "bad" ? mark.box.nodes.map((/** @type {number} */ node) => bad.get(node)).find(Boolean) : null;
  const value = counts ? shortBadText(counts[0], counts[1], mark.box.w + 8) : exponentText(norm);
  if (value !== mark.value) mark.valueMark.textContent = mark.value = value;
}

/** The leaves that are not written out: how many, and how many of them are not finite. @param {any} mark @param {Float32Array} norms */
function paintRest(mark, norms) {
  const bad = mark.hidden.filter((/** @type {number} */ node) => level(norms[node]) === "bad").length,
    count = mark.hidden.length;
  const words = mark.box.written ? `+ ${count} more` : count === 1 ? "1 leaf" : `${count} leaves`;
  say(mark.rest, bad ? `${words}, ${bad} not finite` : words);
  mark.rest.classList.toggle("bad", bad > 0);
}

/** @param {Wire} wire */
function wireMark(wire) {
  const points = [];
  for (let at = 0; at < wire.points.length; at += 2) points.push([wire.points[at], wire.points[at + 1]]);
  const [tip, back] = [points[points.length - 1], points[points.length - 2]];
  const angle = Math.atan2(tip[1] - back[1], tip[0] - back[0]);
  const head = svg("path", {
    class: "tip",
    d: "M0 0l-7-4.2v8.4z",
    transform: `translate(${tip[0]} ${tip[1]}) rotate(${((angle * 180) / Math.PI).toFixed(1)})`,
  });
  const end = [tip[0] - 5 * Math.cos(angle), tip[1] - 5 * Math.sin(angle)];
  const line = svg("path", { class: "line", d: smooth([...points.slice(0, -1), end]) });
  return { wire, line, state: "", element: svg("g", { class: "wire wait" }, line, head) };
}

/** Rounded corners. @param {number[][]} points @returns {string} */
function smooth(points) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [[ax, ay], [bx, by], [cx, cy]] = [points[at - 1], points[at], points[at + 1]];
    const cut = (/** @type {number} */ dx, /** @type {number} */ dy) =>
      Math.min(8, Math.hypot(dx, dy) / 2) / (Math.hypot(dx, dy) || 1);
    const [before, after] = [cut(ax - bx, ay - by), cut(cx - bx, cy - by)];
    path += `L${(bx + (ax - bx) * before).toFixed(1)} ${(by + (ay - by) * before).toFixed(1)}Q${bx} ${by} ${(bx + (cx - bx) * after).toFixed(1)} ${(by + (cy - by) * after).toFixed(1)}`;
  }
  const last = points[points.length - 1];
  return `${path}L${last[0].toFixed(1)} ${last[1].toFixed(1)}`;
}

/** A wire is lit once the gradient has gone through it: both ends were reached. @param {any} line @param {string} from @param {string} to */
function paintWire(line, from, to) {
  const state = from === "wait" ? "wait" : to;
  if (state === line.state) return;
  line.state = state;
  line.element.setAttribute("class", `wire ${state}`);
  line.line.setAttribute("stroke-width", wireWidth(state).toFixed(1));
}

/** @param {Element} mark @param {Box|null} box @param {number} gap */
function around(mark, box, gap) {
  mark.setAttribute("visibility", box ? "visible" : "hidden");
  if (!box) return;
  const place = { x: box.x - gap, y: box.y - gap, width: box.w + 2 * gap, height: box.h + 2 * gap };
  for (const [name, value] of Object.entries(place)) mark.setAttribute(name, String(value));
}

/** @param {Box} box @param {any} birth @param {number} width of the drawing */
function bornMark(box, birth, width) {
  const word = birth.nan ? "NaN" : "Inf";
  const where = ["module", "repeat"].includes(box.kind) ? "in here" : "here";
  const height = box.badges.length ? HEAD : box.h,
    words = `◆ ${word} born ${where}${birth.certain ? "" : ", or beside it"}`;
  // To the right, from where a finite gradient came: its few digits leave room, the counts of NaN at the left do not.
  const fits = box.x + 6.6 * words.length < width;
  return svg(
    "g",
    {},
    svg("rect", { class: "born-rim", x: box.x, y: box.y, width: box.w, height, rx: 5 }),
    svg(
      "text",
      {
        class: "born-text",
        x: fits ? box.x - 14 : box.x + box.w + 4,
        y: box.y - 8,
        "text-anchor": fits ? "start" : "end",
      },
      words,
    ),
  );
}

/** First and last place of every run of values for which it holds. @param {number[]} values @param {(value:number)=>boolean} holds @returns {[number, number][]} */
export function runs(values, holds) {
  /** @type {[number, number][]} */
  const found = [];
  values.forEach((value, at) => {
    if (!holds(value)) return;
    const last = found[found.length - 1];
    if (last && last[1] === at - 1) last[1] = at;
    else found.push([at, at]);
  });
  return found;
}

/** For each dotted name its shortest ending, of two parts or more, that no other name has. @param {string[]} names @returns {string[]} */
export function shortNames(names) {
  const endings = names.map((name) => {
    const parts = name.split(".");
    return parts.slice(1).map((_part, at) => parts.slice(parts.length - 2 - at).join("."));
  });
  /** @type {Map<string, number>} */
  const uses = new Map();
  for (const ending of endings.flat()) uses.set(ending, (uses.get(ending) ?? 0) + 1);
  return names.map((name, place) => endings[place].find((ending) => uses.get(ending) === 1) ?? name);
}
