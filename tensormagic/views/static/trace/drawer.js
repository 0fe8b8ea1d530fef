/** One node, in words. */

import { cutsOf } from "./marks.js";
import { html, digits, worded } from "../dom.js";
import { keepingFocus, normText, drawerPart, tableRow, bytesText, badText, level, squareButton, GLYPHS, say } from "./words.js";

const MARGIN = 12; // beside the drawer, where over the picture

/** What is known of the selected node, at the pass that is shown. */
export class Drawer {
  live = null;
  /** edges by which it sent gradients, to whom, and the cells that say how large */ sent = [];
  statistics = html("div", { class: "statistics" });
  forward = html("div", { class: "forward" });
  /** the pass whose statistics are shown */ measured;
  normCell = html("td");
  heading = html("span", { class: "quiet" });
  story = html("p", { class: "story" });

  constructor(words, hooks) {
    this.words = words;
    this.hooks = hooks;
    this.inside = html("div", { class: "inside" });
    this.pathButton = html("button", { type: "button", class: "to-path", click: () => this.hooks.path() });
    this.element = html("aside", { class: "drawer", "aria-label": words.selected, hidden: true }, this.inside);
  }

  show(model, graph, box, node, picture) {
    this.element.hidden = false;
    keepingFocus(this.inside, () => this.fill(model, graph, box, node));
    this.live = { model, graph, node };
    this.measured = undefined;
    this.refresh(picture);
  }

  fill(model, graph, box, node) {
    const facts = model.node(graph, node),
      members = this.members(model, graph, box, model.graphs[graph].boxes[box], node);
    this.inside.replaceChildren(
      html(
        "div",
        { class: "title" },
        html("b", {}, model.boxLabel(graph, node)),
        this.pathButton,
        squareButton(this.words.close, this.words.close_key, GLYPHS.stop, () => this.hooks.close(), "square bare"),
      ),
      ...(members ? [members] : []),
      this.facts(model, facts),
      this.gradient(model, graph, node),
      ...saved(facts.saved, this.words.saved),
      ...cutsOf(model, graph, node, (location) => this.hooks.line(location)),
      this.forward,
      this.statistics,
    );
  }

  /** How much of the picture's right edge it lies over; nothing where it is below. */
  over() {
    return getComputedStyle(this.element).position === "absolute" ? this.element.offsetWidth + MARGIN : 0;
  }

  hide() {
    this.element.hidden = true;
    this.live = null;
  }

  members(model, graph, place, box, node) {
    const all = [...box.nodes, ...box.badges.map(([badge]) => badge)];
    if (all.length < 2) return null;
    const options = all
      .slice(0, 200)
      .map((member) =>
        html("option", { value: member, selected: member === node }, `${model.nodeLabel(graph, member)}  #${member}`),
      );
    const change = (event) => this.hooks.select(place, Number(event.target.value));
    return html(
      "label",
      { class: "members" },
      html("span", { class: "quiet" }, worded(this.words.members, { nodes: all.length, label: box.label, first: all.length > 200 && 200 })),
      html("select", { change }, ...options),
    );
  }

  facts(model, facts) {
    const rows = {
      op: `${facts.op}, ${facts.name}`,
      [facts.kind === "accumulate" ? "leaf" : "result"]: facts.variable,
      module: facts.module,
      shape: facts.shapes,
      dtype: facts.dtype && [facts.dtype, facts.device].filter(Boolean).join(", "),
    };
    const told = Object.entries(rows).filter(([, value]) => value);
    const list = html("dl", {}, ...told.flatMap(([name, value]) => [html("dt", {}, this.words.facts[name]), html("dd", {}, value)]));
    if (facts.location === null) return list;
    const [label, , text] = model.doc.locations[facts.location];
    const link = html("button", { type: "button", class: "link", click: () => this.hooks.line(facts.location) }, label);
    list.append(
      html("dt", {}, this.words.facts.source),
      html("dd", {}, link, facts.guessed ? this.words.guessed : "", text ? html("code", { class: "quote" }, text) : ""),
    );
    return list;
  }

  gradient(model, graph, node) {
    const [sources, targets, inputs] = model.graphs[graph].edges,
      rows = [tableRow(this.words.received, this.normCell)];
    this.sent = [];
    for (let edge = 0; edge < sources.length; edge += 1) {
      if (sources[edge] !== node) continue;
      const cell = html("td", {});
      this.sent.push([edge, targets[edge], cell]);
      rows.push(tableRow(worded(this.words.input, { input: inputs[edge], label: model.nodeLabel(graph, targets[edge]) }), cell));
    }
    return drawerPart(this.words.norm, this.heading, html("table", {}, ...rows), this.story);
  }

  refresh(picture) {
    if (!this.live) return;
    const { model, graph, node } = this.live,
      { words } = this,
      { norms, bad } = picture;
    const put = (cell, norm, counts) => {
      say(cell, counts ? badText(...counts) : normText(norm));
      cell.classList.toggle("bad", level(norm) === "bad");
    };
    say(this.heading, worded(words.of_pass, picture));
    put(this.normCell, norms[node], bad.get(node));
    for (const [edge, target, cell] of this.sent) {
      const share = model.part(graph, edge, picture.pass);
      const whole = share === undefined;
      put(cell, whole ? norms[target] : share, whole ? bad.get(target) : undefined);
      cell.title = whole ? "" : worded(words.share, { norm: normText(norms[target]) });
    }
    this.tell(picture);
    this.measure(picture.pass);
  }

  /** What a gradient led to: a number that is none, or a step of the optimizer. */
  tell(picture) {
    if (!this.live) return;
    const { model, graph, node } = this.live,
      { kind, variable } = model.node(graph, node);
    const first = picture.nonfinite.find((one) => one.node === node);
    const parameter = kind === "accumulate" && model.doc.parameters.find((one) => one.name === variable),
      moved = parameter && parameter.updates[model.passNumbers.indexOf(picture.pass)];
    say(this.story, first ? first.said : worded(this.words.moved, { moved }));
  }

  measure(pass) {
    if (!this.live) return;
    this.forward.replaceChildren(...forwardOf(this.live.model, this.live.graph, this.live.node, pass || Infinity));
    const row = statisticsAt(this.live.model, this.live.graph, this.live.node, pass || Infinity);
    if (this.measured === (row?.[0] ?? 0)) return;
    this.measured = row?.[0] ?? 0;
    this.statistics.replaceChildren(...statistics(row, this.words));
  }
}

function saved(tensors, title) {
  if (!tensors.length) return [];
  const rows = tensors.map((tensor) =>
    tableRow(
      tensor.name,
      html("td", {}, tensor.shape),
      html("td", { title: tensor.dtype }, bytesText(tensor.nbytes)),
      html("td", { class: "state" }, html("span", { class: `dot ${tensor.state.replaceAll(" ", "-")}` }), tensor.state),
    ),
  );
  return [drawerPart(title, null, html("table", {}, ...rows))];
}

// What the forward made of a node, at the pass that is shown or the nearest one before it; where it was asked for.

function forwardOf(model, graph, node, pass) {
  const frame = model.graphs[graph].frames.findLast(
    (one) => one.forward && one.pass <= pass && one.forward.norms[node] !== -1,
  );
  if (!frame) return [];
  const { norms, bad, ...words } = frame.forward,
    counts = bad.get(node),
    first = tableRow("norm", html("td", { class: counts ? "bad" : "" }, counts ? badText(...counts) : normText(norms[node])));
  const cells = [first, ...["|max|", "mean", "std", "zeros"].map((name) => tableRow(name, html("td", {}, words[name]?.[node] ?? (name === "zeros" ? "0 %" : "0"))))];
  return [drawerPart(model.doc.words.forward, worded(model.doc.words.of_pass, frame), html("table", {}, ...cells))];
}

// What was measured of a gradient besides its norm, at the pass that is shown or the nearest one before it.

/** The newest full measurement of a node up to a pass: [pass, count, norm, |max|, mean, std, zeros, NaN, Inf, below, at]. */
export function statisticsAt(model, graph, node, pass) {
  const first = model.node(graph, node).statistics;
  if (!first) return null;
  const measured = model.graphs[graph].frames.filter((frame) => frame.measures?.["|max|"][node]),
    alone = first.length > 2, // else the frame of that pass has the rest (columns.py)
    frame = measured.findLast((one) => one.pass <= pass) ?? (alone ? null : measured[0]);
  if (!frame || (alone && frame.pass < first[0])) return alone ? first : null;
  const [nan, inf] = frame.bad.get(node) ?? [0, 0],
    of = (name) => frame.measures[name]?.[node] ?? "0";
  return [frame.pass, first[1], normText(frame.norms[node]), ...["|max|", "mean", "std", "zeros"].map(of), nan, inf, of("too small"), of("at the limit")];
}

export function statistics(row, words) {
  if (!row) return [];
  const [pass, count, norm, most, mean, std, zeros, nan, inf, below = "0", at = "0"] = row;
  const pairs = Object.entries({ norm, "|max|": most, mean, std, zeros, NaN: digits(nan), Inf: digits(inf), "too small": below, "at the limit": at });
  const rows = pairs.filter(([name, value]) => value !== "0" || !words.rare[name]).map(([name, value]) => {
    const row = tableRow(name, html("td", { class: ["NaN", "Inf", "at the limit"].includes(name) && value !== "0" ? "bad" : "" }, value));
    if (words.rare[name]) row.title = words.rare[name];
    return row;
  });
  const measured = worded(words.measured, { pass, count, finite: nan + inf > 0 && "finite" });
  return [drawerPart(words.statistics, measured, html("table", {}, ...rows))];
}
