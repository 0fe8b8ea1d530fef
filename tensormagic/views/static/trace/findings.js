// @ts-check
/** What went wrong: the strip of findings, and code that can be copied. */

import { html, say, prose, quoting, severityIcon } from "./words.js";

/** @param {any} finding @param {{node:(graph:number, node:number)=>void, line:(location:number)=>void}} hooks */
export function findingElement(finding, hooks) {
  const buttons = [];
  if (finding.node) buttons.push(html("button", { type: "button", click: () => hooks.node(finding.node[0], finding.node[1]) }, "Show node"));
  if (finding.fix) buttons.push(copyButton(finding.fix));
  const where = !finding.where
    ? null
    : finding.location === null
      ? html("span", { class: "quiet" }, finding.where)
      : html("button", { type: "button", class: "link", click: () => hooks.line(finding.location) }, finding.where);
  // Where the message names the place itself, that is where the link goes.
  const [before, after] = finding.where ? finding.message.split(finding.where) : [finding.message];
  return html(
    "div",
    { class: `finding ${finding.severity}`, tabindex: -1 },
    severityIcon(finding.severity),
    html("span", { class: "code-name", title: `%tensormagic help ${finding.code}` }, `${finding.code} ${finding.severity}`),
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
      finding.remedy ? html("p", { class: "remedy" }, ...quoting(finding.remedy, snippet)) : null,
    ),
    html("div", { class: "actions" }, ...buttons),
  );
}

/** The other lines that matter, below what happened there; the code of each line once.
 * @param {any} finding @param {{line:(location:number)=>void}} hooks @returns {Element[]} */
function relatedLines(finding, hooks) {
  const shown = new Set([finding.where]);
  return finding.related.map((/** @type {[string, string, string, number | null]} */ [what, where, text, location]) => {
    const code = shown.has(where) ? null : sourceLine(where, text, location, hooks);
    shown.add(where);
    return html("div", { class: "related" }, html("p", {}, `${what}: ${where}`), code);
  });
}

/** @param {string} where @param {string} text @param {number | null} location @param {{line:(location:number)=>void}} hooks */
function sourceLine(where, text, location, hooks) {
  const line = where.match(/\d+$/)?.[0] ?? "",
    inner = [html("span", { class: "number" }, line), html("code", {}, text)];
  if (location === null) return html("div", { class: "culprit" }, ...inner);
  const click = () => hooks.line(location);
  return html("button", { type: "button", class: "culprit", title: `show ${where}`, click }, ...inner);
}

/** A piece of code in a remedy: a click copies it. @param {string} code */
function snippet(code) {
  const button = html("button", { type: "button", class: "snippet", title: "copy", click: () => copied(button, code) });
  button.append(html("code", {}, code));
  return button;
}

/** @param {string} code */
function copyButton(code) {
  const click = async () => {
    say(button, (await copied(button, code)) ? "Copied" : "Cannot copy here");
    setTimeout(() => say(button, "Copy fix"), 1500);
  };
  const button = html("button", { type: "button", title: code, click }, "Copy fix");
  return button;
}

/** Copy, and show for a moment whether it worked. @param {Element} button @param {string} code @returns {Promise<boolean>} */
async function copied(button, code) {
  const done = await toClipboard(code),
    mark = done ? "copied" : "not-copied";
  button.classList.add(mark);
  setTimeout(() => button.classList.remove(mark), 1500);
  return done;
}

/** Through the clipboard, which only pages from https or this machine have; else as people copied before there was one.
 * @param {string} text @returns {Promise<boolean>} */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** @param {string} text @returns {boolean} */
function copiedBySelection(text) {
  const before = /** @type {any} */ (document.activeElement),
    field = html("textarea", {
      style: "position:fixed;top:0;opacity:0",
      "aria-hidden": "true",
      "data-lm-suppress-shortcuts": "true",
    });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus?.({ preventScroll: true });
  return done;
}
