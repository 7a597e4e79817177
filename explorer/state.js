"use strict";
/* What the page shows, as values that are never changed, only replaced: so undo is a
   list of them, and the address holds the present one.

   The first room, trained nets: #i=12&c=3,10-20&k=30&n=10&s=4.1&f=1
     image     {kind: "test", index} | {kind: "drawn", strokes}, each with pixels:
               784 bytes, 0 is paper, 255 ink; strokes where the drawing was made
               here, and not read from an address
     closed    the closed blocks, a Set of 1..L
     keep      only the first so many blocks are kept, 0..L
     stages    how many there are, 1..L; the blocks of one work side by side
     shuffle   {distance, seed}: blocks change places, none further than distance
     frozen    gates are held at their means
   What is left out is as the net was trained; an address that says nothing is CONTRAST.

   The second room, nets in training: #train&d=30&u=32&n=uniform&f=tanh&r=0.005&s=1
                                      &x=highway.auto&y=plain&q=7
     depth, units, init, activation, rate, seed; first and second, the two nets, each
     {kind, gateBias}; the test digit. What is left out is as in UNTOUCHED. */

const SEEDS = 10000;

const TEST_IMAGES = bytesOf(PACKED_IMAGES);

const testImage = index =>
  ({kind: "test", index, pixels: TEST_IMAGES.subarray(784 * index, 784 * index + 784)});

const drawnImage = (pixels, strokes = []) => ({kind: "drawn", strokes, pixels});

const blankImage = () => drawnImage(new Uint8Array(784));

const isBlank = image => !image.pixels.some(Boolean);

const untouched = image => ({
  image, closed: new Set(), keep: DEPTH, stages: DEPTH, shuffle: {distance: 0, seed: 1},
  frozen: false,
});

const firstClosed = state => Math.min(...state.closed, DEPTH + 1) % (DEPTH + 1) || 1;

const isUntouched = state => treatmentOf(state) === AS_TRAINED;

/* Pixels as text: base64 fit for addresses. */
const packPixels = pixels => btoa(String.fromCharCode(...pixels))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");

function unpackPixels(text) {
  const pixels = bytesOf(text.replace(/-/g, "+").replace(/_/g, "/"));
  if (pixels.length !== 784) throw new RangeError(`${pixels.length} pixels`);
  return pixels;
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
  if (kind === "drawn") return drawnImage(unpackPixels(rest || ""));
  return testImage(numberIn(text, 0, TEST_LABELS.length - 1));
}

function blocksIn(text) {
  const closed = new Set();
  for (const part of text.split(",")) {
    const [first, last = first, ...more] = part.split("-")
      .map(end => numberIn(end, 1, DEPTH));
    if (more.length || last < first) throw new RangeError(`${part}: not a range`);
    for (let block = first; block <= last; block++) closed.add(block);
  }
  return closed;
}

/* A choice of the address. */
function oneOf(text, choices) {
  const found = choices.find(choice => String(choice) === text);
  if (found === undefined) throw new RangeError(`${text}: not of ${choices}`);
  return found;
}

/* The first room: what stands in its address -> a part of its state. */
const READERS = new Map([
  ["i", text => ({image: imageIn(text)})],
  ["c", text => ({closed: blocksIn(text)})],
  ["k", text => ({keep: numberIn(text, 0, DEPTH)})],
  ["n", text => ({stages: numberIn(text, 1, DEPTH)})],
  ["s", text => {
    const [distance, seed = "1"] = text.split(".");
    return {shuffle: {distance: numberIn(distance, 0, DEPTH - 1),
                      seed: numberIn(seed, 1, SEEDS)}};
  }],
  ["f", text => ({frozen: numberIn(text, 0, 1) === 1})],
]);

/* The second: letters, the settings they stand for, and how those are read. */
const BIASES = [-8, 4, 0.25];         // of b_T: lowest, highest, step
const RATES = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05];
const UNTOUCHED = {
  depth: 30, units: 32, init: "uniform", activation: "tanh", rate: 0.005, seed: 1,
  first: {kind: "highway", gateBias: "auto"},
  second: {kind: "plain", gateBias: "auto"}, digit: 0,
};
const SETTINGS = [
  ["d", "depth", text => numberIn(text, 1, 100)],
  ["u", "units", text => numberIn(text, 8, 64, 4)],
  ["n", "init", text => oneOf(text, ["uniform", "glorot", "he", "orthogonal"])],
  ["f", "activation", text => oneOf(text, ["tanh", "relu"])],
  ["r", "rate", text => oneOf(text, RATES)],
  ["s", "seed", text => numberIn(text, 1, SEEDS)],
  ["x", "first", netIn],
  ["y", "second", netIn],
  ["q", "digit", text => numberIn(text, 0, DIGITS.test.labels.length - 1)],
];
const TRAINING_READERS = new Map(SETTINGS.map(([letter, name, read]) =>
  [letter, text => ({[name]: read(text)})]));

function netIn(text) {
  const [kind, bias = "auto"] = text.split(/\.(.*)/s);
  return {kind: oneOf(kind, Object.keys(FAMILY)),
          gateBias: bias === "auto" ? bias : numberIn(bias, ...BIASES)};
}

/* An address -> {room, state, complaint}: what makes no sense is left out and named. */
function parseAddress(hash, image = testImage(START)) {
  const parts = hash.replace(/^#/, "").split("&").filter(Boolean);
  const room = parts[0] === "train" ? parts.shift() : "nets";
  const readers = room === "train" ? TRAINING_READERS : READERS;
  let state = room === "train" ? UNTOUCHED : untouched(image), complaint = "";
  for (const part of parts) {
    const [letter, text] = part.split(/=(.*)/s);
    try {
      state = {...state, ...readers.get(letter)(text)};
    } catch {
      complaint = `The address says “${part.slice(0, 30)}”, which means nothing `
        + "here; the rest of it is shown.";
    }
  }
  return {room, state, complaint};
}

/* Blocks 1..L that a test picks -> "3,10-20". */
function ranges(blocks) {
  const parts = [];
  for (const block of [...blocks].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && last[1] === block - 1) last[1] = block;
    else parts.push([block, block]);
  }
  return parts.map(([a, b]) => a === b ? `${a}` : `${a}-${b}`).join(",");
}

function imageAddress(image) {
  if (image.kind === "test") return String(image.index);
  return isBlank(image) ? "blank" : `drawn.${packPixels(image.pixels)}`;
}

function addressOf({image, closed, keep, stages, shuffle, frozen}) {
  const parts = [`i=${imageAddress(image)}`];
  if (closed.size) parts.push(`c=${ranges(closed)}`);
  if (keep < DEPTH) parts.push(`k=${keep}`);
  if (stages < DEPTH) parts.push(`n=${stages}`);
  if (shuffle.distance) parts.push(`s=${shuffle.distance}.${shuffle.seed}`);
  if (frozen) parts.push("f=1");
  return "#" + parts.join("&");
}

const hasGate = kind => Object.values(FAMILY[kind]).includes("learned");

function trainingAddress(state) {
  const tell = value => typeof value !== "object" ? String(value)
    : hasGate(value.kind) ? `${value.kind}.${value.gateBias}` : value.kind;
  const told = SETTINGS.map(([letter, name]) =>
    [`${letter}=${tell(state[name])}`, `${letter}=${tell(UNTOUCHED[name])}`]);
  return ["#train", ...told.filter(([now, usual]) => now !== usual)
    .map(([now]) => now)].join("&");
}

const AS_TRAINED = "as trained";

const onlyFirst = keep =>
  `only the first ${keep === 1 ? "block" : `${keep} blocks`}`;

/* In words, for the picture that is saved and for those who do not see the page. */
function treatmentOf({closed, keep, stages, shuffle, frozen}) {
  const parts = [];
  const blocks = closed.size === 1 ? "block" : "blocks";
  if (closed.size) {
    const which = ranges(closed).replace(/,/g, ", ").replace(/-/g, " to ");
    parts.push(`${blocks} ${which} closed`);
  }
  if (keep < DEPTH) parts.push(`${onlyFirst(keep)} kept`);
  if (stages < DEPTH) {
    parts.push(`blocks side by side in ${stages} stage${stages === 1 ? "" : "s"}`);
  }
  if (shuffle.distance) parts.push(`blocks shuffled by up to ${shuffle.distance}`);
  if (frozen) parts.push("gates frozen at their means");
  return parts.join("; ") || AS_TRAINED;
}

/* How many of the test images are read correctly; a digit for each. */
const countRight = readings =>
  readings.filter((digit, i) => digit === TEST_LABELS[i]).length;

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
