// The list of operations: filter, sort, choose columns, act on many. Rows keep their order while they are read: new operations are
// counted, and shown when the person asks.

import { Actions } from "./actions.js";
import { h, link, table } from "./draw.js";
import { ask, askAll, path } from "./session.js";
import { amounts, clock, count, isOver, poolName, stateWords, timeWords, waitsFor } from "./words.js";

const LIMIT = 100;
// Largest number of operations that «select all» selects, and of rows that are asked for one by one.
const MOST_SELECTED = 10_000;
const MOST_SINGLE = 20;
const STATES = ["starting", "waiting", "running", "completing", "completed", "failing", "failed", "aborting", "aborted"];
const ORDERS = { started: "newest first", oldest: "oldest first", unused_cpu: "most unused cpu first", unused_memory: "most unused memory first" };

const COLUMNS = {
  operation: { cell: (each) => link(`/operations/${encodeURIComponent(each.operation)}`, each.operation), value: (each) => each.operation, isHeading: true },
  state: { cell: (each) => h("span", { class: `state ${each.state}` }, stateWords(each)), value: stateWords },
  pool: { cell: (each) => poolName(each.spec.pool), value: (each) => each.spec.pool },
  "waits for": { cell: waitsFor, value: waitsFor, class: "wide" },
  done: { cell: (each) => `${each.completed_jobs}/${each.spec.job_count}`, value: (each) => each.completed_jobs / each.spec.job_count, isNumber: true },
  failed: { cell: (each) => (each.failed_jobs + each.timed_out_jobs || "–").toLocaleString("en"), value: (each) => each.failed_jobs + each.timed_out_jobs, isNumber: true },
  started: { cell: (each) => clock(each.started_at_ms), value: (each) => each.started_at_ms },
  time: { cell: timeWords, value: (each) => (each.ended_at_ms || Date.now()) - each.started_at_ms, isNumber: true },
  user: { cell: (each) => each.user, value: (each) => each.user },
  "each job": { cell: (each) => amounts(each.spec.resources), value: (each) => each.spec.resources.cpu },
  weight: { cell: (each) => String(each.spec.weight), value: (each) => each.spec.weight, isNumber: true },
  title: { cell: (each) => each.spec.title, value: (each) => each.spec.title, class: "wide" },
};
const USUAL = ["operation", "state", "pool", "done", "failed", "started", "time", "user", "title"];

export default function operations(view) {
  let rows = [];
  let isFresh = false;
  let next = null;
  let unseen = 0;
  let selected = new Map();
  const actions = new Actions(view, () => [...selected.values()]);

  const filter = () => Object.fromEntries(["pool", "state", "user", "node", "live", "order"].map((name) => [name, view.parameters.get(name) ?? ""]));
  const shown = () => (view.parameters.get("columns") ?? USUAL.join()).split(",").filter((name) => name in COLUMNS);

  function sort() {
    const [, back, name] = /^(-?)(.*)$/.exec(view.parameters.get("sort") ?? "");
    if (!(name in COLUMNS)) return;
    const { value } = COLUMNS[name];
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    rows.sort((a, b) => (back ? -1 : 1) * compare(value(a), value(b)));
  }

  async function load(signal) {
    const cursor = view.parameters.get("cursor") ?? "";
    const { search } = location;
    const page = await ask(path`/operations`({ ...filter(), limit: LIMIT, cursor }), { signal });
    if (search !== location.search) return; // the person has gone on
    next = page.next;
    if (!isFresh || !rows.length) {
      rows = page.operations;
      isFresh = true;
      sort();
      unseen = 0;
      return;
    }
    const found = new Map(page.operations.map((each) => [each.operation, each]));
    const known = new Set(rows.map((each) => each.operation));
    unseen = cursor ? 0 : page.operations.filter((each) => !known.has(each.operation)).length;
    // Rows that the filter no longer matches stay, with their present state.
    const gone = rows.filter((each) => !found.has(each.operation) && !isOver(each)).slice(0, MOST_SINGLE);
    for (const each of await Promise.allSettled(gone.map((each) => ask(path`/operations/${each.operation}`, { signal })))) {
      if (each.status === "fulfilled") found.set(each.value.operation, each.value);
    }
    rows = rows.map((each) => found.get(each.operation) ?? each);
    for (const id of selected.keys()) if (found.has(id)) selected.set(id, found.get(id));
  }

  function select(some, isOn) {
    for (const each of some) {
      if (isOn) selected.set(each.operation, each);
      else selected.delete(each.operation);
    }
    view.paint();
  }

  async function selectAll() {
    const all = await askAll(path`/operations`, { ...filter(), limit: 500 }, "operations", { most: MOST_SELECTED });
    select(all.operations, true);
  }

  function filterForm() {
    const given = filter();
    const change = (event) => view.go({ [event.target.name]: event.target.type === "checkbox" ? event.target.checked : event.target.value.trim(), cursor: null });
    const field = (name, label) => h("label", null, `${label} `, h("input", { name, value: given[name], size: 12, onchange: change }));
    const choice = (name, label, values) =>
      h("label", null, `${label} `, h("select", { name, onchange: change }, values.map(([value, words]) => h("option", { value, selected: value === given[name] }, words))));
    return h(
      "form",
      { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() },
      field("pool", "pool"),
      field("user", "user"),
      field("node", "on node"),
      choice("state", "state", [["", "any"], ...STATES.map((each) => [each, each])]),
      choice("order", "order", Object.entries(ORDERS).map(([value, words]) => [value === "started" ? "" : value, words])),
      h("label", null, h("input", { type: "checkbox", name: "live", checked: given.live === "true", onchange: change }), " only live"),
      columnChooser(),
    );
  }

  function columnChooser() {
    const chosen = shown();
    const change = (name, isOn) => view.go({ columns: Object.keys(COLUMNS).filter((each) => (each === name ? isOn : chosen.includes(each))).join() });
    return h(
      "details",
      null,
      h("summary", null, "Columns"),
      Object.keys(COLUMNS).map((name) =>
        h("label", null, h("input", { type: "checkbox", checked: chosen.includes(name), disabled: name === "operation", onchange: (event) => change(name, event.target.checked) }), ` ${name}`),
      ),
    );
  }

  function columns() {
    const sorted = view.parameters.get("sort") ?? "";
    const all = rows.length > 0 && rows.every((each) => selected.has(each.operation));
    const box = {
      label: h("input", { type: "checkbox", "aria-label": "select all rows of this page", checked: all, onchange: (event) => select(rows, event.target.checked) }),
      cell: (each) => h("input", { type: "checkbox", "aria-label": `select ${each.operation}`, checked: selected.has(each.operation), onchange: (event) => select([each], event.target.checked) }),
    };
    return [
      box,
      ...shown().map((name) => ({
        ...COLUMNS[name],
        label: h("button", { type: "button", class: "sort", onclick: () => view.go({ sort: sorted === name ? `-${name}` : sorted === `-${name}` ? null : name }) }, name),
        sorted: sorted === name ? "ascending" : sorted === `-${name}` ? "descending" : null,
      })),
    ];
  }

  function paint() {
    const isFirst = !view.parameters.get("cursor");
    return [
      h("h1", null, "Operations"),
      filterForm(),
      h(
        "div",
        { class: "selection" },
        h("p", { role: "status" }, selected.size ? `${count(selected.size, "operation")} selected ` : "no operation selected "),
        next !== null && h("button", { type: "button", onclick: selectAll }, "Select all that the filter matches"),
        selected.size > 0 && h("button", { type: "button", onclick: () => select([...selected.values()], false) }, "Select none"),
      ),
      actions.paint(),
      h("p", { role: "status", class: "unseen" }, unseen > 0 && h("button", { type: "button", onclick: () => view.reload() }, `Show ${count(unseen, "new operation")}`)),
      rows.length
        ? table("Operations, sorted within the page", columns(), rows, (each) => each.operation, { rowClass: (each) => (each.state.startsWith("fail") ? "bad" : null) })
        : h("p", null, "No operation matches."),
      h(
        "p",
        { class: "pages" },
        !isFirst && h("button", { type: "button", onclick: () => view.go({ cursor: null }) }, "First page"),
        next !== null && h("button", { type: "button", onclick: () => view.go({ cursor: next }) }, `Next ${LIMIT}`),
      ),
    ];
  }

  return {
    title: "Operations",
    events: path`/events`,
    every: 5000,
    load,
    paint,
    reset: () => (isFresh = false),
    isEager: () => !isFresh,
  };
}
