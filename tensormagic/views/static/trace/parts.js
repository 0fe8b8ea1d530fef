/** The elements of a panel, and what each of them calls. */

import { html, isCommand, take, worded } from "../dom.js";
import { squareButton, GLYPHS, PLAY_MILLISECONDS, UNTOUCHED, glyph, say } from "./words.js";
import { GraphView } from "./graph.js";
import { Charts } from "./charts.js";
import { Source } from "./source.js";
import { Drawer } from "./drawer.js";
import { Heat } from "./node_coloring.js";
import { Search } from "./search.js";
import { Headline } from "./headline.js";
import { endPath, light, togglePath, choose, close, foldAll, foldAround, foldPart, openAll, openBox, pickLine, showLine, showNode } from "./choosing.js";

let mounted = 0;

/** The views of a panel, which is what they call. */
export class Views {
  whereabouts = html("span", { class: "whereabouts", "aria-live": "off" });
  zoomText = html("span");
  graphNote = html("span");
  notes = html("div", { class: "notes quiet" });
  wayText = html("span", { role: "status" });

  /** live: a kernel feeds it, so that time goes on */
  constructor(words, live) {
    const panel = this;
    mounted += 1;
    this.words = words;
    this.hatch = `tm-hatch-${mounted}-${Math.random().toString(36).slice(2, 7)}`;
    this.root = html("div", { class: "tmv", tabindex: -1, style: `--hatch-fill:url(#${this.hatch})` });
    const jump = {
      line: (location) => showLine(panel, location),
      node: (graph, node) => showNode(panel, graph, node),
    };
    this.headline = new Headline(live, { ...jump, words, toggle: () => panel.toggle() });
    this.graphView = new GraphView(this.hatch, {
      label: words.graph_keys,
      select: (box, node) => choose(panel, box, node),
      tell: (box) => panel.model.boxTip(panel.graph, box) + (panel.folds.opens(box) ? `\n${words.opening}` : ""),
      opens: (box) => panel.folds?.opens(box) ?? false,
      open: (box) => openBox(panel, box),
      fold: (part) => foldPart(panel, part),
    });
    this.charts = new Charts(words, this.hatch, { goto: (pass) => panel.goto(pass) });
    this.source = new Source(words, { pick: (nodes) => pickLine(panel, nodes) });
    this.drawer = new Drawer(words, {
      close: () => close(panel),
      path: () => togglePath(panel),
      select: (box, node) => choose(panel, box, node),
      line: jump.line,
    });
    this.heat = new Heat(words, this.hatch, () => {
      if (panel.looks) panel.looks.mode = panel.heat.mode;
      panel.paint();
    });
    this.search = new Search(words, {
      light: (nodes) => light(panel, nodes ?? panel.lit),
      show: (node) => showNode(panel, panel.graph, node, true),
      leave: () => panel.graphView.graph && panel.graphView.focus(panel.graphView.focused),
    });
    this.makePlayers(panel);
    this.putTogether(panel);
  }

  /** The two sliders. */
  makePlayers(panel) {
    const { words } = this,
      title = words.speed,
      speeds = SPEEDS.map((speed) => html("option", { value: speed, selected: speed === 1 }, `${speed}×`)),
      speed = html("select", { class: "speed", "aria-label": title, title }, ...speeds);
    this.passes = new Player({
      name: "pass",
      title: words.play_passes,
      labels: [words.play, words.pause],
      pace: () => [PLAY_MILLISECONDS / speed.value, 1],
      move: (at) => panel.scrub(at),
    });
    this.order = new Player({
      name: "order",
      title: words.play_order,
      labels: [words.play_order_label, words.pause_order_label],
      pace: () => orderPace(panel.wayLength(), speed.value),
      move: (at) => panel.walk(at),
    });
    this.liveButton = html("button", { type: "button", hidden: true, click: () => panel.follow() }, words.back_to_live);
    this.passes.element.append(this.liveButton);
    this.order.element.append(speed);
    this.footer = html("footer", { class: "foot-bar" }, this.passes.element, this.order.element);
  }

  /** The views put in order, with the bar of tools. */
  putTogether(panel) {
    const { words } = this;
    this.graphView.zoomed = (k) => {
      say(this.zoomText, worded(words.zoom, { percent: Math.round(k * 100) }));
      if (panel.graphView.moved) panel.remember(true);
    };
    this.chooser = html("select", {
      hidden: true,
      "aria-label": words.graph,
      change: (event) => panel.chooseGraph(Number(event.target.value)),
    });
    const square = (title, icon, click) => squareButton(title, title, icon, click);
    this.wayChip = html("span", { class: "way", hidden: true }, this.wayText, square(words.whole_graph, GLYPHS.stop, () => endPath(panel)));
    this.foldButton = square(words.fold_all, GLYPHS.fold, () => foldAll(panel));
    this.unfoldButton = square(words.open_all, GLYPHS.unfold, () => openAll(panel));
    const zooms = html(
      "span",
      { class: "zooms" },
      this.unfoldButton,
      this.foldButton,
      square(words.zoom_in, GLYPHS.in, () => panel.graphView.zoom(1.25)),
      square(words.zoom_out, GLYPHS.out, () => panel.graphView.zoom(0.8)),
      square(words.fit, GLYPHS.fit, () => panel.graphView.fit()),
    );
    const asides = html("span", { class: "asides" }, this.graphNote, this.zoomText),
      end = html("span", { class: "end" });
    this.tools = html(
      "span",
      { class: "tools" },
      panel.search.element,
      html("label", {}, html("span", { class: "quiet" }, words.colour), panel.heat.select),
    );
    const bar = html("div", { class: "bar-top" }, this.whereabouts, this.chooser, this.wayChip, asides, end, this.tools, zooms);
    const scene = html("div", { class: "scene" }, panel.graphView.element, panel.drawer.element);
    this.stage = html("div", { class: "stage" }, bar, scene, panel.heat.legend);
    this.lower = html("div", { class: "lower" }, panel.charts.element, panel.source.element);
    const left = html("div", { class: "left" }, this.stage, this.lower);
    this.main = html("div", { class: "main" }, left);
    this.root.append(panel.headline.header, panel.headline.findings, panel.headline.announcer.element, this.main, this.footer, this.notes);
    this.root.addEventListener("keydown", (event) => pressedOn(panel, event));
  }
}

function pressedOn(panel, event) {
  const player = panel.order.element.hidden ? panel.passes : panel.order; // of a run that goes on only its passes are there
  const writing = event.target.closest?.("input,select,textarea,button");
  if (isCommand(event)) return;
  if (event.key === "Escape" && panel.way) endPath(panel);
  else if (event.key === "Escape" && panel.selection) close(panel);
  else if (event.key.toLowerCase() === "p" && !writing && !panel.stage.hidden) togglePath(panel);
  else if (event.key === "Escape") {
    if (!panel.graphView.canvas.contains(document.activeElement) || !foldAround(panel)) return;
  } else if (event.key === "/" && !writing && !panel.stage.hidden) panel.search.field.focus();
  else if (event.key === " " && !writing && !panel.footer.hidden) player.play(!player.timer);
  else return;
  take(event);
}

// The two time axes of a run: the passes, one after the other, and within a pass the order in which backward goes.

const ORDER_MILLISECONDS = 5000; // the whole way at normal speed, but never faster than a user sees
const SLOWEST_STEP = 160;
const SPEEDS = [0.25, 0.5, 1, 2, 4];

/** A slider that can play: one row of the footer. */
export class Player {
  /** labels: of the button that plays, and that stops; pace: milliseconds of one tick at normal speed, and how far it goes */
  constructor(hooks) {
    this.hooks = hooks;
    this.button = html(
      "button",
      { type: "button", class: "square", title: hooks.title, "aria-label": hooks.labels[0], click: () => this.play(!this.timer) },
      glyph(GLYPHS.play, true),
    );
    this.text = html("span", { class: `${hooks.name}-text` });
    this.slider = html("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": hooks.name,
      input: () => {
        this.play(false);
        hooks.move(Number(this.slider.value));
      },
      keydown: (event) => {
        if (event.key !== " ") return;
        take(event);
        this.play(!this.timer);
      },
    });
    this.element = html("div", { class: `player ${hooks.name}` }, this.button, this.text, this.slider);
  }

  limit(last) {
    this.slider.max = String(Math.max(last, 0));
  }

  stand(at, words) {
    this.slider.value = String(at);
    say(this.text, words);
    this.slider.setAttribute("aria-valuetext", words);
  }

  play(on) {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.button.replaceChildren(glyph(on ? GLYPHS.pause : GLYPHS.play, true));
    this.button.setAttribute("aria-label", this.hooks.labels[Number(on)]);
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

/** The way through a graph takes a few seconds, however large it is. */
export function orderPace(count, speed) {
  const milliseconds = Math.min(ORDER_MILLISECONDS / Math.max(count, 1), SLOWEST_STEP) / speed;
  return milliseconds >= 33 ? [milliseconds, 1] : [33, Math.max(Math.round(33 / milliseconds), 1)];
}

/** The norms of a pass as far as backward has come. */
export function upTo(norms, order, reached) {
  const part = new Float32Array(norms.length).fill(UNTOUCHED);
  for (let at = 0; at < Math.min(reached, order.length); at += 1) part[order[at]] = norms[order[at]];
  return part;
}
