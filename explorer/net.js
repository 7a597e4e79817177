"use strict";
/* The three nets: unpacking, the forward pass, and what can be done to a layer.

   This is the forward pass of highway_networks.py, in the same words. Legend: B images,
   U units, L blocks, C classes, R rows of a block's weights (U for H, and U for T in a
   highway block). Arrays are flat: x[b * U + u] is unit u of image b. Layers are
   counted from 1; the plain one that reads the pixels is 0. */

const sigmoid = z => 1 / (1 + Math.exp(-z));
const tanh = z => 1 - 2 / (Math.exp(2 * z) + 1);    // twice as fast as Math.tanh

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

const largest = values => values.indexOf(Math.max(...values));

/* z = W x + b for B images; rows of W: K weights, then the bias. Four images at a time,
   because four sums do not wait for each other. */
function affine(W, R, K, x, z, B) {
  let i = 0;
  for (; i + 4 <= B; i += 4) {
    const x0 = i * K, x1 = x0 + K, x2 = x1 + K, x3 = x2 + K;
    for (let r = 0, w = 0; r < R; r++, w += K + 1) {
      let z0 = W[w + K], z1 = z0, z2 = z0, z3 = z0;
      for (let k = 0; k < K; k++) {
        const weight = W[w + k];
        z0 += weight * x[x0 + k];
        z1 += weight * x[x1 + k];
        z2 += weight * x[x2 + k];
        z3 += weight * x[x3 + k];
      }
      z[i * R + r] = z0;
      z[(i + 1) * R + r] = z1;
      z[(i + 2) * R + r] = z2;
      z[(i + 3) * R + r] = z3;
    }
  }
  for (; i < B; i++) {
    for (let r = 0, w = 0; r < R; r++, w += K + 1) {
      let sum = W[w + K];
      for (let k = 0; k < K; k++) sum += W[w + k] * x[i * K + k];
      z[i * R + r] = sum;
    }
  }
}

/* The three kinds of block, y = H T + x C, for B images at once. z holds W x + b: the
   rows of H, then those of T. Each writes y, and T where there is one. */
const BLOCKS = {
  plain(x, z, y, U, B) {                      // y = H: T = 1, C = 0
    for (let i = 0; i < U * B; i++) y[i] = tanh(z[i]);
  },
  residual(x, z, y, U, B) {                   // y = H + x: T = C = 1
    for (let i = 0; i < U * B; i++) y[i] = tanh(z[i]) + x[i];
  },
  highway(x, z, y, U, B, T, step) {           // y = H T + x (1 - T): C = 1 - T
    for (let b = 0; b < B; b++) {
      for (let u = 0; u < U; u++) {
        const i = b * U + u, row = b * 2 * U + u;
        const H = tanh(z[row]);
        T[i] = step.held ? step.held[u] : sigmoid(z[row + U] + step.shift);
        y[i] = H * T[i] + x[i] * (1 - T[i]);
      }
    }
  },
};

/* A net from its packed weights. Each row of every matrix lies there as a scale and a
   bias (float32) and K whole numbers of 24 bits, little endian, to be multiplied by the
   scale: four characters of base64 a weight. */
class Net {
  constructor(block, depth, hidden, packed) {
    Object.assign(this, {block, depth, hidden});
    const bytes = bytesOf(packed);
    const view = new DataView(bytes.buffer);
    let at = 0;
    const matrix = (R, K) => {
      const W = new Float32Array(R * (K + 1));
      for (let r = 0, w = 0; r < R; r++) {
        const scale = view.getFloat32(at, true);
        const bias = view.getFloat32(at + 4, true);
        at += 8;
        for (let k = 0; k < K; k++, at += 3) {
          const low = bytes[at] | bytes[at + 1] << 8;
          W[w++] = scale * (low | bytes[at + 2] << 24 >> 8);      // with its sign
        }
        W[w++] = bias;
      }
      return W;
    };
    this.rows = block === "highway" ? 2 * hidden : hidden;
    this.input = matrix(hidden, 784);
    this.blocks = Array.from({length: depth}, () => matrix(this.rows, hidden));
    this.output = matrix(10, hidden);
  }

  /* x (B, U) -> logits (B, C), as if this were the last block's output. */
  answer(x, B = 1) {
    const logits = new Float64Array(10 * B);
    affine(this.output, 10, this.hidden, x, logits, B);
    return logits;
  }
}

/* What is to be done in each of the L places of a net: which layer stands there, is it
   closed, and for highway layers what its T is held at, or by how much b_T is moved. */
function planOf(net, state, means) {
  const order = orderOf(state.shuffle, net.depth);
  const gated = net.block === "highway";
  return order.map((source, place) => ({
    source,
    closed: isClosed(state, place + 1),
    held: gated && state.frozen ? means[source] : null,
    shift: gated && !state.frozen ? state.shift : 0,
  }));
}

const isClosed = (state, layer) => state.closed.has(layer) || layer > state.keep;

/* A random order of the layers in which none moves further than `distance`: l + u is
   sorted, with u drawn evenly from [0, distance + 1). */
function orderOf({distance, seed}, depth) {
  const random = randomNumbers(seed);
  const keys = Array.from({length: depth}, (_, l) => l + random() * (distance + 1));
  return [...keys.keys()].sort((a, b) => keys[a] - keys[b]);
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

/* One net on its way through B images. It remembers every block's output, so that a
   changed plan costs only the layers from the first change on, and it can stop anywhere
   and go on in the next frame. */
class Run {
  constructor(net, B) {
    const {depth: L, hidden: U, rows: R} = net;
    Object.assign(this, {net, B, plan: null, done: -1});
    const layers = (count, size) =>
      Array.from({length: count}, () => new Float64Array(size));
    this.x = layers(L + 1, B * U);        // x[0]: the plain layer's, x[l]: block l's
    this.T = net.block === "highway" ? layers(L, B * U) : null;
    this.z = new Float64Array(B * R);
  }

  /* Pixels (B, 784), bytes -> x[0]. */
  read(pixels) {
    const {net, B} = this;
    const scaled = Float64Array.from(pixels, value => value * 2 / 255 - 1);
    affine(net.input, net.hidden, 784, scaled, this.x[0], B);
    this.x[0].forEach((value, i, x) => { x[i] = tanh(value); });
    this.done = 0;
  }

  /* Take a new plan; what comes before its first difference stays. */
  follow(plan) {
    const old = this.plan;
    const same = (a, b) => a.source === b.source && a.closed === b.closed
      && a.held === b.held && a.shift === b.shift;
    let first = 0;
    while (old && first < plan.length && same(plan[first], old[first])) first++;
    this.plan = plan;
    this.done = Math.min(this.done, first);
  }

  /* Go on until all is done or the clock says `until`; true if all is done. */
  advance(until = Infinity) {
    const {net, B, x, z} = this;
    while (this.done < net.depth) {
      if (performance.now() > until) return false;
      const l = this.done++, step = this.plan[l];
      if (step.closed) {                              // it copies its input
        x[l + 1].set(x[l]);
        if (this.T) this.T[l].fill(0);
        continue;
      }
      affine(net.blocks[step.source], net.rows, net.hidden, x[l], z, B);
      BLOCKS[net.block](x[l], z, x[l + 1], net.hidden, B, this.T && this.T[l], step);
    }
    return true;
  }

  /* logits (B, C) of the whole net, once all is done. */
  logits() {
    return this.net.answer(this.x[this.net.depth], this.B);
  }

  /* The digit that each of the B images is read as. */
  readings() {
    const logits = this.logits();
    return Array.from({length: this.B}, (_, b) =>
      largest(logits.subarray(10 * b, 10 * b + 10)));
  }

  /* For one image: what the net would answer if block l were the last, l = 0..L. */
  forming() {
    return this.x.map(x => softmax(this.net.answer(x)));
  }

  /* For one image: |y - x| / |x| of every block, how much it changes its input. */
  changes() {
    const length = of => Math.sqrt(of.reduce((sum, value) => sum + value * value, 0));
    return this.plan.map((_, l) => {
      const [x, y] = [this.x[l], this.x[l + 1]];
      return length(y.map((value, u) => value - x[u])) / length(x);
    });
  }
}
