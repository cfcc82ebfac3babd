// The console: finds the page for the address, and keeps it up to date while it is visible.
//
// The module of a page exports a function. It gets the view, and returns an object: `load(signal)` asks the API, `paint()` returns the
// elements for what is known, `events` is the stream whose events make it load again, and `every` the milliseconds after which it loads
// anyway. `reset()` is called before it loads for another address. `isEager()` says that the next load is for another address, too, and
// need not wait. `isLocal` says that the parameters of the address only choose from what is known.

import { draw, h, link } from "./draw.js";
import { ask, enter, follow, Problem } from "./session.js";

const PAGES = [
  { path: /^\/$/, module: "now", name: "Now", address: "/" },
  { path: /^\/operations$/, module: "operations", name: "Operations", address: "/operations" },
  { path: /^\/operations\/([^/]+)$/, module: "operation", under: "/operations" },
  { path: /^\/pools\/([^/]+)$/, module: "pool", under: "/" },
  { path: /^\/preemptions$/, module: "preemptions", name: "Preemptions", address: "/preemptions" },
  { path: /^\/nodes$/, module: "nodes", name: "Nodes", address: "/nodes" },
  { path: /^\/nodes\/([^/]+)$/, module: "node", under: "/nodes" },
  { path: /^\/usage$/, module: "usage", name: "Usage", address: "/usage" },
  { path: /^\/me$/, module: "me", name: "Me", address: "/me" },
];
// Milliseconds between two loads at least, however many events come; and before the next try after a failure.
const LEAST_MS = 1000;
const AGAIN_MS = 2000;

const main = document.querySelector("main");
const state = document.getElementById("state");
const asOf = document.getElementById("as-of");
let wake = () => {};

function say(words, isTrouble = false) {
  document.body.classList.toggle("trouble", isTrouble);
  if (state.textContent !== words) state.textContent = words;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const untilVisible = () =>
  new Promise((done) => {
    const look = () => document.hidden || (document.removeEventListener("visibilitychange", look), done());
    document.addEventListener("visibilitychange", look);
    look();
  });

// What a page gets: the names in its path, the parameters of its address, and ways to change what is shown.
class View {
  constructor(names) {
    this.names = names;
    this.page = null;
  }

  get parameters() {
    return new URLSearchParams(location.search);
  }

  // Change parameters of the address; null takes one away. The page loads again, and the browser's «back» leads here.
  go(changes) {
    const found = this.parameters;
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "" || value === false) found.delete(name);
      else found.set(name, value);
    }
    history.pushState(null, "", `${location.pathname}${found.size ? `?${found}` : ""}`);
    if (this.page.isLocal) this.paint();
    this.reload();
  }

  reload() {
    this.page.reset?.();
    wake();
  }

  paint() {
    draw(main, this.page.paint());
  }
}

// Wake the page at each event, until it is hidden. The page itself notices when the service is gone.
async function listen(where, signal) {
  while (!signal.aborted) {
    try {
      await follow(where, () => wake(), signal);
    } catch (error) {
      if (!(error instanceof Problem) && error.name !== "AbortError") throw error;
    }
    await pause(AGAIN_MS);
  }
}

// Scroll to the part of the page that the address names. The browser cannot, since the part is drawn later.
function goToPart() {
  const part = location.hash && document.getElementById(location.hash.slice(1));
  part?.scrollIntoView?.();
}

async function keepUp(view) {
  let isFirst = true;
  for (;;) {
    await untilVisible();
    const hidden = new AbortController();
    const look = () => document.hidden && hidden.abort();
    document.addEventListener("visibilitychange", look);
    if (view.page.events) listen(view.page.events, hidden.signal);
    while (!hidden.signal.aborted) {
      const woken = new Promise((done) => (wake = done));
      let next = view.page.every;
      try {
        await view.page.load(hidden.signal);
        view.paint();
        if (isFirst) goToPart();
        isFirst = false;
        asOf.textContent = `as of ${new Date().toLocaleTimeString("sv")}`;
        say("live");
      } catch (error) {
        if (error.name === "AbortError") continue;
        if (!(error instanceof Problem)) throw error;
        next = AGAIN_MS;
        say(error.message, true);
        // A page that has data keeps it until the person has logged in again, perhaps in another tab.
        if (error.status === 401 && !main.hasChildNodes()) draw(main, h("h1", null, "Log in"), h("p", null, error.message));
      }
      const since = Date.now();
      await Promise.race([woken, pause(next), new Promise((done) => hidden.signal.addEventListener("abort", done))]);
      if (!view.page.isEager?.()) await pause(Math.max(0, Math.min(next, LEAST_MS) - (Date.now() - since)));
    }
    document.removeEventListener("visibilitychange", look);
    asOf.textContent = "paused while hidden";
  }
}

async function nameUser() {
  for (;;) {
    try {
      document.getElementById("who").textContent = `as ${(await ask("/me")).user}`;
      return;
    } catch {
      await pause(AGAIN_MS);
    }
  }
}

await enter();
const here = PAGES.find((each) => each.path.test(location.pathname));
draw(
  document.querySelector("nav"),
  PAGES.filter((each) => each.name).map((each) =>
    h("a", { href: each.address, "aria-current": here && (here.address ?? here.under) === each.address ? "page" : null }, each.name),
  ),
);
if (here === undefined) {
  draw(main, h("h1", null, "There is no such page"), h("p", null, link("/", "Now"), " shows the cluster."));
} else {
  const view = new View(here.path.exec(location.pathname).slice(1).map(decodeURIComponent));
  view.page = (await import(`./${here.module}.js`)).default(view);
  document.title = `${view.page.title} – Headrace`;
  window.addEventListener("popstate", () => view.reload());
  nameUser();
  await keepUp(view);
}
