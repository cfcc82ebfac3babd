// The page «Now»: the cluster by resource, the tree of pools, and what needs attention.

import { bar, barWords, choice, poolBar, poolBarWords } from "./bars.js";
import { h, link, table } from "./draw.js";
import { ask, askAll, path } from "./session.js";
import { amount, clock, count, duration, percent, poolName, RESOURCES, ROOT, shortName, waitsFor } from "./words.js";

// Larger trees are folded below their first level. A folded tree opens by the name of a pool, or level by level.
const MOST_OPEN = 200;
const MOST_CHILDREN = 500;
const MOST_OLDEST = 10;
// Milliseconds between two looks at what changes slowly: services, nodes, waiting operations, preemptions.
const SLOW_MS = 10_000;
// Milliseconds between two drawings of a tree whose pools still arrive.
const PAINT_MS = 1000;
const HOUR_MS = 3_600_000;

export default function now(view) {
  let pools = [];
  let frame = null;
  let children = new Map();
  const turned = new Map();
  let slow = { at: 0, services: [], unread: [], nodes: [], waiting: [], lost: [] };
  let isWhole = false;
  let tookMs = 0;

  async function load(signal) {
    const begun = Date.now();
    const slower = begun - slow.at > SLOW_MS ? loadSlow(signal, begun) : slow;
    // Of a large tree, the pools that have arrived are shown meanwhile.
    let paintedAt = 0;
    const take = (page) => {
      if (isWhole || Date.now() - paintedAt < PAINT_MS) return;
      keep(page);
      view.paint();
      paintedAt = Date.now();
    };
    const [page, others] = await Promise.all([askAll(path`/pools`, {}, "pools", { signal, take }), slower]);
    keep(page);
    slow = others;
    isWhole = true;
    tookMs = Date.now() - begun;
  }

  function keep(page) {
    [pools, frame] = [page.pools, page.frame];
    children = Map.groupBy(pools.slice(1), (each) => each.parent);
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
  const isOpen = (pool) => turned.get(pool.name) ?? (pool.name === ROOT || pools.length <= MOST_OPEN);

  // Return the pools that are shown: the open part of the tree, or all whose names contain the searched text.
  function shown() {
    const text = (view.parameters.get("find") ?? "").toLowerCase();
    if (text) return pools.filter((each) => each.name.toLowerCase().includes(text)).slice(0, MOST_CHILDREN);
    const found = [];
    const walk = (pool) => {
      found.push(pool);
      if (isOpen(pool)) (children.get(pool.name) ?? []).slice(0, MOST_CHILDREN).forEach(walk);
    };
    if (pools.length) walk(pools[0]);
    return found;
  }

  function cluster() {
    const root = pools[0];
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
    const name = (pool) => {
      const depth = pool.name === ROOT ? 0 : pool.path.split("/").length - 1;
      const hasChildren = children.has(pool.name) || (pool.name === ROOT && pools.length > 1);
      const open = isOpen(pool);
      const turn = () => {
        turned.set(pool.name, !open);
        view.paint();
      };
      return h(
        "span",
        { class: `tree-name depth-${Math.min(depth, 8)}` },
        hasChildren ? h("button", { type: "button", "aria-expanded": String(open), "aria-label": `pools below ${poolName(pool.name)}`, onclick: turn }, open ? "▾" : "▸") : h("span", { class: "no-children" }),
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
      h("form", { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() }, h("label", null, "find a pool ", h("input", { name: "find", type: "search", value: view.parameters.get("find") ?? "", onchange: (event) => view.go({ find: event.target.value.trim() }) }))),
      table(count(pools.length, "pool") + (isWhole ? "" : " so far"), columns, shown(), (pool) => pool.name, { rowClass: (pool) => (pool.share.starvation_status === "non_starving" ? null : "short") }),
      poolBarWords(),
    ];
  }

  function starving() {
    const found = pools.filter((each) => each.share.starvation_status !== "non_starving");
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
      frame.complaints.map((each) => h("p", { class: "bad" }, each.text)),
      frame.errors.map((each) => h("p", { class: "bad" }, each)),
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
    // A large tree is asked for less often.
    get every() {
      return Math.max(2000, 5 * tookMs);
    },
  };
}

function attention(title, rows, columns, key, none, rowClass) {
  return [h("h2", null, title), rows.length ? table(title, columns, rows, key, { rowClass }) : h("p", { class: "faint" }, none)];
}
