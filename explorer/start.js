"use strict";
/* Which room is open: the address says so. */

const easel = new Easel();
let explorer = null, playground = null;

function enter(address) {
  const image = explorer ? explorer.complete(explorer.state).image : undefined;
  const {room, state, complaint} = parseAddress(address || CONTRAST, image);
  const isTraining = room === "train";
  $("nets-room").hidden = isTraining;
  $("train-room").hidden = !isTraining;
  $("to-nets").setAttribute("aria-current", isTraining ? "false" : "page");
  $("to-train").setAttribute("aria-current", isTraining ? "page" : "false");
  const told = playground ? playground.mind(!isTraining) : "";
  if (isTraining) {
    if (!playground) playground = new Playground(easel, state);
    else if (trainingAddress(state) !== trainingAddress(playground.state)) {
      playground.open(state);
    }
  } else if (explorer) explorer.commit(state);
  else explorer = new App(easel, state);
  notice(complaint || told);
}

/* Links within the page: those to a room find it as it was left. */
document.addEventListener("click", event => {
  const link = event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const address = {
    "to-nets": explorer ? addressOf(explorer.state) : CONTRAST,
    "to-train": playground ? trainingAddress(playground.state) : "#train",
  }[link.id] || link.getAttribute("href");
  writeAddress(address, true);
  enter(address);
  scrollTo(0, 0);
});
addEventListener("hashchange", () => enter(location.hash));
enter(location.hash);
