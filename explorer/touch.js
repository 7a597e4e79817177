"use strict";
/* Hands on the page: pad, blocks, controls. Each calls app.show(state) while a gesture
   goes on and app.commit(state) when it ends. */

function touchPad(app) {
  const pad = $("pad");
  let strokes = null, before = null;
  const point = event => {
    const box = pad.getBoundingClientRect();
    return [within((event.clientX - box.left) / box.width),
            within((event.clientY - box.top) / box.height)];
  };
  const draw = () =>
    app.show({...app.state, image: {kind: "drawn", strokes: [...strokes]}});
  pad.addEventListener("pointerdown", event => {
    if (event.button || strokes) return;
    event.preventDefault();
    pad.setPointerCapture(event.pointerId);
    before = app.state;
    const own = before.image.kind === "drawn" && before.image.strokes;
    strokes = [...(own || []), [point(event)]];
    draw();
  });
  pad.addEventListener("pointermove", event => {
    if (!strokes || !pad.hasPointerCapture(event.pointerId)) return;
    const events = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
    const last = strokes.length - 1;
    const points = (events.length ? events : [event]).map(point);
    strokes[last] = [...strokes[last], ...points];
    draw();
  });
  pad.onpointerup = pad.onpointercancel = event => {
    if (!strokes || !pad.hasPointerCapture(event.pointerId)) return;
    strokes = null;
    if (event.type === "pointerup") app.commit(app.state);
    else app.show(before);
  };
  for (const name of ["touchstart", "touchmove"]) {       // a stroke is no gesture
    pad.addEventListener(name, event => event.preventDefault(), {passive: false});
  }
}

function touchImages(app) {
  const image = made => app.commit({...app.state, image: made});
  typeToolbar($("thumbs"), 10);
  $("blank").onclick = () => image(blankImage());
  $("thumbs").onclick = event => {
    const thumb = event.target.closest(".thumb");
    if (thumb) image(testImage(Number(thumb.dataset.index)));
  };
}

/* A toolbar by keyboard: arrows move among its buttons, in rows of so many. */
function typeToolbar(bar, wide) {
  const buttons = () => [...bar.children];
  bar.addEventListener("focusin", event => {
    for (const button of buttons()) button.tabIndex = button === event.target ? 0 : -1;
  });
  bar.addEventListener("keydown", event => {
    const all = buttons(), at = all.indexOf(event.target);
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - wide,
                ArrowDown: at + wide, Home: 0, End: all.length - 1}[event.key];
    if (to === undefined || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    if (all[to]) all[to].focus();
  });
}

/* What lies beyond the blocks that are kept is closed already, and a line says so. */
function isKept(app, block) {
  const {keep} = app.state;
  if (block > keep) notice(`Kept: ${onlyFirst(keep)}.`);
  return block <= keep;
}

const withBlock = (state, block, close) => {
  const closed = new Set(state.closed);
  if (close) closed.add(block); else closed.delete(block);
  return {...state, closed};
};

/* Which column of an area with blocks lies under a pointer, and which unit: the area's
   net and row, where it has a row for each. */
function placeAt(area, event) {
  const box = area.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * COLUMNS);
  const row = Math.floor((event.clientY - box.top) / box.height * UNITS);
  const kind = area.id.match(/^outputs-(.*)/)?.[1]
    || (["gates", "means"].includes(area.id) ? "highway" : null);
  return {block: within(column, 0, DEPTH), kind,
          unit: kind ? within(row, 0, UNITS - 1) : null};
}

/* All panels with blocks as columns: point at one to read about it, press to close it
   or to open it, drag to do so with a range. A finger points with a tap and closes with
   a drag; on the row of blocks its taps arrive as clicks. */
function touchBlocks(app) {
  let drag = null;
  const apply = end => {
    const block = Math.min(end, drag.before.keep);
    let state = drag.before;
    const [from, to] = [Math.min(drag.from, block), Math.max(drag.from, block)];
    for (let l = Math.max(1, from); l <= to; l++) {
      state = withBlock(state, l, drag.close);
    }
    drag.isApplied = true;
    app.show(state);
    app.select({block});
  };
  for (const area of document.querySelectorAll(".columns")) {
    area.addEventListener("pointerdown", event => {
      const isTouch = event.pointerType === "touch";
      if (event.button || drag || (isTouch && area.id === "ruler")) return;
      const place = placeAt(area, event), {block} = place;
      app.select(place);
      if (!block || !isKept(app, block)) return;
      area.setPointerCapture(event.pointerId);
      drag = {before: app.state, from: block, close: !app.state.closed.has(block)};
      if (!isTouch) apply(block);
    });
    area.addEventListener("pointermove", event => {
      const place = placeAt(area, event);
      if (drag && area.hasPointerCapture(event.pointerId)) {
        if (drag.isApplied || place.block !== drag.from) apply(place.block);
      } else if (!drag && event.pointerType !== "touch") {
        app.select(place);
      }
    });
    area.onpointerup = area.onpointercancel = event => {
      if (!drag || !area.hasPointerCapture(event.pointerId)) return;
      if (event.type === "pointercancel") app.show(drag.before);
      else if (drag.isApplied) app.commit(app.state);
      drag = null;
    };
  }
}

/* The row of blocks by keyboard, by a finger's tap, and for assistive technology, whose
   clicks have no detail. */
function typeBlocks(app) {
  const ruler = $("ruler");
  const step = (event, to) => {
    event.preventDefault();
    const block = within(to, 1, DEPTH);
    if (event.shiftKey) {
      if (!isKept(app, block)) return;
      const like = app.state.closed.has(app.place.block);
      app.commit(withBlock(app.state, block, like));
    }
    app.select({block});
    app.view.blocks[block - 1].focus();
  };
  ruler.addEventListener("keydown", event => {
    const at = app.place.block;
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10,
                PageDown: at + 10, Home: 1, End: DEPTH}[event.key];
    if (to !== undefined && !event.ctrlKey && !event.altKey) step(event, to);
  });
  ruler.addEventListener("focusin", event => {
    if (!event.target.matches(":focus-visible")) return;    // it was pressed
    app.select({block: app.view.blocks.indexOf(event.target) + 1});
  });
  const turn = block => {
    app.select({block});
    app.commit(withBlock(app.state, block, !app.state.closed.has(block)));
  };
  let isFinger = false;
  ruler.addEventListener("pointerdown", event => {
    isFinger = event.pointerType === "touch";
  });
  ruler.addEventListener("click", event => {
    const block = app.view.blocks.indexOf(event.target.closest("button")) + 1;
    if (block && (!event.detail || isFinger) && isKept(app, block)) turn(block);
  });
  $("left").onclick = () => app.select({block: Math.max(0, app.place.block - 1)});
  $("right").onclick = () => app.select({block: Math.min(DEPTH, app.place.block + 1)});
  $("toggle").onclick = () => turn(app.place.block);
}

function touchTools(app) {
  const slider = (id, change) => {
    $(id).oninput = () => app.show({...app.state, ...change(Number($(id).value))});
    $(id).onchange = () => app.commit(app.state);
  };
  const shuffle = change => ({shuffle: {...app.state.shuffle, ...change}});
  slider("keep", keep => ({keep}));
  slider("stages", stages => ({stages}));
  slider("shuffle", distance => shuffle({distance}));
  $("again").onclick = () => app.commit({...app.state,
    ...shuffle({seed: 1 + app.state.shuffle.seed % SEEDS})});
  $("frozen").onchange = () => app.commit({...app.state, frozen: $("frozen").checked});
  $("undo").onclick = $("pad-undo").onclick = () => app.move(-1);
  $("redo").onclick = () => app.move(1);
  $("reset").onclick = () => app.commit(untouched(app.state.image));
  addEventListener("keydown", event => {
    const key = event.key.toLowerCase();
    const command = (event.ctrlKey || event.metaKey) && !event.altKey;
    if (!command || !["z", "y"].includes(key) || $("nets-room").hidden) return;
    event.preventDefault();
    app.move(key === "y" || event.shiftKey ? 1 : -1);
  });
}
