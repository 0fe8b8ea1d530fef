// Turns a tensor of three dimensions or more: which two span the grid, and which slice of the others it shows. Offsets
// follow from shape, stride and storage offset; values are shown where this output holds them, and only there.
import { clamp, dataIn, digits, html, worded } from "./dom.js";
import { TensorPanel } from "./tensor_viewer.js";

const OTHER = "#aab1ba", TABLE_CELLS = 144, TABLE_COLUMNS = 16, LEVELS = 24, MAP_SIDE = 192;

const fraction = (value, low, high) => high > low ? clamp((value - low) / (high - low), 0, 1) : 0;
/** The number in an element as the report has it; bool as 0 or 1. */
const level = (text) => text === "True" ? 1 : text === "False" ? 0 : text === "inf" ? Infinity
  : text === "-inf" ? -Infinity : Number(text);

/** The grid of one panel, as it is or turned. */
class Slices {
  constructor(panel) {
    this.panel = panel;
    this.data = panel.data;
    this.scale = this.data.scale.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    this.first = this.state();
    this.stored = this.data.values;
    this.kept = panel.section.querySelector(".tm-top").firstElementChild;
    this.shown = [...(panel.section.querySelector(".tm-shown")?.childNodes || [])];
    this.scales = [...panel.section.querySelector(".tm-legend").querySelectorAll("p:has(>img:not(.tm-swatch))")];
    this.valued = this.scales[1] && [this.scales[1].firstChild.data, this.scales[1].lastChild.data];
    this.controls = html("div", { class: "tm-turn" });
    panel.section.querySelector(".tm-layout h3").after(this.controls);
    this.offer();
    panel.section.querySelectorAll(".tm-strip,.tm-map[data-kind=strip]").forEach((strip) => {
      strip.addEventListener("click", () => this.follow());
    });
  }

  state() {
    return JSON.stringify([this.data.rowDim, this.data.columnDim, this.data.fixed]);
  }

  /** Two lists for the dimensions that are drawn, a slider for each of the others. */
  offer() {
    const { rowDim, columnDim, shape } = this.data;
    this.controls.replaceChildren(this.list("rowDim"), html("span", {}, "\u00d7"), this.list("columnDim"));
    shape.forEach((size, dim) => {
      if (dim !== rowDim && dim !== columnDim && size > 1) this.controls.append(this.slider(dim));
    });
  }

  list(side) {
    const list = html("select", { change: () => this.draw(side, Number(list.value)) });
    this.data.letters.forEach((letter, dim) => list.append(new Option(`${letter} ${this.data.shape[dim]}`, String(dim))));
    list.value = String(this.data[side]);
    return html("label", {}, `${this.panel.words[side]} `, list);
  }

  slider(dim) {
    const { words } = this.panel, letter = this.data.letters[dim];
    const text = () => worded(words.at, { letter, at: this.data.fixed[dim], size: this.data.shape[dim] });
    const said = html("output", {}, text());
    const range = html("input", {
      type: "range", min: 0, max: this.data.shape[dim] - 1, step: 1, "aria-label": worded(words.along, { letter }),
      input: () => {
        this.data.fixed[dim] = Number(range.value);
        said.textContent = text();
        this.redraw();
      },
    });
    range.value = String(this.data.fixed[dim]);
    return html("label", {}, range, said);
  }

  /** Draw another dimension; the one that it takes the place of becomes the other side, or slides. */
  draw(side, dim) {
    const other = side === "rowDim" ? "columnDim" : "rowDim";
    if (this.data[other] === dim) this.data[other] = this.data[side];
    this.data[side] = dim;
    this.data.fixed[this.data.rowDim] = this.data.fixed[this.data.columnDim] = 0;
    this.offer();
    this.redraw();
    this.controls.querySelectorAll("select")[side === "rowDim" ? 0 : 1].focus();
  }

  /** A storage element that another slice reads was clicked: show that slice. */
  follow() {
    const { panel, data } = this, { index, cell } = panel;
    if (!index || panel.drawn(index)) return;
    index.forEach((at, dim) => { if (dim !== data.rowDim && dim !== data.columnDim) data.fixed[dim] = at; });
    this.offer();
    this.redraw();
    panel.pickCell(cell);
  }

  redraw() {
    const { data, panel } = this;
    data.rows = data.shown[data.rowDim];
    data.columns = data.shown[data.columnDim];
    data.values = this.values();
    data.at = [data.rows.length >> 1, data.columns.length >> 1];
    this.offsets = data.rows.map((_, row) => data.columns.map((__, column) => panel.offsetAt(row, column)));
    const all = this.offsets.flat();
    [this.low, this.high] = [Math.min(...all), Math.max(...all)];
    const table = data.columns.length <= TABLE_COLUMNS && all.length <= TABLE_CELLS;
    const drawn = this.state() === this.first ? this.kept : table ? this.table() : this.maps();
    panel.section.querySelector(".tm-top").firstElementChild.replaceWith(drawn);
    this.strip(data.rows.length === data.shape[data.rowDim] && data.columns.length === data.shape[data.columnDim] ? new Set(all) : null);
    this.words();
    panel.scan();
    panel.pick(...data.at);
  }

  values() {
    const { data } = this;
    if (!data.elements) return this.state() === this.first ? this.stored : [];
    const rank = (index) => index.reduce((total, at, dim) => total * data.shape[dim] + at, 0);
    return data.rows.map((_, row) => data.columns.map((__, column) => data.elements[rank(this.panel.indexAt(row, column))]));
  }

  channels(share) {
    const at = share * (this.scale.length - 1), low = Math.min(Math.floor(at), this.scale.length - 2);
    return this.scale[low].map((from, channel) => Math.round(from + (this.scale[low + 1][channel] - from) * (at - low)));
  }

  colour(offset) {
    return `rgb(${this.channels(fraction(offset, this.low, this.high))})`;
  }

  /** The ink with the higher contrast: black from one colour on. */
  ink(share) {
    return share < this.data.black ? "#fff" : "#000";
  }

  table() {
    const { data } = this, name = (dim, at) => html("th", {}, `${data.letters[dim]}=${at}`);
    const rows = this.offsets.map((offsets, row) => html("tr", {}, name(data.rowDim, data.rows[row]), ...offsets.map((offset, column) => {
      const cell = html("td", {}, String(offset)), share = fraction(offset, this.low, this.high);
      cell.style.cssText = `background:${this.colour(offset)};color:${this.ink(share)}`;
      if (data.values.length && !Number.isFinite(level(data.values[row][column])) && /nan|inf/.test(data.values[row][column])) cell.classList.add("tm-bad");
      return cell;
    })));
    const head = html("tr", {}, html("th"), ...data.columns.map((at) => name(data.columnDim, at)));
    return html("table", { class: "tm-cells tm-grid" }, html("tbody", {}, head, ...rows));
  }

  maps() {
    const { data } = this, maps = [];
    const levels = data.values.map((row) => row.map(level)), finite = levels.flat().filter(Number.isFinite);
    if (finite.length && data.range) maps.push(this.map("value", levels, data.range[0], data.range[1]));
    maps.push(this.map("offset", this.offsets, this.low, this.high));
    return html("div", { class: "tm-maps" }, ...maps);
  }

  map(kind, cells, low, high) {
    const { data } = this, caption = this.panel.words[`${kind}_map`], size = clamp(Math.floor(MAP_SIDE / Math.max(data.rows.length, data.columns.length)), 3, 14);
    const image = html("img", {
      src: this.picture(cells, low, high, size), width: data.columns.length * size, height: Math.max(data.rows.length * size, 22), alt: caption,
    });
    const axis = (dim, at) => html("div", {}, html("span", {}, String(at[0])), html("span", {}, data.letters[dim]), html("span", {}, at.length > 1 ? String(at.at(-1)) : ""));
    const body = html("div", { class: "tm-map", "data-kind": kind }, image);
    return html("table", { class: "tm-axes" }, html("caption", {}, caption), html("tbody", {}, 
      html("tr", {}, html("td"), html("td", { class: "tm-across" }, axis(data.columnDim, data.columns))),
      html("tr", {}, html("td", { class: "tm-down" }, axis(data.rowDim, data.rows)), html("td", {}, body))));
  }

  /** Cells as squares; what is no number is hatched, as in the static picture. */
  picture(cells, low, high, size) {
    const canvas = document.createElement("canvas"), paint = canvas.getContext("2d");
    [canvas.width, canvas.height] = [cells[0].length * size, cells.length * size];
    cells.forEach((row, y) => row.forEach((value, x) => {
      if (Number.isFinite(value)) {
        paint.fillStyle = `rgb(${this.channels(Math.round(fraction(value, low, high) * (LEVELS - 1)) / (LEVELS - 1))})`;
        paint.fillRect(x * size, y * size, size, size);
        return;
      }
      paint.fillStyle = "#868f99";
      for (let v = y * size; v < (y + 1) * size; v++) {
        for (let u = x * size; u < (x + 1) * size; u++) {
          const rising = (u + v) % 5 === 0, falling = (u - v) % 5 === 0;
          if (Number.isNaN(value) ? rising || falling : value > 0 ? rising : falling) paint.fillRect(u, v, 1, 1);
        }
      }
    }));
    return canvas.toDataURL();
  }

  /** Colour the cells of the storage strip by the slice that is drawn now; grey is what other slices read. */
  strip(drawn) {
    const { data, panel } = this, [start, stop, width] = data.strip || [0, 0, 1];
    panel.stripCells.forEach((cell, at) => {
      if (data.reads[at] === 0) return;
      const first = start + at * width, last = Math.min(first + width, stop) - 1;
      let inside = last >= this.low && first <= this.high;
      if (inside && drawn) inside = [...drawn].some((offset) => first <= offset && offset <= last);
      const middle = clamp(Math.floor((first + last) / 2), this.low, this.high);
      const fill = cell.firstElementChild || cell;
      fill.style.backgroundColor = inside ? this.colour(middle) : OTHER;
      cell.style.color = inside ? this.ink(fraction(middle, this.low, this.high)) : "#000";
    });
  }

  /** What is shown of what, and the ends of the colour scale. */
  words() {
    const { data, panel } = this, { words } = panel;
    const drawn = [data.rowDim, data.columnDim];
    const index = data.shape.map((_, dim) => drawn.includes(dim) ? ":" : data.fixed[dim]).join(", ");
    const slices = data.shape.reduce((all, size, dim) => drawn.includes(dim) ? all : all * size, 1);
    const [rows, columns] = [data.rows.length, data.columns.length], [row_count, column_count] = drawn.map((dim) => digits(data.shape[dim]));
    const size = (rows < data.shape[data.rowDim] || columns < data.shape[data.columnDim]) && worded(words.size, { rows, columns, row_count, column_count });
    const values = data.readable && !data.values.length && words.no_values;
    const shown = panel.section.querySelector(".tm-shown");
    const first = this.state() === this.first, sentence = { size, part: `${data.name}[${index}]`, slices: digits(slices), values };
    shown?.replaceChildren(...(first ? this.shown : [html("b", {}, words.showing), worded(words.slice, sentence)]));
    const [offsets, valued] = this.scales;
    const put = (scale, before, after) => ([scale.firstChild.data, scale.lastChild.data] = [before, after]);
    put(offsets, `${words.offset} ${digits(this.low)} `, ` ${digits(this.high)}`);
    if (!valued) return;
    valued.hidden = !panel.section.querySelector('.tm-map[data-kind="value"]');
    if (first) put(valued, ...this.valued);
    else if (data.range) put(valued, `${words.value} ${data.range[2]} `, ` ${data.range[3]}`); // of the whole tensor
  }
}

/** Mount the panels of all tensors within an element, each once. words: ELEMENT_WORDS in tensor_elements.py. */
export async function mountTensors(scope, unpacked, words) {
  for (const section of [scope, ...scope.querySelectorAll("section")]) {
    const block = section.matches(".tm-tensor") && section.querySelector("script.tm-data");
    if (!block || section.tensormagicBegun) continue;
    section.tensormagicBegun = true;
    const panel = (section.tensormagicPanel = new TensorPanel(section, await dataIn(block, unpacked), words));
    if (panel.data.scale) panel.slices = new Slices(panel);
  }
}
