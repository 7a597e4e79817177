"use strict";
/* The three trained nets of the first room, and what can be done to their blocks, which
   are counted from 1; the plain layer that reads the pixels is 0. */

/* A net from its packed weights. Each row of every matrix lies there as a scale and a
   bias (float32) and K whole numbers of 24 bits, little endian, to be multiplied by the
   scale: four characters of base64 a weight. */
class Net {
  constructor(name, depth, hidden, packed) {
    Object.assign(this, {name, depth, hidden, kind: kindOf(name, depth, hidden)});
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
    this.input = matrix(hidden, 784);
    this.blocks = Array.from({length: depth}, () => matrix(this.kind.rows, hidden));
    this.output = matrix(CLASSES, hidden);
  }

  /* x (B, U) -> logits (B, C), as if this were the last block's output. */
  answer(x, B = 1) {
    const logits = new Float64Array(CLASSES * B);
    affine(this.output, CLASSES, this.hidden, x, logits, B);
    return logits;
  }
}

/* What is to be done in each of the L places of a net: which block stands there, is it
   closed, where its stage begins, and what the T of a highway block is held at. */
function planOf(net, state, means) {
  const order = orderOf(state.shuffle, net.depth);
  return order.map((source, place) => ({
    source,
    closed: isClosed(state, place + 1),
    stage: stageOf(place, state.stages, net.depth),
    held: net.kind.atT && state.frozen ? means[source] : null,
  }));
}

const isClosed = (state, block) => state.closed.has(block) || block > state.keep;

/* Where the stage of a place begins: stages have equally many blocks, the first ones
   perhaps one more. As in experiments/nets/probes.py. */
function stageOf(place, stages, depth) {
  const size = Math.floor(depth / stages), longer = depth % stages * (size + 1);
  return place < longer ? place - place % (size + 1) : place - (place - longer) % size;
}

/* A random order of the blocks in which none moves further than `distance`: l + u is
   sorted, with u drawn evenly from [0, distance + 1). */
function orderOf({distance, seed}, depth) {
  const random = randomNumbers(seed);
  const keys = Array.from({length: depth}, (_, l) => l + random() * (distance + 1));
  return [...keys.keys()].sort((a, b) => keys[a] - keys[b]);
}

/* One net on its way through B images. It remembers every block's output, so that a
   changed plan costs only the blocks from the first change on, and it can stop anywhere
   and go on in the next frame. */
class Run {
  constructor(net, B) {
    const {depth: L, hidden: U, kind} = net;
    Object.assign(this, {net, B, plan: null, done: -1});
    const arrays = (count, size) =>
      Array.from({length: count}, () => new Float64Array(size));
    this.x = arrays(L + 1, B * U);        // x[0]: the plain layer's, x[l]: block l's
    this.z = arrays(L, B * kind.rows);    // H and the gates of each block
    this.gates = kind.atT && B === 1 ?
      this.z.map(z => z.subarray(kind.atT, kind.atT + U)) : null;
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
      && a.stage === b.stage && a.held === b.held;
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
      const l = this.done++, {source, closed, stage, held} = this.plan[l];
      if (closed) {                                   // it copies its input
        x[l + 1].set(x[l]);
        z[l].fill(0);
      } else {
        forwardBlock(net.kind, net.blocks[source], x[l], z[l], x[l + 1], net.hidden, B,
                     false, held, x[stage]);
      }
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
      largest(logits.subarray(CLASSES * b, CLASSES * (b + 1))));
  }

  /* For one image: what the net would answer if block l were the last, l = 0..L. */
  forming() {
    return this.x.map(x => softmax(this.net.answer(x)));
  }

  /* For one image: the numbers of one unit of block l, 1..L. */
  unit(l, u) {
    const {kind} = this.net, [x, y] = [this.x[l - 1][u], this.x[l][u]];
    const [H, T] = [this.z[l - 1][u], kind.atT ? this.z[l - 1][kind.atT + u] : kind.T];
    return {x, H, T, y};
  }
}
