// Amounts, times and names in the words of the command line.

export const RESOURCES = ["cpu", "memory", "gpu", "network", "user_slots"];
export const ROOT = "<Root>";
export const FINAL = ["completed", "failed", "aborted"];

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const TIMES = [["d", 86_400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];

export const shortName = (resource) => (resource === "user_slots" ? "slots" : resource);
export const poolName = (pool) => (pool === ROOT ? "the tree" : pool);
export const percent = (share) => `${(100 * share).toFixed(share && share < 0.1 ? 1 : 0)} %`;
export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

export function amount(resource, value) {
  if (resource !== "memory") return String(Math.round(100 * value) / 100);
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number(value.toPrecision(4))} ${UNITS[unit]}`;
}

// Return amounts such as `cpu 1.5, memory 512 MiB`, without zeros and slots.
export function amounts(resources) {
  const words = RESOURCES.filter((name) => name !== "user_slots" && resources?.[name]).map((name) => `${name} ${amount(name, resources[name])}`);
  return words.join(", ") || "–";
}

export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds === 0) return `${Math.floor(ms)}ms`;
  for (const [unit, size, lower, lowerSize] of TIMES) {
    if (seconds >= size) {
      const rest = Math.floor((seconds % size) / lowerSize);
      return `${Math.floor(seconds / size)}${unit}${rest ? rest + lower : ""}`;
    }
  }
  return `${seconds}s`;
}

// Return the time of day, with the date if it is a day or more from now.
export function clock(ms) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString("sv");
  return Math.abs(Date.now() - ms) < 86_400_000 ? time : `${at.toLocaleDateString("sv")} ${time}`;
}

export const isOver = (operation) => FINAL.includes(operation.state);
export const stateWords = (operation) => operation.state + (operation.suspended && !isOver(operation) ? ", suspended" : "");
export const timeWords = (operation) => duration(Math.max(0, (operation.ended_at_ms || Date.now()) - operation.started_at_ms));

// Return what an operation waits for, or its position in the queue of a pool.
export function waitsFor(operation) {
  if (operation.awaits.length) return `the end of ${operation.awaits.join(", ")}`;
  const words = operation.waiting.map((each) => {
    const tree = operation.placements.length > 1 ? `in tree ${each.tree}: ` : "";
    const place = each.place ? `position ${each.place} of ${each.waiting} at` : "waits at";
    return `${tree}${place} ${poolName(each.blocked_by)} (${each.running} of ${each.limit} running)`;
  });
  if (operation.awaiting_jobs) words.push(`${operation.spec.after_each}: ${count(operation.awaiting_jobs, "job")} to complete there first`);
  return words.join("; ");
}
