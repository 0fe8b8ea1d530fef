// Sorts and filters the table of %tensors.
import { dataIn, digits, filled, html, worded } from "./dom.js";

const NUMEL = 8, BYTES = 9, GROUP = 10; // behind the eight cells of a row stand what they are sorted by
const NAME = 0, SHAPE = 2, SIZE = 5, MEMORY = 6;
const sortedBy = { [SHAPE]: NUMEL, [SIZE]: BYTES, [MEMORY]: GROUP };

class Table {
  constructor(section, data, words) {
    this.section = section;
    this.data = data;
    this.words = words;
    this.rows = data.rows;
    this.most = data.first;
    this.by = this.rows.length > data.first ? SIZE : -1;
    this.down = true;
    this.body = section.querySelector(".tm-rows tbody");
    this.heads = [...section.querySelectorAll(".tm-rows thead th")];
    this.listed = section.querySelector(".tm-listed");
    this.collator = new Intl.Collator(undefined, { numeric: true });
    this.texts = this.rows.map((row) => row.slice(0, NUMEL).join(" ").toLowerCase());
    this.addTools();
    this.heads.forEach((head, at) => {
      head.replaceChildren(html("button", { type: "button", click: () => this.sort(at) }, head.textContent));
    });
    this.tools.hidden = this.rows.length < 8;
    this.show();
  }

  addTools() {
    this.input = html("input", {
      type: "search", placeholder: this.words.keys, "aria-label": this.words.filter,
      input: () => { this.most = this.data.first; this.show(); },
      keydown: (event) => event.stopPropagation(), // the classic notebook takes keys for commands: not those typed in here
    });
    this.state = html("span", { class: "quiet", "aria-live": "polite" });
    this.tools = html("div", { class: "tm-tools" }, this.input, this.state);
    const scroll = this.section.querySelector(".tm-scroll");
    scroll.before(this.tools);
    filled(scroll, { tabindex: 0, role: "region", "aria-label": this.section.getAttribute("aria-label") }); // the arrow keys scroll it
    this.button = html("button", { type: "button", click: () => { this.most += 4 * this.data.first; this.show(); } });
    this.more = html("p", { class: "tm-more" }, this.button);
    this.listed.replaceWith(this.more);
  }

  /** Once: numbers the largest first, words from A on; twice: the other way round; thrice: as they came. */
  sort(at) {
    const first = at in sortedBy && at !== MEMORY;
    if (this.by !== at) [this.by, this.down] = [at, first];
    else if (this.down === first) this.down = !first;
    else this.by = -1;
    this.show();
  }

  found() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.rows.filter((_, at) => words.every((word) => this.texts[at].includes(word)));
    if (this.by < 0) return found;
    const key = sortedBy[this.by] ?? this.by, sign = this.down ? -1 : 1;
    const compare = key >= NUMEL ? (a, b) => a[key] - b[key] : (a, b) => this.collator.compare(a[key], b[key]);
    // What belongs to no shared memory comes last, whichever way the letters go.
    const last = (row) => this.by === MEMORY && !row[GROUP];
    return found.sort((a, b) => last(a) - last(b) || sign * compare(a, b));
  }

  show() {
    const found = this.found(), shown = found.slice(0, this.most);
    this.body.replaceChildren(...shown.map((row) => this.row(row)));
    this.heads.forEach((head, at) => {
      head.setAttribute("aria-sort", at !== this.by ? "none" : this.down ? "descending" : "ascending");
    });
    const { length: all } = this.rows, { length } = found;
    this.state.textContent = length < all ? worded(this.words.match, { length: digits(length), all: digits(all) }) : worded(this.words.all, { all });
    this.more.hidden = shown.length === length;
    this.button.textContent = worded(this.words.more, { shown: digits(shown.length), length: digits(length) });
  }

  row(cells) {
    const { chips } = this.data, colour = chips[(cells[GROUP] - 1) % chips.length];
    return html("tr", {}, ...this.heads.map((_, at) => {
      const chip = at === MEMORY && colour && html("span", { class: "tm-chip", style: `background-color:${colour};color:#000` }, cells[at]);
      return html(at === NAME ? "th" : "td", { class: at === SIZE ? "tm-num" : null }, chip || cells[at]);
    }));
  }
}

/** Mount the table of a panel, once. */
export async function mountTable(section, unpacked, words) {
  const block = section.querySelector("script.tm-table-data");
  if (!block || section.tensormagicTable) return;
  section.tensormagicTable = true;
  section.tensormagicTable = new Table(section, await dataIn(block, unpacked), words);
}
