// @ts-check
/** Takes apart what a kernel sends of a run that goes on: one buffer, written by columns.py. */

/** @typedef {import("./constants.js").DeltaHeader} DeltaHeader */

const NUMBERS = ["structure", "graph", "pass", "step", "running", "cursor", "reached", "finished", "seconds", "resting", "next", "nodes", "parameters"];

/** @param {DataView} view of the message's buffer @returns {[DeltaHeader, Float32Array]} */
export function unpackDelta({ buffer, byteOffset, byteLength }) {
  const bytes = buffer.slice(byteOffset, byteOffset + byteLength), // numbers have to be aligned
    numbers = new Float64Array(bytes, 0, NUMBERS.length),
    header = /** @type {any} */ (Object.fromEntries(NUMBERS.map((name, at) => [name, numbers[at]])));
  for (const name of ["running", "resting"]) header[name] = Boolean(header[name]);
  return [header, new Float32Array(bytes, numbers.byteLength)];
}
