// Several tensors on one strip: point at an element, see which elements of the others lie over the same bytes.
// Everything it says stands in the cells' titles.

/** One strip with its rows. */
class Strip {
  /** @param {HTMLTableElement} table */
  constructor(table) {
    this.rows = [...table.querySelectorAll(".tm-strip")].map((row) => ({ name: row.querySelector("code").textContent, cells: this.placed(row) }));
    this.last = this.rows[0].cells.at(-1).stop - 1;
    const hint = "point at an element to see what else is stored there";
    this.said = Object.assign(document.createElement("p"), { className: "tm-said quiet", ariaLive: "polite", textContent: hint });
    table.after(this.said);
    table.tabIndex = 0;
    table.setAttribute("aria-label", "memory: arrow keys move along the ruler");
    for (const kind of ["pointermove", "pointerdown"]) table.addEventListener(kind, (event) => this.point(event));
    table.addEventListener("keydown", (event) => this.key(event));
  }

  /** The cells of a row with the part of the ruler they cover. */
  placed(row) {
    let at = 0;
    return [...row.querySelectorAll("td")].map((cell) => ({ cell, start: at, stop: at += cell.colSpan }));
  }

  point(event) {
    const cell = event.target.closest("td"), row = this.rows.find(({ cells }) => cells.some((one) => one.cell === cell));
    if (row) this.show(row.cells.find((one) => one.cell === cell));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.range ? step > 0 ? this.range.stop : this.range.start - 1 : 0;
    const start = Math.min(Math.max(at, 0), this.last);
    this.show({ start, stop: start + 1 });
  }

  show({ start, stop }) {
    this.range = { start, stop };
    const found = this.rows.map(({ name, cells }) => {
      const here = cells.filter((one) => one.start < stop && start < one.stop && this.read(one.cell));
      cells.forEach((one) => one.cell.classList.toggle("tm-on", here.includes(one)));
      return this.words(name, here.map((one) => one.cell));
    });
    this.said.textContent = found.filter(Boolean).join("  \u00b7  ") || "nothing reads this";
  }

  /** Whether a cell is read, at least in part. */
  read(cell) {
    return !cell.classList.contains("tm-skip") || cell.firstElementChild !== null;
  }

  /** What one row has there: its elements by name, or how much of a run of bytes it reads. */
  words(name, cells) {
    const titles = cells.map((cell) => cell.title);
    if (!titles.length) return "";
    if (/^bytes? /.test(titles[0])) return `${name}: ${titles.map((title) => title.split(": ")[1]).join(", ")}`;
    const elements = titles.map((title) => title.slice(0, title.lastIndexOf(": byte")));
    const more = elements.length > 8 ? ` \u2026 ${elements.length} elements` : "";
    return elements.slice(0, 8).join(", ") + more + (titles.length === 1 ? ` (${titles[0].slice(elements[0].length + 2)})` : "");
  }
}

/** Mount every strip of a panel, once. @param {HTMLElement} section */
export function mountStrips(section) {
  for (const table of section.querySelectorAll("table.tm-storage")) table.tensormagicStrip ??= new Strip(table);
}
