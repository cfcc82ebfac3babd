// The nodes: a map with a cell for each node, and a list.

import { choice } from "./bars.js";
import { h, link, table } from "./draw.js";
import { HeatMap, useOf } from "./heat.js";
import { askAll, path } from "./session.js";
import { amount, count, duration, percent, RESOURCES, shortName } from "./words.js";

const MOST_ROWS = 200;

export default function nodes(view) {
  let found = [];
  let recovering = "";
  let most = MOST_ROWS;
  let tookMs = 0;
  const map = new HeatMap();

  async function load(signal) {
    const begun = Date.now();
    const page = await askAll(path`/nodes`, {}, "nodes", { signal });
    [found, recovering] = [page.nodes, page.recovering];
    tookMs = Date.now() - begun;
  }

  const resource = () => view.parameters.get("mode") ?? "";
  const resources = () => RESOURCES.filter((name) => name !== "user_slots" && found.some((each) => each.total[name]));

  function shown() {
    const text = (view.parameters.get("find") ?? "").toLowerCase();
    const state = view.parameters.get("state") ?? "";
    return found.filter((each) => (!text || each.node.toLowerCase().includes(text) || each.tags.some((tag) => tag.toLowerCase().includes(text))) && (!state || each.state === state));
  }

  function filterForm() {
    const states = [...new Set(found.map((each) => each.state))].sort();
    const chosen = view.parameters.get("state") ?? "";
    const change = (event) => view.go({ [event.target.name]: event.target.value.trim() });
    return h(
      "form",
      { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", null, "name or tag ", h("input", { name: "find", type: "search", value: view.parameters.get("find") ?? "", onchange: change })),
      h("label", null, "state ", h("select", { name: "state", onchange: change }, ["", ...states].map((each) => h("option", { value: each, selected: each === chosen }, each || "any")))),
    );
  }

  function list(rows) {
    return table(
      rows.length > most ? `The first ${most} of ${count(rows.length, "node")}` : count(rows.length, "node"),
      [
        { label: "node", isHeading: true, cell: (each) => link(`/nodes/${encodeURIComponent(each.node)}`, each.node) },
        { label: "state", cell: (each) => h("span", { class: `state ${each.state}` }, each.state) },
        ...resources().map((name) => ({ label: shortName(name), isNumber: true, cell: (each) => `${amount(name, each.usage[name])} of ${amount(name, each.total[name])}` })),
        { label: "jobs", isNumber: true, cell: (each) => String(each.running_jobs) },
        { label: "heartbeat", isNumber: true, cell: (each) => (each.heartbeat_age_ms === null ? "–" : duration(each.heartbeat_age_ms)) },
        { label: "because", class: "wide", cell: (each) => each.trouble || each.held_back || each.left_out || each.drain?.reason || "" },
      ],
      rows.slice(0, most),
      (each) => each.node,
      { rowClass: (each) => (each.trouble ? "bad" : null) },
    );
  }

  function paint() {
    const rows = shown();
    map.draw(rows, resource());
    const used = rows.length ? rows.reduce((sum, each) => sum + useOf(each, resource()), 0) / rows.length : 0;
    return [
      h("h1", null, "Nodes"),
      recovering && h("p", { class: "bad" }, `The allocator is recovering: ${recovering} nodes have been heard.`),
      choice("resource", [["", "dominant"], ...resources().map((name) => [name, shortName(name)])], resource(), (value) => view.go({ mode: value })),
      filterForm(),
      rows.length ? [map.element, h("p", { class: "faint" }, `${count(rows.length, "node")}, ${percent(used)} used on average.`), list(rows)] : h("p", null, found.length ? "No node matches." : "No node is enrolled."),
      rows.length > most && h("button", { type: "button", onclick: () => ((most += MOST_ROWS), view.paint()) }, `Show ${MOST_ROWS} more`),
    ];
  }

  return {
    title: "Nodes",
    isLocal: true,
    load,
    paint,
    get every() {
      return Math.max(3000, 5 * tookMs);
    },
  };
}
