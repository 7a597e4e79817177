"use strict";
/* The arithmetic of both rooms: one block forward and backward, the net, Adam. It is
   that of highway_networks.py, in the same words; trainer.js and it are also all that
   the worker consists of, so nothing here knows of the page.

   Legend: B images, P pixels, U units, L blocks, C classes, R rows of a block's weights
   (U for H and U for each learned gate). Arrays are flat, an image after the other:
   x[b * U + u] is unit u of image b. Weights are rows of K numbers and their bias. */

const CLASSES = 10;

const sigmoid = z => 1 / (1 + Math.exp(-z));
const tanh = z => 1 - 2 / (Math.exp(2 * z) + 1);    // twice as fast as Math.tanh
const largest = values => values.indexOf(Math.max(...values));

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = Array.from(logits, value => Math.exp(value - most));
  const total = powers.reduce((sum, value) => sum + value);
  return powers.map(value => value / total);
}

function bytesOf(base64) {
  const letters = atob(base64), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/* Random numbers from [0, 1): xorshift with 32 bits (Marsaglia 2003). */
function randomNumbers(seed) {
  let bits = Math.imul(seed + 1, 0x9E3779B9) | 1;     // seeds that are near start apart
  return () => {
    bits ^= bits << 13;
    bits ^= bits >>> 17;
    bits ^= bits << 5;
    return (bits >>> 0) / 2 ** 32;
  };
}

// Products of matrices

/* C += A B for A (M, K), B (K, N), C (M, N), any of them transposed: strides are told
   as [from row to row, from column to column]. Eight sums at a time: none of them waits
   for another, and each number that is read serves two or four of them. */
function addProduct(M, K, N, A, [aRow, aColumn], B, [bRow, bColumn],
                    C, [cRow, cColumn]) {
  const fullM = M & ~3, evenN = N & ~1;
  for (let n = 0; n < evenN; n += 2) {
    for (let m = 0; m < fullM; m += 4) {
      let a0 = m * aRow, a1 = a0 + aRow, a2 = a1 + aRow, a3 = a2 + aRow;
      let b0 = n * bColumn, b1 = b0 + bColumn;
      let p0 = 0, p1 = 0, p2 = 0, p3 = 0, q0 = 0, q1 = 0, q2 = 0, q3 = 0;
      for (let k = 0; k < K; k++) {
        const p = B[b0], q = B[b1], w0 = A[a0], w1 = A[a1], w2 = A[a2], w3 = A[a3];
        p0 += w0 * p; p1 += w1 * p; p2 += w2 * p; p3 += w3 * p;
        q0 += w0 * q; q1 += w1 * q; q2 += w2 * q; q3 += w3 * q;
        a0 += aColumn; a1 += aColumn; a2 += aColumn; a3 += aColumn;
        b0 += bRow; b1 += bRow;
      }
      const c0 = m * cRow + n * cColumn, c1 = c0 + cRow, c2 = c1 + cRow, c3 = c2 + cRow;
      C[c0] += p0; C[c1] += p1; C[c2] += p2; C[c3] += p3;
      C[c0 + cColumn] += q0; C[c1 + cColumn] += q1;
      C[c2 + cColumn] += q2; C[c3 + cColumn] += q3;
    }
  }
  for (let m = 0; m < M; m++) {                         // what is left at the edges
    for (let n = m < fullM ? evenN : 0; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) {
        sum += A[m * aRow + k * aColumn] * B[k * bRow + n * bColumn];
      }
      C[m * cRow + n * cColumn] += sum;
    }
  }
}

/* z = W x + b: W (R, K + 1), the biases last, x (B, K) -> z (B, R). */
function affine(W, R, K, x, z, B) {
  for (let b = 0; b < B; b++) {
    for (let r = 0; r < R; r++) z[b * R + r] = W[r * (K + 1) + K];
  }
  addProduct(B, K, R, x, [K, 1], W, [1, K + 1], z, [R, 1]);
}

/* dW = dz^T x, and sums of dz for the biases: dz (B, R), x (B, K) -> dW (R, K + 1). */
function gradientOfWeights(dz, R, K, x, dW, B) {
  dW.fill(0);
  addProduct(R, B, K, dz, [1, R], x, [K, 1], dW, [K + 1, 1]);
  for (let r = 0; r < R; r++) {
    let sum = 0;
    for (let b = 0; b < B; b++) sum += dz[b * R + r];
    dW[r * (K + 1) + K] = sum;
  }
}

/* dx += dz W: dz (B, R), W (R, K + 1), dx (B, K). */
function gradientOfInput(dz, W, R, K, dx, B) {
  addProduct(B, R, K, dz, [R, 1], W, [K + 1, 1], dx, [K, 1]);
}

// The family y = H T + x C

/* What T and C of each kind are: a number, or "learned", or for C "1 - T". */
const FAMILY = {
  plain: {T: 1, C: 0},                          // y = H
  highway: {T: "learned", C: "1 - T"},          // y = H T + x (1 - T)
  residual: {T: 1, C: 1},                       // y = H + x
  scaled: {T: depth => 1 / Math.sqrt(depth), C: 1},     // y = H / sqrt(L) + x
  t_only: {T: "learned", C: 1},
  c_only: {T: 1, C: "learned"},
  full: {T: "learned", C: "learned"},
};

/* A kind in a net of so many blocks and units: where in its R rows the gates stand (0
   where one is not learned), and what T and C are where they are numbers. */
function kindOf(name, depth, units) {
  const {T, C} = FAMILY[name];
  const number = gate => typeof gate === "function" ? gate(depth) : gate;
  const atT = T === "learned" ? units : 0;
  const atC = C === "learned" ? units + atT : 0;
  return {atT, atC, isCoupled: C === "1 - T", T: atT ? 0 : number(T), C: atC ? 0 : C,
          rows: units * (1 + Boolean(atT) + Boolean(atC))};
}

/* One block for B images: z = W x + b becomes H and the gates, in place; then
   y = H T + x C. held: values (U,) that T is kept at; read: what H and the gates are
   computed from, where it is not x. */
function forwardBlock(kind, W, x, z, y, U, B, isRelu, held = null, read = x) {
  const {atT, atC, isCoupled, rows: R} = kind;
  affine(W, R, U, read, z, B);
  for (let b = 0; b < B; b++) {
    for (let u = 0; u < U; u++) {
      const i = b * U + u, row = b * R + u;
      const H = isRelu ? Math.max(z[row], 0) : tanh(z[row]);
      z[row] = H;
      let T = kind.T, C = kind.C;
      if (atT) T = z[row + atT] = held ? held[u] : sigmoid(z[row + atT]);
      if (atC) C = z[row + atC] = sigmoid(z[row + atC]);
      else if (isCoupled) C = 1 - T;
      y[i] = H * T + x[i] * C;
    }
  }
}

/* Back through it: d is dy and becomes dx; z, H and the gates, becomes dz; dW. */
function backwardBlock(kind, W, dW, x, z, d, U, B, isRelu) {
  const {atT, atC, isCoupled, rows: R} = kind;
  for (let b = 0; b < B; b++) {
    for (let u = 0; u < U; u++) {
      const i = b * U + u, row = b * R + u;
      const dy = d[i], H = z[row];
      const T = atT ? z[row + atT] : kind.T;
      const C = atC ? z[row + atC] : isCoupled ? 1 - T : kind.C;
      z[row] = isRelu ? (H > 0 ? T * dy : 0) : T * dy * (1 - H * H);
      if (atT) z[row + atT] = (isCoupled ? H - x[i] : H) * dy * T * (1 - T);
      if (atC) z[row + atC] = x[i] * dy * C * (1 - C);
      d[i] = C * dy;
    }
  }
  gradientOfWeights(z, R, U, x, dW, B);
  gradientOfInput(z, W, R, U, d, B);
}

// The net that is trained

/* P pixels -> plain layer -> L blocks of U units -> C logits. `params` and `grad` are
   flat: the input's rows (U, P + 1), every block's (R, U + 1), output's (C, U + 1). */
class Machine {
  /* Floats: Float32Array or Float64Array, of all arrays. B: images of a batch. */
  constructor({kind, depth, units, activation}, pixels, B, Floats) {
    Object.assign(this, {depth, units, pixels, B});
    this.kind = kindOf(kind, depth, units);
    this.isRelu = activation === "relu";
    const R = this.kind.rows, sizes = [units * (pixels + 1),
      ...new Array(depth).fill(R * (units + 1)), CLASSES * (units + 1)];
    const size = sizes.reduce((sum, part) => sum + part);
    this.params = new Floats(size);
    this.grad = new Floats(size);
    const parts = flat => {
      let at = 0;
      return sizes.map(part => flat.subarray(at, at += part));
    };
    this.W = parts(this.params);
    this.dW = parts(this.grad);
    const layers = (count, wide) => Array.from({length: count}, () => new Floats(wide));
    this.x = layers(depth + 1, B * units);
    this.z = layers(depth, B * R);
    this.logits = new Floats(B * CLASSES);
    this.d = new Floats(B * units);
  }

  /* Random weights by the named rule, and the biases of the gates; the matrices of H
     are the same whatever the kind, and those of T. Each has its own stream. */
  initialize(rule, gateBias, seed) {
    const {units: U, depth: L, kind} = this;
    const fill = (W, first, rows, K, random) => {
      for (let i = first * (K + 1); i < (first + rows) * (K + 1); i++) {
        if (i % (K + 1) !== K) W[i] = initialWeight(rule, K, rows, random);
      }
      if (rule === "orthogonal") orthogonalize(W, first, rows, K);
    };
    const streams = ["in", "out", "H", "T", "C"].map((_, i) => stream(seed, i));
    fill(this.W[0], 0, U, this.pixels, streams[0]);
    fill(this.W[L + 1], 0, CLASSES, U, streams[1]);
    for (const W of this.W.slice(1, L + 1)) {
      fill(W, 0, U, U, streams[2]);
      for (const [at, random, bias] of [[kind.atT, streams[3], gateBias],
                                        [kind.atC, streams[4], -gateBias]]) {
        if (!at) continue;
        fill(W, at, U, U, random);
        for (let row = at; row < at + U; row++) W[row * (U + 1) + U] = bias;
      }
    }
  }

  /* Pixels x (B, P) -> this.logits. A generator: it pauses after every block, so that
     whoever has little time can go on later. */
  *forward(x) {
    const {units: U, depth: L, B, W, isRelu} = this;
    affine(W[0], U, this.pixels, x, this.x[0], B);
    for (let i = 0; i < B * U; i++) {
      this.x[0][i] = isRelu ? Math.max(this.x[0][i], 0) : tanh(this.x[0][i]);
    }
    for (let l = 0; l < L; l++) {
      forwardBlock(this.kind, W[l + 1], this.x[l], this.z[l], this.x[l + 1], U, B,
                   isRelu);
      yield;
    }
    affine(W[L + 1], CLASSES, U, this.x[L], this.logits, B);
  }

  /* Pixels (B, P) and labels (B,) -> the loss before any update; this.grad is filled.
     A generator, like forward. */
  *gradient(x, labels) {
    const {units: U, depth: L, B, W, dW, d, isRelu} = this;
    yield* this.forward(x);
    const loss = crossEntropy(this.logits, labels);     // the logits become dlogits
    d.fill(0);
    gradientOfWeights(this.logits, CLASSES, U, this.x[L], dW[L + 1], B);
    gradientOfInput(this.logits, W[L + 1], CLASSES, U, d, B);
    for (let l = L - 1; l >= 0; l--) {
      backwardBlock(this.kind, W[l + 1], dW[l + 1], this.x[l], this.z[l], d, U, B,
                    isRelu);
      yield;
    }
    for (let i = 0; i < B * U; i++) {
      const y = this.x[0][i];
      d[i] *= isRelu ? Number(y > 0) : 1 - y * y;
    }
    gradientOfWeights(d, U, this.pixels, x, dW[0], B);
    return loss;
  }

  /* The norm of the gradient of each block's weights, (L,). */
  gradientNorms() {
    const isWeight = (_, i) => (i + 1) % (this.units + 1) !== 0;
    return Float32Array.from(this.dW.slice(1, -1),
                             dW => Math.sqrt(sumOfSquares(dW.filter(isWeight))));
  }

  /* After a forward pass, the mean T of each block, (L,), of the images from `first`
     on. */
  meanT(first = 0) {
    const {units: U, B, kind: {atT, rows: R}} = this;
    return Float32Array.from(this.z, z => {
      let sum = 0;
      for (let b = first; b < B; b++) {
        for (let u = 0; u < U; u++) sum += z[b * R + atT + u];
      }
      return sum / ((B - first) * U);
    });
  }
}

const stream = (seed, index) => {
  const random = randomNumbers(8 * seed + index);
  for (let i = 0; i < 16; i++) random();
  return random;
};

/* As highway_networks.initial_weights. */
function initialWeight(rule, fanIn, fanOut, random) {
  if (rule === "he" || rule === "orthogonal") { // a normal number (Box, Muller 1958)
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    return Math.sqrt(2 / fanIn) * radius * Math.cos(2 * Math.PI * random());
  }
  const bound = Math.sqrt(rule === "glorot" ? 6 / (fanIn + fanOut) : 1 / fanIn);
  return bound * (2 * random() - 1);
}

/* The rows of a matrix within W become orthogonal and of length 1 (Gram and Schmidt, twice
   because of rounding); its columns, where there are more rows than columns. */
function orthogonalize(W, first, rows, K) {
  const isWide = rows <= K;
  const [count, length] = isWide ? [rows, K] : [K, rows];
  const at = (v, i) => isWide ? (first + v) * (K + 1) + i : (first + i) * (K + 1) + v;
  const product = (u, v) => {
    let sum = 0;
    for (let i = 0; i < length; i++) sum += W[at(u, i)] * W[at(v, i)];
    return sum;
  };
  for (let v = 0; v < count; v++) {
    for (let u = 0; u < 2 * v; u++) {
      const shared = product(u % v, v);
      for (let i = 0; i < length; i++) W[at(v, i)] -= shared * W[at(u % v, i)];
    }
    const norm = Math.sqrt(product(v, v));
    for (let i = 0; i < length; i++) W[at(v, i)] /= norm;
  }
}

/* "auto" is logit(1 / L): the T of all blocks then begin with a sum of 1. */
const biasOf = (gateBias, depth) =>
  gateBias === "auto" ? -Math.log(Math.max(depth - 1, 1)) : gateBias;

/* Logits (B, C) and labels -> the mean of -log p_label; the logits become dlogits. */
function crossEntropy(logits, labels) {
  const B = labels.length;
  let loss = 0;
  for (let b = 0; b < B; b++) {
    const row = logits.subarray(b * CLASSES, (b + 1) * CLASSES);
    let most = -Infinity, total = 0;
    for (let c = 0; c < CLASSES; c++) most = Math.max(most, row[c]);
    for (let c = 0; c < CLASSES; c++) total += Math.exp(row[c] - most);
    loss += Math.log(total) - (row[labels[b]] - most);
    for (let c = 0; c < CLASSES; c++) {
      row[c] = (Math.exp(row[c] - most) / total - Number(c === labels[b])) / B;
    }
  }
  return loss / B;
}

function sumOfSquares(values) {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] * values[i];
  return sum;
}

/* Kingma, Ba 2015; the moments are kept without their factors 1 - beta, as in
   highway_networks.Adam. */
class Adam {
  constructor(params) {
    this.m = new params.constructor(params.length);
    this.v = new params.constructor(params.length);
    this.steps = 0;
  }

  /* grad is scaled down to norm `clip` if it is longer; returns the norm it had. The
     weights are left alone if that is not finite. */
  step(params, grad, rate, clip) {
    const norm = Math.sqrt(sumOfSquares(grad));
    if (!Number.isFinite(norm)) return norm;
    const beta1 = 0.9, beta2 = 0.999, t = ++this.steps, {m, v} = this;
    const second = Math.sqrt((1 - beta2) / (1 - beta2 ** t));
    const size = rate * (1 - beta1) / (1 - beta1 ** t) / second, tiny = 1e-8 / second;
    const scale = norm > clip ? clip / norm : 1;
    for (let i = 0; i < params.length; i++) {
      const g = scale * grad[i];
      m[i] = beta1 * m[i] + g;
      v[i] = beta2 * v[i] + g * g;
      params[i] -= size * m[i] / (Math.sqrt(v[i]) + tiny);
    }
    return norm;
  }
}
