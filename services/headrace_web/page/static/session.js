// Requests to the API. The token stays in the storage of this origin, whose port no other service has; the cookie alone admits nobody.

const TOKEN = "headrace-token";
const API = "/api/v1";
// Milliseconds after which a question without an answer counts as unanswered. Streams may be silent for longer.
const PATIENCE_MS = 20_000;

// An answer that is no success. `status` is 0 if the service does not answer.
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Enter with the ticket in the address, if there is one, and take it out of the address and of the browser's history.
export async function enter() {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch("/session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ticket }),
  });
  if (answer.ok) localStorage.setItem(TOKEN, (await answer.json()).token);
}

// Log out. Return true if the token of the session is revoked, too.
export async function leave() {
  const { revoked } = await ask("", { method: "DELETE", base: "/session" });
  localStorage.removeItem(TOKEN);
  return revoked;
}

// Return a path of the API. Names are escaped, and parameters without a value left out: path`/pools/${name}` and path`/pools`({ limit: 5 }).
export function path(texts, ...names) {
  const found = String.raw({ raw: texts }, ...names.map(encodeURIComponent));
  return Object.assign(
    (parameters) => {
      const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== false);
      return given.length ? `${found}?${new URLSearchParams(given)}` : found;
    },
    { toString: () => found },
  );
}

// Return the error to throw after a failed request. One that was ended on purpose stays what it is.
function unanswered(error) {
  return error.name === "AbortError" ? error : new Problem(0, "the web service does not answer; it is tried again");
}

async function answerTo(where, { method = "GET", body, signal, base = API }) {
  const headers = { "x-headrace-token": localStorage.getItem(TOKEN) ?? "" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(base + where, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    throw unanswered(error);
  }
  if (!answer.ok) throw new Problem(answer.status, (await answer.json()).detail);
  return answer;
}

// Return the answer of the API as an object. Throw `Problem` with the text of an error.
export async function ask(where, request = {}) {
  const signals = [AbortSignal.timeout(PATIENCE_MS), request.signal].filter(Boolean);
  const answer = await answerTo(where, { ...request, signal: AbortSignal.any(signals) });
  try {
    return await answer.json();
  } catch (error) {
    throw unanswered(error);
  }
}

// Change something. Return the answer.
export const send = (method, where, body) => ask(where, { method, body });

// Return all items of a list that comes in pages, in their order. `name` is the field of the items. `most` bounds them.
export async function askAll(where, parameters, name, { most = Infinity, signal } = {}) {
  const items = [];
  let page;
  for (let cursor = ""; cursor !== null && items.length < most; cursor = page.next) {
    page = await ask(where({ ...parameters, cursor }), { signal });
    items.push(...page[name]);
  }
  return { ...page, [name]: items };
}

// Read a stream of events until it ends: `take` gets the kind and the data of each. An EventSource could not send the token.
export async function follow(where, take, signal) {
  const answer = await answerTo(where, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      throw unanswered(error);
    }
    if (part.done) return;
    const events = (rest + part.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(
        event.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]),
      );
      if (fields.data !== undefined) take(fields.event, JSON.parse(fields.data));
    }
  }
}
