// Bars of shares, in SVG.

import { h, svg } from "./draw.js";
import { percent } from "./words.js";

const part = (share) => 100 * Math.min(1, Math.max(0, share));

// Return a bar of parts, each a class and a share from 0 to 1, one behind the other. Marks stand across it.
export function bar(words, parts, marks = []) {
  let from = 0;
  const found = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": words }, svg("title", null, words));
  for (const [name, share] of parts) {
    const width = Math.min(100 - from, part(share));
    if (width > 0) found.append(svg("rect", { class: name, x: from, y: 1, width, height: 8 }));
    from += width;
  }
  found.append(svg("rect", { class: "track", x: 0, y: 1, width: 100, height: 8 }));
  for (const [name, share] of marks) found.append(svg("line", { class: `mark ${name}`, x1: part(share), x2: part(share), y1: 0, y2: 10 }));
  return found;
}

// Return what the colours and marks mean.
export const barWords = (meanings) => h("p", { class: "meanings" }, meanings.map(([name, words]) => h("span", { class: `meaning ${name}` }, words)));

// Return the bar of a pool for one resource: usage before demand, with marks for the fair share, the guarantee and the limit. All are shares
// of the cluster from 0 to 1.
export function poolBar(share, resource) {
  const of = (each) => each?.[resource] ?? 0;
  const [used, owed, guaranteed, wanted, limit] = [share.usage_share, share.fair_share.total, share.strong_guarantee_share, share.demand_share, share.limits_share].map(of);
  const words = `${resource}: uses ${percent(used)} of the cluster, fair share ${percent(owed)}, guarantee ${percent(guaranteed)}, demand ${percent(wanted)}, limit ${percent(limit)}`;
  const marks = [["owed", owed]];
  if (guaranteed > 0) marks.unshift(["guarantee", guaranteed]);
  if (limit < 1) marks.push(["limit", limit]);
  return bar(words, [["used", used], ["demand", Math.max(0, wanted - used)]], marks);
}

export const poolBarWords = () =>
  barWords([["used", "usage"], ["demand", "demand beyond it"], ["owed", "fair share"], ["guarantee", "guarantee"], ["limit", "limit"]]);

// Return buttons of which one is pressed, to choose one of some values.
export const choice = (label, values, chosen, choose) =>
  h("div", { class: "choice", role: "group", "aria-label": label }, values.map(([value, words]) => h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, words)));
