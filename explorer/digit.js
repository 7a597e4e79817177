"use strict";
/* Strokes or a picture -> 28 x 28 bytes, the way MNIST was made (LeCun et al. 1998):
   the ink is scaled into 20 x 20, keeping its shape, and moved so that its centre of
   mass is in the middle. It is painted ten times as large and averaged. */

const FINE = 280, FIT = 200;
const PEN = 24;                       // of the paint: 2.4 pixels, about MNIST's strokes
const LARGEST_FILE = 20e6, LARGEST_SIDE = 4096;

const fine = element("canvas", {width: FINE, height: FINE})
  .getContext("2d", {willReadFrequently: true});

/* paint(context) draws white ink in its own coordinates, where it fills the box {x, y,
   width, height}; border: how far, once scaled, it reaches beyond -> 784 bytes. */
function settle(box, border, paint) {
  const size = Math.max(box.width, box.height, 1e-6);
  const scale = Math.min((FIT - border) / size, box.most || Infinity);
  const render = (x, y) => {
    fine.setTransform(1, 0, 0, 1, 0, 0);
    fine.fillStyle = "#000";
    fine.fillRect(0, 0, FINE, FINE);
    fine.setTransform(scale, 0, 0, scale, x - scale * (box.x + box.width / 2),
                      y - scale * (box.y + box.height / 2));
    paint(fine, scale);
    return fine.getImageData(0, 0, FINE, FINE).data;
  };
  const [x, y] = centreOfMass(render(FINE / 2, FINE / 2));
  return average(render(FINE - x, FINE - y));
}

function centreOfMass(data) {
  let mass = 0, x = 0, y = 0;
  for (let i = 0; i < FINE * FINE; i++) {
    const ink = data[4 * i];
    mass += ink;
    x += ink * (i % FINE + 0.5);
    y += ink * (Math.floor(i / FINE) + 0.5);
  }
  return mass ? [x / mass, y / mass] : [FINE / 2, FINE / 2];
}

function average(data) {
  const sums = new Float64Array(784);
  for (let i = 0; i < FINE * FINE; i++) {
    sums[28 * Math.floor(i / FINE / 10) + Math.floor(i % FINE / 10)] += data[4 * i];
  }
  return Uint8Array.from(sums, sum => Math.round(sum / 100));
}

/* Strokes, lists of points [x, y] in units of the pad's side -> 784 bytes. The pen is
   as thick for a small digit as for a large one. */
function pixelsOfStrokes(strokes) {
  const points = strokes.flat();
  if (!points.length) return new Uint8Array(784);
  const [xs, ys] = [points.map(point => point[0]), points.map(point => point[1])];
  const box = {x: Math.min(...xs), y: Math.min(...ys), most: 5 * FIT};
  box.width = Math.max(...xs) - box.x;
  box.height = Math.max(...ys) - box.y;
  return settle(box, PEN, (context, scale) =>
    paintStrokes(context, strokes, PEN / scale, "#fff"));
}

function paintStrokes(context, strokes, width, colour) {
  Object.assign(context, {lineWidth: width, lineCap: "round", lineJoin: "round",
                          strokeStyle: colour});
  for (const stroke of strokes) {
    context.beginPath();
    stroke.forEach(([x, y]) => context.lineTo(x, y));
    if (stroke.length === 1) context.lineTo(stroke[0][0] + 1e-4, stroke[0][1]);
    context.stroke();
  }
}

/* A PNG file -> 784 bytes. Throws an Error with one line for the user. */
async function pixelsOfFile(file) {
  if (file.size > LARGEST_FILE) throw new Error("That file is larger than 20 MB.");
  const head = new DataView(await file.slice(0, 24).arrayBuffer());
  if (head.byteLength < 24 || head.getUint32(0) !== 0x89504E47
      || head.getUint32(4) !== 0x0D0A1A0A) {
    throw new Error("That file is not a PNG.");
  }
  const [width, height] = [head.getUint32(16), head.getUint32(20)];
  if (Math.max(width, height) > LARGEST_SIDE) {
    throw new Error(`That PNG is ${width} × ${height}; at most ${LARGEST_SIDE} a side `
      + "can be read.");
  }
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("That PNG is broken: it cannot be read.");
  }
  return pixelsOfPicture(bitmap);
}

/* Where it is transparent it lies on white paper; white ink is seen on black alone. */
function pixelsOfPicture(bitmap, paper = "#fff") {
  const shrink = Math.min(1, 560 / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(bitmap.width * shrink));
  const height = Math.max(1, Math.round(bitmap.height * shrink));
  const canvas = element("canvas", {width, height});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.fillStyle = paper;
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  const image = context.getImageData(0, 0, width, height);
  const away = awayFromPaper(image.data, width, height);
  const ink = strengthen(away);
  const box = boxOf(ink, width);
  if (!box && paper === "#fff") return pixelsOfPicture(bitmap, "#000");
  if (bitmap.width === 28 && bitmap.height === 28) {  // it is in MNIST's form already
    return Uint8Array.from(away, Math.round);
  }
  if (!box) throw new Error("There is nothing on that PNG.");
  ink.forEach((value, i) => image.data.set([value, value, value, 255], 4 * i));
  context.putImageData(image, 0, 0);
  return settle(box, 0, target => {
    target.imageSmoothingQuality = "high";
    target.drawImage(canvas, box.x, box.y, box.width, box.height,
                     box.x, box.y, box.width, box.height);
  });
}

/* Colours -> how far each pixel is from the paper, which is what the border shows. */
function awayFromPaper(data, width, height) {
  const grey = Float64Array.from({length: width * height}, (_, i) =>
    0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]);
  const border = grey.filter((_, i) => i < width || i >= width * (height - 1)
                             || i % width === 0 || i % width === width - 1);
  const paper = border.sort()[border.length >> 1];
  return grey.map(value => Math.max(0, paper > 127 ? paper - value : value - paper));
}

/* The strongest ink becomes 255, and what is faint beside it, dirt or shadow, paper. */
function strengthen(away) {
  const most = away.reduce((a, b) => Math.max(a, b));
  const faint = most < 32 ? most : 0.2 * most;
  return Uint8Array.from(away, value =>
    value <= faint ? 0 : Math.round(255 * (value - faint) / (most - faint)));
}

function boxOf(ink, width) {
  let [left, right, top, bottom] = [Infinity, -1, Infinity, -1];
  ink.forEach((value, i) => {
    if (!value) return;
    const [x, y] = [i % width, Math.floor(i / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  });
  return right < 0 ? null
    : {x: left, y: top, width: right - left + 1, height: bottom - top + 1};
}
