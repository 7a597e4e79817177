"use strict";
/* Hands on the page: pad, layers, controls. Each calls app.show(state) while a gesture
   goes on and app.commit(state) when it ends. */

function touchPad(app) {
  const pad = $("pad");
  let strokes = null, before = null;
  const point = event => {
    const box = pad.getBoundingClientRect();
    const within = share => Math.max(0, Math.min(1, share));
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
  pad.addEventListener("pointerup", event => {
    if (!strokes || !pad.hasPointerCapture(event.pointerId)) return;
    strokes = null;
    app.commit(app.state);
  });
  pad.addEventListener("pointercancel", event => {
    if (!strokes || !pad.hasPointerCapture(event.pointerId)) return;
    strokes = null;
    app.show(before);
  });
  for (const name of ["touchstart", "touchmove"]) {       // a stroke is no scrolling
    pad.addEventListener(name, event => event.preventDefault(), {passive: false});
  }
}

function touchImages(app) {
  const image = made => app.commit({...app.state, image: made});
  $("blank").onclick = () => image(blankImage());
  $("noise").onclick = () => image(noiseImage(1 + Math.floor(SEEDS * Math.random())));
  $("thumbs").onclick = event => {
    const thumb = event.target.closest(".thumb");
    if (thumb) image(testImage(Number(thumb.dataset.index)));
  };
  const take = async file => {
    try {
      image(drawnImage(await pixelsOfFile(file), null));
    } catch (error) {
      app.view.notice(error.message);
    }
  };
  $("file-button").onclick = () => $("file").click();
  $("file").onchange = () => {
    if ($("file").files[0]) take($("file").files[0]);
    $("file").value = "";
  };
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
  addEventListener("paste", event => {
    if (event.clipboardData.files[0]) take(event.clipboardData.files[0]);
  });
}

/* The forty images by keyboard: arrows move among them, in rows of ten. */
function typeImages() {
  const thumbs = [...$("thumbs").children];
  $("thumbs").addEventListener("focusin", event => {
    for (const thumb of thumbs) thumb.tabIndex = thumb === event.target ? 0 : -1;
  });
  $("thumbs").addEventListener("keydown", event => {
    const at = thumbs.indexOf(event.target);
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - 10,
                ArrowDown: at + 10, Home: 0, End: thumbs.length - 1}[event.key];
    if (to === undefined || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    if (thumbs[to]) thumbs[to].focus();
  });
}

/* What lies beyond the layers that are kept is closed already, and a line says so. */
function isKept(app, layer) {
  const {keep} = app.state;
  if (layer > keep) app.view.notice(`Only the first ${keep} layers are kept.`);
  return layer <= keep;
}

/* All panels with layers as columns: point at one to read about it, press to close it
   or to open it, drag to do so with a range. */
function touchLayers(app) {
  const layerAt = (area, event) => {
    const box = area.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * COLUMNS);
    return Math.max(0, Math.min(DEPTH, column));
  };
  const unitAt = (area, event) => {
    if (!area.matches("#gates, #means, #outputs canvas")) return null;
    const box = area.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / box.height * UNITS);
    return Math.max(0, Math.min(UNITS - 1, row));
  };
  let drag = null;
  const apply = end => {
    const layer = Math.min(end, drag.before.keep);
    const closed = new Set(drag.before.closed);
    const [from, to] = [Math.min(drag.from, layer), Math.max(drag.from, layer)];
    for (let l = Math.max(1, from); l <= to; l++) {
      if (drag.close) closed.add(l); else closed.delete(l);
    }
    app.show({...drag.before, closed});
    app.select(layer);
  };
  for (const area of document.querySelectorAll(".layers")) {
    area.addEventListener("pointerdown", event => {
      if (event.button || drag) return;
      const layer = layerAt(area, event);
      app.select(layer, unitAt(area, event));
      if (!layer || !isKept(app, layer)) return;
      area.setPointerCapture(event.pointerId);
      drag = {before: app.state, from: layer, close: !app.state.closed.has(layer)};
      if (event.pointerType !== "touch") apply(layer);  // a finger may mean to scroll
    });
    area.addEventListener("pointermove", event => {
      const layer = layerAt(area, event);
      if (drag && area.hasPointerCapture(event.pointerId)) apply(layer);
      else if (!drag && event.pointerType !== "touch") {
        app.select(layer, unitAt(area, event));
      }
    });
    area.addEventListener("pointerup", event => {
      if (!drag || !area.hasPointerCapture(event.pointerId)) return;
      apply(layerAt(area, event));
      drag = null;
      app.commit(app.state);
    });
    area.addEventListener("pointercancel", event => {
      if (!drag || !area.hasPointerCapture(event.pointerId)) return;
      app.show(drag.before);
      drag = null;
    });
  }
}

/* The same by keyboard, and for assistive technology, whose clicks have no detail. */
function typeLayers(app) {
  const ruler = $("ruler");
  const turn = (state, layer, close) => {
    const closed = new Set(state.closed);
    if (close) closed.add(layer); else closed.delete(layer);
    return {...state, closed};
  };
  const step = (event, to) => {
    event.preventDefault();
    const layer = Math.max(1, Math.min(DEPTH, to));
    if (event.shiftKey) {
      if (!isKept(app, layer)) return;
      const like = app.state.closed.has(app.layer);
      app.commit(turn(app.state, layer, like));
    }
    app.select(layer);
    app.view.layers[layer - 1].focus();
  };
  ruler.addEventListener("keydown", event => {
    const to = {ArrowLeft: app.layer - 1, ArrowRight: app.layer + 1,
                PageUp: app.layer - 10, PageDown: app.layer + 10,
                Home: 1, End: DEPTH}[event.key];
    if (to !== undefined && !event.ctrlKey && !event.altKey) step(event, to);
  });
  ruler.addEventListener("focusin", event => {
    if (!event.target.matches(":focus-visible")) return;    // it was pressed
    app.select(app.view.layers.indexOf(event.target) + 1);
  });
  ruler.addEventListener("click", event => {
    const layer = app.view.layers.indexOf(event.target.closest("button")) + 1;
    if (layer && !event.detail && isKept(app, layer)) {
      app.commit(turn(app.state, layer, !app.state.closed.has(layer)));
    }
  });
  $("left").onclick = () => app.select(Math.max(0, app.layer - 1));
  $("right").onclick = () => app.select(Math.min(DEPTH, app.layer + 1));
  $("toggle").onclick = () =>
    app.commit(turn(app.state, app.layer, !app.state.closed.has(app.layer)));
}

function touchTools(app) {
  const slider = (id, change) => {
    $(id).oninput = () => app.show({...app.state, ...change(Number($(id).value))});
    $(id).onchange = () => app.commit(app.state);
  };
  const shuffle = change => ({shuffle: {...app.state.shuffle, ...change}});
  slider("keep", keep => ({keep}));
  slider("shift", shift => ({shift}));
  slider("shuffle", distance => shuffle({distance}));
  $("again").onclick = () => app.commit({...app.state,
    ...shuffle({seed: 1 + app.state.shuffle.seed % SEEDS})});
  $("frozen").onchange = () => app.commit({...app.state, frozen: $("frozen").checked});
  $("undo").onclick = $("pad-undo").onclick = () => app.move(-1);
  $("redo").onclick = () => app.move(1);
  $("reset").onclick = () => app.commit(untouched(app.state.image));
  $("link").onclick = () => copyLink(app);
  $("save").onclick = () => savePicture(app);
  addEventListener("keydown", event => {
    const key = event.key.toLowerCase();
    const command = (event.ctrlKey || event.metaKey) && !event.altKey;
    if (!command || !["z", "y"].includes(key)) return;
    event.preventDefault();
    app.move(key === "y" || event.shiftKey ? 1 : -1);
  });
}

async function copyLink(app) {
  app.writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    app.view.notice("The link is copied: it shows what you see.");
  } catch {
    app.view.notice("The address above is the link: it shows what you see.");
  }
}

/* What is seen as a picture of 1600 x 1000. */
function pictureOf(app) {
  const canvas = element("canvas", {width: 1600, height: 1000});
  const context = canvas.getContext("2d"), {theme} = app.view, {found, state} = app;
  const closed = layer => isClosed(state, layer);
  const write = (text, x, y, size, colour = theme.text) => {
    context.font = `${size}px sans-serif`;
    context.textBaseline = "alphabetic";
    context.fillStyle = colour;
    context.fillText(text, x, y, 1560 - x);
  };
  context.fillStyle = theme.page;
  context.fillRect(0, 0, 1600, 1000);
  write(`Highway, residual and plain net, ${DEPTH + 1} layers each`, 40, 64, 34);
  write(treatmentOf(state), 40, 100, 22, theme.muted);
  const left = {x: 40, y: 150, width: 300, height: 300};
  drawDigit(context, left, state.image.pixels, theme);
  const middle = (y, height) => ({x: 390, y, width: 850, height});
  write("gates T of the highway net for this image", 390, 140, 18, theme.muted);
  drawGates(context, middle(150, 150), found.highway.gates, 1, closed, theme);
  write(`their means over the training images, to ${MOST_MEAN}`, 390, 332, 18,
        theme.muted);
  drawGates(context, middle(342, 108), app.means(), MOST_MEAN, () => false, theme);
  write(`layer 0 to ${DEPTH}`, 1130, 140, 18, theme.muted);
  KINDS.forEach((kind, k) => {
    const y = 500 + 160 * k;
    const right = countRight(app.readings[kind]);
    write(kind, 40, y + 24, 26);
    write(`${right} of the ${TEST_LABELS.length} test images right`, 40, y + 54, 18,
          theme.muted);
    write("its answer, if each layer were the last", 40, y + 80, 18, theme.muted);
    drawForming(context, middle(y, 130), found[kind].forming, theme[`${kind}Scale`]);
    for (let digit = 0; digit < 10; digit++) {
      write(String(digit), 374, y + 13 * digit + 11, 12, theme.muted);
    }
    drawAnswer(context, {x: 1280, y, width: 240, height: 130},
               found[kind].forming[DEPTH], theme[kind], theme);
  });
  const shown = location.hash.length > 120 ? "" : location.hash;
  write(`explorer.html${shown}`, 40, 984, 16, theme.muted);
  return canvas;
}

function savePicture(app) {
  if (!app.isSettled()) {           // what it shows of the forty images is still counted
    requestAnimationFrame(() => savePicture(app));
    return;
  }
  app.writeAddress();
  pictureOf(app).toBlob(blob => {
    const link = element("a", {href: URL.createObjectURL(blob),
                               download: "highway-explorer.png"});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
