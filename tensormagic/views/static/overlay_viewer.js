// Several tensors on one strip: point at an element, see which elements of the others lie over the same bytes.
// Everything it says of them stands in the cells' titles.
import { arrowOf, clamp, take } from "./dom.js";

const MOST = 8; // elements of one row that are named

/** One strip with its rows. */
class Strip {
  constructor(table, words) {
    this.words = words;
    this.rows = [...table.querySelectorAll(".tm-strip")].map((row) => ({ name: row.querySelector("code").textContent, cells: this.placed(row) }));
    this.last = this.rows[0].cells.at(-1).stop - 1;
    this.said = Object.assign(document.createElement("p"), { className: "tm-said quiet", ariaLive: "polite", textContent: words.hint });
    table.after(this.said);
    table.tabIndex = 0;
    table.setAttribute("aria-label", words.keys);
    for (const kind of ["pointermove", "pointerdown"]) table.addEventListener(kind, (event) => this.point(event));
    table.addEventListener("keydown", (event) => this.key(event));
  }

  /** The cells of a row with the part of the ruler they cover. */
  placed(row) {
    let at = 0;
    return [...row.querySelectorAll("td")].map((cell) => ({ cell, start: at, stop: at += cell.colSpan }));
  }

  point(event) {
    const cell = event.target.closest("td"), here = this.rows.flatMap(({ cells }) => cells).find((one) => one.cell === cell);
    if (here) this.show(here);
  }

  key(event) {
    const [step] = arrowOf(event) ?? [];
    if (!step) return;
    take(event);
    const start = this.range ? clamp(step > 0 ? this.range.stop : this.range.start - 1, 0, this.last) : 0;
    this.show({ start, stop: start + 1 });
  }

  show({ start, stop }) {
    this.range = { start, stop };
    const found = this.rows.map(({ name, cells }) => {
      const read = ({ cell }) => !cell.classList.contains("tm-skip") || cell.firstElementChild; // at least in part
      const here = cells.filter((one) => one.start < stop && start < one.stop && read(one));
      cells.forEach((one) => one.cell.classList.toggle("tm-on", here.includes(one)));
      return this.told(name, here.map((one) => one.cell.title));
    });
    this.said.textContent = found.filter(Boolean).join("  \u00b7  ") || this.words.unread;
  }

  /** What one row has there: its elements by name, or how much of a run of bytes it reads. */
  told(name, titles) {
    if (!titles.length) return "";
    if (/^bytes? /.test(titles[0])) return `${name}: ${titles.map((title) => title.split(": ")[1]).join(", ")}`;
    const elements = titles.map((title) => title.slice(0, title.lastIndexOf(": byte")));
    const more = elements.length > MOST ? this.words.more.replace("{all}", elements.length) : "";
    return elements.slice(0, MOST).join(", ") + more + (titles.length === 1 ? ` (${titles[0].slice(elements[0].length + 2)})` : "");
  }
}

/** Mount every strip of a panel, once. */
export function mountStrips(section, _unpacked, words) {
  for (const table of section.querySelectorAll("table.tm-storage")) table.tensormagicStrip ??= new Strip(table, words);
}
