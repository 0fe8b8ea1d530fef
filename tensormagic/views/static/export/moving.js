// @ts-check
/** Pictures one after the other, as one file: PNG that moves (APNG), which browsers and slide programs play. */

const SIGNATURE = 8; // bytes before the first chunk of a PNG

/** @param {Uint8Array} bytes the checksum of PNG */
export function checksum(bytes) {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

/** @param {number[]} values each in four bytes */
const words = (...values) => values.flatMap((value) => [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255]);

/** @param {string} kind @param {Iterable<number>} data */
function chunk(kind, data) {
  const inner = new Uint8Array([...new TextEncoder().encode(kind), ...data]);
  return new Uint8Array([...words(inner.length - 4), ...inner, ...words(checksum(inner))]);
}

/** @param {Uint8Array} picture @returns {[string, Uint8Array][]} its chunks: what they are, and what is in them */
export function chunksOf(picture) {
  const found = [],
    view = new DataView(picture.buffer, picture.byteOffset);
  for (let at = SIGNATURE; at < picture.length; ) {
    const length = view.getUint32(at),
      data = picture.subarray(at + 4, at + 8 + length);
    found.push(/** @type {[string, Uint8Array]} */ ([String.fromCharCode(...data.subarray(0, 4)), data.subarray(4)]));
    at += 12 + length;
  }
  return found;
}

/**
 * Pictures of one size as one that shows each in its turn, again and again.
 * @param {Uint8Array[]} pictures PNG files @param {number[]} milliseconds for each
 */
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
