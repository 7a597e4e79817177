"use strict";
/* The page's parts: made once, and drawn anew from what app.js has computed. */

const $ = id => document.getElementById(id);
const mean = values => values.reduce((a, b) => a + b) / values.length;
const percent = share => `${Math.round(100 * share)} %`;
const KINDS = ["highway", "residual", "plain"];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/* A disabled button would drop the focus; this one keeps it, and does nothing. */
const disable = (id, isIdle) => $(id).setAttribute("aria-disabled", isIdle);

class View {
  constructor() {
    this.theme = readTheme();
    this.drawn = new Map();             // canvas -> how to draw it again
    this.sizes = new Map();             // canvas -> its size; to ask costs a layout
    this.makeRuler();
    this.makeThumbs();
    this.answers = Object.fromEntries(KINDS.map(kind => [kind, this.makeAnswer(kind)]));
    for (const group of ["forming", "changes", "outputs"]) this.makeStrips(group);
    this.makeScales();
    const watch = new ResizeObserver(() => {
      this.sizes.clear();
      this.redraw();
    });
    watch.observe(document.body);
    document.querySelectorAll("#pad, .layers").forEach(part => watch.observe(part));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.theme = readTheme();
      this.redraw();
    });
  }

  makeRuler() {
    const mark = layer => layer % 10 === 0 || layer === 1 || layer === DEPTH
      ? [element("b", {}, String(layer))] : [];
    this.layers = Array.from({length: DEPTH}, (_, l) => element(
      "button", {type: "button", tabIndex: l ? -1 : 0, "aria-pressed": "false",
                 "aria-label": `Layer ${l + 1}`}, ...mark(l + 1)));
    $("ruler").append(element("span", {title: "the plain layer"}), ...this.layers);
  }

  makeThumbs() {
    this.thumbs = [];
    const each = TEST_LABELS.length / 10;
    for (let row = 0; row < each; row++) {
      for (let digit = 0; digit < 10; digit++) {
        const index = each * digit + row;
        const canvas = element("canvas", {width: 28, height: 28});
        const marks = element("span", {className: "marks"},
          ...KINDS.map(kind => element("i", {className: kind})));
        const thumb = element("button", {type: "button", className: "thumb",
          tabIndex: index ? -1 : 0, "aria-pressed": "false",
          "aria-label": `Test image ${row + 1} of the digit ${digit}`},
          canvas, marks);
        thumb.dataset.index = index;
        this.thumbs[index] = {thumb, canvas, marks: [...marks.children]};
        $("thumbs").append(thumb);
      }
    }
    this.drawThumbs();
  }

  drawThumbs() {
    this.thumbs.forEach(({canvas}, index) =>
      drawDigit(canvas.getContext("2d"), {x: 0, y: 0, width: 28, height: 28},
                testImage(index).pixels, this.theme));
  }

  makeAnswer(kind) {
    const verdict = element("span", {className: "verdict"});
    const right = element("b", {}, "–");
    const rows = Array.from({length: 10}, (_, digit) => {
      const bar = element("i"), share = element("span", {className: "share"});
      const label = element("span", {}, String(digit));
      return {bar, share, label};
    });
    const bars = element("div", {className: "bars", role: "img"},
      ...rows.map(({label, bar, share}) => element("div", {className: "row"},
        label, element("span", {className: "bar"}, bar), share)));
    const looks = {className: `answer ${kind}`, "aria-label": kind};
    $("answers").append(element("section", looks,
      element("span", {className: "name"}, kind), verdict,
      element("span", {className: "right"}, right,
              ` of ${TEST_LABELS.length}`, element("span", {}, " images right")),
      bars));
    return {verdict, right, rows, bars};
  }

  makeStrips(group) {
    for (const kind of KINDS) {
      const canvas = element("canvas", {className: "layers", role: "img",
                                        id: `${group}-${kind}`, "aria-label": kind});
      const strip = element("div", {className: `strip ${kind}`},
                            element("span", {className: "name"}, kind), canvas);
      if (group === "forming") {
        strip.append(element("span", {className: "digits", "aria-hidden": "true"},
          ...Array.from({length: 10}, (_, digit) =>
            element("span", {}, digit % 3 ? "" : String(digit)))));
      }
      $(group).append(strip);
    }
  }

  makeScales() {
    const bar = element("i");
    bar.style.background = `linear-gradient(to right, ${GATE_COLOURS.join(", ")})`;
    $("gate-scale").append("0", bar, "1");
    $("mean-scale").append("0", bar.cloneNode(), String(MOST_MEAN));
  }

  /* Draw a canvas now, and again whenever its size or the theme changes. */
  paint(canvas, draw) {
    this.drawn.set(canvas, draw);
    if (!this.sizes.has(canvas)) {
      const scale = window.devicePixelRatio || 1;
      const size = {width: Math.round(canvas.clientWidth * scale),
                    height: Math.round(canvas.clientHeight * scale)};
      Object.assign(canvas, size);
      this.sizes.set(canvas, size);
    }
    const {width, height} = this.sizes.get(canvas);
    if (width && height) draw(canvas.getContext("2d"), {x: 0, y: 0, width, height});
  }

  redraw() {
    this.drawThumbs();
    for (const [canvas, draw] of [...this.drawn]) this.paint(canvas, draw);
  }

  /* The image: the pad as it was drawn on, and what the nets see. */
  showImage(image) {
    if (image === this.image) return;
    this.image = image;
    const {kind, index, pixels, strokes} = image;
    this.paint($("pad"), (context, box) => {
      if (strokes && strokes.length) {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, box.width, box.height);
        context.setTransform(box.width, 0, 0, box.height, 0, 0);
        paintStrokes(context, strokes, 0.075, this.theme.ink);
        context.setTransform(1, 0, 0, 1, 0, 0);
      } else {
        drawDigit(context, box, pixels, this.theme);
      }
    });
    this.paint($("seen"), (context, box) =>
      drawDigit(context, box, pixels, this.theme));
    $("hint").textContent = this.tellImage(image);
    this.thumbs.forEach(({thumb}, i) => {
      thumb.setAttribute("aria-pressed", kind === "test" && i === index);
      if (kind === "test") thumb.tabIndex = i === index ? 0 : -1;
    });
  }

  /* What lies on the pad, and what a stroke would do to it. */
  tellImage(image) {
    const {kind, index, strokes} = image;
    if (isBlank(image)) {
      return "Now: blank paper; the nets answer all the same. "
        + "Draw with mouse, finger or pen.";
    }
    if (strokes && strokes.length) {
      return "Now: your own. Draw on with mouse, finger or pen.";
    }
    const name = {test: `a test image, ${TEST_LABELS[index]}`, noise: "noise",
                  drawn: "your own"}[kind];
    return `Now: ${name}. A stroke of mouse, finger or pen starts a new drawing.`;
  }

  /* What the runs of the three nets found for this image; `changed` names those nets
     for which there is anything new. */
  showLayers(found, changed, means, state) {
    const closed = layer => isClosed(state, layer);
    const paint = (id, draw) => this.paint($(id), draw);
    if (changed.includes("highway")) {
      const {gates} = found.highway;
      paint("gates", (context, box) =>
        drawGates(context, box, gates, 1, closed, this.theme));
      paint("means", (context, box) =>
        drawGates(context, box, means, MOST_MEAN, () => false, this.theme));
    }
    for (const kind of changed) {
      const {forming, changes, outputs} = found[kind];
      paint(`forming-${kind}`, (context, box) =>
        drawForming(context, box, forming, this.theme[`${kind}Scale`]));
      paint(`changes-${kind}`, (context, box) =>
        drawChanges(context, box, changes, closed, this.theme[kind], this.theme));
      paint(`outputs-${kind}`, (context, box) =>
        drawOutputs(context, box, outputs, kind === "residual" ? MOST_RESIDUAL : 1,
                    this.theme));
      this.showAnswer(kind, forming[DEPTH], state.image);
    }
    this.layers.forEach((button, l) => {
      button.setAttribute("aria-pressed", closed(l + 1));
    });
  }

  showAnswer(kind, answer, image) {
    const {verdict, rows} = this.answers[kind], winner = largest(answer);
    verdict.textContent = winner;
    verdict.classList.toggle("wrong",
      image.kind === "test" && winner !== TEST_LABELS[image.index]);
    rows.forEach(({bar, share, label}, digit) => {
      bar.style.setProperty("--share", answer[digit].toFixed(4));
      share.textContent = percent(answer[digit]);
      label.className = digit === winner ? "winner" : "";
      share.className = digit === winner ? "share winner" : "share";
    });
  }

  /* How many of the forty images each net reads correctly, and which. */
  showRight(readings) {
    KINDS.forEach((kind, k) => {
      const right = readings[kind].map((digit, i) => digit === TEST_LABELS[i]);
      this.answers[kind].right.textContent = countRight(readings[kind]);
      right.forEach((isRight, i) =>
        this.thumbs[i].marks[k].classList.toggle("right", isRight));
    });
  }

  /* The controls, as the state has them. */
  showTools(state, history) {
    $("keep").value = state.keep;
    $("keep-out").textContent = state.keep;
    $("shuffle").value = state.shuffle.distance;
    $("shuffle-out").textContent = state.shuffle.distance;
    $("again").disabled = !state.shuffle.distance;
    $("shift").value = state.shift;
    $("shift-out").textContent = state.shift ? signed(state.shift) : "0";
    $("shift").disabled = state.frozen;
    $("frozen").checked = state.frozen;
    for (const id of ["undo", "pad-undo"]) disable(id, history.at === 0);
    disable("redo", history.at === history.states.length - 1);
    disable("reset", treatmentOf(state) === "as trained");
  }

  /* One layer, or one unit of it, in words. */
  showLayer(layer, unit, found, means, state) {
    $("cursor").style.transform = `translateX(${100 * layer}%)`;
    const closed = layer > 0 && isClosed(state, layer);
    $("readout").textContent = unit === null ? this.tellLayer(layer, closed, found)
      : this.tellUnit(layer, unit, closed, found, means);
    $("toggle").textContent = !layer ? "Plain layer"
      : `${closed ? "Open" : "Close"} layer ${layer}`;
    $("toggle").disabled = !layer || layer > state.keep;
    this.layers.forEach((button, l) => {
      const index = l === Math.max(0, layer - 1) ? 0 : -1;
      if (button.tabIndex !== index) button.tabIndex = index;
      button.classList.toggle("selected", l === layer - 1);
    });
  }

  tellLayer(layer, closed, found) {
    const answers = KINDS.map(kind =>
      `${kind} ${largest(found[kind].forming[layer])}`).join(", ");
    const last = `If it were the last: ${answers}.`;
    if (!layer) return `The plain layer reads the pixels; it cannot be closed. ${last}`;
    if (closed) return `Layer ${layer} is closed: it copies its input. ${last}`;
    const [highway, residual, plain] = KINDS.map(kind =>
      percent(found[kind].changes[layer - 1]));
    const T = mean(found.highway.gates[layer - 1]).toFixed(2);
    return `Layer ${layer}: mean T ${T}; changes its input by ${highway} `
      + `(residual ${residual}, plain ${plain}). ${last}`;
  }

  tellUnit(layer, unit, closed, found, means) {
    const y = KINDS.map(kind => found[kind].outputs[layer][unit].toFixed(2));
    const outputs = `y is ${y[0]} (residual ${y[1]}, plain ${y[2]}).`
      .replace(/-/g, "−");
    const where = `Layer ${layer}, unit ${unit + 1}:`;
    if (!layer || closed) return `${where} ${layer ? "closed; " : ""}${outputs}`;
    const [now, average] = [found.highway.gates, means].map(T => T[layer - 1][unit]);
    return `${where} T is ${now.toFixed(2)} for this image, ${average.toFixed(2)} on `
      + `average; ${outputs}`;
  }

  /* For those who listen: once things are at rest. */
  speak(found, state, readings) {
    const name = (part, label) => part.setAttribute("aria-label", label);
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      const parts = KINDS.map(kind => {
        const answer = found[kind].forming[DEPTH], digit = largest(answer);
        const right = countRight(readings[kind]);
        name(this.answers[kind].bars,
             answer.map((share, d) => `${d}: ${percent(share)}`).join(", "));
        name($(`forming-${kind}`), `${kind}: the answer after each of ${DEPTH} layers, `
          + found[kind].forming.map(largest).join(" "));
        name($(`changes-${kind}`), `${kind}: how much each layer changes its input, `
          + found[kind].changes.map(percent).join(" "));
        name($(`outputs-${kind}`), `${kind}: outputs of ${UNITS} units after each layer`);
        return `${kind} reads ${digit}, ${percent(answer[digit])}, and ${right} of the `
          + `${readings[kind].length} test images correctly`;
      });
      const layers = found.highway.gates.map(T => mean(T).toFixed(2));
      name($("gates"), `Gates of ${DEPTH} layers for this image; means by layer: `
        + layers.join(" "));
      $("spoken").textContent = `${treatmentOf(state)}: ${parts.join("; ")}.`;
    }, 600);
  }

  notice(text) {
    clearTimeout(this.fading);
    $("notice").textContent = text;
    $("notice").classList.toggle("shown", Boolean(text));
    if (text) this.fading = setTimeout(() => this.notice(""), 8000);
  }
}
