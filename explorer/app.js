"use strict";
/* The page at work: one state, three nets, and a frame that shows what they make of it.
   This image comes first; the forty images follow in what is left of the frame, and in
   the next frames where that is not enough. */

const FRAME = 9;          // milliseconds of a frame's 16 in which we compute

class App {
  constructor() {
    this.view = new View();
    this.nets = KINDS.map(kind => new Net(kind, DEPTH, UNITS, PACKED_NETS[kind]));
    this.runs = this.nets.map(net => new Run(net, 1));
    this.crowds = this.nets.map(net => new Run(net, TEST_LABELS.length));
    this.crowds.forEach(run => run.read(TEST_IMAGES));
    Object.assign(this, {layer: 1, unit: null});
    this.found = {};              // of each net, for this image
    const {state, complaint} = parseAddress(location.hash);
    this.history = new History(state);
    this.show(state);
    this.view.notice(complaint);
    for (const touch of [touchPad, touchImages, typeImages, touchLayers,
                         typeLayers, touchTools]) {
      touch(this);
    }
    addEventListener("hashchange", () => this.readAddress());
    this.walk = new Walk(this);
    setTimeout(() => this.walk.tell(this.nets, MEANS), 500);
  }

  /* A state that may be one of many in a gesture. */
  show(state) {
    this.state = state;
    this.selected = true;
    this.wake();
  }

  /* A state that stays: it can be undone, and the address tells it. */
  commit(state) {
    this.show(this.complete(state));
    if (addressOf(this.state) !== addressOf(this.history.state)) {
      this.history.add(this.state);
    }
    this.view.showTools(this.state, this.history);    // no frame may come: it was shown
    this.walk.follow(this.state);
    clearTimeout(this.writing);
    this.writing = setTimeout(() => this.writeAddress(), 250);
  }

  /* A drawing gets its pixels once a frame, not for each event of the pen. */
  complete(state) {
    if (state.image.pixels) return state;
    const {strokes} = state.image;
    return {...state, image: drawnImage(pixelsOfStrokes(strokes), strokes)};
  }

  move(step) {
    this.commitQuietly(this.history.move(step));
  }

  commitQuietly(state) {
    this.show(state);
    this.walk.follow(state);
    this.writeAddress();
  }

  /* The layer that is read about, and the unit where a panel shows units. */
  select(layer, unit = null) {
    if (layer === this.layer && unit === this.unit) return;
    Object.assign(this, {layer, unit});
    this.selected = true;
    this.wake();
  }

  /* Whether all that can be shown of the state is: the forty images are counted too. */
  isSettled() {
    return this.state === this.shown && !this.counting;
  }

  writeAddress() {
    clearTimeout(this.writing);
    try {
      history.replaceState(null, "", addressOf(this.state));
    } catch {                   // browsers allow so many in so many seconds
      this.writing = setTimeout(() => this.writeAddress(), 5000);
    }
  }

  readAddress() {
    const {state, complaint} = parseAddress(location.hash);
    this.commit(state);
    this.view.notice(complaint);
  }

  /* The means of the gates in the order in which the layers stand. */
  means() {
    return orderOf(this.state.shuffle, DEPTH).map(source => MEANS[source]);
  }

  wake() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      this.frame(performance.now());
    });
  }

  frame(start) {
    if (this.state !== this.shown) {
      this.state = this.complete(this.state);
      this.shown = this.state;
      this.compute();
      const computed = performance.now();
      this.draw();
      document.documentElement.className = "";          // it can be shown
      this.spent = {compute: computed - start, draw: performance.now() - computed,
                    crowd: 0, frames: 0};
      this.counting = true;
    }
    if (this.selected) {
      this.selected = false;
      this.view.showLayer(this.layer, this.unit, this.found, this.means(), this.state);
    }
    if (this.counting) this.count(start);
  }

  /* This image through the three nets. */
  compute() {
    const {image} = this.state;
    this.changed = [];
    for (const run of this.runs) {
      if (image.pixels !== this.pixels) run.read(image.pixels);
      run.follow(planOf(run.net, this.state, MEANS));
      if (run.done === DEPTH) continue;
      run.advance();
      this.changed.push(run.net.block);
      this.found[run.net.block] = {gates: run.T, outputs: run.x, forming: run.forming(),
                                   changes: run.changes()};
    }
    this.pixels = image.pixels;
  }

  draw() {
    this.view.showImage(this.state.image);
    this.view.showLayers(this.found, this.changed, this.means(), this.state);
    this.view.showTools(this.state, this.history);
  }

  /* The forty images, as far as this frame allows. */
  count(start) {
    const began = performance.now(), until = Math.max(start + FRAME, began + 3);
    let ready = true;
    for (const run of this.crowds) {
      if (!this.spent.frames) run.follow(planOf(run.net, this.state, MEANS));
      ready = ready && run.advance(until);
    }
    this.spent.frames++;
    if (ready) {
      this.counting = false;
      this.readings = Object.fromEntries(
        this.crowds.map(run => [run.net.block, run.readings()]));
      this.view.showRight(this.readings);
      this.view.speak(this.found, this.state, this.readings);
    }
    this.spent.crowd += performance.now() - began;
    if (ready) this.tell(); else this.wake();
  }

  tell() {
    const {compute, draw, crowd, frames} = this.spent;
    const [image, paint, forty] = [compute, draw, crowd].map(time => time.toFixed(1));
    $("timing").textContent = `The last change took ${image} ms to compute for this `
      + `image, ${paint} ms to draw and ${forty} ms for the ${TEST_LABELS.length}, in `
      + `${frames} frame${frames > 1 ? "s" : ""}.`;
  }
}

/* For the console and the tests: the logits (B, 10) of images, 784 bytes each, for each
   net in the state that an address tells. */
function logitsOf(images, address) {
  const {state} = parseAddress(address);
  return Object.fromEntries(explorer.nets.map(net => {
    const run = new Run(net, images.length / 784);
    run.read(images);
    run.follow(planOf(net, state, MEANS));
    run.advance();
    return [net.block, Array.from(run.logits())];
  }));
}

const explorer = new App();
