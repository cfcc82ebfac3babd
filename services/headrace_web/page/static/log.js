// The output of jobs: the last lines, and new ones as the jobs write them while the panel is open and the page is visible.

import { h } from "./draw.js";
import { follow, path, Problem } from "./session.js";
import { isOver } from "./words.js";

const TAIL_BYTES = 64 * 1024;
const MOST_LINES = 2000;

export class LogReader {
  constructor(operation) {
    this.operation = operation;
    this.isLive = false;
    this.isOpen = false;
    this.job = "";
    this.attempt = null;
    this.stream = "both";
    this.stop = new AbortController();
    this.lines = h("pre", { "data-own": true, tabindex: 0, role: "log", "aria-label": "output", "data-key": "lines" });
    this.waiting = [];
    this.details = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop.abort() : this.isOpen && this.read()));
  }

  // Note whether the operation still runs. The output of one that has failed is opened at once, at the job that failed last.
  keepUp(operation) {
    const isFirst = this.known === undefined;
    this.known = operation;
    this.isLive = !isOver(operation);
    const last = operation.last_failures[0];
    if (isFirst && last && !this.isLive) this.choose(last.index, last.attempt);
  }

  choose(job, attempt) {
    Object.assign(this, { job: String(job), attempt, isOpen: true });
    this.read();
  }

  open(job, attempt) {
    this.choose(job, attempt);
    const panel = document.getElementById("output");
    panel.open = true;
    panel.querySelector("[name=job]").value = this.job;
    panel.scrollIntoView({ block: "nearest" });
    panel.querySelector("summary").focus();
  }

  paint() {
    const change = (event) => {
      this[event.target.name] = event.target.value.trim();
      this.attempt = null;
      this.read();
    };
    return h(
      "details",
      {
        id: "output",
        open: this.isOpen,
        "data-key": "output",
      },
      h("summary", { onclick: () => this.toggle() }, h("h2", { class: "inline" }, "Output")),
      h(
        "form",
        { onsubmit: (event) => event.preventDefault() },
        h("label", null, "job ", h("input", { name: "job", size: 6, inputmode: "numeric", placeholder: "all", value: this.job, onchange: change })),
        h("label", null, "stream ", h("select", { name: "stream", onchange: change }, ["both", "stdout", "stderr"].map((each) => h("option", { value: each, selected: each === this.stream }, each)))),
      ),
      this.lines,
    );
  }

  toggle() {
    this.isOpen = !document.getElementById("output").open;
    if (this.isOpen) this.read();
    else this.stop.abort();
  }

  async read() {
    this.stop.abort();
    this.stop = new AbortController();
    const { signal } = this.stop;
    this.lines.replaceChildren();
    this.waiting = [];
    const where = path`/operations/${this.operation}/logs`({ job: this.job, attempt: this.attempt, stream: this.stream, follow: this.isLive, tail_bytes: TAIL_BYTES });
    try {
      await follow(where, (kind, line) => this.take(kind, line, signal), signal);
      if (!signal.aborted && !this.waiting.length && !this.lines.childElementCount) this.add("trouble", "The jobs wrote nothing that is kept.");
    } catch (error) {
      if (error instanceof Problem) this.add("trouble", error.message);
      else if (error.name !== "AbortError") throw error;
    }
  }

  // Lines are put on the screen together, once a frame, however many come.
  take(kind, line, signal) {
    if (signal.aborted) return;
    if (kind === "problem") this.add("trouble", line.detail);
    if (kind !== "line") return;
    const skipped = line.missing_bytes + line.skipped_bytes;
    if (skipped) this.add("trouble", `… ${skipped} bytes before this are left out`);
    if (line.trouble) this.add("trouble", line.trouble);
    this.add(line.stream, this.job === "" ? `${line.index}: ${line.text}` : line.text);
  }

  add(kind, text) {
    if (!this.waiting.length) requestAnimationFrame(() => this.put());
    this.waiting.push([kind, text]);
    if (this.waiting.length > MOST_LINES) this.waiting.shift();
  }

  put() {
    const { lines } = this;
    const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 30;
    lines.append(...this.waiting.map(([kind, text]) => h("span", { class: kind }, `${text}\n`)));
    this.waiting = [];
    while (lines.childElementCount > MOST_LINES) lines.firstElementChild.remove();
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
  }
}
