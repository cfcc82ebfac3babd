// The life of an operation and of its jobs as bars over time, from its history and from the jobs that run now.

import { barWords } from "./bars.js";
import { h, link, svg, table } from "./draw.js";
import { clock, count, duration, isOver } from "./words.js";

// Jobs whose runs are kept, jobs that are shown at first, and runs of one job that are kept, the newest ones.
const MOST_JOBS = 200;
const SHOWN = 20;
const MOST_RUNS = 50;
// Least width of a part, in hundredths of the whole time, so that short runs are seen.
const LEAST = 0.3;
const WAITS = ["starting", "pending"];
const CLASSES = { completed: "good", failed: "lost", timed_out: "lost" };
const STAGES = {
  preemptive_normal: "the normal preemptive stage",
  preemptive_aggressive: "the aggressive preemptive stage",
  yarn_plan: "the plan of a YARN policy",
};

// What the history says about one operation. `take` gets its events, the oldest first.
export class Life {
  constructor() {
    this.steps = [];
    this.runs = new Map();
    this.isLate = false;
  }

  take(event) {
    if (event.happened === "operation") this.steps.push({ at: event.at_ms, state: event.state });
    if (event.happened === "operation_changed" && event.suspended !== null) this.steps.push({ at: event.at_ms, suspended: event.suspended });
    if (event.happened !== "job_ended" || event.slot.index >= MOST_JOBS) return;
    const runs = this.runs.get(event.slot.index) ?? [];
    runs.push(event);
    this.runs.set(event.slot.index, runs.slice(-MOST_RUNS));
  }
}

export class Waterfall {
  constructor(view) {
    this.view = view;
    this.shown = SHOWN;
    this.chosen = null;
  }

  // `found` is the operation, `places` its running jobs, `life` what its history says.
  paint(found, places, life, resultWords) {
    const now = Date.now();
    const start = found.started_at_ms;
    const end = Math.max(start + 1, isOver(found) ? found.ended_at_ms : now);
    const jobs = found.spec.job_count;
    const running = new Map((places?.running ?? []).map((each) => [each.index, each]));
    const number = Math.min(this.shown, jobs, MOST_JOBS);
    const rows = [{ name: "operation", parts: operationParts(found, life, start, end) }];
    for (let index = 0; index < number; index += 1) {
      rows.push({ name: `job ${index}`, parts: jobParts(life.runs.get(index) ?? [], running.get(index), isOver(found), start, end, now, resultWords) });
    }
    const more = Math.min(SHOWN, Math.min(jobs, MOST_JOBS) - number);
    const chosen = rows.find((each) => each.name === this.chosen);
    return [
      h("h2", { id: "timeline" }, "Timeline"),
      table(
        `From ${clock(start)} for ${duration(end - start)}`,
        [
          { label: "what", isHeading: true, cell: (row) => this.button(row) },
          { label: axis(end - start), class: "spans", cell: (row) => bars(row, start, end) },
        ],
        rows,
        (row) => row.name,
        { id: "waterfall" },
      ),
      barWords([["waits", "waits"], ["used", "runs"], ["good", "completed"], ["lost", "failed"], ["cut", "preempted, aborted or lost"], ["ending", "told to end"], ["held", "suspended"]]),
      h("p", { class: "pages" }, number < jobs && `The first ${number} of ${count(jobs, "job")}; ${count(jobs - number, "job")} more.`, more > 0 && h("button", { type: "button", onclick: () => this.showMore() }, `Show ${more} more`)),
      h("div", { "aria-live": "polite" }, chosen && details(chosen)),
    ];
  }

  button(row) {
    const isChosen = this.chosen === row.name;
    const turn = () => {
      this.chosen = isChosen ? null : row.name;
      this.view.paint();
    };
    return h("button", { type: "button", class: "sort", "aria-label": `timeline of ${row.name}`, "aria-pressed": String(isChosen), onclick: turn }, row.name);
  }

  showMore() {
    this.shown += SHOWN;
    this.view.paint();
  }
}

// Return the states of an operation, one part for each.
function operationParts(found, life, start, end) {
  const parts = [];
  let state = life.steps.find((each) => each.state)?.state ?? found.state;
  let suspended = false;
  let from = start;
  const close = (until) => {
    const words = suspended ? `${state}, suspended` : state;
    if (until > from) parts.push({ from, until, words, class: suspended ? "held" : WAITS.includes(state) ? "waits" : "used" });
    from = Math.max(from, until);
  };
  for (const step of life.steps) {
    close(Math.min(step.at, end));
    state = step.state ?? state;
    suspended = step.suspended ?? suspended;
  }
  if (isOver(found)) parts.push({ from: end, until: end, words: found.state, class: CLASSES[found.state] ?? "cut" });
  else close(end);
  return parts;
}

// Return the parts of a job: it waits, runs, is told to end, waits for its next attempt.
function jobParts(runs, running, isEnded, start, end, now, resultWords) {
  const parts = [];
  let from = start;
  const add = (until, name, words, more = {}) => {
    if (until > from || name !== "waits") parts.push({ from: Math.min(from, until), until, class: name, words, ...more });
    from = Math.max(from, until);
  };
  for (const run of runs) {
    const started = run.started_at_ms || run.at_ms;
    const attempt = `attempt ${run.slot.attempt}`;
    add(Math.min(started, run.at_ms), "waits", "waits");
    const told = run.preemption?.decided_at_ms ?? 0;
    const isTold = told > started && told < run.at_ms;
    const name = CLASSES[run.result] ?? "cut";
    const words = `${attempt} runs`;
    const more = { node: run.node, stage: STAGES[run.stage] };
    const isEnd = `${attempt}: ${resultWords(run)}${run.runs_again ? ", runs again" : ""}`;
    if (isTold) add(told, name, words, more);
    add(run.at_ms, isTold ? "ending" : name, isTold ? `${isEnd}; told to end` : `${words}; ${isEnd}`, { ...more, for: run.preemption?.beneficiary });
  }
  const last = runs.at(-1);
  const attempt = running?.attempt ?? 0;
  if (running && attempt > (last?.slot.attempt ?? 0)) {
    add(Math.max(from, now - running.ran_ms), "waits", "waits");
    add(end, "used", `attempt ${attempt} runs now`, { node: running.node, stage: STAGES[running.stage] });
  } else if (!last || last.runs_again) {
    add(end, "waits", isEnded ? "waits until the operation is over" : "waits");
  }
  return parts;
}

const wordsOf = (part) => `${part.words}${part.node ? ` on ${part.node}` : ""}, ${duration(part.until - part.from)}`;

function bars(row, start, end) {
  const at = (ms) => (100 * Math.min(Math.max(ms - start, 0), end - start)) / (end - start);
  const words = row.parts.map(wordsOf).join("; ");
  return svg(
    "svg",
    { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${row.name}: ${words}` },
    row.parts.map((part) => {
      const width = Math.max(LEAST, at(part.until) - at(part.from));
      return svg("rect", { class: part.class, x: Math.min(at(part.from), 100 - width), y: part.class === "waits" ? 4 : 1, width, height: part.class === "waits" ? 2 : 8 }, svg("title", null, wordsOf(part)));
    }),
  );
}

const axis = (ms) => h("span", { class: "axis" }, [0, 0.5, 1].map((part) => h("span", null, part ? `+${duration(ms * part)}` : "start")));

function details(row) {
  return table(
    row.name,
    [
      { label: "from", isHeading: true, cell: (part) => clock(part.from) },
      { label: "for", isNumber: true, cell: (part) => duration(part.until - part.from) },
      { label: "what", class: "wide", cell: (part) => [part.words, part.stage ? `; started by ${part.stage}` : "", part.for && ["; for ", link(`/operations/${encodeURIComponent(part.for)}`, part.for)]] },
      { label: "node", cell: (part) => (part.node ? link(`/nodes/${encodeURIComponent(part.node)}`, part.node) : "–") },
    ],
    row.parts,
    (part) => `${part.from} ${part.until} ${part.words}`,
  );
}
