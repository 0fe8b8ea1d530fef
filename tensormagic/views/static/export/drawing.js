/**
 * What is on the screen, as one SVG file: boxes, text, pictures and drawings, where they are and as they look.
 *
 * Styles become attributes, so that a browser and an image viewer show the same; nothing is referred to.
 */

const LEFT_OUT = "script,style,input,select,textarea,.tm-export";
const SIDES = ["Top", "Right", "Bottom", "Left"];
const INHERITED = "fill fill-opacity stroke stroke-width stroke-dasharray stroke-linecap stroke-linejoin stroke-opacity font-family font-size font-weight font-style text-anchor dominant-baseline paint-order letter-spacing".split(" ");
/** What need not be said. */
const INITIAL = {
  fill: "rgb(0, 0, 0)", stroke: "none", "stroke-width": "1px", "stroke-dasharray": "none", "stroke-linecap": "butt",
  "stroke-linejoin": "miter", "font-style": "normal", "text-anchor": "start", "dominant-baseline": "auto",
  "paint-order": "normal", "letter-spacing": "normal", "fill-opacity": "1", "stroke-opacity": "1",
}; // prettier-ignore
const OWN_SHARE = /^(class|style|tabindex|role|transform|opacity|on.*|aria-.*|data-.*)$/;

/** The panel as SVG. */
export function drawingOf(section) {
  const { left, top } = section.getBoundingClientRect(),
    width = section.offsetWidth + section.scrollWidth - section.clientWidth,
    height = section.offsetHeight,
    drawing = new Drawing(left, top);
  drawing.walk(section);
  const size = { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    title = `<title>${escaped(section.ariaLabel ?? "tensormagic")}</title>`,
    ground = `<rect${attributes({ width, height, ...paint("fill", groundOf(section)) })}/>`,
    svg = `<svg${attributes(size)}>${title}${ground}${drawing.out.join("")}</svg>\n`;
  return { svg, width, height };
}

/** The colour behind an element. */
function groundOf(element) {
  const colour = element ? getComputedStyle(element).backgroundColor : "rgb(255, 255, 255)";
  return !element || paint("fill", colour) ? colour : groundOf(element.parentElement);
}

class Drawing {
  out = [];
  ascents = new Map();
  gradients = 0;
  pen = document.createElement("canvas").getContext("2d");

  /** x, y: where the picture begins, in the window */
  constructor(x, y) {
    this.x = x;
    this.y = y;
  }

  /** Where a box is drawn: on whole points, as on the screen. */
  placed(rect) {
    const [left, top] = [Math.round(rect.left - this.x), Math.round(rect.top - this.y)];
    return { left, top, width: Math.round(rect.right - this.x) - left, height: Math.round(rect.bottom - this.y) - top };
  }

  add(name, pairs, inner) {
    this.out.push(`<${name}${attributes(pairs)}${inner === undefined ? "/>" : `>${inner}</${name}>`}`);
  }

  walk(element) {
    if (element.matches(LEFT_OUT) || element.checkVisibility?.() === false) return;
    const style = getComputedStyle(element),
      box = this.placed(element.getBoundingClientRect()),
      { left: x, top: y, width, height } = box,
      clips = style.overflowX !== "visible" && (element.scrollWidth > width + 1 || element.scrollHeight > height + 1);
    if (style.display === "none" || (clips && width < 2)) return;
    if (style.visibility === "visible") this.box(element, style);
    if (element.localName === "svg") return this.vector(element, style, box);
    if (/img|canvas/.test(element.localName)) return this.image(element, style, box);
    const view = { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` };
    if (clips) this.out.push(`<svg${attributes(view)}>`);
    if (style.opacity !== "1") this.out.push(`<g${attributes({ opacity: style.opacity })}>`);
    for (const child of element.childNodes) {
      if (child.nodeType === 1) this.walk(child);
      else if (child.nodeType === 3 && style.visibility === "visible") this.text(child, style);
    }
    this.out.push((style.opacity !== "1" ? "</g>" : "") + (clips ? "</svg>" : ""));
  }

  /** Ground, inner rims and borders. */
  box(element, style) {
    for (const rect of element.getClientRects()) {
      const box = this.placed(rect),
        inside = within(box, element),
        filled = style.backgroundClip === "padding-box" ? inside : box,
        { left: x, top: y, width, height } = filled,
        [, d] = /^path\(evenodd, "(.*)"\)$/.exec(style.clipPath) ?? [], // of an icon
        rx = Number.parseFloat(style.borderTopLeftRadius) || 0,
        ground = paint("fill", style.backgroundColor),
        id = `tm-ground-${this.gradients}`,
        inner = part(filled, style.backgroundSize, style.backgroundPosition),
        drawn = gradient(style.backgroundImage, inner, id);
      const icon = { d, transform: `translate(${x} ${y})`, "fill-rule": "evenodd" };
      if (ground) this.add(d ? "path" : "rect", { ...(d ? icon : { x, y, width, height, rx }), ...ground });
      if (drawn) {
        this.gradients += 1;
        this.out.push(drawn);
        const { left, top, ...size } = inner;
        this.add("rect", { x: left, y: top, ...size, rx, fill: `url(#${id})` });
      }
      const rims = [...style.boxShadow.matchAll(/(\w+\([^)]*\)) (\S+)px (\S+)px 0px (\S+)px inset/g)].reverse();
      for (const [, colour, ...sizes] of rims) this.shade(inside, paint("fill", colour), sizes.map(Number));
      this.borders(box, style, rx);
    }
  }

  /** An inner shadow without blur: the box, less a smaller one that may be moved. */
  shade({ left, top, width, height }, fill, [across, down, wide]) {
    const inner = [Math.max(wide + across, 0), Math.max(wide + down, 0), Math.min(width - wide + across, width), Math.min(height - wide + down, height)],
      [x, y, right, bottom] = inner.map((at, side) => at + (side % 2 ? top : left)),
      d = `M${left} ${top}h${width}v${height}h${-width}z` + (right > x && bottom > y ? `M${x} ${y}V${bottom}H${right}V${y}z` : "");
    if (fill) this.add("path", { d, ...fill, "fill-rule": "evenodd" });
  }

  rim({ left, top, width, height }, wide, stroke, rx, dashes) {
    const size = { x: left + wide / 2, y: top + wide / 2, width: width - wide, height: height - wide };
    if (!stroke || !wide || size.width <= 0 || size.height <= 0) return;
    this.add("rect", { ...size, rx, fill: "none", ...stroke, "stroke-width": wide, "stroke-dasharray": dashes ?? "none" });
  }

  borders(box, style, rx) {
    const { left, top, width, height } = box,
      sides = SIDES.map((side) => ({
        wide: Number.parseFloat(style[`border${side}Width`]),
        line: style[`border${side}Style`],
        colour: style[`border${side}Color`],
      })),
      [first] = sides,
      shared = style.borderCollapse === "collapse" && style.display === "table-cell";
    const dashed = ({ line, wide }) => ({ dashed: `${wide * 3}`, dotted: `${wide}` })[line];
    if (sides.every((side) => JSON.stringify(side) === JSON.stringify(first)))
      return this.rim(box, first.wide, paint("stroke", first.colour), rx, dashed(first));
    sides.forEach((side, at) => {
      const stroke = paint("stroke", side.colour),
        half = shared ? 0 : side.wide / 2,
        level = at % 2 === 0,
        edge = [top + half, left + width - half, top + height - half, left + half][at],
        d = level ? `M${left} ${edge}h${width}` : `M${edge} ${top}v${height}`;
      if (side.wide && side.line !== "none" && stroke)
        this.add("path", { d, fill: "none", ...stroke, "stroke-width": side.wide, "stroke-dasharray": dashed(side) ?? "none" });
    });
  }

  text(node, style) {
    const font = {
      "font-family": style.fontFamily,
      "font-size": style.fontSize,
      "font-weight": style.fontWeight,
      "font-style": style.fontStyle,
      ...paint("fill", style.color),
    };
    for (const { left: x, top, right, height, text } of linesOf(node)) {
      const place = { x: x - this.x, y: Math.round(top - this.y + this.rise(style, height)), textLength: right - x };
      this.add("text", { ...place, ...font }, escaped(text));
    }
  }

  /** How far below the upper edge of a line its letters stand. */
  rise(style, height) {
    const font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`, key = `${height} ${font}`;
    if (!this.ascents.has(key) && this.pen) {
      this.pen.font = font;
      const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = this.pen.measureText("x");
      this.ascents.set(key, (height - up - down) / 2 + up);
    }
    return this.ascents.get(key) ?? height;
  }

  image(element, style, { left: x, top: y, width, height }) {
    const href = element.toDataURL?.() ?? element.src,
      more = style.filter === "none" ? {} : { style: `filter:${style.filter}` };
    if (!href.startsWith("data:")) return;
    const look = { "image-rendering": style.imageRendering, preserveAspectRatio: "none" };
    this.add("image", { x, y, width, height, ...look, "xlink:href": href, "xmlns:xlink": "http://www.w3.org/1999/xlink", ...more });
  }

  /** A drawing inside the panel. */
  vector(element, style, { left: x, top: y, width, height }) {
    const viewBox = element.getAttribute("viewBox") ?? `0 0 ${width} ${height}`,
      fit = element.getAttribute("preserveAspectRatio") ?? "xMidYMid",
      { overflowX: overflow, opacity, color } = style;
    this.out.push(`<svg${attributes({ x, y, width, height, viewBox, preserveAspectRatio: fit, overflow, opacity, color })}>`);
    for (const child of element.children) this.shape(child, INITIAL);
    this.out.push("</svg>");
  }

  /** above: the style of what it is in */
  shape(element, above) {
    const style = getComputedStyle(element),
      name = element.localName,
      own = [...element.attributes].filter((one) => !OWN_SHARE.test(one.name) && !INHERITED.includes(one.name));
    if (style.display === "none" || style.visibility === "hidden") return;
    const pairs = Object.fromEntries(own.map(({ name, value }) => [name, value]));
    for (const key of INHERITED) {
      const value = style.getPropertyValue(key);
      if (value === above[key]) continue;
      Object.assign(pairs, /^(fill|stroke)$/.test(key) ? (value.startsWith("url") ? { [key]: value } : (paint(key, value) ?? { [key]: "none" })) : { [key]: value });
    }
    if (style.transform !== "none") pairs.transform = style.transform;
    if (style.opacity !== "1") pairs.opacity = style.opacity;
    if (style.vectorEffect === "non-scaling-stroke") {
      const { a, b, c, d } = element.getCTM(); // by how much it is drawn larger than it is written
      pairs["stroke-width"] = round(Number.parseFloat(style.strokeWidth) / (Math.sqrt(Math.abs(a * d - b * c)) || 1));
    }
    this.out.push(`<${name}${attributes(pairs)}>`);
    const inherited = Object.fromEntries(INHERITED.map((key) => [key, style.getPropertyValue(key)]));
    for (const child of element.childNodes) {
      if (child.nodeType === 1) this.shape(child, inherited);
      else this.out.push(escaped(child.textContent ?? ""));
    }
    this.out.push(`</${name}>`);
  }
}

/** A box without its borders. */
function within(box, { clientLeft, clientTop, clientWidth: width, clientHeight: height }) {
  return width ? { left: box.left + clientLeft, top: box.top + clientTop, width, height } : box;
}

/** The lines in which a text stands. */
function linesOf(node) {
  const range = document.createRange();
  const lines = [];
  let at = 0;
  for (const letter of node.data.trim() ? node.data : "") {
    range.setStart(node, at);
    range.setEnd(node, (at += letter.length));
    const [rect] = range.getClientRects(),
      last = lines.at(-1);
    if (!rect || (!rect.width && !letter.trim())) continue;
    if (last && Math.abs(last.top - rect.top) < rect.height / 2) {
      last.text += letter.trim() || "\u00a0";
      if (!letter.trim()) continue;
      last.right = Math.max(last.right, rect.right);
      last.left = Math.min(last.left, rect.left);
    } else if (letter.trim()) lines.push({ left: rect.left, right: rect.right, top: rect.top, height: rect.height, text: letter });
  }
  for (const line of lines) line.text = line.text.trimEnd().replace(/(?<!\u00a0)\u00a0(?!\u00a0)/g, " ");
  return lines;
}

// What a style sheet says, said in attributes that every reader of SVG understands: no variable, no CSS function.

/** @typedef {{left:number, top:number, width:number, height:number}} Box */

export const round = (value) => Math.round(value * 100) / 100;

/** Text that can stand in XML; what XML cannot say at all is left out. */
export const escaped = (text) =>
  text
    .replace(/[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "")
    .replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

export const attributes = (pairs) =>
  Object.entries(pairs)
    .map(([name, value]) => ` ${name}="${escaped(String(typeof value === "number" ? round(value) : value))}"`)
    .join("");

/** A list that a style holds, cut at the commas outside brackets. */
export const items = (list) => list.split(/,\s*(?![^(]*\))/);

/** A colour as a paint and its opacity; null for what is not seen. name: fill or stroke; colour: as computed. */
export function paint(name, colour) {
  const [, kind, parts] = /^(rgba?|color)\(([^)]*)/.exec(colour) ?? [],
    [r, g, b, given] = parts?.match(/[\d.]+(e-\d+)?/g) ?? [],
    share = Number(given ?? 1),
    scale = kind === "color" ? 255 : 1;
  if (!kind || !share) return null;
  const told = { [name]: `rgb(${[r, g, b].map((part) => Math.round(Number(part) * scale))})` };
  return share < 1 ? { ...told, [`${name}-opacity`]: given } : told;
}

const TURNS = { top: 0, right: 90, left: 270 };

/** A linear gradient of a box as one of SVG, or null for anything else. image: as computed. */
export function gradient(image, { left, top, width, height }, id) {
  const [, repeats, degrees, side, list] = /^(repeating-)?linear-gradient\((?:(-?[\d.]+)deg, |to (\w+), )?(.*)\)$/s.exec(image) ?? [];
  if (!list || list.includes("gradient(")) return null; // several, one over the other, only say that a table goes on
  const turn = ((degrees === undefined ? (TURNS[side] ?? 180) : Number(degrees)) * Math.PI) / 180,
    across = Math.sin(turn),
    down = -Math.cos(turn),
    whole = Math.abs(width * across) + Math.abs(height * down),
    stops = items(list).map((stop, at, all) => {
      const place = / (-?[\d.]+)(px|%)$/.exec(stop),
        share = place ? Number(place[1]) / (place[2] === "%" ? 100 : whole) : at / (all.length - 1 || 1);
      return { share, colour: paint("stop-color", stop) ?? { "stop-color": "#000", "stop-opacity": "0" } };
    }),
    length = repeats ? (stops.at(-1)?.share ?? 1) : 1,
    [x, y] = [left + (width - whole * across) / 2, top + (height - whole * down) / 2],
    ends = { x1: x, y1: y, x2: x + whole * across * length, y2: y + whole * down * length },
    more = { gradientUnits: "userSpaceOnUse", spreadMethod: repeats ? "repeat" : "pad" },
    inner = stops.map(({ share, colour }) => `<stop${attributes({ offset: String(share / length), ...colour })}/>`);
  return `<linearGradient${attributes({ id, ...ends, ...more })}>${inner.join("")}</linearGradient>`;
}

/** The part of a box that a background fills. size: as computed. */
export function part({ left, top, width, height }, size, position) {
  const [wide, high = "auto"] = size.split(" "),
    [across, down = "50%"] = position.split(" "),
    length = (told, whole) => (told.endsWith("%") ? (Number.parseFloat(told) / 100) * whole : Number.parseFloat(told)),
    [w, h] = [/^\d/.test(wide) ? length(wide, width) : width, /^\d/.test(high) ? length(high, height) : height];
  return { left: left + length(across, width - w), top: top + length(down, height - h), width: w, height: h };
}
