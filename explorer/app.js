"use strict";
/* The first room at work: one state, three nets, and a frame that shows what they make
   of it. This image comes first; the forty follow in what is left of the frame, and in
   the next frames where that is not enough. */

const FRAME = 9;          // milliseconds of a frame's 16 in which we compute

class App {
  constructor(easel, state) {
    this.view = new View(easel);
    this.nets = KINDS.map(kind => new Net(kind, DEPTH, UNITS, PACKED_NETS[kind]));
    this.runs = this.nets.map(net => new Run(net, 1));
    this.crowds = this.nets.map(net => new Run(net, TEST_LABELS.length));
    this.crowds.forEach(run => run.read(TEST_IMAGES));
    this.place = {kind: null, block: firstClosed(state), unit: null};
    this.found = {};              // of each net, for this image
    this.history = new History(state);
    this.show(state);
    for (const touch of [touchPad, touchImages, touchBlocks, typeBlocks, touchTools]) {
      touch(this);
    }
    this.walk = new Walk(this);
  }

  /* A state that may be one of many in a gesture. */
  show(state) {
    this.state = state;
    this.isSelected = true;
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
    this.writing = setTimeout(() => this.write(), 250);
  }

  /* A drawing gets its pixels once a frame, not for each event of the pen. */
  complete(state) {
    if (state.image.pixels) return state;
    const {strokes} = state.image;
    return {...state, image: drawnImage(pixelsOfStrokes(strokes), strokes)};
  }

  move(step) {
    this.show(this.history.move(step));
    this.walk.follow(this.state);
    this.write();
  }

  write() {
    clearTimeout(this.writing);
    if (!$("nets-room").hidden) writeAddress(addressOf(this.state));
  }

  /* The block that is read about, and the unit where a panel of a net shows units. */
  select({kind = null, block, unit = null}) {
    const {place} = this;
    if (block === place.block && unit === place.unit && kind === place.kind) return;
    this.place = {kind, block, unit};
    this.isSelected = true;
    this.wake();
  }

  /* The means of the gates in the order in which the blocks stand. */
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
      this.draw();
      document.documentElement.classList.remove("waiting");     // it can be shown
      this.crowds.forEach(run => run.follow(planOf(run.net, this.state, MEANS)));
      this.isCounting = true;
    }
    if (this.isSelected) {
      this.isSelected = false;
      this.view.showBlock(this.place, this.runs, this.found, this.means(), this.state);
    }
    if (this.isCounting) this.count(start);
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
      this.changed.push(run.net.name);
      this.found[run.net.name] = {gates: run.gates, outputs: run.x,
                                  forming: run.forming()};
    }
    this.pixels = image.pixels;
  }

  draw() {
    this.view.showImage(this.state.image);
    this.view.showBlocks(this.found, this.changed, this.means(), this.state);
    this.view.showTools(this.state, this.history);
    this.walk.tell(this.found, this.state);
  }

  /* The forty images, as far as this frame allows. */
  count(start) {
    const until = Math.max(start + FRAME, performance.now() + 3);
    if (!this.crowds.every(run => run.advance(until))) {
      this.wake();
      return;
    }
    this.isCounting = false;
    this.readings = Object.fromEntries(
      this.crowds.map(run => [run.net.name, run.readings()]));
    this.view.showRight(this.readings);
    this.view.speak(this.found, this.state, this.readings);
  }
}
