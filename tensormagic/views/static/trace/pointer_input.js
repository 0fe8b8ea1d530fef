// @ts-check
/** What a user does to the picture: point, drag, pinch, turn the wheel, press keys. */

import { svg } from "./words.js";

/** @typedef {import("./graph.js").GraphView} GraphView */

const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
});

/** @param {GraphView} view */
export function listenTo(view) {
  const { canvas, map } = view;
  const hand = dragged(view, canvas, (dx, dy, { pointerType }) => {
    view.view.x += dx;
    if (pointerType !== "touch" || held(view)) view.view.y += dy; // else the page goes up and down
  });
  canvas.addEventListener("click", (/** @type {any} */ event) => {
    if (!hand.moved || !event.detail) clicked(view, event); // a screen reader clicks without a pointer
  });
  canvas.addEventListener("focusin", (/** @type {any} */ event) => view.hold(event.target.closest("[data-box]")));
  canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => pressed(view, event));
  canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => turned(view, event), { passive: false });
  canvas.addEventListener("pointerover", (/** @type {any} */ event) => {
    const mark = event.target.closest("[data-box]");
    if (mark && !mark.querySelector(":scope > title"))
      mark.prepend(svg("title", {}, view.hooks.tell(Number(mark.dataset.box))));
  });
  map.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => centred(view, event));
  dragged(view, map, (_dx, _dy, event) => centred(view, event));
}

/** @param {GraphView} view @param {any} event */
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

/** The box under a pointer, where boxes are no elements. @param {GraphView} view @param {any} event @returns {number} */
function boxAt(view, event) {
  const box = view.canvas.getBoundingClientRect(),
    { k, x, y } = view.view;
  const [wx, wy] = [(event.clientX - box.left - x) / k, (event.clientY - box.top - y) / k];
  return view.graph.boxes.findIndex(
    (/** @type {any} */ one) => wx >= one.x && wx <= one.x + one.w && wy >= one.y && wy <= one.y + one.h,
  );
}

/** @param {GraphView} view @param {Element} surface @param {(dx:number, dy:number, event:PointerEvent)=>void} move */
function dragged(view, surface, move) {
  const hand = { moved: false };
  /** @type {Map<number, PointerEvent>} */
  const fingers = new Map();
  surface.addEventListener("pointerdown", (/** @type {any} */ event) => {
    if (event.button) return; // a menu takes the rest of it
    fingers.set(event.pointerId, event);
    hand.moved = false;
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"])
    surface.addEventListener(end, (/** @type {any} */ event) => fingers.delete(event.pointerId));
  let waiting = 0;
  surface.addEventListener("pointermove", (/** @type {any} */ event) => {
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

/** @param {GraphView} view @param {Map<number, PointerEvent>} fingers @param {PointerEvent} event */
function pinched(view, fingers, event) {
  const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
  const before = fingers.get(event.pointerId);
  if (!other || !before) return;
  const spread = (/** @type {PointerEvent} */ finger) =>
    Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
  const box = view.canvas.getBoundingClientRect();
  view.zoom(
    spread(event) / Math.max(spread(before), 1),
    (event.clientX + other.clientX) / 2 - box.left,
    (event.clientY + other.clientY) / 2 - box.top,
  );
}

/** Whether the graph has the focus: then what scrolls a page is for the graph. @param {GraphView} view */
const held = (view) => view.element.contains(document.activeElement);

/** Plain wheel scrolls the page until the graph has the focus. @param {GraphView} view @param {WheelEvent} event */
function turned(view, event) {
  if (!(event.ctrlKey || event.metaKey || held(view))) return;
  event.preventDefault();
  const box = view.canvas.getBoundingClientRect();
  view.zoom(
    Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)),
    event.clientX - box.left,
    event.clientY - box.top,
  );
}

/** @param {GraphView} view @param {PointerEvent} event */
function centred(view, event) {
  const box = view.map.getBoundingClientRect(),
    { k } = view.view,
    scale = box.width / Math.max(view.graph.size.width, 1);
  view.view.x = view.room.width / 2 - ((event.clientX - box.left) / scale) * k;
  view.view.y = view.room.height / 2 - ((event.clientY - box.top) / scale) * k;
  view.moved = true;
  view.show();
}

/** @param {GraphView} view @param {KeyboardEvent} event */
function pressed(view, event) {
  const place = view.focused;
  if (event.ctrlKey || event.metaKey || event.altKey) return; // the zoom of the browser, the commands of the notebook
  if (event.key === "Enter" && view.hooks.opens(place) && !event.shiftKey) view.hooks.open(place);
  else if (event.key === "Enter" || event.key === " ") view.hooks.select(place, null);
  else if (event.key === "+" || event.key === "=") view.zoom(1.25);
  else if (event.key === "-") view.zoom(0.8);
  else if (event.key === "0") view.fit();
  else if (ARROWS[event.key]) view.focus(view.neighbour(...ARROWS[event.key]));
  else return;
  event.preventDefault();
  event.stopPropagation();
}
