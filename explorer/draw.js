"use strict";
/* Everything that is drawn, in boxes {x, y, width, height} of a canvas. Columns are
   blocks, 0..L, 0 the plain layer. */

const COLUMNS = DEPTH + 1;
const KINDS = ["highway", "residual", "plain"];

/* Colours of the page as they are now, light or dark. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(`--${name}`).trim();
  const theme = {};
  for (const name of ["page", "panel", "text", "muted", "rule", "closed", "paper",
                      ...KINDS]) theme[name] = colour(name);
  for (const kind of KINDS) theme[`${kind}Scale`] = scaleOf([theme.panel, theme[kind]]);
  theme.inkScale = scaleOf([theme.paper, theme.text]);
  theme.gateScale = scaleOf(GATE_COLOURS);
  theme.outputScale = scaleOf(OUTPUT_COLOURS);
  return theme;
}

const parts = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));

/* Some colours in even steps -> 256 of them, as 32-bit pixels. */
function scaleOf(stops) {
  const colours = stops.map(parts), last = colours.length - 1;
  return Uint32Array.from({length: 256}, (_, i) => {
    const at = Math.min(last - 1, Math.floor(i / 255 * last)), t = i / 255 * last - at;
    const [r, g, b] = colours[at].map((from, c) =>
      Math.round(from + t * (colours[at + 1][c] - from)));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  });
}

const within = (value, low = 0, high = 1) => Math.max(low, Math.min(high, value));
const shade = (scale, share) => scale[within(Math.round(255 * share), 0, 255)];

/* A small image: colour(column, row) for each pixel, stretched over the box. */
function raster(context, box, columns, rows, colour) {
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) pixels[i++] = colour(column, row);
  }
  const small = raster.canvas ||= element("canvas");
  Object.assign(small, {width: columns, height: rows});
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, box.x, box.y, box.width, box.height);
}

/* A square image; its darkest pixel has the value `most`. */
function drawDigit(context, box, pixels, theme, most = 255) {
  const side = Math.sqrt(pixels.length);
  raster(context, box, side, side, (x, y) =>
    shade(theme.inkScale, pixels[side * y + x] / most));
}

/* T of every block and unit, from 0 to `most`; gates[l - 1][u]. Closed blocks are left
   out, and so is the plain layer, which has no gate. */
function drawGates(context, box, gates, most, closed, theme) {
  const blank = scaleOf([theme.closed, theme.closed])[0];
  const page = scaleOf([theme.panel, theme.panel])[0];
  raster(context, box, COLUMNS, gates[0].length, (block, unit) =>
    block === 0 ? page : closed(block) ? blank
      : shade(theme.gateScale, gates[block - 1][unit] / most));
}

/* y of every block and unit, from -most to most. */
function drawOutputs(context, box, outputs, most, theme) {
  raster(context, box, COLUMNS, outputs[0].length, (block, unit) =>
    shade(theme.outputScale, 0.5 + outputs[block][unit] / most / 2));
}

/* The ten probabilities after each block, answers[l][digit]. Over closed blocks lies a
   line: there the answer only passes by. */
function drawForming(context, box, answers, closed, scale, theme) {
  raster(context, box, COLUMNS, CLASSES, (block, digit) =>
    shade(scale, answers[block][digit]));
  const width = box.width / COLUMNS;
  context.fillStyle = theme.muted;
  for (let block = 1; block < COLUMNS; block++) {
    if (closed(block)) {
      context.fillRect(box.x + block * width, box.y, Math.ceil(width), box.height / 30);
    }
  }
}

/* Bars on a scale from `low` to `high`, logarithmic or even; at their left a gutter
   with the labels of lines [{at, label}], under them the numbers of blocks. */
function drawBars(context, whole, values, colour, theme, {low, high, lines, isEven}) {
  const L = values.length, step = L > 50 ? 20 : L > 12 ? 10 : 1;
  const box = drawAxis(context, whole, Array.from(values, (_, l) => l + 1)
    .filter(block => [1, L].includes(block) || (block % step === 0 && block + 3 < L))
    .map(block => ({at: (block - 0.5) / L, label: block})), theme);
  const rank = value => isEven ? value : Math.log(Math.max(value, 1e-30));
  const tall = value => box.height
    * within((rank(value) - rank(low)) / (rank(high) - rank(low)));
  const left = box.x + gutter(), width = (box.x + box.width - left) / values.length;
  drawLines(context, box, lines, tall, theme);
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    const height = Math.max(tall(value), 2);
    context.fillStyle = colour;
    context.fillRect(left + (i + 0.12) * width, box.y + box.height - height,
                     0.76 * width, height);
  });
}

const gutter = () => 40 * (window.devicePixelRatio || 1);

/* An empty panel with labels [{at, label}] below, at from 0 to 1 -> the panel's box. */
function drawAxis(context, whole, labels, theme) {
  const scale = window.devicePixelRatio || 1, left = whole.x + gutter();
  const box = {...whole, height: whole.height - 15 * scale};
  context.clearRect(whole.x, whole.y, whole.width, whole.height);
  context.fillStyle = theme.panel;
  context.fillRect(box.x, box.y, box.width, box.height);
  context.font = `${11 * scale}px system-ui, sans-serif`;
  context.textBaseline = "bottom";
  context.fillStyle = theme.muted;
  for (const {at, label} of labels) {
    const {width} = context.measureText(label), right = whole.x + whole.width - width;
    context.fillText(label, within(left + at * (right + width - left) - width / 2, left,
                                   right), whole.y + whole.height);
  }
  return box;
}

function drawLines(context, box, lines, tall, theme) {
  const scale = window.devicePixelRatio || 1;
  for (const {at, label} of lines) {
    const y = box.y + box.height - tall(at);
    context.fillStyle = theme.rule;
    context.fillRect(box.x, y, box.width, scale);
    context.fillStyle = theme.muted;
    context.fillText(label, box.x + 4 * scale, y - scale);
  }
}

/* Curves {points: [[step, value], ...], colour} over steps 0..last. */
function drawCurves(context, whole, curves, last, {low, high, lines}, theme) {
  const scale = window.devicePixelRatio || 1, left = whole.x + gutter();
  const box = drawAxis(context, whole, [{at: 0, label: "step 0"},
    {at: 0.5, label: Math.round(last / 2)}, {at: 1, label: last}], theme);
  const tall = value => box.height * within((value - low) / (high - low));
  drawLines(context, box, lines, tall, theme);
  context.lineWidth = 2 * scale;
  context.lineJoin = "round";
  for (const {points, colour} of curves) {
    context.strokeStyle = context.fillStyle = colour;
    context.beginPath();
    const wide = (box.x + box.width - left) / last;
    const place = ([step, value]) =>
      [left + wide * step, box.y + box.height - tall(value)];
    for (const point of points) context.lineTo(...place(point));
    context.stroke();
    if (!points.length) continue;
    context.beginPath();
    context.arc(...place(points[points.length - 1]), 3 * scale, 0, 7);
    context.fill();
  }
}
