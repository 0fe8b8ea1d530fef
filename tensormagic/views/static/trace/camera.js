/** Where a user looks at a picture from: pan and zoom, and how to bring into view what is asked for. */

import { arrowOf, clamp, svg, isCommand, take } from "../dom.js";
import { LARGEST } from "./words.js";

export const FAR = 0.5; // below that zoom only names are read
const BORN = 108; // how far the words over a box reach in which NaN was born
const ON_A_WALL = 4; // how far a graph is enlarged there
const TALLEST = 420;
const TALLEST_OPEN = 620;

/** How large the map is, where there is one. tall: of the view. */
export function mapSize({ width, height }, tall) {
  const scale = Math.min(150 / width, Math.min(tall - 30, 180) / height);
  return { scale, w: Math.max(Math.round(width * scale), 24), h: Math.max(Math.round(height * scale), 8) };
}

/** The piece of a picture in which some points lie. */
export function boundsOf(points) {
  const [across, down] = [0, 1].map((side) => points.map((point) => point[side])),
    [x, y] = [Math.min(...across), Math.min(...down)];
  return { x, y, w: Math.max(...across) - x, h: Math.max(...down) - y };
}

/** Which pieces of the picture lie in a part of it, at least partly. */
export function coveredBy([left, top, right, bottom]) {
  return ({ x, y, w, h }) => x <= right && x + w >= left && y <= bottom && y + h >= top;
}

/** The part of a picture that is seen: `show` applies it, and is what a picture has to bring along. */
export class Camera {
  view = { k: 1, x: 0, y: 0 };
  graph = null;
  /** the height that the view gave itself */ ownHeight = "";
  /** what is to be seen once there is room: the zoom, and what is in the middle */ wanted = null;
  /** pixels at the right that something lies over */ aside = 0;
  born = -1;
  fills = false; // whether it is as large as its place, to be seen from the last row
  sized = false;
  moved = false;
  /** what the view measures: kept, for asking the page makes it lay itself out */ room = { width: 1, height: 1 };

  show() {}

  /** Whether boxes have no element each. */
  isFar() {
    return false;
  }

  /** What has to be seen, the words above the boxes included. */
  extent() {
    const { width, height } = this.graph.size,
      { marks, nonfinite, forwardMark, crash, opened } = this.graph,
      places = [...[...marks, crash ?? []].map((mark) => mark[3]), ...[...nonfinite, forwardMark].filter(Boolean).map(({ place }) => place)],
      words = places.map((place) => (place?.length && !opened.length ? place[1] : -20)), // their baselines (marks.py)
      top = Math.max(20, 14 - Math.min(...words, 0)),
      low = Math.max(0, Math.max(...words, 0) + 4 - height);
    return { width, height: height + top + low, top };
  }

  /** Whether a graph is higher than the screen, folded, at so many pixels of width, its boxes as large as they are read. */
  isTall({ drawing }, width) {
    return drawing.height * Math.min(LARGEST, (width - 16) / drawing.width) > Math.max(globalThis.innerHeight, 600);
  }

  resize() {
    const width = this.element.clientWidth;
    if (!width || !this.graph) return;
    const { style } = this.element,
      { width: w, height: h } = this.extent(),
      tallest = this.graph.opened.length ? TALLEST_OPEN : TALLEST,
      wanted = `${Math.round(clamp(h * Math.min(LARGEST, (width - 16) / w) + 12, 110, tallest))}px`;
    if (style.height !== this.ownHeight) this.sized = true; // the user pulled at the corner
    if (this.fills) style.height = this.ownHeight = "";
    else if (!this.sized && (!this.moved || this.graph.opened.length)) style.height = this.ownHeight = wanted;
    this.room = { width, height: this.element.clientHeight };
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${this.room.height}`);
    if (this.wanted) this.lookAt(this.wanted);
    else if (!this.moved) this.home();
    else this.show();
  }

  lookAt({ k, x, y }) {
    const { width, height } = this.clear();
    this.wanted = null;
    this.stand({ k, x: width / 2 - x * k, y: height / 2 - y * k });
  }

  stand(view) {
    this.view = view;
    this.moved = true;
    this.show();
  }

  /** The first view: all of it where it stays readable, else its width, from where the gradient starts. */
  home() {
    const { width, height, top } = this.extent(),
      { width: W, height: H } = this.room;
    const whole = Math.min(this.fills ? ON_A_WALL : LARGEST, (W - 16) / width, (H - 8) / height);
    const beside = whole >= 0.6 ? W : W - mapSize(this.graph.size, H).w - 12; // nothing lies under the map
    const k = whole >= 0.6 ? whole : Math.max(Math.min(1, (beside - 16) / width), 0.6);
    this.view = {
      k,
      x: Math.max((beside - width * k) / 2, 8),
      y: (height * k <= H ? (H - height * k) / 2 : 4) + top * k,
    };
    const { boxes, wires } = this.graph,
      fed = new Set(wires.map((wire) => wire.target)),
      root = boxes.find((_box, place) => !fed.has(place)) ?? boxes[0];
    if (root && whole < 0.6) this.reveal(root);
    this.show();
  }

  /** See all of it. */
  fit() {
    const { width, height, top } = this.extent();
    this.frame({ x: 0, y: -top, w: width, h: height }, 1.5);
  }

  /** Bring a piece of the picture into view, as large as it can be. */
  frame({ x, y, w, h }, most = LARGEST) {
    const { width: W, height: H } = this.clear(),
      k = Math.max(Math.min(most, (W - 16) / w, (H - 8) / h), 0.02);
    this.stand({ k, x: (W - w * k) / 2 - x * k, y: (H - h * k) / 2 - y * k });
  }

  /** Bring the boxes of some nodes into view, not larger than they are now if all of them can be seen. */
  frameBoxes(places) {
    const boxes = [...places].map((at) => this.graph.boxes[at]).filter((box) => !box.open);
    if (!boxes.length) return;
    const corners = boxes.flatMap(({ x, y, w, h }) => [[x - 24, y - 34], [x + w + 24, y + h + 16]]),
      piece = boundsOf(corners),
      { k } = this.view,
      { width: W, height: H } = this.clear();
    const [left, top] = [piece.x * k + this.view.x, piece.y * k + this.view.y],
      seen = left >= 0 && left + piece.w * k <= W && top >= 0 && top + piece.h * k <= H;
    if (!seen || k < FAR) this.frame(piece, clamp(k, 0.8, LARGEST));
  }

  /** x, y: the point that stays where it is */
  zoom(factor, x = this.clear().width / 2, y = this.room.height / 2) {
    const k = clamp(this.view.k * factor, 0.01, 4),
      change = k / this.view.k;
    this.stand({ k, x: x - (x - this.view.x) * change, y: y - (y - this.view.y) * change });
  }

  /** Move as little as needed to see a box. */
  reveal(box) {
    const { k } = this.view,
      { width: W, height: H } = this.clear(),
      margin = 24;
    const left = box.x * k + this.view.x,
      top = box.y * k + this.view.y;
    if (left < margin || left + box.w * k > W - margin) this.view.x = W / 2 - (box.x + box.w / 2) * k;
    if (top < margin || top + box.h * k > H - margin) this.view.y = H / 2 - (box.y + box.h / 2) * k;
    this.keepInside();
    this.show();
  }

  /** Bring an opened box into view: whole where it has room, else from its upper left corner. from: where the box stood that was opened. */
  revealFrame(part, from = null) {
    const { boxes, opened } = this.graph,
      frame = opened.find((one) => one.part === part),
      high = boxes.find((one) => one.part === part)?.y;
    if (!frame) return;
    const { k, y } = this.view,
      { width: W, height: H } = this.room,
      { width, height } = this.extent();
    const room = W - mapSize(this.graph.size, H).w - 28,
      now = Math.max(Math.min(1, (width > room ? W - 28 : room) / width), Math.min(k, 0.6));
    // Sideways the whole is in the middle; upwards the box stays where it stood, as far as that shows all of its frame.
    const tall = (frame.y + frame.h - high) * now,
      top = clamp(from ? from.y * k + y : 24, 24, Math.max(H - 14 - tall, 24));
    const x = Math.max((Math.max(room + 28, width * now) - width * now) / 2, 8),
      down = top - high * now;
    this.stand({ k: now, x, y: height * now <= H ? Math.max(down, 24) : down });
  }

  /** Keep the box of a node in view, while the order is played. */
  follow(node) {
    const box = this.graph.boxes[this.graph.boxOf.get(node) ?? -1],
      { k, x, y } = this.view;
    if (!box || this.isFar()) return;
    const [left, top] = [box.x * k + x, box.y * k + y];
    if (left < 0 || left + box.w * k > this.clear().width || top < 8 || top + box.h * k > this.room.height) this.reveal(box);
  }

  /** Move a box out from under what lies over the picture, no further. */
  uncover(at) {
    const box = this.graph.boxes[at],
      { k, x } = this.view,
      wide = at === this.born ? Math.max(box.w, BORN) : box.w,
      over = (box.x + wide) * k + x - (this.clear().width - 12);
    if (!this.aside || over <= 0) this.show();
    else this.stand({ ...this.view, x: Math.max(x - over, Math.min(x, 12 - box.x * k)) });
  }

  /** The part of the room that nothing lies over. */
  clear() {
    return { width: this.room.width - this.aside, height: this.room.height };
  }

  /** No empty margins where there is more to see on the other side. */
  keepInside() {
    const { width, height, top } = this.extent(),
      { width: W, height: H } = this.clear(),
      { k } = this.view;
    if (height * k > H) this.view.y = clamp(this.view.y, H - 8 - (height - top) * k, top * k + 4);
    const right = W - (height * k > H && !this.aside ? mapSize(this.graph.size, H).w + 12 : 0) - 8;
    if (width * k > W) this.view.x = clamp(this.view.x, right - width * k, 8);
  }
}

// What a user does to the picture: point, drag, pinch, turn the wheel, press keys.

export function listenTo(view) {
  const { canvas, map } = view;
  const hand = dragged(view, canvas, (dx, dy, { pointerType }) => {
    view.view.x += dx;
    if (pointerType !== "touch" || held(view)) view.view.y += dy; // else the page goes up and down
  });
  canvas.addEventListener("click", (event) => {
    if (!hand.moved || !event.detail) clicked(view, event); // a screen reader clicks without a pointer
  });
  canvas.addEventListener("focusin", (event) => {
    const mark = event.target.closest("[data-box]");
    if (mark) view.stopAt(Number(mark.dataset.box)); // the keys go on from the box that has the focus, also where a click brought it there
  });
  canvas.addEventListener("keydown", (event) => pressed(view, event));
  canvas.addEventListener("wheel", (event) => turned(view, event), { passive: false });
  canvas.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-box]");
    if (mark && !mark.querySelector(":scope > title"))
      mark.prepend(svg("title", {}, view.hooks.tell(Number(mark.dataset.box))));
  });
  map.addEventListener("pointerdown", (event) => centred(view, event));
  dragged(view, map, (_dx, _dy, event) => centred(view, event));
}

function clicked(view, event) {
  const handle = event.target.closest(".handle");
  if (handle) return view.hooks.fold(Number(handle.closest("[data-frame]").dataset.frame));
  const mark = event.target.closest("[data-box]"),
    place = mark ? Number(mark.dataset.box) : view.isFar() ? boxAt(view, event) : -1;
  if (place < 0) return;
  const node = event.target.closest("[data-node]")?.dataset.node ?? null;
  if (node === null && view.hooks.opens(place) && !event.shiftKey) view.hooks.open(place);
  else view.hooks.select(place, node);
}

/** Where in an element a pointer is. */
function within(element, { clientX, clientY }) {
  const { left, top } = element.getBoundingClientRect();
  return [clientX - left, clientY - top];
}

/** The box under a pointer, where boxes are no elements. */
function boxAt(view, event) {
  const [across, down] = within(view.canvas, event),
    { k, x, y } = view.view,
    [left, top] = [(across - x) / k, (down - y) / k];
  return view.graph.boxes.findIndex(coveredBy([left, top, left, top]));
}

function dragged(view, surface, move) {
  const hand = { moved: false };
  const fingers = new Map();
  surface.addEventListener("pointerdown", (event) => {
    if (event.button) return; // a menu takes the rest of it
    fingers.set(event.pointerId, event);
    hand.moved = false;
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"])
    surface.addEventListener(end, (event) => fingers.delete(event.pointerId));
  let waiting = 0;
  surface.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before || !event.buttons) return void fingers.delete(event.pointerId); // let go where nobody told
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (!hand.moved && Math.hypot(dx, dy) < 4) return;
    if (!hand.moved) surface.setPointerCapture(event.pointerId);
    hand.moved = view.moved = true;
    if (fingers.size === 2) pinched(view, fingers, event);
    else move(dx, dy, event);
    fingers.set(event.pointerId, event);
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      view.show();
    });
  });
  return hand;
}

function pinched(view, fingers, event) {
  const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
  const before = fingers.get(event.pointerId);
  if (!other || !before) return;
  const spread = (finger) =>
    Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
  const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
  view.zoom(spread(event) / Math.max(spread(before), 1), ...within(view.canvas, middle));
}

/** Whether the graph has the focus: then what scrolls a page is for the graph. */
const held = (view) => view.element.contains(document.activeElement);

/** Plain wheel scrolls the page until the graph has the focus. */
function turned(view, event) {
  if (!(event.ctrlKey || event.metaKey || held(view))) return;
  event.preventDefault();
  view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...within(view.canvas, event));
}

function centred(view, event) {
  const [across, down] = within(view.map, event),
    { width, height } = view.room,
    { k } = view.view,
    scale = view.map.getBoundingClientRect().width / Math.max(view.graph.size.width, 1);
  view.stand({ k, x: width / 2 - (across / scale) * k, y: height / 2 - (down / scale) * k });
}

function pressed(view, event) {
  const place = view.focused,
    way = arrowOf(event);
  if (isCommand(event)) return;
  if (event.key === "Enter" && view.hooks.opens(place) && !event.shiftKey) view.hooks.open(place);
  else if (event.key === "Enter" || event.key === " ") view.hooks.select(place, null);
  else if (event.key === "+" || event.key === "=") view.zoom(1.25);
  else if (event.key === "-") view.zoom(0.8);
  else if (event.key === "0") view.fit();
  else if (way) view.focus(view.neighbour(way[0], way[1]));
  else return;
  take(event);
}
