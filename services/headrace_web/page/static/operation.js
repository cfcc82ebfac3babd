// One operation: progress, why it waits, timeline, what failed, jobs, output, history, spec.

import { Actions } from "./actions.js";
import { bar, barWords } from "./bars.js";
import { facts, h, link, table, withCode } from "./draw.js";
import { LogReader } from "./log.js";
import { ask, follow, path, Problem } from "./session.js";
import { Life, Waterfall } from "./waterfall.js";
import { amount, amounts, clock, count, duration, isOver, percent, poolName, stateWords, timeWords, waitsFor } from "./words.js";

const LIMIT = 100;
const RESULTS = ["completed", "failed", "aborted", "lost", "timed_out"];
// Largest number of events on the page. The page pauses after it has read what is new in the history, this many times as long as the
// reading took.
const MOST_EVENTS = 200;
const PAUSE_FACTOR = 10;
const HISTORY_PATIENCE_MS = 500;

export default function operation(view) {
  const [id] = view.names;
  let found = null;
  let explained = null;
  let places = null;
  let jobs = null;
  const nothing = () => ({ newest: [], failures: new Map(), life: new Life(), number: 0, beginsLate: false });
  const history = { ...nothing(), after: 0, isRead: false, isFinal: false, trouble: "" };
  let historyAgainAt = 0;
  let jobsOf = "";
  const actions = new Actions(view, () => [found]);
  const log = new LogReader(id);
  const waterfall = new Waterfall(view);

  async function load(signal) {
    const wasOver = found !== null && isOver(found);
    const search = location.search;
    const cursor = Number(view.parameters.get("jobs") ?? 0);
    const results = view.parameters.get("results") ?? "";
    const [one, why, where, page] = await Promise.all([
      ask(path`/operations/${id}`, { signal }),
      wasOver ? explained : ask(path`/operations/${id}/explanation`, { signal }),
      wasOver ? places : ask(path`/operations/${id}/places`, { signal }).catch((error) => (error.name === "AbortError" ? Promise.reject(error) : null)),
      ask(path`/operations/${id}/jobs`({ limit: LIMIT, cursor, results }), { signal }),
    ]);
    [found, explained, places] = [one, why, where];
    if (search === location.search) [jobs, jobsOf] = [page, search];
    if (!history.isFinal && Date.now() >= historyAgainAt) {
      const reading = readHistory(signal, isOver(one));
      // The history of an operation with many jobs takes long, so the page waits for it only a moment.
      const isRead = await Promise.race([reading.then(() => true), new Promise((done) => setTimeout(done, HISTORY_PATIENCE_MS))]);
      if (!isRead) reading.then(() => signal.aborted || view.paint());
    }
    log.keepUp(found);
  }

  // Read what is new in the history. A part is taken once it is known where to go on after it. What is read after the operation is over
  // has everything.
  async function readHistory(signal, isFinal) {
    const begun = Date.now();
    historyAgainAt = Infinity;
    history.trouble = "";
    // An admission of the release before does not say where to go on, so everything is read again.
    if (history.after === 0) Object.assign(history, nothing());
    let events = [];
    try {
      await follow(
        path`/operations/${id}/history`({ after: history.after }),
        (kind, event) => {
          if (kind === "begins_late") history.beginsLate = true;
          if (kind === "problem") history.trouble = event.detail;
          if (kind === "end") [history.isRead, history.isFinal] = [true, isFinal];
          if (event.happened !== undefined) events.push(event);
          if (kind !== "read_to") return;
          events.forEach(takeEvent);
          [history.after, events] = [event.after, []];
        },
        signal,
      );
    } catch (error) {
      if (!(error instanceof Problem) && error.name !== "AbortError") throw error;
      if (!signal.aborted) history.trouble = error.message;
    }
    historyAgainAt = signal.aborted ? 0 : Date.now() + PAUSE_FACTOR * (Date.now() - begun);
  }

  function takeEvent(event) {
    history.number += 1;
    history.life.take(event);
    history.newest.push(event);
    if (history.newest.length > MOST_EVENTS) history.newest.shift();
    if (event.happened === "job_ended" && event.result !== "completed") addFailure(history.failures, event);
  }

  function paint() {
    const over = isOver(found);
    return [
      h("h1", null, found.spec.title || found.operation),
      facts(
        ["operation", found.operation],
        ["state", h("span", { class: `state ${found.state}` }, stateWords(found))],
        ["because", withCode(found.reason)],
        ["suspended by", found.suspended_for],
        ["waits for", waitsFor(found)],
        ["pool", found.placements.length > 1 ? found.placements.map((each) => `${each.pool} in ${each.tree}`).join(", ") : poolLink(found.spec.pool)],
        ["user", found.user],
        ["started", clock(found.started_at_ms)],
        [over ? "took" : "for", timeWords(found)],
        ["ends by", found.ends_by_ms ? clock(found.ends_by_ms) : ""],
        ["each job", amounts(found.spec.resources)],
        ["weight", String(found.spec.weight)],
      ),
      progress(),
      !over && actions.paint(),
      !over && why(),
      waterfall.paint(found, places, history.life, reasonOf),
      failures(),
      jobTable(),
      log.paint(),
      use(),
      events(),
      spec(),
    ];
  }

  function progress() {
    const all = found.spec.job_count || 1;
    const running = places?.running_jobs ?? 0;
    const bad = found.given_up_jobs;
    const words = `${found.completed_jobs} of ${count(found.spec.job_count, "job")} completed, ${running} running, ${Math.max(0, found.open_jobs - running)} open`;
    return [
      bar(words, [
        ["good", found.completed_jobs / all],
        ["used", running / all],
        ["lost", bad / all],
      ]),
      h("p", { class: "faint" }, words, found.failed_jobs ? `; ${count(found.failed_jobs, "run")} failed` : "", found.lost_jobs ? `; ${count(found.lost_jobs, "run")} lost` : "", found.timed_out_jobs ? `; ${count(found.timed_out_jobs, "job")} timed out` : "", "."),
      barWords([["good", "completed"], ["used", "running"], ["lost", "given up"]]),
    ];
  }

  function why() {
    const { limits, waiting } = explained;
    const causes = Object.values(waiting).flatMap((each) => each.causes.map((cause) => ({ ...cause, tree: each.tree })));
    const full = found.state === "pending" ? limits.levels.filter((each) => each.full) : [];
    const upstream = limits.upstream.map((each) => h("li", null, "operation ", link(`/operations/${encodeURIComponent(each.operation)}`, each.operation), ` is ${each.state}, and has to end first`));
    return [
      h("h2", { id: "why" }, "Why it waits"),
      causes.length + upstream.length + limits.pauses.length + full.length
        ? h(
            "ul",
            { class: "causes", "aria-live": "polite" },
            limits.pauses.map((each) => h("li", null, each)),
            upstream,
            full.map((each) => h("li", null, `${poolName(each.pool)} runs as many operations as its limit allows: ${each.running_operation_count} of ${each.max_running_operation_count}`, holders(each))),
            causes.map((each) => h("li", null, each.words, each.cure && h("span", { class: "cure" }, "→ ", withCode(each.cure)))),
          )
        : h("p", null, places?.pending_jobs ? "Nothing blocks it: the next node with free resources gets a job." : "None of its jobs waits."),
      Object.values(waiting).map(inTree),
    ];
  }

  const holders = (level) =>
    h("span", { class: "cure" }, "held by ", level.holders.map((each, place) => [place ? ", " : "", link(`/operations/${encodeURIComponent(each.operation)}`, each.operation), ` of ${each.user}`]), level.more_holders ? ` and ${level.more_holders} more` : "");

  function inTree(waiting) {
    const { nodes } = waiting;
    const left = waiting.mean_job_ms && waiting.running_jobs && waiting.pending_jobs ? duration((waiting.mean_job_ms * waiting.pending_jobs) / waiting.running_jobs) : "";
    return facts(
      ["jobs", `${waiting.running_jobs} running, ${waiting.pending_jobs} pending${waiting.in_doubt_jobs ? `, ${waiting.in_doubt_jobs} unconfirmed` : ""}; each needs ${amounts(waiting.needed)}`],
      ["nodes", `${nodes.enrolled} enrolled, ${nodes.accepting} take jobs, ${nodes.matching} match its tags, ${nodes.large_enough} are large enough, ${nodes.with_room} have free resources`],
      ["limits", waiting.limits.length > 0 && waiting.limits.map((each) => h("div", { class: each.holds ? "bad" : null }, `${poolName(each.pool)} has ${each.resource} ${amount(each.resource, scaled(each.resource, each.used))} of its limit ${amount(each.resource, scaled(each.resource, each.limit))}`))],
      ["at this pace", left && `its last job starts in about ${left}`],
      ["preempted", waiting.preempted ? `${count(waiting.preempted, "time")} within the last hour` : ""],
    );
  }

  function failures() {
    const groups = [...history.failures.values()].sort((a, b) => b.number - a.number);
    if (!groups.length) return null;
    return [
      h("h2", null, "Failures by reason and node"),
      table(
        "Ended runs that did not complete",
        [
          { label: "reason", isHeading: true, cell: (each) => each.reason },
          { label: "node", cell: (each) => (each.node ? link(`/nodes/${encodeURIComponent(each.node)}`, each.node) : "–") },
          { label: "runs", isNumber: true, cell: (each) => each.number.toLocaleString("en") },
          { label: "last", cell: (each) => clock(each.at_ms) },
          { label: "output", cell: (each) => h("button", { type: "button", onclick: () => log.open(each.index, each.attempt) }, `job ${each.index}`) },
        ],
        groups,
        (each) => each.key,
      ),
    ];
  }

  function jobTable() {
    const running = new Map((places?.running ?? []).map((each) => [each.index, each]));
    const results = view.parameters.get("results") ?? "";
    const isFirst = !view.parameters.get("jobs");
    return [
      h("h2", null, "Jobs"),
      h("label", null, "only jobs whose last run is ", h("select", { onchange: (event) => view.go({ results: event.target.value, jobs: null }) }, ["", ...RESULTS].map((each) => h("option", { value: each, selected: each === results }, each.replace("_", " ") || "any")))),
      jobs.jobs.length
        ? table(
            "Jobs in the order of their indexes",
            [
              { label: "job", isHeading: true, cell: (each) => String(each.slot.index) },
              { label: "now", cell: (each) => nowWords(each, running.get(each.slot.index)) },
              { label: "node", cell: (each) => nodeLink(running.get(each.slot.index)?.node ?? each.node) },
              { label: "last run", cell: (each) => resultWords(each) },
              { label: "attempt", isNumber: true, cell: (each) => String(running.get(each.slot.index)?.attempt ?? each.slot.attempt) },
              { label: "output", cell: (each) => h("button", { type: "button", "aria-label": `output of job ${each.slot.index}`, onclick: () => log.open(each.slot.index, null) }, "show") },
            ],
            jobs.jobs,
            (each) => `${each.slot.index}`,
            { rowClass: (each) => (["failed", "timed_out"].includes(each.result) ? "bad" : null) },
          )
        : h("p", null, "No job."),
      h("p", { class: "pages" }, !isFirst && h("button", { type: "button", onclick: () => view.go({ jobs: null }) }, "First jobs"), jobs.next !== null && h("button", { type: "button", onclick: () => view.go({ jobs: jobs.next }) }, `Next ${LIMIT}`)),
    ];
  }

  function nowWords(job, run) {
    if (run) return `runs for ${duration(run.ran_ms)}${run.progress === null ? "" : `, ${percent(run.progress / 1000)}`}`;
    if (job.retry_at_ms > Date.now()) return `is retried in ${duration(job.retry_at_ms - Date.now())}`;
    return job.result === "completed" || isOver(found) ? "over" : "pending";
  }

  function use() {
    const rows = Object.entries(found.used);
    if (!rows.length) return null;
    return [
      h("h2", null, "Use of resources"),
      table(
        "Ended runs by their result",
        [
          { label: "result", isHeading: true, cell: ([result]) => result.replace("_", " ") },
          { label: "runs", isNumber: true, cell: ([, sums]) => sums.runs.toLocaleString("en") },
          { label: "ran", isNumber: true, cell: ([, sums]) => duration(sums.ran_ms) },
          { label: "cpu time", isNumber: true, cell: ([, sums]) => duration(sums.cpu_ms) },
          { label: "mean cores", isNumber: true, cell: ([, sums]) => `${sums.ran_ms ? amount("cpu", sums.cpu_ms / sums.ran_ms) : "–"} of ${amount("cpu", found.spec.resources.cpu)}` },
          { label: "peak memory", isNumber: true, cell: ([, sums]) => `${amount("memory", sums.max_rss_bytes)} of ${amount("memory", found.spec.resources.memory)}` },
        ],
        rows,
        ([result]) => result,
      ),
    ];
  }

  function events() {
    const newest = history.newest.map((each, place) => ({ ...each, number: history.number - history.newest.length + place })).reverse();
    return [
      h("h2", { id: "history" }, "History"),
      table(
        history.number > newest.length ? `The newest ${newest.length} of ${count(history.number, "event")}` : count(history.number, "event"),
        [
          { label: "time", isHeading: true, cell: (each) => clock(each.at_ms) },
          { label: "event", class: "wide", cell: eventWords },
          { label: "node", cell: (each) => nodeLink(each.node) },
        ],
        newest,
        (each) => `${each.number}`,
      ),
      history.trouble && h("p", { class: "bad" }, history.trouble),
      !history.isRead && !history.trouble && h("p", { class: "faint" }, "Older events are read first; newer ones follow."),
      history.beginsLate && h("p", { class: "faint" }, "Older events are not kept any more."),
    ];
  }

  function spec() {
    const given = Object.entries(found.spec).filter(([, value]) => value !== null && value !== "" && value !== false && !(typeof value === "object" && !Object.keys(value).length));
    return h("details", null, h("summary", null, "Spec"), facts(...given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)])));
  }

  return {
    get title() {
      return id;
    },
    events: path`/events`({ operation: id }),
    every: 3000,
    load,
    paint,
    isEager: () => jobsOf !== location.search,
  };
}

const poolLink = (pool) => link(`/pools/${encodeURIComponent(pool)}`, poolName(pool));
const nodeLink = (node) => (node ? link(`/nodes/${encodeURIComponent(node)}`, node) : "–");
// Limits of pools are in hundredths of a core.
const scaled = (resource, value) => (resource === "cpu" ? value / 100 : value);

function resultWords(job) {
  if (job.result === null) return "–";
  return job.result.replace("_", " ") + (job.out_of_memory ? ", out of memory" : job.exit_code ? `, exit code ${job.exit_code}` : "");
}

function reasonOf(event) {
  if (event.result === "completed") return "completed";
  if (event.out_of_memory) return "out of memory";
  if (event.preemption) return event.preemption.reason === "preemption" ? "preempted" : `preempted: ${event.preemption.reason.replaceAll("_", " ")}`;
  const how = event.signal ? `signal ${event.signal}` : event.exit_code !== null ? `exit code ${event.exit_code}` : "";
  return [event.result.replace("_", " "), event.reason || how].filter(Boolean).join(": ");
}

function addFailure(groups, event) {
  const reason = reasonOf(event);
  const key = `${reason}\n${event.node}`;
  const { index, attempt } = event.slot;
  groups.set(key, { key, reason, node: event.node, number: (groups.get(key)?.number ?? 0) + 1, at_ms: event.at_ms, index, attempt });
}

function eventWords(event) {
  switch (event.happened) {
    case "operation":
      return [`${event.state}`, event.cause && event.cause !== event.state ? ` (${event.cause.replaceAll("_", " ")})` : "", event.reason ? `: ${event.reason}` : ""];
    case "operation_changed":
      return Object.entries(event)
        .filter(([name, value]) => !["happened", "at_ms", "operation"].includes(name) && value !== null && value !== "")
        .map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`)
        .join(", ");
    case "job_ended":
      return [`job ${event.slot.index}, attempt ${event.slot.attempt}: ${reasonOf(event)}`, event.runs_again ? ", runs again" : "", event.preemption && preemption(event.preemption)];
    default:
      return event.happened.replaceAll("_", " ");
  }
}

// Say for whom a run was preempted, and prove that it was right: the shares at the decision.
function preemption(record) {
  const largest = (share) => Object.keys(share).reduce((a, b) => (share[b] > share[a] ? b : a));
  const resource = record.share_before ? largest(record.share_before) : "cpu";
  const share = (each) => (each ? percent(each[resource] ?? 0) : "–");
  return h(
    "span",
    { class: "cure" },
    record.beneficiary ? ["for ", link(`/operations/${encodeURIComponent(record.beneficiary)}`, record.beneficiary), "; "] : "",
    `of ${resource}: fair share ${share(record.fair_share)}, usage ${share(record.share_before)} before and ${share(record.share_after)} after`,
  );
}
