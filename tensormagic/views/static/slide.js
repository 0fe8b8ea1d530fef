// A panel as slides: one part at a time, as large as it fits. The parts are the panel's own; without this script they
// stand one below the other. Keys count only while the focus is inside.
import { clamp, filled, html, isCommand } from "./dom.js";

const GROUPS = ".tm-folds,.tm-more,.tm-scroll,.tm-inside";
const WORDS = ".tm-find,.tm-gaps,.tm-clear,.tm-failed";
const FACTORS = [1.6, 1.45, 1.3, 1.2, 1.1, 1];
const LARGE = 1.3; // enough for what shares a slide
const LISTS = "tbody,.tm-find,ul"; // what is turned page by page where it is long
const WHOLE = ".tm-picture,.tm-cells,.tm-axes,.tm-bars"; // what is one picture
const HEADINGS = "h3,summary,style,script,nav,header,table,ul,.tm-about,.tm-find,.tm-off,.tm-export";
const SMALLER = [1, 0.85, 0.7]; // than can be read from far away: for what is too wide otherwise
const SHORTER = [0.92, 0.85]; // for one thing that is a little too high

/** Whether a disclosure is only the cover of several parts, or of a header of its own. */
const covers = (part) => part.matches("details") && (part.querySelectorAll("table").length > 1 || part.querySelector(".tm-head"));

/** The parts of a panel in their order; what only holds parts together is marked. */
const partsOf = (element) =>
  [...element.children].flatMap((part) => {
    if (part.matches("style,script,summary,nav,.tm-export,.tm-wire")) return [];
    if (!part.matches(GROUPS) && !covers(part)) return [part];
    part.classList.add("tm-taken");
    return partsOf(part);
  });

/** Whether a part is nothing but sentences. */
const isText = (part) => part.matches("p") || (part.matches(".tm-section") && [...part.children].every((one) => one.matches("p,ul,h3,.tm-about")));

/** What is shown together: first the words, then each part. */
const pagesOf = (parts) => {
  const words = parts.filter((part) => part.matches(WORDS));
  const rest = parts.filter((part) => !part.matches(WORDS) && !part.matches(".tm-head"));
  const pages = [];
  let lines = []; // a line of text is with what comes after it
  for (const part of rest) {
    lines.push(part);
    if (part.matches("p")) continue;
    pages.push(lines);
    lines = [];
  }
  return [words, ...pages, lines].filter((page) => page.length);
};

/** The rows of all lists in some parts, in their order; of a list within a row nothing. */
const rowsOf = (parts) =>
  parts.flatMap((part) => [...(part.matches(LISTS) ? [part] : []), ...part.querySelectorAll(LISTS)])
    .filter((list) => !list.closest(WHOLE) && !list.parentElement.closest(LISTS)).flatMap((list) => [...list.children])
    .flatMap((row) => (row.matches(".tm-rest") ? [...row.querySelectorAll(":scope>details")] : [row]));

/** What a row goes with: its table, its list. */
const holderOf = (row) => row.closest("table,.tm-find,ul");

/** What is beside lists and is no heading of theirs: a map before them is on the first of their slides, what is said after them on the last. */
const stillOf = (parts, rows) => {
  const before = new Set(), after = new Set();
  for (const row of rows)
    for (let one = holderOf(row); one && !parts.includes(one); one = one.parentElement)
      for (const beside of one.parentElement.children)
        if (!beside.matches(HEADINGS) && !beside.querySelector(LISTS))
          (beside.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING ? before : after).add(beside);
  return { before: [...before], after: [...after].filter((one) => !before.has(one)) };
};

class Slides {
  constructor(section, words) {
    this.section = section;
    this.parts = partsOf(section);
    this.heads = this.parts.filter((part) => part.matches(".tm-head"));
    // A slide each: `parts`, and `from` and `to` where it shows a piece of its lists alone.
    this.pages = [{ parts: [] }];
    this.at = 0;
    this.build(words);
    section.classList.add("tm-stage");
    const alone = section.parentElement.matches("body,body>main");
    section.classList.toggle("tm-alone", alone);
    if (alone) document.body.style.margin = "0";
    filled(section, {
      tabindex: 0,
      "data-lm-suppress-shortcuts": "true", // JupyterLab would take the arrow keys for its own
      "aria-roledescription": words.slides,
      keydown: (event) => this.key(event),
      click: (event) => this.click(event),
      fullscreenchange: () => this.resized(),
    });
    this.measure();
    new ResizeObserver(() => this.resized()).observe(section);
    const lists = new MutationObserver(() => this.measure()); // a viewer has sorted a table, or filled it
    for (const list of section.querySelectorAll("tbody")) if (!list.closest(WHOLE)) lists.observe(list, { childList: true });
    if (alone) section.focus();
  }

  build(words) {
    const button = ([text, title], click, hidden = false) => html("button", { type: "button", title, "aria-label": title, click, hidden }, text);
    this.said = html("span", { "aria-live": "polite" });
    this.back = button(words.back, () => this.show(this.at - 1));
    this.next = button(words.next, () => this.show(this.at + 1));
    this.goes = html("b", {}, words.goes);
    const full = button(words.full, () => this.fullScreen(), !document.fullscreenEnabled);
    this.bar = html("nav", { "aria-label": words.slides }, this.goes, this.back, this.said, this.next, full);
    this.section.append(this.bar);
  }

  show(at) {
    const focused = document.activeElement;
    this.turn(clamp(at, 0, this.pages.length - 1));
    if (this.pages[this.at].to === undefined && this.rolls() && this.split()) this.turn(this.at);
    if (this.rolls()) this.fit(SHORTER);
    this.goes.hidden = !this.rolls();
    this.said.textContent = `${this.at + 1} / ${this.pages.length}`;
    this.back.disabled = this.at === 0;
    this.next.disabled = this.at === this.pages.length - 1;
    // What had the focus may not be on this slide: the keys go on.
    if (this.section.contains(focused) && (!focused.checkVisibility() || focused.disabled)) this.section.focus({ preventScroll: true });
  }

  /** Give lists that are too long for one slide as many as they need; whether there were such lists. */
  split() {
    const { parts } = this.pages[this.at], rows = rowsOf(parts), { before } = stillOf(parts, rows);
    const high = (some) => some.reduce((sum, one) => sum + one.getBoundingClientRect().height, 0);
    if (rows.length < 2) return false;
    const { scrollHeight, clientHeight } = this.section, left = clientHeight - (scrollHeight - high(rows)) - 8;
    const slides = [];
    let from = 0, room = left;
    rows.forEach((row, at) => {
      const own = high([row]);
      if (own > room && (at > from || (before.length && !slides.length))) {
        slides.push({ parts, from, to: at });
        [from, room] = [at, left + high(before)];
      }
      room -= own;
    });
    slides.push({ parts, from, to: Infinity });
    if (slides.length < 2) return false;
    this.pages.splice(this.at, 1, ...slides);
    return true;
  }

  /** Show the parts of a slide, and of its lists the rows that are on it. */
  turn(at) {
    this.at = at;
    const { parts: page, from = 0, to = Infinity } = this.pages[this.at];
    const told = page.some((part) => part.matches(".tm-static")); // the picture has its own
    const rows = rowsOf(page), off = (one, is) => one.classList.toggle("tm-turned", is);
    rows.forEach((row, at) => off(row, at < from || at >= to));
    const all = new Set(rows.map(holderOf));
    for (const one of all) off(one, rows.every((row) => holderOf(row) !== one || row.matches(".tm-turned")) && (from > 0 || all.size > 1));
    const { before, after } = stillOf(page, rows);
    for (const one of before) off(one, from > 0);
    for (const one of after) off(one, to !== Infinity);
    const heads = (head) => head.compareDocumentPosition(page[0] ?? this.bar) & Node.DOCUMENT_POSITION_FOLLOWING;
    const shown = new Set([...(told ? [] : this.heads.filter(heads)), ...page]); // not what a later part is headed by
    for (const part of this.parts) part.classList.toggle("tm-off", !shown.has(part));
    for (const holder of [...this.section.querySelectorAll(".tm-taken")].reverse())
      holder.classList.toggle("tm-off", ![...shown].some((part) => holder.contains(part)));
    this.section.classList.toggle("tm-later", this.at > 0);
    this.section.scrollTop = 0;
    this.fit();
  }

  /** Put sentences on the slide of what they follow, where there is room for them in type that is large enough; whether there was. */
  joins(sentences) {
    const page = this.pages.at(-1);
    if (!page) return false;
    const { parts } = page, tried = () => (this.turn(this.pages.length - 1), this.rolls() ? 0 : this.factor);
    const enough = Math.min(tried(), LARGE);
    page.parts = [...parts, ...sentences];
    if (enough && tried() >= enough) return true;
    page.parts = parts;
    return false;
  }

  resized() {
    const size = `${this.section.clientWidth} ${this.section.clientHeight}`;
    if (size === this.size) return;
    this.size = size;
    this.measure();
  }

  /** Find out how many slides there are at this size, and go on at the part that is shown. */
  measure() {
    const [shown] = this.pages[this.at].parts;
    this.pages = [];
    for (const parts of pagesOf(this.parts)) if (!parts.every(isText) || !this.joins(parts)) this.pages.push({ parts });
    if (!this.pages.length) this.pages = [{ parts: [] }];
    for (let at = 0; at < this.pages.length; at += 1) this.show(at);
    this.show(this.pages.findIndex(({ parts }) => parts.includes(shown)));
  }

  /** Whether a slide is higher than the wall. */
  rolls() {
    return this.section.scrollHeight > this.section.clientHeight + 1;
  }

  /**
   * The largest type at which the part fits; where none does, type that can be read, and a scroll bar. Type counts
   * by its share of the wall: the same wall has fewer points where the projector is an old one.
   */
  fit(smaller = []) {
    const least = Math.max(1.25, this.section.clientWidth / 960), at = (factor) => this.zoom(least * factor);
    const fits = ({ wide, high }) => !wide && !high;
    const tried = FACTORS.map((factor) => ({ factor, ...at(factor) })).filter(fits);
    const free = tried.filter(({ tight }) => !tight); // where cells were full at first, some air around what they say
    const best = (tried[0]?.tight ? free[1] : null) ?? free[0] ?? tried[0];
    this.factor = best?.factor ?? smaller.find((factor) => fits(at(factor))) ?? SMALLER.find((factor) => !at(factor).wide) ?? SMALLER.at(-1);
    at(this.factor);
  }

  /** Show at a zoom; returns in which directions that is too much. */
  zoom(zoom) {
    const { section } = this;
    const drawn = [...section.children].filter((part) => part.querySelector(".tmv.wall")); // it enlarges itself
    for (const part of section.children) if (!part.matches("style,script,nav")) part.style.zoom = drawn.includes(part) ? 1 : zoom;
    section.style.setProperty("--wall", `${Math.max(1.25, section.clientWidth / 960)}`);
    const head = this.heads.reduce((sum, one) => sum + one.getBoundingClientRect().height, 0);
    const room = section.clientHeight - head - this.bar.offsetHeight - 24;
    section.style.setProperty("--room", `${Math.max(room, 80) / zoom}px`);
    for (const part of drawn) part.style.setProperty("--room", `${Math.max(room, 80)}px`);
    const rolls = (part) => part.scrollWidth > part.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(part).overflowX);
    const tight = [...section.querySelectorAll(".tm-strip td:not(.tm-part)")].some((cell) => cell.scrollWidth > cell.clientWidth + 1);
    return { tight, wide: rolls(section) || [...section.querySelectorAll("*")].some(rolls), high: section.scrollHeight > section.clientHeight + 1 };
  }

  key(event) {
    if (isCommand(event) || event.target.closest("input,select,textarea")) return;
    const last = this.pages.length - 1;
    const places = { ArrowRight: this.at + 1, PageDown: this.at + 1, ArrowLeft: this.at - 1, PageUp: this.at - 1, Home: 0, End: last };
    const { scrollTop, scrollHeight, clientHeight } = this.section;
    if (event.key === "ArrowDown" && scrollTop + clientHeight >= scrollHeight - 1) places.ArrowDown = this.at + 1;
    if (event.key === "ArrowUp" && scrollTop <= 0) places.ArrowUp = this.at - 1;
    if (event.key === " " && event.target === this.section) places[" "] = this.at + (event.shiftKey ? -1 : 1);
    event.stopPropagation();
    if (event.key in places) this.show(places[event.key]);
    else if (event.key === "f" || event.key === "F") this.fullScreen();
    else if (event.key === "Escape") this.leave();
    else return;
    event.preventDefault();
  }

  click(event) {
    if (event.target.closest("button,a,summary,input,select,label,td,[tabindex]") !== this.section) return;
    const { left, width } = this.section.getBoundingClientRect(), share = (event.clientX - left) / width;
    if (share < 0.08) this.show(this.at - 1);
    else if (share > 0.92) this.show(this.at + 1);
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.section.requestFullscreen().then(() => this.section.focus(), () => {});
  }

  leave() {
    if (document.fullscreenElement) document.exitFullscreen();
    else if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  }
}

/** Turn a panel into slides, once. section: null in a shadow root. */
export function mountSlides(section, words) {
  if (section) section.tensormagicSlides ??= new Slides(section, words);
}
