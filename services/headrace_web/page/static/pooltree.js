// The pools of the tree: all of a small tree, and of a large tree the levels that are open.

import { askAll, path } from "./session.js";
import { ROOT } from "./words.js";

// Larger trees are folded below their first level, and asked for level by level.
const MOST_WHOLE = 200;
// Largest number of child pools, of pools that are found, and of starving pools that are shown.
const MOST_SHOWN = 500;

export class PoolTree {
  constructor() {
    this.root = null;
    this.frame = null;
    this.starving = [];
    // False if the tree is so large that only its open levels are known.
    this.isWhole = true;
    // All pools of a small tree.
    this.all = [];
    this.children = new Map();
    this.turned = new Map();
    // Pools of a large tree whose names begin with the searched text.
    this.matching = [];
  }

  // Ask for the pools; `text` is what is searched.
  async load(text, signal) {
    const first = await pools({}, this.isWhole ? MOST_WHOLE : 1, signal);
    this.isWhole = first.next === null;
    const [root] = first.pools;
    const children = this.isWhole ? Map.groupBy(first.pools.slice(1), (each) => each.parent) : await this.openLevels(root, signal);
    if (this.isWhole) {
      this.starving = first.pools.filter((each) => each.share.starvation_status !== "non_starving");
    } else {
      const [starving, matching] = await Promise.all([pools({ starving: true }, MOST_SHOWN, signal), text ? pools({ name_prefix: text }, MOST_SHOWN, signal) : { pools: [] }]);
      [this.starving, this.matching] = [starving.pools, matching.pools];
    }
    [this.root, this.children, this.frame, this.all] = [root, children, first.frame, first.pools];
  }

  async openLevels(root, signal) {
    const children = new Map();
    for (let open = [root]; open.length > 0; ) {
      const levels = await Promise.all(open.map((each) => pools({ parent: each.name }, MOST_SHOWN, signal)));
      open.forEach((each, place) => children.set(each.name, levels[place].pools));
      open = levels.flatMap((each) => each.pools).filter((each) => this.isOpen(each) && each.child_pool_count > 0);
    }
    return children;
  }

  isOpen(pool) {
    return this.turned.get(pool.name) ?? (pool.name === ROOT || this.isWhole);
  }

  hasChildren(pool) {
    return pool.child_pool_count > 0 || this.children.has(pool.name);
  }

  turn(pool) {
    this.turned.set(pool.name, !this.isOpen(pool));
  }

  // Return the open part of the tree, or the pools that are searched: by a part of their names, in a large tree by the beginning.
  shown(text) {
    if (text) return this.isWhole ? this.all.filter((each) => each.name.toLowerCase().includes(text.toLowerCase())) : this.matching;
    const found = [];
    const walk = (pool) => {
      found.push(pool);
      if (this.isOpen(pool)) (this.children.get(pool.name) ?? []).slice(0, MOST_SHOWN).forEach(walk);
    };
    walk(this.root);
    return found;
  }
}

const pools = (filter, most, signal) => askAll(path`/pools`, filter, "pools", { most, signal });
