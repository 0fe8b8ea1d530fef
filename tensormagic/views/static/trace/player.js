// @ts-check
/** The two time axes of a run: the passes, one after the other, and within a pass the order in which backward goes. */

import { PLAY_MILLISECONDS, UNTOUCHED, html, say, glyph, GLYPHS } from "./words.js";

const ORDER_MILLISECONDS = 5000; // the whole way at normal speed, but never faster than a user sees
const SLOWEST_STEP = 160;
const SPEEDS = [0.25, 0.5, 1, 2, 4];

/** A slider that can play: one row of the footer. */
export class Player {
  /** @type {ReturnType<typeof setTimeout>|undefined} */ timer;

  /** @param {{name:string, title:string, label:string, pace:()=>[number, number], move:(at:number)=>void}} hooks pace: milliseconds of one tick at normal speed, and how far it goes */
  constructor(hooks) {
    this.hooks = hooks;
    this.button = html(
      "button",
      { type: "button", class: "square", title: hooks.title, "aria-label": hooks.label, click: () => this.play(!this.timer) },
      glyph(GLYPHS.play, true),
    );
    this.text = html("span", { class: `${hooks.name}-text` });
    this.slider = html("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": hooks.name,
      "data-lm-suppress-shortcuts": "true",
      input: () => {
        this.play(false);
        hooks.move(Number(this.slider.value));
      },
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        this.play(!this.timer);
      },
    });
    this.element = html("div", { class: `player ${hooks.name}` }, this.button, this.text, this.slider);
  }

  /** @param {number} last */
  limit(last) {
    this.slider.max = String(Math.max(last, 0));
  }

  /** @param {number} at @param {string} words */
  stand(at, words) {
    this.slider.value = String(at);
    say(this.text, words);
    this.slider.setAttribute("aria-valuetext", words);
  }

  /** @param {boolean} on */
  play(on) {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.button.replaceChildren(glyph(on ? GLYPHS.pause : GLYPHS.play, true));
    this.button.setAttribute("aria-label", on ? this.hooks.label.replace("play", "pause") : this.hooks.label);
    if (!on) return;
    const { slider, hooks } = this;
    if (Number(slider.value) >= Number(slider.max)) hooks.move(0);
    const tick = () => {
      const [milliseconds, step] = hooks.pace(),
        next = Math.min(Number(slider.value) + step, Number(slider.max));
      this.timer = setTimeout(() => {
        hooks.move(next);
        if (next >= Number(slider.max)) this.play(false);
        else tick();
      }, milliseconds);
    };
    tick();
  }
}

/** How fast both sliders play. */
export function speedChooser() {
  const select = html(
    "select",
    { class: "speed", "aria-label": "speed of playing", title: "speed of playing" },
    ...SPEEDS.map((speed) => html("option", { value: speed, selected: speed === 1 }, `${speed}×`)),
  );
  return { select, speed: () => Number(select.value) };
}

/** @param {number} speed @returns {[number, number]} */
export function passPace(speed) {
  return [PLAY_MILLISECONDS / speed, 1];
}

/** The way through a graph takes a few seconds, however large it is. @param {number} count @param {number} speed @returns {[number, number]} */
export function orderPace(count, speed) {
  const milliseconds = Math.min(ORDER_MILLISECONDS / Math.max(count, 1), SLOWEST_STEP) / speed;
  return milliseconds >= 33 ? [milliseconds, 1] : [33, Math.max(Math.round(33 / milliseconds), 1)];
}

/** The norms of a pass as far as backward has come. @param {Float32Array} norms @param {number[]} order @param {number} reached */
export function upTo(norms, order, reached) {
  const part = new Float32Array(norms.length).fill(UNTOUCHED);
  for (let at = 0; at < Math.min(reached, order.length); at += 1) part[order[at]] = norms[order[at]];
  return part;
}
