"use strict";
/* The guided walk: six steps, each with one state of the nets and one thing to do. What
   it says is about what is shown: the first step tells any state in the nets' own
   answers, and is gone back to where no other step speaks of it. */

/* What the button of a step does: (app, walk) -> nothing. */
const ACTS = {
  open({app}) {
    const {state} = app;
    app.commit(isUntouched(state) ? parseAddress(CONTRAST, state.image).state
      : untouched(state.image));
  },

  /* Another one at each press, of those that are half open. */
  unit({app}) {
    const places = app.found.highway.gates.flatMap((T, l) =>
      [...T].map((T, unit) => ({kind: "highway", block: l + 1, unit, T})));
    const half = places.filter(({T}) => T > 0.3 && T < 0.9);
    app.select(half[Math.floor(half.length * Math.random())] || places[0]);
    $("readout").scrollIntoView({block: "nearest"});
  },

  image({app}) {
    const {kind, index} = app.state.image, each = TEST_LABELS.length / 10;
    const next = kind === "test" ? (index + each) % TEST_LABELS.length : START;
    app.commit({...app.state, image: testImage(next)});
    $("gates").scrollIntoView({block: "nearest"});
  },

  block({app, step}) {              // another one than now
    const any = 2 + Math.floor((DEPTH - 2) * Math.random());
    const block = any + (any >= firstClosed(app.state));
    step.accept({...untouched(app.state.image), closed: new Set([block])});
  },

  keep({app, step}) {
    const keep = app.state.keep < DEPTH ? Math.min(DEPTH, app.state.keep + 10) : 20;
    step.accept({...untouched(app.state.image), keep});
  },
};

class Walk {
  constructor(app) {
    this.app = app;
    this.steps = [...$("steps").children].map((item, i) => this.makeStep(item, i));
    this.at = 0;
    $("back").onclick = () => this.go(this.at - 1);
    $("next").onclick = () => this.go(this.at + 1);
    this.follow(app.state);
  }

  makeStep(item, i) {
    const {state} = parseAddress(item.dataset.state);
    const title = item.querySelector("h2").textContent;
    const dot = element("button", {type: "button", onclick: () => this.go(i),
      title, "aria-label": `Step ${i + 1}: ${title}`}, String(i + 1));
    $("dots").append(dot);
    const step = {item, dot, state, spoken: new Set([treatmentOf(state)])};
    step.accept = next => {             // a state that its text speaks of too
      step.spoken.add(treatmentOf(next));
      this.app.commit(next);
    };
    const button = item.querySelector("[data-act]");
    if (button) button.onclick = () => ACTS[button.dataset.act]({app: this.app, step});
    return step;
  }

  /* To a step, on the image that is there if it is the visitor's own. */
  go(i) {
    if (i < 0 || i >= this.steps.length) return;
    this.at = i;
    const {state} = this.steps[i], {image} = this.app.complete(this.app.state);
    const isOwn = image.kind === "drawn" && !isBlank(image);
    this.app.select({block: firstClosed(state)});
    this.app.commit(isOwn ? {...state, image} : state);
  }

  follow(state) {
    if (!this.steps[this.at].spoken.has(treatmentOf(state))) this.at = 0;
    this.steps.forEach(({item, dot}, i) => {
      item.classList.toggle("shown", i === this.at);
      dot.setAttribute("aria-current", i === this.at ? "step" : "false");
    });
    const next = this.steps[this.at + 1];
    $("next-title").textContent = next ? `: ${next.dot.title}` : "";
    disable("back", this.at === 0);
    disable("next", !next);
  }

  /* The first step, in the answers of the nets. */
  tell(found, state) {
    const item = this.steps[0].item, {title, text} = tellAnswers(found, state);
    item.querySelector("h2").textContent = title;
    $("contrast").textContent = `With ${tellTreatment(state)}, ${text}.`
      + (addressOf(state) === CONTRAST ? ` ${ALIKE}` : "");
    const closing = treatmentOf(this.steps[0].state).replace(" closed", "");
    item.querySelector("button").textContent = isUntouched(state) ? `Close ${closing}`
      : state.closed.size ? "Open them again" : "As they were trained";
  }
}

function tellTreatment(state) {
  if (isUntouched(state)) return `all ${DEPTH} blocks open`;
  const copies = state.closed.size === 1 ? "it only copies its"
    : "they only copy their";
  return treatmentOf(state).replace(/; /g, " and ")
    .replace(" closed", ` of ${DEPTH} closed, so that ${copies} input`);
}

/* Who reads the image rightly, and what the others say. */
function tellAnswers(found, state) {
  const {kind, index} = state.image;
  const label = kind === "test" ? TEST_LABELS[index] : null;
  const answers = KINDS.map(kind => [kind, largest(found[kind].forming[DEPTH])]);
  const right = answers.filter(([, digit]) => digit === label);
  const wrong = answers.filter(([, digit]) => digit !== label);
  const list = parts => parts.join(", ").replace(/, (?=[^,]*$)/, " and ");
  const text = list(wrong.map(([kind, digit]) => `the ${kind} net says ${digit}`));
  if (label === null) return {title: "What do the nets read?", text};
  if (!right.length) return {title: `No net reads the ${label}`, text};
  const names = list(right.map(([kind]) => kind));
  if (wrong.length) {
    return {title: right.length === 1 ? `Only the ${names} net still reads the ${label}`
      : `The ${names} nets still read the ${label}`, text};
  }
  return {title: `All three nets read the ${label}`, text: isUntouched(state)
    ? "even the plain net is right. Its initial weights follow Glorot’s rule and its "
      + "learning rate is low: then plain nets of this depth do learn"
    : "every net is still right"};
}
