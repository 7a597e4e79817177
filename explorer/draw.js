"use strict";
/* Everything that is drawn, in boxes {x, y, width, height} of a canvas, so that page and
   saved picture share it. Columns are layers, 0..L, 0 the plain one. */

const COLUMNS = DEPTH + 1;

/* Colours of the page as they are now, light or dark. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(`--${name}`).trim();
  const theme = {};
  for (const name of ["page", "panel", "text", "muted", "rule", "closed", "paper",
                      "ink", "highway", "residual", "plain"]) theme[name] = colour(name);
  for (const block of Object.keys(BLOCKS)) {
    theme[`${block}Scale`] = scaleOf([theme.panel, theme[block]]);
  }
  theme.inkScale = scaleOf([theme.paper, theme.ink]);
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

const shade = (scale, share) =>
  scale[Math.max(0, Math.min(255, Math.round(255 * share)))];

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

const drawDigit = (context, box, pixels, theme) =>
  raster(context, box, 28, 28, (x, y) => theme.inkScale[pixels[28 * y + x]]);

/* T of every layer and unit, from 0 to `most`; gates[l - 1][u]. Closed layers are left
   out, and so is the plain layer, which has no gate. */
function drawGates(context, box, gates, most, closed, theme) {
  const blank = scaleOf([theme.closed, theme.closed])[0];
  const page = scaleOf([theme.panel, theme.panel])[0];
  raster(context, box, COLUMNS, gates[0].length, (layer, unit) =>
    layer === 0 ? page : closed(layer) ? blank
      : shade(theme.gateScale, gates[layer - 1][unit] / most));
}

/* y of every layer and unit, from -most to most. */
function drawOutputs(context, box, outputs, most, theme) {
  raster(context, box, COLUMNS, outputs[0].length, (layer, unit) =>
    shade(theme.outputScale, 0.5 + outputs[layer][unit] / most / 2));
}

/* The ten probabilities after each layer, answers[l][digit]. */
function drawForming(context, box, answers, scale) {
  raster(context, box, COLUMNS, 10, (layer, digit) =>
    shade(scale, answers[layer][digit]));
}

/* |y - x| / |x| of each layer as bars, on a logarithmic scale from 3 % to 200 %. */
function drawChanges(context, box, changes, closed, colour, theme) {
  const [low, high] = [Math.log(0.03), Math.log(2)];
  const height = value => box.height * Math.max(0, Math.min(1,
    (Math.log(Math.max(value, 1e-9)) - low) / (high - low)));
  const width = box.width / COLUMNS;
  context.fillStyle = theme.panel;
  context.fillRect(box.x, box.y, box.width, box.height);
  context.fillStyle = theme.rule;
  for (const line of [0.1, 1]) {
    context.fillRect(box.x, box.y + box.height - height(line), box.width, 1);
  }
  changes.forEach((value, l) => {
    const x = box.x + (l + 1) * width;
    if (closed(l + 1)) {
      context.fillStyle = theme.closed;
      context.fillRect(Math.floor(x), box.y, Math.ceil(width), box.height);
    } else {
      context.fillStyle = colour;
      const tall = height(value);
      context.fillRect(x + 0.12 * width, box.y + box.height - tall, 0.76 * width, tall);
    }
  });
}

/* Ten bars with their digits, for the picture that is saved. */
function drawAnswer(context, box, answer, colour, theme) {
  const row = box.height / 10, winner = largest(answer);
  context.textBaseline = "middle";
  answer.forEach((share, digit) => {
    const y = box.y + digit * row;
    context.font = `${digit === winner ? "bold " : ""}${0.8 * row}px sans-serif`;
    context.fillStyle = theme.text;
    context.fillText(String(digit), box.x, y + row / 2);
    context.fillStyle = theme.rule;
    context.fillRect(box.x + row, y + 0.2 * row, box.width - row, 0.6 * row);
    context.fillStyle = colour;
    context.fillRect(box.x + row, y + 0.2 * row, share * (box.width - row), 0.6 * row);
  });
}
