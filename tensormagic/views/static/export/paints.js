// @ts-check
/** What a style sheet says, said in attributes that every reader of SVG understands: no variable, no CSS function. */

/** @typedef {{left:number, top:number, width:number, height:number}} Box */

/** @param {number} value */
export const round = (value) => Math.round(value * 100) / 100;

/** Text that can stand in XML; what XML cannot say at all is left out. @param {string} text */
export const escaped = (text) =>
  text
    .replace(/[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "")
    .replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param {Record<string, unknown>} pairs */
export const attributes = (pairs) =>
  Object.entries(pairs)
    .map(([name, value]) => ` ${name}="${escaped(String(typeof value === "number" ? round(value) : value))}"`)
    .join("");

/** A list that a style holds, cut at the commas outside brackets. @param {string} list */
export const items = (list) => list.split(/,\s*(?![^(]*\))/);

/** A colour as a paint and its opacity; null for what is not seen.
 * @param {string} name fill or stroke @param {string} colour as computed @returns {Record<string, string>|null} */
export function paint(name, colour) {
  const [, kind, parts] = /^(rgba?|color)\(([^)]*)/.exec(colour) ?? [],
    [r, g, b, given] = parts?.match(/[\d.]+(e-\d+)?/g) ?? [],
    share = Number(given ?? 1),
    scale = kind === "color" ? 255 : 1;
  if (!kind || !share) return null;
  const told = { [name]: `rgb(${[r, g, b].map((part) => Math.round(Number(part) * scale))})` };
  return share < 1 ? { ...told, [`${name}-opacity`]: given } : told;
}

/** @type {Record<string, number>} */
const TURNS = { top: 0, right: 90, left: 270 };

/** A linear gradient of a box as one of SVG, or null for anything else.
 * @param {string} image as computed @param {Box} box @param {string} id */
export function gradient(image, { left, top, width, height }, id) {
  const [, repeats, degrees, side, list] = /^(repeating-)?linear-gradient\((?:(-?[\d.]+)deg, |to (\w+), )?(.*)\)$/s.exec(image) ?? [];
  if (!list) return null;
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

/** The part of a box that a background fills. @param {Box} box @param {string} size as computed @param {string} position @returns {Box} */
export function part({ left, top, width, height }, size, position) {
  const [wide, high = "auto"] = size.split(" "),
    [across, down = "50%"] = position.split(" "),
    length = (/** @type {string} */ told, /** @type {number} */ whole) =>
      told.endsWith("%") ? (Number.parseFloat(told) / 100) * whole : Number.parseFloat(told),
    [w, h] = [/^\d/.test(wide) ? length(wide, width) : width, /^\d/.test(high) ? length(high, height) : height];
  return { left: left + length(across, width - w), top: top + length(down, height - h), width: w, height: h };
}
