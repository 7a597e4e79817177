"use strict";
/* The parts of the first room: made once, and drawn anew from what app.js computed. */

const FORMULAS = {
  highway: ["y = H·T + x·(1 − T)", ({x, H, T, y}) =>
    `y = H·T + x·(1 − T) = ${product(H, T)} + ${product(x, 1 - T)} = ${short(y)}`],
  residual: ["y = H + x", ({x, H, y}) =>
    `y = H + x = ${short(H)} + ${signless(x)} = ${short(y)}`],
  plain: ["y = H", ({H}) => `y = H = ${short(H)}`],
};
const signless = value => value < 0 ? `(${short(value)})` : short(value);
const product = (a, b) => `${signless(a)}·${short(b)}`;

class View {
  constructor(easel) {
    this.easel = easel;
    this.makeRuler();
    this.makeThumbs();
    this.answers = Object.fromEntries(KINDS.map(kind => [kind, this.makeAnswer(kind)]));
    for (const group of ["forming", "outputs"]) this.makeStrips(group);
    this.makeScales();
    for (const panel of [$("forming"), $("means").parentElement, $("outputs")]) {
      panel.append(element("div", {className: "axis", "aria-hidden": "true"},
        ...[1, 10, 20, 30, 40, DEPTH].map(block => element("span",
          {style: `grid-column: ${block + 1}`}, block > 1 ? block : "block 1"))));
    }
  }

  paint(id, draw) {
    this.easel.paint($(id), draw);
  }

  makeRuler() {
    this.blocks = Array.from({length: DEPTH}, (_, l) => element(
      "button", {type: "button", tabIndex: l ? -1 : 0, "aria-pressed": "false",
                 "aria-label": `Block ${l + 1}`},
      element("b", {}, String(l + 1))));
    $("ruler").append(element("span", {title: "the plain layer"}), ...this.blocks);
  }

  makeThumbs() {
    this.thumbs = [];
    const count = TEST_LABELS.length, each = count / CLASSES;
    for (let i = 0; i < count; i++) {           // a row has one image of each digit
      const digit = i % CLASSES, row = Math.floor(i / CLASSES);
      const index = each * digit + row, canvas = element("canvas");
      const marks = element("span", {className: "marks"},
        ...KINDS.map(kind => element("i", {className: kind})));
      const thumb = element("button", {type: "button", className: "thumb",
        tabIndex: index ? -1 : 0, "aria-pressed": "false",
        "aria-label": `Test image ${row + 1} of the digit ${digit}`}, canvas, marks);
      thumb.dataset.index = index;
      this.thumbs[index] = {thumb, marks: [...marks.children]};
      $("thumbs").append(thumb);
      this.easel.paint(canvas, (context, box, theme) =>
        drawDigit(context, box, testImage(index).pixels, theme));
    }
  }

  makeAnswer(kind) {
    const verdict = element("span", {className: "verdict"});
    const right = element("b", {}, "–");
    const rows = makeBars();
    const bars = element("div", {className: "bars", role: "img"},
                         ...rows.map(({row}) => row));
    $("answers").append(element("div", {className: `answer ${kind}`},
      element("span", {className: "name"}, kind), verdict,
      element("span", {className: "right"}, right,
              ` of ${TEST_LABELS.length}`, element("span", {}, " images right")),
      bars));
    return {verdict, right, rows, bars};
  }

  makeStrips(group) {
    for (const kind of KINDS) {
      const canvas = element("canvas", {className: "columns", role: "img",
                                        id: `${group}-${kind}`, "aria-label": kind});
      const strip = element("div", {className: `strip ${kind}`},
        element("span", {className: "name"}, kind,
                ...group === "forming" ? [element("i", {}, FORMULAS[kind][0])] : []),
        canvas);
      if (group === "forming") {
        strip.append(element("span", {className: "digits", "aria-hidden": "true"},
          ...Array.from({length: CLASSES}, (_, digit) =>
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

  /* The image: the pad as it was drawn on, and what the nets see. */
  showImage(image) {
    if (image === this.image) return;
    this.image = image;
    const {kind, index, pixels, strokes} = image;
    this.paint("pad", (context, box, theme) => {
      if (strokes && strokes.length) {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, box.width, box.height);
        context.setTransform(box.width, 0, 0, box.height, 0, 0);
        paintStrokes(context, strokes, 0.075, theme.text);
        context.setTransform(1, 0, 0, 1, 0, 0);
      } else {
        drawDigit(context, box, pixels, theme);
      }
    });
    this.paint("seen", (context, box, theme) => drawDigit(context, box, pixels, theme));
    const name = strokes && strokes.length ? "your own" : isBlank(image) ? "blank paper"
      : kind === "test" ? `a test image, ${TEST_LABELS[index]}` : "your own";
    $("hint").textContent = `Now: ${name}. Draw here with mouse, finger or pen.`;
    this.thumbs.forEach(({thumb}, i) => {
      thumb.setAttribute("aria-pressed", kind === "test" && i === index);
      if (kind === "test") thumb.tabIndex = i === index ? 0 : -1;
    });
  }

  /* What the runs of the three nets found for this image; `changed` names those nets
     for which there is anything new. */
  showBlocks(found, changed, means, state) {
    const closed = block => isClosed(state, block);
    if (changed.includes("highway")) {
      const {gates} = found.highway;
      this.paint("gates", (context, box, theme) =>
        drawGates(context, box, gates, 1, closed, theme));
      this.paint("means", (context, box, theme) =>
        drawGates(context, box, means, MOST_MEAN, () => false, theme));
    }
    for (const kind of changed) {
      const {forming, outputs} = found[kind];
      this.paint(`forming-${kind}`, (context, box, theme) =>
        drawForming(context, box, forming, closed, theme[`${kind}Scale`], theme));
      this.paint(`outputs-${kind}`, (context, box, theme) =>
        drawOutputs(context, box, outputs, kind === "residual" ? MOST_RESIDUAL : 1,
                    theme));
      this.showAnswer(kind, forming[DEPTH], state.image);
    }
    this.blocks.forEach((button, l) => {
      button.setAttribute("aria-pressed", closed(l + 1));
    });
  }

  showAnswer(kind, answer, image) {
    const {verdict, rows} = this.answers[kind], winner = largest(answer);
    verdict.textContent = winner;
    verdict.classList.toggle("wrong",
      image.kind === "test" && winner !== TEST_LABELS[image.index]);
    showBars(rows, answer);
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
    $("keep").value = $("keep-out").textContent = state.keep;
    $("stages").value = $("stages-out").textContent = state.stages;
    $("shuffle").value = $("shuffle-out").textContent = state.shuffle.distance;
    $("frozen").checked = state.frozen;
    for (const id of ["undo", "pad-undo"]) disable(id, history.at === 0);
    disable("redo", history.at === history.states.length - 1);
    disable("reset", isUntouched(state));
  }

  /* One block in words, or one unit of it with its formula. */
  showBlock(place, runs, found, means, state) {
    const {block} = place;
    for (const cursor of document.querySelectorAll(".cursor")) {
      cursor.style.transform = `translateX(${100 * block}%)`;
    }
    const closed = block > 0 && isClosed(state, block);
    $("readout").textContent = block && place.unit !== null
      ? this.tellUnit(place, closed, runs, means)
      : this.tellBlock(block, closed, found);
    $("toggle").textContent = !block ? "Plain layer"
      : `${closed ? "Open" : "Close"} block ${block}`;
    $("toggle").disabled = !block || block > state.keep;
    this.blocks.forEach((button, l) => {
      const index = l === Math.max(0, block - 1) ? 0 : -1;
      if (button.tabIndex !== index) button.tabIndex = index;
      button.classList.toggle("selected", l === block - 1);
    });
    this.bringIntoView(this.blocks[Math.max(0, block - 1)]);
  }

  /* On a phone the row of blocks is longer than the screen is wide. */
  bringIntoView(button) {
    const ruler = $("ruler");
    if (ruler.scrollWidth <= ruler.clientWidth) return;
    const left = button.offsetLeft - ruler.offsetLeft;
    if (left < ruler.scrollLeft
        || left + button.offsetWidth > ruler.scrollLeft + ruler.clientWidth) {
      ruler.scrollLeft = left - 24;
    }
  }

  tellBlock(block, closed, found) {
    const answers = KINDS.map(kind =>
      `${kind} ${largest(found[kind].forming[block])}`).join(", ");
    const last = `If it were the last: ${answers}.`;
    if (!block) return `The plain layer reads the pixels; it cannot be closed. ${last}`;
    if (closed) return `Block ${block} is closed: it copies its input. ${last}`;
    const T = short(mean(found.highway.gates[block - 1]));
    return `Block ${block}: mean T ${T} in the highway net. ${last}`;
  }

  tellUnit({kind, block, unit}, closed, runs, means) {
    const run = runs.find(run => run.net.name === kind);
    const where = `${kind}, block ${block}, unit ${unit + 1}:`;
    const numbers = run.unit(block, unit);
    if (closed) return `${where} closed, so y = x = ${short(numbers.y)}`;
    const {x, H, T} = numbers;
    const parts = [`x = ${short(x)}`, `H = ${short(H)}`];
    if (run.net.kind.atT) {
      parts.push(`T = ${short(T)} (on average ${short(means[block - 1][unit])})`);
    }
    return `${where} ${parts.join(", ")}\n${FORMULAS[kind][1](numbers)}`;
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
        name($(`forming-${kind}`), `${kind}: the answer after each of ${DEPTH} blocks, `
          + found[kind].forming.map(largest).join(" "));
        name($(`outputs-${kind}`), `${kind}: outputs of ${UNITS} units, by block`);
        return `${kind} reads ${digit}, ${percent(answer[digit])}, and ${right} of the `
          + `${readings[kind].length} test images correctly`;
      });
      const blocks = found.highway.gates.map(T => mean(T).toFixed(2));
      name($("gates"), `Gates of ${DEPTH} blocks for this image; means by block: `
        + blocks.join(" "));
      $("spoken").textContent = `${treatmentOf(state)}: ${parts.join("; ")}.`;
    }, 600);
  }
}

/* Ten bars over their digits, and what they show. */
function makeBars() {
  return Array.from({length: CLASSES}, (_, digit) => {
    const bar = element("i"), label = element("span", {}, String(digit));
    const row = element("div", {}, element("span", {className: "bar"}, bar), label);
    return {row, bar, label};
  });
}

function showBars(rows, answer) {
  const winner = largest(answer);
  rows.forEach(({bar, label}, digit) => {
    bar.style.setProperty("--share", answer[digit].toFixed(4));
    label.className = digit === winner ? "winner" : "";
  });
}
