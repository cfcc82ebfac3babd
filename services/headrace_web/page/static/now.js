// The page: pools with their usage and fair share, kept up to date while the page is visible.

import { ask, enter } from "./session.js";

const EVERY_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const state = document.getElementById("state");
const rows = document.querySelector("#pools tbody");

const largest = (share) => Math.max(...Object.values(share));
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Draw the shares of the cluster that a pool uses and is owed, both from 0 to 1.
function bar(used, owed, words) {
  const picture = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": words });
  picture.append(
    shape("rect", { class: "track", x: 0, y: 1, width: 100, height: 8 }),
    shape("rect", { class: "used", x: 0, y: 1, width: 100 * Math.min(1, used), height: 8 }),
    shape("line", { class: "owed", x1: 100 * Math.min(1, owed), x2: 100 * Math.min(1, owed), y1: 0, y2: 10 }),
  );
  return picture;
}

function cell(content, isNumber = false) {
  const element = document.createElement("td");
  element.append(content);
  if (isNumber) element.className = "number";
  return element;
}

function row(pool, frame) {
  const element = document.createElement("tr");
  const used = largest(pool.share.usage_share);
  const owed = largest(pool.share.fair_share.total);
  const depth = pool.name === "<Root>" ? 0 : pool.path.split("/").length - 1;
  const name = cell(pool.name === "<Root>" ? "whole tree" : pool.name);
  name.style.paddingLeft = `${0.6 + 1.2 * depth}rem`;
  const words = `uses ${Math.round(100 * used)} % of the cluster, is owed ${Math.round(100 * owed)} %`;
  if (pool.share.starvation_status !== "non_starving") element.className = "short";
  element.append(
    name,
    cell(bar(used, owed, words)),
    cell(number(pool.share.usage_share.cpu * frame.total.cpu), true),
    cell(number(pool.fair_resources.cpu), true),
    cell(number(pool.running_operation_count), true),
    cell(number(pool.operation_count), true),
  );
  return element;
}

async function look() {
  const pools = [];
  let cursor = 0;
  let frame;
  while (cursor !== null) {
    const page = await ask(`/pools?cursor=${cursor}`);
    pools.push(...page.pools);
    frame = page.frame;
    cursor = page.next;
  }
  rows.replaceChildren(...pools.map((pool) => row(pool, frame)));
}

async function keepUp() {
  let isKnown = false;
  for (;;) {
    if (document.visibilityState === "visible") {
      try {
        if (!isKnown) {
          const me = await ask("/me");
          document.getElementById("who").textContent = `as ${me.user}`;
          isKnown = true;
        }
        await look();
        state.textContent = `as of ${new Date().toLocaleTimeString()}`;
        state.className = "";
      } catch (error) {
        state.textContent = error.message;
        state.className = "trouble";
      }
    }
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

await enter();
await keepUp();
