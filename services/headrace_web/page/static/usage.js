// What finished runs were allotted, used and lost, added up over a period.

import { h, link, table } from "./draw.js";
import { ask, path } from "./session.js";
import { count } from "./words.js";

const BY = ["user", "pool", "day", "operation"];
const DAY_MS = 86_400_000;
const HOUR_S = 3600;
const GIB = 1024 ** 3;
const day = (ms) => new Date(ms).toISOString().slice(0, 10);
const hours = (seconds) => (seconds / HOUR_S).toLocaleString("en", { maximumSignificantDigits: 3 });

export default function usage(view) {
  let found = null;

  const chosen = () => (view.parameters.get("by") ?? "user,pool").split(",").filter((each) => BY.includes(each));
  const period = () => ({ since: view.parameters.get("since") ?? day(Date.now() - 6 * DAY_MS), until: view.parameters.get("until") ?? day(Date.now() + DAY_MS) });

  async function load(signal) {
    const { search } = location;
    const answer = await ask(path`/usage`({ ...period(), by: chosen().join() || "user", user: view.parameters.get("user") ?? "", pool: view.parameters.get("pool") ?? "" }), { signal });
    if (search === location.search) found = answer;
  }

  function form() {
    const change = (event) => view.go({ [event.target.name]: event.target.value.trim() });
    const turn = (name, isOn) => view.go({ by: BY.filter((each) => (each === name ? isOn : chosen().includes(each))).join() });
    const { since, until } = period();
    return h(
      "form",
      { class: "filter", onsubmit: (event) => event.preventDefault() },
      h("label", null, "first day ", h("input", { type: "date", name: "since", value: since, onchange: change })),
      h("label", null, "up to, without ", h("input", { type: "date", name: "until", value: until, onchange: change })),
      h("label", null, "user ", h("input", { name: "user", size: 10, value: view.parameters.get("user") ?? "", onchange: change })),
      h("label", null, "pool ", h("input", { name: "pool", size: 10, value: view.parameters.get("pool") ?? "", onchange: change })),
      h("fieldset", { class: "choice" }, h("legend", null, "by "), BY.map((each) => h("label", null, h("input", { type: "checkbox", checked: chosen().includes(each), onchange: (event) => turn(each, event.target.checked) }), ` ${each} `))),
    );
  }

  function paint() {
    const by = chosen().length ? chosen() : ["user"];
    const cell = {
      user: (line) => link(`/operations?user=${encodeURIComponent(line.user)}`, line.user),
      pool: (line) => link(`/operations?pool=${encodeURIComponent(line.pool)}`, line.pool),
      day: (line) => line.day,
      operation: (line) => link(`/operations/${encodeURIComponent(line.operation)}`, line.operation),
    };
    const sum = (label, value) => ({ label, isNumber: true, cell: (line) => value(line.sums) });
    const rows = [...found.lines].sort((a, b) => b.sums.allotted_core_s - a.sums.allotted_core_s);
    return [
      h("h1", null, "Usage"),
      form(),
      rows.length
        ? table(
            `${count(rows.length, "line")}, days of UTC, in hours of a core, a GiB and a GPU`,
            [
              ...by.map((each, place) => ({ label: each, isHeading: place === 0, cell: cell[each] })),
              sum("runs", (sums) => sums.runs.toLocaleString("en")),
              sum("cpu allotted", (sums) => hours(sums.allotted_core_s)),
              sum("cpu used", (sums) => hours(sums.used_core_s)),
              sum("memory allotted", (sums) => hours(sums.allotted_byte_s / GIB)),
              sum("gpu allotted", (sums) => hours(sums.allotted_gpu_s)),
              sum("cpu preempted", (sums) => hours(sums.preempted_core_s)),
              sum("cpu failed", (sums) => hours(sums.failed_core_s)),
            ],
            rows,
            (line) => by.map((each) => line[each]).join("\n"),
          )
        : h("p", null, "No run ended in this period."),
      found.next !== null && h("p", { class: "faint" }, `Only the first ${count(rows.length, "line")} are shown: choose a shorter period, a user or a pool.`),
      found.lost_runs > 0 && h("p", { class: "faint" }, `${count(found.lost_runs, "run")} of this period were not recorded.`),
    ];
  }

  return { title: "Usage", every: 60_000, load, paint, isEager: () => false };
}
