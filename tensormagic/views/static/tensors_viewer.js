// Sorts and filters the table of %tensors. Every panel is mounted once.
const mountTables = (() => {
  "use strict";
  const NUMEL = 8, BYTES = 9, GROUP = 10; // behind the eight cells of a row stand what they are sorted by
  const NAME = 0, SHAPE = 2, SIZE = 5, MEMORY = 6;
  const sortedBy = { [SHAPE]: NUMEL, [SIZE]: BYTES, [MEMORY]: GROUP };
  /** @param {number} n */
  const grouped = (n) => n < 10000 ? String(n) : String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u00a0");

  /** @param {HTMLScriptElement} block @param {(text:string)=>Promise<string>} unpacked */
  const read = async (block, unpacked) => JSON.parse(block.type === "application/json" ? block.textContent : await unpacked(block.textContent));

  class Table {
    /** @param {HTMLElement} section @param {any} data */
    constructor(section, data) {
      this.section = section;
      this.data = data;
      this.rows = data.rows;
      this.most = data.first;
      this.by = this.rows.length > data.first ? SIZE : -1;
      this.down = true;
      this.body = section.querySelector(".tm-rows tbody");
      this.heads = [...section.querySelectorAll(".tm-rows thead th")];
      this.listed = section.querySelector(".tm-listed");
      this.words = new Intl.Collator(undefined, { numeric: true });
      this.texts = this.rows.map((row) => row.slice(0, NUMEL).join(" ").toLowerCase());
      this.addTools();
      this.addSorting();
      this.tools.hidden = this.rows.length < 8;
      this.show();
    }

    addTools() {
      const tools = this.tools = document.createElement("div");
      tools.className = "tm-tools";
      this.input = tools.appendChild(document.createElement("input"));
      this.input.type = "search";
      this.input.placeholder = "filter: name, dtype, letter";
      this.input.setAttribute("aria-label", "filter the tensors: words that a row must contain");
      this.input.addEventListener("input", () => { this.most = this.data.first; this.show(); });
      // The classic notebook takes keys for commands: not those typed in here.
      this.input.addEventListener("keydown", (event) => event.stopPropagation());
      this.state = tools.appendChild(document.createElement("span"));
      this.state.className = "quiet";
      this.state.setAttribute("aria-live", "polite");
      const scroll = this.section.querySelector(".tm-scroll");
      scroll.before(tools);
      scroll.tabIndex = 0; // the arrow keys scroll it
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", this.section.getAttribute("aria-label"));
      for (const part of [scroll, tools]) part.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take their keys
      this.more = document.createElement("p");
      this.more.className = "tm-more";
      this.button = this.more.appendChild(document.createElement("button"));
      this.button.type = "button";
      this.button.addEventListener("click", () => { this.most += 4 * this.data.first; this.show(); });
      this.listed.replaceWith(this.more);
    }

    addSorting() {
      this.heads.forEach((head, at) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = head.textContent;
        button.addEventListener("click", () => this.sort(at));
        head.replaceChildren(button);
      });
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
      const found = [];
      this.texts.forEach((text, at) => { if (words.every((word) => text.includes(word))) found.push(this.rows[at]); });
      if (this.by < 0) return found;
      const key = sortedBy[this.by] ?? this.by, sign = this.down ? -1 : 1;
      const compare = key >= NUMEL ? (a, b) => a[key] - b[key] : (a, b) => this.words.compare(a[key], b[key]);
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
      const bytes = found.length < this.rows.length ? `${grouped(found.length)} of ${grouped(this.rows.length)} match` : "";
      this.state.textContent = bytes || `${grouped(this.rows.length)} rows`;
      this.more.hidden = shown.length === found.length;
      this.button.textContent = `${grouped(shown.length)} of ${grouped(found.length)} shown: show more`;
    }

    row(cells) {
      const row = document.createElement("tr");
      for (let at = 0; at < this.heads.length; at++) {
        const cell = row.appendChild(document.createElement(at === NAME ? "th" : "td"));
        if (at === SIZE) cell.className = "tm-right";
        if (at === MEMORY && cells[GROUP]) cell.append(this.chip(cells));
        else cell.textContent = cells[at];
      }
      return row;
    }

    chip(cells) {
      const chip = document.createElement("span");
      chip.className = "tm-chip";
      chip.textContent = cells[MEMORY];
      chip.style.backgroundColor = this.data.chips[(cells[GROUP] - 1) % this.data.chips.length];
      chip.style.color = "#000";
      return chip;
    }
  }

  /** @param {HTMLElement} section @param {(text:string)=>Promise<string>} unpacked */
  return async (section, unpacked) => {
    const block = section.querySelector("script.tm-table-data");
    if (!block || section.tensormagicTable) return;
    section.tensormagicTable = true;
    section.tensormagicTable = new Table(section, await read(block, unpacked));
  };
})();
