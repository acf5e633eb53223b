/** Groups of nodes with the same frame: the rows of call trees, in both directions. */

/** @import {Shown} from "./shown.js" */

/**
 * Frames of one symbol at one place of a tree. `weights` are the samples of each node; `bases` those of the range to
 * compare with. `self` are the samples that end in the frames.
 * @typedef {{symbol: number, nodes: number[], weights: number[], bases: number[], total: number, base: number, self: number}} Group
 */

/** Collects nodes into groups by symbol. */
class Grouping {
  /** @param {Shown} shown */
  constructor(shown) {
    this.shown = shown;
    /** @type {Map<number, Group>} */
    this.bySymbol = new Map();
  }

  /**
   * @param {number} node
   * @param {number} weight
   * @param {number} base
   * @param {number} self
   */
  add(node, weight, base, self) {
    if (weight === 0 && base === 0) return;
    const symbol = this.shown.profile.symbol[node];
    let group = this.bySymbol.get(symbol);
    if (group === undefined) {
      group = { symbol, nodes: [], weights: [], bases: [], total: 0, base: 0, self: 0 };
      this.bySymbol.set(symbol, group);
    }
    group.nodes.push(node);
    group.weights.push(weight);
    group.bases.push(base);
    group.total += weight;
    group.base += base;
    group.self += self;
  }

  /** @returns {Group[]} the largest first */
  sorted() {
    const { shown } = this;
    const size = (/** @type {Group} */ group) => (shown.base === null ? group.total : Math.abs(shown.change(group.total, group.base)));
    return [...this.bySymbol.values()].sort((a, b) => size(b) - size(a));
  }
}

/**
 * What the frames of a group call; for `null` the outermost frames.
 * @param {Shown} shown
 * @param {Group|null} group
 * @returns {Group[]}
 */
export function callees(shown, group) {
  const { profile, sums, base } = shown;
  const grouping = new Grouping(shown);
  for (const node of group === null ? [0] : group.nodes) {
    for (let child = node + 1; child < profile.end[node]; child = profile.end[child]) {
      grouping.add(child, sums.total[child], base?.total[child] ?? 0, sums.own[child]);
    }
  }
  return grouping.sorted();
}

/**
 * Who calls the frames of a group; for `null` the frames in which samples end.
 * @param {Shown} shown
 * @param {Group|null} group
 * @returns {Group[]}
 */
export function callers(shown, group) {
  const { profile, sums, base } = shown;
  const grouping = new Grouping(shown);
  if (group === null) {
    for (let node = 1; node < profile.nodes; node++) {
      grouping.add(node, sums.own[node], base?.own[node] ?? 0, sums.own[node]);
    }
    return grouping.sorted();
  }
  group.nodes.forEach((node, at) => {
    const parent = profile.parent[node];
    if (parent > 0) grouping.add(parent, group.weights[at], group.bases[at], 0);
  });
  return grouping.sorted();
}

/**
 * All outermost calls of a function, as a group: each sample is in it once, also with recursion.
 * @param {Shown} shown
 * @param {number} id the function
 * @returns {Group}
 */
export function calls(shown, id) {
  const { profile, sums, base } = shown;
  /** @type {Group} */
  const group = { symbol: profile.functions[id], nodes: [], weights: [], bases: [], total: 0, base: 0, self: 0 };
  for (let node = 1; node < profile.nodes; node++) {
    if (profile.outermost[node] === 0 || profile.functionOf[profile.symbol[node]] !== id) continue;
    const [weight, was] = [sums.total[node], base?.total[node] ?? 0];
    if (weight === 0 && was === 0) continue;
    group.nodes.push(node);
    group.weights.push(weight);
    group.bases.push(was);
    group.total += weight;
    group.base += was;
  }
  return group;
}

/**
 * Functions with their samples: itself, and anywhere in the stack.
 * @typedef {{id: number, symbol: number, self: number, total: number, baseSelf: number, baseTotal: number}} FunctionRow
 * @param {Shown} shown
 * @returns {FunctionRow[]}
 */
export function functions(shown) {
  const { profile, sums, base } = shown;
  const rows = profile.functions.map((symbol, id) => ({ id, symbol, self: 0, total: 0, baseSelf: 0, baseTotal: 0 }));
  for (let node = 1; node < profile.nodes; node++) {
    const [total, baseTotal] = [sums.total[node], base?.total[node] ?? 0];
    if (total === 0 && baseTotal === 0) continue;
    if (profile.outermost[node] === 1) {
      const row = rows[profile.functionOf[profile.symbol[node]]];
      row.total += total;
      row.baseTotal += baseTotal;
    }
    const code = profile.code[node];
    const id = code > 0 ? profile.functionOf[profile.symbol[code]] : -1;
    if (id >= 0) {
      rows[id].self += sums.own[node];
      rows[id].baseSelf += base?.own[node] ?? 0;
    }
  }
  return rows.filter((row) => row.total > 0 || row.baseTotal > 0);
}
