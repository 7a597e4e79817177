"use strict";
/* Two nets that are trained on the same batches, step by step, and the loop that does
   so beside the page: in a worker, made of this file and machine.js, or in slices of
   the page's own time where the browser allows none.

   settings  {depth, units, init, activation, rate, seed, arms: two of {kind, gateBias}}
   digits    {train, test}, each {pixels: bytes 0..16 (N, 64), labels: bytes (N,)} */

const BATCH = 32, CLIP = 5, PIXELS = 64, DARKEST = 16;
const EVERY = 22;             // steps from one look at the test digits to the next
const PAUSE = 60;             // milliseconds from one message to the next, at least
const MOST_POINTS = 400;      // of a curve, however long it runs

/* A curve of bounded length: once it is full, two neighbours become their mean. */
class Curve {
  constructor() {
    Object.assign(this, {points: [], stride: 1, sum: 0, count: 0});
  }

  add(step, value) {
    this.sum += value;
    if (++this.count < this.stride) return;
    this.points.push([step, this.sum / this.count]);
    Object.assign(this, {sum: 0, count: 0});
    if (this.points.length < MOST_POINTS) return;
    this.stride *= 2;
    this.points = this.points.filter((_, i) => i % 2).map(([at, later], i) =>
      [at, (this.points[2 * i][1] + later) / 2]);
  }
}

class Trainer {
  constructor(settings, digits, Floats = Float32Array) {
    const scaled = ({pixels, labels}) =>
      ({x: Floats.from(pixels, value => value * 2 / DARKEST - 1), labels});
    this.train = scaled(digits.train);
    this.test = scaled(digits.test);
    this.rate = settings.rate;
    this.seed = settings.seed;
    this.batch = {x: new Floats(BATCH * PIXELS), labels: new Uint8Array(BATCH)};
    this.batches = Math.floor(digits.train.labels.length / BATCH);
    this.steps = 0;
    this.arms = settings.arms.map(({kind, gateBias}) => {
      const net = new Machine({...settings, kind}, PIXELS, BATCH, Floats);
      net.initialize(settings.init, biasOf(gateBias, settings.depth), settings.seed);
      return {net, adam: new Adam(net.params), lost: null, loss: NaN, accuracy: NaN,
              losses: new Curve(), accuracies: new Curve(), meanT: null,
              answers: new Float32Array(digits.test.labels.length * CLASSES)};
    });
  }

  get isLost() {
    return this.arms.every(arm => arm.lost !== null);
  }

  /* The batch of this step; every pass over the digits has an order of its own. */
  choose() {
    const at = this.steps % this.batches, N = this.train.labels.length;
    if (!at) {
      const random = stream(1e6 * this.seed + this.steps, 5);
      this.order = Array.from({length: N}, (_, i) => i);
      for (let i = N - 1; i > 0; i--) {
        const j = Math.floor(random() * (i + 1));
        [this.order[i], this.order[j]] = [this.order[j], this.order[i]];
      }
    }
    this.order.slice(at * BATCH, (at + 1) * BATCH).forEach((row, b) => {
      const pixels = this.train.x.subarray(row * PIXELS, (row + 1) * PIXELS);
      this.batch.x.set(pixels, b * PIXELS);
      this.batch.labels[b] = this.train.labels[row];
    });
  }

  /* What there is to see before the first step. */
  *begin() {
    this.choose();
    for (const arm of this.arms) {
      arm.loss = yield* arm.net.gradient(this.batch.x, this.batch.labels);
    }
    yield* this.evaluate();
  }

  /* One step of both nets; a net whose loss or gradient is no number stays behind. */
  *step() {
    this.choose();
    for (const arm of this.arms.filter(arm => arm.lost === null)) {
      arm.loss = yield* arm.net.gradient(this.batch.x, this.batch.labels);
      const norm = Number.isFinite(arm.loss)
        ? arm.adam.step(arm.net.params, arm.net.grad, this.rate, CLIP) : NaN;
      if (!Number.isFinite(norm)) arm.lost = this.steps + 1;
      else arm.losses.add(this.steps + 1, arm.loss);
    }
    this.steps++;
    if (this.steps % EVERY === 0) yield* this.evaluate();
  }

  /* All test digits through both nets: the answers, how many are right, the mean T. */
  *evaluate() {
    const {x, labels} = this.test, N = labels.length;
    for (const arm of this.arms.filter(arm => arm.lost === null)) {
      const {net} = arm;
      const meanT = net.kind.atT ? new Float32Array(net.depth) : null;
      let right = 0;
      for (let start = 0; start < N; start += BATCH) {
        const from = Math.min(start, N - BATCH), done = start - from;
        yield* net.forward(x.subarray(from * PIXELS, (from + BATCH) * PIXELS));
        for (let b = done; b < BATCH; b++) {
          const logits = net.logits.subarray(b * CLASSES, (b + 1) * CLASSES);
          arm.answers.set(softmax(logits), (from + b) * CLASSES);
          right += Number(largest(logits) === labels[from + b]);
        }
        if (!meanT) continue;
        net.meanT(done).forEach((T, l) => { meanT[l] += T * (BATCH - done) / N; });
      }
      Object.assign(arm, {meanT, accuracy: right / N});
      arm.accuracies.add(this.steps, arm.accuracy);
    }
    this.evaluatedAt = this.steps;
  }

  /* All that the page shows, as a message. */
  snapshot() {
    const arms = this.arms.map(({net, lost, loss, accuracy, meanT, answers, ...arm}) =>
      ({lost, loss, accuracy, meanT, answers, norms: net.gradientNorms(),
        losses: arm.losses.points, accuracies: arm.accuracies.points}));
    return {steps: this.steps, batches: this.batches, arms};
  }
}

/* The loop. It is told {settings, digits, run}, {isRunning}, {step: true} and {seen:
   run}, and sends snapshots: a new one only once the last was seen, so that no queue
   grows in a page that is hidden or slow. budget: milliseconds that it works before it
   looks for messages; later(f): call f after those. */
class Engine {
  constructor(send, budget, later) {
    Object.assign(this, {send, budget, later, trainer: null, job: null, owed: 0,
                         isRunning: false, isAwaited: false, isDue: false, run: 0,
                         isPlanned: false, told: 0});
  }

  receive(message) {
    if (message.settings) {
      this.trainer = new Trainer(message.settings, message.digits);
      Object.assign(this, {job: this.trainer.begin(), run: message.run, owed: 0,
                           isRunning: false, isAwaited: false});
    }
    if ("isRunning" in message) this.isRunning = message.isRunning;
    if (message.step) this.owed++;
    if (message.seen === this.run) this.isAwaited = false;
    this.plan();
  }

  plan() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    this.later(() => {
      this.isPlanned = false;
      this.work();
    });
  }

  /* The next thing to do, or null: a step, or a look at what single steps changed. */
  nextJob() {
    const {trainer} = this;
    const isWanted = this.isRunning || this.owed > 0;
    this.owed = Math.max(0, this.owed - 1);
    if (isWanted && !trainer.isLost) return trainer.step();
    return trainer.evaluatedAt < trainer.steps ? trainer.evaluate() : null;
  }

  work() {
    const stop = performance.now() + this.budget;
    while (performance.now() < stop) {
      this.job ||= this.nextJob();
      if (!this.job) break;
      if (!this.job.next().done) continue;
      this.job = null;                      // only now do all numbers belong together
      this.isDue = true;
      this.isRunning &&= !this.trainer.isLost;
      if (performance.now() > this.told + PAUSE) this.tell();
    }
    if (!this.job && !this.isRunning && !this.owed) this.tell();
    else this.plan();
  }

  tell() {
    if (!this.isDue || this.isAwaited) return;
    Object.assign(this, {told: performance.now(), isDue: false, isAwaited: true});
    this.send({...this.trainer.snapshot(), run: this.run, isRunning: this.isRunning});
  }
}

/* The engine as a worker, whose global object is `scope`. */
function serve(scope) {
  const {port1, port2} = new MessageChannel();
  let task = null;
  port1.onmessage = () => task();
  const engine = new Engine(message => scope.postMessage(message), 40, later => {
    task = later;
    port2.postMessage(null);              // sooner than any timer
  });
  scope.onmessage = event => engine.receive(event.data);
}
