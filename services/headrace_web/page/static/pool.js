// One pool: its share and why, its children and operations, its course over time, and changes that are staged first.

import { bar, choice, poolBar, poolBarWords } from "./bars.js";
import { Staged } from "./changes.js";
import { facts, h, link, table, withCode } from "./draw.js";
import { PoolPlot } from "./plot.js";
import { ask, askAll, path } from "./session.js";
import { amount, amounts, count, duration, percent, poolName, RESOURCES, ROOT, shortName } from "./words.js";

const HOUR_MS = 3_600_000;
const PERIODS = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "1d": 24 * HOUR_MS, "7d": 168 * HOUR_MS };
const PLOT_MS = 30_000;
const MOST_ROWS = 500;
// Attributes that the form changes. All others are for `headrace pool set`.
const ATTRIBUTES = ["weight", "max_running_operation_count", "max_operation_count"];
const AMOUNTS = ["strong_guarantee_resources", "resource_limits"];

export default function pool(view) {
  const [name] = view.names;
  let found = null;
  let explained = null;
  let children = [];
  let rights = null;
  let plotted = { name: "", at: 0 };
  let tookMs = 0;
  const staged = new Staged(view);
  const plot = new PoolPlot();

  async function load(signal) {
    const begun = Date.now();
    let list;
    [found, explained, list] = await Promise.all([ask(path`/pools/${name}`, { signal }), ask(path`/pools/${name}/explanation`, { signal }), askAll(path`/pools`, { parent: name }, "pools", { signal })]);
    children = list.pools;
    rights ??= await ask(path`/me`({ pool: name }), { signal });
    tookMs = Date.now() - begun;
    view.paint();
    const wanted = `${resource()} ${period()}`;
    if (plotted.name !== wanted || begun - plotted.at > PLOT_MS) {
      await plot.load(name, resource(), PERIODS[period()], signal);
      plotted = { name: wanted, at: begun };
    }
  }

  const resource = () => view.parameters.get("mode") || found.pool.share.dominant_resource;
  const period = () => (view.parameters.get("period") in PERIODS ? view.parameters.get("period") : "1h");
  const resources = () => RESOURCES.filter((each) => each !== "user_slots" && found.frame.total[each]);

  function paint() {
    const { pool, frame } = found;
    const { share } = pool;
    const last = explained.words.at(-1);
    return [
      h("h1", null, name === ROOT ? "The tree" : pool.name),
      h("p", null, way(pool)),
      resources().map((each) => [h("p", { class: "faint above-bar" }, shortName(each)), poolBar(share, each)]),
      poolBarWords(),
      facts(
        ["fair share", amounts(pool.fair_resources)],
        ["usage", amounts(pool.usage)],
        ["demand", amounts(pool.demand)],
        ["because", withCode(last.bound)],
        ["more by", withCode(last.more)],
        ["state", share.starvation_status === "non_starving" ? share.scheduling_status.replaceAll("_", " ") : `${share.starvation_status.replaceAll("_", " ")}${share.starving_since_ms ? ` for ${duration(frame.at_ms - share.starving_since_ms)}` : ""}`],
        ["satisfaction", share.satisfaction_ratio < 1e6 ? percent(share.satisfaction_ratio) : ""],
        ["weight", String(share.weight)],
        ["mode", pool.settings.mode.replace("_", " ")],
        ["operations", link(`/operations?live=true&pool=${encodeURIComponent(name)}`, `${pool.operation_count} of at most ${pool.max_operation_count}, ${pool.running_operation_count} of at most ${pool.max_running_operation_count} running`)],
        ["saved volume", pool.accumulated_resource_ratio_volume ? `${pool.accumulated_resource_ratio_volume.toPrecision(3)} cluster-seconds` : ""],
      ),
      explanation(),
      course(),
      childTable(),
      operationTable(),
      people(),
      h("h2", null, "Change"),
      h("p", { class: "faint" }, `The pools are at revision ${frame.pools_revision}.`),
      staged.paint(),
      !pool.ephemeral && editForm(),
      createForm(),
    ];
  }

  const way = (pool) =>
    explained.steps.map((step, place) => [place ? " / " : "", place === explained.steps.length - 1 ? h("strong", null, poolName(step.pool)) : link(`/pools/${encodeURIComponent(step.pool)}`, poolName(step.pool))]).concat(pool.ephemeral ? " (ephemeral)" : "");

  function explanation() {
    const { steps, words, holders } = explained;
    const lack = holders.owed[holders.resource] || holders.wanted[holders.resource];
    const which = holders.owed[holders.resource] ? "is owed and does not have" : "wants and is not owed";
    return [
      h("h2", { id: "why" }, "Why it gets what it gets"),
      table(
        "From the root down",
        [
          { label: "pool", isHeading: true, cell: (each) => link(`/pools/${encodeURIComponent(each.pool)}`, poolName(each.pool)) },
          { label: "fair share", cell: (each) => amounts(each.fair_resources) },
          { label: "usage", cell: (each) => amounts(each.usage) },
          { label: "demand", cell: (each) => amounts(each.demand) },
          { label: "guarantee", cell: (each) => (each.pool === ROOT ? "" : amounts(each.guarantee)) },
          { label: "limit", cell: (each) => amounts(each.limits) },
          { label: "weight", isNumber: true, cell: (each) => (each.pool === ROOT ? "" : String(each.weight)) },
          { label: "because", class: "wide", cell: (each) => words[steps.indexOf(each)].bound },
        ],
        steps,
        (each) => each.pool,
      ),
      lack
        ? [
            h("p", null, `It lacks ${holders.resource} ${amount(holders.resource, lack)} that it ${which}; ${holders.resource} ${amount(holders.resource, holders.free[holders.resource])} of the cluster is unused.`),
            holders.operations.length > 0 &&
              table(
                `Held by ${count(holders.operation_count, "operation")}`,
                [
                  { label: "operation", isHeading: true, cell: (each) => link(`/operations/${encodeURIComponent(each.operation)}`, each.operation) },
                  { label: "pool", cell: (each) => link(`/pools/${encodeURIComponent(each.pool)}`, each.pool) },
                  { label: "user", cell: (each) => each.user },
                  { label: "usage", cell: (each) => amounts(each.usage) },
                  { label: "beyond its fair share", cell: (each) => amounts(each.beyond) },
                ],
                holders.operations,
                (each) => each.operation,
              ),
          ]
        : h("p", null, `It lacks nothing: it has all ${holders.resource} that it wants.`),
    ];
  }

  function course() {
    return [
      h("h2", null, "Over time"),
      choice("resource", resources().map((each) => [each, shortName(each)]), resource(), (value) => view.go({ mode: value })),
      " ",
      choice("period", Object.keys(PERIODS).map((each) => [each, each]), period(), (value) => view.go({ period: value })),
      plot.element,
    ];
  }

  function childTable() {
    if (!children.length) return null;
    return [
      h("h2", null, "Pools below it"),
      table(
        children.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${count(children.length, "pool")}` : count(children.length, "pool"),
        [
          { label: "pool", isHeading: true, cell: (each) => link(`/pools/${encodeURIComponent(each.name)}`, each.name) },
          { label: "share of the cluster", class: "bars", cell: (each) => poolBar(each.share, resource()) },
          { label: "weight", isNumber: true, cell: (each) => String(each.share.weight) },
          { label: "usage", isNumber: true, cell: (each) => amount(resource(), each.usage[resource()]) },
          { label: "fair share", isNumber: true, cell: (each) => amount(resource(), each.fair_resources[resource()]) },
          { label: "demand", isNumber: true, cell: (each) => amount(resource(), each.demand[resource()]) },
          { label: "running", isNumber: true, cell: (each) => String(each.running_operation_count) },
        ],
        children.slice(0, MOST_ROWS),
        (each) => each.name,
        { rowClass: (each) => (each.share.starvation_status === "non_starving" ? null : "short") },
      ),
    ];
  }

  function operationTable() {
    const { operations, operations_left_out: more } = found;
    if (!operations.length) return null;
    const bars = (each) => bar(`uses ${percent(each.usage_share[resource()])} of the cluster, fair share ${percent(each.fair_share.total[resource()])}`, [["used", each.usage_share[resource()]]], [["owed", each.fair_share.total[resource()]]]);
    return [
      h("h2", null, "Operations that have a running slot"),
      table(
        more || operations.length > MOST_ROWS ? `The first ${Math.min(MOST_ROWS, operations.length)} of ${count(operations.length + more, "operation")}` : count(operations.length, "operation"),
        [
          { label: "operation", isHeading: true, cell: (each) => link(`/operations/${encodeURIComponent(each.name)}`, each.name) },
          { label: "share of the cluster", class: "bars", cell: bars },
          { label: "weight", isNumber: true, cell: (each) => String(each.weight) },
          { label: "satisfaction", isNumber: true, cell: (each) => (each.satisfaction_ratio < 1e6 ? percent(each.satisfaction_ratio) : "–") },
          { label: "state", cell: (each) => (each.starvation_status === "non_starving" ? each.scheduling_status : each.starvation_status).replaceAll("_", " ") },
        ],
        operations.slice(0, MOST_ROWS),
        (each) => each.name,
        { rowClass: (each) => (each.starvation_status === "non_starving" ? null : "short") },
      ),
    ];
  }

  function people() {
    const [own] = rights.pools;
    if (!own) return null;
    return [
      h("h2", null, "Who may do what"),
      facts(["you may", own.rights.join(", ") || "nothing"], ...own.lacked.map((each) => [each.right, each.holders.length ? `held by ${each.holders.join(", ")}` : "held by administrators only"])),
    ];
  }

  // Return the text of an attribute that the form shows; empty: it is not set.
  function written(attribute) {
    const [field, part] = attribute.split("/");
    const value = part ? found.pool.settings[field][part] : found.pool.settings[field];
    if (value === null || value === undefined) return "";
    return part === "memory" ? amount("memory", value).replace(" ", "") : String(value);
  }

  function editForm() {
    const names = name === ROOT ? [] : [...ATTRIBUTES, ...AMOUNTS.flatMap((field) => resources().map((each) => `${field}/${each}`))];
    if (!names.length) return h("p", { class: "faint" }, "Options of the whole tree are set with ", h("code", null, "headrace tree set"), ".");
    const stage = (event) => {
      event.preventDefault();
      const attributes = {};
      for (const [attribute, text] of new FormData(event.target)) {
        if (text.trim() === written(attribute)) continue;
        attributes[attribute] = text.trim() === "" ? null : attribute.endsWith("/memory") || Number.isNaN(Number(text)) ? text.trim() : Number(text);
      }
      if (Object.keys(attributes).length) staged.add({ change: "set", pool: name, attributes }, found.frame.pools_revision);
    };
    return h(
      "form",
      { class: "fields", onsubmit: stage, "data-own": true, "data-key": `edit ${names.map(written)}` },
      names.map((each) => h("label", null, each, h("input", { name: each, value: written(each), placeholder: "default" }))),
      h("button", null, "Stage the changes"),
      found.pool.child_pool_count === 0 && h("button", { type: "button", onclick: () => staged.add({ change: "remove", pool: name }, found.frame.pools_revision) }, "Stage the removal"),
    );
  }

  function createForm() {
    const stage = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      const weight = form.get("weight").trim();
      staged.add({ change: "create", pool: form.get("pool").trim(), to: name, attributes: weight ? { weight: Number(weight) } : {} }, found.frame.pools_revision);
      event.target.reset();
    };
    return h(
      "form",
      { class: "fields", onsubmit: stage, "data-own": true, "data-key": "create" },
      h("label", null, "new pool below it", h("input", { name: "pool", required: true })),
      h("label", null, "weight", h("input", { name: "weight", type: "number", step: "any", min: 0, placeholder: "default" })),
      h("button", null, "Stage the new pool"),
    );
  }

  return {
    title: poolName(name),
    events: path`/events`({ pool: name }),
    load,
    paint,
    get every() {
      return Math.max(2000, 5 * tookMs);
    },
  };
}
