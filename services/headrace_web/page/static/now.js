// The page «Now»: the cluster by resource, the tree of pools, and what needs attention.

import { bar, barWords, choice, poolBar, poolBarWords } from "./bars.js";
import { h, link, table } from "./draw.js";
import { PoolTree } from "./pooltree.js";
import { ask, askAll, path } from "./session.js";
import { amount, clock, count, duration, percent, poolName, RESOURCES, ROOT, shortName, waitsFor } from "./words.js";

const MOST_OLDEST = 10;
// Milliseconds between two looks at what changes slowly: services, nodes, waiting operations, preemptions.
const SLOW_MS = 10_000;
const HOUR_MS = 3_600_000;

export default function now(view) {
  const pools = new PoolTree();
  let slow = { at: 0, services: [], unread: [], nodes: [], waiting: [], lost: [] };
  let tookMs = 0;

  const find = () => view.parameters.get("find") ?? "";

  async function load(signal) {
    const begun = Date.now();
    const slower = begun - slow.at > SLOW_MS ? loadSlow(signal, begun) : slow;
    const [others] = await Promise.all([slower, pools.load(find(), signal)]);
    slow = others;
    tookMs = Date.now() - begun;
  }

  async function loadSlow(signal, at) {
    const [services, nodes, waiting, lost] = await Promise.all([
      ask(path`/services`, { signal }),
      askAll(path`/nodes`, {}, "nodes", { signal }),
      ask(path`/operations`({ state: "waiting", order: "oldest", limit: MOST_OLDEST }), { signal }),
      ask(path`/pools/${ROOT}/lost-work`({ since_ms: at - HOUR_MS, until_ms: at }), { signal }),
    ]);
    return { at, services: services.services, unread: services.unread, nodes: nodes.nodes, waiting: waiting.operations, lost: lost.lost };
  }

  const mode = () => view.parameters.get("mode") ?? "";
  const resourceOf = (pool) => mode() || pool.share.dominant_resource;

  function cluster() {
    const { root, frame } = pools;
    const resources = RESOURCES.filter((name) => name !== "user_slots" && frame.total[name]);
    return table(
      "The cluster",
      [
        { label: "resource", isHeading: true, cell: shortName },
        { label: "usage and demand", class: "bars", cell: (name) => bar(`${name}: ${percent(root.share.usage_share[name])} used`, [["used", root.share.usage_share[name]], ["demand", Math.max(0, root.share.demand_share[name] - root.share.usage_share[name])]]) },
        { label: "used", isNumber: true, cell: (name) => amount(name, root.usage[name]) },
        { label: "free", isNumber: true, cell: (name) => amount(name, Math.max(0, frame.total[name] - root.usage[name])) },
        { label: "total", isNumber: true, cell: (name) => amount(name, frame.total[name]) },
        { label: "demand", isNumber: true, cell: (name) => amount(name, root.demand[name]) },
      ],
      resources,
      (name) => name,
    );
  }

  function tree() {
    const { frame } = pools;
    const name = (pool) => {
      const depth = pool.name === ROOT ? 0 : pool.path.split("/").length - 1;
      const open = pools.isOpen(pool);
      const turn = () => {
        pools.turn(pool);
        view.paint();
        if (!pools.isWhole) view.reload();
      };
      return h(
        "span",
        { class: `tree-name depth-${Math.min(depth, 8)}` },
        pools.hasChildren(pool) ? h("button", { type: "button", "aria-expanded": String(open), "aria-label": `pools below ${poolName(pool.name)}`, onclick: turn }, open ? "▾" : "▸") : h("span", { class: "no-children" }),
        link(`/pools/${encodeURIComponent(pool.name)}`, poolName(pool.name)),
      );
    };
    const value = (field) => (pool) => amount(resourceOf(pool), pool[field][resourceOf(pool)] ?? 0);
    const columns = [
      { label: "pool", isHeading: true, cell: name },
      { label: "share of the cluster", class: "bars", cell: (pool) => poolBar(pool.share, resourceOf(pool)) },
      { label: mode() ? "" : "of", cell: (pool) => shortName(resourceOf(pool)) },
      { label: "usage", isNumber: true, cell: value("usage") },
      { label: "fair share", isNumber: true, cell: value("fair_resources") },
      { label: "demand", isNumber: true, cell: value("demand") },
      { label: "running", isNumber: true, cell: (pool) => pool.running_operation_count.toLocaleString("en") },
      { label: "operations", isNumber: true, cell: (pool) => link(`/operations?live=true&pool=${encodeURIComponent(pool.name)}`, pool.operation_count.toLocaleString("en")) },
    ];
    if (mode()) columns.splice(2, 1);
    const resources = RESOURCES.filter((each) => each !== "user_slots" && frame.total[each]);
    return [
      h("h2", null, "Pools"),
      choice("resource", [["", "dominant"], ...resources.map((each) => [each, shortName(each)])], mode(), (value) => view.go({ mode: value })),
      h("form", { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() }, h("label", null, "find a pool ", h("input", { name: "find", type: "search", value: find(), placeholder: pools.isWhole ? null : "begins with", onchange: (event) => view.go({ find: event.target.value.trim() }) }))),
      table(pools.isWhole ? count(pools.all.length, "pool") : "The open pools of a large tree", columns, pools.shown(find()), (pool) => pool.name, { rowClass: (pool) => (pool.share.starvation_status === "non_starving" ? null : "short") }),
      poolBarWords(),
    ];
  }

  function starving() {
    const { frame, starving: found } = pools;
    return attention(
      "Starving pools",
      found,
      [
        { label: "pool", isHeading: true, cell: (pool) => link(`/pools/${encodeURIComponent(pool.name)}`, poolName(pool.name)) },
        { label: "state", cell: (pool) => pool.share.starvation_status.replaceAll("_", " ") },
        { label: "for", isNumber: true, cell: (pool) => (pool.share.starving_since_ms ? duration(frame.at_ms - pool.share.starving_since_ms) : "–") },
        { label: "satisfaction", isNumber: true, cell: (pool) => percent(pool.share.satisfaction_ratio) },
      ],
      (pool) => pool.name,
      "No pool starves.",
    );
  }

  function oldest() {
    return attention(
      "Longest pending operations",
      slow.waiting,
      [
        { label: "operation", isHeading: true, cell: (each) => link(`/operations/${encodeURIComponent(each.operation)}`, each.operation) },
        { label: "for", isNumber: true, cell: (each) => duration(Math.max(0, Date.now() - each.started_at_ms)) },
        { label: "waits for", class: "wide", cell: waitsFor },
      ],
      (each) => each.operation,
      "No operation is pending.",
    );
  }

  function services() {
    const led = new Set(slow.services.filter((each) => each.leads).map((each) => each.role));
    const without = [...new Set(slow.services.map((each) => each.role))].filter((role) => !led.has(role));
    return [
      attention(
        "Services",
        slow.services,
        [
          { label: "role", isHeading: true, cell: (each) => each.role },
          { label: "host", cell: (each) => each.instance },
          { label: "state", cell: (each) => each.trouble || (each.leads ? "leads" : "standby") },
          { label: "for", isNumber: true, cell: (each) => duration(each.age_ms) },
        ],
        (each) => `${each.role} ${each.instance} ${each.pid}`,
        "No service answers.",
        (each) => (each.trouble || without.includes(each.role) ? "bad" : null),
      ),
      [...without.map((role) => `${role} has no leader.`), ...slow.unread].map((words) => h("p", { class: "bad", role: "alert" }, words)),
    ];
  }

  function nodes() {
    const found = slow.nodes.filter((each) => each.state !== "online" || each.trouble || each.held_back || each.left_out);
    return attention(
      "Nodes that need attention",
      found.slice(0, MOST_OLDEST),
      [
        { label: "node", isHeading: true, cell: (each) => link(`/nodes/${encodeURIComponent(each.node)}`, each.node) },
        { label: "state", cell: (each) => each.state },
        { label: "because", class: "wide", cell: (each) => each.trouble || each.held_back || each.left_out || each.drain?.reason || "" },
      ],
      (each) => each.node,
      slow.nodes.length ? `All ${count(slow.nodes.length, "node")} are online.` : "No node is enrolled.",
    );
  }

  function lost() {
    const byReason = Map.groupBy(slow.lost, (each) => each.reason);
    const rows = [...byReason].map(([reason, all]) => ({ reason, runs: all.reduce((sum, each) => sum + each.runs, 0), last: Math.max(...all.map((each) => each.first_ms)) }));
    return attention(
      "Preempted runs, this hour and the one before",
      rows,
      [
        { label: "reason", isHeading: true, cell: (each) => each.reason.replaceAll("_", " ") },
        { label: "runs", isNumber: true, cell: (each) => each.runs.toLocaleString("en") },
        { label: "first", cell: (each) => clock(each.last) },
      ],
      (each) => each.reason,
      "No run was preempted.",
    );
  }

  function paint() {
    return [
      h("h1", null, "Now"),
      pools.frame.complaints.map((each) => h("p", { class: "bad" }, each.text)),
      pools.frame.errors.map((each) => h("p", { class: "bad" }, each)),
      cluster(),
      barWords([["used", "usage"], ["demand", "demand beyond it"]]),
      tree(),
      slow.at > 0 && h("div", { class: "columns" }, [starving(), oldest(), lost(), nodes(), services()].map((each) => h("section", null, each))),
    ];
  }

  return {
    title: "Now",
    isLocal: true,
    load,
    paint,
    get every() {
      return Math.max(2000, 5 * tookMs);
    },
  };
}

function attention(title, rows, columns, key, none, rowClass) {
  return [h("h2", null, title), rows.length ? table(title, columns, rows, key, { rowClass }) : h("p", { class: "faint" }, none)];
}
