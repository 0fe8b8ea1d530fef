/** The norm of every parameter over the passes: small multiples on one log scale. */

import { filled, html, svg, worded } from "../dom.js";
import { UNTOUCHED, ENDS, LONGEST_LIVE_SERIES, normText, say } from "./words.js";

const ROW_HEIGHT = 22;
const LOSS_HEIGHT = 56;

/** Small multiples, one a parameter, on one shared log scale. */
export class Charts {
  passes = [];
  /** a row of norms for each parameter */ series = [];
  parameters = [];
  /** log10 of the scale's ends */ bounds = null;
  losses = { passes: [], values: [], said: [] };
  names = "";
  width = 0;
  grid = false;

  constructor(words, hatch, hooks) {
    this.words = words;
    this.hatch = hatch;
    this.hooks = hooks;
    this.scope = html("span", { class: "quiet end" });
    this.count = html("span", { class: "quiet" });
    this.list = html("div", { class: "rows", tabindex: 0, role: "group", "aria-label": words.norms_of });
    this.axis = html("div", { class: "axis quiet" });
    this.loss = lossChart(words, hatch);
    this.element = html(
      "div",
      { class: "charts" },
      this.loss.element,
      html("div", { class: "part" }, `${words.norm} `, this.count, this.scope),
      this.list,
      this.axis,
    );
    this.list.addEventListener("scroll", () => this.paintVisible());
    for (const part of [this.list, this.loss.plot]) {
      part.addEventListener("pointermove", (event) => this.hover(this.passAt(event)));
      part.addEventListener("pointerleave", () => this.hover(null));
      part.addEventListener("click", (event) => {
        const pass = this.passAt(event);
        if (pass !== null) this.hooks.goto(pass);
      });
    }
    this.rows = [];
    this.hovered = null;
  }

  /** grid: small multiples in columns, as in a run without problems */
  load(model, grid) {
    this.passes = [...model.passNumbers];
    this.series = model.series.map((norms) => [...norms]); // what comes live is added to it
    this.losses = { passes: [...model.passNumbers], values: model.losses(), said: model.doc.passes.map((row) => row[3]) };
    this.loss.element.hidden = this.losses.values.filter((value) => value !== undefined).length < 2;
    this.parameters = model.doc.parameters;
    this.grid = grid;
    this.list.classList.toggle("grid", grid);
    this.bounds = null;
    this.sampled = model.doc.state === "running";
    const names = JSON.stringify([this.parameters.map((one) => [one.said, one.requires_grad, one.used]), model.doc.parameters_said]);
    if (names === this.names) return this.changed();
    this.names = names;
    this.rows = this.parameters.map((parameter) => this.row(parameter));
    const [above, none] = model.doc.parameters_said;
    say(this.count, above);
    this.list.replaceChildren(
      ...(this.rows.length ? this.rows.map((row) => row.element) : [html("p", { class: "quiet empty" }, none)]),
    );
    this.changed();
  }

  row(parameter) {
    const chart = emptyChart(ROW_HEIGHT, 2.2, this.hatch),
      [zero, blind, alone] = ["zero-passes", "blind-passes", "series alone"].map((look) => svg("path", { class: look })),
      share = svg("rect", { class: "share", y: 5, height: ROW_HEIGHT - 10 });
    chart.bad.before(share);
    chart.line.before(zero, blind);
    chart.line.after(alone);
    const label = html("span", { class: "label", title: parameter.said }, html("bdi", {}, parameter.short));
    const element = html("div", { class: parameter.requires_grad ? "row" : "row frozen" }, label, chart.plot, chart.value);
    return { ...chart, element, alone, zero, blind, share, stale: true, parameter };
  }

  /** One more pass, from the live feed. */
  append(pass, norms) {
    if (this.passes[this.passes.length - 1] >= pass || norms.length !== this.rows.length) return;
    this.passes.push(pass);
    norms.forEach((norm, place) => this.series[place].push(norm));
    if (this.passes.length > LONGEST_LIVE_SERIES) this.thin();
    this.changed();
  }

  thin() {
    const bad = (at) => this.series.some((norms) => !Number.isFinite(norms[at]));
    const keep = this.passes.map((_pass, at) => at % 2 === 0 || at === this.passes.length - 1 || bad(at));
    this.passes = this.passes.filter((_pass, at) => keep[at]);
    this.series = this.series.map((norms) => norms.filter((_norm, at) => keep[at]));
  }

  changed() {
    this.rows.forEach((row) => {
      row.stale = true;
    });
    const finite = this.series
      .flatMap((norms) => (this.bounds ? norms.slice(-1) : norms))
      .filter(hasLogarithm)
      .map(Math.log10);
    const low = finite.reduce((least, value) => Math.min(least, value), this.bounds?.[0] ?? Infinity),
      high = finite.reduce((most, value) => Math.max(most, value), this.bounds?.[1] ?? -Infinity);
    this.bounds = Number.isFinite(low) ? [Math.floor(low), Math.max(Math.ceil(high), Math.floor(low) + 1)] : null;
    const [least, most] = (this.bounds ?? []).map((end) => normText(10 ** end));
    say(this.scope, worded(this.words.scale, { least, most }));
    this.sayAxis();
    this.paintVisible();
  }

  sayAxis() {
    const [first, last] = [this.passes[0], this.passes[this.passes.length - 1]];
    const shown = { first, last: last > first && last, state: first && this.sampled && "running" };
    say(this.axis, this.hovered === null ? worded(this.words.passes, shown) : worded(this.words.of_pass, { pass: this.hovered }));
  }

  /** pass: the one whose values are read when nothing is hovered */
  at(pass) {
    this.current = pass;
    this.paintVisible();
  }

  paintVisible() {
    this.paintLoss();
    this.width = this.rows.length ? this.rows[0].plot.clientWidth || this.width : 0;
    if (!this.width) return;
    const columns = this.grid ? getComputedStyle(this.list).gridTemplateColumns.split(" ").length : 1;
    const below = this.rows[columns]?.element.offsetTop, // none where all stand in one row
      pitch = below === undefined ? ROW_HEIGHT : below - this.rows[0].element.offsetTop || ROW_HEIGHT;
    const first = Math.max(Math.floor(this.list.scrollTop / pitch) - 1, 0) * columns,
      count = (Math.ceil(this.list.clientHeight / pitch) + 3) * columns;
    for (let place = first; place < Math.min(first + count, this.rows.length); place += 1)
      this.paintRow(this.rows[place], place);
  }

  /** The loss over the passes, on a scale of its own: logarithmic where it falls far. */
  paintLoss() {
    const { plot, line, bad, value, element } = this.loss,
      { passes, values, said } = this.losses,
      width = plot.clientWidth;
    if (element.hidden || !width) return;
    const drawn = (loss) => Number.isFinite(loss),
      known = values.filter(drawn),
      [least, most] = [Math.min(...known), Math.max(...known)],
      turn = least > 0 && most > 30 * least ? Math.log10 : Number,
      span = turn(most) - turn(least);
    const x = (at) => this.x(at, passes, width),
      y = (loss) => LOSS_HEIGHT - 4 - (span ? (turn(loss) - turn(least)) / span : 0.5) * (LOSS_HEIGHT - 8);
    line.setAttribute("d", curve(values, drawn, x, y)[0]);
    bad.setAttribute("d", values.map((loss, at) => (loss !== undefined && !drawn(loss) ? `M${x(at) - 2} 1h4V${LOSS_HEIGHT - 1}h-4z` : "")).join(""));
    const at = this.read(passes),
      loss = values[at];
    point(this.loss, loss === undefined ? -9 : x(at), drawn(loss) ? y(loss) : null);
    say(value, said[at] ?? "");
    const [from, to] = [least, most].map((end) => said[values.indexOf(end)]);
    say(this.loss.scope, known.length ? worded(this.words.loss_scale, { from, to, log: turn === Math.log10 && "log" }) : this.words.no_loss);
  }

  paintRow(row, place) {
    if (row.stale || row.width !== this.width) this.plot(row, this.series[place]);
    const at = this.read(this.passes),
      norm = at < 0 ? UNTOUCHED : this.series[place][at],
      y = hasLogarithm(norm) ? this.y(norm) : null;
    const alone = this.passes.length < 2; // of one pass there is no curve: a bar
    row.share.setAttribute("width", alone && y !== null ? Math.max((1 - (y - 3) / (ROW_HEIGHT - 6)) * (this.width - 6), 2) : 0);
    point(row, at < 0 ? -9 : this.x(at), alone ? null : y);
    row.value.classList.toggle("bad", at >= 0 && !Number.isFinite(norm));
    say(row.value, this.wording(row.parameter, norm));
  }

  wording(parameter, norm) {
    if (!parameter.requires_grad) return this.words.frozen;
    if (norm === UNTOUCHED || norm === undefined) return parameter.used ? this.words.none : this.words.unused;
    return norm < UNTOUCHED ? this.words.unknown : normText(norm);
  }

  plot(row, norms) {
    const [line, alone] = curve(norms, hasLogarithm, (at) => this.x(at), (norm) => this.y(norm));
    const band = ([from, to]) =>
      `M${from.toFixed(1)} 1H${to.toFixed(1)}V${ROW_HEIGHT - 1}H${from.toFixed(1)}z`;
    const flat = (height) => ([from, to]) =>
      `M${from.toFixed(1)} ${height}H${to.toFixed(1)}`;
    row.line.setAttribute("d", line);
    row.alone.setAttribute("d", norms.length > 1 ? alone : "");
    row.bad.setAttribute("d", this.stretches(norms, (norm) => !Number.isFinite(norm)).map(band).join(""));
    row.zero.setAttribute("d", this.stretches(norms, (norm) => norm === 0).map(flat(ROW_HEIGHT - 1)).join(""));
    row.blind.setAttribute("d", this.stretches(norms, (norm) => norm < UNTOUCHED).map(flat(ROW_HEIGHT / 2)).join(""));
    row.stale = false;
    row.width = this.width;
  }

  /** Where the passes for which it holds lie: one stretch a run of them, from half way to the neighbours on. */
  stretches(norms, holds) {
    return runs(norms, holds).map(([first, last]) => {
      const from = first ? (this.x(first - 1) + this.x(first)) / 2 : 0.5,
        to = last < norms.length - 1 ? (this.x(last) + this.x(last + 1)) / 2 : this.width - 0.5;
      const least = Math.max(0, 4 - (to - from)) / 2; // a single pass of hundreds is still seen
      return [from - least, to + least];
    });
  }

  x(at, passes = this.passes, width = this.width) {
    return 3 + ((passes[at] - passes[0]) / Math.max(passes[passes.length - 1] - passes[0], 1)) * (width - 6);
  }

  y(norm) {
    const [low, high] = this.bounds ?? ENDS;
    return ROW_HEIGHT - 3 - ((Math.log10(norm) - low) / (high - low)) * (ROW_HEIGHT - 6);
  }

  passAt(event) {
    const plot = event.target.closest?.(".plot");
    if (!plot || !this.passes.length) return null;
    const box = plot.getBoundingClientRect(),
      share = (event.clientX - box.left - 3) / Math.max(box.width - 6, 1);
    const wanted = this.passes[0] + share * (this.passes[this.passes.length - 1] - this.passes[0]);
    return this.passes.reduce((best, pass) => (Math.abs(pass - wanted) < Math.abs(best - wanted) ? pass : best));
  }

  /** Where the pass stands that is read: the one under the pointer, else the one that is shown. */
  read(passes) {
    return passes.findLastIndex((pass) => pass <= (this.hovered ?? this.current ?? Infinity));
  }

  hover(pass) {
    if (pass === this.hovered) return;
    this.hovered = pass;
    this.sayAxis();
    this.paintVisible();
  }
}

/** A chart without anything in it: a curve, what is not finite, and a line with a knob at the pass that is read. r: of the knob. */
function emptyChart(height, r, hatch) {
  const line = svg("path", { class: "series" }),
    bad = svg("path", { class: "bad-passes", fill: `url(#${hatch})` }),
    now = svg("line", { class: "now", y1: 0, y2: height }),
    knob = svg("circle", { class: "knob", r }),
    plot = svg("svg", { class: "plot", height, "aria-hidden": "true" }, bad, line, now, knob);
  return { plot, line, bad, now, knob, value: html("span", { class: "reading" }) };
}

/** The chart of the loss, larger than the others. */
function lossChart(words, hatch) {
  const chart = emptyChart(LOSS_HEIGHT, 2.6, hatch),
    scope = html("span", { class: "quiet end" });
  const element = html("div", { class: "loss", hidden: true }, html("div", { class: "part" }, `${words.loss} `, chart.value, scope), chart.plot);
  return { ...chart, element, scope };
}

/** Put the line, and the knob where there is a height for it. */
function point({ now, knob }, x, y) {
  filled(now, { x1: x, x2: x });
  filled(knob, { cx: y === null ? -9 : x, cy: y ?? 0 });
}

function hasLogarithm(norm) {
  return norm > 0 && Number.isFinite(norm);
}

/** The line through the values that are drawn, and the points that have no neighbour. */
function curve(values, drawn, x, y) {
  let line = "",
    alone = "";
  for (const [first, last] of runs(values, drawn)) {
    const points = values.slice(first, last + 1).map((value, at) => `${x(first + at).toFixed(1)} ${y(value).toFixed(1)}`);
    if (points.length > 1) line += `M${points.join("L")}`;
    else alone += `M${points[0]}h.01`;
  }
  return [line, alone];
}

/** First and last place of every run of values for which it holds. */
function runs(values, holds) {
  const found = [];
  values.forEach((value, at) => {
    if (!holds(value)) return;
    const last = found[found.length - 1];
    if (last && last[1] === at - 1) last[1] = at;
    else found.push([at, at]);
  });
  return found;
}
