"use strict";
/* What the page shows, as one value that is never changed, only replaced: so undo is a
   list of them, and the address holds the present one.

     image     {kind: "test", index} | {kind: "noise", seed} | {kind: "drawn", strokes},
               each with pixels: 784 bytes, 0 is paper, 255 ink; strokes where the
               drawing was made here, and not read from a PNG or an address
     closed    the closed layers, a Set of 1..L
     keep      only the first so many layers are kept, 0..L
     shuffle   {distance, seed}: layers change places, none further than distance
     frozen    gates are held at their means
     shift     is added to all b_T

   In the address: #i=12&c=3,10-20&k=30&s=4.1&f=1&b=-0.5, and what is left out is as the
   net was trained. */

const SHIFT = 6, SEEDS = 10000;
const START = 28;         // the image of who comes without an address: a seven

const TEST_IMAGES = bytesOf(PACKED_IMAGES);

const testImage = index =>
  ({kind: "test", index, pixels: TEST_IMAGES.subarray(784 * index, 784 * index + 784)});

const drawnImage = (pixels, strokes = []) => ({kind: "drawn", strokes, pixels});

const blankImage = () => drawnImage(new Uint8Array(784));

const isBlank = image => !image.pixels.some(Boolean);

function noiseImage(seed) {
  const random = randomNumbers(seed);
  const pixels = Uint8Array.from({length: 784}, () => Math.floor(256 * random()));
  return {kind: "noise", seed, pixels};
}

const untouched = image => ({
  image, closed: new Set(), keep: DEPTH, shuffle: {distance: 0, seed: 1},
  frozen: false, shift: 0,
});

/* Pixels as text: runs of paper as 0 and their length; base64 fit for addresses. */
function packPixels(pixels) {
  const bytes = [];
  for (let i = 0; i < 784; i++) {
    if (pixels[i]) { bytes.push(pixels[i]); continue; }
    let run = 1;
    while (run < 255 && i + 1 < 784 && !pixels[i + 1]) { run++; i++; }
    bytes.push(0, run);
  }
  return btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}

function unpackPixels(text) {
  const bytes = bytesOf(text.replace(/-/g, "+").replace(/_/g, "/")), pixels = [];
  for (let i = 0; i < bytes.length && pixels.length <= 784; i++) {
    if (bytes[i]) pixels.push(bytes[i]);
    else pixels.push(...new Array(bytes[++i] || 785).fill(0));
  }
  if (pixels.length !== 784) throw new RangeError(`${pixels.length} pixels`);
  return Uint8Array.from(pixels);
}

/* A number of the address: as it is written there, if it is one and in bounds. */
function numberIn(text, low, high, step = 1) {
  const value = Number(text);
  if (!/^[+-]?\d+(\.\d+)?$/.test(text) || value < low || value > high
      || value / step % 1) {
    throw new RangeError(`${text}: not from ${low} to ${high} in steps of ${step}`);
  }
  return value;
}

function imageIn(text) {
  const [kind, rest] = text.split(/\.(.*)/s);
  if (kind === "blank" && rest === undefined) return blankImage();
  if (kind === "noise") return noiseImage(numberIn(rest, 1, SEEDS));
  if (kind === "drawn") return drawnImage(unpackPixels(rest || ""));
  return testImage(numberIn(text, 0, TEST_LABELS.length - 1));
}

function layersIn(text) {
  const closed = new Set();
  for (const part of text.split(",")) {
    const [first, last = first, ...more] = part.split("-")
      .map(end => numberIn(end, 1, DEPTH));
    if (more.length || last < first) throw new RangeError(`${part}: not a range`);
    for (let layer = first; layer <= last; layer++) closed.add(layer);
  }
  return closed;
}

const READERS = {
  __proto__: null,      // or "constructor" were one
  i: text => ({image: imageIn(text)}),
  c: text => ({closed: layersIn(text)}),
  k: text => ({keep: numberIn(text, 0, DEPTH)}),
  s: text => {
    const [distance, seed = "1"] = text.split(".");
    return {shuffle: {distance: numberIn(distance, 0, DEPTH - 1),
                      seed: numberIn(seed, 1, SEEDS)}};
  },
  f: text => ({frozen: numberIn(text, 0, 1) === 1}),
  b: text => ({shift: numberIn(text, -SHIFT, SHIFT, 0.25)}),
};

/* An address -> {state, complaint}: what makes no sense is left out and named. */
function parseAddress(hash, image = testImage(START)) {
  let state = untouched(image), complaint = "";
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const [name, text] = part.split(/=(.*)/s);
    try {
      state = {...state, ...READERS[name](text)};
    } catch {
      complaint = `The address says “${part.slice(0, 30)}”, which means nothing `
        + "here; the rest of it is shown.";
    }
  }
  return {state, complaint};
}

/* Layers 1..L that a test picks -> "3,10-20". */
function ranges(layers) {
  const parts = [];
  for (const layer of [...layers].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && last[1] === layer - 1) last[1] = layer;
    else parts.push([layer, layer]);
  }
  return parts.map(([a, b]) => a === b ? `${a}` : `${a}-${b}`).join(",");
}

function imageAddress(image) {
  if (image.kind === "test") return String(image.index);
  if (image.kind === "noise") return `noise.${image.seed}`;
  return isBlank(image) ? "blank" : `drawn.${packPixels(image.pixels)}`;
}

function addressOf({image, closed, keep, shuffle, frozen, shift}) {
  const parts = [`i=${imageAddress(image)}`];
  if (closed.size) parts.push(`c=${ranges(closed)}`);
  if (keep < DEPTH) parts.push(`k=${keep}`);
  if (shuffle.distance) parts.push(`s=${shuffle.distance}.${shuffle.seed}`);
  if (frozen) parts.push("f=1");
  if (shift) parts.push(`b=${shift}`);
  return "#" + parts.join("&");
}

/* In words, for the picture that is saved and for those who do not see the page. */
function treatmentOf({closed, keep, shuffle, frozen, shift}) {
  const parts = [];
  const layers = closed.size === 1 ? "layer" : "layers";
  if (closed.size) parts.push(`${layers} ${ranges(closed).replace(/,/g, ", ")} closed`);
  if (keep < DEPTH) parts.push(`only the first ${keep} layers kept`);
  if (shuffle.distance) parts.push(`layers shuffled by up to ${shuffle.distance}`);
  if (frozen) parts.push("gates frozen at their means");
  if (shift && !frozen) parts.push(`${signed(shift)} on all b_T`);
  return parts.join("; ") || "as trained";
}

/* How many of the test images are read correctly; a digit for each. */
const countRight = readings =>
  readings.filter((digit, i) => digit === TEST_LABELS[i]).length;

const signed = value => (value < 0 ? "−" : "+") + Math.abs(value);

/* The states so far, and which of them is shown. */
class History {
  constructor(state) { this.states = [state]; this.at = 0; }
  get state() { return this.states[this.at]; }
  add(state) {
    this.states.splice(++this.at, Infinity, state);
    if (this.states.length > 200) { this.states.shift(); this.at--; }
  }
  move(step) {
    this.at = Math.max(0, Math.min(this.states.length - 1, this.at + step));
    return this.state;
  }
}
