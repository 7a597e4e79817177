"use strict";
/* The second room: settings, two nets in training, and what is seen of them. */

const NAMES = {
  highway: "highway: y = H·T + x·(1 − T)", plain: "plain: y = H",
  residual: "residual: y = H + x", scaled: "scaled residual: y = H/√L + x",
  t_only: "T only: y = H·T + x", c_only: "C only: y = H + x·C",
  full: "both gates: y = H·T + x·C",
};

const ARMS = ["first", "second"];
const net = (kind, gateBias = "auto") => ({kind, gateBias});
const deep = {depth: 100}, slow = {rate: 0.0005}, glorot = {init: "glorot"};
/* Each names, in its button, all that differs from the first; `differences` says it
   again below the text. */
const PRESETS = [
  {name: "30 plain blocks guess", change: {},
   text: "Each plain block shrinks signal and gradient; gates let both pass. For a "
     + "plain net this deep the weights are too small, and the rate is too high."},
  {name: "Lower rate", change: slow,
   text: "The weights are still small. The plain net hardly does better than by "
     + "guessing."},
  {name: "Glorot’s weights", change: glorot,
   text: "These weights are larger: signal and gradient pass at first. But at this "
     + "rate the plain net guesses all the same."},
  {name: "Glorot’s weights, lower rate", change: {...glorot, ...slow},
   text: "Both changes together. Now the plain net learns, too."},
  {name: "Glorot’s weights, lower rate, 100 blocks",
   change: {...glorot, ...slow, ...deep},
   text: "Glorot’s weights keep the signal’s length, but only on average. A hundred "
     + "matrices flatten nearly all its directions, and the plain net guesses."},
  {name: "Orthogonal weights, lower rate, 100 blocks",
   change: {...deep, ...slow, init: "orthogonal"},
   text: "These weights keep the length in every direction. Signal and gradient pass a "
     + "hundred plain blocks, and the plain net learns."},
  {name: "100 blocks, right net with half-open gates",
   change: {...deep, second: net("highway", 0)},
   text: "The gates of the left net start nearly shut, with S = 1. Those of the right "
     + "start half open: each block halves its input, and in the end nothing is left."},
  {name: "100 blocks, residual nets",
   change: {...deep, first: net("residual"), second: net("scaled")},
   text: "Without gates, x alone carries the gradient. In the right net H is divided "
     + "by √L. So the signal stays in bounds, and this net learns faster."},
];

/* What of a state is not as in the first preset, in words. */
const TOLD = {depth: "blocks", units: "units of a block", init: "initial weights",
              activation: "activation", rate: "learning rate", first: "left net",
              second: "right net"};

function differences(state) {
  const told = value => !value.kind ? String(value) : NAMES[value.kind].split(":")[0]
    + (hasGate(value.kind) ? ` with b_T ${value.gateBias}` : "");
  return Object.keys(TOLD).filter(name => told(state[name]) !== told(UNTOUCHED[name]))
    .map(name => `${TOLD[name]} ${told(state[name])}, not ${told(UNTOUCHED[name])}`)
    .join("; ");
}

const OWN = {name: "Your own settings",
             text: "Every change starts a new run. Both nets see the same batches."};

const DECADES = [["1", 0], ["10⁻³", -3], ["10⁻⁶", -6], ["10⁻⁹", -9]]
  .map(([label, power]) => ({label, at: 10 ** power}));

class Playground {
  constructor(easel, state) {
    Object.assign(this, {easel, run: 0, shown: null, isRunning: false});
    this.makePresets();
    this.arms = [0, 1].map(i => this.makeArm(i));
    this.makeDigits();
    this.listen();
    this.connect();
    this.open(state);
  }

  /* A worker made of the page's own text, where the browser allows one; else slices. */
  connect() {
    try {
      const source = new Blob([$("arithmetic").textContent, "\nserve(self);"],
                              {type: "text/javascript"});
      const address = URL.createObjectURL(source), worker = new Worker(address);
      this.post = message => worker.postMessage(message);
      worker.onmessage = event => this.take(event.data);
      worker.onerror = () => {
        worker.terminate();
        this.slice();
        this.begin();
      };
    } catch {
      this.slice();
    }
  }

  slice() {
    const engine = new Engine(message => this.take(message), 8, go => setTimeout(go));
    this.post = message => engine.receive(message);
  }

  /* The nets from their beginning. */
  begin() {
    this.run++;
    this.shown = null;
    const arms = ARMS.map(name => this.state[name]);
    this.post({settings: {...this.state, arms}, digits: DIGITS, run: this.run});
    if (this.isRunning) this.post({isRunning: true});
    this.tellState();
  }

  drive(isRunning) {
    this.isRunning = isRunning;
    this.post({isRunning});
    this.tellState();
  }

  take(snapshot) {
    if (snapshot.run !== this.run) return;
    this.shown = snapshot;
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.shown) this.draw(this.shown);
      this.post({seen: this.run});
    });
  }

  /* As an address says. */
  open(state) {
    this.state = state;
    document.documentElement.classList.remove("waiting");
    this.begin();
  }

  set(change, isSoon = false) {
    this.state = {...this.state, ...change};
    if (isSoon) this.isRunning = true;
    writeAddress(trainingAddress(this.state));
    this.begin();
  }

  setArm(i, change) {
    this.set({[ARMS[i]]: {...this.state[ARMS[i]], ...change}});
  }

  preset() {
    const told = state => trainingAddress({...UNTOUCHED, ...state, seed: 1, digit: 0});
    return PRESETS.find(({change}) => told(change) === told(this.state));
  }

  // Parts, made once

  makePresets() {
    $("presets").append(...PRESETS.map(preset => preset.button = element("button",
      {type: "button", onclick: () => this.set({...UNTOUCHED, digit: this.state.digit,
                                                ...preset.change}, true)},
      preset.name)));
  }

  makeArm(i) {
    const id = name => `${name}-${i}`;
    const canvas = (name, label) => element("canvas",
      {id: id(name), role: "img", "aria-label": label});
    const kind = element("select", {id: id("kind"), "aria-label": "Kind of its blocks",
                                    onchange: () => this.setArm(i, {kind: kind.value})},
      ...Object.keys(NAMES).map(value => element("option", {value}, NAMES[value])));
    const bias = element("input", {type: "range", id: id("bias"), min: BIASES[0],
                                   max: BIASES[1], step: BIASES[2]});
    const auto = element("input", {type: "checkbox", id: id("auto")});
    const told = element("output");
    bias.oninput = () => { told.textContent = signless(Number(bias.value)); };
    bias.onchange = () => this.setArm(i, {gateBias: Number(bias.value)});
    auto.onchange = () => this.setArm(i, {
      gateBias: auto.checked ? "auto" : Math.max(-8, Math.round(
        4 * biasOf("auto", this.state.depth)) / 4)});
    const aside = () => element("span", {className: "aside"});
    const accuracy = element("b", {}, "–"), status = aside(), start = aside();
    const gate = element("div", {className: "tool gate"},
      element("label", {htmlFor: id("bias")},
              element("i", {}, "b", element("sub", {}, "T")), " ", told),
      element("span", {className: "with-button"}, bias,
              element("label", {}, auto, " auto")));
    const rows = makeBars();
    const bars = element("div", {className: "bars", role: "img"},
                         ...rows.map(row => row.row));
    const verdict = element("span", {className: "verdict"});
    $(`arm-${i}`).append(
      element("div", {className: "arm-head name"}, kind),
      element("div", {className: "arm-line"},
              element("p", {className: "arm-score"}, accuracy, status), gate),
      element("h3", {}, "The gradient’s norm, block by block"),
      canvas("norms", "The norm of the weights' gradient in each block"),
      element("h3", {}, "Mean ", element("i", {}, "T"), ", block by block", start),
      canvas("gates", "Mean T of each block"),
      element("h3", {}, "Its answer to this digit"),
      element("div", {className: "arm-answer"}, bars, verdict));
    return {kind, bias, auto, told, start, accuracy, status, gate, rows, bars, verdict};
  }

  /* One test digit of each class; the chosen one stands for its class. */
  makeDigits() {
    const first = digit => DIGITS.test.labels.indexOf(digit);
    this.choices = Array.from({length: CLASSES}, (_, digit) => ({index: first(digit)}));
    $("test-digits").append(...this.choices.map((choice, digit) => {
      choice.canvas = element("canvas");
      choice.button = element("button",
        {type: "button", className: "thumb", tabIndex: digit ? -1 : 0,
         "aria-label": `A test digit, ${digit}`,
         onclick: () => this.choose(choice.index)},
        choice.canvas);
      return choice.button;
    }));
    typeToolbar($("test-digits"), CLASSES);
  }

  choose(digit) {
    this.state = {...this.state, digit};
    writeAddress(trainingAddress(this.state));
    this.showDigits();
    if (this.shown) this.shown.arms.forEach((arm, i) => this.showAnswer(i, arm));
  }

  listen() {
    $("start").onclick = () => this.drive(!this.isRunning);
    $("one").onclick = () => {
      if (this.isRunning) this.drive(false);
      this.post({step: true});
    };
    $("restart").onclick = () => {
      this.isRunning = false;
      this.begin();
    };
    $("reseed").onclick = () => this.set({seed: 1 + this.state.seed % SEEDS});
    const slider = (id, read) => {
      $(id).oninput = () => { $(`${id}-out`).textContent = read(Number($(id).value)); };
      $(id).onchange = () => this.set({[id]: read(Number($(id).value))});
    };
    slider("depth", Number);
    slider("units", Number);
    slider("rate", index => RATES[index]);
    for (const id of ["init", "activation"]) {
      $(id).onchange = () => this.set({[id]: $(id).value});
    }
    document.addEventListener("visibilitychange", () =>
      notice(this.mind(document.hidden || $("train-room").hidden)));
  }

  /* A page that nobody sees does not train; it goes on where it stopped, as it says. */
  mind(isAway) {
    if (!this.isRunning || isAway === Boolean(this.isAway)) return "";
    this.isAway = isAway;
    this.post({isRunning: !isAway});
    return isAway ? "" : "The training goes on where it stopped.";
  }

  // What is seen

  /* The controls, as the state has them. */
  tellState() {
    const {state} = this, preset = this.preset();
    $("story-title").textContent = (preset || OWN).name;
    $("story").textContent = (preset || OWN).text;
    const list = differences(state);
    $("changed").textContent = list ? `Not as in the first button: ${list}.`
      : "The other buttons change what they name, and nothing else.";
    for (const {button, ...rest} of PRESETS) {
      button.setAttribute("aria-pressed", Boolean(preset) && rest.name === preset.name);
    }
    for (const id of ["depth", "units"]) {
      $(id).value = state[id];
      $(`${id}-out`).textContent = state[id];
    }
    $("rate").value = RATES.indexOf(state.rate);
    $("rate-out").textContent = state.rate;
    $("init").value = state.init;
    $("activation").value = state.activation;
    ARMS.forEach((name, i) => {
      const {kind, gateBias} = state[name];
      const part = this.arms[i], bias = biasOf(gateBias, state.depth);
      part.kind.value = kind;
      part.gate.classList.toggle("absent", !hasGate(kind));
      part.bias.value = bias;
      part.bias.disabled = part.auto.checked = gateBias === "auto";
      part.told.textContent = short(bias);
      part.start.textContent = FAMILY[kind].T === "learned"
        ? `their sum: S = ${short(state.depth * sigmoid(bias))} at first` : "";
    });
    $("start").textContent = this.isRunning ? "Pause"
      : this.shown && this.shown.steps ? "Go on" : "Start";
    this.showDigits();
  }

  showDigits() {
    const {pixels, labels} = DIGITS.test, {digit} = this.state;
    this.choices[labels[digit]].index = digit;
    this.choices.forEach(({index, canvas, button}) => {
      button.setAttribute("aria-pressed", index === digit);
      this.easel.paint(canvas, (context, box, theme) => drawDigit(context, box,
        pixels.subarray(PIXELS * index, PIXELS * (index + 1)), theme, DARKEST));
    });
  }

  draw({steps, batches, arms, isRunning}) {
    if (this.isRunning && !isRunning && !this.isAway && arms.every(arm => arm.lost)) {
      this.drive(false);
    }
    arms.forEach((arm, i) => this.showArm(i, arm));
    const colours = theme => [theme.highway, theme.plain];
    const last = Math.max(steps, 10 * EVERY);
    const curves = (name, theme) => arms.map((arm, i) =>
      ({points: arm[name], colour: colours(theme)[i]}));
    this.easel.paint($("accuracy"), (context, box, theme) =>
      drawCurves(context, box, curves("accuracies", theme), last, {low: 0, high: 1.1,
        lines: [{at: 0.1, label: "guess"}, {at: 0.5, label: "50 %"},
                {at: 0.9, label: "90 %"}]}, theme));
    this.easel.paint($("loss"), (context, box, theme) =>
      drawCurves(context, box, curves("losses", theme), last, {low: 0, high: 3.2,
        lines: [{at: 1, label: "1"}, {at: Math.LN10, label: "guess"}]}, theme));
    $("pace").textContent = `Step ${steps}, pass ${Math.floor(steps / batches) + 1}.`;
    if (!this.isRunning) {
      $("start").textContent = steps ? "Go on" : "Start";
      this.speak(steps);
    }
  }

  showArm(i, arm) {
    const part = this.arms[i], {norms, meanT, lost, loss, accuracy} = arm;
    const colour = theme => [theme.highway, theme.plain][i];
    part.accuracy.textContent = Number.isFinite(accuracy) ? percent(accuracy) : "–";
    part.status.textContent = lost ? `diverged at step ${lost}`
      : `right, loss ${short(loss)}`;
    this.easel.paint($(`norms-${i}`), (context, box, theme) =>
      drawBars(context, box, norms, colour(theme), theme,
               {low: 1e-12, high: 100, lines: DECADES}));
    const values = meanT || [], highest = Math.max(...values);
    const top = [0.02, 0.05, 0.1, 0.2, 0.5].find(top => top >= highest) || 1;
    this.easel.paint($(`gates-${i}`), (context, box, theme) =>
      drawBars(context, box, values, colour(theme), theme, {low: 0, high: 1.4 * top,
        lines: meanT ? [{at: top / 2, label: top / 2}, {at: top, label: top}]
          : [{at: 0, label: "none"}], isEven: true}));
    $(`norms-${i}`).setAttribute("aria-label",
      `The norm of the gradient in each block: ${[...norms].map(short).join(" ")}`);
    $(`gates-${i}`).setAttribute("aria-label", meanT
      ? `Mean T of each block: ${[...meanT].map(short).join(" ")}` : "It learns no T");
    this.showAnswer(i, arm);
  }

  showAnswer(i, {answers}) {
    const {rows, verdict, bars} = this.arms[i], {digit} = this.state;
    const answer = Array.from(answers.subarray(CLASSES * digit, CLASSES * (digit + 1)));
    const winner = largest(answer);
    showBars(rows, answer);
    verdict.textContent = winner;
    verdict.classList.toggle("wrong", winner !== DIGITS.test.labels[digit]);
    bars.setAttribute("aria-label",
      answer.map((share, d) => `${d}: ${percent(share)}`).join(", "));
  }

  /* For those who listen, when it stands still. */
  speak(steps) {
    const told = this.arms.map(({accuracy, status}, i) =>
      `${this.state[ARMS[i]].kind} ${accuracy.textContent} ${status.textContent}`);
    $("spoken").textContent = `Step ${steps}: ${told.join("; ")}.`;
  }
}
