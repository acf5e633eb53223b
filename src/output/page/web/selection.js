/** What is selected: an event, ranges of time, processes and other properties of samples; and its sums. */

/** @import {Profile} from "./data.js" */
import { waitsOf } from "./waits.js";

/** How a key is excluded, if not by one dimension. */
const [NONE, SEVERAL] = [-1, -2];

/** A range of columns: the first one, and the one behind the last. @typedef {[number, number]} Range */

/** A property by which samples are selected. */
export class Dimension {
  /**
   * @param {string} name in the address of the page
   * @param {string} title
   * @param {Profile} profile
   * @param {(key: number) => string} valueOf the value of a key's samples; empty if they have none
   */
  constructor(name, title, profile, valueOf) {
    this.name = name;
    this.title = title;
    /** @type {string[]} */
    this.values = [];
    this.ofKey = new Int32Array(profile.keys);
    /** @type {Map<string, number>} */
    const ids = new Map();
    for (let key = 0; key < profile.keys; key++) {
      const value = valueOf(key);
      let id = ids.get(value);
      if (id === undefined) {
        ids.set(value, (id = this.values.length));
        this.values.push(value);
      }
      this.ofKey[key] = id;
    }
  }
}

/**
 * The properties in which samples of the profile differ.
 * @param {Profile} profile
 * @returns {Dimension[]}
 */
export function dimensions(profile) {
  const { labels, strings, containers } = profile;
  const jvms = new Map((profile.report?.jvms ?? []).map((/** @type {any} */ jvm) => [jvm.pid, `${jvm.name} (${jvm.pid})`]));
  /** @param {(labels: number) => string} of */
  const ofLabels = (of) => {
    const values = labels.pid.map((/** @type {number} */ _, /** @type {number} */ at) => of(at));
    return (/** @type {number} */ key) => values[profile.keyLabels[key]];
  };
  /** @param {(container: import("./data.js").Container) => string} of */
  const ofContainer = (of) => ofLabels((at) => (labels.container[at] < 0 ? "" : of(containers[labels.container[at]])));
  const stateOf = ofLabels((at) => labels.state[at]);
  const waitOf = waitsOf(profile);
  const all = [
    new Dimension("process", "Process", profile, ofLabels((at) => strings[labels.process[at]])),
    new Dimension("pid", "Process id", profile, ofLabels((at) => (labels.pid[at] ? `${labels.pid[at]} ${strings[labels.process[at]]}` : ""))),
    new Dimension("jvm", "JVM", profile, ofLabels((at) => jvms.get(labels.pid[at]) ?? "")),
    new Dimension("thread", "Thread", profile, ofLabels((at) => `${strings[labels.thread[at]]}${labels.tid[at] ? ` (${labels.tid[at]})` : ""}`)),
    new Dimension("container", "Container", profile, ofContainer((one) => one.title)),
    new Dimension("pod", "Pod", profile, ofContainer((one) => (one.pod ? `${one.namespace}/${one.pod}` : ""))),
    new Dimension("namespace", "Namespace", profile, ofContainer((one) => one.namespace)),
    // Formats without labels have the state in the leaf only.
    new Dimension("state", "State", profile, (key) => (stateOf(key) === "running" && waitOf(key).state) || stateOf(key)),
    new Dimension("reason", "Reason", profile, (key) => waitOf(key).reason),
    new Dimension("lock", "Java lock", profile, (key) => waitOf(key).lock),
  ];
  return all.filter((one) => one.values.length > 1);
}

/** The sums of a selection: for each node its own samples, and those of all stacks through the node. */
export class Sums {
  /** @param {Profile} profile */
  constructor(profile) {
    this.own = new Float64Array(profile.nodes);
    this.total = new Float64Array(profile.nodes);
  }

  /** Samples of the selection. */
  get whole() {
    return this.total[0];
  }

  /** @param {Profile} profile */
  addUp(profile) {
    this.total.set(this.own);
    for (let node = profile.nodes - 1; node > 0; node--) this.total[profile.parent[node]] += this.total[node];
  }
}

export class Selection {
  /** @param {Profile} profile */
  constructor(profile) {
    this.profile = profile;
    this.dimensions = dimensions(profile);
    this.event = 0;
    /** What is shown; `null` is the whole time. @type {Range|null} */
    this.range = null;
    /** What it is compared with. @type {Range|null} */
    this.base = null;
    /** For each dimension the chosen values; none means all. @type {Set<number>[]} */
    this.chosen = this.dimensions.map(() => new Set());
  }

  get isWhole() {
    return this.range === null && this.base === null && this.chosen.every((set) => set.size === 0);
  }

  /**
   * The dimension that alone excludes a key: `NONE` if the key is selected, `SEVERAL` if more than one excludes it.
   * @param {number} key
   * @returns {number}
   */
  excludedBy(key) {
    let by = NONE;
    for (let at = 0; at < this.dimensions.length; at++) {
      const chosen = this.chosen[at];
      if (chosen.size === 0 || chosen.has(this.dimensions[at].ofKey[key])) continue;
      if (by !== NONE) return SEVERAL;
      by = at;
    }
    return by;
  }

  /**
   * The samples of a key within a range.
   * @param {number} key
   * @param {Range|null} range
   * @returns {number}
   */
  within(key, range) {
    const { firstRow, rowColumn, rowCount } = this.profile;
    let sum = 0;
    for (let row = firstRow[key]; row < firstRow[key + 1]; row++) {
      if (range === null || (rowColumn[row] >= range[0] && rowColumn[row] < range[1])) sum += rowCount[row];
    }
    return sum;
  }

  /**
   * Visits each selected key with its samples in the range.
   * @param {Range|null} range
   * @param {(key: number, count: number) => void} visit
   */
  each(range, visit) {
    for (let key = 0; key < this.profile.keys; key++) {
      if (this.profile.keyEvent[key] !== this.event || this.excludedBy(key) !== NONE) continue;
      const count = this.within(key, range);
      if (count > 0) visit(key, count);
    }
  }

  /**
   * @param {Range|null} range
   * @returns {Sums}
   */
  sums(range) {
    const sums = new Sums(this.profile);
    this.each(range, (key, count) => {
      sums.own[this.profile.keyNode[key]] += count;
    });
    sums.addUp(this.profile);
    return sums;
  }

  /**
   * For each dimension, samples by value, of what the other dimensions select.
   * @returns {Float64Array[]}
   */
  facets() {
    const counts = this.dimensions.map((one) => new Float64Array(one.values.length));
    for (let key = 0; key < this.profile.keys; key++) {
      if (this.profile.keyEvent[key] !== this.event) continue;
      const by = this.excludedBy(key);
      if (by === SEVERAL) continue;
      const count = this.within(key, this.range);
      counts.forEach((sums, at) => {
        if (by === NONE || by === at) sums[this.dimensions[at].ofKey[key]] += count;
      });
    }
    return counts;
  }

  /**
   * Samples by row and column of the heat map, whatever range is selected. The last row has all other values.
   * @param {Dimension|null} dimension
   * @param {number} most rows
   * @returns {{names: string[], cells: Float64Array[]}}
   */
  heat(dimension, most) {
    const { firstRow, rowColumn, rowCount, columns } = this.profile;
    const of = dimension === null ? () => 0 : (/** @type {number} */ key) => dimension.ofKey[key];
    const totals = new Float64Array(dimension === null ? 1 : dimension.values.length);
    this.each(null, (key, count) => {
      totals[of(key)] += count;
    });
    const order = [...totals.keys()].filter((value) => totals[value] > 0).sort((a, b) => totals[b] - totals[a]);
    const kept = order.length > most ? order.slice(0, most - 1) : order;
    const place = new Int32Array(totals.length).fill(kept.length);
    kept.forEach((value, at) => {
      place[value] = at;
    });
    const names = kept.map((value) => (dimension === null ? "samples" : dimension.values[value] || "(none)"));
    if (kept.length < order.length) names.push(`${order.length - kept.length} others`);
    const cells = names.map(() => new Float64Array(columns));
    this.each(null, (key) => {
      const row = cells[place[of(key)]];
      for (let at = firstRow[key]; at < firstRow[key + 1]; at++) row[rowColumn[at]] += rowCount[at];
    });
    return { names, cells };
  }
}
