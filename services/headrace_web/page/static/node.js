// One node: its state and resources, its jobs, and its drain.

import { bar } from "./bars.js";
import { facts, h, link, table } from "./draw.js";
import { ask, path, send } from "./session.js";
import { amount, clock, count, duration, percent, RESOURCES, shortName } from "./words.js";

const MINUTE_MS = 60_000;

export default function node(view) {
  const [name] = view.names;
  let found = null;
  let answer = null;

  async function load(signal) {
    found = await ask(path`/nodes/${name}`, { signal });
  }

  async function change(verb, body) {
    try {
      await send("POST", path`/nodes/${name}/${verb}`, body);
      answer = { words: verb === "drain" ? "The node is being drained." : "Jobs may start on the node again." };
    } catch (error) {
      answer = { words: error.message, isRefused: true };
    }
    view.reload();
    view.paint();
  }

  function drainWords(drain) {
    return [
      drain.from_ms ? `from ${clock(drain.from_ms)}` : "",
      drain.until_ms ? `until ${clock(drain.until_ms)}` : "",
      drain.abort_after_ms !== null ? `jobs end ${duration(drain.abort_after_ms)} after its beginning` : "",
      drain.reason,
      `ordered by ${drain.by} at ${clock(drain.at_ms)}`,
    ]
      .filter(Boolean)
      .join(", ");
  }

  function drainForm() {
    const submit = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      const until = form.get("until") ? new Date(form.get("until")).getTime() : 0;
      const minutes = form.get("minutes");
      change("drain", { reason: form.get("reason").trim(), until_ms: until, abort_after_ms: minutes === "" ? null : Math.round(Number(minutes) * MINUTE_MS) });
    };
    return h(
      "form",
      { class: "fields", onsubmit: submit, "data-own": true, "data-key": "drain" },
      h("label", null, "reason", h("input", { name: "reason" })),
      h("label", null, "until (empty: until it is undrained)", h("input", { name: "until", type: "datetime-local" })),
      h("label", null, "end jobs after minutes (empty: never)", h("input", { name: "minutes", type: "number", min: 0, step: "any" })),
      h("button", { class: "main" }, "Drain"),
    );
  }

  function paint() {
    const resources = RESOURCES.filter((each) => each !== "user_slots" && found.total[each]);
    return [
      h("h1", null, found.node),
      facts(
        ["state", h("span", { class: `state ${found.state}` }, found.state)],
        ["drain", found.drain && drainWords(found.drain)],
        ["gets no jobs", found.left_out],
        ["gets single jobs", found.held_back],
        ["reserved", found.reserved],
        ["trouble", found.trouble && h("span", { class: "bad" }, found.trouble)],
        ["heartbeat", found.heartbeat_age_ms === null ? "none" : `${duration(found.heartbeat_age_ms)} ago`],
        ["tags", found.tags.join(", ")],
        ["isolation", [found.isolation, found.isolation_detail].filter(Boolean).join(": ")],
        ["limits", found.limits],
      ),
      table(
        "Resources",
        [
          { label: "resource", isHeading: true, cell: shortName },
          { label: "usage", class: "bars", cell: (each) => bar(`${each}: ${percent(found.usage[each] / found.total[each])} used`, [["used", found.usage[each] / found.total[each]]]) },
          { label: "used", isNumber: true, cell: (each) => amount(each, found.usage[each]) },
          { label: "total", isNumber: true, cell: (each) => amount(each, found.total[each]) },
        ],
        resources,
        (each) => each,
      ),
      found.gpus.length > 0 &&
        table(
          "GPUs",
          [
            { label: "gpu", isHeading: true, cell: (each) => each.name },
            { label: "held by", cell: (each) => (each.operation ? [link(`/operations/${encodeURIComponent(each.operation)}`, each.operation), each.index === null ? "" : ` job ${each.index}`] : "free") },
          ],
          found.gpus,
          (each) => each.name,
        ),
      h("h2", null, "Drain"),
      h("p", { role: "status", class: answer?.isRefused ? "bad" : null }, answer?.words ?? ""),
      found.drain ? h("button", { type: "button", onclick: () => change("undrain", {}) }, "Undrain") : drainForm(),
      h("h2", null, "Jobs"),
      found.jobs.length
        ? table(
            count(found.jobs.length, "job"),
            [
              { label: "operation", isHeading: true, cell: (each) => link(`/operations/${encodeURIComponent(each.operation)}`, each.operation) },
              { label: "job", isNumber: true, cell: (each) => (each.index === null ? "–" : String(each.index)) },
              { label: "ran", isNumber: true, cell: (each) => duration(each.ran_ms) },
              { label: "left", isNumber: true, cell: (each) => (each.left_ms === null ? "–" : duration(each.left_ms)) },
              { label: "progress", isNumber: true, cell: (each) => (each.progress === null ? "–" : percent(each.progress / 1000)) },
              { label: "pool", cell: (each) => (each.pool ? link(`/pools/${encodeURIComponent(each.pool)}`, each.pool) : "–") },
              { label: "title", class: "wide", cell: (each) => each.title },
            ],
            found.jobs,
            (each) => `${each.operation} ${each.index} ${each.attempt}`,
          )
        : h("p", { class: "faint" }, "No job runs here."),
    ];
  }

  return { title: name, every: 2000, load, paint };
}
