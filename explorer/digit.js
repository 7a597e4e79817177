"use strict";
/* Strokes -> 28 x 28 bytes, the way MNIST was made (LeCun et al. 1998):
   the ink is scaled into 20 x 20, keeping its shape, and moved so that its centre of
   mass is in the middle. It is painted ten times as large and averaged. */

const FINE = 280, FIT = 200;
const PEN = 24;                       // of the paint: 2.4 pixels, about MNIST's strokes

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
