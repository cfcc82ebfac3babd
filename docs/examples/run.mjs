// Start an operation by the HTTP API, follow it until it ends, print its output, and end with the exit code of its job.
// It needs Node.js 18 or newer, and no package.
//
//   API=http://127.0.0.1:8040/api/v1 HEADER=/tmp/headrace-web-1x2y3z/header node run.mjs hello-1 sh -c 'echo hello; exit 3'
//
// The id makes it repeatable: run again with the same id, it starts nothing new, and follows or reports the same operation.

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const { API, HEADER } = process.env;
const [id, ...argv] = process.argv.slice(2);
const [header, value] = (await readFile(HEADER, "utf8")).trim().split(": ");
const OVER = ["completed", "failed", "aborted"];
const AGAIN_MS = 1000;

// Send a request and return the answer. Throw the text of a problem; `status` is undefined if the service cannot be reached.
async function request(path, { headers, ...options } = {}) {
  const answer = await fetch(API + path, { ...options, headers: { [header]: value, ...headers } });
  if (answer.ok) return answer;
  throw Object.assign(new Error((await answer.json()).detail), { status: answer.status });
}

// Yield the events of a stream until it ends. With `lastId` the stream begins after that event.
async function* events(path, lastId = "") {
  const answer = await request(path, { headers: lastId && { "last-event-id": lastId } });
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const whole = (rest + text).split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      const pairs = event.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]);
      const { data, ...fields } = Object.fromEntries(pairs);
      if (data !== undefined) yield { ...fields, data: JSON.parse(data) };
    }
  }
}

async function start() {
  const operation = { operation: id, argv, pool: "research", cpu: 1, memory: "64M", time_limit: "10m" };
  await request("/operations", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(operation) });
}

// Start the operation as soon as no event can be missed, and return its final state. Connect again if the service stops meanwhile.
async function untilOver() {
  let lastId;
  for (;;) {
    try {
      for await (const { event, id: eventId, data } of events(`/events?operation=${id}`, lastId)) {
        lastId = eventId ?? lastId;
        let state = event === "operation" ? data.state : "";
        if (event === "following") {
          await start();
          ({ state } = await (await request(`/operations/${id}`)).json());
        }
        if (state) console.error(`${id} is ${state}`);
        if (OVER.includes(state)) return state;
      }
    } catch (error) {
      if (error.status < 500) throw error; // Another attempt would be refused, too.
    }
    await sleep(AGAIN_MS);
  }
}

const state = await untilOver();
for await (const { event, data } of events(`/operations/${id}/logs?stream=both`)) {
  if (event === "line") (data.stream === "stderr" ? process.stderr : process.stdout).write(`${data.text}\n`);
  if (event === "problem") throw new Error(data.detail);
}
const { jobs } = await (await request(`/operations/${id}/jobs`)).json();
process.exitCode = state === "completed" ? 0 : jobs[0].exit_code || 1;
