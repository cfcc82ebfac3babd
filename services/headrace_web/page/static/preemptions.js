// The page «Preemptions and starvation»: what starves now, which runs were preempted lately and why, and what would have been preempted
// where preemption is only observed. Rows keep their place while they are read: new runs are counted, and shown when the person asks.

import { choice } from "./bars.js";
import { h, link, table } from "./draw.js";
import { ask, path } from "./session.js";
import { clock, count, duration, percent, poolName } from "./words.js";

const HOUR_MS = 3_600_000;
const PERIODS = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "1d": 24 * HOUR_MS, "7d": 168 * HOUR_MS };
// Runs that are kept, runs that are shown until the person asks for more, and runs of a page.
const MOST_KEPT = 2000;
const SHOWN = 100;
const LIMIT = 500;
// Milliseconds between two questions about starvation at least. The service asks for all pools.
const STARVING_MS = 5000;
const MOST_NAMED = 3;
const REASONS = {
  preemption: "starvation",
  aggressive_preemption: "aggressive starvation",
  graceful_preemption: "above its fair share",
  resource_limits_violated: "above a limit",
  resource_overcommit: "node overcommitted",
  pool_shortage: "shortage of pools",
};
const SHARES = { fair_share: "fair share", min_share: "strong guarantee" };

const operationLink = (id) => link(`/operations/${encodeURIComponent(id)}`, id);
const poolLink = (pool) => (pool ? link(`/pools/${encodeURIComponent(pool)}`, poolName(pool)) : "");
const nodeLink = (node) => (node ? link(`/nodes/${encodeURIComponent(node)}`, node) : "–");

export default function preemptions(view) {
  let starving = { againAt: 0, found: null, observed: [] };
  let unknown = "";
  let runs = [];
  let readOf = null;
  let cursor = 0;
  let readToMs = 0;
  let isWhole = false;
  let beginsLate = false;
  let shown = SHOWN;
  let unseen = 0;

  const pool = () => view.parameters.get("pool") ?? "";
  const period = () => (view.parameters.get("period") in PERIODS ? view.parameters.get("period") : "1h");
  // The beginning and the end of the period, as a person wrote them: local times without a zone. They go before the period.
  const written = (name) => Date.parse(view.parameters.get(name) ?? "") || null;
  const since = () => written("since") ?? Date.now() - PERIODS[period()];

  async function load(signal) {
    const { search } = location;
    const isNew = readOf !== search;
    const asked = isNew || Date.now() > starving.againAt ? askStarving(signal) : starving;
    if (isNew) {
      [runs, cursor, readToMs, isWhole, beginsLate, shown, unseen] = [[], 0, 0, false, false, SHOWN, 0];
      readOf = search;
    }
    try {
      starving = await asked;
      unknown = "";
    } catch (error) {
      if (error.status !== 404) throw error;
      // The form stays, so that the person can name another pool.
      unknown = error.message;
      return;
    }
    if (!isWhole) view.paint();
    await readRuns(signal);
  }

  async function askStarving(signal) {
    const begun = Date.now();
    const found = await ask(path`/starving`({ pool: pool() }), { signal });
    // The rest is shown also while no allocator answers.
    const told = await ask(path`/pools/${found.pool}/preemptions`, { signal }).catch((error) => (error.status === 503 || error.status === 504 ? { observed: [] } : Promise.reject(error)));
    // A large tree is asked for less often.
    const againAt = Date.now() + Math.max(STARVING_MS, 5 * (Date.now() - begun));
    return { againAt, found, observed: told.observed };
  }

  // Read what the log has of the period, and afterwards only what is new.
  async function readRuns(signal) {
    for (let more = true; more; ) {
      const page = await ask(path`/preemptions`({ pool: pool(), since_ms: Math.floor(since()), until_ms: written("until"), limit: LIMIT, cursor }), { signal });
      if (location.search !== readOf) return; // the person has gone on
      beginsLate ||= page.begins_late;
      if (isWhole && runs.length > unseen) unseen += page.preemptions.length;
      runs.push(...page.preemptions);
      if (runs.length > MOST_KEPT) runs = runs.slice(-MOST_KEPT);
      cursor = page.read_to;
      readToMs = Math.max(readToMs, page.read_to_ms);
      more = page.next !== null;
      if (more && !isWhole) view.paint();
    }
    isWhole = true;
    const first = since();
    runs = runs.filter((each) => each.run.at_ms >= first);
  }

  function form() {
    const change = (event) => view.go({ [event.target.name]: event.target.value.trim(), ...(event.target.name === "pool" ? {} : { period: null }) });
    const field = (name, label) => h("label", null, `${label} `, h("input", { name, type: "datetime-local", value: view.parameters.get(name) ?? "", onchange: change }));
    return [
      h(
        "form",
        { class: "filter", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", null, "pool and the pools below it ", h("input", { name: "pool", size: 12, value: pool(), onchange: change })),
        field("since", "preempted since"),
        field("until", "until"),
      ),
      choice("period", Object.keys(PERIODS).map((each) => [each, `last ${each}`]), written("since") || written("until") ? "" : period(), (each) => view.go({ period: each === "1h" ? null : each, since: null, until: null })),
    ];
  }

  function starvingTable() {
    const { found } = starving;
    const rows = found.starving;
    const element = (each) => (each.kind === "operation" ? operationLink(each.name) : poolLink(each.name));
    const why = (each) => (each.kind === "operation" ? link(`/operations/${encodeURIComponent(each.name)}#why`, `why ${each.name} waits`) : link(`/pools/${encodeURIComponent(each.name)}#why`, `why ${poolName(each.name)} gets its share`));
    return [
      h("h2", null, "Starving now"),
      rows.length
        ? table(
            `${count(rows.filter((each) => each.kind !== "operation").length, "pool")} and ${count(rows.filter((each) => each.kind === "operation").length, "operation")} starve`,
            [
              { label: "starves", isHeading: true, cell: element },
              { label: "kind", cell: (each) => each.kind },
              { label: "in pool", cell: (each) => poolLink(each.parent) },
              { label: "since", cell: (each) => clock(each.starving_since_ms) },
              { label: "for", isNumber: true, cell: (each) => duration(Math.max(0, found.at_ms - each.starving_since_ms)) },
              { label: "how", cell: (each) => (each.starvation_status === "aggressively_starving" ? "aggressively" : "normally") },
              { label: "short of its", cell: (each) => SHARES[each.starvation_reason] ?? "–" },
              { label: "has of it", isNumber: true, cell: (each) => percent(Math.min(1, each.local_satisfaction_ratio)) },
              { label: "may preempt", cell: mayPreempt },
              { label: "why", cell: why },
            ],
            rows,
            (each) => `${each.kind} ${each.name}`,
          )
        : h("p", { class: "faint" }, "No pool and no operation starves."),
      found.operations_left_out > 0 && h("p", { class: "faint" }, `${count(found.operations_left_out, "operation")} did not fit into the answer.`),
    ];
  }

  function mayPreempt(each) {
    const names = Object.keys(each.may_preempt);
    if (!names.length) return "–";
    const more = names.length - MOST_NAMED;
    return [names.slice(0, MOST_NAMED).map((name, place) => [place ? ", " : "", operationLink(name)]), more > 0 ? ` and ${more} more` : "", each.would_take.length ? `; would preempt ${each.would_take.length}` : ""];
  }

  function runTable() {
    const newest = runs.slice(0, Math.max(0, runs.length - unseen)).toReversed();
    const rows = newest.slice(0, shown);
    return [
      h("h2", null, "Preempted runs"),
      !isWhole && h("p", { class: "faint", role: "status" }, readToMs ? `Reading the log; read up to ${clock(readToMs)}.` : "Reading the log."),
      h("p", { role: "status", class: "unseen" }, unseen > 0 && h("button", { type: "button", onclick: showNew }, `Show ${count(unseen, "new run")}`)),
      rows.length
        ? table(
            rows.length < newest.length ? `The newest ${rows.length} of ${count(newest.length, "run")}, by the end of the run` : `${count(newest.length, "run")}, by the end of the run`,
            [
              { label: "ended", isHeading: true, cell: (each) => [clock(each.run.at_ms), each.run.runs_again && h("span", { class: "cure" }, "retried")] },
              { label: "operation", cell: (each) => [operationLink(each.run.operation), h("span", { class: "cure whole" }, `job ${each.run.slot.index}, attempt ${each.run.slot.attempt}`)] },
              { label: "pool", cell: (each) => poolLink(each.pool) || "–" },
              { label: "for", cell: beneficiary },
              { label: "node", cell: (each) => nodeLink(each.run.node) },
              { label: "rule", cell: (each) => REASONS[each.run.preemption.reason] ?? each.run.preemption.reason },
              { label: "proof", class: "wide", cell: (each) => each.words },
              { label: "why", cell: whys },
            ],
            rows,
            (each) => `${each.run.operation} ${each.run.slot.index} ${each.run.slot.attempt} ${each.run.allocation}`,
          )
        : isWhole && h("p", { class: "faint" }, "No run was preempted in this period."),
      newest.length > shown && h("p", { class: "pages" }, h("button", { type: "button", onclick: more }, `Show ${Math.min(SHOWN, newest.length - shown)} more`)),
      runs.length === MOST_KEPT && h("p", { class: "faint" }, `The page keeps the newest ${count(MOST_KEPT, "run")}. Choose a shorter period to see earlier runs.`),
      beginsLate && h("p", { class: "faint" }, "The log does not keep the beginning of this period any more."),
    ];
  }

  function showNew() {
    unseen = 0;
    view.paint();
  }

  function more() {
    shown += SHOWN;
    view.paint();
  }

  function beneficiary(each) {
    const id = each.run.preemption.beneficiary;
    if (!id) return "–";
    return [operationLink(id), each.beneficiary_pool && h("span", { class: "cure whole" }, "in ", poolLink(each.beneficiary_pool))];
  }

  function whys(each) {
    const id = each.run.preemption.beneficiary;
    return [
      link(`/operations/${encodeURIComponent(each.run.operation)}#history`, "history"),
      each.pool && [", ", link(`/pools/${encodeURIComponent(each.pool)}#why`, `share of ${poolName(each.pool)}`)],
      id && each.beneficiary_pool && each.beneficiary_pool !== each.pool && [", ", link(`/pools/${encodeURIComponent(each.beneficiary_pool)}#why`, `share of ${poolName(each.beneficiary_pool)}`)],
    ];
  }

  // What would have been preempted where pools only observe preemption.
  function observedTable() {
    const first = since();
    const last = written("until") ?? Infinity;
    const rows = starving.observed.filter((each) => each.record.decided_at_ms >= first && each.record.decided_at_ms < last).slice(0, SHOWN);
    if (!rows.length) return null;
    return [
      h("h2", null, "Only observed"),
      table(
        "Allocations that would have been preempted in pools with preemption=observe",
        [
          { label: "time", isHeading: true, cell: (each) => clock(each.record.decided_at_ms) },
          { label: "operation", cell: (each) => operationLink(each.operation) },
          { label: "pool", cell: (each) => poolLink(each.pool) },
          { label: "for", cell: (each) => (each.record.beneficiary ? operationLink(each.record.beneficiary) : "–") },
          { label: "node", cell: (each) => nodeLink(each.node) },
          { label: "rule", cell: (each) => REASONS[each.record.reason] ?? each.record.reason },
          { label: "why", cell: (each) => link(`/pools/${encodeURIComponent(each.pool)}#why`, `share of ${poolName(each.pool)}`) },
        ],
        rows,
        (each) => `${each.allocation} ${each.record.decided_at_ms}`,
      ),
    ];
  }

  function paint() {
    return [h("h1", null, "Preemptions and starvation"), form(), unknown ? h("p", { class: "bad", role: "alert" }, unknown) : [starvingTable(), runTable(), observedTable()]];
  }

  return {
    title: "Preemptions and starvation",
    events: path`/events`,
    every: STARVING_MS,
    load,
    paint,
    reset: () => (readOf = null),
    isEager: () => readOf !== location.search,
  };
}
