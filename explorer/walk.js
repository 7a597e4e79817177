"use strict";
/* The guided walk: the six steps of the article, one at a time above the nets. Every
   link of the page that is an address of a state shows that state, on the image that is
   there unless it names one. */

class Walk {
  constructor(app) {
    this.app = app;
    this.steps = [...$("steps").children].map((item, i) => this.makeStep(item, i));
    this.at = 0;
    $("back").onclick = () => this.go(this.at - 1);
    $("next").onclick = () => this.go(this.at + 1);
    document.addEventListener("click", event => {
      const link = event.target.closest('a[href^="#"]');
      if (!link) return;
      event.preventDefault();
      app.commit(parseAddress(link.getAttribute("href"), app.state.image).state);
      if (link.closest(".read")) this.scroll();
    });
    this.follow(app.state);
  }

  makeStep(item, i) {
    const {state} = parseAddress(item.dataset.state);
    const text = element("div", {}, ...item.cloneNode(true).children);
    const title = item.querySelector("h3").textContent;
    $("walk-texts").append(text);
    const dot = element("button", {type: "button", onclick: () => this.go(i),
      title, "aria-label": `Step ${i + 1}: ${title}`}, String(i + 1));
    $("dots").append(dot);
    const result = element("span");
    const show = element("button", {type: "button", onclick: () => {
      this.go(i);
      this.scroll();
    }}, "Show it");
    item.append(element("p", {className: "live"}, show, result));
    return {state, text, dot, result};
  }

  scroll() {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    $("bench").scrollIntoView({behavior: isStill ? "auto" : "smooth"});
  }

  /* To a step, on the image it names; but a visitor's own drawing is not taken away. */
  go(i) {
    if (i < 0 || i >= this.steps.length) return;
    this.at = i;
    const {state} = this.steps[i], {image} = this.app.complete(this.app.state);
    const isOwn = image.kind === "drawn" && !isBlank(image);
    this.app.select(Math.min(...state.closed, DEPTH + 1) % (DEPTH + 1) || 1);
    this.app.commit(isOwn ? {...state, image} : state);
  }

  /* The text is about what is shown, or it is pale. Nets as trained are left where they
     are: two steps show them, and so does a reset on the way. */
  follow(state) {
    const fits = step => treatmentOf(step.state) === treatmentOf(state);
    const i = this.steps.findIndex(fits);
    if (i > 0 && !fits(this.steps[this.at])) this.at = i;
    document.querySelector(".walk").classList
      .toggle("away", !fits(this.steps[this.at]));
    this.mark();
  }

  mark() {
    this.steps.forEach(({text, dot}, i) => {
      text.classList.toggle("shown", i === this.at);
      if (i === this.at) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    disable("back", this.at === 0);
    disable("next", this.at === this.steps.length - 1);
  }

  /* Under each step of the article: the forty images in its state. */
  async tell(nets, means) {
    for (const {state, result} of this.steps) {
      const counts = [];
      for (const net of nets) {
        const run = new Run(net, TEST_LABELS.length);
        run.read(TEST_IMAGES);
        run.follow(planOf(net, state, means));
        while (!run.advance(performance.now() + 6)) await pause();
        await pause();
        counts.push(`${net.block} ${countRight(run.readings())}`);
      }
      result.textContent = `Of the ${TEST_LABELS.length} test images, read correctly: `
        + counts.join(", ");
    }
  }
}

const pause = () => new Promise(resolve => setTimeout(resolve, 30));
