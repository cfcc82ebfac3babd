// The person: name, groups, rights, tokens, and a way to their operations.

import { facts, h, link, table } from "./draw.js";
import { ask, leave, path, Problem } from "./session.js";
import { Tokens } from "./tokens.js";
import { count, poolName } from "./words.js";

export default function me(view) {
  let found = null;
  const tokens = new Tokens(view);
  let trouble = "";

  async function logOut() {
    try {
      await leave();
      location.reload();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      trouble = error.message;
      view.paint();
    }
  }

  async function load(signal) {
    [found] = await Promise.all([ask(path`/me`, { signal }), tokens.load(signal)]);
  }

  function paint() {
    const user = encodeURIComponent(found.user);
    return [
      h("h1", null, found.user),
      h("p", null, h("button", { type: "button", onclick: logOut }, "Log out"), " ", trouble),
      facts(
        ["administrator", found.administrator ? "yes" : "no"],
        ["groups", found.groups.map((each) => each.name + ({ host: " (of the host)", login: " (of the credential)" }[each.source] ?? "")).join(", ") || "none"],
        ["operations", [link(`/operations?live=true&user=${user}`, "live"), ", ", link(`/operations?user=${user}`, "all")]],
        ["usage", link(`/usage?user=${user}`, "what your runs were allotted and used")],
      ),
      h("h2", null, "Rights"),
      found.pools.length
        ? table(
            found.left_out ? `${count(found.pools.length, "pool")}; ${found.left_out} more are left out` : count(found.pools.length, "pool"),
            [
              { label: "pool", isHeading: true, cell: (each) => link(`/pools/${encodeURIComponent(each.pool)}`, poolName(each.pool)) },
              { label: "tree", cell: (each) => each.tree },
              { label: "rights", cell: (each) => each.rights.join(", ") },
              { label: "by", class: "wide", cell: (each) => [...new Set(each.grants.map(because))].join(", ") || (found.administrator ? "administrator" : "–") },
            ],
            found.pools,
            (each) => `${each.tree} ${each.pool}`,
          )
        : h("p", null, "No right on any pool."),
      tokens.paint(),
    ];
  }

  return { title: "Me", every: 30_000, load, paint };
}

const because = (grant) => (grant.entry ? `${grant.entry} in access/${grant.access} of ${poolName(grant.pool)}` : "no list names anybody for it");
