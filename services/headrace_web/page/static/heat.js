// A map of nodes: a cell for each, coloured by how much of it is used. A canvas, so that it is quick with ten thousand nodes.

import { h } from "./draw.js";
import { count, percent } from "./words.js";

const LARGEST_PX = 34;
const SMALLEST_PX = 5;
const TALLEST_PX = 320;
const UNUSABLE = ["lost", "suspect", "removed", "unheard"];

// Return how much of a node is used, from 0 to 1: of one resource, or of the resource that is used most.
export function useOf(node, resource) {
  const names = resource ? [resource] : Object.keys(node.total).filter((name) => name !== "user_slots");
  return Math.max(0, ...names.map((name) => (node.total[name] ? node.usage[name] / node.total[name] : 0)));
}

export class HeatMap {
  constructor() {
    this.canvas = h("canvas", { role: "img" });
    this.words = h("p", { class: "faint" }, "Point at a cell for its node; the list below has the same nodes.");
    this.element = h("div", { class: "heat", "data-own": true, "data-key": "map" }, this.canvas, this.words);
    this.nodes = [];
    this.canvas.onmousemove = (event) => {
      const node = this.at(event);
      if (node) this.words.textContent = `${node.node}: ${node.state}, ${percent(useOf(node, this.resource))} used, ${count(node.running_jobs, "job")}`;
      this.canvas.style.cursor = node ? "pointer" : "default";
    };
    this.canvas.onclick = (event) => {
      const node = this.at(event);
      if (node) location.assign(`/nodes/${encodeURIComponent(node.node)}`);
    };
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  draw(nodes, resource) {
    Object.assign(this, { nodes, resource });
    this.canvas.setAttribute("aria-label", `map of ${count(nodes.length, "node")}; the list below has the same nodes`);
    this.paint();
  }

  paint() {
    const width = this.element.clientWidth;
    if (!width || !this.nodes.length) return;
    const fitting = Math.floor(Math.sqrt((width * TALLEST_PX) / this.nodes.length));
    this.size = Math.max(SMALLEST_PX, Math.min(LARGEST_PX, fitting));
    this.across = Math.max(1, Math.floor(width / this.size));
    const height = Math.ceil(this.nodes.length / this.across) * this.size;
    const ratio = devicePixelRatio;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const [empty, used, bad, wait] = ["--line", "--bar", "--bad", "--wait"].map((name) => style.getPropertyValue(name));
    const gap = this.size > 12 ? 2 : 1;
    this.nodes.forEach((node, place) => {
      const [x, y] = [(place % this.across) * this.size, Math.floor(place / this.across) * this.size];
      const side = this.size - gap;
      context.globalAlpha = 1;
      context.fillStyle = UNUSABLE.includes(node.state) ? bad : node.state === "online" ? empty : wait;
      context.fillRect(x, y, side, side);
      context.fillStyle = used;
      context.globalAlpha = node.state === "online" ? Math.min(1, useOf(node, this.resource)) : 0;
      context.fillRect(x, y, side, side);
    });
  }

  at(event) {
    const column = Math.floor(event.offsetX / this.size);
    return column < this.across ? this.nodes[Math.floor(event.offsetY / this.size) * this.across + column] : undefined;
  }
}
