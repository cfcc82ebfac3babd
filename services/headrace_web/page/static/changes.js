// Changes of pools that a person collects, looks at as a whole, and applies. They stay in this tab until then.

import { h, table } from "./draw.js";
import { path, send } from "./session.js";
import { amount, count, poolName, RESOURCES } from "./words.js";

const STORED = "headrace-staged";

export class Staged {
  constructor(view) {
    this.view = view;
    this.forget();
    try {
      Object.assign(this, JSON.parse(sessionStorage.getItem(STORED) ?? "{}"));
    } catch {
      sessionStorage.removeItem(STORED);
    }
  }

  forget() {
    this.changes = [];
    // Revision of the pools that the person saw at the first change. The changes are refused if somebody else changed pools since.
    this.revision = 0;
    this.outcome = null;
    this.words = "";
    this.isRefused = false;
  }

  add(change, revision) {
    if (!this.changes.length) {
      this.forget();
      this.revision = revision;
    }
    const before = this.changes.find((each) => change.change === "set" && each.change === "set" && each.pool === change.pool);
    if (before) Object.assign(before.attributes, change.attributes);
    else this.changes.push(change);
    this.note("", null);
  }

  note(words, outcome, isRefused = false) {
    Object.assign(this, { words, outcome, isRefused });
    const { changes, revision } = this;
    if (changes.length) sessionStorage.setItem(STORED, JSON.stringify({ changes, revision }));
    else sessionStorage.removeItem(STORED);
    this.view.paint();
  }

  async ask(where, body) {
    try {
      return await send("POST", where, body);
    } catch (error) {
      this.note(error.message, null, true);
      this.view.reload(); // somebody else may have changed pools
      return null;
    }
  }

  async whatIf() {
    const outcome = await this.ask(path`/pools/what-if`, { changes: this.changes });
    if (outcome) this.note("", outcome);
  }

  async apply() {
    const plan = await this.ask(path`/pools/changes`, { changes: this.changes, expected_revision: this.revision });
    if (!plan) return;
    this.forget();
    this.note(`Applied as revision ${plan.revision}.`, null);
    this.view.reload();
  }

  paint() {
    const { changes, words } = this;
    if (!changes.length) return h("p", { role: "status" }, words);
    const drop = (place) => {
      changes.splice(place, 1);
      this.note("", null);
    };
    return h(
      "section",
      { class: "staged", "aria-label": "staged changes" },
      h("h2", null, "Staged changes"),
      h("ul", null, changes.map((each, place) => h("li", null, changeWords(each), " ", h("button", { type: "button", "aria-label": `drop: ${changeWords(each)}`, onclick: () => drop(place) }, "Drop")))),
      h("p", { class: "faint" }, `Based on revision ${this.revision}. Nothing is changed before you apply.`),
      h(
        "p",
        { class: "pages" },
        h("button", { type: "button", onclick: () => this.whatIf() }, "What if"),
        h("button", { type: "button", class: "main", disabled: !this.outcome || this.outcome.plan.broken.length > 0, onclick: () => this.apply() }, "Apply"),
        h("button", { type: "button", onclick: () => (this.forget(), this.note("", null)) }, "Drop all"),
      ),
      h("p", { role: "status", class: this.isRefused ? "bad" : null }, words),
      this.outcome && this.outcomeTable(),
    );
  }

  outcomeTable() {
    const { plan, elements, notes, over_limits: over } = this.outcome;
    const rows = elements.filter((each) => each.differs);
    const resources = RESOURCES.filter((name) => name !== "user_slots" && this.outcome.total_after[name]);
    const cell = (name) => (each) => {
      const [before, after] = [each.before, each.after].map((side) => (side ? amount(name, side.fair_resources[name]) : "–"));
      return before === after ? before : h("strong", null, `${before} → ${after}`);
    };
    return [
      [...plan.broken, ...plan.warnings, ...notes].map((each) => h("p", { class: "bad" }, each)),
      over.map((each) => h("p", { class: "bad" }, `${each.jobs} of the ${count(each.running_jobs, "running job")} of ${poolName(each.pool)} would be preempted, because it uses more than its new limits.`)),
      rows.length
        ? table(
            "Fair shares before and after, for everybody whose share differs",
            [
              { label: "pool or operation", isHeading: true, cell: (each) => poolName(each.name) },
              { label: "in", cell: (each) => poolName(each.parent) || "–" },
              ...resources.map((name) => ({ label: name, isNumber: true, cell: cell(name) })),
              { label: "usage", isNumber: true, cell: (each) => usage(each, resources) },
            ],
            rows,
            (each) => `${each.kind} ${each.parent} ${each.name}`,
          )
        : h("p", null, "No fair share differs."),
    ];
  }
}

function usage(element, resources) {
  const side = element.after ?? element.before;
  return resources.filter((name) => side.usage[name]).map((name) => `${name} ${amount(name, side.usage[name])}`).join(", ") || "–";
}

function changeWords(change) {
  const values = Object.entries(change.attributes ?? {}).map(([name, value]) => `${name}=${value === null ? "default" : value}`);
  if (change.change === "create") return [`create ${change.pool} in ${poolName(change.to)}`, ...values].join(", ");
  if (change.change === "remove") return `remove ${change.pool}`;
  return `set ${change.pool} ${values.join(", ")}`;
}
