/** The line below a panel that hands it on: as a picture, as a page, as data. Made by a script: without, it is not there. */

import { html, toClipboard } from "../dom.js";
import { drawingOf } from "./drawing.js";

const MOST_FRAMES = 60;
const [FRAME, LAST, SETTLES] = [160, 1800, 150]; // milliseconds that a picture stands, the last one, and until one is drawn
const PAGE =
  '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title></title><style>body{margin:16px;background:Canvas;color-scheme:light dark}</style></head><body>';

/** What a style sheet puts before and after elements, as elements: only those can be measured. */
function spelledOut(section) {
  const made = [];
  for (const element of section.querySelectorAll("*"))
    for (const place of ["::before", "::after"]) {
      const style = getComputedStyle(element, place),
        text = /^"(.*)"$/s.exec(style.content);
      if (!text || style.display === "none" || element.closest("svg,.tm-export")) continue;
      made.push({ element, place, text: text[1].replace(/\\(.)/g, "$1"), rules: [...style].map((key) => `${key}:${style.getPropertyValue(key)}`).join(";") });
    }
  const spans = made.map(({ element, place, text, rules }) => {
    const span = html("span", {}, text);
    span.style.cssText = rules;
    if (place === "::before") element.prepend(span);
    else element.append(span);
    return span;
  });
  section.classList.add("tm-spelled");
  return () => {
    section.classList.remove("tm-spelled");
    for (const one of spans) one.remove();
  };
}

/** Open what is folded and unroll what scrolls, look, and put everything back. */
function unfolded(section, look) {
  const closed = [...section.querySelectorAll("details:not([open])")];
  for (const one of closed) one.toggleAttribute("open", true);
  const rolled = [section, ...section.querySelectorAll("*")].filter(
    (one) => /auto|scroll/.test(getComputedStyle(one).overflow) && (one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1),
  );
  const old = rolled.map(({ style }) => {
    const { cssText } = style;
    style.cssText += ";max-height:none!important;height:auto!important;overflow:visible!important";
    return () => (style.cssText = cssText);
  });
  try {
    return look();
  } finally {
    for (const restore of old) restore();
    for (const one of closed) one.toggleAttribute("open", false);
  }
}

/**
 * The output as it came, before a script touched it: what runs again on a page of its own. Code that another output of
 * this page carries comes along.
 */
function sourceOf(section) {
  const kept = html("template");
  kept.innerHTML = section.tensormagicSource;
  const [copy] = kept.content.children,
    { tensormagicScripts: shared } = globalThis;
  for (const element of copy.querySelectorAll("script[data-tm-code]:empty")) {
    element.textContent = shared[element.getAttribute("data-tm-code") ?? ""]?.text ?? "";
  }
  return copy.outerHTML;
}

async function raster(svg, width, height) {
  const scale = Math.min(2, 16000 / Math.max(width, height)),
    canvas = html("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) }),
    image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done));
}

function download(filename, content, type) {
  const link = html("a", { href: URL.createObjectURL(new Blob([content], { type })), download: filename });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Put the line below a panel, once. says: its words. */
export function offerExport(section, unpacked, says) {
  const held = section.querySelector(":scope > script.tm-report"),
    packed = held?.textContent;
  if (held && !section.querySelector(":scope > .tm-export")) offer(section, says, held.dataset.name ?? "", packed ? () => unpacked(packed) : null);
}

/** Put the line below a panel. name: what its files are called; json: the report; null where it is too large to be carried along. */
function offer(section, says, name, json) {
  const said = html("output"),
    whole = html("input", { type: "checkbox" });
  const drawn = (part = section) => {
    const restore = spelledOut(section);
    try {
      return whole.checked && part === section ? unfolded(section, () => drawingOf(section)) : drawingOf(part);
    } finally {
      restore();
    }
  };
  const button = (label, act) => {
    const click = async () => {
      said.value = "";
      try {
        said.value = await act();
      } catch (error) {
        said.value = says.failed + error;
      }
    };
    return html("button", { type: "button", click }, label);
  };
  const copy = async (text) => {
    if (!(await toClipboard(text))) throw Error(says.cannot_copy);
    return says.copied;
  };
  const save = (ending, content, type) => {
    download(name + ending, content, type);
    return says.saved + name + ending;
  };
  const png = async () => {
    const { svg, width, height } = drawn();
    return save(".png", await raster(svg, width, height), "image/png");
  };
  const film = async () => {
    const [slider, stage] = ["[aria-label=order]", ".stage"].map((one) => section.querySelector(one));
    if (!slider?.checkVisibility()) throw Error(says.no_graph);
    const at = slider.value,
      frames = [],
      to = (place) => {
        slider.value = place;
        slider.dispatchEvent(new Event("input"));
        return new Promise((done) => setTimeout(done, SETTLES));
      };
    for (let place = 0, step = Math.ceil(slider.max / MOST_FRAMES); ; place = Math.min(place + step, slider.max)) {
      await to(place);
      const { svg, width, height } = drawn(stage);
      frames.push(new Uint8Array(await (await raster(svg, width, height)).arrayBuffer()));
      said.value = `${place} ${says.of} ${slider.max}`;
      if (place >= slider.max) break;
    }
    await to(at);
    return save("-moving.png", moving(frames, frames.map((_, each) => (each < frames.length - 1 ? FRAME : LAST))), "image/png");
  };
  const tools = html(
    "div",
    {},
    html("label", { title: says.all_tip }, whole, says.all),
    button(says.copy_svg, () => copy(drawn().svg)),
    button("SVG", () => save(".svg", drawn().svg, "image/svg+xml")),
    button("PNG", png),
    section.matches(".tm-trace") ? button(says.film, film) : null,
    button("HTML", () => save(".html", `${PAGE.replace("<title>", `<title>${name}`)}${sourceOf(section)}</body></html>\n`, "text/html")),
    json ? button(says.copy_json, async () => copy(await json())) : says.no_json,
    json ? button("JSON", async () => save(".json", await json(), "application/json")) : null,
    said,
  );
  const line = html("details", { class: "tm-export" }, html("style", {}, says.look), html("summary", {}, says.title), tools);
  line.onkeydown = (event) => {
    event.stopPropagation();
    if (event.key !== "Escape" || !line.open) return;
    event.preventDefault();
    line.open = false;
    line.querySelector("summary").focus();
  };
  const above = [...section.children].filter((one) => !one.matches("script,style")).at(-1);
  line.classList.toggle("tm-beside", Boolean(above?.matches(".tm-folds"))); // no line of its own where there is room
  section.append(line);
}

// Pictures one after the other, as one file: PNG that moves (APNG), which browsers and slide programs play.

const SIGNATURE = 8; // bytes before the first chunk of a PNG

/** The checksum of PNG. */
export function checksum(bytes) {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

/** Numbers, each in four bytes. */
const words = (...values) => values.flatMap((value) => [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255]);

function chunk(kind, data) {
  const inner = new Uint8Array([...new TextEncoder().encode(kind), ...data]);
  return new Uint8Array([...words(inner.length - 4), ...inner, ...words(checksum(inner))]);
}

/** The chunks of a PNG: what they are, and what is in them. */
export function chunksOf(picture) {
  const found = [],
    view = new DataView(picture.buffer, picture.byteOffset);
  for (let at = SIGNATURE; at < picture.length; ) {
    const length = view.getUint32(at),
      data = picture.subarray(at + 4, at + 8 + length);
    found.push([String.fromCharCode(...data.subarray(0, 4)), data.subarray(4)]);
    at += 12 + length;
  }
  return found;
}

/** Pictures of one size as one that shows each in its turn, again and again. pictures: PNG files; milliseconds: for each of them. */
export function moving(pictures, milliseconds) {
  const [[, head]] = chunksOf(pictures[0]),
    made = [pictures[0].subarray(0, SIGNATURE), chunk("IHDR", head), chunk("acTL", words(pictures.length, 0))];
  let number = 0;
  pictures.forEach((picture, at) => {
    made.push(chunk("fcTL", [...words(number++), ...head.subarray(0, 8), ...words(0, 0), milliseconds[at] >> 8, milliseconds[at] & 255, 3, 232, 0, 0]));
    for (const [kind, data] of chunksOf(picture))
      if (kind === "IDAT") made.push(at ? chunk("fdAT", [...words(number++), ...data]) : chunk("IDAT", data));
  });
  return new Blob([...made, chunk("IEND", [])], { type: "image/png" });
}
