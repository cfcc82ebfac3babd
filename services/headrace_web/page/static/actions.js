// Actions on operations: the form of an action, and the answer for each operation.

import { h, link, table } from "./draw.js";
import { path, send } from "./session.js";
import { count, isOver } from "./words.js";

// Requests that are under way at a time.
const AT_ONCE = 6;

const text = (name, label, isNeeded = false) => ({ name, label, type: "text", isNeeded });

// Each action: the request, the operations that it fits, and the fields of its form.
const ACTIONS = {
  suspend: { label: "Suspend", fits: (each) => !isOver(each) && !each.suspended, fields: [{ name: "abort_running_jobs", label: "end running jobs, too", type: "checkbox" }] },
  resume: { label: "Resume", fits: (each) => !isOver(each) && each.suspended, fields: [] },
  move: { label: "Move", fits: (each) => !isOver(each), fields: [text("pool", "to the pool", true)], method: "PATCH" },
  weigh: { label: "Weight", fits: (each) => !isOver(each), fields: [{ name: "weight", label: "new weight", type: "number", isNeeded: true }], method: "PATCH" },
  complete: { label: "Complete", fits: (each) => !isOver(each), fields: [] },
  abort: { label: "Abort", fits: (each) => !isOver(each), fields: [text("reason", "reason")], isGrave: true },
};

const address = (name, id) => (ACTIONS[name].method ? path`/operations/${id}` : path`/operations/${id}/${name}`);

// The actions of a page. `targets()` returns the chosen operations.
export class Actions {
  constructor(view, targets) {
    this.view = view;
    this.targets = targets;
    this.name = null;
    this.values = {};
    this.ids = [];
    this.answers = [];
    this.isBusy = false;
  }

  paint() {
    const targets = this.targets();
    return h(
      "div",
      { class: "actions", "aria-live": "polite" },
      h(
        "p",
        { role: "group", "aria-label": "actions" },
        Object.entries(ACTIONS).map(([name, each]) =>
          h("button", { type: "button", disabled: this.isBusy || !targets.some(each.fits), "aria-expanded": String(this.name === name), onclick: () => this.open(name) }, each.label),
        ),
      ),
      this.name && this.form(),
      this.answers.length > 0 && this.answerTable(),
    );
  }

  open(name) {
    this.name = this.name === name ? null : name;
    this.values = {};
    this.answers = [];
    this.view.paint();
    document.querySelector(".actions form :is(input, button)")?.focus();
  }

  form() {
    const action = ACTIONS[this.name];
    const chosen = this.targets().filter(action.fits);
    return h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          this.run(chosen.map((each) => each.operation));
        },
      },
      action.fields.map((field) =>
        h(
          "label",
          null,
          field.type === "checkbox" ? "" : `${field.label} `,
          h("input", {
            type: field.type,
            name: field.name,
            required: field.isNeeded,
            step: field.type === "number" ? "any" : null,
            checked: field.type === "checkbox" && this.values[field.name],
            value: field.type === "checkbox" ? null : (this.values[field.name] ?? ""),
            oninput: (event) => {
              const { type, checked, value } = event.target;
              this.values[field.name] = type === "checkbox" ? checked : type === "number" ? Number(value) : value;
            },
          }),
          field.type === "checkbox" ? ` ${field.label}` : "",
        ),
      ),
      h("button", { class: action.isGrave ? "grave" : "main", disabled: this.isBusy || !chosen.length }, `${action.label}: ${count(chosen.length, "operation")}`),
    );
  }

  // Send the requests, some at a time. The answers stand in the order of the operations.
  async run(ids) {
    const { name, values } = this;
    this.ids = ids;
    this.isBusy = true;
    this.answers = [];
    this.view.paint();
    let first = 0;
    const work = async () => {
      while (first < ids.length) {
        const place = first;
        first += 1;
        try {
          const answer = await send(ACTIONS[name].method ?? "POST", address(name, ids[place]), values);
          this.answers[place] = { id: ids[place], words: answer.suspended && !isOver(answer) ? `${answer.state}, suspended` : answer.state };
        } catch (error) {
          this.answers[place] = { id: ids[place], words: error.message, isRefused: true };
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.isBusy = false;
    this.name = null;
    this.view.reload();
    this.view.paint();
  }

  answerTable() {
    const refused = this.answers.filter((each) => each.isRefused).length;
    return [
      h("p", null, `${count(this.answers.length - refused, "operation")} changed, ${refused} refused. `, h("button", { type: "button", onclick: () => this.close() }, "Close")),
      table(
        "Answers",
        [
          { label: "operation", isHeading: true, cell: (each) => link(`/operations/${encodeURIComponent(each.id)}`, each.id) },
          { label: "answer", class: "wide", cell: (each) => each.words },
        ],
        this.answers.filter((each) => each),
        (each) => each.id,
        { rowClass: (each) => (each.isRefused ? "bad" : null) },
      ),
    ];
  }

  close() {
    this.answers = [];
    this.view.paint();
  }
}
