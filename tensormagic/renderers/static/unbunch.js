// Undoes what Python's bz2 did, which packs code a tenth smaller than the gzip that a browser undoes by itself: of each
// block its Huffman codes, the runs of its most frequent letter, move to front, Burrows and Wheeler's order, runs of four.
const unbunched = (bytes) => {
  const out = [];
  let at = 32; // in bits; the first four bytes say that it is bzip2
  const bit = () => (bytes[at >> 3] >> (7 - (at++ & 7))) & 1;
  const bits = (count) => {
    let value = 0;
    for (; count; count -= 1) value = value * 2 + bit();
    return value;
  };
  const toFront = (list, place) => {
    const one = list[place];
    for (; place; place -= 1) list[place] = list[place - 1];
    list[0] = one;
    return one;
  };
  const places = (count) => Array.from({ length: count }, bit).flatMap((used, place) => (used ? [place] : []));
  const codeOf = (size) => {
    const limits = [0], bases = [0], symbols = [];
    let next = 0, long = bits(5);
    const lengths = Array.from({ length: size }, () => {
      while (bit()) long += bit() ? -1 : 1;
      return long;
    });
    for (let length = 1; length <= 20; length += 1) {
      next *= 2;
      bases.push(next - symbols.length);
      lengths.forEach((one, symbol) => one === length && symbols.push(symbol) && (next += 1));
      limits.push(next);
    }
    return { limits, bases, symbols };
  };
  const symbolIn = ({ limits, bases, symbols }) => {
    let value = bit(), length = 1;
    while (value >= limits[length]) {
      value = value * 2 + bit();
      length += 1;
    }
    return symbols[value - bases[length]];
  };
  const blockOf = () => {
    const rows = places(16), letters = Uint8Array.from(rows.flatMap((row) => places(16).map((place) => row * 16 + place)));
    const groups = bits(3), order = [...Array(groups).keys()], block = [];
    const choices = Array.from({ length: bits(15) }, () => {
      let place = 0;
      while (bit()) place += 1;
      return toFront(order, place);
    });
    const codes = Array.from({ length: groups }, () => codeOf(letters.length + 2));
    for (let count = 0, run = 0, weight = 1, end = letters.length + 1; ; count += 1) {
      const symbol = symbolIn(codes[choices[Math.floor(count / 50)]]);
      if (symbol < 2) {
        run += weight * (symbol + 1);
        weight *= 2;
        continue;
      }
      for (; run; run -= 1) block.push(letters[0]);
      weight = 1;
      if (symbol === end) return block;
      block.push(toFront(letters, symbol - 1));
    }
  };
  const unsorted = (block, origin) => {
    const starts = new Uint32Array(257), follows = new Uint32Array(block.length);
    for (const one of block) starts[one + 1] += 1;
    for (let one = 0; one < 256; one += 1) starts[one + 1] += starts[one];
    block.forEach((one, place) => { follows[starts[one]++] = place; });
    let place = follows[origin], same = 0, last = -1;
    for (let left = block.length; left; left -= 1) {
      let one = block[place];
      place = follows[place];
      if (same === 4) {
        for (; one; one -= 1) out.push(last);
        same = 0;
        last = -1;
      } else {
        same = one === last ? same + 1 : 1;
        last = one;
        out.push(one);
      }
    }
  };
  while (bits(24) === 0x314159) {
    bits(57); // the rest of the mark, a checksum, and a flag that nobody sets any more
    const origin = bits(24);
    unsorted(blockOf(), origin);
  }
  return new TextDecoder().decode(new Uint8Array(out));
};
