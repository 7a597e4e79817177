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
      if (link.closest(".read")) $("bench").scrollIntoView({behavior: "smooth"});
    });
    this.mark();
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
      $("bench").scrollIntoView({behavior: "smooth"});
    }}, "Show it");
    item.append(element("p", {className: "live"}, show, result));
    return {state, text, dot, result};
  }

  go(i) {
    if (i < 0 || i >= this.steps.length) return;
    this.at = i;
    this.mark();
    const {state} = this.steps[i];
    this.app.select(Math.min(...state.closed, DEPTH + 1) % (DEPTH + 1) || 1);
    this.app.commit(state);
  }

  mark() {
    this.steps.forEach(({text, dot}, i) => {
      text.classList.toggle("shown", i === this.at);
      if (i === this.at) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    $("back").disabled = this.at === 0;
    $("next").disabled = this.at === this.steps.length - 1;
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
