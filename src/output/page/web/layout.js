/** The boxes of a flame graph: which frames are visible, and where. */

/** @import {Shown} from "./shown.js" */

/** Frames narrower than this, in pixels, are drawn together with their neighbours. */
const NARROWEST = 1;

/** Stands for frames that are too narrow to be drawn. */
export const NARROW = -1;
/** Stands for lost samples; below it, one number for each reason. */
export const LOST = -2;

/** The boxes of one row, from left to right. @typedef {{x: number[], width: number[], node: number[]}} Row */

export class Layout {
  /**
   * @param {Shown} shown
   * @param {number} zoom the node that has the whole width
   * @param {number} width
   */
  constructor(shown, zoom, width) {
    this.shown = shown;
    this.width = width;
    /** @type {Row[]} */
    this.rows = [];
    const { profile } = shown;
    const path = [];
    for (let node = zoom; node > 0; node = profile.parent[node]) path.push(node);
    if (zoom > 0) path.push(0);
    path.reverse().slice(0, -1).forEach((node, level) => this.put(level, 0, width, node));
    const weight = this.weight(zoom) + (zoom === 0 ? shown.lost : 0);
    if (weight > 0) this.fill(zoom, weight);
    else this.put(profile.depth[zoom], 0, width, zoom);
  }

  /**
   * The width of a node before scaling. Two compared ranges have half of the width each.
   * @param {number} node
   * @returns {number}
   */
  weight(node) {
    const { sums, base } = this.shown;
    if (base === null) return sums.total[node];
    return sums.total[node] / Math.max(1, sums.whole) + base.total[node] / Math.max(1, base.whole);
  }

  /**
   * @param {number} level
   * @param {number} x
   * @param {number} width
   * @param {number} node
   */
  put(level, x, width, node) {
    while (this.rows.length <= level) this.rows.push({ x: [], width: [], node: [] });
    const row = this.rows[level];
    row.x.push(x);
    row.width.push(width);
    row.node.push(node);
  }

  /**
   * Places a node and all above it.
   * @param {number} zoom
   * @param {number} whole
   */
  fill(zoom, whole) {
    const { depth, end } = this.shown.profile;
    const scale = this.width / whole;
    const waiting = [zoom];
    const places = [0];
    while (waiting.length > 0) {
      const node = /** @type {number} */ (waiting.pop());
      const begin = /** @type {number} */ (places.pop());
      const level = depth[node];
      this.put(level, begin, node === zoom ? this.width : this.weight(node) * scale, node);
      let [x, narrow] = [begin, 0];
      const nodes = [];
      const xs = [];
      for (let child = node + 1; child < end[node]; child = end[child]) {
        const width = this.weight(child) * scale;
        if (width === 0) continue;
        if (width < NARROWEST) {
          narrow += width;
        } else {
          if (narrow > NARROWEST) this.put(level + 1, x - narrow, narrow, NARROW);
          narrow = 0;
          nodes.push(child);
          xs.push(x);
        }
        x += width;
      }
      if (narrow > NARROWEST) this.put(level + 1, x - narrow, narrow, NARROW);
      if (node === 0) this.putLost(x, scale);
      // The leftmost child is popped first, so that each row is filled from left to right.
      waiting.push(...nodes.reverse());
      places.push(...xs.reverse());
    }
    for (const row of this.rows) sortRow(row);
  }

  /**
   * @param {number} begin
   * @param {number} scale
   */
  putLost(begin, scale) {
    if (this.shown.lost === 0) return;
    this.put(1, begin, this.shown.lost * scale, LOST);
    let x = begin;
    this.shown.event.accounts.lost.forEach(([, count], at) => {
      this.put(2, x, count * scale, LOST - 1 - at);
      x += count * scale;
    });
  }

  /**
   * The index of the box of a row at a place, or −1.
   * @param {number} level
   * @param {number} x
   * @returns {number}
   */
  at(level, x) {
    const row = this.rows[level];
    if (row === undefined) return -1;
    let [low, high] = [0, row.x.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (row.x[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return row.x.length > 0 && x >= row.x[low] && x < row.x[low] + Math.max(1, row.width[low]) ? low : -1;
  }
}

/**
 * Narrow boxes were placed before their neighbours.
 * @param {Row} row
 */
function sortRow(row) {
  if (row.x.every((x, at) => at === 0 || row.x[at - 1] <= x)) return;
  const order = [...row.x.keys()].sort((a, b) => row.x[a] - row.x[b]);
  for (const name of /** @type {const} */ (["x", "width", "node"])) row[name] = order.map((at) => row[name][at]);
}
