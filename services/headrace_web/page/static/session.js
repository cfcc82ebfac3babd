// Requests to the API. The token stays in the storage of this origin, whose port no other service has; the cookie alone admits nobody.

const TOKEN = "headrace-token";

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

// Return the answer of the API as an object. An error has the text of the problem.
export async function ask(path) {
  let answer;
  try {
    answer = await fetch(`/api/v1${path}`, { headers: { "x-headrace-token": localStorage.getItem(TOKEN) ?? "" } });
  } catch {
    throw new Error("the web service does not answer; it is tried again");
  }
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail);
  return told;
}
