// A resource of a pool over time. Drag to zoom, double-click to zoom out. Gaps in the records stay gaps.

import { h } from "./draw.js";
import { ask, path } from "./session.js";
import { amount } from "./words.js";
import uPlot from "./vendor/uPlot.esm.js";

const HEIGHT = 240;
const POINTS = 500;
const LINES = [
  { label: "usage", color: "--bar", of: (point) => point.usage.mean },
  { label: "demand", color: "--faint", of: (point) => point.demand.mean },
  { label: "fair share", color: "--mark", of: (point) => point.fair_share.mean },
  { label: "guarantee", color: "--good", of: (point) => point.strong_guarantee },
];

export class PoolPlot {
  constructor() {
    this.element = h("div", { class: "plot", "data-own": true, "data-key": "plot" });
    this.plot = null;
    this.shown = "";
    new ResizeObserver(() => this.plot?.setSize({ width: this.element.clientWidth, height: HEIGHT })).observe(this.element);
  }

  async load(pool, resource, periodMs, signal) {
    const until = Date.now();
    const history = await ask(path`/pools/${pool}/history`({ since_ms: until - periodMs, until_ms: until, points: POINTS, resource }), { signal });
    this.draw(resource, history.points, `${pool} ${resource} ${periodMs}`);
  }

  // What the plot shows stays zoomed as the person left it; another resource or period is another plot.
  draw(resource, points, name) {
    const scale = resource === "cpu" ? 0.01 : 1;
    const columns = [[], ...LINES.map(() => [])];
    for (const point of points) {
      if (point.after_gap && columns[0].length) columns.forEach((each, place) => each.push(place ? null : (columns[0].at(-1) + point.at_ms / 1000) / 2));
      columns[0].push(point.at_ms / 1000);
      LINES.forEach((line, place) => columns[place + 1].push(line.of(point) * scale));
    }
    const isSame = this.plot && this.shown === name;
    if (isSame) {
      const { min, max } = this.plot.scales.x;
      const isZoomed = min > this.plot.data[0][0] || max < this.plot.data[0].at(-1);
      this.plot.setData(columns, !isZoomed);
      return;
    }
    this.plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const color = (each) => style.getPropertyValue(each);
    const axis = { stroke: color("--ink"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const words = (_, value) => (value === null ? "–" : amount(resource, value));
    const options = {
      width: this.element.clientWidth || 600,
      height: HEIGHT,
      series: [{}, ...LINES.map((line) => ({ label: line.label, stroke: color(line.color), width: 2, value: words, points: { show: points.length < 3 } }))],
      axes: [axis, { ...axis, size: 80, values: (_, ticks) => ticks.map((each) => amount(resource, each)) }],
      scales: { y: { range: (_, least, most) => [0, Math.max(1, most) * 1.05] } },
    };
    this.plot = new uPlot(options, columns, this.element);
    this.shown = name;
  }
}
