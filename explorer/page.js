"use strict";
/* What both rooms share of the page: its elements, its canvases, its notice. */

const $ = id => document.getElementById(id);
const mean = values => values.reduce((a, b) => a + b) / values.length;
const percent = share => `${Math.round(100 * share)} %`;

/* A number in few signs: 0.42, −1.3, 2·10⁻⁷. */
function short(value) {
  if (!Number.isFinite(value)) return "no number";
  const size = Math.abs(value);
  if (size && (size < 0.00095 || size >= 10000)) {
    const [digits, power] = value.toExponential(0).replace("+", "").split("e");
    const raised = power.replace(/./g, sign => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] || "⁻");
    return `${digits}·10${raised}`.replace("-", "−");
  }
  return value.toFixed(!size || size >= 10 ? 0 : size < 0.1 ? 3 : 2).replace("-", "−");
}

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

function notice(text) {
  clearTimeout(notice.fading);
  $("notice").textContent = text;
  $("notice").classList.toggle("shown", Boolean(text));
  if (text) notice.fading = setTimeout(() => notice(""), 8000);
}

/* The address of the page; isNew: as a step that "back" undoes. Browsers allow so many
   changes in so many seconds, and within another page perhaps none. There a bare "#..."
   would be a place in that other page. */
function writeAddress(address, isNew = false) {
  try {
    const whole = location.href.split("#")[0] + address;
    history[isNew ? "pushState" : "replaceState"](null, "", whole);
  } catch { /* then the page goes on without one */ }
}

/* Canvases: each is drawn anew whenever its size or the theme changes. */
class Easel {
  constructor() {
    this.theme = readTheme();
    this.drawn = new Map();             // canvas -> how to draw it again
    this.sizes = new Map();             // canvas -> its size; to ask costs a layout
    this.watch = new ResizeObserver(() => {
      this.sizes.clear();
      this.redraw();
    });
    this.watch.observe(document.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.theme = readTheme();
      this.redraw();
    });
  }

  paint(canvas, draw) {
    if (!this.drawn.has(canvas)) this.watch.observe(canvas);
    this.drawn.set(canvas, draw);
    if (!this.sizes.has(canvas)) {
      const scale = window.devicePixelRatio || 1;
      const size = {width: Math.round(canvas.clientWidth * scale),
                    height: Math.round(canvas.clientHeight * scale)};
      Object.assign(canvas, size);
      this.sizes.set(canvas, size);
    }
    const {width, height} = this.sizes.get(canvas);
    if (width && height) {
      draw(canvas.getContext("2d"), {x: 0, y: 0, width, height}, this.theme);
    }
  }

  redraw() {
    for (const [canvas, draw] of [...this.drawn]) this.paint(canvas, draw);
  }
}
