/** What is in words: the header with the state of the run, the verdict, the findings; round the picture where backward is, which graph, what is not shown. */

import { html, digits, toClipboard, worded } from "../dom.js";
import { CLOCK_MILLISECONDS, LATEST, UNTOUCHED, secondsText, glyph, capital, GLYPHS, keepingFocus, prose, quoting, say } from "./words.js";

const SHOWN_FINDINGS = 3;
const STATES = { running: GLYPHS.run, finished: GLYPHS.done, drawn: GLYPHS.info }; // the others have stopped

/** The header, and the strip of findings below it. */
export class Headline {
  /** a Model, once it is loaded */ model;
  /** what the kernel said last, and when that was */
  told = { step: 0, pass: 0, seconds: 0, at: 0, next: -1 };
  all = false; // whether a user asked for all findings
  silent = 0; // seconds since it said anything, where these are many

  /** live: a kernel feeds it, so that time goes on */
  constructor(live, hooks) {
    this.hooks = hooks;
    this.header = html("header", { class: "head" });
    this.findings = html("div", { class: "findings" });
    this.announcer = new Announcer();
    this.clock = live ? setInterval(() => this.running() && this.sayProgress(), CLOCK_MILLISECONDS) : undefined;
  }

  running() {
    return this.model?.doc.state === "running";
  }

  /** before: the document that was shown */
  load(model, before) {
    const { doc } = model;
    this.model = model;
    if (before) this.announcer.compare(before, doc);
    this.drawHeader();
    const told = (one) => JSON.stringify([one.findings, one.state, one.passes_seen]);
    if (!before || told(before) !== told(doc)) this.drawFindings();
  }

  drawHeader() {
    const { doc } = this.model;
    this.progress = html("span", { class: "quiet" });
    this.soFar = html("span", { class: "so-far", hidden: true }, doc.words.clear);
    this.toggleButton = this.model.graphs.length
      ? html("button", { type: "button", class: "toggle", click: () => this.hooks.toggle() })
      : "";
    this.header.replaceChildren(
      html("b", { class: "run" }, doc.title),
      html(
        "span",
        { class: `state ${doc.state}` },
        glyph(STATES[doc.state] ?? GLYPHS.stop),
        doc.state === "lost" ? doc.words.gone : doc.state,
      ),
      this.progress,
      this.soFar,
      ...(!doc.said && doc.passes_seen && doc.cost ? [html("span", { class: "quiet", title: doc.below.join("\n") }, doc.cost)] : []),
      html("span", { class: "end" }),
      this.toggleButton,
    );
    this.drawProgress(doc.steps_seen, doc.passes_seen, doc.seconds, doc.rest ?? -1);
  }

  /** next: about the step that is traced next, while the tracer rests */
  drawProgress(step, pass, seconds, next = -1) {
    // A document may be a moment older than what the clock shows already: it does not go back for that.
    const behind = this.running() ? this.seconds() - seconds : 0;
    // A graph is known from the moment its backward begins, though a document counts that pass only once it has ended,
    // and a delta may have been taken just before it.
    const begun = this.running() && this.model.graphs.length ? 1 : 0;
    this.told = {
      step: Math.max(step, begun),
      pass: Math.max(pass, begun),
      seconds: seconds + (behind > 0 && behind < LATEST ? behind : 0),
      at: performance.now(),
      next,
    };
    this.sayProgress();
  }

  /** How far it is. Between two words of the kernel, which is silent during a long op, the page's own clock goes on. */
  sayProgress() {
    const { step, pass, seconds, next } = this.told,
      { said, words, findings } = this.model.doc;
    if (said) return say(this.progress, said);
    if (!this.running()) return say(this.progress, worded(words.lost, { steps: step, passes: pass, time: secondsText(seconds) }));
    const kind = !pass ? "waiting" : next < 0 ? "running" : "paused";
    say(this.progress, worded(words[kind], { step, pass, next, time: secondsText(this.seconds()), silent: this.silent }));
    this.soFar.hidden = !pass || findings.length > 0;
  }

  /** Since the start of a run that goes on, by the page's clock from the kernel's last word on. */
  seconds() {
    const { seconds, at } = this.told;
    return at && this.clock !== undefined ? seconds + (performance.now() - at) / 1000 : seconds;
  }

  drawFindings() {
    const { doc } = this.model,
      rank = ["error", "warning", "note"];
    const sorted = [...doc.findings].sort((left, right) => rank.indexOf(left.severity) - rank.indexOf(right.severity));
    const rows = sorted.map((finding) => findingElement(finding, this.hooks));
    const rest = this.all ? [] : rows.slice(SHOWN_FINDINGS);
    const codes = [...new Set(sorted.slice(SHOWN_FINDINGS).map((finding) => finding.code))];
    for (const row of rest) row.hidden = true;
    const click = () => {
      this.all = true;
      for (const row of rest) row.hidden = false;
      rest[0].focus();
      more?.remove();
    };
    const more = rest.length
      ? html("button", { type: "button", class: "more", click }, worded(doc.words.more, { rest: rest.length, codes: codes.join(", ") }))
      : null;
    const verdict = this.running() ? null : this.verdict();
    const paced = (this.running() ? [] : doc.below).map((line) => html("p", { class: "paced quiet" }, capital(line)));
    keepingFocus(this.findings, () =>
      this.findings.replaceChildren(...(verdict ? [verdict] : []), ...rows, ...(more ? [more] : []), ...paced),
    );
  }

  /** What is to be said first of a run that has ended; nothing where a finding says it. */
  verdict() {
    const { doc } = this.model;
    if (doc.state !== "lost") return doc.verdict && callout(...doc.verdict);
    const sent = worded(doc.words.last_sent, { time: doc.passes_seen && secondsText(doc.seconds) });
    return callout("failed", doc.words.why_lost, "", sent);
  }
}

/** One strip that says how the run ended. */
function callout(kind, words, code, more) {
  return html(
    "div",
    { class: `callout ${kind}` },
    glyph({ healthy: GLYPHS.done, failed: GLYPHS.stop }[kind] ?? GLYPHS.info),
    html("b", {}, capital(words)),
    code ? html("code", {}, code) : null,
    html("span", { class: "quiet" }, capital(more)),
  );
}

// Says what is new in a running trace to who hears the page: politely, and at most once a second.

const BETWEEN_WORDS = 1000; // milliseconds between two announcements

/** A region that is heard, not seen. */
export class Announcer {
  /** what was not said yet */ waiting = [];

  constructor() {
    this.element = html("div", { class: "tm-sr", role: "status", "aria-live": "polite" });
  }

  /** What a newer document says that the older did not: its findings, and that the run has ended. */
  compare(before, doc) {
    const known = new Set(before.findings.map(sameness));
    for (const finding of doc.findings)
      if (!known.has(sameness(finding))) this.say(`${finding.severity}: ${finding.message.replaceAll("`", "")}`);
    if (before.state === "running" && doc.state !== "running") this.say(worded(doc.words[doc.state === "lost" ? "heard_lost" : "heard_end"], doc));
  }

  say(words) {
    this.waiting.push(words);
    this.timer ??= setTimeout(() => this.speak());
  }

  /** All that waits is one announcement; the next comes a second later. */
  speak() {
    this.element.textContent = this.waiting.join(". ");
    this.waiting = [];
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (this.waiting.length) this.speak();
    }, BETWEEN_WORDS);
  }
}

/** What stays the same of a finding while its numbers go on: nobody wants to hear each of them. */
function sameness({ code, where, subject, message }) {
  return [code, where, subject, message.replace(/\d+/g, "")].join("\n");
}

// Round the picture.

export function sayBoxes(panel) {
  const { drawing, boxes, count } = panel.model.graphs[panel.graph];
  say(panel.graphNote, worded(panel.words.size, { nodes: count, boxes: boxes.length < count && boxes.length }));
  panel.graphNote.title = drawing.note;
}

export function sayWhere(panel, picture) {
  const graph = panel.model.graphs[panel.graph],
    { words } = panel,
    { state, graphs } = panel.model.doc;
  const put = (sentence, values) => say(panel.whereabouts, worded(sentence, values));
  if (picture.running && picture.cursor >= 0) {
    const label = panel.model.boxLabel(panel.graph, picture.cursor);
    return put(words[state === "lost" ? "was_at" : "is_at"], { label, reached: digits(panel.reached), count: digits(graph.count) });
  }
  let touched = 0,
    bad = 0,
    blind = 0;
  for (const norm of picture.norms) {
    if (norm !== UNTOUCHED) touched += 1;
    if (norm < UNTOUCHED) blind += 1;
    if (!Number.isFinite(norm)) bad += 1;
  }
  if (blind) panel.stage.classList.add("has-blind");
  const waiting = touched && !picture.running && graph.count - touched;
  const unfinished = Boolean(graph.crash) && !graphs[panel.graph].passes_seen;
  panel.root.classList.toggle("drawn", state === "drawn" || unfinished);
  if (unfinished) return put(words.refused);
  if (state === "drawn") return put(words.drawn);
  put(words.reached, { pass: picture.pass, touched: digits(touched), nodes: graph.count, bad, blind, waiting });
}

// What went wrong: the strip of findings, and code that can be copied.

export function findingElement(finding, hooks) {
  const { words } = hooks,
    buttons = [];
  if (finding.node) buttons.push(html("button", { type: "button", click: () => hooks.node(finding.node[0], finding.node[1]) }, words.show_node));
  if (finding.fix) buttons.push(copyButton(finding, words));
  const where = !finding.where
    ? null
    : finding.location === null
      ? html("span", { class: "quiet" }, finding.where)
      : html("button", { type: "button", class: "link", click: () => hooks.line(finding.location) }, finding.where);
  // Where the message names the place itself, that is where the link goes.
  const [before, after] = finding.where ? finding.message.split(finding.where) : [finding.message];
  return html(
    "div",
    { class: `finding tm-${finding.severity}`, tabindex: -1 },
    html("span", { class: `tm-icon tm-i-${finding.severity}`, "aria-hidden": "true" }),
    html("span", { class: "code-name", title: worded(words.help, finding) }, `${finding.code} ${finding.severity}`),
    html(
      "div",
      { class: "message" },
      html(
        "p",
        { title: finding.evidence },
        ...(after === undefined ? [...prose(finding.message), where && " ", where] : [...prose(before), where, ...prose(after)]),
      ),
      finding.text ? sourceLine(finding.where, finding.text, finding.location, hooks) : null,
      ...relatedLines(finding, hooks),
      finding.remedy ? html("p", { class: "remedy" }, ...quoting(finding.remedy, (code) => snippet(code, words))) : null,
    ),
    html("div", { class: "actions" }, ...buttons),
  );
}

/** The other lines that matter, below what happened there; the code of each line once. */
function relatedLines(finding, hooks) {
  const shown = new Set([finding.where]);
  return finding.related.map(([what, where, text, location]) => {
    const code = shown.has(where) ? null : sourceLine(where, text, location, hooks);
    shown.add(where);
    return html("div", { class: "related" }, html("p", {}, `${what}: ${where}`), code);
  });
}

function sourceLine(where, text, location, hooks) {
  const line = where.match(/\d+$/)?.[0] ?? "",
    inner = [html("span", { class: "number" }, line), html("code", {}, text)];
  if (location === null) return html("div", { class: "culprit" }, ...inner);
  const click = () => hooks.line(location);
  return html("button", { type: "button", class: "culprit", title: worded(hooks.words.show_line, { where }), click }, ...inner);
}

/** A piece of code in a remedy: a click copies it. */
function snippet(code, words) {
  const button = html("button", { type: "button", class: "snippet", title: words.copy, click: () => copied(button, code) });
  button.append(html("code", {}, code));
  return button;
}

function copyButton(finding, words) {
  const click = async () => {
    say(button, (await copied(button, finding.fix)) ? worded(words.copied, finding) : words.not_copied);
    setTimeout(() => say(button, words.copy_fix), 2500);
  };
  const button = html("button", { type: "button", title: worded(words.fix, finding), click }, words.copy_fix);
  return button;
}

/** Copy, and show for a moment whether it worked. */
async function copied(button, code) {
  const done = await toClipboard(code),
    mark = done ? "copied" : "not-copied";
  button.classList.add(mark);
  setTimeout(() => button.classList.remove(mark), 1500);
  return done;
}
