// Links the index grid of a tensor to its storage strip: pick an element in one, see it in the other and in the formula.
import { arrowOf, clamp, digits, filled, html, svg, take, worded } from "./dom.js";

const DOT = "\u00b7", TWO_LINES = 8;

/**
 * Find an index that reads a storage offset, or null. Exact: dimensions with the longest strides first, each tried
 * only where the rest can still reach what is left.
 */
const indexOf = (data, offset) => {
  const order = data.stride.map((_, dim) => dim).sort((a, b) => Math.abs(data.stride[b]) - Math.abs(data.stride[a]));
  const reach = [0];
  for (let i = order.length - 1; i >= 0; i--) reach.unshift(reach[0] + data.stride[order[i]] * (data.shape[order[i]] - 1));
  const index = data.shape.map(() => 0);
  let tries = 0;
  const walk = (depth, left) => {
    if (depth === order.length) return left === 0;
    const dim = order[depth], step = data.stride[dim];
    if (step === 0) return walk(depth + 1, left);
    const highest = Math.min(data.shape[dim] - 1, Math.floor(left / step));
    const lowest = Math.max(0, Math.ceil((left - reach[depth + 1]) / step));
    for (let at = highest; at >= lowest && tries++ < 10000; at--) {
      index[dim] = at;
      if (walk(depth + 1, left - at * step)) return true;
    }
    return false;
  };
  return data.shape.every((size) => size > 0) && walk(0, offset - data.offset) ? index : null;
};

/** The panel of one tensor. */
export class TensorPanel {
  constructor(section, data, words) {
    this.section = section;
    this.data = data;
    this.words = words;
    this.picture = section.querySelector(".tm-picture");
    this.now = section.querySelector(".tm-now code");
    this.notes = section.querySelector(".tm-notes");
    this.kind = "value";
    this.notes.setAttribute("aria-live", "polite");
    this.all(".tm-cells td > b").forEach((bold) => bold.replaceWith(bold.textContent));
    this.scan();
    this.pick(data.at[0], data.at[1]);
    if (window.ResizeObserver) new ResizeObserver(() => this.wire()).observe(this.picture);
  }

  all(selector) {
    return [...this.section.querySelectorAll(selector)];
  }

  /** Find the cells: at first, and after another slice was drawn. */
  scan() {
    this.gridRows = this.all(".tm-grid tr").map((row) => [...row.children]).filter((cells) => cells.some((c) => c.tagName === "TD"));
    this.gridHead = [...(this.section.querySelector(".tm-grid tr")?.children || [])].slice(1);
    this.stripCells = this.all(".tm-strip td");
    this.offsetCells = this.all(".tm-offsets:not(.tm-sparse) td");
    this.maps = this.all(".tm-map");
    this.mark = "";
    this.listen();
    const valued = this.gridRows.length > 0 && this.data.values.length > 0;
    if (valued && !this.choice) this.offerValues();
    if (this.choice) this.choice.hidden = !valued;
    if (this.choice && this.gridRows.length) this.label(valued ? this.kind : "offset");
  }

  listen() {
    for (const surface of this.all(".tm-grid,.tm-strip,.tm-map")) {
      if (surface.tensormagicListens) continue;
      surface.tensormagicListens = true;
      const strip = surface.matches('.tm-strip,[data-kind="strip"]');
      const label = worded(strip ? this.words.storage : this.words.indices, this.data),
        point = (event) => this.point(event, surface), keydown = (event) => this.key(event, strip);
      filled(surface, { tabindex: 0, role: "group", "aria-label": label, keydown, pointermove: point, pointerdown: point });
    }
  }

  /** Two buttons: what the cells of the grid say large, their value or their storage offset. */
  offerValues() {
    const kinds = ["value", "offset"];
    const buttons = kinds.map((kind) => {
      const click = () => {
        this.kind = kind;
        buttons.forEach((one, at) => one.setAttribute("aria-pressed", String(kinds[at] === kind)));
        this.label(kind);
      };
      return html("button", { type: "button", "aria-pressed": String(kind === this.kind), click }, this.words[kind]);
    });
    this.choice = html("span", { class: "tm-choice" }, this.words.cells_show, ...buttons);
    this.section.querySelector(".tm-layout h3").append(this.choice);
  }

  label(kind) {
    this.gridRows.forEach((cells, r) => cells.slice(1).forEach((td, c) => {
      const whole = this.data.values.length ? this.data.values[r][c] : "";
      const offset = String(this.offsetAt(r, c)), value = this.data.narrow[whole] ?? whole;
      const [large, small] = kind === "value" ? [value, offset] : [offset, value];
      td.textContent = large;
      if (small && this.gridRows.length <= TWO_LINES) td.append(" ", html("small", {}, small));
    }));
    this.wire();
  }

  point(event, surface) {
    if (surface.matches(".tm-map")) return this.pointMap(event, surface);
    const cell = event.target.closest("td");
    if (!cell) return;
    if (surface.matches(".tm-strip")) return this.pickCell(this.stripCells.indexOf(cell));
    const row = this.gridRows.findIndex((cells) => cells.includes(cell));
    if (row >= 0) this.pick(row, this.gridRows[row].indexOf(cell) - 1);
  }

  pointMap(event, map) {
    const box = map.querySelector("img").getBoundingClientRect();
    const along = (at, start, size, count) => clamp(Math.floor((at - start) / size * count), 0, count - 1);
    if (map.dataset.kind === "strip") return this.pickCell(along(event.clientX, box.left, box.width, this.data.reads.length));
    this.pick(along(event.clientY, box.top, box.height, this.data.rows.length),
      along(event.clientX, box.left, box.width, this.data.columns.length));
  }

  key(event, strip) {
    const way = arrowOf(event);
    if (!way) return;
    const [across, down] = way;
    take(event);
    if (strip) return this.pickCell(clamp((this.cell ?? 0) + across + down, 0, this.data.reads.length - 1));
    this.pick(clamp((this.row ?? this.data.at[0]) + down, 0, this.data.rows.length - 1),
      clamp((this.column ?? this.data.at[1]) + across, 0, this.data.columns.length - 1));
  }

  /** An element of the grid. */
  pick(row, column) {
    const offset = this.offsetAt(row, column);
    this.show({ row, column, index: this.indexAt(row, column), offset, cell: this.cellOf(offset) });
  }

  /** A cell of the strip: its first element that the tensor reads, in the grid where that shows it. */
  pickCell(cell) {
    const { data } = this;
    const [start, stop, width] = data.strip;
    const first = start + cell * width, last = Math.min(first + width, stop) - 1;
    for (let row = 0; row < data.rows.length; row++) {
      for (let column = 0; column < data.columns.length; column++) {
        const offset = this.offsetAt(row, column);
        if (offset >= first && offset <= last) return this.show({ row, column, index: this.indexAt(row, column), offset, cell });
      }
    }
    const seen = data.reads[cell] === 0 ? null : this.firstRead(first, last);
    this.show({ row: null, column: null, index: seen && seen.index, offset: seen ? seen.offset : first, cell });
  }

  firstRead(first, last) {
    for (let offset = first; offset <= Math.min(last, first + 64); offset++) {
      const index = indexOf(this.data, offset);
      if (index) return { index, offset };
    }
    return null;
  }

  /** Whether an index lies in the slice that the grid shows, or is a sample of. */
  drawn(index) {
    const { rowDim, columnDim, fixed } = this.data;
    return index.every((at, dim) => dim === rowDim || dim === columnDim || at === fixed[dim]);
  }

  indexAt(row, column) {
    const index = [...this.data.fixed];
    if (this.data.rowDim !== null) index[this.data.rowDim] = this.data.rows[row];
    if (this.data.columnDim !== null) index[this.data.columnDim] = this.data.columns[column];
    return index;
  }

  offsetAt(row, column) {
    return this.data.offset + this.indexAt(row, column).reduce((sum, at, dim) => sum + at * this.data.stride[dim], 0);
  }

  cellOf(offset) {
    if (!this.data.strip) return null;
    const [start, stop, width] = this.data.strip;
    return offset < start || offset >= stop ? null : Math.floor((offset - start) / width);
  }

  show(at) {
    const mark = JSON.stringify(at);
    if (mark === this.mark) return;
    this.mark = mark;
    Object.assign(this, at);
    this.highlight(at);
    this.say(at);
    this.wire();
  }

  highlight({ row, column, offset, cell }) {
    this.gridRows.forEach((cells, r) => cells.forEach((td, c) => {
      const on = r === row && (c === column + 1 || c === 0);
      td.classList.toggle("tm-on", on);
      const same = td.tagName === "TD" && !on && this.offsetAt(r, c - 1) === offset;
      td.classList.toggle("tm-near", same);
    }));
    this.gridHead.forEach((th, c) => { if (th.tagName === "TH") th.classList.toggle("tm-on", c === column); });
    this.stripCells.forEach((td, c) => td.classList.toggle("tm-on", c === cell));
    this.offsetCells.forEach((td, c) => td.classList.toggle("tm-on", c === cell));
    for (const map of this.maps) this.ring(map, map.dataset.kind === "strip" ? [0, 1, cell, this.data.reads.length]
      : [row, this.data.rows.length, column, this.data.columns.length]);
  }

  ring(map, [row, rows, column, columns]) {
    const ring = map.querySelector(".tm-ring") ?? map.appendChild(html("div", { class: "tm-ring" }));
    ring.hidden = row === null || column === null;
    if (ring.hidden) return;
    const size = { left: (column + .5) / columns, top: (row + .5) / rows, width: 1 / columns, height: 1 / rows };
    for (const [side, share] of Object.entries(size)) ring.style[side] = `${share * 100}%`;
  }

  say({ index, offset, row, column }) {
    const { data, words } = this, same = worded(words.same, { other: this.other(offset) });
    if (!index) {
      this.now.textContent = worded(words.offset_alone, { offset: digits(offset) });
      this.notes.textContent = worded(data.reads[this.cell] === 0 ? words.unread : words.unfound, { name: data.name, same });
      return;
    }
    const sum = [data.offset, ...index.map((at, dim) => `${data.stride[dim]}${DOT}${at}`)].join(" + ");
    this.now.textContent = worded(words.formula, { index: index.join(", "), sum, offset: index.length && String(offset) });
    const value = row !== null && data.values.length && data.values[row][column];
    const undrawn = data.scale && !this.drawn(index) ? words.elsewhere : words.undrawn;
    const why = row === null ? undrawn : data.readable && !data.values.length && words.no_value;
    const element = index.length ? `${data.name}[${index.join(", ")}]` : data.name;
    this.notes.replaceChildren(worded(words.element, { element, value, why }),
      ...[same, this.repeated(index)].filter(Boolean).flatMap((line) => [html("br"), line]));
  }

  /** The indices that read the same element because their dimension stands still. */
  repeated(index) {
    const { data } = this, still = (dim) => data.stride[dim] === 0 && data.shape[dim] > 1;
    const inner = index.map((at, dim) => still(dim) ? ":" : at).join(", ");
    return data.still && worded(this.words.repeated, { letters: data.still, part: `${data.name}[${inner}]` });
  }

  /** What the tensor whose rows are drawn calls a storage element. */
  other(offset) {
    const { base } = this.data;
    if (!base) return "";
    const index = [];
    for (const size of [...base.shape].reverse()) { index.unshift(offset % size); offset = Math.floor(offset / size); }
    return `${base.name}[${index.join(", ")}]`;
  }

  /** The line from the grid's cell to the strip's. */
  wire() {
    const from = this.gridRows[this.row]?.[(this.column ?? 0) + 1], to = this.stripCells[this.cell];
    let line = this.picture.querySelector(".tm-wire");
    const [grid, read] = [".tm-grid", ".tm-read"].map((one) => this.section.querySelector(one)?.getBoundingClientRect());
    if (!from || !to || read?.left < grid.right) return line?.remove(); // on little room words lie below the grid
    if (!line) {
      line = svg("svg", { class: "tm-wire", "aria-hidden": "true" }, svg("path"), svg("path"), svg("path"));
      this.picture.append(line);
    }
    const origin = this.picture.getBoundingClientRect(), a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
    // Where a page is zoomed, rectangles are larger than the lengths in which the line is drawn.
    const scale = origin.width / this.picture.offsetWidth || 1;
    const across = (at) => (at - origin.left) / scale, down = (at) => (at - origin.top) / scale;
    const edge = across(grid.right) + 9;
    const x = across(b.left + b.width / 2), y = down(a.bottom), top = down(b.top);
    const path = `M${across(a.right)} ${y}H${edge}V${top - 10}H${x}V${top - 3}`;
    line.children[0].setAttribute("d", path);
    line.children[1].setAttribute("d", path);
    line.children[2].setAttribute("d", `M${x - 4} ${top - 7}h8l-4 7z`);
  }
}
